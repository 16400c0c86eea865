"""Foreign keys: what the target does not take of one, or refuses for one, holds nothing up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.campaigns.kinds.story import CREATE_DATABASE, Ddl, Item, Kind, Rows, created, lines

_OTHERS = ("mariadb", "mysql")
_ALL = (*_OTHERS, "tidb")
_PARENT = created("(`id` INT PRIMARY KEY)", ["id! INT"], table="p")
_COLUMNS = ("id! INT", "pid INT")
_KEY = "CONSTRAINT `c_p` FOREIGN KEY (`pid`) REFERENCES `p`(`id`)"
_CHILD = created(f"(`id` INT PRIMARY KEY,`pid` INT,{_KEY})", _COLUMNS)
_BEFORE = [("1", "1")]


def _child(body: str, columns: Sequence[str] = _COLUMNS, options: str = "", *, setup: bool = True) -> Ddl:
    return created(f"(`id` INT PRIMARY KEY,{body})", columns, options=options, setup=setup)


def _family(  # noqa: PLR0913 - a story in one line
    name: str,
    *then: Ddl,
    child: Ddl = _CHILD,
    parent: Ddl = _PARENT,
    row: Sequence[object] = (1, 1),
    last: Sequence[object] = (2, 1),
    ends: Sequence[tuple[str | None, ...]] = (("1", "1"), ("2", "1")),
    on: dict[str, str] | None = None,
    has: Sequence[str] = (),
    lacks: Sequence[str] = (),
    parent_first: bool = True,
    more: Sequence[Item] = (),
    to_tidb: bool = False,
) -> Kind:
    """A parent and a child with a row each, statements, and a row of the child after them."""
    story: list[Item] = [CREATE_DATABASE, *((parent, child) if parent_first else (child, parent)), *more]
    story += [Rows("p", lines((1,))), Rows("t", lines(row)), *then, Rows("t", lines(last))]
    return Kind(
        name=name, story=story, ends={"t": ends, "p": [("1",)]}, on=on or {}, has=has, lacks=lacks, to_tidb=to_tidb
    )


def _then(query: str, kind: int, columns: Sequence[str] = _COLUMNS, table: str = "t") -> Ddl:
    return Ddl(query, kind, table, columns)


def _executed(why: str, *servers: str) -> dict[str, str]:
    """The statement is sent as it is, once what is in the way is gone."""
    return dict.fromkeys(servers, f"executed ({why}")


_IN_THE_WAY = "foreign key in the way"
_LEFT_OUT = "rewritten: foreign key left out"
_BIG = created("(`id` BIGINT PRIMARY KEY)", ["id! BIGINT"], table="p")
_INDEX = _then("CREATE INDEX `idx` ON `t` (`pid`)", 7)

IN_THE_WAY = [
    _family(
        "foreign key, then DROP COLUMN",
        _then("ALTER TABLE `t` DROP COLUMN `pid`", 6, ["id! INT"]),
        last=(2,),
        ends=[("1",), ("2",)],
        on=_executed(_IN_THE_WAY, *_ALL),
        lacks=["t foreign key c_p"],
    ),
    _family(
        "foreign key, then DROP INDEX of its unique index",
        _then("ALTER TABLE `t` DROP INDEX `uk`", 8),
        child=_child(f"`pid` INT,UNIQUE KEY `uk`(`pid`),{_KEY}"),
        on=_executed(_IN_THE_WAY, "mysql", "tidb"),
        lacks=["t unique uk(pid)"],
    ),
    _family(
        "foreign key, an index beside its own, which goes",
        _INDEX,
        _then("ALTER TABLE `t` DROP INDEX `idx`", 8),
        on={"mysql": f"executed · executed ({_IN_THE_WAY}"},
        lacks=["t index idx(pid)"],
        to_tidb=True,
    ),
    _family(
        "foreign key, its own index goes, another stays",
        _INDEX,
        _then("ALTER TABLE `t` DROP INDEX `c_p`", 8),
        on=dict.fromkeys(_OTHERS, "executed · skipped: missing index"),
        has=["t index idx(pid)", "t foreign key c_p"],
        to_tidb=True,
    ),
    _family(
        "foreign key, its own index gets another name",
        _then("ALTER TABLE `t` RENAME INDEX `c_p` TO `other`", 18),
        has=["t index other(pid)", "t foreign key c_p"],
        to_tidb=True,
    ),
    _family(
        "foreign key without an index of its own at the source",
        _then("ALTER TABLE `t` ADD INDEX `c_p`(`id`,`pid`)", 7),
        on=_executed(_IN_THE_WAY, *_ALL),
        has=["t index c_p(id,pid)", "t foreign key c_p"],
    ),
    _family(
        "foreign key, MODIFY of its column",
        _then("ALTER TABLE `t` MODIFY COLUMN `pid` BIGINT", 12, ["id! INT", "pid BIGINT"]),
        on=_executed(_IN_THE_WAY, *_ALL),
        has=["t.pid bigint"],
    ),
    _family(
        "foreign key, CHANGE of its column",
        _then("ALTER TABLE `t` CHANGE COLUMN `pid` `q` BIGINT", 12, ["id! INT", "q BIGINT"]),
        on=_executed(_IN_THE_WAY, *_ALL),
        has=["t.q bigint"],
    ),
    _family(
        "foreign key SET NULL, its column becomes NOT NULL",
        _then("ALTER TABLE `t` MODIFY COLUMN `pid` INT NOT NULL", 12),
        child=_child(f"`pid` INT,{_KEY} ON DELETE SET NULL"),
        on=_executed(_IN_THE_WAY, *_OTHERS),
        has=["t.pid not null"],
        to_tidb=True,
    ),
    _family(
        "foreign key, ALTER TABLE PARTITION BY of the child",
        _then("ALTER TABLE `t` PARTITION BY HASH (`id`) PARTITIONS 2", 71),
        on=_executed(_IN_THE_WAY, *_OTHERS),
        has=["t partition p1"],
        to_tidb=True,
    ),
    _family(
        "foreign key, ALTER TABLE PARTITION BY of the parent",
        _then("ALTER TABLE `p` PARTITION BY HASH (`id`) PARTITIONS 2", 71, ["id! INT"], "p"),
        on=_executed(_IN_THE_WAY, *_OTHERS),
        has=["p partition p1"],
    ),
    _family(
        "foreign key, the parent's unique key goes",
        _then("ALTER TABLE `u` DROP INDEX `ux`", 8, ["id! INT", "x INT"], "u"),
        more=[created("(`id` INT PRIMARY KEY,`x` INT,UNIQUE KEY `ux`(`x`))", ["id! INT", "x INT"], table="u")],
        child=_child("`pid` INT,CONSTRAINT `c_u` FOREIGN KEY (`pid`) REFERENCES `u`(`x`)"),
        on=_executed(_IN_THE_WAY, "mysql", "tidb"),
        lacks=["u unique ux(x)"],
    ),
    _family(
        "foreign key, the parent's column changes and goes",
        _then("ALTER TABLE `u` MODIFY COLUMN `x` BIGINT", 12, ["id! INT", "x BIGINT"], "u"),
        _then("ALTER TABLE `u` DROP COLUMN `x`", 6, ["id! INT"], "u"),
        more=[created("(`id` INT PRIMARY KEY,`x` INT,UNIQUE KEY `ux`(`x`))", ["id! INT", "x INT"], table="u")],
        child=_child("`pid` INT,CONSTRAINT `c_u` FOREIGN KEY (`pid`) REFERENCES `u`(`x`)"),
        on=dict.fromkeys(_ALL, f"executed ({_IN_THE_WAY} · executed"),
        lacks=["u.x bigint", "t foreign key c_u"],
    ),
    _family(
        "foreign key, a parent that is created again without its key",
        _then("DROP TABLE `u`", 4, (), "u"),
        Ddl("CREATE TABLE `u` (`id` INT PRIMARY KEY,`x` INT)", 3, "u", ["id! INT", "x INT"]),
        more=[created("(`id` INT PRIMARY KEY,`x` INT,UNIQUE KEY `ux`(`x`))", ["id! INT", "x INT"], table="u")],
        child=_child("`pid` INT,CONSTRAINT `c_u` FOREIGN KEY (`pid`) REFERENCES `u`(`x`)"),
        on={"mysql": f"executed · executed ({_IN_THE_WAY}", "tidb": f"executed · executed ({_IN_THE_WAY}"},
        has=["table u"],
    ),
    _family(
        "foreign key, a parent of another type that comes later",
        parent=Ddl("CREATE TABLE `p` (`id` BIGINT PRIMARY KEY)", 3, "p", ["id! BIGINT"]),
        parent_first=False,
        on={**_executed(_IN_THE_WAY, "mysql", "tidb"), "mariadb": "executed"},
        has=["table p"],
    ),
    _family(
        "foreign key to the table itself, whose key changes",
        _then("ALTER TABLE `t` MODIFY COLUMN `id` BIGINT NOT NULL", 12, ["id! BIGINT", "pid INT"]),
        child=_child("`pid` INT,CONSTRAINT `c_t` FOREIGN KEY (`pid`) REFERENCES `t`(`id`)"),
        on=_executed(_IN_THE_WAY, *_ALL),
        has=["t.id bigint"],
    ),
    _family(
        "foreign key, EXCHANGE PARTITION with its table",
        _then("ALTER TABLE `x` EXCHANGE PARTITION `p0` WITH TABLE `t`", 42, table="x"),
        more=[
            created(
                "(`id` INT PRIMARY KEY,`pid` INT,INDEX `c_p`(`pid`))",
                _COLUMNS,
                table="x",
                options=" PARTITION BY RANGE (`id`) (PARTITION `p0` VALUES LESS THAN (9))",
            ),
        ],
        last=(2, 1),
        ends=[("2", "1")],
        on=_executed(_IN_THE_WAY, *_ALL),
    ),
    _family(
        "foreign keys, of which one is in the way",
        _then("ALTER TABLE `t` DROP COLUMN `pid`", 6, ["id! INT", "q INT"]),
        child=_child(
            f"`pid` INT,`q` INT,{_KEY},CONSTRAINT `c_q` FOREIGN KEY (`q`) REFERENCES `p`(`id`)",
            ["id! INT", "pid INT", "q INT"],
        ),
        row=(1, 1, 7),
        ends=[("1", "7"), ("2", "1")],
        on=_executed(_IN_THE_WAY, *_ALL),
        has=["t foreign key c_q"],
        lacks=["t foreign key c_p"],
    ),
]


def _made(name: str, body: str, *then: Ddl, options: str = "", columns: Sequence[str] = _COLUMNS, **more: Any) -> Kind:
    """A child whose own statement has a key that the target refuses."""
    return _family(name, *then, child=_child(body, columns, options, setup=False), **more)


LEFT_OUT = [
    _made(
        "foreign key, parent of another integer",
        f"`pid` INT,{_KEY}",
        parent=_BIG,
        on=dict.fromkeys(_ALL, _LEFT_OUT),
        has=["t index c_p(pid)"],
        lacks=["t foreign key c_p"],
    ),
    _made(
        "foreign key left out, then dropped with its index",
        f"`pid` INT,{_KEY}",
        _then("ALTER TABLE `t` DROP FOREIGN KEY `c_p`", 10),
        _then("ALTER TABLE `t` DROP INDEX `c_p`", 8),
        parent=_BIG,
        on={
            **dict.fromkeys(_OTHERS, f"{_LEFT_OUT} · skipped: missing foreign key · executed"),
            "tidb": f"{_LEFT_OUT} · {_LEFT_OUT} · executed",
        },
        lacks=["t index c_p(pid)"],
    ),
    _made(
        "foreign key SET NULL on NOT NULL",
        f"`pid` INT NOT NULL,{_KEY} ON DELETE SET NULL",
        columns=("id! INT", "pid INT NOT NULL"),
        on=dict.fromkeys(_ALL, _LEFT_OUT),
        has=["t index c_p(pid)", "t.pid not null"],
    ),
    _made(
        "foreign key of a partitioned table",
        f"`pid` INT,{_KEY}",
        options=" PARTITION BY HASH (`id`) PARTITIONS 2",
        on=dict.fromkeys(_ALL, _LEFT_OUT),
        has=["t partition p1", "t index c_p(pid)"],
    ),
    _made(
        "foreign key to a partitioned table",
        f"`pid` INT,{_KEY}",
        parent=created(
            "(`id` INT PRIMARY KEY)", ["id! INT"], table="p", options=" PARTITION BY HASH (`id`) PARTITIONS 2"
        ),
        on={"mysql": _LEFT_OUT, "tidb": _LEFT_OUT},
    ),
    _made(
        "foreign key to a column without an index, and to none",
        "`pid` INT,CONSTRAINT `a` FOREIGN KEY (`pid`) REFERENCES `u`(`x`),CONSTRAINT `b` FOREIGN KEY (`pid`) REFERENCES `u`(`none`)",
        more=[created("(`id` INT PRIMARY KEY,`x` INT)", ["id! INT", "x INT"], table="u")],
        parent_first=True,
        on=dict.fromkeys(_ALL, "executed"),
    ),
    _made(
        "foreign key with a column that is not there",
        "`pid` INT,CONSTRAINT `a` FOREIGN KEY (`none`) REFERENCES `p`(`id`)",
        on=dict.fromkeys(_ALL, _LEFT_OUT),
    ),
    _made(
        "foreign key ON UPDATE CASCADE of a generated column",
        "`pid` INT,`g` INT GENERATED ALWAYS AS (`pid`+1) STORED,CONSTRAINT `c_p` FOREIGN KEY (`g`) REFERENCES `p`(`id`) ON UPDATE CASCADE",
        columns=("id! INT", "pid INT", "g= INT"),
        row=(1, 1, 2),
        last=(2, 1, 2),
        ends=[("1", "1", "2"), ("2", "1", "2")],
        on=dict.fromkeys(_ALL, _LEFT_OUT),
        has=["t index c_p(g)"],
    ),
    _made(
        "foreign keys, of which one can be held",
        f"`pid` INT,`q` INT,{_KEY},CONSTRAINT `c_b` FOREIGN KEY (`q`) REFERENCES `p`(`id`) ON DELETE SET NULL,CHECK(`q`>0)".replace(
            "`q` INT", "`q` INT NOT NULL"
        ),
        columns=("id! INT", "pid INT", "q INT NOT NULL"),
        row=(1, 1, 3),
        last=(2, 1, 3),
        ends=[("1", "1", "3"), ("2", "1", "3")],
        on={**dict.fromkeys(_OTHERS, "rewritten: check constraint; foreign key left out"), "tidb": _LEFT_OUT},
        has=["mysql? t foreign key c_p", "tidb? t foreign key c_p", "t index c_b(q)"],
        lacks=["t foreign key c_b"],
    ),
    _family(
        "ADD FOREIGN KEY that the target cannot hold, with a column",
        _then(f"ALTER TABLE `t` ADD COLUMN `v` INT, ADD {_KEY}", 61, (*_COLUMNS, "v INT")),
        child=_child("`pid` INT"),
        parent=_BIG,
        last=(2, 1, 5),
        ends=[("1", "1", None), ("2", "1", "5")],
        on=dict.fromkeys(_ALL, _LEFT_OUT),
        has=["t.v int", "t index c_p(pid)"],
    ),
    _family(
        "ADD FOREIGN KEY of a name that is too long",
        _then(f"ALTER TABLE `t` ADD CONSTRAINT `{'k' * 64}` FOREIGN KEY (`pid`) REFERENCES `p`(`id`)", 9),
        child=_child("`pid` INT"),
        more=[
            created(
                f"(`id` INT PRIMARY KEY,`pid` INT,CONSTRAINT `{'k' * 64}` FOREIGN KEY (`pid`) REFERENCES `p`(`id`))",
                _COLUMNS,
                table="o",
            )
        ],
        on=dict.fromkeys(_OTHERS, "rewritten: foreign key name"),
        has=[f"mysql? t foreign key t_{'k' * 62}"],
        to_tidb=True,
    ),
    _family(
        "DROP FOREIGN KEY that may be one of two",
        _then("ALTER TABLE `t` DROP FOREIGN KEY `fk`", 10),
        child=_child(
            "`pid` INT,CONSTRAINT `a_fk` FOREIGN KEY (`pid`) REFERENCES `p`(`id`),CONSTRAINT `b_fk` FOREIGN KEY (`pid`) REFERENCES `p`(`id`)"
        ),
        on=dict.fromkeys(_ALL, _LEFT_OUT),
        has=["t foreign key a_fk", "t foreign key b_fk"],
    ),
]

KINDS = [*IN_THE_WAY, *LEFT_OUT]
