"""A view that cannot be made holds up nothing: no table, no checkpoint; it is made once what it reads is there."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Literal

import pytest

from storage_consumer.errors import LeaseLost
from storage_consumer.model import DdlId, TableName
from storage_consumer.plan.journal_entry import DONE, FAILED
from tests.harness.small_bucket import CREATE_TABLE, ID_NAME, column, row, ts
from tests.unit.copying import MemoryCopy, WithCopies
from tests.unit.deciding import answer, decide
from tests.unit.driving import Stop, World, held, killed_at, of, running

DROP, ALTER, RENAME, CREATE_VIEW, DROP_VIEW = 4, 5, 14, 21, 24
BODY = "(id INT PRIMARY KEY, name VARCHAR(20))"
SHOWN = (column("id", "UNSPECIFIED"),)
WIDER = (*ID_NAME, column("note", "INT"))


@pytest.fixture
def world() -> World:
    """The table d.t with a row after each statement on it."""
    found = World()
    found.bucket.create("d.t")
    return found


def view(world: World, tick: int, name: str = "v", reads: str = "`gone`", *, replaces: bool = False) -> DdlId:
    """Add a CREATE VIEW, and return its identity."""
    head = "CREATE OR REPLACE" if replaces else "CREATE"
    query = f"{head} ALGORITHM = UNDEFINED DEFINER = CURRENT_USER SQL SECURITY DEFINER VIEW `d`.`{name}` AS SELECT `id` FROM {reads}"
    path = world.bucket.schema(f"d.{name}", ts(tick), query, CREATE_VIEW, SHOWN)
    return DdlId(f"d/{name}", ts(tick), int(path.stem.rpartition("_")[2]))


def test_view_over_nothing(world: World) -> None:
    """It is left out with a reason, counted, and tried again at the next start; its tables and the checkpoint go on."""
    identity = view(world, 3, reads="`d`.`gone` JOIN `d`.`t`")
    world.bucket.schema("d.t", ts(5), "ALTER TABLE `t` ADD COLUMN `note` INT", ALTER, WIDER)
    world.bucket.rows("d.t", 1, row("d.t", 6, "1", '"one"', "5"), version=ts(5))
    world.bucket.metadata(ts(9))
    for _ in range(2):
        summary = world.once()
        assert (summary.checkpoint, summary.halted, summary.waiting) == (ts(9), (), ())
        # Once more for the statement on d.t, at the first start.
        assert 1 <= summary.skipped["ddl: view left out"] <= 2
        left_out = of(summary, "d.v")
        assert left_out.state == "running"
        assert "error 1146: no table d.gone" in left_out.error
        assert "ddl replace --table d.v" in left_out.error
    assert world.rows("d.t") == [{"id": "1", "name": "one", "note": "5"}]
    assert world.records.journal[identity].state == FAILED
    assert "no table d.gone" in world.records.tables["`d`.`v`"].error


@pytest.mark.parametrize("again", ["same round", "next start"])
@pytest.mark.parametrize("how", ["create", "rename"])
def test_view_whose_table_comes(world: World, again: str, how: str) -> None:
    """It is made as soon as its table is there, and so is a view over it."""
    view(world, 3)
    view(world, 4, "w", "`d`.`v`")
    world.bucket.metadata(ts(5))
    if again != "same round":
        assert of(world.once(), "d.w").error
    if how == "create":
        world.bucket.schema("d.gone", ts(6), f"CREATE TABLE `gone` {BODY}", CREATE_TABLE)
    else:
        world.bucket.schema("d.gone", ts(6), "RENAME TABLE `d`.`t` TO `d`.`gone`", RENAME)
    summary = world.once(9)
    assert {"d.v", "d.w"} <= {str(name) for name in world.records.structures}
    assert not [table for table in summary.tables if table.error]
    assert {entry.state for entry in world.records.journal.values()} == {DONE}
    assert world.records.tables["`d`.`v`"].error == ""


@pytest.mark.parametrize("end", ["DROP VIEW `d`.`v`", "DROP DATABASE `d`"])
def test_view_that_is_gone(world: World, end: str) -> None:
    """A view that was never made need not be dropped, and is not made once the source no longer has it."""
    world.bucket.schema("e", ts(1), "CREATE DATABASE `e`", 1)
    view(world, 3, reads="`e`.`gone`")
    place, kind = ("d.v", DROP_VIEW) if "VIEW" in end else ("d", 2)
    world.bucket.schema(place, ts(4), end, kind, ())
    world.bucket.schema("e.gone", ts(5), f"CREATE TABLE `gone` {BODY}", CREATE_TABLE)
    summary = world.once(9)
    assert not [table for table in summary.tables if table.error]
    assert not [effect for effect in world.records.effects if "VIEW" in effect]
    assert ("d" in world.records.databases) == ("VIEW" in end)


@pytest.mark.parametrize("end", ["DROP VIEW `d`.`v`", "DROP DATABASE `d`", "another view"])
def test_view_that_is_gone_with_its_files(world: World, end: str) -> None:
    """A view that was left out and has ended is not made by a later start from what the state keeps, when no file tells of its end any more."""
    world.bucket.schema("e", ts(1), "CREATE DATABASE `e`", 1)
    view(world, 3, reads="`e`.`gone`")
    assert of(world.once(4), "d.v").error
    if end == "another view":
        view(world, 5, reads="`d`.`t`", replaces=True)
    else:
        place, kind = ("d.v", DROP_VIEW) if "VIEW" in end else ("d", 2)
        world.bucket.schema(place, ts(5), end, kind, ())
    if "DATABASE" in end:
        world.bucket.schema("d", ts(6), "CREATE DATABASE `d`", 1)
    world.once(7)
    gone = [stored.path for stored in world.bucket.storage.listing(frozenset(), {}) if stored.path.startswith("d/")]
    for path in gone:
        world.bucket.storage.delete(path)
    world.bucket.schema("e.gone", ts(8), f"CREATE TABLE `gone` {BODY}", CREATE_TABLE)
    world.bucket.metadata(ts(9))
    before = list(world.records.effects)
    world.once()
    assert [effect for effect in world.records.effects[len(before) :] if "VIEW" in effect] == []


@pytest.mark.parametrize("how", ["DROP TABLE `users`", "RENAME TABLE `d`.`users` TO `d`.`people`", "DROP DATABASE `d`"])
def test_view_of_a_table_that_went(how: str) -> None:
    """What a name without a database meant is what was there at its version: no other table takes the place of one that has gone since."""
    world = World()
    world.bucket.schema("c", ts(1), "CREATE DATABASE `c`", 1)
    world.bucket.create("d.users", "e.users")
    query = "CREATE VIEW `c`.`v` AS SELECT `id` FROM `users`"
    world.bucket.schema("c.v", ts(4), query, CREATE_VIEW, SHOWN)
    assert "all of these can be meant: d.users, e.users" in of(world.once(5), "c.v").error
    place, kind = ("d.people", RENAME) if "RENAME" in how else ("d.users", DROP) if "TABLE" in how else ("d", 2)
    world.bucket.schema(place, ts(6), how, kind, ID_NAME if kind == RENAME else ())
    world.bucket.metadata(ts(9))
    for _ in range(2):
        summary = world.once()
        assert (summary.checkpoint, summary.halted, summary.waiting) == (ts(9), (), ())
        assert "all of these can be meant: d.users, e.users" in of(summary, "c.v").error
        assert not [effect for effect in world.records.effects if "VIEW" in effect]


def test_view_of_another_account(world: World) -> None:
    """It is left out with a true reason, and nothing waits for it, not even the DROP of its database."""
    query = "CREATE ALGORITHM = UNDEFINED DEFINER = `root`@`%` SQL SECURITY DEFINER VIEW `d`.`v` AS SELECT `id` FROM `d`.`t`"
    world.bucket.schema("d.v", ts(3), query, CREATE_VIEW, SHOWN)
    summary = world.once(5)
    assert (summary.checkpoint, summary.halted) == (ts(5), ())
    assert (
        "rights of an account other than the one that runs it (DEFINER). Create it manually" in of(summary, "d.v").error
    )
    assert "TiCDC does not store" not in of(summary, "d.v").error
    world.bucket.schema("d", ts(6), "DROP DATABASE `d`", 2, ())
    assert (world.once(9).checkpoint, "d" in world.records.databases) == (ts(9), False)


def test_view_over_all_columns_of_a_table_that_is_paused(world: World) -> None:
    """It is made once the table has come to where the source made it, with the columns that it has there."""
    world.once(2)
    decide(world, "pause", table="t", schema="d")
    world.bucket.schema("d.t", ts(5), "ALTER TABLE `t` ADD COLUMN `note` INT", ALTER, WIDER)
    world.bucket.schema("d.v", ts(6), "CREATE VIEW `d`.`v` AS SELECT * FROM `d`.`t`", CREATE_VIEW, WIDER)
    assert "here it would have id, name" in of(world.once(9), "d.v").error
    decide(world, "resume", table="t", schema="d")
    assert not [table for table in world.once().tables if table.error]
    view_there = world.records.structures[TableName(schema="d", table="v")]
    assert [column.name for column in view_there.columns] == ["id", "name", "note"]


def test_view_in_the_place_of_a_table(world: World) -> None:
    """Files of the table's rows that come again are repeated deliveries; a row of later halts, for it would go into other tables."""
    world.bucket.rows("d.t", 1, row("d.t", 2, "1", '"one"'))
    world.bucket.schema("d.t2", ts(4), "RENAME TABLE `d`.`t` TO `d`.`t2`", RENAME)
    world.bucket.schema("d.t", ts(5), "CREATE VIEW `d`.`t` AS SELECT `id` FROM `d`.`t2`", CREATE_VIEW, SHOWN)
    world.once(6)
    world.bucket.rows("d.t", 2, row("d.t", 3, "2", '"two"'))
    summary = world.once(9)
    assert (summary.checkpoint, summary.halted) == (ts(9), ())
    world.bucket.rows("d.t", 3, row("d.t", 10, "3", '"three"'))
    assert "is a view in the target" in of(world.once(12), "d.t").error


@pytest.mark.parametrize("is_there", [True, False])
def test_view_that_gets_another_name(world: World, *, is_there: bool) -> None:
    """RENAME TABLE takes views too; one that was left out stays so under its new name, and holds up nothing."""
    view(world, 3, reads="`t`" if is_there else "`gone`")
    world.bucket.schema("d.w", ts(4), "RENAME TABLE `d`.`v` TO `d`.`w`", RENAME, SHOWN)
    world.bucket.rows("d.t", 1, row("d.t", 5, "1", '"one"'))
    world.bucket.metadata(ts(9))
    for _ in range(2):
        summary = world.once()
        assert (summary.checkpoint, summary.halted, summary.waiting) == (ts(9), (), ())
        assert [table.table for table in summary.tables if table.error] == ([] if is_there else ["d.w"])
        names = {str(name) for name, each in world.records.structures.items() if each.is_view}
        assert names == ({"d.w"} if is_there else set())


def test_a_view_that_is_left_out_takes_no_table_along(world: World) -> None:
    """Where a table has come to have the old name of such a view, the view's RENAME TABLE must not find it."""
    view(world, 3)
    world.bucket.schema("d.w", ts(4), "RENAME TABLE `d`.`v` TO `d`.`w`", RENAME, SHOWN)
    world.bucket.schema("d.v", ts(5), f"CREATE TABLE `v` {BODY}", CREATE_TABLE)
    world.bucket.rows("d.v", 1, row("d.v", 6, "1", '"one"'), version=ts(5))
    world.bucket.metadata(ts(9))
    for _ in range(2):
        summary = world.once()
        assert (summary.checkpoint, summary.halted, summary.waiting) == (ts(9), (), ())
        assert re.search("d.v is no view in the target|which something else has by now", of(summary, "d.w").error)
        assert world.rows("d.v") == [{"id": "1", "name": "one"}]
        assert "d.w" not in {str(name) for name in world.records.structures}


@pytest.mark.parametrize("reads", ["`u`", "`gone`"])
def test_a_view_and_a_table_change_names(reads: str) -> None:
    """The table's rows go on under the view's former name, whether or not the view is there."""
    world = World()
    world.bucket.create("d.t", "d.u")
    view(world, 3, reads=reads)
    world.bucket.rows("d.t", 1, row("d.t", 2, "1", '"one"'))
    world.bucket.schema("d.tmp", ts(5), "RENAME TABLE `d`.`t` TO `d`.`tmp`", RENAME)
    world.bucket.schema("d.t", ts(5), "RENAME TABLE `d`.`v` TO `d`.`t`", RENAME, SHOWN)
    world.bucket.schema("d.v", ts(5), "RENAME TABLE `d`.`tmp` TO `d`.`v`", RENAME)
    world.bucket.rows("d.v", 1, row("d.v", 6, "2", '"two"'), version=ts(5))
    world.bucket.metadata(ts(9))
    for _ in range(2):
        summary = world.once()
        assert (summary.checkpoint, summary.halted, summary.waiting) == (ts(9), (), ())
        assert [found["id"] for found in world.rows("d.v")] == ["1", "2"]
        views = {str(name) for name, each in world.records.structures.items() if each.is_view}
        assert views == ({"d.t"} if reads == "`u`" else set())


def test_view_that_the_copy_leaves_out_under_its_second_name() -> None:
    """It is told as left out, and is no table that the copy lacks."""
    copy = MemoryCopy(snapshot=ts(10))
    copy.add("d.t", [("1", '"copy"')])
    world = WithCopies(copy, initial=True)
    world.bucket.create("d.t")
    view(world, 3, reads="`t`")
    world.bucket.schema("d.w", ts(4), "RENAME TABLE `d`.`v` TO `d`.`w`", RENAME, SHOWN)
    world.once(12)
    summary = world.once()
    assert (summary.checkpoint, summary.halted, summary.waiting) == (ts(12), (), ())
    assert "d.v is no view in the target" in of(summary, "d.w").error


def test_view_that_goes_later(world: World) -> None:
    """What its files say of a time beyond the checkpoint keeps no view from being made until then."""
    view(world, 3)
    assert of(world.once(5), "d.v").error
    world.bucket.schema("d.gone", ts(6), f"CREATE TABLE `gone` {BODY}", CREATE_TABLE)
    world.bucket.schema("d.v", ts(20), "DROP VIEW `d`.`v`", DROP_VIEW, ())
    for checkpoint, is_there in ((9, True), (30, False)):
        assert not [table for table in world.once(checkpoint).tables if table.error]
        assert ("d.v" in {str(name) for name in world.records.structures}) is is_there


def test_view_whose_end_runs_when_its_table_comes(world: World) -> None:
    """It is not made beside its own DROP, which would find nothing and leave the view to the other."""
    view(world, 3)
    world.bucket.metadata(ts(5))
    works = held(world, 0)

    def act(rounds: int) -> None:
        nonlocal works
        if rounds == 1:
            works = held(world, 1)
            world.bucket.schema("d.v", ts(6), "DROP VIEW `d`.`v`", DROP_VIEW, ())
            world.bucket.schema("d.gone", ts(7), f"CREATE TABLE `gone` {BODY}", CREATE_TABLE)
            world.bucket.metadata(ts(9))
        elif rounds == 3:
            works.popleft()()

    assert running(world, act, rounds=5).checkpoint == ts(9)
    assert [str(name) for name, each in world.records.structures.items() if each.is_view] == []
    assert not [effect for effect in world.records.effects if "CREATE" in effect and "VIEW" in effect]


@pytest.mark.parametrize("later", ["DROP VIEW `d`.`v`", "CREATE OR REPLACE VIEW `d`.`v` AS SELECT * FROM `d`.`u`"])
@pytest.mark.parametrize("by_earlier_run", [True, False])
def test_view_whose_next_statement_was_interrupted(world: World, later: str, *, by_earlier_run: bool) -> None:
    """It is not made before that has its outcome: with the view there it would look as if it had taken effect."""
    world.bucket.create("d.u")
    world.once(2)
    decide(world, "pause", table="t", schema="d")
    world.bucket.schema("d.t", ts(3), "ALTER TABLE `t` ADD COLUMN `note` INT", ALTER, WIDER)
    world.bucket.schema("d.v", ts(4), "CREATE VIEW `d`.`v` AS SELECT * FROM `d`.`t`", CREATE_VIEW, WIDER)
    if by_earlier_run:
        assert "here it would have id, name" in of(world.once(5), "d.v").error
    kind, columns = (DROP_VIEW, ()) if "DROP" in later else (CREATE_VIEW, ID_NAME)
    world.bucket.schema("d.v", ts(6), later, kind, columns)
    world.bucket.metadata(ts(9))
    # After the view's statement and its own DROP.
    killed_at(world, "before MemoryTarget.execute_ddl", 3)
    decide(world, "resume", table="t", schema="d")
    assert not [table for table in world.once().tables if table.error]
    views = [each for each in world.records.structures.values() if each.is_view]
    assert [[column.name for column in each.columns] for each in views] == ([["id", "name"]] if columns else [])


def gone_by_hand(world: World) -> None:
    """Have somebody create the table d.gone."""
    name, structures = TableName(schema="d", table="gone"), world.records.structures
    structures[name] = replace(structures[TableName(schema="d", table="t")], name=name)


def views_of(world: World) -> list[str]:
    """The views in the target, in order."""
    return sorted(str(name) for name, each in world.records.structures.items() if each.is_view)


def effects_on_views(world: World) -> list[str]:
    """The first and the last word of each statement that took effect on a view."""
    words = [effect.split() for effect in world.records.effects if "VIEW" in effect]
    return [f"{found[0]} {found[-1]}" for found in words]


@pytest.mark.parametrize("was_left_out", [False, True])
def test_view_that_is_made_while_the_state_is_read(world: World, *, was_left_out: bool) -> None:
    """Its DROP waits: it would find nothing, and the statement that still runs would make it."""
    world.bucket.create("d.u")
    world.bucket.metadata(ts(2))
    if was_left_out:
        view(world, 3)
        world.bucket.metadata(ts(5))
    world.once()
    works = held(world, 1)
    if was_left_out:
        gone_by_hand(world)
    else:
        view(world, 3, reads="`d`.`t`")
        world.bucket.metadata(ts(5))

    def act(rounds: int) -> None:
        if rounds == 1:
            world.bucket.schema("d.v", ts(6), "DROP VIEW `d`.`v`", DROP_VIEW, ())
            world.bucket.metadata(ts(9))
            decide(world, "resume", table="u", schema="d")
        elif rounds == 3:
            works.popleft()()

    summary = running(world, act, rounds=5)
    assert (summary.checkpoint, summary.halted) == (ts(9), ())
    reads = "`d`.`gone`" if was_left_out else "`d`.`t`"
    assert effects_on_views(world) == [f"CREATE {reads}", "DROP `d`.`v`"]


def test_view_whose_next_statement_may_not_run_yet(world: World) -> None:
    """The last statement that may run makes it, while the one at exactly the checkpoint waits."""
    view(world, 3)
    view(world, 9, reads="`d`.`t`", replaces=True)
    world.bucket.metadata(ts(9))

    def act(_: int) -> None:
        world.stop.requested.set()

    made: list[str] = []
    for checkpoint, new in ((9, []), (9, ["CREATE `d`.`gone`"]), (12, ["CREATE `d`.`t`"])):
        world.bucket.metadata(ts(checkpoint))
        world.stop = Stop()
        summary = running(world, act)
        made += new
        assert ([table.table for table in summary.tables if table.error] == []) is bool(made)
        assert effects_on_views(world) == made
        gone_by_hand(world)


def test_view_from_before_the_copy_whose_end_was_interrupted() -> None:
    """It is not made before its DROP has its outcome."""
    copy = MemoryCopy(snapshot=ts(10))
    copy.add("d.t", [("1", '"copy"')])
    world = WithCopies(copy, initial=True)
    world.bucket.create("d.t")
    view(world, 3)
    assert of(world.once(12), "d.v").error
    world.bucket.schema("d.v", ts(13), "DROP VIEW `d`.`v`", DROP_VIEW, ())
    world.bucket.metadata(ts(20))
    # After the view's own statement.
    killed_at(world, "before MemoryTarget.execute_ddl", 2)
    gone_by_hand(world)
    assert not [table for table in world.once().tables if table.error]
    assert views_of(world) == []


def test_rename_of_a_view_that_was_left_out_at_the_checkpoint(world: World) -> None:
    """It takes no other view along that has come to have the old name since."""
    world.bucket.schema("d.w", ts(4), "RENAME TABLE `d`.`v` TO `d`.`w`", RENAME, SHOWN)
    assert "d.v is no view in the target" in of(world.once(4), "d.w").error
    view(world, 6, reads="`d`.`t`")
    world.bucket.metadata(ts(9))
    killed_at(world, "after MemoryTarget.execute_ddl")
    summary = world.once()
    assert (summary.checkpoint, summary.halted, summary.waiting) == (ts(9), (), ())
    assert views_of(world) == ["d.v"]


def test_view_that_somebody_has_dropped(world: World) -> None:
    """Its DROP has nothing to do, and holds up nothing."""
    view(world, 3, reads="`d`.`t`")
    world.once(5)
    del world.records.structures[TableName(schema="d", table="v")]
    world.bucket.schema("d.v", ts(6), "DROP VIEW `d`.`v`", DROP_VIEW, ())
    summary = world.once(9)
    assert (summary.checkpoint, summary.halted, summary.waiting) == (ts(9), (), ())
    assert [entry.note for entry in world.records.journal.values() if "no such view" in entry.note]


def test_view_that_the_next_owner_has_replaced(world: World) -> None:
    """A process that was paused before it looked at its view's columns takes nothing away of what the next one has made."""
    world.bucket.schema("d.u", ts(2), "CREATE TABLE `u` (id INT PRIMARY KEY, name VARCHAR(20), note INT)", CREATE_TABLE)
    replaced = "CREATE OR REPLACE VIEW `d`.`v` AS SELECT * FROM `d`."
    world.bucket.schema("d.v", ts(3), f"{replaced}`t`", CREATE_VIEW, ID_NAME)
    world.bucket.metadata(ts(5))

    def tick(call: str) -> None:
        if call == "after MemoryTarget.execute_ddl" and world.records.effects[-1] == f"{replaced}`t`":
            world.tick = str
            world.clock.advance(100)
            world.bucket.schema("d.v", ts(6), f"{replaced}`u`", CREATE_VIEW, WIDER)
            assert not world.once(9).halted

    world.tick = tick
    with pytest.raises(LeaseLost):
        world.once()
    there = world.records.structures[TableName(schema="d", table="v")]
    assert [column.name for column in there.columns] == ["id", "name", "note"]


def test_view_that_is_replaced(world: World) -> None:
    """Only the last statement of a view is tried again."""
    view(world, 3)
    view(world, 4, reads="`d`.`t`", replaces=True)
    world.bucket.schema("d.gone", ts(5), f"CREATE TABLE `gone` {BODY}", CREATE_TABLE)
    assert not [table for table in world.once(9).tables if table.error]
    assert [effect.rpartition(" ")[2] for effect in world.records.effects if "VIEW" in effect] == ["`d`.`t`"]


def test_view_over_a_table_that_is_halted(world: World) -> None:
    """The view does not wait for it, nor the other tables with the view; what changes the table lets the view be made."""
    world.bucket.create("d.u")
    world.bucket.schema("d.u", ts(3), "ALTER TABLE `u` DROP COLUMN `never`", 6)
    view(world, 4, reads="`d`.`t` JOIN `d`.`u` JOIN `d`.`late`")
    world.bucket.rows("d.t", 1, row("d.t", 6, "1", '"one"'))
    world.bucket.schema("d.late", ts(7), f"CREATE TABLE `late` {BODY}", CREATE_TABLE)
    summary = world.once(9)
    assert [table.table for table in summary.halted] == ["d.u"]
    assert not summary.waiting
    assert world.records.tables["`d`.`u`"].checkpoint == ts(3)
    assert world.rows("d.t") == [{"id": "1", "name": "one"}]
    assert "d.v" in {str(name) for name in world.records.structures}


@pytest.mark.parametrize("of_view", [False, True])
def test_view_behind_a_table_that_is_halted(*, of_view: bool) -> None:
    """Nor do other tables wait where a statement on what the view reads waits for such a table, or one that comes before the view."""
    world = World()
    world.bucket.create("d.t", "d.u", "e.u")
    halted = "e.u" if of_view else "d.u"
    world.bucket.schema(halted, ts(3), "ALTER TABLE `u` DROP COLUMN `never`", 6)
    if of_view:
        world.bucket.schema("e", ts(4), "DROP DATABASE `e`", 2, ())
        world.bucket.schema("e", ts(5), "CREATE DATABASE `e`", 1)
        query = "CREATE VIEW `e`.`v` AS SELECT `id` FROM `d`.`t`"
        world.bucket.schema("e.v", ts(6), query, CREATE_VIEW, SHOWN)
    else:
        world.bucket.schema("d.old", ts(4), "RENAME TABLE `d`.`u` TO `d`.`old`", RENAME)
        view(world, 6, reads="`d`.`t` JOIN `d`.`old`")
    world.bucket.rows("d.t", 1, row("d.t", 7, "1", '"one"'))
    summary = world.once(9)
    assert [table.table for table in summary.halted] == [halted]
    assert of(summary, "d.t").checkpoint == ts(9)
    assert world.rows("d.t") == [{"id": "1", "name": "one"}]


def test_view_that_stands_still(world: World) -> None:
    """A view whose statement may not run at all halts alone."""
    world.bucket.schema("d.v", ts(3), "CREATE VIEW `d`.`v` AS SELECT LOAD_FILE('x') FROM `d`.`t`", CREATE_VIEW, SHOWN)
    view(world, 4, reads="`d`.`t`", replaces=True)
    world.bucket.rows("d.t", 1, row("d.t", 6, "1", '"one"'))
    summary = world.once(9)
    assert ([table.table for table in summary.halted], summary.waiting) == (["d.v"], ())
    assert world.rows("d.t") == [{"id": "1", "name": "one"}]


@pytest.mark.parametrize("verb", ["replace", "skip", "done"])
def test_operator_decides(world: World, verb: Literal["done", "skip", "replace"]) -> None:
    """A view that is left out can be given another statement, or be left so for good."""
    view(world, 3, reads="`t`")
    world.bucket.create("e.t")
    left_out = of(world.once(5), "d.v")
    assert "all of these can be meant: d.t, e.t" in left_out.error
    text = "CREATE VIEW `d`.`v` AS SELECT `id` FROM `e`.`t`"
    statement = text if verb == "replace" else ""
    answer(world, verb, statement)
    assert not [table for table in world.once().tables if table.error]
    assert [effect for effect in world.records.effects if "VIEW" in effect] == ([text] if statement else [])
    assert not [table for table in world.once().tables if table.error]


@pytest.mark.parametrize("end", ["DROP TABLE `d`.`v`", "DROP DATABASE `d`"])
def test_late_view_under_the_name_of_a_dropped_table(world: World, end: str) -> None:
    """A view whose file comes late is made though a table of its name was dropped before it: only a later end counts against it."""
    world.bucket.schema("e", ts(1), "CREATE DATABASE `e`", 1)
    world.bucket.schema("e.t", ts(1), f"CREATE TABLE `t` {BODY}", CREATE_TABLE)
    world.bucket.schema("d.v", ts(2), f"CREATE TABLE `v` {BODY}", CREATE_TABLE)
    if "TABLE" in end:
        world.bucket.schema("d.v", ts(4), end, DROP, ())
    else:
        world.bucket.schema("d", ts(4), end, 2, ())
        world.bucket.schema("d", ts(5), "CREATE DATABASE `d`", 1)
    world.once(9)
    view(world, 7, reads="`e`.`t`")
    world.once(12)
    assert [effect for effect in world.records.effects if "VIEW" in effect]
