"""What the reports of a table say together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage_consumer.model import CommitRange, DataFile, StoredObject, TableDefinition, TableName, TableVersion
from storage_consumer.plan.loads import clock_of
from storage_consumer.plan.steps import RowStep, key_of
from storage_consumer.rows.spec import RowPlace, WriteReport, table_outcome

NAME = TableName(schema="d", table="a")
STRUCTURE = TableDefinition(
    name=NAME, version=TableVersion(0), query="", ddl_type=0, columns=(), path="d.a-schema.sql", checksum=1
)
FILE = DataFile(
    stored=StoredObject(path="d.a.000000000.sql", size=100, tag="1"),
    table_dir="load/1",
    version=TableVersion(0),
    partition=None,
    date="",
    dispatcher="",
    number=1,
    width=0,
)
STEP = RowStep(
    table_key=key_of(NAME),
    name=NAME,
    commit_range=CommitRange(low=0, high=10),
    current=STRUCTURE,
    definitions={},
    files=(FILE,),
)


@pytest.mark.parametrize(
    ("as_of", "place"),
    [(0, f"row 3 of d.a.000000000.sql, commit ts {clock_of(1, 3)}"), (70, "row 3 of d.a.000000000.sql")],
    ids=["bucket", "copy"],
)
def test_where_a_refused_row_is(as_of: int, place: str) -> None:
    """By its file and number; a row of a copy has no commit ts, only the clock of its load, by which nobody could find it."""
    report = WriteReport(table=0, error="too long", place=RowPlace(commit_ts=clock_of(1, 3), rank=0, row=3))
    assert table_outcome(replace(STEP, as_of=as_of), [report]).error == f"too long ({place})"
