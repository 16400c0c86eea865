"""Many literals made at once mean what each of them means by itself."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pymysql.converters import escape_string

from storage_consumer.decode.values import WireKind
from storage_consumer.decode.wire_format import decode_field, encode_field
from storage_consumer.rows.spec import Fold, KeyPart, WireColumn
from storage_consumer.sql.tokens import tokens
from storage_consumer.target.row_statements import key_literal, key_literals, literal, literals, write_rows
from tests.unit.target.test_statements import work

_ESCAPES = {"0": "\0", "t": "\t", "n": "\n", "r": "\r", "Z": "\x1a"}
NUMBERS = st.sampled_from(["0", "-5", "+7", "18446744073709551615", "-0.10", ".5", "1.", "1e-07", "1.5E+30"])
TEXTS = st.text(st.sampled_from("a'\"\\\t\n\r\0\x1a%é日😀,()"), max_size=8)
COLUMNS: dict[tuple[str, WireKind], st.SearchStrategy[str]] = {
    ("VARCHAR", WireKind.TEXT): TEXTS,
    ("JSON", WireKind.TEXT): TEXTS,
    ("DATETIME", WireKind.TEXT): st.just("2024-01-01 00:00:00"),
    ("YEAR", WireKind.TEXT): st.sampled_from(["0000", "2024"]),
    ("BIGINT", WireKind.TEXT): st.sampled_from(["0", "-5", "18446744073709551615"]),
    ("DECIMAL", WireKind.TEXT): NUMBERS,
    ("FLOAT", WireKind.TEXT): NUMBERS,
    ("DOUBLE", WireKind.TEXT): NUMBERS,
    ("BIT", WireKind.UNSIGNED): st.sampled_from(["0", "7"]),
    ("BLOB", WireKind.HEX): st.binary(max_size=4).map(bytes.hex),
}
FIELDS = st.sampled_from(sorted(COLUMNS)).flatmap(
    lambda column: st.tuples(st.just(column), st.lists(COLUMNS[column] | st.none(), min_size=1, max_size=4))
)


def meaning(text: str) -> str:
    """A literal with each escaped sign as it is."""
    assert not text.startswith("'") or [token.kind for token in tokens(text)] == ["string"]
    return re.sub(r"(?s)\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text)


@settings(max_examples=300)
@given(FIELDS)
def test_many_at_once(case: tuple[tuple[str, WireKind], list[str | None]]) -> None:
    """Whatever the column and its values, each literal is one value, and the one that was meant (S4, P13)."""
    (kind, how), values = case
    column = WireColumn(name="c", kind=how, type=kind)
    made = literals([encode_field(value) for value in values], column, escape_string)
    assert [meaning(text.decode()) for text in made] == [meaning(literal(v, column, escape_string)) for v in values]
    part = KeyPart(column=column, fold=Fold.EXACT)
    there = [value for value in values if value is not None] or ["00"]
    keys = key_literals([encode_field(value) for value in there], part, escape_string)
    assert [meaning(text.decode()) for text in keys] == [meaning(key_literal(v, part, escape_string)) for v in there]


@pytest.mark.parametrize("field", [b"1 OR 1=1", b"1;", "٣".encode(), b"", b"1e5x", b"x'", b"1\\n2"])
@pytest.mark.parametrize("how", [WireKind.TEXT, WireKind.UNSIGNED, WireKind.HEX])
def test_unfit_among_many(field: bytes, how: WireKind) -> None:
    """A text that is no value of its column is refused among good ones as it is by itself (S4)."""
    column = WireColumn(name="c", kind=how, type="BIGINT")
    if how is WireKind.HEX and not field:
        assert literals([field], column, escape_string) == [b"x''"]
        return
    with pytest.raises(ValueError, match="column c"):
        literals([b"00", field], column, escape_string)


def test_numbers_stay_numbers() -> None:
    """A value of a number's column never becomes a text, a NULL stays one."""
    column = WireColumn(name="c", kind=WireKind.TEXT, type="DOUBLE")
    fields = [b"1", b"\\N", b"1e5"]
    assert literals(fields, column, escape_string) == [b"1e0", b"NULL", b"1e5"]
    assert decode_field(b"\\N") is None


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[tuple[str, WireKind]], list[list[str | None]]]:
    """Columns and rows."""
    columns = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=4))
    row = st.tuples(*(st.none() | COLUMNS[column] for column in columns)).map(list)
    return columns, draw(st.lists(row, min_size=1, max_size=4))


@settings(max_examples=500)
@given(tables())
def test_many_rows_at_once(case: tuple[list[tuple[str, WireKind]], list[list[str | None]]]) -> None:
    """The literals of rows are those of their values (S4, P13)."""
    columns, rows = case
    of = work(*(WireColumn(name=f"c{n}", kind=how, type=kind) for n, (kind, how) in enumerate(columns)))
    lines = [b"\t".join(map(encode_field, row)) for row in rows]
    made = write_rows("INSERT", of, lines, escape_string)
    found = [meaning(token.text) for token in tokens(made.partition(" VALUES ")[2])]
    wanted: list[str] = []
    for row in rows:
        texts = [literal(value, column, escape_string) for value, column in zip(row, of.written, strict=True)]
        wanted += [meaning(token.text) for token in tokens(f"({','.join(texts)})")] + [","]
    assert found == wanted[:-1]
