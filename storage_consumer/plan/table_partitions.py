"""The partitions of one table, as far as files show them: where each has files, and from which versions files were applied. No I/O."""

from __future__ import annotations

from storage_consumer.model import DataFile, VersionKey
from storage_consumer.plan.in_order import Numbers, highest
from storage_consumer.plan.table_version import TableVersionConsumer
from storage_consumer.plan.table_versions import TableVersions


class TablePartitions:
    """The partitions that the version directories of a table have files of."""

    def __init__(self) -> None:
        """Begin without a file."""
        # Partition → directories with files of it; none is empty.
        self._places: dict[int, set[VersionKey]] = {}
        # Partition, or None for files outside any partition's directory → versions from which files of it were applied.
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
        """Remove all that is known of a version directory; `left`: those that the table still has."""
        for partition in version.partitions:
            self._places[partition].discard(key)
            if not self._places[partition]:
                del self._places[partition]
        for applied in version.applied:
            # Another directory of the same version may have applied files too.
            if not any(applied in other.applied for other in left.at(key[0]).values()):
                self._applied[applied].discard(key[0])

    def is_younger_applied(self, file: DataFile) -> bool:
        """Return whether a file of a younger version was applied, of the same partition or where one of the two has none."""
        partitions = self._applied if file.partition is None else (file.partition, None)
        newest = highest(self._applied[partition].last for partition in partitions if partition in self._applied)
        return newest is not None and newest > file.version
