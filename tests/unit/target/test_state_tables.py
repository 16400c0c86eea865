"""Statements on the state tables as text."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from sqlalchemy import delete, func, select

from storage_consumer.bucket.schema_file import LONGEST_DIRECTORY, LONGEST_NAME, LONGEST_PATH
from storage_consumer.model import TableName
from storage_consumer.plan.directories import stand_in_for
from storage_consumer.plan.steps import key_of
from storage_consumer.target.state_tables import QUARANTINE_VALUES, as_text, put, state_tables

ODD = "st'ate %s% :x `y`"
QUOTED = "`st'ate %s% :x ``y```"
VALUES = {
    "of": 3,
    "by": "'attempt'",
    "in_schema": "'a'",
    "named": "'b'",
    "upto": 7,
    **dict.fromkeys((*QUARANTINE_VALUES, "digests"), "x'00'"),
}


@pytest.mark.parametrize("name", sorted(asdict(state_tables(ODD).for_tasks())))
def test_a_task_fills_in_its_values(name: str) -> None:
    """Whatever the schema is called, each statement of a task takes its values by name, and nothing else in it changes."""
    statement = asdict(state_tables(ODD).for_tasks())[name] % VALUES
    assert f"{QUOTED}." in statement
    assert "%(" not in statement


def test_the_fence_comes_in_its_order() -> None:
    """A task reads epoch and window first, then the attempt and whether it has finished."""
    text = state_tables("s").for_tasks().lock_slot
    columns = [name.strip() for name in text.partition("FROM")[0].removeprefix("SELECT ").split(",")]
    assert columns == [f"s.slots.{name}" for name in ("epoch", "window_id", "attempt", "finished")]
    assert text.endswith("FOR UPDATE")


def test_arguments_stay_beside_the_text() -> None:
    """No value is in the text, also where there is a list of them."""
    kept = state_tables(ODD).structures.c
    sql, arguments = as_text(select(kept.path).where(kept.table_key.in_(["%s", "b'"]), kept.version == 5))
    assert sql % tuple(map(repr, arguments)) == (
        f"SELECT {QUOTED}.schema_history.path \nFROM {QUOTED}.schema_history \n"
        f"WHERE {QUOTED}.schema_history.table_key IN ('%s', \"b'\") AND {QUOTED}.schema_history.version = 5"
    )
    assert as_text(delete(state_tables("s").digests)) == ("DELETE FROM s.file_digests", [])


def test_a_row_is_put_in_the_place_of_its_key() -> None:
    """Only what does not identify the row is changed where there is one."""
    row = {"table_key": "k", "verb": "hold", "decided_at": func.utc_timestamp(6), "refusal": None}
    sql, arguments = as_text(put(state_tables("s").table_decisions, row))
    _, _, changed = sql.partition(" ON DUPLICATE KEY UPDATE ")
    assert changed == "verb = %s, decided_at = utc_timestamp(%s), refusal = %s"
    assert arguments[-3:] == ["hold", 6, None]


def test_what_is_read_fits() -> None:
    """What a schema file may say, and the name of a table that only a path shows, however long that is."""
    kept = state_tables("s").structures.c
    longest = {name: kept[name].type.length for name in ("schema_name", "table_name", "table_dir", "path", "table_key")}  # type: ignore[attr-defined] # all are texts
    assert longest["schema_name"] == longest["table_name"] == LONGEST_NAME
    assert (longest["table_dir"], longest["path"]) == (LONGEST_DIRECTORY, LONGEST_PATH)
    shown = stand_in_for("`" * 400 + "/" + "`" * 600)
    assert max(len(shown.schema), len(shown.table)) <= LONGEST_NAME
    assert len(key_of(shown)) <= longest["table_key"]
    assert stand_in_for("`" * 400 + "/" + "`" * 601) != shown
    assert stand_in_for("shop/a/b") == TableName(schema="shop", table="a/b")
