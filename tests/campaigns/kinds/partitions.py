"""Partitions."""

from __future__ import annotations

from typing import Any

from tests.campaigns.kinds.story import (
    BEFORE,
    BODY,
    CREATE_DATABASE,
    TWO,
    USUAL,
    Ddl,
    Item,
    Kind,
    Rows,
    altered,
    created,
    lines,
)

_RANGE = created(
    options=" PARTITION BY RANGE (`id`) (PARTITION `p0` VALUES LESS THAN (2),PARTITION `p1` VALUES LESS THAN (10))"
)
_HASH = created(options=" PARTITION BY HASH (`id`) PARTITIONS 3")
_LIST = created(options=" PARTITION BY LIST (`id`) (PARTITION `p0` VALUES IN (1, 4),PARTITION `p1` VALUES IN (2, 3))")
_MOVED = ((2, 21, "TWO"), (3, 30, "three"))


def _made(
    name: str, options: str, method: str, body: str = BODY, columns: Any = USUAL, *, rows: Rows = TWO, **more: Any
) -> Kind:
    """CREATE TABLE with partitions."""
    more.setdefault("ends", {"t": BEFORE})
    story: list[Item] = [CREATE_DATABASE, created(body, columns, options=" " + options, setup=False), rows]
    return Kind(name=name, story=story, has=[f"t partitioned by {method}"], **more)


MADE = [
    _made(
        "PARTITION BY RANGE",
        "PARTITION BY RANGE (`id`) (PARTITION `p0` VALUES LESS THAN (2),PARTITION `p1` VALUES LESS THAN (MAXVALUE))",
        "RANGE",
    ),
    _made(
        "PARTITION BY RANGE COLUMNS",
        "PARTITION BY RANGE COLUMNS(`s`) (PARTITION `p0` VALUES LESS THAN (_UTF8MB4'p'),PARTITION `p1` VALUES LESS THAN (MAXVALUE))",
        "RANGE COLUMNS",
        "(`id` INT,`v` INT,`s` VARCHAR(20),PRIMARY KEY(`id`, `s`))",
        ("id! INT", "v INT", "s! VARCHAR(20)"),
    ),
    _made(
        "PARTITION BY LIST",
        "PARTITION BY LIST (`id`) (PARTITION `p0` VALUES IN (1, 3),PARTITION `p1` VALUES IN (2, NULL))",
        "LIST",
    ),
    _made(
        "PARTITION BY LIST COLUMNS",
        "PARTITION BY LIST COLUMNS(`s`) (PARTITION `p0` VALUES IN (_UTF8MB4'one'),PARTITION `p1` VALUES IN (_UTF8MB4'two', _UTF8MB4'three'))",
        "LIST COLUMNS",
        "(`id` INT,`v` INT,`s` VARCHAR(20),PRIMARY KEY(`id`, `s`))",
        ("id! INT", "v INT", "s! VARCHAR(20)"),
    ),
    _made(
        "PARTITION BY LIST with a default",
        "PARTITION BY LIST (`id`) (PARTITION `p0` VALUES IN (1),PARTITION `pd` DEFAULT)",
        "LIST",
        on={"mysql": "halted: .*error 1064.* near 'DEFAULT"},
    ),
    _made("PARTITION BY HASH", "PARTITION BY HASH (`id`) PARTITIONS 3", "HASH"),
    _made("PARTITION BY KEY", "PARTITION BY KEY (`id`) PARTITIONS 3", "KEY"),
    _made("PARTITION BY KEY of the primary key", "PARTITION BY KEY () PARTITIONS 2", "KEY"),
    _made(
        "PARTITION BY RANGE over a function",
        "PARTITION BY RANGE (YEAR(`s`)) (PARTITION `p0` VALUES LESS THAN (2020),PARTITION `p1` VALUES LESS THAN (MAXVALUE))",
        "RANGE",
        "(`id` INT,`v` INT,`s` DATE,PRIMARY KEY(`id`, `s`))",
        ("id! INT", "v INT", "s! DATE"),
        rows=Rows("t", lines((1, 10, "2019-01-01"), (2, 20, "2021-01-01"))),
        ends={"t": [("1", "10", "2019-01-01"), ("2", "20", "2021-01-01")]},
    ),
]

CHANGED = [
    altered(
        "ADD PARTITION",
        "ALTER TABLE `t` ADD PARTITION (PARTITION `p2` VALUES LESS THAN (20), PARTITION `p3` VALUES LESS THAN (MAXVALUE))",
        19,
        rows=((2, 21, "TWO"), (30, 30, "three")),
        base=_RANGE,
        ends=[("1", "10", "one"), ("2", "21", "TWO"), ("30", "30", "three")],
        has=["t partition p3"],
    ),
    altered(
        "ADD PARTITION of a list",
        "ALTER TABLE `t` ADD PARTITION (PARTITION `p2` VALUES IN (5, 6))",
        19,
        base=_LIST,
        has=["t partition p2"],
    ),
    altered(
        "ADD PARTITION of a hash", "ALTER TABLE `t` ADD PARTITION PARTITIONS 2", 64, base=_HASH, has=["t partition p4"]
    ),
    altered(
        "DROP PARTITION",
        "ALTER TABLE `t` DROP PARTITION `p0`",
        20,
        base=_RANGE,
        ends=[("2", "21", "TWO"), ("3", "30", "three")],
        lacks=["t partition p0"],
    ),
    altered(
        "TRUNCATE PARTITION",
        "ALTER TABLE `t` TRUNCATE PARTITION `p1`",
        23,
        rows=((3, 30, "three"),),
        base=_RANGE,
        ends=[("1", "10", "one"), ("3", "30", "three")],
    ),
    altered(
        "TRUNCATE PARTITION of a linear hash",
        "ALTER TABLE `t` TRUNCATE PARTITION `p1`",
        23,
        rows=((3, 30, "three"),),
        base=created(options=" PARTITION BY LINEAR HASH (`id`) PARTITIONS 3"),
        before=Rows("t", lines((1, 10, "one"), (5, 50, "five"))),
        ends=[("3", "30", "three"), ("5", "50", "five")],
    ),
    altered(
        "TRUNCATE PARTITION by key",
        "ALTER TABLE `t` TRUNCATE PARTITION `p1`",
        23,
        rows=((3, 30, "three"),),
        base=created(options=" PARTITION BY KEY (`id`) PARTITIONS 3"),
        ends=[("1", "10", "one"), ("3", "30", "three")],
        on=dict.fromkeys(
            ("mariadb", "mysql"), "halted: .*takes the rows of a partition by KEY.*storage-consumer ddl skip"
        ),
    ),
    altered(
        "REORGANIZE PARTITION",
        "ALTER TABLE `t` REORGANIZE PARTITION `p0`,`p1` INTO (PARTITION `q0` VALUES LESS THAN (3), PARTITION `q1` VALUES LESS THAN (10))",
        64,
        base=_RANGE,
        has=["t partition q1"],
        lacks=["t partition p0"],
    ),
    altered("COALESCE PARTITION", "ALTER TABLE `t` COALESCE PARTITION 2", 64, base=_HASH, lacks=["t partition p1"]),
    altered("REMOVE PARTITIONING", "ALTER TABLE `t` REMOVE PARTITIONING", 72, base=_RANGE, lacks=["t partition p0"]),
    altered(
        "ALTER TABLE PARTITION BY",
        "ALTER TABLE `t` PARTITION BY RANGE (`id`) (PARTITION `a` VALUES LESS THAN (100),PARTITION `b` VALUES LESS THAN (MAXVALUE))",
        71,
        base=_HASH,
        has=["t partition a", "t partitioned by RANGE"],
    ),
    altered(
        "ALTER TABLE PARTITION BY of a plain table",
        "ALTER TABLE `t` PARTITION BY KEY (`id`) PARTITIONS 2",
        71,
        has=["t partitioned by KEY"],
    ),
    altered(
        "DROP PARTITION IF EXISTS",
        "ALTER TABLE `t` DROP PARTITION IF EXISTS `p0`",
        20,
        base=_RANGE,
        on={"mysql": "rewritten: IF EXISTS"},
        ends=[("2", "21", "TWO"), ("3", "30", "three")],
        lacks=["t partition p0"],
    ),
    Kind(
        name="EXCHANGE PARTITION",
        story=[
            *(CREATE_DATABASE, _RANGE, created(table="x"), TWO, Rows("x", lines((5, 50, "five")))),
            Ddl("ALTER TABLE `{db}`.`t` EXCHANGE PARTITION `p1` WITH TABLE `{db}`.`x`", 42),
            Rows("t", lines((6, 60, "six"))),
            Rows("x", lines((7, 70, "seven"))),
        ],
        ends={
            "t": [("1", "10", "one"), ("5", "50", "five"), ("6", "60", "six")],
            "x": [("2", "20", "two"), ("7", "70", "seven")],
        },
    ),
    Kind(
        name="EXCHANGE PARTITION with a table of another database",
        story=[
            *(CREATE_DATABASE, Ddl("CREATE DATABASE `{db}_2`", 1, "", setup=True, database="{db}_2"), _RANGE, TWO),
            Ddl(f"CREATE TABLE `x` {BODY}", 3, "x", USUAL, setup=True, database="{db}_2"),
            Rows("x", lines((5, 50, "five")), database="{db}_2"),
            Ddl("ALTER TABLE `{db}`.`t` EXCHANGE PARTITION `p1` WITH TABLE `{db}_2`.`x`", 42),
            Rows("t", lines((6, 60, "six"))),
            Rows("x", lines((7, 70, "seven")), database="{db}_2"),
        ],
        ends={
            "t": [("1", "10", "one"), ("5", "50", "five"), ("6", "60", "six")],
            "_2.x": [("2", "20", "two"), ("7", "70", "seven")],
        },
    ),
    Kind(
        name="EXCHANGE PARTITION WITHOUT VALIDATION",
        story=[
            *(CREATE_DATABASE, _RANGE, created(table="x"), TWO, Rows("x", lines((5, 50, "five")))),
            Ddl("ALTER TABLE `{db}`.`t` EXCHANGE PARTITION `p1` WITH TABLE `{db}`.`x` WITHOUT VALIDATION", 42),
        ],
        ends={"t": [("1", "10", "one"), ("5", "50", "five")], "x": [("2", "20", "two")]},
        on={"mariadb": "rewritten: validation"},
    ),
    Kind(
        name="a GLOBAL index of a partitioned table",
        story=[
            CREATE_DATABASE,
            created(
                "(`id` INT PRIMARY KEY,`v` INT,`s` VARCHAR(20),UNIQUE `u`(`v`) /*T![global_index] GLOBAL */)",
                options=" PARTITION BY HASH (`id`) PARTITIONS 3",
                setup=False,
            ),
            TWO,
            Rows("t", lines((1, 20, "one"), (2, 10, "two")), "U"),
        ],
        ends={"t": [("1", "20", "one"), ("2", "10", "two")]},
        on=dict.fromkeys(("mariadb", "mysql"), "rewritten: global index"),
        has=["tidb? t unique u(v)"],
    ),
    Kind(
        name="a GLOBAL index of a column, and one added",
        story=[
            CREATE_DATABASE,
            created(
                "(`id` INT PRIMARY KEY,`v` INT UNIQUE KEY /*T![global_index] GLOBAL */,`s` VARCHAR(20))",
                options=" PARTITION BY HASH (`id`) PARTITIONS 3",
                setup=False,
            ),
            TWO,
            Ddl("ALTER TABLE `t` ADD UNIQUE `us`(`s`) /*T![global_index] GLOBAL */", 7),
            Ddl("ALTER TABLE `t` DROP INDEX `us`", 8),
        ],
        ends={"t": BEFORE},
        on=dict.fromkeys(
            ("mariadb", "mysql"), "rewritten: global index · skipped: global index · skipped: missing index"
        ),
    ),
    Kind(
        name="a GLOBAL primary key",
        story=[
            CREATE_DATABASE,
            created(
                "(`id` INT,`v` INT,`s` VARCHAR(20),PRIMARY KEY(`id`) /*T![clustered_index] NONCLUSTERED */ /*T![global_index] GLOBAL */)",
                options=" PARTITION BY HASH (`v`) PARTITIONS 3",
                setup=False,
            ),
            TWO,
        ],
        ends={"t": BEFORE},
        on=dict.fromkeys(("mariadb", "mysql"), "halted: .*error 1503"),
    ),
    altered(
        "ALTER TABLE PARTITION BY UPDATE INDEXES",
        "ALTER TABLE `t` PARTITION BY HASH (`id`) PARTITIONS 3 UPDATE INDEXES (`u` GLOBAL)",
        71,
        base=created("(`id` INT PRIMARY KEY,`v` INT,`s` VARCHAR(20),UNIQUE `u`(`v`))"),
        on=dict.fromkeys(("mariadb", "mysql"), "rewritten: global index"),
    ),
    altered(
        "FIRST PARTITION of intervals",
        "ALTER TABLE `t` FIRST PARTITION LESS THAN (2)",
        20,
        base=created(
            options=" PARTITION BY RANGE (`id`) (PARTITION `P_LT_1` VALUES LESS THAN (1),PARTITION `P_LT_2` VALUES LESS THAN (2),"
            "PARTITION `P_LT_3` VALUES LESS THAN (3),PARTITION `P_LT_4` VALUES LESS THAN (4))"
        ),
        on=dict.fromkeys(("mariadb", "mysql"), "halted: .*error 1064"),
    ),
]

KINDS = [*MADE, *CHANGED]
