"""Tables with few rows share a transaction: on every server it is all or nothing, behind the fence, and one commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace

import pytest

from storage_consumer.checkpoint.store import StateStore
from storage_consumer.config.settings import Downstream
from storage_consumer.errors import LeaseLost, RowRefused
from storage_consumer.model import TableName
from storage_consumer.rows.spec import JobSpec, TablePlan
from storage_consumer.target.bucket_writer import TargetWriter
from tests.contract.state_rigs import BUCKET, fenced_spec
from tests.harness.servers import KINDS, DatabaseServer
from tests.unit.halves import as_runs, table

TABLES = 3
Writer = Callable[[JobSpec], TargetWriter]

pytestmark = pytest.mark.server


def works() -> list[TablePlan]:
    """The tables' works."""
    return [replace(table(index=n), name=TableName(schema="shop", table=f"t{n}")) for n in range(TABLES)]


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest) -> DatabaseServer:
    """A server with the tables."""
    found: DatabaseServer = request.getfixturevalue(request.param)
    found.query("CREATE DATABASE shop CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    for work in works():
        found.query(f"CREATE TABLE shop.{work.name.table} (c0 VARCHAR(20) PRIMARY KEY, c1 VARCHAR(20))")
    return found


@pytest.fixture
def spec(server: DatabaseServer) -> Iterator[JobSpec]:
    """A job with an open window."""
    with closing(StateStore(Downstream(port=server.port), "")) as state:
        state.open(BUCKET)
        state.lease.acquire("me", 30)
        yield fenced_spec(
            Downstream(port=server.port),
            epoch=state.lease.epoch,
            window_id=state.lease.open_window(1, 0),
            load_data=server.kind != "mysql",
        )


@pytest.fixture
def writer() -> Iterator[Writer]:
    """What makes a writer, which is closed at the end."""
    with ExitStack() as stack:

        def new(spec: JobSpec) -> TargetWriter:
            return stack.enter_context(closing(TargetWriter(spec, "", 0)))

        yield new


def rows(server: DatabaseServer) -> list[set[tuple[str, ...]]]:
    """What each table holds."""
    return [set(server.query(f"SELECT c0, c1 FROM shop.{work.name.table}")) for work in works()]


def test_one_transaction(server: DatabaseServer, spec: JobSpec, writer: Writer) -> None:
    """Each table's deletes go before its upserts, and its rows are counted; another try changes nothing."""
    first, second, third = works()
    for _ in range(2):
        target = writer(spec)
        assert target.write_together([(first, as_runs([], [b"a\t1", b"b\t2"])), (second, as_runs([], [b"c\t3"]))])[
            1:
        ] == [1]
        assert target.write_together(
            [(first, as_runs([b"a"], [b"b\t4"])), (second, as_runs([b"x"], [])), (third, as_runs([], [b"d\t5"]))]
        )
        assert rows(server) == [{("b", "4")}, {("c", "3")}, {("d", "5")}]


def test_all_or_nothing(server: DatabaseServer, spec: JobSpec, writer: Writer) -> None:
    """Where a row of one table is refused, no other table has been written."""
    first, second, third = works()
    long = b"b\t" + b"y" * 30
    with pytest.raises(RowRefused, match=r"shop\.t1"):
        writer(spec).write_together(
            [(first, as_runs([], [b"a\t1"])), (second, as_runs([], [long])), (third, as_runs([], [b"c\t1"]))]
        )
    assert rows(server) == [set()] * TABLES


def test_fence(server: DatabaseServer, spec: JobSpec, writer: Writer) -> None:
    """A task of another window writes no table."""
    first, second, _ = works()
    with pytest.raises(LeaseLost):
        writer(replace(spec, window_id=spec.window_id + 1)).write_together(
            [(first, as_runs([], [b"a\t1"])), (second, as_runs([], [b"b\t1"]))]
        )
    assert rows(server) == [set()] * TABLES
