"""The structures and statements known of one table, in the order of their versions. No I/O."""

from __future__ import annotations

from collections.abc import Iterator

from storage_consumer.model import DdlKind, TableDefinition
from storage_consumer.plan.barriers import MAKES_TABLE
from storage_consumer.plan.in_order import ByNumber, Together, highest
from storage_consumer.plan.steps import DdlStep
from storage_consumer.plan.table_versions import TableVersions, makes_table

_SHOWN = 200
_NONE = Together()


class Timeline:
    """What happened to one table, by the schema files in its own directories and by statements that lie elsewhere.

    Whatever is asked for is found by version: no answer takes longer the more versions are known.
    """

    def __init__(self, table_key: str, versions: TableVersions) -> None:
        """Begin without a statement. `versions`: the table's directories, now and later."""
        self._table_key = table_key
        self._versions = versions
        # Version → action code of the statement that was added last for it.
        self._statements = ByNumber[int]()
        self._ignored = ByNumber[str]()

    def add(self, definition: TableDefinition, *, ignored: bool = False) -> None:
        """Add a statement that leads to this table, wherever its schema file lies; `ignored`: the filter keeps it from being run."""
        self._statements[definition.version] = definition.ddl_type
        if ignored:
            self._ignored[definition.version] = f"{definition.query[:_SHOWN]} ({definition.path})"

    @property
    def last_ignored(self) -> str:
        """The last statement that the filter kept from being run, as the end of an error; empty where there is none."""
        version = self._ignored.numbers.last
        if version is None:
            return ""
        return f". The filter kept this statement of version {version} from being run: {self._ignored[version]}"

    # structures

    def structure_at(self, version: int) -> TableDefinition | None:
        """Return the newest structure that is not after `version` (inclusive); of several the one with a statement."""
        return self._structure(self._versions.structured.before(version + 1), by_statement=True)

    def in_force(self, checkpoint: int) -> TableDefinition | None:
        """Return the structure for rows after `checkpoint`: the newest that is not after it, else the first known."""
        return self.structure_at(checkpoint) or self._structure(self._versions.structured.first)

    def _structure(self, number: int | None, *, by_statement: bool = False) -> TableDefinition | None:
        """Return the first structure of a version, or the first with a statement where there is one."""
        found = [] if number is None else self._structures(number)
        with_statement = (structure for structure in found if by_statement and structure.is_ddl)
        return next(with_statement, found[0] if found else None)

    def _structures(self, number: int) -> list[TableDefinition]:
        """Return the structures of a version, in the order in which their directories were added."""
        return [v.structure for v in self._versions.at(number).values() if v.structure is not None]

    def made_before(self, version: int) -> DdlStep | None:
        """Return the last statement before `version` that created the table or gave it its name."""
        number = self._versions.making.before(version)
        if number is None:
            return None
        found = {table_dir: v.structure for (_, table_dir), v in self._versions.at(number).items() if makes_table(v)}
        table_dir = max(found)
        definition = found[table_dir]
        assert definition is not None  # it makes the table
        return DdlStep(table_dir=table_dir, table_key=self._table_key, definition=definition)

    def statements(self, first: int, last: int) -> Iterator[DdlStep]:
        """Yield the statements in the table's own directories with these versions, both inclusive."""
        for (number, table_dir), found in self._versions.items():
            if first <= number <= last and found.is_ddl and found.definition is not None:
                yield DdlStep(table_dir=table_dir, table_key=self._table_key, definition=found.definition)

    # is the table there?

    def needs_table_before(self, definition: TableDefinition, ended: Together = _NONE) -> bool:
        """Return whether a structure without a statement is the first known of this table, or the first since a DROP.

        It is not if a statement of the same version leads to the table. `ended`: versions of the statements elsewhere that
        ended the table, by a DROP of its database or by another name.
        """
        version = definition.version
        known: list[tuple[int, int]] = []
        if (number := self._versions.structured.before(version)) is not None:
            known += [(number, structure.ddl_type) for structure in self._structures(number)]
        # Of one version the higher code decides. So a table whose name a rename took away and another one gave back is there.
        if (number := ended.before(version)) is not None:
            known.append((number, DdlKind.DROP_TABLE))
        if (number := self._statements.numbers.before(version + 1)) is not None:
            known.append((number, self._statements[number]))
        # A table of which nothing was known before is as if it had been dropped.
        return max(known, default=(0, DdlKind.DROP_TABLE))[1] in (DdlKind.DROP_TABLE, DdlKind.DROP_SCHEMA)

    def stays_after(self, version: int) -> bool:
        """Return whether what follows `version` shows that the table was there all the time, not created or renamed."""
        later: list[tuple[int, bool, int]] = []
        if (number := self._versions.structured.after(version)) is not None:
            later += [(number, not found.is_ddl, found.ddl_type) for found in self._structures(number)]
        if (number := self._statements.numbers.after(version)) is not None:
            later.append((number, False, self._statements[number]))
        # The first thing later counts; of one version, a statement comes before a structure alone.
        return bool(later) and min(later)[-1] not in MAKES_TABLE

    def is_passing_at(self, version: int, ends: Together) -> bool:
        """Return whether nothing is known of it right before a version or right after it; `ends`: versions that ended the table."""
        # Files in the directory of this very version are rows that came after the statement.
        rows = any(found.sequences for found in self._versions.at(version).values())
        return self.is_free_before(version, ends) and not rows and not self.stays_after(version)

    def is_free_before(self, version: int, ends: Together) -> bool:
        """Return whether no table of this name is known right before a version; `ends`: versions that ended the table."""
        last = highest(n.before(version) for n in (self._versions.telling, self._statements.numbers, ends))
        return last is None or last in ends

    def is_over(self, version: int, ends: Together) -> bool:
        """Return whether nothing is known of it after the last of the versions that ended it, `ends`, which was before `version`."""
        last, known = ends.last, self._versions.telling.last
        last = -1 if last is None else last
        return last < version and (known is None or known <= last)

    def is_known_from(self, version: int) -> bool:
        """Return whether anything is known of this name from a version on (inclusive)."""
        last = highest((self._versions.telling.last, self._statements.numbers.last))
        return last is not None and last >= version

    def has_statement(self, first: int, last: int) -> bool:
        """Return whether a statement led to the table in a span of versions, both inclusive."""
        return self._statements.numbers.has_within(first, last)
