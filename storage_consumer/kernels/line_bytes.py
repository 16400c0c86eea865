"""The parts of lines that do not come from a file, for compiled loops. Import late, see `jit`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from storage_consumer.kernels.arrays import Bytes, Offsets
from storage_consumer.kernels.jit import inlined
from storage_consumer.kernels.words import WORD, Text, text_of

TAB, LF, ESCAPE, _SMALL_T, _SMALL_N = b"\t\n\\tn"
HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)


class Extra(NamedTuple):
    """Fields that are not copied from the content, by column and then by row."""

    text: Text
    borders: Offsets
    """For each column, where the field of each row begins and where the last one ends."""


class Written(NamedTuple):
    """Output buffers for lines: their bytes and one spare word, and the place of each line's LF."""

    text: Text
    ends: Offsets


def room_for(size: int, rows: int, columns: int) -> Written:
    """Return buffers for `rows` lines of `columns` fields whose total size is at most `size` bytes."""
    # One byte for the separator after each field; the spare word is what `copy` may overwrite.
    return Written(text_of(np.empty(size + rows * columns + WORD, np.uint8)), np.empty(rows, np.int64))


def line_fields(
    written: Sequence[int], converted: Mapping[int, list[bytes]], place_of: Sequence[int], rows: int
) -> tuple[Offsets, Extra]:
    """Return for each column of `rows` lines its index in a row, or -1 minus its index in the other fields; and these fields.

    `converted`: the other fields, by index in the layout. `place_of`: the index in a row of each column of the layout.
    """
    extra = [converted[place] for place in written if place in converted]
    # Below 0, so that one array says for each field both where it comes from and which it is there.
    others = iter(range(-1, -1 - len(extra), -1))
    fields = [next(others) if place in converted else place_of[place] for place in written]
    sizes = np.array([[len(field) for field in column] for column in extra], np.int64).reshape(len(extra), rows)
    # The fields lie in one text, column after column: the sum runs through all columns.
    ends = np.cumsum(sizes, dtype=np.int64).reshape(sizes.shape)
    borders = np.concatenate([ends[:, :1] - sizes[:, :1], ends], axis=1) if rows else ends
    # Never empty, even without fields: the compiler then sees the same types and needs no second version of the loop.
    content = b"".join(chain(*extra, (bytes(2 * WORD),)))
    return np.array(fields, np.int64), Extra(text_of(content), borders)


@inlined
def write_escaped(byte: int, out: Bytes, at: int) -> int:
    """Write a byte of a text as a line has it; return where it ends."""
    # All that `LOAD DATA` reads specially under our clauses (see `wire_format`).
    if byte in (ESCAPE, TAB, LF):
        out[at] = ESCAPE
        at += 1
        byte = _SMALL_T if byte == TAB else _SMALL_N if byte == LF else byte
    out[at] = byte
    return at + 1
