"""A target's table that somebody changed by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage_consumer.config.settings import CsvOptions, Upstream
from storage_consumer.errors import NotReplicable
from storage_consumer.model import TableColumn
from storage_consumer.rows.fitting import TargetColumn
from storage_consumer.rows.match import altered, table_work
from tests.unit.rows.test_match import col, source, step, table, there, unique

UPSTREAM = Upstream(scheme="file", root="/b", protocol="csv", csv=CsvOptions(include_commit_ts=True), time_zone="UTC")


@pytest.mark.parametrize(
    ("kind", "data_type", "fits"),
    [
        ("VARCHAR", "int", False),
        ("INT", "varchar", False),
        ("DATETIME", "varchar", False),
        ("BLOB", "text", False),
        ("TIME", "datetime", False),
        ("INT", "bigint", True),
        ("DECIMAL", "decimal", True),
        ("JSON", "longtext", True),
        ("VARBINARY", "blob", True),
        ("DATETIME", "datetime", True),
        ("VECTOR", "longtext", True),
    ],
)
def test_types_of_another_sort(kind: str, data_type: str, *, fits: bool) -> None:
    """A column that somebody gave another sort of type in the target stops its table: 007 would become 7 there."""
    target = table(there("id", data_type="int"), there("v", data_type=data_type), keys=(unique("id"),))
    row_step = step(source(col("id", pk=True), col("v", kind)))
    if fits:
        assert table_work(0, row_step, target, UPSTREAM).written
    else:
        with pytest.raises(
            NotReplicable, match=rf"columns of another type: v is {data_type} in the target, {kind} at the source"
        ):
            table_work(0, row_step, target, UPSTREAM)


def test_view() -> None:
    """Nothing is written through a view, with a key or without: its rows are in other tables."""
    target = replace(table(there("id", data_type="int"), keys=()), is_view=True)
    for is_pk in (True, False):
        with pytest.raises(NotReplicable, match=r"s\.t: .* is a view in the target"):
            table_work(0, step(source(col("id", pk=is_pk))), target, UPSTREAM)


def test_keys_that_somebody_added() -> None:
    """What was added to a table's keys by hand stops it, and is told with the way out."""
    target = replace(table(there("id", data_type="int"), keys=(unique("id"),)), key_drift="unique key over `v`")
    with pytest.raises(NotReplicable, match=r"s\.t: somebody changed .*unique key over `v`.*Undo the change"):
        table_work(0, step(source(col("id", pk=True))), target, UPSTREAM)


@pytest.mark.parametrize(
    ("column", "own", "why"),
    [
        (col("v", "VARCHAR", precision=80), there("v", data_type="varchar", length=80), ""),
        (col("v", "VARCHAR", precision=80), there("v", data_type="varchar", length=20), "has less room in v"),
        (col("v", "VARCHAR", precision=60), there("v", data_type="tinytext", length=255), ""),
        (col("v", "MEDIUMTEXT"), there("v", data_type="text", length=65_535), "has less room in v"),
        (col("v", "VARCHAR"), there("v", data_type="varchar", length=20), ""),
        (col("v", "BIGINT"), there("v", data_type="int"), "has less room in v"),
        (col("v", "INT"), there("v", data_type="bigint"), ""),
        (col("v", "DECIMAL", precision=10), there("v", data_type="decimal", digits=0), ""),
        (
            replace(col("v", "DECIMAL", precision=10), scale=2),
            there("v", data_type="decimal", digits=0),
            "has less room in v",
        ),
        (replace(col("v", "DATETIME"), scale=6), there("v", data_type="datetime", digits=0), "has less room in v"),
        (col("v", "VARCHAR", precision=9), there("v", data_type="int"), "is another one"),
        (col("v", "INT"), there("w", data_type="int"), "lacks the column v"),
        (col("_tidb_softdelete_time", "TIMESTAMP"), there("w", data_type="int"), ""),
    ],
)
def test_what_may_have_been_lost(column: TableColumn, own: TargetColumn, why: str) -> None:
    """A column that is gone or narrower in the target may have lost values; one that the source's rows do not need has not."""
    target = table(there("id", data_type="int"), own, keys=(unique("id"),))
    assert altered(source(col("id", pk=True), column), target, UPSTREAM).startswith(why)
    assert bool(altered(source(col("id", pk=True), column), target, UPSTREAM)) == bool(why)
