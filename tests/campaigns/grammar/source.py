"""What TiDB makes of a form: whether it takes it, which rows it then holds, and how its tables look."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pymysql.err
from pymysql.cursors import Cursor

from tests.campaigns.grammar.form import Form
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import ts

SCHEMA = "g"
"""Whose tables the forms make."""
_SESSION = (
    "SET SESSION sql_mode = 'ONLY_FULL_GROUP_BY,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00', foreign_key_checks = 0",
    "SET SESSION tidb_enable_list_partition = ON",
)
_SETTINGS = ("SET GLOBAL tidb_enable_check_constraint = ON", "SET GLOBAL tidb_enable_fast_create_table = ON")
Row = tuple[Any, ...]
Column = tuple[str, str, str, str, str]
"""Name, type, ``YES`` where it may be NULL, key and extra as SHOW COLUMNS has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A table at one moment."""

    columns: tuple[Column, ...]
    collations: Mapping[str, str]
    """Of its text columns."""
    unique: frozenset[tuple[str, ...]]
    """The columns of each unique key; keys over expressions have none."""
    rows: tuple[Row, ...]
    """In order, as `plain` has them."""
    raw: tuple[Row, ...] = field(default=(), compare=False)
    """The same as they came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What there is after a statement: first as the statement leaves it, then with more rows."""

    job: str = ""
    """What DDL job the statement made, empty if none."""
    left: Mapping[str, Held]
    filled: Mapping[str, Held]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What TiDB made of a form."""

    refused: str = ""
    """Why it took the form not; empty if it did."""
    moments: tuple[Moment, ...] = ()
    """After each of its statements, those that prepare it included."""

    @property
    def job(self) -> str:
        """What DDL job the last statement made, empty if none: TiCDC writes what has one."""
        return self.moments[-1].job if self.moments else ""


def played(server: DatabaseServer, forms: Sequence[Form]) -> Iterator[tuple[Form, Source]]:
    """Play each form on a TiDB server."""
    with server.connect() as connection, connection.cursor() as cursor:
        for statement in _SETTINGS:
            cursor.execute(statement)
    with server.connect() as connection, connection.cursor() as cursor:
        for statement in _SESSION:
            cursor.execute(statement)
        for form in forms:
            clear(cursor)
            yield form, _played(cursor, form)
            if "PLACEMENT POLICY" in form.name:  # of no database, so that it would be there for the next form
                cursor.execute("DROP PLACEMENT POLICY IF EXISTS `pp`")
        clear(cursor)


def clear(cursor: Cursor) -> None:
    """Take away what a form made."""
    cursor.execute("SHOW DATABASES LIKE 'g%'")
    there = {name for (name,) in cursor.fetchall()}
    for name in there - {SCHEMA}:
        cursor.execute(f"DROP DATABASE `{name}`")
    if SCHEMA not in there:
        cursor.execute(f"CREATE DATABASE `{SCHEMA}` CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    cursor.execute(f"USE `{SCHEMA}`")
    cursor.execute("SHOW FULL TABLES")
    kinds: dict[str, list[str]] = {}
    for name, kind in cursor.fetchall():
        kinds.setdefault(kind.replace("BASE ", ""), []).append(f"`{name}`")
    for kind, names in kinds.items():
        try:
            cursor.execute(f"DROP {kind} {', '.join(names)}")
        except pymysql.err.MySQLError:  # a cached one cannot be dropped
            for name in names:
                cursor.execute(f"ALTER TABLE {name} NOCACHE")
            cursor.execute(f"DROP {kind} {', '.join(names)}")


def _played(cursor: Cursor, form: Form) -> Source:
    moments: list[Moment] = []
    try:
        for number, statement in enumerate((*form.before, *form.statements)):
            before = _last_job(cursor)[0]
            cursor.execute(f"SET SESSION timestamp = {seconds(number)}")
            cursor.execute(statement)
            last = _last_job(cursor)
            left = held(cursor)
            for table, state in left.items():
                _fill(cursor, table, state.columns, number)
            moments.append(Moment(job=last[1] if last[0] != before else "", left=left, filled=held(cursor)))
    except pymysql.err.MySQLError as fault:
        return Source(refused=f"{fault.args[0]}: {fault.args[-1]}")
    return Source(moments=tuple(moments))


def _last_job(cursor: Cursor) -> tuple[int, str]:
    cursor.execute("ADMIN SHOW DDL JOBS 1")
    found = cursor.fetchall()
    return (int(found[0][0]), str(found[0][3])) if found else (0, "")


def seconds(number: int) -> float:
    """The source's clock at the statement of a form with this number."""
    return (version(number) >> 18) / 1000


def version(number: int) -> int:
    """The table version of the statement of a form with this number."""
    return ts(10 + number)


# what a server holds


def held(cursor: Cursor) -> dict[str, Held]:
    """All tables of the schema; views are not among them."""
    cursor.execute("SHOW FULL TABLES")
    return {name: _held(cursor, name) for name, kind in sorted(cursor.fetchall()) if kind == "BASE TABLE"}


def _held(cursor: Cursor, table: str) -> Held:
    cursor.execute(f"SHOW FULL COLUMNS FROM `{table}`")
    columns: list[Column] = []
    collations: dict[str, str] = {}
    for name, kind, collation, null, key, _, extra, *_ in cursor.fetchall():
        columns.append((name, str(kind), null, key, extra))
        collations |= {name: collation} if collation else {}
    cursor.execute(f"SHOW INDEX FROM `{table}`")
    titles = [one[0].lower() for one in cursor.description or ()]
    keys: dict[str, list[str]] = {}
    for one in cursor.fetchall():
        index = dict(zip(titles, one, strict=True))
        if not int(index["non_unique"]):
            expression = index.get("expression") not in (None, "NULL")
            keys.setdefault(index["key_name"], []).append(
                "" if expression else f"{index['column_name']}{index['sub_part'] or ''}"
            )
    cursor.execute(f"SELECT * FROM `{table}`")
    raw = tuple(tuple(map(_bare, one)) for one in cursor.fetchall())
    rows = sorted(tuple(map(plain, one)) for one in raw)
    unique = frozenset(tuple(sorted(key)) for key in keys.values() if "" not in key)
    return Held(columns=tuple(columns), collations=collations, unique=unique, rows=tuple(rows), raw=raw)


def _bare(value: Any) -> Any:
    """A value of the driver as JSON and SQL have it; bytes stay."""
    return value if value is None or isinstance(value, int | float | bytes) else str(value)


def plain(value: Any) -> tuple[bool, str]:
    """A value as what can be compared and sorted: whether it is NULL, and its text."""
    if isinstance(value, bytes):
        return value is None, value.hex()
    return value is None, str(value)


# rows

_TEXTS = ("a", "b", "Aé", "zz")
_VALUES: Mapping[str, Sequence[Any]] = {
    "int": (0, 1, 3, 7),
    "decimal": ("0", "1.5", "3", "7.25"),
    "float": (0.0, 1.5, 3.0, 7.25),
    "double": (0.0, 1.5, 3.0, 7.25),
    "bit": (b"\x00", b"\x01", b"\x01", b"\x00"),
    "json": ("[1]", '{"a": 2}', '["x", 3]', "null"),
    "vector": ("[1,2,3]", "[0,1,2]", "[0.5,1,2]", "[4,5,6]"),
    "date": ("2020-01-01", "1999-12-31", "2024-02-29", "2031-05-05"),
    "datetime": ("2020-01-01 00:00:00", "1999-12-31 23:59:59", "2024-02-29 12:00:00", "2031-05-05 05:05:05"),
    "timestamp": ("2020-01-01 00:00:00", "1999-12-31 23:59:59", "2024-02-29 12:00:00", "2031-05-05 05:05:05"),
    "time": ("00:00:00", "10:11:12", "23:59:59", "01:00:00"),
    "year": (2020, 1999, 2024, 2031),
    "enum": ("a", "b", "a", "b"),
    "set": ("a", "b", "a,b", ""),
    "binary": (b"a", b"b", b"\x00\xff", b"zz"),
    "blob": (b"a", b"b", b"\x00\xff", b"zz"),
}


def _fill(cursor: Cursor, table: str, columns: Sequence[Column], round_: int) -> None:
    """Put rows into a table as a client of the source does; what it refuses stays out."""
    written = [(name, kind) for name, kind, _, _, extra in columns if "GENERATED" not in extra or "DEFAULT" in extra]
    names = ", ".join(f"`{name}`" for name, _ in written)
    marks = ", ".join(["%s"] * len(written))
    for number in range(4):
        values = [_value(kind, number, 4 * round_ + number) for _, kind in written]
        attempts = [values, [None if at else value for at, value in enumerate(values)]] if number == 3 else [values]
        for one in attempts:
            try:
                cursor.execute(f"INSERT INTO `{table}` ({names}) VALUES ({marks})", one)
            except pymysql.err.MySQLError:
                continue


def _value(kind: str, number: int, serial: int) -> Any:
    """A value of a type; integers differ from statement to statement, and texts do not."""
    for word, values in _VALUES.items():
        if word == "int" and "int" in kind:
            return serial + 1
        if word in kind.partition("(")[0]:
            return values[number]
    return _TEXTS[number][:1] if kind == "char(1)" else _TEXTS[number]
