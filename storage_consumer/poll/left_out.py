"""What listings leave out, stream by stream, so that a rewritten file shows since when this could go unseen."""

from __future__ import annotations

from collections.abc import Mapping

from storage_consumer.model import stream_of
from storage_consumer.plan.finished_files import EVERYTHING
from storage_consumer.poll.file_numbers import Directory
from storage_consumer.poll.finished_folders import Closing
from storage_consumer.storage.paths import left_out, parse_data_name


class LeftOut:
    """The marks of the latest listing, and how those of the next one differ from those already reported."""

    def __init__(self) -> None:
        """Start with nothing left out."""
        self._latest: Mapping[str, str] = {}
        self._told: dict[str, int] = {}
        self._lowered: dict[str, int] = {}

    def hid(self, path: str) -> bool:
        """Return whether the latest listing left a file out."""
        return left_out(path, self._latest)

    def judged(
        self, before: Closing | None, now: Closing, table_dir: str, directories: Mapping[str, Directory]
    ) -> None:
        """Note what the next listing may leave out of a table, and what it was `before`.

        What the next listing shows again counts as left out until it has been shown.
        """
        marks = {} if before is None else before.after
        raised = {
            _stream_of(name, mark): _number_of(mark) for name, mark in now.after.items() if marks.get(name) != mark
        }
        shown = {_stream_of(name, mark): 0 for name, mark in marks.items() if name not in now.after}
        # Both ways: directories that are newly closed, and those that are open again.
        changed = now.closed ^ (frozenset() if before is None else before.closed)
        for folder, directory in directories.items() if changed else ():
            above = {folder, f"{table_dir}/{directory.placed.version}"}
            if above & changed:
                names = [stream_of(folder, dispatcher, width) for dispatcher, width in directory.streams]
                raised |= {name: EVERYTHING if above & now.closed else raised.get(name, 0) for name in names}
        self._lowered = {name: 0 for name in self._lowered | shown if name not in raised}
        self._told |= raised

    def listed(self, after: Mapping[str, str], lowered: Mapping[str, int]) -> None:
        """Note that a listing with the marks `after` has ended; `lowered`: what `lowering` returned when it began."""
        self._latest = after
        # Raised marks win: they were judged after the listing that lowered these began.
        self._told = {**lowered, **self._told}

    def lowering(self) -> Mapping[str, int]:
        """Note that a listing begins; return the streams that it shows again."""
        lowered, self._lowered = self._lowered, {}
        return lowered

    def take(self) -> dict[str, int]:
        """Return stream → number up to which the latest or the next listing leaves files out, where that changed since the last call.

        `EVERYTHING`: TiCDC writes no more to the directory.
        """
        told, self._told = self._told, {}
        return told


def _stream_of(sequence: str, mark: str) -> str:
    """Return the stream that a mark belongs to."""
    data = parse_data_name(mark)
    assert data is not None, mark
    return stream_of(sequence.rpartition("/")[0] if data.dispatcher else sequence, data.dispatcher, data.width)


def _number_of(mark: str) -> int:
    data = parse_data_name(mark)
    assert data is not None, mark
    return data.number
