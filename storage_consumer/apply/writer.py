"""TargetWriter: what a task does to the target. One connection, one slot; every transaction checks the fence first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby

from storage_consumer.apply.keyless import KeylessTable
from storage_consumer.apply.quarantine import QuarantineStatements, RefusedRow, takes
from storage_consumer.apply.rows import TRANSACTION_ROWS, TRANSACTION_SIZE, RowStatements
from storage_consumer.apply.statements import row_text
from storage_consumer.apply.transaction import FencedConnection
from storage_consumer.downstream.batches import batches
from storage_consumer.downstream.connection import escape
from storage_consumer.downstream.mysql_errors import described
from storage_consumer.errors import RowRefused
from storage_consumer.job.reports import QuarantinedRow, RowPlace, Written
from storage_consumer.job.spec import JobSpec, TablePlan
from storage_consumer.kernels.row_lines import size_of
from storage_consumer.order.changes import Events
from storage_consumer.order.keys import Action, Run


def together(ordered: Iterable[Run]) -> Iterator[list[Run]]:
    """Group runs for one transaction each; long runs are cut."""
    held: list[Run] = []
    rows = size = 0
    for action, lines in ordered:
        for batch in batches(lines, TRANSACTION_ROWS, TRANSACTION_SIZE):
            more = size_of(batch)
            # Short runs share a transaction, since each commit costs the server more than a few rows do.
            if held and (rows + len(batch) > TRANSACTION_ROWS or size + more > TRANSACTION_SIZE):
                yield held
                held, rows, size = [], 0, 0
            held.append(Run(action, batch))
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

    def write_together(self, states: Sequence[tuple[TablePlan, Sequence[Run]]]) -> list[int]:
        """Write runs of several tables whose writers do not queue, in one transaction; return the numbers of rows."""

        def write() -> list[int]:
            return [self._write(work, runs).rows for work, runs in states]

        # Any of the tables serves here: the plan only decides about queueing, which none of them does, and names a table in errors.
        return self._fenced.transaction(states[0][0], write)

    def write_runs(self, work: TablePlan, ordered: Sequence[Run]) -> Written:
        """Write runs in order, in transactions of bounded size, many short runs in one. Idempotent."""
        work, parts = self._parts(work, ordered)
        return _sum([self._fenced.transaction(work, partial(self._write, work, some)) for some in parts])

    def write_accepted(
        self, work: TablePlan, ordered: Sequence[Run], place_of: Callable[[bytes], RowPlace]
    ) -> tuple[Written, list[QuarantinedRow]]:
        """Write as `write_runs` does, and quarantine rows that the target refuses for what they hold.

        Each transaction holds both its rows and the entries of the rows that it left out. `place_of` returns where a line comes from.
        """
        work, parts = self._parts(work, ordered)
        counts, aside = [], []
        for some in parts:
            written, refused = self._write_but_refused(work, some, place_of)
            counts.append(written)
            aside += [_reported(work, each) for each in refused]
        return _sum(counts), aside

    def _parts(self, work: TablePlan, ordered: Sequence[Run]) -> tuple[TablePlan, list[list[Run]]]:
        """Return the runs of each transaction, and the plan: where one writes all of the table, no row in the way is about to go."""
        parts = list(together(ordered))
        is_alone = self._fenced.spec.whole or self._fenced.spec.partitions == 1
        blocks = sum(1 for upserts, _ in groupby(ordered, _is_upserts) if upserts)
        return replace(work, is_settled=work.is_settled or (is_alone and len(parts) <= 1 and blocks <= 1)), parts

    def _write_but_refused(
        self, work: TablePlan, some: Sequence[Run], place_of: Callable[[bytes], RowPlace]
    ) -> tuple[Written, list[RefusedRow]]:
        """Write the runs of one transaction without the rows that are refused; return what was written, and those left out."""
        refused: list[RefusedRow] = []
        while True:
            accepted = _without(some, frozenset(row.line for row in refused))
            try:
                written = self._fenced.transaction(work, partial(self._write_beside, work, accepted, refused))
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
                return written, refused

    def _write_beside(self, work: TablePlan, accepted: Sequence[Run], refused: Sequence[RefusedRow]) -> Written:
        """Write accepted rows, and the entries of refused ones, in the running transaction."""
        if not refused or work.quarantine is None:
            return self._write(work, accepted)
        # Entries first: they note what the target holds of their keys, and may give way to an accepted row.
        self._quarantine.put(work, work.quarantine, refused)
        written = self._write(work, accepted)
        # Counted last, since rows that are accepted remove the entries of their keys.
        self._quarantine.check_limit(work, work.quarantine, refused[-1].reason)
        return written

    def _write(self, work: TablePlan, some: Sequence[Run]) -> Written:
        """Write the runs of one transaction."""
        # A row that an earlier attempt of this task quarantined may be accepted by now.
        if work.has_entries or work.index in self._with_entries or (self._fenced.repeats and work.quarantine):
            self._quarantine.supersede(work, some)
        rows = blocked = 0
        for upserts, runs in groupby(some, _is_upserts):
            lines: dict[Action, Sequence[bytes]] = {}
            for action, some_lines in runs:
                lines[action] = [*lines[action], *some_lines] if action in lines else some_lines
            if upserts:
                born, others = lines.get(Action.INSERT, ()), lines.get(Action.REPLACE, ())
                refused = self._rows.put(work, born, others, is_settled=work.is_settled, gives_way=self._gives_way)
                rows, blocked = rows + len(born) + len(others) - refused, blocked + refused
            else:
                rows += sum(
                    self._rows.delete(work, keys, exact=action is Action.REMOVE) for action, keys in lines.items()
                )
        return Written(rows, blocked)

    def _gives_way(self, work: TablePlan, key: bytes) -> bool:
        """Return whether the target holds a former state of a quarantined row: that has changed at the source, and need not be kept."""
        return bool(work.has_entries or work.quarantine) and self._quarantine.holds(work, key)

    def write_events(self, work: TablePlan, parts: Iterable[Events]) -> int:
        """Write a keyless table's events; return how many.

        The table's stored checkpoint moves in the same transactions, only at ends of a commit-ts.
        """
        return KeylessTable(self._rows, work).write(parts)


def _is_upserts(run: Run) -> bool:
    return run.action in (Action.INSERT, Action.REPLACE)


def _sum(written: Sequence[Written]) -> Written:
    return Written(sum(each.rows for each in written), sum(each.blocked for each in written))


def _without(some: Sequence[Run], refused: frozenset[bytes]) -> list[Run]:
    """Return runs without refused rows."""
    if not refused:
        return list(some)
    return [
        Run(run.action, [line for line in run.lines if line not in refused]) if _is_upserts(run) else run
        for run in some
    ]


def _reported(work: TablePlan, row: RefusedRow) -> QuarantinedRow:
    key = row_text(work, row.line, escape, key_only=False)
    return QuarantinedRow(key=key, reason=row.reason, place=row.place)
