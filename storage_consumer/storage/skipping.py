"""Listing a store that shows names in order and can begin anywhere: what may be left out is jumped over.

So the number of calls follows what is open, not what is stored. Where it takes many calls all the same, as with a thousand
tables, several parts of the order are gone through at once.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count, pairwise

from storage_consumer.model import StoredObject
from storage_consumer.storage.bucket import Bucket, Page
from storage_consumer.storage.paths import left_out, sequence_of

_AT_ONCE = 8
"""So many calls wait for answers at once."""
_ALONE = 16
"""So many calls are made one after the other before the rest is cut into lanes; most listings end before."""
_VERSION_DIGITS = 17
"""A directory whose name has at least so many digits, and nothing else, is that of a table version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What may be left out."""

    closed: frozenset[str]
    ordered: list[str]
    after: Mapping[str, str]

    def covers(self, path: str) -> bool:
        """Whether this object may be left out."""
        return bool(closed_above(path, self.closed) or up_to_mark(path, self.after))


class OrderedBucket(Bucket):
    """A bucket whose pages show names in the order of their characters, from any name on."""

    page_size = 1000

    def listing(self, closed: frozenset[str], after: Mapping[str, str]) -> Iterator[StoredObject]:
        """All objects, except below `closed` and up to the names in `after`; in key order where little is left out."""
        known = _Known(closed=closed, ordered=sorted(closed), after=after)
        place = yield from self._lane("", "", known, most=_ALONE)
        if not place:
            return
        lanes = pairwise([place, *_borders(known.ordered[bisect_right(known.ordered, place) :], place), ""])
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for found in pool.map(lambda lane: list(self._lane(lane[0], lane[1], known)), lanes):
                yield from found

    @abstractmethod
    def _page(self, folder: str, *, delimited: bool = False, after: str = "", token: str = "", limit: int = 0) -> Page:
        """As in `Bucket`; a server may take `after` to be included."""

    def _lane(self, low: str, high: str, known: _Known, *, most: int = 0) -> Generator[StoredObject, None, str]:
        """Objects with names above `low` and not above `high` (empty: no border), without those that are known.

        Returns the empty text at the end, and the name up to which it went where that took more than `most` calls.
        """
        last, start, token = low, low, ""
        for calls in count(1):
            page = self._page("", after=start, token=token)
            for stored in page.objects:
                if high and stored.path > high:
                    return ""
                if stored.path > last and not known.covers(stored.path):
                    yield stored
                last = max(last, stored.path)
            if not page.token:
                return ""
            if (skipped := self._skip(last, known)) > last:
                last, start, token = skipped, skipped, ""
            else:
                token = page.token
            if high and last >= high:
                return ""
            if known.closed and calls == most:
                return last
        raise AssertionError("only an end ends a listing")

    def _skip(self, last: str, known: _Known) -> str:
        """The path behind which to go on, if `last` lies in what may be left out; else empty."""
        if directory := closed_above(last, known.closed):
            parent = directory.rpartition("/")[0]
            place = bisect_right(known.ordered, directory)
            has_sibling = place < len(known.ordered) and known.ordered[place].rpartition("/")[0] == parent
            return _behind(self._last_closed(parent, directory, known.closed) if has_sibling else directory)
        return up_to_mark(last, known.after)

    def _last_closed(self, parent: str, directory: str, closed: frozenset[str]) -> str:
        """The last of the closed directories that follow one another in `parent` from `directory` on.

        The server says what lies between them: nothing unknown is jumped over.
        """
        while True:
            page = self._page(parent, delimited=True, after=_behind(directory))
            before = directory
            for path in sorted((*page.folders, *(stored.path for stored in page.objects))):
                if path < before:
                    continue
                if path not in closed:
                    return directory
                directory = path
            if not page.token or directory == before:
                return directory


def _borders(ordered: list[str], above: str) -> list[str]:
    """Names `above` this one that cut the order into parts with about equally many closed directories.

    Each lies right behind the ``meta`` of a table, so that the data files of a table and its schema files, which must be
    listed after them, stay in one part.
    """
    lanes = min(len(ordered), 4 * _AT_ONCE)
    tables = {_table_of(ordered[len(ordered) * lane // lanes]) for lane in range(1, lanes)}
    return sorted(border for border in (f"{table}/meta0" for table in tables if table) if border > above)


def _table_of(directory: str) -> str:
    """The table that a closed directory belongs to, or empty."""
    parts = directory.split("/")
    for place in range(len(parts) - 1, 0, -1):
        if len(parts[place]) >= _VERSION_DIGITS and parts[place].isdecimal():
            return "/".join(parts[:place])
    return ""


def closed_above(path: str, closed: frozenset[str]) -> str:
    """The closed directory that `path` lies in, or empty."""
    end = path.find("/")
    while end >= 0:
        if path[:end] in closed:
            return path[:end]
        end = path.find("/", end + 1)
    return ""


def up_to_mark(path: str, after: Mapping[str, str]) -> str:
    """The last path of its sequence that may be left out, if `path` may be; else empty."""
    folder, _, _ = path.rpartition("/")
    return f"{folder}/{after[sequence_of(path)]}" if folder and left_out(path, after) else ""


def _behind(directory: str) -> str:
    """The smallest text that sorts behind all paths in `directory`: the character after the slash is the zero."""
    return f"{directory}0"
