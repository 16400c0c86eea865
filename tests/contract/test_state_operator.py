"""What operators decide about tables, taken into what is stored: the twin in memory, and the real state on every server."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from storage_consumer.checkpoint.store import operated
from storage_consumer.config.settings import Downstream
from storage_consumer.model import TableName
from storage_consumer.operating.state_questions import decided
from storage_consumer.plan.copies import Copies
from storage_consumer.plan.journal_entry import DONE, SKIPPED, STARTED
from storage_consumer.plan.loads import Load, LoadPhase
from storage_consumer.plan.steps import DdlStep, key_of
from storage_consumer.plan.table_decisions import TableDecision, Verb
from storage_consumer.ports import Decision
from tests.contract.state_rigs import Rig, progress, real_rig, statement
from tests.harness.servers import KINDS, DatabaseServer
from tests.harness.twins.records import TargetRecords
from tests.harness.twins.state import MemoryState
from tests.harness.twins.storage import FakeClock

KEY = key_of(TableName(schema="shop", table="a"))
Decide = Callable[..., None]
LACKS = Copies(copy_from=70, absent={"shop/a/5|d|20": 3})


@pytest.fixture(params=["memory", *(pytest.param(kind, marks=pytest.mark.server) for kind in KINDS)])
def rig(request: pytest.FixtureRequest) -> Iterator[tuple[Rig, Decide]]:
    """Each state in turn, and how an operator decides there."""
    if request.param == "memory":
        records, clock = TargetRecords(), FakeClock()
        found = Rig(lambda: MemoryState(records, clock), lambda: clock.advance(31))

        def decide(verb: Verb, at: int = 0, to: TableName | None = None) -> None:
            clock.advance(1)
            made = TableDecision(table_key=KEY, verb=verb, at=at, to=to, decided_at=str(clock.now()), decided_by="op")
            records.table_decisions[KEY] = made

        def done(step: DdlStep) -> None:
            records.decisions[step.identity] = Decision(verb="done")
    else:
        server: DatabaseServer = request.getfixturevalue(request.param)
        found = real_rig(server)

        def decide(verb: Verb, at: int = 0, to: TableName | None = None) -> None:
            desk = operated(Downstream(port=server.port), "")
            row = next(row for row in desk.decisions.tables() if row.stored.table_key == KEY)
            desk.decisions.decide_on(row, TableDecision(table_key=KEY, verb=verb, at=at, to=to, decided_by="op"))
            desk.close()

        def done(step: DdlStep) -> None:
            desk = operated(Downstream(port=server.port), "")
            (row,) = desk.journal.of_version(step.version)
            desk.journal.decide(row, Decision(verb="done"))
            desk.close()

    found.done = done
    yield found, decide
    found.close()


def stored(state: Any, *tables: Any, checkpoint: int = 0) -> None:
    """Store tables."""
    state.progress.save(tables=tables, sequences={}, checkpoint=checkpoint, storage_checkpoint=0)


def halted(**more: Any) -> Any:
    """A halted table at 50."""
    return progress("shop/a", 50, "halted", follows=False, error="broken", **more)


def test_nothing_is_decided(rig: tuple[Rig, Decide]) -> None:
    """Without a decision nothing changes."""
    state = rig[0].owner()
    stored(state, halted())
    assert state.decisions.apply_to_tables() == []


@pytest.mark.parametrize("phase", [LoadPhase.LOADING, LoadPhase.JOINING])
def test_a_skip_ends_what_a_load_held_back(rig: tuple[Rig, Decide], phase: LoadPhase) -> None:
    """A table that is loaded, or catches up, does not count for what is told to others: left out, it must not take that back to its copy."""
    state, decide = rig[0].owner(), rig[1]
    name = TableName(schema="shop", table="a")
    load = Load(table_key=KEY, name=name, load_id="1", source="s3://b/x", low=50, high=50, phase=LoadPhase.LOADING)
    state.loads.begin([load], by="op")
    if phase == LoadPhase.JOINING:
        assert state.loads.finish(load) == ""
    stored(state, checkpoint=90)
    decide("skip")
    (found,) = state.decisions.apply_to_tables()
    assert found.refusal == ""
    restart, _ = state.progress.load()
    assert (restart.tables[KEY], restart.excluded, restart.loads) == (90, {KEY: name}, {})


def test_copy_resolves_all_up_to_it(rig: tuple[Rig, Decide]) -> None:
    """The table runs from the copy on, files that were missing need not come, and it is obeyed once."""
    state, decide = rig[0].owner(), rig[1]
    stored(state, halted(copies=LACKS), checkpoint=60)
    assert state.progress.load()[0].copies == {KEY: LACKS}
    decide("reload-done", 80)
    (found,) = state.decisions.apply_to_tables()
    assert (found.table, found.decision.at, found.decision.decided_by, found.refusal) == ("shop.a", 80, "op", "")
    restart, _ = state.progress.load()
    assert (restart.tables, restart.behind, restart.lost.keys()) == ({KEY: 80}, {KEY}, frozenset())
    assert restart.copies == {KEY: Copies(copied_at=80, passed=LACKS.absent)}
    assert state.decisions.apply_to_tables() == []


@pytest.mark.parametrize(
    ("table", "verb", "at", "reason"),
    [
        ("halted", "reload-done", 49, "as of 50 or later"),
        ("lost", "reload-done", 69, "as of 70, when they were first missed"),
        ("running", "reload-done", 99, "is not halted.*table pause --table shop.a"),
        (
            "lost",
            "resume",
            0,
            "give it a copy.*load --table shop.a --dump URI --replace.*reload-done --table shop.a --at TSO",
        ),
        ("excluded", "resume", 0, "reload-done"),
    ],
)
def test_refused(rig: tuple[Rig, Decide], table: str, verb: Verb, at: int, reason: str) -> None:
    """What would lose or double rows is refused with the way on, and changes nothing."""
    state, decide = rig[0].owner(), rig[1]
    stored(state, replace(halted(copies=LACKS if table == "lost" else None), state=table))
    before = state.progress.load()
    decide(verb, at)
    (found,) = state.decisions.apply_to_tables()

    assert re.search(reason, found.refusal)
    assert (state.progress.load()[0].tables, state.progress.load()[0].lost) == (before[0].tables, before[0].lost)
    assert state.decisions.apply_to_tables() == []


@pytest.mark.parametrize("state_then", [DONE, SKIPPED])
def test_copy_from_before_a_resolved_statement(rig: tuple[Rig, Decide], state_then: str) -> None:
    """A statement that is done or skipped is not run again, so a copy from before it can't be taken."""
    state, decide = rig[0].owner(), rig[1]
    stored(state, replace(halted(), state="excluded"))
    state.history.keep([("shop/a", statement(version=90).definition)])
    state.journal.record(statement(version=90), state_then)
    decide("reload-done", 80)
    assert "as of 90 or later" in state.decisions.apply_to_tables()[0].refusal
    decide("reload-done", 90)
    assert state.decisions.apply_to_tables()[0].refusal == ""


@pytest.mark.parametrize("state_of_it", ["halted", "lost"])
def test_copy_while_a_statement_may_still_run(rig: tuple[Rig, Decide], state_of_it: str) -> None:
    """A statement that was begun has to end first; where the table can't be tried again, an operator's word for it is enough."""
    state, decide = rig[0].owner(), rig[1]
    step = statement(version=79)
    stored(state, replace(halted(), state=state_of_it))
    state.history.keep([("shop/a", step.definition)])
    state.journal.record(step, STARTED)
    decide("reload-done", 80)
    way_on = "run `storage-consumer ddl done`" if state_of_it == "lost" else "table resume --table shop.a"
    assert way_on in state.decisions.apply_to_tables()[0].refusal
    rig[0].done(step)
    decide("reload-done", 81)
    assert bool(state.decisions.apply_to_tables()[0].refusal) == (state_of_it == "halted")


def test_pause_and_resume(rig: tuple[Rig, Decide]) -> None:
    """A running table stands still where it is, over restarts, until an operator lets it go on; then it follows nothing at first."""
    state, decide = rig[0].owner(), rig[1]
    stored(state, progress("shop/a", 50), checkpoint=60)
    decide("pause")
    assert state.decisions.apply_to_tables()[0].refusal == ""
    restart, _ = state.progress.load()
    assert (restart.tables, restart.behind) == ({KEY: 60}, {KEY})
    assert "paused by op since" in restart.held[KEY]
    assert restart.paused == {KEY}
    assert state.decisions.apply_to_tables() == []
    decide("resume")
    state.decisions.apply_to_tables()
    restart, _ = state.progress.load()
    assert (restart.held, restart.tables, restart.behind) == ({}, {KEY: 60}, {KEY})


@pytest.mark.parametrize("state_of_it", ["running", "waiting", "halted", "lost"])
def test_skip_and_what_ends_it(rig: tuple[Rig, Decide], state_of_it: str) -> None:
    """Whatever state it is in, a skipped table lacks rows until there is a copy; a pause has it stand still, and a resume ends nothing."""
    state, decide = rig[0].owner(), rig[1]
    stored(state, replace(halted(), state=state_of_it))
    decide("skip")
    assert state.decisions.apply_to_tables()[0].refusal == ""
    restart, _ = state.progress.load()
    assert restart.skipped[KEY].startswith("skipped by op since")
    assert (restart.excluded.keys(), restart.held, restart.lost.keys()) == ({KEY}, {}, frozenset())
    for verb, is_skipped in (("resume", True), ("pause", False), ("resume", False), ("skip", True)):
        decide(verb)
        way_on = "table reload-done --table shop.a" if verb == "resume" else ""
        assert way_on in state.decisions.apply_to_tables()[0].refusal
        restart = state.progress.load()[0]
        assert (KEY in restart.skipped, restart.excluded.keys()) == (is_skipped, {KEY})
    decide("reload-done", 80)
    assert state.decisions.apply_to_tables()[0].refusal == ""
    restart, _ = state.progress.load()
    assert (restart.skipped, restart.excluded, restart.tables[KEY]) == ({}, {}, 80)


@pytest.mark.server
def test_how_far_tables_are(mariadb: DatabaseServer) -> None:
    """A table that was idle is shown as far as the feed, whatever its own row says; one that is halted as far as it came."""
    state = real_rig(mariadb).owner()
    stored(state, progress("shop/idle", 50), progress("shop/stopped", 50, "halted", follows=False), checkpoint=60)
    desk = operated(Downstream(port=mariadb.port), "")
    rows = {row.stored.name.table: (row.reached, row.stored.checkpoint) for row in desk.decisions.tables()}
    desk.close()
    assert rows == {"idle": (60, 50), "stopped": (50, 50)}


@pytest.mark.server
def test_a_hold_of_an_earlier_version(mariadb: DatabaseServer) -> None:
    """What an earlier program stored as `hold` is a pause, whether or not it was obeyed; and a pause is stored so that such a program obeys it."""
    found = real_rig(mariadb)
    state = found.owner()
    stored(state, progress("shop/a", 50), checkpoint=60)
    desk = operated(Downstream(port=mariadb.port), "")
    (row,) = desk.decisions.tables()
    desk.decisions.decide_on(row, TableDecision(table_key=KEY, verb="pause", decided_by="op"))
    assert mariadb.query("SELECT verb FROM storage_consumer.table_decision") == (("hold",),)
    assert state.decisions.apply_to_tables()[0].decision.verb == "pause"
    (row,) = desk.decisions.tables()
    desk.close()
    assert row.decision is not None
    assert (row.decision.verb, row.obeyed) == ("pause", True)
    assert KEY in state.progress.load()[0].paused


@pytest.mark.server
@pytest.mark.parametrize("verb", ["accept-keys", "reload-done", "resume"])
def test_keys_that_were_noted(verb: Verb, mariadb: DatabaseServer) -> None:
    """The unique keys of a copy, or those that are said to be right, are not held against what was noted before."""
    found = real_rig(mariadb)
    state = found.owner()
    place = TableName(schema="copy", table="A_old")
    stored(state, halted(target=place))
    mariadb.query(f"INSERT INTO storage_consumer.table_keys VALUES ('{key_of(place)}', 'a'), ('`shop`.`b`', 'b')")
    desk = operated(Downstream(port=mariadb.port), "")
    row = next(row for row in desk.decisions.tables() if row.stored.table_key == KEY)
    desk.decisions.decide_on(row, TableDecision(table_key=KEY, verb=verb, at=80, decided_by="op"))
    desk.close()
    assert state.decisions.apply_to_tables()[0].refusal == ""
    left = {key for (key,) in mariadb.query("SELECT table_key FROM storage_consumer.table_keys")}
    assert left == {"`shop`.`b`"} | ({key_of(place)} if verb == "resume" else set())
    found.close()


def test_moved(rig: tuple[Rig, Decide]) -> None:
    """A table that was renamed in the target is looked for there, and nothing else changes."""
    state, decide = rig[0].owner(), rig[1]
    stored(state, halted(target=TableName(schema="copy", table="a")))
    decide("moved", to=TableName(schema="shop", table="z"))
    assert state.decisions.apply_to_tables()[0].refusal == ""
    restart, _ = state.progress.load()
    assert restart.targets[KEY][1] == TableName(schema="shop", table="z")
    assert (restart.tables, restart.behind) == ({KEY: 50}, {KEY})


def test_what_a_copy_held_stays(rig: tuple[Rig, Decide]) -> None:
    """A statement that was begun before a copy, and ends after it, takes nothing of it back."""
    state, decide = rig[0].owner(), rig[1]
    stored(state, halted(copies=LACKS))
    decide("reload-done", 80)
    state.decisions.apply_to_tables()
    held_then = state.progress.load()[0].copies
    state.journal.record(statement(version=79), DONE, tables=[halted(copies=LACKS)])
    assert state.progress.load()[0].copies == held_then


@pytest.mark.server
def test_desk_knows_of_a_statement_that_was_begun(server: DatabaseServer) -> None:
    """The command sees what the consumer would refuse a copy for, before the operator makes one; an operator's word counts alike."""
    found, step = real_rig(server), statement(version=79)
    state = found.owner()
    stored(state, halted())
    state.history.keep([("shop/a", step.definition)])
    state.journal.record(step, STARTED)
    desk = operated(Downstream(port=server.port), "")
    (table,) = [row.stored for row in desk.decisions.tables() if row.stored.table_key == KEY]
    name = TableName(schema="shop", table="other")
    other = replace(table, table_key=key_of(name), name=name)
    lost = replace(table, state="lost")
    assert [desk.decisions.judged(each).started for each in (table, lost, other)] == [79, 79, 0]
    (waiting,) = desk.journal.of_version(step.version)
    desk.journal.decide(waiting, Decision(verb="done"))
    assert [desk.decisions.judged(each).started for each in (table, lost)] == [79, 0]
    state.journal.record(step, DONE)
    assert [(judged.last_resolved, judged.started) for judged in map(desk.decisions.judged, (table, other))] == [
        (79, 0),
        (0, 0),
    ]
    desk.close()
    found.close()


@pytest.mark.parametrize("state_of_it", ["running", "halted", "lost", "excluded", "dropped"])
@pytest.mark.parametrize("verb", ["pause", "resume", "skip", "reload-done", "accept-keys", "moved"])
def test_a_decision_foreseen(rig: tuple[Rig, Decide], verb: Verb, state_of_it: str) -> None:
    """What a plan makes of a decision is what is stored once it is obeyed; foreseeing it changes nothing."""
    state, decide = rig[0].owner(), rig[1]
    stored(state, progress("shop/a", 50, state_of_it, follows=state_of_it == "running", error="why"), checkpoint=60)
    for at in (80, 10):
        decide(verb, at, TableName(schema="other", table="b") if verb == "moved" else None)
        before, _ = state.progress.load()
        foreseen = state.decisions.foreseen()
        assert state.progress.load()[0] == before
        (obeyed,) = state.decisions.apply_to_tables()
        assert decided(before, foreseen) == state.progress.load()[0]
        assert [each.refusal for each in foreseen] == [obeyed.refusal]
    assert state.decisions.foreseen() == []
