"""Names in the target, and statements with them."""

from __future__ import annotations

import pytest

from storage_consumer.config.settings import Route
from storage_consumer.errors import NotReplicable
from storage_consumer.plan.selection import Routes, routed
from tests.unit.building import ALTER, CREATE, definition, named

RENAME = 14
CREATE_SCHEMA, DROP_SCHEMA, ALTER_SCHEMA = 1, 2, 26


def routes(*texts: str) -> Routes:
    """Routes from texts like ``a.* x.{table}``; a part that is ``-`` stays."""
    made = []
    for text in texts:
        matcher, target = text.split()
        schema, table = target.split(".")
        made.append(Route(matcher=(matcher,), target_schema=schema.strip("-"), target_table=table.strip("-")))
    return Routes(made)


ONE = routes("a.* x.{table}_r")


@pytest.mark.parametrize(
    ("rules", "name", "target"),
    [
        (("a.* x.-",), "a/t", "x/t"),
        (("a.* x.-",), "b/t", "b/t"),
        (("A.* x.{schema}_{table}",), "a/T", "x/a_T"),
        (("a.t y.u", "a.* x.-"), "a/t", "y/u"),
        (("a.t y.u", "a.* x.-"), "a/v", "x/v"),
        (("*.t -.{table}2",), "q/t", "q/t2"),
        (("*.* {schema}_x.-",), "q/t", "q_x/t"),
        (("*.* {table}.{schema}",), "{table}/t", "t/{table}"),
        (("a.* x.-",), "a", "x"),
        (("a.t x.-",), "a", "a"),
    ],
)
def test_targets(rules: tuple[str, ...], name: str, target: str) -> None:
    """The first route that fits decides; the placeholders are the names in the bucket, put in once."""
    assert routes(*rules).target(named(name)) == named(target)


@pytest.mark.parametrize(
    ("where", "query", "expected"),
    [
        (
            "a/t",
            "CREATE TABLE `t` (`t` INT, CHECK (`t` > 0)) COMMENT 't'",
            "CREATE TABLE `t_r` (`t` INT, CHECK (`t` > 0)) COMMENT 't'",
        ),
        ("a/t", "CREATE TABLE `a`.`t` LIKE `b`.`o`", "CREATE TABLE `x`.`t_r` LIKE `b`.`o`"),
        ("a/t", "CREATE TABLE `t` LIKE `o`", "CREATE TABLE `t_r` LIKE `o_r`"),
        ("b/t", "CREATE TABLE `t` LIKE `a`.`o`", "CREATE TABLE `t` LIKE `x`.`o_r`"),
        (
            "a/t",
            "ALTER TABLE `t` ADD CONSTRAINT `t` FOREIGN KEY (`t`) REFERENCES `p`(`t`)",
            "ALTER TABLE `t_r` ADD CONSTRAINT `t` FOREIGN KEY (`t`) REFERENCES `p_r`(`t`)",
        ),
        ("a/u", "RENAME TABLE `t` TO `u`", "RENAME TABLE `t_r` TO `u_r`"),
        ("b/u", "RENAME TABLE `a`.`t` TO `b`.`u`", "RENAME TABLE `x`.`t_r` TO `b`.`u`"),
        ("a/u", "ALTER TABLE `t` RENAME AS `u`", "ALTER TABLE `t_r` RENAME AS `u_r`"),
        (
            "a/u",
            "ALTER TABLE `t` RENAME INDEX `t` TO `u`, RENAME `u`",
            "ALTER TABLE `t_r` RENAME INDEX `t` TO `u`, RENAME `u_r`",
        ),
        (
            "a/t",
            "ALTER TABLE `a`.`t` EXCHANGE PARTITION `p` WITH TABLE `b`.`u`",
            "ALTER TABLE `x`.`t_r` EXCHANGE PARTITION `p` WITH TABLE `b`.`u`",
        ),
        ("a/t", "DROP TABLE IF EXISTS `a`.`t`", "DROP TABLE IF EXISTS `x`.`t_r`"),
        ("a/t", "TRUNCATE TABLE `t` /* t */", "TRUNCATE TABLE `t_r` /* t */"),
        ("a/t", "CREATE INDEX `t` ON `t` (`t`)", "CREATE INDEX `t` ON `t_r` (`t`)"),
        (
            "a/v",
            "CREATE VIEW `v` (`t`) AS SELECT `t`.`t` FROM `a`.`t` JOIN `b`.`u` ON `a`.`t`.`i`=`u`.`i`",
            "CREATE VIEW `v_r` (`t`) AS SELECT `t`.`t` FROM `x`.`t_r` AS `t` JOIN `b`.`u` ON `x`.`t`.`i`=`u`.`i`",
        ),
        (
            "a/v",
            "CREATE VIEW `v` AS SELECT `x`.`t` FROM `t` AS `x`",
            "CREATE VIEW `v_r` AS SELECT `x`.`t` FROM `t_r` AS `x`",
        ),
        (
            "b/v",
            "CREATE VIEW `v` AS SELECT `a`.`t`.* FROM `a`.`t`",
            "CREATE VIEW `v` AS SELECT `x`.`t`.* FROM `x`.`t_r` AS `t`",
        ),
        ("b/t", "ALTER TABLE `t` ADD `a` INT", "ALTER TABLE `t` ADD `a` INT"),
    ],
)
def test_statements(where: str, query: str, expected: str) -> None:
    """Every name of a table becomes the target's; columns, indexes, aliases, texts and comments stay."""
    found = routed(definition(where, 1, query, RENAME), ONE)
    assert (found.query, found.name) == (expected, ONE.target(named(where)))


def test_a_neighbour_that_goes_elsewhere() -> None:
    """A name without a database gets one where its table is no longer in the statement's own."""
    apart = routes("a.o y.-", "a.* x.-")
    assert (
        routed(definition("a/t", 1, "CREATE TABLE `t` LIKE `o`", CREATE), apart).query
        == "CREATE TABLE `t` LIKE `y`.`o`"
    )
    stays = routes("a.t x.-")
    assert (
        routed(definition("a/t", 1, "CREATE TABLE `t` LIKE `o`", CREATE), stays).query
        == "CREATE TABLE `t` LIKE `a`.`o`"
    )


def test_a_structure_without_a_statement() -> None:
    """It has a name only."""
    assert routed(definition("a/t", 1, "", 0), ONE).name == named("x/t_r")


def test_a_statement_in_which_the_table_is_not_found() -> None:
    """It would run on another table, so it does not."""
    with pytest.raises(NotReplicable, match=r"does not show where it names its table, so the route to x\.t_r cannot"):
        routed(definition("a/t", 1, "OPTIMISE `t`", ALTER), ONE)
    assert routed(definition("b/t", 1, "OPTIMISE `t`", ALTER), ONE).query == "OPTIMISE `t`"


@pytest.mark.parametrize(
    ("query", "kind", "expected"),
    [
        ("CREATE DATABASE `a`", CREATE_SCHEMA, "CREATE DATABASE `x`"),
        ("DROP DATABASE IF EXISTS a", DROP_SCHEMA, "DROP DATABASE IF EXISTS `x`"),
        ("ALTER DATABASE `a` CHARACTER SET = utf8mb4", ALTER_SCHEMA, "ALTER DATABASE `x` CHARACTER SET = utf8mb4"),
        ("ALTER DATABASE CHARACTER SET = utf8mb4", ALTER_SCHEMA, "ALTER DATABASE `x` CHARACTER SET = utf8mb4"),
        ("ALTER", ALTER_SCHEMA, "ALTER"),
    ],
)
def test_databases(query: str, kind: int, expected: str) -> None:
    """A database whose tables all go to one that is theirs alone is that one."""
    found = routed(definition("a", 1, query, kind), ONE, ("a", "b"))
    assert (found.query, found.name) == (expected, named("x"))


def test_a_database_that_is_shared() -> None:
    """It is made if it is not there yet; what would touch the other's tables too is refused."""
    both = routes("a.* x.{schema}_{table}", "b.* x.{schema}_{table}")
    made = routed(definition("a", 1, "CREATE DATABASE `a`", CREATE_SCHEMA), both, ("a", "b"))
    assert made.query == "CREATE DATABASE IF NOT EXISTS `x`"
    assert routed(definition("a", 1, "CREATE", CREATE_SCHEMA), both, ("a", "b")).query == "CREATE"
    with pytest.raises(
        NotReplicable, match=r"its tables share x with others \(b\).*Manually drop the tables that came from it"
    ):
        routed(definition("a", 1, "DROP DATABASE `a`", DROP_SCHEMA), both, ("a", "b"))
    assert routed(definition("a", 1, "DROP DATABASE `a`", DROP_SCHEMA), both, ("a",)).query == "DROP DATABASE `x`"


def test_a_database_that_another_is_led_into() -> None:
    """Without a route of its own, a database may still hold another's tables."""
    with pytest.raises(NotReplicable, match=r"share x with others \(a\)"):
        routed(definition("x", 1, "DROP DATABASE `x`", DROP_SCHEMA), ONE, ("a", "x"))


def test_a_database_that_is_split() -> None:
    """What means all of its tables is refused where they go to several databases."""
    split = routes("a.t x.-")
    assert split.databases("a") == ("x", "a")
    with pytest.raises(NotReplicable, match=r"go to several databases \(x, a\)"):
        routed(definition("a", 1, "DROP DATABASE `a`", DROP_SCHEMA), split, ("a",))


def test_no_routes() -> None:
    """Without routes nothing is looked at."""
    made = definition("a/t", 1, "ANYTHING", ALTER)
    assert routed(made, Routes()) is made
