"""TableVersionConsumer: the files of one version directory of one table, in order, each applied once."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from storage_consumer.model import DataFile, TableDefinition
from storage_consumer.planning.renames import is_astray


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """How far one stream is finished."""

    upto: int = 0
    """Highest number (inclusive) up to which all files are finished."""
    tag: str = ""
    """`StoredObject.tag` of that file when it was read; empty where that is not known."""


class FileStream:
    """One numbered sequence of files: all of one directory, dispatcher and index width.

    Numbers start at 1 and grow by 1. What is finished is one number and, rarely, a few runs beyond a file that is still pending.
    """

    def __init__(self, done_upto: int = 0, tag: str = "") -> None:
        """`done_upto`, `tag`: see `Finished`; from an earlier run."""
        self.done_upto = done_upto
        self._tag = tag
        self.pending: dict[str, DataFile] = {}
        self._done: list[_Run] = []
        self._lost: set[int] = set()
        self._not_before: dict[str, int] = {}

    def offer(self, file: DataFile, *, again: bool) -> bool:
        """Take a listed file; False if an earlier run finished it. `again`: this process saw the whole stream before.

        A file that is offered again has changed its content or came late under an old number, so it is read again; rows
        that were applied are told by their commit ts. The last finished file is read again too where it changed while nobody
        looked: a restarted TiCDC may write it anew.
        """
        anew = file.number == self.done_upto and self._tag not in ("", file.stored.tag)
        if file.number <= self.done_upto and not again and not anew:
            return False
        self._lost.discard(file.number)
        self.pending[file.stored.path] = file
        self._not_before.pop(file.stored.path, None)
        if file.number <= self.done_upto:
            if file.number < self.done_upto:
                self._done.insert(0, _Run(file.number + 1, self.done_upto, self._tag))
            self.done_upto, self._tag = file.number - 1, ""  # so that a restart reads it again too
        else:
            _take_out(self._done, file.number)
        return True

    def readable(self, high: int) -> Iterator[DataFile]:
        """Pending files that may hold rows with commit ts <= `high`."""
        for path, file in self.pending.items():
            if self._not_before.get(path, 0) <= high:
                yield file

    def finish(self, file: DataFile) -> None:
        """All rows of the file are applied."""
        current = self.pending.get(file.stored.path)
        if current is None or current.stored.tag != file.stored.tag:
            return  # it changed while it was read: the new content is read next
        del self.pending[file.stored.path]
        self._not_before.pop(file.stored.path, None)
        if file.number > self.done_upto:
            _put_in(self._done, file.number, file.stored.tag)
        if self._done and self._done[0].first == self.done_upto + 1:
            run = self._done.pop(0)
            self.done_upto, self._tag = run.last, run.tag

    def defer(self, file: DataFile, next_ts: int) -> None:
        """The file's lowest commit ts that is not applied is `next_ts`."""
        self._not_before[file.stored.path] = next_ts

    def forget(self, file: DataFile) -> bool:
        """The file is no longer stored; True if it had not been finished: then it is missed from now on."""
        lost = self.pending.pop(file.stored.path, None) is not None
        if lost:
            self._lost.add(file.number)
        return lost

    @property
    def is_open(self) -> bool:
        """Whether anything is pending, finished out of turn, or lost."""
        return bool(self.pending or self._done or self._lost)

    @property
    def known(self) -> list[tuple[int, int]]:
        """First and last numbers of what is finished or listed above `done_upto`, in no order."""
        return [(run.first, run.last) for run in self._done] + [(f.number, f.number) for f in self.pending.values()]

    @property
    def lost(self) -> frozenset[int]:
        """Numbers that were listed, are no longer stored, and were not finished."""
        return frozenset(self._lost)

    @property
    def finished(self) -> Finished:
        """How far it is finished, as it is stored."""
        return Finished(upto=self.done_upto, tag=self._tag)


class TableVersionConsumer:
    """One version directory of one table: its structure, its streams of files and how far each is consumed."""

    def __init__(self, version: int, table_dir: str, done: Mapping[str, Finished]) -> None:
        """`done`: per stream how far an earlier run finished it (shared by all versions of the table)."""
        self.version = version
        self.table_dir = table_dir
        self.definition: TableDefinition | None = None
        self.streams: dict[str, FileStream] = {}
        self.partitions: set[int] = set()
        """Of the files that are known; without those that lie in no partition's directory."""
        self._done = done
        self._sequences: dict[str, list[FileStream]] = defaultdict(list)
        self._open: dict[str, FileStream] = {}
        self._applied: dict[tuple[int | None, str], tuple[str, int]] = {}

    @property
    def is_ddl(self) -> bool:
        """Whether a statement led to this version of this table, so that rows at or below it are repeated deliveries."""
        return self.structure is not None and self.structure.is_ddl

    @property
    def structure(self) -> TableDefinition | None:
        """The definition, where it tells the structure of this very table at this version."""
        return None if self.definition is None or is_astray(self.definition) else self.definition

    def offer(self, file: DataFile, *, again: bool) -> bool:
        """Take a listed file; False if an earlier run finished it."""
        key = file.stream
        stream = self.streams.get(key)
        if stream is None:
            before = self._done.get(key, Finished())
            stream = self.streams[key] = FileStream(before.upto, before.tag)
            self._sequences[_sequence(key)].append(stream)
            self.partitions |= set() if file.partition is None else {file.partition}
            if before.upto:
                self._note_applied(file, before.upto)
        self._open[key] = stream
        return stream.offer(file, again=again)

    def finish(self, file: DataFile) -> None:
        """All rows of the file are applied."""
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
        """Whether TiCDC writes such a file before one of the same partition that was applied: by date, then by number."""
        return any(
            date > file.date or (dispatcher == file.dispatcher and date == file.date and number > file.number)
            for (partition, dispatcher), (date, number) in self._applied.items()
            if partition == file.partition
        )

    def open_streams(self) -> list[FileStream]:
        """The streams of which anything is pending, finished out of turn, or lost."""
        if any(not stream.is_open for stream in self._open.values()):
            self._open = {key: stream for key, stream in self._open.items() if stream.is_open}
        return list(self._open.values())

    def readable(self, high: int) -> list[DataFile]:
        """Files that may hold rows with commit ts <= `high` (inclusive), in sequence order."""
        return sorted((f for s in self.open_streams() for f in s.readable(high)), key=lambda file: file.order)

    @property
    def pending(self) -> int:
        """How many files are not finished."""
        return sum(len(stream.pending) for stream in self.open_streams())

    def forget(self, file: DataFile) -> bool:
        """The file is no longer stored; True if it had not been finished."""
        stream = self.streams.get(file.stream)
        return stream is not None and stream.forget(file)

    def gap(self) -> str:
        """Which file is missing from a sequence, or an empty text.

        Numbering goes on where the index width was changed in between, so all widths of a directory and dispatcher count.
        """
        self.open_streams()
        for key in dict.fromkeys(map(_sequence, self._open)):
            if number := _missing(self._sequences[key]):
                return f"file number {number} in {key.partition('|')[0]}"
        return ""


@dataclass(slots=True)
class _Run:
    """Finished files without a gap: first and last number, and the tag of the last one."""

    first: int
    last: int
    tag: str


def _put_in(runs: list[_Run], number: int, tag: str) -> None:
    """Add a number that is in none of the runs; they are in order, and none touches another."""
    place = bisect_left(runs, number, key=lambda run: run.first)
    if place and runs[place - 1].last == number - 1:
        place -= 1
        runs[place].last, runs[place].tag = number, tag
    else:
        runs.insert(place, _Run(number, number, tag))
    if place + 1 < len(runs) and runs[place + 1].first == number + 1:
        after = runs.pop(place + 1)
        runs[place].last, runs[place].tag = after.last, after.tag


def _take_out(runs: list[_Run], number: int) -> None:
    """Remove a number, if it is in a run."""
    place = bisect_right(runs, number, key=lambda run: run.first) - 1
    if place < 0 or runs[place].last < number:
        return
    run = runs.pop(place)
    if run.last > number:
        runs.insert(place, _Run(number + 1, run.last, run.tag))
    if run.first < number:
        runs.insert(place, _Run(run.first, number - 1, ""))


def _sequence(stream: str) -> str:
    """Directory and dispatcher of a stream, see `DataFile.stream`."""
    return stream.rpartition("|")[0]


def _missing(streams: Sequence[FileStream]) -> int:
    """The lowest number that is neither finished nor listed in any of the streams though it was, or a higher one is; 0 for none."""
    reached = max(stream.done_upto for stream in streams)
    known = sorted(span for stream in streams for span in stream.known)
    lost: set[int] = set().union(*(stream.lost for stream in streams))
    missing = {number for number in lost if not any(first <= number <= last for first, last in known)}
    for first, last in known:
        if first > reached + 1:
            return min(missing | {reached + 1})
        reached = max(reached, last)
    return min(missing, default=0)
