"""Hold the data files of another place against those that were finished, one by one, by their sizes alone.

Tags differ from place to place, but a copy has the size of its file. A finished file that has another size was written anew since, or
was copied badly. Its digest is kept, so that `run` treats it as it would have in the former place: it reads the file again, and
halts the table where no listing looked while rows beyond the file were applied. One that was written anew with the same size
is not told apart: `run` reads it again only where TiCDC may still write, and takes its rows up to the checkpoint for repeats.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping

from storage_consumer.model import StoredObject, stream_of
from storage_consumer.plan.finished_files import ANEW, Finished, has_size
from storage_consumer.storage.paths import DataName, parse_data_name

SHOWN = 10
"""So many paths are kept for a message; of the others there is a count."""


class Sizes:
    """What is found while a listing goes by; it keeps 8 bytes for each file that has another size, and no path but a few."""

    def __init__(self, streams: Mapping[str, Finished]) -> None:
        """Stream (see `DataFile.stream`) → what an earlier run finished of it."""
        self._streams = streams
        self._last: set[str] = set()
        self.other: dict[str, array[int]] = {}
        """Stream → numbers of the finished files that have another size."""
        self.count = 0
        """How many files have another size."""
        self.unseen = 0
        """How many of them may have been written anew where no listing looked, so that rows may be lost."""
        self.shown: list[str] = []
        """The first of them, each with how it differs."""

    @property
    def there(self) -> int:
        """How many streams have their last finished file there."""
        return len(self._last)

    @property
    def gone(self) -> int:
        """How many streams do not."""
        return sum(finished.upto > 0 for finished in self._streams.values()) - self.there

    def see(self, stored: StoredObject) -> None:
        """Take one listed object."""
        folder, _, name = stored.path.rpartition("/")
        data = parse_data_name(name)
        stream = data and next((found for found in _streams_of(folder, data) if found in self._streams), "")
        if not (data and stream):
            return
        finished = self._streams[stream]
        if data.number == finished.upto:
            self._last.add(stream)
        digest = finished.digest(data.number)
        if digest in (0, ANEW) or has_size(digest, stored.size):
            return
        unseen = finished.was_unseen(data.number)
        self.other.setdefault(stream, array("Q")).append(data.number)
        self.count += 1
        self.unseen += unseen
        if len(self.shown) < SHOWN:
            lost = "; rows may be lost with what it held, so its table would halt" if unseen else ""
            self.shown.append(f"{stored.path}: it has {stored.size} bytes, and had another size when it was read{lost}")


def _streams_of(folder: str, data: DataName) -> Iterator[str]:
    """The streams that a file may be of, the likeliest first: a number that fills its width does not show it."""
    digits = len(str(data.number))
    for width in range(digits, data.width, -1):
        yield stream_of(folder, data.dispatcher, width)
    yield stream_of(folder, data.dispatcher, data.width)
