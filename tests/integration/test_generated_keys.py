"""Exports of tables whose primary key the server computes, wholly or in part: their rows lack those columns."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import CREATE_TABLE, SmallBucket, column, row, ts
from tests.harness.small_export import export
from tests.integration.rounds import once

pytestmark = [pytest.mark.server, pytest.mark.spark]
_BODY = "  `id` int NOT NULL,\n  `name` varchar(20) DEFAULT NULL,\n  `g` int GENERATED ALWAYS AS (`id` + 100) STORED NOT NULL,\n  PRIMARY KEY ({})"


@pytest.mark.parametrize("key", ["`g`", "`id`,`g`"], ids=["wholly", "in part"])
def test_a_copy_and_the_changes_after_it(server: DatabaseServer, key: str, tmp_path: Path, spark: SparkSession) -> None:
    """The copy is loaded once, and changes after it find its rows."""
    bucket = SmallBucket(root=tmp_path / "bucket")
    full = export(tmp_path / "full", 10, {"t": ["(1,'copy'),\n(2,'copy')", "(3,'copy')"]}, body=_BODY.format(key))
    columns = (
        column("id", "INT", ColumnIsPk="true", ColumnNullable="false")
        if "id" in key
        else column("id", "INT", ColumnNullable="false"),
        column("name", "VARCHAR", ColumnPrecision="20"),
        column("g", "INT", ColumnIsPk="true", ColumnNullable="false"),
    )
    bucket.schema("d.t", ts(1), f"CREATE TABLE `t` (\n{_BODY.format(key)}\n)", CREATE_TABLE, columns)
    bucket.rows(
        "d.t", 1, row("d.t", 12, "1", '"new"', "101", operation="D"), row("d.t", 15, "4", '"new"', "104"), version=ts(1)
    )
    bucket.metadata(ts(20))
    for _ in range(2):
        assert not once(bucket, server, tz="UTC", dump=full.as_uri(), start_ts=ts(1)).halted
        found = sorted(server.query("SELECT id, name FROM d.t"))
        assert found == [(2, "copy"), (3, "copy"), (4, "new")]
