"""CREATE TABLE texts → columns, as TiCDC's schema files describe the same tables."""

from __future__ import annotations

import pytest

from storage_consumer.bucket.export_names import statements
from storage_consumer.bucket.table_statements import (
    binary_columns,
    is_temporary,
    read_create_table,
    string_value,
    unique_keys,
)
from storage_consumer.model import TableColumn

TYPES = """CREATE TABLE `t` (
  `id` bigint unsigned NOT NULL AUTO_INCREMENT COMMENT 'it''s, (a) "comment"',
  `Name` varchar(20) COLLATE utf8mb4_general_ci DEFAULT 'a''b\\\\c\\n',
  `d` decimal(10,3) DEFAULT '-1.5',
  `ts` timestamp(3) NULL DEFAULT NULL ON UPDATE CURRENT_TIMESTAMP(3),
  `dt` datetime DEFAULT CURRENT_TIMESTAMP,
  `e` enum('x','it''s','y,z') DEFAULT 'x',
  `b` bit(8) DEFAULT b'1000001',
  `g` int GENERATED ALWAYS AS (`id` + 1) VIRTUAL NOT NULL,
  `s` varchar(9) GENERATED ALWAYS AS (concat(_utf8mb4'x', `Name`)) STORED,
  `u` varchar(36) DEFAULT (uuid()),
  `primary` int DEFAULT '7',
  `y` year(4) DEFAULT NULL,
  `v` vector(3) DEFAULT NULL,
  PRIMARY KEY (`id`,`Name`(5)) /*T![clustered_index] NONCLUSTERED */,
  UNIQUE KEY `k` (`d`),
  CONSTRAINT `c` CHECK ((`d` > 0))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='; ) not the end'
PARTITION BY RANGE (`id`)
(PARTITION `p0` VALUES LESS THAN (10))"""


def test_columns() -> None:
    """Types, lengths, defaults, members, keys and generated columns are found where the statement has them."""
    found = read_create_table(TYPES)
    assert found.name == "t"
    assert found.generated == {"g", "s"}
    assert found.columns == (
        TableColumn(name="id", type="BIGINT", unsigned=True, precision=20, nullable=False, is_pk=True),
        TableColumn(name="Name", type="VARCHAR", precision=20, nullable=False, is_pk=True, default="a'b\\c\n"),
        TableColumn(name="d", type="DECIMAL", precision=10, scale=3, default="-1.5"),
        TableColumn(name="ts", type="TIMESTAMP", scale=3),
        TableColumn(name="dt", type="DATETIME", default="CURRENT_TIMESTAMP"),
        TableColumn(name="e", type="ENUM", default="x", elements=("x", "it's", "y,z")),
        TableColumn(name="b", type="BIT", unsigned=True, precision=8, default="A"),
        TableColumn(name="g", type="INT", precision=11, nullable=False),
        TableColumn(name="s", type="VARCHAR", precision=9),
        TableColumn(name="u", type="VARCHAR", precision=36, default="uuid()"),
        TableColumn(name="primary", type="INT", precision=11, default="7"),
        TableColumn(name="y", type="YEAR", unsigned=True, precision=4),
        TableColumn(name="v", type="VECTOR"),
    )


def test_of_mysql_and_mariadb() -> None:
    """What MySQL and MariaDB write otherwise is read as well: display widths, bare defaults, a key in the column's own definition."""
    found = read_create_table(
        "CREATE TABLE IF NOT EXISTS `t` (\n  `id` int(11) NOT NULL PRIMARY KEY,\n  `n` int(10) unsigned zerofill DEFAULT 7,\n"
        "  `m` int(11) DEFAULT -7,\n  `x` double DEFAULT NULL,\n  `z` mediumtext CHARACTER SET latin1\n) ENGINE=InnoDB"
    )
    assert found.columns == (
        TableColumn(name="id", type="INT", precision=11, nullable=False, is_pk=True),
        TableColumn(name="n", type="INT", unsigned=True, precision=10, default="7"),
        TableColumn(name="m", type="INT", precision=11, default="-7"),
        TableColumn(name="x", type="DOUBLE", precision=22),
        TableColumn(name="z", type="MEDIUMTEXT", precision=16_777_215),
    )


def test_under_ansi_quotes() -> None:
    """A statement with names in double quotes says the same as one with backquotes, and is given back with those."""
    ansi = (
        '/*!40101 SET NAMES binary*/;\nCREATE TABLE "a""`b\\" (\n  "id" int NOT NULL COMMENT \'it\'\'s the "key"\',\n'
        '  PRIMARY KEY ("id") /* "x" */\n) ENGINE=InnoDB;\n'
    )
    (query,) = statements(ansi)
    assert 'CREATE TABLE `a"``b\\` (' in query
    assert "COMMENT 'it''s the \"key\"'" in query
    found = read_create_table(query)
    assert (found.name, [column.name for column in found.columns]) == ('a"`b\\', ["id"])


@pytest.mark.parametrize(
    "query",
    [
        "",
        "CREATE VIEW `v` AS SELECT 1",
        "CREATE TABLE `t`",
        "CREATE TABLE `t` (`a` int",
        "CREATE TABLE `t` (`a`)",
        "CREATE TABLE `t` (KEY (`a`))",
        "DROP TABLE `t`",
    ],
)
def test_no_table(query: str) -> None:
    """What is no CREATE TABLE with columns is not read as one."""
    with pytest.raises(ValueError, match=r"CREATE TABLE|columns"):
        read_create_table(query)


def test_temporary() -> None:
    """A temporary table is told by its statement, not by a name."""
    assert is_temporary("CREATE GLOBAL TEMPORARY TABLE `t` (`a` int)")
    assert not is_temporary("CREATE TABLE `TEMPORARY` (`TEMPORARY` int)")


def test_strings() -> None:
    """Escapes and doubled quotes in a string mean what they mean to a server."""
    assert string_value(r"'a''b\'\\\n\0\Z\%\x'") == "a'b'\\\n\0\x1a\\%x"


def test_cut_schema_file() -> None:
    """A schema file whose last statement has no semicolon was cut."""
    with pytest.raises(ValueError, match="cut"):
        statements("/*!40101 SET NAMES binary*/;\nCREATE TABLE `t` (`a` int")


@pytest.mark.parametrize(
    ("create", "keys"),
    [
        (TYPES, [{"id": None, "name": 5}, {"d": None}]),
        ("CREATE TABLE `t` (`A` INT PRIMARY KEY COMMENT 'UNIQUE', `b` INT UNIQUE, `unique` INT)", [{"a": None}, {"b": None}]),
        ("CREATE TABLE `(` (`a` INT, UNIQUE KEY `x` ((`a` + 1), `a`), UNIQUE KEY `(` (`a`), KEY `k` (`a`))", [{"": None, "a": None}, {"a": None}]),
        ("CREATE TABLE `t` (`a` INT DEFAULT '1', CONSTRAINT `u` UNIQUE (`a`), CONSTRAINT `UNIQUE` CHECK ((`a` > 1)))", [{"a": None}]),
        ("CREATE TABLE `t` (`a` INT)", []),
    ],
)  # fmt: skip
def test_unique_keys(create: str, keys: list[dict[str, int | None]]) -> None:
    """Those of columns and those behind them, with prefixes and parts over expressions; no word in a name or a comment makes one."""
    assert list(unique_keys(create)) == keys


@pytest.mark.parametrize(
    ("column", "table", "binary"),
    [
        ("VARCHAR(9)", "DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin COMMENT='COLLATE x'", True),
        ("VARCHAR(9) COLLATE utf8mb4_general_ci", "COLLATE=utf8mb4_bin", False),
        ("VARCHAR(9) CHARACTER SET gbk COLLATE gbk_bin DEFAULT 'COLLATE'", "COLLATE=utf8mb4_0900_ai_ci", True),
        ("VARCHAR(9)", "COLLATE utf8mb4_unicode_ci", False),
        ("VARCHAR(9)", "", False),
    ],
)
def test_binary_columns(column: str, table: str, binary: bool) -> None:  # noqa: FBT001 - a column of the table
    """A column's own collation counts, else the table's; where neither is named nothing is known."""
    assert binary_columns(f"CREATE TABLE `t` (`A` {column}) {table}") == (frozenset("a") if binary else frozenset())
