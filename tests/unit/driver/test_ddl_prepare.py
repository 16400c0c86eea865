"""Names without a database in statements that run beside equally named tables of other databases."""

from __future__ import annotations

from typing import Any

import pytest

from storage_consumer.model import DdlId
from storage_consumer.plan.journal_entry import DONE, JournalEntry
from tests.harness.small_bucket import CREATE_TABLE, ID_NAME, column, row, ts
from tests.harness.twins.target import MemoryTarget
from tests.unit.driving import World, killed_at, of

OTHER = (ID_NAME[0], column("note", "INT"))
WIDER = (*ID_NAME, column("note", "VARCHAR", ColumnPrecision="20"))


@pytest.fixture
def tenants() -> World:
    """The table orders of two tenants, with a row in that of the second; the target lacks that of the first."""
    found = World()
    found.bucket.create("tenant2.orders")
    found.bucket.schema("tenant1", ts(1), "CREATE DATABASE `tenant1`", 1)
    found.bucket.rows("tenant2.orders", 1, row("tenant2.orders", 2, "1", '"one"'))
    found.bucket.metadata(ts(9))
    return found


@pytest.mark.parametrize(
    ("table", "query", "kind", "columns"),
    [
        ("orders", "TRUNCATE TABLE `orders`", 11, ID_NAME),
        ("orders", "ALTER TABLE `orders` ADD COLUMN `note` VARCHAR(20)", 5, WIDER),
        ("former", "RENAME TABLE `orders` TO `former`", 14, ID_NAME),
    ],
)
def test_statement_of_one_tenant_spares_the_other(
    tenants: World, table: str, query: str, kind: int, columns: tuple[dict[str, Any], ...]
) -> None:
    """A statement whose table the target lacks halts that table, whatever other database has one of its name."""
    tenants.bucket.schema(f"tenant1.{table}", ts(5), query, kind, columns)
    summary = tenants.once()
    assert [t.table for t in summary.halted] == [f"tenant1.{table}"]
    assert tenants.rows("tenant2.orders") == [{"id": "1", "name": "one"}]
    assert [str(name) for name in tenants.records.structures] == ["tenant2.orders"]


def test_drop_of_one_tenant_spares_the_other(tenants: World) -> None:
    """A DROP of a table that was never replicated is nothing to do, whatever other database has one of its name."""
    tenants.bucket.schema("tenant1.orders", ts(5), "DROP TABLE `orders`", 4)
    assert not tenants.once().halted
    assert tenants.rows("tenant2.orders") == [{"id": "1", "name": "one"}]


def test_rows_come_before_a_rename_whose_old_database_is_inferred(tenants: World) -> None:
    """A table whose database was found out is renamed once its rows are written, and no table is left at its old name."""
    tenants.bucket.rows("tenant2.orders", 2, row("tenant2.orders", 4, "2", '"two"'))
    tenants.bucket.schema("tenant1.former", ts(5), "RENAME TABLE `orders` TO `tenant1`.`former`", 14)
    tenants.bucket.rows("tenant1.former", 1, row("tenant1.former", 6, "3", '"three"'), version=ts(5))
    summary = tenants.once()
    assert not summary.halted
    assert [r["id"] for r in tenants.rows("tenant1.former")] == ["1", "2", "3"]
    assert of(summary, "tenant2.orders").state == "dropped"


def test_rename_that_two_tenants_could_be_meant_by(tenants: World) -> None:
    """Where the history leaves two tables that a rename can mean, it halts with what to do and neither is renamed."""
    tenants.bucket.create("tenant3.orders")
    tenants.bucket.schema("tenant1.former", ts(5), "RENAME TABLE `orders` TO `tenant1`.`former`", 14)
    (halted,) = tenants.once().halted
    assert halted.table == "tenant1.former"
    assert "it could be any of tenant2.orders, tenant3.orders" in halted.error
    assert [str(name) for name in tenants.records.structures] == ["tenant2.orders", "tenant3.orders"]


@pytest.mark.parametrize("old", ["tenant1", "tenant2"])
def test_rename_that_was_run_by_hand(tenants: World, old: str) -> None:
    """Once the operator ran such a rename and noted it as done, it is left alone, and the other table keeps its rows to come."""
    other = {"tenant1": "tenant2", "tenant2": "tenant1"}[old]
    bucket, records = tenants.bucket, tenants.records
    bucket.schema("tenant1.orders", ts(1), "CREATE TABLE `orders` (id INT PRIMARY KEY, name VARCHAR(20))", CREATE_TABLE)
    bucket.schema("tenant3", ts(1), "CREATE DATABASE `tenant3`", 1)
    path = bucket.schema("tenant3.former", ts(5), "RENAME TABLE `orders` TO `tenant3`.`former`", 14)
    (halted,) = tenants.once().halted
    MemoryTarget(records).execute_ddl(f"RENAME TABLE {old}.orders TO tenant3.former", "", 0)
    identity = DdlId("tenant3/former", ts(5), int(path.stem.rpartition("_")[2]))
    records.journal[identity] = JournalEntry(state=DONE, structure_before="", note="manually")
    number = {"tenant1": 1, "tenant2": 2}[other]
    bucket.rows(f"{other}.orders", number, row(f"{other}.orders", 7, "7", '"seven"'))
    summary = tenants.once()
    assert (halted.table, summary.halted) == ("tenant3.former", ())
    assert "7" in [r["id"] for r in tenants.rows(f"{other}.orders")]
    assert sorted(map(str, records.structures)) == sorted([f"{other}.orders", "tenant3.former"])


def test_rename_that_was_killed_after_it_ran(tenants: World) -> None:
    """A rename whose database was found out, and that took effect before the process ended, is not taken for another table's."""
    bucket, records = tenants.bucket, tenants.records
    bucket.schema("tenant3", ts(1), "CREATE DATABASE `tenant3`", 1)
    bucket.schema("tenant3.orders", ts(1), "CREATE TABLE `orders` (id INT PRIMARY KEY, note INT)", CREATE_TABLE, OTHER)
    bucket.schema("tenant1.former", ts(5), "RENAME TABLE `orders` TO `tenant1`.`former`", 14)
    killed_at(tenants, "after MemoryTarget.execute_ddl", 6)
    assert records.effects[-1].startswith("RENAME")
    assert tenants.once().halted == ()
    assert [r["id"] for r in tenants.rows("tenant1.former")] == ["1"]
    assert records.tables["`tenant3`.`orders`"].state == "running"
    assert sum(effect.startswith("RENAME") for effect in records.effects) == 1
