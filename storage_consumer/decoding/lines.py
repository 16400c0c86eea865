"""Lines of many rows in one piece of bytes (see `wire`): they go from the file to the target without one object for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import overload

import numpy as np

from storage_consumer.decoding.columns import Bytes, Offsets, Places

_LF = b"\n"
FEW = 500
"""Of fewer lines Python is as fast as a compiled loop, for which a process has to import the compiler first."""


class Lines(Sequence[bytes]):
    """Some lines in sequence; each is `bytes` without its LF."""

    __slots__ = ("content", "ends")

    def __init__(self, content: Bytes, ends: Offsets) -> None:
        """`content`: the lines, each with an LF behind it. `ends`: the places of these LF."""
        self.content = content
        self.ends = ends

    @classmethod
    def of(cls, lines: Sequence[bytes]) -> Lines:
        """These lines; none of them holds an LF."""
        sizes = np.fromiter(map(len, lines), np.int64, len(lines))
        content = _LF.join(chain(lines, (b"",)))
        return cls(np.frombuffer(content, np.uint8), np.cumsum(sizes + 1) - 1)

    @classmethod
    def joined(cls, parts: Sequence[Lines]) -> Lines:
        """The lines of all parts, of which there is at least one."""
        if len(parts) == 1:
            return parts[0]
        starts = np.cumsum([0, *(len(part.content) for part in parts[:-1])])
        ends = [part.ends + start for part, start in zip(parts, starts.tolist(), strict=True)]
        return cls(np.concatenate([part.content for part in parts]), np.concatenate(ends))

    def chosen(self, places: Places) -> Lines:
        """Those at these places, in their sequence."""
        if len(places) == len(self) and (places == np.arange(len(self))).all():
            return self
        if len(places) < FEW:
            return Lines.of([self[place] for place in places.tolist()])
        from storage_consumer.decoding.line_loops import gather  # noqa: PLC0415 - late, see `compiled`

        return Lines(*gather(self.content, self.ends, places))

    def __len__(self) -> int:
        """How many."""
        return len(self.ends)

    @overload
    def __getitem__(self, place: int) -> bytes: ...
    @overload
    def __getitem__(self, place: slice) -> Lines: ...

    def __getitem__(self, place: int | slice) -> bytes | Lines:
        """One line; or some that stand one behind the other, of the same bytes."""
        if isinstance(place, int):
            start = self._start(range(len(self))[place])
            return self.content[start : self.ends[place]].tobytes()
        first, end, step = place.indices(len(self))
        if step != 1:
            raise ValueError("lines of a slice stand one behind the other")
        start, ends = self._start(first), self.ends[first:end]
        return Lines(self.content[start : int(ends[-1]) + 1 if len(ends) else start], ends - start)

    def __iter__(self) -> Iterator[bytes]:
        """One line after another."""
        return iter(bytes(self).split(_LF)[:-1])

    def __bytes__(self) -> bytes:
        """All of them, each with an LF behind it."""
        return self.content.tobytes()

    def _start(self, place: int) -> int:
        """Where a line begins; behind the last one, where they end."""
        return int(self.ends[place - 1]) + 1 if place else 0


def size_of(lines: Sequence[bytes]) -> int:
    """Bytes of all lines."""
    return len(lines.content) if isinstance(lines, Lines) else sum(map(len, lines))


def in_one(lines: Sequence[bytes]) -> bytes:
    """All lines, each with an LF behind it."""
    return bytes(lines) if isinstance(lines, Lines) else _LF.join(chain(lines, (b"",)))
