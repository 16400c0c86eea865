"""The comparison against a server that executed the source's own statements."""

from __future__ import annotations

import pytest

from tests.harness.comparing import differences
from tests.harness.corpora import FIXTURES, Corpus, GoldenTable
from tests.harness.servers import DatabaseServer

pytestmark = pytest.mark.server
SHOP = Corpus(FIXTURES / "shop" / "new" / "shop__csv")


@pytest.fixture
def golden() -> tuple[GoldenTable, ...]:
    """What the shop held at the end."""
    return SHOP.golden(SHOP.cuts[-1])


@pytest.fixture
def shop(mariadb: DatabaseServer) -> DatabaseServer:
    """A server on which the shop's statements were executed."""
    text = (SHOP.folder / "workload.sql").read_text(encoding="utf-8")
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        for statement in text.splitlines():
            if not statement.startswith("--"):
                cursor.execute(statement)
    return mariadb


def test_the_source_replayed_is_equal(shop: DatabaseServer, golden: tuple[GoldenTable, ...]) -> None:
    """A server that executed the same statements has no difference."""
    assert differences(shop, golden) == ()


def test_one_value_is_found(shop: DatabaseServer, golden: tuple[GoldenTable, ...]) -> None:
    """One changed value is named with its table, key, column and both values."""
    shop.query("UPDATE shop.products SET stock = stock + 1 WHERE sku = 'SKU00003'")
    (found,) = differences(shop, golden)
    assert found.table == "shop.products"
    assert "'SKU00003'" in found.what
    assert "stock is" in found.what


def test_one_row_is_found(shop: DatabaseServer, golden: tuple[GoldenTable, ...]) -> None:
    """A row that is missing is counted and shown."""
    shop.query("DELETE FROM shop.products WHERE sku = 'SKU00003'")
    (found,) = differences(shop, golden)
    assert found.what.startswith(
        "1 rows of the source are missing, 0 rows are not at the source\n  1 x only at the source"
    )


def test_structure_is_compared(shop: DatabaseServer, golden: tuple[GoldenTable, ...]) -> None:
    """A missing table, an additional one, another column list and another primary key are differences."""
    shop.query("DROP TABLE shop.order_items")
    shop.query("CREATE TABLE shop.more (a INT)")
    shop.query("ALTER TABLE shop.products DROP PRIMARY KEY")
    shop.query("ALTER TABLE shop.orders ADD COLUMN more INT")
    found = {one.table: one.what.split()[0] for one in differences(shop, golden)}
    assert found == {"shop.order_items": "is", "shop.more": "is", "shop.products": "primary", "shop.orders": "columns"}


def test_the_state_is_left_out(shop: DatabaseServer, golden: tuple[GoldenTable, ...]) -> None:
    """The program's own tables in the target are no difference."""
    shop.query("CREATE DATABASE storage_consumer")
    shop.query("CREATE TABLE storage_consumer.lease (id INT)")
    assert differences(shop, golden) == ()
