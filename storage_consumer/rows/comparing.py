"""One table, compared: chunks by their checksums, chunks that differ in halves, and the rest row by row.

Why no difference is hidden: the ranges of both sides cover all keys, a checksum is over injective forms, and rows are compared as a
whole. Why none is invented: a row that only one side seems to have is looked up on the other side by its key, so it does not matter
whether both sort keys alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, TypeVar

from storage_consumer.rows.compared_layout import Key, KeyRange, Row, Side, TableLayout
from storage_consumer.rows.comparison import KEPT_ROWS, RowDifference

FEW_ROWS = 1_000
"""Rows that are compared one by one where their checksums differ."""
_FALSE_ALARMS = 3
"""Chunks that differed in checksums and in no row, after which a table's rows are compared without checksums."""
_LOOKUP = 200
_BUCKETS_AT_A_TIME = 16
T = TypeVar("T")


@dataclass(slots=True)
class Found:
    """The differing rows of one table: the first ones, and how many."""

    counts: Counter[str] = field(default_factory=Counter)
    kept: list[RowDifference] = field(default_factory=list)

    def add(self, difference: RowDifference) -> None:
        """Count a difference, and keep it if there is room."""
        self.counts[difference.kind] += difference.count
        if len(self.kept) < KEPT_ROWS:
            self.kept.append(difference)


class Comparison:
    """Compares the two sides of one table."""

    def __init__(self, sides: tuple[Side, Side], layout: TableLayout, found: Found, executor: Executor) -> None:
        """Compare source and target, in this order; `executor` runs what both are asked at a time."""
        self._source, self._target = sides
        self._layout = layout
        self._found = found
        self._executor = executor
        self._sums = layout.sums_agree
        self._false_alarms = 0
        self._extra: set[Key] = set()
        """Keys that only the target has: where it sorts otherwise than the source, it may show a row in several chunks."""

    def run(self, chunk_rows: int, after: Key | None = None) -> Iterator[tuple[int, Key | None]]:
        """Compare the rows behind a key; yield after each chunk its rows at the source, and its last key, None at the end of the table."""
        if not self._layout.is_ranged:
            yield self._as_bag(), None
            return
        low = after
        while True:
            rest = KeyRange(above=() if low is None else (low,))
            high = self._source.boundary(rest, chunk_rows)
            chunk = rest if high is None else rest.before(high)
            yield self._chunk(chunk), high
            if high is None:
                return
            low = high

    def counts(self) -> tuple[int, int]:
        """Return the numbers of rows of source and target."""
        return self._both(lambda side: side.count())

    # chunks

    def _chunk(self, keys: KeyRange) -> int:
        """Compare a range of keys; return the number of its rows at the source."""
        if not self._sums:
            return self._row_by_row(keys)
        before = self._found.counts.total()
        rows, equal = self._halved(keys)
        if not equal and self._found.counts.total() == before:
            self._false_alarms += 1
            # Equal values have other texts on the two servers, so checksums only cost time.
            self._sums = self._false_alarms < _FALSE_ALARMS
        return rows

    def _halved(self, keys: KeyRange) -> tuple[int, bool]:
        """Compare a range by checksums, and its halves if they differ; return the rows of the source, and whether all sums were equal."""
        source, target = self._both(lambda side: side.chunk(keys))
        if source == target and source.is_whole:
            return source.rows, True
        larger, most = (self._source, source.rows) if source.rows >= target.rows else (self._target, target.rows)
        middle = larger.boundary(keys, most // 2) if most > FEW_ROWS else None
        if middle is None or middle in keys.upto:
            self._row_by_row(keys)
            return source.rows, False
        self._halved(keys.before(middle))
        self._halved(keys.behind(middle))
        return source.rows, False

    # rows

    def _row_by_row(self, keys: KeyRange) -> int:
        """Compare the rows of a range; return how many the source has."""
        source, target = self._both(lambda side: self._by_key(side.rows(keys)))
        only_source: list[tuple[Key, Row]] = []
        for key, rows in source.items():
            others = target.pop(key, [])
            for row, other in zip(rows, others, strict=False):
                self._pair(row, other)
            only_source += [(key, row) for row in rows[len(others) :]]
            # More than one row of a key: the target does not keep them unique.
            self._only(others[len(rows) :], "extra")
        only_target = [(key, row) for key, rows in target.items() for row in rows]
        if only_source or only_target:
            self._looked_up(only_source, only_target)
        return sum(map(len, source.values()))

    def _by_key(self, rows: Iterable[Row]) -> dict[Key, list[Row]]:
        found: dict[Key, list[Row]] = {}
        for row in rows:
            found.setdefault(self._layout.key_of(row), []).append(row)
        return found

    def _looked_up(self, only_source: Sequence[tuple[Key, Row]], only_target: Sequence[tuple[Key, Row]]) -> None:
        """Judge rows that one side seems to lack: it may sort them elsewhere, or have another spelling of the key."""
        settled: set[Key] = set()
        for some in _batches(only_source):
            there = self._by_key(self._target.rows_at([key for key, _ in some]))
            for key, row in some:
                other = self._partner(key, there, self._target)
                if other is None:
                    self._only([row], "missing")
                else:
                    settled.add(self._layout.key_of(other))
                    self._pair(row, other)
        for some in _batches([each for each in only_target if each[0] not in settled]):
            there = self._by_key(self._source.rows_at([key for key, _ in some]))
            # A row that the source has is compared in the range in which the source has it.
            alone = [(key, row) for key, row in some if self._partner(key, there, self._source) is None]
            self._only([row for key, row in alone if key not in self._extra], "extra")
            self._extra.update(key for key, _ in alone)

    def _partner(self, key: Key, there: Mapping[Key, list[Row]], side: Side) -> Row | None:
        """Return the row of a side under the same key, or one that the side finds equal; None for none."""
        if key in there:
            return there[key][0]
        # Which of the rows belongs to this key, only the side itself can say.
        return next(iter(side.rows_at([key])), None) if there else None

    def _pair(self, row: Row, other: Row) -> None:
        """Compare two rows of one key."""
        if row == other:
            return
        layout = self._layout
        values = zip(layout.names, layout.normal(row), layout.normal(other), strict=True)
        differ = [name for name, one, two in values if one != two]
        if differ:
            source, target = layout.shown(row), layout.shown(other)
            self._found.add(
                RowDifference(
                    kind="differs",
                    key=layout.shown_key(layout.key_of(row)),
                    source={name: source[name] for name in differ},
                    target={name: target[name] for name in differ},
                )
            )

    def _only(self, rows: Iterable[Row], kind: Literal["missing", "extra"], count: int = 1) -> None:
        """Note rows that one side lacks."""
        layout = self._layout
        for row in rows:
            key = layout.shown_key(layout.key_of(row)) if layout.key else {}
            shown = layout.shown(row)
            source, target = (shown, None) if kind == "missing" else (None, shown)
            self._found.add(RowDifference(kind=kind, key=key, source=source, target=target, count=count))

    # tables whose rows cannot be found by ranges of a key

    def _as_bag(self) -> int:
        """Compare a table as a bag of rows, by buckets of their hashes; return how many rows the source has."""
        source, target = self._both(lambda side: side.buckets())
        if self._sums:
            same = [n for n in source.keys() & target.keys() if source[n] == target[n] and source[n].is_whole]
            differing = sorted((source.keys() | target.keys()) - set(same))
            for first in range(0, len(differing), _BUCKETS_AT_A_TIME):
                self._compare_bags(differing[first : first + _BUCKETS_AT_A_TIME])
        else:
            # Equal rows may be in different buckets, so all of them are compared at once.
            self._compare_bags(sorted(source.keys() | target.keys()))
        return sum(each.rows for each in source.values())

    def _compare_bags(self, numbers: Sequence[int]) -> None:
        """Compare the rows of some buckets as bags."""
        (here, source), (there, target) = self._both(lambda side: self._bag(side.bucket(numbers)))
        missing, extra = source - target, target - source
        if self._layout.key:
            others = self._by_key(extra.elements())
            for row in [*missing.elements()]:
                if rows := others.get(self._layout.key_of(row)):
                    self._pair(here[row], there[rows[-1]])
                    missing[row] -= 1
                    extra[rows.pop()] -= 1
        for row, count in (+missing).items():
            self._only([here[row]], "missing", count)
        for row, count in (+extra).items():
            self._only([there[row]], "extra", count)

    def _bag(self, rows: Iterable[Row]) -> tuple[dict[Row, Row], Counter[Row]]:
        """Return rows in the compared form → as they were fetched, and how often each is there."""
        fetched, counts = dict[Row, Row](), Counter[Row]()
        for row in rows:
            normal = self._layout.normal(row)
            fetched[normal] = row
            counts[normal] += 1
        return fetched, counts

    def _both(self, ask: Callable[[Side], T]) -> tuple[T, T]:
        """Ask both sides at a time."""
        other = self._executor.submit(ask, self._target)
        try:
            mine = ask(self._source)
        except BaseException:
            # The connection of the other side is free only once its answer is there.
            other.exception()
            raise
        return mine, other.result()


def _batches(items: Sequence[T]) -> Iterator[list[T]]:
    remaining = iter(items)
    while some := list(islice(remaining, _LOOKUP)):
        yield some
