"""Is a server's content what the source held? Rows are compared as multisets, each value by its column's type.

Source and target render the same value differently: TiDB shows FLOAT with six digits beyond 1e15, MariaDB keeps JSON as it
was typed, a server may pad ZEROFILL numbers. So both sides are brought to one form, per type of the source's column.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

from tests.harness.corpora import GoldenTable
from tests.harness.servers import DatabaseServer, quoted

STATE_SCHEMA = "storage_consumer"
FLOAT_IS_EXACT_BELOW = 1e15
NOT_AT_SOURCE = "is not at the source"
SHOWN_ROWS = 5
SHOWN_CHARACTERS = 300

Row = tuple[Any, ...]
Form = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where one table of the target is not as it was at the source."""

    table: str
    what: str

    def __str__(self) -> str:
        """Both in one line or more."""
        return f"{self.table}: {self.what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTable:
    """A base table of the target."""

    columns: tuple[str, ...]
    primary_key: tuple[str, ...]
    unique_keys: frozenset[tuple[str, ...]]
    """All unique indexes, the primary key among them."""


def differences(
    server: DatabaseServer,
    golden: Iterable[GoldenTable],
    *,
    time_zone: str = "+00:00",
    state_schema: str = STATE_SCHEMA,
    without: Mapping[str, frozenset[str]] | None = None,
    null: str | None = None,
) -> tuple[Difference, ...]:
    """All differences, by table; empty when the server holds exactly what the source held.

    Tables that only the target has count as differences, those of `state_schema` excepted. `time_zone` is the zone in
    which the golden renders TIMESTAMP values. `without`: per table the columns whose values are not compared.
    `null`: a text that can't be told from NULL.
    """
    expected = {table.name: table for table in golden}
    hidden = without or {}
    found = _target_tables(server, state_schema)
    result = [Difference(table=name, what=NOT_AT_SOURCE) for name in found.keys() - expected.keys()]
    for name, table in expected.items():
        forms = _forms(table, hidden.get(name, frozenset()), null)
        what = _table_difference(server, table, found.get(name), time_zone, forms)
        if what:
            result.append(Difference(table=name, what=what))
    return tuple(sorted(result, key=str))


def _target_tables(server: DatabaseServer, state_schema: str) -> dict[str, TargetTable]:
    schemas = [name for name in server.databases() if name.lower() != state_schema.lower()]
    columns: dict[str, list[str]] = {}
    keys: dict[str, dict[str, list[str]]] = {}
    for schema, table, column in server.query(
        "SELECT c.TABLE_SCHEMA, c.TABLE_NAME, c.COLUMN_NAME FROM information_schema.COLUMNS c"
        " JOIN information_schema.TABLES t USING (TABLE_SCHEMA, TABLE_NAME) WHERE t.TABLE_TYPE = 'BASE TABLE'"
        " ORDER BY c.ORDINAL_POSITION"
    ):
        if schema in schemas:
            columns.setdefault(f"{schema}.{table}", []).append(column)
    for schema, table, index, column in server.query(
        "SELECT TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, COLUMN_NAME FROM information_schema.STATISTICS"
        " WHERE NON_UNIQUE = 0 ORDER BY SEQ_IN_INDEX"
    ):
        keys.setdefault(f"{schema}.{table}", {}).setdefault(index, []).append(column)
    return {
        name: TargetTable(
            columns=tuple(columns[name]),
            primary_key=tuple(keys.get(name, {}).get("PRIMARY", ())),
            unique_keys=frozenset(tuple(index) for index in keys.get(name, {}).values()),
        )
        for name in columns
    }


def _forms(golden: GoldenTable, without: frozenset[str], null: str | None) -> list[Form]:
    """How the values of each column are compared."""
    return [
        _hidden if name in without else partial(_or_null, null, form_of(kind)) for name, kind in golden.types.items()
    ]


def _or_null(null: str | None, form: Form, value: Any) -> Any:
    return None if null is not None and value in (null, null.encode()) else form(value)


def _table_difference(
    server: DatabaseServer, golden: GoldenTable, found: TargetTable | None, time_zone: str, forms: Sequence[Form]
) -> str:
    if found is None:
        return "is not at the target"
    if found.columns != tuple(golden.types):
        return f"columns are {', '.join(found.columns)}; the source has {', '.join(golden.types)}"
    if not _same_key(golden, found):
        return f"primary key is ({', '.join(found.primary_key)}); the source has ({', '.join(golden.primary_key)})"
    expected = Counter(_row(forms, _unwrapped(row)) for row in golden.rows())
    actual = Counter(_row(forms, row) for row in _target_rows(server, golden, time_zone))
    if expected == actual:
        return ""
    return _explain(golden, expected - actual, actual - expected)


def _same_key(golden: GoldenTable, found: TargetTable) -> bool:
    """Whether rows are told apart alike. MariaDB has no primary key over a generated column: there a unique one stands in."""
    if golden.generated & set(golden.primary_key) and not found.primary_key:
        return golden.primary_key in found.unique_keys
    return found.primary_key == golden.primary_key


def _target_rows(server: DatabaseServer, golden: GoldenTable, time_zone: str) -> Sequence[Sequence[Any]]:
    """All rows with every value as the text or bytes that the server sends."""
    names = ", ".join(_selected(name, kind) for name, kind in golden.types.items())
    with server.connect(conv={}) as connection, connection.cursor() as cursor:
        cursor.execute(f"SET time_zone = '{time_zone}'")
        cursor.execute(f"SELECT {names} FROM {quoted(golden.schema)}.{quoted(golden.table)}")
        return cursor.fetchall()


def _selected(name: str, kind: str) -> str:
    """A server shows six digits of a FLOAT; added to a double it shows them all."""
    return f"{quoted(name)} + 0e0" if base_type(kind) == "float" else quoted(name)


def _unwrapped(row: Sequence[Any]) -> list[Any]:
    return [base64.b64decode(value["b64"]) if isinstance(value, dict) else value for value in row]


def _row(forms: Sequence[Form], values: Sequence[Any]) -> Row:
    return tuple(None if value is None else form(value) for form, value in zip(forms, values, strict=True))


def _hidden(_value: Any) -> str:
    """A value that is not compared."""
    return "(not compared)"


def base_type(kind: str) -> str:
    """``decimal`` of ``decimal(12,2) unsigned``."""
    return re.split(r"[ (]", kind.lower(), maxsplit=1)[0]


def form_of(kind: str) -> Callable[[Any], Any]:
    """How values of a column type are brought to the form in which they are compared."""
    return FORMS.get(base_type(kind), _text)


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8")


def _bytes(value: str | bytes) -> bytes:
    return value.encode("utf-8") if isinstance(value, str) else value


def _fixed_bytes(value: str | bytes) -> bytes:
    return _bytes(value).rstrip(b"\0")


def _bits(value: str | bytes) -> int:
    return int.from_bytes(_bytes(value), "big")


def _double(value: str) -> float:
    return float(value) + 0.0


def _float(value: str) -> float | str:
    """The nearest float32; where TiDB writes only six digits, those six."""
    number = float(value)
    if number and not 1 / FLOAT_IS_EXACT_BELOW < abs(number) < FLOAT_IS_EXACT_BELOW:
        return f"{number:.5e}"
    nearest: float = struct.unpack("f", struct.pack("f", number))[0]
    return nearest + 0.0


def _json(value: str | bytes) -> str:
    return json.dumps(_plain(json.loads(value)), sort_keys=True, ensure_ascii=False)


def _plain(value: Any) -> Any:
    """JSON has one kind of number: 1.0 is 1."""
    match value:
        case dict():
            return {key: _plain(member) for key, member in value.items()}
        case list():
            return [_plain(member) for member in value]
        case float() if value.is_integer():
            return int(value)
    return value


FORMS: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "year"), int),
    **dict.fromkeys(("varbinary", "tinyblob", "blob", "mediumblob", "longblob"), _bytes),
    "binary": _fixed_bytes,
    "bit": _bits,
    "decimal": Decimal,
    "double": _double,
    "float": _float,
    "json": _json,
    "vector": _json,
}


def _explain(golden: GoldenTable, missing: Counter[Row], extra: Counter[Row]) -> str:
    """The first rows of each side; two rows with one key are shown by the columns in which they differ."""
    names = list(golden.types)
    by_key = {_key(golden, row): row for row in extra}
    changed = {row: by_key[_key(golden, row)] for row in missing if golden.primary_key and _key(golden, row) in by_key}
    shown = [
        f"row {dict(zip(golden.primary_key, _key(golden, row), strict=True))}: "
        + "; ".join(
            f"{name} is {_short(is_)}, at the source {_short(was)}"
            for name, was, is_ in zip(names, row, other, strict=True)
            if was != is_
        )
        for row, other in list(changed.items())[:SHOWN_ROWS]
    ]
    only_source = [(row, count) for row, count in missing.items() if row not in changed]
    only_target = [(row, count) for row, count in extra.items() if row not in changed.values()]
    shown += [f"{count} x only at the source: {_short(row)}" for row, count in only_source[:SHOWN_ROWS]]
    shown += [f"{count} x only at the target: {_short(row)}" for row, count in only_target[:SHOWN_ROWS]]
    counts = f"{missing.total()} rows of the source are missing, {extra.total()} rows are not at the source"
    return "\n  ".join([counts, *shown])


def _key(golden: GoldenTable, row: Row) -> Row:
    return tuple(row[list(golden.types).index(name)] for name in golden.primary_key)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}… ({len(text)} characters)"
