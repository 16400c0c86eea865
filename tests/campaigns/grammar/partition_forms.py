"""Partitions: every method, definition and option, made with the table and later; and everything that is done with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tests.campaigns.grammar.form import Form, alone, altered, chains

_BODY = "(`id` INT NOT NULL,`v` INT NOT NULL,`s` VARCHAR(20) NOT NULL,`d` DATE NOT NULL,`at` TIMESTAMP NOT NULL)"
_TWO = "(PARTITION `a` VALUES LESS THAN (10),PARTITION `b` VALUES LESS THAN (MAXVALUE))"
METHODS = (
    *("HASH (`id`) PARTITIONS 4", "HASH (`id`) PARTITIONS 1", "HASH (`id`+`v`) PARTITIONS 3", "HASH (YEAR(`d`)) PARTITIONS 3", "LINEAR HASH (`id`) PARTITIONS 4"),
    *("HASH (`id`) (PARTITION `a`,PARTITION `b` COMMENT = 'x')", "HASH (ABS(`id`)) PARTITIONS 3", "HASH (`id`%5) PARTITIONS 3"),
    *("KEY (`id`) PARTITIONS 3", "KEY (`id`,`s`) PARTITIONS 3", "LINEAR KEY (`id`) PARTITIONS 3", "KEY ALGORITHM = 1 (`id`) PARTITIONS 2"),
    *("KEY ALGORITHM = 2 (`s`) PARTITIONS 2", "LINEAR KEY ALGORITHM = 2 (`id`) PARTITIONS 2", "KEY (`s`) (PARTITION `a`,PARTITION `b`)", "KEY () PARTITIONS 2"),
    *(f"RANGE (`id`) {_TWO}", "RANGE (`id`) (PARTITION `a` VALUES LESS THAN (10))", "RANGE (YEAR(`d`)) (PARTITION `a` VALUES LESS THAN (2000),PARTITION `b` VALUES LESS THAN (MAXVALUE))"),
    *("RANGE (TO_DAYS(`d`)) (PARTITION `a` VALUES LESS THAN (TO_DAYS(_UTF8MB4'2020-01-01')),PARTITION `b` VALUES LESS THAN (MAXVALUE))",
      "RANGE (UNIX_TIMESTAMP(`at`)) (PARTITION `a` VALUES LESS THAN (UNIX_TIMESTAMP(_UTF8MB4'2020-01-01 00:00:00')),PARTITION `b` VALUES LESS THAN (MAXVALUE))",
      "RANGE (EXTRACT(YEAR_MONTH FROM `d`)) (PARTITION `a` VALUES LESS THAN (202001),PARTITION `b` VALUES LESS THAN (MAXVALUE))",
      "RANGE (`id` DIV 2) (PARTITION `a` VALUES LESS THAN (1+4),PARTITION `b` VALUES LESS THAN (MAXVALUE))",
      "RANGE (FLOOR(`id`)) (PARTITION `a` VALUES LESS THAN (5),PARTITION `b` VALUES LESS THAN (MAXVALUE))",
      "RANGE (WEEKDAY(`d`)) (PARTITION `a` VALUES LESS THAN (5),PARTITION `b` VALUES LESS THAN (MAXVALUE))",
      "RANGE (TO_SECONDS(`at`)) (PARTITION `b` VALUES LESS THAN (MAXVALUE))"),
    *(f"RANGE COLUMNS (`id`) {_TWO}", "RANGE COLUMNS (`id`,`s`) (PARTITION `a` VALUES LESS THAN (10, _UTF8MB4'm'),PARTITION `b` VALUES LESS THAN (MAXVALUE, MAXVALUE))",
      "RANGE COLUMNS (`d`) (PARTITION `a` VALUES LESS THAN (_UTF8MB4'2020-01-01'),PARTITION `b` VALUES LESS THAN (MAXVALUE))",
      "RANGE COLUMNS (`s`) (PARTITION `a` VALUES LESS THAN (_UTF8MB4'é'),PARTITION `b` VALUES LESS THAN (MAXVALUE))",
      "RANGE COLUMNS (`s`) (PARTITION `a` VALUES LESS THAN (x'80'),PARTITION `b` VALUES LESS THAN (MAXVALUE))"),
    *("LIST (`id`) (PARTITION `a` VALUES IN (1, 2, 3),PARTITION `b` VALUES IN (4, 5, 6, 7, 8, 9))", "LIST (`id`) (PARTITION `a` VALUES IN (1),PARTITION `z` DEFAULT)",
      "LIST (`id`) (PARTITION `a` VALUES IN (1, NULL),PARTITION `b` VALUES IN (2, 3))", "LIST (`id`) (PARTITION `a` VALUES IN (1, DEFAULT),PARTITION `b` VALUES IN (2))",
      "LIST (`id`%3) (PARTITION `a` VALUES IN (0, 1),PARTITION `b` VALUES IN (2, -1, -2))", "LIST (YEAR(`d`)) (PARTITION `a` VALUES IN (2020),PARTITION `z` DEFAULT)",
      "LIST COLUMNS (`s`) (PARTITION `a` VALUES IN (_UTF8MB4'a', _UTF8MB4'b'),PARTITION `z` DEFAULT)", "LIST COLUMNS (`id`) (PARTITION `a` VALUES IN (1, 2),PARTITION `b` VALUES IN (3))",
      "LIST COLUMNS (`id`,`s`) (PARTITION `a` VALUES IN ((1, _UTF8MB4'a'), (2, _UTF8MB4'b')),PARTITION `z` DEFAULT)",
      "LIST COLUMNS (`id`,`s`) (PARTITION `a` VALUES IN ((1, _UTF8MB4'a'), (2, _UTF8MB4'b')))", "LIST COLUMNS (`d`) (PARTITION `a` VALUES IN (_UTF8MB4'2020-01-01'),PARTITION `z` DEFAULT)"),
    *(f"RANGE (`id`) SUBPARTITION BY HASH (`v`) SUBPARTITIONS 2 {_TWO}", "SYSTEM_TIME LIMIT 5 (PARTITION `a` HISTORY,PARTITION `b` CURRENT)",
      f"RANGE (`id`) SUBPARTITION BY KEY (`v`) SUBPARTITIONS 2 {_TWO}"),
    "RANGE (`id`) (PARTITION `P_LT_0` VALUES LESS THAN (0),PARTITION `P_LT_10` VALUES LESS THAN (10),PARTITION `P_MAXVALUE` VALUES LESS THAN (MAXVALUE))",
)  # fmt: skip
OPTIONS = (
    *("COMMENT = 'it''s'", r"COMMENT = 'a\b'", "ENGINE = InnoDB", "ENGINE = myisam", "DATA DIRECTORY = '/x'", "INDEX DIRECTORY = '/x'", "MAX_ROWS = 5", "MIN_ROWS = 1"),
    *("TABLESPACE = `x`", "NODEGROUP = 1", "INSERT_METHOD = FIRST", "SECONDARY_ENGINE_ATTRIBUTE = '{}'", "COMMENT = 'x' ENGINE = MEMORY MAX_ROWS = 5"),
    "ENGINE = myisam TABLESPACE = `x` NODEGROUP = 2 DATA DIRECTORY = '/x'",
)  # fmt: skip
_RANGE = "CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` INT) PARTITION BY RANGE (`id`) (PARTITION `a` VALUES LESS THAN (2),PARTITION `b` VALUES LESS THAN (20))"
_OF_RANGE = (
    *("ADD PARTITION (PARTITION `c` VALUES LESS THAN (30))", "ADD PARTITION (PARTITION `c` VALUES LESS THAN (30), PARTITION `d` VALUES LESS THAN (MAXVALUE))"),
    *("ADD PARTITION/*T!  IF NOT EXISTS */ (PARTITION `c` VALUES LESS THAN (30))", "ADD PARTITION IF NOT EXISTS (PARTITION `c` VALUES LESS THAN (30))"),
    *("ADD PARTITION/*T!  IF NOT EXISTS */ (PARTITION `b` VALUES LESS THAN (20))", "ADD PARTITION NO_WRITE_TO_BINLOG (PARTITION `c` VALUES LESS THAN (30))"),
    *("DROP PARTITION `b`", "DROP PARTITION /*T! IF EXISTS  */`b`", "DROP PARTITION IF EXISTS `b`", "DROP PARTITION /*T! IF EXISTS  */`nope`", "TRUNCATE PARTITION `a`"),
    *("TRUNCATE PARTITION `a`,`b`", "TRUNCATE PARTITION ALL", "REORGANIZE PARTITION `a`,`b` INTO (PARTITION `c` VALUES LESS THAN (20))", "REMOVE PARTITIONING"),
    *("REORGANIZE PARTITION `b` INTO (PARTITION `c` VALUES LESS THAN (10), PARTITION `d` VALUES LESS THAN (20) COMMENT = 'x')", "REORGANIZE PARTITION"),
    *("REORGANIZE PARTITION NO_WRITE_TO_BINLOG `b` INTO (PARTITION `c` VALUES LESS THAN (20))", "CHECK PARTITION ALL", "OPTIMIZE PARTITION `a`", "REPAIR PARTITION ALL"),
    *("REBUILD PARTITION `a`", "REBUILD PARTITION NO_WRITE_TO_BINLOG ALL", "COALESCE PARTITION 1", "IMPORT PARTITION `a` TABLESPACE", "DISCARD PARTITION ALL TABLESPACE"),
    *("FIRST PARTITION LESS THAN (2)", "LAST PARTITION LESS THAN (30)", "MERGE FIRST PARTITION LESS THAN (20)", "SPLIT MAXVALUE PARTITION LESS THAN (30)"),
    *("ADD COLUMN `n` INT", "ADD COLUMN `n` INT, COMMENT = 'x'", "ADD INDEX `i`(`v`)", "ADD UNIQUE `u`(`id`, `v`)", "PARTITION BY HASH (`id`) PARTITIONS 3"),
    *("PARTITION BY KEY (`id`) PARTITIONS 3", "PARTITION BY RANGE COLUMNS (`id`) (PARTITION `z` VALUES LESS THAN (MAXVALUE))", "DROP COLUMN `v`", "RENAME COLUMN `v` TO `w`"),
    *("EXCHANGE PARTITION `a` WITH TABLE `x`", "EXCHANGE PARTITION `a` WITH TABLE `x` WITHOUT VALIDATION", "EXCHANGE PARTITION `a` WITH TABLE `g`.`x`", "MODIFY COLUMN `v` BIGINT"),
    *("COMMENT = 'x'", "COMMENT = 'x' REMOVE PARTITIONING", "ENGINE = InnoDB PARTITION BY HASH (`id`) PARTITIONS 2"),
)  # fmt: skip
_LIST = "CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` INT) PARTITION BY LIST (`id`) (PARTITION `a` VALUES IN (1, 2, 3, 4, 5, 6, 7, 8, 9),PARTITION `b` VALUES IN (10))"
_OF_LIST = (
    *("ADD PARTITION (PARTITION `c` VALUES IN (20, 21))", "ADD PARTITION (PARTITION `z` DEFAULT)", "ADD PARTITION (PARTITION `z` VALUES IN (NULL))", "DROP PARTITION `b`"),
    *("TRUNCATE PARTITION `a`", "REORGANIZE PARTITION `a`,`b` INTO (PARTITION `c` VALUES IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11))", "REMOVE PARTITIONING"),
    *("REORGANIZE PARTITION `b` INTO (PARTITION `b` VALUES IN (10, 11), PARTITION `z` DEFAULT)", "EXCHANGE PARTITION `a` WITH TABLE `x`"),
    "ADD PARTITION (PARTITION `z` VALUES IN (20, DEFAULT))",
)  # fmt: skip
_BY_HASH = "CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` INT) PARTITION BY HASH (`id`) PARTITIONS 4"
_BY_KEY = "CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` INT) PARTITION BY KEY (`id`) PARTITIONS 4"
_OF_HASH = (
    *("ADD PARTITION PARTITIONS 2", "ADD PARTITION NO_WRITE_TO_BINLOG PARTITIONS 2", "COALESCE PARTITION 1", "COALESCE PARTITION NO_WRITE_TO_BINLOG 2", "TRUNCATE PARTITION `p0`"),
    *("REMOVE PARTITIONING", "TRUNCATE PARTITION ALL", "PARTITION BY KEY () PARTITIONS 2", "EXCHANGE PARTITION `p0` WITH TABLE `x`", "ADD PARTITION (PARTITION `x`)"),
    "ADD PARTITION/*T!  IF NOT EXISTS */ PARTITIONS 2",
)  # fmt: skip
_OTHER = "CREATE TABLE `x` (`id` INT PRIMARY KEY,`v` INT)"
_DEFINITIONS: Mapping[str, tuple[str, str]] = {
    "RANGE": (_RANGE, "PARTITION `c` VALUES LESS THAN (30) {}"),
    "LIST": (_LIST, "PARTITION `c` VALUES IN (30) {}"),
}


def partition_forms() -> Iterator[Form]:
    """All forms of this part of the grammar."""
    for method in METHODS:
        yield Form(group="partitions", statements=[f"CREATE TABLE `t` {_BODY} PARTITION BY {method}"])
        yield from altered("partitions", [f"PARTITION BY {method}"], f"CREATE TABLE `t` {_BODY}")
        yield Form(group="partitions", statements=[f"CREATE TABLE `t` {_BODY} COMMENT = 'x' PARTITION BY {method}"])
    for option in OPTIONS:
        yield from _with_option(option)
    yield from _of(_RANGE, _OF_RANGE)
    yield from _of(_LIST, _OF_LIST)
    for table in (_BY_HASH, _BY_KEY):
        yield from _of(table, _OF_HASH)
    yield from alone(
        "partitions",
        ["CREATE TABLE `t2` LIKE `t`", "TRUNCATE TABLE `t`", "DROP TABLE `t`", "RENAME TABLE `t` TO `t2`"],
        [_RANGE],
    )
    default = _LIST.replace("PARTITION `b` VALUES IN (10)", "PARTITION `z` DEFAULT")
    yield from _of(default, ("DROP PARTITION `z`", "TRUNCATE PARTITION `z`", "REORGANIZE PARTITION `z` INTO (PARTITION `b` VALUES IN (10), PARTITION `z` DEFAULT)"))  # fmt: skip
    yield from chains("partitions, a chain", [
        [_RANGE, "ALTER TABLE `t` ADD PARTITION (PARTITION `c` VALUES LESS THAN (30))", "ALTER TABLE `t` TRUNCATE PARTITION `a`", "ALTER TABLE `t` DROP PARTITION `b`",
         "ALTER TABLE `t` REORGANIZE PARTITION `a`,`c` INTO (PARTITION `z` VALUES LESS THAN (30))", "ALTER TABLE `t` REMOVE PARTITIONING"],
        [_BY_HASH, "ALTER TABLE `t` COALESCE PARTITION 2", "ALTER TABLE `t` ADD PARTITION PARTITIONS 3", "ALTER TABLE `t` PARTITION BY KEY (`id`) PARTITIONS 2"],
    ])  # fmt: skip


def _of(table: str, actions: Sequence[str]) -> Iterator[Form]:
    for action in actions:
        scene = [table, _OTHER] if "`x`" in action and "EXCHANGE" in action else [table]
        yield from alone("action on partitions", [f"ALTER TABLE `t` {action}"], scene)


def _with_option(option: str) -> Iterator[Form]:
    """A partition with an option, in each place where one may be defined."""
    for table, definition in _DEFINITIONS.values():
        part = definition.format(option)
        yield Form(group="option of a partition", statements=[f"{table[:-1]},{part})"])
        yield from alone("option of a partition", [f"ALTER TABLE `t` ADD PARTITION ({part})"], [table])
    split = f"(PARTITION `c` VALUES LESS THAN (10) {option}, PARTITION `d` VALUES LESS THAN (20))"
    yield from alone("option of a partition", [f"ALTER TABLE `t` REORGANIZE PARTITION `b` INTO {split}"], [_RANGE])
    body = "CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` INT)"
    yield from alone(
        "option of a partition",
        [f"ALTER TABLE `t` PARTITION BY HASH (`id`) (PARTITION `a` {option},PARTITION `b`)"],
        [body],
    )
