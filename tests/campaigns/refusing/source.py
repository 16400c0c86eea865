"""The source of a history: tables that change, and the files that TiCDC writes of that."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.harness.small_bucket import CREATE_TABLE, Row, SmallBucket, column, row, ts
from tests.harness.small_export import export

Key = tuple[str, ...]
Values = tuple[str | None, str]
"""Of the columns `u` and `v`."""
BAD = "refused"
"""How values begin that the target may refuse."""
WIDE, NARROW = 20, 6
"""Lengths of the column `v`, with and without place for them."""
_TRUNCATE, _ADD_COLUMN = 11, 5
_REST = ("`u` int DEFAULT NULL", "`v` varchar({}) DEFAULT NULL")
_UNIQUE = "UNIQUE KEY `u` (`u`)"
_V = column("v", "VARCHAR", ColumnPrecision="20")


@dataclass(slots=True)
class Diary:
    """What happened, for people."""

    lines: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def say(self, *words: object) -> None:
        """Note what happened."""
        self.lines.append(" ".join(map(str, words)))

    def count(self, name: str, more: int = 1) -> None:
        """Count what happened."""
        self.counts[name] = self.counts.get(name, 0) + more


@dataclass(slots=True)
class Table:
    """A table of the source."""

    name: str
    body: str
    keys: tuple[str, ...]
    pool: Sequence[Key]
    """The keys that it may have."""
    columns: list[dict[str, Any]]
    exported: tuple[str, ...]
    """The columns and keys in the words of SHOW CREATE TABLE; what is added comes between."""
    version: int = ts(1)
    files: int = 0
    added: int = 0
    """Columns that were added; they hold NULL."""
    rows: dict[Key, Values] = field(default_factory=dict)
    given_up: set[Key] = field(default_factory=set)
    """Keys whose rows an operator gave up; the source has not changed them since."""
    is_narrow: bool = False
    """Whether the target refuses some rows."""

    @property
    def exported_body(self) -> str:
        """The columns and keys of the table as it is now; what is too short in the target stays so when it is created anew."""
        length = NARROW if self.is_narrow else WIDE
        parts = [f"  {each.format(length)}" for each in self.exported]
        keys = next(place for place, each in enumerate(self.exported) if each.startswith("PRIMARY"))
        parts[keys:keys] = [f"  `w{number}` int DEFAULT NULL" for number in range(1, self.added + 1)]
        return ",\n".join(parts)

    @property
    def exported_rows(self) -> list[str]:
        """The values of all rows as one INSERT has them; none without rows."""
        rows = [
            "(" + ",".join([*map(repr, key), unique or "NULL", repr(text), *["NULL"] * self.added]) + ")"
            for key, (unique, text) in self.rows.items()
        ]
        return [",\n".join(rows)] if rows else []

    def line(self, tick: int, operation: str, key: Key, values: Values) -> Row:
        """One row of a data file."""
        unique, text = values
        texts = [each if each.isdigit() else f'"{each}"' for each in key]
        texts += [r"\N" if unique is None else unique, f'"{text}"', *[r"\N"] * self.added]
        return row(f"d.{self.name}", tick, *texts, operation=operation)


def _tables() -> dict[str, Table]:
    unique = column("u", "INT")
    text = column("y", "VARCHAR", key=True, ColumnPrecision="10")
    decimal = column("k", "DECIMAL", key=True, ColumnPrecision="8", ColumnScale="2")
    found = (
        Table(
            name="a",
            body="id INT PRIMARY KEY, u INT UNIQUE, v VARCHAR(20)",
            keys=("id",),
            pool=[(str(n),) for n in range(6)],
            columns=[column("id", "INT", key=True), unique, _V],
            exported=("`id` int NOT NULL", *_REST, "PRIMARY KEY (`id`)", _UNIQUE),
        ),
        Table(
            name="b",
            body="x INT, y VARCHAR(10) COLLATE utf8mb4_bin, u INT UNIQUE, v VARCHAR(20), PRIMARY KEY (x, y)",
            keys=("x", "y"),
            pool=[(str(n % 2), y) for n in range(2) for y in ("a", "A", "a b")],
            columns=[column("x", "INT", key=True), text, unique, _V],
            exported=("`x` int NOT NULL", "`y` varchar(10) NOT NULL", *_REST, "PRIMARY KEY (`x`,`y`)", _UNIQUE),
        ),
        Table(
            name="c",
            body="k DECIMAL(8,2) PRIMARY KEY, u INT, v VARCHAR(20)",
            keys=("k",),
            pool=[(f"{n}.50",) for n in range(6)],
            columns=[decimal, unique, _V],
            exported=("`k` decimal(8,2) NOT NULL", *_REST, "PRIMARY KEY (`k`)"),
        ),
    )
    return {table.name: table for table in found}


@dataclass(slots=True)
class Source:
    """The tables, and the bucket that is written of them."""

    chance: random.Random
    bucket: SmallBucket
    diary: Diary
    tables: dict[str, Table] = field(default_factory=_tables)
    tick: int = 2
    """The checkpoint, once a turn is written."""
    copies: int = 0
    """Exports so far."""

    def begin(self) -> None:
        """Create the tables."""
        self.bucket.schema("d", ts(0), "CREATE DATABASE `d`", 1)
        for each in self.tables.values():
            query = f"CREATE TABLE `{each.name}` ({each.body})"
            self.bucket.schema(f"d.{each.name}", ts(1), query, CREATE_TABLE, each.columns)
        self.bucket.metadata(ts(self.tick))

    def is_so(self, share: float) -> bool:
        """Return True with this probability."""
        return self.chance.random() < share

    def feed(self) -> None:
        """Write some transactions, and perhaps a statement; then move the checkpoint."""
        for _ in range(self.chance.randint(1, 3)):
            lines: dict[str, list[Row]] = {name: [] for name in self.tables}
            for _ in range(self.chance.randint(1, 4)):
                self._transaction(lines)
            for name, found in lines.items():
                # At least once: what a file holds may stand in it twice.
                self._file(self.tables[name], found * (2 if self.is_so(0.15) else 1))
        if self.is_so(0.2):
            self.state(self.chance.choice(list(self.tables.values())))
        self.tick += 1
        self.bucket.metadata(ts(self.tick))

    def copy(self, table: Table) -> Path:
        """Export a table as of now; return the folder."""
        self.copies += 1
        folder = self.bucket.root.parent / f"copy-{self.copies}"
        self.diary.say("tick", self.tick, "export of", table.name)
        return export(folder, self.tick, {table.name: table.exported_rows}, body=table.exported_body)

    def _file(self, table: Table, lines: Sequence[Row]) -> None:
        if lines:
            table.files += 1
            self.bucket.rows(f"d.{table.name}", table.files, *lines, version=table.version)

    def state(self, table: Table) -> None:
        """TRUNCATE or ADD COLUMN."""
        self.tick += 1
        table.version, table.files = ts(self.tick), 0
        if self.is_so(0.5):
            table.rows.clear()
            table.given_up.clear()
            query, kind = f"TRUNCATE TABLE `{table.name}`", _TRUNCATE
        else:
            table.added += 1
            table.columns.append(column(f"w{table.added}", "INT"))
            query, kind = f"ALTER TABLE `{table.name}` ADD COLUMN `w{table.added}` INT", _ADD_COLUMN
        self.diary.say("tick", self.tick, query)
        self.diary.count("statements")
        self.bucket.schema(f"d.{table.name}", table.version, query, kind, table.columns)

    def _transaction(self, lines: dict[str, list[Row]]) -> None:
        """Change some keys, each at most once, as TiCDC writes them."""
        self.tick += 1
        touched: set[tuple[str, Key]] = set()
        for _ in range(self.chance.randint(1, 4)):
            table = self.chance.choice(list(self.tables.values()))
            for operation, key, values in self._change(table):
                if (table.name, key) in touched:
                    break
                touched.add((table.name, key))
                if operation == "D":
                    del table.rows[key]
                else:
                    table.rows[key] = values
                table.given_up.discard(key)
                self.diary.say("tick", self.tick, table.name, operation, key, values)
                lines[table.name].append(table.line(self.tick, operation, key, values))

    def _change(self, table: Table) -> list[tuple[str, Key, Values]]:
        """One change; two of them where keys exchange their unique values."""
        key = self.chance.choice(table.pool)
        old = table.rows.get(key)
        if old is None:
            return [("I", key, (self._free(table), self._text()))]
        if self.is_so(0.25):
            return [("D", key, old)]
        return [("U", key, (self._free(table) if self.is_so(0.5) else old[0], self._text()))]

    def _free(self, table: Table) -> str | None:
        used = {unique for unique, _ in table.rows.values()}
        free = [str(n) for n in range(10) if str(n) not in used]
        return self.chance.choice(free) if self.is_so(0.8) else None

    def _text(self) -> str:
        return f"{BAD if self.is_so(0.35) else 'ok'}{self.chance.randrange(100)}"
