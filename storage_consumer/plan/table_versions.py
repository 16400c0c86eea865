"""The version directories of one table, found by version without a look at all of them. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from storage_consumer.model import DdlKind, TableDefinition, VersionKey
from storage_consumer.plan.barriers import MAKES_TABLE
from storage_consumer.plan.in_order import Numbers
from storage_consumer.plan.table_version import TableVersionConsumer
from storage_consumer.sql.parse import parsed

_MAKES = MAKES_TABLE | {DdlKind.CREATE_SCHEMA}
_Test = Callable[[TableVersionConsumer], bool]


class TableVersions(Mapping[VersionKey, TableVersionConsumer]):
    """The version directories of one table, in the order in which they were added; and their version numbers, in ascending order.

    A table can have several directories of one version. Only `define` changes the definition of a directory that is in here.
    """

    def __init__(self) -> None:
        """Begin without a directory."""
        self.numbers: Final = Numbers()
        """All versions."""
        self.telling: Final = Numbers()
        """Versions that tell of this very table: not those with nothing but a step of another one's rename."""
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
            (self.telling, _tells),
            (self.structured, _has_structure),
            (self.making, makes_table),
            (self.spreading, makes_global_index),
            (self.bare, _is_bare),
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
        version.define(definition)
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
            elif number in numbers and not any(holds(version) for version in self.at(number).values()):
                numbers.discard(number)


def _tells(version: TableVersionConsumer) -> bool:
    return version.definition is None or version.structure is not None or bool(version.sequences)


def _has_structure(version: TableVersionConsumer) -> bool:
    return version.structure is not None


def _is_bare(version: TableVersionConsumer) -> bool:
    return not version.is_ddl


def makes_table(version: TableVersionConsumer) -> bool:
    """Return whether the statement of a directory created the table or gave it its name."""
    return version.structure is not None and version.structure.ddl_type in _MAKES


def makes_global_index(version: TableVersionConsumer) -> bool:
    """Return whether the statement of a directory makes a GLOBAL index."""
    return version.definition is not None and parsed(version.definition).makes_global_index
