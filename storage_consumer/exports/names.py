"""Names of an export's files ⇄ what they hold; its ``metadata``, and the statements of its schema files.

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
from storage_consumer.errors import ExportRefused
from storage_consumer.model import MAX_TSO, TableName, tso_of
from storage_consumer.sql.tokens import pieces, quote, replace_spans

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


_STARTED = re.compile(r"Started dump at: *(.*)")
_FINISHED = re.compile(r"Finished dump at: *(.*)")
_FIELD = re.compile(r"\s+(Log|Pos|GTID): *(.*)")
_DATE = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?", re.ASCII)
_FIRST_TSO = tso_of(1_420_070_400)
"""2015-01-01, before the first TiDB: no position in a file of MySQL's is as large."""
_GIVE = "give the copy's instant as a TSO"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """What an export says of itself."""

    started_at: str
    """Local time of the machine that wrote it, without a zone."""
    finished_at: str
    """Likewise."""
    snapshot: int
    """TSO of the snapshot; 0 if `metadata` tells none."""
    snapshot_hint: str = ""
    """Why there is no snapshot, and what to give; empty if there is one."""


def read_metadata(content: bytes, where: str) -> Metadata:
    """Return what ``metadata`` says; `where`: its path, for messages. Raise `ExportRefused` if it is none of a finished export."""
    text = content.decode("utf-8", "replace")
    if re.search(r"^\[", text, re.MULTILINE) or text.startswith("# Started dump at"):
        raise ExportRefused(
            f"{where} is written as mydumper writes it from 0.11 on, which this program does not read: export with "
            "Dumpling, or with mydumper 0.10"
        )
    started, finished = _STARTED.search(text), _FINISHED.search(text)
    if not started:
        raise ExportRefused(
            f"{where} is not what Dumpling or mydumper writes there (it lacks 'Started dump at'): give the folder that "
            "the export was written to"
        )
    if not finished:
        raise ExportRefused(
            f"{where} lacks 'Finished dump at': the export is still running, or it failed; wait for it, or export again "
            "into an empty folder"
        )
    snapshot, hint = _snapshot(text, where)
    return Metadata(
        started_at=started[1].strip(), finished_at=finished[1].strip(), snapshot=snapshot, snapshot_hint=hint
    )


def _snapshot(text: str, where: str) -> tuple[int, str]:
    """Return the TSO of the snapshot, or 0 and why there is none."""
    # What a source replicates from is none of its own positions.
    own = text.split("SHOW SLAVE STATUS:", maxsplit=1)[0]
    fields = [(match[1], match[2].strip()) for match in _FIELD.finditer(own)]
    positions = {value for name, value in fields if name == "Pos"}
    logs = {value for name, value in fields if name == "Log"}
    if len(positions) > 1:
        return 0, (
            f"{where} has several positions ({', '.join(sorted(positions))}): the export was made without a snapshot; "
            "export again with --consistency snapshot"
        )
    position = "".join(positions)
    if not position:
        return 0, f"{where} has no Pos: {_GIVE}, if the export was made at one"
    if _DATE.fullmatch(position):
        return 0, (
            f"Pos in {where} is the date {position}, in a time zone that the export does not name: {_GIVE}, its "
            "milliseconds since 1970 UTC shifted left by 18 bits"
        )
    if position.isdecimal() and position.isascii() and _FIRST_TSO <= int(position) <= MAX_TSO:
        return int(position), ""
    log = "".join(logs)
    return 0, (
        f"Pos in {where} is {position[:40]} of {log[:80] or 'no log'}, which is no TSO: the export was not made from TiDB; "
        f"{_GIVE} if it belongs to one"
    )


# In a name between double quotes a backslash is an ordinary character, unlike in a string.
_QUOTED = re.compile(
    r"""'(?>(?:[^'\\]|\\.|'')*)' | `(?>(?:[^`]|``)*)` | /\*.*?\*/ | (?P<name>"(?>(?:[^"]|"")*)")""",
    re.VERBOSE | re.DOTALL,
)
_VERSIONED = re.compile(r"/\*!\d{5,6} ?(.*?) ?\*/", re.DOTALL)
_HAS_ANSI_NAME = re.compile(r'^CREATE\b[^\n]*?\b(?:TABLE|VIEW|DATABASE) (?:IF NOT EXISTS )?"', re.MULTILINE)


def statements(text: str) -> list[str]:
    """Return the statements of a schema file, without their semicolons and without those that are only comments.

    Raises `ValueError` if the last one has no semicolon: then the file was cut. Names in double quotes, which a server writes under
    ANSI_QUOTES, are put into backquotes, so that a statement means the same to every server. What a comment holds that servers from a
    version on read, such as ``/*!40100 DEFAULT CHARACTER SET utf8mb4 */``, stands as it is: every target reads it.
    """
    text = with_backquotes(text)
    found: list[str] = []
    begin, is_empty = 0, True
    for kind, start, end in pieces(text):
        if kind == "symbol" and text[start:end] == ";":
            found += [] if is_empty else [opened(text[begin:start]).strip()]
            begin, is_empty = end, True
        elif kind not in ("space", "comment"):
            is_empty = False
    if not is_empty:
        raise ValueError("the last statement has no semicolon: the file was cut")
    return found


def opened(text: str) -> str:
    """Return a text without the marks of comments that MySQL and TiDB read from some version on."""
    comments = [(start, end) for kind, start, end in pieces(text) if kind == "comment"]
    spans = [(start, end, found[1]) for start, end in comments if (found := _VERSIONED.fullmatch(text[start:end]))]
    return replace_spans(text, spans)


def with_backquotes(text: str) -> str:
    """Return a text with names in backquotes, if a server wrote them in double quotes; else the text itself."""
    if not _HAS_ANSI_NAME.search(text):
        return text
    return _QUOTED.sub(lambda match: quote(match[0][1:-1].replace('""', '"')) if match["name"] else match[0], text)
