"""Which tables a statement touches, and in which order statements of one version run."""

from __future__ import annotations

from itertools import permutations

import pytest

from storage_consumer.plan.planner import in_dependency_order
from storage_consumer.plan.touches import KnownTables, touched_keys
from storage_consumer.sql.parse import parsed
from tests.unit.building import ALTER, CREATE, CREATE_DATABASE, DROP, RENAME, definition, named, place, step

DIRS = ("s/a", "s/b", "s/c", "r/a", "r/b", "s", "r")
KNOWN = KnownTables.of(named(table_dir) for table_dir in DIRS)


@pytest.mark.parametrize(
    ("table_dir", "query", "touched"),
    [
        ("s/a", "ALTER TABLE `a` ADD COLUMN `b` INT COMMENT 'RENAME c'", {"s/a"}),
        ("s/a", "ALTER TABLE `a` ADD COLUMN `rename` INT /* LIKE b */", {"s/a"}),
        ("s/a", "TRUNCATE TABLE `a`", {"s/a"}),
        ("s/a", "CREATE TABLE `a` (`b` INT, `c` INT)", {"s/a"}),
        ("s/a", "ALTER TABLE `a` ADD INDEX `b` (`c`)", {"s/a"}),
        ("s/b", "RENAME TABLE `s`.`a` TO `s`.`b`", {"s/a", "s/b"}),
        ("s/b", "ALTER TABLE `A` RENAME TO `B`", {"s/a", "s/b"}),
        ("s/b", "ALTER TABLE a RENAME AS b", {"s/a", "s/b"}),
        ("s/b", "RENAME TABLE `r`.`a` TO `s`.`b`", {"r/a", "s/b"}),
        ("s/a", "ALTER TABLE `s`.`a` EXCHANGE PARTITION `p` WITH TABLE `r`.`b`", {"s/a", "r/b"}),
        ("s/a", "CREATE TABLE `a` LIKE `r`.`b`", {"s/a", "r/b"}),
        ("s/a", "CREATE TABLE `a` (LIKE `b`)", {"s/a", "s/b"}),
        ("s/a", "CREATE TABLE `a` (`id` INT, FOREIGN KEY (`id`) REFERENCES `c` (`id`))", {"s/a", "s/c"}),
        ("s/a", "ALTER TABLE `a` ADD CONSTRAINT `f` FOREIGN KEY (`i`) REFERENCES `r`.`b` (`i`)", {"s/a", "r/b"}),
        ("s/v", "CREATE VIEW `v` AS SELECT `x`.`id` FROM `r`.`a` AS `x` JOIN `b` ON TRUE", {"r/a", "s/b"}),
        ("s/b", "DROP TABLE `s`.`b`", {"s/b"}),
        ("s", "ALTER DATABASE `s` CHARACTER SET utf8mb4", {"s/a", "s/b", "s/c", "s"}),
        ("s", "DROP DATABASE `s`", {"s/a", "s/b", "s/c", "s"}),
        ("S", "DROP DATABASE `S`", {"s/a", "s/b", "s/c", "s"}),
    ],
)
def test_touched(table_dir: str, query: str, touched: set[str]) -> None:
    """A statement touches its own table, the ones that it names, or all of its database, and no other."""
    assert {place(key) for key in touched_keys(definition(table_dir, 1, query), KNOWN)} == touched


@pytest.mark.parametrize(
    ("table_dir", "query", "touched"),
    [
        ("r/x", "RENAME TABLE `a` TO `r`.`x`", {"s/a", "r/a"}),
        ("r/x", "RENAME TABLE `c` TO `r`.`x`", {"s/c"}),
        ("r/x", "CREATE TABLE `r`.`x` LIKE `c`", {"s/c"}),
        ("r/x", "CREATE TABLE `r`.`x` LIKE `a`", {"s/a", "r/a"}),
        ("r/x", "CREATE TABLE `x` LIKE `c`", set()),
        ("r/c", "TRUNCATE TABLE `c`", set()),
    ],
)
def test_names_without_a_database(table_dir: str, query: str, touched: set[str]) -> None:
    """A name that may be one of another database is taken for all tables of that name."""
    assert {place(key) for key in touched_keys(definition(table_dir, 1, query), KNOWN)} == touched


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("RENAME TABLE `s`.`a` TO `s`.`b`", ("s.a", "s.b")),
        ("RENAME TABLE `a` TO `b`;", ("s.a", "s.b")),
        ("RENAME TABLE a TO r.b", ("s.a", "r.b")),
        ("ALTER TABLE `A` RENAME `B`", ("s.a", "s.b")),
        ("ALTER TABLE `a` RENAME TO `b`", ("s.a", "s.b")),
        ("ALTER TABLE `a` RENAME AS `r`.`b`", ("s.a", "r.b")),
        ("RENAME TABLE `to` TO `rename`", ("s.to", "s.rename")),
        ("ALTER TABLE `a` RENAME COLUMN `x` TO `y`", None),
        ("ALTER TABLE `a` RENAME INDEX `x` TO `y`", None),
        ("ALTER TABLE `a` RENAME KEY `x` TO `y`", None),
        ("ALTER TABLE `a` RENAME COLUMN `x` TO `y`, RENAME TO `b`", ("s.a", "s.b")),
        ("ALTER TABLE `a` ADD COLUMN (`rename` INT)", None),
        ("CREATE TABLE `a` (`id` INT)", None),
    ],
)
def test_renamed(query: str, names: tuple[str, str] | None) -> None:
    """The old and the new name of a table that a statement renames; columns and indexes are no tables."""
    pair = parsed(definition("s/b", 1, query, RENAME)).renamed
    assert (None if pair is None else (str(pair[0]), str(pair[1]))) == names


def orders(*steps: tuple[str, str]) -> set[tuple[str, ...]]:
    """In which orders (of directories) the statements run, whatever order they come in."""
    made = [step(table_dir, 5, query, RENAME) for table_dir, query in steps]
    return {tuple(s.table_dir for s in in_dependency_order(arrived)) for arrived in permutations(made)}


def test_rename_chain() -> None:
    """A statement that frees a name runs before the one that takes it, against the order of names."""
    assert orders(
        ("s/b", "RENAME TABLE `s`.`a` TO `s`.`b`"),
        ("s/c", "RENAME TABLE `s`.`b` TO `s`.`c`"),
        ("s/d", "RENAME TABLE `s`.`c` TO `s`.`d`"),
    ) == {("s/d", "s/c", "s/b")}
    assert orders(
        ("s/y", "RENAME TABLE `s`.`z` TO `s`.`y`"),
        ("s/x", "RENAME TABLE `s`.`y` TO `s`.`x`"),
    ) == {("s/x", "s/y")}


def test_rename_between_databases() -> None:
    """Names of different databases are different, and compared without case."""
    assert orders(
        ("r/t", "RENAME TABLE `s`.`t` TO `r`.`t`"),
        ("q/t", "RENAME TABLE `R`.`T` TO `q`.`t`"),
    ) == {("q/t", "r/t")}


def test_rename_cycle() -> None:
    """A cycle, which no order can run, still gives every statement once, always in the same order."""
    found = orders(("s/a", "RENAME TABLE `s`.`b` TO `s`.`a`"), ("s/b", "RENAME TABLE `s`.`a` TO `s`.`b`"))
    assert found == {("s/a", "s/b")}


def test_change_of_case_is_no_cycle() -> None:
    """A table that only changes the case of its name waits for nothing."""
    assert orders(("s/A", "RENAME TABLE `s`.`a` TO `s`.`A`")) == {("s/A",)}


def test_database_first() -> None:
    """A database's statement runs before those of its tables."""
    group = [step("s/a", 5, "CREATE TABLE `a` (`i` INT)", CREATE), step("s", 5, "CREATE DATABASE `s`", CREATE_DATABASE)]
    assert [s.table_dir for s in in_dependency_order(group)] == ["s", "s/a"]


def test_structures_first() -> None:
    """A table that only has to be there is made before a statement of the same version that may need it."""
    exchange = step("s/a", 5, "ALTER TABLE `a` EXCHANGE PARTITION `p` WITH TABLE `b`", ALTER)
    assert [s.table_dir for s in in_dependency_order([exchange, step("s/b", 5)])] == ["s/b", "s/a"]


def test_same_version_in_one_directory() -> None:
    """Two schema files of one version and directory both run, always in the same order."""
    two = [step("s/a", 5, f"DROP TABLE `a{n}`", DROP, checksum=n) for n in (2, 1)]
    assert [s.definition.checksum for s in in_dependency_order(two)] == [1, 2]
