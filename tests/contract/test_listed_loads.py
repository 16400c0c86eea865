"""Requests for loads, and their list: how far they are, and how fast the consumer is meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from storage_consumer import ConfigError, Consumer
from storage_consumer.cli.endings import answered
from storage_consumer.model import TableName
from storage_consumer.plan.loads import Load, LoadPhase, end_of
from storage_consumer.plan.steps import key_of
from storage_consumer.watch.report import Minute, Phase, Report
from tests.contract.state_rigs import Rig, real_rig
from tests.harness.servers import DatabaseServer

pytestmark = pytest.mark.server
NAME = TableName(schema="shop", table="a")
LOAD = Load(
    table_key=key_of(NAME),
    name=NAME,
    load_id="one",
    source="s3://bucket/full",
    identity="abc",
    low=5,
    high=5,
    phase=LoadPhase.LOADING,
    done=end_of(1),
    parts=3,
    size=1 << 20,
)
MINUTE = Minute(minute=10_000, checkpoint=1, checkpoint_running=2, storage_checkpoint=3, row_changes=4, statements=5)


@pytest.fixture
def rig(mariadb: DatabaseServer) -> Iterator[Rig]:
    """A state."""
    found = real_rig(mariadb)
    yield found
    found.close()


def listed(server: DatabaseServer, *, as_json: bool = False) -> str:
    """What the command shows."""
    more = {"json": "true"} if as_json else {}
    return answered("load", {"downstream_uri": server.uri, **more}, {}).text


@pytest.mark.parametrize(("phase", "rate"), [(Phase.APPLYING, 41_234.6), (Phase.IDLE, None)])
def test_the_rate_of_a_consumer_at_work(mariadb: DatabaseServer, rig: Rig, phase: Phase, rate: float | None) -> None:
    """It is shown while the consumer reads rows, and not as what it was before a pause."""
    owner = rig.owner()
    owner.loads.begin([LOAD], by="me")
    report = Report(version="1", started_at=1.5, phase=phase, since=2.5, rows_per_second=41_234.6)
    owner.reports.save(report.to_json(), MINUTE)
    text = listed(mariadb)
    assert "shop.a  loading  1 of 3 files (1.0 MiB)" in text
    assert ("reads 41,235 rows/s" in text) == (rate is not None)
    found = json.loads(listed(mariadb, as_json=True))
    assert ([load["table"] for load in found["loads"]], found["rows_per_second"]) == (["shop.a"], rate)


def test_no_rate_without_a_load(mariadb: DatabaseServer, rig: Rig) -> None:
    """What the consumer does to other tables is no news here."""
    report = Report(version="1", started_at=1.5, phase=Phase.APPLYING, since=2.5, rows_per_second=9.0)
    rig.owner().reports.save(report.to_json(), MINUTE)
    assert listed(mariadb) == "no table is being loaded\n"


def test_a_request_from_python(mariadb: DatabaseServer, rig: Rig) -> None:
    """It is stored and listed; a table that is being loaded, words that name no table, and a zone that there is not are refused."""
    rig.owner().loads.begin([LOAD], by="me")
    with Consumer(upstream_uri="file:///nowhere?protocol=csv", downstream_uri=mariadb.uri, tz="UTC") as consumer:
        stored = consumer.load("shop.b", "s3://bucket/later", dump_tz="UTC", replace=True)
        assert (stored.name, stored.phase, stored.replaces) == (replace(NAME, table="b"), LoadPhase.REQUESTED, True)
        assert stored in consumer.status(needs_writer=False).snapshot.loads
        for table, zone, why in (
            ("shop.a", "", "is being loaded from s3://bucket/full"),
            ("shop", "", "database.table is expected"),
            ("shop.b", "Mars/Crater", "Mars/Crater"),
        ):
            with pytest.raises(ConfigError, match=why):
                consumer.load(table, "s3://bucket/later", dump_tz=zone)
    assert "s3://bucket/later?time-zone=UTC" in listed(mariadb)
