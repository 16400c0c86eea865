"""Tables, databases, views and all actions of ALTER TABLE that neither columns nor indexes nor partitions have."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from tests.campaigns.grammar.form import TABLE, Form, alone, altered, chains

OPTIONS = (
    *("ENGINE = InnoDB", "ENGINE = myisam", "ENGINE = MEMORY", "ENGINE = ''", "DEFAULT CHARACTER SET = UTF8MB4", "DEFAULT CHARACTER SET = LATIN1"),
    *("DEFAULT CHARACTER SET = UTF8", "DEFAULT CHARACTER SET = GBK", "DEFAULT CHARACTER SET = ASCII", "DEFAULT CHARACTER SET = BINARY"),
    *("DEFAULT COLLATE = UTF8MB4_GENERAL_CI", "DEFAULT COLLATE = UTF8MB4_0900_AI_CI", "DEFAULT COLLATE = UTF8MB4_0900_BIN"),
    *("DEFAULT CHARACTER SET = UTF8MB4 DEFAULT COLLATE = UTF8MB4_UNICODE_CI", "DEFAULT CHARACTER SET = GB18030", "AUTO_INCREMENT = 5"),
    *("/*T![force_inc] FORCE  */AUTO_INCREMENT = 5", "/*T![auto_id_cache] AUTO_ID_CACHE = 1 */", "/*T![auto_rand_base] AUTO_RANDOM_BASE = 5 */"),
    *("AVG_ROW_LENGTH = 5", "CONNECTION = 'x'", "CHECKSUM = 1", "TABLE_CHECKSUM = 1", "PASSWORD = 'x'", "COMPRESSION = 'zlib'"),
    *("COMPRESSION = 'none'", "KEY_BLOCK_SIZE = 8", "DELAY_KEY_WRITE = 1", "ROW_FORMAT = DEFAULT", "ROW_FORMAT = DYNAMIC"),
    *("ROW_FORMAT = FIXED", "ROW_FORMAT = COMPRESSED", "ROW_FORMAT = REDUNDANT", "ROW_FORMAT = COMPACT", "ROW_FORMAT = TOKUDB_DEFAULT"),
    *("ROW_FORMAT = TOKUDB_FAST", "ROW_FORMAT = TOKUDB_SMALL", "ROW_FORMAT = TOKUDB_ZLIB", "ROW_FORMAT = TOKUDB_ZSTD"),
    *("ROW_FORMAT = TOKUDB_QUICKLZ", "ROW_FORMAT = TOKUDB_LZMA", "ROW_FORMAT = TOKUDB_SNAPPY", "ROW_FORMAT = TOKUDB_UNCOMPRESSED"),
    *("STATS_PERSISTENT = DEFAULT /* TableOptionStatsPersistent is not supported */", "STATS_AUTO_RECALC = 1", "STATS_AUTO_RECALC = DEFAULT"),
    *("STATS_SAMPLE_PAGES = 3", "STATS_SAMPLE_PAGES = DEFAULT", "STATS_BUCKETS = 3", "STATS_TOPN = 3", "STATS_SAMPLE_RATE = 0.5"),
    *("STATS_COL_CHOICE = 'list'", "STATS_COL_LIST = 'id'", "/*T! SHARD_ROW_ID_BITS = 4 */", "/*T! PRE_SPLIT_REGIONS = 2 */"),
    *("PACK_KEYS = DEFAULT /* TableOptionPackKeys is not supported */", "STORAGE MEMORY", "STORAGE DISK", "SECONDARY_ENGINE = NULL"),
    *("SECONDARY_ENGINE = 'x'", "SECONDARY_ENGINE_ATTRIBUTE = '{}'", "UNION = (`a`,`b`)", "ENCRYPTION = 'n'", "ENCRYPTION = 'Y'"),
    *("/*T![ttl] TTL = `at` + INTERVAL 1 DAY */ /*T![ttl] TTL_ENABLE = 'OFF' */", "/*T![ttl] TTL_JOB_INTERVAL = '1h' */"),
    *("AUTOEXTEND_SIZE = 4m", "/*T![affinity] AFFINITY = 'table' */", "PAGE_CHECKSUM = 1", "PAGE_COMPRESSED = 1", "PAGE_COMPRESSED = 0"),
    *("PAGE_COMPRESSION_LEVEL = 3", "TRANSACTIONAL = 1", "TRANSACTIONAL = 0", "SEQUENCE = 1", "SEQUENCE = 0", "IETF_QUOTES = yes"),
    *("COMMENT = 'it''s'", r"COMMENT = 'tab\le'", "INSERT_METHOD = FIRST", "INSERT_METHOD = NO", "DATA DIRECTORY = '/x'"),
    *("INDEX DIRECTORY = '/x'", "MAX_ROWS = 5", "MIN_ROWS = 1", "TABLESPACE = `x`", "NODEGROUP = 1"),
)  # fmt: skip
_BODY = "(`id` INT PRIMARY KEY,`v` INT,`s` VARCHAR(20),`at` DATETIME)"
_PAIRED = (
    *("ENGINE = myisam", "DEFAULT CHARACTER SET = UTF8MB4", "DEFAULT COLLATE = UTF8MB4_GENERAL_CI", "COMMENT = 'x'", "ROW_FORMAT = COMPRESSED"),
    *("PAGE_COMPRESSED = 1", "TRANSACTIONAL = 1", "SEQUENCE = 1", "ENCRYPTION = 'Y'", "UNION = (`a`,`b`)", "STORAGE MEMORY", "TABLESPACE = `x`"),
    *("/*T![auto_id_cache] AUTO_ID_CACHE = 1 */", "COMPRESSION = 'zlib'", "AUTOEXTEND_SIZE = 4m", "DATA DIRECTORY = '/x'", "SECONDARY_ENGINE = NULL"),
)  # fmt: skip
ACTIONS = (
    *("CONVERT TO CHARACTER SET UTF8MB4", "CONVERT TO CHARACTER SET UTF8MB4 COLLATE UTF8MB4_GENERAL_CI", "CONVERT TO CHARACTER SET DEFAULT"),
    *("CONVERT TO CHARACTER SET UTF8MB4 COLLATE UTF8MB4_0900_AI_CI", "CONVERT TO CHARACTER SET UTF8", "CHARACTER SET UTF8MB4 COLLATE UTF8MB4_BIN"),
    *("SET TIFLASH REPLICA 1", "SET TIFLASH REPLICA 1 LOCATION LABELS 'a', 'b'", "ADD STATS_EXTENDED `x` CORRELATION(`v`, `w`)"),
    *("DROP STATS_EXTENDED `x`", "STATS_OPTIONS='x'", "STATS_OPTIONS=DEFAULT", "DROP COLUMN `w`", "DROP COLUMN /*T! IF EXISTS  */`w`"),
    *("DROP COLUMN /*T! IF EXISTS  */`nope`", "DROP COLUMN /*T! IF EXISTS  */`nope`, ADD COLUMN `n` INT", "DROP COLUMN IF EXISTS `nope`, ADD COLUMN `n` INT"),
    *("ADD COLUMN /*T! IF NOT EXISTS  */`n` INT", "ADD COLUMN /*T! IF NOT EXISTS  */`v` INT", "ADD COLUMN /*T! IF NOT EXISTS  */`v` INT, ADD COLUMN `n` INT"),
    *("ADD COLUMN IF NOT EXISTS `v` INT, ADD COLUMN `n` INT", "ADD COLUMN /*T! IF NOT EXISTS  */(`n` INT, `m` INT)", "ADD COLUMN /*T! IF NOT EXISTS  */(`v` INT, `m` INT)"),
    *("MODIFY COLUMN /*T! IF EXISTS  */`v` BIGINT", "MODIFY COLUMN /*T! IF EXISTS  */`nope` BIGINT, ADD COLUMN `n` INT"),
    *("CHANGE COLUMN /*T! IF EXISTS  */`v` `z` BIGINT", "CHANGE COLUMN /*T! IF EXISTS  */`nope` `z` BIGINT, ADD COLUMN `n` INT"),
    *("CHANGE COLUMN `v` `z` BIGINT AFTER `s`", "MODIFY COLUMN `v` BIGINT FIRST", "RENAME COLUMN `v` TO `z`", "RENAME COLUMN `v` TO `z`, RENAME COLUMN `s` TO `y`"),
    *("ALTER COLUMN `v` SET DEFAULT 5", "ALTER COLUMN `v` SET DEFAULT (-5)", "ALTER COLUMN `s` SET DEFAULT _UTF8MB4'x'", "ALTER COLUMN `w` DROP DEFAULT"),
    *("ORDER BY `v`", "ORDER BY `v`,`w` DESC", "DISABLE KEYS", "ENABLE KEYS", "FORCE /* AlterTableForce is not supported */", "LOCK = SHARED"),
    *("ALGORITHM = INPLACE", "LOCK = NONE, ADD COLUMN `n` INT", "ADD COLUMN `n` INT, ALGORITHM = INSTANT", "ALGORITHM = COPY, ADD COLUMN `n` INT"),
    *("WITH VALIDATION, ADD COLUMN `n` INT", "WITHOUT VALIDATION, ADD COLUMN `n` INT", "ADD COLUMN `n` INT, WITH VALIDATION", "SECONDARY_LOAD", "SECONDARY_UNLOAD"),
    *("READ ONLY", "READ WRITE", "CACHE", "NOCACHE", "DISCARD TABLESPACE", "IMPORT TABLESPACE", "/*T![ttl] REMOVE TTL */", "COMPACT", "COMPACT TIFLASH REPLICA"),
    *("RENAME AS `t2`", "RENAME AS `g`.`t2`", "COMMENT = 'x' ENGINE = InnoDB", "COMMENT = 'x', ADD COLUMN `n` INT, ENGINE = myisam", ""),
    *("ADD COLUMN `n` INT, COMMENT = 'x' AUTO_INCREMENT = 7", "ADD COLUMN `n` INT, DROP COLUMN `w`, ADD INDEX `i`(`v`), RENAME COLUMN `s` TO `y`"),
    *("ENGINE = InnoDB, DEFAULT CHARACTER SET = UTF8MB4, DEFAULT COLLATE = UTF8MB4_BIN", "ADD COLUMN `n` INT, /*T![auto_id_cache] AUTO_ID_CACHE = 1 */"),
    *("ADD COLUMN `n` VARCHAR(20), DEFAULT COLLATE = UTF8MB4_GENERAL_CI", "SPLIT BETWEEN (1) AND (9) REGIONS 3", "ADD MASKING POLICY `m` ON (`s`) AS 5", "ADD COLUMN (`n` INT, `m` INT, INDEX(`n`))"),
    *("ADD COLUMN (`n` INT, UNIQUE `u`(`n`), CHECK(`n`>0) ENFORCED)", "ADD COLUMN (`n` INT CHECK(`n`>0) ENFORCED, INDEX((`n`+1)))"),
    *("ADD COLUMN (`n` INT, INDEX `i`(`n`) WHERE `n`>5)", "ADD COLUMN (`n` INT GENERATED ALWAYS AS(`id`+1) STORED NOT NULL, INDEX(`n`))"),
    *("ADD COLUMN (`n` INT, FULLTEXT(`s`))", "ADD COLUMN (`n` INT, CONSTRAINT `f` FOREIGN KEY (`n`) REFERENCES `t`(`id`))"),
)  # fmt: skip
_CHECKS = (
    *("ADD CHECK(`v`>0) ENFORCED", "ADD CONSTRAINT `c` CHECK(`v`>0) NOT ENFORCED", "ADD COLUMN `n` INT, ADD CONSTRAINT `c` CHECK(`v`>0) ENFORCED"),
    "ADD COLUMN `n` INT CHECK(`n`>0) ENFORCED COMMENT 'x'",
)  # fmt: skip
_CHECKED = (
    "CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` INT,CONSTRAINT `c` CHECK(`v`>-9) ENFORCED,CHECK(`v`<9999999) ENFORCED)"
)
_KEYS = (
    *("`p`(`id`)", "`p`(`id`) ON DELETE CASCADE", "`p`(`id`) ON DELETE SET NULL ON UPDATE CASCADE", "`p`(`id`) ON UPDATE NO ACTION"),
    *("`p`(`id`) ON DELETE RESTRICT", "`p`(`id`) MATCH FULL", "`p`(`id`) MATCH SIMPLE ON DELETE CASCADE", "`p`(`id`) ON DELETE SET DEFAULT", "`g`.`p`(`id`)"),
)  # fmt: skip
_PARENT = "CREATE TABLE `p` (`id` INT PRIMARY KEY)"
_VIEW = "CREATE {0} DEFINER = CURRENT_USER SQL SECURITY {1} VIEW `w` {2}AS {3}"
_SELECTS = (
    *("SELECT `id`,`v` FROM `t`", "SELECT `id`,_UTF8MB4'a' AS `x` FROM `t`", "SELECT COUNT(1) FROM `t`", "SELECT `v`,COUNT(1) AS `n` FROM `t` GROUP BY `v` HAVING `n`>1"),
    *("SELECT `a`.`id` FROM `t` AS `a` JOIN `t` AS `b` ON `a`.`id`=`b`.`v`", "SELECT `id` FROM `t` UNION ALL SELECT `v` FROM `t`", "SELECT * FROM `t`"),
    *("SELECT `id` FROM `t` WHERE `s` LIKE _UTF8MB4'a%' ORDER BY `id` DESC LIMIT 3", "SELECT `id` FROM (SELECT `id` FROM `t`) AS `d`"),
    *("SELECT `id`,ROW_NUMBER() OVER (ORDER BY `id`) AS `r` FROM `t`", "WITH `c` AS (SELECT `id` FROM `t`) SELECT `id` FROM `c`", "SELECT CAST(`v` AS CHAR CHARACTER SET UTF8MB4) FROM `t`"),
    *("SELECT `s` COLLATE utf8mb4_0900_ai_ci FROM `t`", "SELECT TIDB_VERSION()", "SELECT `id` FROM `t` USE INDEX (`PRIMARY`)", "SELECT `s`=_UTF8MB4'A' FROM `t`"),
    *("SELECT /*+ USE_INDEX(`t` )*/ `id` FROM `t`", "SELECT `id` FROM `t` EXCEPT SELECT `v` FROM `t`", "SELECT 1", "SELECT `id` FROM `t` WHERE `id` IN (SELECT `v` FROM `t`)"),
)  # fmt: skip


def table_forms() -> Iterator[Form]:
    """All forms of this part of the grammar."""
    for option in OPTIONS:
        yield Form(group="table option", statements=[f"CREATE TABLE `t` {_BODY} {option}"])
        yield from altered("table option", [option, f"ADD COLUMN `n` INT, {option}"], f"CREATE TABLE `t` {_BODY}")
        yield Form(
            group="table option",
            statements=[f"CREATE TABLE `t` {_BODY} {option} PARTITION BY HASH (`id`) PARTITIONS 2"],
        )
    for one, other in combinations(_PAIRED, 2):
        yield Form(group="pair of table options", statements=[f"CREATE TABLE `t` {_BODY} {one} {other}"])
        yield from altered("pair of table options", [f"{one}, {other}"], f"CREATE TABLE `t` {_BODY}")
    yield from altered("action", (action for action in ACTIONS))
    yield from altered("check", _CHECKS)
    yield from altered(
        "check",
        [
            "DROP CHECK `c`",
            "ALTER CHECK `c` NOT ENFORCED",
            "DROP CHECK `t_chk_1`",
            "DROP CHECK `c`, ADD COLUMN `n` INT",
        ],
        _CHECKED,
    )
    yield from alone(
        "check",
        [
            _CHECKED,
            "CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` INT CHECK(`v`>-9) ENFORCED NOT NULL,CHECK((`v`<99999)) NOT ENFORCED)",
        ],
        (),
    )
    yield from _foreign_keys()
    yield from _objects()


def _foreign_keys() -> Iterator[Form]:
    for reference in _KEYS:
        for name in ("CONSTRAINT `f` ", "CONSTRAINT "):
            yield from alone(
                "foreign key",
                [f"CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` INT,{name}FOREIGN KEY (`v`) REFERENCES {reference})"],
                [_PARENT],
            )
            yield from alone(
                "foreign key",
                [f"ALTER TABLE `t` ADD {name}FOREIGN KEY (`v`) REFERENCES {reference}"],
                [_PARENT, "CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` INT)"],
            )
        yield from alone(
            "foreign key",
            [f"ALTER TABLE `t` ADD COLUMN `n` INT REFERENCES {reference}"],
            [_PARENT, "CREATE TABLE `t` (`id` INT PRIMARY KEY)"],
        )
    child = "CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` INT,CONSTRAINT `f` FOREIGN KEY (`v`) REFERENCES `p`(`id`))"
    drops = [
        "ALTER TABLE `t` DROP FOREIGN KEY `f`",
        "ALTER TABLE `t` DROP FOREIGN KEY `f`, DROP INDEX `f`",
        "ALTER TABLE `t` ADD COLUMN `n` INT, DROP FOREIGN KEY `f`",
        "RENAME TABLE `t` TO `t2`",
        "ALTER TABLE `t` RENAME COLUMN `v` TO `z`",
        "ALTER TABLE `t` ADD CONSTRAINT `f2` FOREIGN KEY IF NOT EXISTS (`v`) REFERENCES `p`(`id`)",
    ]
    yield from alone("foreign key", drops, [_PARENT, child])


def _objects() -> Iterator[Form]:
    """What is made, changed and dropped beside ALTER TABLE."""
    for how, who, columns, select in [
        *(("ALGORITHM = UNDEFINED", "DEFINER", "", select) for select in _SELECTS),
        *((f"ALGORITHM = {word}", who, "(`x`,`y`) ", _SELECTS[0]) for word in ("UNDEFINED", "MERGE", "TEMPTABLE") for who in ("DEFINER", "INVOKER")),
        ("OR REPLACE ALGORITHM = UNDEFINED", "DEFINER", "", _SELECTS[0]),
        *(("ALGORITHM = UNDEFINED", "DEFINER", "", f"{_SELECTS[0]} WITH {word} CHECK OPTION") for word in ("LOCAL", "CASCADED")),
    ]:  # fmt: skip
        yield from alone("view", [_VIEW.format(how, who, columns, select)])
    view = _VIEW.format("ALGORITHM = UNDEFINED", "DEFINER", "", _SELECTS[0])
    yield from alone(
        "view",
        ["DROP VIEW `g`.`w`", "DROP VIEW IF EXISTS `w`", "DROP VIEW `w`, `nope`", "RENAME TABLE `w` TO `w2`"],
        [TABLE, view],
    )
    yield from alone("table", ["DROP TABLE `t`", "DROP TABLE IF EXISTS `t`", "DROP TABLE IF EXISTS `g`.`t`", "TRUNCATE TABLE `t`", "TRUNCATE TABLE `g`.`t`",
                               "RENAME TABLE `t` TO `t2`", "RENAME TABLE `g`.`t` TO `g`.`t2`", "CREATE TABLE `t2` LIKE `t`", "CREATE TABLE IF NOT EXISTS `t2` LIKE `g`.`t`",
                               "CREATE TABLE IF NOT EXISTS `t2` (`id` INT PRIMARY KEY)", "RECOVER TABLE `t`", "FLASHBACK TABLE `t` TO `t2`",
                               "CREATE GLOBAL TEMPORARY TABLE `t2` (`id` INT) ON COMMIT DELETE ROWS", "CREATE TABLE `t2` (`id` INT) AS SELECT 1", "CREATE TABLE `t2` (`id` INT) ",
                               "CREATE TABLE `t2` (`id` INT,INDEX `k`(`id`)) SPLIT INDEX `k` BETWEEN (1) AND (9) REGIONS 3", "OPTIMIZE TABLE `t`", "LOCK TABLES `t` READ", "UNLOCK TABLES",
                               "CREATE SEQUENCE `sq` START WITH 1 CACHE 10", "CREATE TABLE `t2` (`id` INT PRIMARY KEY)"])  # fmt: skip
    yield from alone(
        "object of TiDB",
        [
            "DROP SEQUENCE `sq`",
            "ALTER SEQUENCE `sq` INCREMENT BY 2",
            "ALTER SEQUENCE `sq` RESTART",
            "DROP SEQUENCE IF EXISTS `sq`",
        ],
        ["CREATE SEQUENCE `sq`"],
    )
    yield from alone("object of TiDB", ["/*T![placement] CREATE PLACEMENT POLICY `pp` FOLLOWERS = 2 */", "/*T![placement] DROP PLACEMENT POLICY IF EXISTS `pp` */",
                                        "/*T![resource_group] DROP RESOURCE GROUP IF EXISTS `rg` */"], ())  # fmt: skip
    for option in ("", "CHARACTER SET = utf8mb4", "CHARACTER SET = latin1", "CHARACTER SET = gbk", "COLLATE = utf8mb4_general_ci", "COLLATE = utf8mb4_0900_ai_ci",
                   "CHARACTER SET = utf8 COLLATE = utf8_bin", "CHARACTER SET = utf8mb4 COLLATE = utf8mb4_0900_bin", "ENCRYPTION = 'n'", "CHARACTER SET = binary",
                   "CHARACTER SET = utf8mb4 ENCRYPTION = 'N'", "CHARACTER SET = gb18030", "SET TIFLASH REPLICA 1"):  # fmt: skip
        yield from alone(
            "database", [f"CREATE DATABASE `g2` {option}", f"CREATE DATABASE IF NOT EXISTS `g2` {option}"], ()
        )
        yield from alone("database", [f"ALTER DATABASE `g2` {option}"], ["CREATE DATABASE `g2`"])
    yield from alone(
        "database",
        ["DROP DATABASE `g2`", "DROP DATABASE IF EXISTS `g2`", "CREATE DATABASE IF NOT EXISTS `g2`"],
        ["CREATE DATABASE `g2`"],
    )
    yield from chains("sequence, a chain", [
        ["CREATE SEQUENCE `sq`", "CREATE TABLE `t` (`id` INT PRIMARY KEY DEFAULT (NEXTVAL(`sq`)),`v` INT)", "ALTER TABLE `t` ADD COLUMN `n` INT",
         "ALTER TABLE `t` ALTER COLUMN `id` DROP DEFAULT", "ALTER TABLE `t` ALTER COLUMN `v` SET DEFAULT (NEXTVAL(`sq`))"],
    ])  # fmt: skip
