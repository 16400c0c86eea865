"""Which columns rows carry."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage_consumer.config.settings import ColumnSelector, Upstream
from storage_consumer.decode.decoder import row_layout
from storage_consumer.errors import NotReplicable
from storage_consumer.model import TableColumn, TableDefinition, TableName, TableVersion
from tests.unit.decode.encoders import column

UPSTREAM = Upstream(scheme="file", root="/bucket", protocol="csv")


def definition(*columns: TableColumn) -> TableDefinition:
    """A definition of shop.orders with these columns."""
    return TableDefinition(
        name=TableName(schema="shop", table="orders"),
        version=TableVersion(449_000_000_000_000_001),
        query="",
        ddl_type=0,
        columns=columns,
        path="shop/orders/meta/schema_449000000000000001_3161939509.json",
        checksum=3161939509,
    )


def test_hidden_and_virtual_columns_are_left_out() -> None:
    """Hidden columns of expression indexes and the target's virtual ones drop out; the others keep their order."""
    table = definition(column("id"), column("_V$_ei_0", "GEOMETRY"), column("Twice", "POINT"), column("note"))
    layout = row_layout(table, frozenset({"twice", "elsewhere"}), UPSTREAM)
    assert layout.table == table.name
    assert [column.name for column in layout.columns] == ["id", "note"]


def test_unknown_type_names_table_column_and_type() -> None:
    """A type that cannot be carried over is refused before any row is read, with table, column, type and schema file."""
    with pytest.raises(NotReplicable) as caught:
        row_layout(definition(column("id"), column("place", "GEOMETRY")), frozenset(), UPSTREAM)
    for part in ("shop.orders", "place", "GEOMETRY", "schema_449000000000000001_3161939509.json"):
        assert part in str(caught.value)


def test_unselected_columns() -> None:
    """Columns that a column selector leaves out are named too; hidden and virtual ones are not among them."""
    upstream = replace(UPSTREAM, column_selectors=(ColumnSelector(matcher=("shop.*",), columns=("*", "!Note", "!v")),))
    layout = row_layout(definition(column("id"), column("Note"), column("v")), frozenset({"v"}), upstream)
    assert [column.name for column in layout.columns] == ["id", "Note"]
    assert layout.unselected == {"note"}
    assert layout.may_lack == {"id", "note"}


def test_who_vouches_for_selectors() -> None:
    """Rows without names may be read by these very selectors, and no others, once their name is given."""
    upstream = replace(UPSTREAM, column_selectors=(ColumnSelector(matcher=("shop.*",), columns=("*", "!note")),))
    table = definition(column("id"), column("note"))
    option, name = row_layout(table, frozenset(), upstream).vouching.split()
    assert option == "--headerless-selectors"
    vouched = replace(upstream, headerless_selectors=name)
    assert row_layout(table, frozenset(), vouched).vouching == ""
    others = replace(vouched, column_selectors=(ColumnSelector(matcher=("shop.*",), columns=("*", "!id")),))
    assert row_layout(table, frozenset(), others).vouching.startswith(option)


def test_an_unselected_column_without_a_rule() -> None:
    """A type that cannot be carried over, or a TIMESTAMP without a zone, is no reason to refuse a table whose rows need not have it."""
    upstream = replace(UPSTREAM, time_zone="", column_selectors=(ColumnSelector(matcher=("shop.*",), columns=("id",)),))
    table = definition(column("id"), column("place", "GEOMETRY"), column("at", "TIMESTAMP"))
    assert [column.name for column in row_layout(table, frozenset(), upstream).columns] == ["id"]


def test_timestamp_of_an_unset_zone() -> None:
    """A TIMESTAMP column is refused where nobody said the writer's zone; a table without one needs none (T3)."""
    unset = replace(UPSTREAM, time_zone="")
    with pytest.raises(NotReplicable, match=r"shop\.orders: column at is a TIMESTAMP .*--tz"):
        row_layout(definition(column("id"), column("at", "TIMESTAMP")), frozenset(), unset)
    assert row_layout(definition(column("id"), column("at", "DATETIME")), frozenset(), unset).zone == ""
    named = replace(UPSTREAM, time_zone="Asia/Shanghai")
    assert row_layout(definition(column("at", "TIMESTAMP")), frozenset(), named).zone == "Asia/Shanghai"
