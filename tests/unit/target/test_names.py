"""What TiDB says or names in its own way, and what other servers get instead."""

from __future__ import annotations

import pytest

from storage_consumer.errors import NotReplicable
from storage_consumer.sql.tokens import tokens
from storage_consumer.target.ddl.translate import DdlAction, action_for
from storage_consumer.target.existing_names import PartNames, takes_rows_of_partitions, to_integers
from tests.unit.building import definition

BOTH = ("mysql", "mariadb")
THERE = PartNames(
    columns=frozenset(("id", "a", "s", "g")),
    generated=frozenset(("g",)),
    indexes=frozenset(("primary", "i")),
    foreign_keys=frozenset(("own", "t_fk_1")),
    other_foreign_keys=frozenset(("fk",)),
    collation="utf8mb4_bin",
)
"""The table ``t`` on the target."""


def action(query: str, server_type: str) -> DdlAction:
    """What is run for a statement on that table."""
    return action_for(definition("s/t", 1, query), server_type, "utf8mb4_bin", THERE)


CHANGED = [
    (
        BOTH,
        "collation of new columns",
        "ALTER TABLE `t` ADD COLUMN `n` TEXT NOT NULL, ADD COLUMN (`m` INT, `k` CHAR(5) COLLATE ascii_bin), DEFAULT COLLATE = UTF8MB4_GENERAL_CI",
        "ALTER TABLE `t` ADD COLUMN `n` TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, ADD COLUMN (`m` INT, `k` CHAR(5) COLLATE ascii_bin), DEFAULT COLLATE = UTF8MB4_GENERAL_CI",
    ),
    (BOTH, "index option", "CREATE INDEX `k` ON `t` (`a` DESC) USING HASH COMMENT 'x'", "CREATE INDEX `k` ON `t` (`a` DESC)  COMMENT 'x'"),
    (("mariadb",), "columns of an expression index", "ALTER TABLE `t` ADD UNIQUE(`s`, (LOWER(`a`)), `a`) COMMENT 'x'", "ALTER TABLE `t` ADD INDEX(`s`, `a`) COMMENT 'x'"),
    (("mariadb",), "generated primary key", "ALTER TABLE `t` ADD PRIMARY KEY(`g`)", "ALTER TABLE `t` ADD UNIQUE KEY `primary_key`(`g`)"),
    (BOTH, "table option", "CREATE TABLE `t` (`a` INT) STATS_BUCKETS = 9 COMMENT = 'x' ENCRYPTION 'Y'", "CREATE TABLE `t` (`a` INT)  COMMENT = 'x'"),
    (BOTH, "table option", "ALTER TABLE `t` ATTRIBUTES='a=b'", ""),
    (
        BOTH,
        "table option",
        "CREATE TABLE `t` (`a` INT) PARTITION BY HASH(`a`) (PARTITION `p` DATA DIRECTORY = '/d' COMMENT = 'c')",
        "CREATE TABLE `t` (`a` INT) PARTITION BY HASH(`a`) (PARTITION `p`  COMMENT = 'c')",
    ),
    (("mariadb",), "unknown option", "CREATE TABLE `t` (`compression` INT) COMPRESSION = 'none'", "CREATE TABLE `t` (`compression` INT)"),
    (("mariadb",), "validation", "ALTER TABLE `t` EXCHANGE PARTITION `p` WITH TABLE `x` WITHOUT VALIDATION", "ALTER TABLE `t` EXCHANGE PARTITION `p` WITH TABLE `x`"),
    (("mysql",), "index name", "ALTER TABLE `t` ADD UNIQUE((LOWER(`s`)))", "ALTER TABLE `t` ADD UNIQUE `expression_index`((LOWER(`s`)))"),
    (
        ("mysql",),
        "index name",
        "ALTER TABLE `t` ADD INDEX(`i`, (`a`+1)), ADD INDEX((`a`)), ADD UNIQUE KEY ((`a`))",
        "ALTER TABLE `t` ADD INDEX `i_2`(`i`, (`a`+1)), ADD INDEX `expression_index`((`a`)), ADD UNIQUE KEY  `expression_index_2`((`a`))",
    ),
    (
        ("mysql",),
        "index name",
        "CREATE TABLE `t` (`a` INT,KEY `expression_index`((`a`+1)),KEY(`a`, (`a`+2)),KEY(`a`))",
        "CREATE TABLE `t` (`a` INT,KEY `expression_index`((`a`+1)),KEY `expression_index_2`(`a`, (`a`+2)),KEY(`a`))",
    ),
    (BOTH, "foreign key name", "ALTER TABLE `t` ADD FOREIGN KEY (`a`) REFERENCES `p`(`id`)", "ALTER TABLE `t` ADD CONSTRAINT `t_fk_3` FOREIGN KEY (`a`) REFERENCES `p`(`id`)"),
    (BOTH, "foreign key name", "ALTER TABLE `t` ADD CONSTRAINT FOREIGN KEY `x` (`a`) REFERENCES `p`(`id`)", "ALTER TABLE `t` ADD CONSTRAINT `t_x` FOREIGN KEY `x` (`a`) REFERENCES `p`(`id`)"),
    (BOTH, "foreign key name", "ALTER TABLE `t` ADD CONSTRAINT `fk` FOREIGN KEY (`a`) REFERENCES `p`(`id`)", "ALTER TABLE `t` ADD CONSTRAINT `t_fk` FOREIGN KEY (`a`) REFERENCES `p`(`id`)"),
    (BOTH, "foreign key name", "ALTER TABLE `t` DROP FOREIGN KEY `fk_1`", "ALTER TABLE `t` DROP FOREIGN KEY `t_fk_1`"),
    (BOTH, "missing foreign key", "ALTER TABLE `t` DROP FOREIGN KEY `fk_7`, DROP COLUMN `a`", "ALTER TABLE `t`  DROP COLUMN `a`"),
    (BOTH, "global index", "CREATE TABLE `t` (`a` INT UNIQUE KEY /*T![global_index] GLOBAL */,`b` INT UNIQUE)", "CREATE TABLE `t` (`a` INT  /*T![global_index] GLOBAL */,`b` INT UNIQUE)"),
    (BOTH, "global index", "CREATE TABLE `t` (`a` INT,UNIQUE `u`(`a`) /*T![global_index] GLOBAL */)", "CREATE TABLE `t` (`a` INT /*T![global_index] GLOBAL */)"),
    (BOTH, "global index", "ALTER TABLE `t` ADD UNIQUE `u`(`a`) /*T![global_index] GLOBAL */", ""),
    (BOTH, "global index", "ALTER TABLE `t` PARTITION BY HASH (`a`) PARTITIONS 2 UPDATE INDEXES (`u` GLOBAL)", "ALTER TABLE `t` PARTITION BY HASH (`a`) PARTITIONS 2"),
    ((*BOTH, "tidb"), "attribute of TiDB", "ALTER TABLE `t` SET TIFLASH REPLICA 2", ""),
    (BOTH, "attribute of TiDB", "ALTER TABLE `t` NOCACHE", ""),
    (BOTH, "attribute of TiDB", "ALTER TABLE `t` /*T![ttl] REMOVE TTL */", ""),
    (BOTH, "object of TiDB", "CREATE SEQUENCE `q` CACHE 9", ""),
    (BOTH, "object of TiDB", "DROP PLACEMENT POLICY `q`", ""),
    (("mysql",), "IF EXISTS", "ALTER TABLE `t` ADD COLUMN IF NOT EXISTS `b` INT", "ALTER TABLE `t` ADD COLUMN  `b` INT"),
    (("mysql",), "IF EXISTS", "ALTER TABLE `t` ADD COLUMN IF NOT EXISTS `a` INT, DROP INDEX IF EXISTS `i`", "ALTER TABLE `t`  DROP INDEX  `i`"),
    (("mysql",), "IF EXISTS", "ALTER TABLE `t` DROP COLUMN IF EXISTS `b`", ""),
    (("mysql",), "IF EXISTS", "ALTER TABLE `t` DROP PARTITION IF EXISTS `p`", "ALTER TABLE `t` DROP PARTITION  `p`"),
    (("mysql",), "IF EXISTS", "CREATE INDEX IF NOT EXISTS `j` ON `t` (`a`)", "CREATE INDEX  `j` ON `t` (`a`)"),
    ((*BOTH, "tidb"), "IF NOT EXISTS", "CREATE TABLE IF NOT EXISTS `t` LIKE `s`", "CREATE TABLE `t` LIKE `s`"),
    (("mariadb",), "JSON NOT NULL", "ALTER TABLE `t` ADD COLUMN (`j` JSON NOT NULL,`k` JSON), ADD COLUMN `l` JSON NOT NULL FIRST", "ALTER TABLE `t` ADD COLUMN (`j` JSON DEFAULT 'null' NOT NULL,`k` JSON), ADD COLUMN `l` JSON DEFAULT 'null' NOT NULL FIRST"),
    (BOTH, "linear partitions", "CREATE TABLE `t` (`a` INT) PARTITION BY LINEAR HASH (`a`) PARTITIONS 3", "CREATE TABLE `t` (`a` INT) PARTITION BY HASH (`a`) PARTITIONS 3"),
    (("mariadb",), "unique expression index", "ALTER TABLE `t` ADD UNIQUE `u`((LOWER(`s`)))", ""),
    (
        BOTH,
        "virtual column of n",
        "ALTER TABLE `t` ADD COLUMN `n` DOUBLE AS (`a`/3)",
        "ALTER TABLE `t` ADD COLUMN `n` DOUBLE AS (`a`/3)",
    ),
    (
        (*BOTH, "tidb"),
        "random default of n",
        "ALTER TABLE `t` ADD COLUMN `n` VARCHAR(40) DEFAULT (UUID())",
        "ALTER TABLE `t` ADD COLUMN `n` VARCHAR(40) DEFAULT (UUID())",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("flavors", "difference", "query", "expected"), CHANGED)
def test_changed(flavors: tuple[str, ...], difference: str, query: str, expected: str) -> None:
    """A statement that other servers read in another way is changed and noted there, and runs as it is elsewhere."""
    for server_type in (*BOTH, "tidb"):
        found = action(query, server_type)
        if server_type in flavors:
            assert (found.statement, found.notes) == (expected, (difference,))
        else:
            assert difference not in found.notes


AS_TYPED = [
    (BOTH, "foreign key name", "alter table t add constraint fk foreign key (a) references p(id)", "alter table t add constraint `t_fk` foreign key (a) references p(id)"),
    (BOTH, "foreign key name", "alter table t add constraint foreign key x (a) references p(id)", "alter table t add CONSTRAINT `t_x` foreign key x (a) references p(id)"),
    (BOTH, "foreign key name", "alter table t add foreign key(a) references p(id)", "alter table t add CONSTRAINT `t_fk_3` foreign key(a) references p(id)"),
    (BOTH, "foreign key name", "create table t (a int, constraint fk foreign key(a) references p(id))", "create table t (a int, constraint `t_fk` foreign key(a) references p(id))"),
    (BOTH, "foreign key name", "alter table t drop foreign key fk_1", "alter table t drop foreign key `t_fk_1`"),
    (("mysql",), "index name", "alter table t add index(i, (a+1)), add key expression_index (a), add key((a))", "alter table t add index `i_2`(i, (a+1)), add key expression_index (a), add key `expression_index_2`((a))"),
    (BOTH, "check constraint", "alter table t add constraint c check (a > 0)", ""),
    (BOTH, "check constraint", "create table t (a int constraint c check (a > 0) not enforced, b int)", "create table t (a int , b int)"),
    (("mariadb",), "JSON NOT NULL", "alter table t add j json not null, add column (k json not null, l json)", "alter table t add j json DEFAULT 'null' not null, add column (k json DEFAULT 'null' not null, l json)"),
    (("mariadb",), "invisible index", "alter table t add visible int, alter index i visible", "alter table t add visible int, alter index i NOT IGNORED"),
    (BOTH, "storage engine", "alter table t add column engine int, change a engine int, engine = MyISAM", "alter table t add column engine int, change a engine int, engine = InnoDB"),
]  # fmt: skip
"""Names without backquotes and small keywords: what older versions of TiCDC store is what someone typed."""


@pytest.mark.parametrize(("flavors", "difference", "query", "expected"), AS_TYPED)
def test_changed_as_typed(flavors: tuple[str, ...], difference: str, query: str, expected: str) -> None:
    """What was typed is read like what TiCDC writes anew."""
    test_changed(flavors, difference, query, expected)


UNCHANGED = [
    "alter table t add constraint new foreign key (a) references p(id)",
    "alter table t drop foreign key own",
    "alter table t add column engine varchar(20), add attributes json, change column a encryption int",
    "create table t (id int primary key, ttl int, cache int, placement int)",
    "create index algorithm on t (a)",
    "alter table t modify json text not null, add column (json int not null)",
    "ALTER TABLE `t` DROP FOREIGN KEY `own`",
    "ALTER TABLE `t` ADD COLUMN `j` JSON DEFAULT (JSON_ARRAY()) NOT NULL, MODIFY COLUMN `s` JSON NOT NULL",
    "CREATE TABLE `t` (`j` JSON NOT NULL)",
    "ALTER TABLE `t` ADD CONSTRAINT `new` FOREIGN KEY (`a`) REFERENCES `p`(`id`)",
    "CREATE TABLE `t` (`stats_buckets` INT COMMENT 'data directory',`cache` INT)",
    "ALTER TABLE `t` ADD INDEX(`a`)",
    "ALTER TABLE `t` ADD COLUMN `ttl` INT DEFAULT (1+1)",
    "ALTER TABLE `t` ADD COLUMN `uuid` INT DEFAULT 3",
    "DROP TABLE IF EXISTS `s`.`t`",
    "ALTER TABLE `t` ADD COLUMN `g` INT GENERATED ALWAYS AS(IF(`a`>1, 1, 2)) STORED",
    "ALTER TABLE `t` ADD COLUMN `d` INT DEFAULT (IF(1, 2, 3))",
    "CREATE TABLE `t` (`a` INT,`u` VARCHAR(36) DEFAULT (UUID()))",
    "CREATE TABLE `t` (`global` INT,UNIQUE `u`(`global`))",
]


@pytest.mark.parametrize("query", UNCHANGED)
@pytest.mark.parametrize("server_type", [*BOTH, "tidb"])
def test_unchanged(query: str, server_type: str) -> None:
    """What only looks alike stays as it is."""
    assert (action(query, server_type).statement, action(query, server_type).notes) == (query, ())


@pytest.mark.parametrize("condition", ["IF NOT EXISTS ", "/*T! IF NOT EXISTS  */", "/*T! IF NOT EXISTS */ "])
def test_conditions_of_the_source(condition: str) -> None:
    """IF NOT EXISTS counts also in the comment in which TiDB's parser writes it, but not in a string."""
    query = f"ALTER TABLE `t` ADD COLUMN {condition}`a` INT, ADD COLUMN `n` INT COMMENT '/*T! IF EXISTS */'"
    assert action(query, "mysql").statement == "ALTER TABLE `t`  ADD COLUMN `n` INT COMMENT '/*T! IF EXISTS */'"
    words = action(query, "mariadb").statement.split()
    assert words[3:9] == ["ADD", "COLUMN", "IF", "NOT", "EXISTS", "`a`"]
    assert "/*T! IF EXISTS */" in words[-4:][0] + " ".join(words[-4:])
    assert action(query, "tidb").statement == query


def test_comment_that_tidb_heeds() -> None:
    """A statement that says something to TiDB alone runs there."""
    query = "ALTER TABLE `t` /*T![ttl] REMOVE TTL */"
    assert action(query, "tidb").statement == query


def test_flashback_of_a_cluster_runs_nowhere() -> None:
    """It would take the target's other databases and our own state back as well."""
    with pytest.raises(NotReplicable, match=r"FLASHBACK CLUSTER .* Reload what it names"):
        action("FLASHBACK CLUSTER TO TIMESTAMP '2026-09-21 00:00:00'", "tidb")


def test_texts_with_fractions_become_no_integers_on_mariadb() -> None:
    """MariaDB would cut what the source rounded: the table stops before that, and where there are none it goes on."""
    query = "ALTER TABLE `t` MODIFY COLUMN `s` INT"
    there = PartNames(columns=frozenset(("s",)), fractions=frozenset(("s",)))
    with pytest.raises(NotReplicable, match=r"fractions or exponents to integers \(s\), which the source rounds"):
        action_for(definition("s/t", 1, query), "mariadb", "utf8mb4_bin", there)
    assert action_for(definition("s/t", 1, query), "mysql", "utf8mb4_bin", there).statement == query
    assert action(query, "mariadb").statement == query


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("ALTER TABLE `t` MODIFY COLUMN `s` INT, CHANGE `a` `b` BIGINT UNSIGNED", ["s", "a"]),
        ("ALTER TABLE `t` MODIFY COLUMN IF EXISTS `s` TINYINT(1)", ["s"]),
        ("alter table t modify s int, change column if exists a b bigint, add modify int, modify c text", ["s", "a"]),
        ("ALTER TABLE `t` MODIFY `s` DECIMAL(9), ADD COLUMN `modify` INT", []),
    ],
)
def test_columns_that_become_integers(query: str, columns: list[str]) -> None:
    """They are known by the names that they have before the statement."""
    assert to_integers(tokens(query)) == columns


@pytest.mark.parametrize("query", ["TRUNCATE PARTITION `p1`", "EXCHANGE PARTITION `p1` WITH TABLE `x`"])
def test_rows_of_a_partition_by_key_stay(query: str) -> None:
    """MySQL and MariaDB have other rows in it than TiDB: the table stops before the wrong ones are gone."""
    there = PartNames(columns=frozenset(("a",)), scattered=True)
    stored = definition("s/t", 1, f"ALTER TABLE `t` {query}")
    for server_type in BOTH:
        with pytest.raises(NotReplicable, match=r"partition by KEY.* Manually delete the rows"):
            action_for(stored, server_type, None, there)
    assert action_for(stored, "tidb", None, there).statement == stored.query
    assert takes_rows_of_partitions(tokens(stored.query))
    assert not takes_rows_of_partitions(tokens("ALTER TABLE `t` TRUNCATE PARTITION ALL"))


@pytest.mark.parametrize(
    ("keys", "dropped"),
    [(("t_fk", "a_fk"), "t_fk"), (("a_fk",), "a_fk"), (("a_fk", "b_fk"), "fk"), (("fk", "a_fk", "t_fk"), "fk")],
)
def test_foreign_key_of_another_name_stays(keys: tuple[str, ...], dropped: str) -> None:
    """The key is dropped that got the table's name in front; where several may be it, the target is left to refuse."""
    there = PartNames(foreign_keys=frozenset(keys))
    for server_type in BOTH:
        found = action_for(definition("s/t", 1, "ALTER TABLE `t` DROP FOREIGN KEY `fk`"), server_type, None, there)
        assert found.statement == f"ALTER TABLE `t` DROP FOREIGN KEY `{dropped}`"
