"""One key in two spellings in one commit range, on a real server with many writers: every row is the source's.

An event filter of the changefeed kept a MODIFY to itself, so that nothing but a schema file without a statement tells of it.
"""

from __future__ import annotations

import pytest

from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import CREATE_TABLE, SmallBucket, column, row, ts
from tests.integration.rounds import once

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.usefixtures("spark")]

MANY, WRITERS = 12_000, 8
FIRST, WIDENED, LATER, END = 2, 50, 60, 200
"""Ticks."""


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
