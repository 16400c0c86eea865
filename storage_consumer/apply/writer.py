"""TargetWriter: what a task does to the target. One connection, one slot; every transaction checks the fence first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from storage_consumer.apply.keyless import KeylessTable
from storage_consumer.apply.quarantine import QuarantineStatements, RefusedRow, takes
from storage_consumer.apply.rows import TRANSACTION_ROWS, TRANSACTION_SIZE, RowStatements
from storage_consumer.apply.statements import row_text
from storage_consumer.apply.transaction import FencedConnection
from storage_consumer.downstream.batches import batches
from storage_consumer.downstream.connection import escape
from storage_consumer.downstream.mysql_errors import described
from storage_consumer.errors import RowRefused
from storage_consumer.job.reports import QuarantinedRow, RowPlace
from storage_consumer.job.spec import JobSpec, TablePlan
from storage_consumer.kernels.row_lines import size_of
from storage_consumer.order.keyless import Events

Run = tuple[bool, Sequence[bytes]]
"""Whether the rows are written (true) or deleted, and their lines."""


def together(ordered: Iterable[Run]) -> Iterator[list[Run]]:
    """Group runs for one transaction each; long runs are cut."""
    held: list[Run] = []
    rows = size = 0
    for upsert, lines in ordered:
        for batch in batches(lines, TRANSACTION_ROWS, TRANSACTION_SIZE):
            more = size_of(batch)
            # Short runs share a transaction, since each commit costs the server more than a few rows do.
            if held and (rows + len(batch) > TRANSACTION_ROWS or size + more > TRANSACTION_SIZE):
                yield held
                held, rows, size = [], 0, 0
            held.append((upsert, batch))
            rows, size = rows + len(batch), size + more
    if held:
        yield held


class TargetWriter:
    """A `pipeline.RowWriter` over one connection."""

    def __init__(self, spec: JobSpec, password: str, partition: int) -> None:
        """Take this task's number `partition`, which is also its slot."""
        self._fenced = FencedConnection(spec, password, partition)
        self._rows = RowStatements(self._fenced)
        self._quarantine = QuarantineStatements(self._fenced)
        self._with_entries: set[int] = set()
        """Indexes of the tables of which this writer quarantined a row."""

    def finish(self) -> None:
        """Close the slot: no other attempt of this task may write in this window."""
        self._fenced.finish()

    def close(self) -> None:
        """Close the connection."""
        self._fenced.close()

    def write_states(self, work: TablePlan, deletes: Sequence[bytes], upserts: Sequence[bytes]) -> int:
        """Write last states in transactions of bounded size, deletes first, then upserts; return the number of rows. Idempotent."""
        # Deletes first: the target may find a deleted key equal to one of the rows that are written.
        return self.write_runs(work, ((False, deletes), (True, upserts)))

    def write_together(self, states: Sequence[tuple[TablePlan, Sequence[bytes], Sequence[bytes]]]) -> list[int]:
        """Write last states of several tables whose writers do not queue, in one transaction; return the numbers of rows."""

        def write() -> list[int]:
            return [self._write(work, ((False, deletes), (True, upserts))) for work, deletes, upserts in states]

        # Any of the tables serves here: the plan only decides about queueing, which none of them does, and names a table in errors.
        return self._fenced.transaction(states[0][0], write)

    def write_runs(self, work: TablePlan, ordered: Iterable[tuple[bool, Sequence[bytes]]]) -> int:
        """Write runs of upserts and deletes in order, many short ones in one transaction; return the number of rows."""
        return sum(self._fenced.transaction(work, partial(self._write, work, some)) for some in together(ordered))

    def write_accepted(
        self, work: TablePlan, deletes: Sequence[bytes], upserts: Sequence[bytes], place_of: Callable[[bytes], RowPlace]
    ) -> tuple[int, list[QuarantinedRow]]:
        """Write as `write_states` does, and quarantine rows that the target refuses for what they hold.

        Each transaction holds both its rows and the entries of the rows that it left out. `place_of` returns where a line comes from.
        """
        written, aside = 0, []
        for some in together(((False, deletes), (True, upserts))):
            rows, refused = self._write_but_refused(work, some, place_of)
            written += rows
            aside += [_reported(work, each) for each in refused]
        return written, aside

    def _write_but_refused(
        self, work: TablePlan, some: Sequence[Run], place_of: Callable[[bytes], RowPlace]
    ) -> tuple[int, list[RefusedRow]]:
        """Write the runs of one transaction without the rows that are refused; return the number of rows, and those left out."""
        refused: list[RefusedRow] = []
        while True:
            accepted = _without(some, frozenset(row.line for row in refused))
            try:
                rows = self._fenced.transaction(work, partial(self._write_beside, work, accepted, refused))
            except RowRefused as fault:
                # One that is refused again although it is left out would be asked for without end.
                if work.quarantine is None or not takes(work, fault) or fault.line in {row.line for row in refused}:
                    raise
                refused.append(
                    RefusedRow(
                        line=fault.line,
                        place=place_of(fault.line),
                        reason=described(fault.__cause__ or fault),
                        error_number=fault.content_error,
                    )
                )
                if len(refused) > work.quarantine.limit:
                    self._fenced.transaction(work, partial(self._write_beside, work, (), refused))
            else:
                if refused:
                    self._with_entries.add(work.index)
                return rows, refused

    def _write_beside(self, work: TablePlan, accepted: Sequence[Run], refused: Sequence[RefusedRow]) -> int:
        """Write accepted rows, and the entries of refused ones, in the running transaction."""
        if not refused or work.quarantine is None:
            return self._write(work, accepted)
        # Entries first: they note what the target holds of their keys, and a REPLACE may push such a row out.
        self._quarantine.put(work, work.quarantine, refused)
        rows = self._write(work, accepted)
        # Counted last, since rows that are accepted remove the entries of their keys.
        self._quarantine.check_limit(work, work.quarantine, refused[-1].reason)
        return rows

    def _write(self, work: TablePlan, some: Sequence[Run]) -> int:
        """Write the runs of one transaction; return the number of rows."""
        # A row that an earlier attempt of this task quarantined may be accepted by now.
        if work.has_entries or work.index in self._with_entries or (self._fenced.repeats and work.quarantine):
            self._quarantine.supersede(work, some)
        return sum((self._rows.replace if upsert else self._rows.delete)(work, rows) for upsert, rows in some)

    def write_events(self, work: TablePlan, parts: Iterable[Events]) -> int:
        """Write a keyless table's events; return how many.

        The table's stored checkpoint moves in the same transactions, only at ends of a commit-ts.
        """
        return KeylessTable(self._rows, work).write(parts)


def _without(some: Sequence[Run], refused: frozenset[bytes]) -> list[Run]:
    """Return runs without refused rows."""
    if not refused:
        return list(some)
    return [(upsert, [line for line in lines if not (upsert and line in refused)]) for upsert, lines in some]


def _reported(work: TablePlan, row: RefusedRow) -> QuarantinedRow:
    key = row_text(work, row.line, escape, key_only=False)
    return QuarantinedRow(key=key, reason=row.reason, place=row.place)
