"""What no file of an export says: it has to be told where the files could else be read as something that they are not."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import suppress

from storage_consumer.config.settings import DumpOptions, Upstream
from storage_consumer.decode import export_decoder
from storage_consumer.decode.decoder import FileRead, RowLayout
from storage_consumer.decode.values import grammar, holds_bytes
from storage_consumer.errors import ExportRefused, UndecodableRow
from storage_consumer.exports.data_files import head_of
from storage_consumer.exports.export import Export, ExportTable
from storage_consumer.model import CommitRange, TableColumn
from storage_consumer.storage.base import Storage

_LOOKED_AT = 50
"""Tables of which the beginning of one file is read: those with the most bytes."""
_ALL = CommitRange(low=0, high=1 << 62)
_SQL_TEXT = re.compile(rb"`(?>(?:[^`]|``)*)`|'((?>(?:[^'\\]|\\.|'')*))'", re.DOTALL)
_RAW_IN_SQL = re.compile(rb"(?<!\\)(?:\\\\)*(?:[\"\n\r\0]|''|\\[^0nrZ\\'\"])")
"""What a text never holds if backslashes escape."""
_HEX = re.compile(r"(?:[0-9a-f]{2})+")
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)")


def refuse_unsaid(storage: Storage, export: Export, origin: Upstream, said: Collection[str]) -> None:
    """Raise `ExportRefused` if an export needs an option that nobody gave, with the option.

    `origin`: its files, and how they are written as far as that is known. `said`: the parameters of its URI. The zone is needed wherever
    there is a TIMESTAMP; for the other options the beginnings of some files are looked at, and what shows there only later is refused
    where it is read.
    """
    _refuse_zone(export, origin)
    _refuse_ambiguous(export, origin)
    largest = sorted(export.tables, key=lambda table: -sum(part.size for part in table.parts))[:_LOOKED_AT]
    for table in largest:
        if table.parts:
            _look_at(storage, table, origin, said)


def _refuse_zone(export: Export, origin: Upstream) -> None:
    if origin.time_zone:
        return
    for table in export.tables:
        for column in table.definition.columns:
            if column.type == "TIMESTAMP" and (table.parts or column.default):
                raise ExportRefused(
                    f"no file of the export says in which time zone its TIMESTAMP values are, such as those of {table.name}.{column.name}: "
                    "give it in the export's URI, ?time-zone=ZONE, or by --dump-tz ZONE. It is the `time_zone` of the server's session that Dumpling had, by default the server's own"
                )


def _refuse_ambiguous(export: Export, origin: Upstream) -> None:
    """Raise `ExportRefused` if options of a CSV export let two values look alike in one of its tables."""
    if origin.dump.file_format != "csv":
        return
    for table in export.tables:
        for column in table.carried if table.parts else ():
            if why := _alike(column, origin.dump, f"{table.name}.{column.name}"):
                raise ExportRefused(why)


def _alike(column: TableColumn, options: DumpOptions, where: str) -> str:
    """Return which values of a column look alike, and what to do; empty if none do. `where`: the column, for the message."""
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


def _look_at(storage: Storage, table: ExportTable, origin: Upstream, said: Collection[str]) -> None:
    options, part = origin.dump, table.parts[0]
    head = head_of(storage, part, options.compression)
    if options.file_format == "sql":
        if options.escape_backslash and "escape-backslash" not in said and _has_raw_texts(head):
            raise ExportRefused(
                f"{part.path} holds texts that Dumpling writes only with --escape-backslash=false: if that is how it ran, say so in the URI: "
                "--dump 'URI?escape-backslash=false'; if not, escape-backslash=true"
            )
        return
    _refuse_header(head, table.carried, origin, part.path)
    if "csv-output-dialect" not in said and any(map(holds_bytes, table.carried)):
        _refuse_digits(head, table, origin)


def _has_raw_texts(head: bytes) -> bool:
    """Return whether a text is there that has no such form where backslashes escape."""
    # Behind the settings at its beginning; the last text may be cut.
    rows = head[max(head.find(b"INSERT INTO"), 0) :]
    return any(_RAW_IN_SQL.search(found[1] or b"") for found in _SQL_TEXT.finditer(rows))


def _refuse_header(head: bytes, columns: tuple[TableColumn, ...], origin: Upstream, path: str) -> None:
    """Raise `ExportRefused` if a file begins with the names of its columns, although it should not."""
    options = origin.dump
    quote = options.delimiter.encode()
    names = options.separator.encode().join(b"%b%b%b" % (quote, column.name.encode(), quote) for column in columns)
    if columns and not options.header and head.startswith(names + options.terminator.encode()):
        raise ExportRefused(
            f"{path} begins with the names of its columns, so it was not written with --no-header: leave `no-header` out of the URI"
        )


def _refuse_digits(head: bytes, table: ExportTable, origin: Upstream) -> None:
    """Raise `ExportRefused` if all bytes of a file look as if they were written as digits."""
    places = [place for place, column in enumerate(table.carried) if holds_bytes(column) and column.type != "BIT"]
    found = [bytes.fromhex(row[place] or "") for row in _rows(head, table, origin) for place in places]
    texts = [value.decode("latin-1") for value in found if value]
    for form, dialect in ((_HEX, "redshift (or snowflake)"), (_BASE64, "bigquery")):
        if texts and all(form.fullmatch(text) for text in texts):
            raise ExportRefused(
                f"the bytes in {table.parts[0].path} look as Dumpling writes them with --csv-output-dialect={dialect}. Say what it was in the "
                f"URI: --dump 'URI?csv-output-dialect={dialect.partition(' ')[0]}', or csv-output-dialect=default if they are as they are"
            )


def _rows(head: bytes, table: ExportTable, origin: Upstream) -> Iterator[tuple[str | None, ...]]:
    """Yield the values of the rows that a file begins with, up to one that is cut or cannot be read."""
    layout = RowLayout(table=table.name, columns=table.carried)
    file = FileRead(blocks=[head], source=table.parts[0].path, layout=layout, commit_range=_ALL)
    with suppress(UndecodableRow):
        for _, _, _, values, _ in export_decoder(origin.dump).rows(file):
            yield values or ()
