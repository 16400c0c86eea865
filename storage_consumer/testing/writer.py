"""The twin of the target's writer: rows in memory, behind the same fence."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from itertools import chain

from storage_consumer.decode.wire_format import decode_line
from storage_consumer.errors import LeaseLost, RowRefused
from storage_consumer.job.reports import QuarantinedRow, RowPlace
from storage_consumer.job.spec import JobSpec, TablePlan
from storage_consumer.order.keyless import Events
from storage_consumer.ports import TableProgress
from storage_consumer.testing.records import Row, TargetRecords


class FencedWriter:
    """A `pipeline.RowWriter` on the records' rows; each call is one transaction that checks the fence first."""

    def __init__(self, records: TargetRecords, spec: JobSpec) -> None:
        """Take the fence of one job: its epoch and window."""
        self._records = records
        self._fence = (spec.epoch, spec.window_id)

    def write_states(self, work: TablePlan, deletes: Sequence[bytes], upserts: Sequence[bytes]) -> int:
        """Apply the deletes, then the upserts."""
        return self.write_runs(work, ((False, deletes), (True, upserts)))

    def write_accepted(
        self, work: TablePlan, deletes: Sequence[bytes], upserts: Sequence[bytes], place_of: Callable[[bytes], RowPlace]
    ) -> tuple[int, list[QuarantinedRow]]:
        """Write them as `write_states` does; a twin quarantines nothing."""
        del place_of
        return self.write_states(work, deletes, upserts), []

    def write_together(self, states: Sequence[tuple[TablePlan, Sequence[bytes], Sequence[bytes]]]) -> list[int]:
        """Write one table after another: nothing here refuses a row."""
        return [self.write_runs(work, ((False, deletes), (True, upserts))) for work, deletes, upserts in states]

    def write_runs(self, work: TablePlan, ordered: Iterable[tuple[bool, Sequence[bytes]]]) -> int:
        """Delete rows by key; add rows in place of all that share a unique key with them, as REPLACE does."""
        rows, written = self._rows(work), 0
        names = tuple(part.column.name for part in work.key)
        unique = {names, *self._unique(work)}
        for upsert, lines in ordered:
            for line in lines:
                row = self._row(work, tuple(column.name for column in work.written) if upsert else names, line)
                _remove(rows, row, unique if upsert else {names})
                rows += [row] if upsert else []
                written += 1
        return written

    def write_events(self, work: TablePlan, parts: Iterable[Events]) -> int:
        """Write events one by one and move the stored checkpoint with them; a row replaces those with its unique keys, if any."""
        rows, written = self._rows(work), 0
        unique = self._unique(work) if work.replaces else set()
        # What is at or below the stored checkpoint was written before, as in the real writer.
        due = chain.from_iterable(part.after(self._checkpoint(work)).by_commit_ts() for part in parts)
        for commit_ts, events in due:
            for upsert, line in events:
                row = self._row(work, tuple(column.name for column in work.written), line)
                if not upsert and row not in rows:
                    raise RowRefused(f"{work.name}: the delete with commit ts {commit_ts} finds no row {row}")
                _remove(rows, row, unique if upsert else ())
                rows.append(row) if upsert else rows.remove(row)
                written += 1
            # With each commit-ts, as the real writer moves it in the transaction of its rows.
            self._move(work, commit_ts)
        return written

    def _checkpoint(self, work: TablePlan) -> int:
        """Return the table's stored checkpoint, or the clock of its load."""
        if work.origin:
            return self._records.loads[work.table_key].done
        stored = self._records.tables.get(work.table_key)
        return 0 if stored is None else stored.checkpoint

    def _move(self, work: TablePlan, commit_ts: int) -> None:
        """Store the same."""
        key = work.table_key
        if work.origin:
            self._records.loads[key] = replace(self._records.loads[key], done=commit_ts)
            return
        new = TableProgress(
            table_key=key, schema=work.name.schema, table=work.name.table, checkpoint=0, state="running"
        )
        self._records.tables[key] = replace(self._records.tables.get(key, new), checkpoint=commit_ts)

    def _rows(self, work: TablePlan) -> list[Row]:
        # The fence, at the beginning of each transaction.
        if self._records.window != self._fence:
            raise LeaseLost(f"the window {self._fence} is closed: {self._records.window} is open")
        return self._records.rows.setdefault(work.name.folded(), [])

    def _unique(self, work: TablePlan) -> set[tuple[str, ...]]:
        """Return the columns of each unique key."""
        table = self._records.structures.get(work.name.folded())
        return set() if table is None else {key.columns for key in table.unique_keys}

    def _row(self, work: TablePlan, names: Sequence[str], line: bytes) -> Row:
        """Return the values of a line as the table's columns hold them."""
        row: Row = dict(zip(names, decode_line(line), strict=True))
        table = self._records.structures.get(work.name.folded())
        for column in table.columns if table else ():
            # A server gives a time back with all of its column's digits; a delete has to match that.
            if column.digits and (text := row.get(column.name)):
                row[column.name] = _with_fraction(text, column.digits)
        return row


def _with_fraction(text: str, digits: int) -> str:
    """Return a time with `digits` digits of fractional seconds, as a column gives it back."""
    whole, _, fraction = text.partition(".")
    return f"{whole}.{fraction.ljust(digits, '0')}"


def _remove(rows: list[Row], row: Row, keys: Collection[Sequence[str]]) -> None:
    """Remove the rows that share one of these keys with a row."""
    if keys:
        rows[:] = [there for there in rows if not any(_is_one(there, row, key) for key in keys)]


def _is_one(row: Row, other: Row, key: Sequence[str]) -> bool:
    """Return whether two rows share a unique key; a key that contains a NULL matches no other."""
    return all(row[name] is not None and row[name] == other[name] for name in key)
