"""Bytes of many rows at once."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_consumer.config.settings import Protocol
from storage_consumer.decoding.columns import is_utf8
from storage_consumer.decoding.values import convert_all, converter
from tests.unit.decoding.encoders import column


@given(st.binary(max_size=20))
def test_is_utf8(content: bytes) -> None:
    """It says what Python says, also where bytes of two characters stand beside one another but for ASCII."""
    try:
        content.decode()
        expected = True
    except UnicodeDecodeError:
        expected = False
    assert is_utf8(content) is expected


@pytest.mark.parametrize("content", [b"\xc3a\xa9", b"a\xc3", b"\xa9", "é😀".encode()[:-1]])
def test_bytes_apart_are_no_character(content: bytes) -> None:
    """A character's bytes with something between them are none."""
    assert not is_utf8(content)


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
