"""Tables that exchange their names: each file is read by the structure of the table that it belongs to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from storage_consumer import read_changes
from storage_consumer.changes.window import FeedStatement
from storage_consumer.model import TableName
from storage_consumer.spark.source.ticdc import TicdcDataSource
from tests.harness.small_bucket import SmallBucket, column, row, ts
from tests.harness.tables_at import found_at, read_at
from tests.unit.changes.building import feed_of, loaded_of

ID, N, G = column("id", "INT", key=True), column("n", "INT"), column("g", "INT")
GENERATED = "`id` INT PRIMARY KEY, `n` INT, `g` INT GENERATED ALWAYS AS (`id` + 1) VIRTUAL"
OTHERWISE = "`id` INT PRIMARY KEY, `n` INT GENERATED ALWAYS AS (`id` + 1) VIRTUAL, `g` INT"
PLAIN = "`id` INT PRIMARY KEY, `n` INT"


def make(bucket: SmallBucket, name: str, body: str, tick: int, *names: str, values: tuple[str, ...] = ()) -> None:
    """A table with one row."""
    columns = (ID, N, G) if "`g`" in body else (ID, N)
    bucket.schema(f"d.{name}", ts(tick), f"CREATE TABLE `{name}` ({body})", 3, columns)
    if values:
        bucket.rows(f"d.{name}", 1, row(f"d.{name}", 10, *values, names=names), version=ts(tick))


def exchanged(bucket: SmallBucket, a: str, b: str) -> None:
    """What the new architecture stores of RENAME TABLE a TO c, b TO a, c TO b: two of its parts have one path, so the first is lost."""
    columns = {body: (ID, N, G) if "`g`" in body else (ID, N) for body in (a, b)}
    bucket.schema("d.a", ts(20), "RENAME TABLE `d`.`b` TO `d`.`a`;", 14, columns[b])
    bucket.schema("d.b", ts(20), "RENAME TABLE `d`.`c` TO `d`.`b`;", 14, columns[a])


def rows_of(bucket: SmallBucket, table: str) -> list[tuple[object, ...]]:
    """The rows of a table's changes."""
    found = read_changes(bucket.uri, table, tz="UTC", include_commit_ts=True).read_all().to_pylist()
    return [tuple(each[name] for name in ("id", "n", "g") if name in each) for each in found]


def with_generated(bucket: SmallBucket) -> None:
    """A table with a virtual column, and one without."""
    make(bucket, "a", GENERATED, 1, "id", "n", values=("1", "11"))
    make(bucket, "b", PLAIN, 2, "id", "n", values=("2", "12"))
    exchanged(bucket, GENERATED, PLAIN)
    bucket.rows("d.a", 1, row("d.a", 30, "3", "13", names=("id", "n")), version=ts(20))
    bucket.rows("d.b", 1, row("d.b", 30, "4", "14", names=("id", "n")), version=ts(20))


def with_as_many_values(bucket: SmallBucket) -> None:
    """Three tables of equal columns, another one of which is virtual in each; that with the temporary name is gone before."""
    make(bucket, "c", OTHERWISE, 1, "id", "g", values=("9", "99"))
    bucket.schema("d.c", ts(11), "DROP TABLE `c`", 4, (ID, N, G))
    make(bucket, "a", GENERATED, 2, "id", "n", values=("1", "11"))
    make(bucket, "b", OTHERWISE, 3, "id", "g", values=("2", "22"))
    exchanged(bucket, GENERATED, OTHERWISE)
    bucket.rows("d.a", 1, row("d.a", 30, "3", "33", names=("id", "g")), version=ts(20))
    bucket.rows("d.b", 1, row("d.b", 30, "4", "14", names=("id", "n")), version=ts(20))


@pytest.mark.parametrize("protocol", ["csv", "canal-json"])
@pytest.mark.parametrize(
    ("fill", "a", "b"),
    [
        (with_generated, [(1, 11), (3, 13)], [(2, 12), (4, 14)]),
        (with_as_many_values, [(1, 11, None), (3, None, 33)], [(2, None, 22), (4, 14, None)]),
    ],
)
def test_a_swap(
    tmp_path: Path,
    protocol: str,
    fill: Callable[[SmallBucket], None],
    a: list[tuple[object, ...]],
    b: list[tuple[object, ...]],
) -> None:
    """The part of it that no file holds is inferred: for rows, for what a table was at a moment, and among the statements."""
    bucket = SmallBucket(root=tmp_path, protocol="csv" if protocol == "csv" else "canal-json")
    bucket.schema("d", ts(0), "CREATE DATABASE `d`", 1)
    fill(bucket)
    bucket.metadata(ts(40))
    assert (rows_of(bucket, "d.a"), rows_of(bucket, "d.b")) == (a, b)
    loaded = loaded_of(bucket)
    at = {name: read_at(found_at(loaded, TableName(schema="d", table=name), ts(40))) for name in "ab"}
    assert {name: sorted(each["id"] for each in found) for name, found in at.items()} == {"a": [2, 3], "b": [1, 4]}
    texts = [each.definition.query for each in feed_of(bucket).events(0, ts(40)) if isinstance(each, FeedStatement)]
    assert [text for text in texts if "RENAME" in text] == [
        "RENAME TABLE `d`.`a` TO `d`.`c`",
        "RENAME TABLE `d`.`b` TO `d`.`a`;",
        "RENAME TABLE `d`.`c` TO `d`.`b`;",
    ]


def test_a_swap_by_a_third_name(tmp_path: Path) -> None:
    """A name that a table had only meanwhile has no structure: it is no table of its own, whichever database it was in."""
    bucket = SmallBucket(root=tmp_path)
    for database in "de":
        bucket.schema(database, ts(0), f"CREATE DATABASE `{database}`", 1)
    make(bucket, "m", PLAIN, 1, "id", "n", values=("1", "11"))
    bucket.schema("e.l", ts(2), "CREATE TABLE `l` (`id` INT PRIMARY KEY, `n` INT, `g` INT)", 3, (ID, N, G))
    bucket.rows("e.l", 1, row("e.l", 10, "2", "12", "13"), version=ts(2))
    bucket.schema("e.l", ts(20), "RENAME TABLE `d`.`tmp` TO `e`.`l`;", 14, (ID, N))
    bucket.schema("d.l", ts(20), "RENAME TABLE `d`.`m` TO `d`.`tmp`;", 14, (ID, N))
    bucket.schema("d.m", ts(20), "RENAME TABLE `e`.`l` TO `d`.`m`;", 14, (ID, N, G))
    bucket.rows("d.m", 1, row("d.m", 30, "3", "13", "14"), version=ts(20))
    bucket.rows("e.l", 1, row("e.l", 30, "4", "14"), version=ts(20))
    bucket.metadata(ts(40))
    assert rows_of(bucket, "d.m") == [(1, 11, None), (3, 13, 14)]
    assert rows_of(bucket, "e.l") == [(2, 12, 13), (4, 14, None)]


def test_sequence_of_a_swap(tmp_path: Path) -> None:
    """Each statement of a swap has a place of its own in the Spark source, and they sort as they ran, whatever file holds them."""
    bucket = SmallBucket(root=tmp_path)
    bucket.schema("d", ts(0), "CREATE DATABASE `d`", 1)
    with_generated(bucket)
    bucket.metadata(ts(40))
    source = TicdcDataSource({"path": bucket.uri, "tz": "UTC"})
    reader = source.reader(source.schema())
    read = [batch for part in reader.partitions() for batch in reader.read(part)]
    rows = [row for batch in read if isinstance(batch, pa.RecordBatch) for row in batch.to_pylist()]
    renames = [row for row in rows if "RENAME" in (row["statement"] or "")]
    texts = [row["statement"] for row in sorted(renames, key=lambda row: tuple(row["_sequence"].values()))]
    assert [text.split()[-1].strip("`;") for text in texts] == ["d`.`c", "d`.`a", "d`.`b"]
    assert len({(row["_file"], row["_row"]) for row in renames}) == len(renames)
