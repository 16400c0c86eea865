"""What filter and event filters make of tables and statements."""

from __future__ import annotations

import pytest

from storage_consumer.config.settings import EventFilter, Route, Selecting
from storage_consumer.errors import NotReplicable
from storage_consumer.plan.selection import Filter, Selection
from tests.unit.building import CREATE, CREATE_DATABASE, DROP, DROP_DATABASE, RENAME, definition, named

STATE = "storage_consumer"


def selection_of(selecting: Selecting) -> Selection:
    """The selection of these settings, with the usual state schema."""
    return Selection.of(selecting, STATE)


SHOP = selection_of(Selecting(rules=("shop.*", "!shop.out")))


@pytest.mark.parametrize(
    ("rules", "taken", "left_out"),
    [
        ((), "any/t any", ""),
        (("*.*",), "any/t any", ""),
        (("shop.*",), "shop/t SHOP/T shop", "other/t other"),
        (("shop.*", "!shop.items"), "shop/t shop", "shop/Items"),
        (("*.*", "!shop.*"), "other/t other", "shop/t shop"),
        (("*.*", "!shop.*", "shop.kept"), "shop/kept shop other/t", "shop/t"),
        (("shop.a?",), "shop/ab shop", "shop/a shop/abc"),
        (("s[a-h]op.`it.ems`",), "shop/it.ems", "sxop/it.ems"),
        (("/^s/./s$/",), "shop/items", "shop/item other/items"),
        (("# a comment", "shop.t"), "shop/t", "shop/u"),
    ],
)
def test_rules(rules: tuple[str, ...], taken: str, left_out: str) -> None:
    """The last rule that fits decides, without case; a database is left out where no table of it can be taken."""
    found = Filter(rules)
    assert [name for name in taken.split() if found.leaves_out(named(name))] == []
    assert [name for name in left_out.split() if not found.leaves_out(named(name))] == []


@pytest.mark.parametrize(
    ("where", "query", "kind", "skip"),
    [
        ("shop/t", "DROP TABLE `shop`.`t`", DROP, ""),
        ("shop/out", "DROP TABLE `shop`.`out`", DROP, "the filter leaves out shop.out"),
        ("other/t", "CREATE TABLE `t` (`i` INT)", CREATE, "the filter leaves out other.t"),
        ("other/u", "RENAME TABLE `t` TO `u`", RENAME, "the filter leaves out other.u"),
        ("shop/u", "RENAME TABLE `t` TO `u`", RENAME, ""),
        ("other/t", "RENAME TABLE `shop`.`t` TO `other`.`t`", RENAME, ""),
        ("shop", "DROP DATABASE `shop`", DROP_DATABASE, ""),
        ("other", "DROP DATABASE `other`", DROP_DATABASE, "the filter leaves out every table of other"),
        ("shop/t", "", 0, ""),
        ("shop/t", "ALTER TABLE `t` ADD FOREIGN KEY (`i`) REFERENCES `out`(`i`)", 9, ""),
        ("other/p", "ALTER TABLE `p` EXCHANGE PARTITION `p0` WITH TABLE `q`", 42, "the filter leaves out other.p"),
        ("shop/p", "ALTER TABLE `p` EXCHANGE PARTITION `p0` WITH TABLE `q`", 42, ""),
    ],
)
def test_statements_of_one_side(where: str, query: str, kind: int, skip: str) -> None:
    """A statement of a table that is left out is not run; a rename out of the filter is, as at TiCDC."""
    found = SHOP.judged(definition(where, 1, query, kind))
    assert (found.skip, found.from_columns, found.needs) == (skip, False, frozenset())


@pytest.mark.parametrize(
    ("where", "query", "kind"),
    [
        ("shop/t", "RENAME TABLE `other`.`t` TO `shop`.`t`", RENAME),
        ("shop/t", "RENAME TABLE `out` TO `t`", RENAME),
        ("shop/p", "ALTER TABLE `p` EXCHANGE PARTITION `p0` WITH TABLE `out`", 42),
        ("shop/out", "ALTER TABLE `out` EXCHANGE PARTITION `p0` WITH TABLE `p`", 42),
    ],
)
def test_statements_that_bring_rows_over_the_edge(where: str, query: str, kind: int) -> None:
    """Rows that were never read cannot be brought: the error names both tables, the version and the remedy."""
    with pytest.raises(NotReplicable) as caught:
        SHOP.judged(definition(where, 7, query, kind))
    assert "which the filter leaves out, into shop." in str(caught.value)
    assert "of the source as of version 7" in str(caught.value)


def test_statements_that_read_over_the_edge() -> None:
    """A copy of a structure is made from the schema file's columns; a view needs its tables in the target."""
    copied = SHOP.judged(definition("shop/t", 1, "CREATE TABLE `t` LIKE `other`.`o`", CREATE))
    assert copied.from_columns
    view = SHOP.judged(definition("shop/v", 1, "CREATE VIEW `v` AS SELECT 1 FROM `out` JOIN `t`", 21))
    assert view.needs == {named("shop/out")}


@pytest.mark.parametrize(
    ("events", "query", "kind", "ignored"),
    [
        (("drop table",), "DROP TABLE `shop`.`t`", DROP, True),
        (("drop table",), "TRUNCATE TABLE `t`", 11, False),
        (("alter table",), "ALTER TABLE `t` ADD COLUMN `c` INT", 5, True),
        (("alter table",), "RENAME TABLE `t` TO `u`", RENAME, True),
        (("alter table",), "TRUNCATE TABLE `t`", 11, False),
        (("all ddl",), "CREATE TABLE `t` (`i` INT)", CREATE, True),
        (("create table",), "CREATE TABLE `t` (`i` INT)", 60, True),
        (("all ddl",), "ALTER TABLE `t` CACHE", 56, False),
        (("add column", "drop column"), "ALTER TABLE `t` DROP COLUMN `c`", 6, True),
    ],
)
def test_ignored_events(events: tuple[str, ...], query: str, kind: int, ignored: bool) -> None:  # noqa: FBT001 - a case of the table
    """Statements are known by TiDB's action codes; one that TiCDC has no name for is never ignored."""
    found = selection_of(Selecting(event_filters=(EventFilter(matcher=("shop.t",), ignore_event=events),)))
    assert bool(found.judged(definition("shop/t", 1, query, kind)).skip) is ignored


def test_ignored_texts() -> None:
    """An expression is looked for in the text, without case; of a rename the old name counts."""
    ignoring = (EventFilter(matcher=("shop.t",), ignore_sql=("comment", "(?i)^rename", "(?s)drop.*x")),)
    found = selection_of(Selecting(event_filters=ignoring))
    skip = found.judged(definition("shop/t", 1, "ALTER TABLE `t` COMMENT 'x'", 17)).skip
    assert skip == "ignore-sql of an event filter, which matches 'COMMENT'"
    assert found.judged(definition("shop/u", 1, "RENAME TABLE `t` TO `u`", RENAME)).skip
    assert not found.judged(definition("shop/t", 1, "RENAME TABLE `u` TO `t`", RENAME)).skip
    assert not found.judged(definition("other/t", 1, "ALTER TABLE `t` COMMENT 'x'", 17)).skip


def test_ignored_database_statements() -> None:
    """An event filter means a database where its matcher may take in a table of it."""
    found = selection_of(Selecting(event_filters=(EventFilter(matcher=("shop.t",), ignore_event=("drop database",)),)))
    assert found.judged(definition("shop", 1, "DROP DATABASE `shop`", DROP_DATABASE)).skip
    assert not found.judged(definition("other", 1, "DROP DATABASE `other`", DROP_DATABASE)).skip


@pytest.mark.parametrize(
    ("query", "skipped"),
    [
        ("CREATE DATABASE `a`", True),
        ("CREATE DATABASE `a` CHARACTER SET = utf8mb4 COLLATE = utf8mb4_bin", True),
        ("CREATE DATABASE `a` CHARACTER SET latin1", False),
        ("CREATE DATABASE `a` DEFAULT COLLATE utf8mb4_general_ci", False),
    ],
)
def test_a_database_that_is_split(query: str, skipped: bool) -> None:  # noqa: FBT001 - a case of the table
    """Each of several databases is made before its first table, which is enough where the defaults are the source's own."""
    found = selection_of(Selecting(routes=(Route(matcher=("a.t",), target_schema="x"),)))
    assert (found.judged(definition("a", 1, query, CREATE_DATABASE)).skip != "") is skipped
    assert not found.owns_database("a", ("a",))
