"""Laws of a comparison, under random tables: exactly what differs is found, however each side sorts its keys and cuts its chunks."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from storage_consumer.rows import comparing
from storage_consumer.rows.compared_layout import (
    ColumnShape,
    Digest,
    IndexShape,
    Key,
    KeyRange,
    Row,
    Side,
    TableLayout,
    TableShape,
    layout_of,
)
from storage_consumer.rows.comparing import Comparison, Found

Order = Callable[[bytes], bytes]
ORDERS: tuple[Order, ...] = (
    lambda key: key,
    lambda key: key.lower() + b"\0" + key,
    lambda key: bytes(255 - byte for byte in key) + b"\xff",
    lambda key: hashlib.sha256(key).digest(),
)
"""How a side sorts keys; each is a total order."""


@dataclass(slots=True)
class MemorySide(Side):
    """A side in memory. `folds`: whether it finds keys equal that differ in case, so that it holds only one of them."""

    table: list[Row]
    order: Order
    folds: bool = False
    asked: Counter[str] = field(default_factory=Counter)

    def structure(self) -> TableShape | None:
        """Not asked for."""
        return None

    def count(self) -> int:
        """All rows."""
        return len(self.table)

    def chunk(self, keys: KeyRange) -> Digest:
        """The rows' hashes, joined by XOR."""
        rows = list(self._in(keys))
        joined = 0
        for row in rows:
            joined ^= _hash(row)
        return Digest(rows=len(rows), sums=(joined,))

    def rows(self, keys: KeyRange) -> Iterable[Row]:
        """The rows of a range."""
        self.asked["rows"] += 1
        return list(self._in(keys))

    def rows_at(self, keys: Sequence[Key]) -> Iterable[Row]:
        """The rows under keys that are equal to one of these."""
        wanted = {self._folded(key[0]) for key in keys}
        return [row for row in self.table if self._folded(row[0] or b"") in wanted]

    def boundary(self, keys: KeyRange, rows: int) -> Key | None:
        """The key of a row, by this side's order."""
        there = sorted(self._in(keys), key=lambda row: self.order(row[0] or b""))
        return (there[rows - 1][0] or b"",) if len(there) >= rows else None

    def buckets(self) -> dict[int, Digest]:
        """Sixteen buckets."""
        found: dict[int, list[int]] = {}
        for row in self.table:
            found.setdefault(_hash(row) % 16, []).append(_hash(row))
        return {number: Digest(rows=len(each), sums=(sum(each),)) for number, each in found.items()}

    def bucket(self, numbers: Sequence[int]) -> Iterable[Row]:
        """The rows of some of them."""
        return [row for row in self.table if _hash(row) % 16 in numbers]

    def _in(self, keys: KeyRange) -> Iterable[Row]:
        above, upto = ([self.order(key[0]) for key in borders] for borders in (keys.above, keys.upto))
        for row in self.table:
            place = self.order(row[0] or b"")
            if all(place > border for border in above) and all(place <= border for border in upto):
                yield row

    def _folded(self, key: bytes) -> bytes:
        return key.lower() if self.folds else key


def _hash(row: Row) -> int:
    return int.from_bytes(hashlib.sha256(repr(row).encode()).digest()[:8])


def layout(*, keyed: bool = True) -> TableLayout:
    """Two columns of text, with a key over the first or none."""
    columns = tuple(
        ColumnShape(name=name, data_type="varchar", column_type="varchar(9)", nullable=name != "k") for name in "kv"
    )
    index = IndexShape(name="PRIMARY", unique=True, columns=("k",), prefixes=(None,))
    shape = TableShape(kind="tidb", columns=columns, indexes=(index,) if keyed else ())
    return layout_of(shape, shape)


def compared(source: Side, target: Side, *, keyed: bool = True, chunk: int = 3) -> Found:
    """What a comparison finds."""
    found = Found()
    with ThreadPoolExecutor(max_workers=1) as pool:
        for _ in Comparison((source, target), layout(keyed=keyed), found, pool).run(chunk):
            pass
    return found


KEYS = st.text("abAB\t é", max_size=3).map(str.encode)
VALUES = st.sampled_from([None, b"", b"x", b"X"])
TABLES = st.dictionaries(KEYS, VALUES, max_size=14)


@settings(max_examples=400)
@given(TABLES, TABLES, st.sampled_from(ORDERS), st.sampled_from(ORDERS), st.integers(1, 5), st.integers(1, 4))
def test_exactly_what_differs(
    source: dict[bytes, bytes | None], target: dict[bytes, bytes | None], one: Order, other: Order, chunk: int, few: int
) -> None:
    """Rows are missing, extra or different just where the tables differ, whatever the orders, chunks and halves are."""
    was = comparing.FEW_ROWS
    comparing.FEW_ROWS = few
    try:
        found = compared(MemorySide([*source.items()], one), MemorySide([*target.items()], other), chunk=chunk)
    finally:
        comparing.FEW_ROWS = was
    got = sorted((each.kind, each.key["k"]) for each in found.kept)
    wanted = [("missing", key) for key in source.keys() - target.keys()]
    wanted += [("extra", key) for key in target.keys() - source.keys()]
    wanted += [("differs", key) for key in source.keys() & target.keys() if source[key] != target[key]]
    assert got == sorted((kind, key.decode()) for kind, key in wanted)


@settings(max_examples=200)
@given(
    TABLES,
    st.lists(st.tuples(KEYS, VALUES), max_size=14),
    st.sampled_from(ORDERS),
    st.sampled_from(ORDERS),
    st.integers(1, 5),
)
def test_keys_that_the_target_finds_equal(
    source: dict[bytes, bytes | None], rows: list[tuple[bytes, bytes | None]], one: Order, other: Order, chunk: int
) -> None:
    """A key in another spelling is one row that differs; each row of either side is told of at most once."""
    here = {key.lower(): (key, value) for key, value in source.items()}
    there = {key.lower(): (key, value) for key, value in rows}
    left = MemorySide([*here.values()], one, folds=True)
    found = compared(left, MemorySide([*there.values()], other, folds=True), chunk=chunk)
    counts = {
        "missing": len(here.keys() - there.keys()),
        "extra": len(there.keys() - here.keys()),
        "differs": sum(here[key] != there[key] for key in here.keys() & there.keys()),
    }
    assert dict(found.counts) == {kind: count for kind, count in counts.items() if count}


@settings(max_examples=200)
@given(st.lists(st.tuples(VALUES, VALUES), max_size=20), st.lists(st.tuples(VALUES, VALUES), max_size=20))
def test_bags(source: list[Row], target: list[Row]) -> None:
    """Without a key rows count as often as they are there."""
    found = compared(MemorySide(source, ORDERS[0]), MemorySide(target, ORDERS[0]), keyed=False)
    missing, extra = Counter(source) - Counter(target), Counter(target) - Counter(source)
    assert found.counts == Counter(missing=missing.total(), extra=extra.total())


def test_equal_tables_are_not_fetched() -> None:
    """Where all checksums are equal, no row is read."""
    rows: list[Row] = [(b"%d" % number, b"v") for number in range(100)]
    side = MemorySide(list(rows), ORDERS[0])
    assert not compared(side, MemorySide(list(rows), ORDERS[0]), chunk=7).counts
    assert side.asked["rows"] == 0
