"""One key in two spellings in one commit range, on a real server with many writers: every row is the source's.

An event filter of the changefeed kept a MODIFY to itself, so that nothing but a schema file without a statement tells of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import CREATE_TABLE, SmallBucket, column, row, ts
from tests.integration.rounds import of, once

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.usefixtures("spark")]

MANY, HALF, WRITERS = 12_000, 4_000, 8
FIRST, CHANGED, WIDENED, LATER, BACK, END = 2, 20, 50, 60, 120, 200
"""Ticks; the last changes go to the first directory again, as after a MODIFY back: TiCDC takes the newest one of the same structure."""
Text = Callable[[int], str]
Column = dict[str, Any]
NAMES = ("k", "v")


def quoted(text: str) -> str:
    """As CSV has a value that is not a number."""
    return f'"{text}"'


def at(number: int, *, days: bool = False) -> str:
    """A date, and a time of day; `days`: midnight."""
    year, rest = divmod(number, 336)
    month, day = divmod(rest, 28)
    hour = number % 24
    return f"{1990 + year}-{month + 1:02d}-{day + 1:02d}" + ("" if days else f" {hour:02d}:30:00")


def time(number: int) -> str:
    """A time, below zero too."""
    number -= MANY // 2
    return f"{'-' if number < 0 else ''}{abs(number) // 60:02d}:{abs(number) % 60:02d}:00"


def of_type(kind: str, **attributes: str) -> Column:
    """The key's column in a schema file."""
    return column("k", kind, key=True, **attributes)


def decimal(scale: int) -> Column:
    """Of a DECIMAL."""
    return of_type("DECIMAL", ColumnPrecision="12", ColumnScale=str(scale))


@dataclass(frozen=True, slots=True)
class Family:
    """A key in two spellings, and the target's column."""

    there: str
    old: tuple[Column, Text]
    new: tuple[Column, Text]


FAMILIES = {
    "decimals": Family(
        "DECIMAL(12,3)", (decimal(1), lambda n: f'"{n}.5"'), (decimal(3), lambda n: f'"{n}.500"')
    ),
    "decimals_narrow": Family(
        "DECIMAL(12,1)", (decimal(1), lambda n: f'"{n}.5"'), (decimal(3), lambda n: f'"{n}.500"')
    ),
    "whole_to_decimal": Family("DECIMAL(12,2)", (of_type("INT"), str), (decimal(2), lambda n: f'"{n}.00"')),
    "decimal_to_whole": Family("INT", (decimal(2), lambda n: f'"{n}.00"'), (of_type("INT"), str)),
    "bits_to_whole": Family("BIGINT", (of_type("BIT UNSIGNED", ColumnPrecision="20"), str), (of_type("BIGINT"), str)),
    "float_to_decimal": Family("DECIMAL(12,3)", (of_type("FLOAT"), lambda n: f"{n}.5"), (decimal(3), lambda n: f'"{n}.500"')),
    "moments": Family(
        "DATETIME(6)",
        (of_type("DATETIME"), lambda n: quoted(at(n))),
        (of_type("DATETIME", ColumnScale="3"), lambda n: quoted(f"{at(n)}.000")),
    ),
    "instants": Family(
        "TIMESTAMP",
        (of_type("TIMESTAMP"), lambda n: quoted(at(n))),
        (of_type("TIMESTAMP", ColumnScale="6"), lambda n: quoted(f"{at(n)}.000000")),
    ),
    "days": Family(
        "DATETIME",
        (of_type("DATE"), lambda n: quoted(at(n, days=True))),
        (of_type("DATETIME"), lambda n: quoted(f"{at(n, days=True)} 00:00:00")),
    ),
    "times": Family(
        "TIME(3)",
        (of_type("TIME"), lambda n: quoted(time(n))),
        (of_type("TIME", ColumnScale="3"), lambda n: quoted(f"{time(n)}.000")),
    ),
    "texts": Family(
        "VARCHAR(20) COLLATE utf8mb4_general_ci",
        (of_type("INT"), str),
        (of_type("VARCHAR", ColumnPrecision="20"), lambda n: quoted(str(n))),
    ),
}  # fmt: skip
BYTES = Family(
    "BINARY(8)",
    (of_type("BINARY", ColumnPrecision="4"), lambda n: quoted(f"{n:04x}0000")),
    (of_type("BINARY", ColumnPrecision="8"), lambda n: quoted(f"{n:04x}{'0' * 12}")),
)
"""Told apart by CSV alone in this test: canal-json writes bytes in another way."""


def write(bucket: SmallBucket, name: str, family: Family, create: str) -> None:
    """A table's files. Its keys by number: of each four one is changed late, one deleted, one left, one deleted and made anew."""
    value = column("v", "VARCHAR", ColumnPrecision="20")
    (old, old_text), (new, new_text) = family.old, family.new
    bucket.schema(name, ts(1), f"CREATE TABLE `{name.partition('.')[2]}` ({create})", CREATE_TABLE, [old, value])
    bucket.schema(name, ts(WIDENED), "", 0, [new, value])

    def rows(tick: int, operation: str, text: Text, what: str, *, rest: int, of: int = 4) -> list[str]:
        numbers = range(rest, MANY, of)
        return [row(name, tick, text(n), quoted(what), operation=operation, names=NAMES) for n in numbers]

    first = [one for rest in range(4) for one in rows(FIRST, "I", old_text, "old", rest=rest)]
    late = rows(LATER, "U", new_text, "new", rest=0) + rows(LATER, "D", new_text, "old", rest=1)
    late += rows(LATER, "D", new_text, "changed", rest=3) + rows(LATER + 1, "I", new_text, "again", rest=3)
    files = [
        *(first[start : start + HALF] for start in range(0, MANY, HALF)),
        rows(CHANGED, "U", old_text, "changed", rest=3),
    ]
    files += [rows(BACK, "D", old_text, "new", rest=0, of=8) + rows(BACK, "U", old_text, "back", rest=2, of=8)]
    for number, some in enumerate(files, 1):
        bucket.rows(name, number, *some, version=ts(1))
    bucket.rows(name, 1, *late, version=ts(WIDENED))


def expected() -> dict[int, str]:
    """The rows that are left, by number of their keys."""
    left = {n: ("new", "", "old", "again")[n % 4] for n in range(MANY) if n % 4 != 1 and n % 8 != 0}
    return left | dict.fromkeys(range(2, MANY, 8), "back")


def truth(family: Family) -> list[tuple[str, str]]:
    """Key in the new spelling, and value, in order."""
    return sorted((family.new[1](n).strip('"'), what) for n, what in expected().items())


def found(server: DatabaseServer, name: str, family: Family) -> list[tuple[str, str]]:
    """What the target has, its keys in the new spelling."""
    spelled = {text.rstrip("0").rstrip(".") if "." in text else text: text for text, _ in truth(family)}
    keys = "LOWER(HEX(k))" if family is BYTES else "CAST(k AS CHAR)"
    rows = [(str(key), str(value)) for key, value in server.query(f"SELECT {keys}, v FROM {name}")]
    return sorted((spelled.get(k.rstrip("0").rstrip(".") if "." in k else k, k), v) for k, v in rows)


@pytest.mark.parametrize("bucket", ["csv", "canal-json"], indirect=True)
def test_rows_of_two_structures(bucket: SmallBucket, mariadb: DatabaseServer) -> None:
    """Of a key in two spellings the last change counts, whichever directory it is in, whatever bucket it might have fallen into."""
    families = FAMILIES | ({"bytes": BYTES} if bucket.protocol == "csv" else {})
    bucket.schema("d", ts(0), "CREATE DATABASE `d`", 1)
    for name, family in families.items():
        write(bucket, f"d.{name}", family, f"k {family.there} NOT NULL PRIMARY KEY, v VARCHAR(20)")
    bucket.metadata(ts(END))
    config = {"sink": {"csv": {"include-commit-ts": True, "binary-encoding-method": "hex"}}}
    summary = once(bucket, mariadb, partitions=WRITERS, config=config, tz="UTC")
    assert [(table.table, table.error) for table in summary.tables if table.error] == []
    for name, family in families.items():
        assert found(mariadb, f"d.{name}", family) == truth(family), name


def test_keys_of_several_columns(bucket: SmallBucket, mariadb: DatabaseServer) -> None:
    """So it is where the spelling is one part of the key and a collation decides about another, and without a primary key."""
    bucket.schema("d", ts(0), "CREATE DATABASE `d`", 1)
    for name, key in {"two": "PRIMARY KEY (k, v)", "unique": "UNIQUE KEY (k, v)"}.items():
        body = f"k DECIMAL(12,3) NOT NULL, v VARCHAR(20) COLLATE utf8mb4_general_ci NOT NULL, w INT, {key}"
        is_key = "PRIMARY" in key
        rest = [
            column("v", "VARCHAR", key=is_key, ColumnPrecision="20", **({} if is_key else {"ColumnNullable": "false"})),
            column("w", "INT"),
        ]
        structures = [
            [column("k", "DECIMAL", key=is_key, ColumnPrecision="12", ColumnScale=scale, ColumnNullable="false"), *rest]
            for scale in ("1", "3")
        ]
        bucket.schema(f"d.{name}", ts(1), f"CREATE TABLE `{name}` ({body})", CREATE_TABLE, structures[0])
        bucket.schema(f"d.{name}", ts(WIDENED), "", 0, structures[1])
        old = [row(f"d.{name}", FIRST, f'"{n}.5"', f'"Ä{n % 3}"', "1") for n in range(MANY)]
        new = [row(f"d.{name}", LATER, f'"{n}.500"', f'"ä{n % 3}"', "2", operation="UD"[n % 2]) for n in range(MANY)]
        bucket.rows(f"d.{name}", 1, *old, version=ts(1))
        bucket.rows(f"d.{name}", 1, *new, version=ts(WIDENED))
    bucket.metadata(ts(END))
    assert once(bucket, mariadb, partitions=WRITERS).halted == ()
    for name in ("two", "unique"):
        assert mariadb.query(f"SELECT COUNT(*), SUM(w), MAX(FLOOR(k) % 2) FROM d.{name}") == ((MANY // 2, MANY, 0),)


def test_rows_without_a_key(bucket: SmallBucket, mariadb: DatabaseServer) -> None:
    """A keyless row is the same one in two spellings: what came and went in several is gone, and the others are there."""
    bucket.schema("d", ts(0), "CREATE DATABASE `d`", 1)
    kinds = [
        [column("k", "DECIMAL", ColumnPrecision="12", ColumnScale=scale), column("v", "INT")] for scale in ("1", "3")
    ]
    bucket.schema("d.t", ts(1), "CREATE TABLE `t` (k DECIMAL(12,3), v INT)", CREATE_TABLE, kinds[0])
    bucket.schema("d.t", ts(WIDENED), "", 0, kinds[1])
    bucket.rows("d.t", 1, *(row("d.t", FIRST, f'"{n}.5"', "1") for n in range(1_000)), version=ts(1))
    gone = (row("d.t", LATER, f'"{n}.500"', "1", operation="D") for n in range(1_000))
    again = (row("d.t", LATER + 1, f'"{n}.500"', "1") for n in range(500))
    bucket.rows("d.t", 1, *gone, *again, version=ts(WIDENED))
    bucket.metadata(ts(END))
    assert once(bucket, mariadb, partitions=WRITERS).halted == ()
    assert mariadb.query("SELECT COUNT(*), COUNT(DISTINCT k), MAX(k) < 500 FROM d.t") == ((500, 500, 1),)


HALTS: dict[str, tuple[str, tuple[Column, str], tuple[Column, str], str]] = {
    "single and double": ("DOUBLE", (of_type("FLOAT"), "0.5"), (of_type("DOUBLE"), "0.10000000149011612"), "other digits as a FLOAT"),
    "moments of a zone": (
        "DATETIME",
        (of_type("TIMESTAMP"), '"0000-00-00 00:00:00"'),
        (of_type("DATETIME"), '"2024-01-31 10:00:00"'),
        "is converted from Europe/Berlin to UTC",
    ),
    "texts of two types": ("VARCHAR(20)", (of_type("DATE"), '"2024-01-31"'), (of_type("INT"), "7"), "columns of another type"),
    "moment and number": ("DATETIME", (of_type("DATETIME"), '"2024-01-31 10:00:00"'), (of_type("BIGINT"), "7"), "columns of another type"),
    "number and year": ("YEAR", (of_type("YEAR"), "2024"), (of_type("INT"), "5"), "columns of another type"),
}  # fmt: skip


def test_no_known_form(bucket: SmallBucket, mariadb: DatabaseServer) -> None:
    """Where nothing tells whether two spellings are one key, the table halts before a row of it is written, and says why."""
    bucket.schema("d", ts(0), "CREATE DATABASE `d`", 1)
    names = {f"d.t{number}": case for number, case in enumerate(HALTS.values())}
    for name, (there, old, new, _) in names.items():
        create = f"CREATE TABLE `{name[2:]}` (k {there} PRIMARY KEY, v INT)"
        bucket.schema(name, ts(1), create, CREATE_TABLE, [old[0], column("v", "INT")])
        bucket.schema(name, ts(WIDENED), "", 0, [new[0], column("v", "INT")])
        bucket.rows(name, 1, row(name, FIRST, old[1], "1"), version=ts(1))
        bucket.rows(name, 1, row(name, LATER, new[1], "2"), version=ts(WIDENED))
    bucket.metadata(ts(END))
    summary = once(bucket, mariadb, partitions=WRITERS, tz="Europe/Berlin")
    for name, (*_, why) in names.items():
        assert why in of(summary, name).error
        assert mariadb.query(f"SELECT COUNT(*) FROM {name}") == ((0,),)


TAKEN: dict[str, tuple[str, tuple[Column, str], tuple[Column, str], str]] = {
    "time of day": ("DATETIME", (of_type("DATETIME"), '"2024-01-31 10:00:00"'), (of_type("DATE"), '"2024-01-31"'), "has a time of day"),
    "fraction": ("DATETIME(3)", (of_type("DATETIME", ColumnScale="3"), '"2024-01-31 10:00:00.500"'), (of_type("DATETIME"), '"2024-01-31 10:00:01"'), "more than 0 digits"),
    "digits": ("DECIMAL(12,3)", (decimal(3), '"3.550"'), (decimal(1), '"3.6"'), "more than 1 digits"),
    "whole": ("DECIMAL(12,3)", (decimal(3), '"3.550"'), (of_type("INT"), "4"), "more than 0 digits"),
}  # fmt: skip
"""A key that the source itself cut when it changed the column's type, as it was before and after that."""


@pytest.mark.parametrize("bucket", ["csv", "canal-json"], indirect=True)
def test_the_source_cut_values(bucket: SmallBucket, mariadb: DatabaseServer) -> None:
    """Where a row of before may not be what the source made of it, the table halts and says so; it goes on if no value was cut, or none is of before."""
    bucket.schema("d", ts(0), "CREATE DATABASE `d`", 1)
    for number, (there, old, new, _) in enumerate(TAKEN.values()):
        for table, tick, cut in (
            (f"d.t{number}", FIRST, True),
            (f"d.u{number}", FIRST, False),
            (f"d.w{number}", LATER, True),
        ):
            bucket.schema(
                table,
                ts(1),
                f"CREATE TABLE `{table[2:]}` (k {there} PRIMARY KEY, v INT)",
                CREATE_TABLE,
                [old[0], column("v", "INT")],
            )
            bucket.schema(table, ts(WIDENED), "", 0, [new[0], column("v", "INT")])
            whole = "0" if new[0]["ColumnType"] == "INT" else ".0" if "DECIMAL" in there else "00:00:00"
            text = (
                old[1]
                if cut
                else {
                    "0": '"4.000"',
                    ".0": '"3.600"',
                    "00:00:00": old[1].replace("10:00:00", whole).replace(".500", ".000"),
                }[whole]
            )
            bucket.rows(table, 1, row(table, tick, text, "1", names=NAMES), version=ts(1))
            bucket.rows(table, 1, row(table, LATER + 1, new[1], "2", operation="U", names=NAMES), version=ts(WIDENED))
    bucket.metadata(ts(END))
    summary = once(bucket, mariadb, partitions=WRITERS, tz="UTC")
    for number, (*_, why) in enumerate(TAKEN.values()):
        assert why in of(summary, f"d.t{number}").error
        assert f"since its type changed at {ts(WIDENED)}" in of(summary, f"d.t{number}").error
        assert mariadb.query(f"SELECT COUNT(*) FROM d.t{number}") == ((0,),)
        for other in "uw":
            assert not of(summary, f"d.{other}{number}").error
