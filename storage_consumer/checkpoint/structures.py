"""The content of a schema file as the state keeps it: to a row and back. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from storage_consumer.errors import MalformedSchemaFile
from storage_consumer.model import TableColumn, TableDefinition, TableName, TableVersion
from storage_consumer.plan.steps import key_of

_DEFAULTS = {field.name: field.default for field in fields(TableColumn)}
_HASHED = ("table_dir", "version", "checksum", "schema_name", "table_name", "ddl_type", "path", "query", "columns")


def record_of(table_dir: str, definition: TableDefinition) -> dict[str, object]:
    """Return the row for one schema file's content; `table_dir` is the file's directory."""
    columns = [
        # Only what differs from the defaults. A field that a later program adds is then read with its default from an older row.
        {name: value for name, default in _DEFAULTS.items() if (value := getattr(column, name)) != default}
        for column in definition.columns
    ]
    record: dict[str, object] = {
        "table_dir": table_dir,
        "version": definition.version,
        "checksum": definition.checksum,
        "table_key": key_of(definition.name),
        "schema_name": definition.name.schema,
        "table_name": definition.name.table,
        "ddl_type": definition.ddl_type,
        "path": definition.path,
        "query": definition.query,
        "columns": json.dumps(columns, ensure_ascii=False, separators=(",", ":")),
    }
    return {**record, "digest": _digest(record)}


def definition_of(record: Mapping[str, Any]) -> TableDefinition:
    """Return what a row says; other rows do not matter. Raise `MalformedSchemaFile` if it is not as it was written."""
    name = TableName(schema=record["schema_name"], table=record["table_name"])
    # Its statement may run from here, so a row that something else changed must not be believed.
    if record["digest"] != _digest(record):
        message = (
            f"the stored structure of {name} with version {record['version']} is damaged: something else wrote into "
            f"the state schema. Restore {record['path']} in the bucket, and delete this row of schema_history"
        )
        raise MalformedSchemaFile(message)
    columns = tuple(
        TableColumn(**{**column, "elements": tuple(column.get("elements", ()))})
        for column in json.loads(record["columns"])
    )
    return TableDefinition(
        name=name,
        version=TableVersion(record["version"]),
        query=record["query"],
        ddl_type=record["ddl_type"],
        columns=columns,
        path=record["path"],
        checksum=record["checksum"],
    )


def _digest(record: Mapping[str, Any]) -> str:
    """Return a digest that tells two rows apart, and a damaged row from the original."""
    text = json.dumps([record[name] for name in _HASHED], ensure_ascii=False)
    # A name may hold a lone surrogate, which strict UTF-8 refuses.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
