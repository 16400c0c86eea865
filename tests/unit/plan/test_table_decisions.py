"""What operators may decide about a table, and which statements may touch it."""

from __future__ import annotations

import pytest

from storage_consumer.model import TableName
from storage_consumer.plan.table_decisions import StoredTable, TableDecision, Verb, may_touch, refusal, shown_state
from storage_consumer.plan.table_state import TableState
from storage_consumer.plan.table_words import DROPPED_UNSEEN, WAS_LEFT_OUT
from storage_consumer.sql.tokens import quote

ODD = ("plain", "a|b", "a.b", "tick`", "`tick", "ti`ck", "`.`", "a`.`b", "%", "Grün", "İ", " ", "a\nb")


@pytest.mark.parametrize("name", ODD)
def test_a_statement_of_its_database(name: str) -> None:
    """A statement of a database may touch all of its tables, and no others."""
    database = TableName(schema=name.upper(), table="")
    assert may_touch("DROP DATABASE x", database, TableName(schema=name, table=name))
    assert not may_touch("DROP DATABASE x", database, TableName(schema=f"{name}x", table=name))


@pytest.mark.parametrize("name", ODD)
def test_a_statement_of_another_table_that_names_it(name: str) -> None:
    """Any mention of the name counts, in any case and with the backquotes in it doubled; the statement's own name counts without one."""
    table, other = TableName(schema="s", table=name), TableName(schema="s", table="other")
    query = f"ALTER TABLE `other` EXCHANGE PARTITION `p` WITH TABLE {quote(name.upper())}"
    assert may_touch(query, other, table)
    assert may_touch("TRUNCATE TABLE t", table, table)
    assert not may_touch("TRUNCATE TABLE `other`", other, TableName(schema="s", table=f"{name}2"))


def test_a_view() -> None:
    """It changes nothing of what it reads."""
    view, table = TableName(schema="s", table="v"), TableName(schema="s", table="t")
    query = "CREATE OR REPLACE ALGORITHM = UNDEFINED DEFINER = CURRENT_USER SQL SECURITY DEFINER VIEW `s`.`v` AS SELECT * FROM `s`.`t`"
    assert may_touch(query, view, view)
    assert not may_touch(query, view, table)
    assert may_touch(
        "ALTER TABLE `v` EXCHANGE PARTITION `p` WITH TABLE view", view, TableName(schema="s", table="view")
    )


@pytest.mark.parametrize("verb", ["pause", "skip"])
def test_a_table_that_the_source_has_dropped(verb: Verb) -> None:
    """It can neither be paused nor skipped: it would be one that stands still, or runs again, and is not there."""
    table = StoredTable(table_key="k", name=TableName(schema="s", table="t"), state=TableState.DROPPED)
    assert "the source has dropped s.t" in refusal(table, TableDecision(table_key="k", verb=verb))


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        ("", TableState.EXCLUDED),
        ("skipped by ada since 2026-11-30 21:00:00 UTC, until `storage-consumer load`", TableState.SKIPPED),
        (f"{WAS_LEFT_OUT}. Leave it out again", TableState.HALTED),
        (f"{DROPPED_UNSEEN} (version 7)", TableState.HALTED),
        ("the copy that this feed began with does not hold the table of s.t", TableState.HALTED),
        ("the schema file s/t/meta/schema_7_1.json cannot be read", TableState.HALTED),
    ],
)
def test_the_word_for_a_table_that_lacks_what_was_passed_over(error: str, shown: TableState) -> None:
    """Taken again it is halted, whatever else it was halted for since: only one that stays left out has no error."""
    assert shown_state(TableState.EXCLUDED, error) == shown
