"""Virtual generated columns are known from the statements that made them."""

from __future__ import annotations

import pytest

from storage_consumer.bucket.table_statements import generated_columns, known_stored, known_virtual
from storage_consumer.model import TableColumn, TableDefinition, TableName, TableVersion


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("CREATE TABLE t (a INT, `B b` INT GENERATED ALWAYS AS (a + 1) VIRTUAL, c INT AS (a) STORED)", {"b b"}),
        ("CREATE TABLE t (a INT PRIMARY KEY, g VARCHAR(10) AS (concat(a, ',')), KEY (g))", {"g"}),
        ("ALTER TABLE t ADD COLUMN g INT AS (a) VIRTUAL FIRST, ADD COLUMN p INT DEFAULT 6", {"g"}),
        ("ALTER TABLE t CHANGE old_name g DECIMAL(10,2) GENERATED ALWAYS AS (a)", {"g"}),
        ("ALTER TABLE t ADD COLUMN IF NOT EXISTS g INT AS (a), ADD h INT AS (b) STORED", {"g"}),
        ("ALTER TABLE t ADD COLUMN IF NOT EXISTS (g INT AS (a), h INT AS (b) STORED)", {"g"}),
        ("ALTER TABLE t ADD (g INT AS (a), h INT, KEY (h))", {"g"}),
        ("ALTER TABLE t ADD COLUMN view INT AS (a)", {"view"}),
        ("ALTER TABLE view ADD COLUMN g INT AS (a)", {"g"}),
        ("CREATE VIEW v AS (SELECT 1)", set()),
        (
            "CREATE DEFINER = `table`@`%` SQL SECURITY DEFINER VIEW v AS SELECT (WITH c AS (SELECT 1) TABLE c)",
            set(),
        ),
        ("CREATE TABLE t (a VARCHAR(20) DEFAULT 'b AS (c)', b INT)", set()),
        ("", set()),
    ],
)
def test_names_are_read_from_statements(query: str, names: set[str]) -> None:
    """Only columns with an expression that is not stored count, however the statement is written."""
    assert generated_columns(query, stored=False) == names


def _version(number: int, query: str, *columns: str) -> TableDefinition:
    return TableDefinition(
        name=TableName(schema="d", table="t"),
        version=TableVersion(number),
        query=query,
        ddl_type=0,
        columns=tuple(TableColumn(name=name, type="INT") for name in columns),
        path="x",
        checksum=0,
    )


def test_the_history_is_followed() -> None:
    """Columns come and go; what a later statement drops is no longer virtual, and newer versions don't count."""
    history = [
        _version(1, "CREATE TABLE t (a INT, g INT AS (a))", "a", "g"),
        _version(2, "ALTER TABLE t DROP COLUMN g", "a"),
        _version(3, "ALTER TABLE t ADD COLUMN h INT AS (a)", "a", "h"),
    ]
    assert [known_virtual(version, history) for version in history] == [frozenset({"g"}), frozenset(), frozenset({"h"})]


@pytest.mark.parametrize("copy", ["t LIKE s", "IF NOT EXISTS `d`.`t` LIKE `d`.`s`", "IF NOT EXISTS d.t (LIKE d.s)"])
def test_a_copy_does_not_show_its_columns(copy: str) -> None:
    """Only the other table's statement says which columns are virtual; LIKE in an expression copies nothing."""
    copied = _version(1, f"CREATE TABLE {copy}", "a", "g")
    assert known_virtual(copied, [copied]) is None
    made = _version(1, "CREATE TABLE t (a INT, g INT AS (a LIKE 'x'), CHECK (a LIKE '1'))", "a", "g")
    assert known_virtual(made, [made]) == frozenset({"g"})


def test_without_the_first_statement_nothing_is_certain() -> None:
    """A table that existed before the changefeed: not known."""
    recorded = _version(1, "", "a", "g")
    assert known_virtual(recorded, [recorded]) is None


@pytest.mark.parametrize(
    ("statement", "columns", "virtual"),
    [
        ("ALTER TABLE t RENAME COLUMN g TO h", ("a", "h"), {"h"}),
        ("ALTER TABLE t RENAME COLUMN a TO h", ("h", "g"), {"g"}),
        ("ALTER TABLE t RENAME COLUMN a TO g, RENAME COLUMN g TO a", ("g", "a"), {"a"}),
        ("ALTER TABLE t CHANGE COLUMN g h INT AS (a) VIRTUAL", ("a", "h"), {"h"}),
        ("ALTER TABLE t CHANGE a b BIGINT", ("b", "g"), {"g"}),
        ("ALTER TABLE t RENAME INDEX i TO j", ("a", "g"), {"g"}),
        ("ALTER TABLE t DROP COLUMN g, CHANGE a g INT", ("g",), set()),
    ],
)
def test_renamed_columns(statement: str, columns: tuple[str, ...], virtual: set[str]) -> None:
    """A column stays what it is under its new name."""
    made = _version(1, "CREATE TABLE t (a INT, g INT AS (a))", "a", "g")
    changed = _version(2, statement, *columns)
    assert known_virtual(changed, [made, changed]) == frozenset(virtual)


@pytest.mark.parametrize(
    ("statement", "columns", "stored"),
    [
        ("ALTER TABLE t RENAME COLUMN g TO h", "ah", "h"),
        ("ALTER TABLE t RENAME COLUMN a TO g, RENAME COLUMN g TO a", "ga", "a"),
        ("ALTER TABLE t CHANGE COLUMN g h INT AS (a + 1) STORED", "ah", "h"),
        ("ALTER TABLE t CHANGE COLUMN IF EXISTS g h BIGINT", "ah", ""),
        ("ALTER TABLE t MODIFY COLUMN g INT", "ag", ""),
        ("ALTER TABLE t MODIFY g BIGINT AS (a + 1) STORED FIRST", "ga", "g"),
        ("ALTER TABLE t ADD COLUMN `modify` INT, ADD COLUMN c INT", "agc", "g"),
        ("ALTER TABLE t DROP COLUMN g", "a", ""),
        ("RENAME TABLE t TO u", "ag", "g"),
        ("TRUNCATE TABLE t", "", "g"),
        ("CREATE TABLE u LIKE t", "ag", "g"),
        ("CREATE TABLE t (a INT, g INT)", "ag", ""),
    ],
)
def test_stored_columns_are_followed(statement: str, columns: str, stored: str) -> None:
    """A stored generated column stays one under any name until it is dropped, or defined anew; its name may come back."""
    steps = [
        _version(1, "CREATE TABLE t (a INT, g INT GENERATED ALWAYS AS (a + 1) STORED)", "a", "g"),
        _version(2, statement, *columns),
    ]
    assert known_stored(steps) == frozenset(stored)
    again = _version(3, "ALTER TABLE t ADD COLUMN g INT", "a", "g")
    assert known_stored([*steps, again]) == frozenset(stored) & {"a", "g"}
