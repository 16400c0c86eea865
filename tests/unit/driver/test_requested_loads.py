"""Tables that are loaded from a copy while the feed runs, and what operators, statements and ends of processes do meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage_consumer.config.settings import CsvOptions
from storage_consumer.errors import ConfigError
from storage_consumer.plan.copies import Copies
from storage_consumer.plan.journal_entry import STARTED
from storage_consumer.plan.loads import LoadPhase
from storage_consumer.plan.table_state import TableState
from tests.harness.small_bucket import ID_NAME, column, row, ts
from tests.unit.copying import KEYLESS, MemoryCopy, WithCopies, names_in
from tests.unit.deciding import answer, decide
from tests.unit.driver.test_loads import BAG, ONE, TRUNCATE, TWO
from tests.unit.driving import held, killed_at, numbers, of

DROP, CREATE, RENAME, DROP_PRIMARY_KEY = 4, 3, 14, 33
A = "`shop`.`a`"


def feed(*rows: str, snapshot: int = 12, until: int = 10) -> WithCopies:
    """A feed of shop.a and shop.b up to a tick, and a copy of shop.a with two rows that nobody loads yet."""
    copy = MemoryCopy(snapshot=ts(snapshot))
    copy.add("shop.a", [ONE], [TWO])
    world = WithCopies(copy, initial=False)
    world.bucket.create("shop.a", "shop.b")
    world.bucket.rows("shop.a", 1, *(rows or (row("shop.a", 2, "8", '"wrong"'),)))
    world.bucket.rows("shop.b", 1, row("shop.b", 2, "1", '"one"'))
    world.bucket.metadata(ts(until))
    return world


def reloading() -> WithCopies:
    """The feed at tick 20, and a request to load the copy of shop.a, which has a change after it."""
    world = feed()
    world.once()
    world.bucket.rows("shop.a", 2, row("shop.a", 15, "3", '"new"'))
    world.bucket.metadata(ts(20))
    world.request("shop.a", replaces=True)
    return world


def catching_up() -> WithCopies:
    """The same after one round: all of the copy is written, and the table is behind the others, at tick 12."""
    world = reloading()
    world.killed(lambda service: service._round(world.stop, once=False))
    world.clock.advance(100)
    assert (phase(world), world.records.lowest) == (LoadPhase.JOINING, ts(20))
    return world


def phase(world: WithCopies) -> LoadPhase:
    """How far the load of shop.a is."""
    return world.records.loads[A].phase


def test_a_load_may_be_requested_before_the_first_start() -> None:
    """What is stored at the end of a load stays: the statements that the copy holds do not run, and the table goes on after it."""
    world = feed(row("shop.a", 2, "8", '"wrong"'), row("shop.a", 8, "2", '"new"', operation="U"), snapshot=5)
    world.request("shop.a")
    assert not world.once().halted
    assert names_in(world, "shop.a") == {"1": "copy", "2": "new"}
    assert numbers(world, "shop.b") == ["1"]


def test_a_load_leaves_its_database_to_the_statement_that_creates_it() -> None:
    """A statement up to the copy may still come that creates the database, and would find it there; until then the load waits."""
    copy = MemoryCopy(snapshot=ts(5))
    copy.add("depot.c", [ONE])
    world = WithCopies(copy, initial=False)
    world.bucket.create("shop.a")
    world.bucket.metadata(ts(3))
    world.request("depot.c")
    world.once()
    assert "depot" not in world.records.databases
    world.bucket.schema("depot", ts(4), "CREATE DATABASE `depot`", 1)
    world.bucket.schema("depot.c", ts(5), "CREATE TABLE `c` (id INT PRIMARY KEY, name VARCHAR(20))", CREATE)
    assert not world.once(10).halted
    assert numbers(world, "depot.c") == ["1"]


def test_a_load_ends_the_pause_of_its_table() -> None:
    """As the pause says of itself: until a resume, or a load."""
    world = feed()
    world.once()
    decide(world, "pause")
    world.once()
    assert world.records.tables[A].state == TableState.HALTED
    world.bucket.metadata(ts(20))
    world.request("shop.a", replaces=True)
    assert not world.once().halted
    assert names_in(world, "shop.a") == {"1": "copy", "2": "copy"}
    assert phase(world) == LoadPhase.DONE


def test_a_load_stands_still_while_its_table_is_paused() -> None:
    """A pause in the middle of a load keeps the rest of the copy from being written; after a resume the load comes to its end."""
    world = feed()
    world.once()
    world.bucket.metadata(ts(20))
    world.request("shop.a", replaces=True)
    killed_at(world, "before MemoryLoads.finish")
    decide(world, "pause")
    world.once()
    assert phase(world) == LoadPhase.LOADING
    assert world.records.tables[A].state == TableState.HALTED
    decide(world, "resume")
    assert not world.once().halted
    assert phase(world) == LoadPhase.DONE
    assert names_in(world, "shop.a") == {"1": "copy", "2": "copy"}


def test_a_table_that_catches_up_does_not_count_whatever_else_is_requested() -> None:
    """A load that has to make way for a request leaves its table apart until it has caught up: what others are told never falls."""
    world = catching_up()
    world.copy.tables.clear()
    world.request("shop.a", replaces=True)
    decide(world, "pause")
    world.once()
    assert phase(world) == LoadPhase.REFUSED
    assert world.records.lowest == ts(20)
    decide(world, "resume")
    assert not world.once().halted
    assert numbers(world, "shop.a") == ["1", "2", "3"]


def test_a_table_follows_the_feed_only_while_it_counts_for_it() -> None:
    """Wherever a process ends while a loaded table catches up: one that others do not wait for is never taken along past its own rows."""
    world = reloading()
    phases = []

    def looked(call: str) -> None:
        table, load = world.records.tables[A], world.records.loads[A]
        phases.append(load.phase)
        assert not (table.follows and load.phase == LoadPhase.JOINING), call

    world.tick = looked
    assert not world.once().halted
    assert phases.index(LoadPhase.JOINING) < phases.index(LoadPhase.DONE)
    assert world.records.tables[A].follows


def test_a_table_of_the_first_copy_stays_one_of_it() -> None:
    """A later load that is refused takes nothing away: a structure of the table is no sign that the first copy lacked it."""
    copy = MemoryCopy(snapshot=ts(5))
    copy.add("shop.idle", [ONE])
    world = WithCopies(copy)
    world.once(10)
    world.request("shop.idle", replaces=True, low=world.records.loads["`shop`.`idle`"].low)
    world.once()
    assert world.records.loads["`shop`.`idle`"].phase == LoadPhase.REFUSED
    world.bucket.schema("shop.idle", ts(1), "", 0)
    world.bucket.rows("shop.idle", 1, row("shop.idle", 12, "2", '"new"'))
    assert not world.once(13).halted
    assert numbers(world, "shop.idle") == ["1", "2"]


def test_a_load_waits_for_a_statement_that_may_still_run() -> None:
    """The server may go on with it after its sender has died, and would change a table that is being loaded."""
    world = feed()
    world.bucket.schema("shop.a", ts(4), "TRUNCATE TABLE `a`", TRUNCATE)
    killed_at(world, "after MemoryTarget.execute_ddl", 4)
    assert [entry.state for entry in world.records.journal.values()].count(STARTED) == 1
    world.request("shop.a", replaces=True)
    begun = list[int]()

    def hear(where: str) -> None:
        if where == "before MemoryLoads.begin":
            begun.append([entry.state for entry in world.records.journal.values()].count(STARTED))

    world.tick = hear
    world.once()
    assert not begun
    assert not world.once(20).halted
    assert begun == [0]
    assert names_in(world, "shop.a") == {"1": "copy", "2": "copy"}


def test_a_table_becomes_what_the_copy_says() -> None:
    """Statements that the copy holds do not run, so a table that lacks their effect is created anew, even if its columns are the same."""
    world = feed(until=2)
    world.once()
    world.bucket.schema("shop.a", ts(3), "DROP TABLE `a`", DROP)
    bag = (column("id", "INT"), ID_NAME[1])
    assert bag == BAG
    world.bucket.schema("shop.a", ts(4), "CREATE TABLE `a` (id INT, name VARCHAR(20))", CREATE, bag)
    world.copy.add("shop.a", [ONE, ONE], columns=KEYLESS)
    world.bucket.metadata(ts(2))
    world.request("shop.a", replaces=True)
    world.once()
    assert not world.once(20).halted
    assert numbers(world, "shop.a") == ["1", "1"]


def passed_over(world: WithCopies, *, skips: str) -> None:
    """Have statements of shop.a pass that give its rows another key, while an operator skips the table or, late, a statement of it."""
    bag = (column("id", "INT"), ID_NAME[1])
    if skips == "table":
        decide(world, "skip")
        world.once()
    world.bucket.schema("shop.a", ts(11), "ALTER TABLE `a` DROP PRIMARY KEY", DROP_PRIMARY_KEY, bag)
    world.bucket.metadata(ts(13))
    if skips == "statement":
        # The twin has no such statement.
        assert world.once().halted
        answer(world, "skip")
    assert not world.once().halted


@pytest.mark.parametrize("skips", ["table", "statement"])
def test_statements_that_were_passed_over_and_that_the_copy_holds(skips: str) -> None:
    """The target's table lacks their effect, though it has the columns of the copy: with its old key it would lose rows of the copy."""
    world = feed(snapshot=15)
    world.once()
    passed_over(world, skips=skips)
    world.copy.add("shop.a", [ONE, ONE], columns=KEYLESS)
    world.bucket.metadata(ts(20))
    world.request("shop.a", replaces=True)
    assert not world.once().halted
    assert numbers(world, "shop.a") == ["1", "1"]


def test_late_tasks_of_a_load_write_nothing_after_its_end() -> None:
    """They go by how far the load is; once another load of the table is requested, that would count from the beginning."""
    world = feed()
    world.once()
    world.bucket.metadata(ts(20))
    world.request("shop.a", replaces=True)
    windows: dict[str, tuple[int, int]] = {}

    def hear(where: str) -> None:
        windows[where] = world.records.window

    world.tick = hear
    world.once()
    assert windows["before FencedWriter.write_runs"] < windows["before MemoryLoads.finish"]


def test_a_statement_that_moves_rows_of_a_loaded_table_halts() -> None:
    """A copy has taken the place of the rows that an older RENAME would move, also where the table of that name is a new one since."""
    copy = MemoryCopy(snapshot=ts(3))
    copy.add("shop.a", [ONE])
    world = WithCopies(copy)
    world.once(3)
    copy.snapshot, copy.identity = ts(7), "two"
    copy.add("shop.a", [TWO])
    world.request("shop.a", replaces=True, low=ts(3))
    world.once()
    world.bucket.schema("shop.b", ts(5), "RENAME TABLE `shop`.`a` TO `shop`.`b`", RENAME)
    world.bucket.schema("shop.a", ts(6), "CREATE TABLE `a` (id INT PRIMARY KEY, name VARCHAR(20))", CREATE)
    assert [table.table for table in world.once(10).halted] == ["shop.b"]
    assert numbers(world, "shop.a") == ["2"]


def test_a_load_waits_for_a_statement_that_runs_beside_the_rounds() -> None:
    """What a statement stores at its end of the tables that it touches must not pass for the state of one that is loaded meanwhile."""
    world = feed()
    works = held(world, 1)
    service = world.service()
    service._round(world.stop, once=False)
    assert len(works) == 1
    world.request("shop.a", replaces=True)
    # After a fault everything is read again.
    service._drop()
    service._round(world.stop, once=False)
    assert phase(world) == LoadPhase.REQUESTED
    works.popleft()()
    service._round(world.stop, once=False)
    service.close()
    assert not world.once(20).halted
    assert phase(world) == LoadPhase.DONE


@pytest.mark.parametrize("seen", [11, 13, 15, 25])
def test_a_load_of_a_table_whose_database_is_created_again(seen: int) -> None:
    """Statement and load would wait for each other: the table halts, and skipping it lets both happen, one after the other."""
    copy = MemoryCopy(snapshot=ts(20))
    copy.add("depot.c", [ONE], [TWO])
    world = WithCopies(copy, initial=False)
    world.bucket.create("depot.c")
    world.once(11)
    world.bucket.schema("depot", ts(12), "DROP DATABASE `depot`", 2)
    world.bucket.schema("depot", ts(14), "CREATE DATABASE `depot`", 1)
    world.bucket.schema("depot.c", ts(15), "CREATE TABLE `c` (id INT PRIMARY KEY, name VARCHAR(20))", CREATE)
    world.bucket.rows("depot.c", 1, row("depot.c", 17, "1", '"old"'), row("depot.c", 22, "5", '"new"'), version=ts(15))
    world.bucket.metadata(ts(seen))
    world.request("depot.c", replaces=True)
    (halted,) = world.once().halted
    assert "storage-consumer table skip --table depot.c" in halted.error
    decide(world, "skip", table="c", schema="depot")
    assert not world.once(30).halted
    copy.snapshot, copy.identity = ts(31), "two"
    copy.add("depot.c", [ONE], [TWO])
    world.bucket.metadata(ts(35))
    world.request("depot.c", replaces=True)
    assert not world.once().halted
    assert names_in(world, "depot.c") == {"1": "copy", "2": "copy"}


def test_a_load_does_not_end_while_a_statement_that_may_touch_its_table_runs() -> None:
    """A process that was killed had sent it, and it mentions the table's name; the table goes on once it is known to have ended."""
    world = feed()
    world.once()
    added = (*ID_NAME, column("a", "INT"))
    world.bucket.schema("shop.b", ts(11), "ALTER TABLE `b` ADD COLUMN `a` INT", 5, added)
    world.bucket.metadata(ts(20))
    world.request("shop.a", replaces=True)
    killed_at(world, "after MemoryTarget.execute_ddl")
    works = held(world, 1)
    service = world.service()
    service._round(world.stop, once=False)
    assert (len(works), phase(world), world.records.tables[A].state) == (1, LoadPhase.LOADING, TableState.LOADING)
    works.popleft()()
    service._round(world.stop, once=False)
    service.close()
    assert not world.once().halted
    assert phase(world) == LoadPhase.DONE
    assert names_in(world, "shop.a") == {"1": "copy", "2": "copy"}


def test_a_load_does_not_wait_for_a_view_that_reads_its_table() -> None:
    """A process that was killed had sent it while the table was paused; the view waits for the load, and changes no copy."""
    world = feed()
    world.once()
    world.request("shop.a", replaces=True)
    killed_at(world, "before MemoryLoads.finish")
    decide(world, "pause")
    view = "CREATE VIEW `shop`.`v` AS SELECT * FROM `shop`.`a`"
    world.bucket.schema("shop.v", ts(11), view, 21, ID_NAME)
    world.bucket.metadata(ts(20))
    killed_at(world, "after MemoryTarget.execute_ddl")
    decide(world, "resume")
    summary = world.once()
    assert (summary.halted, summary.waiting, phase(world)) == ((), (), LoadPhase.DONE)
    assert "shop.v" in map(str, world.records.structures)


def test_a_statement_that_a_copy_holds_does_not_wait_for_its_load() -> None:
    """Nor does the next one; where a killed process has sent that, the load waits for its end."""
    copy = MemoryCopy(snapshot=ts(5))
    copy.add("shop.a", [("1", '"copy"')])
    world = WithCopies(copy, initial=True)
    world.bucket.create("shop.c")
    world.bucket.schema("shop.a", ts(4), "RENAME TABLE `shop`.`c` TO `shop`.`a`", RENAME)
    world.bucket.metadata(ts(6))
    killed_at(world, "before MemoryLoads.finish")
    decide(world, "pause")
    again = "CREATE TABLE `shop`.`c` (id INT PRIMARY KEY, name VARCHAR(20) COMMENT 'as in a')"
    world.bucket.schema("shop.c", ts(8), again, CREATE, ID_NAME)
    world.bucket.metadata(ts(20))
    killed_at(world, "after MemoryTarget.execute_ddl")
    decide(world, "resume")
    summary = world.once()
    assert (summary.checkpoint, summary.halted, summary.waiting) == (ts(20), (), ())
    assert names_in(world, "shop.a") == {"1": "copy"}


def without_commit_ts(world: WithCopies) -> None:
    """Have the rows of the bucket carry no commit-ts."""
    world.upstream = replace(world.upstream, csv=CsvOptions(), allow_missing_commit_ts=True)
    world.config = replace(world.config, upstream=world.upstream)


def test_rows_without_commit_ts_and_a_load() -> None:
    """None of them can be known to be in the copy, and older ones would be applied over it: the load is refused, nothing is emptied."""
    world = feed('"I","a","shop",8,"wrong"')
    world.bucket.rows("shop.b", 1, '"I","b","shop",1,"one"')
    without_commit_ts(world)
    world.once()
    world.bucket.metadata(ts(20))
    world.request("shop.a", replaces=True)
    world.once()
    assert phase(world) == LoadPhase.REFUSED
    assert "carry no commit ts" in world.records.loads[A].error
    assert numbers(world, "shop.a") == ["8"]


def test_rows_without_commit_ts_and_a_feed_that_begins_with_a_copy() -> None:
    """Only where the changefeed began at the copy's very TSO are all of its rows from after the copy."""
    copy = MemoryCopy(snapshot=ts(5))
    copy.add("shop.a", [ONE])
    for start_ts in (4, 5):
        world = WithCopies(copy, start_ts=ts(start_ts))
        world.bucket.schema("shop.a", ts(1), "", 0, ID_NAME)
        world.bucket.rows("shop.a", 1, '"I","a","shop",2,"two"', version=ts(1))
        world.bucket.metadata(ts(10))
        without_commit_ts(world)
        if start_ts < 5:
            with pytest.raises(ConfigError, match="carry no commit ts"):
                world.once()
            assert not world.records.effects
        else:
            assert not world.once().halted
            assert numbers(world, "shop.a") == ["1", "2"]


def refused(world: WithCopies) -> str:
    """Why the load of shop.a was refused, though its table may be emptied; nothing of the table has changed by that."""
    before = names_in(world, "shop.a")
    world.request("shop.a", replaces=True)
    assert world.once().refused_loads == ("shop.a",)
    assert (phase(world), names_in(world, "shop.a")) == (LoadPhase.REFUSED, before)
    return world.records.loads[A].error


def test_a_copy_of_the_future_is_refused() -> None:
    """No source has such a TSO: the feed would count as applied up to then, and nothing would go on for years."""
    world = feed()
    world.once()
    world.copy.snapshot = ts(5) * 2
    assert f"as of {ts(5) * 2} (2083-06-12T04:26:50.000Z), which is in the future" in refused(world)
    world.bucket.rows("shop.b", 2, row("shop.b", 12, "2", '"two"'))
    found = world.once(20)
    assert (found.checkpoint, found.refused_loads) == (ts(20), ())
    assert numbers(world, "shop.b") == ["1", "2"]


def test_a_copy_slightly_ahead_of_the_clock_is_taken() -> None:
    """The source's clock and this machine's differ a little."""
    world = feed()
    world.once()
    world.copy.snapshot = ts(10 + 300)
    world.request("shop.a", replaces=True)
    world.once()
    assert not world.once(320).halted
    assert names_in(world, "shop.a") == {"1": "copy", "2": "copy"}


def test_a_copy_that_may_lack_what_no_file_holds_is_refused() -> None:
    """Before anything is emptied: it would be written in vain, since the table could not go on behind it."""
    world = feed()
    world.once()
    world.records.tables[A] = replace(world.records.tables[A], state=TableState.LOST)
    world.records.copies[A] = Copies(copy_from=ts(13))
    assert f"as of {ts(13)}, when they were first missed, or later" in refused(world)


def test_a_load_holds_a_statement_that_came_late() -> None:
    """Its table halted for it, and the copy that it gets then is from after it: the load goes on, and the statement does not run."""
    world = feed()
    world.once()
    world.bucket.schema("shop.a", ts(7), "TRUNCATE TABLE `a`", TRUNCATE)
    assert "arrived after later rows" in of(world.once(), "shop.a").error
    world.request("shop.a", replaces=True)
    assert not world.once(20).halted
    assert names_in(world, "shop.a") == {"1": "copy", "2": "copy"}
    world.bucket.rows("shop.a", 2, row("shop.a", 25, "3", '"new"'))
    assert not world.once(30).halted
    assert numbers(world, "shop.a") == ["1", "2", "3"]


def test_a_rename_into_which_only_one_table_has_a_copy_names_the_other() -> None:
    """The table of the former name is another one in its copy; the renamed one gets its copy by a load, as the message says."""
    world = feed()
    world.once()
    decide(world, "pause")
    world.once()
    world.bucket.schema("shop.z", ts(11), "RENAME TABLE `shop`.`a` TO `shop`.`z`", RENAME)
    world.bucket.schema("shop.a", ts(12), "CREATE TABLE `a` (id INT PRIMARY KEY, name VARCHAR(20))", CREATE)
    world.bucket.metadata(ts(20))
    world.request("shop.a", replaces=True)
    why = of(world.once(), "shop.z").error
    assert "touches shop.a, whose copy holds what it does already. Give shop.z a copy of the source too" in why
    assert "storage-consumer load --table shop.z --dump URI" in why
    world.copy.add("shop.z", [ONE])
    world.request("shop.z")
    assert not world.once().halted
    assert numbers(world, "shop.z") == ["1"]
