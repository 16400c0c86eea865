"""The source: tables, transactions and statements, and what every table was after each."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from storage_consumer.sql.tokens import quote
from tests.campaigns.simulation.names import COLLIDING, Name, sql
from tests.campaigns.simulation.shapes import (
    NULL,
    SHAPES,
    Image,
    Shape,
    create_body,
    half_of,
    schema_columns,
    taken,
    written,
)
from tests.harness.small_bucket import SchemaFile, column

DATABASES, TABLES, MOST_TABLES, VIEWS = ("shop", "depot"), ("a", "b", "c"), 4, ("v", "w")
CREATE_SCHEMA, DROP_SCHEMA = 1, 2
CREATE, DROP, ADD_COLUMN, DROP_COLUMN, TRUNCATE, RENAME = 3, 4, 5, 6, 11, 14
CREATE_VIEW, DROP_VIEW = 21, 24
T = TypeVar("T")
DAY = 86_400
"""Ticks."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A table at one moment."""

    shape: Shape
    columns: tuple[str, ...]
    rows: tuple[Image, ...]
    """Sorted."""


@dataclass(slots=True)
class Moment:
    """A table from one entry of the log on."""

    tick: int
    is_statement: bool
    name: Name
    picture: Picture | None
    """None where it does not exist any more."""


@dataclass(slots=True)
class Table:
    """A table of the source; renaming and truncating leave it the same one."""

    uid: int
    name: Name
    shape: Shape
    parted: bool
    version: int
    """Tick of the last statement on it."""
    extras: tuple[str, ...] = ()
    finer: bool = False
    """Its times have fractions, which a statement that nobody replicates gave and takes."""
    rows: dict[int, Image] = field(default_factory=dict)
    moments: list[Moment] = field(default_factory=list)

    @property
    def picture(self) -> Picture:
        """As it is now."""
        names = tuple(name for name, _ in self.shape.columns) + self.extras
        return Picture(self.shape, names, tuple(sorted(self.rows.values())))

    @property
    def columns(self) -> Sequence[Mapping[str, Any]]:
        """As a schema file lists them."""
        return schema_columns(self.shape, self.extras, finer=self.finer)


def names_of(columns: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The names of columns that a schema file lists."""
    return tuple(each["ColumnName"] for each in columns)


@dataclass(frozen=True, slots=True)
class View:
    """A view of the source."""

    reads: Name
    """Of a table or another view. Either may go, come again, or get another name; the view stays."""
    tick: int
    """Of its statement."""
    columns: tuple[str, ...]
    """What its asterisk stood for then, or what it lists."""
    lists: bool
    """Its columns are written out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One row, with what the sink knows of its table at that time."""

    tick: int
    uid: int
    name: Name
    shape: Shape
    columns: Sequence[Mapping[str, Any]]
    version: int
    part: int | None
    operation: str
    values: Image
    old: Image | None = None
    """Of an update: the row before it."""
    lacks: frozenset[str] = frozenset()
    """The columns that its file does not have."""

    def of_file(self, image: Sequence[T]) -> tuple[T, ...]:
        """What the file has of an image, or of anything with an item for each column."""
        pairs = zip(image, self.columns, strict=True)
        return tuple(item for item, column in pairs if column["ColumnName"] not in self.lacks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One statement of the source."""

    tick: int
    text: str
    files: tuple[SchemaFile, ...]
    uids: frozenset[int]
    """Of the tables that it touches."""


class Source:
    """The tables, and everything that happened to them, by tick."""

    def __init__(self, *, new: bool, raw: bool, tells_old: bool) -> None:
        """`new`: the sink is the new architecture's. `raw`: it does not split updates of keys; `tells_old`: it tells the old row."""
        self._new = new
        self._raw = raw
        self._tells_old = tells_old
        self.shapes: Sequence[Shape] = SHAPES
        """The kinds of tables that it makes."""
        self.unselected = frozenset[str]()
        """The columns that the sink leaves out of rows from now on, where they are no keys."""
        self.tables: dict[Name, Table] = {}
        self.colliding: Table | None = None
        """The table of a colliding database; it is in no picture."""
        self.known: list[Table] = []
        self.log: list[Change | Statement] = []
        self.statements: dict[int, Statement] = {}
        """By tick."""
        self.pictures: list[tuple[int, bool, Mapping[Name, Picture]]] = [(0, False, {})]
        """Tick, whether it was a statement, and all tables after it."""
        self.views: list[tuple[int, Mapping[Name, View]]] = [(0, {})]
        """Tick of a statement, and all views after it."""
        self.tick = 0
        self.resolved = 0
        """Tick up to which the sink knows everything, so that nothing comes at it any more."""
        self._made = 0
        for name in DATABASES:
            text = f"CREATE DATABASE {quote(name)}"
            self._statement(text, SchemaFile(name=(name, ""), query=text, kind=CREATE_SCHEMA))

    def at(self, tick: int, *, with_statement: bool) -> Mapping[Name, Picture]:
        """All tables after everything up to `tick`; `with_statement`: that of this very tick too."""
        for when, is_statement, tables in reversed(self.pictures):
            if when < tick or (when == tick and (with_statement or not is_statement)):
                return tables
        return {}

    def _next(self, *, alike: bool = False) -> int:
        """A new tick; `alike`: that of the last entry of the log, if that was a row."""
        last = self.log[-1] if self.log else None
        if not (alike and isinstance(last, Change) and last.tick == self.tick > self.resolved):
            self.tick += 1
        return self.tick

    def _note(self, touched: Sequence[Table], *, is_statement: bool) -> None:
        """What the tables are like now; others are as before."""
        tables = dict(self.pictures[-1][2])
        for table in touched:
            there = self.tables.get(table.name) is table
            picture = table.picture if there else None
            table.moments.append(Moment(self.tick, is_statement, table.name, picture))
        if is_statement:
            tables = {name: tables[name] for name in tables if name in self.tables}
        tables |= {t.name: m for t in touched if (m := t.moments[-1].picture) is not None}
        self.pictures.append((self.tick, is_statement, tables))

    def _statement(self, text: str, *files: SchemaFile, on: Sequence[Table] = ()) -> None:
        """Log a statement that has just been carried out on these tables."""
        tick = self.tick if on else self._next()
        for table in on:
            table.version = tick
        statement = Statement(tick=tick, text=text, files=files, uids=frozenset(t.uid for t in on))
        self.log.append(statement)
        self.statements[tick] = statement
        self._note(on, is_statement=True)

    def _on(self, table: Table, text: str, kind: int) -> None:
        """Log a statement on one table, which lies under its name."""
        self._statement(text, SchemaFile(name=table.name, query=text, kind=kind, columns=table.columns), on=[table])

    # what happens; each takes what it needs from the dice and does nothing where it does not fit

    def next_day(self, dice: random.Random) -> None:
        """Nothing happens until the next day."""
        del dice
        self.tick += DAY

    def free(self) -> list[Name]:
        """Names that no table has."""
        return [(d, t) for d in DATABASES for t in TABLES if (d, t) not in self.tables]

    def create(self, dice: random.Random) -> None:
        """A new table."""
        if len(self.tables) >= MOST_TABLES:
            return
        tick, name = self._next(), dice.choice(self.free()[:4])
        shape = dice.choice(self.shapes)
        table = Table(len(self.known), name, shape, dice.random() < 0.3, tick)
        self.known.append(table)
        self.tables[name] = table
        self._on(table, f"CREATE TABLE {sql(name)} ({create_body(shape)})", CREATE)

    def _any(self, dice: random.Random) -> Table | None:
        return self.tables[dice.choice(list(self.tables))] if self.tables else None

    def drop(self, dice: random.Random) -> None:
        """A table goes."""
        if table := self._any(dice):
            self._next(alike=dice.random() < 0.5)
            del self.tables[table.name]
            table.rows = {}
            self._on(table, f"DROP TABLE {sql(table.name)}", DROP)

    def truncate(self, dice: random.Random) -> None:
        """A table loses its rows."""
        if table := self._any(dice):
            self._next(alike=dice.random() < 0.7)
            table.rows = {}
            self._on(table, f"TRUNCATE TABLE {sql(table.name)}", TRUNCATE)

    def change_columns(self, dice: random.Random) -> None:
        """A table gets a column, or loses the last that it got."""
        table = self._any(dice)
        if table is None:
            return
        self._next(alike=dice.random() < 0.5)
        if len(table.extras) < 2 and (not table.extras or dice.random() < 0.5):
            added = dice.choice([name for name in ("e", "f") if name not in table.extras])
            table.extras += (added,)
            table.rows = {number: (*image, NULL) for number, image in table.rows.items()}
            self._on(table, f"ALTER TABLE {sql(table.name)} ADD COLUMN {quote(added)} VARCHAR(20)", ADD_COLUMN)
        else:
            gone = table.extras[-1]
            table.extras = table.extras[:-1]
            table.rows = {number: image[:-1] for number, image in table.rows.items()}
            self._on(table, f"ALTER TABLE {sql(table.name)} DROP COLUMN {quote(gone)}", DROP_COLUMN)

    def respell(self, dice: random.Random) -> None:
        """A key's type gets a fraction or loses it, and an event filter keeps the statement to itself."""
        if spelled := [table for table in self.tables.values() if table.shape.is_spelled]:
            table = dice.choice(spelled)
            table.version = self._next()
            table.finer = not table.finer

    def view(self, dice: random.Random) -> None:
        """A view comes, or reads something else, or goes."""
        there = self.views[-1][1]
        name = (dice.choice(DATABASES), dice.choice(VIEWS))
        working = [each for each, view in there.items() if self._base(each) != name and self._works(view)]
        if name in there and dice.random() < 0.5:
            text = f"DROP VIEW {sql(name)}"
            self._statement(text, SchemaFile(name=name, query=text, kind=DROP_VIEW))
            self.views.append((self.tick, {each: view for each, view in there.items() if each != name}))
        elif self.tables:
            reads = dice.choice([*self.tables, *(each for each in working if name not in self._chain(each))])
            shown = there[reads].columns if reads in there else names_of(self.tables[reads].columns)
            lists = dice.random() < 0.4
            what = ", ".join(map(quote, shown)) if lists else "*"
            text = f"CREATE OR REPLACE VIEW {sql(name)} AS SELECT {what} FROM {sql(reads)}"
            columns = [column(each, "UNSPECIFIED") for each in shown]
            self._statement(text, SchemaFile(name=name, query=text, kind=CREATE_VIEW, columns=columns))
            self.views.append((self.tick, {**there, name: View(reads, self.tick, shown, lists)}))

    def _works(self, view: View) -> bool:
        """Whether the table behind a view is there, and has what each view on the way to it shows."""
        *views, base = self._chain(view.reads)
        if base not in self.tables:
            return False
        there = set(names_of(self.tables[base].columns))
        return all(there.issuperset(each.columns) for each in (view, *(self.views[-1][1][name] for name in views)))

    def _chain(self, name: Name) -> list[Name]:
        """A name, what the view of that name reads, and so on."""
        views, found = self.views[-1][1], [name]
        while found[-1] in views:
            found.append(views[found[-1]].reads)
        return found

    def _base(self, name: Name) -> Name:
        return self._chain(name)[-1]

    def collide(self, dice: random.Random) -> None:
        """A database that is called like the state schema, or like a system's, comes with a table, or gets a row, or goes."""
        if self.colliding is None:
            name = (dice.choice(COLLIDING), "a")
            create = f"CREATE DATABASE {quote(name[0])}"
            self._statement(create, SchemaFile(name=(name[0], ""), query=create, kind=CREATE_SCHEMA))
            self.colliding = table = Table(
                uid=len(self.known), name=name, shape=SHAPES[0], parted=False, version=self._next()
            )
            self.known.append(table)
            self._on(table, f"CREATE TABLE {sql(name)} ({create_body(table.shape)})", CREATE)
        elif dice.random() < 0.3:
            name, self.colliding = self.colliding.name, None
            drop = f"DROP DATABASE {quote(name[0])}"
            self._statement(drop, SchemaFile(name=(name[0], ""), query=drop, kind=DROP_SCHEMA))
        else:
            self._next()
            self.log.append(self._change(self.colliding, "I", tuple(map(dice.choice, self.colliding.shape.domains))))

    # transactions

    def change_rows(self, dice: random.Random) -> None:
        """A transaction on one table or two."""
        tables = dice.sample(list(self.tables.values()), min(len(self.tables), dice.choice((1, 1, 2))))
        if not tables:
            self.create(dice)
            return
        self._next()
        changed = []
        for table in tables:
            before = dict(table.rows)
            for _ in range(dice.randint(1, 4)):
                self._edit(table, dice)
            self._leave_out(table, before)
            changes = self._changes(table, before)
            self.log.extend(changes)
            changed += [table] if changes else []
        if changed:
            self._note(changed, is_statement=False)

    def _leave_out(self, table: Table, before: Mapping[int, Image]) -> None:
        """What is left out of the rows that change is known to nobody: the target has its default there."""
        lacks, names = self._lacks(table), [column["ColumnName"] for column in table.columns]
        for number, image in table.rows.items() if lacks else ():
            if before.get(number) != image:
                named = zip(names, image, strict=True)
                table.rows[number] = tuple(NULL if name in lacks else text for name, text in named)

    def _lacks(self, table: Table) -> frozenset[str]:
        """The columns that rows of a table lack; those of one without a key have all."""
        if not (self.unselected and table.shape.keys):
            return frozenset()
        return self.unselected.intersection(column["ColumnName"] for column in table.columns)

    def _edit(self, table: Table, dice: random.Random) -> None:
        """One row comes, goes or changes; what breaks a unique key goes, as by a delete before it."""
        rows, shape = table.rows, table.shape
        chosen = dice.choice(list(rows)) if rows and dice.random() < 0.6 else None
        if chosen is not None and dice.random() < 0.35:
            del rows[chosen]
            return
        if chosen is not None and len(shape.keys) > 1 and len(rows) > 1 and dice.random() < 0.5:
            other = dice.choice([number for number in rows if number != chosen])
            one, two = rows[chosen], rows[other]
            rows[chosen], rows[other] = (one[0], two[1], *one[2:]), (two[0], one[1], *two[2:])
            return
        image = tuple(dice.choice(domain) for domain in (*shape.domains, *(("x", "y", NULL),) * len(table.extras)))
        if chosen is None:
            self._made += 1
            chosen = self._made
        elif dice.random() < 0.5:
            image = (rows[chosen][0], *image[1:])
        places = set(taken(shape, image))
        for number in [n for n, row in rows.items() if n != chosen and not places.isdisjoint(taken(shape, row))]:
            del rows[number]
        rows[chosen] = image

    def _changes(self, table: Table, before: Mapping[int, Image]) -> list[Change]:
        """One change per row, or two where it is split, in TiCDC's order: deletes, updates, inserts."""
        deletes, updates, inserts = list[Change](), list[Change](), list[Change]()
        for number in sorted(before.keys() | table.rows.keys()):
            old, new = before.get(number), table.rows.get(number)
            if old == new:
                continue
            if old is not None and new is not None and self._is_whole(table.shape, old, new):
                updates.append(self._change(table, "U", new, old))
                continue
            deletes += [] if old is None else [self._change(table, "D", old)]
            inserts += [] if new is None else [self._change(table, "I", new)]
        return [*deletes, *updates, *inserts]

    def _is_whole(self, shape: Shape, old: Image, new: Image) -> bool:
        """Whether an update is one row: it must say which one it takes the place of, and not go from one partition to another."""
        if self._raw and self._tells_old:
            return half_of(old) == half_of(new)
        if shape.nullable and old[0] == new[0] != NULL:
            return True
        if not shape.keys:
            return self._tells_old and half_of(old) == half_of(new)
        kept = shape.keys[:1] if self._raw else shape.keys
        return all(old[place] == new[place] for place in kept)

    def _change(self, table: Table, operation: str, values: Image, old: Image | None = None) -> Change:
        return Change(
            tick=self.tick,
            uid=table.uid,
            name=table.name,
            shape=table.shape,
            columns=table.columns,
            version=table.version,
            part=10 * table.uid + half_of(values) if table.parted else None,
            operation=operation,
            values=written(values, finer=table.finer),
            old=old and written(old, finer=table.finer),
            lacks=self._lacks(table),
        )

    # renames

    def rename(self, dice: random.Random) -> None:
        """One table gets another name, or two get one another's."""
        table = self._any(dice)
        if table is None:
            return
        others = [other for other in self.tables.values() if other is not table]
        if others and dice.random() < 0.5:
            other, spare = dice.choice(others), dice.choice(self.free())
            pairs = [(table, spare), (other, table.name), (table, other.name)]
        else:
            pairs = [(table, dice.choice(self.free()))]
        self._rename(pairs, alike=dice.random() < 0.5)

    def _rename(self, pairs: Sequence[tuple[Table, Name]], *, alike: bool) -> None:
        tick = self._next(alike=alike)
        final = {table.uid: new for table, new in pairs}
        texts, files = list[str](), list[SchemaFile]()
        for table, new in pairs:
            texts.append(f"{sql(table.name)} TO {sql(new)}")
            # The job of the new architecture knows the last name of a table only, whatever this step calls it.
            shown = (new[0], final[table.uid][1]) if self._new else new
            query = f"RENAME TABLE {texts[-1]}"
            files.append(SchemaFile(name=shown, query=query, kind=RENAME, columns=table.columns))
            del self.tables[table.name]
            table.name = new
            self.tables[new] = table
        assert tick == self.tick
        on = list({table.uid: table for table, _ in pairs}.values())
        self._statement("RENAME TABLE " + ", ".join(texts), *files, on=on)
