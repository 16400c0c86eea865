"""Names of an export's files ⇄ what they hold.

Dumpling writes ``{db}-schema-create.sql``, ``{db}.{table}-schema.sql``, ``{db}.{table}.{number}.sql|.csv`` and a few others, each with
``.gz``, ``.snappy`` or ``.zst`` behind it if it is compressed. It escapes in names whatever could be mistaken for another part: the
first raw dot ends the database, and ``-schema`` at the end is never a part of the name. mydumper writes the same names with numbers of
five digits, or none.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from storage_consumer.config.settings import Compression
from storage_consumer.model import TableName

METADATA = "metadata"
UNFINISHED = frozenset(("metadata.partial", ".metadata"))
"""What mydumper calls it until it has finished."""
SUFFIXES: Mapping[str, Compression] = {".gz": "gzip", ".snappy": "snappy", ".zst": "zstd"}

_ESCAPE = re.compile(r"%([0-9A-F]{2})")
_ROUTINES = "-schema-post.sql"
_KINDS = (
    (re.compile(r"(?P<table>.+)-schema-view\.sql", re.DOTALL), "VIEW"),
    (re.compile(r"(?P<table>.+)-schema-sequence\.sql", re.DOTALL), "SEQUENCE"),
    (re.compile(r"(?P<table>.+)-schema-triggers\.sql", re.DOTALL), "TRIGGERS"),
    (re.compile(r"(?P<table>.+)-schema\.sql", re.DOTALL), "TABLE"),
    # Nine digits of a chunk or a file, or thirteen of both; five in mydumper's, which does without where there is one file.
    (re.compile(r"(?P<table>.+)\.(?P<number>[0-9]{5,18})\.(?P<format>sql|csv)", re.DOTALL), "DATA"),
    (re.compile(r"(?P<table>.+)\.(?P<format>sql|csv)", re.DOTALL), "DATA"),
)
"""Pattern of what follows the database's name and a dot → kind."""


class Kind(enum.Enum):
    """What a file of an export holds."""

    METADATA = "metadata"
    DATABASE = "database"
    TABLE = "table"
    VIEW = "view"
    DATA = "rows"
    SEQUENCE = "sequence"
    POLICY = "placement policy"
    TRIGGERS = "triggers"
    ROUTINES = "routines and events"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportFile:
    """What the name of a file says."""

    kind: Kind
    name: TableName
    """Whom it belongs to; of a placement policy, its name is that of the database; empty where `kind` is METADATA or UNKNOWN."""
    compression: Compression = ""
    file_format: Literal["sql", "csv"] = "sql"
    number: int = 0
    width: int = 0
    """Digits that the number was written with; 0 if there is none."""


_NOBODY = TableName(schema="", table="")


def read_name(path: str) -> ExportFile:
    """Return what a path, relative to the export's folder, says."""
    if path == METADATA:
        return ExportFile(kind=Kind.METADATA, name=_NOBODY)
    stem, compression = _uncompressed(path)
    # Only templates make folders: a slash in a name is escaped.
    found = None if "/" in path else _database_file(stem, compression) or _table_file(stem, compression)
    return found or ExportFile(kind=Kind.UNKNOWN, name=_NOBODY, compression=compression)


def _uncompressed(path: str) -> tuple[str, Compression]:
    for suffix, compression in SUFFIXES.items():
        if path.endswith(suffix):
            return path.removesuffix(suffix), compression
    return path, ""


def _database_file(stem: str, compression: Compression) -> ExportFile | None:
    endings = (
        ("-schema-create.sql", Kind.DATABASE),
        ("-placement-policy-create.sql", Kind.POLICY),
        (_ROUTINES, Kind.ROUTINES),
    )
    for ending, kind in endings:
        name = stem.removesuffix(ending)
        # A dot would begin a table's name: those of a database's are escaped.
        if stem.endswith(ending) and name and (kind is Kind.POLICY or "." not in name):
            return ExportFile(
                kind=kind, name=TableName(schema=unescaped(name) or name, table=""), compression=compression
            )
    return None


def _table_file(stem: str, compression: Compression) -> ExportFile | None:
    schema, _, rest = stem.partition(".")
    for pattern, kind in _KINDS:
        if not (match := pattern.fullmatch(rest)):
            continue
        parts = match.groupdict()
        table, number = parts["table"], parts.get("number") or ""
        # A dot inside a table's name is escaped as well.
        if not schema or "." in table:
            return None
        return ExportFile(
            kind=Kind[kind],
            name=TableName(schema=unescaped(schema), table=unescaped(table)),
            compression=compression,
            file_format="csv" if parts.get("format") == "csv" else "sql",
            number=int(number or 0),
            width=len(number),
        )
    return None


def unescaped(text: str) -> str:
    """Return a name with each ``%XX`` replaced by the character that it stands for; all of them are ASCII."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)
