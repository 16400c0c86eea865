"""Lines of many rows in one byte array (`wire_format`), from file to target without objects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import overload

import numpy as np

from storage_consumer.decode.kernels.arrays import Bytes, Offsets, Places

_LF = b"\n"
FEW = 500
"""Below this number of lines Python is as fast, and spares the import of the compiler."""


class Lines(Sequence[bytes]):
    """Lines as `bytes` without LF; chosen ones are copied only when they are packed."""

    __slots__ = ("_content", "_ends", "_starts")

    def __init__(self, content: Bytes, starts: Offsets, ends: Offsets) -> None:
        """Take lines that begin at `starts` of `content` and have their LF at `ends`."""
        self._content = content
        self._starts = starts
        self._ends = ends

    @classmethod
    def side_by_side(cls, content: Bytes, ends: Offsets) -> Lines:
        """Return `content`'s adjacent lines, each followed by the LF at its place in `ends`."""
        # Cut to the number of ends: without lines there is no first place either.
        return cls(content, np.append(0, ends[:-1] + 1)[: len(ends)], ends)

    @classmethod
    def of(cls, lines: Sequence[bytes]) -> Lines:
        """Return these lines as one object; none of them may hold an LF."""
        sizes = np.fromiter(map(len, lines), np.int64, len(lines))
        # The empty last piece gives the last line its LF.
        content = _LF.join(chain(lines, (b"",)))
        return cls.side_by_side(np.frombuffer(content, np.uint8), np.cumsum(sizes + 1) - 1)

    @classmethod
    def joined(cls, parts: Sequence[Lines]) -> Lines:
        """Return the lines of all parts, of which there is at least one."""
        if len(parts) == 1:
            return parts[0]
        # Only packed lines concatenate: each part may be chosen from a much larger array.
        packed = [part.packed() for part in parts]
        starts = np.cumsum([0, *(len(content) for content, _ in packed[:-1])]).tolist()
        ends = [ends + start for (_, ends), start in zip(packed, starts, strict=True)]
        return cls.side_by_side(
            np.concatenate([content for content, _ in packed]), np.concatenate(ends)
        )

    def chosen(self, places: Places) -> Lines:
        """Return the lines at these indexes, in this order."""
        return Lines(self._content, self._starts[places], self._ends[places])

    def packed(self) -> tuple[Bytes, Offsets]:
        """Return the lines side by side, each followed by LF, and the places of these LF."""
        starts, ends = self._starts, self._ends
        # Adjacent already: a view of the bytes, and no copy.
        if not len(self) or (starts[1:] == ends[:-1] + 1).all():
            first = int(starts[0]) if len(self) else 0
            return self._content[first : first + self.size], ends - first
        # Where the LFs will be once the lines are side by side.
        found = np.cumsum(ends + 1 - starts) - 1
        if len(self) < FEW:
            content = b"".join(
                [
                    self._content[start : end + 1].tobytes()
                    for start, end in zip(starts, ends, strict=True)
                ]
            )
            return np.frombuffer(content, np.uint8), found
        from storage_consumer.decode.kernels.wide_words import gather  # noqa: PLC0415 - late, see `jit`

        return gather(*self.places()), found

    def places(self) -> tuple[Bytes, Offsets, Offsets]:
        """Return read-only bytes of all lines, where each begins, and where its LF is."""
        content = self._content.view()
        # also the same type for compiled loops, whatever the bytes come from
        content.flags.writeable = False
        return content, self._starts, self._ends

    @property
    def size(self) -> int:
        """Size of all lines in bytes, each with its LF."""
        return int((self._ends - self._starts).sum()) + len(self)

    def __len__(self) -> int:
        """Return the number of lines."""
        return len(self._ends)

    @overload
    def __getitem__(self, place: int) -> bytes: ...
    @overload
    def __getitem__(self, place: slice) -> Lines: ...

    def __getitem__(self, place: int | slice) -> bytes | Lines:
        """Return one line, or the lines of a slice."""
        if isinstance(place, slice):
            return Lines(self._content, self._starts[place], self._ends[place])
        return self._content[self._starts[place] : self._ends[place]].tobytes()

    def __iter__(self) -> Iterator[bytes]:
        """Yield one line after another."""
        # No line holds an LF: texts have theirs escaped.
        return iter(bytes(self).split(_LF)[:-1])

    def __bytes__(self) -> bytes:
        """Return all lines, each followed by LF."""
        return self.packed()[0].tobytes()


def size_of(lines: Sequence[bytes]) -> int:
    """Return the size of all lines in bytes."""
    return lines.size if isinstance(lines, Lines) else sum(map(len, lines))


def in_one(lines: Sequence[bytes]) -> bytes:
    """Return all lines, each followed by LF."""
    return bytes(lines) if isinstance(lines, Lines) else _LF.join(chain(lines, (b"",)))
