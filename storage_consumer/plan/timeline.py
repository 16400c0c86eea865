"""The structures and statements known of one table, in the order of their versions. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from storage_consumer.model import DdlKind, TableDefinition, VersionKey
from storage_consumer.plan.barriers import MAKES_TABLE
from storage_consumer.plan.steps import DdlStep
from storage_consumer.plan.table_version import TableVersionConsumer

_MAKES = MAKES_TABLE | {DdlKind.CREATE_SCHEMA}
_SHOWN = 200


class Timeline:
    """What happened to one table, by the schema files in its own directories and by statements that lie elsewhere."""

    def __init__(self, table_key: str, versions: Mapping[VersionKey, TableVersionConsumer]) -> None:
        """Begin without a statement. `versions`: the table's directories, now and later."""
        self._table_key = table_key
        self._versions = versions
        # Version → action code of the statement that was added last for it.
        self._statements: dict[int, int] = {}
        self._ignored: dict[int, str] = {}

    def add(self, definition: TableDefinition, *, ignored: bool = False) -> None:
        """Add a statement that leads to this table, wherever its schema file lies; `ignored`: the filter keeps it from being run."""
        self._statements[definition.version] = definition.ddl_type
        if ignored:
            self._ignored[definition.version] = f"{definition.query[:_SHOWN]} ({definition.path})"

    @property
    def last_ignored(self) -> str:
        """The last statement that the filter kept from being run, as the end of an error; empty where there is none."""
        if not self._ignored:
            return ""
        version = max(self._ignored)
        return f". The filter kept this statement of version {version} from being run: {self._ignored[version]}"

    # structures

    def structure_at(self, version: int) -> TableDefinition | None:
        """Return the newest structure that is not after `version` (inclusive); of several the one with a statement."""
        last: tuple[int, bool, TableDefinition] | None = None
        for (number, _), consumer in self._versions.items():
            found = consumer.structure
            if found is not None and number <= version and (last is None or (number, found.is_ddl) > last[:2]):
                last = (number, found.is_ddl, found)
        return None if last is None else last[2]

    def in_force(self, checkpoint: int) -> TableDefinition | None:
        """Return the structure for rows after `checkpoint`: the newest that is not after it, else the first known."""
        known = (v.structure for v in self._versions.values() if v.structure is not None)
        return self.structure_at(checkpoint) or min(known, key=lambda found: found.version, default=None)

    def made_before(self, version: int) -> DdlStep | None:
        """Return the last statement before `version` that created the table or gave it its name."""
        made = [
            (number, table_dir, found)
            for (number, table_dir), consumer in self._versions.items()
            if number < version and (found := consumer.structure) is not None and found.ddl_type in _MAKES
        ]
        if not made:
            return None
        _, table_dir, found = max(made, key=lambda each: each[:2])
        return DdlStep(table_dir=table_dir, table_key=self._table_key, definition=found)

    # is the table there?

    def needs_table_before(self, definition: TableDefinition, ended: Iterable[int] = ()) -> bool:
        """Return whether a structure without a statement is the first known of this table, or the first since a DROP.

        It is not if a statement of the same version leads to the table. `ended`: versions of the statements elsewhere that
        ended the table, by a DROP of its database or by another name.
        """
        known = [
            (n, v.structure.ddl_type) for (n, _), v in self._versions.items() if v.structure and n < definition.version
        ]
        # Of one version the higher code decides. So a table whose name a rename took away and another one gave back is there.
        known += [(n, DdlKind.DROP_TABLE) for n in ended if n < definition.version]
        known += [(n, kind) for n, kind in self._statements.items() if n <= definition.version]
        # A table of which nothing was known before is as if it had been dropped.
        return max(known, default=(0, DdlKind.DROP_TABLE))[1] in (DdlKind.DROP_TABLE, DdlKind.DROP_SCHEMA)

    def stays_after(self, version: int) -> bool:
        """Return whether what follows `version` shows that the table was there all the time, not created or renamed."""
        later = [
            (n, not v.structure.is_ddl, v.structure.ddl_type)
            for (n, _), v in self._versions.items()
            if n > version and v.structure is not None
        ]
        later += [(n, False, kind) for n, kind in self._statements.items() if n > version]
        # The first thing later counts; of one version, a statement comes before a structure alone.
        return bool(later) and min(later)[-1] not in MAKES_TABLE

    def is_passing_at(self, version: int, ends: Collection[int]) -> bool:
        """Return whether nothing is known of it right before a version or right after it; `ends`: versions that ended the table."""
        numbers = {number for number, _ in self._versions} | self._statements.keys()
        last = max((number for number in numbers.union(ends) if number < version), default=None)
        # Files in the directory of this very version are rows that came after the statement.
        rows = any(number == version and found.sequences for (number, _), found in self._versions.items())
        return (last is None or last in ends) and not rows and not self.stays_after(version)

    def is_over(self, version: int, ends: Collection[int]) -> bool:
        """Return whether nothing is known of it after the last of the versions that ended it, `ends`, which was before `version`."""
        last = max(ends, default=-1)
        return last < version and all(number <= last for number, _ in self._versions)

    def is_known_from(self, version: int) -> bool:
        """Return whether anything is known of this name from a version on (inclusive)."""
        return any(number >= version for number in (*(number for number, _ in self._versions), *self._statements))

    def has_statement(self, first: int, last: int) -> bool:
        """Return whether a statement led to the table in a span of versions, both inclusive."""
        return any(first <= number <= last for number in self._statements)
