"""Which statements may run while rows of their table are in the quarantine, and whose entries they remove."""

from __future__ import annotations

import json

import pytest

from storage_consumer.model import DdlKind, TableColumn, TableDefinition, TableName, TableVersion
from storage_consumer.plan.ddl_backlog import QuarantinedTables, TableEntries, closed_by, may_run
from storage_consumer.plan.steps import DdlStep

ENTRIES = TableEntries(count=1, signatures=frozenset({json.dumps(["keyed", ["id", "text", "exact", None, "None"]])}))
ID, NAME = TableColumn(name="id", type="INT", is_pk=True), TableColumn(name="name", type="VARCHAR", precision=5)


def structure(kind: int, *columns: TableColumn, name: str = "t") -> TableDefinition:
    """A schema file of that kind."""
    return TableDefinition(
        name=TableName(schema="d", table=name),
        version=TableVersion(7),
        query="ALTER TABLE t COMMENT 'x'",
        ddl_type=kind,
        columns=columns,
        path="d/t/meta/schema_7_1.json",
        checksum=1,
    )


def step(definition: TableDefinition, key: str = "`d`.`t`") -> DdlStep:
    """It as a step."""
    return DdlStep(table_dir="d/t", table_key=key, definition=definition)


@pytest.mark.parametrize(
    ("kind", "runs"),
    [
        (DdlKind.ADD_COLUMN, True),
        (DdlKind.ADD_INDEX, True),
        (DdlKind.TRUNCATE_TABLE, True),
        (DdlKind.DROP_TABLE, True),
        (DdlKind.RENAME_TABLE, False),
        (DdlKind.EXCHANGE_PARTITION, False),
        (DdlKind.TRUNCATE_PARTITION, False),
        (DdlKind.DROP_PARTITION, False),
        (DdlKind.DROP_PRIMARY_KEY, False),
        (DdlKind.MODIFY_TABLE_CHARSET, False),
        (DdlKind.RECOVER_TABLE, False),
        (9_999, False),
    ],
)
def test_kinds(kind: int, runs: bool) -> None:  # noqa: FBT001 - a case
    """What moves rows or is not known waits; what removes all rows, or leaves them where they are, runs."""
    assert may_run(step(structure(kind, ID, NAME)), structure(kind, ID, NAME), ENTRIES) is runs


def test_change_of_the_key() -> None:
    """A changed column runs unless entries are found by it."""
    before, wider = structure(DdlKind.MODIFY_COLUMN, ID, NAME), TableColumn(name="name", type="VARCHAR", precision=9)
    assert may_run(step(structure(DdlKind.MODIFY_COLUMN, ID, wider)), before, ENTRIES)
    other = TableColumn(name="id", type="BIGINT", is_pk=True)
    assert not may_run(step(structure(DdlKind.MODIFY_COLUMN, other, NAME)), before, ENTRIES)
    unique = TableEntries(
        count=1, signatures=frozenset({json.dumps(["keyed", ["name", "text", "exact", None, "None"]])})
    )
    assert not may_run(step(structure(DdlKind.MODIFY_COLUMN, ID, wider)), before, unique)


def test_whose_entries_are_removed() -> None:
    """Those of the one table, or of all tables of a database."""
    assert closed_by(step(structure(DdlKind.TRUNCATE_TABLE, ID))) == ("`d`.`t`", "")
    assert closed_by(step(structure(DdlKind.DROP_SCHEMA, name=""), "`d`")) == ("", "`d`.")
    assert closed_by(step(structure(DdlKind.ADD_COLUMN, ID))) == ("", "")


def test_known_tables() -> None:
    """What a job noted counts until the state is read again; a table without rows is not counted."""
    known = QuarantinedTables()
    assert not known
    known.note("a", 2, "x")
    known.note("a", 1, "y")
    known.note("b", 0, "x")
    assert (known.of("a"), dict(known.counts)) == (TableEntries(count=3, signatures=frozenset("xy")), {"a": 3})
    assert known.of("b") is not None
    known.replace({})
    assert not known
