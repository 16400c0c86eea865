"""TiCDC's side of canal-json, written for tests from the description of its format: changes to messages."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from storage_consumer.model import TableColumn, TableName

Value = int | float | str | bytes | None
"""What a client of the source would see."""
_JAVA = {"BIGINT": -5, "INT": 4, "BIT": -7, "SET": -7, "ENUM": 4, "DECIMAL": 3, "FLOAT": 7, "DOUBLE": 8}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How TiCDC was told to write."""

    terminator: str = "\r\n"
    tidb_extension: bool = True
    row_key: bool = False
    content_compatible: bool = False
    only_updated_columns: bool = False
    delete_only_handle_key: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One row change."""

    ts: int
    old: tuple[Value, ...] | None
    new: tuple[Value, ...] | None


def plain_float(value: float) -> str:
    """Shortest digits, never an exponent."""
    text = f"{Decimal(repr(value)):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A table, as one TiCDC writes it."""

    options: Options
    table: TableName
    columns: tuple[TableColumn, ...]
    key: tuple[int, ...]
    """The handle key's columns; none where the table has no handle key."""

    def text(self, column: TableColumn, value: Value) -> str | None:
        """A value: NULL is null, and all else a JSON string."""
        if value is None:
            return None
        if isinstance(value, bytes):
            return "".join(map(chr, value))
        if isinstance(value, float):
            return plain_float(value)
        if column.type == "ENUM":
            return str(column.elements.index(str(value)) + 1 if value else 0)
        if column.type == "SET":
            return str(sum(1 << column.elements.index(name) for name in str(value).split(",") if name))
        return str(value)

    def message(self, change: Change, chance: random.Random) -> dict[str, object]:
        """The message of a change, with the keys in written order but for those whose order is random."""
        kind = "INSERT" if change.old is None else "DELETE" if change.new is None else "UPDATE"
        image = change.old if change.new is None else change.new
        shown = list(range(len(self.columns)))
        if kind == "DELETE" and self.options.delete_only_handle_key:
            shown = list(self.key)
        old = None
        if kind == "UPDATE" and change.old is not None:
            old = [self._image(change.old, self._updated(change))]
        message: dict[str, object] = {
            "id": 0,
            "database": self.table.schema,
            "table": self.table.table,
            "pkNames": [self.columns[place].name for place in self.key],
            "isDdl": False,
            "type": kind,
            "es": change.ts >> 18,
            "ts": (change.ts >> 18) + chance.randrange(5000),
            "sql": "",
            "sqlType": self._types(shown, chance, lambda column: _JAVA.get(column.type, 12)),
            "mysqlType": self._types(shown, chance, self._type_text),
            "old": old,
            "data": [self._image(image or (), shown)],
        }
        if self.options.tidb_extension:
            row_key = {"rowkey": "dIAAAAAAAABx"} if self.options.row_key else {}
            message["_tidb"] = {"commitTs": change.ts, **row_key}
        return message

    def line(self, change: Change, chance: random.Random) -> str:
        """The message as it stands in a file, with its terminator; escaped as Go escapes."""
        text = json.dumps(self.message(change, chance), ensure_ascii=False, separators=(",", ":"))
        for sign in "<>&\u2028\u2029":
            text = text.replace(sign, f"\\u{ord(sign):04x}")
        return text + self.options.terminator

    def _updated(self, change: Change) -> Sequence[int]:
        everything = range(len(self.columns))
        if not (self.options.only_updated_columns or self.options.content_compatible):
            return everything
        assert change.old is not None
        assert change.new is not None
        return [place for place in everything if change.old[place] != change.new[place]]

    def _image(self, values: Sequence[Value], shown: Sequence[int]) -> dict[str, str | None]:
        return {self.columns[place].name: self.text(self.columns[place], values[place]) for place in shown}

    def _types(
        self, shown: Sequence[int], chance: random.Random, say: Callable[[TableColumn], object]
    ) -> Mapping[str, object] | None:
        names = {self.columns[place].name: say(self.columns[place]) for place in shown}
        return dict(chance.sample(sorted(names.items()), len(names))) if names else None

    def _type_text(self, column: TableColumn) -> str:
        text = column.type.lower()
        if self.options.content_compatible:
            members = ",".join(f"'{name}'" for name in column.elements)
            text += f"({members})" if members else "(20)"
        return f"{text} unsigned" if column.unsigned else text
