"""TableVersionConsumer: the files of one version directory of one table, in order, each applied once."""

from __future__ import annotations

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

    Numbers start at 1 and grow by 1. What is finished is one number and, rarely, a few beyond a file that is still pending.
    """

    def __init__(self, done_upto: int = 0, tag: str = "") -> None:
        """`done_upto`, `tag`: see `Finished`; from an earlier run."""
        self.done_upto = done_upto
        self._tag = tag
        self.pending: dict[str, DataFile] = {}
        self._done: dict[int, str] = {}
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
        self._done.pop(file.number, None)
        if file.number <= self.done_upto:
            self._done |= dict.fromkeys(range(file.number + 1, self.done_upto), "")
            self._done |= {self.done_upto: self._tag} if file.number < self.done_upto else {}
            self.done_upto, self._tag = file.number - 1, ""  # so that a restart reads it again too
        return True

    def readable(self, high: int) -> Iterator[DataFile]:
        """Pending files that may hold rows with commit ts <= `high`."""
        for path, file in self.pending.items():
            if self._not_before.get(path, 0) <= high:
                yield file

    @property
    def out_of_turn(self) -> str:
        """A pending file's path behind which later ones of the sequence are finished; empty if there is none."""
        last = max(self._done, default=0)
        return next((path for path, file in self.pending.items() if file.number < last), "")

    def finish(self, file: DataFile) -> None:
        """All rows of the file are applied."""
        current = self.pending.get(file.stored.path)
        if current is None or current.stored.tag != file.stored.tag:
            return  # it changed while it was read: the new content is read next
        del self.pending[file.stored.path]
        self._not_before.pop(file.stored.path, None)
        if file.number > self.done_upto:
            self._done[file.number] = file.stored.tag
        while self.done_upto + 1 in self._done:
            self.done_upto += 1
            self._tag = self._done.pop(self.done_upto)

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
    def known(self) -> set[int]:
        """Numbers above `done_upto` that are finished or listed."""
        return self._done.keys() | {file.number for file in self.pending.values()}

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
        self._done = done

    @property
    def is_ddl(self) -> bool:
        """Whether a statement led to this version, so that rows at or below it are repeated deliveries."""
        return self.definition is not None and self.definition.is_ddl

    @property
    def structure(self) -> TableDefinition | None:
        """The definition, where it tells the structure of this very table at this version."""
        return None if self.definition is None or is_astray(self.definition) else self.definition

    def offer(self, file: DataFile, *, again: bool) -> bool:
        """Take a listed file; False if an earlier run finished it."""
        stream = self.streams.get(file.stream)
        if stream is None:
            before = self._done.get(file.stream, Finished())
            stream = self.streams[file.stream] = FileStream(before.upto, before.tag)
        return stream.offer(file, again=again)

    def readable(self, high: int) -> list[DataFile]:
        """Files that may hold rows with commit ts <= `high` (inclusive), in sequence order."""
        return sorted((f for s in self.streams.values() for f in s.readable(high)), key=lambda file: file.order)

    @property
    def out_of_turn(self) -> str:
        """See `FileStream.out_of_turn`."""
        return next(filter(None, (stream.out_of_turn for stream in self.streams.values())), "")

    @property
    def pending(self) -> int:
        """How many files are not finished."""
        return sum(len(stream.pending) for stream in self.streams.values())

    def forget(self, file: DataFile) -> bool:
        """The file is no longer stored; True if it had not been finished."""
        stream = self.streams.get(file.stream)
        return stream is not None and stream.forget(file)

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
    """The lowest number that is neither finished nor listed in any of the streams though it was, or a higher one is; 0 for none."""
    done_upto = max(stream.done_upto for stream in streams)
    known: set[int] = set().union(*(stream.known for stream in streams))
    lost: set[int] = set().union(*(stream.lost for stream in streams)) - known
    hole = next((n for n in range(done_upto + 1, max(known, default=0)) if n not in known), 0)
    return min({hole} - {0} | lost, default=0)
