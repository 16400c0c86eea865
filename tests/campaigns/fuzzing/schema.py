"""Schema files: a definition or `MalformedSchemaFile` that names the file, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Sequence

from storage_consumer.bucket.schema_file import parse_schema_file
from storage_consumer.errors import MalformedSchemaFile
from tests.campaigns.fuzzing.engine import Target, refused
from tests.campaigns.fuzzing.seeds import corpus_files

VERSION = 449000000000000001
PATH = f"shop/orders/meta/schema_{VERSION}_0000000001.json"
PIECES = (
    b'"TableVersion": 449000000000000001',
    b'"TableColumns": null',
    b'"TableColumnsTotal": "0"',
    b'"ColumnElems": ["a"]',
    b'"ColumnPrecision": 10',
    b'"ColumnNullable": false',
    b'"ColumnType": "UNSPECIFIED"',
    b'"Version": 0',
)


def seeds() -> Sequence[bytes]:
    """Schema files of the recorded buckets, all with one version."""
    same = rb"\g<1>%d" % VERSION
    return [re.sub(rb'("TableVersion": )\d+', same, content) for _, content in corpus_files(r".*/schema[^/]*\.json")]


def check(data: bytes) -> str:
    """Read `data` as a schema file."""
    try:
        definition = parse_schema_file(data, PATH, VERSION, 1, table_dir="shop/orders")
    except MalformedSchemaFile as error:
        return refused(error, PATH)
    assert definition.version == VERSION
    return f"read, {len(definition.warnings)} warnings, {min(len(definition.columns), 20)} columns"


TARGET = Target(name="schema", seeds=seeds, check=check, pieces=PIECES)
