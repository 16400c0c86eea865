"""What only the state store on a real server has: transactions, locks, clocks, and others who do the same meanwhile."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Connection

from storage_consumer.checkpoint.store import StateStore
from storage_consumer.config.settings import Downstream
from storage_consumer.errors import ConfigError, LeaseLost, StateGone, StorageConsumerError
from storage_consumer.plan.copies import Copies
from storage_consumer.plan.directories import Restart
from storage_consumer.plan.finished_files import EVERYTHING, Finished
from storage_consumer.plan.journal_entry import DONE, ExecutionOutcome
from storage_consumer.ports import SERIAL_SLOTS
from storage_consumer.rows.comparison import TableResult, VerifyOutcome
from storage_consumer.target.state_tables import EVERY_TABLE, MIGRATED, STATE_VERSION
from storage_consumer.watch.report import Minute
from tests.contract.state_rigs import BUCKET, progress, real_rig, statement
from tests.harness.servers import DatabaseServer

pytestmark = pytest.mark.server

MINUTE = Minute(minute=1, checkpoint=7, checkpoint_running=7, storage_checkpoint=8, row_changes=0, statements=0)


def test_concurrent_first_starts(mariadb: DatabaseServer) -> None:
    """Eight processes that start together on an empty target all open, and exactly one gets the lease."""
    rig = real_rig(mariadb)
    states, barrier = [rig.handle() for _ in range(8)], threading.Barrier(8)
    answers: list[object] = []

    def start(number: int) -> None:
        barrier.wait()
        try:
            states[number].open(BUCKET)
            answers.append(states[number].lease.acquire(f"p{number}", 30))
        except StorageConsumerError as fault:
            answers.append(fault)

    threads = [threading.Thread(target=start, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rig.close()
    assert [a for a in answers if isinstance(a, Exception)] == []
    assert answers.count("") == 1


def test_another_version(mariadb: DatabaseServer) -> None:
    """A state of another version is refused before anything in it is touched."""
    mariadb.query("CREATE DATABASE storage_consumer")
    mariadb.query("CREATE TABLE storage_consumer.version (id INT PRIMARY KEY, version INT, more INT)")
    mariadb.query("INSERT INTO storage_consumer.version VALUES (1, 99, 0)")
    rig = real_rig(mariadb)
    with pytest.raises(
        ConfigError, match=rf"version 99, this program writes version {STATE_VERSION}: .*--state-schema"
    ):
        rig.handle().open(BUCKET)
    rig.close()
    assert mariadb.query("SHOW TABLES FROM storage_consumer") == (("version",),)


def test_lease_knows_no_time_zone(mariadb: DatabaseServer) -> None:
    """Two processes whose sessions have different time zones see the same lease."""
    zones = [StateStore(Downstream(port=mariadb.port, time_zone=zone), "") for zone in ("+10:00", "-10:00", "+00:00")]
    for zone in zones:
        zone.open(BUCKET)
    assert zones[0].lease.acquire("east", 30) == ""
    assert [zone.lease.acquire("west", 30) for zone in zones[1:]] == ["east", "east"]
    mariadb.query("UPDATE storage_consumer.lease SET expires_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND")
    assert zones[1].lease.acquire("west", 30) == ""
    for zone in zones:
        zone.close()


def test_a_failed_transaction_leaves_nothing(mariadb: DatabaseServer) -> None:
    """Where a later statement of a transaction fails, the earlier ones are taken back: journal and tables move together (O11)."""
    rig = real_rig(mariadb)
    state = rig.owner()
    mariadb.query("ALTER TABLE storage_consumer.table_progress ADD CONSTRAINT few CHECK (checkpoint < 100)")
    with pytest.raises(StorageConsumerError):
        state.journal.record(statement(), DONE, tables=[progress("shop/a", 500)])
    assert state.journal.entry(statement()) is None
    mariadb.query("ALTER TABLE storage_consumer.feed ADD CONSTRAINT less CHECK (checkpoint_running < 100)")
    with pytest.raises(StorageConsumerError):
        state.progress.save(
            tables=[progress("shop/a", 5)], sequences={"s": Finished(upto=3)}, checkpoint=500, storage_checkpoint=0
        )
    assert state.progress.load() == (Restart(), 0)
    rig.close()


def test_what_copies_have_to_hold_is_stored_when_it_changes(mariadb: DatabaseServer) -> None:
    """Each save leaves what it was given, also after one that failed, and after another process has written something else."""
    rig = real_rig(mariadb)
    state = rig.owner()
    first, second = (Copies(listed={"s": number}, listed_at=number) for number in (1, 2))

    def save(copies: Copies, checkpoint: int = 5) -> None:
        tables = [progress("shop/a", 5, copies=copies)]
        state.progress.save(tables=tables, sequences={}, checkpoint=checkpoint, storage_checkpoint=0)

    mariadb.query("ALTER TABLE storage_consumer.feed ADD CONSTRAINT less CHECK (checkpoint_running < 100)")
    for copies in (first, first, second, first):
        with pytest.raises(StorageConsumerError):
            save(copies, 500)
        save(copies)
        assert list(state.progress.load()[0].copies.values()) == [copies]
    mariadb.query("UPDATE storage_consumer.table_copies SET listed_at = 9")
    # Who takes over reads first.
    assert list(state.progress.load()[0].copies.values()) == [replace(first, listed_at=9)]
    save(first)
    assert list(state.progress.load()[0].copies.values()) == [first]
    rig.close()


def test_a_table_that_stops_by_its_statement_says_why(server: DatabaseServer) -> None:
    """What a statement makes of its table goes by the state before, not by the one that the same row is just given."""
    rig = real_rig(server)
    state = rig.owner()
    asked = "SELECT state, follows, error FROM storage_consumer.table_progress"
    state.progress.save(tables=[progress("shop/a", 5)], sequences={}, checkpoint=5, storage_checkpoint=5)
    stopped = progress("shop/a", 6, "halted", follows=False, error="why")
    state.journal.record(statement(), DONE, tables=[stopped])
    assert server.query(asked) == (("halted", 0, "why"),)
    state.journal.record(statement(), DONE, tables=[progress("shop/a", 7, error="no longer")])
    assert server.query(asked) == (("halted", 0, "why"),)
    rig.close()


@contextmanager
def cut_at(state: StateStore, number: int) -> Iterator[list[int]]:
    """Break the state's connection before its statement with this number, its commits counted too; gives how many came."""
    came: list[int] = []

    def count(connection: Connection, *_: object) -> None:
        came.append(len(came) + 1)
        if len(came) == number:
            connection.connection.driver_connection._sock.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr] # a PyMySQL one

    for name in ("before_cursor_execute", "commit"):
        event.listen(state.transactions.engine, name, count)
    try:
        yield came
    finally:
        for name in ("before_cursor_execute", "commit"):
            event.remove(state.transactions.engine, name, count)


WRITES: dict[str, Callable[[StateStore, int], object]] = {
    "save": lambda state, number: state.progress.save(
        tables=[progress("shop/a", number), progress("shop/b", number)],
        sequences={
            "s": Finished(upto=number, digests={0: bytes([number]) * 8, number: b"8" * 8}),
            "t": Finished(upto=number, left_out=EVERYTHING, digests={number: b"8" * 8}, replaces=True),
        },
        checkpoint=number,
        storage_checkpoint=number,
    ),
    "journal": lambda state, number: state.journal.record(
        statement(version=number), DONE, tables=[progress("shop/a", number), progress("shop/b", number)]
    ),
    "window": lambda state, number: state.lease.open_window(3, number),
}
"""Each write of the state, with a number that grows."""


@pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))
def test_cut_at_every_statement(server: DatabaseServer, write: Callable[..., object]) -> None:
    """Wherever the connection ends in a write of the state, all of it is as it was before; no row is gone in between (O11)."""
    rig = real_rig(server)
    state: StateStore = rig.owner()
    write(state, 5)
    for number in range(1, 30):
        before = state.progress.load()
        assert before != (Restart(), 0)
        with cut_at(state, number) as came:
            try:
                write(state, 5 + number)
            except StorageConsumerError:
                assert state.progress.load() == before
            else:
                break
    assert number == len(came) + 1 > 3
    assert state.progress.load() != before
    rig.close()


def test_window_waits_for_a_running_task(server: DatabaseServer) -> None:
    """While a task's transaction holds a slot no window opens, but the lease is renewed; after its commit the slot is new."""
    rig = real_rig(server)
    state = rig.owner()
    first = state.lease.open_window(3, 0)
    slots = server.query("SELECT slot, epoch, window_id FROM storage_consumer.slots ORDER BY slot")
    assert slots == tuple((n, state.lease.epoch, first) for n in range(-SERIAL_SLOTS, 3))
    opened: list[int] = []
    opening = threading.Thread(target=lambda: opened.append(state.lease.open_window(3, 0)))
    with server.connect(autocommit=False) as task, task.cursor() as cursor:
        cursor.execute("SELECT * FROM storage_consumer.slots WHERE slot = 1 FOR UPDATE")
        opening.start()
        time.sleep(0.3)
        assert opened == []
        began = time.monotonic()
        assert state.lease.renew(30)
        assert time.monotonic() - began < 2
        task.commit()
    opening.join(10)
    assert opened == [first + 1]
    assert server.query("SELECT DISTINCT epoch, window_id FROM storage_consumer.slots") == (
        (state.lease.epoch, first + 1),
    )
    rig.close()


@pytest.mark.parametrize(
    "done",
    ["DROP DATABASE storage_consumer", "DELETE FROM storage_consumer.lease", "DROP TABLE storage_consumer.lease"],
)
def test_state_that_is_dropped(server: DatabaseServer, done: str) -> None:
    """Whatever is asked of a state that was dropped or emptied says so."""
    rig = real_rig(server)
    state = rig.owner()
    server.query(done)
    calls: list[Callable[[], object]] = [
        state.progress.load,
        lambda: state.lease.open_window(1, 0),
        lambda: state.progress.save(tables=(), sequences={}, checkpoint=1, storage_checkpoint=1),
        lambda: state.journal.record(statement(), DONE),
    ]
    for call in calls:
        with pytest.raises(StateGone, match="the state schema storage_consumer"):
            call()
    if "lease" in done and "DELETE" in done:
        assert not state.lease.renew(30)
    else:
        with pytest.raises(StateGone):
            state.lease.renew(30)
    rig.close()


@pytest.mark.parametrize("done", ["DROP DATABASE storage_consumer", "DELETE FROM storage_consumer.lease"])
def test_state_that_is_made_anew_while_its_owner_lives(server: DatabaseServer, done: str) -> None:
    """Each of the two is the first owner in the first window; whatever the former one writes is refused all the same, with its tasks."""
    rig = real_rig(server)
    former = rig.owner("former")
    former.lease.open_window(1, 0)
    fence = (former.lease.epoch, 1)
    server.query(done)
    owner = rig.owner("next")
    owner.lease.open_window(1, 0)
    slots = server.query("SELECT DISTINCT epoch, window_id FROM storage_consumer.slots")
    assert fence not in slots
    assert owner.lease.epoch > former.lease.epoch
    step = statement()
    doubted = TableResult(table=step.name, target=step.name, outcome=VerifyOutcome.DIFFERENT, reason="changed")
    calls: list[Callable[[], object]] = [
        former.progress.load,
        lambda: former.lease.open_window(1, 0),
        lambda: former.progress.save(tables=[progress("shop/a", 7)], sequences={}, checkpoint=7, storage_checkpoint=8),
        lambda: former.history.keep([("shop/a", step.definition)]),
        lambda: former.journal.entry(step),
        lambda: former.journal.record(step, DONE),
        lambda: former.journal.copied(step, 9),
        lambda: former.loads.advance({"`shop`.`a`": 1}),
        lambda: former.loads.begin([], by="me", floor=9),
        lambda: former.verified.doubt("`shop`.`a`", doubted.document()),
    ]
    for call in calls:
        with pytest.raises(LeaseLost):
            call()
    assert not former.lease.renew(30)
    former.lease.release()
    assert former.reports.save("{}", MINUTE) == {}
    assert owner.lease.holder() == "next"
    for table in ("table_progress", "schema_history", "ddl_journal", "verify_results", "report", "report_minutes"):
        assert server.query(f"SELECT COUNT(*) FROM storage_consumer.{table}") == ((0,),)
    assert server.query("SELECT checkpoint, floor FROM storage_consumer.feed") == ((0, 0),)
    owner.progress.save(tables=(), sequences={}, checkpoint=1, storage_checkpoint=1)
    owner.reports.save("{}", MINUTE)
    assert server.query("SELECT epoch FROM storage_consumer.report") == ((owner.lease.epoch,),)
    rig.close()


@contextmanager
def put_back(server: DatabaseServer) -> Iterator[None]:
    """Save the state before, and restore it after what is done meanwhile."""
    tables = [name for (name,) in server.query("SHOW TABLES FROM storage_consumer")]
    server.query("CREATE DATABASE saved")
    for name in tables:
        server.query(f"CREATE TABLE saved.{name} AS SELECT * FROM storage_consumer.{name}")
    yield
    with server.connect(autocommit=False) as connection, connection.cursor() as cursor:
        for name in tables:
            cursor.execute(f"DELETE FROM storage_consumer.{name}")
            cursor.execute(f"INSERT INTO storage_consumer.{name} SELECT * FROM saved.{name}")
        connection.commit()


@pytest.mark.parametrize("since", ["window", "progress", "owner"])
def test_state_that_is_put_back_while_its_owner_lives(server: DatabaseServer, since: str) -> None:
    """Whatever it had stored since the backup, the owner writes nothing more, and no later one has its epoch."""
    rig = real_rig(server)
    owner = rig.owner()
    owner.lease.open_window(1, 7)
    with put_back(server):
        if since == "owner":
            assert owner.lease.acquire("me", 30) == ""
        if since == "progress":
            owner.progress.save(tables=[progress("shop/a", 8)], sequences={}, checkpoint=8, storage_checkpoint=8)
        else:
            owner.lease.open_window(1, 7)
    calls: list[Callable[[], object]] = [
        owner.progress.load,
        lambda: owner.lease.open_window(1, 9),
        lambda: owner.progress.save(tables=[progress("shop/a", 9)], sequences={}, checkpoint=9, storage_checkpoint=9),
        lambda: owner.journal.record(statement(), DONE),
    ]
    for call in calls:
        with pytest.raises(StateGone, match=r"storage_consumer went back .* backup"):
            call()
    assert server.query("SELECT checkpoint_running, storage_checkpoint FROM storage_consumer.feed") == ((0, 7),)
    rig.expire()
    assert rig.owner("next").lease.epoch > owner.lease.epoch
    rig.close()


def test_migration_of_version_4(mariadb: DatabaseServer) -> None:
    """It gets the quarantine, and keeps both of its checkpoints."""
    rig = real_rig(mariadb)
    rig.owner("former").lease.release()
    mariadb.query("UPDATE storage_consumer.feed SET checkpoint = 300, checkpoint_running = 800")
    mariadb.query("DROP TABLE storage_consumer.quarantine")
    mariadb.query("UPDATE storage_consumer.version SET version = 4")
    state = rig.handle()
    state.open(BUCKET)
    assert state.lease.acquire("next", 30) == ""
    assert mariadb.query("SELECT version FROM storage_consumer.version") == ((STATE_VERSION,),)
    restart, _ = state.progress.load()
    assert (restart.checkpoint, restart.lowest) == (800, 300)
    assert mariadb.query("SELECT COUNT(*) FROM storage_consumer.quarantine") == ((0,),)
    rig.close()


def test_migration_of_version_5(mariadb: DatabaseServer) -> None:
    """Nothing tells what its last window wrote, so one note for all tables goes up to the storage checkpoint of that time."""
    rig = real_rig(mariadb)
    former = rig.owner("former")
    former.progress.save(tables=[progress("shop/a", 500)], sequences={}, checkpoint=500, storage_checkpoint=900)
    former.lease.release()
    mariadb.query("DROP TABLE storage_consumer.table_writes")
    mariadb.query(f"UPDATE storage_consumer.version SET version = {max(MIGRATED)}")
    state = rig.handle()
    state.open(BUCKET)
    assert state.lease.acquire("next", 30) == ""
    assert mariadb.query("SELECT version FROM storage_consumer.version") == ((STATE_VERSION,),)
    assert mariadb.query("SELECT table_key, upto FROM storage_consumer.table_writes") == ((EVERY_TABLE, 900),)
    rig.close()


def test_a_window_notes_what_it_may_write(server: DatabaseServer) -> None:
    """The notes come with the window, are there before a task can write, and only grow; without the lease nothing is noted."""
    rig = real_rig(server)
    former = rig.owner("former")
    former.lease.open_window(1, 0, {"shop/a": 1 << 63, "shop/b": 7})
    former.lease.open_window(1, 0, {"shop/a": 5, "shop/b": 9})
    former.lease.open_window(0, 0)
    noted = "SELECT table_key, upto FROM storage_consumer.table_writes ORDER BY table_key"
    assert server.query(noted) == (("shop/a", 1 << 63), ("shop/b", 9))
    rig.expire()
    rig.owner("next")
    with pytest.raises(LeaseLost):
        former.lease.open_window(1, 0, {"shop/b": 10})
    assert server.query(noted) == (("shop/a", 1 << 63), ("shop/b", 9))
    rig.close()


@pytest.mark.parametrize("version", [2, 3])
def test_migration(version: int, server: DatabaseServer) -> None:
    """A state of an older version is brought to ours by the one who gets the lease, also after a break in the middle; nothing is lost."""
    rig = real_rig(server)
    former = rig.owner("former")
    former.journal.record(statement(), DONE, note="n", tables=[progress("shop/a", 500)])
    halted = [progress("shop/halted", 300, "halted", follows=False), progress("shop/gone", 9, "dropped", follows=False)]
    former.progress.save(tables=halted, sequences={}, checkpoint=0, storage_checkpoint=900)
    former.lease.release()
    server.query("UPDATE storage_consumer.feed SET checkpoint = 800")
    server.query("ALTER TABLE storage_consumer.feed DROP COLUMN checkpoint_running")
    for table in ("ddl_decision", "schema_history"):
        server.query(f"DROP TABLE storage_consumer.{table}")
    for column in ("structure_after", "answer"):  # the third one is there: the migration broke off
        server.query(f"ALTER TABLE storage_consumer.ddl_journal DROP COLUMN {column}")
    server.query(f"UPDATE storage_consumer.version SET version = {version}")
    waiting = rig.handle()
    waiting.open(BUCKET)
    assert server.query("SELECT version FROM storage_consumer.version") == ((version,),)
    assert waiting.lease.acquire("next", 30) == ""
    assert server.query("SELECT version FROM storage_consumer.version") == ((STATE_VERSION,),)
    restart, _ = waiting.progress.load()
    assert restart.journalled == {statement().identity}
    assert (restart.checkpoint, restart.lowest) == (800, 300)
    waiting.journal.record(
        statement(version=6), DONE, run=ExecutionOutcome(structure_after="x", seconds=0.5, answer="OK")
    )
    stored = server.query(
        "SELECT structure_after, seconds, answer, note FROM storage_consumer.ddl_journal ORDER BY version"
    )
    assert stored == (("", None, None, "n"), ("x", 0.5, "OK", ""))
    waiting.history.keep([("shop/a", statement().definition)])
    assert [d.query for d in waiting.history.kept("shop/a", 5)] == ["ALTER TABLE a"]
    rig.close()


@pytest.mark.parametrize("version", [2, 3])
def test_migration_of_what_is_known_of_files(server: DatabaseServer, version: int) -> None:
    """An older state knows how far sequences are finished, and nothing of each file; also after a break in the middle."""
    rig = real_rig(server)
    rig.owner("former").lease.release()
    server.query("DROP TABLE storage_consumer.file_digests")
    server.query("ALTER TABLE storage_consumer.file_progress DROP COLUMN left_out")
    server.query("ALTER TABLE storage_consumer.file_progress ADD COLUMN tag VARCHAR(255) NOT NULL")
    server.query("INSERT INTO storage_consumer.file_progress (stream, done_upto, tag) VALUES ('s', 5, 't')")
    server.query(f"UPDATE storage_consumer.version SET version = {version}")
    state = rig.owner("next")
    assert state.progress.load()[0].done == {"s": Finished(upto=5)}
    server.query(f"UPDATE storage_consumer.version SET version = {version}")  # as if the last step had not been taken
    state = rig.owner("next")
    known = Finished(upto=6, left_out=1, digests={0: b"\1" * 8})
    state.progress.save(tables=(), sequences={"s": known}, checkpoint=0, storage_checkpoint=0)
    assert state.progress.load()[0].done == {"s": known}
    rig.close()
