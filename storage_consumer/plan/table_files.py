"""A table's version directories: files in order, applied once, and what is left. No I/O.

A file or a target is found by version: no answer takes longer the more versions are finished.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from storage_consumer.model import DataFile, DdlKind, TableDefinition, VersionKey, folder_of
from storage_consumer.plan.finished_files import FileSequence, FileSequences, holes, numbering_of
from storage_consumer.plan.in_order import Numbers, highest
from storage_consumer.plan.steps import MAKES_TABLE
from storage_consumer.sql.parse import parsed
from storage_consumer.tso import may_hold_rows


class TableVersionConsumer:
    """One version directory: its structure, and how far each sequence of files is consumed."""

    def __init__(self, version: int, table_dir: str, known: FileSequences) -> None:
        """Begin without files. `known`: the sequences of the whole bucket."""
        self.version = version
        self.table_dir = table_dir
        self.sequences: dict[str, FileSequence] = {}
        self.partitions: set[int] = set()
        """Partitions of the known files; files outside any partition's directory do not count."""
        self.applied: set[int | None] = set()
        """Partitions with applied files; None: files outside of partition directories."""
        self.definition: TableDefinition | None = None
        """The schema file that gives rows their structure, or None; see `TableVersions.define`."""
        self._known = known
        # Directory and dispatcher → sequences of every index width.
        self._numberings: dict[str, list[FileSequence]] = defaultdict(list)
        # Sequences maybe open: in by `offer`, out in `open_sequences`.
        self._open: dict[str, FileSequence] = {}
        self._applied: dict[tuple[int | None, str], tuple[str, int]] = {}

    @property
    def is_ddl(self) -> bool:
        """Whether a statement led to this version: then rows at or below it are repeats."""
        return self.structure is not None and self.structure.is_ddl

    @property
    def structure(self) -> TableDefinition | None:
        """The definition, where it gives the structure of this very table at this version."""
        definition = self.definition
        return None if definition is None or parsed(definition).is_astray else definition

    def offer(self, file: DataFile) -> bool:
        """Take a listed file; return False if it was finished in its present state."""
        key = file.sequence
        sequence = self.sequences.get(key)
        if sequence is None:
            # The bucket's record: a directory that moves to another table keeps what is finished.
            sequence = self.sequences[key] = self._known[key]
            numbering = self._numberings[numbering_of(key)]
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
        """Return whether TiCDC writes it before an applied one of its partition: date, number."""
        # Each dispatcher counts its own files, so only the date puts files of two of them in order.
        return any(
            date > file.date
            or (dispatcher == file.dispatcher and date == file.date and number > file.number)
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
        """Return files that may hold rows up to `high` (inclusive), in sequence order."""
        return sorted(
            (f for s in self.open_sequences() for f in s.readable(high)),
            key=lambda file: file.order,
        )

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

        Numbering continues after a change of the index width, so all widths of a directory and
        dispatcher count together.
        """
        return next(
            (
                f"file number {number} in {folder_of(sequence)}"
                for sequence, number, _ in self.gaps()
            ),
            "",
        )

    def gaps(self) -> Iterator[tuple[str, int, int]]:
        """Yield, per numbering with a gap, sequence of the highest, missing number, highest."""
        # Called for what it drops from `_open`.
        self.open_sequences()
        # Only numberings with something open can lack a number.
        for key in dict.fromkeys(map(numbering_of, self._open)):
            if number := _missing(self._numberings[key]):
                # Of each sequence the highest number that is finished, listed or missed.
                highest = {
                    name: max([each.done_upto, *(last for _, last in each.known), *each.lost])
                    for name, each in self.sequences.items()
                    if numbering_of(name) == key
                }
                last = max(highest, key=lambda name: highest[name])
                yield last, number, highest[last]

    def never_listed(self, sequence: str) -> list[tuple[int, int]]:
        """Return first and last of the numbers below a known one that nothing is known of."""
        sequences = self._numberings[numbering_of(sequence)]
        spans = [span for found in sequences for span in found.known]
        spans += [(number, number) for found in sequences for number in found.lost]
        return [*holes(max(found.done_upto for found in sequences), spans)]

    def reached(self, sequence: str) -> int:
        """Return the number (inclusive) to which a sequence's numbering is finished or listed."""
        sequences = self._numberings[numbering_of(sequence)]
        reached = max((found.done_upto for found in sequences), default=0)
        for first, last in sorted(span for found in sequences for span in found.known):
            if first > reached + 1:
                break
            reached = max(reached, last)
        return reached


def _missing(sequences: Sequence[FileSequence]) -> int:
    """Return the lowest missing number, listed before or below a known one; 0 for none."""
    # Numbers continue after a change of index width: the furthest sequence counts for all.
    reached = max(sequence.done_upto for sequence in sequences)
    known = [span for sequence in sequences for span in sequence.known]
    lost: set[int] = set().union(*(sequence.lost for sequence in sequences))
    # What is lost in one width may be there in another.
    missing = {
        number for number in lost if not any(first <= number <= last for first, last in known)
    }
    return min(missing.union(first for first, _ in holes(reached, known)), default=0)


_MAKES = MAKES_TABLE | {DdlKind.CREATE_SCHEMA}
_Test = Callable[[TableVersionConsumer], bool]


class TableVersions(Mapping[VersionKey, TableVersionConsumer]):
    """A table's version directories in order of adding, and their versions, ascending.

    A table can have several directories of one version. Only `define` changes the definition of a
    directory that is in here.
    """

    def __init__(self) -> None:
        """Begin without a directory."""
        self.numbers: Final = Numbers()
        """All versions."""
        self.telling: Final = Numbers()
        """Versions that tell of this table: not those with only a step of another's rename."""
        self.structured: Final = Numbers()
        """Versions with the structure of this very table."""
        self.making: Final = Numbers()
        """Versions whose statement created the table or gave it its name."""
        self.spreading: Final = Numbers()
        """Versions whose statement makes a GLOBAL index."""
        self.bare: Final = Numbers()
        """Versions with a directory to which no statement led, or none that is known."""
        self._all: dict[VersionKey, TableVersionConsumer] = {}
        self._at: dict[int, dict[VersionKey, TableVersionConsumer]] = {}
        self._tests: Final[tuple[tuple[Numbers, _Test], ...]] = (
            (
                self.telling,
                lambda each: (
                    each.definition is None or each.structure is not None or bool(each.sequences)
                ),
            ),
            (self.structured, lambda each: each.structure is not None),
            (self.making, makes_table),
            (self.spreading, makes_global_index),
            (self.bare, lambda each: not each.is_ddl),
        )

    def __getitem__(self, key: VersionKey) -> TableVersionConsumer:
        """Return one version directory."""
        return self._all[key]

    def __iter__(self) -> Iterator[VersionKey]:
        """Yield the keys in the order in which they were added."""
        return iter(self._all)

    def __len__(self) -> int:
        """Return the number of version directories."""
        return len(self._all)

    def at(self, number: int) -> Mapping[VersionKey, TableVersionConsumer]:
        """Return the directories of one version, in the order in which they were added."""
        return self._at.get(number, {})

    def put(self, key: VersionKey, version: TableVersionConsumer) -> None:
        """Add a version directory, or put another one in its place."""
        number = key[0]
        self._all[key] = version
        self._at.setdefault(number, {})[key] = version
        self.numbers.add(number)
        self._judge(number, version)

    def remove(self, key: VersionKey) -> TableVersionConsumer:
        """Remove and return a version directory."""
        number = key[0]
        version = self._all.pop(key)
        del self._at[number][key]
        if not self._at[number]:
            del self._at[number]
            self.numbers.discard(number)
        self._judge(number)
        return version

    def define(self, key: VersionKey, definition: TableDefinition) -> None:
        """Set the definition of a version directory."""
        version = self._all[key]
        version.definition = definition
        self._judge(key[0], version)

    def offered(self, key: VersionKey) -> None:
        """Note that files came into a version directory."""
        self._judge(key[0], self._all[key])

    def _judge(self, number: int, changed: TableVersionConsumer | None = None) -> None:
        """Note what is at a version after one of its directories was changed, or removed (None)."""
        for numbers, holds in self._tests:
            if changed is not None and holds(changed):
                numbers.add(number)
            # Only what was noted may have to be taken back: another directory may still have it.
            elif number in numbers and not any(
                holds(version) for version in self.at(number).values()
            ):
                numbers.discard(number)


def makes_table(version: TableVersionConsumer) -> bool:
    """Return whether the statement of a directory created the table or gave it its name."""
    return version.structure is not None and version.structure.ddl_type in _MAKES


def makes_global_index(version: TableVersionConsumer) -> bool:
    """Return whether the statement of a directory makes a GLOBAL index."""
    return version.definition is not None and parsed(version.definition).makes_global_index


class TablePartitions:
    """The partitions that the version directories of a table have files of."""

    def __init__(self) -> None:
        """Begin without a file."""
        # Partition → directories with files of it; none is empty.
        self._places: dict[int, set[VersionKey]] = {}
        # Partition, or None for files outside any partition's directory → versions from which files
        # of it were applied.
        self._applied: dict[int | None, Numbers] = {}

    def __len__(self) -> int:
        """Return the number of partitions; files outside any partition's directory do not count."""
        return len(self._places)

    def note(self, version: TableVersionConsumer, file: DataFile) -> None:
        """Note that a file was listed or applied."""
        if file.partition is not None:
            self._places.setdefault(file.partition, set()).add(file.version_key)
        # Also by an earlier run, which a listed file shows.
        if file.partition in version.applied:
            self._applied.setdefault(file.partition, Numbers()).add(version.version)

    def add(self, key: VersionKey, version: TableVersionConsumer) -> None:
        """Add all that is known of a version directory."""
        for partition in version.partitions:
            self._places.setdefault(partition, set()).add(key)
        for applied in version.applied:
            self._applied.setdefault(applied, Numbers()).add(key[0])

    def remove(self, key: VersionKey, version: TableVersionConsumer, left: TableVersions) -> None:
        """Remove all that is known of a version directory; `left`: the table's remaining ones."""
        for partition in version.partitions:
            self._places[partition].discard(key)
            if not self._places[partition]:
                del self._places[partition]
        for applied in version.applied:
            # Another directory of the same version may have applied files too.
            if not any(applied in other.applied for other in left.at(key[0]).values()):
                self._applied[applied].discard(key[0])

    def is_younger_applied(self, file: DataFile) -> bool:
        """Return whether a younger file was applied in its partition, or either has none."""
        partitions = self._applied if file.partition is None else (file.partition, None)
        newest = highest(
            self._applied[partition].last for partition in partitions if partition in self._applied
        )
        return newest is not None and newest > file.version


_SEVERAL = 2


class TableFiles:
    """The version directories of one table, with their files.

    A file or a target is looked up by version: no answer takes longer the more versions are
    finished.
    """

    def __init__(self, known: FileSequences, *, tells_time: bool = True) -> None:
        """Begin without a directory; `known`: the bucket's sequences.

        `tells_time`: rows carry a commit-ts, if only to the millisecond.
        """
        self.versions: Final = TableVersions()
        self._known = known
        self._tells_time = tells_time
        # Directories without a schema file or with an open sequence: few, even if many are known.
        self._open = TableVersions()
        # Sequence → the directory that it is in.
        self._homes: dict[str, TableVersionConsumer] = {}
        self._partitions = TablePartitions()
        self._closed = False

    @property
    def first(self) -> int:
        """Lowest version known, with or without a schema file; 0 while there is none."""
        return self.versions.numbers.first or 0

    # directories

    def version(self, key: VersionKey) -> TableVersionConsumer:
        """Return the consumer of one version directory, created on first use."""
        if key not in self.versions:
            self.take_over(key, TableVersionConsumer(*key, self._known))
        # Whoever asks for a version may add to it, so it is looked at again.
        else:
            self._open.put(key, self.versions[key])
        return self.versions[key]

    def define(self, key: VersionKey, definition: TableDefinition) -> None:
        """Set the definition of a version directory, created on first use."""
        if key in self.versions:
            self.versions.define(key, definition)
            self._open.put(key, self.versions[key])
        else:
            version = TableVersionConsumer(*key, self._known)
            version.definition = definition
            self.take_over(key, version)

    def take_over(self, key: VersionKey, version: TableVersionConsumer) -> None:
        """Add a version directory that belongs to this table from now on."""
        self.versions.put(key, version)
        self._open.put(key, version)
        self._homes.update(dict.fromkeys(version.sequences, version))
        self._partitions.add(key, version)

    def give_away(self, key: VersionKey) -> TableVersionConsumer:
        """Remove and return a version directory that belongs to another table from now on."""
        version = self.versions.remove(key)
        if key in self._open:
            self._open.remove(key)
        for sequence in version.sequences:
            self._homes.pop(sequence, None)
        self._partitions.remove(key, version, self.versions)
        return version

    def close(self) -> None:
        """Read nothing from now on, and miss nothing: the filter leaves the table out."""
        self._closed = True

    def open_versions(self, target: int | None = None) -> list[TableVersionConsumer]:
        """Return the versions without a schema file and those with an open sequence, in order.

        With a target, only those that may hold rows up to it (inclusive), and perhaps some others.
        """
        numbers = self._open.numbers
        wanted = list(numbers) if target is None else numbers.below(target)
        if target is not None and self._tells_time:
            # Beyond the target a directory without a statement may hold some: `may_hold_rows`.
            wanted += self._open.bare.since(target)
        found = []
        for number in () if self._closed else wanted:
            for key, version in sorted(self._open.at(number).items(), key=lambda item: item[0]):
                # Versions leave here and return by `put`: a long history costs nothing per round.
                if version.definition is not None and not version.open_sequences():
                    self._open.remove(key)
                else:
                    found.append(version)
        return found

    # files

    def offer(self, file: DataFile) -> bool:
        """Take a data file; return False if it was finished in its present state."""
        version = self.version(file.version_key)
        taken = version.offer(file)
        # Of all that is noted of a directory, only this can change by a file.
        if version.version not in self.versions.telling:
            self.versions.offered(file.version_key)
        self._homes[file.sequence] = version
        self._partitions.note(version, file)
        return taken

    def finish(self, file: DataFile) -> None:
        """Note that all rows of a file are applied."""
        version = self.version(file.version_key)
        version.finish(file)
        self._partitions.note(version, file)

    @property
    def pending(self) -> int:
        """Number of files that are not finished."""
        return sum(version.pending for version in self.open_versions())

    @property
    def pending_bytes(self) -> int:
        """Bytes of the files that are not finished."""
        return sum(
            file.stored.size
            for v in self.open_versions()
            for s in v.open_sequences()
            for file in s.pending.values()
        )

    def unread(self) -> dict[str, int]:
        """Return sequence → highest pending number, except in directories not shown as TiCDC's."""
        return {
            name: max(file.number for file in sequence.pending.values())
            for version in self.open_versions()
            if version.definition is not None
            for name, sequence in version.sequences.items()
            if sequence.pending
        }

    def readable(self, target: int) -> tuple[list[DataFile], dict[VersionKey, TableDefinition]]:
        """Return files that may hold rows up to `target` (inclusive), in order, and definitions."""
        files: list[DataFile] = []
        definitions: dict[VersionKey, TableDefinition] = {}
        for version in self.open_versions(target):
            definition = version.definition
            if definition is None or not may_hold_rows(
                version.version, target, is_ddl=version.is_ddl or not self._tells_time
            ):
                # a directory without a schema file yet is younger than the storage checkpoint, or
                # is waited for
                continue
            if found := version.readable(target):
                files.extend(found)
                definitions[version.version, version.table_dir] = definition
        return files, definitions

    def out_of_turn(self, files: Sequence[DataFile]) -> str:
        """Return the path of a file that belongs before an applied one of its partition, or "".

        The order covers all sequences of a partition: version, date, number. A version without
        partitions is compared with any.
        """
        behind = (
            f
            for f in files
            if self.versions[f.version_key].is_behind(f) or self._partitions.is_younger_applied(f)
        )
        return next((file.stored.path for file in behind), "")

    def crossing(self, files: Sequence[DataFile]) -> str:
        """Return the path of a statement by which a key may be in several partitions, or "".

        TiDB wants the partition columns in each unique key that is not GLOBAL: without a GLOBAL
        one, a key has its place in one partition.
        """
        if all(file.partition is None for file in files):
            return ""
        spreading = self.versions.spreading.first
        if spreading is None or len(self._partitions) < _SEVERAL:
            return ""
        found = (
            v.definition for v in self.versions.at(spreading).values() if makes_global_index(v)
        )
        return next((definition.path for definition in found if definition is not None), "")

    # what is missing

    def gaps(self) -> Iterator[tuple[str, int, int]]:
        """Yield the incomplete sequences, in the form that `TableVersionConsumer.gaps` yields."""
        for version in self.open_versions():
            yield from version.gaps()

    def not_there(self, wanted: Mapping[str, int]) -> list[tuple[str, int, int]]:
        """Return incomplete sequences with numbers reached and needed; `wanted`: inclusive."""
        found = []
        for sequence, upto in wanted.items():
            home = self._homes.get(sequence)
            # A sequence of which no file is listed any more still counts by what is stored of it.
            reached = max(
                self._known[sequence].done_upto, home.reached(sequence) if home is not None else 0
            )
            found += [(sequence, reached, upto)] if reached < upto else []
        return found

    def pass_over(self, upto: Mapping[str, int]) -> None:
        """Stop waiting for absent files; `upto`: sequence → number (inclusive) passed over."""
        for sequence, number in upto.items():
            if sequence in self._homes:
                self._homes[sequence].sequences[sequence].pass_over(number)

    def is_before(self, sequence: str, version: int) -> bool:
        """Return whether a sequence belongs to an older version; False if it is unknown."""
        parts = folder_of(sequence).split("/")
        # Which part is the version is unknown here: before it is the table's directory.
        return any(
            part.isdecimal()
            and int(part) < version
            and str(int(part)) == part
            and (int(part), "/".join(parts[:at])) in self.versions
            for at, part in enumerate(parts)
        )
