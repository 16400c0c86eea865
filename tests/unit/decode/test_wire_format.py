"""Lines for LOAD DATA."""

from __future__ import annotations

import pytest

from storage_consumer.decode.wire_format import LineEncoder, decode_line
from tests.unit.decode.encoders import layout


def test_plain_line() -> None:
    """Fields stand in the order of the written columns, between TABs, without a line end."""
    encoder = LineEncoder(layout("INT", "VARCHAR", "INT"), (2, 1))
    assert encoder.encode_line(("1", 'it\'s "x"', "3")) == b'3\tit\'s "x"'


def test_escapes() -> None:
    """Backslash, TAB and LF are escaped; CR, NUL and the word NULL are data as they are; SQL NULL is a bare marker."""
    encoder = LineEncoder(layout(*["TEXT"] * 5), range(5))
    line = encoder.encode_line(("\\N", "a\tb\nc", "\r\x00", None, "NULL"))
    assert line == b"\\\\N\ta\\tb\\nc\t\r\x00\t\\N\tNULL"
    assert decode_line(line) == ["\\N", "a\tb\nc", "\r\x00", None, "NULL"]


@pytest.mark.parametrize("value", ["1\t2", "1\n2", "1\\"])
def test_no_value_spills(value: str) -> None:
    """A number or date that a hostile file filled with separators stays in its own field."""
    encoder = LineEncoder(layout("DECIMAL", "DATE"), (0, 1))
    assert decode_line(encoder.encode_line((value, value))) == [value, value]


@pytest.mark.parametrize("value", ["", None, "x", "\t"])
def test_single_column(value: str | None) -> None:
    """A line of one field keeps empty text and NULL apart."""
    assert decode_line(LineEncoder(layout("TEXT", "INT"), (0,)).encode_line((value, "1"))) == [value]


@pytest.mark.parametrize("written", [(), (0, 2), (-1,)])
def test_columns_that_the_layout_lacks(written: tuple[int, ...]) -> None:
    """An index outside the layout, or no column at all, is refused when the encoder is made."""
    with pytest.raises(ValueError, match=r"shop\.orders: columns"):
        LineEncoder(layout("TEXT", "INT"), written)
