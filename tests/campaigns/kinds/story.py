"""A statement kind as a story: a table with rows, the statement as TiCDC stores it, rows after it, and how all that must end."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.harness.small_bucket import SmallBucket, column, row, ts

EXECUTED = "executed"
NOTHING = "nothing to run"
_COLUMN = re.compile(r"(?P<name>[^ !~=]+)(?P<mark>[!~=]?) (?P<type>[A-Z ]+?)(?:\((?P<size>\d+)(?:,(?P<scale>\d+))?\))?")
_FIRST_TICK = 10


@dataclass(frozen=True, slots=True)
class Ddl:
    """One statement; ``{db}`` in it is the story's database."""

    query: str
    type: int
    table: str = "t"
    """Whose directory it is in; empty for the database's own."""
    columns: Sequence[str] = ()
    """``name TYPE(size)``; ``name!`` is in the primary key, ``name~`` virtual and in no row, ``name=`` stored."""
    setup: bool = False
    """It is not what the story is about."""
    database: str = "{db}"


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows as CSV has them, without the four fields in front."""

    table: str
    lines: Sequence[str]
    operation: str = "I"
    database: str = "{db}"


Item = Ddl | Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of statement."""

    name: str
    story: Sequence[Item]
    ends: Mapping[str, Sequence[tuple[Any, ...]]]
    """Table → its rows in the end, as texts, in order."""
    on: Mapping[str, str] = field(default_factory=dict)
    """Server → outcome; one that is not named executes all statements as they are."""
    has: Sequence[str] = ()
    """Lines of the structure (see shape.py) that must be there, ``server? line`` for one server alone."""
    lacks: Sequence[str] = ()
    """Lines that must not be there."""
    to_tidb: bool = True
    """A plain TiDB server takes the story, so that its end can be compared with what TiDB itself makes of it."""
    halted: Mapping[str, Sequence[tuple[Any, ...]]] = field(default_factory=dict)
    """Rows in the end where the statement stops its table; without it, those from before."""

    @property
    def schema(self) -> str:
        """The database of its own."""
        return "k_" + re.sub(r"\W+", "_", self.name.lower()).strip("_")[:50]

    def outcome(self, server: str) -> str:
        """What the server must make of it."""
        return self.on.get(server, EXECUTED)

    def rows_at_end(self, server: str) -> Mapping[str, Sequence[tuple[Any, ...]]]:
        """What each table must hold there."""
        if not self.outcome(server).startswith("halted"):
            return self.ends
        return self.halted or self._before()

    def _before(self) -> Mapping[str, Sequence[tuple[Any, ...]]]:
        """The rows of `t` from before the first statement that is not for preparation; none if that makes the table."""
        rows: list[tuple[Any, ...]] = []
        for item in self.story:
            if isinstance(item, Ddl) and not item.setup:
                return {"t": rows} if rows else {}
            if isinstance(item, Rows) and item.table == "t":
                rows += [tuple(_shown(text) for text in line.split(",")) for line in item.lines]
        return {}

    def filled(self, text: str) -> str:
        """A text with its database put in."""
        return text.replace("{db}", self.schema)

    def write(self, bucket: SmallBucket) -> None:
        """Write the story's tree."""
        current: dict[tuple[str, str], tuple[int, Sequence[str]]] = {}
        for tick, item in self.timed():
            database, at = self.filled(item.database), ts(tick)
            place = (database, item.table)
            if isinstance(item, Ddl):
                columns = item.columns or current.get(place, (0, ()))[1]
                name = f"{database}.{item.table}" if item.table else database
                bucket.schema(name, at, self.filled(item.query), item.type, [_column(text) for text in columns])
                current[place] = (at, columns)
                continue
            version = current[place][0]
            name = f"{database}.{item.table}"
            lines = [row(name, tick, self.filled(line), operation=item.operation) for line in item.lines]
            number = 1
            while bucket.file(name, number, version=version).exists():
                number += 1
            bucket.rows(name, number, *lines, version=version)

    def timed(self) -> Iterator[tuple[int, Item]]:
        """Each item with its tick."""
        yield from enumerate(self.story, _FIRST_TICK)


def _column(text: str) -> dict[str, Any]:
    """``name! TYPE(size)`` as an entry of TableColumns."""
    found = _COLUMN.fullmatch(text.removesuffix(" NOT NULL"))
    assert found is not None, text
    sizes = {"ColumnPrecision": found["size"], "ColumnScale": found["scale"]}
    if text.endswith(" NOT NULL"):
        sizes["ColumnNullable"] = "false"
    return column(
        found["name"], found["type"], key=found["mark"] == "!", **{key: value for key, value in sizes.items() if value}
    )


# the usual story

USUAL = ("id! INT", "v INT", "s VARCHAR(20)")
BODY = "(`id` INT PRIMARY KEY,`v` INT,`s` VARCHAR(20))"
BEFORE = [("1", "10", "one"), ("2", "20", "two")]
CREATE_DATABASE = Ddl("CREATE DATABASE `{db}`", 1, "", setup=True)


def created(
    body: str = BODY, columns: Sequence[str] = USUAL, *, table: str = "t", options: str = "", setup: bool = True
) -> Ddl:
    """CREATE TABLE."""
    return Ddl(f"CREATE TABLE `{table}` {body}{options}", 3, table, columns, setup=setup)


def lines(*rows: Sequence[Any]) -> list[str]:
    """Rows as CSV."""
    return [",".join(_field(value) for value in one) for one in rows]


def _field(value: Any) -> str:
    if value is None:
        return r"\N"
    return str(value) if isinstance(value, int | float) else '"' + str(value) + '"'


TWO = Rows("t", lines((1, 10, "one"), (2, 20, "two")))
"""The rows of `BEFORE`."""


def altered(  # noqa: PLR0913 - a story in one line
    name: str,
    query: str,
    kind: int,
    after: Sequence[str] = USUAL,
    rows: Sequence[Sequence[Any]] = ((2, 21, "TWO"), (3, 30, "three")),
    *,
    ends: Sequence[tuple[Any, ...]] = (("1", "10", "one"), ("2", "21", "TWO"), ("3", "30", "three")),
    base: Ddl | None = None,
    before: Rows = TWO,
    operation: str = "U",
    **expected: Any,
) -> Kind:
    """A table `t` with two rows, one statement, an update and an insert; `rows` and `ends` with the columns of `after`."""
    first = base or created()
    story: list[Item] = [CREATE_DATABASE, first, before, Ddl(query, kind, "t", after)]
    if rows:
        story.append(Rows("t", lines(*rows), operation=operation))
    return Kind(name=name, story=story, ends={"t": ends}, **expected)


def _shown(text: str) -> str | None:
    return None if text == r"\N" else text.strip('"')
