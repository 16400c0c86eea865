"""An export's Parquet files as CSV in Dumpling's default dialect: NULLs, escapes and numbers.

Format: tidb, `pkg/dumpformat/parquetfile`, and `dumpling/export/writer_parquet.go` of TiDB Cloud.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

from storage_consumer.config.settings import Compression
from storage_consumer.decode.compression import decompressed
from storage_consumer.decode.decoder import FileRead
from storage_consumer.decode.export_fields import order_of
from storage_consumer.errors import ConfigError, UndecodableRow
from storage_consumer.model import TableColumn

MOMENTS = frozenset(("DATETIME", "TIMESTAMP"))
"""The types of which Dumpling writes values that no calendar has as NULL."""
_PIECE = 4 << 20
"""About how many bytes are decoded at once; a row is never cut."""
_ESCAPES = (("\\", r"\\"), ('"', r"\""), ("\n", r"\n"), ("\r", r"\r"), ("\0", r"\0"))
_OTHERWISE = "; export with --filetype sql or csv"


def as_csv(file: FileRead, compression: Compression) -> Iterator[bytes]:
    """Yield a Parquet file's rows as CSV without a header, columns in the layout's order.

    The file passes through a temporary one, since its index is at its end; memory holds a part of a
    row group. Raises `UndecodableRow` if it is damaged, or does not tell a column's values.
    """
    try:
        from pyarrow import ArrowException, parquet  # noqa: PLC0415 - an extra
    except ImportError:
        raise ConfigError(
            "an export as Parquet needs the package pyarrow: pip install 'storage-consumer[dump]'"
        ) from None
    columns = file.layout.columns
    if not columns:
        raise UndecodableRow(
            f"{file.source}: all columns of {file.layout.table} are generated, and Dumpling writes no rows of "
            f"such a table to Parquet{_OTHERWISE}"
        )
    with tempfile.TemporaryFile() as spool:
        for block in decompressed(file.blocks, compression, file.source):
            spool.write(block)
        try:
            found = parquet.ParquetFile(spool)
            order = order_of(found.schema_arrow.names, file.layout)
            places = [order.index(place) for place in range(len(order))]
            for batch in _batches(found):
                yield _rows(
                    [
                        _field(column, batch.column(at), file.source, found.metadata.created_by)
                        for column, at in zip(columns, places, strict=True)
                    ]
                )
        except (ArrowException, OSError, ValueError) as fault:
            raise UndecodableRow(
                f"{file.source}: {fault}; copy it again from where it was exported to, or export again"
            ) from fault


def _batches(found: Any) -> Iterator[Any]:
    for number in range(found.num_row_groups):
        group = found.metadata.row_group(number)
        size = max(1, group.num_rows * _PIECE // max(1, group.total_byte_size))
        yield from found.iter_batches(size, row_groups=[number])


def _field(column: TableColumn, values: Any, source: str, writer: str | None) -> Any:
    """Return a column's fields, None for NULL; raise `UndecodableRow` if values may be others.

    `writer`: what the file names as its own; TiDB Cloud's first one has no name, and multiplies
    decimals by floating point.
    """
    import pyarrow as pa  # noqa: PLC0415 - an extra
    import pyarrow.compute as pc  # noqa: PLC0415

    kind, reason = values.type, ""
    if column.type in MOMENTS and not column.nullable and values.null_count:
        reason = "has NULL in place of dates that no calendar has, such as 0000-00-00"
    elif pa.types.is_decimal(kind) and kind.scale > 1 and not writer:
        reason = "may be off by one in the last digit: the file names no writer, as TiDB Cloud's first one, which rounds DECIMAL values down"
    elif column.type == "DECIMAL" and pa.types.is_floating(kind):
        reason = f"is a DECIMAL, but {kind} in the file"
    if reason:
        raise UndecodableRow(f"{source}: column {column.name} {reason}{_OTHERWISE}")
    if pa.types.is_timestamp(kind) and kind.tz is None:
        # In microseconds there are always six digits of a fraction.
        texts = values.cast(pa.timestamp("us")).cast(pa.string())
        values = pc.utf8_rtrim(pc.utf8_rtrim(texts, "0"), ".")
    elif not any(is_text(kind) for is_text in (pa.types.is_string, pa.types.is_binary)):
        # Bare, as only numbers are written: for a column of another type the reader refuses it.
        return values.cast(pa.string()).cast(pa.binary())
    values = values.cast(pa.binary())
    for raw, escaped in _ESCAPES:
        values = pc.replace_substring(values, raw, escaped)
    return pc.binary_join_element_wise(b'"', values, b'"', b"")


def _rows(fields: list[Any]) -> bytes:
    import pyarrow as pa  # noqa: PLC0415 - an extra
    import pyarrow.compute as pc  # noqa: PLC0415

    rows = pc.binary_join_element_wise(
        *fields, b",", null_handling="replace", null_replacement=b"\\N"
    )
    joined = pc.binary_join(pa.ListArray.from_arrays([0, len(rows)], rows), b"\r\n")
    return bytes(joined[0].as_py()) + b"\r\n"
