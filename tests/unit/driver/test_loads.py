"""Tables that are loaded from a copy: they get its rows, then all changes after its TSO, and nothing twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from storage_consumer.config.settings import Selecting
from storage_consumer.driver.ledger import RoundContext
from storage_consumer.driver.service import ConsumerService
from storage_consumer.errors import ConfigError, ExportRefused
from storage_consumer.model import TableColumn
from storage_consumer.plan.loads import LoadPhase
from storage_consumer.plan.manager import ConsumerManager
from tests.harness.small_bucket import ID_NAME, column, row, ts
from tests.harness.twins.state import MemoryState
from tests.unit.copying import COLUMNS, KEYLESS, MemoryCopy, WithCopies, names_in
from tests.unit.deciding import decide
from tests.unit.driving import killed_after, killed_at, numbers, of

DROP_TABLE, ALTER_ADD, DROP_COLUMN, TRUNCATE, RENAME, CREATE_VIEW, DROP_VIEW = 4, 5, 6, 11, 14, 21, 24
LONG = 4
"""Rounds that an export takes."""
BAG = (column("id", "INT"), ID_NAME[1])
ONE, TWO, THREE = ("1", '"copy"'), ("2", '"copy"'), ("3", '"copy"')


def shop(snapshot: int = 5, **settings: Any) -> WithCopies:
    """shop.a with three rows in two parts as of a tick, and a bucket that creates it at tick 1 and changes it before and after."""
    copy = MemoryCopy(snapshot=ts(snapshot))
    copy.add("shop.a", [ONE, TWO], [THREE])
    world = WithCopies(copy, **settings)
    world.bucket.create("shop.a")
    world.bucket.rows(
        "shop.a",
        1,
        row("shop.a", 2, "1", '"old"'),
        row("shop.a", 4, "9", '"gone by then"'),
        row("shop.a", 8, "2", '"new"', operation="U"),
        row("shop.a", 9, "4", '"new"'),
    )
    world.bucket.metadata(ts(10))
    return world


def test_a_new_feed_begins_with_the_copy_and_goes_on_after_it() -> None:
    """The target has the rows of the copy and the changes after it; what came before it is not applied again."""
    world = shop()
    summary = world.once()
    assert names_in(world, "shop.a") == {"1": "copy", "2": "new", "3": "copy", "4": "new"}
    assert not summary.halted
    assert summary.checkpoint == ts(10)
    # Statements up to the copy's TSO are in it: the table was created once, from the copy.
    assert [effect.partition("(")[0].split()[:3] for effect in world.records.effects] == [
        ["CREATE", "DATABASE", "`shop`"],
        ["CREATE", "TABLE", "`a`"],
    ]


@pytest.mark.parametrize(
    ("start_ts", "reason"),
    [(ts(6), "is later than the copy"), (0, "nothing proves that the changefeed began at or before")],
)
def test_a_copy_with_a_gap_behind_it_is_refused(start_ts: int, reason: str) -> None:
    """Where changes may be neither in the copy nor in the bucket, the feed does not begin, and nothing is written."""
    world = shop(start_ts=start_ts)
    with pytest.raises(ConfigError, match=reason) as fault:
        world.once()
    assert "--start-ts" in str(fault.value)
    assert not world.records.effects
    assert not world.records.loads


def test_a_copy_of_the_future_is_refused() -> None:
    """No source has such a TSO: everything up to then would count as applied, in all tables."""
    world = shop()
    world.copy.snapshot = ts(5) * 2
    with pytest.raises(ConfigError, match="in the future"):
        world.once()
    assert not world.records.effects
    assert not world.records.loads


def test_a_checkpoint_before_the_copy_is_proof() -> None:
    """A changefeed whose checkpoint is still at the copy cannot have begun after it."""
    world = shop(start_ts=0)
    world.once(5)
    assert names_in(world, "shop.a") == {"1": "copy", "2": "copy", "3": "copy"}


def test_a_copy_is_looked_at_before_anything_starts() -> None:
    """What a round works with takes long to start; of a feed that has begun the copy is not looked at any more."""
    world, looked = shop(), list[str]()

    def refuse() -> None:
        looked.append("copy")
        raise ExportRefused("no metadata")

    def service(assemble: Callable[[ConsumerManager], RoundContext]) -> ConsumerService:
        return ConsumerService(world.config, MemoryState(world.records, world.clock), assemble, world.clock, refuse)

    def never(_: ConsumerManager) -> RoundContext:
        raise AssertionError("started")

    with closing(service(never)) as first, pytest.raises(ConfigError, match="no metadata"):
        first.run_once(world.stop)
    world.once()
    with closing(service(never)) as second, pytest.raises(AssertionError, match="started"):
        second.run_once(world.stop)
    assert looked == ["copy"]


def test_an_unfinished_export_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    """A service looks again in each round and says so once; a single round says that it is refused."""
    world = shop()
    world.copy.is_finished = False
    with pytest.raises(ConfigError, match="has no metadata"):
        world.once()
    service = world.service()
    rounds: list[bool] = []
    wait = world.clock.wait

    def passing(event: threading.Event, seconds: float) -> bool:
        if threading.current_thread() is threading.main_thread():
            rounds.append(bool(world.records.effects))
            world.copy.is_finished = len(rounds) == LONG
            if rounds[-1] or len(rounds) > LONG:
                world.stop.requested.set()
        return wait(event, seconds)

    world.clock.wait = passing  # type: ignore[method-assign]  # counts rounds
    try:
        service.run(world.stop)
    finally:
        service.close()
    assert rounds == [False] * LONG + [True]
    assert sum("has no metadata" in text for text in caplog.messages) == 1


def test_databases_without_tables_are_created_too() -> None:
    """A later statement may move a table into one; those that the filter leaves out are not created."""
    world = shop()
    world.copy.empty = ("archive", "secret")
    world.config = replace(world.config, selecting=Selecting(rules=("*.*", "!secret.*")))
    world.once()
    assert {"shop", "archive"} == set(world.records.databases)


def test_a_second_run_writes_nothing_again() -> None:
    """After the load only new changes are applied, and the copy is not opened any more."""
    world = shop()
    world.once()
    opened = world.copy.opened
    assert world.once().written == 0
    assert world.copy.opened == opened
    assert [load.phase for load in world.records.loads.values()] == [LoadPhase.DONE]


def test_a_table_without_a_key_gets_each_row_once() -> None:
    """Equal rows of a copy are all there, and none is there twice after a restart."""
    world = shop()
    world.copy.add("shop.bag", [ONE, ONE, TWO], [ONE], columns=KEYLESS)
    world.once()
    world.once()
    assert numbers(world, "shop.bag") == ["1", "1", "1", "2"]


def test_a_table_that_only_the_copy_has_is_loaded() -> None:
    """A table of which the bucket has no file yet is there after the load; its later changes find it."""
    world = shop()
    world.copy.add("shop.idle", [ONE])
    world.once()
    assert numbers(world, "shop.idle") == ["1"]
    world.bucket.schema("shop.idle", ts(1), "", 0)
    world.bucket.rows("shop.idle", 1, row("shop.idle", 12, "2", '"new"'))
    assert not world.once(13).halted
    assert numbers(world, "shop.idle") == ["1", "2"]


def test_a_table_that_neither_the_copy_nor_a_statement_brings_halts() -> None:
    """It existed when the copy was made, so the copy was filtered: created empty it would lack rows."""
    world = shop()
    world.bucket.schema("shop.lacking", ts(7), "", 0)
    world.bucket.rows("shop.lacking", 1, row("shop.lacking", 8, "1", '"new"'), version=ts(7))
    summary = world.once()
    assert "does not hold the table" in of(summary, "shop.lacking").error
    assert names_in(world, "shop.a")["4"] == "new"


def test_a_table_that_was_dropped_before_the_copy_is_not_missed() -> None:
    """The changefeed wrote its structure, and then the statement that ended it: a copy from after that rightly lacks it."""
    world = shop()
    world.bucket.schema("shop.gone", ts(2), "", 0)
    world.bucket.rows("shop.gone", 1, row("shop.gone", 3, "1", '"old"'), version=ts(2))
    assert not world.once(3).halted
    world.bucket.schema("shop.gone", ts(4), "DROP TABLE `gone`", 4)
    summary = world.once(10)
    assert not summary.halted
    assert summary.checkpoint == ts(10)


def of_before(*rows: str, at: int, query: str, kind: int) -> WithCopies:
    """shop.a, and shop.was with a row at tick 3 and these rows, which is not in the copy and has a statement at a tick."""
    world = shop()
    world.bucket.schema("shop.was", ts(1), "", 0)
    world.bucket.rows("shop.was", 1, row("shop.was", 3, "1", '"old"'), *rows)
    world.bucket.schema("shop.is" if kind == RENAME else "shop.was", ts(at), query, kind)
    return world


RENAMED = "RENAME TABLE `shop`.`was` TO `shop`.`is`"


@pytest.mark.parametrize("at", [4, 5, 7])
def test_a_table_that_was_gone_by_the_copy_need_not_be_in_it(at: int) -> None:
    """It was dropped before the copy was made, at its TSO, or right after it, which the copy may show already."""
    world = of_before(at=at, query="DROP TABLE `shop`.`was`", kind=DROP_TABLE)
    assert not world.once().halted
    assert not world.once().halted
    assert names_in(world, "shop.a")["4"] == "new"


@pytest.mark.parametrize(("at", "between"), [(4, False), (7, True)])
def test_a_table_that_had_another_name_by_the_copy_need_not_be_in_it(at: int, *, between: bool) -> None:
    """The copy has it by its new name, also shortly before the RENAME: rows by the old name from before that go there too."""
    world = of_before(*[row("shop.was", 6, "3", '"between"')] * between, at=at, query=RENAMED, kind=RENAME)
    world.copy.add("shop.is", [ONE])
    world.bucket.rows("shop.is", 1, row("shop.is", 8, "2", '"new"'), version=ts(at))
    assert not world.once().halted
    assert names_in(world, "shop.is") == {"1": "copy", "2": "new"} | ({"3": "between"} if between else {})
    assert not world.once().halted


def test_a_table_is_not_missed_before_the_bucket_shows_what_came_before_the_copy() -> None:
    """While the storage checkpoint is before the copy, a statement may still come that explains why the table is not in it."""
    world = shop()
    world.bucket.schema("shop.was", ts(1), "", 0)
    assert not world.once(4).halted
    world.bucket.schema("shop.was", ts(5), "DROP TABLE `shop`.`was`", DROP_TABLE)
    assert not world.once(10).halted


def test_a_copy_that_shows_a_rename_already() -> None:
    """Rows by the old name, from before the version of the RENAME, go into the table that the copy has by the new one."""
    between = row("shop.was", 6, "3", '"between"')
    world = of_before(between, at=7, query=RENAMED, kind=RENAME)
    world.copy.add("shop.is", [ONE])
    world.bucket.rows("shop.is", 1, row("shop.is", 8, "2", '"new"'), version=ts(7))
    assert not world.once().halted
    assert names_in(world, "shop.is") == {"1": "copy", "2": "new", "3": "between"}
    assert not world.once().halted


def test_a_table_that_is_not_in_the_copy_and_is_renamed_later_halts() -> None:
    """Another table of the new name is in the copy: nothing shows that it is this one."""
    world = of_before(at=9, query=RENAMED, kind=RENAME)
    world.bucket.schema("shop.was", ts(7), "ALTER TABLE `was` ADD COLUMN `more` INT", ALTER_ADD)
    world.copy.add("shop.is", [ONE])
    assert "does not hold the table" in of(world.once(), "shop.was").error


VIEW = "CREATE ALGORITHM = UNDEFINED DEFINER = CURRENT_USER SQL SECURITY DEFINER VIEW `shop`.`seen` AS SELECT `id` FROM `shop`.`a`"


@pytest.mark.parametrize("dropped", [False, True])
def test_views_that_the_copy_leaves_out_are_created_by_their_statements(*, dropped: bool) -> None:
    """Dumpling exports no views unless told to; one that was dropped before the copy was made is not created again."""
    world = shop()
    world.bucket.schema("shop.seen", ts(3), VIEW, CREATE_VIEW, (column("id", "UNSPECIFIED"),))
    if dropped:
        world.bucket.schema("shop.seen", ts(4), "DROP VIEW `shop`.`seen`", DROP_VIEW, ())
    assert not world.once().halted
    assert not world.once().halted
    created = [effect for effect in world.records.effects if "VIEW" in effect]
    assert len(created) == (0 if dropped else 1)
    assert names_in(world, "shop.a")["4"] == "new"


@pytest.mark.parametrize("end", ["", "DROP VIEW `other`.`seen`", "DROP DATABASE `other`"])
def test_views_of_a_bucket_that_is_behind_the_copy(end: str) -> None:
    """Whether a view was there when the copy was made shows only once the bucket is beyond that; until then it is not created."""
    world = shop()
    view = VIEW.replace("`shop`.`seen`", "`other`.`seen`")
    world.bucket.schema("other.seen", ts(3), view, CREATE_VIEW, (column("id", "UNSPECIFIED"),))
    assert not world.once(5).halted
    if end:
        place, kind = ("other.seen", DROP_VIEW) if "VIEW" in end else ("other", 2)
        world.bucket.schema(place, ts(5), end, kind, ())
    world.bucket.metadata(ts(9))
    for _ in range(2):
        assert not world.once().halted
        assert ("other.seen" in map(str, world.records.structures)) == (not end)


def test_a_view_that_the_copy_leaves_out_and_that_is_dropped_later() -> None:
    """One that could not be made before its DROP is not made by a later start, though what it reads has come."""
    world = shop()
    reads_late = VIEW.replace("`shop`.`a`", "`shop`.`late`")
    world.bucket.schema("shop.seen", ts(3), reads_late, CREATE_VIEW, (column("id", "UNSPECIFIED"),))
    world.bucket.schema("shop.seen", ts(7), "DROP VIEW `shop`.`seen`", DROP_VIEW, ())
    world.bucket.schema("shop.late", ts(8), "CREATE TABLE `late` (id INT PRIMARY KEY, name VARCHAR(20))", 3)
    world.once()
    world.once()
    assert not [effect for effect in world.records.effects if "VIEW" in effect]


def test_a_table_that_is_created_after_the_copy_is_created_by_its_statement() -> None:
    """The copy need not hold it."""
    world = shop()
    world.bucket.schema("shop.later", ts(7), "CREATE TABLE `later` (id INT PRIMARY KEY, name VARCHAR(20))", 3)
    world.bucket.rows("shop.later", 1, row("shop.later", 8, "1", '"new"'), version=ts(7))
    assert not world.once().halted
    assert numbers(world, "shop.later") == ["1"]


def test_a_statement_after_the_copy_runs_in_its_place() -> None:
    """Rows of the copy, then the statement, then the rows after it."""
    world = shop()
    wider = (*ID_NAME, column("more", "VARCHAR", ColumnPrecision="20"))
    world.bucket.schema("shop.a", ts(9), "ALTER TABLE `a` ADD COLUMN `more` VARCHAR(20)", ALTER_ADD, wider)
    world.bucket.rows("shop.a", 1, row("shop.a", 10, "5", '"new"', '"more"'), version=ts(9))
    assert not world.once().halted
    assert [(found["id"], found.get("more")) for found in world.rows("shop.a")][-1] == ("5", "more")


def early_drop(*rows: str) -> WithCopies:
    """shop.a, whose copy lacks a column that only a statement after it drops; `rows`: what the bucket has from before it."""
    world = shop()
    wider = (*ID_NAME, column("old", "INT"))
    world.bucket.schema("shop.a", ts(2), "ALTER TABLE `a` ADD COLUMN `old` INT", ALTER_ADD, wider)
    world.bucket.rows("shop.a", 1, row("shop.a", 3, "1", '"old"', "3"), *rows, version=ts(2))
    world.bucket.rows("shop.a", 1, row("shop.a", 2, "1", '"old"'))
    world.bucket.schema("shop.a", ts(7), "ALTER TABLE `a` DROP COLUMN `old`", DROP_COLUMN)
    world.bucket.rows("shop.a", 1, row("shop.a", 8, "5", '"after"'), version=ts(7))
    return world


@pytest.mark.parametrize("rows", [(), (row("shop.a", 6, "4", '"between"', "3"),)], ids=["none", "one"])
def test_a_copy_that_shows_the_next_statement_already(rows: tuple[str, ...]) -> None:
    """TiDB shows the last steps of a DROP COLUMN before its version; rows from before the version go into what the copy has."""
    world = early_drop(*rows)
    assert not world.once().halted
    between = {"4": "between"} if rows else {}
    assert names_in(world, "shop.a") == {"1": "copy", "2": "copy", "3": "copy", **between, "5": "after"}


@pytest.mark.parametrize("tick", [4, 5])
def test_a_statement_up_to_the_copy_does_not_run(tick: int) -> None:
    """A TRUNCATE before the copy, or at exactly its TSO, would remove what the copy holds."""
    world = shop()
    world.bucket.schema("shop.a", ts(tick), "TRUNCATE TABLE `a`", TRUNCATE)
    world.bucket.rows("shop.a", 1, row("shop.a", 9, "5", '"new"'), version=ts(tick))
    assert not world.once().halted
    assert set(numbers(world, "shop.a")) == {"1", "2", "3", "4", "5"}


def test_rows_in_the_target_are_never_mixed_with_a_copy() -> None:
    """A target that has rows in a table of the copy is refused, before anything is written."""
    world = shop()
    world.copy.add("shop.b", [ONE])
    other = WithCopies(MemoryCopy(snapshot=ts(5)), initial=False)
    other.bucket.create("shop.b")
    other.bucket.rows("shop.b", 1, row("shop.b", 2, "7", '"there"'))
    other.once(3)
    world.records.rows, world.records.structures = other.records.rows, other.records.structures
    world.records.databases = other.records.databases
    with pytest.raises(ConfigError, match=r"already has rows in shop\.b"):
        world.once()
    assert not world.records.tables


def test_a_requested_load_of_a_paused_table_goes_beside_the_others() -> None:
    """The table gets its copy and catches up; the checkpoint of the whole never falls."""
    copy = MemoryCopy(snapshot=ts(12))
    copy.add("shop.a", [ONE, TWO], [THREE])
    world = WithCopies(copy, initial=False)
    world.bucket.create("shop.a", "shop.b")
    world.bucket.rows("shop.a", 1, row("shop.a", 2, "8", '"wrong"'))
    world.bucket.rows("shop.b", 1, row("shop.b", 2, "1", '"one"'))
    world.once(10)
    world.bucket.rows("shop.a", 2, row("shop.a", 11, "1", '"older"'), row("shop.a", 14, "1", '"newer"'))
    world.bucket.rows("shop.b", 2, row("shop.b", 15, "2", '"two"'))
    world.bucket.metadata(ts(20))
    world.request("shop.a", replaces=True)
    lowest = world.records.lowest
    summary = world.once()
    assert not summary.halted
    assert names_in(world, "shop.a") == {"1": "newer", "2": "copy", "3": "copy"}
    assert numbers(world, "shop.b") == ["1", "2"]
    assert world.records.lowest == ts(20) >= lowest


def test_a_copy_from_before_what_was_applied_is_refused() -> None:
    """What lies between them would not be applied again; the table stays as it was, and says so."""
    world = shop(initial=False)
    world.once()
    world.request("shop.a", replaces=True)
    world.once()
    (load,) = world.records.loads.values()
    assert load.phase == LoadPhase.REFUSED
    assert "pause the table" in load.error
    assert set(numbers(world, "shop.a")) == {"1", "2", "4", "9"}


def test_another_copy_under_the_same_path_is_refused() -> None:
    """A load that was interrupted goes on with its own copy alone."""
    world = shop()
    killed_at(world, "before MemoryLoads.advance")
    world.copy.identity = "two"
    assert "another copy" in of(world.once(), "shop.a").error


def test_what_is_requested_does_not_take_the_copy_from_a_new_feed() -> None:
    """A load that somebody requested before the first start changes nothing about how the feed begins."""
    world = shop()
    world.copy.add("shop.b", [ONE])
    world.request("shop.a", replaces=True)
    assert not world.once().halted
    assert numbers(world, "shop.b") == ["1"]


def test_a_cancelled_load_takes_nothing_back() -> None:
    """What others were told when the feed began stays, though the bucket is not as far as the copy yet."""
    world = shop()
    world.bucket.metadata(ts(3))
    killed_at(world, "before MemoryLoads.finish")
    decide(world, "skip")
    world.once()
    assert world.records.lowest == ts(5)


def test_a_copy_without_tables_brings_its_databases() -> None:
    """Their statements precede the copy, so nothing else creates them; also if the process ends right after that."""
    copy = MemoryCopy(snapshot=ts(5), empty=("shop",))
    world = WithCopies(copy)
    world.bucket.schema("shop", ts(3), "CREATE DATABASE `shop`", 1)
    world.bucket.schema("shop.a", ts(7), "CREATE TABLE `a` (id INT PRIMARY KEY, name VARCHAR(20))", 3)
    world.bucket.metadata(ts(10))
    killed_at(world, "before MemoryLoads.begin")
    assert not world.once().halted
    assert world.records.floor == ts(5)
    assert "shop.a" in {str(table.name) for table in world.records.structures.values()}


def interrupted(columns: Sequence[TableColumn], call: int) -> WithCopies | None:
    """Load shop.t in a process that ends at a call, and in another one after it; None if the first has fewer calls."""
    copy = MemoryCopy(snapshot=ts(5))
    copy.add("shop.t", [ONE, TWO], [THREE, ("5", '"copy"')], columns=columns)
    copy.add("shop.x")
    world = WithCopies(copy)
    world.bucket.create("shop.x")
    world.bucket.schema("shop.t", ts(1), "", 0, ID_NAME if columns == COLUMNS else BAG)
    world.bucket.rows("shop.t", 1, row("shop.t", 4, "1", '"old"'), row("shop.t", 8, "6", '"new"'))
    world.bucket.metadata(ts(10))
    if killed_after(world, call) < call:
        return None
    world.once()
    return world


@pytest.mark.slow
@pytest.mark.parametrize("columns", [COLUMNS, KEYLESS], ids=["keyed", "keyless"])
def test_a_process_may_end_at_any_call(columns: Sequence[TableColumn]) -> None:
    """Wherever a load is interrupted, the next process ends with the same rows, none of them twice or missing."""
    for call in count(1):
        if (world := interrupted(columns, call)) is None:
            break
        assert numbers(world, "shop.t") == ["1", "2", "3", "5", "6"], f"after the end at call {call}"
        assert world.records.lowest == ts(10)
    assert call > 25


def test_a_feed_that_begins_late_says_that_a_copy_is_needed(caplog: pytest.LogCaptureFixture) -> None:
    """Once, at the first start, where the changefeed's start-ts is known and no copy is given."""
    world = shop(initial=False)
    world.once()
    world.once()
    said = [record for record in caplog.records if "no rows from before" in record.getMessage()]
    assert len(said) == 1


def test_the_next_statement_does_not_judge_the_copy() -> None:
    """A folder that only records a structure may hold rows from before the statement; as long as it holds none, nothing has to fit."""
    world = shop()
    added = (*ID_NAME, column("more", "INT"))
    world.copy.add("shop.t", [ONE])
    world.bucket.schema("shop.t", ts(7), "ALTER TABLE `t` ADD COLUMN `more` INT", ALTER_ADD, added)
    world.bucket.schema("shop.t", ts(8), "", 0, added)
    world.bucket.rows("shop.t", 1, row("shop.t", 9, "2", '"new",1'), version=ts(8))
    assert not world.once().halted
    assert numbers(world, "shop.t") == ["1", "2"]
