"""Byte loops over JSON strings: where they end, and how a line has them.

Content must be UTF-8 and end with LF: every loop stops at a byte that cannot be in a string. Import late, see `jit`.
"""

from __future__ import annotations

import numpy as np

from storage_consumer.kernels.arrays import Bytes
from storage_consumer.kernels.jit import inlined
from storage_consumer.kernels.line_bytes import ESCAPE, HEX, write_escaped
from storage_consumer.kernels.words import WORD, Text, all_bytes, first, matching

QUOTE, _SMALL_U, _SPACE = b'"u '
_STANDS = np.array([byte >= _SPACE and byte not in b'"\\' for byte in range(256)])
"""Whether a byte of a JSON string stands for itself."""
_ODD = 255
_ESCAPED = np.full(256, _ODD, np.uint8)
"""The byte that each letter of an escape stands for."""
_ESCAPED[list(b'"\\/bfnrt')] = list(b'"\\/\b\f\n\r\t')
_HEX_DIGITS = np.full(256, _ODD, np.uint8)
_HEX_DIGITS[list(b"0123456789abcdef")] = range(16)
_HEX_DIGITS[list(b"ABCDEF")] = range(10, 16)
_ESCAPE_SIZE, _CODE_SIZE = 2, 6
_HIGH, _LOW, _BEHIND_LOW, _ASTRAL = 0xD800, 0xDC00, 0xE000, 0x10000
_TWO_BYTES, _THREE_BYTES = 0x80, 0x800
_LATIN, _BEHIND_LATIN = 0xC2, 0xC4
"""The first bytes of U+0080 to U+00FF: from the former (inclusive) to the latter (exclusive)."""


@inlined
def _unit(content: Bytes, at: int) -> int:
    r"""Return the UTF-16 unit of the ``\u`` escape at `at`; -1 if there is none."""
    if content[at] != ESCAPE or content[at + 1] != _SMALL_U:
        return -1
    unit = 0
    # LF is no hexadecimal digit, so this ends before the content does.
    for place in range(at + 2, at + _CODE_SIZE):
        digit = _HEX_DIGITS[content[place]]
        if digit == _ODD:
            return -1
        unit = unit << 4 | digit
    return unit


@inlined
def _escape(content: Bytes, at: int) -> tuple[int, int]:
    """Return the code point of the escape at `at`, and where the escape ends; -1 for both if it is invalid or a lone surrogate."""
    if content[at + 1] != _SMALL_U:
        code = int(_ESCAPED[content[at + 1]])
        return (-1, -1) if code == _ODD else (code, at + _ESCAPE_SIZE)
    unit = _unit(content, at)
    at += _CODE_SIZE
    # A low surrogate comes second or not at all.
    if unit < 0 or _LOW <= unit < _BEHIND_LOW:
        return -1, -1
    if not _HIGH <= unit < _LOW:
        return unit, at
    # A high surrogate means something only with the low one after it; alone it has no form in UTF-8.
    low = _unit(content, at)
    if not _LOW <= low < _BEHIND_LOW:
        return -1, -1
    return _ASTRAL + ((unit - _HIGH) << 10) + (low - _LOW), at + _CODE_SIZE


@inlined
def string_end(content: Bytes, at: int) -> int:
    """Return where the string whose first character is at `at` ends, closing quote included; -1 for none, or for a negative `at`."""
    while at >= 0:
        # Control characters do not stand for themselves, so LF ends this loop.
        while _STANDS[content[at]]:
            at += 1
        if content[at] == QUOTE:
            return at + 1
        if content[at] != ESCAPE:
            return -1
        # An invalid escape is -1, which ends the outer loop.
        at = _escape(content, at)[1]
    return -1


@inlined
def binary_end(content: Bytes, at: int) -> int:
    """Return where the string of code points up to U+00FF at `at` ends, closing quote included; -1 if it is not one."""
    while content[at] != QUOTE:
        if content[at] == ESCAPE:
            # TiCDC writes each byte as the code point of the same number; an escape may spell it too.
            code, at = _escape(content, at)
            if not 0 <= code < 256:  # noqa: PLR2004 - the values of a byte
                return -1
        # UTF-8 is checked already, so any byte below 0xC4 is ASCII or part of a character up to U+00FF.
        elif content[at] < _SPACE or content[at] >= _BEHIND_LATIN:
            return -1
        else:
            at += 1
    return at + 1


@inlined
def _write_code(code: int, out: Bytes, at: int) -> int:
    """Write a code point as a line has it; return where it ends."""
    # Only ASCII can need an escape in a line.
    return write_escaped(code, out, at) if code < _TWO_BYTES else write_utf8(code, out, at)


@inlined
def write_utf8(code: int, out: Bytes, at: int) -> int:
    """Write the bytes of a code point; return where they end."""
    if code < _TWO_BYTES:
        out[at] = code
        return at + 1
    if code < _THREE_BYTES:
        out[at] = 0xC0 | code >> 6
    else:
        if code < _ASTRAL:
            out[at] = 0xE0 | code >> 12
        else:
            out[at], out[at + 1] = 0xF0 | code >> 18, 0x80 | code >> 12 & 63
            at += 1
        out[at + 1] = 0x80 | code >> 6 & 63
        at += 1
    out[at + 1] = 0x80 | code & 63
    return at + 2


@inlined
def code_at(content: Bytes, at: int) -> tuple[int, int]:
    """Return the code point of an escape, or of a character up to U+00FF, and where it ends."""
    code = int(content[at])
    if code == ESCAPE:
        return _escape(content, at)
    if code < _LATIN:
        return code, at + 1
    # C2 and C3 carry the upper two of eight bits, and the byte after them the other six.
    return (code & 3) << 6 | (content[at + 1] & 63), at + 2


@inlined
def write_text(text: Text, start: int, end: int, out: Text, at: int) -> int:
    """Write a text as a line has it; return where it ends. One word of room must follow, whose bytes may change."""
    content, line, escapes = text.bytes, out.bytes, all_bytes(ESCAPE)
    while start < end:
        if start < len(text.words):
            word = text.words[start]
            marked = matching(word, escapes)
            count = min(first(marked) if marked else WORD, end - start)
            # Copy the whole word but advance only to the escape: the rest is overwritten by what comes next.
            out.words[at] = word
            start += count
            at += count
        # The last seven places have no word: go by single bytes.
        elif content[start] != ESCAPE:
            line[at] = content[start]
            start += 1
            at += 1
        if start < end and content[start] == ESCAPE:
            code, start = _escape(content, start)
            at = _write_code(code, line, at)
    return at


@inlined
def write_binary(content: Bytes, start: int, end: int, out: Bytes, at: int) -> int:
    """Write code points up to U+00FF as the hexadecimal digits of bytes; return where they end."""
    while start < end:
        code, start = code_at(content, start)
        out[at], out[at + 1] = HEX[code >> 4], HEX[code & 15]
        at += 2
    return at
