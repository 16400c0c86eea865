"""Where statements name tables, and the same statements with the target's own names."""

from __future__ import annotations

import pytest

from storage_consumer.sql.parse import looked_up, parsed, table_names, with_homes, with_real_names
from storage_consumer.sql.tokens import tokens
from tests.unit.building import ALTER, CREATE, definition, named


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("CREATE TABLE `t` (`a` INT, `b` INT)", "+t"),
        ("CREATE TABLE IF NOT EXISTS s.t (a INT)", "+s.t"),
        ("CREATE TABLE `s2`.`t` LIKE `o`", "+s2.t o"),
        ("CREATE TABLE `t` (LIKE `s`.`o`)", "+t s.o"),
        (
            "CREATE TABLE t (i INT, FOREIGN KEY (i) REFERENCES p (i), CONSTRAINT x FOREIGN KEY (i) REFERENCES q.r (i))",
            "+t p q.r",
        ),
        ("CREATE TABLE `t` (`a` TEXT, CHECK (`a` LIKE `b`), `y` INT AS (EXTRACT(YEAR FROM `d`)))", "+t"),
        ("CREATE TABLE `t` (`like` INT, `from` INT, v INT AS (`from`) STORED) COMMENT 'LIKE x'", "+t"),
        ("ALTER TABLE `t` ADD COLUMN `to` INT AFTER `table`", "t"),
        ("ALTER TABLE `t` RENAME TO `u`", "t +u"),
        ("ALTER TABLE `t` RENAME AS `r`.`u`", "t +r.u"),
        ("ALTER TABLE `t` RENAME COLUMN `a` TO `b`", "t"),
        ("ALTER TABLE `t` RENAME INDEX `a` TO `b`", "t"),
        ("ALTER TABLE `t` TRUNCATE PARTITION `p0`", "t"),
        ("ALTER TABLE `s`.`t` EXCHANGE PARTITION `p4` WITH TABLE `r`.`u` WITHOUT VALIDATION", "s.t r.u"),
        ("RENAME TABLE `a` TO `b`, `s`.`c` TO `d`", "a +b s.c +d"),
        ("DROP TABLE IF EXISTS `a`, `s`.`b`", "a s.b"),
        ("TRUNCATE TABLE `t`", "t"),
        ("TRUNCATE t", "t"),
        ("CREATE UNIQUE INDEX `i` ON `t` (`a`)", "t"),
        ("DROP INDEX `i` ON `s`.`t`", "s.t"),
        (
            "CREATE ALGORITHM = UNDEFINED DEFINER = CURRENT_USER SQL SECURITY DEFINER VIEW `v` (`a`) AS SELECT `x`.`a` FROM `t` AS `x`",
            "+v t",
        ),
        ("CREATE VIEW `v` AS SELECT `a`,`b` FROM (`t`) JOIN `s`.`u` ON `t`.`a`=`u`.`a` WHERE `c` IN (1,2)", "+v t s.u"),
        ("CREATE VIEW `v` AS SELECT 1 FROM `t`, `u` `x` WHERE `a` IN (SELECT `b` FROM `w`)", "+v t u w"),
        ("CREATE OR REPLACE VIEW `v` AS SELECT 1 FROM `t`", "v t"),
        ("DROP VIEW `s`.`v`", "s.v"),
        ("FLASHBACK TABLE `t` TO `u`", "t +u"),
        ("", ""),
    ],
)
def test_tables(query: str, found: str) -> None:
    """Tables and views are found, with those that the statement makes (+); columns, indexes and texts are not."""
    names = table_names(tokens(query))
    assert " ".join(("+" if n.new else "") + (f"{n.schema}." if n.schema else "") + n.table for n in names) == found


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("CREATE DATABASE `d`", "+d"),
        ("CREATE DATABASE IF NOT EXISTS d CHARACTER SET utf8mb4", "+d"),
        ("DROP DATABASE `d`", "d"),
        ("ALTER DATABASE d CHARACTER SET = utf8mb4", "d"),
        ("ALTER DATABASE CHARACTER SET utf8mb4", ""),
    ],
)
def test_databases(query: str, found: str) -> None:
    """A database's statement names it, or leaves it to the session."""
    assert " ".join(("+" if n.new else "") + n.schema for n in table_names(tokens(query))) == found


def real(table_dir: str, query: str, *existing: str, kind: int = ALTER) -> tuple[str, str]:
    """(own name, text) of a statement on a target that has these tables and databases."""
    there = {named(name).folded(): named(name) for name in existing}
    found = with_real_names(definition(table_dir, 1, query, kind), there)
    return str(found.name), found.query


@pytest.mark.parametrize(
    ("table_dir", "query", "name", "expected"),
    [
        ("cc/t", "ALTER TABLE `t` ADD COLUMN `T` INT", "CC.T", "ALTER TABLE `T` ADD COLUMN `T` INT"),
        ("CC/T", "ALTER TABLE `T` COMMENT 'x'", "CC.T", "ALTER TABLE `T` COMMENT 'x'"),
        ("CC/t2", "RENAME TABLE `cc`.`t` TO `cc`.`t2`", "CC.t2", "RENAME TABLE `CC`.`T` TO `CC`.`t2`"),
        ("CC/t", "RENAME TABLE `CC`.`T` TO `CC`.`t`", "CC.t", "RENAME TABLE `CC`.`T` TO `CC`.`t`"),
        ("cc/u", "CREATE TABLE `u` LIKE `t`", "CC.u", "CREATE TABLE `u` LIKE `T`"),
        ("cc", "DROP DATABASE `cc`", "CC", "DROP DATABASE `CC`"),
        ("x/y", "DROP TABLE `x`.`y`", "x.y", "DROP TABLE `x`.`y`"),
    ],
)
def test_names_of_the_target(table_dir: str, query: str, name: str, expected: str) -> None:
    """Names get the target's spelling; one that the statement makes keeps its own."""
    assert real(table_dir, query, "CC", "CC/T") == (name, expected)


def test_what_is_looked_up() -> None:
    """Every name is looked up with its database, in the definition's own where none is said."""
    found = looked_up(definition("s/V", 1, "CREATE VIEW `V` AS SELECT 1 FROM `r`.`T`"))
    assert found == {named(name) for name in ("s", "s/v", "r", "r/t")}


def test_put_into_the_statement() -> None:
    """The database that was found out is written before the name."""
    there = {named("r/a"): named("r/A")}
    made = definition("s/b", 1, "RENAME TABLE `a` TO `s`.`b`", CREATE)
    old = parsed(made).names[0]
    assert with_homes(made, there, {old: named("r/a")}).query == "RENAME TABLE `r`.`A` TO `s`.`b`"
    assert with_homes(made, there, {}) is made
