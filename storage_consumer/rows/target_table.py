"""A table of the target as its information_schema shows it. Frozen, picklable."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from storage_consumer.model import TableColumn, TableName, folded_name


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetColumn:
    """A column as the target's information_schema shows it."""

    name: str
    data_type: str
    """Lower-case base type."""
    nullable: bool
    generated: str = ""
    """``VIRTUAL``, ``STORED`` or empty."""
    binary_collation: bool = True
    """Whether equality is by code point, or the type has no collation."""
    pads: bool = False
    """Whether comparisons ignore trailing spaces."""
    collation: str = ""
    """Name of the collation; empty if the type has none."""
    digits: int | None = None
    """Digits after the point, or of fractions of a second; None if the type has none."""
    length: int | None = None
    """Longest value in characters (bytes for binary types); None if the type has none."""
    column_type: str = ""
    """The type as the server writes it: ``enum('a','b')``."""

    @property
    def beyond_bmp(self) -> bool:
        """Whether the collation has weights for characters beyond U+FFFF, as those created after Unicode 5 have."""
        return any(age in self.collation for age in ("_520_", "_0900_", "uca1400_"))


Column = TypeVar("Column", TableColumn, TargetColumn)


def by_name(columns: Iterable[Column]) -> dict[str, Column]:
    """Return columns by folded name."""
    return {folded_name(column.name): column for column in columns}


@dataclass(frozen=True, slots=True, kw_only=True)
class UniqueKey:
    """A unique index of the target; never one with a part over an expression."""

    name: str
    columns: tuple[str, ...]
    prefixes: tuple[int | None, ...]
    """For each column, the number of leading characters (bytes for binary types) that are indexed; None means all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTable:
    """A table as the target's information_schema shows it."""

    name: TableName
    """The name as the target spells it."""
    columns: tuple[TargetColumn, ...]
    unique_keys: tuple[UniqueKey, ...]
    """The unique keys, the primary key first if there is one."""
    expression_keys: tuple[str, ...] = ()
    """What each unique index with a part over an expression is over, as the server shows it."""
    indexes: int = 0
    """How many indexes it has, unique or not."""
    key_drift: str = ""
    """What others added to its unique keys since our last statement; empty if nothing."""
    unseen: str = ""
    """What to do if the table exists but its columns are not shown; empty if they are."""
    is_view: bool = False
    """Whether it is a view, so that rows written to it would go into other tables."""
    is_planned: bool = False
    """Whether statements that a plan has not run make it what it is: no more than its name and its columns' names is known."""

    @property
    def virtual(self) -> frozenset[str]:
        """Folded names of the virtual generated columns."""
        return frozenset(folded_name(c.name) for c in self.columns if c.generated == "VIRTUAL")
