"""What TiDB takes, the other servers take after the changes that are listed: each statement runs on each server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from storage_consumer.config.settings import Downstream
from storage_consumer.errors import DdlFailed
from storage_consumer.model import TableDefinition, TableName, TableVersion
from storage_consumer.target.database import TargetDatabase
from storage_consumer.target.ddl.translate import action_for
from tests.harness.servers import KINDS, DatabaseServer
from tests.harness.small_bucket import ts

pytestmark = pytest.mark.server
T = TableName(schema="shop", table="t")
STORIES = {
    "engines": ["CREATE TABLE `t` (`id` INT PRIMARY KEY) ENGINE = MyISAM", "ALTER TABLE `t` ENGINE = 'MEMORY'"],
    "algorithms": [
        "CREATE TABLE `t` (`id` INT PRIMARY KEY,`a` INT)",
        "ALTER TABLE `t` ADD COLUMN `b` INT, ALGORITHM = INSTANT",
        "ALTER TABLE `t` ADD INDEX `i`(`a`), ALGORITHM = INPLACE, LOCK = NONE",
        "CREATE INDEX `j` ON `t` (`a`) LOCK = NONE",
        "CREATE OR REPLACE ALGORITHM = MERGE DEFINER = CURRENT_USER SQL SECURITY INVOKER VIEW `v` AS SELECT `a` FROM `t`",
    ],
    "checks": [
        "CREATE TABLE `t` (`id` INT PRIMARY KEY,`a` INT CHECK(`a`>0) ENFORCED,CONSTRAINT `c` CHECK(`a`<9) NOT ENFORCED,INDEX(`a`))"
    ],
    "indexes over expressions": [
        "CREATE TABLE `t` (`id` INT PRIMARY KEY,`s` VARCHAR(20),`j` JSON,INDEX `e`((LOWER(`s`))),UNIQUE `u`((UPPER(`s`)), `id`))",
        "ALTER TABLE `t` ADD INDEX `m`((CAST(`j` AS UNSIGNED ARRAY)))",
        "CREATE INDEX `n` ON `t` ((`id`+1), `s`)",
        "ALTER TABLE `t` RENAME INDEX `e` TO `f`",
        "ALTER TABLE `t` ALTER INDEX `m` INVISIBLE",
        "ALTER TABLE `t` DROP INDEX `m`, ADD COLUMN `a` INT",
        "DROP INDEX `n` ON `t`",
    ],
    "invisible indexes": [
        "CREATE TABLE `t` (`id` INT PRIMARY KEY,`a` INT,INDEX `i`(`a`) INVISIBLE)",
        "ALTER TABLE `t` ALTER INDEX `i` VISIBLE",
        "ALTER TABLE `t` ALTER INDEX `i` INVISIBLE",
        "CREATE INDEX `j` ON `t` (`a`) INVISIBLE",
    ],
    "generated columns": [
        "CREATE TABLE `t` (`a` INT,`g` INT GENERATED ALWAYS AS(`a`+1) STORED PRIMARY KEY)",
        "ALTER TABLE `t` ADD COLUMN `h` INT GENERATED ALWAYS AS(`a`+2) VIRTUAL NOT NULL",
        "ALTER TABLE `t` ADD COLUMN `c` VARCHAR(9) GENERATED ALWAYS AS(CAST(`a` AS CHAR CHARACTER SET utf8mb4)) VIRTUAL",
    ],
    "vectors": ["CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` VECTOR(3),`w` VECTOR NULL)"],
    "collations": [
        "CREATE TABLE `t` (`s` VARCHAR(9) COLLATE utf8mb4_0900_bin PRIMARY KEY) COLLATE = UTF8MB4_0900_AI_CI",
        "ALTER TABLE `t` ADD COLUMN `g` VARCHAR(9) CHARACTER SET GBK",
        "ALTER TABLE `t` ADD COLUMN `u` VARCHAR(9) CHARACTER SET UTF8MB3, ADD COLUMN `n` VARCHAR(9) COLLATE utf8mb3_unicode_ci",
    ],
    "partitions": [
        "CREATE TABLE `t` (`id` INT PRIMARY KEY) PARTITION BY LIST (`id`) (PARTITION `p` VALUES IN (1),PARTITION `d` VALUES IN (DEFAULT))"
    ],
    "TiDB's own": [
        "CREATE TABLE `t` (`id` BIGINT PRIMARY KEY /*T![clustered_index] CLUSTERED */ /*T![auto_rand] AUTO_RANDOM(5) */)",
        "ALTER TABLE `t` ADD COLUMN `at` DATETIME",
        "ALTER TABLE `t` /*T![ttl] TTL=`at` + INTERVAL 1 DAY */ /*T![ttl] TTL_ENABLE='OFF' */",
        "ALTER TABLE `t` /*T![ttl] REMOVE TTL */",
    ],
    "foreign keys": [
        "CREATE TABLE `p` (`id` INT,`x` INT,INDEX(`x`))",
        "CREATE TABLE `t` (`id` INT PRIMARY KEY,`x` INT,CONSTRAINT `fk` FOREIGN KEY (`x`) REFERENCES `p`(`x`))",
    ],
    "tables without a key": ["CREATE TABLE `t` (`a` INT)", "ALTER TABLE `t` ADD COLUMN `at` TIMESTAMP DEFAULT CURRENT_TIMESTAMP"],
    "zero dates": ["CREATE TABLE `t` (`id` INT PRIMARY KEY,`d` DATE NOT NULL DEFAULT '0000-00-00',`e` TIMESTAMP)"],
}  # fmt: skip
REFUSED = {("mysql", "partitions"): "1064"}
"""What stops a table for good: MySQL has no partition for all other values."""


@pytest.fixture(params=KINDS)
def database(request: pytest.FixtureRequest) -> Iterator[TargetDatabase]:
    """A server whose database was made with other defaults than TiDB's."""
    server: DatabaseServer = request.getfixturevalue(request.param)
    server.query("CREATE DATABASE shop CHARACTER SET latin1 COLLATE latin1_bin")
    server.query("CREATE DATABASE storage_consumer")
    found = TargetDatabase(Downstream(port=server.port), "")
    yield found
    found.close()


@pytest.mark.parametrize("story", STORIES)
def test_statements_run(database: TargetDatabase, story: str) -> None:
    """Each statement that TiDB takes runs, whole, in part, or not at all where nothing of it concerns rows (D18)."""
    server_type = database.server_info().server_type
    if number := REFUSED.get((server_type, story)):
        with pytest.raises(DdlFailed, match=number):
            play(database, server_type, STORIES[story])
    else:
        play(database, server_type, STORIES[story])
        assert database.describe([T])


def play(database: TargetDatabase, server_type: str, statements: Sequence[str]) -> None:
    """Run the statements of one table one after another."""
    for number, query in enumerate(statements):
        definition = TableDefinition(
            name=T, version=TableVersion(ts(number + 1)), query=query, ddl_type=5, columns=(), path="t/x", checksum=1
        )
        action = action_for(definition, server_type, database.database_collation("shop"), database.part_names(T))
        if action.statement:
            assert database.execute_ddl(action.statement, action.schema, definition.version).ignored == ""
        else:
            assert action.notes
