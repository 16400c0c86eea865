"""Databases, whole tables and views."""

from __future__ import annotations

from tests.campaigns.kinds.story import (
    BEFORE,
    BODY,
    CREATE_DATABASE,
    NOTHING,
    TWO,
    USUAL,
    Ddl,
    Kind,
    Rows,
    altered,
    created,
    lines,
)

THREE = Rows("t", lines((3, 30, "three")))
ONLY_THREE = [("3", "30", "three")]
ALL = [*BEFORE, *ONLY_THREE]
OTHER = "{db}_2"

DATABASES = [
    Kind(
        name="CREATE DATABASE",
        story=[Ddl("CREATE DATABASE `{db}`", 1, ""), created(), TWO],
        ends={"t": BEFORE},
        on={
            "mariadb": "rewritten: database defaults",
            "mysql": "rewritten: database defaults",
        },
        has=["database collation utf8mb4_bin", "t collation utf8mb4_bin", "t.s collation utf8mb4_bin"],
    ),
    Kind(
        name="CREATE DATABASE with a charset and collation",
        story=[
            Ddl("CREATE DATABASE IF NOT EXISTS `{db}` CHARACTER SET = utf8mb4 COLLATE = utf8mb4_general_ci", 1, ""),
            created(),
            TWO,
        ],
        ends={"t": BEFORE},
        has=["database collation utf8mb4_general_ci", "t.s collation utf8mb4_general_ci"],
    ),
    Kind(
        name="CREATE DATABASE with a charset alone",
        story=[Ddl("CREATE DATABASE `{db}` CHARACTER SET = utf8mb4", 1, ""), created(), TWO],
        ends={"t": BEFORE},
        on={
            "mariadb": "rewritten: charset without collation",
            "mysql": "rewritten: charset without collation",
        },
        has=["database collation utf8mb4_bin"],
    ),
    Kind(
        name="ALTER DATABASE charset",
        story=[
            CREATE_DATABASE,
            created(),
            TWO,
            Ddl("ALTER DATABASE `{db}` CHARACTER SET = utf8mb4 COLLATE = utf8mb4_general_ci", 26, ""),
            created(table="u"),
            Rows("u", lines((1, 1, "x"))),
            THREE,
        ],
        ends={"t": ALL, "u": [("1", "1", "x")]},
        has=["database collation utf8mb4_general_ci", "t.s collation utf8mb4_bin", "u.s collation utf8mb4_general_ci"],
    ),
    Kind(
        name="ALTER DATABASE charset alone",
        story=[CREATE_DATABASE, Ddl("ALTER DATABASE `{db}` CHARACTER SET = utf8mb4", 26, ""), created(), TWO],
        ends={"t": BEFORE},
        on={
            "mariadb": "rewritten: charset without collation",
            "mysql": "rewritten: charset without collation",
        },
        has=["database collation utf8mb4_bin"],
    ),
    Kind(
        name="DROP DATABASE",
        story=[CREATE_DATABASE, created(), TWO, Ddl("DROP DATABASE `{db}`", 2, "")],
        ends={},
        lacks=["table t", "database collation utf8mb4_bin"],
    ),
    Kind(
        name="DROP and CREATE DATABASE again",
        story=[
            CREATE_DATABASE,
            created(),
            TWO,
            Ddl("DROP DATABASE IF EXISTS `{db}`", 2, ""),
            Ddl("CREATE DATABASE `{db}`", 1, "", setup=True),
            created("(`id` INT PRIMARY KEY,`w` INT)", ["id! INT", "w INT"]),
            Rows("t", lines((7, 70))),
        ],
        ends={"t": [("7", "70")]},
        has=["t.w int"],
        lacks=["t.v int"],
    ),
]


def _two_tables(name: str, query: str, kind: int, **more: object) -> Kind:
    """Tables t and u, one statement in t's directory."""
    story = [CREATE_DATABASE, created(), created(table="u"), TWO, Rows("u", lines((1, 1, "x"))), Ddl(query, kind)]
    return Kind(name=name, story=story, **more)  # type: ignore[arg-type] # passed through


TABLES = [
    Kind(name="CREATE TABLE", story=[CREATE_DATABASE, created(setup=False), TWO], ends={"t": BEFORE}, has=["table t"]),
    Kind(
        name="CREATE TABLE IF NOT EXISTS",
        story=[CREATE_DATABASE, Ddl(f"CREATE TABLE IF NOT EXISTS `t` {BODY}", 3, "t", USUAL), TWO],
        on=dict.fromkeys(("mariadb", "mysql", "tidb"), "rewritten: IF NOT EXISTS"),
        ends={"t": BEFORE},
    ),
    Kind(
        name="CREATE TABLE with every option",
        story=[
            CREATE_DATABASE,
            created(
                "(`id` BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,`v` INT DEFAULT 7 COMMENT 'a \"v\"',`s` VARCHAR(20) CHARACTER SET "
                "UTF8MB4 COLLATE utf8mb4_general_ci NOT NULL DEFAULT _UTF8MB4'it''s',PRIMARY KEY(`id`),UNIQUE `uv`(`v`),INDEX `is`(`s`(5)))",
                ["id! BIGINT UNSIGNED", "v INT", "s VARCHAR(20) NOT NULL"],
                options=" ENGINE = InnoDB DEFAULT CHARACTER SET = UTF8MB4 DEFAULT COLLATE = UTF8MB4_BIN COMMENT = 'all of it' "
                "AUTO_INCREMENT = 100 ROW_FORMAT = DYNAMIC COMPRESSION = 'none'",
                setup=False,
            ),
            TWO,
        ],
        ends={"t": BEFORE},
        on={"mariadb": "rewritten: unknown option"},
        has=[
            "t comment all of it",
            "t.v default 7",
            'mariadb? t.v comment a "v"',
            "t.id bigint unsigned",
            "t.id auto_increment",
            "t unique uv(v)",
            "t index is(s(5))",
            "t.s collation utf8mb4_general_ci",
        ],
    ),
    Kind(
        name="CREATE TABLE LIKE",
        story=[
            CREATE_DATABASE,
            created("(`id` INT PRIMARY KEY,`v` INT,`s` VARCHAR(20),UNIQUE `uv`(`v`))", table="u"),
            Ddl("CREATE TABLE `t` LIKE `{db}`.`u`", 3, "t", USUAL),
            TWO,
        ],
        ends={"t": BEFORE, "u": []},
        has=["t unique uv(v)"],
    ),
    Kind(
        name="DROP TABLE",
        story=[CREATE_DATABASE, created(), TWO, Ddl("DROP TABLE `{db}`.`t`", 4)],
        ends={},
        lacks=["table t"],
    ),
    Kind(
        name="DROP TABLE of several",
        story=[
            *(CREATE_DATABASE, created(), created(table="u"), TWO),
            *(Ddl("DROP TABLE `{db}`.`t`", 4), Ddl("DROP TABLE `{db}`.`u`", 4, "u")),
        ],
        ends={},
        lacks=["table t", "table u"],
    ),
    Kind(
        name="DROP TABLE and CREATE TABLE again",
        story=[
            *(CREATE_DATABASE, created(), TWO, Ddl("DROP TABLE IF EXISTS `{db}`.`t`", 4)),
            *(created("(`id` INT PRIMARY KEY,`w` INT)", ["id! INT", "w INT"]), Rows("t", lines((7, 70)))),
        ],
        ends={"t": [("7", "70")]},
    ),
    Kind(
        name="RENAME TABLE",
        story=[
            *(CREATE_DATABASE, created(), TWO),
            *(Ddl("RENAME TABLE `{db}`.`t` TO `{db}`.`n`", 14, "n", USUAL), Rows("n", THREE.lines)),
        ],
        ends={"n": ALL},
        lacks=["table t"],
    ),
    Kind(
        name="RENAME TABLE to another database",
        story=[
            *(CREATE_DATABASE, Ddl("CREATE DATABASE `{db}_2`", 1, "", setup=True, database=OTHER), created(), TWO),
            Ddl("RENAME TABLE `{db}`.`t` TO `{db}_2`.`n`;", 14, "n", USUAL, database=OTHER),
            Rows("n", THREE.lines, database=OTHER),
        ],
        ends={"_2.n": ALL},
        lacks=["table t"],
    ),
    Kind(
        name="RENAME TABLE of several",
        story=[
            *(CREATE_DATABASE, created(), created(table="u"), TWO, Rows("u", lines((1, 1, "x")))),
            Ddl("RENAME TABLE `{db}`.`t` TO `{db}`.`t2`", 14, "t2", USUAL),
            Ddl("RENAME TABLE `{db}`.`u` TO `{db}`.`t`", 14, "t", USUAL),
            THREE,
        ],
        ends={"t": [("1", "1", "x"), ("3", "30", "three")], "t2": BEFORE},
        lacks=["table u"],
    ),
    _two_tables(
        "COMMENT of a table",
        "ALTER TABLE `t` COMMENT = 'it''s a \"comment\" 表'",
        17,
        ends={"t": BEFORE},
        has=['t comment it\'s a "comment" 表'],
    ),
    altered(
        "table charset, default only",
        "ALTER TABLE `t` CHARACTER SET UTF8MB4 COLLATE UTF8MB4_GENERAL_CI",
        22,
        has=["t collation utf8mb4_general_ci", "t.s collation utf8mb4_bin"],
    ),
    altered(
        "CONVERT TO CHARACTER SET",
        "ALTER TABLE `t` CONVERT TO CHARACTER SET UTF8MB4 COLLATE UTF8MB4_GENERAL_CI",
        22,
        has=["t collation utf8mb4_general_ci", "t.s collation utf8mb4_general_ci"],
    ),
    altered(
        "CONVERT TO CHARACTER SET without a collation",
        "ALTER TABLE `t` CONVERT TO CHARACTER SET UTF8MB4",
        22,
        base=created("(`id` INT PRIMARY KEY,`v` INT,`s` VARCHAR(20) CHARACTER SET UTF8 COLLATE utf8_general_ci)"),
        on={"mariadb": "rewritten: charset without collation", "mysql": "rewritten: charset without collation"},
        has=["t.s collation utf8mb4_bin"],
    ),
    altered(
        "CONVERT TO a collation of MySQL 8",
        "ALTER TABLE `t` CONVERT TO CHARACTER SET UTF8MB4 COLLATE UTF8MB4_0900_AI_CI",
        22,
        on={"mariadb": "rewritten: newer collation"},
        has=["mysql? t.s collation utf8mb4_0900_ai_ci", "mariadb? t.s collation utf8mb4_uca1400_nopad_ai_ci"],
    ),
    Kind(
        name="a structure without a statement",
        to_tidb=False,
        story=[CREATE_DATABASE, Ddl("", 0, "t", USUAL), TWO],
        ends={"t": BEFORE},
        on=dict.fromkeys(("mariadb", "mysql", "tidb"), "rewritten: created from the columns"),
        has=["t primary key(id)", "t.s varchar(20)", "t collation utf8mb4_bin"],
    ),
    Kind(
        name="a structure without a statement, of a known table",
        story=[CREATE_DATABASE, created(), TWO, Ddl("", 0, "t", USUAL), THREE],
        ends={"t": ALL},
        on=dict.fromkeys(("mariadb", "mysql", "tidb"), NOTHING),
    ),
    altered(
        "ALTER TABLE without an action",
        "ALTER TABLE `t`",
        5,
        on=dict.fromkeys(("mariadb", "mysql", "tidb"), "skipped: an ALTER TABLE without any action"),
    ),
]

KINDS = [*DATABASES, *TABLES]
