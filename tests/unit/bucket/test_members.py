"""Members of ENUM and SET columns by the statements of a table."""

from __future__ import annotations

from storage_consumer.bucket.table_statements import known_members, members
from storage_consumer.model import TableColumn, TableDefinition, TableName, TableVersion


def test_of_one_statement() -> None:
    """In CREATE and in ALTER, with quotes and blanks in them; charsets, defaults and expressions are none."""
    query = (
        "CREATE TABLE t (`a` ENUM('x','it''s, ok','y ') CHARACTER SET latin1 DEFAULT 'x', b SET ('p') NOT NULL, c INT)"
    )
    assert members(query) == {"a": ("x", "it's, ok", "y"), "b": ("p",)}
    assert members("ALTER TABLE t CHANGE a `B` ENUM('q'), ADD COLUMN (c SET('r'))") == {"b": ("q",), "c": ("r",)}
    assert members("ALTER TABLE t MODIFY a ENUM(x'61')") == {"a": ()}


def steps(*queries: str) -> list[TableDefinition]:
    """A table's schema files, each with a column e, and one f."""
    columns = tuple(TableColumn(name=name, type="ENUM") for name in "ef")
    name = TableName(schema="d", table="t")
    return [
        TableDefinition(
            name=name, version=TableVersion(n), query=query, ddl_type=1, columns=columns, path=f"{n}", checksum=0
        )
        for n, query in enumerate(queries)
    ]


def test_through_a_history() -> None:
    """The last statement counts; names move along; a copy of a table has what that had, and a new table what it says."""
    made, renamed = "CREATE TABLE t (e ENUM('a'))", "ALTER TABLE t RENAME COLUMN e TO f"
    assert known_members(steps(made)) == {"e": ("a",)}
    assert known_members(steps(made, "ALTER TABLE t MODIFY e ENUM('a','b')")) == {"e": ("a", "b")}
    assert known_members(steps(made, renamed)) == {"f": ("a",)}
    assert known_members(steps(made, "CREATE TABLE u LIKE t")) == {"e": ("a",)}
    assert known_members(steps(made, "CREATE TABLE u (LIKE t)", "ALTER TABLE u MODIFY e ENUM('b')")) == {"e": ("b",)}
    assert known_members(steps(made, "CREATE TABLE t (e INT, f ENUM('a'))")) == {"f": ("a",)}
    assert known_members(steps("")) == {}
