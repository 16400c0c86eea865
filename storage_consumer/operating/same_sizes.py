"""Compare the data files of another place with those that were finished, one by one, by their sizes alone.

Tags differ from place to place, but a copy has the size of its file. A finished file with another size was rewritten since, or copied
badly. Its digest is kept, so that `run` treats it as it would have at the former place: it reads the file again, and halts the table if
no listing looked at the file while rows after it were applied. A file that was rewritten with the same size goes unnoticed:
`run` reads it again only where TiCDC may still write, and treats its rows up to the checkpoint as repeats.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping

from storage_consumer.model import StoredObject, stream_of
from storage_consumer.plan.finished_files import ANEW, Finished, has_size
from storage_consumer.storage.paths import DataName, parse_data_name

SHOWN = 10
"""Number of paths that are kept for a message; the others are only counted."""


class Sizes:
    """What a listing shows as it passes. It keeps 8 bytes for each file with another size, and only a few paths."""

    def __init__(self, streams: Mapping[str, Finished]) -> None:
        """Start without findings. `streams`: sequence (see `DataFile.stream`) → what an earlier run finished of it."""
        self._streams = streams
        self._last: set[str] = set()
        self.other: dict[str, array[int]] = {}
        """Sequence → numbers of its finished files that have another size."""
        self.count = 0
        """Number of files with another size."""
        self.unseen = 0
        """Number of those that may have been rewritten where no listing looked, so that rows may be lost."""
        self.shown: list[str] = []
        """The first of them, each with its difference."""

    @property
    def there(self) -> int:
        """Number of sequences whose last finished file exists."""
        return len(self._last)

    @property
    def gone(self) -> int:
        """Number of sequences whose last finished file does not exist."""
        return sum(finished.upto > 0 for finished in self._streams.values()) - self.there

    def see(self, stored: StoredObject) -> None:
        """Record one listed object."""
        folder, _, name = stored.path.rpartition("/")
        data = parse_data_name(name)
        stream = data and next((found for found in _streams_of(folder, data) if found in self._streams), "")
        if not (data and stream):
            return
        finished = self._streams[stream]
        if data.number == finished.upto:
            self._last.add(stream)
        digest = finished.digest(data.number)
        # Neither of the two special digests records a size.
        if digest in (0, ANEW) or has_size(digest, stored.size):
            return
        unseen = finished.was_unseen(data.number)
        self.other.setdefault(stream, array("Q")).append(data.number)
        self.count += 1
        self.unseen += unseen
        if len(self.shown) < SHOWN:
            lost = "; rows in it may be lost, so its table would halt" if unseen else ""
            self.shown.append(f"{stored.path}: it has {stored.size} bytes, and had another size when it was read{lost}")


def _streams_of(folder: str, data: DataName) -> Iterator[str]:
    """Yield the sequences that a file may belong to, likeliest first: a number that fills its width does not show the width."""
    digits = len(str(data.number))
    for width in range(digits, data.width, -1):
        yield stream_of(folder, data.dispatcher, width)
    yield stream_of(folder, data.dispatcher, data.width)
