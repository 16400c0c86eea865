"""Renames that a copy shows already, or seems to: run twice, or taken for done, they would put rows into another table."""

from __future__ import annotations

import pytest

from storage_consumer.model import TableName
from tests.harness.small_bucket import row, ts
from tests.harness.twins.target import MemoryTarget
from tests.unit.copying import MemoryCopy, WithCopies, names_in

RENAME = 14


def world(at: int, tables: dict[str, str], *, initial: bool = True) -> WithCopies:
    """A feed that begins with a copy, or has one at hand: its tables, with a row for each digit."""
    copy = MemoryCopy(snapshot=ts(at))
    for name, ids in tables.items():
        copy.add(name, [(each, f'"{name}"') for each in ids])
    return WithCopies(copy, initial=initial)


def rename(found: WithCopies, tick: int, old: str, new: str) -> None:
    """A table gets another name."""
    database, _, name = new.partition(".")
    found.bucket.schema(new, ts(tick), f"RENAME TABLE {old} TO `{database}`.`{name}`", RENAME)


def halted(found: WithCopies, tick: int) -> list[str]:
    """What stands still when the bucket is complete up to a tick."""
    return [f"{table.table}: {table.error}" for table in found.once(tick).halted]


def test_a_cut_over_right_after_the_copy() -> None:
    """The snapshot shows it early: its names are those of a swap of which a step is lost, so nothing is inferred, and nothing moves."""
    found = world(5, {"shop.t_old": "1", "shop.t": "23"})
    rename(found, 6, "`shop`.`t`", "shop.t_old")
    rename(found, 6, "`shop`.`t_new`", "shop.t")
    (error,) = halted(found, 10)
    assert "1050" in error
    assert f"The copy as of {ts(5)}, from right before the statement, may show it already" in error
    assert names_in(found, "shop.t_old") == {"1": "shop.t_old"}
    assert names_in(found, "shop.t") == {"2": "shop.t", "3": "shop.t"}


def test_a_covered_rename_that_leaves_the_database_open() -> None:
    """Two tables can be meant: neither loses a row, and the statement is put before the operator."""
    found = world(6, {"depot.c": "1"}, initial=False)
    found.bucket.create("shop.b", "depot.b", "depot.d")
    found.bucket.rows("depot.b", 1, row("depot.b", 2, "1", '"x"'), row("depot.b", 4, "2", '"x"'))
    halted(found, 3)
    rename(found, 5, "`b`", "depot.c")
    found.request("depot.c")
    assert "without naming its database" in halted(found, 10)[0]
    assert names_in(found, "depot.b") == {"1": "x", "2": "x"}


def test_rows_between_a_copy_and_a_rename_that_leaves_the_database_open() -> None:
    """They went to the table under its old name, so the copy under the new one lacks them: the statement does not count as done."""
    found = world(4, {"depot.c": "1"}, initial=False)
    found.bucket.create("shop.b", "depot.d")
    found.bucket.rows("shop.b", 1, row("shop.b", 2, "1", '"x"'), row("shop.b", 5, "2", '"x"'))
    halted(found, 3)
    rename(found, 6, "`b`", "depot.c")
    found.request("depot.c")
    assert "1050" in halted(found, 10)[0]
    assert names_in(found, "shop.b") == {"1": "x", "2": "x"}


def test_healed_under_the_new_name_and_renamed_back() -> None:
    """The old table is still there under the first name: the way back is refused, not taken for done."""
    found = world(6, {"shop.c": "12"}, initial=False)
    found.bucket.create("shop.b")
    found.bucket.rows("shop.b", 1, row("shop.b", 2, "1", '"x"'))
    halted(found, 3)
    rename(found, 5, "`shop`.`b`", "shop.c")
    found.request("shop.c", replaces=True)
    assert not halted(found, 7)
    rename(found, 9, "`shop`.`c`", "shop.b")
    found.bucket.rows("shop.b", 1, row("shop.b", 10, "4", '"x"'), version=ts(9))
    assert "1050" in halted(found, 12)[0]
    assert names_in(found, "shop.b") == {"1": "x"}


@pytest.mark.parametrize("tick", [9, 50_001])
def test_a_name_that_somebody_else_has_taken(tick: int) -> None:
    """The copy had the table under its old name, so it does not show the rename: whatever has the new one is a stranger."""
    found = world(5, {"shop.a": "12"})
    assert not halted(found, 6)
    MemoryTarget(found.records).execute_ddl("CREATE TABLE `b` (id INT PRIMARY KEY, name VARCHAR(20))", "shop", 0)
    stranger = TableName(schema="shop", table="b")
    found.records.rows[stranger] = [{"id": "77", "name": "theirs"}]
    found.bucket.schema("shop.a", ts(1), "", 0)
    rename(found, tick, "`shop`.`a`", "shop.b")
    found.bucket.rows("shop.b", 1, row("shop.b", tick + 1, "4", '"x"'), version=ts(tick))
    assert "1050" in halted(found, tick + 8)[0]
    assert names_in(found, "shop.b") == {"77": "theirs"}


def test_a_swap_with_a_lost_step_after_the_load_of_one_table() -> None:
    """The copy has a table under the new name of one step, but no copy can show the other: none of them counts as done."""
    found = world(3, {"depot.a": "1"}, initial=False)
    found.bucket.create("depot.a", "shop.c")
    found.bucket.rows("shop.c", 1, row("shop.c", 2, "7", '"c"'))
    halted(found, 2)
    found.request("depot.a", replaces=True)
    # shop.a, the name in between, is that of a step whose file the last one has replaced.
    rename(found, 5, "`shop`.`c`", "depot.a")
    rename(found, 5, "`shop`.`a`", "shop.c")
    found.bucket.rows("depot.a", 1, row("depot.a", 6, "8", '"c"'), version=ts(5))
    assert "1050" in halted(found, 10)[0]
    assert names_in(found, "depot.a") == {"1": "depot.a"}
    assert names_in(found, "shop.c") == {"7": "c"}


def test_a_swap_with_a_lost_step_after_loads_at_several_times() -> None:
    """By the times of the copies each step could be shown, but the name in the middle would have to be from before and from after."""
    found = world(4, {"shop.c": "7"}, initial=False)
    found.bucket.create("depot.a", "shop.c")
    halted(found, 3)
    found.request("shop.c", replaces=True)
    halted(found, 5)
    found.copy.snapshot, found.copy.identity = ts(6), "two"
    found.copy.add("depot.a", [("1", '"depot.a"')])
    found.request("depot.a", replaces=True)
    halted(found, 6)
    rename(found, 7, "`shop`.`c`", "depot.a")
    rename(found, 7, "`shop`.`a`", "shop.c")
    assert "1050" in halted(found, 10)[0]
    assert names_in(found, "depot.a") == {"1": "depot.a"}
    assert names_in(found, "shop.c") == {"7": "shop.c"}


def test_rows_before_names_are_swapped_and_a_load_under_one_of_them() -> None:
    """The copy of the other name is of the table that had it until the swap: it does not hold the rows that come into that name."""
    found = world(4, {"shop.a": "1", "shop.c": ""})
    assert not halted(found, 4)
    found.copy.snapshot, found.copy.identity = ts(40), "two"
    found.copy.add("shop.a", [("1", '"shop.a"'), ("2", '"shop.a"')])
    found.request("shop.a", replaces=True)
    # Neither table has a file in the bucket before the swap, but for the rows of one.
    found.bucket.schema("shop.c", ts(4), "", 0)
    found.bucket.rows("shop.c", 1, row("shop.c", 5, "7", '"c"'), version=ts(4))
    later = 8_000
    rename(found, later, "`shop`.`a`", "depot.c")
    rename(found, later, "`shop`.`c`", "shop.a")
    rename(found, later, "`depot`.`c`", "shop.c")
    assert not halted(found, later + 5)
    assert names_in(found, "shop.a") == {"7": "c"}
    assert names_in(found, "shop.c") == {"1": "shop.a", "2": "shop.a"}
