"""Small buckets written manually, file by file as TiCDC writes them, for tests of what goes wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from storage_consumer.bucket.schema_file import schema_checksum

_START_MS = 1_790_000_000_000
_TICK_MS = 1000
_DATE = "2026-11-21"
CONFIG: dict[str, object] = {"sink": {"csv": {"include-commit-ts": True}}}
"""What ``config`` takes."""
_CANAL_TYPES = {"I": "INSERT", "U": "UPDATE", "D": "DELETE"}


def ts(tick: int) -> int:
    """The TSO at tick `tick`; one tick is a second, unless `tell_time` said otherwise."""
    return (_START_MS + tick * _TICK_MS) << 18


def tell_time(start_ms: int, tick_ms: int) -> None:
    """From now on tick 0 is at `start_ms` (milliseconds since 1970), and a tick is so many milliseconds; before the first use of `ts`."""
    global _START_MS, _TICK_MS
    _START_MS, _TICK_MS = start_ms, tick_ms


def column(name: str, kind: str, *, key: bool = False, **attributes: str) -> dict[str, Any]:
    """One entry of TableColumns."""
    extra = {"ColumnNullable": "false", "ColumnIsPk": "true"} if key else {}
    return {"ColumnName": name, "ColumnType": kind, **extra, **attributes}


ID_NAME = (column("id", "INT", key=True), column("name", "VARCHAR", ColumnPrecision="20"))
"""Columns of the table that most tests use."""
CREATE_TABLE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaFile:
    """One schema file of a statement."""

    name: tuple[str, str]
    """Database and table, as path and content say it; a database's has no table."""
    query: str
    kind: int
    columns: Sequence[Mapping[str, Any]] = ()


def schema_document(file: SchemaFile, version: int) -> tuple[str, int]:
    """The text of a schema file at a version, and its checksum."""
    database, table = file.name
    document = {
        "Table": table,
        "Schema": database,
        "Version": 1,
        "TableVersion": version,
        "Query": file.query,
        "Type": file.kind,
        "TableColumns": list(file.columns) if table else None,
        "TableColumnsTotal": len(file.columns) if table else 0,
    }
    text = json.dumps(document, indent=4, ensure_ascii=False)
    checksum = schema_checksum(text)
    assert checksum is not None
    return text, checksum


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallBucket:
    """A folder that a test fills."""

    root: Path
    protocol: Literal["csv", "canal-json"] = "csv"

    @property
    def uri(self) -> str:
        """What ``--upstream-uri`` takes."""
        extension = "&enable-tidb-extension=true" if self.protocol == "canal-json" else ""
        return f"{self.root.as_uri()}?protocol={self.protocol}{extension}"

    def text(self, one: str) -> str:
        """A row as it stands in a data file, without its terminator; a text that `row` did not make stays as it is."""
        return one.canal if isinstance(one, Row) and self.protocol == "canal-json" else str(one)

    def metadata(self, checkpoint: int | str) -> None:
        """Write ``metadata``: a checkpoint, or any text."""
        text = checkpoint if isinstance(checkpoint, str) else json.dumps({"checkpoint-ts": checkpoint})
        self.write("metadata", text)

    def write(self, path: str, content: str | bytes) -> Path:
        """Write a file."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        return target

    def schema(
        self,
        table: str,
        version: int,
        query: str,
        kind: int,
        columns: Sequence[Mapping[str, Any]] = ID_NAME,
    ) -> Path:
        """Write the schema file of ``schema.table`` (or of ``schema``) at `version`."""
        database, _, name = table.partition(".")
        file = SchemaFile(name=(database, name), query=query, kind=kind, columns=columns)
        text, checksum = schema_document(file, version)
        folder = f"{database}/{name}/meta" if name else f"{database}/meta"
        return self.write(f"{folder}/schema_{version}_{checksum:010d}.json", text)

    def create(self, *tables: str, body: str = "id INT PRIMARY KEY, name VARCHAR(20)", at: int = 1) -> None:
        """Schema files that create the tables of `ID_NAME` at tick `at`, and their databases a tick before."""
        for database in sorted({table.partition(".")[0] for table in tables}):
            self.schema(database, ts(at - 1), f"CREATE DATABASE `{database}`", 1)
        for table in tables:
            self.schema(table, ts(at), f"CREATE TABLE `{table.partition('.')[2]}` ({body})", CREATE_TABLE)

    def file(self, table: str, number: int, *, version: int | None = None) -> Path:
        """Where a data file lies."""
        folder = f"{table.replace('.', '/')}/{ts(1) if version is None else version}/{_DATE}"
        return self.root / folder / f"CDC{number:020d}.{'csv' if self.protocol == 'csv' else 'json'}"

    def rows(self, table: str, number: int, *rows: str, version: int | None = None) -> Path:
        """Write data file `number` of a table with these rows, which `row` made."""
        path = self.file(table, number, version=version)
        return self.write(path.relative_to(self.root).as_posix(), "".join(f"{self.text(one)}\r\n" for one in rows))


class Row(str):
    """One row as CSV text, which knows its canal-json text too."""

    __slots__ = ("canal",)
    canal: str


def row(
    table: str,
    tick: int,
    *values: str,
    operation: str = "I",
    names: Sequence[str] = ("id", "name", "more"),
    old: Sequence[str] = (),
) -> Row:
    r"""One row; `values` as CSV has them: text in quotes, ``\N`` for NULL.

    For canal-json: `names` of the columns, and the `old` row of an update, which is the same one if it is not given.
    """
    database, _, name = table.partition(".")
    found = Row(",".join((f'"{operation}"', f'"{name}"', f'"{database}"', str(ts(tick)), *values)))
    image, before = (
        [dict(zip(names, (None if value == r"\N" else value.strip('"') for value in given), strict=False))]
        for given in (values, old or values)
    )
    message = {
        "id": 0,
        "database": database,
        "table": name,
        "pkNames": [names[0]],
        "isDdl": False,
        "type": _CANAL_TYPES[operation],
        "es": ts(tick) >> 18,
        "ts": ts(tick) >> 18,
        "sql": "",
        "sqlType": {},
        "mysqlType": {},
        "old": before if operation == "U" else None,
        "data": image,
        "_tidb": {"commitTs": ts(tick)},
    }
    found.canal = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
    return found


def of_two_structures(root: Path) -> SmallBucket:
    """d.a with changes from ticks 2 to 8, a column more since tick 5, some of them twice; complete up to tick 9."""
    found = SmallBucket(root=root)
    found.create("d.a", "d.b")
    found.rows("d.a", 1, *(row("d.a", tick, str(tick), '"old"') for tick in (2, 3, 4)))
    found.rows("d.a", 2, *(row("d.a", tick, str(tick), '"old"') for tick in (3, 4, 5)))
    columns = (column("id", "INT", key=True), column("name", "VARCHAR"), column("more", "INT"))
    found.schema("d.a", ts(5), "ALTER TABLE `a` ADD COLUMN `more` INT", 5, columns)
    found.rows("d.a", 1, row("d.a", 7, "3", '"new"', "7", operation="U"), version=ts(5))
    found.rows("d.a", 2, row("d.a", 8, "2", '"old"', r"\N", operation="D"), version=ts(5))
    found.metadata(ts(9))
    return found
