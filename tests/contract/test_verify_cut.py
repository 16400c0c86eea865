"""The cut of a comparison: a table is read only in a moment at which it is exactly what the source was at its checkpoint."""

from __future__ import annotations

import random
import threading
import time
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

import pymysql.err
import pytest
from pymysql.constants import SERVER_STATUS

from storage_consumer.config.settings import Server
from storage_consumer.errors import Abandoned, ConfigError, TargetUnavailable, TransientError
from storage_consumer.model import TableName
from storage_consumer.operating.verification import TableVerification, Wishes, verified
from storage_consumer.plan.journal_entry import DONE, STARTED, Sent
from storage_consumer.plan.loads import Load, LoadPhase
from storage_consumer.rows.compared_layout import KeyRange
from storage_consumer.rows.comparison import VerifyOutcome
from storage_consumer.target.source_reading import ComparedTable
from tests.contract.state_rigs import statement
from tests.contract.verify_rigs import SOURCE, Running, VerifyRig
from tests.harness.servers import KINDS, DatabaseServer

pytestmark = pytest.mark.server
SOURCES = ("tidb",) if "tidb" in KINDS else ("mariadb",)
ROWS = [(number, number) for number in range(2_000)]


@pytest.fixture(params=[(source, target) for source in SOURCES for target in KINDS], ids="-".join)
def rig(request: pytest.FixtureRequest) -> VerifyRig:
    """Each source with each target, and a table with rows, at rest."""
    source, target = request.param
    servers: list[DatabaseServer] = [request.getfixturevalue(kind) for kind in dict.fromkeys((source, target))]
    found = VerifyRig(servers[0], servers[-1])
    found.both("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    found.both("INSERT INTO t VALUES (%s, %s)", rows=ROWS)
    found.at_rest("t")
    return found


def test_a_half_written_window_is_not_compared(rig: VerifyRig) -> None:
    """Rows beyond the checkpoint are in the target: with nobody to end the job, the table is not compared, and the next step is named."""
    with closing(rig.state()) as state:
        at = rig.now()
        state.lease.open_window(1, at, {rig.key("t"): at + 1})
        rig.at_target("UPDATE t SET v = -1 WHERE id = 5")
        state.lease.release()
    result = rig.one("t")
    assert result.outcome is VerifyOutcome.NOT_COMPARED
    assert "a job that has not ended may have written rows up to" in result.reason
    assert "`storage-consumer run`" in result.reason


@pytest.mark.parametrize("paused", [False, True])
def test_a_table_that_is_being_loaded_is_not_compared(rig: VerifyRig, *, paused: bool) -> None:
    """It has a part of its copy, whatever its checkpoint says, also while the load is paused."""
    name = TableName(schema=SOURCE, table="t")
    with closing(rig.state()) as state:
        load = Load(table_key=rig.key("t"), name=name, load_id="1", source="file:///e", low=rig.now(), parts=2)
        state.loads.begin([replace(load, phase=LoadPhase.LOADING)], by="op")
        state.lease.release()
    if paused:
        rig.at_rest("t", state="halted")
    rig.at_target("DELETE FROM t WHERE id > 5")
    result = rig.one("t")
    assert result.outcome is VerifyOutcome.NOT_COMPARED
    assert "it is being loaded from a copy" in result.reason


def test_a_window_that_ends_is_waited_for(rig: VerifyRig) -> None:
    """A writer is in the middle of a job: the comparison waits for its end, and then reads at the new checkpoint."""
    with closing(rig.state()) as state:
        at = rig.now()
        state.lease.open_window(1, at, {rig.key("t"): at + 1})
        rig.at_target("UPDATE t SET v = -1 WHERE id = 5")

        def end() -> None:
            time.sleep(0.7)
            rig.at_source("UPDATE t SET v = -1 WHERE id = 5")
            state.progress.save(
                tables=[rig.progress("t", rig.now() + 1)], sequences={}, checkpoint=0, storage_checkpoint=0
            )

        with closing(Running(end)):
            result = rig.one("t", wait=20.0)
    assert (result.outcome, result.reason, result.different_rows) == (VerifyOutcome.EQUAL, "", 0)
    assert result.checkpoint > at


def test_a_writer_that_never_rests(rig: VerifyRig) -> None:
    """With a writer in the middle of a job for longer than one waits, that is said."""
    with closing(rig.state()) as state:
        state.lease.open_window(1, 0, {rig.key("t"): rig.now() + 1})
        result = rig.one("t", wait=0.3)
    assert result.outcome is VerifyOutcome.NOT_COMPARED
    assert "was not at rest for 0.3 s (--wait)" in result.reason


def test_a_keyless_table_needs_no_note(rig: VerifyRig) -> None:
    """Its rows commit with its checkpoint, so a window of others does not matter."""
    rig.both("CREATE TABLE bag (v INT)", "INSERT INTO bag VALUES (1), (1), (NULL)")
    rig.at_rest("t", "bag")
    with closing(rig.state()) as state:
        state.lease.open_window(1, 0, {rig.key("t"): rig.now() + 1})
        found = rig.compared()
    assert found["bag"].outcome is VerifyOutcome.EQUAL
    assert found["t"].outcome is VerifyOutcome.NOT_COMPARED


def test_a_statement_that_may_run(rig: VerifyRig) -> None:
    """A table is not compared while a statement that may touch it was begun and is not known to have ended; another one is."""
    rig.both("CREATE TABLE other (id INT PRIMARY KEY)")
    rig.at_rest("t", "other")
    step = statement(f"{SOURCE}/t", query="ALTER TABLE `t` ADD COLUMN x INT")
    with closing(rig.state()) as state:
        state.journal.record(step, STARTED, run=Sent(statement="ALTER", structure_before=""))
        found = rig.compared(wait=0.3)
        assert "the statement of version 5 may touch it" in found["t"].reason
        assert found["other"].outcome is VerifyOutcome.EQUAL
        state.journal.record(step, DONE)
        assert rig.one("t").outcome is VerifyOutcome.EQUAL


@pytest.mark.parametrize("state", ["halted", "waiting", "lost"])
def test_a_table_that_stands(rig: VerifyRig, state: str) -> None:
    """It is compared at its own checkpoint, where its rows are those of it."""
    with closing(rig.state()) as owner:
        owner.progress.save(
            tables=[rig.progress("t", rig.now(), state=state, follows=False)],
            sequences={},
            checkpoint=0,
            storage_checkpoint=0,
        )
        owner.lease.release()
    if rig.is_live:
        rig.at_source("UPDATE t SET v = v + 1")
    result = rig.one("t")
    assert (result.outcome, result.different_rows) == (VerifyOutcome.EQUAL, 0)
    assert bool(result.notes) == (state != "waiting")


@pytest.mark.parametrize("state", ["dropped", "excluded"])
def test_a_table_that_is_no_more(rig: VerifyRig, state: str) -> None:
    """What the source dropped, or what is left out, is not compared."""
    rig.at_rest("t", state=state)
    with pytest.raises(ConfigError, match="no table that is meant"):
        rig.compared()


def test_a_table_that_lacks_what_was_passed_over_is_named(rig: VerifyRig) -> None:
    """The filter takes it again, so it is stored as left out, and halted: it is not equal by being passed over in silence."""
    lacks = rig.progress("t", rig.now(), state="excluded", error="its earlier rows are missing")
    with closing(rig.state()) as store:
        store.progress.save(tables=[lacks], sequences={}, checkpoint=0, storage_checkpoint=0)
        store.lease.release()
    result = rig.one("t")
    assert (result.outcome, result.reason) == (
        VerifyOutcome.NOT_COMPARED,
        "it is halted: its earlier rows are missing",
    )


def test_a_killed_connection(rig: VerifyRig) -> None:
    """Whichever connection is ended in the middle, another cut is taken, and the result is right."""
    rig.at_target("UPDATE t SET v = -1 WHERE id = 1999")
    with closing(Running(lambda: _kill_some(rig), again=True)):
        result = rig.one("t", chunk_rows=100, wait=30.0)
    assert (result.outcome, result.differing, result.missing, result.extra) == (VerifyOutcome.DIFFERENT, 1, 0, 0)


def broken_off(rig: VerifyRig, **wishes: Any) -> None:
    """Break a comparison off after some chunks."""
    stop = threading.Event()
    chunks = 0
    original = ComparedTable.chunk

    def counted(self: ComparedTable, keys: KeyRange) -> object:
        nonlocal chunks
        chunks += 1
        if chunks == 12:
            stop.set()
        return original(self, keys)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ComparedTable, "chunk", counted)
        with pytest.raises(Abandoned):
            rig.compared(stop=stop, **wishes)


def test_resumed(rig: VerifyRig) -> None:
    """A comparison that was broken off goes on behind its last chunk; what was found before stays, as of its own commit-ts."""
    rig.at_target("UPDATE t SET v = -1 WHERE id IN (3, 1990)")
    broken_off(rig)
    if rig.is_live:
        rig.at_source("INSERT INTO t VALUES (-7, 0)")
        rig.at_target("INSERT INTO t VALUES (-7, 0)")
    rig.at_rest("t")
    result = rig.one("t", resume=True)
    assert (result.outcome, result.differing, result.missing, result.extra) == (VerifyOutcome.DIFFERENT, 2, 0, 0)
    assert [each.key["id"] for each in result.differences] == ["3", "1990"]
    assert result.rows == len(ROWS)
    assert len(result.spans) == (2 if rig.is_live else 0)
    with pytest.raises(ConfigError, match="no comparison was broken off"):
        rig.compared(resume=True)


CHANGED = {
    "a column more": (["ADD COLUMN c INT DEFAULT 7"], "UPDATE t SET c = 8 WHERE id < 5"),
    "another key": (
        ["DROP PRIMARY KEY", "ADD PRIMARY KEY (v)"],
        "UPDATE t SET id = -1 WHERE v BETWEEN -1999 AND -1995",
    ),
    "a longer key": (["DROP PRIMARY KEY", "ADD PRIMARY KEY (id, w)"], "UPDATE t SET v = 1 WHERE id < 5"),
    "no key": (["DROP PRIMARY KEY"], "UPDATE t SET v = 1 WHERE id IN (1, 2, 3, 4, 5)"),
}
"""Changes on both sides → one for the target, which makes five rows differ; none of them lies behind what was compared before."""


@pytest.mark.parametrize("change", CHANGED)
def test_resumed_after_the_structure_changed(rig: VerifyRig, change: str) -> None:
    """The table is begun anew: its former chunks had other columns, or another key."""
    changes, difference = CHANGED[change]
    nonclustered = " /*T![clustered_index] NONCLUSTERED */"
    rig.both(
        "DROP TABLE t",
        f"CREATE TABLE t (id INT NOT NULL, v INT NOT NULL, w INT NOT NULL, PRIMARY KEY (id){nonclustered})",
        "INSERT INTO t VALUES (%s, %s, 0)",
        rows=[(number, -number) for number, _ in ROWS],
    )
    rig.at_rest("t")
    broken_off(rig)
    rig.both(*(f"ALTER TABLE t {each}" for each in changes))
    rig.at_target(difference)
    at = rig.at_rest("t")
    result = rig.one("t", resume=True)
    assert (result.outcome, result.rows, result.checkpoint) == (VerifyOutcome.DIFFERENT, len(ROWS), at)
    assert max(result.differing, result.missing) == 5
    assert result.spans == ()


def test_resumed_from_a_result_that_says_nothing_of_structures(rig: VerifyRig) -> None:
    """It was stored by an older program, which may have compared other columns: the table is begun anew."""
    broken_off(rig)
    rig.at_target("UPDATE t SET v = -1 WHERE id = 0")
    rig.at_rest("t")
    rig.target.query(
        "UPDATE storage_consumer.verify_results SET document = REPLACE(document, '\"shapes\": ', '\"other\": ')"
    )
    assert rig.one("t", resume=True).differing == 1


def test_resumed_in_another_mode(rig: VerifyRig) -> None:
    """That is refused with a way on: the result would promise more than was compared."""
    broken_off(rig)
    with pytest.raises(ConfigError, match=r"--resume: .*shop\.t.*leave out --quick"):
        rig.one("t", resume=True, how="quick")
    assert rig.one("t", resume=True).outcome is VerifyOutcome.EQUAL


def test_a_loss_in_the_middle_of_a_chunk(rig: VerifyRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chunk is compared again in another cut, and what was found in its first half counts once."""
    rig.at_target("UPDATE t SET v = -1 WHERE id IN (3, 1990)")
    original, lost = ComparedTable.chunk, list[bool]()

    def once_lost(self: ComparedTable, keys: KeyRange) -> object:
        if keys.above and not lost:
            lost.append(True)
            raise TargetUnavailable("lost")
        return original(self, keys)

    monkeypatch.setattr(ComparedTable, "chunk", once_lost)
    result = rig.one("t", chunk_rows=5000)
    assert (lost, result.differing, len(result.differences)) == ([True], 2, 2)


def test_a_structure_that_changes_meanwhile(rig: VerifyRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is begun anew in the new cut: its snapshot is held, and the result has its commit-ts."""
    original, lost, in_snapshot = ComparedTable.chunk, list[int](), set[bool]()

    def once_lost(self: ComparedTable, keys: KeyRange) -> object:
        if keys.above and not lost:
            lost.append(0)
            raise TargetUnavailable("lost")
        if lost and self._reading.whose == "target":
            in_snapshot.add(bool(self._reading.live().server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS))
        return original(self, keys)

    between = TableVerification._lost

    def changed(self: TableVerification, fault: TransientError, times: int) -> None:
        between(self, fault, times)
        rig.both("ALTER TABLE t ADD COLUMN c INT DEFAULT 7")
        rig.at_target("UPDATE t SET c = 8 WHERE id < 5")
        lost.append(rig.at_rest("t"))

    monkeypatch.setattr(ComparedTable, "chunk", once_lost)
    monkeypatch.setattr(TableVerification, "_lost", changed)
    result = rig.one("t", wait=10.0)
    assert (result.outcome, result.differing, result.rows) == (VerifyOutcome.DIFFERENT, 5, len(ROWS))
    assert (result.checkpoint, in_snapshot) == (lost[1], {True})


def test_a_source_that_is_no_tidb(mariadb: DatabaseServer) -> None:
    """Without --frozen it cannot be compared with, and it is not read as of now instead."""
    rig = VerifyRig(mariadb, mariadb)
    rig.both("CREATE TABLE t (id INT PRIMARY KEY)")
    rig.at_rest("t")
    with pytest.raises(ConfigError, match="is no TiDB"):
        rig.compared(frozen=False)


def _kill_some(rig: VerifyRig) -> None:
    """End a connection of the comparison, at one of the servers."""
    server = random.choice([rig.source, rig.target])  # noqa: S311 - not for secrets
    time.sleep(0.1)
    for row in server.query("SHOW PROCESSLIST"):
        if row[7] and "SHA2" in str(row[7]) and "PROCESSLIST" not in str(row[7]):
            with suppress(pymysql.err.MySQLError):
                server.query(f"KILL {row[0]}")
            return


def test_tables_that_the_state_does_not_know(rig: VerifyRig) -> None:
    """Those of the source at the cut are told; what is created after it comes with the bucket."""
    rig.at_source("CREATE TABLE old (id INT PRIMARY KEY)", "CREATE VIEW v AS SELECT id FROM old")
    rig.at_rest("t")
    if rig.is_live:
        rig.at_source("CREATE TABLE new (id INT PRIMARY KEY)")
    told = {name.table for name in rig.report().unknown if name.schema == SOURCE}
    assert told == {"old"}
    assert not rig.report(tables="shop.t").unknown


def test_names_by_the_routes(rig: VerifyRig) -> None:
    """A table is found in the target under the name that the state has."""
    assert rig.one("t").target == TableName(schema="copy", table="t")


def test_every_result_is_stored(rig: VerifyRig) -> None:
    """Results are in the state; a weaker look does not hide a difference that a full one has found, and a copy settles it."""
    rig.at_target("UPDATE t SET v = -1 WHERE id = 5")
    rig.compared()
    kept = "SELECT outcome, checkpoint FROM storage_consumer.verify_results"
    ((outcome, checkpoint),) = rig.target.query(kept)
    assert (outcome, checkpoint > 0) == ("different", True)
    assert rig.one("t", how="quick").outcome is VerifyOutcome.EQUAL
    assert rig.target.query(kept) == (("different", checkpoint),)
    name = TableName(schema=SOURCE, table="t")
    with closing(rig.state()) as state:
        load = Load(table_key=rig.key("t"), name=name, load_id="1", source="file:///e", low=rig.now(), parts=2)
        state.loads.begin([replace(load, phase=LoadPhase.LOADING)], by="op")
        state.lease.release()
    assert rig.target.query(kept) == ()


def test_a_limit_of_rows_per_second(rig: VerifyRig) -> None:
    """2,000 rows at 1,000 rows a second take two seconds; without a limit far less."""
    server = Server(settings=replace(rig.settings, port=rig.source.port))
    wishes = Wishes(chunk_rows=200, rows_per_second=1000, frozen=not rig.is_live)
    began = time.monotonic()
    verified(Server(settings=rig.settings), server, wishes)
    assert time.monotonic() - began > 1.7
