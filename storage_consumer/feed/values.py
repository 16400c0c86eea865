"""Values of changes as those of the reader's language: numbers, texts and bytes in the place of wire texts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from storage_consumer.config.settings import Protocol
from storage_consumer.decode.values import BINARY_TYPES, FLOAT_TYPES, INTEGER_TYPES
from storage_consumer.model import TableColumn

Value = int | float | str | bytes | None
_WHOLE = INTEGER_TYPES | {"YEAR", "BIT"}


def reader(column: TableColumn, protocol: Protocol) -> Callable[[str], Value]:
    """Return the function from a column's wire text to its value.

    Whole numbers, YEAR and BIT are integers, FLOAT and DOUBLE are floats, binary types are bytes. All else is the text, which is exact:
    DECIMAL, dates and times, JSON. ENUM and SET are the names of their members; where the files have numbers, and do not list the members,
    they stay numbers.
    """
    if column.type in _WHOLE:
        return int
    if column.type in FLOAT_TYPES:
        return float
    if column.type in BINARY_TYPES:
        return bytes.fromhex
    if protocol == "canal-json" and column.type in ("ENUM", "SET"):
        return partial(_enum if column.type == "ENUM" else _set, column.elements) if column.elements else int
    return str


def _enum(elements: tuple[str, ...], text: str) -> str:
    """Return the member with a number from 1; 0 stands for a value that was not one."""
    number = int(text)
    return elements[number - 1] if 0 < number <= len(elements) else ""


def _set(elements: tuple[str, ...], text: str) -> str:
    """Return the members whose bits are set."""
    bits = int(text)
    return ",".join(name for place, name in enumerate(elements) if bits >> place & 1)


def number_of_member(column: TableColumn, text: str) -> str:
    """Return the number of an ENUM's or SET's value that is given by name, as a text; the name where the members are not known."""
    elements = column.elements
    if not elements:
        return text
    if column.type == "ENUM":
        return str(elements.index(text) + 1) if text in elements else text or "0"
    names = text.split(",") if text else []
    if not all(name in elements for name in names):
        return text
    return str(sum(1 << elements.index(name) for name in names))
