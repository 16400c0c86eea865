"""Indexes and primary keys."""

from __future__ import annotations

from typing import Any

from tests.campaigns.kinds.story import CREATE_DATABASE, TWO, USUAL, Ddl, Kind, Rows, altered, created, lines

_INDEXED = created("(`id` INT PRIMARY KEY,`v` INT,`s` VARCHAR(20),INDEX `i`(`v`))")
_UNIQUE = created("(`id` INT PRIMARY KEY,`v` INT,`s` VARCHAR(20),UNIQUE `u`(`v`))")
_EXPRESSION = {"mariadb": "skipped: expression index"}
_J = ("id! INT", "j JSON")
_JSON = created("(`id` INT PRIMARY KEY,`j` JSON)", _J)
_NO_KEY = created("(`id` INT NOT NULL,`v` INT,`s` VARCHAR(20))", ("id INT NOT NULL", "v INT", "s VARCHAR(20)"))


def _json(name: str, query: str, kind: int, **more: Any) -> Kind:
    return altered(
        name,
        query,
        kind,
        _J,
        ((3, "[3]"),),
        before=Rows("t", lines((1, "[1]"), (2, "[2]"))),
        base=_JSON,
        ends=[("1", "[1]"), ("2", "[2]"), ("3", "[3]")],
        **more,
    )


INDEXES = [
    altered("ADD INDEX", "ALTER TABLE `t` ADD INDEX `i`(`v`, `s`)", 7, has=["t index i(v,s)"]),
    altered("ADD INDEX without a name", "ALTER TABLE `t` ADD INDEX(`v`)", 7, has=["t index v(v)"]),
    altered("CREATE INDEX", "CREATE INDEX `i` ON `t` (`v`)", 7, has=["t index i(v)"]),
    altered(
        "CREATE INDEX IF NOT EXISTS",
        "CREATE INDEX IF NOT EXISTS `i` ON `t` (`v`)",
        7,
        on={"mysql": "rewritten: IF EXISTS"},
        has=["t index i(v)"],
    ),
    altered("ADD UNIQUE", "ALTER TABLE `t` ADD UNIQUE `u`(`v`)", 7, has=["t unique u(v)"]),
    altered(
        "CREATE UNIQUE INDEX, a value that moves",
        "CREATE UNIQUE INDEX `u` ON `t` (`v`)",
        7,
        rows=((1, 20, "one"), (2, 10, "two")),
        ends=[("1", "20", "one"), ("2", "10", "two")],
        has=["t unique u(v)"],
    ),
    altered("ADD INDEX over a prefix", "ALTER TABLE `t` ADD INDEX `i`(`s`(5))", 7, has=["t index i(s(5))"]),
    altered("ADD INDEX descending", "ALTER TABLE `t` ADD INDEX `i`(`v` DESC)", 7, has=["mysql? t index i(v desc)"]),
    altered(
        "ADD INDEX with options",
        "ALTER TABLE `t` ADD INDEX `i`(`v`) USING BTREE COMMENT 'fast' INVISIBLE",
        7,
        on={"mariadb": "rewritten: invisible index"},
        has=["t i invisible"],
    ),
    altered(
        "ADD INDEX over an expression",
        "ALTER TABLE `t` ADD INDEX `i`((LOWER(`s`)))",
        7,
        on=_EXPRESSION,
        has=["mysql? t index i(<expression>)"],
    ),
    altered(
        "ADD UNIQUE over an expression",
        "ALTER TABLE `t` ADD UNIQUE `u`((LOWER(`s`)), `v`)",
        7,
        on={"mariadb": "skipped: unique expression index"},
        has=["mysql? t unique u(<expression>,v)"],
    ),
    Kind(
        name="ADD and DROP UNIQUE over an expression without a name",
        story=[
            *(CREATE_DATABASE, created(), TWO),
            Ddl("ALTER TABLE `t` ADD UNIQUE((LOWER(`s`)))", 7),
            Ddl("ALTER TABLE `t` DROP INDEX `expression_index`", 8),
            Rows("t", lines((3, 30, "ONE"))),
        ],
        ends={"t": [("1", "10", "one"), ("2", "20", "two"), ("3", "30", "ONE")]},
        on={
            "mariadb": "skipped: unique expression index · skipped: missing index",
            "mysql": "rewritten: index name · executed",
        },
        lacks=["t unique functional_index(<expression>)"],
    ),
    Kind(
        name="CREATE TABLE with an index over an expression without a name",
        story=[
            CREATE_DATABASE,
            created("(`id` INT PRIMARY KEY,`v` INT,`s` VARCHAR(20),UNIQUE((LOWER(`s`))))", setup=False),
            Rows("t", lines((1, 10, "one"))),
            Ddl("DROP INDEX `expression_index` ON `t`", 8),
            Rows("t", lines((3, 30, "ONE"))),
        ],
        ends={"t": [("1", "10", "one"), ("3", "30", "ONE")]},
        on={
            "mariadb": "rewritten: unique expression index · skipped: missing index",
            "mysql": "rewritten: index name · executed",
        },
        lacks=["t unique functional_index(<expression>)"],
    ),
    _json(
        "ADD INDEX multi-valued",
        "ALTER TABLE `t` ADD INDEX `m`((CAST(`j` AS UNSIGNED ARRAY)))",
        7,
        on=_EXPRESSION,
        has=["mysql? t index m(<expression>)"],
    ),
    altered("DROP INDEX", "ALTER TABLE `t` DROP INDEX `i`", 8, base=_INDEXED, lacks=["t index i(v)"]),
    altered("DROP INDEX on", "DROP INDEX `i` ON `t`", 8, base=_INDEXED, lacks=["t index i(v)"]),
    altered(
        "DROP INDEX IF EXISTS",
        "DROP INDEX IF EXISTS `i` ON `t`",
        8,
        base=_INDEXED,
        on={"mysql": "rewritten: IF EXISTS"},
        lacks=["t index i(v)"],
    ),
    altered(
        "DROP INDEX unique",
        "ALTER TABLE `t` DROP INDEX `u`",
        8,
        rows=((3, 10, "three"),),
        base=_UNIQUE,
        ends=[("1", "10", "one"), ("2", "20", "two"), ("3", "10", "three")],
        lacks=["t unique u(v)"],
    ),
    altered("RENAME INDEX", "ALTER TABLE `t` RENAME INDEX `i` TO `k`", 18, base=_INDEXED, has=["t index k(v)"]),
    altered(
        "ALTER INDEX INVISIBLE",
        "ALTER TABLE `t` ALTER INDEX `i` INVISIBLE",
        41,
        base=_INDEXED,
        on={"mariadb": "rewritten: invisible index"},
        has=["t i invisible"],
    ),
    altered(
        "ALTER INDEX VISIBLE",
        "ALTER TABLE `t` ALTER INDEX `i` VISIBLE",
        41,
        base=_INDEXED,
        on={"mariadb": "rewritten: invisible index"},
        lacks=["t i invisible"],
    ),
    altered(
        "ADD INDEX with ALGORITHM and LOCK",
        "ALTER TABLE `t` ADD INDEX `i`(`v`), ALGORITHM = INPLACE, LOCK = NONE",
        7,
        on=dict.fromkeys(("mariadb", "mysql"), "rewritten: algorithm and lock"),
        has=["t index i(v)"],
    ),
    altered(
        "ADD FULLTEXT",
        "ALTER TABLE `t` ADD FULLTEXT `f`(`s`) WITH PARSER `STANDARD`",
        230,
        on={
            **dict.fromkeys(("mariadb", "mysql"), "skipped: search index"),
            "tidb": "halted: .*columnar replica must exist",
        },
        to_tidb=False,
    ),
]

_KEY = ("id! INT", "v INT", "s VARCHAR(20)")
KEYS = [
    altered(
        "ADD PRIMARY KEY",
        "ALTER TABLE `t` ADD PRIMARY KEY(`id`) /*T![clustered_index] NONCLUSTERED */",
        32,
        _KEY,
        base=_NO_KEY,
        has=["t primary key(id)"],
    ),
    altered(
        "ADD PRIMARY KEY over several columns",
        "ALTER TABLE `t` ADD PRIMARY KEY(`id`, `v`)",
        32,
        ("id! INT", "v! INT", "s VARCHAR(20)"),
        ((2, 20, "TWO"),),
        base=_NO_KEY,
        ends=[("1", "10", "one"), ("2", "20", "TWO")],
        has=["t primary key(id,v)"],
    ),
    altered(
        "DROP PRIMARY KEY",
        "ALTER TABLE `t` DROP PRIMARY KEY",
        33,
        ("id INT NOT NULL", "v INT", "s VARCHAR(20)"),
        ((2, 20, "two"),),
        operation="I",
        base=created("(`id` INT PRIMARY KEY /*T![clustered_index] NONCLUSTERED */,`v` INT,`s` VARCHAR(20))"),
        ends=[("1", "10", "one"), ("2", "20", "two"), ("2", "20", "two")],
        lacks=["t primary key(id)"],
    ),
    Kind(
        name="DROP PRIMARY KEY and ADD another one",
        story=[
            *(
                CREATE_DATABASE,
                created("(`id` INT,`v` INT,`s` VARCHAR(20),PRIMARY KEY(`id`) /*T![clustered_index] NONCLUSTERED */)"),
                TWO,
            ),
            Ddl("ALTER TABLE `t` DROP PRIMARY KEY", 33, "t", ("id INT NOT NULL", "v INT", "s VARCHAR(20)")),
            *(Rows("t", lines((2, 20, "two")), "D"), Rows("t", lines((1, 30, "three")))),
            Ddl("ALTER TABLE `t` ADD PRIMARY KEY(`v`)", 32, "t", ("id INT NOT NULL", "v! INT", "s VARCHAR(20)")),
            *(
                Rows("t", lines((1, 30, "THREE")), "U"),
                Rows("t", lines((1, 10, "one")), "D"),
                Rows("t", lines((1, 40, "x"))),
            ),
        ],
        ends={"t": [("1", "30", "THREE"), ("1", "40", "x")]},
        has=["t primary key(v)"],
    ),
    Kind(
        name="CREATE TABLE CLUSTERED and NONCLUSTERED",
        story=[
            CREATE_DATABASE,
            created(
                "(`id` INT,`v` INT,`s` VARCHAR(20),PRIMARY KEY(`id`, `v`) /*T![clustered_index] NONCLUSTERED */)",
                ["id! INT", "v! INT", "s VARCHAR(20)"],
                setup=False,
            ),
            TWO,
        ],
        ends={"t": [("1", "10", "one"), ("2", "20", "two")]},
        has=["t primary key(id,v)"],
    ),
    Kind(
        name="CREATE TABLE without a key",
        story=[
            CREATE_DATABASE,
            created("(`a` INT,`b` VARCHAR(9))", ["a INT", "b VARCHAR(9)"], setup=False),
            Rows("t", lines((1, "x"), (1, "x"))),
        ],
        ends={"t": [("1", "x"), ("1", "x")]},
        lacks=["t.my_row_id bigint unsigned"],
    ),
]
assert USUAL == _KEY

KINDS = [*INDEXES, *KEYS]
