"""Strings of a statement that the source wrote anew: what they meant there is what they mean on the target."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage_consumer.errors import NotReplicable
from storage_consumer.model import TableColumn
from storage_consumer.target.ddl.translate import action_for, escaped
from tests.unit.building import definition

TIMESTAMPS = tuple(
    TableColumn(name=name, type=kind, default="2023-12-31 16:00:00")
    for name, kind in (("at", "TIMESTAMP"), ("on", "DATETIME"))
)


@pytest.mark.parametrize(
    ("stored", "meant"),
    [
        (r"CREATE TABLE `t` (`a` INT) COMMENT = 'tab\le'", r"CREATE TABLE `t` (`a` INT) COMMENT = 'tab\\le'"),
        (
            r"ALTER TABLE `t` COMMENT = 'ends\', ADD INDEX `i`(`a`)",
            r"ALTER TABLE `t` COMMENT = 'ends\\', ADD INDEX `i`(`a`)",
        ),
        (r"ALTER TABLE `t` COMMENT = '\''', COMMENT = 'b'", r"ALTER TABLE `t` COMMENT = '\\''', COMMENT = 'b'"),
        (
            r"CREATE TABLE `t` (`e` ENUM('a\b','\','it''s') DEFAULT _UTF8MB4'a\\b',`s` SET('\n'))",
            r"CREATE TABLE `t` (`e` ENUM('a\\b','\\','it''s') DEFAULT _UTF8MB4'a\\b',`s` SET('\\n'))",
        ),
        (r"ALTER TABLE `t` MODIFY COLUMN `e` ENUM('\0')", r"ALTER TABLE `t` MODIFY COLUMN `e` ENUM('\\0')"),
        (r"CREATE INDEX `i` ON `t` (`a`) COMMENT 'x\y'", r"CREATE INDEX `i` ON `t` (`a`) COMMENT 'x\\y'"),
        (
            r"ALTER TABLE `s`.`t` ADD UNIQUE `i`(`a`) COMMENT 'x\'",
            r"ALTER TABLE `s`.`t` ADD UNIQUE `i`(`a`) COMMENT 'x\\'",
        ),
        (
            r"CREATE TABLE `t` (`a` INT, INDEX `i`(`a`) COMMENT '\')",
            r"CREATE TABLE `t` (`a` INT, INDEX `i`(`a`) COMMENT '\\')",
        ),
        (
            r"CREATE TABLE `t` (`a` INT) PARTITION BY RANGE (`a`) (PARTITION `p` VALUES LESS THAN (1) COMMENT = '\p')",
            r"CREATE TABLE `t` (`a` INT) PARTITION BY RANGE (`a`) (PARTITION `p` VALUES LESS THAN (1) COMMENT = '\\p')",
        ),
    ],
)
def test_bare_backslashes_are_escaped(stored: str, meant: str) -> None:
    """Comments of tables, partitions and indexes and members of ENUM and SET have them bare, even before the closing quote."""
    assert escaped(stored) == meant


@pytest.mark.parametrize(
    "query",
    [
        r"CREATE TABLE `t` (`a` VARCHAR(9) DEFAULT _UTF8MB4'a\\b' COMMENT 'c\\d \' e')",
        r"ALTER TABLE `t` ADD COLUMN `a` INT UNIQUE KEY COMMENT 'c\\d'",
        r"CREATE TABLE `t` (`a` INT, `b` INT COMMENT 'c\\d', INDEX(`a`))",
        r"ALTER TABLE `t` ADD PARTITION (PARTITION `p` VALUES IN (_UTF8MB4'\\'))",
        r"create table t (e enum('a\\b')) comment = 'tab\\le'",
        "ALTER TABLE `t` COMMENT = 'it''s'",
    ],
)
def test_other_backslashes_stay(query: str) -> None:
    """What has its backslashes escaped already, or was not written by TiCDC, is not touched."""
    assert escaped(query) == query


@pytest.mark.parametrize("server_type", ["mariadb", "mysql", "tidb"])
def test_backslash_is_noted(server_type: str) -> None:
    """On every target the statement runs with its backslashes escaped, and says so."""
    action = action_for(definition("s/t", 1, r"ALTER TABLE `t` COMMENT = '\'"), server_type, None)
    assert (action.statement, action.notes) == (r"ALTER TABLE `t` COMMENT = '\\'", ("backslash",))


@pytest.mark.parametrize("server_type", ["mariadb", "mysql", "tidb"])
@pytest.mark.parametrize(
    ("stored", "meant"),
    [
        (
            "CREATE TABLE `t` (`at` TIMESTAMP DEFAULT _UTF8MB4'x',`on` DATETIME DEFAULT _UTF8MB4'x')",
            "CREATE TABLE `t` (`at` TIMESTAMP DEFAULT _UTF8MB4'2024-01-01 01:30:00',`on` DATETIME DEFAULT _UTF8MB4'x')",
        ),
        (
            "ALTER TABLE `s`.`t` DROP COLUMN `a`, ADD COLUMN `At` TIMESTAMP NOT NULL DEFAULT 'x' FIRST",
            "ALTER TABLE `s`.`t` DROP COLUMN `a`, ADD COLUMN `At` TIMESTAMP NOT NULL DEFAULT '2024-01-01 01:30:00' FIRST",
        ),
        (
            "alter table t modify column at timestamp default 'x', add (at timestamp default 'x')",
            "alter table t modify column at timestamp default '2024-01-01 01:30:00', add (at timestamp default '2024-01-01 01:30:00')",
        ),
        (
            "create table t (at timestamp default 'x', on_ datetime default 'x', key at (at))",
            "create table t (at timestamp default '2024-01-01 01:30:00', on_ datetime default 'x', key at (at))",
        ),
        (
            "ALTER TABLE `t` ADD COLUMN (`a` INT, `at` TIMESTAMP DEFAULT 'x')",
            "ALTER TABLE `t` ADD COLUMN (`a` INT, `at` TIMESTAMP DEFAULT '2024-01-01 01:30:00')",
        ),
        (
            "ALTER TABLE `t` CHANGE COLUMN `on` `at` TIMESTAMP DEFAULT 'x', ALTER COLUMN `on` SET DEFAULT 'x'",
            "ALTER TABLE `t` CHANGE COLUMN `on` `at` TIMESTAMP DEFAULT '2024-01-01 01:30:00', ALTER COLUMN `on` SET DEFAULT 'x'",
        ),
        (
            "ALTER TABLE `t` ALTER COLUMN `at` SET DEFAULT 'x'",
            "ALTER TABLE `t` ALTER COLUMN `at` SET DEFAULT '2024-01-01 01:30:00'",
        ),
        (
            "ALTER TABLE `t` ADD COLUMN `at` TIMESTAMP DEFAULT 20240101",
            "ALTER TABLE `t` ADD COLUMN `at` TIMESTAMP DEFAULT '2024-01-01 01:30:00'",
        ),
        (
            "ALTER TABLE `t` ADD COLUMN `at` TIMESTAMP DEFAULT TIMESTAMP '2024-01-01 00:00:00'",
            "ALTER TABLE `t` ADD COLUMN `at` TIMESTAMP DEFAULT TIMESTAMP '2024-01-01 01:30:00'",
        ),
        ("ALTER TABLE `t` ADD COLUMN `at` TIMESTAMP DEFAULT CURRENT_TIMESTAMP()", ""),
        ("ALTER TABLE `t` ADD COLUMN `at` TIMESTAMP DEFAULT NULL", ""),
        ("ALTER TABLE `t` ADD INDEX `at`(`at`)", ""),
    ],
)
def test_timestamp_defaults(stored: str, meant: str, server_type: str) -> None:
    """A TIMESTAMP default becomes the schema file's moment in the session's zone; the text's own zone is not known."""
    described = replace(definition("s/t", 1, stored), columns=TIMESTAMPS)
    action = action_for(described, server_type, None, zone="+09:30")
    assert action.statement == (meant or stored)
    assert action.notes == (("timestamp default",) if meant else ())


def test_timestamp_default_in_a_list_of_conditional_columns() -> None:
    """TiDB takes ADD COLUMN IF NOT EXISTS with a list as it is; its rows from before get the source's moment all the same."""
    stored = "ALTER TABLE `t` ADD COLUMN IF NOT EXISTS (`a` INT, `at` TIMESTAMP DEFAULT 'x')"
    described = replace(definition("s/t", 1, stored), columns=TIMESTAMPS)
    action = action_for(described, "tidb", None, zone="+09:30")
    assert action.statement == stored.replace("'x'", "'2024-01-01 01:30:00'")


def test_timestamp_default_that_is_right_stays() -> None:
    """Where the text and the schema file agree nothing is changed and nothing noted."""
    described = replace(
        definition("s/t", 1, "ALTER TABLE `t` ADD COLUMN `at` TIMESTAMP DEFAULT '2023-12-31 16:00:00'"),
        columns=TIMESTAMPS,
    )
    assert action_for(described, "tidb", None).notes == ()


def test_timestamp_default_in_an_hour_that_occurs_twice() -> None:
    """A moment that the session's zone cannot tell from another one stops the table; by an offset it is certain."""
    columns = (TableColumn(name="at", type="TIMESTAMP", default="2026-10-25 01:30:00"),)
    query = "ALTER TABLE `t` ADD COLUMN `at` TIMESTAMP DEFAULT '2026-10-25 02:30:00'"
    described = replace(definition("s/t", 1, query), columns=columns)
    with pytest.raises(NotReplicable, match=r"2026-10-25 02:30:00 in Europe/Berlin, where that hour occurs twice"):
        action_for(described, "mariadb", None, zone="Europe/Berlin")
    assert "'2026-10-25 03:30:00'" in action_for(described, "mariadb", None, zone="+02:00").statement
