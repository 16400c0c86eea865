"""Bytes of many rows at once."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from storage_consumer.config.settings import Protocol
from storage_consumer.decode.values import convert_all, converter
from tests.unit.decode.encoders import column


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
