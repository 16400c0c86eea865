"""Names of an export's files ⇄ their content; its ``metadata``, and schema files' statements.

Dumpling writes ``{db}-schema-create.sql``, ``{db}.{table}-schema.sql``,
``{db}.{table}.{number}.sql|.csv`` and a few others, each with ``.gz``, ``.snappy`` or ``.zst``
appended if it is compressed. It escapes in names whatever could be mistaken for another part: the
first raw dot ends the database, and ``-schema`` at the end is never a part of the name. mydumper
writes the same names with numbers of five digits, or none.

Whether the data files of a table are all there and of one export, as far as their numbers,
beginnings, ends and times show it.

Whether the files of an export are all of one run of Dumpling, as far as the times at which they
were written show it.

A run overwrites what has the same name and leaves everything else: of a table that shrank, the last
files of an older run; of one that was dropped, all of them. No file is older than the run that
wrote it, and a copy is younger still, so a time before the beginning proves an older run, whoever
copied what. How exactly the beginning is known depends on the export:

* ``metadata`` has the local time of Dumpling's host, without a zone, and none is more than 14 hours
  ahead of UTC;
* rows of a snapshot were not written before it, and its TSO has a time in UTC, by the source's
  clock;
* ``metadata`` is written last. If its own time is the one that it says, in some zone, and the run
  began with the snapshot, then the files have their times from the run itself: the beginning is
  known by the store's own clock, and nothing of the run is younger than ``metadata``.

A written export has the same files: INSERT statements, which say everything of themselves (the
columns, the time zone, which values are bytes). Format: dumpling v7 and v8,
`v4/export/writer_util.go` and `metadata.go`.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby

from storage_consumer.bucket.storage import Storage
from storage_consumer.config.settings import Compression, FileFormat
from storage_consumer.decode.compression import decompressed
from storage_consumer.decode.values import grammar, holds_bytes
from storage_consumer.errors import ExportRefused, ExportUnfinished, UndecodableRow
from storage_consumer.model import (
    MAX_TSO,
    StoredObject,
    TableColumn,
    TableName,
    physical_ms,
    tso_of,
)
from storage_consumer.sql.tokens import pieces, quote, replace_spans

METADATA = "metadata"
UNFINISHED = frozenset(("metadata.partial", ".metadata"))
"""What mydumper calls it until it has finished."""
SUFFIXES: Mapping[str, Compression] = {".gz": "gzip", ".snappy": "snappy", ".zst": "zstd"}

_ESCAPE = re.compile(r"%([0-9A-F]{2})")


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
    """Its owner; of a placement policy, a database's name; empty for METADATA and UNKNOWN."""
    compression: Compression = ""
    file_format: FileFormat = "sql"
    number: int = 0
    width: int = 0
    """Digits that the number was written with; 0 without a number."""


_NOBODY = TableName(schema="", table="")


_FORM = r"\.(?P<format>sql|csv|(?:(?:gz|snappy|zst)\.)?parquet)"
"""Parquet files are compressed inside, and name that before."""
_KINDS = tuple(
    (re.compile(pattern, re.DOTALL), kind)
    for pattern, kind in (
        (r"(?P<schema>[^.]+)-schema-create\.sql", Kind.DATABASE),
        (r"(?P<schema>.+)-placement-policy-create\.sql", Kind.POLICY),
        (r"(?P<schema>[^.]+)-schema-post\.sql", Kind.ROUTINES),
        (r"(?P<schema>[^.]+)\.(?P<table>[^.]+)-schema-view\.sql", Kind.VIEW),
        (r"(?P<schema>[^.]+)\.(?P<table>[^.]+)-schema-sequence\.sql", Kind.SEQUENCE),
        (r"(?P<schema>[^.]+)\.(?P<table>[^.]+)-schema-triggers\.sql", Kind.TRIGGERS),
        (r"(?P<schema>[^.]+)\.(?P<table>[^.]+)-schema\.sql", Kind.TABLE),
        # Nine digits of a chunk or a file, or thirteen of both; five in mydumper's, which does
        # without where there is one file.
        (
            rf"(?P<schema>[^.]+)\.(?P<table>[^.]+)(?:\.(?P<number>[0-9]{{5,18}}))?{_FORM}",
            Kind.DATA,
        ),
    )
)
"""Pattern of a name, without what compression adds → kind. A dot inside a name is escaped."""
_FORMS: Mapping[str, FileFormat] = {"csv": "csv", "parquet": "parquet"}


def read_name(path: str) -> ExportFile:
    """Return what a path, relative to the export's folder, says."""
    if path == METADATA:
        return ExportFile(kind=Kind.METADATA, name=_NOBODY)
    suffix = next(filter(path.endswith, SUFFIXES), "")
    compression = SUFFIXES.get(suffix, "")
    for pattern, kind in _KINDS:
        # Only templates make folders: a slash in a name is escaped.
        if "/" not in path and (match := pattern.fullmatch(path.removesuffix(suffix))):
            parts = match.groupdict("")
            number = parts.get("number", "")
            return ExportFile(
                kind=kind,
                name=TableName(
                    schema=unescaped(parts["schema"]), table=unescaped(parts.get("table", ""))
                ),
                compression=compression,
                file_format=_FORMS.get(parts.get("format", "").rpartition(".")[2], "sql"),
                number=int(number or 0),
                width=len(number),
            )
    return ExportFile(kind=Kind.UNKNOWN, name=_NOBODY, compression=compression)


def unescaped(text: str) -> str:
    """Return a name with each ``%XX`` replaced by its ASCII character."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)


_STARTED = re.compile(r"Started dump at: *(.*)")
_FINISHED = re.compile(r"Finished dump at: *(.*)")
_FIELD = re.compile(r"\s+(Log|Pos|GTID): *(.*)")
_DATE = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?", re.ASCII)
_FIRST_TSO = tso_of(1_420_070_400)
"""2015-01-01, before the first TiDB: no position in a file of MySQL's is as large."""
_GIVE = "write the copy's instant as a TSO behind `Pos:` in that file"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportMetadata:
    """What an export says of itself."""

    started_at: str
    """Local time of the machine that wrote it, without a zone."""
    finished_at: str
    """Likewise."""
    snapshot: int
    """TSO of the snapshot; 0 if `metadata` tells none."""
    snapshot_hint: str = ""
    """Why there is no snapshot, and what to give; empty if there is one."""


def read_metadata(content: bytes, where: str) -> ExportMetadata:
    """Read ``metadata`` at `where`; raise `ExportRefused` unless its export is finished."""
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
    return ExportMetadata(
        started_at=started[1].strip(),
        finished_at=finished[1].strip(),
        snapshot=snapshot,
        snapshot_hint=hint,
    )


def _snapshot(text: str, where: str) -> tuple[int, str]:
    """Return the TSO of the snapshot, or 0 and the reason."""
    # Positions in what the source itself replicates from do not count.
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
            f"Pos in {where} is the date {position}, in a time zone that the export does not name: {_GIVE}. "
            "`storage-consumer tso TIME`, such as `tso 2026-11-23T10:00:00Z`, shows the TSO of a time with its zone"
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
_HAS_ANSI_NAME = re.compile(
    r'^CREATE\b[^\n]*?\b(?:TABLE|VIEW|DATABASE) (?:IF NOT EXISTS )?"', re.MULTILINE
)


def statements(text: str) -> list[str]:
    """Return a schema file's statements, without semicolons and those of comments only.

    Raises `ValueError` if the last one has no semicolon: then the file was cut. Names in double
    quotes, which a server writes under ANSI_QUOTES, are put into backquotes, so that a statement
    means the same to every server. What a comment holds that servers from a version on read, such
    as ``/*!40100 DEFAULT CHARACTER SET utf8mb4 */``, is kept as it is: every target reads it.
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
    spans = [
        (start, end, found[1])
        for start, end in comments
        if (found := _VERSIONED.fullmatch(text[start:end]))
    ]
    return replace_spans(text, spans)


def with_backquotes(text: str) -> str:
    """Return a text with backquotes for names, if the server wrote them in double quotes."""
    if not _HAS_ANSI_NAME.search(text):
        return text
    return _QUOTED.sub(
        lambda match: quote(match[0][1:-1].replace('""', '"')) if match["name"] else match[0], text
    )


AGAIN = "export again into an empty folder"
"""What remedies an export that cannot be used."""
Numbered = tuple[ExportFile, StoredObject]
"""A data file: what its name says, and where it is."""
_DUMPLINGS_WIDTH = 9
"""Digits that the numbers of Dumpling's files have at least; mydumper's have five, or no number."""
_CHUNKED_WIDTH = 13
"""Digits of a chunk's number with, as the last four, a file's (``--rows``, ``--filesize``)."""
_FILES = 10_000
_HEAD_BYTES = 64 << 10
"""Bytes to read at the beginning of a data file."""


def is_mydumpers(files: Iterable[Numbered]) -> bool:
    """Return whether mydumper has numbered one of the files."""
    return any(file.width < _DUMPLINGS_WIDTH for file, _ in files)


def refuse_numbers(name: TableName, files: Sequence[Numbered]) -> None:
    """Raise `ExportRefused` if a table's file numbers are of two exports or surely lack one.

    Format: dumpling-format, *Chunks, order*: within a chunk files are numbered from 0 on, while a
    chunk without rows has no file.
    """
    if len({file.width for file, _ in files}) > 1 or len({file.number for file, _ in files}) < len(
        files
    ):
        raise ExportRefused(
            f"the numbers of {name}'s files, {files[0][1].path} and {files[-1][1].path} among them, have different lengths: files of "
            f"two exports lie in one folder, and its rows would be there twice; {AGAIN}"
        )
    if files[0][0].width != _CHUNKED_WIDTH:
        return
    for _, chunk in groupby(files, lambda each: each[0].number // _FILES):
        for expected, (file, stored) in enumerate(chunk):
            if file.number % _FILES != expected:
                lacking = _padded(file.number - file.number % _FILES + expected, file)
                path = stored.path.replace(_padded(file.number, file), lacking)
                raise ExportRefused(
                    f"{path} is missing, but {stored.path} is there: copy the export again, or {AGAIN}"
                )


def gaps_note(tables: Mapping[TableName, Sequence[Numbered]]) -> str:
    """Return a note if Dumpling's file numbers have gaps, which may be losses; else ""."""
    found = dict[TableName, str]()
    for table, files in tables.items():
        # Thirteen digits are those of --rows, with which chunks may be missing.
        if _DUMPLINGS_WIDTH <= files[0][0].width < _CHUNKED_WIDTH:
            there = {file.number for file, _ in files}
            lacking = next((number for number in range(max(there)) if number not in there), None)
            if lacking is not None:
                found[table] = f"{lacking:0{_DUMPLINGS_WIDTH}d}"
    if not found:
        return ""
    name = min(found)
    others = f" (and {len(found) - 1} more of its tables)" if len(found) > 1 else ""
    return (
        f"in the export the files of {name}{others} lack a number, {found[name]} first: after an export with --rows that is normal, since a chunk without "
        "rows has no file. After one with --filesize alone the file's rows are missing: `storage-consumer verify` with the source tells"
    )


def _padded(number: int, file: ExportFile) -> str:
    return f"{number:0{file.width}d}"


def head_of(storage: Storage, stored: StoredObject, compression: Compression) -> bytes:
    """Return a data file's first bytes, decompressed; raise `ExportRefused` if damaged."""
    head = b""
    try:
        for block in decompressed(
            storage.blocks(stored.path, _HEAD_BYTES), compression, stored.path
        ):
            head += block
            if len(head) >= _HEAD_BYTES:
                break
    except UndecodableRow as fault:
        raise ExportRefused(str(fault)) from fault
    return head


_FARTHEST_ZONE = 14 * 3600
_CLOCKS = 10 * 60
"""Seconds by which the source's clock may differ from the store's."""
_ZONES = 15 * 60
"""All zones differ from UTC by a multiple of this."""
_WRITING = 10
"""Seconds between the time in ``metadata`` and that of the file."""
_SLACK = 60


def refuse_other_runs(head: ExportMetadata, listed: Sequence[StoredObject]) -> None:
    """Refuse other runs' files: `ExportRefused` if older, `ExportUnfinished` if yet to end.

    A newer run has no ``metadata`` yet.
    """
    try:
        times = map(datetime.fromisoformat, (head.started_at, head.finished_at))
        started, finished = (local.replace(tzinfo=UTC).timestamp() for local in times)
    except ValueError:
        return
    end = next(stored.modified for stored in listed if stored.path == METADATA)
    snapshot = physical_ms(head.snapshot) / 1000
    first, last = max(started - _FARTHEST_ZONE, snapshot - _CLOCKS), float("inf")
    # Where `metadata` itself is too old, or has no time, the times mean something else, as in an
    # archive that keeps none.
    if end < first:
        return
    began = end - (finished - started)
    off = (end - finished + _ZONES / 2) % _ZONES - _ZONES / 2
    if abs(off) <= _WRITING and abs(began - snapshot) <= _CLOCKS:
        first, last = max(first, began - _SLACK), end + _SLACK
    if older := [stored for stored in listed if 0 < stored.modified < first]:
        raise ExportRefused(
            f"{_named(older)}, before {_time(first)}, which is the earliest time that its {METADATA} leaves for this export to have begun (as of "
            f"{_time(snapshot) if snapshot else 'no TSO'}, Started dump at {head.started_at}): files of two exports lie in one folder, and rows of the "
            f"older one would be loaded too; {AGAIN}, or move all files away that are older. If all files are of this export and only "
            "lost their times when they were unpacked or copied, give all of them one time (`touch`, or in an object store a copy onto itself)"
        )
    if newer := [stored for stored in listed if stored.modified > last]:
        raise ExportUnfinished(
            f"{_named(newer)}, after {METADATA}, which is written last: another export into the same folder has begun since, or failed; wait "
            f"for it, or {AGAIN}. If you changed the file yourself, make {METADATA} younger again (`touch`, or in "
            "an object store a copy onto itself)"
        )


def _named(files: Sequence[StoredObject]) -> str:
    shown = min(files, key=lambda stored: stored.path)
    more = f" (and {len(files) - 1} more)" if len(files) > 1 else ""
    return f"{shown.path}{more} was written at {_time(shown.modified)}"


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


_HEAD = "/*!40014 SET FOREIGN_KEY_CHECKS=0*/;\n/*!40101 SET NAMES binary*/;\n/*!40103 SET TIME_ZONE='+00:00' */;\n"
"""What every file begins with; values of TIMESTAMP columns are in this zone."""
_PLAIN = re.compile(r"[^A-Za-z0-9_\x80-\U0010ffff]")
_SPECIAL = re.compile(rb"[\\'\"\0\n\r\x1a]")
_ESCAPES = {
    b"\\": b"\\\\",
    b"'": b"\\'",
    b'"': b'\\"',
    b"\0": b"\\0",
    b"\n": b"\\n",
    b"\r": b"\\r",
    b"\x1a": b"\\Z",
}
_STATEMENT_BYTES = 1 << 20
"""Bytes of rows after which a statement ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """One file of an export."""

    path: str
    content: bytes


def database_file(schema: str, statement: str) -> WrittenFile:
    """Return the file of a CREATE DATABASE."""
    return _statement_file(f"{_escaped(schema)}-schema-create.sql", statement)


def table_file(name: TableName, statement: str) -> WrittenFile:
    """Return the file of a CREATE TABLE."""
    return _statement_file(f"{_stem(name)}-schema.sql", statement)


def view_file(name: TableName, statement: str) -> WrittenFile:
    """Return the file of a CREATE VIEW."""
    return _statement_file(f"{_stem(name)}-schema-view.sql", statement)


def data_file(
    name: TableName,
    number: int,
    columns: Sequence[TableColumn],
    rows: Iterable[Sequence[bytes | None]],
) -> WrittenFile:
    """Return a data file; `number`: from 0; `rows`: texts as the server sends, None for NULL."""
    kinds = [
        "bytes" if holds_bytes(c) else "number" if grammar(c, "dump-sql") else "text"
        for c in columns
    ]
    names = ",".join(quote(column.name) for column in columns)
    opening = f"INSERT INTO {quote(name.table)} ({names}) VALUES\n".encode()
    content, left = bytearray(_HEAD.encode()), 0
    for row in rows:
        literals = []
        for value, kind in zip(row, kinds, strict=True):
            if value is None:
                literals.append(b"NULL")
            elif kind == "number":
                literals.append(value)
            elif kind == "bytes":
                literals.append(b"x'" + value.hex().encode() + b"'")
            else:
                literals.append(b"'" + _SPECIAL.sub(lambda found: _ESCAPES[found[0]], value) + b"'")
        text = b"(" + b",".join(literals) + b")"
        content += (b",\n" if left > 0 else opening) + text
        left = (left if left > 0 else _STATEMENT_BYTES) - len(text)
        if left <= 0:
            content += b";\n"
    if left > 0:
        content += b";\n"
    return WrittenFile(path=f"{_stem(name)}.{number:09}.sql", content=bytes(content))


def metadata_file(snapshot: int, started_at: str, finished_at: str) -> WrittenFile:
    """Return the file that marks a finished export; `snapshot`: its TSO; times are local."""
    text = (
        f"Started dump at: {started_at}\nSHOW MASTER STATUS:\n\tLog: tidb-binlog\n\tPos: {snapshot}\n\tGTID:\n\n"
        f"Finished dump at: {finished_at}\n"
    )
    return WrittenFile(path=METADATA, content=text.encode())


def _statement_file(path: str, statement: str) -> WrittenFile:
    return WrittenFile(path=path, content=f"{_HEAD}{statement};\n".encode())


def _stem(name: TableName) -> str:
    return f"{_escaped(name.schema)}.{_escaped(name.table)}"


def _escaped(text: str) -> str:
    """Escape a name's characters that could be other parts of a file's name; see `unescaped`."""
    return _PLAIN.sub(lambda found: f"%{ord(found[0]):02X}", text)
