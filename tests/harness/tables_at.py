"""Tables as of a commit-ts, read in this process, in the form in which recorded rows are compared."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from storage_consumer.config.load import Loaded
from storage_consumer.errors import NotReplicable
from storage_consumer.model import TableName
from storage_consumer.spark.source.dataframes import TableAt, find, read_part
from storage_consumer.spark.source.partitions import transactions_once
from storage_consumer.sql.tokens import quote
from tests.harness.comparing import base_type, form_of
from tests.harness.corpora import GoldenTable
from tests.harness.feeds import feed_of

_MOMENTS = ("date", "datetime", "timestamp")
Rows = Counter[tuple[Any, ...]]


def found_at(loaded: Loaded, name: TableName, high: int, base: str = "") -> TableAt:
    """What a table is made of, for a process that was just started."""
    rule = (f"{quote(name.schema)}.{quote(name.table)}",)
    return find(feed_of(loaded, rule), loaded, name, high, base, ())


def read_at(found: TableAt) -> list[dict[str, Any]]:
    """The rows of a table, folded by a few lines that know of no shuffle."""
    batches = [batch for part in found.parts for batch in read_part(found, part)]
    changes = pa.Table.from_batches(batches, found.schema)
    names = [field.name for field in found.fields]
    if not found.key:
        return _bag(changes, names)
    last: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in sorted(changes.to_pylist(), key=lambda row: tuple(row["_sequence"].values())):
        key = tuple(row[name] for name in found.key)
        if key not in last and row["_change_type"] != "insert":
            # As `table_at` does.
            raise NotReplicable("a change of a row that nothing inserted")
        last[key] = row
    return [{name: row[name] for name in names} for row in last.values() if row["_change_type"] != "delete"]


def _bag(changes: pa.Table, names: list[str]) -> list[dict[str, Any]]:
    order = sorted(range(changes.num_rows), key=lambda at: tuple(changes["_sequence"][at].as_py().values()))
    ordered = changes.take(pa.array(order, pa.int64()))
    counts: Counter[tuple[Any, ...]] = Counter()
    for table in transactions_once(iter(ordered.to_batches()), [(0, [])]):
        for row in table.to_pylist():
            counts[tuple(row[name] for name in names)] += -1 if row["_change_type"] == "delete" else 1
    if min(counts.values(), default=0) < 0:
        # As `table_at` does, where TiCDC leaves out what a delete of a row without a primary key would need.
        raise NotReplicable("more deletes than inserts of one row")
    return [dict(zip(names, values, strict=True)) for values, count in counts.items() for _ in range(count)]


def shown(rows: Iterable[Mapping[str, Any]], table: GoldenTable, zone: str) -> Rows:
    """Typed rows in the form in which they are compared; a date that no calendar has is null. `zone`: that of the source's session."""
    forms = {name: _form(kind, zone) for name, kind in table.types.items() if name not in _virtual(table)}
    return Counter(tuple(form(row[name]) for name, form in forms.items()) for row in rows)


def golden(table: GoldenTable) -> Rows:
    """What the source held, in the same form."""
    virtual = _virtual(table)
    kinds = list(table.types.items())
    return Counter(
        tuple(_golden(kind, value) for (name, kind), value in zip(kinds, row, strict=True) if name not in virtual)
        for row in table.rows()
    )


def _virtual(table: GoldenTable) -> set[str]:
    return {column.name for column in table.columns if "VIRTUAL" in column.extra.upper()}


def _golden(kind: str, value: Any) -> Any:
    found = base64.b64decode(value["b64"]) if isinstance(value, dict) else value
    base = base_type(kind)
    if found is None or (base in _MOMENTS and _no_date(str(found))):
        return None
    # Arrow does not tell how many digits a fraction of a second has.
    return form_of(kind)(_short(str(found)) if base in _MOMENTS else found)


def _short(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _no_date(text: str) -> bool:
    try:
        datetime.fromisoformat(text[:10])
    except ValueError:
        return True
    return False


def _form(kind: str, zone: str) -> Callable[[Any], Any]:
    base, form = base_type(kind), form_of(kind)

    def shown(value: Any) -> Any:
        return None if value is None else form(_text(base, value, zone))

    return shown


def _text(base: str, value: Any, zone: str) -> Any:
    if isinstance(value, (bytes, str)):
        return value
    if base == "timestamp":
        return _short(str(value.astimezone(ZoneInfo(zone) if zone != "UTC" else UTC).replace(tzinfo=None)))
    if isinstance(value, Decimal):
        return format(value, "f")
    return _short(str(value)) if base in _MOMENTS else str(value)
