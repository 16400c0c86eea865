"""What is put into, or taken out of, a statement of TiDB for MySQL and MariaDB; each difference with what stays as it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage_consumer.model import TableColumn
from storage_consumer.target.ddl.catalogue import DIFFERENCES
from storage_consumer.target.ddl.index_rules import IN_THE_WAY, LEFT_OUT
from storage_consumer.target.ddl.translate import DdlAction, action_for
from storage_consumer.target.existing_names import PartNames
from tests.unit.building import CREATE_DATABASE, definition
from tests.unit.target.test_names import CHANGED as IDIOMS

BOTH = ("mysql", "mariadb")


def action(query: str, server_type: str, indexes: frozenset[str] | None = None) -> DdlAction:
    """What is run for a statement."""
    names = None if indexes is None else PartNames(indexes=indexes)
    return action_for(definition("s/t", 1, query), server_type, "utf8mb4_bin", names)


CHANGED = [
    ("mysql", "text default", "ALTER TABLE `t` ADD COLUMN `a` TEXT DEFAULT _UTF8MB4'' COMMENT 'x', ADD COLUMN `b` CHAR(5) DEFAULT ''", "ALTER TABLE `t` ADD COLUMN `a` TEXT DEFAULT ('') COMMENT 'x', ADD COLUMN `b` CHAR(5) DEFAULT ''"),
    ("mysql", "text default", "CREATE TABLE `t` (`a` BLOB DEFAULT NULL)", None),
    ("mariadb", "random bytes", "CREATE TABLE `t` (`a` BINARY(16) DEFAULT (UUID_TO_BIN(UUID(), 1)))", "CREATE TABLE `t` (`a` BINARY(16) DEFAULT (UNHEX(REPLACE(UUID(), '-', ''))))"),
    ("mariadb", "language of dates", "ALTER TABLE `t` ADD COLUMN `g` CHAR(9) GENERATED ALWAYS AS(DATE_FORMAT(`a`, '%b')) STORED", "ALTER TABLE `t` ADD COLUMN `g` CHAR(9) GENERATED ALWAYS AS(DATE_FORMAT(`a`, '%b', 'en_US')) STORED"),
    ("mariadb", "JSON cast", "CREATE TABLE `t` (`j` JSON,`g` INT GENERATED ALWAYS AS (CAST(JSON_EXTRACT(`j`, '$.n') AS SIGNED)) STORED)", "CREATE TABLE `t` (`j` JSON,`g` INT GENERATED ALWAYS AS (CAST(JSON_UNQUOTE(JSON_EXTRACT(`j`, '$.n')) AS SIGNED)) STORED)"),
    ("mysql", "expression index", "CREATE TABLE `t` (`a` INT, KEY `k` ((`a` + 1)))", None),
    ("mariadb", "expression index", "CREATE TABLE `t` (`a` INT, KEY `k` ((`a` + 1)))", "CREATE TABLE `t` (`a` INT)"),
    (
        "mariadb",
        "expression index",
        "CREATE TABLE `t` (KEY ((`a` + 1)), `a` INT, INDEX `k` (`a`, (`a` + 1)), KEY `l` (`a`))",
        "CREATE TABLE `t` ( `a` INT, KEY `l` (`a`))",
    ),
    ("mariadb", "expression index", "CREATE INDEX `k` ON `t` ((CAST(`j` AS UNSIGNED ARRAY)))", ""),
    (
        "mariadb",
        "expression index",
        "ALTER TABLE `t` ADD INDEX `k`((LOWER(`a`))), ADD COLUMN `b` INT",
        "ALTER TABLE `t`  ADD COLUMN `b` INT",
    ),
    ("mariadb", "expression index", "CREATE TABLE `t` (`a` TEXT, `b` INT, KEY (`b`, `a`(10)))", None),
    (
        "mariadb",
        "generated NOT NULL",
        "CREATE TABLE `t` (`g` INT GENERATED ALWAYS AS (`a` + 1) STORED NOT NULL)",
        "CREATE TABLE `t` (`g` INT GENERATED ALWAYS AS (`a` + 1) STORED )",
    ),
    ("mariadb", "generated NOT NULL", "CREATE TABLE `t` (`g` INT GENERATED ALWAYS AS (1) VIRTUAL, `b` INT NOT NULL)", None),
    (
        "mariadb",
        "generated primary key",
        "CREATE TABLE `t` (`g` INT GENERATED ALWAYS AS (1) STORED PRIMARY KEY)",
        "CREATE TABLE `t` (`g` INT GENERATED ALWAYS AS (1) STORED , UNIQUE KEY `primary_key`(`g`))",
    ),
    ("mysql", "generated primary key", "CREATE TABLE `t` (`g` INT GENERATED ALWAYS AS (1) STORED PRIMARY KEY)", None),
    ("mariadb", "invisible index", "ALTER TABLE `t` ALTER INDEX `i` INVISIBLE", "ALTER TABLE `t` ALTER INDEX `i` IGNORED"),
    ("mariadb", "invisible index", "ALTER TABLE `t` ALTER INDEX `i` VISIBLE", "ALTER TABLE `t` ALTER INDEX `i` NOT IGNORED"),
    (
        "mariadb",
        "invisible index",
        "CREATE TABLE `t` (`invisible` INT, INDEX `visible`(`invisible`) INVISIBLE)",
        "CREATE TABLE `t` (`invisible` INT, INDEX `visible`(`invisible`) IGNORED)",
    ),
    ("mysql", "invisible index", "ALTER TABLE `t` ALTER INDEX `i` INVISIBLE", None),
    (
        "mariadb",
        "newer collation",
        "CREATE TABLE `t` (`a` CHAR(9) COLLATE utf8mb4_0900_bin) DEFAULT COLLATE = UTF8MB4_0900_AI_CI",
        "CREATE TABLE `t` (`a` CHAR(9) COLLATE utf8mb4_nopad_bin) DEFAULT COLLATE = utf8mb4_uca1400_nopad_ai_ci",
    ),
    *(
        (
            server,
            "name of a collation",
            "CREATE TABLE `t` (`a` CHAR(9) COLLATE utf8mb3_bin DEFAULT 'utf8mb3_bin') DEFAULT COLLATE = UTF8MB3_GENERAL_CI COMMENT = 'utf8mb3_bin'",
            "CREATE TABLE `t` (`a` CHAR(9) COLLATE utf8_bin DEFAULT 'utf8mb3_bin') DEFAULT COLLATE = utf8_general_ci COMMENT = 'utf8mb3_bin'",
        )
        for server in BOTH
    ),
    ("mysql", "newer collation", "CREATE TABLE `t` (`a` CHAR(9) COLLATE utf8mb4_0900_bin)", None),
    ("mariadb", "generated primary key", "CREATE TABLE `t` (`a` INT,`g` INT GENERATED ALWAYS AS(`a`+1) STORED,PRIMARY KEY `p`(`a`, `g`) USING BTREE)", "CREATE TABLE `t` (`a` INT,`g` INT GENERATED ALWAYS AS(`a`+1) STORED,UNIQUE KEY `primary_key`(`a`, `g`) USING BTREE)"),
    ("mariadb", "generated primary key", "CREATE TABLE `t` (`a` INT,`g` INT GENERATED ALWAYS AS(`a`+1) STORED,PRIMARY KEY(`a`))", None),
    (
        "mariadb",
        "default partition",
        "ALTER TABLE `t` ADD PARTITION (PARTITION `p` VALUES IN (DEFAULT))",
        "ALTER TABLE `t` ADD PARTITION (PARTITION `p` DEFAULT)",
    ),
    ("tidb", "sequence default", "CREATE TABLE `t` (`a` INT DEFAULT NEXTVAL(`s`.`q`), `b` INT DEFAULT 1)", "CREATE TABLE `t` (`a` INT , `b` INT DEFAULT 1)"),
    ("tidb", "sequence default", "CREATE TABLE `t` (`a` INT DEFAULT (NEXTVAL(`q`)) NOT NULL)", "CREATE TABLE `t` (`a` INT  NOT NULL)"),
    ("tidb", "sequence default", "ALTER TABLE `t` ALTER COLUMN `a` SET DEFAULT (NEXTVAL(`q`)), ADD COLUMN `b` INT", "ALTER TABLE `t`  ADD COLUMN `b` INT"),
    ("mysql", "sequence default", "ALTER TABLE `t` MODIFY `a` INT DEFAULT NEXT VALUE FOR `s`.`q` NOT NULL", "ALTER TABLE `t` MODIFY `a` INT  NOT NULL"),
]  # fmt: skip
SAME_ON_BOTH = [
    ("system time", "CREATE TABLE `t` (`a` INT) COMMENT = 'x' PARTITION BY SYSTEM_TIME LIMIT 5 (PARTITION `a` HISTORY,PARTITION `b` CURRENT)", "CREATE TABLE `t` (`a` INT) COMMENT = 'x'"),
    ("system time", "ALTER TABLE `t` PARTITION BY SYSTEM_TIME LIMIT 5 (PARTITION `a` HISTORY,PARTITION `b` CURRENT)", ""),
    ("storage engine", "CREATE TABLE `t` (`a` INT) PARTITION BY RANGE (`a`) (PARTITION `p` VALUES LESS THAN (2) ENGINE = myisam MAX_ROWS = 5)", "CREATE TABLE `t` (`a` INT) PARTITION BY RANGE (`a`) (PARTITION `p` VALUES LESS THAN (2)  MAX_ROWS = 5)"),
    ("table option", "ALTER TABLE `t` ADD COLUMN `n` INT, ROW_FORMAT = TOKUDB_ZSTD STORAGE DISK", "ALTER TABLE `t` ADD COLUMN `n` INT"),
    ("table option", "ALTER TABLE `t` ROW_FORMAT = TOKUDB_ZSTD", ""),
    ("attribute of TiDB", "ALTER TABLE `t` /*T! SHARD_ROW_ID_BITS = 4 */, ADD COLUMN `n` INT", "ALTER TABLE `t` /*T! SHARD_ROW_ID_BITS = 4 */ ADD COLUMN `n` INT"),
    ("table option", "ALTER TABLE `t` STATS_SAMPLE_RATE = 0.5, ADD COLUMN `union` INT", "ALTER TABLE `t`  ADD COLUMN `union` INT"),
    ("table option", "CREATE TABLE `t` (`a` INT) STATS_SAMPLE_RATE = 0.5 UNION = (`a`,`b`) ROW_FORMAT = TOKUDB_ZSTD STORAGE DISK COMMENT = 'x'", "CREATE TABLE `t` (`a` INT)     COMMENT = 'x'"),
    ("vector default", "ALTER TABLE `t` ADD COLUMN `v` LONGTEXT DEFAULT (VEC_FROM_TEXT('[1]'))", "ALTER TABLE `t` ADD COLUMN `v` LONGTEXT DEFAULT (('[1]'))"),
    ("default value", "CREATE TABLE `t` (`e` ENUM('a','it''s') DEFAULT 2,`s` SET('a','b','c') DEFAULT 5,`y` YEAR DEFAULT 0,`i` INT DEFAULT x'41')", "CREATE TABLE `t` (`e` ENUM('a','it''s') DEFAULT 'it''s',`s` SET('a','b','c') DEFAULT 'a,c',`y` YEAR DEFAULT 2000,`i` INT DEFAULT 65)"),
    ("default value", "ALTER TABLE `t` ALTER COLUMN `a` SET DEFAULT 0.1", None),
    ("default value", "CREATE TABLE `t` (`e` ENUM('a') DEFAULT 'a',`b` BIT(4) DEFAULT b'101',`y` YEAR DEFAULT 70,`i` INT DEFAULT 0,`x` INT)", None),
    ("database option", "CREATE DATABASE `s` COLLATE = utf8mb4_bin ENCRYPTION = 'N'", "CREATE DATABASE `s` COLLATE = utf8mb4_bin"),
    ("binlog", "ALTER TABLE `t` ADD PARTITION NO_WRITE_TO_BINLOG PARTITIONS 2", "ALTER TABLE `t` ADD PARTITION  PARTITIONS 2"),
    ("partial index", "CREATE TABLE `t` (`a` INT,INDEX `i`(`a`) COMMENT 'WHERE' WHERE `a`>1 AND (`a`<5))", "CREATE TABLE `t` (`a` INT,INDEX `i`(`a`) COMMENT 'WHERE' )"),
    ("partial index", "CREATE INDEX `i` ON `t` (`a`) WHERE `a` IN (1, 2)", "CREATE INDEX `i` ON `t` (`a`)"),
    ("partial index", "ALTER TABLE `t` ADD INDEX(`a`) WHERE `a`>1, ADD COLUMN `where` INT", "ALTER TABLE `t` ADD INDEX(`a`) , ADD COLUMN `where` INT"),
    ("unique partial index", "CREATE TABLE `t` (`a` INT,UNIQUE `u`(`a`) WHERE `a`>1)", "CREATE TABLE `t` (`a` INT,INDEX `u`(`a`) )"),
    ("unique partial index", "ALTER TABLE `t` ADD UNIQUE KEY `u`(`a`) WHERE `a`=(1 + 1)", "ALTER TABLE `t` ADD  KEY `u`(`a`)"),
    ("unique partial index", "CREATE UNIQUE INDEX `u` ON `t` (`a`) WHERE `a`>1", "CREATE  INDEX `u` ON `t` (`a`)"),
    ("index option", "CREATE INDEX `i` ON `t` (`a`) WITH PARSER `ngram` SECONDARY_ENGINE_ATTRIBUTE = '{}'", "CREATE INDEX `i` ON `t` (`a`)"),
    ("column option", "CREATE TABLE `t` (`storage` INT COLUMN_FORMAT FIXED STORAGE DISK SECONDARY_ENGINE_ATTRIBUTE = '{}' NOT NULL)", "CREATE TABLE `t` (`storage` INT    NOT NULL)"),
    ("column reference", "CREATE TABLE `t` (`a` INT REFERENCES `d`.`p`(`id`) MATCH FULL ON DELETE SET NULL ON UPDATE NO ACTION NOT NULL)", "CREATE TABLE `t` (`a` INT  NOT NULL)"),
    ("column reference", "ALTER TABLE `t` ADD COLUMN `a` DATETIME REFERENCES `p` ON UPDATE CURRENT_TIMESTAMP", "ALTER TABLE `t` ADD COLUMN `a` DATETIME  ON UPDATE CURRENT_TIMESTAMP"),
    ("counter without index", "CREATE TABLE `t` (`a` INT AUTO_INCREMENT,`b` INT,INDEX(`b`, `a`))", "CREATE TABLE `t` (`a` INT ,`b` INT,INDEX(`b`, `a`))"),
    ("counter without index", "CREATE TABLE `t` (`a` INT AUTO_INCREMENT,UNIQUE `u`(`a`))", None),
    ("order of options", "CREATE TABLE `t` (`a` INT,`g` INT UNSIGNED COMMENT 'x' GENERATED ALWAYS AS(`a`+1) STORED)", "CREATE TABLE `t` (`a` INT,`g` INT UNSIGNED GENERATED ALWAYS AS(`a`+1) STORED COMMENT 'x')"),
    ("order of options", "ALTER TABLE `t` ADD COLUMN `g` CHAR(5) GENERATED ALWAYS AS(`a`) STORED COLLATE utf8mb4_bin UNIQUE KEY", "ALTER TABLE `t` ADD COLUMN `g` CHAR(5) COLLATE utf8mb4_bin GENERATED ALWAYS AS(`a`) STORED  UNIQUE KEY"),
    ("order of options", "CREATE TABLE `t` (`g` CHAR(5) COLLATE utf8mb4_bin GENERATED ALWAYS AS(1) VIRTUAL)", None),
    ("list of columns", "ALTER TABLE `t` ADD COLUMN (`a` INT, INDEX(`a`), `b` INT DEFAULT 5)", "ALTER TABLE `t` ADD COLUMN `a` INT, ADD INDEX(`a`), ADD COLUMN `b` INT DEFAULT 5"),
    ("list of columns", "ALTER TABLE `t` ADD COLUMN (`a` INT, `b` INT)", None),
    ("string collation", "CREATE TABLE `t` (`g` TEXT GENERATED ALWAYS AS(CONCAT(_UTF8MB4'g', `a`)) STORED, `a` CHAR(9) DEFAULT _UTF8MB4'a')", "CREATE TABLE `t` (`g` TEXT GENERATED ALWAYS AS(CONCAT('g', `a`)) STORED, `a` CHAR(9) DEFAULT _UTF8MB4'a')"),
    ("string collation", "ALTER TABLE `t` ADD COLUMN `a` TEXT DEFAULT (CONCAT(_UTF8MB4'x', CURDATE()))", "ALTER TABLE `t` ADD COLUMN `a` TEXT DEFAULT (CONCAT('x', CURDATE()))"),
    ("string collation", "CREATE OR REPLACE ALGORITHM = UNDEFINED DEFINER = `a`@`%` SQL SECURITY DEFINER VIEW `v` AS SELECT _UTF8MB4'k' AS `k`", "CREATE OR REPLACE ALGORITHM = UNDEFINED DEFINER = `a`@`%` SQL SECURITY DEFINER VIEW `v` AS SELECT 'k' AS `k`"),
    ("string collation", "ALTER TABLE `t` ADD PARTITION (PARTITION `p` VALUES IN (_UTF8MB4'e', _UTF8MB4'f'))", None),
    ("string collation", "ALTER TABLE `t` ADD COLUMN `a` TEXT COMMENT _UTF8MB4'x' DEFAULT (_LATIN1'x')", None),
    ("storage engine", "CREATE TABLE `t` (`engine` INT) ENGINE = MyISAM COMMENT = 'ENGINE = x'", "CREATE TABLE `t` (`engine` INT) ENGINE = InnoDB COMMENT = 'ENGINE = x'"),
    ("storage engine", "CREATE TABLE `t` (`a` INT) ENGINE = innodb", None),
    ("storage engine", "ALTER TABLE `t` ENGINE = 'Memory'", "ALTER TABLE `t` ENGINE = InnoDB"),
    ("algorithm and lock", "ALTER TABLE `t` ADD COLUMN `a` INT, ALGORITHM = INSTANT, LOCK = NONE", "ALTER TABLE `t` ADD COLUMN `a` INT"),
    ("algorithm and lock", "ALTER TABLE `t` ALGORITHM = INPLACE, ADD COLUMN `lock` INT", "ALTER TABLE `t`  ADD COLUMN `lock` INT"),
    ("algorithm and lock", "CREATE INDEX `i` ON `t` (`a`) ALGORITHM = INPLACE LOCK = NONE", "CREATE INDEX `i` ON `t` (`a`)"),
    ("algorithm and lock", "CREATE ALGORITHM = MERGE VIEW `v` AS SELECT 1", None),
    ("check constraint", "CREATE TABLE `t` (`a` INT CHECK(`a` > 0) NOT ENFORCED, `b` INT)", "CREATE TABLE `t` (`a` INT , `b` INT)"),
    ("check constraint", "CREATE TABLE `t` (`a` INT CONSTRAINT `c` CHECK(`a` > 0) ENFORCED UNIQUE)", "CREATE TABLE `t` (`a` INT  UNIQUE)"),
    ("check constraint", "CREATE TABLE `t` (`a` INT, CONSTRAINT `c` CHECK((`a`) > 0), CHECK(1), KEY (`a`))", "CREATE TABLE `t` (`a` INT, KEY (`a`))"),
    ("check constraint", "CREATE TABLE `t` (`check` INT COMMENT 'CHECK (x)')", None),
    ("search index", "CREATE TABLE `t` (`a` TEXT, FULLTEXT INDEX `f`(`a`) WITH PARSER STANDARD)", "CREATE TABLE `t` (`a` TEXT)"),
    ("search index", "ALTER TABLE `t` ADD VECTOR INDEX `v`((VEC_L2_DISTANCE(`a`))) USING HNSW", ""),
    ("search index", "CREATE HYBRID INDEX `h` ON `t` (`a`)", ""),
    ("vector type", "CREATE TABLE `t` (`v` VECTOR(3) NULL, `vector` INT, `w` VECTOR)", "CREATE TABLE `t` (`v` LONGTEXT NULL, `vector` INT, `w` LONGTEXT)"),
    ("charset without collation", "CREATE TABLE `t` (`g` TEXT GENERATED ALWAYS AS (CAST(`a` AS CHAR(5) CHARACTER SET gbk)) STORED)", None),
    ("charset without collation", "CREATE VIEW `v` AS SELECT CAST(`a` AS CHAR CHARSET utf8mb4) FROM `t`", None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("server_type", "name", "query", "expected"),
    [*CHANGED, *((server_type, *case) for server_type in BOTH for case in SAME_ON_BOTH)],
)
def test_difference(server_type: str, name: str, query: str, expected: str | None) -> None:
    """The statement is changed where the server needs it, with the difference's name as a note, and else left alone (D18)."""
    done = action(query, server_type)
    assert done.statement == (query if expected is None else expected)
    assert done.notes == (() if expected is None else (name,))


@pytest.mark.parametrize(
    "query", [query for _, query, _ in SAME_ON_BOTH] + [c[2] for c in CHANGED if c[0] != "tidb"][:-1]
)
def test_tidb_takes_its_own(query: str) -> None:
    """On TiDB the statement runs as it is."""
    assert action(query, "tidb").statement == query


@pytest.mark.parametrize("server_type", BOTH)
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("ALTER TABLE `t` DROP INDEX `gone`, DROP COLUMN `a`", "ALTER TABLE `t`  DROP COLUMN `a`"),
        ("ALTER TABLE `t` DROP COLUMN `a`, RENAME INDEX `gone` TO `b`", "ALTER TABLE `t` DROP COLUMN `a`"),
        ("ALTER TABLE `t` ALTER INDEX `Gone` VISIBLE", ""),
        ("DROP INDEX `gone` ON `t`", ""),
        ("DROP INDEX IF EXISTS `gone` ON `t`", ""),
        ("ALTER TABLE `t` DROP INDEX `There`", None),
        ("DROP INDEX `there` ON `t`", None),
    ],
)
def test_indexes_that_were_left_out(query: str, expected: str | None, server_type: str) -> None:
    """What is done to an index that the target does not have is left out; the rest of the statement runs."""
    done = action(query, server_type, frozenset({"there", "primary"}))
    assert done.statement == (query if expected is None else expected)
    assert done.notes == (() if expected is None else ("missing index",))


def test_defaults_that_are_set_later() -> None:
    """SET DEFAULT knows the column's type from the schema file."""
    columns = (TableColumn(name="A", type="ENUM", elements=("x", "it's")), TableColumn(name="b", type="JSON"))
    described = replace(
        definition("s/t", 1, "ALTER TABLE `t` ALTER COLUMN `a` SET DEFAULT 2, ALTER COLUMN `b` SET DEFAULT NULL"),
        columns=columns,
    )
    assert action_for(described, "mysql", None).statement == "ALTER TABLE `t` ALTER COLUMN `a` SET DEFAULT 'it''s'"
    assert action_for(described, "mariadb", None).notes == ("default value",)
    assert action_for(described, "tidb", None).statement == described.query


def test_primary_key_that_is_a_unique_one() -> None:
    """What stands in for a primary key on MariaDB is dropped in its place, and only there."""
    query = "ALTER TABLE `t` DROP PRIMARY KEY, ADD COLUMN `n` INT"
    done = action(query, "mariadb", frozenset({"primary_key"}))
    assert done.statement == "ALTER TABLE `t` DROP INDEX `primary_key`, ADD COLUMN `n` INT"
    assert done.notes == ("primary key dropped",)
    assert action(query, "mariadb", frozenset({"primary_key", "primary"})).statement == query


def test_every_change_is_listed() -> None:
    """Each name under which a change is noted has an entry that says why, and each entry is used."""
    notes = {name for _, name, _, expected in CHANGED if expected is not None}
    notes |= {name for name, _, expected in SAME_ON_BOTH if expected is not None}
    notes |= {*action_for(definition("s", 1, "CREATE SCHEMA `s`", CREATE_DATABASE), "mariadb", None).notes}
    notes |= {*action_for(definition("s/t", 1, "CREATE TABLE `t` (`a` INT CHARSET gbk)"), "mysql", "x").notes}
    notes |= {name.removesuffix(" of n") for _, name, _, _ in IDIOMS}
    notes |= {LEFT_OUT, IN_THE_WAY}  # after a refusal
    assert notes | {"primary key dropped", "missing index", "backslash", "timestamp default"} == set(DIFFERENCES)
