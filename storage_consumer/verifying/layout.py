"""What of a table is compared: the columns that both sides have, and the key by which rows are told apart and cut into chunks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from storage_consumer.model import folded_name
from storage_consumer.verifying.forms import BYTES, NUMBERS, ORDERLY, Form, PairedColumn, no_text, paired
from storage_consumer.verifying.side import ColumnShape, IndexShape, Key, Row, Side, TableShape

_LONGEST = 1_000
"""Characters of a value that are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideColumn:
    """A compared column on one side."""

    name: str
    form: Form
    literal: Literal["number", "bytes", "text"] = "text"
    """How a value of it is given to the server."""
    agrees: bool = True
    """See `PairedColumn.sums_agree`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideLayout:
    """What one side shows of a table."""

    columns: tuple[SideColumn, ...]
    key: tuple[int, ...]
    """Indexes of the key columns; empty for a table that is compared as a bag of rows."""


class LaidOutSide(Side, Protocol):
    """A side that has to be told what is compared, before rows are asked for."""

    layout: SideLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLayout:
    """What is compared of a table."""

    columns: tuple[PairedColumn, ...]
    key: tuple[int, ...]
    """Indexes of the columns that tell rows apart; empty for a table without a key."""
    is_ranged: bool
    """Whether ranges of the key can be read."""

    @property
    def sums_agree(self) -> bool:
        """Whether equal rows have equal checksums on both sides."""
        return all(column.sums_agree for column in self.columns)

    @property
    def source(self) -> SideLayout:
        """What the source shows."""
        return self._side([(each.source, each.of_source, each.sums_agree) for each in self.columns])

    @property
    def target(self) -> SideLayout:
        """What the target shows."""
        return self._side([(each.target, each.of_target, each.sums_agree) for each in self.columns])

    def _side(self, columns: Sequence[tuple[ColumnShape, Form, bool]]) -> SideLayout:
        return SideLayout(
            columns=tuple(
                SideColumn(name=column.name, form=form, literal=_literal(column), agrees=agrees)
                for column, form, agrees in columns
            ),
            key=self.key if self.is_ranged else (),
        )

    def key_of(self, row: Row) -> Key:
        """Return the key of a row."""
        return tuple(row[place] or b"" for place in self.key)

    def normal(self, row: Row) -> Row:
        """Return a row in the form in which both sides are compared."""
        return tuple(
            None if value is None else column.normal(value) for value, column in zip(row, self.columns, strict=True)
        )

    def shown(self, row: Row) -> dict[str, str | None]:
        """Return a row as it is reported: column → text."""
        return {
            # The mark before a wide value is of its form.
            column.source.name: None if value is None else _cut(_shown_of(column, value[column.of_source.is_wide :]))
            for value, column in zip(row, self.columns, strict=True)
        }

    def shown_key(self, key: Key) -> dict[str, str]:
        """Return a key as it is reported."""
        columns = [self.columns[place] for place in self.key]
        return {column.source.name: _shown_of(column, value) for column, value in zip(columns, key, strict=True)}


def _literal(column: ColumnShape) -> Literal["number", "bytes", "text"]:
    if column.data_type in NUMBERS:
        return "number"
    return "bytes" if column.data_type in BYTES else "text"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters)"


def _shown_of(column: PairedColumn, value: bytes) -> str:
    """Return a value of a column as text."""
    found = no_text(value) if column.of_source.charset or column.of_target.charset else None
    return shown_value(value) if found is None else f"_{found[0]} 0x{found[1].hex()}"


def shown_value(value: bytes) -> str:
    """Return a value as text: bytes that are no text in hexadecimal digits."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"


def without(shape: TableShape, names: Collection[str]) -> TableShape:
    """Return a structure without some columns, by folded names, and without the indexes over them."""
    columns = tuple(column for column in shape.columns if folded_name(column.name) not in names)
    indexes = (index for index in shape.indexes if not any(folded_name(name) in names for name in index.columns))
    return replace(shape, columns=columns, indexes=tuple(indexes))


def layout_of(source: TableShape, target: TableShape) -> TableLayout:
    """Return what is compared of a table: the columns that both sides have, in the source's order."""
    there = {folded_name(column.name): column for column in target.columns}
    columns = tuple(
        paired(column, source.kind, there[folded_name(column.name)], target.kind)
        for column in source.columns
        if folded_name(column.name) in there
    )
    places = {folded_name(column.source.name): place for place, column in enumerate(columns)}
    key = _key(source, places)
    ranged = bool(key) and all(
        columns[place].source.data_type in ORDERLY and columns[place].target.data_type in ORDERLY for place in key
    )
    return TableLayout(columns=columns, key=key, is_ranged=ranged)


def _key(source: TableShape, places: dict[str, int]) -> tuple[int, ...]:
    """Return the places of the source's key: the primary key, else a unique one over columns that are never NULL."""
    shapes = {folded_name(column.name): column for column in source.columns}
    for index in sorted(source.indexes, key=lambda each: (each.name != "PRIMARY", each.name)):
        if _tells_apart(index, shapes) and all(folded_name(name) in places for name in index.columns):
            return tuple(places[folded_name(name)] for name in index.columns)
    return ()


def _tells_apart(index: IndexShape, shapes: dict[str, ColumnShape]) -> bool:
    """Return whether no two rows can be alike in the columns of an index."""
    if not index.unique or any(prefix is not None for prefix in index.prefixes):
        return False
    return all(
        name and folded_name(name) in shapes and not shapes[folded_name(name)].nullable for name in index.columns
    )
