"""Partitioned tables whose partitions write into one folder: rows may be lost at the source, which is said once."""

from __future__ import annotations

import json

import pytest

from storage_consumer.bucket.reader import StorageReader
from storage_consumer.bucket.schema_file import schema_checksum
from storage_consumer.config.settings import Upstream
from storage_consumer.model import DdlKind
from tests.harness.twins.storage import FakeClock, MemoryStorage
from tests.unit.bucket.building import look

V1, V2 = 449000000000000001, 449000000000000500
PARTITIONED = "CREATE TABLE `t` (`id` INT PRIMARY KEY) PARTITION BY HASH (`id`) PARTITIONS 4"
PLAIN = "CREATE TABLE `t` (`id` INT PRIMARY KEY)"
_COLUMNS = [{"ColumnName": "id", "ColumnType": "INT", "ColumnNullable": "false", "ColumnIsPk": "true"}]


def schema(query: str, kind: int = 3, version: int = V1, table: str = "t") -> tuple[str, bytes]:
    """A schema file of ``shop.t``."""
    head = {"Table": table, "Schema": "shop", "Version": 1, "TableVersion": version, "Query": query, "Type": kind}
    text = json.dumps(head | {"TableColumns": _COLUMNS, "TableColumnsTotal": 1}, indent=4)
    return f"shop/{table}/meta/schema_{version}_{schema_checksum(text):010d}.json", text.encode()


def data(version: int = V1, partition: str = "", number: int = 1) -> tuple[str, bytes]:
    """A data file, in the folder of a partition or in none."""
    return f"shop/t/{version}/{partition}2026-11-21/CDC{number:020d}.csv", b'"I","t","shop",449000000000000600,1\n'


CASES = [
    ("one folder", (schema(PARTITIONED), data()), None, True),
    ("a folder each", (schema(PARTITIONED), data(partition="101/")), None, False),
    ("no partitions", (schema(PLAIN), data()), None, False),
    ("LIKE another", (schema("CREATE TABLE `t` LIKE `u`"), data()), None, False),
    ("SYSTEM_TIME", (schema(f"{PLAIN} PARTITION BY SYSTEM_TIME INTERVAL 1 DAY"), data()), None, False),
    ("before it had any", (schema(PLAIN), schema("x", DdlKind.ALTER_PARTITIONING, V2), data()), None, False),
    ("since it has some", (schema(PLAIN), schema("x", DdlKind.ALTER_PARTITIONING, V2), data(V2)), None, True),
    ("known by a change", (schema("x", DdlKind.ADD_PARTITION), data()), None, True),
    ("after they went", (schema(PARTITIONED), schema("x", DdlKind.REMOVE_PARTITIONING, V2), data(V2)), None, False),
    ("told, and no file yet", (schema(PARTITIONED),), False, True),
    ("told, and no partitions", (schema(PLAIN), data()), False, False),
    ("another table of the name", (schema(PARTITIONED), schema("x", DdlKind.RENAME_TABLE, V2), data(V2)), None, False),
    ("turned on since", (schema(PARTITIONED), data(), data(partition="101/", number=2)), None, True),
]


@pytest.mark.parametrize(
    ("files", "separator", "shares"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_tables_that_may_lack_rows(
    files: tuple[tuple[str, bytes], ...], *, separator: bool | None, shares: bool
) -> None:
    """A run and `inspect` name the table, whether the setting is given or the files show it; a run only once."""
    storage = MemoryStorage({"metadata": b'{"checkpoint-ts":%d}' % (V2 + 500), **dict(files)})
    upstream = Upstream(scheme="file", root="/bucket", protocol="csv", partition_separator=separator)
    polls = StorageReader(storage, upstream, FakeClock())
    said = [text for text in polls.poll().warnings if "partitions of shop.t write into one folder" in text]
    assert len(said) == shares
    if shares:
        storage.put(*data(number=3))
        assert not any("one folder" in text for text in polls.poll().warnings)
    given = {} if separator is None else {"enable_partition_separator": separator}
    fresh = MemoryStorage({"metadata": b'{"checkpoint-ts":%d}' % (V2 + 500), **dict(files)})
    assert sum("partitions of shop.t write into one folder" in text for text in look(fresh, **given).warnings) == shares


def test_many_tables() -> None:
    """The message names a few of many tables, and what to do."""
    files = {path: text for number in range(8) for path, text in [schema(PARTITIONED, table=f"t{number}")]}
    storage = MemoryStorage({"metadata": b'{"checkpoint-ts":%d}' % V2, **files})
    upstream = Upstream(scheme="file", root="/bucket", protocol="csv", partition_separator=False)
    (said,) = (text for text in StorageReader(storage, upstream, FakeClock()).poll().warnings if "one folder" in text)
    assert "shop.t0, shop.t1, shop.t2, shop.t3, shop.t4 and 3 more" in said
    assert "rows may be lost at the source" in said
