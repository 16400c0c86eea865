"""MemoryTarget: the twin of the target's structure, a handle on `TargetRecords`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from storage_consumer.errors import DdlFailed
from storage_consumer.model import TableName
from storage_consumer.plan.journal_entry import DdlAnswer
from storage_consumer.ports import ServerInfo
from storage_consumer.rows.fitting import TargetColumn, TargetTable, UniqueKey
from storage_consumer.sql.parse import table_names
from storage_consumer.sql.tokens import Token, tokens
from storage_consumer.target.existing_names import ForeignKey, PartNames
from tests.harness.twins.records import TargetRecords

FACTS = ServerInfo(server_type="mysql", version="in memory", max_packet=1 << 24, load_data=False)


_NAME = r"`?(?:(?P<{0}_schema>\w+)`?\.`?)?(?P<{0}>\w+)`?"


class MemoryTarget:
    """The twin of `downstream.structure` and `downstream.database`. It knows a few statements; each takes effect wholly or not at all."""

    zone = "UTC"

    def __init__(self, records: TargetRecords) -> None:
        """Open a handle on `records`."""
        self._records = records
        self._statements: tuple[tuple[str, Callable[[TableName, re.Match[str]], None]], ...] = (
            (r"CREATE DATABASE (?:IF NOT EXISTS )?`?(?P<a>\w+)`?", partial(_create_database, records)),
            (r"DROP DATABASE `?(?P<a>\w+)`?", partial(_drop_database, records)),
            (rf"CREATE TABLE {_NAME.format('a')} \((?P<body>.*)\)", self._create),
            (rf"CREATE .*VIEW {_NAME.format('a')} AS ", partial(_create_view, records)),
            (rf"DROP (?:TABLE|VIEW) {_NAME.format('a')}", self._drop),
            (rf"TRUNCATE TABLE {_NAME.format('a')}", self._truncate),
            (rf"RENAME TABLE {_NAME.format('a')} TO {_NAME.format('b')}", self._rename),
            (rf"ALTER TABLE {_NAME.format('a')} ADD COLUMN `?(?P<column>\w+)`? (?P<type>\w+)", self._add_column),
            (rf"ALTER TABLE {_NAME.format('a')} DROP COLUMN `?(?P<column>\w+)`?", self._drop_column),
        )

    def describe(self, wanted: Iterable[TableName]) -> dict[TableName, TargetTable]:
        """Return the wanted tables that exist, by folded name."""
        names = {name.folded() for name in wanted}
        return {name: table for name, table in self._records.structures.items() if name in names}

    def read(self, wanted: Iterable[TableName]) -> dict[TableName, TargetTable]:
        """Return the same."""
        return self.describe(wanted)

    def noted(self, names: Iterable[TableName]) -> dict[TableName, list[str]]:  # noqa: ARG002 - nobody else changes the twin's tables
        """Return no notes of keys."""
        return {}

    def forget(self, names: Iterable[TableName]) -> None:
        """Do nothing: there are no notes."""

    def remember(self, names: Iterable[TableName]) -> None:
        """Note nothing."""

    def existing(self, wanted: Iterable[TableName]) -> dict[TableName, TableName]:
        """Return the wanted tables and databases that exist: folded name → name as created."""
        databases = [TableName(schema=name, table="") for name in self._records.databases]
        there = {name.folded(): name for name in (*databases, *(t.name for t in self._records.structures.values()))}
        return {name.folded(): there[name.folded()] for name in wanted if name.folded() in there}

    def close(self) -> None:
        """Do nothing: no connection is open."""

    def database_collation(self, schema: str) -> str | None:
        """Return the source's default collation if the database exists, else None."""
        return "utf8mb4_bin" if schema in self._records.databases else None

    def part_names(self, name: TableName, found: Sequence[Token] = ()) -> PartNames:  # noqa: ARG002 - the twin's tables have none to alter
        """Return no names."""
        return PartNames()

    def foreign_keys(self, names: Sequence[TableName]) -> tuple[list[ForeignKey], dict[str, list[str]]]:  # noqa: ARG002 - as above
        """Return none."""
        return [], {}

    def statement_zone(self, version: int) -> str:  # noqa: ARG002 - a twin has no clock
        """Return the default time zone."""
        return "UTC"

    def is_running(self, statement: str) -> bool:  # noqa: ARG002 - nothing runs beside the one caller
        """Return False."""
        return False

    def fingerprint(self, names: Iterable[TableName]) -> str:
        """Return the structure of tables or databases as text."""
        structures, databases = self._records.structures, self._records.databases
        return repr([structures.get(n.folded()) if n.table else n.schema in databases for n in sorted(set(names))])

    def fence_ddl(self) -> bool:
        """Return True: with one process and one connection, nobody else can run a DDL."""
        return True

    def blockers(self, names: Iterable[TableName]) -> tuple[str, ...]:  # noqa: ARG002 - the twin has no locks
        """Return no holders."""
        return ()

    def execute_ddl(
        self,
        statement: str,
        schema: str,
        version: int,  # noqa: ARG002 - a twin has no clock
        ignorable: frozenset[int] = frozenset(),
    ) -> DdlAnswer:
        """Run one statement; raise `DdlFailed` if it is unknown or does not fit the structure."""
        # The first pattern that fits wins, so those of a subclass come before these.
        matches = ((run, re.match(pattern, statement)) for pattern, run in self._statements)
        run, found = next(((run, found) for run, found in matches if found), (None, None))
        if run is None or found is None:
            raise DdlFailed(f"error 1064: {statement}")
        try:
            run(TableName(schema=found.groupdict().get("a_schema") or schema, table=found["a"]), found)
        except _Refused as fault:
            number, text = fault.args
            # As a server answers a statement that runs a second time.
            if number in ignorable:
                return DdlAnswer(ignored=str(text))
            raise DdlFailed(f"error {number}: {text}") from fault
        # Only what took effect, so that a test can count that each statement did so once.
        self._records.effects.append(statement)
        return DdlAnswer()

    def _create(self, name: TableName, found: re.Match[str]) -> None:
        if name.schema not in self._records.databases:
            raise _Refused(1049, f"no database {name.schema}")
        if name.folded() in self._records.structures:
            raise _Refused(1050, f"{name} exists")
        words = [part.split() for part in found["body"].split(",")]
        columns = tuple(
            replace(
                _column(w[0], w[1], nullable="PRIMARY" not in w),
                pads="COLLATE" in w,
                binary_collation=not any(word.endswith("_ci") for word in w),
            )
            for w in words
        )
        key = tuple(c.name for c in columns if not c.nullable)
        keys = (UniqueKey(name="PRIMARY", columns=key, prefixes=(None,) * len(key)),) if key else ()
        self._records.structures[name.folded()] = TargetTable(
            name=name, columns=columns, unique_keys=keys, indexes=len(keys)
        )

    def _there(self, name: TableName) -> TargetTable:
        if found := self._records.structures.get(name.folded()):
            return found
        raise _Refused(1051, f"no table {name}")

    def _drop(self, name: TableName, found: re.Match[str]) -> None:
        self._truncate(name, found)
        del self._records.structures[name.folded()]

    def _truncate(self, name: TableName, _: re.Match[str]) -> None:
        self._there(name)
        self._records.rows.pop(name.folded(), None)

    def _rename(self, name: TableName, found: re.Match[str]) -> None:
        table, rows = self._there(name), self._records.rows.get(name.folded(), [])
        new = TableName(schema=found["b_schema"] or name.schema, table=found["b"])
        if new.folded() in self._records.structures:
            raise _Refused(1050, f"{new} exists")
        # The rows were taken above, since this forgets them.
        self._drop(name, found)
        self._records.structures[new.folded()] = replace(table, name=new)
        self._records.rows[new.folded()] = rows

    def _add_column(self, name: TableName, found: re.Match[str]) -> None:
        table = self._there(name)
        if found["column"] in (column.name for column in table.columns):
            raise _Refused(1060, f"{found['column']} exists")
        column = _column(found["column"], found["type"], nullable=True)
        self._records.structures[name.folded()] = replace(table, columns=(*table.columns, column))
        for row in self._records.rows.get(name.folded(), []):
            # Existing rows get a NULL: the twin knows no defaults.
            row[column.name] = None

    def _drop_column(self, name: TableName, found: re.Match[str]) -> None:
        table, gone = self._there(name), found["column"]
        if gone not in (column.name for column in table.columns):
            raise _Refused(1091, f"there is no {gone}")
        left = tuple(column for column in table.columns if column.name != gone)
        self._records.structures[name.folded()] = replace(table, columns=left)
        for row in self._records.rows.get(name.folded(), []):
            row.pop(gone, None)


def _create_database(records: TargetRecords, name: TableName, found: re.Match[str]) -> None:
    if name.table in records.databases and "IF NOT EXISTS" not in found[0]:
        raise _Refused(1007, f"{name.table} exists")
    records.databases.add(name.table)


def _drop_database(records: TargetRecords, name: TableName, _: re.Match[str]) -> None:
    if name.table not in records.databases:
        raise _Refused(1008, f"no database {name.table}")
    records.databases.discard(name.table)
    for table in [table for table in records.structures if table.schema == name.table]:
        del records.structures[table]
        records.rows.pop(table, None)


def _create_view(records: TargetRecords, name: TableName, found: re.Match[str]) -> None:
    if name.folded() in records.structures and "OR REPLACE" not in found[0]:
        raise _Refused(1050, f"{name} exists")
    columns: list[TargetColumn] = []
    for read in (each for each in table_names(tokens(found.string)) if each.reads):
        if (there := read.within(name.schema)).folded() not in records.structures:
            raise _Refused(1146, f"no table {there}")
        columns += records.structures[there.folded()].columns
    if (listed := re.search(r"AS SELECT (`.*`) FROM", found.string)) is not None:
        by_name = {column.name: column for column in columns}
        wanted = [word.strip(" `") for word in listed[1].split(",")]
        if unknown := [name for name in wanted if name not in by_name]:
            raise _Refused(1054, f"no column {unknown[0]}")
        columns = [by_name[name] for name in wanted]
    records.structures[name.folded()] = TargetTable(name=name, columns=tuple(columns), unique_keys=(), is_view=True)


def _column(name: str, kind: str, *, nullable: bool) -> TargetColumn:
    base, _, size = kind.lower().rstrip(")").partition("(")
    digits = int(size or 0) if base == "time" else None
    return TargetColumn(name=name.strip("`"), data_type=base, nullable=nullable, digits=digits)


class _Refused(Exception):
    """A server's answer: number and text."""
