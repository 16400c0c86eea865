"""Random canal-json files under random options, and what reading them must give."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from storage_consumer.decode.canal_files import CanalJsonDecoder
from storage_consumer.decode.decoder import FileRead, RowChange, RowLayout, Values
from storage_consumer.decode.kernels.arrays import DELETE, INSERT, PARTIAL_DELETE, UPDATE
from storage_consumer.errors import UndecodableRow
from storage_consumer.model import CommitRange, TableColumn, TableName
from tests.property.csv_files import KINDS, MEMBERS, SPECIALS, TS, Case

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


TERMINATORS = ("\r\n", "\r\n", "\r\n", "\n", "", "|", "\r", "\n\n", "}", '"', "EOL", "§")
_ELEMENTS = MEMBERS[:-1]


def case(chance: random.Random, rows: int) -> Case:
    """A file of `rows` rows: what was read of it, and what must be."""
    source = random_source(chance)
    specials = [*SPECIALS, source.options.terminator, '"}]}', "<&>", "\u2028", "\x7f", "\x80", "ÿ"]
    changes = [random_change(chance, source, TS + number, specials) for number in range(rows)]
    data = "".join(source.line(change, chance) for change in changes).encode()
    layout = RowLayout(table=source.table, columns=source.columns)
    size = chance.choice((1, 2, 7, 100, 1 << 20)) if len(data) < 3000 else chance.choice((997, 1 << 16, 1 << 20))
    blocks = (data[start : start + size] for start in range(0, len(data), size))
    decoder = CanalJsonDecoder(
        source.options.terminator, allow_missing_commit_ts=not source.options.tidb_extension or chance.random() < 0.2
    )
    expected = [_expected(source, number, change) for number, change in enumerate(changes, 1)]
    found: list[RowChange] | str
    try:
        file = FileRead(blocks=blocks, source="CDC1.json", layout=layout, commit_range=CommitRange(low=0, high=2**64))
        found = list(decoder.rows(file))
    except UndecodableRow as error:
        found = str(error)
    return Case(
        what=f"{source}, blocks of {size} bytes: {data[:4000]!r}",
        content=data,
        decoder=decoder,
        layout=layout,
        found=found,
        expected=expected,
    )


def _expected(source: Source, number: int, change: Change) -> RowChange:
    ts = change.ts if source.options.tidb_extension else change.ts >> 18 << 18
    old, new = wire(source, change.old), wire(source, change.new)
    if new is None:
        assert old is not None
        if not source.options.delete_only_handle_key or len(source.key) == len(source.columns):
            return number, ts, DELETE, old, None
        return number, ts, PARTIAL_DELETE, tuple(v if p in source.key else None for p, v in enumerate(old)), None
    return number, ts, INSERT if old is None else UPDATE, new, old


def wire(source: Source, values: tuple[Value, ...] | None) -> Values | None:
    """What the writer must get: bytes in hexadecimal digits, year zero in four digits, all else as it is written."""
    if values is None:
        return None
    wire: list[str | None] = []
    for column, value in zip(source.columns, values, strict=True):
        if isinstance(value, bytes):
            wire.append("".join(f"{byte:02X}" for byte in value))
        else:
            wire.append("0000" if column.type == "YEAR" and value == 0 else source.text(column, value))
    return tuple(wire)


def random_change(chance: random.Random, source: Source, ts: int, specials: list[str]) -> Change:
    """An insert, an update or a delete."""
    old, new = _values(chance, source, specials), _values(chance, source, specials)
    if chance.random() < 0.5:  # an update that leaves some columns as they were
        new = tuple(before if chance.random() < 0.6 else after for before, after in zip(old, new, strict=True))
    has_old, has_new = chance.choice(((False, True), (True, True), (True, False)))
    return Change(ts=ts, old=old if has_old else None, new=new if has_new else None)


def _values(chance: random.Random, source: Source, specials: list[str]) -> tuple[Value, ...]:
    return tuple(
        None
        if place not in source.key and chance.random() < 0.15
        else ""
        if column.type == "ENUM" and chance.random() < 0.1
        else KINDS[column.type](chance, specials)
        for place, column in enumerate(source.columns)
    )


def random_source(chance: random.Random) -> Source:
    """A table and options."""
    names = chance.sample(
        ("id", "c d", "é", "Name", "x,y", "data", "_tidb", 'q"', "b\\s", "t\t", *string.ascii_uppercase), k=12
    )
    columns = tuple(
        TableColumn(
            name=names[place], type=kind, elements=_ELEMENTS if kind in ("ENUM", "SET") else (), unsigned=kind == "BIT"
        )
        for place, kind in enumerate(chance.choices(sorted(KINDS), k=chance.randint(1, 6)))
    )
    table, schema = chance.choices(("orders", "shop", "a b", 'o"r', "back\\slash", "née", "😀"), k=2)
    return Source(
        options=Options(
            terminator=chance.choice(TERMINATORS),
            tidb_extension=chance.random() < 0.7,
            row_key=chance.random() < 0.3,
            content_compatible=chance.random() < 0.3,
            only_updated_columns=chance.random() < 0.3,
            delete_only_handle_key=chance.random() < 0.3,
        ),
        table=TableName(schema=schema, table=table),
        columns=columns,
        key=tuple(sorted(chance.sample(range(len(columns)), k=chance.randint(0, len(columns))))),
    )
