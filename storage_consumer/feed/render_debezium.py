"""Changes as Debezium's JSON, one envelope a line, as its connector for MySQL writes it without schemas.

Its documentation gives the mapping of types; the source block has TiCDC's additions (format sheet 5).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache, partial
from typing import Any

from storage_consumer.config.settings import Protocol
from storage_consumer.decode.decoder import Values
from storage_consumer.feed.records import Change, Event, Statement, Structure
from storage_consumer.feed.render_json import dumped
from storage_consumer.feed.values import Value, reader
from storage_consumer.kernels.arrays import INSERT, UPDATE
from storage_consumer.model import TableColumn, TableName, physical_ms

_OPS = {INSERT: "c", UPDATE: "u"}
_VERSION = "2.4.0.Final"
"""The Debezium whose form this is, as TiCDC's own protocol says it."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = re.compile(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_MICROS = timedelta(microseconds=1)
_MOST_DIGITS_OF_MS = 3


def debezium_envelopes(protocol: Protocol, now: Callable[[], float]) -> Callable[[Event], str]:
    """Return the function from an event to its line; `now`: seconds since 1970-01-01 UTC, for the envelope's ``ts_ms``.

    DECIMAL is text, as with ``decimal.handling.mode=string``, so that no digit is lost.
    """
    readers = lru_cache(maxsize=256)(lambda structure: [_reader(column, protocol) for column in structure.columns])

    def image(structure: Structure, values: Values | None, given: tuple[int, ...]) -> dict[str, Any] | None:
        if values is None:
            return None
        columns, read = structure.columns, readers(structure)
        cells = ((place, values[place]) for place in given)
        return {columns[place].name: None if text is None else read[place](text) for place, text in cells}

    def line(event: Event) -> str:
        head = {"ts_ms": int(now() * 1000)}
        if isinstance(event, Statement):
            definition = event.definition
            source = _source(event.commit_ts, definition.name, definition.path, 0)
            ddl = {"databaseName": definition.name.schema, "schemaName": None, "ddl": definition.query}
            return dumped({"source": source, **head, **ddl, "tableChanges": []})
        before, after = _images(event)
        given, structure = event.given(), event.structure
        return dumped(
            {
                "before": image(structure, before, given),
                "after": image(structure, after, given),
                "source": _source(event.commit_ts, structure.table, event.file, event.row),
                "op": _OPS.get(event.operation, "d"),
                **head,
                "transaction": None,
            }
        )

    return line


def _images(event: Change) -> tuple[Values | None, Values | None]:
    return (event.old, event.values) if event.operation in _OPS else (event.values, None)


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


def _reader(column: TableColumn, protocol: Protocol) -> Callable[[str], Any]:
    """Return the function from a column's wire text to its value."""
    kinds: dict[str, Callable[[str], Any]] = {
        "BIT": partial(_bits, column.precision or 1),
        "DATE": _days,
        "DATETIME": partial(_since_epoch, (column.scale or 0) <= _MOST_DIGITS_OF_MS),
        "TIMESTAMP": partial(_zoned, None if column.nullable else "1970-01-01T00:00:00Z"),
        "TIME": _microseconds,
    }
    read = kinds.get(column.type)
    if read is None:
        return partial(_plain, reader(column, protocol))
    if column.nullable or column.type not in ("DATE", "DATETIME"):
        return read
    # As Debezium has it, a date that no calendar has is null, or the beginning of 1970 where the column has no null.
    return partial(_or_zero, read)


def _plain(read: Callable[[str], Value], text: str) -> Value:
    value = read(text)
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _or_zero(read: Callable[[str], Any], text: str) -> Any:
    value = read(text)
    return 0 if value is None else value


def _bits(size: int, text: str) -> bool | str:
    """Return BIT(1) as a boolean, and more bits as bytes, the lowest first."""
    if size == 1:
        return text != "0"
    return base64.b64encode(int(text).to_bytes(-(-size // 8), "little")).decode()


def _days(text: str) -> int | None:
    try:
        return (date.fromisoformat(text) - _EPOCH.date()).days
    except ValueError:
        return None


def _since_epoch(as_milliseconds: bool, text: str) -> int | None:  # noqa: FBT001 - for `partial`
    try:
        found = (datetime.fromisoformat(text).replace(tzinfo=UTC) - _EPOCH) // _MICROS
    except ValueError:
        return None
    return found // 1000 if as_milliseconds else found


def _zoned(zero: str | None, text: str) -> str | None:
    """Return a time of UTC with its zone. `zero`: what stands for the zero date."""
    return zero if text.startswith("0000") else text.replace(" ", "T") + "Z"


def _microseconds(text: str) -> int | str:
    found = _TIME.fullmatch(text)
    if found is None:
        return text
    sign, hours, minutes, seconds, fraction = found.groups()
    whole = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
    return (-1 if sign else 1) * (whole * 10**6 + int(f"{fraction or '':0<6}"))
