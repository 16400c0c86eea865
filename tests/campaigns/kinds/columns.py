"""New columns, and generated ones."""

from __future__ import annotations

from typing import Any

from tests.campaigns.kinds.story import CREATE_DATABASE, Kind, Rows, altered, created, lines

ID_V_S_N = ("id! INT", "v INT", "s VARCHAR(20)", "n INT")
SET_N = ((2, 21, "TWO", 5), (3, 30, "three", 6))
AT = "2026-09-21 14:13:33"


def _with_n(value: Any, *, update: bool = True) -> list[tuple[Any, ...]]:
    """The usual three rows with a fourth column."""
    return [("1", "10", "one", value), ("2", "21", "TWO", "5"), ("3", "30", "three", "6")] if update else []


def _added(name: str, what: str, value: Any, kind: int = 5, **more: Any) -> Kind:
    return altered(name, f"ALTER TABLE `t` ADD COLUMN {what}", kind, ID_V_S_N, SET_N, ends=_with_n(value), **more)


def _clock(name: str, what: str, kind: str, value: str, **more: Any) -> Kind:
    """A column that is filled from the clock."""
    columns = ("id! INT", "v INT", "s VARCHAR(20)", f"at {kind}")
    rows = ((3, 30, "three", "2020-01-01 00:00:00"),)
    ends = [("1", "10", "one", value), ("2", "20", "two", value), ("3", "30", "three", "2020-01-01 00:00:00")]
    return altered(name, f"ALTER TABLE `t` ADD COLUMN {what}", 5, columns, rows, ends=ends, **more)


ADDED = [
    _added("ADD COLUMN", "`n` INT", None, has=["t.n int", "t.n null", "t.n at 4"]),
    _added("ADD COLUMN with a default", "`n` INT NOT NULL DEFAULT 7", "7", has=["t.n default 7", "t.n not null"]),
    _added("ADD COLUMN NOT NULL without a default", "`n` INT NOT NULL", "0", has=["t.n not null"]),
    altered(
        "ADD COLUMN FIRST",
        "ALTER TABLE `t` ADD COLUMN `n` VARCHAR(9) NOT NULL DEFAULT _UTF8MB4'it''s \\\\ x' FIRST",
        5,
        ["n VARCHAR(9) NOT NULL", "id! INT", "v INT", "s VARCHAR(20)"],
        (("a", 3, 30, "three"),),
        ends=[("a", "3", "30", "three"), ("it's \\ x", "1", "10", "one"), ("it's \\ x", "2", "20", "two")],
        has=["t.n at 1", "t.n collation utf8mb4_bin"],
    ),
    altered(
        "ADD COLUMN JSON NOT NULL",
        "ALTER TABLE `t` ADD COLUMN `n` JSON NOT NULL",
        5,
        ["id! INT", "v INT", "s VARCHAR(20)", "n JSON NOT NULL"],
        ((3, 30, "three", "[1]"),),
        on={"mariadb": "rewritten: JSON NOT NULL"},
        ends=[("1", "10", "one", "null"), ("2", "20", "two", "null"), ("3", "30", "three", "[1]")],
        has=["t.n not null"],
    ),
    altered(
        "ADD COLUMN AFTER",
        "ALTER TABLE `t` ADD COLUMN `n` INT DEFAULT 4 AFTER `id`",
        5,
        ["id! INT", "n INT", "v INT", "s VARCHAR(20)"],
        ((3, 6, 30, "three"),),
        ends=[("1", "4", "10", "one"), ("2", "4", "20", "two"), ("3", "6", "30", "three")],
        has=["t.n at 2"],
    ),
    _clock(
        "ADD COLUMN DEFAULT CURRENT_TIMESTAMP",
        "`at` DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP()",
        "DATETIME NOT NULL",
        AT,
        has=["t.at default current_timestamp"],
    ),
    _clock(
        "ADD COLUMN DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE",
        "`at` TIMESTAMP(6) DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6)",
        "TIMESTAMP(6)",
        AT,
        has=["t.at default current_timestamp(6)", "t.at on update"],
    ),
    altered(
        "ADD COLUMN DEFAULT (UUID())",
        "ALTER TABLE `t` ADD COLUMN `n` VARCHAR(40) DEFAULT (UUID())",
        5,
        ("id! INT", "v INT", "s VARCHAR(20)", "n VARCHAR(40)"),
        ((1, 10, "one", "a"), (2, 20, "two", "b")),
        ends=[("1", "10", "one", "a"), ("2", "20", "two", "b")],
        on={
            "mariadb": "executed (random default of n)",
            "mysql": "halted: .*error 1674",
            "tidb": "halted: .*error 1674",
        },
        to_tidb=False,
    ),
    altered(
        "ADD COLUMN with an expression as default",
        "ALTER TABLE `t` ADD COLUMN `n` DATE DEFAULT (DATE_FORMAT(NOW(), _UTF8MB4'%Y-%m-%d'))",
        5,
        ("id! INT", "v INT", "s VARCHAR(20)", "n DATE"),
        ((2, 20, "two", "2020-01-01"),),
        ends=[("1", "10", "one", AT[:10]), ("2", "20", "two", "2020-01-01")],
        on={"mariadb": "rewritten: string collation", "mysql": "rewritten: string collation"},
    ),
    _added("ADD COLUMN IF NOT EXISTS", "IF NOT EXISTS `n` INT DEFAULT 7", "7", on={"mysql": "rewritten: IF EXISTS"}),
    altered(
        "ADD COLUMN with another charset",
        "ALTER TABLE `t` ADD COLUMN `n` VARCHAR(9) CHARACTER SET LATIN1",
        5,
        ("id! INT", "v INT", "s VARCHAR(20)", "n VARCHAR(9)"),
        ((3, 30, "three", "é"),),
        ends=[("1", "10", "one", None), ("2", "20", "two", None), ("3", "30", "three", "é")],
        on=dict.fromkeys(("mariadb", "mysql"), "rewritten: charset without collation"),
        has=["t.n collation latin1_bin"],
    ),
]

_G = ("id! INT", "v INT", "s VARCHAR(20)", "g~ INT")
_GS = ("id! INT", "v INT", "s VARCHAR(20)", "g= INT")
_DOUBLED = [("1", "10", "one", "20"), ("2", "21", "TWO", "42"), ("3", "30", "three", "60")]
_MARIADB_NULL = {"mariadb": "rewritten: generated NOT NULL"}

GENERATED = [
    Kind(
        name="CREATE TABLE with generated columns",
        story=[
            CREATE_DATABASE,
            created(
                "(`id` INT PRIMARY KEY,`a` INT,`g` INT GENERATED ALWAYS AS(`a`*2) VIRTUAL,`h` VARCHAR(20) GENERATED ALWAYS AS"
                "(CONCAT(_UTF8MB4'h', `a`)) STORED NOT NULL,INDEX `ig`(`g`))",
                ["id! INT", "a INT", "g~ INT", "h= VARCHAR(20)"],
                setup=False,
            ),
            Rows("t", lines((1, 10, "h10"), (2, 20, "h20"))),
        ],
        ends={"t": [("1", "10", "20", "h10"), ("2", "20", "40", "h20")]},
        on={"mariadb": "rewritten: string collation; generated NOT NULL", "mysql": "rewritten: string collation"},
        has=["t.g virtual", "t.h stored", "t index ig(g)"],
    ),
    altered(
        "ADD COLUMN generated, virtual",
        "ALTER TABLE `t` ADD COLUMN `g` INT GENERATED ALWAYS AS(`v`*2) VIRTUAL",
        5,
        _G,
        ends=_DOUBLED,
        has=["t.g virtual"],
    ),
    altered(
        "an index on a generated column",
        "ALTER TABLE `t` ADD INDEX `ig`(`g`)",
        7,
        _G,
        base=created("(`id` INT PRIMARY KEY,`v` INT,`s` VARCHAR(20),`g` INT GENERATED ALWAYS AS(`v`*2) VIRTUAL)", _G),
        ends=_DOUBLED,
        has=["t index ig(g)"],
    ),
    altered(
        "MODIFY of a stored generated column",
        "ALTER TABLE `t` MODIFY COLUMN `g` BIGINT GENERATED ALWAYS AS(`v`*2) STORED",
        12,
        ("id! INT", "v INT", "s VARCHAR(20)", "g= BIGINT"),
        ((2, 21, "TWO", 42), (3, 30, "three", 60)),
        base=created("(`id` INT PRIMARY KEY,`v` INT,`s` VARCHAR(20),`g` INT GENERATED ALWAYS AS(`v`*2) STORED)", _GS),
        before=Rows("t", lines((1, 10, "one", 20), (2, 20, "two", 40))),
        ends=_DOUBLED,
        has=["t.g bigint", "t.g stored"],
    ),
    altered(
        "a stored generated column becomes an ordinary one",
        "ALTER TABLE `t` MODIFY COLUMN `g` INT",
        12,
        (*ID_V_S_N[:3], "g INT"),
        ((2, 21, "TWO", 7), (3, 30, "three", 8)),
        base=created("(`id` INT PRIMARY KEY,`v` INT,`s` VARCHAR(20),`g` INT GENERATED ALWAYS AS(`v`*2) STORED)", _GS),
        before=Rows("t", lines((1, 10, "one", 20), (2, 20, "two", 40))),
        ends=[("1", "10", "one", "20"), ("2", "21", "TWO", "7"), ("3", "30", "three", "8")],
        lacks=["t.g stored"],
    ),
    Kind(
        name="a primary key on a generated column",
        story=[
            CREATE_DATABASE,
            created(
                "(`a` INT,`g` INT GENERATED ALWAYS AS(`a`+100) STORED PRIMARY KEY,`v` INT)",
                ["a INT", "g! INT", "v INT"],
                setup=False,
            ),
            Rows("t", lines((1, 101, 10), (2, 102, 20))),
        ],
        ends={"t": [("1", "101", "10"), ("2", "102", "20")]},
        on={"mariadb": "rewritten: generated primary key"},
        to_tidb=False,
    ),
]

KINDS = [*ADDED, *GENERATED]
