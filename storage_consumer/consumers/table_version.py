"""TableVersionConsumer: the files of one version directory of one table, in order, each applied once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from storage_consumer.model import DataFile, TableDefinition


class FileStream:
    """One numbered sequence of files: all of one directory, dispatcher and index width.

    Numbers start at 1 and grow by 1. What is finished is one number and, rarely, a few beyond a file that is still pending.
    """

    def __init__(self, done_upto: int = 0) -> None:
        """`done_upto`: highest number (inclusive) up to which all files are finished, from an earlier run."""
        self.done_upto = done_upto
        self.pending: dict[str, DataFile] = {}
        self._done: set[int] = set()
        self._not_before: dict[str, int] = {}

    def offer(self, file: DataFile, *, again: bool) -> bool:
        """Take a listed file; False if an earlier run finished it. `again`: this process saw the whole stream before.

        A file that is offered again has changed its content or came late under an old number, so it is read again; rows
        that were applied are told by their commit ts.
        """
        if file.number <= self.done_upto and not again:
            return False
        self.pending[file.stored.path] = file
        self._not_before.pop(file.stored.path, None)
        self._done.discard(file.number)
        if file.number <= self.done_upto:
            self._done.update(range(file.number + 1, self.done_upto + 1))
            self.done_upto = file.number - 1  # so that a restart reads it again too
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
            self._done.add(file.number)
        while self.done_upto + 1 in self._done:
            self.done_upto += 1
            self._done.discard(self.done_upto)

    def defer(self, file: DataFile, next_ts: int) -> None:
        """The file's lowest commit ts that is not applied is `next_ts`."""
        self._not_before[file.stored.path] = next_ts

    @property
    def known(self) -> set[int]:
        """Numbers above `done_upto` that are finished or listed."""
        return self._done | {file.number for file in self.pending.values()}


class TableVersionConsumer:
    """One version of one table: its structure, its streams of files and how far each is consumed."""

    def __init__(self, version: int, done: dict[str, int]) -> None:
        """`done`: per stream the number that an earlier run finished up to (shared by all versions of the table)."""
        self.version = version
        self.definition: TableDefinition | None = None
        self.streams: dict[str, FileStream] = {}
        self._done = done

    @property
    def is_ddl(self) -> bool:
        """Whether a statement led to this version, so that rows at or below it are repeated deliveries."""
        return self.definition is not None and self.definition.is_ddl

    def define(self, definition: TableDefinition) -> None:
        """Take the structure; of two files with one version the one with a statement counts."""
        if self.definition is None or definition.is_ddl or not self.definition.is_ddl:
            self.definition = definition

    def offer(self, file: DataFile, *, again: bool) -> bool:
        """Take a listed file; False if an earlier run finished it."""
        stream = self.streams.get(file.stream)
        if stream is None:
            stream = self.streams[file.stream] = FileStream(self._done.get(file.stream, 0))
        return stream.offer(file, again=again)

    def readable(self, high: int) -> list[DataFile]:
        """Files that may hold rows with commit ts <= `high` (inclusive), in sequence order."""
        return sorted((f for s in self.streams.values() for f in s.readable(high)), key=lambda file: file.order)

    @property
    def pending(self) -> int:
        """How many files are not finished."""
        return sum(len(stream.pending) for stream in self.streams.values())

    def forget(self, file: DataFile) -> bool:
        """The file is no longer stored; True if it had not been finished."""
        stream = self.streams.get(file.stream)
        return stream is not None and stream.pending.pop(file.stored.path, None) is not None

    def gap(self) -> str:
        """Which file is missing from a sequence, or an empty text.

        Numbering goes on where the index width was changed in between, so all widths of a directory and dispatcher count.
        """
        sequences: dict[str, list[FileStream]] = defaultdict(list)
        for key, stream in self.streams.items():
            sequences[key.rpartition("|")[0]].append(stream)
        for key, streams in sequences.items():
            if number := _missing(streams):
                return f"file number {number} in {key.partition('|')[0]}"
        return ""


def _missing(streams: Sequence[FileStream]) -> int:
    """The lowest number that is neither finished nor listed in any of the streams though a higher one is; 0 for none."""
    done_upto = max(stream.done_upto for stream in streams)
    known: set[int] = set().union(*(stream.known for stream in streams))
    return next((n for n in range(done_upto + 1, max(known, default=0)) if n not in known), 0)
