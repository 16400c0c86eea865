"""Small buckets in memory, for tests of what can be found out about them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from storage_consumer.bucket.inspector import InspectedBucket, InspectedSetting, inspect
from storage_consumer.bucket.schema_file import schema_checksum
from storage_consumer.config.load import load
from tests.harness.twins.storage import MemoryStorage

V = 449_000_000_000_000_001
TS = V + 100
NOW = 1_790_000_000.0
CREATE = "CREATE TABLE `orders` (`id` BIGINT PRIMARY KEY, `name` VARCHAR(20))"
ID_NAME: tuple[Mapping[str, str], ...] = (
    {"ColumnName": "id", "ColumnType": "BIGINT", "ColumnNullable": "false", "ColumnIsPk": "true"},
    {"ColumnName": "name", "ColumnType": "VARCHAR", "ColumnPrecision": "20"},
)


def schema_file(
    columns: Sequence[Mapping[str, str]] = ID_NAME, query: str = CREATE, *, table: str = "orders", version: int = V
) -> tuple[str, bytes]:
    """Path and content of the schema file of a table of ``shop``."""
    document = {
        "Table": table,
        "Schema": "shop",
        "Version": 1,
        "TableVersion": version,
        "Query": query,
        "Type": 3 if query else 0,
        "TableColumns": list(columns),
        "TableColumnsTotal": len(columns),
    }
    text = json.dumps(document, indent=4, ensure_ascii=False)
    return f"shop/{table}/meta/schema_{version}_{schema_checksum(text):010d}.json", text.encode()


def data_path(number: int = 1, *, extension: str = "csv", table: str = "orders", version: int = V) -> str:
    """Where a data file lies."""
    return f"shop/{table}/{version}/2026-11-21/CDC{number:020d}.{extension}"


def bucket_of(*files: tuple[str, bytes], checkpoint: int = TS + 1000) -> MemoryStorage:
    """A bucket of these files, and ``metadata``."""
    return MemoryStorage({"metadata": b'{"checkpoint-ts":%d}' % checkpoint, **dict(files)})


def csv_bucket(*rows: str, columns: Sequence[Mapping[str, str]] = ID_NAME, query: str = CREATE) -> MemoryStorage:
    """A bucket with one table and one CSV file of these rows, written as they are."""
    return bucket_of(schema_file(columns, query), (data_path(), "".join(rows).encode()))


def look(storage: MemoryStorage, **options: object) -> InspectedBucket:
    """What is found out of a bucket with these options."""
    loaded = load({"upstream_uri": "file:///bucket", "allow_missing_commit_ts": True, **options}, {}, target=False)
    return inspect(storage, loaded.config.upstream, loaded.origins, NOW)


def setting(bucket: InspectedBucket, name: str) -> InspectedSetting:
    """One setting by its name."""
    return next(each for each in bucket.settings if each.name == name)


def shown(bucket: InspectedBucket) -> dict[str, object]:
    """Name → value of what was inferred."""
    return {each.name: each.value for each in bucket.settings if each.state == "inferred"}
