"""TableVersionConsumer: the files of one version directory of one table, in order, each applied once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from storage_consumer.model import DataFile, TableDefinition, folder_of
from storage_consumer.plan.file_sequence import FileSequence, FileSequences
from storage_consumer.sql.parse import parsed


class TableVersionConsumer:
    """One version directory of one table: its structure, its sequences of files and how far each is consumed."""

    def __init__(self, version: int, table_dir: str, known: FileSequences) -> None:
        """Begin without files. `known`: the sequences of the whole bucket."""
        self.version = version
        self.table_dir = table_dir
        self.sequences: dict[str, FileSequence] = {}
        self.partitions: set[int] = set()
        """Partitions of the known files; files outside any partition's directory do not count."""
        self.applied: set[int | None] = set()
        """Partitions of which files were applied; None stands for files outside any partition's directory."""
        self._definition: TableDefinition | None = None
        self._known = known
        # Directory and dispatcher → sequences of every index width.
        self._numberings: dict[str, list[FileSequence]] = defaultdict(list)
        # Sequences that may have something open: they come in by `offer` and leave in `open_sequences`.
        self._open: dict[str, FileSequence] = {}
        self._applied: dict[tuple[int | None, str], tuple[str, int]] = {}

    @property
    def definition(self) -> TableDefinition | None:
        """The content of the schema file that gives the structure of the rows; None while there is none."""
        return self._definition

    def define(self, definition: TableDefinition) -> None:
        """Set the definition. Where the directory belongs to a table, `TableVersions.define` does it."""
        self._definition = definition

    @property
    def is_ddl(self) -> bool:
        """Whether a statement led to this version of this table, so that rows at or below it are repeated deliveries."""
        return self.structure is not None and self.structure.is_ddl

    @property
    def structure(self) -> TableDefinition | None:
        """The definition, where it gives the structure of this very table at this version."""
        definition = self._definition
        return None if definition is None or parsed(definition).is_astray else definition

    def offer(self, file: DataFile) -> bool:
        """Take a listed file; return False for one that an earlier run finished in its present state."""
        key = file.sequence
        sequence = self.sequences.get(key)
        if sequence is None:
            # The bucket's own record of it: a directory that moves to another table keeps what is finished.
            sequence = self.sequences[key] = self._known[key]
            numbering = self._numberings[_numbering(key)]
            # Files of a former width may have expired, and their numbers count.
            alike = dict.fromkeys((sequence, *self._known.numbering(key)))
            numbering += [each for each in alike if each not in numbering]
            self.partitions |= set() if file.partition is None else {file.partition}
            # An earlier run applied files of it, which count in `is_behind` as well.
            if sequence.highest:
                self._note_applied(file, sequence.highest)
        self._open[key] = sequence
        return sequence.offer(file)

    def finish(self, file: DataFile) -> None:
        """Note that all rows of the file are applied."""
        self._note_applied(file, file.number)
        self.sequences[file.sequence].finish(file)

    def _note_applied(self, file: DataFile, number: int) -> None:
        key = file.partition, file.dispatcher
        self._applied[key] = max(self._applied.get(key, ("", 0)), (file.date, number))
        self.applied.add(file.partition)

    def is_behind(self, file: DataFile) -> bool:
        """Return whether TiCDC writes such a file before an applied one of the same partition: by date, then by number."""
        # Each dispatcher counts its own files, so only the date puts files of two of them in order.
        return any(
            date > file.date or (dispatcher == file.dispatcher and date == file.date and number > file.number)
            for (partition, dispatcher), (date, number) in self._applied.items()
            if partition == file.partition
        )

    def open_sequences(self) -> list[FileSequence]:
        """Return the sequences with anything pending, finished out of turn, or lost."""
        # Rebuilt only when something has closed: this is asked many times in each round.
        if any(not sequence.is_open for sequence in self._open.values()):
            self._open = {key: sequence for key, sequence in self._open.items() if sequence.is_open}
        return list(self._open.values())

    def readable(self, high: int) -> list[DataFile]:
        """Return files that may hold rows with commit-ts <= `high` (inclusive), in sequence order."""
        return sorted((f for s in self.open_sequences() for f in s.readable(high)), key=lambda file: file.order)

    @property
    def pending(self) -> int:
        """Number of files that are not finished."""
        return sum(len(sequence.pending) for sequence in self.open_sequences())

    def forget(self, file: DataFile) -> bool:
        """Note that the file is no longer stored; return True if it had not been finished."""
        sequence = self.sequences.get(file.sequence)
        return sequence is not None and sequence.forget(file)

    def remove(self, file: DataFile) -> None:
        """Drop a file that is no longer stored and is not missed."""
        if (sequence := self.sequences.get(file.sequence)) is not None:
            sequence.pending.pop(file.stored.path, None)

    def gap(self) -> str:
        """Return which file is missing from a sequence, or an empty text.

        Numbering continues after a change of the index width, so all widths of a directory and dispatcher count together.
        """
        return next((f"file number {number} in {folder_of(sequence)}" for sequence, number, _ in self.gaps()), "")

    def gaps(self) -> Iterator[tuple[str, int, int]]:
        """Yield for each numbering with a missing number: its sequence with the highest number, the missing one, and the highest."""
        # Called for what it drops from `_open`.
        self.open_sequences()
        # Only numberings with something open can lack a number.
        for key in dict.fromkeys(map(_numbering, self._open)):
            if number := _missing(self._numberings[key]):
                highest = {name: _highest(s) for name, s in self.sequences.items() if _numbering(name) == key}
                last = max(highest, key=lambda name: highest[name])
                yield last, number, highest[last]

    def finished_upto(self, sequence: str) -> int:
        """Return the number up to which (inclusive) all files of a sequence's numbering are finished."""
        return max((found.done_upto for found in self._numberings[_numbering(sequence)]), default=0)

    def reached(self, sequence: str) -> int:
        """Return the number up to which (inclusive) all files of a sequence's numbering are finished or listed."""
        sequences = self._numberings[_numbering(sequence)]
        reached = self.finished_upto(sequence)
        for first, last in sorted(span for found in sequences for span in found.known):
            if first > reached + 1:
                break
            reached = max(reached, last)
        return reached


def _highest(sequence: FileSequence) -> int:
    """Return the highest number of a sequence that is finished, listed or missed."""
    return max([sequence.done_upto, *(last for _, last in sequence.known), *sequence.lost])


def _numbering(sequence: str) -> str:
    """Return directory and dispatcher of a sequence, see `DataFile.sequence`."""
    return sequence.rpartition("|")[0]


def _missing(sequences: Sequence[FileSequence]) -> int:
    """Return the lowest missing number: neither finished nor listed, though it was listed or a higher one is; 0 for none."""
    # Numbers go on after a change of the index width, so the sequence that came furthest counts for all.
    reached = max(sequence.done_upto for sequence in sequences)
    known = sorted(span for sequence in sequences for span in sequence.known)
    lost: set[int] = set().union(*(sequence.lost for sequence in sequences))
    # What is lost in one width may be there in another.
    missing = {number for number in lost if not any(first <= number <= last for first, last in known)}
    for first, last in known:
        if first > reached + 1:
            return min(missing | {reached + 1})
        reached = max(reached, last)
    return min(missing, default=0)
