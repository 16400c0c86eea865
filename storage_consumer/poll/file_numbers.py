"""What is remembered of data files: a few bytes for each, in the numbered sequences in which TiCDC writes them."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator

from storage_consumer.storage.paths import DataDirectory, DataName, format_data_name

_LEAST_WIDTH = 6
_FULL_WIDTH = 20
"""TiCDC's largest ``file-index-digit``, and its default."""
_MAX_HOLE = 4096
"""A number further than this beyond the highest one is kept apart, so that an odd file name can't take memory."""
_RELISTED = 8
"""Number of newest files that are listed again each time: a restarted TiCDC may rewrite one of them under its old name."""


class ListedSequence:
    """One numbered sequence of files: number → tag, 8 bytes a file. A tag of 0 means that there is no such file."""

    __slots__ = ("_apart", "_generation", "_run", "_seen", "_tags", "count", "highest")

    def __init__(self) -> None:
        """Start without files."""
        # Index 0 belongs to no file: numbers begin at 1.
        self._tags = array("Q", [0])
        self._apart: dict[int, tuple[int, int]] = {}
        # One mark for each tag, from the first file that a new generation shows to the next sweep; otherwise empty.
        self._seen = bytearray()
        self._generation = 0
        self._run = 0
        self.count = 0
        self.highest = 0

    @property
    def complete(self) -> bool:
        """Whether no number from 1 to the highest one is missing."""
        return self.run() == self.highest

    def put(self, number: int, tag: int, generation: int) -> int:
        """Note that the full listing `generation`, or one after it, shows the file with `tag`; return its previous tag, or 0."""
        # The marks of what a full listing shows are kept for that listing only.
        if generation != self._generation:
            self._generation, self._seen = generation, bytearray(len(self._tags))
        before = self._put_apart(number, tag) if self._is_apart(number) else self._put_dense(number, tag)
        if not before:
            self.count += 1
            self.highest = max(self.highest, number)
        return before

    def sweep(self, generation: int) -> list[int]:
        """Forget the files that the full listing `generation` did not show, and return their numbers."""
        # Without a file in this listing, the marks are still those of an older one.
        everything = generation != self._generation
        gone = [number for number, tag in enumerate(self._tags) if tag and (everything or not self._seen[number])]
        gone += [number for number, (_, shown) in self._apart.items() if shown != generation]
        for number in gone:
            if self._apart.pop(number, None) is None:
                self._tags[number] = 0
                self._run = min(self._run, number - 1)
        self.count -= len(gone)
        if self.highest in gone:
            self.highest = max(self.numbers(), default=0)
        self._generation, self._seen = generation, bytearray()
        return gone

    def numbers(self) -> Iterator[int]:
        """Yield all numbers for which there is a file."""
        yield from (number for number, tag in enumerate(self._tags) if tag)
        yield from self._apart

    def run(self) -> int:
        """Return the highest number up to which none, from 1 on, is missing."""
        # Resumes where the last call stopped, so all calls together pass each number once; `sweep` moves it back.
        tags = self._tags
        # A number that is kept apart never joins the run, not even when all numbers before it have come: its directory just stays open.
        while self._run + 1 < len(tags) and tags[self._run + 1]:
            self._run += 1
        return self._run

    def _is_apart(self, number: int) -> bool:
        # What was once kept apart stays there, however far the array grows since.
        return number in self._apart or number >= len(self._tags) + _MAX_HOLE

    def _put_apart(self, number: int, tag: int) -> int:
        before, _ = self._apart.get(number, (0, 0))
        self._apart[number] = (tag, self._generation)
        return before

    def _put_dense(self, number: int, tag: int) -> int:
        missing = number + 1 - len(self._tags)
        if missing > 0:
            self._tags.extend([0] * missing)
            if self._seen:
                self._seen.extend(bytes(missing))
        before, self._tags[number] = self._tags[number], tag
        if self._seen:
            self._seen[number] = 1
        return before


class Directory:
    """The data files of one directory, all with one extension."""

    __slots__ = ("placed", "sequences")

    def __init__(self, placed: DataDirectory) -> None:
        """Start without files."""
        self.placed = placed
        self.sequences: dict[tuple[str, int], ListedSequence] = {}

    @property
    def complete(self) -> bool:
        """Whether no number is missing in any of its sequences."""
        return all(sequence.complete for sequence in self.sequences.values())

    def sequence(self, dispatcher: str, width: int) -> ListedSequence:
        """Return the sequence of a dispatcher (or of none) and an index width."""
        key = (dispatcher, width)
        if key not in self.sequences:
            self.sequences[key] = ListedSequence()
        return self.sequences[key]

    def width(self, name: DataName) -> int:
        """Return the width of the sequence that `name` continues.

        A number with more digits than TiCDC pads to, such as 1000000 after 999999, does not show its sequence's width. It belongs
        to the widest sequence there that has grown to that many digits, else to the one of the smallest width.
        """
        digits = len(str(name.number))
        if name.width != _LEAST_WIDTH or digits <= _LEAST_WIDTH:
            return name.width
        # A sequence of more digits would have written this number with a zero in front.
        wider = (width for dispatcher, width in self.sequences if dispatcher == name.dispatcher and width <= digits)
        return max(wider, default=name.width)

    def marks(self, extension: str, *, fixed_width: bool) -> Iterator[str]:
        """Yield for each sequence the name up to which (inclusive) the next listing may leave files out, if there is one.

        There is one only where no file that TiCDC may still write can sort at or below it. So it never lies beyond a missing number,
        nor where numbers have lost their leading zero. Nor does it exist where numbers are padded to fewer digits than the maximum
        (after a change of ``file-index-digit`` a wider number sorts lower), unless TiCDC had a `fixed_width` then.
        """
        width = _LEAST_WIDTH if fixed_width else _FULL_WIDTH
        widths = Counter(dispatcher for dispatcher, _ in self.sequences)
        for (dispatcher, known), sequence in self.sequences.items():
            # Beyond the second bound numbers have no leading zero.
            number = min(sequence.run() - _RELISTED, 10 ** (width - 1) - 1)
            # A mark is compared with every name of its directory and dispatcher, so all of these have to have one width.
            if known == width and widths[dispatcher] == 1 and number > 0:
                yield format_data_name(DataName(dispatcher=dispatcher, number=number, width=width, extension=extension))

    def sweep(self, generation: int) -> Iterator[tuple[str, int, int]]:
        """Forget the files that the full listing `generation` did not show; yield their dispatchers, numbers and widths."""
        for (dispatcher, width), sequence in list(self.sequences.items()):
            yield from ((dispatcher, number, width) for number in sequence.sweep(generation))
            if not sequence.count:
                del self.sequences[dispatcher, width]
