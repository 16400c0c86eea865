"""What only TiDB has."""

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

_OTHERS = ("mariadb", "mysql")
_BACK = "halted: .*the rows are in no file, and only TiDB can do this .* Reload what it names"
_FOREIGN = "halted: .*was not run, because TiCDC does not store such a statement"
_ONLY_TIDB = {**dict.fromkeys(_OTHERS, _BACK), "tidb": "halted: .*can not get 'tikv_gc_safe_point'"}
"""The servers of these tests have no TiKV that keeps what was dropped."""
_GONE: dict[str, list[tuple[str, ...]]] = {"other": []}
"""The table stays dropped; an empty one of another name is there."""
_AT = ("id! INT", "v INT", "at DATETIME")
_DATED = created("(`id` INT PRIMARY KEY,`v` INT,`at` DATETIME)", _AT)
_DATES = Rows("t", lines((1, 10, "2030-01-01 00:00:00"), (2, 20, "2030-01-01 00:00:00")))
_END = [("1", "10", "2030-01-01 00:00:00"), ("2", "20", "2030-01-01 00:00:00")]


def _made(
    name: str, body: str = BODY, options: str = "", columns: Any = USUAL, *, rows: Rows = TWO, **more: Any
) -> Kind:
    more.setdefault("ends", {"t": BEFORE})
    story: list[Item] = [CREATE_DATABASE, created(body, columns, options=options, setup=False)]
    story += [rows] if more["ends"]["t"] else []
    return Kind(name=name, story=story, **more)


def _only(name: str, query: str, note: str, kind: int = 5, **more: Any) -> Kind:
    """An ALTER TABLE that says nothing to other servers."""
    return altered(name, query, kind, on=dict.fromkeys(_OTHERS, f"skipped: {note}"), **more)


def _dated(name: str, query: str, kind: int, base: Ddl = _DATED, **more: Any) -> Kind:
    return altered(
        name,
        query,
        kind,
        _AT,
        (),
        base=base,
        before=_DATES,
        ends=_END,
        on=dict.fromkeys(_OTHERS, "skipped: attribute of TiDB"),
        **more,
    )


def _lone(name: str, query: str, **on: str) -> Kind:
    """A statement about something else than tables, in the database's directory."""
    story: list[Item] = [CREATE_DATABASE, created(), TWO, Ddl(query, 0, "")]
    return Kind(name=name, story=story, ends={"t": BEFORE}, on=on, to_tidb=not on.get("tidb"))


MADE = [
    _made(
        "VECTOR column",
        "(`id` INT PRIMARY KEY,`v` VECTOR(1))",
        columns=("id! INT", "v VECTOR"),
        rows=Rows("t", lines((1, "[1]"), (2, "[0.5]"))),
        ends={"t": [("1", "[1]"), ("2", "[0.5]")]},
        on=dict.fromkeys(_OTHERS, "rewritten: vector type"),
    ),
    _made(
        "a SEQUENCE as default",
        "(`id` INT PRIMARY KEY,`v` INT DEFAULT NEXT VALUE FOR `{db}`.`sq`,`s` VARCHAR(20))",
        on=dict.fromkeys(("mariadb", "mysql", "tidb"), "rewritten: sequence default"),
        to_tidb=False,
    ),
    _made(
        "options that TiDB alone heeds",
        options=" STATS_BUCKETS = 100 STATS_AUTO_RECALC = DEFAULT STATS_PERSISTENT = DEFAULT ENCRYPTION = 'N'",
        on=dict.fromkeys(_OTHERS, "rewritten: table option"),
    ),
]
_HIDDEN = (*USUAL, "_tidb_softdelete_time TIMESTAMP")
_SOFT = " /*T![softdelete] SOFTDELETE = RETENTION 7 DAY */ /*T![softdelete] SOFTDELETE_JOB_ENABLE = 'ON' */"
_STAYS = "halted: .*(?:keeps its deleted rows at the source for a while|soft delete is on for it).* ddl replace"
_UNKNOWN = "halted: .*feature .later., which this program does not know.* ddl replace"
_INDEXED = created("(`id` INT PRIMARY KEY,`v` INT,`s` VARCHAR(20),INDEX `iv`(`v`))")


def _refused(name: str, why: str, options: str = "", columns: Any = USUAL) -> Kind:
    """A CREATE TABLE that halts on every server."""
    servers = dict.fromkeys((*_OTHERS, "tidb"), why)
    story = (CREATE_DATABASE, created(BODY, columns, options=options, setup=False), TWO)
    return Kind(name=name, story=story, ends={"t": []}, on=servers, to_tidb=False)


MADE += [
    _made(
        "SPLIT of regions",
        "(`id` INT PRIMARY KEY,`v` INT,`s` VARCHAR(20),INDEX `iv`(`v`))",
        " /*T![region_split] SPLIT BETWEEN (-1.5) AND (1000000) REGIONS 4 */ /*T![region_split] SPLIT INDEX `iv` BETWEEN (0) AND (9) REGIONS 3 */",
        has=["t index iv(v)"],
    ),
    _made(
        "SPLIT of regions of partitions, as typed",
        options=" PARTITION BY HASH (`id`) PARTITIONS 2 SPLIT PRIMARY KEY BETWEEN (0) AND (9) REGIONS 4",
        on=dict.fromkeys((*_OTHERS, "tidb"), "rewritten: attribute of TiDB"),
        has=["t partition p1"],
        to_tidb=False,
    ),
    _made(
        "soft delete that is off",
        options=" /*T![active_active] ACTIVE_ACTIVE = 'OFF' */ /*T![softdelete] SOFTDELETE = 'OFF' */",
        on=dict.fromkeys((*_OTHERS, "tidb"), "rewritten: attribute of TiDB"),
    ),
    _refused("soft delete", _STAYS, _SOFT, _HIDDEN),
    _refused("soft delete as the database has it", _STAYS, columns=_HIDDEN),
    _refused("active-active", _STAYS, " ACTIVE_ACTIVE = 'ON'"),
    _refused("a feature of a later TiDB", _UNKNOWN, " /*T![later] LATER = 1 */"),
    Kind(
        name="CREATE and ALTER DATABASE with soft delete",
        story=[
            Ddl(
                "CREATE DATABASE `{db}` /*T![active_active] ACTIVE_ACTIVE='ON' */ /*T![softdelete] SOFTDELETE=RETENTION 7 DAY */",
                1,
                "",
            ),
            Ddl("ALTER DATABASE `{db}` /*T![softdelete] SOFTDELETE = 'OFF' */", 80, ""),
            created(),
            TWO,
        ],
        ends={"t": BEFORE},
        on={
            **dict.fromkeys(_OTHERS, "rewritten: database defaults; attribute of TiDB · skipped: attribute of TiDB"),
            "tidb": "rewritten: attribute of TiDB · skipped: attribute of TiDB",
        },
        to_tidb=False,
    ),
]
CHANGED = [
    altered(
        "SPLIT of an index",
        "ALTER TABLE `t` /*T![region_split] SPLIT INDEX `iv` BETWEEN (0) AND (9) REGIONS 3 */",
        84,
        base=_INDEXED,
        on=dict.fromkeys(_OTHERS, "skipped: attribute of TiDB"),
    ),
    altered(
        "SPLIT of an index, as typed, and a column",
        "ALTER TABLE `t` SPLIT INDEX `iv` BETWEEN (0) AND (9) REGIONS 3, ADD COLUMN `w` INT",
        61,
        (*USUAL, "w INT"),
        ((2, 21, "TWO", 1), (3, 30, "three", 2)),
        ends=[("1", "10", "one", None), ("2", "21", "TWO", "1"), ("3", "30", "three", "2")],
        base=_INDEXED,
        on=dict.fromkeys((*_OTHERS, "tidb"), "rewritten: attribute of TiDB"),
        to_tidb=False,
    ),
    altered(
        "soft delete changed",
        "ALTER TABLE `t` /*T![softdelete] SOFTDELETE = RETENTION 14 DAY */",
        79,
        on=dict.fromkeys((*_OTHERS, "tidb"), "skipped: attribute of TiDB"),
    ),
    _dated(
        "ALTER TABLE TTL",
        "ALTER TABLE `t` /*T![ttl] TTL = `at` + INTERVAL 1 DAY */ /*T![ttl] TTL_ENABLE = 'OFF' */",
        65,
    ),
    _dated("REMOVE TTL", "ALTER TABLE `t` /*T![ttl] REMOVE TTL */", 67),
    altered(
        "SET TIFLASH REPLICA",
        "ALTER TABLE `t` SET TIFLASH REPLICA 1",
        5,
        on=dict.fromkeys((*_OTHERS, "tidb"), "skipped: attribute of TiDB"),
        to_tidb=False,
    ),
    _only("CACHE", "ALTER TABLE `t` CACHE", "attribute of TiDB"),
    _only("NOCACHE", "ALTER TABLE `t` NOCACHE", "attribute of TiDB"),
    _only("ATTRIBUTES", "ALTER TABLE `t` ATTRIBUTES='merge_option=allow'", "table option"),
    _only(
        "SHARD_ROW_ID_BITS of a table",
        "ALTER TABLE `t` /*T! SHARD_ROW_ID_BITS = 4 */",
        "attribute of TiDB",
        base=created("(`id` INT PRIMARY KEY /*T![clustered_index] NONCLUSTERED */,`v` INT,`s` VARCHAR(20))"),
    ),
    _only("AUTO_ID_CACHE of a table", "ALTER TABLE `t` /*T![auto_id_cache] AUTO_ID_CACHE = 10 */", "attribute of TiDB"),
    _only(
        "AUTO_RANDOM_BASE of a table",
        "ALTER TABLE `t` /*T![auto_rand_base] AUTO_RANDOM_BASE = 1000 */",
        "attribute of TiDB",
        base=created("(`id` BIGINT PRIMARY KEY /*T![auto_rand] AUTO_RANDOM(5) */,`v` INT,`s` VARCHAR(20))"),
        to_tidb=False,
    ),
    altered(
        "ADD VECTOR INDEX",
        "ALTER TABLE `t` ADD VECTOR INDEX `vi`((VEC_COSINE_DISTANCE(`v`))) USING HNSW",
        7,
        ("id! INT", "v VECTOR"),
        (),
        base=created("(`id` INT PRIMARY KEY,`v` VECTOR(3))", ("id! INT", "v VECTOR")),
        before=Rows("t", ()),
        ends=[],
        on={**dict.fromkeys(_OTHERS, "skipped: search index"), "tidb": "halted: .*columnar replica must exist"},
        to_tidb=False,
    ),
    altered(
        "ADD COLUMN IF NOT EXISTS and an index",
        "ALTER TABLE `t` ADD COLUMN IF NOT EXISTS `v` INT, ADD INDEX IF NOT EXISTS `i`(`v`)",
        61,
        on={"mysql": "rewritten: IF EXISTS"},
        has=["t index i(v)"],
    ),
    altered("ENGINE", "ALTER TABLE `t` ENGINE = MyISAM", 5, on=dict.fromkeys(_OTHERS, "rewritten: storage engine")),
]
LONE = [
    _lone(
        "CREATE SEQUENCE",
        "CREATE SEQUENCE `sq` START WITH 1 MINVALUE 1 MAXVALUE 100 INCREMENT BY 1 CACHE 1000 NOCYCLE",
        mariadb="skipped: object of TiDB",
        mysql="skipped: object of TiDB",
        tidb=_FOREIGN,
    ),
    _lone(
        "CREATE PLACEMENT POLICY",
        "CREATE PLACEMENT POLICY `{db}` FOLLOWERS = 2",
        mariadb="skipped: object of TiDB",
        mysql="skipped: object of TiDB",
        tidb=_FOREIGN,
    ),
    _lone(
        "CREATE RESOURCE GROUP",
        "CREATE RESOURCE GROUP `{db}` RU_PER_SEC = 500",
        mariadb="skipped: object of TiDB",
        mysql="skipped: object of TiDB",
        tidb=_FOREIGN,
    ),
    _lone(
        "FLASHBACK CLUSTER",
        "FLASHBACK CLUSTER TO TIMESTAMP '2026-09-21 00:00:00'",
        **dict.fromkeys((*_OTHERS, "tidb"), _BACK),
    ),
    Kind(
        name="RECOVER TABLE",
        story=[
            CREATE_DATABASE,
            created(table="other"),
            created(),
            TWO,
            Ddl("DROP TABLE `{db}`.`t`", 4, setup=True),
            Ddl("RECOVER TABLE `t`", 25, "t", USUAL),
        ],
        ends={"t": BEFORE},
        on=_ONLY_TIDB,
        halted=_GONE,
        to_tidb=False,
    ),
    Kind(
        name="FLASHBACK TABLE",
        story=[
            CREATE_DATABASE,
            created(table="other"),
            created(),
            TWO,
            Ddl("DROP TABLE `{db}`.`t`", 4, setup=True),
            Ddl("FLASHBACK TABLE `t` TO `n`", 25, "n", USUAL),
        ],
        ends={"n": BEFORE},
        on=_ONLY_TIDB,
        halted=_GONE,
        to_tidb=False,
    ),
    _lone("FLASHBACK DATABASE", "FLASHBACK DATABASE `{db}` TO `{db}_3`", **{**_ONLY_TIDB, "tidb": _FOREIGN}),
]

KINDS = [*MADE, *CHANGED, *LONE]
