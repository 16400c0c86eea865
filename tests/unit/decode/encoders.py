"""TiCDC's side, written for tests from the description of its formats: values to CSV fields, JSON strings, rows and files."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from storage_consumer.config.settings import CsvOptions
from storage_consumer.decode.canal_files import CanalJsonDecoder
from storage_consumer.decode.csv_files import CsvDecoder
from storage_consumer.decode.decoder import Decoder, FileRead, RowChange, RowLayout, Tally
from storage_consumer.model import CommitRange, TableColumn, TableName

OPTIONS = CsvOptions(include_commit_ts=True)
EVERYTHING = CommitRange(low=0, high=2**64)
TS = 449_000_000_000_000_009
SOURCE = "shop/orders/449000000000000001/2024-04-11/CDC00000000000000000001"

NUMBERS = frozenset(
    ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT", "BIT", "YEAR", "FLOAT", "DOUBLE"),
)
BINARY = frozenset(("BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"))
MEMBERS = ("a", 'say "b"', "c d")
"""Of the ENUM and SET columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One change to encode; a value is None, or what a client would see of it: int, float, str or bytes."""

    operation: str
    """``I``, ``U`` or ``D``."""
    values: tuple[object, ...]
    old: tuple[object, ...] | None = None
    ts: int = TS


def column(name: str, kind: str = "VARCHAR") -> TableColumn:
    """A column as a schema file would list it."""
    return TableColumn(name=name, type=kind, unsigned=kind in ("BIT", "YEAR"))


def layout(*kinds: str, zone: str = "") -> RowLayout:
    """The layout of shop.orders with columns c0, c1 … of these types."""
    return RowLayout(
        table=TableName(schema="shop", table="orders"),
        columns=tuple(column(f"c{index}", kind) for index, kind in enumerate(kinds)),
        zone=zone,
    )


def go_float(value: float, *, exponent: bool) -> str:
    """Shortest digits; with an exponent from 1e6 on and below 1e-4 where `exponent` says so, else plain."""
    number = Decimal(repr(value))
    digits = "".join(map(str, number.as_tuple().digits)).rstrip("0") or "0"
    power = number.adjusted() if number else 0
    if not exponent or -4 <= power < 6:
        plain = f"{number:f}"
        return plain.rstrip("0").rstrip(".") if "." in plain else plain
    sign = "-" if number < 0 else ""
    mantissa = digits[0] + ("." + digits[1:] if len(digits) > 1 else "")
    return f"{sign}{mantissa}e{'-' if power < 0 else '+'}{abs(power):02d}"


def member_mask(names: str) -> int:
    """The bit mask of a SET value."""
    return sum(1 << MEMBERS.index(name) for name in names.split(",") if name)


def csv_field(kind: str, value: object, options: CsvOptions = OPTIONS) -> str:
    """One value in a CSV row."""
    if value is None:
        return options.null
    if isinstance(value, float):
        return go_float(value, exponent=True)
    if kind in NUMBERS:
        return str(value)
    if isinstance(value, bytes):
        value = value.hex() if options.binary_encoding_method == "hex" else base64.b64encode(value).decode()
    return options.quote + str(value).replace(options.quote, options.quote * 2) + options.quote


def csv_row(kinds: Sequence[str], row: Row, options: CsvOptions = OPTIONS) -> str:
    """One row of a CSV file: op, table, schema, commit ts, is-update if it is asked for, values."""
    head = [options.quote + text + options.quote for text in (row.operation, "orders", "shop")]
    is_update = [str(row.operation == "U" or row.old is not None).lower()] * options.output_old_value
    fields = [csv_field(kind, value, options) for kind, value in zip(kinds, row.values, strict=True)]
    return options.delimiter.join([*head, str(row.ts), *is_update, *fields]) + options.terminator


def csv_change(kinds: Sequence[str], row: Row, options: CsvOptions = OPTIONS) -> str:
    """The rows of a CSV file for one change: of an update with ``output-old-value`` two, if its old row is known."""
    if row.old is None or not options.output_old_value:
        return csv_row(kinds, row, options)
    halves = replace(row, operation="D", values=row.old), replace(row, operation="I")
    return "".join(csv_row(kinds, half, options) for half in halves)


def written_row(*values: str, ts: int = TS, op: str = "I", names: str = '"orders","shop"', end: str = "\r\n") -> str:
    """A CSV row with these fields, as written, behind its commit ts."""
    return ",".join((f'"{op}"', names, str(ts), *values)) + end


def canal_text(kind: str, value: object) -> str | None:
    """One value in a canal-json row."""
    if value is None:
        return None
    if isinstance(value, float):
        return go_float(value, exponent=False)
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if kind == "ENUM":
        return str(MEMBERS.index(str(value)) + 1)
    return str(member_mask(str(value))) if kind == "SET" else str(value)


def canal_message(kinds: Sequence[str], row: Row, **changed: object) -> dict[str, object]:
    """One canal-json message as an object; `changed` replaces its fields, and takes out those that are ``...``."""

    def image(values: tuple[object, ...]) -> list[dict[str, str | None]]:
        pairs = enumerate(zip(kinds, values, strict=True))
        return [{f"c{index}": canal_text(kind, value) for index, (kind, value) in pairs}]

    message: dict[str, object] = {
        "id": 0,
        "database": "shop",
        "table": "orders",
        "pkNames": ["c0"],
        "isDdl": False,
        "type": {"I": "INSERT", "U": "UPDATE", "D": "DELETE"}[row.operation],
        "es": row.ts >> 18,
        "ts": (row.ts >> 18) + 1234,
        "sql": "",
        "sqlType": {f"c{index}": 12 for index in range(len(kinds))},
        "mysqlType": {f"c{index}": kind.lower() for index, kind in enumerate(kinds)},
        "old": None if row.old is None else image(row.old),
        "data": image(row.values),
        "_tidb": {"commitTs": row.ts},
    }
    return {name: value for name, value in {**message, **changed}.items() if value is not ...}


def canal_line(message: dict[str, object], terminator: str = "\r\n") -> str:
    """One line of a canal-json file, escaped as Go escapes."""
    text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text + terminator


def blocks(data: bytes, size: int) -> Iterator[bytes]:
    """The file in pieces of `size` bytes."""
    return (data[start : start + size] for start in range(0, len(data), size))


def file_read(
    content: Iterable[bytes],
    expected: RowLayout,
    commit_range: CommitRange = EVERYTHING,
    tally: Tally | None = None,
    *,
    source: str = SOURCE,
) -> FileRead:
    """A file of a table without a key that has this content."""
    return FileRead(blocks=content, source=source, layout=expected, commit_range=commit_range, tally=tally or Tally())


def decoded(
    decoder: Decoder,
    data: bytes | str,
    expected: RowLayout,
    *,
    commit_range: CommitRange = EVERYTHING,
    size: int = 1 << 20,
    tally: Tally | None = None,
) -> list[RowChange]:
    """All changes of a file that comes in pieces of `size` bytes."""
    content = data if isinstance(data, bytes) else data.encode()
    return list(decoder.rows(file_read(blocks(content, size), expected, commit_range, tally)))


def from_csv(
    data: bytes | str,
    *kinds: str,
    options: CsvOptions = OPTIONS,
    commit_range: CommitRange = EVERYTHING,
    size: int = 1 << 20,
    tally: Tally | None = None,
    zone: str = "",
) -> list[RowChange]:
    """The changes of a CSV file of shop.orders whose columns have these types."""
    return decoded(
        CsvDecoder(options), data, layout(*kinds, zone=zone), commit_range=commit_range, size=size, tally=tally
    )


def from_canal(
    data: bytes | str,
    *kinds: str,
    commit_range: CommitRange = EVERYTHING,
    size: int = 1 << 20,
    tally: Tally | None = None,
    zone: str = "",
) -> list[RowChange]:
    """The changes of a canal-json file of shop.orders whose columns have these types."""
    return decoded(
        CanalJsonDecoder(), data, layout(*kinds, zone=zone), commit_range=commit_range, size=size, tally=tally
    )
