"""Long statements, broken connections and locks that others hold: the real runner on servers that have all of that."""

from __future__ import annotations

import logging
import socket
import threading
import time

import pytest

from storage_consumer.config.settings import Downstream
from storage_consumer.errors import DdlFailed, TargetBusy
from storage_consumer.model import TableName
from storage_consumer.plan.journal_entry import DONE, PLANNED, STARTED
from storage_consumer.ports import Decision
from storage_consumer.target.database import TargetDatabase
from tests.contract.test_ddl_runner import ALTER, CREATE, Rig, rig
from tests.harness.servers import KINDS, DatabaseServer
from tests.harness.twins.storage import FakeClock

__all__ = ["rig"]
pytestmark = [pytest.mark.server, pytest.mark.slow]
WITH_LOCK_WAITS = ["mariadb", "mysql"]
"""TiDB's DDL waits for transactions without an end; its reader has the old structure meanwhile."""
SLOW = (
    "CREATE TABLE `b` (`id` INT PRIMARY KEY, `name` INT) SELECT n.id AS id, SLEEP(0.4) AS name FROM "
    "(SELECT 1 AS id UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7) n"
)
"""Takes 2.8 s, during which no server looks whether the client is still there."""


def journal(server: DatabaseServer, *columns: str) -> tuple[object, ...]:
    """Columns of the one statement in the journal."""
    (row,) = server.query(f"SELECT {', '.join(columns)} FROM storage_consumer.ddl_journal")
    return row


def cut(rig: Rig, statement: str) -> None:
    """Break the runner's connection while the server executes a statement."""
    watcher = TargetDatabase(Downstream(port=rig.server.port), "")
    while not watcher.is_running(statement):
        time.sleep(0.05)
    watcher.close()
    connection = rig.database.current
    assert connection is not None
    connection._sock.shutdown(socket.SHUT_RDWR)  # type: ignore[attr-defined] # not in the stubs


@pytest.mark.parametrize("rig", WITH_LOCK_WAITS, indirect=True)
def test_connection_that_breaks_under_a_statement(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """The server goes on with a statement whose connection broke; it is waited for, and has run once (D5)."""
    step = rig.step("CREATE TABLE `b` (`id` INT PRIMARY KEY, `name` INT)", CREATE, "shop.b")
    breaking = threading.Thread(target=cut, args=[rig, SLOW])
    breaking.start()
    with caplog.at_level(logging.WARNING):
        note = rig.run(step, decision=Decision(verb="replace", statement=SLOW))
    breaking.join()
    assert "had taken effect" in note
    assert [word for word in ("ddl_lost", "ddl_running") if word in caplog.text] == ["ddl_lost", "ddl_running"]
    assert (rig.journalled(step), rig.moved(step)) == (DONE, True)
    assert rig.server.query("SELECT COUNT(*) FROM shop.b") == ((7,),)


@pytest.mark.parametrize("rig", WITH_LOCK_WAITS, indirect=True)
def test_lock_that_somebody_holds(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """A statement waits for locks for a bounded time, is tried again, tells who holds them, and leaves the rest to the next round."""
    step = rig.step("ALTER TABLE `a` ADD COLUMN `more` INT", ALTER)
    rig.database.close()
    rig.database = TargetDatabase(Downstream(port=rig.server.port, ddl_lock_wait=1), "")
    rig.clock = FakeClock()
    with rig.server.connect(autocommit=False) as holder, holder.cursor() as cursor:
        cursor.execute("SELECT * FROM shop.a")
        began = time.monotonic()
        with (
            caplog.at_level(logging.WARNING),
            pytest.raises(TargetBusy, match=r"connection \d+ of root"),
        ):
            rig.run(step)
        assert 3 <= time.monotonic() - began < 20
        assert caplog.text.count("ddl_blocked") == 3
        assert (rig.journalled(step), rig.moved(step)) == (PLANNED, False)
        holder.rollback()
    assert rig.run(step) == ""
    assert rig.columns() == ["id", "more", "name"]
    rig.database.close()


@pytest.mark.parametrize("rig", ["mariadb"], indirect=True)
def test_short_transactions_hold_nothing(rig: Rig) -> None:
    """Where the server does not tell of locks, whoever ends transactions one after another is not taken for the holder."""
    done = threading.Event()

    def often() -> None:
        with rig.server.connect(autocommit=False) as busy, busy.cursor() as cursor:
            while not done.is_set():
                cursor.execute("SELECT * FROM storage_consumer.feed")
                time.sleep(0.3)
                busy.rollback()
                # Else the next one has begun before anybody can look.
                cursor.execute("SELECT * FROM storage_consumer.feed")

    with rig.server.connect(autocommit=False) as holder, holder.cursor() as cursor:
        cursor.execute("SELECT * FROM shop.a")
        others = threading.Thread(target=often)
        others.start()
        try:
            found = rig.database.blockers([TableName(schema="shop", table="a")])
        finally:
            done.set()
            others.join()
        cursor.execute("SELECT CONNECTION_ID()")
        assert [line.split(" of ")[0] for line in found] == [f"connection {cursor.fetchall()[0][0]}"]
        assert len(rig.database.blockers([TableName(schema="shop", table="a")])) == 1


def transaction_that_tidb_waits_for(rig: Rig) -> None:
    """While TiDB's statement waits for a transaction that has used its table, it can be said whose that is; others are not named."""
    rig.server.query("CREATE TABLE shop.b (id INT)")
    name = TableName(schema="shop", table="a")
    with rig.server.connect(autocommit=False) as holder, rig.server.connect(autocommit=False) as other:
        for connection, table in ((holder, "a"), (other, "b")):
            with connection.cursor() as cursor:
                cursor.execute(f"SELECT * FROM shop.{table}")
        running = threading.Thread(target=rig.run, args=[rig.step("ALTER TABLE `a` ADD COLUMN `more` INT", ALTER)])
        running.start()
        time.sleep(1)
        watcher = TargetDatabase(Downstream(port=rig.server.port), "")
        (line,) = watcher.blockers([name])
        with holder.cursor() as cursor:
            cursor.execute("SELECT CONNECTION_ID()")
            assert line.startswith(f"connection {cursor.fetchall()[0][0]} of root")
        assert "holds a transaction since" in line
        assert running.is_alive()
        holder.rollback()
        running.join()
        assert watcher.blockers([name]) == ()
        watcher.close()


if "tidb" in KINDS:  # else there is no server to try it on
    test_transaction_that_tidb_waits_for = pytest.mark.parametrize("rig", ["tidb"], indirect=True)(
        transaction_that_tidb_waits_for
    )


@pytest.mark.parametrize("rig", WITH_LOCK_WAITS, indirect=True)
def test_lock_that_is_let_go(rig: Rig) -> None:
    """Where the lock is let go between two tries, the statement runs in the same round."""
    step = rig.step("ALTER TABLE `a` ADD COLUMN `more` INT", ALTER)
    rig.database.close()
    rig.database = TargetDatabase(Downstream(port=rig.server.port, ddl_lock_wait=1), "")
    with rig.server.connect(autocommit=False) as holder, holder.cursor() as cursor:
        cursor.execute("SELECT * FROM shop.a")
        letting_go = threading.Timer(1.5, holder.rollback)
        letting_go.start()
        assert rig.run(step) == ""
        letting_go.join()
    state, seconds, answer, same = journal(
        rig.server, "state", "seconds", "answer", "structure_before = structure_after"
    )
    assert (state, answer, same) == (DONE, "OK", 0)
    assert isinstance(seconds, float)
    assert 0 < seconds < 30
    rig.database.close()


@pytest.mark.parametrize("rig", WITH_LOCK_WAITS, indirect=True)
def test_fence_leaves_a_running_statement_alone(rig: Rig) -> None:
    """What a former owner's connection is executing is not broken off; once it is over, the connection is ended."""
    former = TargetDatabase(Downstream(port=rig.server.port), "")
    assert former.fence_ddl()
    running = threading.Thread(target=former.execute_ddl, args=[SLOW, "shop", 1])
    running.start()
    while not rig.database.is_running(SLOW):
        time.sleep(0.05)
    assert not rig.database.fence_ddl()
    running.join()
    assert rig.database.fence_ddl()
    assert rig.server.query("SELECT COUNT(*) FROM shop.b") == ((7,),)
    former.close()


def test_altered_by_hand_meanwhile(rig: Rig) -> None:
    """Where somebody altered the table of an interrupted statement otherwise, nothing is guessed: it stops and says how it is."""
    step = rig.step("ALTER TABLE `a` ADD COLUMN `more` INT", ALTER)
    rig.interrupted(step)
    rig.server.query("ALTER TABLE shop.a ADD COLUMN other INT")
    with pytest.raises(DdlFailed, match="lacks the columns more and it has the extra columns other"):
        rig.run(step)
    assert (rig.journalled(step), rig.moved(step)) == (STARTED, False)
    rig.server.query("ALTER TABLE shop.a CHANGE other more INT")
    assert "had taken effect" in rig.run(step)
