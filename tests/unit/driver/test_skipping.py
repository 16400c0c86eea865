"""Tables that an operator leaves out for good: nothing of them is applied, all of it is counted, and a copy brings them back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage_consumer.model import TableName
from storage_consumer.plan.steps import key_of
from storage_consumer.plan.table_decisions import Verb, is_skipped
from storage_consumer.plan.table_state import TableState
from tests.harness.small_bucket import CREATE_TABLE, ID_NAME, SchemaFile, column, row, schema_document, ts
from tests.unit.deciding import NAME, copied, decide, gap, halts, put, start
from tests.unit.driving import World, numbers, of, running, two_tables

REASON = "object: data file of a table that is skipped by an operator"
DROP, ADD_FOREIGN_KEY, RENAME, EXCHANGE = 4, 9, 14, 42
B = TableName(schema="shop", table="b")
WIDER = (*ID_NAME, column("note", "VARCHAR", ColumnPrecision="20"))


def skipped(world: World, table: str = "a") -> bool:
    """Whether the state says that an operator leaves the table out."""
    stored = world.records.tables[key_of(TableName(schema="shop", table=table))]
    return is_skipped(stored.state, stored.error)


def test_a_running_table() -> None:
    """A running consumer obeys in its next round: no row and no statement is applied, the checkpoint goes on, also after a restart."""
    world = two_tables()

    def act(rounds: int) -> None:
        if rounds == 1:
            decide(world, "skip")
        if rounds == 2:
            put(world, 2, 6, "2")
            world.bucket.schema("shop.a", ts(7), "ALTER TABLE `a` ADD COLUMN `note` VARCHAR(20)", 5, WIDER)
            world.bucket.rows("shop.b", 2, row("shop.b", 6, "2", '"two"'))
            world.bucket.metadata(ts(9))

    summary = running(world, act, rounds=3)
    assert (summary.tables[0].table, summary.checkpoint) == ("shop.b", ts(9))
    assert summary.skipped["ddl: shop.a is skipped by an operator"] == 1
    assert (numbers(world, "shop.a"), numbers(world, "shop.b")) == (["1"], ["1", "2"])
    put(world, 3, 11, "3")
    later = world.once(12)
    assert (later.tables, later.checkpoint, later.skipped[REASON]) == ((), ts(12), 3)
    assert (numbers(world, "shop.a"), skipped(world)) == (["1"], True)


def test_a_cycle_of_renames_with_a_lost_name() -> None:
    """A name that no file is of, and that leads to rows of a skipped table, halts what waits for it; the program goes on."""
    world = two_tables()
    world.once()
    decide(world, "skip")
    world.once()
    steps = (("shop.b", "a", "c"), ("shop.a", "b", "a"), ("shop.b", "c", "b"))
    for file, old, new in steps:
        world.bucket.schema(file, ts(7), f"RENAME TABLE `shop`.`{old}` TO `shop`.`{new}`", RENAME)
    assert "which an operator leaves out" in " ".join(table.error for table in world.once(9).halted)


def test_a_halted_table() -> None:
    """It holds up nothing any more, not even the checkpoint that others see."""
    world = two_tables()
    world.bucket.rows("shop.a", 2, "nonsense")
    world.bucket.metadata(ts(9))
    halts(world)
    assert world.records.tables[key_of(NAME)].state == "halted"
    decide(world, "skip")
    summary = world.once()
    assert (summary.halted, summary.checkpoint) == ((), ts(9))


def test_a_waiting_table() -> None:
    """A table that waits for a missing file waits no longer, and none of its files is missed later."""
    world = start()
    gap(world)
    assert of(world.once(13), "shop.a").state == "waiting"
    decide(world, "skip")
    assert (world.once().checkpoint, world.once().tables) == (ts(13), ())
    world.clock.advance(100)
    assert world.once().checkpoint == ts(13)


@pytest.mark.parametrize("verbs", [("skip",), ("skip", "pause"), ("skip", "pause", "skip")])
@pytest.mark.parametrize("restarts", [1, 2])
def test_a_folder_that_was_skipped_turns_out_to_be_another_table_s(verbs: tuple[Verb, ...], restarts: int) -> None:
    """That table lacks the rows that were passed over, and halts; the name that the path had is no table."""
    world = start()
    real = TableName(schema="shop", table="real")
    world.records.structures[real] = replace(world.records.structures[TableName(schema="shop", table="a")], name=real)
    world.bucket.rows("shop.z", 1, row("shop.real", 6, "1", '"one"'))
    world.bucket.metadata(ts(9))
    halts(world, "shop.z")
    for verb in verbs:
        decide(world, verb, table="z")
        world.once()
    world.bucket.metadata(ts(12))
    for _ in range(restarts):
        world.once()
    text, checksum = schema_document(SchemaFile(name=("shop", "real"), query="", kind=0, columns=ID_NAME), ts(1))
    world.bucket.write(f"shop/z/meta/schema_{ts(1)}_{checksum:010d}.json", text)
    world.bucket.rows("shop.z", 2, row("shop.real", 14, "2", '"two"'))
    world.bucket.metadata(ts(15))
    for _ in range(3):
        assert [each.table for each in world.once().halted] == ["shop.real"]
    assert world.records.tables[key_of(real)].state == TableState.LOST
    assert world.records.tables["`shop`.`z`"].state == TableState.DROPPED


def passed_over() -> World:
    """A feed at tick 7 that skips shop.a, of which it has passed over a row."""
    world = start()
    decide(world, "skip")
    world.once()
    put(world, 2, 6, "2")
    world.once(7)
    return world


def test_what_brings_it_back() -> None:
    """A fresh copy does, and nothing else: the rows after it come from the files."""
    world = passed_over()
    decide(world, "resume")
    world.once()
    assert skipped(world)
    put(world, 3, 12, "3")
    world.once(13)
    copied(world, "1", "2")
    decide(world, "reload-done", ts(8))
    assert (world.once().halted, numbers(world, "shop.a"), skipped(world)) == ((), ["1", "2", "3"], False)


def test_a_pause_has_it_stand_still() -> None:
    """Nothing more is passed over, so that a copy can be made in peace; what is told to others does not fall, and a resume does not do."""
    world = passed_over()
    decide(world, "pause")
    for number, tick in ((3, 13), (4, 15)):
        put(world, number, tick - 1, str(tick))
        summary = world.once(tick)
        assert "its earlier rows are missing" in of(summary, "shop.a").error
        assert (summary.checkpoint, world.records.lowest) == (ts(7), ts(7))
        decide(world, "resume")
    copied(world, "1", "2")
    decide(world, "reload-done", ts(8))
    assert (world.once().halted, numbers(world, "shop.a"), skipped(world)) == ((), ["1", "13", "15", "2"], False)


@pytest.mark.parametrize("at", [5, 9])
def test_a_copy_that_is_too_old(at: int) -> None:
    """A copy has to be as of the last statement that was skipped, and of the checkpoint that was stored with it, since that one is not run again."""
    world = start()
    decide(world, "skip")
    world.bucket.schema("shop.a", ts(7), "ALTER TABLE `a` ADD COLUMN `note` VARCHAR(20)", 5, WIDER)
    world.once(9)
    copied(world, "1", note="new")
    decide(world, "reload-done", ts(at))
    world.once()
    assert skipped(world) == (at == 5)


def test_rows_that_a_rename_would_bring_in() -> None:
    """A skipped table that gets another name would bring rows that were never read: its new name halts, and says how to go on."""
    world = start()
    decide(world, "skip")
    world.bucket.schema("shop.c", ts(7), "RENAME TABLE `shop`.`a` TO `shop`.`c`", 14)
    (table,) = world.once(9).halted
    assert "brings rows of shop.a, which an operator leaves out, into shop.c" in table.error
    assert "Give shop.c a copy" in table.error


def left_out(table: str) -> World:
    """shop.a and shop.b with a row each, of which an operator leaves one out."""
    world = two_tables()
    world.once()
    decide(world, "skip", table=table)
    world.once()
    return world


def test_a_name_that_is_taken_in_the_target() -> None:
    """A table that gets a skipped table's name halts while the target has the old one: it can be seen, and resumed once that is gone."""
    world = left_out("a")
    world.bucket.schema("shop.a", ts(5), "DROP TABLE `shop`.`a`", DROP)
    world.bucket.schema("shop.a", ts(6), "RENAME TABLE `shop`.`b` TO `shop`.`a`", RENAME)
    summary = world.once(9)
    (halted,) = summary.halted
    assert (halted.table, summary.checkpoint, summary.states["halted"]) == ("shop.b", ts(6), 1)
    assert "`storage-consumer table resume --table shop.b`" in halted.error
    assert (world.records.tables[key_of(B)].state, skipped(world)) == ("halted", True)
    del world.records.rows[NAME], world.records.structures[NAME]
    decide(world, "resume", table="b")
    summary = world.once()
    assert (summary.halted, summary.checkpoint, numbers(world, "shop.a")) == ((), ts(9), ["1"])


@pytest.mark.parametrize("skip", ["a", "b"])
def test_partitions_exchanged_with_a_skipped_table(skip: str) -> None:
    """The other table halts, whichever of the two it is; one copy of it settles the statement, and a copy from before it brings none back."""
    world, taken = left_out(skip), {"a": "b", "b": "a"}[skip]
    world.bucket.schema("shop.a", ts(6), "ALTER TABLE `a` EXCHANGE PARTITION `p0` WITH TABLE `b`", EXCHANGE)
    (halted,) = world.once(9).halted
    assert (halted.table, halted.checkpoint) == (f"shop.{taken}", ts(6))
    assert f"storage-consumer table reload-done --table shop.{taken} --at TSO" in halted.error
    copied(world, "1", "8", table=taken)
    decide(world, "reload-done", ts(8), table=taken)
    summary = world.once()
    assert (summary.halted, summary.waiting, summary.checkpoint) == ((), (), ts(9))
    decide(world, "reload-done", ts(5), table=skip)
    world.once()
    assert skipped(world, skip)
    assert "is too old" in world.records.obeyed[key_of(TableName(schema="shop", table=skip))].refusal


def test_names_swapped_with_a_skipped_table() -> None:
    """One copy of the other table settles all three renames: the skipped one needs none."""
    world = left_out("a")
    for old, new in (("b", "a"), ("t", "b"), ("a", "t")):
        world.bucket.schema(f"shop.{new}", ts(6), f"RENAME TABLE `shop`.`{old}` TO `shop`.`{new}`", RENAME)
    world.bucket.rows("shop.b", 1, row("shop.b", 10, "9", '"file"'), version=ts(6))
    assert world.once(9).checkpoint == ts(6)
    decide(world, "pause", table="b")
    world.once()
    copied(world, "8", table="b")
    decide(world, "reload-done", ts(8), table="b")
    summary = world.once(12)
    assert (summary.halted, summary.waiting, summary.checkpoint) == ((), (), ts(12))
    assert (numbers(world, "shop.a"), numbers(world, "shop.b"), skipped(world)) == (["1"], ["8", "9"], True)


def test_a_name_that_a_copied_table_gave_up() -> None:
    """A table is renamed to a skipped name, created anew and copied: the rename is settled by the copy, for it must not take it away."""
    world = left_out("a")
    decide(world, "pause", table="b")
    world.once()
    world.bucket.schema("shop.a", ts(6), "RENAME TABLE `shop`.`b` TO `shop`.`a`", RENAME)
    world.bucket.schema("shop.b", ts(7), "CREATE TABLE `b` (id INT PRIMARY KEY, name VARCHAR(20))", CREATE_TABLE)
    world.bucket.rows("shop.b", 1, row("shop.b", 10, "9", '"file"'), version=ts(7))
    world.once(9)
    copied(world, "8", table="b")
    decide(world, "reload-done", ts(9), table="b")
    summary = world.once(12)
    assert (summary.halted, summary.waiting, summary.checkpoint) == ((), (), ts(12))
    assert (numbers(world, "shop.a"), numbers(world, "shop.b")) == (["1"], ["8", "9"])


def test_a_statement_that_names_a_copied_table() -> None:
    """A statement of a skipped table is not run, so it stops no table that it names, though a copy of that one is beyond it."""
    world = left_out("a")
    decide(world, "pause", table="b")
    world.once()
    copied(world, "1", "8", table="b")
    decide(world, "reload-done", ts(8), table="b")
    world.once()
    parent = "ALTER TABLE `a` ADD CONSTRAINT `x` FOREIGN KEY (`id`) REFERENCES `b` (`id`)"
    world.bucket.schema("shop.a", ts(6), parent, ADD_FOREIGN_KEY)
    world.bucket.rows("shop.b", 2, row("shop.b", 10, "9", '"file"'))
    summary = world.once(12)
    assert (summary.halted, summary.waiting, summary.checkpoint) == ((), (), ts(12))
    assert numbers(world, "shop.b") == ["1", "8", "9"]
