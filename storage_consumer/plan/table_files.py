"""The version directories of one table, and what is left to read in them. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from storage_consumer.model import DataFile, TableDefinition, VersionKey, folder_of
from storage_consumer.plan.file_sequence import FileSequences
from storage_consumer.plan.table_version import TableVersionConsumer
from storage_consumer.sql.parse import parsed
from storage_consumer.tso import may_hold_rows

_SEVERAL = 2


class TableFiles:
    """The version directories of one table, with their files."""

    def __init__(self, known: FileSequences, *, tells_time: bool = True) -> None:
        """Begin without a directory. `known`: the sequences of the whole bucket; `tells_time`: rows carry a commit-ts, if only to the millisecond."""
        self.versions: dict[VersionKey, TableVersionConsumer] = {}
        self._known = known
        self._tells_time = tells_time
        self._open: dict[VersionKey, TableVersionConsumer] = {}
        self._first = 0
        self._closed = False

    @property
    def first(self) -> int:
        """Lowest version known, with or without a schema file; 0 while there is none."""
        return self._first

    # directories

    def version(self, key: VersionKey) -> TableVersionConsumer:
        """Return the consumer of one version directory, created on first use."""
        if key not in self.versions:
            self.take_over(key, TableVersionConsumer(*key, self._known))
        # Whoever asks for a version may add to it, so it is looked at again.
        self._open[key] = self.versions[key]
        return self.versions[key]

    def take_over(self, key: VersionKey, version: TableVersionConsumer) -> None:
        """Add a version directory that belongs to this table from now on."""
        self.versions[key] = self._open[key] = version
        self._first = min(number for number, _ in self.versions)

    def give_away(self, key: VersionKey) -> TableVersionConsumer:
        """Remove and return a version directory that belongs to another table from now on."""
        self._open.pop(key, None)
        version = self.versions.pop(key)
        self._first = min((number for number, _ in self.versions), default=0)
        return version

    def close(self) -> None:
        """Read nothing from now on, and miss nothing: the filter leaves the table out."""
        self._closed = True

    def open_versions(self) -> list[TableVersionConsumer]:
        """Return the versions without a schema file and those with an open sequence, in order: few, however many are known."""
        if self._closed:
            return []
        # Versions leave `_open` here and return by `version`: a long history then costs nothing in each round.
        for key in [key for key, v in self._open.items() if v.definition is not None and not v.open_sequences()]:
            del self._open[key]
        return [version for _, version in sorted(self._open.items(), key=lambda item: item[0])]

    # files

    def offer(self, file: DataFile) -> bool:
        """Take a data file; return False for one that an earlier run finished in its present state."""
        return self.version(file.version_key).offer(file)

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
        """Return sequence → the highest number of its pending files."""
        return {
            name: max(file.number for file in sequence.pending.values())
            for version in self.open_versions()
            for name, sequence in version.sequences.items()
            if sequence.pending
        }

    def readable(self, target: int) -> tuple[list[DataFile], dict[VersionKey, TableDefinition]]:
        """Return the files that may hold rows up to `target` (inclusive), in order, and the definition of each directory that has one."""
        files: list[DataFile] = []
        definitions: dict[VersionKey, TableDefinition] = {}
        for version in self.open_versions():
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
        oldest = min(file.version for file in files)
        # Partitions of younger versions from which files were applied; None for files outside any partition's directory.
        later = [(n, partition) for (n, _), v in self.versions.items() if n > oldest for partition in v.applied]
        for file in files:
            if self.versions[file.version_key].is_behind(file) or any(
                number > file.version and (partition == file.partition or None in (partition, file.partition))
                for number, partition in later
            ):
                return file.stored.path
        return ""

    def crossing(self, files: Sequence[DataFile]) -> str:
        """Return the path of a statement by which rows of one key may be in several of the table's partitions; empty if there is none.

        TiDB wants the partition columns in each unique key that is not GLOBAL: without a GLOBAL one, a key has its place in one partition.
        """
        if all(file.partition is None for file in files):
            return ""
        if len(set[int]().union(*(version.partitions for version in self.versions.values()))) < _SEVERAL:
            return ""
        known = (version.definition for version in self.versions.values())
        return next((d.path for d in known if d is not None and parsed(d).makes_global_index), "")

    # what is missing

    def gaps(self) -> Iterator[tuple[str, int, int]]:
        """Yield the incomplete sequences, in the form that `TableVersionConsumer.gaps` yields."""
        for version in self.open_versions():
            yield from version.gaps()

    def not_there(self, wanted: Mapping[str, int]) -> list[tuple[str, int, int]]:
        """Return the incomplete sequences: sequence, number reached, number needed; `wanted`: sequence → number needed (inclusive)."""
        found = []
        for sequence, upto in wanted.items():
            known = [version.reached(sequence) for version in self.versions.values() if sequence in version.sequences]
            # A sequence of which no file is listed any more still counts by what is stored of it.
            reached = max([self._known[sequence].done_upto, *known])
            found += [(sequence, reached, upto)] if reached < upto else []
        return found

    def pass_over(self, upto: Mapping[str, int]) -> None:
        """Stop waiting for absent files; `upto`: sequence → number up to which (inclusive) none is expected any more."""
        for sequence, number in upto.items():
            for version in self.versions.values():
                if sequence in version.sequences:
                    version.sequences[sequence].pass_over(number)

    def is_before(self, sequence: str, version: int) -> bool:
        """Return whether a sequence belongs to an older version; nothing shows it for an unknown sequence."""
        # With a slash behind it, so that version 44 is not found in 449.
        folder = f"{folder_of(sequence)}/"
        return any(
            number < version and folder.startswith(f"{table_dir}/{number}/") for number, table_dir in self.versions
        )
