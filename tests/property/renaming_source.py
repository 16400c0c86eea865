"""A source of a few tables that are renamed, swapped, dropped, made anew and exchanged: the model of random histories."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from storage_consumer.sql.tokens import quote
from tests.harness.small_bucket import ID_NAME, SchemaFile, column

Arch = Literal["classic", "new"]
ARCHS: tuple[Arch, ...] = ("classic", "new")
Name = tuple[str, str]
"""Database and table."""
Snapshot = Mapping[Name, tuple[tuple[str, ...], ...]]
"""Name → rows, sorted."""
DATABASES = ("shop", "Store", "common")
TABLES, MOST_TABLES = ("a", "b", "c"), 5
WIDE = (*ID_NAME, column("more", "VARCHAR", ColumnPrecision="20"))
BORDER = 10
"""First id of partition p1; those of p0 are lower."""
CREATE_SCHEMA, DROP_SCHEMA, CREATE, DROP, ADD_COLUMN, TRUNCATE, RENAME, EXCHANGE = 1, 2, 3, 4, 5, 11, 14, 42


@dataclass(slots=True)
class Table:
    """A table of the source."""

    number: int
    name: Name
    wide: bool
    parts: list[int]
    """Physical ids: of both partitions, or of the table itself."""
    version: int
    rows: dict[int, tuple[str, ...]] = field(default_factory=dict)

    @property
    def columns(self) -> Sequence[Mapping[str, Any]]:
        """As a schema file lists them."""
        return WIDE if self.wide else ID_NAME

    def part_of(self, number: int) -> int | None:
        """Physical id of the partition of a row; None in a table without partitions."""
        return self.parts[number >= BORDER] if len(self.parts) > 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One row, with what the sink knows of its table at that time."""

    tick: int
    table: int
    name: Name
    columns: Sequence[Mapping[str, Any]]
    version: int
    part: int | None
    operation: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One statement of the source."""

    tick: int
    text: str
    files: tuple[SchemaFile, ...]
    tables: frozenset[int]
    """That it touches."""
    lowers: int = 0
    """The table whose database is written in lower case from now on; 0 for none."""
    truth: tuple[tuple[Name, Name], ...] = ()
    """(old, new) of each rename, in order."""
    half: bool = False
    """It says the database of the new name and not that of the old one, which may be any."""
    rivalled: bool = False
    """There is another table with the old name, of the same columns, so that nothing tells which of them is meant."""


def sql(name: Name) -> str:
    """A qualified name."""
    return f"{quote(name[0])}.{quote(name[1])}"


def folded(name: Name) -> Name:
    """The name as TiDB compares it."""
    return name[0].lower(), name[1].lower()


class Source:
    """The tables, and everything that happened to them, by tick; what there is after each."""

    def __init__(self, arch: Arch) -> None:
        """Three databases without tables."""
        self.arch = arch
        self.tables: dict[Name, Table] = {}
        self.log: list[Change | Statement] = []
        self.states: list[tuple[int, bool, Snapshot]] = [(0, False, {})]
        """Tick, whether a statement, and what there is after it."""
        self.renames = 0
        self._ticks = self._numbers = self._values = 0
        for database in DATABASES:
            self._create_database(database)

    # what there is

    def at(self, tick: int) -> Snapshot:
        """What there is with all rows up to `tick` (inclusive) and all statements before it."""
        return next(s for t, ddl, s in reversed(self.states) if t < tick or (t == tick and not ddl))

    @property
    def tick(self) -> int:
        """Of what happened last."""
        return self._ticks

    def _next(self) -> int:
        self._ticks += 1
        return self._ticks

    def _note(self, *entries: Change | Statement) -> None:
        self.log += entries
        image = {table.name: tuple(sorted(table.rows.values())) for table in self.tables.values()}
        self.states.append((entries[-1].tick, isinstance(entries[-1], Statement), image))

    def _add(self, name: Name, *, wide: bool, parted: bool, version: int) -> Table:
        self._numbers += 3
        parts = [self._numbers, self._numbers + 1][: 1 + parted]
        table = Table(number=self._numbers, name=name, wide=wide, parts=parts, version=version)
        self.tables[folded(name)] = table
        return table

    def _ddl(self, table: Table, text: str, kind: int, **more: Any) -> None:
        """A statement on one table, which lies under its name."""
        file = SchemaFile(name=table.name, query=text, kind=kind, columns=table.columns)
        tables = frozenset((table.number,))
        self._note(Statement(tick=table.version, text=text, files=(file,), tables=tables, **more))

    # what happens; each takes what it needs from the dice and does nothing where it does not fit

    def _create_database(self, name: str) -> None:
        text = f"CREATE DATABASE {quote(name)}"
        file = SchemaFile(name=(name, ""), query=text, kind=CREATE_SCHEMA)
        self._note(Statement(tick=self._next(), text=text, files=(file,), tables=frozenset()))

    def recreate_database(self, dice: random.Random) -> None:
        """A database is dropped with its tables, and made again."""
        database = dice.choice(DATABASES)
        gone = [key for key, table in self.tables.items() if table.name[0] == database]
        tables = frozenset(self.tables.pop(key).number for key in gone)
        text = f"DROP DATABASE {quote(database)}"
        file = SchemaFile(name=(database, ""), query=text, kind=DROP_SCHEMA)
        self._note(Statement(tick=self._next(), text=text, files=(file,), tables=tables))
        self._create_database(database)

    def free(self) -> list[Name]:
        """Names that no table has."""
        return [(d, t) for d in DATABASES for t in TABLES if folded((d, t)) not in self.tables]

    def create(self, dice: random.Random) -> None:
        """A new table."""
        if len(self.tables) >= MOST_TABLES:
            return
        table = self._add(
            dice.choice(self.free()), wide=dice.random() < 0.4, parted=dice.random() < 0.35, version=self._next()
        )
        body = ",".join(["`id` INT PRIMARY KEY", "`name` VARCHAR(20)", *["`more` VARCHAR(20)"] * table.wide])
        parts = f"(PARTITION `p0` VALUES LESS THAN ({BORDER}),PARTITION `p1` VALUES LESS THAN (MAXVALUE))"
        ends = f" PARTITION BY RANGE (`id`) {parts}" if len(table.parts) > 1 else ""
        self._ddl(table, f"CREATE TABLE {self._own(table, dice)} ({body}){ends}", CREATE)

    def _own(self, table: Table, dice: random.Random) -> str:
        """The name of a statement's own table, as it is typed."""
        return sql(table.name) if dice.random() < 0.3 else quote(table.name[1])

    def _any(self, dice: random.Random) -> Table | None:
        return self.tables[dice.choice(sorted(self.tables))] if self.tables else None

    def drop(self, dice: random.Random) -> None:
        """A table goes."""
        if table := self._any(dice):
            del self.tables[folded(table.name)]
            table.version = self._next()
            self._ddl(table, f"DROP TABLE {sql(table.name)}", DROP)

    def truncate(self, dice: random.Random) -> None:
        """A table loses its rows, and becomes another one for the sink."""
        if table := self._any(dice):
            new = self._add(table.name, wide=table.wide, parted=len(table.parts) > 1, version=self._next())
            self._ddl(new, f"TRUNCATE TABLE {self._own(new, dice)}", TRUNCATE)

    def add_column(self, dice: random.Random) -> None:
        """A table gets its third column."""
        table = self._any(dice)
        if table and not table.wide:
            table.wide, table.version = True, self._next()
            table.rows = {number: (*values, "\\N") for number, values in table.rows.items()}
            self._ddl(table, f"ALTER TABLE {self._own(table, dice)} ADD COLUMN `more` VARCHAR(20)", ADD_COLUMN)

    def exchange(self, dice: random.Random) -> None:
        """A partition and a table of the same structure change places."""
        whole, part = dice.choice((0, 1)), [t for t in self.tables.values() if len(t.parts) > 1]
        plain = [
            t
            for t in self.tables.values()
            if len(t.parts) == 1 and all((number >= BORDER) == bool(whole) for number in t.rows)
        ]
        pairs = [(one, other) for one in part for other in plain if one.wide == other.wide]
        if not pairs:
            return
        one, other = dice.choice(pairs)
        inside = {n: v for n, v in one.rows.items() if (n >= BORDER) == bool(whole)}
        one.rows = {n: v for n, v in one.rows.items() if n not in inside} | other.rows
        other.rows = inside
        one.parts[whole], other.parts[0] = other.parts[0], one.parts[whole]
        one.version = other.version = self._next()
        text = f"ALTER TABLE {sql(one.name)} EXCHANGE PARTITION `p{whole}` WITH TABLE {sql(other.name)}"
        files = (
            SchemaFile(name=one.name, query=text, kind=EXCHANGE, columns=one.columns),
            SchemaFile(name=other.name, query="", kind=0, columns=other.columns),
        )
        tables = frozenset((one.number, other.number))
        self._note(Statement(tick=one.version, text=text, files=files, tables=tables))

    def change_rows(self, dice: random.Random) -> None:
        """A transaction of up to three rows of a table."""
        table = self._any(dice)
        if table is None:
            return
        tick, changes = self._next(), dict[int, tuple[str, tuple[str, ...]]]()
        for _ in range(dice.randint(1, 3)):
            self._values += 1
            number = dice.randrange(2 * BORDER)
            old = table.rows.pop(number, None)
            if old is not None and number not in changes and dice.random() < 0.4:
                changes[number] = ("D", old)
            elif number not in changes:
                values = (str(number), f"v{self._values}", *[f"w{self._values}"] * table.wide)
                changes[number] = ("I" if old is None else "U", values)
                table.rows[number] = values
            elif old is not None:
                table.rows[number] = old
        ordered = sorted(changes.items(), key=lambda one: ("DUI".index(one[1][0]), one[0]))
        self._note(*(self._change(table, tick, number, *change) for number, change in ordered))

    @staticmethod
    def _change(table: Table, tick: int, number: int, operation: str, values: tuple[str, ...]) -> Change:
        return Change(
            tick=tick,
            table=table.number,
            name=table.name,
            columns=table.columns,
            version=table.version,
            part=table.part_of(number),
            operation=operation,
            values=values,
        )

    # renames

    def rename(self, dice: random.Random) -> None:
        """One table gets another name."""
        table = self._any(dice)
        if table is None:
            return
        old, new = table.name, dice.choice(self.free())
        like = [t for t in self.tables.values() if (folded(t.name)[1], t.wide) == (folded(old)[1], table.wide)]
        self._moved(table, new)
        table.version = self._next()
        self.renames += 1
        typed, text = self._typed(old, new, dice), "RENAME TABLE {} TO {}"
        if self.arch == "classic" and dice.random() < 0.4:
            text = "ALTER TABLE {} RENAME AS {}"
        classic = self.arch == "classic"
        shown = (new[0].lower(), new[1]) if classic else new
        file = SchemaFile(name=shown, query=text.format(*typed), kind=RENAME, columns=table.columns)
        statement = Statement(
            tick=table.version,
            text=file.query,
            files=(file,),
            tables=frozenset((table.number,)),
            lowers=table.number if classic else 0,
            truth=((old, new),),
            half="." not in typed[0] and "." in typed[1],
            rivalled=len(like) > 1,
        )
        self._note(statement)

    def _typed(self, old: Name, new: Name, dice: random.Random) -> tuple[str, str]:
        """Both names as the statement has them: the new architecture says the databases, classic keeps what was typed."""
        loud = (old[0].upper(), old[1].upper()) if dice.random() < 0.1 else old
        if self.arch == "new":
            return sql(old), sql(new)
        form = dice.random()
        if form < 0.25:
            return (sql(loud), quote(new[1]))  # typed in the new database
        if form < 0.5 and old[0] == new[0]:
            return quote(loud[1]), quote(new[1])
        return (quote(loud[1]) if form > 0.8 else sql(loud)), sql(new)  # half of it typed in the old database

    def _moved(self, table: Table, new: Name) -> None:
        del self.tables[folded(table.name)]
        table.name = new
        self.tables[folded(new)] = table

    def rename_several(self, dice: random.Random) -> None:
        """Several tables get other names in one statement: some free ones, or one another's."""
        tables = [
            self.tables[key] for key in dice.sample(sorted(self.tables), min(len(self.tables), dice.randint(2, 4)))
        ]
        pairs, spare = list[tuple[Table, Name]](), dice.sample(self.free(), len(self.free()))
        if len(tables) < 2:
            return
        if self.arch == "new" and dice.random() < 0.6:
            places = [table.name for table in tables]
            pairs = [(tables[0], spare[0]), *zip(tables[1:], places, strict=False), (tables[0], places[-1])]
        else:
            for table in tables:
                pairs.append((table, spare.pop(0)))
                if dice.random() < 0.7:
                    spare.insert(0, table.name)
        self._rename_all(pairs)

    def _rename_all(self, pairs: Sequence[tuple[Table, Name]]) -> None:
        final = {table.number: new for table, new in pairs}
        version, truth, files = self._next(), list[tuple[Name, Name]](), list[SchemaFile]()
        for table, new in pairs:
            truth.append((table.name, new))
            query = f"RENAME TABLE {sql(table.name)} TO {sql(new)}" + ";" * (self.arch == "new")
            # The job of the new architecture knows the last name of a table only, whatever this step calls it.
            shown = (new[0], final[table.number][1]) if self.arch == "new" else new
            files.append(SchemaFile(name=shown, query=query, kind=RENAME, columns=table.columns))
            self._moved(table, new)
            table.version = version
        self.renames += len(pairs)
        text = "RENAME TABLE " + ", ".join(f"{sql(old)} TO {sql(new)}" for old, new in truth)
        tables = frozenset(final)
        self._note(Statement(tick=version, text=text, files=tuple(files), tables=tables, truth=tuple(truth)))
