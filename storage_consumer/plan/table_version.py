"""TableVersionConsumer: the files of one version directory of one table, in order, each applied once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from storage_consumer.model import DataFile, TableDefinition
from storage_consumer.plan.file_sequence import FileStream, Streams
from storage_consumer.plan.renames import is_astray


class TableVersionConsumer:
    """One version directory of one table: its structure, its streams of files and how far each is consumed."""

    def __init__(self, version: int, table_dir: str, known: Streams) -> None:
        """Begin without files. `known`: the streams of the whole bucket."""
        self.version = version
        self.table_dir = table_dir
        self.definition: TableDefinition | None = None
        self.streams: dict[str, FileStream] = {}
        self.partitions: set[int] = set()
        """Partitions of the known files; files outside any partition's directory do not count."""
        self._known = known
        self._sequences: dict[str, list[FileStream]] = defaultdict(list)
        self._open: dict[str, FileStream] = {}
        self._applied: dict[tuple[int | None, str], tuple[str, int]] = {}

    @property
    def is_ddl(self) -> bool:
        """Whether a statement led to this version of this table, so that rows at or below it are repeated deliveries."""
        return self.structure is not None and self.structure.is_ddl

    @property
    def structure(self) -> TableDefinition | None:
        """The definition, where it gives the structure of this very table at this version."""
        return None if self.definition is None or is_astray(self.definition) else self.definition

    def offer(self, file: DataFile) -> bool:
        """Take a listed file; return False for one that an earlier run finished in its present state."""
        key = file.stream
        stream = self.streams.get(key)
        if stream is None:
            stream = self.streams[key] = self._known[key]
            self._sequences[_sequence(key)].append(stream)
            self.partitions |= set() if file.partition is None else {file.partition}
            if stream.highest:
                self._note_applied(file, stream.highest)
        self._open[key] = stream
        return stream.offer(file)

    def finish(self, file: DataFile) -> None:
        """Note that all rows of the file are applied."""
        self._note_applied(file, file.number)
        self.streams[file.stream].finish(file)

    def _note_applied(self, file: DataFile, number: int) -> None:
        key = file.partition, file.dispatcher
        self._applied[key] = max(self._applied.get(key, ("", 0)), (file.date, number))

    @property
    def applied(self) -> set[int | None]:
        """The partitions of which files were applied."""
        return {partition for partition, _ in self._applied}

    def is_behind(self, file: DataFile) -> bool:
        """Return whether TiCDC writes such a file before an applied one of the same partition: by date, then by number."""
        return any(
            date > file.date or (dispatcher == file.dispatcher and date == file.date and number > file.number)
            for (partition, dispatcher), (date, number) in self._applied.items()
            if partition == file.partition
        )

    def open_streams(self) -> list[FileStream]:
        """Return the streams with anything pending, finished out of turn, or lost."""
        if any(not stream.is_open for stream in self._open.values()):
            self._open = {key: stream for key, stream in self._open.items() if stream.is_open}
        return list(self._open.values())

    def readable(self, high: int) -> list[DataFile]:
        """Return files that may hold rows with commit-ts <= `high` (inclusive), in sequence order."""
        return sorted((f for s in self.open_streams() for f in s.readable(high)), key=lambda file: file.order)

    @property
    def pending(self) -> int:
        """Number of files that are not finished."""
        return sum(len(stream.pending) for stream in self.open_streams())

    def forget(self, file: DataFile) -> bool:
        """Note that the file is no longer stored; return True if it had not been finished."""
        stream = self.streams.get(file.stream)
        return stream is not None and stream.forget(file)

    def remove(self, file: DataFile) -> None:
        """Drop a file that is no longer stored and is not missed."""
        if (stream := self.streams.get(file.stream)) is not None:
            stream.pending.pop(file.stored.path, None)

    def gap(self) -> str:
        """Return which file is missing from a sequence, or an empty text.

        Numbering continues after a change of the index width, so all widths of a directory and dispatcher count together.
        """
        return next((f"file number {number} in {stream.partition('|')[0]}" for stream, number, _ in self.gaps()), "")

    def gaps(self) -> Iterator[tuple[str, int, int]]:
        """Yield for each sequence with a missing number: its stream with the highest number, the missing one, and the highest."""
        self.open_streams()
        # Only sequences with something open can lack a number.
        for key in dict.fromkeys(map(_sequence, self._open)):
            if number := _missing(self._sequences[key]):
                highest = {name: _highest(s) for name, s in self.streams.items() if _sequence(name) == key}
                last = max(highest, key=lambda name: highest[name])
                yield last, number, highest[last]

    def reached(self, stream: str) -> int:
        """Return the number up to which (inclusive) all files of a stream's sequence are finished or listed."""
        streams = self._sequences[_sequence(stream)]
        reached = max((found.done_upto for found in streams), default=0)
        for first, last in sorted(span for found in streams for span in found.known):
            if first > reached + 1:
                break
            reached = max(reached, last)
        return reached


def _highest(stream: FileStream) -> int:
    """Return the highest number of a stream that is finished, listed or missed."""
    return max([stream.done_upto, *(last for _, last in stream.known), *stream.lost])


def _sequence(stream: str) -> str:
    """Return directory and dispatcher of a stream, see `DataFile.stream`."""
    return stream.rpartition("|")[0]


def _missing(streams: Sequence[FileStream]) -> int:
    """Return the lowest missing number: neither finished nor listed, though it was listed or a higher one is; 0 for none."""
    reached = max(stream.done_upto for stream in streams)
    known = sorted(span for stream in streams for span in stream.known)
    lost: set[int] = set().union(*(stream.lost for stream in streams))
    missing = {number for number in lost if not any(first <= number <= last for first, last in known)}
    for first, last in known:
        if first > reached + 1:
            return min(missing | {reached + 1})
        reached = max(reached, last)
    return min(missing, default=0)
