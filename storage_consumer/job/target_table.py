"""A table of the target as its information_schema shows it. Frozen, picklable."""

from __future__ import annotations

from dataclasses import dataclass

from storage_consumer.model import TableName


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
    """Equality is by code point (or the type has no collation)."""
    pads: bool = False
    """Trailing spaces do not count in comparisons."""
    collation: str = ""
    """Name of the collation; empty where the type has none."""
    digits: int | None = None
    """Digits after the point, or of fractions of a second; None where the type has none."""
    length: int | None = None
    """Longest value in characters (bytes for binary types); None where the type has none."""
    column_type: str = ""
    """The type as the server writes it out: ``enum('a','b')``."""

    @property
    def beyond_bmp(self) -> bool:
        """Whether the collation has weights for characters beyond U+FFFF: those made after Unicode 5."""
        return any(age in self.collation for age in ("_520_", "_0900_", "uca1400_"))


@dataclass(frozen=True, slots=True, kw_only=True)
class UniqueKey:
    """A unique index of the target; never one over an expression."""

    name: str
    columns: tuple[str, ...]
    prefixes: tuple[int | None, ...]
    """Per column the number of leading characters (bytes for binary types) that are indexed; None = all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTable:
    """A table as the target's information_schema shows it."""

    name: TableName
    """With the target's own spelling."""
    columns: tuple[TargetColumn, ...]
    unique_keys: tuple[UniqueKey, ...]
    """The primary key first, if there is one."""
    key_drift: str = ""
    """What somebody else added to its unique keys since the last statement of ours; empty if nothing."""
    unseen: str = ""
    """What to do where it is there and its columns are not shown; empty where they are."""
    is_view: bool = False
    """Rows that are written to it would go into other tables."""

    @property
    def virtual(self) -> frozenset[str]:
        """Casefolded names of the virtual generated columns."""
        return frozenset(c.name.casefold() for c in self.columns if c.generated == "VIRTUAL")
