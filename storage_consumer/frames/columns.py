"""Arrow types of a table's columns, and arrays of wire texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage_consumer.config.settings import Protocol
from storage_consumer.decode.values import BINARY_TYPES
from storage_consumer.feed.values import reader
from storage_consumer.kernels.arrays import Packed
from storage_consumer.model import TableColumn

_MOST_DIGITS = 38
"""Of a decimal of 128 bits."""
_INTEGERS = {"TINYINT": pa.int16(), "SMALLINT": pa.int32(), "MEDIUMINT": pa.int32(), "INT": pa.int64()}
"""Wide enough for unsigned ones."""
_TYPES: dict[str, pa.DataType] = {
    "YEAR": pa.int32(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "DATE": pa.date32(),
    "DATETIME": pa.timestamp("us"),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    "BIT": pa.binary(),
    **dict.fromkeys(BINARY_TYPES, pa.binary()),
}
_MOMENTS = ("DATE", "DATETIME", "TIMESTAMP")
_MOMENT = re.compile(r"\d{4}-[01]\d-[0-3]\d(?: (?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?)?")
_WITH_ZERO = r"^0000|-00-|-00( |$)"
"""Dates with a zero, which TiDB allows and no calendar has."""


def arrow_type(column: TableColumn) -> pa.DataType:
    """Return the type of a column's values.

    Whole numbers are as wide as unsigned ones need; BIGINT UNSIGNED is a decimal of 20 digits, as in Spark. BIT is bytes. TIME, JSON,
    VECTOR, ENUM, SET and decimals of more than 38 digits are texts.
    """
    if column.type == "BIGINT":
        return pa.decimal128(20, 0) if column.unsigned else pa.int64()
    if column.type == "DECIMAL":
        digits, scale = column.precision or 10, column.scale or 0
        return pa.decimal128(digits, scale) if digits <= _MOST_DIGITS else pa.string()
    return _INTEGERS.get(column.type) or _TYPES.get(column.type) or pa.string()


def is_direct(column: TableColumn, protocol: Protocol) -> bool:
    """Return whether a column's values are its packed texts or bytes, or what Arrow makes of the texts."""
    return column.type != "BIT" and (protocol != "canal-json" or column.type not in ("ENUM", "SET"))


def packed_array(packed: Packed) -> pa.Array:
    """Return packed values as an array, without a copy."""
    bits = np.packbits(packed.valid, bitorder="little")
    buffers = [pa.py_buffer(bits), pa.py_buffer(packed.offsets), pa.py_buffer(packed.bytes)]
    kind = pa.binary() if packed.is_binary else pa.string()
    return pa.Array.from_buffers(kind, len(packed.valid), buffers)


def array_of(column: TableColumn, texts: Sequence[str | None] | pa.Array, protocol: Protocol) -> pa.Array:
    """Return the array of a column's wire texts, or of what `packed_array` made of them.

    A date that no calendar has becomes null. Raises `ValueError` for a text of another type.
    """
    kind = arrow_type(column)
    if isinstance(texts, pa.Array) and texts.type == kind:
        return texts
    if column.type in BINARY_TYPES or column.type in ("BIT", "ENUM", "SET"):
        read = _bits(column) if column.type == "BIT" else reader(column, protocol)
        values = [None if text is None else read(text) for text in texts]
        return pa.array([v if v is None or isinstance(v, (str, bytes)) else str(v) for v in values], kind)
    found = texts if isinstance(texts, pa.Array) else pa.array(texts, pa.string())
    if column.type in _MOMENTS:
        plain = pa.date32() if column.type == "DATE" else pa.timestamp("us")
        return _in_calendar(found, plain).cast(kind)
    return found if kind == pa.string() else found.cast(kind)


def digits_of(column: TableColumn, values: pa.Array) -> pa.Array:
    """Return decimals that are to be texts, with all digits of the column's scale; they are given as decimals or texts, of this scale or a smaller one."""
    form = f".{column.scale or 0}f"
    texts = [None if value is None else format(Decimal(value), form) for value in values.to_pylist()]
    return pa.array(texts, pa.string())


def _in_calendar(found: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return dates, or dates with times; null in the place of one that no calendar has."""
    odd = pc.match_substring_regex(found, _WITH_ZERO)
    found = pc.if_else(pc.fill_null(odd, False), pa.scalar(None, pa.string()), found)  # noqa: FBT003 - Arrow's own order of arguments
    try:
        return found.cast(kind)
    except pa.ArrowInvalid:
        # TiDB stores the 31st of any month, if it is told to.
        return pa.array([text if text is None or _exists(text) else None for text in found.to_pylist()]).cast(kind)


def _exists(text: str) -> bool:
    """Return whether a calendar has a date, with a time or without; raise `ValueError` for a text that is none."""
    if _MOMENT.fullmatch(text) is None:
        raise ValueError(f"{text!r} is no date")
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _bits(column: TableColumn) -> Callable[[str], bytes]:
    size = -(-(column.precision or 1) // 8)
    return lambda text: int(text).to_bytes(size, "big")


def integers(column: TableColumn, values: Any) -> pa.Array:
    """Return the array of a column of whole numbers."""
    return pa.array(values, pa.int64()).cast(arrow_type(column))
