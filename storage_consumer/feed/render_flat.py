"""Changes as canal's FlatMessage, one JSON object a line, as TiCDC itself writes canal-json (format sheet 5), without its extension."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from storage_consumer.config.settings import Protocol
from storage_consumer.decode.decoder import Values
from storage_consumer.decode.values import BINARY_TYPES, FLOAT_TYPES
from storage_consumer.feed.records import Event, Statement, Structure
from storage_consumer.feed.render_json import dumped
from storage_consumer.feed.values import number_of_member
from storage_consumer.kernels.arrays import INSERT, UPDATE
from storage_consumer.model import TableColumn, physical_ms
from storage_consumer.sql.parse import parsed

_TYPES = {INSERT: "INSERT", UPDATE: "UPDATE"}
_CODES = {
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
_VARCHAR = 12
_NEVER_CALLED_UNSIGNED = ("BIT", "YEAR")
_PROMOTED = {"TINYINT": (127, 5), "SMALLINT": (32767, 4), "INT": (2**31 - 1, -5), "BIGINT": (2**63 - 1, 3)}
"""Unsigned type → the highest value that its code can hold, and the code for those above it."""


def flat_messages(protocol: Protocol, now: Callable[[], float]) -> Callable[[Event], str]:
    """Return the function from an event to its line; `now`: seconds since 1970-01-01 UTC, for the message's ``ts``."""

    def line(event: Event) -> str:
        if isinstance(event, Statement):
            return dumped(_statement(event, now))
        structure = event.structure
        columns, only = structure.columns, event.given()
        old = None if event.old is None else [_image(structure, event.old, only, protocol)]
        return dumped(
            {
                "id": 0,
                "database": structure.table.schema,
                "table": structure.table.table,
                "pkNames": [columns[place].name for place in structure.key],
                "isDdl": False,
                "type": _TYPES.get(event.operation, "DELETE"),
                "es": physical_ms(event.commit_ts),
                "ts": int(now() * 1000),
                "sql": "",
                "sqlType": {columns[place].name: _code(columns[place], event.values[place]) for place in only},
                "mysqlType": {columns[place].name: _type_text(columns[place]) for place in only},
                "data": [_image(structure, event.values, only, protocol)],
                "old": old,
            }
        )

    return line


def _statement(event: Statement, now: Callable[[], float]) -> dict[str, object]:
    definition = event.definition
    return {
        "id": 0,
        "database": definition.name.schema,
        "table": definition.name.table,
        "pkNames": None,
        "isDdl": True,
        "type": (parsed(definition).head or ("QUERY",))[0] or "QUERY",
        "es": physical_ms(event.commit_ts),
        "ts": int(now() * 1000),
        "sql": definition.query,
        "sqlType": None,
        "mysqlType": None,
        "data": None,
        "old": None,
    }


def _image(structure: Structure, values: Values, only: tuple[int, ...], protocol: Protocol) -> dict[str, str | None]:
    columns = structure.columns
    return {columns[place].name: _text(columns[place], values[place], protocol) for place in only}


def _text(column: TableColumn, text: str | None, protocol: Protocol) -> str | None:
    if text is None:
        return None
    if column.type in BINARY_TYPES:
        return bytes.fromhex(text).decode("latin-1")
    if protocol != "canal-json" and column.type in ("ENUM", "SET"):
        return number_of_member(column, text)
    if column.type in FLOAT_TYPES and "e" in text.lower():
        return format(Decimal(text), "f")
    # Year zero has one digit.
    return str(int(text)) if column.type == "YEAR" else text


def _type_text(column: TableColumn) -> str:
    # Schema files call BIT and YEAR unsigned, messages do not.
    return column.type.lower() + (" unsigned" if column.unsigned and column.type not in _NEVER_CALLED_UNSIGNED else "")


def _code(column: TableColumn, text: str | None) -> int:
    if column.unsigned and text is not None and column.type in _PROMOTED:
        most, above = _PROMOTED[column.type]
        if int(text) > most:
            return above
    return _CODES.get(column.type, _VARCHAR)
