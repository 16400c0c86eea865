"""Which database a name without one belongs to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage_consumer.errors import NotReplicable
from storage_consumer.model import TableColumn, TableName
from storage_consumer.plan.unqualified_names import Namesake, homes, of_any_database
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
        ("ALTER TABLE `s`.`b` ADD FOREIGN KEY (`i`) REFERENCES `a` (`i`)", ""),
        ("CREATE TABLE `s`.`b` (`i` INT, FOREIGN KEY (`i`) REFERENCES `a` (`i`))", ""),
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
    query: str, *namesakes: tuple[str, tuple[TableColumn, ...]], stays: tuple[str, ...] = (), columns: str = "id"
) -> TableName | None:
    """Which table `a` means in a statement of database s; None if nothing is known of any. `columns`: those of a view."""
    found = [Namesake(name=named(name), columns=columns, stays=name in stays) for name, columns in namesakes]
    kind = RENAME if "RENAME" in query else ALTER
    statement = definition("s/a" if "`s`.`a`" in query else "s/b", 9, query, kind)
    if "VIEW" in query:
        statement = replace(statement, columns=tuple(TableColumn(name=c, type="UNSPECIFIED") for c in columns.split()))
    (name,) = of_any_database(statement)
    return homes(statement, {name: found}).get(name)


@pytest.mark.parametrize("query", ["RENAME TABLE `a` TO `s`.`b`", "RENAME TABLE `a` TO `s`.`a`"])
def test_rename_from_another_database(query: str) -> None:
    """The only table of the old name is the one, wherever it is; of several the one with the rows' columns."""
    assert home(query, ("r/a", COLUMNS)) == named("r/a")
    assert home(query, ("r/a", COLUMNS), ("q/a", OTHER)) == named("r/a")
    assert home(query, ("r/a", COLUMNS), ("q/a", COLUMNS), stays=("q/a",)) == named("r/a")
    assert home(query) is None


def test_rename_within_the_database() -> None:
    """A table of the statement's own database is the one where no other can be, or where only the case of its name changes."""
    query = "RENAME TABLE `a` TO `s`.`b`"
    assert home(query, ("s/a", COLUMNS)) == named("s/a")
    assert home(query, ("s/a", ())) == named("s/a")
    assert home(query, ("s/a", COLUMNS), ("r/a", COLUMNS), stays=("r/a",)) == named("s/a")
    assert home(query, ("s/a", COLUMNS), ("r/a", OTHER)) == named("s/a")
    assert home(query, ("s/a", OTHER), ("r/a", COLUMNS)) == named("r/a")
    assert home("RENAME TABLE `a` TO `s`.`A`", ("s/a", COLUMNS), ("r/a", COLUMNS)) == named("s/a")


def test_rename_that_could_be_of_several() -> None:
    """Where several tables can be meant, the own one among them, the statement does not run."""
    query = "RENAME TABLE `a` TO `s`.`b`"
    with pytest.raises(NotReplicable, match=r"could be any of r\.a, q\.a"):
        home(query, ("r/a", COLUMNS), ("q/a", COLUMNS))
    with pytest.raises(NotReplicable, match=r"could be any of s\.a, r\.a"):
        home(query, ("s/a", COLUMNS), ("r/a", COLUMNS))
    with pytest.raises(NotReplicable, match=r"could be any of s\.a, r\.a"):
        home(query, ("s/a", ()), ("r/a", COLUMNS))


def test_rename_that_can_be_of_none() -> None:
    """Where files say that every table of the name stayed, or had other columns, the statement does not run."""
    with pytest.raises(NotReplicable, match=r"none of the known tables fits \(s\.a\)"):
        home("RENAME TABLE `a` TO `s`.`b`", ("s/a", COLUMNS), stays=("s/a",))
    with pytest.raises(NotReplicable, match=r"none of the known tables fits \(r\.a\)"):
        home("RENAME TABLE `a` TO `s`.`b`", ("r/a", OTHER))


def test_copied_table() -> None:
    """A table can't be LIKE one with other columns; where several can be meant, the statement does not run."""
    query = "CREATE TABLE `s`.`b` LIKE `a`"
    assert home(query, ("r/a", COLUMNS), stays=("r/a",)) == named("r/a")
    assert home(query, ("r/a", COLUMNS), ("s/a", OTHER)) == named("r/a")
    assert home(query, ("r/a", OTHER), ("s/a", COLUMNS)) == named("s/a")
    assert home(query, ("r/a", OTHER), ("q/a", COLUMNS)) == named("q/a")
    assert home(query, ("r/a", OTHER)) is None
    assert home(query) is None
    with pytest.raises(NotReplicable, match=r"all of these can be meant: r\.a, s\.a\. Run it with the right database"):
        home(query, ("r/a", COLUMNS), ("s/a", COLUMNS))


TWO = tuple(TableColumn(name=name, type="INT") for name in ("id", "v"))
ONE = TWO[:1]


@pytest.mark.parametrize(
    ("selected", "columns", "means"),
    [
        ("SELECT `id` FROM `a`", "id", "any"),
        ("SELECT `v` AS `id` FROM `a`", "id", "r"),
        ("SELECT COUNT(`v`) AS `n`,1 AS `o` FROM `a`", "n o", "r"),
        ("SELECT `id` `v` FROM `a`", "v", "any"),
        ("SELECT 1 `v`,(`id`) `v` FROM `a`", "v", "any"),
        ("SELECT `id`,`V`+1 FROM `a` AS `x` ORDER BY `id`", "id v", "r"),
        ("SELECT * FROM `a`", "id v", "r"),
        ("SELECT * FROM `a`", "id", "s"),
        ("SELECT *,1 AS `v` FROM `a`", "id v", "any"),
        ("SELECT *,1 AS `o` FROM `a`", "id o", "s"),
        ("SELECT `x`.* FROM `a` AS `x` JOIN `q`.`c`", "id z", "s"),
        ("SELECT `a`.`v` FROM `a` JOIN `q`.`c` ON `a`.`id`=`c`.`id`", "v", "r"),
        ("SELECT `v` FROM `a` JOIN `q`.`c`", "v", "any"),
        ("SELECT `c`.`v` FROM `a` JOIN `q`.`c`", "v", "any"),
        ("SELECT `id` FROM `a` WHERE EXISTS(SELECT `v` FROM `q`.`c`)", "id", "any"),
        ("SELECT `id` FROM `a` WHERE EXISTS(SELECT 1 FROM `q`.`c` WHERE `a`.`v`=`c`.`v`)", "id", "r"),
        ("WITH `x` AS (SELECT `v` FROM `q`.`c`) SELECT `a`.`v` FROM `a`", "v", "any"),
        ("SELECT `z` FROM `a`", "z", "none"),
    ],
)
def test_what_a_view_reads(selected: str, columns: str, means: str) -> None:
    """Of tables in two databases the view reads the one that has what it selects; where both can be meant, it does not run."""
    query = f"CREATE ALGORITHM = UNDEFINED DEFINER = CURRENT_USER SQL SECURITY DEFINER VIEW `s`.`b` AS {selected}"
    if means == "any":
        with pytest.raises(NotReplicable, match=r"all of these can be meant: r\.a, s\.a"):
            home(query, ("s/a", ONE), ("r/a", TWO), columns=columns)
    else:
        wanted = {"r": named("r/a"), "s": named("s/a"), "none": None}[means]
        assert home(query, ("s/a", ONE), ("r/a", TWO), columns=columns) == wanted
    assert home(query, ("s/a", ()), columns=columns) == named("s/a")


def test_columns_of_the_view_itself() -> None:
    """With names of its own, a view's columns do not show which table it takes them all from."""
    query = "CREATE VIEW `s`.`b` (`x`) AS SELECT * FROM `a`"
    with pytest.raises(NotReplicable, match="all of these can be meant"):
        home(query, ("s/a", ONE), ("r/a", ONE), columns="x")


def test_all_names_are_of_one_database() -> None:
    """What only one database has shows where the session was; a table that no file shows is there too."""
    statement = definition("s/b", 9, "CREATE VIEW `s`.`b` AS SELECT 1 FROM `a` JOIN `c` JOIN `e`")
    a, c, e = of_any_database(statement)

    def found(**tables: str) -> dict[str, str]:
        given = {
            name: [Namesake(name=named(f"{schema}/{name.table}")) for schema in tables.get(name.table, "")]
            for name in (a, c, e)
        }
        return {name.table: str(home) for name, home in homes(statement, given).items()}

    assert found(a="sr", c="r") == {"a": "r.a", "c": "r.c", "e": "r.e"}
    assert found(a="sr", c="s") == {"a": "s.a", "c": "s.c", "e": "s.e"}
    assert found() == {}
    with pytest.raises(
        NotReplicable, match=r"that a and c and e belongs to, and no database has them all \(r\.a, s\.c\)"
    ):
        found(a="r", c="s")
    with pytest.raises(NotReplicable, match=r"all of these can be meant: r\.a, r\.c, s\.a, s\.c"):
        found(a="rs", c="sr")
