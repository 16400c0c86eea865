"""How tables are named for people."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from storage_consumer.model import TableName
from storage_consumer.plan.table_words import parsed, table_word

_PARTS = st.text("ab.`-", min_size=1, max_size=4)


def test_usual_names() -> None:
    """Names need backquotes only where they hold a dot or a backquote; a database stands alone."""
    assert str(TableName(schema="shop", table="orders")) == "shop.orders"
    assert str(TableName(schema="shop", table="")) == "shop"
    assert str(TableName(schema="a.b", table="c")) == "`a.b`.`c`"
    assert str(TableName(schema="a", table="b`c")) == "`a`.`b``c`"


@given(_PARTS, _PARTS, _PARTS, _PARTS)
def test_no_two_look_alike(one_schema: str, one_table: str, other_schema: str, other_table: str) -> None:
    """What keys by a name as people see it keys by the name."""
    one, other = TableName(schema=one_schema, table=one_table), TableName(schema=other_schema, table=other_table)
    assert (str(one) == str(other)) == (one == other)


@given(_PARTS, _PARTS)
def test_what_is_shown_can_be_typed(schema: str, table: str) -> None:
    """The word for a shell means the table that it was made of."""
    name = TableName(schema=schema, table=table)
    assert parsed(table_word(name)) == name
