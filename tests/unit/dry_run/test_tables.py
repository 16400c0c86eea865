"""What a table is after statements that have not run."""

from __future__ import annotations

import pytest

from storage_consumer.dry_run.indexes import indexes_after
from storage_consumer.dry_run.tables import created
from storage_consumer.job.target_table import UniqueKey
from storage_consumer.model import TableColumn, TableDefinition, TableName, TableVersion

NAME = TableName(schema="d", table="t")


def unique(name: str, *columns: str) -> UniqueKey:
    """A unique key over whole columns."""
    return UniqueKey(name=name, columns=columns, prefixes=(None,) * len(columns))


@pytest.mark.parametrize(
    ("statement", "indexes"),
    [
        ("CREATE TABLE `t` (`a` INT, PRIMARY KEY (`a`))", {"primary": unique("PRIMARY", "a")}),
        ("CREATE TABLE `t` (`a` INT UNIQUE, `b` INT)", {"a": unique("a", "a")}),
        (
            "CREATE TABLE `t` (`a` INT, `b` INT, UNIQUE KEY `u` (`a`,`b`), KEY `k` (`b`))",
            {"u": unique("u", "a", "b"), "k": None},
        ),
        ("CREATE TABLE `t` (`a` INT, KEY (`a`), KEY (`a`))", {"a": None, "a_2": None}),
        ("CREATE TABLE `t` (`a` INT, UNIQUE KEY `e` ((`a`+1)))", {"e": None}),
    ],
)
def test_indexes_of_a_new_table(statement: str, indexes: dict[str, UniqueKey | None]) -> None:
    """Named and unnamed, of columns and of tables; those over expressions are no unique keys of ours."""
    assert indexes_after(statement, "t", {}) == indexes


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("ALTER TABLE `t` ADD UNIQUE INDEX `v` (`b`)", {"primary", "u", "v"}),
        ("ALTER TABLE `t` DROP INDEX `u`", {"primary"}),
        ("ALTER TABLE `t` DROP PRIMARY KEY", {"u"}),
        ("ALTER TABLE `t` RENAME INDEX `u` TO `w`", {"primary", "w"}),
        ("CREATE UNIQUE INDEX `v` ON `t` (`b`)", {"primary", "u", "v"}),
        ("DROP INDEX `u` ON `t`", {"primary"}),
    ],
)
def test_indexes_that_change(statement: str, names: set[str]) -> None:
    """Whatever statement adds, drops or renames one."""
    assert set(indexes_after(statement, "t", {"primary": unique("PRIMARY", "a"), "u": unique("u", "b")})) == names


def test_a_key_follows_its_column() -> None:
    """A column that gets another name keeps its place in keys."""
    found = indexes_after("ALTER TABLE `t` CHANGE COLUMN `b` `c` BIGINT", "t", {"u": unique("u", "b")})
    assert found == {"u": unique("u", "c")}


def test_columns_by_the_schema_file() -> None:
    """Types and keys are those of the file; columns that only TiDB has are not there, and virtual ones are known by the text."""
    columns = (
        TableColumn(name="id", type="BIGINT", nullable=False, is_pk=True),
        TableColumn(name="v", type="INT"),
        TableColumn(name="e", type="ENUM", elements=("a", "b'c")),
        TableColumn(name="_V$_x_0", type="INT"),
    )
    query = "CREATE TABLE `t` (`id` BIGINT PRIMARY KEY, `v` INT AS (`id` + 1), `e` ENUM('a','b''c'))"
    definition = TableDefinition(
        name=NAME, version=TableVersion(1), query=query, ddl_type=3, columns=columns, path="p", checksum=1
    )
    table = created(NAME, definition, query, None).table
    assert [(column.name, column.data_type, column.generated) for column in table.columns] == [
        ("id", "bigint", ""),
        ("v", "int", "VIRTUAL"),
        ("e", "enum", ""),
    ]
    assert table.columns[2].column_type == "enum('a','b''c')"
    assert table.unique_keys == (unique("PRIMARY", "id"),)
