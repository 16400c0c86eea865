"""Some lines of the table of faults, of each kind; ``python -m tests.campaigns.faults`` shows them all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.campaigns.faults import spark, stores, target
from tests.campaigns.faults.connections import lost_connections, sampled
from tests.campaigns.faults.trial import Fault, World
from tests.campaigns.faults.wire import Wire
from tests.harness.faulty_proxy import FaultyProxy, without_new
from tests.harness.s3_server import S3Server
from tests.harness.servers import DatabaseServer
from tests.harness.servers import mariadb as own_mariadb

pytestmark = [pytest.mark.server, pytest.mark.alone, pytest.mark.spark, pytest.mark.usefixtures("spark")]
OF_TARGET = {
    "server killed and started again": "before a DDL",
    "lock wait that ends": "a row of another transaction",
    "lock wait for longer than --retry-limit": "a row of another transaction",
}
OF_STORES = {
    "S3 answers 503 SlowDown for a while": "data files",
    "S3 bodies cut short for ever": "listing",
    "S3 bodies cut short, with a length that fits for a while": "data files",
    "a page for people in place of S3's answer for ever": "listing",
    "a page for people in place of S3's answer for a while": "data files",
}
OF_SPARK = {
    "Python workers killed": "while rows are written",
    "poisoned table: a value that the target refuses": "data file",
}


@pytest.fixture(scope="module")
def server() -> Iterator[DatabaseServer]:
    """One that keeps what it has committed when it is killed."""
    with own_mariadb(options=target.OPTIONS["mariadb"]) as found:
        yield found


@pytest.fixture
def world(server: DatabaseServer, tmp_path: Path) -> Iterator[World]:
    """The server behind a wire."""
    with Wire(server.port) as wire:
        yield World(server=server, wire=wire, folder=tmp_path)


def kept(fault: Fault, world: World) -> None:
    """A fault's line is as promised."""
    line = fault(world)
    assert line.kept, str(line)


def test_lost_connections(world: World) -> None:
    """A connection that is lost before or after any command costs another try and nothing else."""
    lines = list(lost_connections(world, 2, 1))
    assert [line for line in lines if not line.kept] == []
    assert [" of " in line.where for line in lines] == [True, True]


@pytest.mark.parametrize(
    "fault", [f for f in target.faults() if OF_TARGET.get(f.name) == f.where], ids=lambda f: f.name
)
def test_target(fault: Fault, world: World) -> None:
    """A target that is away for a moment is waited for; a lock that stays ends the run, and the next start goes on."""
    kept(fault, world)


@pytest.mark.parametrize("name", OF_STORES)
def test_stores(name: str, world: World, s3: S3Server) -> None:
    """Answers that are refused or cut short are asked for again, and end the run where they stay so."""
    with FaultyProxy(s3.endpoint) as proxy:
        store = stores.Store(server=s3, proxy=proxy, buckets=1_000)
        (fault,) = (f for f in stores.faults(store) if (f.name, f.where) == (name, OF_STORES[name]))
        kept(fault, world)


@pytest.mark.parametrize("fault", [f for f in spark.faults() if OF_SPARK.get(f.name) == f.where], ids=lambda f: f.name)
def test_spark(fault: Fault, world: World) -> None:
    """Workers that are killed cost another try; a row that the target refuses halts its table alone."""
    kept(fault, world)


def test_line_that_is_not_as_promised(world: World) -> None:
    """A fault that the workload never meets, and an error that is not the promised one, are shown as such."""
    never = Fault(name="n", where="w", around=lambda world: target.at(world, "no such command", target.restarted))
    line = never(world)
    assert (line.kept, line.equal) == (False, False)
    assert "no command was like" in line.outcome
    other = Fault(
        name="n", where="w", around=lambda world: target.at(world, target.AT_ROWS, target.restarted), ends="x"
    )
    assert "**not as promised**" in str(other(world))


def test_instants_are_spread() -> None:
    """Few commands are taken from each part of a run, fewer of those that only set a session up; all where none are named."""
    came = ["SET SESSION a"] * 50 + ["COMMIT"] * 50
    chosen = sampled(came, 10, 0)
    assert len(chosen) == 10
    assert sum(at <= 50 for at in chosen) == 2
    assert sampled(came, 0, 0) == list(range(1, 101))


def test_old_listing() -> None:
    """Of a listing what is not known is left out: keys, and folders in which nothing is known."""
    listing = b"<L><Contents><Key>a/1</Key></Contents><Contents><Key>a/2</Key></Contents></L>"
    assert without_new(listing, {"a/1"}) == b"<L><Contents><Key>a/1</Key></Contents></L>"
    folders = (
        b"<CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes><CommonPrefixes><Prefix>b/</Prefix></CommonPrefixes>"
    )
    assert without_new(folders, {"a/1"}) == b"<CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes>"
