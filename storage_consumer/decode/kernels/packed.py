"""The values of a column, one after the other, as Arrow has them: loops over the bytes of CSV rows and of JSON messages. Import late, see `jit`."""

from __future__ import annotations

import numpy as np

from storage_consumer.decode.kernels.arrays import Bytes, Offsets, Packed
from storage_consumer.decode.kernels.canal_messages import QUOTE, code_at, write_utf8
from storage_consumer.decode.kernels.delimited_rows import DIGITS
from storage_consumer.decode.kernels.jit import compiled, inlined
from storage_consumer.decode.kernels.wide_words import ESCAPE

_NULL_LETTER, _PADDING, _JSON_NULL = b"N=n"


def packed_csv(content: Bytes, starts: Offsets, ends: Offsets, quote: int, *, is_base64: bool) -> Packed:
    """Return the values between these borders, quotes included; they were found to be of their form."""
    room = _room(starts, ends, is_base64)
    return room._replace(bytes=room.bytes[: _pack_csv(content, starts, ends, quote, room)])


def packed_json(content: Bytes, starts: Offsets, ends: Offsets, *, is_binary: bool) -> Packed | None:
    """Return the strings between these borders, quotes included; None if one of them is neither a string nor null."""
    room = _room(starts, ends, is_binary)
    size = _pack_json(content, starts, ends, room)
    return None if size < 0 else room._replace(bytes=room.bytes[:size])


def _room(starts: Offsets, ends: Offsets, is_binary: bool) -> Packed:  # noqa: FBT001
    # No value grows. The bytes of one batch are few MiB.
    offsets, valid = np.zeros(len(starts) + 1, np.int32), np.ones(len(starts), np.bool_)
    return Packed(np.empty(int((ends - starts).sum()), np.uint8), offsets, valid, is_binary)


@compiled
def _pack_csv(content: Bytes, starts: Offsets, ends: Offsets, quote: int, room: Packed) -> int:
    at = 0
    for number in range(len(starts)):
        start, end = starts[number], ends[number]
        if content[start] == quote:
            if room.is_binary:
                at = _decode(content, start + 1, end - 1, room.bytes, at)
            else:
                at = _undouble(content, start + 1, end - 1, quote, room.bytes, at)
        elif content[start] == ESCAPE and content[start + 1] == _NULL_LETTER:
            room.valid[number] = False
        else:
            for place in range(start, end):
                room.bytes[at] = content[place]
                at += 1
        room.offsets[number + 1] = at
    return at


@inlined
def _undouble(content: Bytes, start: int, end: int, quote: int, out: Bytes, at: int) -> int:
    """Write a text, each pair of quotes as one; return where it ends."""
    while start < end:
        byte = content[start]
        out[at] = byte
        at += 1
        start += 2 if byte == quote else 1
    return at


@inlined
def _decode(content: Bytes, start: int, end: int, out: Bytes, at: int) -> int:
    """Write the bytes of base64; return where they end."""
    while start < end:
        bits = 0
        for place in range(start, start + 4):
            bits = bits << 6 | (DIGITS[content[place]] & 63)
        out[at] = bits >> 16
        at += 1
        if content[start + 2] != _PADDING:
            out[at] = bits >> 8 & 255
            at += 1
        if content[start + 3] != _PADDING:
            out[at] = bits & 255
            at += 1
        start += 4
    return at


@compiled
def _pack_json(content: Bytes, starts: Offsets, ends: Offsets, room: Packed) -> int:
    at = 0
    for number in range(len(starts)):
        start, end = starts[number], ends[number] - 1
        if content[start] == _JSON_NULL:
            room.valid[number] = False
        elif content[start] != QUOTE:
            return -1
        else:
            at = _unescape(content, start + 1, end, room.is_binary, room.bytes, at)
        room.offsets[number + 1] = at
    return at


@inlined
def _unescape(content: Bytes, start: int, end: int, is_binary: bool, out: Bytes, at: int) -> int:  # noqa: FBT001 - Numba takes no keywords
    """Write a string's characters: as UTF-8, or the byte that each code point up to U+00FF is; return where they end."""
    while start < end:
        if content[start] < 128 and content[start] != ESCAPE:  # noqa: PLR2004 - ASCII
            out[at] = content[start]
            at += 1
            start += 1
        elif is_binary:
            code, start = code_at(content, start)
            out[at] = code
            at += 1
        elif content[start] == ESCAPE:
            code, start = code_at(content, start)
            at = write_utf8(code, out, at)
        else:
            out[at] = content[start]
            at += 1
            start += 1
    return at
