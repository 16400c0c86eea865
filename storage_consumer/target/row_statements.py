"""Row changes as SQL text; each value is a checked number, hexadecimal, or escaped. Pure."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, islice
from typing import TypeVar

import numpy as np

from storage_consumer.decode.kernels.row_lines import Lines, size_of
from storage_consumer.decode.values import (
    FLOAT_TYPES,
    INTEGER_TYPES,
    TEXT_TYPES,
    WireKind,
    in_single,
)
from storage_consumer.decode.wire_format import (
    LACKING,
    NULL,
    decode_field,
    decode_line,
    split_lines,
)
from storage_consumer.model import folded_name
from storage_consumer.rows.spec import Fold, KeyPart, TablePlan, WireColumn
from storage_consumer.sql.tokens import qualified, quote

_Item = TypeVar("_Item")


_MIB = 1 << 20
_BYTES_OF_A_CHARACTER = 4
"""The maximum in UTF-8."""


class StatementTooLarge(ValueError):
    """A statement so large that the server would close the connection."""

    def __init__(self, size: int, most: int) -> None:
        """Take the statement's `size` in bytes and `most`, max_allowed_packet: one byte more."""
        # In whole MiB, with room for the byte before a statement.
        enough = ((size + 1) // _MIB + 1) * _MIB
        super().__init__(
            f"it needs a statement of {size} bytes, but the server's max_allowed_packet is {most} bytes. Raise that "
            f"limit (SET GLOBAL max_allowed_packet = {enough}, in its configuration too)"
        )


def too_large(sql: str, most: int) -> StatementTooLarge | None:
    """Return the refusal of a statement over max_allowed_packet (`most` bytes), None if it fits."""
    # Encoding a statement of many MiB takes time: skip it where even the longest encoding fits.
    if len(sql) * _BYTES_OF_A_CHARACTER < most - 1:
        return None
    size = len(sql.encode())
    return StatementTooLarge(size, most) if size >= most - 1 else None


def batched(items: Iterable[_Item], size: int) -> Iterator[list[_Item]]:
    """Yield `items` in lists of at most `size`."""
    remaining = iter(items)
    while some := list(islice(remaining, size)):
        yield some


def batches(rows: Sequence[bytes], most: int, most_size: int) -> Iterator[Sequence[bytes]]:
    """Yield `rows` in batches of up to `most` rows and, unless it is one row, `most_size` bytes."""
    first = 0
    while first < len(rows):
        some = rows[first : first + most]
        # Rows are measured one by one only where all of them together are too much, which is rare.
        if size_of(some) > most_size:
            some = some[: max(1, bisect_right([*accumulate(map(len, some))], most_size))]
        yield some
        first += len(some)


Escape = Callable[[str], str]
"""Escapes the content of a string literal, as the driver does."""

_SHOWN = 60
_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)
_DIGITS = re.compile(r"\d+", re.ASCII)
_HEX = re.compile(r"(?:[0-9A-Fa-f]{2})*", re.ASCII)
_HEX_FIELD = re.compile(rb"(?:[0-9A-Fa-f]{2})*").fullmatch
_DIGITS_FIELD = re.compile(rb"\d+").fullmatch
_FIXED_FIELD = re.compile(rb"[-+]?\d+(?:\.\d+)?").fullmatch
_PLAIN_FIELD = re.compile(rb"[^\\\0\r\x1a]*").fullmatch
"""A field that needs no escape in a line nor, except for the quote, in a literal."""
_SPELT_ANEW = frozenset(("YEAR", "FLOAT"))
_NUMERIC = INTEGER_TYPES | FLOAT_TYPES | {"DECIMAL"}
TEXTS = TEXT_TYPES | {"ENUM", "SET"}


def load_data(work: TablePlan, verb: str) -> str:
    """Return LOAD DATA LOCAL for `LineEncoder`'s lines; `verb`: ``REPLACE`` or ``INSERT``."""
    fields, sets = [], []
    replacing = "REPLACE " if verb == "REPLACE" else ""
    for number, column in enumerate(work.written):
        if column.kind is WireKind.TEXT:
            fields.append(quote(column.name))
        else:
            fields.append(f"@v{number}")
            # As text these would mean something else to the column, such as a member's name instead
            # of its number.
            value = (
                f"UNHEX(@v{number})"
                if column.kind is WireKind.HEX
                else f"CAST(@v{number} AS UNSIGNED)"
            )
            sets.append(f"{quote(column.name)} = {value}")
    return (
        # The file's name is irrelevant: the connection sends its buffer for any name.
        f"LOAD DATA LOCAL INFILE 'rows' {replacing}INTO TABLE {qualified(work.name)} CHARACTER SET utf8mb4 "
        "FIELDS TERMINATED BY '\\t' ESCAPED BY '\\\\' LINES TERMINATED BY '\\n' "
        f"({', '.join(fields)})" + (f" SET {', '.join(sets)}" if sets else "")
    )


def write_rows(verb: str, work: TablePlan, lines: Sequence[bytes], escape: Escape) -> str:
    """Return one REPLACE or INSERT for many rows; raise `ValueError` if a value cannot fit."""
    columns = ", ".join(quote(column.name) for column in work.written)
    fields = zip(split_lines(lines), work.written, strict=True)
    rows = _rows([literals(texts, column, escape) for texts, column in fields])
    return f"{verb} INTO {qualified(work.name)} ({columns}) VALUES ({rows})"


_TYPES = {WireKind.TEXT: (253, 0), WireKind.HEX: (252, 0), WireKind.UNSIGNED: (8, 128)}
"""The protocol's type codes: text in the connection's charset, bytes, unsigned 8-byte integer."""


def bulk_statement(work: TablePlan, verb: str) -> str:
    """Return the statement for one row. `verb` is ``REPLACE`` or ``INSERT``."""
    columns = ", ".join(quote(column.name) for column in work.written)
    places = ", ".join("?" * len(work.written))
    return f"{verb} INTO {qualified(work.name)} ({columns}) VALUES ({places})"


def bulk_types(work: TablePlan) -> bytes:
    """Return the types of a row's values, two bytes each."""
    return b"".join(bytes(_TYPES[column.kind]) for column in work.written)


def bulk_values(work: TablePlan, lines: Lines) -> memoryview | None:
    """Return the values of all rows, or None if a field does not fit its column's kind."""
    from storage_consumer.decode.kernels.packed import (  # noqa: PLC0415 - late, see `jit`
        HEX_VALUE,
        NUMBER_VALUE,
        TEXT_VALUE,
        bulk_rows,
    )

    made = {WireKind.TEXT: TEXT_VALUE, WireKind.HEX: HEX_VALUE, WireKind.UNSIGNED: NUMBER_VALUE}
    return bulk_rows(lines, np.array([made[column.kind] for column in work.written], np.int64))


def _rows(columns: Sequence[Sequence[bytes]]) -> str:
    """Join columns of literals to rows, without the outermost parentheses."""
    return b"),(".join(map(b",".join, zip(*columns, strict=True))).decode()


def without_error_members(work: TablePlan, lines: Sequence[bytes]) -> list[bytes]:
    """Write an ENUM's first member for its error value (number 0, shown as '') in these rows."""
    enums = [
        place
        for place, column in enumerate(work.written)
        if column.type == "ENUM" and column.kind is WireKind.UNSIGNED
    ]
    rows = [line.split(b"\t") for line in lines] if enums else []
    for fields in rows:
        for place in enums:
            fields[place] = b"1" if fields[place] == b"0" else fields[place]
    return [b"\t".join(fields) for fields in rows] if enums else list(lines)


def gaps(work: TablePlan, line: bytes) -> tuple[int, ...]:
    """Return which written columns a row lacks, and which ones it has only to be compared."""
    fields = line.split(b"\t") if LACKING in line else [b""] * len(work.written)
    return tuple(
        place
        for place, (field, column) in enumerate(zip(fields, work.written, strict=True))
        if field == LACKING or column.is_computed
    )


def without_gaps(
    work: TablePlan, places: tuple[int, ...], lines: Sequence[bytes]
) -> tuple[TablePlan, Sequence[bytes]]:
    """Return the plan and the lines without the written columns at these indexes."""
    if not places:
        return work, lines
    kept = [place for place in range(len(work.written)) if place not in places]
    fields = (line.split(b"\t") for line in lines)
    narrow = replace(work, written=tuple(work.written[place] for place in kept))
    return narrow, [b"\t".join([each[place] for place in kept]) for each in fields]


def row_text(work: TablePlan, line: bytes, escape: Escape, *, key_only: bool) -> str:
    """Return a row for messages: its key's columns and values, or all columns without a key.

    With `key_only`, `line` has the key's columns instead of the written ones.
    """
    columns = [part.column for part in work.key] if key_only else list(work.written)
    # A keyless table has no better name for a row than all of its values.
    wanted = {part.column.name for part in work.key} or {column.name for column in columns}
    shown = [
        f"{column.name} = {_shown(text, column, escape)}"
        for text, column in zip(decode_line(line), columns, strict=True)
        if column.name in wanted
    ]
    return ", ".join(shown)


def _shown(text: str | None, column: WireColumn, escape: Escape) -> str:
    """Return a value as a literal, shortened if it is long."""
    try:
        value = literal(text, column, escape)
    except ValueError:
        # In a message a value that fits no literal is better than none.
        value = repr(text)
    return short(value)


def short(text: str) -> str:
    """Return a text for people, cut if it is long."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def delete_keys(
    work: TablePlan, lines: Sequence[bytes], escape: Escape, *, exact: bool = False
) -> str:
    """Return one DELETE of many keys, which need not exist. `exact`: see `with_keys`."""
    return f"DELETE {with_keys(work, lines, escape, exact=exact)}"


def with_keys(work: TablePlan, lines: Sequence[bytes], escape: Escape, *, exact: bool) -> str:
    """Return the FROM and the WHERE of the rows with some keys; `lines`: of the key's columns.

    With `exact`, a row is meant only if its key is the same to the last byte; else the column's
    collation decides.
    """
    fields = zip(split_lines(lines), work.key, strict=True)
    columns = [key_literals(texts, part, escape) for texts, part in fields]
    # Keys that a collation finds equal meet in one bucket, so no other task's row goes.
    names = [key_expression(part) for part in work.key]
    texts = [place for place, part in enumerate(work.key) if part.fold in (Fold.PAD, Fold.LOOSE)]
    if not (exact and texts):
        return f"FROM {qualified(work.name)} WHERE {_among(names, columns)}"
    plain = [f"CAST(CONVERT({names[place]} USING utf8mb4) AS BINARY)" for place in texts]
    same = _among(
        plain,
        [
            ([b"CAST(CONVERT(%s USING utf8mb4) AS BINARY)" % value for value in columns[place]])
            for place in texts
        ],
    )
    # One key more, which is none of them: of a single one TiDB puts the literal in the place of the
    # column in the other condition too.
    more = [
        [*column, b"CONCAT('~', %s)" % column[0] if place in texts else column[0]]
        for place, column in enumerate(columns)
    ]
    return f"FROM {qualified(work.name)} WHERE {_among(names, more)} AND {same}"


def _among(names: Sequence[str], columns: Sequence[Sequence[bytes]]) -> str:
    """Return the condition that expressions equal one row of some columns of literals."""
    if len(columns) == 1:
        return f"{names[0]} IN ({b','.join(columns[0]).decode()})"
    return f"({', '.join(names)}) IN (({_rows(columns)}))"


def key_places(work: TablePlan) -> tuple[int, ...] | None:
    """Return the key's places in a written line; None if the target computes a part."""
    names = [folded_name(column.name) for column in work.written]
    keys = [folded_name(part.column.name) for part in work.key]
    return tuple(map(names.index, keys)) if set(keys) <= set(names) else None


def key_expression(part: KeyPart) -> str:
    """Return the expression that a key's values are compared with."""
    name = quote(part.column.name)
    # A key over the beginning of a column finds rows equal by that alone, so that is compared.
    return name if part.prefix is None else f"LEFT({name}, {part.prefix})"


def key_literal(text: str | None, part: KeyPart, escape: Escape) -> str:
    """Return a key's value as SQL; a FLOAT in single precision, as the column holds it.

    Raise `ValueError` for NULL, and for text that does not fit the column.
    """
    if text is None:
        raise ValueError(f"NULL in the key column {part.column.name}")
    column = part.column
    if column.type == "YEAR":
        return _checked(_DIGITS, text, column).lstrip("0") or "0"
    if column.type == "FLOAT":
        return _single(text, column)
    value = literal(text, column, escape)
    return value if part.prefix is None else f"LEFT({value}, {part.prefix})"


def key_literals(fields: Sequence[bytes], part: KeyPart, escape: Escape) -> list[bytes]:
    """Return `key_literal` of many fields of lines."""
    # A prefix, a type with a spelling of its own, or a NULL needs a look at each value.
    if part.prefix is None and part.column.type not in _SPELT_ANEW and NULL not in fields:
        return literals(fields, part.column, escape)
    return [key_literal(decode_field(field), part, escape).encode() for field in fields]


def literals(fields: Sequence[bytes], column: WireColumn, escape: Escape) -> list[bytes]:
    """Return `literal` of many fields of lines, the usual ones in bulk."""
    # Value by value, the literals of a row take two to three times as long.
    # NULL is `\N` in a line: no pattern of `_usual` takes it, so it gets to `literal`.
    usual, before, after = _usual(column)
    # Escape the quotes of all fields in one pass. The TABs between them are safe to split at, as a
    # field holds none unescaped.
    quoted = b"\t".join(fields).replace(b"'", b"\\'").split(b"\t")
    return [
        before + inside + after
        if usual(field)
        else literal(decode_field(field), column, escape).encode()
        for field, inside in zip(fields, quoted, strict=True)
    ]


def _usual(column: WireColumn) -> tuple[Callable[[bytes], object], bytes, bytes]:
    """Return a predicate for fields to write as they are, with a literal's prefix and suffix."""
    if column.kind is WireKind.HEX:
        return _HEX_FIELD, b"x'", b"'"
    if column.kind is WireKind.UNSIGNED:
        return _DIGITS_FIELD, b"", b""
    if column.type in FLOAT_TYPES:
        # The exponent keeps it from being a DECIMAL; see `_float`.
        return _FIXED_FIELD, b"", b"e0"
    if column.type in _NUMERIC:
        return _FIXED_FIELD, b"", b""
    return _PLAIN_FIELD, b"'", b"'"


def literal(text: str | None, column: WireColumn, escape: Escape) -> str:
    """Return a value as SQL. Raise `ValueError` for text that is not of the column's kind."""
    if text is None:
        return "NULL"
    if column.kind is WireKind.HEX:
        return f"x'{_checked(_HEX, text, column)}'"
    if column.kind is WireKind.UNSIGNED:
        return _checked(_DIGITS, text, column)
    if column.type in FLOAT_TYPES:
        return _float(text, column)
    if column.type in _NUMERIC:
        return _checked(_NUMBER, text, column)
    return f"'{escape(text)}'"


def _float(text: str, column: WireColumn) -> str:
    """Return a float with an exponent: else it would be a DECIMAL literal, cut at 81 digits."""
    checked = _checked(_NUMBER, text, column)
    return checked if "e" in checked.lower() else f"{checked}e0"


def _single(text: str, column: WireColumn) -> str:
    """Return the text's nearest single-precision number: TiDB's CAST AS FLOAT does not round."""
    number = float(_checked(_NUMBER, text, column))
    nearest = in_single(number)
    return _float(repr(nearest if math.isfinite(nearest) else number), column)


def _checked(pattern: re.Pattern[str], text: str, column: WireColumn) -> str:
    """Return `text` if the whole of it matches; raise `ValueError` otherwise."""
    if pattern.fullmatch(text) is None:
        raise ValueError(f"column {column.name}: {text[:40]!r} is not a value of {column.type}")
    return text


def delete_images(
    work: TablePlan, line: bytes, escape: Escape, *, json_equals: str, most: int
) -> str:
    """Return a DELETE of up to `most` equal rows of a keyless table, compared by all columns.

    NULL equals NULL, and texts are compared to the last byte. `json_equals` says how this server
    compares JSON by meaning, with ``{column}`` and ``{value}``.
    """
    conditions = [
        same(text, column, escape, json_equals)
        for text, column in zip(decode_line(line), work.written, strict=True)
    ]
    return f"DELETE FROM {qualified(work.name)} WHERE {' AND '.join(conditions)} LIMIT {most}"


def json_equals(version: str) -> str:
    """Return how this server compares JSON by meaning, with ``{column}`` and ``{value}``."""
    # MariaDB keeps JSON as text, and finds no meaning in one that is deeper than 31 levels; MySQL
    # and TiDB have a type that compares by it.
    return (
        "(CAST({column} AS BINARY) = CAST({value} AS BINARY) OR JSON_EQUALS({column}, {value}))"
        if "MariaDB" in version
        else "{column} = CAST({value} AS JSON)"
    )


def same(text: str | None, column: WireColumn, escape: Escape, json_equals: str) -> str:
    """Return the condition that a column holds exactly this value."""
    name = quote(column.name)
    if text is None:
        return f"{name} IS NULL"
    if column.type == "JSON":
        return json_equals.format(column=name, value=f"'{escape(text)}'")
    if column.type == "YEAR":
        return f"{name} = {_checked(_DIGITS, text, column).lstrip('0') or '0'}"
    if column.type == "FLOAT":
        return f"{name} = {_single(text, column)}"
    # A collation would find other texts equal too, by case or padding, and delete the wrong row.
    if column.kind is WireKind.TEXT and column.type in TEXTS:
        return f"CAST(CONVERT({name} USING utf8mb4) AS BINARY) = CAST('{escape(text)}' AS BINARY)"
    return f"{name} = {literal(text, column, escape)}"
