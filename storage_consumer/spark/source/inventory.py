"""What a stream knows of the files that are still of use to it: each is looked through once, for the commit-ts that it has."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from storage_consumer.errors import FilesMissing
from storage_consumer.feed.ordered import Span
from storage_consumer.feed.patience import Patience
from storage_consumer.feed.reading import Feed
from storage_consumer.feed.records import Statement, Structure
from storage_consumer.feed.window import FeedFile, Window, may_hold
from storage_consumer.model import DataFile, StoredObject, TableDefinition, folder_of
from storage_consumer.poll.same_feed import Before

_AT_ONCE = 8
"""Files that are looked through at once: most of the time of a small one goes into waiting for the store."""
_LOOK = 0.5
"""Seconds between two looks for a file that is missing."""
_NOT_WHOLE = 1 << 64
"""Last commit-ts of a file of which a part is still being written: beyond all others."""


class _Seen(NamedTuple):
    first: int
    """Lowest commit-ts that still counted when the file was looked through; 0: none did."""
    last: int


class Inventory:
    """The files of a bucket by the commit-ts of their rows."""

    def __init__(self, feed: Feed, missing: Patience) -> None:
        """Begin with nothing seen."""
        self._feed = feed
        self.missing = missing
        """How long a file has been missing."""
        self._seen: dict[StoredObject, _Seen] = {}
        self._begun = False
        self._is_same = False
        # The files that were seen of each sequence, by number.
        self._files: dict[str, dict[int, DataFile]] = {}
        # The numbers of each sequence that an earlier process saw with rows that were not due, until all of them are there.
        self._awaited: dict[str, Sequence[int]] = {}

    @property
    def checkpoint(self) -> int:
        """The bucket's checkpoint at the last look."""
        return self._feed.contents.checkpoint

    def look(self, given: int = -1) -> int:
        """See what is new in the bucket; return its checkpoint. `given`: see `Contents.given`. Raises what `Contents.look` does."""
        self._feed.contents.given = given
        self._feed.contents.look()
        return self.checkpoint

    def refuse_other(self, before: Before) -> None:
        """Raise `ConfigError` if the bucket is not the one that was read before; nothing is compared again once it holds anything."""
        contents = self._feed.contents
        if not self._is_same:
            said, _ = contents.reader.doubts_of(before)
            # Its files are others, and hold what those beyond the offset held.
            if said:
                contents.warnings.append(said)
                self._awaited.clear()
            self._is_same = bool(contents.definitions)

    def begin(self, finished: Mapping[str, Sequence[int]]) -> None:
        """Leave out, once, the files that held nothing more when an earlier process looked at them, unless one has changed; see `finished`."""
        if self._begun:
            return
        self._begun = True
        self.look()
        contents = self._feed.contents
        self._note(contents.pending())
        for name, (upto, digest, *more) in finished.items():
            self._awaited[name] = more
            there = self._files.get(name, {})
            files = [file for number, file in there.items() if number <= upto]
            if sum(map(_digest, files)) == digest:
                contents.finish(files)
            elif there:
                # Others are looked through again; one that is gone held nothing more.
                contents.pass_over(next(iter(there.values())), upto)

    def spans(self, low: int, high: int) -> list[Span]:
        """Return the files with rows in ``(low, high]``, those with the lowest commit-ts first; forget those with none above `low`.

        Raises what `Contents.window` does, and `UndecodableRow`.
        """
        window = self._feed.contents.window(low, high, statements=(low, low))
        self._refuse_gone()
        seen = dict(zip(window.files, self._looked_through(window), strict=True))
        self._note(work.file for work in seen)
        self._feed.contents.finish(work.file for work, found in seen.items() if found.last <= low)
        kept = {work.file.stored for work, found in seen.items() if found.last > low}
        self._seen = {stored: found for stored, found in self._seen.items() if stored in kept}
        spans = [
            Span(rank=rank, work=work, first=found.first, last=min(found.last, high))
            for rank, (work, found) in enumerate(seen.items())
            if low < found.first <= high
        ]
        return sorted(spans, key=lambda span: (span.first, span.rank))

    def spans_once_there(self, low: int, high: int) -> list[Span]:
        """Return what `spans` does, and wait for files that are missing as long as the patience with them lasts; then raise `FilesMissing`."""
        while True:
            try:
                found = self.spans(low, high)
            except FilesMissing as fault:
                self.missing.bear(fault, _LOOK)
                self.look()
            else:
                self.missing.end()
                return found

    def _refuse_gone(self) -> None:
        """Raise `FilesMissing` for a file that an earlier process saw, which held more than it was to give."""
        if not self._awaited:
            return
        self._note(self._feed.contents.pending())
        for name, numbers in self._awaited.items():
            gone = next((number for number in numbers if number not in self._files.get(name, {})), 0)
            if gone:
                raise FilesMissing(
                    f"file number {gone} in {folder_of(name)} is missing. It was there before, and held rows that were not due. Restore it from a copy of "
                    "the bucket"
                )
        self._awaited.clear()

    def finished(self, low: int, high: int) -> dict[str, list[int]]:
        """Return by sequence the number up to which its files hold nothing above `low`, a digest of what these are, and those with more than `high`.

        Sequences whose date says that they hold nothing are left out.
        """
        pending = self._feed.contents.pending()
        self._note(pending)
        self._files = {name: files for name, files in self._files.items() if may_hold(next(iter(files.values())), low)}
        more = defaultdict[str, list[int]](list)
        for file in pending:
            if (seen := self._seen.get(file.stored)) is None or seen.last > high:
                more[file.sequence].append(file.number)
        found = {}
        for name, files in self._files.items():
            upto = self._feed.contents.finished_upto(next(iter(files.values())))
            digest = sum(_digest(file) for number, file in files.items() if number <= upto)
            if upto or more[name]:
                found[name] = [upto, digest, *more[name]]
        return found

    def _note(self, files: Iterable[DataFile]) -> None:
        for file in files:
            self._files.setdefault(file.sequence, {})[file.number] = file

    def structures(self, low: int, high: int) -> Iterator[Structure]:
        """Yield the structures that rows with ``low < commit-ts <= high`` may have."""
        return self._feed.contents.in_force(low, high)

    @property
    def definitions(self) -> Sequence[TableDefinition]:
        """What was read of all schema files, sorted by version."""
        return self._feed.contents.definitions

    def statements(self, low: int, high: int) -> tuple[Statement, ...]:
        """Return the statements with ``low < commit-ts <= high``."""
        return tuple(self._feed.contents.statements(low, high))

    def _looked_through(self, window: Window) -> list[_Seen]:
        """Return what each file of a window holds above the window's low border."""
        new = [work for work in window.files if self._is_unknown(work, window.low)]

        def look(work: FeedFile) -> _Seen:
            # One of its own for each file: a decoder remembers the last layout, and is not for several threads.
            ordered = self._feed.ordered(window)
            tally = ordered.tally(work, work.floor)
            is_whole = work.file not in ordered.torn
            return _Seen(tally.next_ts, max(tally.max_ts, tally.next_ts) if is_whole else _NOT_WHOLE)

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            self._seen |= zip((work.file.stored for work in new), pool.map(look, new), strict=True)
        return [self._seen[work.file.stored] for work in window.files]

    def _is_unknown(self, work: FeedFile, low: int) -> bool:
        """Return whether a file has to be looked through: for the first time, or since some of its rows are in the past and others are not."""
        seen = self._seen.get(work.file.stored)
        return seen is None or (seen.first <= low < seen.last and seen.first > 0)


def _digest(file: DataFile) -> int:
    """Return a number that changes whenever the file's content may have changed."""
    return zlib.crc32(f"{file.stored.path}\n{file.stored.size}\n{file.stored.tag}".encode())


def limited(spans: list[Span], high: int, *, files: int, size: int) -> int:
    """Return the commit-ts up to which about so many files, or bytes of files, have rows; 0 stands for no limit.

    `spans` are sorted by their first commit-ts. At least the changes of one commit-ts are given, so that a stream always goes on.
    """
    taken = total = 0
    for span in spans:
        taken, total = taken + 1, total + span.size
        is_too_much = (files and taken > files) or (size and total > size)
        if is_too_much and span.first > spans[0].first:
            return min(high, span.first - 1)
    return high
