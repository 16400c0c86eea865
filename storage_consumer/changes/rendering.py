"""Changes as JSON lines: our own, canal's FlatMessage, Debezium's envelopes; and key filters.

A FlatMessage is one as TiCDC itself writes canal-json (format sheet 5), without its extension. Of
Debezium it is the form that its connector for MySQL writes without schemas: its documentation gives
the mapping of types; the source block has TiCDC's additions.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import lru_cache, partial
from typing import Any

from storage_consumer.changes.window import Change, Event, FeedStatement, Structure
from storage_consumer.config.settings import Protocol
from storage_consumer.decode.kernels.arrays import INSERT, UPDATE
from storage_consumer.decode.values import BINARY_TYPES, FLOAT_TYPES, INTEGER_TYPES, LARGEST_SINGLE
from storage_consumer.errors import NotReplicable
from storage_consumer.model import TableColumn, TableName, physical_ms
from storage_consumer.sql.parse import parsed
from storage_consumer.telemetry import tso_time

Value = int | float | str | bytes | None
_WHOLE = INTEGER_TYPES | {"YEAR", "BIT"}


def reader(column: TableColumn, protocol: Protocol) -> Callable[[str], Value]:
    """Return the function from a column's wire text to its value.

    Whole numbers, YEAR and BIT are integers, FLOAT and DOUBLE are floats, binary types are bytes.
    All else is the text, which is exact: DECIMAL, dates and times, JSON. ENUM and SET are the names
    of their members; where the files have numbers, and do not list the members, they stay numbers.
    """
    if column.type in _WHOLE:
        return int
    if column.type in FLOAT_TYPES:
        return float
    if column.type in BINARY_TYPES:
        return bytes.fromhex
    if protocol != "canal-json" or column.type not in ("ENUM", "SET"):
        return str
    if not column.elements:
        return int
    if column.type == "SET":
        return partial(_set, column.elements)
    # Members are numbered from 1; 0 stands for a value that was not one.
    members = dict(enumerate(column.elements, 1))
    return lambda text: members.get(int(text), "")


def _set(elements: tuple[str, ...], text: str) -> str:
    """Return the members whose bits are set."""
    bits = int(text)
    return ",".join(name for place, name in enumerate(elements) if bits >> place & 1)


def number_of_member(column: TableColumn, text: str) -> str:
    """Return the number of a named ENUM or SET value; its name if members are unknown."""
    elements = column.elements
    if not elements:
        return text
    if column.type == "ENUM":
        return str(elements.index(text) + 1) if text in elements else text or "0"
    names = text.split(",") if text else []
    if not all(name in elements for name in names):
        return text
    return str(sum(1 << elements.index(name) for name in names))


WORDS = {INSERT: "insert", UPDATE: "update"}
"""What changes are called that leave a row; all others are a delete."""


def json_reader(column: TableColumn, protocol: Protocol) -> Callable[[str], Value]:
    """Return what `reader` does, with bytes as base64."""
    read = reader(column, protocol)

    def plain(text: str) -> Value:
        value = read(text)
        return base64.b64encode(value).decode() if isinstance(value, bytes) else value

    return plain


class Images:
    """Turns images of rows into objects."""

    def __init__(
        self,
        protocol: Protocol,
        read: Callable[[TableColumn, Protocol], Callable[[str], Any]] = json_reader,
    ) -> None:
        """Take wire texts as the protocol gives them, and `read` those that are not NULL."""
        self._readers = lru_cache(maxsize=256)(
            lambda structure: [read(column, protocol) for column in structure.columns]
        )

    def of(self, change: Change) -> list[dict[str, Any] | None]:
        """Return a row before and after a change, columns by name; None where there is no image."""
        given, columns, read = (
            change.given(),
            change.structure.columns,
            self._readers(change.structure),
        )
        images = (change.old, change.values) if change.operation in WORDS else (change.values, None)
        return [
            None
            if values is None
            else {
                columns[n].name: None if (text := values[n]) is None else read[n](text)
                for n in given
            }
            for values in images
        ]


def json_lines(protocol: Protocol) -> Callable[[Event], str]:
    """Return the function from event to line; bytes are base64, numbers past 53 bits exact."""
    images = Images(protocol)

    def line(event: Event) -> str:
        own: dict[str, object]
        if isinstance(event, FeedStatement):
            name = event.definition.name
            own = {
                "type": "ddl",
                "statement": event.definition.query,
                "file": event.definition.path,
            }
        else:
            name = event.structure.table
            before, after = images.of(event)
            own = {
                "type": WORDS.get(event.operation, "delete"),
                "before": before,
                "after": after,
                "table_version": event.structure.version,
                "file": event.file,
                "row": event.row,
            }
        head = {
            "commit_ts": event.commit_ts,
            "commit_time": tso_time(event.commit_ts),
            "database": name.schema,
            "table": name.table or None,
        }
        return dumped(head | own)

    return line


def dumped(document: Mapping[str, object]) -> str:
    """Return a document as one line."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        # Lone surrogates, as invalid text has them, are written as escapes: no encoding could hold
        # them.
        return json.dumps(document, separators=(",", ":"))
    return text


SQL_CODES = {
    "BIT": -7,
    "SET": -7,
    "TINYINT": -6,
    "BIGINT": -5,
    "CHAR": 1,
    "DECIMAL": 3,
    "INT": 4,
    "MEDIUMINT": 4,
    "ENUM": 4,
    "SMALLINT": 5,
    "FLOAT": 7,
    "DOUBLE": 8,
    "DATE": 91,
    "TIME": 92,
    "DATETIME": 93,
    "TIMESTAMP": 93,
    **dict.fromkeys(BINARY_TYPES, 2004),
    **dict.fromkeys(("TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT"), 2005),
}
"""Type → code of java.sql.Types; all others are VARCHAR, 12."""
VARCHAR_CODE = 12
NEVER_SIGNED = frozenset(("BIT", "YEAR"))
"""Types that schema files call unsigned, and messages do not."""
_LARGEST = "3.4028235e+38"
"""The shortest text of the largest FLOAT."""
PROMOTED = {
    "TINYINT": (127, 5),
    "SMALLINT": (32767, 4),
    "INT": (2**31 - 1, -5),
    "BIGINT": (2**63 - 1, 3),
}
"""Unsigned type → the highest value that its code can hold, and the code for those above it."""


def flat_messages(protocol: Protocol, now: Callable[[], float]) -> Callable[[Event], str]:
    """Return the function from event to line; `now`: seconds since 1970, UTC, for ``ts``."""
    images = Images(protocol, flat_reader)

    def line(event: Event) -> str:
        times = {"es": physical_ms(event.commit_ts), "ts": int(now() * 1000)}
        if isinstance(event, FeedStatement):
            name, query = event.definition.name, event.definition.query
            return dumped(
                {
                    "id": 0,
                    "database": name.schema,
                    "table": name.table,
                    "pkNames": None,
                    "isDdl": True,
                    "type": (parsed(event.definition).head or ("QUERY",))[0] or "QUERY",
                    **times,
                    "sql": query,
                    "sqlType": None,
                    "mysqlType": None,
                    "data": None,
                    "old": None,
                }
            )
        structure = event.structure
        columns, only = structure.columns, event.given()
        types = [
            each.type.lower()
            + (" unsigned" if each.unsigned and each.type not in NEVER_SIGNED else "")
            for each in columns
        ]
        codes = {
            columns[place].name: SQL_CODES.get(columns[place].type, VARCHAR_CODE) for place in only
        }
        for column, text in ((columns[place], event.values[place]) for place in only):
            if column.unsigned and text is not None and column.type in PROMOTED:
                most, above = PROMOTED[column.type]
                if int(text) > most:
                    codes[column.name] = above
        before, after = images.of(event)
        return dumped(
            {
                "id": 0,
                "database": structure.table.schema,
                "table": structure.table.table,
                "pkNames": [columns[place].name for place in structure.key],
                "isDdl": False,
                "type": WORDS.get(event.operation, "delete").upper(),
                **times,
                "sql": "",
                "sqlType": codes,
                "mysqlType": {columns[place].name: types[place] for place in only},
                "data": [before if after is None else after],
                "old": None if event.old is None else [before],
            }
        )

    return line


def flat_reader(column: TableColumn, protocol: Protocol) -> Callable[[str], str]:
    """Return the function from a column's wire text to its text in canal's messages."""
    if column.type in BINARY_TYPES:
        return lambda text: bytes.fromhex(text).decode("latin-1")
    if protocol != "canal-json" and column.type in ("ENUM", "SET"):
        return partial(number_of_member, column)
    if column.type == "YEAR":
        return lambda text: str(int(text))
    return partial(_without_exponent, column.type) if column.type in FLOAT_TYPES else str


def _without_exponent(kind: str, text: str) -> str:
    if "e" not in text.lower():
        return text
    # A decoder spells the largest FLOAT out.
    return format(
        Decimal(text.replace(repr(LARGEST_SINGLE), _LARGEST) if kind == "FLOAT" else text), "f"
    )


_OPS = {INSERT: "c", UPDATE: "u"}
_VERSION = "2.4.0.Final"
"""The Debezium whose form this is, as TiCDC's own protocol says it."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = re.compile(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_MICROS, _MILLIS = timedelta(microseconds=1), timedelta(milliseconds=1)
_MOST_DIGITS_OF_MS = 3


def debezium_envelopes(protocol: Protocol, now: Callable[[], float]) -> Callable[[Event], str]:
    """Return the function from event to line; `now`: seconds since 1970, UTC, for ``ts_ms``.

    DECIMAL is text, as with ``decimal.handling.mode=string``, so that no digit is lost.
    """
    images = Images(protocol, _debezium_reader)

    def line(event: Event) -> str:
        head = {"ts_ms": int(now() * 1000)}
        if isinstance(event, FeedStatement):
            definition = event.definition
            source = _source(event.commit_ts, definition.name, definition.path, 0)
            ddl = {
                "databaseName": definition.name.schema,
                "schemaName": None,
                "ddl": definition.query,
            }
            return dumped({"source": source, **head, **ddl, "tableChanges": []})
        before, after = images.of(event)
        return dumped(
            {
                "before": before,
                "after": after,
                "source": _source(event.commit_ts, event.structure.table, event.file, event.row),
                "op": _OPS.get(event.operation, "d"),
                **head,
                "transaction": None,
            }
        )

    return line


def _source(commit_ts: int, name: TableName, file: str, row: int) -> dict[str, object]:
    return {
        "version": _VERSION,
        "connector": "TiCDC",
        "name": "default",
        "ts_ms": physical_ms(commit_ts),
        "snapshot": "false",
        "db": name.schema,
        "table": name.table or None,
        "server_id": 0,
        "gtid": None,
        "file": file,
        "pos": 0,
        "row": row,
        "thread": 0,
        "query": None,
        "commit_ts": commit_ts,
        "cluster_id": "default",
    }


def _debezium_reader(column: TableColumn, protocol: Protocol) -> Callable[[str], Any]:
    """Return the function from a column's wire text to its value."""
    size, zero = (
        -(-(column.precision or 1) // 8),
        None if column.nullable else "1970-01-01T00:00:00Z",
    )
    kinds: dict[str, Callable[[str], Any]] = {
        # BIT(1) is a boolean, and more bits are bytes, the lowest first.
        "BIT": (lambda text: text != "0")
        if (column.precision or 1) == 1
        else (lambda text: base64.b64encode(int(text).to_bytes(size, "little")).decode()),
        "DATE": _days,
        "DATETIME": partial(
            _since_epoch, _MILLIS if (column.scale or 0) <= _MOST_DIGITS_OF_MS else _MICROS
        ),
        "TIMESTAMP": lambda text: zero if text.startswith("0000") else text.replace(" ", "T") + "Z",
        "TIME": _microseconds,
    }
    read = kinds.get(column.type)
    if read is None:
        return json_reader(column, protocol)
    if column.nullable or column.type not in ("DATE", "DATETIME"):
        return read
    # As Debezium has it, a date that no calendar has is null, or the beginning of 1970 where the
    # column has no null.
    return lambda text: read(text) or 0


def _days(text: str) -> int | None:
    try:
        return (date.fromisoformat(text) - _EPOCH.date()).days
    except ValueError:
        return None


def _since_epoch(unit: timedelta, text: str) -> int | None:
    try:
        return (datetime.fromisoformat(text).replace(tzinfo=UTC) - _EPOCH) // unit
    except ValueError:
        return None


def _microseconds(text: str) -> int | str:
    found = _TIME.fullmatch(text)
    if found is None:
        return text
    sign, hours, minutes, seconds, fraction = found.groups()
    whole = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
    return (-1 if sign else 1) * (whole * 10**6 + int(f"{fraction or '':0<6}"))


_VALUE = re.compile(r'"((?:[^"]|"")*)"(?=,|\Z)|([^,]*)')
_INTEGER = re.compile(r"[+-]?\d{1,99}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d:\d\d)(?:\.(\d+))?Z?)?", re.ASCII)
_SPAN = re.compile(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d+))?", re.ASCII)
_HEX = re.compile(r"0[xX]((?:[0-9A-Fa-f]{2})*)")


def key_values(given: str) -> list[str]:
    """Return comma-separated values as in a CSV row; line breaks are ordinary characters."""
    values = list[str]()
    end = -1
    while end < len(given):
        found = _VALUE.match(given, end + 1)
        assert found is not None
        quoted, bare = found.groups()
        values.append(bare if quoted is None else quoted.replace('""', '"'))
        end = found.end()
    return values


class OfKey:
    """Says of each change whether it concerns the row with a primary key."""

    def __init__(self, given: Sequence[str], protocol: Protocol) -> None:
        """Take the key's values in the table's order of columns; `protocol`: the files'."""
        self.has_matched = False
        """Whether a change was of the row."""

        @lru_cache(maxsize=256)
        def parts(structure: Structure) -> list[tuple[int, Callable[[str | None], bool]]]:
            """Return each key column's index, and whether a wire text is its given value."""
            columns = [structure.columns[place] for place in structure.key]
            if len(columns) != len(given):
                names = ", ".join(column.name for column in columns) or "none"
                raise NotReplicable(
                    f"{structure.table}: --key has {len(given)} value(s), but the primary key's columns are: {names}"
                )
            pairs = zip(columns, given, strict=True)
            return list(
                zip(
                    structure.key,
                    (_equals(column, text, protocol) for column, text in pairs),
                    strict=True,
                )
            )

        self._parts = parts

    def __call__(self, change: Change) -> bool:
        """Return whether a change is of the row; raise `NotReplicable` for another key length.

        That is a table whose key has another number of columns.
        """
        parts = self._parts(change.structure)
        images = (change.values,) if change.old is None else (change.values, change.old)
        found = any(all(is_same(image[place]) for place, is_same in parts) for image in images)
        self.has_matched |= found
        return found


class Whole:
    """Decides as an `OfKey` for undo: an update of the key is taken whole or not at all."""

    def __init__(self, of_key: OfKey) -> None:
        """Ask this of each change."""
        self._of_key = of_key
        self._last: tuple[Change, bool] | None = None

    def __call__(self, change: Change) -> bool:
        """Return whether a change is of the row; an update's two parts come in sequence.

        Raises `NotReplicable` for an update of which only one part does, and what `OfKey` does.
        """
        found = self._of_key(change)
        last, self._last = self._last, (change, found)
        if (
            last is not None
            and (last[0].file, last[0].row) == (change.file, change.row)
            and last[1] != found
        ):
            # The part of the update that has another key.
            other, structure = last[0] if found else change, change.structure
            columns = other.structure.columns
            texts = (
                f"{columns[place].name} = {'0x' if columns[place].type in BINARY_TYPES else ''}{other.values[place]}"
                for place in other.structure.key
            )
            key = ", ".join(texts)
            what = (
                f"gave the row with the primary key {key} that of --key"
                if found
                else f"gave the row of --key the primary key {key}"
            )
            raise NotReplicable(
                f"{structure.table}, {change.file}, row {change.row}, commit ts {change.commit_ts}: this update {what}, so that the row could be taken back only "
                f"in part. Take the window back without --key, or begin after it, with --from {change.commit_ts + 1}"
            )
        return found


def _equals(column: TableColumn, given: str, protocol: Protocol) -> Callable[[str | None], bool]:
    """Return whether a wire text is a text's value; none is if the text has another type."""
    if column.type in BINARY_TYPES:
        wanted: bytes | None = None
        # Base64, or hexadecimal digits after ``0x``.
        if found := _HEX.fullmatch(given):
            wanted = bytes.fromhex(found[1])
        else:
            with suppress(ValueError):
                wanted = base64.b64decode(given, validate=True)
        return lambda wire: wire is not None and bytes.fromhex(wire) == wanted
    if column.type in ("ENUM", "SET"):
        read = reader(column, protocol)
        return lambda wire: wire is not None and str(read(wire)) == given
    # From a text to what is equal for all spellings of a value; None for no value of the type.
    value = _VALUES.get(column.type, str)
    meant = value(given)
    return lambda wire: wire is not None and meant is not None and value(wire) == meant


def _decimal(text: str) -> Decimal | None:
    if _NUMBER.fullmatch(text):
        with suppress(InvalidOperation):
            return Decimal(text)
    return None


def _moment(text: str) -> tuple[str, str, str] | None:
    """Return date, time and fraction, without what may be left out."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        return None
    date, clock, fraction = found.groups()
    return date, clock or "00:00:00", (fraction or "").rstrip("0")


def _span(text: str) -> tuple[str, int, str, str, str] | None:
    found = _SPAN.fullmatch(text)
    if found is None:
        return None
    sign, hours, minutes, seconds, fraction = found.groups()
    return sign, int(hours), minutes, seconds, (fraction or "").rstrip("0")


_VALUES: dict[str, Callable[[str], Hashable | None]] = {
    **dict.fromkeys(_WHOLE, lambda text: int(text) if _INTEGER.fullmatch(text) else None),
    **dict.fromkeys(FLOAT_TYPES, lambda text: float(text) if _NUMBER.fullmatch(text) else None),
    "DECIMAL": _decimal,
    "DATETIME": _moment,
    "TIMESTAMP": _moment,
    "TIME": _span,
}
