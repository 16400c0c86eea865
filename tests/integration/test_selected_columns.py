"""Column selectors that TiCDC ignored, obeyed, or obeyed in another form before: what a file's columns are is known of the file, or the table halts."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession

from storage_consumer import read_changes
from storage_consumer.errors import NotReplicable
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, column, row, ts
from tests.integration.rounds import consumer, content, of, once

pytestmark = [pytest.mark.server, pytest.mark.spark]
TABLE, NAMES = "s.t", ("id", "a", "b", "n")
COLUMNS = (
    column("id", "INT", key=True),
    column("a", "VARCHAR", ColumnPrecision="10"),
    column("b", "VARCHAR", ColumnPrecision="10"),
    column("n", "INT", ColumnNullable="false", ColumnDefault="7"),
)
BODY = "id INT PRIMARY KEY, a VARCHAR(10), b VARCHAR(10), n INT NOT NULL DEFAULT 7"
DEFAULTS = {"a": None, "b": None, "n": 7}
HEADER = "ticdc-meta$operation,ticdc-meta$table,ticdc-meta$schema,ticdc-meta$commit-ts"
WITH_NAMES = pytest.mark.parametrize("bucket", ["csv", "canal-json"], indirect=True)


def create(bucket: SmallBucket, body: str = BODY, columns: Sequence[dict[str, Any]] = COLUMNS) -> None:
    """The table's schema file."""
    bucket.schema("s", ts(0), "CREATE DATABASE `s`", 1)
    bucket.schema(TABLE, ts(1), f"CREATE TABLE `t` ({body})", 3, columns)


def config(*columns: str, header: bool = False) -> dict[str, object]:
    """A changefeed's file with a selector for the table, or without one."""
    selectors = {"column-selectors": [{"matcher": [TABLE], "columns": list(columns)}]} if columns else {}
    return {"sink": {**selectors, "csv": {"include-commit-ts": True, "output-field-header": header}}}


def text(value: object) -> str:
    """A value as CSV has it."""
    return r"\N" if value is None else str(value) if isinstance(value, int) else f'"{value}"'


def write(bucket: SmallBucket, number: int, *events: tuple[str, int, dict[str, object]], header: bool = False) -> None:
    """A file whose rows have the columns that they are given, by name: operation, tick, values."""
    names = list(events[0][2])
    rows = [
        row(TABLE, tick, *map(text, values.values()), operation=operation, names=list(values))
        for operation, tick, values in events
    ]
    first = [",".join([HEADER, *names])] if header and bucket.protocol == "csv" else []
    bucket.rows(TABLE, number, *first, *rows)


def vouched(error: str) -> dict[str, str]:
    """The option that an error names."""
    found = re.search(r"--headerless-selectors (\w+)", error)
    assert found, error
    return {"headerless_selectors": found[1]}


@WITH_NAMES
def test_selectors_that_changed(bucket: SmallBucket, mariadb: DatabaseServer, spark: SparkSession) -> None:
    """Where files name their columns each row has what it has, whatever the selectors say now, in one window and over a restart; the rest is the default."""
    create(bucket)
    write(bucket, 1, ("I", 10, {"id": 1, "a": "in a"}), ("I", 11, {"id": 2, "a": "too"}), header=True)
    write(bucket, 2, ("I", 20, {"id": 3, "b": "in b"}), header=True)
    write(bucket, 3, ("I", 30, {"id": 4, "a": "all", "b": "of", "n": 1}), header=True)
    bucket.metadata(ts(40))
    assert once(bucket, mariadb, config=config("id", "b", header=True)).halted == ()
    assert content(mariadb, TABLE) == [
        (1, "in a", None, 7),
        (2, "too", None, 7),
        (3, None, "in b", 7),
        (4, "all", "of", 1),
    ]
    write(bucket, 4, ("U", 50, {"id": 4, "n": 5}), ("D", 51, {"id": 1, "n": 7}), header=True)
    bucket.metadata(ts(60))
    assert once(bucket, mariadb, config=config("id", "n", header=True)).halted == ()
    assert content(mariadb, TABLE) == [(2, "too", None, 7), (3, None, "in b", 7), (4, None, None, 5)]
    given = read_changes(bucket.uri, TABLE, config=config("id", "n", header=True), tz="UTC").read_all().to_pylist()
    assert [[each[name] for name in NAMES] for each in given] == [
        [1, "in a", None, None], [2, "too", None, None], [3, None, "in b", None],
        [4, "all", "of", 1], [4, None, None, 5], [1, None, None, 7],
    ]  # fmt: skip


@pytest.mark.parametrize("header", ["", "header"])
@WITH_NAMES
def test_selectors_that_ticdc_ignored(
    bucket: SmallBucket, mariadb: DatabaseServer, spark: SparkSession, header: str
) -> None:
    """Whole rows are whole rows, with a file that has selectors and without one; also where the key is left out."""
    create(bucket)
    write(bucket, 1, ("I", 10, {"id": 1, "a": "x", "b": "y", "n": 3}), header=bool(header))
    bucket.metadata(ts(40))
    for place, some in enumerate((("id", "b"), ("*", "!id"), ())):
        summary = once(bucket, mariadb, config=config(*some, header=bool(header)), state_schema=f"state{place}")
        assert summary.halted == ()
        assert content(mariadb, TABLE) == [(1, "x", "y", 3)]
        mariadb.query("DROP DATABASE s")


def test_rows_without_names(bucket: SmallBucket, mariadb: DatabaseServer, spark: SparkSession) -> None:
    """They are read by the selectors only if somebody vouches for these very ones: with others, of as many columns, the table halts again."""
    create(bucket)
    write(bucket, 1, ("I", 10, {"id": 1, "a": "x", "b": "y", "n": 3}))
    many = [(key, f"in a{key}", None, 7) for key in range(2, 3000)]
    write(bucket, 2, *(("I", 20, {"id": key, "a": a}) for key, a, _, _ in many))
    bucket.metadata(ts(30))
    # Without the file nothing says that columns may be lacking.
    with consumer(bucket, mariadb, config=config()) as running:
        error = of(running.run_once(), TABLE).error or ""
    assert "[[sink.column-selectors]], with --config" in error
    error = of(once(bucket, mariadb, config=config("id", "a")), TABLE).error or ""
    assert "it has 2 values, s.t has 4 columns (id, a, b, n)" in error
    assert "they would be id, a" in error
    assert "output-field-header = true" in error
    assert "CDC00000000000000000002.csv: row 1 at byte 0, commit ts" in error
    assert once(bucket, mariadb, config=config("id", "a"), **vouched(error)).halted == ()
    assert content(mariadb, TABLE) == [(1, "x", "y", 3), *many]
    write(bucket, 3, ("I", 40, {"id": 1, "b": "in b"}))
    bucket.metadata(ts(50))
    changed = once(bucket, mariadb, config=config("id", "b"), **vouched(error))
    assert vouched(of(changed, TABLE).error or "") != vouched(error)
    assert content(mariadb, TABLE) == [(1, "x", "y", 3), *many]
    with pytest.raises(NotReplicable, match="--headerless-selectors"):
        read_changes(bucket.uri, TABLE, config=config("id", "b"), tz="UTC", **vouched(error)).read_all()


@WITH_NAMES
def test_what_no_row_may_lack(bucket: SmallBucket, mariadb: DatabaseServer, spark: SparkSession) -> None:
    """A row without a column of some unique key halts its table: nothing would tell it from other rows, or it would push one out."""
    create(bucket, f"{BODY}, UNIQUE KEY (b)")
    write(bucket, 1, ("I", 10, {"id": 1, "a": "x"}), header=True)
    write(bucket, 2, ("I", 11, {"a": "x", "b": "y"}), header=True)
    bucket.metadata(ts(30))
    assert "lacks the column b" in (of(once(bucket, mariadb, config=config("id", "a", header=True)), TABLE).error or "")
    assert content(mariadb, TABLE) == []


@WITH_NAMES
def test_no_key(bucket: SmallBucket, mariadb: DatabaseServer, spark: SparkSession) -> None:
    """Rows of a table without a key are found by what they have."""
    free = (column("id", "INT"), *COLUMNS[1:])
    create(bucket, BODY.replace(" PRIMARY KEY", ""), free)
    write(bucket, 1, *(("I", 10 + n, {"id": n % 3, "a": "x"}) for n in range(30)), header=True)
    write(bucket, 2, *(("D", 50 + n, {"id": 1, "a": "x"}) for n in range(9)), header=True)
    write(bucket, 3, ("D", 70, {"id": 2}), header=True)
    bucket.metadata(ts(45))
    assert once(bucket, mariadb, config=config("id", "a", header=True)).halted == ()
    bucket.metadata(ts(80))
    assert once(bucket, mariadb, config=config("id", header=True)).halted == ()
    assert content(mariadb, TABLE) == [(0, "x", None, 7)] * 10 + [(1, "x", None, 7)] + [(2, "x", None, 7)] * 9


@WITH_NAMES
def test_a_column_that_the_target_lacks(bucket: SmallBucket, mariadb: DatabaseServer, spark: SparkSession) -> None:
    """A column that the selectors leave out may be missing in the target, whether or not rows have it."""
    create(bucket)
    bucket.metadata(ts(5))
    once(bucket, mariadb, config=config("*", "!a", header=True))
    mariadb.query("ALTER TABLE s.t DROP COLUMN a")
    write(bucket, 1, ("I", 10, {"id": 1, "a": "x", "b": "y", "n": 3}), header=True)
    write(bucket, 2, ("I", 20, {"id": 2, "b": "z", "n": 4}), header=True)
    bucket.metadata(ts(30))
    assert once(bucket, mariadb, config=config("*", "!a", header=True)).halted == ()
    assert content(mariadb, TABLE) == [(1, "y", 3), (2, "z", 4)]


@WITH_NAMES
def test_any_history(bucket: SmallBucket, mariadb: DatabaseServer, spark: SparkSession) -> None:
    """Rows with changing columns, in files small and large and windows of any length: each has what its last row had, the rest is the default."""
    chance = random.Random(5)  # noqa: S311 - not for secrets
    create(bucket)
    rows: dict[int, dict[str, object]] = {}
    tick = 2
    chosen: tuple[str, ...] = NAMES
    for number in range(1, 25):
        if number % 3 == 0:
            chosen = ("id", *(name for name in NAMES[1:] if chance.random() < 0.5))
        events = []
        for _ in range(chance.choice((1, 5, 2000))):
            tick += 1
            key = chance.randrange(40)
            values = {"id": key, "a": f"a{tick}\t\\D", "b": chance.choice((None, "\\D", "b")), "n": tick}
            image = {name: values[name] for name in chosen}
            gone = chance.random() < 0.2 and key in rows
            events.append(("D" if gone else "U" if key in rows else "I", tick, image))
            rows.pop(key, None) if gone else rows.update({key: {**DEFAULTS, **image}})
        write(bucket, number, *events, header=True)
        if chance.random() < 0.3:
            bucket.metadata(ts(tick))
            assert once(bucket, mariadb, config=config("id", "b", header=True)).halted == ()
            assert content(mariadb, TABLE) == sorted(tuple(one[name] for name in NAMES) for one in rows.values())
    bucket.metadata(ts(tick))
    assert once(bucket, mariadb, config=config("id", "b", header=True)).halted == ()
    assert content(mariadb, TABLE) == sorted(tuple(one[name] for name in NAMES) for one in rows.values())
