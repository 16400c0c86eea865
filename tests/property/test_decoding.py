"""The commit range is a filter on what is decoded; lines round-trip."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from storage_consumer.decode.decoder import Tally
from storage_consumer.decode.wire_format import LineEncoder, decode_line
from storage_consumer.model import CommitRange
from tests.unit.decode.encoders import (
    BINARY,
    MEMBERS,
    TS,
    Row,
    canal_line,
    canal_message,
    csv_row,
    from_canal,
    from_csv,
    layout,
)

SMALL = settings(max_examples=80)
SPECIAL = st.text(st.sampled_from('"\\,N\r\n\t\x00aé日😀'), max_size=12)
TEXTS = st.one_of(SPECIAL, st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
INTEGERS = st.integers(-(2**63), 2**64 - 1)
VALUES: dict[str, st.SearchStrategy[object]] = {
    "BIGINT": INTEGERS,
    "BIT": st.integers(0, 2**64 - 1),
    "YEAR": st.one_of(st.just(0), st.integers(1901, 2155)),
    "FLOAT": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "DOUBLE": st.floats(allow_nan=False, allow_infinity=False),
    "DECIMAL": st.decimals(-(10**9), 10**9, places=4).map(str),
    "DATETIME": st.datetimes().map(lambda moment: moment.isoformat(" ")),
    "TIME": st.integers(-838, 838).map(lambda hour: f"{hour}:59:59"),
    "VARCHAR": TEXTS,
    "TEXT": TEXTS,
    "JSON": st.dictionaries(TEXTS, st.one_of(st.none(), TEXTS), max_size=2).map(json.dumps),
    "ENUM": st.sampled_from(MEMBERS),
    "SET": st.lists(st.sampled_from(MEMBERS), unique=True).map(",".join),
    **{kind: st.binary(max_size=12) for kind in BINARY},
}


@st.composite
def files(draw: st.DrawFn) -> tuple[tuple[str, ...], list[Row]]:
    """Column types, and rows of them."""
    kinds = tuple(draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=6)))
    image = st.tuples(*(st.none() | VALUES[kind] for kind in kinds))

    def row(operation: str, values: tuple[object, ...], old: tuple[object, ...] | None, ts: int) -> Row:
        return Row(operation=operation, values=values, old=old if operation == "U" else None, ts=TS + ts)

    rows = st.builds(row, st.sampled_from("IUD"), image, st.none() | image, st.integers(0, 20))
    return kinds, draw(st.lists(rows, max_size=6))


@SMALL
@given(files(), st.integers(-1, 21), st.integers(0, 22))
def test_window(file: tuple[tuple[str, ...], list[Row]], low: int, length: int) -> None:
    """A commit range gives exactly the changes of the whole file inside it, and the tally accounts for every row."""
    kinds, rows = file
    commit_range = CommitRange(low=TS + low, high=TS + low + length)
    csv = "".join(csv_row(kinds, row) for row in rows)
    canal = "".join(canal_line(canal_message(kinds, row)) for row in rows)
    tally, other = Tally(), Tally()
    inside = from_csv(csv, *kinds, commit_range=commit_range, tally=tally)
    from_canal(canal, *kinds, commit_range=commit_range, tally=other)
    assert inside == [change for change in from_csv(csv, *kinds) if commit_range.low < change[1] <= commit_range.high]
    later = [row.ts for row in rows if row.ts > commit_range.high]
    repeated = [row.ts for row in rows if row.ts <= commit_range.low]
    assert tally == other
    assert tally == Tally(
        rows=len(rows),
        duplicates=len(repeated),
        repeated_ts=max(repeated, default=0),
        later=len(later),
        max_ts=max((row.ts for row in rows), default=0),
        next_ts=min(later, default=0),
    )


@SMALL
@given(st.lists(st.none() | TEXTS, min_size=1, max_size=6), st.data())
def test_line(values: list[str | None], data: st.DataObject) -> None:
    """A line holds no raw LF and gives back the written columns' values, in their order."""
    written = data.draw(st.lists(st.sampled_from(range(len(values))), min_size=1, unique=True))
    line = LineEncoder(layout(*["TEXT"] * len(values)), written).encode_line(tuple(values))
    assert b"\n" not in line
    assert decode_line(line) == [values[index] for index in written]
