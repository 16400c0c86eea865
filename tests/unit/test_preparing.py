"""Names without a database in statements that run beside equally named tables of other databases."""

from __future__ import annotations

from typing import Any

import pytest

from tests.small_bucket import ID_NAME, column, row, ts
from tests.unit.driving import World, of

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
    assert "it could be each of tenant2.orders, tenant3.orders" in halted.error
    assert [str(name) for name in tenants.records.structures] == ["tenant2.orders", "tenant3.orders"]
