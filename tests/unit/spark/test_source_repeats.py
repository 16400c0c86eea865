"""Changes that TiCDC delivered more than once, as DataFrames have them: what cannot be told apart is an error."""

from __future__ import annotations

import pyarrow as pa
import pytest

from storage_consumer.errors import NotReplicable
from storage_consumer.spark.source.partitions import transactions_once

FIELDS = ("day", "_change_type", "_commit_version", "_table_version", "_file", "_row")


def test_null_in_a_key_that_was_another_one_before() -> None:
    """It is a date that no calendar has, which could be that of another row: in one file there are no repeats, in two it is an error."""
    rows = [dict(zip(FIELDS, (None, "insert", 7, 1, f"d/t/1/CDC{n:020d}.csv", 1), strict=True)) for n in range(1, 3)]
    keys = [(1, ["day"]), (9, ["other"])]
    batches = [pa.RecordBatch.from_pylist([{**each, "other": 1} for each in some]) for some in (rows[:1], rows)]
    assert sum(table.num_rows for table in transactions_once(iter(batches[:1]), keys)) == 1
    with pytest.raises(NotReplicable, match=r"null in its primary key \(day\): a date that no calendar has"):
        list(transactions_once(iter(batches[1:]), keys))
