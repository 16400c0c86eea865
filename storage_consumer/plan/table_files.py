"""The version directories of one table, and what is left to read in them. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from storage_consumer.model import DataFile, TableDefinition, VersionKey, folder_of
from storage_consumer.plan.file_sequence import FileSequences
from storage_consumer.plan.open_versions import OpenVersions
from storage_consumer.plan.table_partitions import TablePartitions
from storage_consumer.plan.table_version import TableVersionConsumer
from storage_consumer.plan.table_versions import TableVersions, makes_global_index
from storage_consumer.tso import may_hold_rows

_SEVERAL = 2


class TableFiles:
    """The version directories of one table, with their files.

    A file or a target is looked up by version: no answer takes longer the more versions are finished.
    """

    def __init__(self, known: FileSequences, *, tells_time: bool = True) -> None:
        """Begin without a directory. `known`: the sequences of the whole bucket; `tells_time`: rows carry a commit-ts, if only to the millisecond."""
        self.versions: Final = TableVersions()
        self._known = known
        self._tells_time = tells_time
        self._open = OpenVersions(tells_time=tells_time)
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
            version.define(definition)
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
        self._open.discard(key)
        for sequence in version.sequences:
            self._homes.pop(sequence, None)
        self._partitions.remove(key, version, self.versions)
        return version

    def close(self) -> None:
        """Read nothing from now on, and miss nothing: the filter leaves the table out."""
        self._closed = True

    def open_versions(self) -> list[TableVersionConsumer]:
        """Return the versions without a schema file and those with an open sequence, in order: few, however many are known."""
        return [] if self._closed else self._open.all()

    # files

    def offer(self, file: DataFile) -> bool:
        """Take a data file; return False for one that an earlier run finished in its present state."""
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
            file.stored.size for v in self.open_versions() for s in v.open_sequences() for file in s.pending.values()
        )

    def unread(self) -> dict[str, int]:
        """Return sequence → the highest number of its pending files; none of a directory that nothing shows to be the changefeed's."""
        return {
            name: max(file.number for file in sequence.pending.values())
            for version in self.open_versions()
            if version.definition is not None
            for name, sequence in version.sequences.items()
            if sequence.pending
        }

    def readable(self, target: int) -> tuple[list[DataFile], dict[VersionKey, TableDefinition]]:
        """Return the files that may hold rows up to `target` (inclusive), in order, and the definition of each directory that has one."""
        files: list[DataFile] = []
        definitions: dict[VersionKey, TableDefinition] = {}
        for version in () if self._closed else self._open.upto(target):
            definition = version.definition
            if definition is None or not may_hold_rows(
                version.version, target, is_ddl=version.is_ddl or not self._tells_time
            ):
                continue  # a directory without a schema file yet is younger than the storage checkpoint, or is waited for
            if found := version.readable(target):
                files.extend(found)
                definitions[version.version, version.table_dir] = definition
        return files, definitions

    def out_of_turn(self, files: Sequence[DataFile]) -> str:
        """Return the path of a file that TiCDC writes before an applied one of the same partition; empty if there is none.

        The order covers all sequences of a partition: version, date, number. A version without partitions is compared with any.
        """
        behind = (
            f for f in files if self.versions[f.version_key].is_behind(f) or self._partitions.is_younger_applied(f)
        )
        return next((file.stored.path for file in behind), "")

    def crossing(self, files: Sequence[DataFile]) -> str:
        """Return the path of a statement by which rows of one key may be in several of the table's partitions; empty if there is none.

        TiDB wants the partition columns in each unique key that is not GLOBAL: without a GLOBAL one, a key has its place in one partition.
        """
        if all(file.partition is None for file in files):
            return ""
        spreading = self.versions.spreading.first
        if spreading is None or len(self._partitions) < _SEVERAL:
            return ""
        found = (v.definition for v in self.versions.at(spreading).values() if makes_global_index(v))
        return next((definition.path for definition in found if definition is not None), "")

    # what is missing

    def gaps(self) -> Iterator[tuple[str, int, int]]:
        """Yield the incomplete sequences, in the form that `TableVersionConsumer.gaps` yields."""
        for version in self.open_versions():
            yield from version.gaps()

    def not_there(self, wanted: Mapping[str, int]) -> list[tuple[str, int, int]]:
        """Return the incomplete sequences: sequence, number reached, number needed; `wanted`: sequence → number needed (inclusive)."""
        found = []
        for sequence, upto in wanted.items():
            home = self._homes.get(sequence)
            # A sequence of which no file is listed any more still counts by what is stored of it.
            reached = max(self._known[sequence].done_upto, home.reached(sequence) if home is not None else 0)
            found += [(sequence, reached, upto)] if reached < upto else []
        return found

    def pass_over(self, upto: Mapping[str, int]) -> None:
        """Stop waiting for absent files; `upto`: sequence → number up to which (inclusive) none is expected any more."""
        for sequence, number in upto.items():
            if sequence in self._homes:
                self._homes[sequence].sequences[sequence].pass_over(number)

    def is_before(self, sequence: str, version: int) -> bool:
        """Return whether a sequence belongs to an older version; nothing shows it for an unknown sequence."""
        parts = folder_of(sequence).split("/")
        # Which part is the version is not known here: what stands before it is the table's directory.
        return any(
            part.isdecimal()
            and int(part) < version
            and str(int(part)) == part
            and (int(part), "/".join(parts[:at])) in self.versions
            for at, part in enumerate(parts)
        )
