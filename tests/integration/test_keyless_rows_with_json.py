"""Tables without a key whose rows hold JSON: an update finds its row by a unique key that may be NULL."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, column, row, ts
from tests.integration.rounds import of, once

pytestmark = [pytest.mark.server, pytest.mark.spark]
TABLE, NAMES = "d.t", ("u", "j", "v")
COLUMNS = (column("u", "INT"), column("j", "JSON"), column("v", "INT"))


def test_an_update_takes_the_place_of_its_row(bucket: SmallBucket, server: DatabaseServer, spark: SparkSession) -> None:
    """The former row is found by the server, though no variable holds a JSON value as such."""
    bucket.schema("d", ts(0), "CREATE DATABASE `d`", 1)
    bucket.schema(TABLE, ts(1), "CREATE TABLE `t` (`u` INT UNIQUE, `j` JSON, `v` INT)", 3, COLUMNS)
    bucket.rows(TABLE, 1, *(row(TABLE, 5, str(n), '"{""a"": [1, 2.5, ""x""]}"', "1", names=NAMES) for n in (1, 2)))
    bucket.metadata(ts(10))
    assert once(bucket, server, tz="UTC").halted == ()
    bucket.rows(TABLE, 2, row(TABLE, 15, "1", '"{""a"": 7}"', "2", operation="U", names=NAMES))
    bucket.metadata(ts(20))
    assert of(once(bucket, server, tz="UTC"), TABLE).error == ""
    assert sorted(server.query("SELECT u, v FROM d.t")) == [(1, 2), (2, 1)]
