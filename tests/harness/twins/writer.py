"""The twin of the target's writer: rows in memory, behind the same fence."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain, groupby
from operator import itemgetter

from storage_consumer.decode.wire_format import decode_line
from storage_consumer.errors import LeaseLost, RowRefused
from storage_consumer.ports import TableProgress
from storage_consumer.rows.halves import PlaceOf
from storage_consumer.rows.row_keys import Action, Run, is_upsert
from storage_consumer.rows.row_order import Changes
from storage_consumer.rows.spec import JobSpec, TablePlan, Written
from tests.harness.twins.records import Row, TargetRecords

Same = Callable[[str, str], str]
"""Maps a column's name and a text of it to what is equal for texts that are one to the target."""


def by_commit_ts(part: Changes) -> Iterator[tuple[int, list[tuple[bool, bytes]]]]:
    """Yield each commit-ts with its events: whether each leaves a row behind, and its line."""
    events = zip(part.ts.tolist(), is_upsert(part.order).tolist(), part.lines, strict=True)
    for ts, together in groupby(events, key=itemgetter(0)):
        yield ts, [(upsert, line) for _, upsert, line in together]


class FencedWriter:
    """A `pipeline.RowWriter` on the records' rows; each call is one transaction that checks the fence first."""

    def __init__(self, records: TargetRecords, spec: JobSpec) -> None:
        """Take the fence of one job: its epoch and window."""
        self._records = records
        self._fence = (spec.epoch, spec.window_id)
        self._is_alone = spec.whole or spec.partitions == 1

    def write_together(self, states: Sequence[tuple[TablePlan, Sequence[Run]]]) -> list[int]:
        """Write one table after another."""
        return [self.write_runs(work, runs).rows for work, runs in states]

    def write_runs(self, work: TablePlan, ordered: Sequence[Run], place_of: PlaceOf | None = None) -> Written:
        """Write runs one after another, each block of upserts as one transaction of the real writer."""
        del place_of  # a twin quarantines nothing
        work = replace(work, is_settled=work.is_settled or (self._is_alone and len(list(blocks(ordered))) <= 1))
        with _all_or_nothing(self._rows(work)) as rows:
            return write_blocks(rows, work, ordered, self._unique(work), partial(self._row, work), self._same(work))

    def write_events(self, work: TablePlan, parts: Iterable[Changes]) -> int:
        """Write events one by one and move the stored checkpoint with them; a row replaces those with its unique keys, if any."""
        rows, written = self._rows(work), 0
        unique = self._unique(work) if work.replaces else set()
        # What is at or below the stored checkpoint was written before, as in the real writer.
        due = chain.from_iterable(by_commit_ts(part.after(self._checkpoint(work))) for part in parts)
        for commit_ts, events in due:
            with _all_or_nothing(rows):
                for upsert, line in events:
                    row = self._row(work, tuple(column.name for column in work.written), line)
                    self._write_event(work, rows, row, unique if upsert else None, commit_ts)
                    written += 1
            # With each commit-ts, as the real writer moves it in the transaction of its rows.
            self._move(work, commit_ts)
        return written

    def _write_event(
        self, work: TablePlan, rows: list[Row], row: Row, unique: Collection[tuple[str, ...]] | None, commit_ts: int
    ) -> None:
        """Insert a row of a table with these unique keys, or delete it (None)."""
        if unique is None:
            if row not in rows:
                raise RowRefused(f"{work.name}: the delete with commit ts {commit_ts} finds no row {row}")
            rows.remove(row)
            return
        # An update alone has the same in a unique key, to the last byte.
        _remove(rows, row, unique)
        if other := self._in_the_way(work, rows, row, unique):
            raise RowRefused(f"{work.name}: the row {row} was not written, for the target holds {other}")
        rows.append(row)

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

    def _in_the_way(
        self, work: TablePlan, rows: Iterable[Row], row: Row, keys: Collection[Sequence[str]]
    ) -> Row | None:
        same = self._same(work)
        return next((there for there in rows if any(_is_one(there, row, key, same) for key in keys)), None)

    def _same(self, work: TablePlan) -> Same:
        """Return what two values of a column are to be equal in, for the target to find them equal."""
        table = self._records.structures.get(work.name.folded())
        lax = {
            column.name: column
            for column in (table.columns if table else ())
            if column.pads or not column.binary_collation
        }

        def same(name: str, text: str) -> str:
            if column := lax.get(name):
                text = text.rstrip(" ") if column.pads else text
                return text if column.binary_collation else text.casefold()
            return text

        return same

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


@contextmanager
def _all_or_nothing(rows: list[Row]) -> Iterator[list[Row]]:
    """Undo what the block does to the rows where it refuses one."""
    before = list(rows)
    try:
        yield rows
    except RowRefused:
        rows[:] = before
        raise


def _remove(rows: list[Row], row: Row, keys: Collection[Sequence[str]]) -> None:
    """Remove the rows that share one of these keys with a row."""
    if keys:
        rows[:] = [there for there in rows if not any(_is_one(there, row, key) for key in keys)]


def _as_it_is(column: str, text: str) -> str:
    return text


def _is_one(row: Row, other: Row, key: Sequence[str], same: Same = _as_it_is) -> bool:
    """Return whether two rows share a unique key; a key that contains a NULL matches no other."""
    pairs = [(name, row[name], other[name]) for name in key]
    return all(a is not None and b is not None and same(name, a) == same(name, b) for name, a, b in pairs)


def blocks(ordered: Sequence[Run]) -> Iterator[list[Run]]:
    """Yield the runs of upserts that follow one another."""
    yield from (list(runs) for upserts, runs in groupby(ordered, _is_upserts) if upserts)


def _is_upserts(run: Run) -> bool:
    return run.action in (Action.INSERT, Action.REPLACE)


def write_blocks(
    rows: list[Row],
    work: TablePlan,
    ordered: Sequence[Run],
    unique: Collection[tuple[str, ...]],
    row_of: Callable[[Sequence[str], bytes], Row],
    same: Same,
) -> Written:
    """Write runs to `rows` as `apply.rows` does: a row goes with its own key, to the last byte if it came into being, and never for another."""
    key, names = tuple(part.column.name for part in work.key), tuple(column.name for column in work.written)
    written = blocked = 0
    for upserts, runs in groupby(ordered, _is_upserts):
        made = [(run.action, line, row_of(names if upserts else key, line)) for run in runs for line in run.lines]
        before = len(rows)
        for action, _, row in made:
            if action is not Action.REPLACE or work.has_other_unique_keys:
                spelled = same if action in (Action.DELETE, Action.REPLACE) else _as_it_is
                rows[:] = [there for there in rows if not _is_one(there, row, key, spelled)]
        written += 0 if upserts else before - len(rows)
        # Born rows first, as one of them may be what an update has spelled anew since.
        for action, line, row in sorted(made, key=lambda each: each[0] is Action.REPLACE) if upserts else ():
            if action is Action.REPLACE and not work.has_other_unique_keys:
                rows[:] = [there for there in rows if not _is_one(there, row, key, same)]
            other = next(
                (there for there in rows if any(_is_one(there, row, each, same) for each in {key, *unique})), None
            )
            if other is None:
                rows.append(row)
                written += 1
            # Those with its key, however it is spelled, are of the same task, so none makes room.
            elif (
                work.is_settled
                or not work.has_other_unique_keys
                or any(_is_one(there, row, key, same) and not _is_one(there, row, key) for there in rows)
            ):
                raise RowRefused(f"{work.name}: the row {row} was not written, for the target holds {other}", line=line)
            else:
                blocked += 1
    return Written(written, blocked)
