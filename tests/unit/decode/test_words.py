"""Words of text in compiled loops."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_consumer.decode.kernels.wide_words import is_utf8, text_of


def is_python_utf8(content: bytes) -> bool:
    """What Python says."""
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


@given(st.lists(st.binary(max_size=4) | st.text(max_size=9).map(str.encode), max_size=5).map(b"".join))
def test_is_utf8(content: bytes) -> None:
    """It says what Python says, whatever stands in one word with what is no ASCII."""
    for line in (content + b"\n", b"12345678" + content + b"12345678\n"):
        assert is_utf8(text_of(line)) is is_python_utf8(line)


def test_every_character() -> None:
    """All that Unicode has are text, and no half of a pair is."""
    characters = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    assert is_utf8(text_of(("".join(characters) + "\n").encode()))
    halves = [chr(code).encode("utf-8", "surrogatepass") for code in range(0xD800, 0xE000)]
    assert not any(is_utf8(text_of(half + b"\n")) for half in halves)


@pytest.mark.parametrize("first", range(0x80, 0x100))
def test_every_beginning(first: int) -> None:
    """What no character begins with, longer forms than needed and code points that there are not are refused as Python refuses them."""
    rests = [
        bytes([second, *more])
        for second in range(0x70, 0xD0, 3)
        for more in ((), (0x80,), (0xBF, 0x80), (0x8F, 0xBF, 0x80))
    ]
    for content in (bytes([first]) + rest + b"\n" for rest in rests):
        assert is_utf8(text_of(content)) is is_python_utf8(content)
