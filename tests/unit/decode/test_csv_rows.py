"""Compiled loops over the bytes of CSV rows."""

from __future__ import annotations

from base64 import b64encode
from contextlib import suppress

import numba
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from storage_consumer.decode.bulk import CsvRows
from storage_consumer.decode.csv_files import CsvDecoder
from storage_consumer.decode.kernels.delimited_rows import (
    BASE64_FIELD,
    TEXT_FIELD,
    Marks,
    RowBytes,
    RowsFound,
    find_changes,
    write_lines,
)
from storage_consumer.decode.kernels.wide_words import WORD, Extra, LineRoom, line_fields, read_integers, text_of
from storage_consumer.decode.values import converter
from storage_consumer.decode.wire_format import encode_field
from tests.unit.decode.encoders import OPTIONS, Row, column, csv_change, file_read, layout


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        (["1", "22", "-333"], [1, 22, -333]),
        (["0", "9223372036854775807", "-9223372036854775807"], [0, 2**63 - 1, 1 - 2**63]),
        (["1", "9223372036854775808"], None),
        (["1", "10000000000000000000"], None),
        (["1", "007"], None),
        (["1", "-0"], None),
        (["1", ""], None),
        (["1", "-"], None),
        (["1", "1.5"], None),
        (["1", "\\N"], None),
        (["1", "+1"], None),
        ([], []),
    ],
    ids=str,
)
def test_integers(numbers: list[str], expected: list[int] | None) -> None:
    """Numbers are read where 63 bits hold all of them and all are written in the usual way."""
    content, starts, ends = b",", [], []
    for number in numbers:
        starts.append(len(content))
        content += number.encode()
        ends.append(len(content))
        content += b","
    found = np.empty(len(numbers), np.int64)
    array = np.frombuffer(content, np.uint8)
    done = read_integers(array, np.array(starts, np.int64), np.array(ends, np.int64), found)
    assert (found.tolist() if done else None) == expected


@given(text=st.text(alphabet='AB4/+=Qx_\xe9"', max_size=9))
@example(text="QR==")
def test_base64(text: str) -> None:
    """What is read becomes the hexadecimal digits that the converter of texts makes; what that refuses is never read."""
    convert = converter(column("c", "BLOB"), "csv")
    assert convert is not None
    expected = []
    with suppress(ValueError):
        expected = [convert(text).encode()]
    assert _lines(text.encode(), BASE64_FIELD) in ([], expected)


@given(value=st.binary(max_size=9))
def test_base64_of_bytes(value: bytes) -> None:
    """All bytes are read."""
    assert _lines(b64encode(value), BASE64_FIELD) == [value.hex().upper().encode()]


@given(text=st.text(alphabet='a\\\t\r\n,é"', max_size=30))
def test_text(text: str) -> None:
    """A text with doubled quotes becomes a field of a line with its escapes."""
    assert _lines(text.replace('"', '""').encode(), TEXT_FIELD) == [encode_field(text)]


def _lines(field: bytes, kind: int) -> list[bytes]:
    """The lines of a row that has this field in quotes; none where it has not this form."""
    names = np.frombuffer(b'","t","s",', np.uint8)
    marks = Marks(34, 44, is_sql=False, has_cr=False, escapes=False, has_bytes=False, paired=False)
    null, nullable = np.frombuffer(b"\\N", np.uint8), np.ones(1, np.bool_)
    form = RowBytes(marks, null, np.array([kind], np.uint8), nullable, names)
    text = text_of(b'"I","t","s",5,"%b"\n' % field)
    borders, behind, ts = np.empty((1, 2), np.int64), np.empty(1, np.int64), np.empty(1, np.int64)
    found = RowsFound(borders, behind, ts, np.empty(1, np.uint8), np.zeros(1, np.bool_))
    rows = np.arange(find_changes(text, form, found))
    extra = Extra(text_of(b""), np.empty((0, 0), np.int64))
    out = np.empty(2 * len(text.bytes) + WORD, np.uint8)
    written = LineRoom(text_of(out), np.empty(1, np.int64))
    end = write_lines(text, form, found.borders, rows, np.array([0]), extra, written)
    return out[:end].tobytes().split(b"\n")[: len(rows)]


def test_texts_full_of_line_ends() -> None:
    """The room for what is found goes by how many rows the bytes can be, and not by their line ends alone."""
    kinds = ("VARCHAR",) * 500
    content = csv_change(kinds, Row(operation="I", values=("\n" * 50_000, *("",) * 499))).encode()
    (batch,) = CsvDecoder(OPTIONS).changes(file_read([content], layout(*kinds)))
    assert isinstance(batch, CsvRows)
    room = batch.borders
    while room.base is not None:
        room = room.base
    assert room.nbytes < 10 * len(content)


def test_same_types_for_all() -> None:
    """With fields that do not come out of the content and without the loops are compiled for the same types."""
    others = [line_fields([0], converted, [0], 2)[1] for converted in ({}, {0: [b"2000", b"2001"]})]
    types = {numba.typeof(extra) for extra in others}  # type: ignore[no-untyped-call] # Numba's
    assert len(types) == 1
