"""TargetWriter: what a task does to the target. One connection, one slot; every transaction checks the fence first."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from storage_consumer.target.batches import batches
from storage_consumer.target.keyless import Group, KeylessTables
from storage_consumer.target.rows import TRANSACTION_ROWS, TRANSACTION_SIZE, RowStatements
from storage_consumer.work import JobSpec, TableWork


class TargetWriter:
    """A `pipeline.RowWriter` over one connection."""

    def __init__(self, spec: JobSpec, password: str, partition: int) -> None:
        """`partition`: this task's number, hence its slot."""
        self._target = RowStatements(spec, password, partition)

    def finish(self) -> None:
        """Nothing more comes from this task: no other attempt of it may write in this window."""
        self._target.finish()

    def close(self) -> None:
        """Close the connection."""
        self._target.close()

    def write_states(self, work: TableWork, deletes: list[bytes], upserts: list[bytes]) -> int:
        """Write last states: deletes first, then upserts, in transactions of bounded size. Playing it again changes nothing."""
        return self.write_runs(work, ((False, deletes), (True, upserts)))

    def write_runs(self, work: TableWork, ordered: Iterable[tuple[bool, list[bytes]]]) -> int:
        """Write runs of upserts and deletes in their order."""
        written = 0
        for upsert, rows in ordered:
            write = self._target.replace if upsert else self._target.delete
            for batch in batches(rows, TRANSACTION_ROWS, TRANSACTION_SIZE):
                written += self._target.transaction(work, partial(write, work, batch))
        return written

    def write_events(self, work: TableWork, groups: Iterable[Group]) -> int:
        """Write a keyless table's events; its stored checkpoint moves in the same transactions, at ends of commit ts only."""
        return KeylessTables(self._target).write(work, groups)
