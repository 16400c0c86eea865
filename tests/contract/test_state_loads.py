"""What every state store does with loads: the twin in memory, and the real one on every server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from storage_consumer.errors import LeaseLost
from storage_consumer.model import TableName
from storage_consumer.plan.copies import Copies
from storage_consumer.plan.loads import Load, LoadPhase, end_of
from storage_consumer.plan.steps import key_of
from storage_consumer.plan.table_state import TableState
from storage_consumer.ports import State
from tests.contract.state_rigs import Rig, progress, real_rig, statement
from tests.harness.servers import KINDS
from tests.harness.twins.records import TargetRecords
from tests.harness.twins.state import MemoryState
from tests.harness.twins.storage import FakeClock

HIGH = (1 << 63) + 5
"""A TSO beyond what a signed integer holds."""
NAME = TableName(schema="shop", table="o'dd `a`")
KEY = key_of(NAME)
LOAD = Load(
    table_key=KEY,
    name=NAME,
    load_id="one",
    source="s3://bucket/full",
    identity="abc",
    low=HIGH,
    high=HIGH,
    phase=LoadPhase.LOADING,
    parts=3,
    size=1 << 40,
    replaces=True,
)


@pytest.fixture(params=["memory", *(pytest.param(kind, marks=pytest.mark.server) for kind in KINDS)])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """Each state in turn."""
    if request.param == "memory":
        records, clock = TargetRecords(), FakeClock()
        found = Rig(lambda: MemoryState(records, clock), lambda: clock.advance(31))
    else:
        found = real_rig(request.getfixturevalue(request.param))
    yield found
    found.close()


def caught_up(state: State) -> None:
    """Store that the table has caught up since its load."""
    state.progress.save(
        tables=[progress("shop/o'dd `a`", HIGH, follows=True)],
        sequences={},
        checkpoint=0,
        storage_checkpoint=0,
        joined=[KEY],
    )


def test_a_load_is_read_as_it_was_stored(rig: Rig) -> None:
    """All of it, and its table stands still and follows nobody."""
    state = rig.owner()
    state.loads.begin([LOAD], by="me")
    restart, _ = state.progress.load()
    assert restart.loads == {KEY: LOAD}
    assert (restart.based, restart.behind, restart.tables, restart.floor) == ({KEY}, {KEY}, {KEY: 0}, 0)
    assert restart.targets == {KEY: (NAME, NAME)}


def test_a_load_remembers_where_its_rows_go(rig: Rig) -> None:
    """From its beginning: a route that changes before the first row of the copy is stored must not go unseen."""
    state = rig.owner()
    place = TableName(schema="depot", table="a")
    state.loads.begin([LOAD], by="me", places={KEY: place})
    assert state.progress.load()[0].targets == {KEY: (NAME, place)}


def test_a_load_without_routes_goes_to_the_own_name(rig: Rig) -> None:
    """Whatever place earlier routes gave the table: it was left out when they were taken away."""
    state = rig.owner()
    state.loads.begin([LOAD], by="me", places={KEY: TableName(schema="depot", table="a")})
    state.loads.begin([LOAD], by="me")
    assert state.progress.load()[0].targets == {KEY: (NAME, NAME)}


def test_a_request_that_is_gone_does_not_begin(rig: Rig) -> None:
    """It was withdrawn, or another one has taken its place, while its copy was opened."""
    state = rig.owner()
    requested = replace(LOAD, phase=LoadPhase.REQUESTED)
    state.loads.begin([requested], by="me")
    assert state.loads.begin([replace(LOAD, load_id="an older one")], by="") == []
    assert [load.load_id for load in state.loads.requested()] == ["one"]
    assert state.loads.begin([LOAD], by="") == [LOAD]
    assert (state.loads.requested(), state.progress.load()[0].loads) == ([], {KEY: LOAD})
    assert state.loads.begin([LOAD], by="") == []


def test_a_feed_begins_with_a_floor(rig: Rig) -> None:
    """It counts as applied everywhere, and stays when loads begin later."""
    state = rig.owner()
    state.loads.begin([LOAD], by="me", floor=HIGH)
    state.loads.begin([replace(LOAD, load_id="two")], by="me")
    restart, _ = state.progress.load()
    assert (restart.floor, restart.checkpoint, restart.lowest) == (HIGH, HIGH, HIGH)


def test_a_clock_never_goes_back(rig: Rig) -> None:
    """A later job may know less than a task has stored."""
    state = rig.owner()
    state.loads.begin([LOAD], by="me")
    state.loads.advance({KEY: end_of(2)})
    state.loads.advance({KEY: end_of(1)})
    assert state.loads.clocks([KEY]) == {KEY: end_of(2)}
    assert state.progress.load()[0].loads[KEY].parts_done == 2


def test_a_finished_load_lets_the_table_go_on_from_the_copy(rig: Rig) -> None:
    """As an operator's copy does: the checkpoint is that of the copy, and what files lack is in it."""
    state = rig.owner()
    state.progress.save(
        tables=[
            progress("shop/o'dd `a`", 4, TableState.LOST, copies=Copies(copy_from=9, absent={"s": 3}), follows=False)
        ],
        sequences={},
        checkpoint=0,
        storage_checkpoint=0,
    )
    state.loads.begin([LOAD], by="me")
    assert state.progress.load()[0].lost == {}
    assert state.loads.finish(LOAD) == ""
    restart, _ = state.progress.load()
    assert (restart.tables, restart.behind) == ({KEY: HIGH}, {KEY})
    assert restart.copies[KEY] == Copies(copied_at=HIGH, passed={"s": 3})
    assert restart.loads[KEY].phase == LoadPhase.JOINING
    caught_up(state)
    assert (state.progress.load()[0].loads, state.progress.load()[0].behind) == ({}, frozenset())
    assert state.progress.load()[0].based == {KEY}


def test_a_copy_that_is_too_old_lets_nothing_go_on(rig: Rig) -> None:
    """What was applied after it would be lost under it; nothing is changed."""
    state = rig.owner()
    state.progress.save(
        tables=[progress("shop/o'dd `a`", 40, TableState.HALTED, follows=False)],
        sequences={},
        checkpoint=0,
        storage_checkpoint=0,
    )
    old = replace(LOAD, low=30, high=30)
    state.loads.begin([old], by="me")
    assert "too old" in state.loads.finish(old)
    restart, _ = state.progress.load()
    assert (restart.tables, restart.loads[KEY].phase) == ({KEY: 40}, LoadPhase.LOADING)


def test_what_a_requested_load_waits_for(rig: Rig) -> None:
    """It is stored with the load that is requested now; nothing of that stays once it begins."""
    state = rig.owner()
    asked = replace(LOAD, phase=LoadPhase.REQUESTED)
    state.loads.begin([asked], by="me")
    state.loads.wait(replace(asked, load_id="another"), "not that one")
    state.loads.wait(asked, "no route to host")
    assert [(load.load_id, load.error) for load in state.loads.requested()] == [("one", "no route to host")]
    state.loads.begin([LOAD], by="")
    state.loads.wait(asked, "no route to host")
    assert state.progress.load()[0].loads == {KEY: LOAD}


def test_a_refused_load_changes_nothing_of_its_table(rig: Rig) -> None:
    """Its table is as it was, and nothing waits for the load any more."""
    state = rig.owner()
    requested = replace(LOAD, phase=LoadPhase.REQUESTED)
    state.loads.begin([requested], by="me")
    assert [load.load_id for load in state.loads.requested()] == ["one"]
    state.loads.refuse(replace(requested, load_id="an older one"), "not this one")
    assert state.loads.requested()
    state.loads.refuse(requested, "no such file")
    assert (state.loads.requested(), state.progress.load()[0].loads) == ([], {})


def test_only_the_owner_stores_loads(rig: Rig) -> None:
    """A process that lost its lease learns of it instead of storing something."""
    former = rig.owner()
    former.loads.begin([LOAD], by="me")
    rig.expire()
    rig.owner("another")
    writes: list[Callable[[], object]] = [
        lambda: former.loads.begin([LOAD], by="me"),
        lambda: former.loads.advance({KEY: 1}),
        lambda: former.loads.finish(LOAD),
        lambda: caught_up(former),
        lambda: former.loads.refuse(LOAD, "late"),
    ]
    for write in writes:
        with pytest.raises(LeaseLost):
            write()


def test_statements_of_a_copy_are_in_the_journal_of_their_load(rig: Rig) -> None:
    """They resolve nothing of the bucket's own statements, so a copy is not too old for them."""
    state = rig.owner()
    state.loads.begin([LOAD], by="me")
    step = statement(table_dir=f"load/one/{KEY}", version=HIGH + 9)
    state.journal.record(replace(step, table_key=KEY), "done")
    assert state.loads.finish(LOAD) == ""
