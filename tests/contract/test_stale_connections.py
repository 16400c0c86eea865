"""Those who were here before: a paused process, or one behind a broken network, still has connections that hold locks on the state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pymysql
import pytest

from storage_consumer.checkpoint import transactions
from storage_consumer.config.settings import Downstream
from storage_consumer.errors import LeaseLost, TargetUnavailable
from storage_consumer.target.connection import Connection, connect
from storage_consumer.target.database import TargetDatabase
from storage_consumer.target.session_settings import mark
from tests.contract.state_rigs import BUCKET, Rig, real_rig
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import ts

pytestmark = pytest.mark.server
_SLOT = "SELECT * FROM storage_consumer.slots WHERE slot = 1 FOR UPDATE"
_LEASE = "SELECT * FROM storage_consumer.lease FOR UPDATE"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "LOCK_WAIT", 2)


@pytest.fixture
def rig(server: DatabaseServer) -> Iterator[Rig]:
    """The state on that server."""
    made = real_rig(server)
    yield made
    made.close()


@contextmanager
def paused(
    server: DatabaseServer, lock: str, schema: str = "storage_consumer", user: str = "root"
) -> Iterator[Connection]:
    """A connection of the program that holds a lock in an open transaction and says nothing more."""
    with connect(Downstream(port=server.port, user=user), "") as connection, connection.cursor() as cursor:
        mark(cursor.execute, schema)
        cursor.execute("START TRANSACTION")
        cursor.execute(lock)
        yield connection


def test_paused_task_does_not_keep_the_next_owner_out(rig: Rig, server: DatabaseServer) -> None:
    """The transaction of a task that is paused is ended by whoever opens the next window; when it wakes it can commit nothing."""
    former = rig.owner("former")
    former.lease.open_window(3, 0)
    server.query("CREATE TABLE storage_consumer.rows_of_a_table (id INT PRIMARY KEY)")
    rig.expire()
    with paused(server, _SLOT) as task:
        task.query("INSERT INTO storage_consumer.rows_of_a_table VALUES (1)")
        following = rig.owner("following")
        assert following.lease.open_window(3, 0) > 0
        with pytest.raises(pymysql.err.MySQLError):
            task.query("COMMIT")
    assert server.query("SELECT * FROM storage_consumer.rows_of_a_table") == ()


def test_paused_owner_is_followed(rig: Rig, server: DatabaseServer) -> None:
    """An owner who was paused while it held the lease's row loses it once the lease has run out."""
    rig.owner("former")
    rig.expire()
    with paused(server, _LEASE) as driver:
        rig.owner("following")
        with pytest.raises(pymysql.err.MySQLError):
            driver.query("UPDATE storage_consumer.lease SET holder = 'former'")
    assert server.query("SELECT holder FROM storage_consumer.lease") == (("following",),)


def test_user_whose_name_holds_an_at_sign(server: DatabaseServer) -> None:
    """The host begins after the last one."""
    server.query("CREATE USER 'feed@corp'@'%'")
    server.query("GRANT ALL ON *.* TO 'feed@corp'@'%'")
    rig = real_rig(server, user="feed@corp")
    try:
        rig.owner("former")
        rig.expire()
        with paused(server, _LEASE, user="feed@corp"):
            rig.owner("following")
        assert server.query("SELECT holder FROM storage_consumer.lease") == (("following",),)
    finally:
        rig.close()
        server.query("DROP USER 'feed@corp'@'%'")


def test_lease_that_runs_is_respected(rig: Rig, server: DatabaseServer) -> None:
    """While the lease runs, its owner may hold the row for as long as it likes; the others learn who it is."""
    rig.owner("former")
    with paused(server, _LEASE) as driver:
        waiting = rig.handle()
        waiting.open(BUCKET)
        assert waiting.lease.acquire("following", 30) == "former"
        driver.query("COMMIT")


def test_former_owner_ends_nobody(rig: Rig, server: DatabaseServer) -> None:
    """One that lost its lease unawares, and waits for a task of its successor, ends itself and not the task."""
    former = rig.owner("former")
    former.lease.open_window(3, 0)
    rig.expire()
    rig.owner("following").lease.open_window(3, 0)
    with paused(server, _SLOT) as task:
        with pytest.raises(LeaseLost, match="another process took the lease"):
            former.lease.open_window(3, 0)
        task.query("COMMIT")


def test_connection_for_ddl_is_left_alone(rig: Rig, server: DatabaseServer) -> None:
    """Statements are kept apart by a lock of their own: the connection that holds it is not ended, whatever it ran before."""
    rig.owner("former").lease.open_window(3, 0)
    database = TargetDatabase(Downstream(port=server.port), "")
    assert database.fence_ddl()
    for statement, schema in (("CREATE DATABASE shop", ""), ("CREATE TABLE a (id INT)", "shop")):
        database.execute_ddl(statement, schema, ts(1))
    rig.expire()
    with paused(server, _SLOT):
        rig.owner("following").lease.open_window(3, 0)
    assert database.fence_ddl()
    database.close()


@pytest.mark.parametrize("server", ["mariadb", "mysql"], indirect=True)
def test_another_state_of_almost_the_same_name(rig: Rig, server: DatabaseServer) -> None:
    """Where names differ by case, a consumer whose state schema does so is another one: its connections are not ended."""
    rig.owner("former").lease.open_window(3, 0)
    server.query("CREATE DATABASE Storage_Consumer")
    rig.expire()
    with paused(server, "SELECT 1", "Storage_Consumer") as other, paused(server, _SLOT):
        rig.owner("following").lease.open_window(3, 0)
        other.query("COMMIT")


@pytest.mark.parametrize("server", ["mariadb", "mysql"], indirect=True)
def test_connections_of_others_are_left_alone(rig: Rig, server: DatabaseServer) -> None:
    """What an operator's connection holds is waited for, named, and never ended."""
    state = rig.owner()
    state.lease.open_window(3, 0)
    with server.connect(autocommit=False) as operator, operator.cursor() as cursor:
        cursor.execute(_SLOT)
        with pytest.raises(TargetUnavailable, match="opening a window"):
            state.lease.open_window(3, 0)
        operator.commit()
    assert state.lease.open_window(3, 0) > 0
