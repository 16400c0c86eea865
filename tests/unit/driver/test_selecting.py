"""Filter and routes over whole rounds: what is read, run, written and remembered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from storage_consumer.config.settings import EventFilter, Route, Selecting
from storage_consumer.errors import ConfigError
from storage_consumer.model import DdlId, TableName
from storage_consumer.rows.comparison import TableLook, is_compared, obstacle
from tests.harness.small_bucket import ID_NAME, column, row, ts
from tests.unit.driving import World, of

WIDER = (*ID_NAME, column("note", "VARCHAR", ColumnPrecision="20"))
B = TableName(schema="shop", table="b")
COPY = Route(matcher=("shop.*",), target_schema="copy", target_table="{table}_old")


def world(**selecting: Any) -> World:
    """Tables shop.a and shop.b with a row each, and these settings."""
    made = World()
    made.bucket.create("shop.a", "shop.b")
    for table in ("shop.a", "shop.b"):
        made.bucket.rows(table, 1, row(table, 2, "1", '"one"'))
    made.bucket.metadata(ts(5))
    return select(made, **selecting)


def select(made: World, **selecting: Any) -> World:
    """The same with other settings."""
    made.config = replace(made.config, selecting=Selecting(**selecting))
    return made


def notes(made: World) -> dict[int, tuple[str, str]]:
    """Tick → state and note of the journal."""
    return {
        (version - ts(0)) // (1000 << 18): (entry.state, entry.note)
        for (_, version, _), entry in made.records.journal.items()
    }


# the filter


def test_a_table_that_is_left_out() -> None:
    """None of its files is read or listed again, none of its statements is run; all of it is counted."""
    made = world(rules=("shop.*", "!shop.b"))
    summary = made.once()
    assert not summary.halted
    assert summary.checkpoint == ts(5)
    assert [str(name) for name in made.records.structures] == ["shop.a"]
    assert summary.skipped["object: data file of a table that the filter leaves out"] == 1
    assert summary.skipped["ddl: the filter leaves out shop.b"] == 1
    assert ("skipped", "the filter leaves out shop.b") in notes(made).values()
    assert (summary.files, summary.ddls) == (1, 2)


def test_a_table_that_is_left_out_is_no_hindrance() -> None:
    """What is wrong with it stops nobody: a missing file, a row that does not parse, a schema file that is not there."""
    made = world(rules=("shop.a",))
    made.bucket.rows("shop.b", 3, "nonsense")
    made.bucket.rows("shop.b", 1, "nonsense", version=ts(3))
    service = made.service()
    for _ in range(3):
        made.clock.advance(100)
        assert not service.run_once(made.stop).halted
    service.close()


def test_left_out_directories_are_listed_no_more() -> None:
    """From the second look on, the listing leaves them out, full ones too."""
    made = world(rules=("shop.a",))
    asked: list[frozenset[str]] = []
    listing = made.bucket.storage.listing

    def noting(closed: frozenset[str], after: Any) -> Any:
        asked.append(closed)
        return listing(closed, after)

    object.__setattr__(made.bucket.storage, "listing", noting)
    service = made.service()
    service.run_once(made.stop)
    service.run_once(made.stop)
    service.close()
    assert f"shop/b/{ts(1)}" not in asked[0]
    assert f"shop/b/{ts(1)}" in asked[-1]


def test_a_rename_out_of_the_filter() -> None:
    """The table keeps its rows under its new name and gets no more; that is TiCDC's own rule (D15)."""
    made = world(rules=("shop.a", "shop.b"))
    made.bucket.schema("shop.gone", ts(3), "RENAME TABLE `shop`.`b` TO `shop`.`gone`", 14)
    made.bucket.rows("shop.b", 2, row("shop.b", 3, "2", '"two"'))
    made.bucket.rows("shop.gone", 1, row("shop.gone", 4, "3", '"three"'), version=ts(3))
    summary = made.once()
    assert not summary.halted
    assert [r["id"] for r in made.rows("shop.gone")] == ["1", "2"]
    assert [str(name) for name in made.records.structures] == ["shop.a", "shop.gone"]


def test_a_rename_into_the_filter() -> None:
    """It halts its table with the remedy, before and after a restart; the others go on; noted as done, its rows follow (D15)."""
    made = world(rules=("shop.a", "shop.new"))
    made.bucket.schema("shop.new", ts(3), "RENAME TABLE `shop`.`b` TO `shop`.`new`", 14)
    made.bucket.rows("shop.new", 1, row("shop.new", 4, "2", '"two"'), version=ts(3))
    for _ in range(2):
        (halted,) = made.once().halted
        assert halted.table == "shop.new"
        assert "brings rows of shop.b, which the filter leaves out, into shop.new" in halted.error
        assert [r["id"] for r in made.rows("shop.a")] == ["1"]
    identity = next(key for key in made.records.journal if key[1] == ts(1))
    kept = made.records.structures[TableName(schema="shop", table="a")]
    new = TableName(schema="shop", table="new")
    made.records.structures[new] = replace(kept, name=new)
    made.records.rows[new] = [{"id": "1", "name": "one"}]
    path = next(path for path in made.bucket.storage._objects if path.startswith("shop/new/meta"))
    step = DdlId("shop/new", ts(3), int(path[-15:-5]))
    made.records.journal[step] = replace(made.records.journal[identity], state="done")
    assert not made.once().halted
    assert [r["id"] for r in made.rows("shop.new")] == ["1", "2"]


def test_a_table_that_is_taken_in_later() -> None:
    """It lacks its past, so it halts with the remedy, and does so after each start until it is seen to."""
    made = world(rules=("shop.a",))
    made.once()
    made.bucket.rows("shop.b", 2, row("shop.b", 6, "2", '"two"'))
    made.bucket.metadata(ts(7))
    select(made)
    for _ in range(2):
        (halted,) = made.once().halted
        assert halted.table == "shop.b"
        assert "this table was left out until now" in halted.error
        assert made.rows("shop.b") == []
    key = "`shop`.`b`"
    a, b = TableName(schema="shop", table="a"), TableName(schema="shop", table="b")
    made.records.structures[b] = replace(made.records.structures[a], name=b)
    made.records.rows[b] = [{"id": "1", "name": "one"}]
    made.records.tables[key] = replace(made.records.tables[key], state="running", checkpoint=ts(5))
    assert not made.once().halted
    assert [r["id"] for r in made.rows("shop.b")] == ["1", "2"]


def test_a_table_that_is_left_out_later() -> None:
    """It stays as it is; its later rows are passed over."""
    made = world()
    made.once()
    made.bucket.rows("shop.b", 2, row("shop.b", 6, "2", '"two"'))
    made.bucket.metadata(ts(7))
    summary = select(made, rules=("shop.a",)).once()
    assert (summary.checkpoint, summary.rows) == (ts(7), 0)
    assert [r["id"] for r in made.rows("shop.b")] == ["1"]


def test_what_a_comparison_names() -> None:
    """It names a table that is halted since the filter takes it again, with the reason, and none that is left out."""
    made = world(rules=("shop.*", "!shop.b"))
    named = []
    for rules in (("shop.*", "!shop.b"), (), ("shop.*", "!shop.b")):
        select(made, rules=rules).once()
        stored = made.records.tables["`shop`.`b`"]
        named.append(is_compared(stored.state, stored.error))
        look = TableLook(
            table_key=stored.table_key, table=B, target=B, state=stored.state, checkpoint=ts(5), error=stored.error
        )
        found = obstacle(look)
        assert (found is not None and "earlier rows are missing" in found.why) == named[-1]
    assert named == [False, True, False]


def test_a_database_that_is_left_out() -> None:
    """Neither its making nor its end reaches the target (D16)."""
    made = world(rules=("shop.*",))
    made.bucket.create("other.t")
    made.bucket.schema("other", ts(3), "DROP DATABASE `other`", 2)
    summary = made.once()
    assert not summary.halted
    assert made.records.databases == {"shop"}
    assert summary.skipped["ddl: the filter leaves out every table of other"] == 2


def test_a_statement_that_is_ignored() -> None:
    """It is skipped and recorded; rows that do not fit the table then halt it, naming the statement, after a restart too."""
    made = world(event_filters=(EventFilter(matcher=("shop.b",), ignore_event=("add column",)),))
    made.bucket.schema("shop.b", ts(3), "ALTER TABLE `b` ADD COLUMN `note` VARCHAR(20)", 5, WIDER)
    summary = made.once()
    assert not summary.halted
    assert summary.skipped["ddl: ignore-event 'add column' of an event filter"] == 1
    assert notes(made)[3] == ("skipped", "ignore-event 'add column' of an event filter")
    made.bucket.rows("shop.b", 1, row("shop.b", 6, "2", '"two"', '"x"'), version=ts(3))
    (halted,) = made.once(7).halted
    assert "the target's table lacks: note" in halted.error
    assert "The filter kept this statement of version" in halted.error
    assert "ALTER TABLE `b` ADD COLUMN `note` VARCHAR(20)" in halted.error


@pytest.mark.parametrize("restarted", [False, True])
def test_a_drop_of_what_was_never_made(restarted: bool) -> None:  # noqa: FBT001 - a column of the table
    """Where a filter kept the CREATE from being run, the DROP finds nothing to do, which the journal says; others still have to."""
    made = world(event_filters=(EventFilter(matcher=("shop.b",), ignore_event=("create table",)),))
    made.bucket.storage.delete(str(made.bucket.file("shop.b", 1).relative_to("/bucket")))
    if restarted:
        made.once()
    made.bucket.schema("shop.b", ts(6), "DROP TABLE `b`", 4)
    summary = made.once(7)
    assert (summary.halted, summary.checkpoint) == ((), ts(7))
    state, note = notes(made)[6]
    assert (state, note.startswith("nothing to do, because the statement that creates it was not run")) == (
        "done",
        True,
    )
    made.records.structures.clear()
    made.bucket.schema("shop.a", ts(8), "DROP TABLE `a`", 4)
    assert "no table shop.a" in made.once(9).halted[0].error


def test_a_drop_that_is_ignored() -> None:
    """The table and its rows stay."""
    made = world(event_filters=(EventFilter(matcher=("*.*",), ignore_event=("drop table",)),))
    made.bucket.schema("shop.b", ts(3), "DROP TABLE `shop`.`b`", 4)
    assert not made.once().halted
    assert [r["id"] for r in made.rows("shop.b")] == ["1"]


# the routes


def test_tables_under_other_names() -> None:
    """Database, tables, rows, renames and later statements go where the routes lead; a restart goes on there."""
    made = world(routes=(COPY,))
    made.bucket.schema("shop.c", ts(3), "RENAME TABLE `shop`.`b` TO `shop`.`c`", 14)
    made.bucket.schema("shop.c", ts(4), "ALTER TABLE `c` ADD COLUMN `note` VARCHAR(20)", 5, WIDER)
    made.bucket.rows("shop.c", 1, row("shop.c", 5, "2", '"two"', '"x"'), version=ts(4))
    summary = made.once()
    assert not summary.halted
    assert made.records.databases == {"copy"}
    assert [str(name) for name in made.records.structures] == ["copy.a_old", "copy.c_old"]
    assert [r["id"] for r in made.rows("copy.a_old")] == ["1"]
    assert [r["id"] for r in made.rows("copy.c_old")] == ["1", "2"]
    assert of(summary, "shop.b").state == "dropped"
    made.bucket.rows("shop.c", 2, row("shop.c", 6, "3", '"three"', '"y"'), version=ts(4))
    assert not made.once(7).halted
    assert [r["id"] for r in made.rows("copy.c_old")] == ["1", "2", "3"]


def test_another_route_for_a_table_with_rows() -> None:
    """It is refused before anything is touched, whichever way it changes, until the operator says that the table was moved."""
    made = world(routes=(COPY,))
    made.once()
    for routes in ((), (Route(matcher=("shop.a",), target_table="x"),)):
        with pytest.raises(
            ConfigError, match=r"the rows of shop.a are in copy.a_old of the target; with the current routes"
        ):
            select(made, routes=routes).once()
    select(made, routes=(COPY,))
    assert not made.once().halted
    plain = world()
    plain.once()
    with pytest.raises(ConfigError, match=r"the rows of shop.a are in shop.a .* they would go to copy.a_old"):
        select(plain, routes=(COPY,)).once()


def test_a_dropped_table_may_get_another_route() -> None:
    """Nothing of it is in the target."""
    made = world(rules=("shop.b",), routes=(COPY,))
    made.bucket.schema("shop.b", ts(3), "DROP TABLE `shop`.`b`", 4)
    made.once()
    assert not select(made, rules=("shop.b",)).once().halted


def test_two_tables_under_one_name() -> None:
    """The later one halts with both names and the remedy, nothing of it is written; with a route of its own it goes on."""
    both = Route(matcher=("shop.*",), target_table="all")
    made = world(routes=(both,))
    (halted,) = made.once().halted
    assert halted.table == "shop.b"
    assert "the routes send shop.b and shop.a to shop.all at the same time" in halted.error
    assert [r["id"] for r in made.rows("shop.all")] == ["1"]
    select(made, routes=(Route(matcher=("shop.b",), target_table="other"), both))
    assert not made.once().halted
    assert [r["id"] for r in made.rows("shop.other")] == ["1"]


def test_two_tables_under_one_name_one_after_the_other() -> None:
    """They do not meet: the one is dropped before the other is made, and in this order."""
    made = World()
    made.bucket.create("shop.a")
    made.bucket.rows("shop.a", 1, row("shop.a", 2, "1", '"one"'))
    made.bucket.schema("shop.a", ts(3), "DROP TABLE `shop`.`a`", 4)
    made.bucket.schema("shop.b", ts(4), "CREATE TABLE `b` (id INT PRIMARY KEY, name VARCHAR(20))", 3)
    made.bucket.rows("shop.b", 1, row("shop.b", 5, "2", '"two"'), version=ts(4))
    made.bucket.metadata(ts(6))
    assert not select(made, routes=(Route(matcher=("shop.*",), target_table="all"),)).once().halted
    assert [r["id"] for r in made.rows("shop.all")] == ["2"]


def test_two_databases_in_one() -> None:
    """Each is made if it is not there; the end of one halts, since the other's tables are in it too."""
    made = world(routes=(Route(matcher=("*.*",), target_schema="all", target_table="{schema}_{table}"),))
    made.bucket.create("other.a")
    made.bucket.schema("other", ts(3), "DROP DATABASE `other`", 2)
    summary = made.once()
    assert [str(name) for name in made.records.structures] == ["all.other_a", "all.shop_a", "all.shop_b"]
    assert [one.table for one in summary.halted] == ["other"]
    assert "its tables share all with others (shop)" in summary.halted[0].error


def test_a_database_in_two() -> None:
    """Each is made before its first table."""
    made = world(routes=(Route(matcher=("shop.a",), target_schema="x"),))
    summary = made.once()
    assert not summary.halted
    assert sorted(str(name) for name in made.records.structures) == ["shop.b", "x.a"]
    assert summary.skipped["ddl: its tables go to x, shop, each of which is created before its first table"] == 1


def test_filter_and_routes_go_by_the_buckets_names() -> None:
    """The filter is asked before the routes."""
    made = world(rules=("shop.a",), routes=(COPY,))
    assert not made.once().halted
    assert [str(name) for name in made.records.structures] == ["copy.a_old"]
