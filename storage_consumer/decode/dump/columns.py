"""What the fields of an export's rows become: wire texts, in the order of the layout."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from storage_consumer.config.settings import Protocol
from storage_consumer.decode.decoder import RowLayout, Values
from storage_consumer.decode.values import Converter, converter, grammar, holds_bytes
from storage_consumer.model import TableColumn, folded_name

NOT_UTF8 = "it is not UTF-8"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Reader:
    """Reads the fields of one column."""

    column: TableColumn
    holds_bytes: bool
    """Whether values are bytes: they are converted from hexadecimal digits, or from the text that the file has of them."""
    grammar: re.Pattern[str] | None
    """What a number looks like; None: any text is a value."""
    convert: Converter | None
    is_spelled: bool
    """Whether `convert` ends with a spelling (see `RowLayout`)."""

    @property
    def is_number(self) -> bool:
        """Whether values are numbers, which may stand without quotes."""
        return self.grammar is not None

    def of_bytes(self, content: bytes) -> str:
        """Return the wire text of what a file has in quotes, without escapes. Raise `ValueError`, with the reason, for what is no value."""
        if self.holds_bytes:
            return self.of_text(content.hex())
        try:
            return self.of_text(content.decode())
        except UnicodeDecodeError as error:
            raise ValueError(NOT_UTF8) from error

    def of_text(self, text: str) -> str:
        """Return the wire text of a text, or of the digits of bytes."""
        if self.grammar and not self.grammar.fullmatch(text):
            raise ValueError(f"{text[:40]!r} does not have the form of a value of the type {self.column.type}")
        return self.convert(text) if self.convert else text


@lru_cache(maxsize=1024)
def readers_of(layout: RowLayout, protocol: Protocol, encoding: Literal["hex", "base64"]) -> tuple[Reader, ...]:
    """Return the reader of each column of a layout; `encoding`: in which bytes come to the converter."""
    return tuple(
        Reader(
            column=column,
            holds_bytes=holds_bytes(column),
            grammar=re.compile(form) if (form := grammar(column, protocol)) else None,
            convert=converter(
                column,
                protocol,
                binary_encoding=encoding,
                moved=layout.moving(place),
                spelling=layout.spelling(place),
            ),
            is_spelled=layout.spelling(place) is not None,
        )
        for place, column in enumerate(layout.columns)
    )


def order_of(names: Sequence[str], layout: RowLayout) -> tuple[int, ...]:
    """Return for each name in a file the index of the column in the layout. Raise `ValueError` if they are not the layout's columns."""
    places = {folded_name(column.name): place for place, column in enumerate(layout.columns)}
    folded = [folded_name(name) for name in names]
    if len(folded) != len(places) or set(folded) != set(places):
        expected = ", ".join(column.name for column in layout.columns)
        raise ValueError(
            f"the file names the columns {', '.join(names)[:200]}, but {layout.table} has {expected[:200]} "
            "besides generated ones"
        )
    return tuple(places[name] for name in folded)


def in_layout_order(values: Sequence[str | None], order: Sequence[int]) -> Values:
    """Return values in the order of the layout; `order`: see `order_of`."""
    placed: list[str | None] = [None] * len(values)
    for place, value in zip(order, values, strict=True):
        placed[place] = value
    return tuple(placed)
