"""Read an export: its metadata, its schema files, and which files hold the rows of each table.

Where files can be read in several ways and none says which is meant, the user has to:
`refuse_unsaid`.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import NoReturn, TypeVar

from storage_consumer.bucket.export_names import (
    AGAIN,
    METADATA,
    UNFINISHED,
    Kind,
    Numbered,
    gaps_note,
    head_of,
    is_mydumpers,
    read_metadata,
    read_name,
    refuse_numbers,
    refuse_other_runs,
    statements,
)
from storage_consumer.bucket.storage import SCHEMA_FILE_BYTES, Storage, whole
from storage_consumer.bucket.table_statements import is_temporary, read_create_table
from storage_consumer.config.settings import Compression, DumpOptions, FileFormat, Upstream
from storage_consumer.decode.compression import decompressed
from storage_consumer.decode.decoder import FileRead, RowLayout
from storage_consumer.decode.export_files import ExportDecoder
from storage_consumer.decode.parquet_files import MOMENTS
from storage_consumer.decode.values import (
    BINARY_TYPES,
    INTEGER_TYPES,
    TEXT_TYPES,
    grammar,
    holds_bytes,
)
from storage_consumer.errors import ExportRefused, ExportUnfinished, UndecodableRow
from storage_consumer.model import (
    CommitRange,
    DdlKind,
    StoredObject,
    TableColumn,
    TableDefinition,
    TableName,
    TableVersion,
    folded_name,
)
from storage_consumer.sql.parse import parsed
from storage_consumer.sql.tokens import (
    closing,
    elements,
    find_words,
    has_words,
    replace_spans,
    tokens,
)

_ZONE = re.compile(rb"^/\*!\d+ SET TIME_ZONE *= *'([^'\n]*)' *\*/;", re.MULTILINE | re.IGNORECASE)
_PLACEHOLDER = re.compile(r"\n\) ?ENGINE=MyISAM\s*\Z")
_UNREAD_FORM = re.compile(
    r"\.(?:sql|csv)\.(?P<packed>lz4|lzo|bz2|xz|br|zip|7z|z|deflate)\Z|\.(?P<form>orc|avro|jsonl?|ndjson|tsv)(?:\.[a-z0-9]+)?\Z",
    re.IGNORECASE,
)
"""What the names of files with rows end in that are not read, whichever program wrote them."""
_LEFT_OUT: Mapping[Kind, str] = {
    Kind.SEQUENCE: "MySQL has no sequences; create it on the target where a table's default needs it",
    Kind.POLICY: "where TiDB puts its rows means nothing for another target",
    Kind.TRIGGERS: "the source's rows show already what its triggers did",
    Kind.ROUTINES: "they are no rows; create them on the target where they are wanted",
}
"""What is not loaded, and why."""
_THINGS = frozenset(("DATABASE", "SCHEMA", "TABLE", "VIEW"))
_HEADS = {
    word: re.compile(rf"\s*(?:/\*.*?\*/\s*)*{word}\b", re.DOTALL)
    for word in ("CREATE", "SET", "DROP")
}
"""What a schema file's statements begin with; the DROP removes a table in a view's place."""
_BLOCK = 1 << 20
_Beginning = tuple[StoredObject, bytes]
"""A data file and its first bytes."""
_FIRST_ROW = re.compile(rb".*?\n?VALUES\s*\(.*?\)[,;]\r?\n", re.DOTALL)
_TWO_LINES = re.compile(rb"[^\n]*\n[^\n]*\n")
_SQL_KEY = re.compile(rb"VALUES\s*\('?(-?\d+)'?[,)]")
_OF_NUMBERS = frozenset("-0123456789")
_CSV_KEY = re.compile(rb"\"?(-?\d+)\"?(?:[^\d\w.]|\Z)")
_ENDINGS = {
    "sql": (b";", "its last statement has no semicolon"),
    "parquet": (b"PAR1", "it does not end as Parquet does"),
}
"""Form of files → how they end, and what is wrong with others."""
_TAIL_BYTES = 64
"""Bytes to read at the end of a data file."""
_Value = TypeVar("_Value", bound=str)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportTable:
    """One table of an export."""

    name: TableName
    definition: TableDefinition
    """Its structure at the snapshot and CREATE TABLE; TIMESTAMP defaults in the export's zone."""
    carried: tuple[TableColumn, ...]
    """The columns of its rows, in order; see `CreatedTable.carried`."""
    parts: tuple[StoredObject, ...]
    """The data files in the order of their numbers; the ordinal of a part is its index + 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """A finished export."""

    identity: str
    """Changes if a file of the export may have changed; unique even among exports at one path."""
    snapshot: int
    """TSO of the snapshot that all rows are of; 0 if the export does not tell it."""
    snapshot_hint: str
    """Why `snapshot` is 0, and what to give; empty if it is not."""
    started_at: str
    """Local time of the machine that wrote it, without a zone; `finished_at` likewise."""
    finished_at: str
    file_format: FileFormat
    """Form of the data files; ``sql`` if there are no data files."""
    compression: Compression
    time_zone: str
    """Zone of TIMESTAMP values, as ``+00:00``, from the first SQL file with rows, else a schema
    file.
    """
    databases: tuple[TableDefinition, ...]
    """CREATE DATABASE statements; their names have no table."""
    tables: tuple[ExportTable, ...]
    """By database and table."""
    views: tuple[TableDefinition, ...]
    """CREATE VIEW statements, each after those that it selects from."""
    notes: tuple[str, ...]
    """What is left out, with reasons, and what the files cannot show."""


def read_export(
    storage: Storage, *, wanted: Callable[[TableName], bool] = lambda _: True
) -> Export:
    """Read an export's folder; raise `ExportRefused`, or `ExportUnfinished` if it may still finish.

    Only tables and views that are `wanted` are read and returned; the names and sizes of all files
    are checked nonetheless.
    """
    # Some tools leave an empty object where a bucket's console shows a folder.
    found_there = (
        stored
        for stored in storage.listing(frozenset(), {})
        if stored.path and not stored.path.endswith("/")
    )
    listed = sorted(found_there, key=lambda stored: stored.path)
    paths = {stored.path for stored in listed}
    if not paths:
        raise ExportRefused(
            "the folder of the export is empty or does not exist: give the folder that the export was written to"
        )
    if METADATA not in paths or paths & UNFINISHED:
        below = sorted(path for path in paths if path.endswith(f"/{METADATA}"))
        raise ExportUnfinished(
            f"the export has no {METADATA}, which is written last: it is still running, or it failed; wait for it, or {AGAIN}"
            + (
                f". There is one at {below[0]}: if that is the export, give its folder"
                if below
                else ""
            )
        )
    metadata = storage.read(METADATA)
    identity = hashlib.sha256(metadata)
    for stored in listed:
        identity.update(
            repr((stored.path, stored.size, stored.tag)).encode("utf-8", "surrogatepass")
        )
    head = read_metadata(metadata, METADATA)
    reading = _Reading(storage=storage, version=TableVersion(head.snapshot))
    reading.sort_out(listed)
    refuse_other_runs(head, listed)
    # All names first: no file is read of an export that is refused for them.
    reading.refuse_namesakes()
    tables = [
        name
        for name in sorted(reading.files[Kind.TABLE])
        if name not in reading.files[Kind.VIEW] and wanted(name)
    ]
    read = [reading.table(name) for name in tables]
    views = [reading.view(name) for name in sorted(reading.files[Kind.VIEW]) if wanted(name)]
    found = [table for table in read if table is not None]
    return Export(
        identity=identity.hexdigest(),
        snapshot=head.snapshot,
        snapshot_hint=head.snapshot_hint,
        started_at=head.started_at,
        finished_at=head.finished_at,
        file_format=reading.file_format,
        compression=reading.compression,
        time_zone=reading.time_zone(found),
        databases=tuple(reading.database(name) for name in sorted(reading.files[Kind.DATABASE])),
        tables=tuple(found),
        views=tuple(_in_order(views)),
        notes=tuple(reading.notes),
    )


# names


def _why_unknown(path: str) -> str:
    """Return why a file of this name prevents loading, and what to do.

    Without the rows in it a table would be loaded in part, or empty.
    """
    form = _UNREAD_FORM.search(path)
    if form is None:
        return (
            "is not a name that Dumpling or mydumper gives its files by default, so nothing tells for certain whether it has rows, and whose: "
            "if the export wrote it, export without --output-filename-template. Move it away only if the export did not write it"
        )
    if form["packed"]:
        return (
            f"is compressed as .{form['packed']}, which this program does not read: decompress it, as all others, or export with --compress gzip, "
            "snappy or zstd. Without it its rows would be missing"
        )
    return f"holds rows as .{form['form']}, which this program does not read: export with --filetype sql or csv. Without it its rows would be missing"


def _only(found: Mapping[_Value, StoredObject], what: str, default: _Value) -> _Value:
    """Return the only value, or `default` for none; raise `ExportRefused` if there are several."""
    if len(found) > 1:
        paths = " and ".join(stored.path for stored in islice(found.values(), 2))
        raise ExportRefused(
            f"{paths} differ in their {what}: files of two exports lie in one folder, or some were changed since; {AGAIN}"
        )
    return next(iter(found), default)


# contents


@dataclass(slots=True, kw_only=True)
class _Reading:
    """Reads the files of one export."""

    storage: Storage
    version: TableVersion
    files: dict[Kind, dict[TableName, StoredObject]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """By kind, the one file of each name."""
    data: dict[TableName, list[Numbered]] = field(default_factory=lambda: defaultdict(list))
    """Data files of each table, in the order of their numbers."""
    file_format: FileFormat = "sql"
    compression: Compression = ""
    notes: list[str] = field(default_factory=list)
    schema_zones: list[str] = field(default_factory=list)
    """The zones that schema files state, in the order in which they were read."""

    def sort_out(self, listed: Sequence[StoredObject]) -> None:
        """Sort files by name; raise `ExportRefused` unless they can be one whole export."""
        named = [(read_name(stored.path), stored) for stored in listed]
        for file, stored in named:
            if file.kind is Kind.UNKNOWN:
                raise ExportRefused(f"{stored.path} {_why_unknown(stored.path)}")
            if not stored.size:
                raise ExportRefused(
                    f"{stored.path} is empty: it was cut, or the export failed while it was begun; {AGAIN}"
                )
            if file.kind is Kind.DATA:
                self.data[file.name].append((file, stored))
            elif file.kind is not Kind.METADATA:
                self.files[file.kind][file.name] = stored
        self.compression = _only(
            {file.compression: stored for file, stored in named if file.kind is not Kind.METADATA},
            "compression",
            "",
        )
        self.file_format = _only(
            {file.file_format: stored for file, stored in named if file.kind is Kind.DATA},
            "form",
            "sql",
        )
        for name, files in self.data.items():
            files.sort(key=lambda each: (each[0].number, each[1].path))
            self._check_data(name, files)
        for name in self.files[Kind.VIEW]:
            if name in self.data:
                raise ExportRefused(
                    f"{self.files[Kind.VIEW][name].path} defines a view, but it has rows: {AGAIN}"
                )
        if any(map(is_mydumpers, self.data.values())):
            self.notes.append(
                "mydumper finishes its export even where a table failed, which then lacks rows: its exit status has to be 0"
            )
        if note := gaps_note(self.data):
            self.notes.append(note)
        for kind, reason in _LEFT_OUT.items():
            self.notes += [
                f"left out: {kind.value} {name}: {reason}" for name in sorted(self.files[kind])
            ]

    def _check_data(self, name: TableName, files: Sequence[Numbered]) -> None:
        first = files[0][1].path
        if name not in self.files[Kind.TABLE] and name not in self.files[Kind.VIEW]:
            raise ExportRefused(
                f"{first} has no schema file beside it, so the columns of {name} are not known: export without --no-schemas, "
                "--sql and --output-filename-template, or copy the missing file"
            )
        refuse_numbers(name, files)

    def refuse_namesakes(self) -> None:
        """Raise `ExportRefused` for two tables of one name to TiDB: they are of two exports."""
        known: dict[TableName, TableName] = {}
        for name, stored in sorted(self.files[Kind.TABLE].items()):
            other = known.setdefault(name.folded(), name)
            if other != name:
                raise ExportRefused(
                    f"{stored.path}: {name} and {other} are one table to TiDB, so files of two exports lie in one folder: {AGAIN}"
                )

    def database(self, name: TableName) -> TableDefinition:
        """Return a CREATE DATABASE."""
        stored = self.files[Kind.DATABASE][name]
        content, query = self.statement(stored, "DATABASE")
        found = tokens(query)
        at = 2 + 3 * (find_words(found[:5], "IF", "NOT", "EXISTS") == 2)  # noqa: PLR2004 - after CREATE DATABASE
        _check_name(stored, name.schema, found[at].name if at < len(found) else "")
        return self.definition(name, stored, content, query, DdlKind.CREATE_SCHEMA)

    def table(self, name: TableName) -> ExportTable | None:
        """Return a table; None if it is left out, which is noted."""
        stored = self.files[Kind.TABLE][name]
        content, query = self.statement(stored, "TABLE")
        parts = self.data.get(name, [])
        if is_temporary(query):
            self.notes.append(
                f"left out: table {name}: it is temporary, so its rows are those of one session"
            )
            return None
        if _PLACEHOLDER.search(query) and not parts and "\n  " not in query:
            raise ExportRefused(
                f"{stored.path} holds the place of the view {name}, whose -schema-view file is missing: copy the export again, "
                f"or {AGAIN}"
            )
        try:
            created = read_create_table(query)
        except ValueError as error:
            raise ExportRefused(
                f"{stored.path} cannot be read: {error}; copy it again, or {AGAIN}"
            ) from error
        _check_name(stored, name.table, created.name)
        definition = self.definition(
            name, stored, content, query, DdlKind.CREATE_TABLE, created.columns
        )
        self.check_files(definition, created.carried, parts)
        return ExportTable(
            name=name,
            definition=definition,
            carried=created.carried,
            parts=tuple(part for _, part in parts),
        )

    def view(self, name: TableName) -> TableDefinition:
        """Return a CREATE VIEW; the file that holds its place among the tables is not read."""
        stored = self.files[Kind.VIEW][name]
        content, query = self.statement(stored, "VIEW")
        found = tokens(query)
        # TiCDC writes the account that runs the statement: the source's definer is unknown here.
        definer, end = find_words(found, "DEFINER", "="), find_words(found, "SQL", "SECURITY")
        if 0 <= definer < end:
            query = replace_spans(
                query, [(found[definer + 2].start, found[end - 1].end, "CURRENT_USER")]
            )
            found = tokens(query)
        at = find_words(found, "VIEW", depth=0) + 1
        _check_name(stored, name.table, found[at].name if 0 < at < len(found) else "")
        listed = (
            elements(found, at + 1, closing(found, at + 1))
            if has_words(found[at + 1 : at + 2], "(")
            else []
        )
        # As TiCDC lists the columns of a view.
        columns = tuple(
            TableColumn(name=found[first].name, type="UNSPECIFIED") for first, _ in listed
        )
        return self.definition(name, stored, content, query, DdlKind.CREATE_VIEW, columns)

    def definition(
        self,
        name: TableName,
        stored: StoredObject,
        content: bytes,
        query: str,
        kind: DdlKind,
        columns: tuple[TableColumn, ...] = (),
    ) -> TableDefinition:
        """Return what a schema file says as a definition."""
        return TableDefinition(
            name=name,
            version=self.version,
            query=query,
            ddl_type=kind,
            columns=columns,
            path=stored.path,
            checksum=zlib.crc32(content),
        )

    def statement(self, stored: StoredObject, what: str) -> tuple[bytes, str]:
        """Return the content of a schema file, and its one CREATE of this kind of thing."""
        content = self.content(stored)
        self.schema_zones += _zone_in(content.partition(b"CREATE")[0])
        try:
            found = statements(content.decode())
        except ValueError as error:
            _refuse_file(stored, str(error))
        created = [statement for statement in found if _HEADS["CREATE"].match(statement)]
        others = [
            statement
            for statement in found
            if not any(head.match(statement) for head in _HEADS.values())
        ]
        begin = tokens(created[0]) if created else []
        # Between CREATE and TABLE or VIEW there may be options, but no parenthesis.
        end = next((at for at, token in enumerate(begin) if token.text == "("), len(begin))
        thing = next((token.upper for token in begin[:end] if token.upper in _THINGS), "")
        if others or len(created) != 1 or thing != what:
            _refuse_file(
                stored,
                f"it is not one CREATE {what}, but {(others or created or ['nothing'])[0][:80]!r}",
            )
        return content, created[0]

    def content(self, stored: StoredObject) -> bytes:
        """Return the content of a schema file."""
        blocks = whole(self.storage.blocks(stored.path, _BLOCK), stored)
        content = bytearray()
        try:
            for block in decompressed(blocks, self.compression, stored.path):
                content += block
                if len(content) > SCHEMA_FILE_BYTES:
                    _refuse_file(stored, f"it has more than {SCHEMA_FILE_BYTES} bytes")
        except UndecodableRow as fault:
            raise ExportRefused(str(fault)) from fault
        return bytes(content)

    def time_zone(self, tables: Sequence[ExportTable]) -> str:
        """Return the zone in the first SQL file with rows, else in a schema file that was read."""
        first = next((table.parts[0] for table in tables if table.parts), None)
        stated: list[str] = []
        if first is not None and self.file_format == "sql":
            stated = _zone_in(
                head_of(self.storage, first, self.compression).partition(b"INSERT INTO")[0]
            )
        return next(iter([*stated, *self.schema_zones]), "")

    def check_files(
        self, definition: TableDefinition, carried: Sequence[TableColumn], files: Sequence[Numbered]
    ) -> None:
        """Raise `ExportRefused` if a table's files, by number, are cut or of two exports.

        `carried`: the columns of its rows, which lack the generated ones.
        """
        objects = [stored for _, stored in files]
        # What is compressed shows that it was cut when it is read.
        ending = _ENDINGS.get(self.file_format)
        for stored in objects if ending and not self.compression else ():
            start = max(stored.size - _TAIL_BYTES, 0)
            tail = b"".join(
                whole(self.storage.blocks(stored.path, _TAIL_BYTES, start), stored, start)
            )
            if ending and not tail.rstrip().endswith(ending[0]):
                raise ExportRefused(
                    f"{stored.path} cannot be read: {ending[1]}: it was cut; copy it again, or {AGAIN}"
                )
        key = [column for column in definition.columns if column.is_pk]
        # A text could hold what looks like the end of the row, and two rows be alike up to there.
        has_texts = any(column.type in TEXT_TYPES | BINARY_TYPES for column in key)
        is_parquet = self.file_format == "parquet"
        if not key or list(carried[: len(key)]) != key or has_texts or is_parquet:
            return
        heads = ((stored, head_of(self.storage, stored, self.compression)) for stored in objects)
        first = tuple(islice(heads, 2))
        pattern = _FIRST_ROW if self.file_format == "sql" else _TWO_LINES
        # Up to the end of the first row, if that is a short one.
        rows = [found[0] for _, content in first if (found := pattern.match(content))]
        if len(rows) > 1 and rows[0] == rows[1]:
            raise ExportRefused(
                f"{first[0][0].path} and {first[1][0].path} begin with the same row, although {definition.name} has a primary key: files of "
                f"two exports lie in one folder; {AGAIN}"
            )
        if len(files) > 1 and _is_in_order(definition) and not is_mydumpers(files):
            before: tuple[int, StoredObject] | None = None
            for part, content in chain(first, heads):
                if self.file_format == "sql":
                    found = _SQL_KEY.search(content)
                else:
                    # After the names of the columns, if the file has them.
                    line, _, rest = content.partition(b"\n")
                    found = _CSV_KEY.match(line) or _CSV_KEY.match(rest)
                if found is None:
                    continue
                begin = int(found[1])
                if before is not None and begin <= before[0]:
                    raise ExportRefused(
                        f"{part.path} begins with key {begin}, not after the {before[0]} with which {before[1].path} begins: files of two exports lie "
                        f"in one folder, or this one was made with --order-by-primary-key=false, which looks the same; {AGAIN}, without that option"
                    )
                before = begin, part


def _is_in_order(definition: TableDefinition) -> bool:
    """Return whether rows are in the order of the first column, a unique whole number.

    It orders by a clustered primary key; without one by the hidden row id, and in a partitioned
    table by partition.
    """
    keys = [column for column in definition.columns if column.is_pk]
    first = definition.columns[0] if definition.columns else None
    # A name that begins as a number does, at the beginning of a CSV file, could be a key.
    is_key = (
        first is not None
        and keys == [first]
        and first.type in INTEGER_TYPES
        and first.name[:1] not in _OF_NUMBERS
    )
    query = definition.query.upper()
    return is_key and "[CLUSTERED_INDEX] CLUSTERED" in query and "PARTITION BY" not in query


def _zone_in(head: bytes) -> list[str]:
    """Return the zone that the head of an SQL file names, if any."""
    found = _ZONE.search(head)
    return [found[1].decode("ascii", "replace")] if found else []


def _refuse_file(stored: StoredObject, why: str) -> NoReturn:
    raise ExportRefused(f"{stored.path} cannot be read: {why}; copy it again, or {AGAIN}")


def _check_name(stored: StoredObject, said: str, found: str) -> None:
    if folded_name(said) != folded_name(found):
        _refuse_file(stored, f"its name says {said!r}, its statement {found!r}")


def _in_order(views: Sequence[TableDefinition]) -> Iterator[TableDefinition]:
    """Yield each view after those that it selects from."""
    waiting = {view.name.folded(): view for view in views}

    def taken(name: TableName) -> Iterator[TableDefinition]:
        view = waiting.pop(name, None)
        if view is None:
            return
        for source in parsed(view).names:
            yield from taken(source.within(view.name.schema).folded())
        yield view

    for view in views:
        yield from taken(view.name.folded())


_LOOKED_AT = 50
"""Tables of which the beginning of one file is read: those with the most bytes."""
_ALL = CommitRange(low=0, high=1 << 62)
_SQL_TEXT = re.compile(rb"`(?>(?:[^`]|``)*)`|'((?>(?:[^'\\]|\\.|'')*))'", re.DOTALL)
_RAW_IN_SQL = re.compile(rb"(?<!\\)(?:\\\\)*(?:[\"\n\r\0]|''|\\[^0nrZ\\'\"])")
"""What a text never holds if backslashes escape."""
_HEX = re.compile(r"(?:[0-9a-f]{2})+")
_BASE64 = re.compile(
    r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)"
)


_ZERO_DATES = (
    "NULL in {} may stand for a date such as 0000-00-00, which Dumpling writes to Parquet as NULL. If the source has no such "
    "dates, say so in the URI: --dump 'URI?zero-dates=false'; otherwise export with --filetype sql or csv"
)


def refuse_unsaid(
    storage: Storage, export: Export, origin: Upstream, said: Collection[str]
) -> None:
    """Raise `ExportRefused` if an export needs an option that nobody gave, with the option.

    `origin`: its files, and how they are written as far as that is known. `said`: the parameters of
    its URI. The zone is needed wherever there is a TIMESTAMP; for the other options the beginnings
    of some files are read, and what shows there only later is refused where it is read.
    """
    for table in () if origin.time_zone else export.tables:
        for column in table.definition.columns:
            if column.type == "TIMESTAMP" and (table.parts or column.default):
                raise ExportRefused(
                    f"no file of the export says in which time zone its TIMESTAMP values are, such as those of {table.name}.{column.name}: "
                    "give it in the export's URI, ?time-zone=ZONE, or by --dump-tz ZONE. It is the `time_zone` of the server's session that Dumpling had, by default the server's own"
                )
    for table in export.tables if origin.dump.file_format != "sql" else ():
        for column in table.carried if table.parts else ():
            if why := _alike(column, origin.dump, f"{table.name}.{column.name}"):
                raise ExportRefused(why)
    largest = sorted(export.tables, key=lambda table: -sum(part.size for part in table.parts))[
        :_LOOKED_AT
    ]
    for table in largest:
        if table.parts:
            _refuse_by_head(storage, table, origin, said)


def _alike(column: TableColumn, options: DumpOptions, where: str) -> str:
    """Return a column's values that are alike, and the remedy, or "". `where`: the column."""
    if options.file_format == "parquet":
        is_either = options.zero_dates and column.nullable and column.type in MOMENTS
        return _ZERO_DATES.format(where) if is_either else ""
    marker, pattern = options.null, grammar(column, "dump-csv")
    again = r"Export again with --csv-null-value '\N'"
    if pattern:
        is_value = column.nullable and re.fullmatch(pattern, marker)
        return f"NULL and the value {marker!r} look alike in {where}. {again}" if is_value else ""
    if options.delimiter:
        quoted = marker.removeprefix(options.delimiter).removesuffix(options.delimiter)
        is_text = column.nullable and marker.startswith(options.delimiter)
        return f"NULL and the text {quoted!r} look alike in {where}. {again}" if is_text else ""
    if not options.escape_backslash:
        return f"nothing tells where a text of {where} ends: --csv-delimiter is empty, and --escape-backslash=false. Export again with one of them"
    # Only with escapes does a text begin otherwise than the marker that begins with a backslash.
    if column.nullable and not marker.startswith("\\"):
        return f"NULL and the text {marker!r} look alike in {where}, since --csv-delimiter is empty. {again}, or with a delimiter"
    return ""


def _refuse_by_head(
    storage: Storage, table: ExportTable, origin: Upstream, said: Collection[str]
) -> None:
    options, part = origin.dump, table.parts[0]
    # What a Parquet file holds is known by its end.
    if options.file_format == "parquet":
        return
    head = head_of(storage, part, options.compression)
    if options.file_format == "sql":
        # After the settings at its beginning; the last text may be cut.
        texts_of = _SQL_TEXT.finditer(head, max(head.find(b"INSERT INTO"), 0))
        is_unsaid = options.escape_backslash and "escape-backslash" not in said
        if is_unsaid and any(_RAW_IN_SQL.search(found[1] or b"") for found in texts_of):
            raise ExportRefused(
                f"{part.path} holds texts that Dumpling writes only with --escape-backslash=false: if that is how it ran, say so in the URI: "
                "--dump 'URI?escape-backslash=false'; if not, escape-backslash=true"
            )
        return
    quote, columns = options.delimiter.encode(), table.carried
    names = options.separator.encode().join(
        b"%b%b%b" % (quote, column.name.encode(), quote) for column in columns
    )
    if columns and not options.header and head.startswith(names + options.terminator.encode()):
        raise ExportRefused(
            f"{part.path} begins with the names of its columns, so it was not written with --no-header: leave `no-header` out of the URI"
        )
    if "csv-output-dialect" not in said and any(map(holds_bytes, table.carried)):
        places = [
            place
            for place, column in enumerate(table.carried)
            if holds_bytes(column) and column.type != "BIT"
        ]
        layout = RowLayout(table=table.name, columns=columns)
        file = FileRead(blocks=[head], source=part.path, layout=layout, commit_range=_ALL)
        found: list[bytes] = []
        # Up to a row that is cut or cannot be read.
        with suppress(UndecodableRow):
            for _, _, _, values, _ in ExportDecoder(options).rows(file):
                found += [bytes.fromhex(values[place] or "") for place in places]
        texts = [value.decode("latin-1") for value in found if value]
        for form, dialect in ((_HEX, "redshift (or snowflake)"), (_BASE64, "bigquery")):
            if texts and all(form.fullmatch(text) for text in texts):
                raise ExportRefused(
                    f"the bytes in {part.path} look as Dumpling writes them with --csv-output-dialect={dialect}. Say what it was in the "
                    f"URI: --dump 'URI?csv-output-dialect={dialect.partition(' ')[0]}', or csv-output-dialect=default if they are as they are"
                )
