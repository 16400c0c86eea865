"""TIMESTAMP values of the hour that occurs twice in autumn, by which rows are told apart: the files do not say which row is meant."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, column, row, ts
from tests.integration.rounds import content, of, once

pytestmark = [pytest.mark.server, pytest.mark.spark]
TABLE, NAMES, ZONE = "d.t", ("id", "at", "v"), "America/New_York"
TWICE, LATER = '"2025-11-02 01:30:00"', '"2025-11-02 02:00:00"'
KEYS = ("PRIMARY KEY (`at`)", "PRIMARY KEY (`id`, `at`)", "UNIQUE KEY (`at`)")


def fill(bucket: SmallBucket, key: str) -> None:
    """A table with such a key, and a row of before that hour."""
    parts = [name in key and "PRIMARY" in key for name in ("`id`", "`at`")]
    columns = (column("id", "INT", key=parts[0]), column("at", "TIMESTAMP", key=parts[1]), column("v", "INT"))
    bucket.schema("d", ts(0), "CREATE DATABASE `d`", 1)
    null = "" if "PRIMARY" in key else " NULL"
    create = f"CREATE TABLE `t` (`id` INT{null}, `at` TIMESTAMP{null}, `v` INT{', ' if key else ''}{key})"
    bucket.schema(TABLE, ts(1), create, 3, columns)
    bucket.rows(TABLE, 1, row(TABLE, 5, "1", LATER, "1", names=NAMES))


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("bucket", ["csv", "canal-json"], indirect=True)
def test_of_a_key(bucket: SmallBucket, mariadb: DatabaseServer, spark: SparkSession, key: str) -> None:
    """The table halts at the first one, before a row takes another one's place; the error has the value, the zone and the next step."""
    fill(bucket, key)
    bucket.rows(TABLE, 2, *(row(TABLE, 5 + n, "1", TWICE, str(n), names=NAMES) for n in (2, 3)))
    bucket.metadata(ts(20))
    error = of(once(bucket, mariadb, tz=ZONE), TABLE).error or ""
    assert "2025-11-02 01:30:00' occurred twice in America/New_York" in error
    assert "column at" in error
    assert f"CDC{2:020d}" in error
    assert "storage-consumer load" in error
    assert len(content(mariadb, TABLE)) <= 1


@pytest.mark.parametrize(("key", "zone"), [("", ZONE), ("PRIMARY KEY (`id`)", ZONE), *((key, "UTC") for key in KEYS)])
@pytest.mark.parametrize("bucket", ["csv", "canal-json"], indirect=True)
def test_of_no_key_or_in_utc(
    bucket: SmallBucket, mariadb: DatabaseServer, spark: SparkSession, key: str, zone: str
) -> None:
    """Such a value stops nothing where rows are told apart by other columns, or where no time occurs twice."""
    fill(bucket, key)
    bucket.rows(TABLE, 2, row(TABLE, 7, "2", TWICE, "2", names=NAMES))
    bucket.metadata(ts(20))
    assert of(once(bucket, mariadb, tz=zone), TABLE).error == ""
    assert len(content(mariadb, TABLE)) == 2
