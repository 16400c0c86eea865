"""Bytes of many rows at once."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_consumer.config.settings import Protocol
from storage_consumer.decoding.columns import begins_with, integers, is_utf8
from storage_consumer.decoding.values import convert_all, converter, in_bytes
from tests.unit.decoding.encoders import column


@given(st.lists(st.booleans(), max_size=300))
def test_between(marks: list[bool]) -> None:
    """The borders of words of 64 bits make no difference."""
    array = np.array(marks, np.bool_)
    assert between(array).tolist() == np.bitwise_xor.accumulate(array).tolist()


@given(st.binary(max_size=20))
def test_is_utf8(content: bytes) -> None:
    """It says what Python says, also where bytes of two characters stand beside one another but for ASCII."""
    try:
        content.decode()
        expected = True
    except UnicodeDecodeError:
        expected = False
    assert is_utf8(np.frombuffer(content, np.uint8)) is expected


@pytest.mark.parametrize("content", [b"\xc3a\xa9", b"a\xc3", b"\xa9", "é😀".encode()[:-1]])
def test_bytes_apart_are_no_character(content: bytes) -> None:
    """A character's bytes with something between them are none."""
    assert not is_utf8(np.frombuffer(content, np.uint8))


def test_without() -> None:
    """Only what is to be left out is marked."""
    content = np.frombuffer(b"abc", np.uint8)
    assert without(content, np.array([False, True, False])).tobytes() == bytes([ord("a"), GONE, ord("c")])


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
    """Numbers are read where all are short enough and written in the usual way."""
    content, starts, ends = b"," * 20, [], []
    for number in numbers:
        starts.append(len(content))
        content += number.encode()
        ends.append(len(content))
        content += b","
    found = integers(np.frombuffer(content, np.uint8), np.array(starts, np.int64), np.array(ends, np.int64))
    assert (found if found is None else found.tolist()) == expected


def test_begins_with() -> None:
    """A prefix has to be whole; a byte that is not heeded may be any."""
    content = b'"I","t","s",1\r\n"U","t","s",2\r\n"U","t","x",3\r\n"U","t",'
    starts = np.array([0, 15, 30, 45])
    prefix = b'"I","t","s",'
    mask = bytes(255 * (place != 1) for place in range(len(prefix)))
    array = np.frombuffer(content, np.uint8)
    assert begins_with(array, starts, prefix, mask).tolist() == [True, True, False, False]
    assert begins_with(array[:5], starts[:1], prefix, mask).tolist() == [False]


@given(texts=st.lists(st.text(alphabet="AB4/+=\xe9\xff", max_size=9), max_size=6))
def test_converters_of_bytes(texts: list[str]) -> None:
    """What converts bytes gives what the converter of texts gives, and refuses what that refuses."""
    convert = converter(column("c", "BLOB"), "csv")
    convert_bytes = in_bytes(convert)
    assert convert is not None
    assert convert_bytes is not None
    for text in texts:
        expected = None
        with suppress(ValueError):
            expected = convert(text).encode()
        found = None
        with suppress(ValueError):
            found = convert_bytes(text.encode())
        assert found == expected


@given(st.lists(st.none() | st.binary(max_size=9), max_size=6))
def test_convert_all_bytes(values: list[bytes | None]) -> None:
    """All bytes are taken, in either protocol's form."""
    expected = [None if value is None else value.hex().upper() for value in values]
    forms: dict[Protocol, Callable[[bytes], str]] = {
        "csv": lambda value: b64encode(value).decode(),
        "canal-json": lambda value: value.decode("latin-1"),
    }
    for protocol, write in forms.items():
        convert = converter(column("c", "BLOB"), protocol)
        assert convert is not None
        assert convert_all(convert, [None if value is None else write(value) for value in values]) == expected
