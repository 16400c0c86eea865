"""The values of bulk statements are those of the lines."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_consumer.decode.kernels.packed import HEX_VALUE, NUMBER_VALUE, TEXT_VALUE, bulk_rows
from storage_consumer.decode.kernels.row_lines import Lines
from storage_consumer.decode.wire_format import encode_field

Value = str | bytes | int | None
_TEXTS = st.text(st.sampled_from("ab\\Nnt\t\nä日😀'\0\r"), max_size=12) | st.sampled_from((249, 250, 251, 252)).map(
    "\\x".__mul__
)
_VALUES = {
    TEXT_VALUE: _TEXTS,
    HEX_VALUE: st.binary(max_size=20) | st.integers(248, 253).map(bytes),
    NUMBER_VALUE: st.integers(0, 2**64 - 1),
}
Columns = tuple[list[int], list[list[Value]]]


@st.composite
def tables(draw: st.DrawFn) -> Columns:
    """Kinds of columns and rows of values."""
    kinds = draw(st.lists(st.sampled_from([*_VALUES]), min_size=1, max_size=4))
    row = st.tuples(*(st.none() | _VALUES[kind] for kind in kinds)).map(list)
    return kinds, draw(st.lists(row, max_size=5))


def line(row: list[Value]) -> bytes:
    """As the decoders write it."""
    return b"\t".join(
        encode_field(value.hex().upper() if isinstance(value, bytes) else None if value is None else str(value))
        for value in row
    )


def values(found: bytes, kinds: list[int]) -> list[list[Value]]:
    """What the server reads."""
    rows: list[list[Value]] = []
    at = 0
    while at < len(found):
        rows.append([])
        for kind in kinds:
            value, at = _value(found, at + 1, kind) if found[at] == 0 else (None, at + 1)
            rows[-1].append(value)
    return rows


def _value(found: bytes, at: int, kind: int) -> tuple[Value, int]:
    """One value, and where it ends."""
    if kind == NUMBER_VALUE:
        return int.from_bytes(found[at : at + 8], "little"), at + 8
    size, more = found[at], {0xFC: 2, 0xFD: 3, 0xFE: 8}.get(found[at], 0)
    if more:
        size = int.from_bytes(found[at + 1 : at + 1 + more], "little")
    start = at + 1 + more
    content = found[start : start + size]
    assert len(content) == size
    return content if kind == HEX_VALUE else content.decode(), start + size


def _bulk(lines: Lines, kinds: list[int]) -> bytes | None:
    found = bulk_rows(lines, np.array(kinds, np.int64))
    return None if found is None else bytes(found)


@given(tables(), st.data())
def test_same_values(table: Columns, data: st.DataObject) -> None:
    """Every value of every row arrives, NULL apart from every text, whichever lines are chosen."""
    kinds, rows = table
    found = Lines.of([b"x", *map(line, rows)])
    places = data.draw(st.lists(st.integers(1, len(rows)), max_size=6)) if rows else []
    bulk = _bulk(found.chosen(np.array(places, np.intp)), kinds)
    assert bulk is not None
    assert values(bulk, kinds) == [rows[place - 1] for place in places]


@pytest.mark.parametrize("size", [250, 251, 65535, 65536, 2**24 - 1, 2**24])
def test_lengths(size: int) -> None:
    """Values of any length, with and without escapes, as text and as bytes."""
    row: list[Value] = ["x" * size, bytes(size), "\\" * size, 7]
    kinds = [TEXT_VALUE, HEX_VALUE, TEXT_VALUE, NUMBER_VALUE]
    bulk = _bulk(Lines.of([line(row), line(row)]), kinds)
    assert bulk is not None
    assert values(bulk, kinds) == [row, row]


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        (TEXT_VALUE, rb"a\x"),
        (TEXT_VALUE, rb"a\N"),
        (TEXT_VALUE, rb"\Na"),
        (TEXT_VALUE, b"a\\"),
        (HEX_VALUE, b"0"),
        (HEX_VALUE, b"0G"),
        (HEX_VALUE, rb"0\\"),
        (NUMBER_VALUE, b""),
        (NUMBER_VALUE, b"-1"),
        (NUMBER_VALUE, b"1.5"),
        (NUMBER_VALUE, b"18446744073709551616"),
        (NUMBER_VALUE, b"99999999999999999999"),
        (NUMBER_VALUE, b"100000000000000000000"),
    ],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_not_of_its_kind(kind: int, field: bytes, place: int) -> None:
    """A field that is not what its column's kind promises is noticed, in whatever row and column."""
    fine = b"00"
    for column in (0, 1):
        fields = [[fine, fine] for _ in range(3)]
        fields[place][column] = field
        kinds = [HEX_VALUE, HEX_VALUE]
        kinds[column] = kind
        assert _bulk(Lines.of([b"\t".join(row) for row in fields]), kinds) is None


@pytest.mark.parametrize("lines", [[b"1"], [b"1\t2", b"1"], [b"1\t2\t3", b"1"], [b""], [b"1\t2", b"1\t2\t3"]])
def test_other_number_of_fields(lines: list[bytes]) -> None:
    """A line with fewer or more fields than columns is noticed."""
    assert _bulk(Lines.of(lines), [TEXT_VALUE, TEXT_VALUE]) is None
    assert _bulk(Lines.of([b"\t"]), [TEXT_VALUE, TEXT_VALUE]) == bytes(4)
