"""Exports of tables that routes send elsewhere: their rows come to where those of their changes do."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.harness.servers import KINDS, DatabaseServer
from tests.harness.small_bucket import SmallBucket, row, ts
from tests.harness.small_export import export
from tests.integration.rounds import once

pytestmark = [pytest.mark.server, pytest.mark.spark]


@pytest.mark.parametrize("kind", KINDS)
def test_a_feed_that_begins_with_an_export(
    kind: str, tmp_path: Path, spark: SparkSession, request: pytest.FixtureRequest
) -> None:
    """The database of the route is created, a later start finds the rows there, and nothing comes to the table's own name."""
    server: DatabaseServer = request.getfixturevalue(kind)
    bucket, full = SmallBucket(root=tmp_path / "bucket"), export(tmp_path / "full", 10, {"t": ["(1,'copy')"]})
    bucket.create("d.t")

    def changed(number: int, tick: int) -> None:
        bucket.rows("d.t", number, row("d.t", tick, str(number + 1), '"new"'))
        bucket.metadata(ts(tick))
        routes = ['{matcher = ["d.*"], target-schema = "depot"}']
        assert not once(bucket, server, tz="UTC", dump=full.as_uri(), start_ts=ts(1), route=routes).halted

    changed(1, 20)
    assert set(server.query("SELECT id, name FROM depot.t")) == {(1, "copy"), (2, "new")}
    changed(2, 40)
    assert set(server.query("SELECT id, name FROM depot.t")) == {(1, "copy"), (2, "new"), (3, "new")}
    assert server.query("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'd'") == ((0,),)
