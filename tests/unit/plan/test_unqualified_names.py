"""Which database a name without one belongs to."""

from __future__ import annotations

import pytest

from storage_consumer.errors import NotReplicable
from storage_consumer.model import TableColumn, TableName
from storage_consumer.plan.unqualified_names import Namesake, home_of, of_any_database
from tests.unit.building import ALTER, COLUMNS, RENAME, definition, named


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("TRUNCATE TABLE `a`", ""),
        ("DROP TABLE `a`", ""),
        ("DROP TABLE `s`.`b`, `a`", ""),
        ("ALTER TABLE `a` DROP COLUMN `v`", ""),
        ("CREATE UNIQUE INDEX `i` ON `a` (`v`)", ""),
        ("CREATE OR REPLACE VIEW `v` AS SELECT 1 FROM `a`", ""),
        ("CREATE TABLE `b` LIKE `a`", ""),
        ("CREATE TABLE `s`.`b` LIKE `a`", "a"),
        ("CREATE VIEW `s`.`v` AS SELECT 1 FROM `a` JOIN `r`.`c`", "a"),
        ("CREATE VIEW `v` AS SELECT 1 FROM `a`", ""),
        ("ALTER TABLE `s`.`b` ADD FOREIGN KEY (`i`) REFERENCES `a` (`i`)", "a"),
        ("ALTER TABLE `b` ADD FOREIGN KEY (`i`) REFERENCES `a` (`i`)", ""),
        ("ALTER TABLE `s`.`b` EXCHANGE PARTITION `p` WITH TABLE `a`", ""),
        ("RENAME TABLE `a` TO `b`", ""),
        ("ALTER TABLE `a` RENAME `b`", ""),
        ("RENAME TABLE `a` TO `s`.`b`", "a"),
        ("ALTER TABLE `a` RENAME AS `s`.`b`", "a"),
        ("RENAME TABLE `r`.`a` TO `s`.`b`", ""),
    ],
)
def test_names_of_any_database(query: str, found: str) -> None:
    """Only what a statement reads, and a rename's old name, may be of another database, and only if its own table says one."""
    assert " ".join(name.table for name in of_any_database(definition("s/b", 9, query))) == found


OTHER = (TableColumn(name="other", type="INT"),)


def home(
    query: str,
    *namesakes: tuple[str, tuple[TableColumn, ...]],
    gone: tuple[str, ...] = (),
    stays: tuple[str, ...] = (),
    unknown: tuple[str, ...] = (),
) -> TableName | None:
    """Which table of another database `a` means in a statement of database s; `unknown`: in the target, but in no file."""
    found = [Namesake(name=named(name), columns=columns, stays=name in stays) for name, columns in namesakes]
    existing = {named(n).folded(): named(n) for n in ({n for n, _ in namesakes} | set(unknown)) - set(gone)}
    statement = definition("s/a" if "`s`.`a`" in query else "s/b", 9, query, RENAME if "RENAME" in query else ALTER)
    (name,) = of_any_database(statement)
    return home_of(name, statement, existing, found)


@pytest.mark.parametrize("query", ["RENAME TABLE `a` TO `s`.`b`", "RENAME TABLE `a` TO `s`.`a`"])
def test_rename_from_another_database(query: str) -> None:
    """The only table of the old name is the one, wherever it is; of several the one with the rows' columns."""
    assert home(query, ("r/a", COLUMNS)) == named("r/a")
    assert home(query, ("r/a", COLUMNS), ("q/a", OTHER)) == named("r/a")
    assert home(query, ("r/a", COLUMNS), ("q/a", COLUMNS), gone=("q/a",)) == named("r/a")
    assert home(query, ("r/a", COLUMNS), ("q/a", COLUMNS), stays=("q/a",)) == named("r/a")
    assert home(query) is None


def test_rename_within_the_database() -> None:
    """A table of the statement's own database is the one where no other can be, or where only the case of its name changes."""
    query = "RENAME TABLE `a` TO `s`.`b`"
    assert home(query, ("s/a", COLUMNS)) is None
    assert home(query, unknown=("s/a",)) is None
    assert home(query, ("s/a", COLUMNS), ("r/a", COLUMNS), stays=("r/a",)) is None
    assert home(query, ("s/a", COLUMNS), ("r/a", OTHER)) is None
    assert home(query, ("s/a", OTHER), ("r/a", COLUMNS)) == named("r/a")
    assert home("RENAME TABLE `a` TO `s`.`A`", ("s/a", COLUMNS), ("r/a", COLUMNS)) is None


def test_table_that_no_file_is_of_is_no_guess() -> None:
    """A table of another database is never taken on the ground that the target happens to have one of that name."""
    assert home("RENAME TABLE `a` TO `s`.`b`", unknown=("r/a",)) is None
    assert home("CREATE TABLE `s`.`b` LIKE `a`", unknown=("r/a",)) is None


def test_rename_that_could_be_of_several() -> None:
    """Where several tables can be meant, the own one among them, the statement does not run."""
    query = "RENAME TABLE `a` TO `s`.`b`"
    with pytest.raises(NotReplicable, match=r"could be any of r\.a, q\.a"):
        home(query, ("r/a", COLUMNS), ("q/a", COLUMNS))
    with pytest.raises(NotReplicable, match=r"could be any of s\.a, r\.a"):
        home(query, ("s/a", COLUMNS), ("r/a", COLUMNS))
    with pytest.raises(NotReplicable, match=r"could be any of s\.a, r\.a"):
        home(query, ("r/a", COLUMNS), unknown=("s/a",))


def test_rename_that_can_be_of_none() -> None:
    """Where files say that every table of the name stayed, or had other columns, the statement does not run."""
    with pytest.raises(NotReplicable, match=r"none of the known tables fits \(s\.a\)"):
        home("RENAME TABLE `a` TO `s`.`b`", ("s/a", COLUMNS), stays=("s/a",))
    with pytest.raises(NotReplicable, match=r"none of the known tables fits \(r\.a\)"):
        home("RENAME TABLE `a` TO `s`.`b`", ("r/a", OTHER))


def test_source_in_another_database() -> None:
    """What a statement reads is looked for elsewhere only where its own database has none, and taken if it is the only one."""
    query = "CREATE TABLE `s`.`b` LIKE `a`"
    assert home(query, ("r/a", COLUMNS), stays=("r/a",)) == named("r/a")
    assert home(query, ("r/a", COLUMNS), ("s/a", OTHER)) is None
    assert home(query, ("r/a", COLUMNS), ("q/a", COLUMNS)) is None


def test_source_with_other_columns() -> None:
    """A table can't be like one with other columns, while a view may select from it."""
    assert home("CREATE TABLE `s`.`b` LIKE `a`", ("r/a", OTHER)) is None
    assert home("CREATE TABLE `s`.`b` LIKE `a`", ("r/a", OTHER), ("q/a", COLUMNS)) == named("q/a")
    assert home("CREATE VIEW `s`.`b` AS SELECT 1 FROM `a`", ("r/a", OTHER)) == named("r/a")
