"""What a comparison needs of one side of a table: a server, or whatever else can show its rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

Key = tuple[bytes, ...]
"""The key of a row: its key columns as they are fetched."""
Row = tuple[bytes | None, ...]
"""A row: each compared column as it is fetched, see `layout.Form.fetched`; None for NULL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnShape:
    """A column as a server shows it."""

    name: str
    data_type: str
    """Lower-case base type."""
    column_type: str
    """The whole type, such as ``decimal(10,2) unsigned``."""
    nullable: bool = True
    default: str | None = None
    """As the server shows it; None for none."""
    constant: bytes | None = None
    """The value of a default that is a constant, where the server was asked for it: bytes, or a text in UTF-8."""
    extra: str = ""
    charset: str = ""
    collation: str = ""
    is_generated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexShape:
    """An index as a server shows it."""

    name: str
    unique: bool
    columns: tuple[str, ...]
    """A part over an expression is an empty text."""
    prefixes: tuple[int | None, ...]
    method: str = "BTREE"
    is_global: bool = False
    condition: str = ""
    """Of a partial index: which rows it holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableShape:
    """A table as a server shows it."""

    kind: str
    """``mariadb``, ``mysql`` or ``tidb``."""
    columns: tuple[ColumnShape, ...]
    indexes: tuple[IndexShape, ...] = ()
    foreign_keys: tuple[tuple[str, ...], ...] = ()
    """The name of each foreign key, and its columns."""
    collation: str = ""
    is_view: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRange:
    """The rows whose keys lie behind some keys and not behind others, in the order in which the side itself sorts keys.

    Several borders of one way all count. On a side that sorts as the one that gave them the innermost is enough.
    """

    above: tuple[Key, ...] = ()
    """Exclusive."""
    upto: tuple[Key, ...] = ()
    """Inclusive."""

    def before(self, key: Key) -> KeyRange:
        """Return the part up to a key, inclusive."""
        return KeyRange(above=self.above, upto=(*self.upto, key))

    def behind(self, key: Key) -> KeyRange:
        """Return the part behind a key."""
        return KeyRange(above=(*self.above, key), upto=self.upto)


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """A range or a bucket of rows, in short."""

    rows: int
    sums: tuple[int, ...] = ()
    is_whole: bool = True
    """Whether every row is in the sums. One whose value is larger than what the server computes with is not."""


class Side(Protocol):
    """One side of a table, at one moment."""

    def count(self) -> int:
        """Return the number of rows."""
        ...

    def chunk(self, keys: KeyRange) -> Digest:
        """Return the digest of a range of keys."""
        ...

    def rows(self, keys: KeyRange) -> Iterable[Row]:
        """Return the rows of a range of keys."""
        ...

    def rows_at(self, keys: Sequence[Key]) -> Iterable[Row]:
        """Return the rows whose keys this side finds equal to one of these."""
        ...

    def boundary(self, keys: KeyRange, rows: int) -> Key | None:
        """Return the key of a range's row number `rows`, from 1; None if it has fewer."""
        ...

    def buckets(self) -> dict[int, Digest]:
        """Return the digests of all rows, by the bucket into which a hash of their content puts them; empty buckets are missing."""
        ...

    def bucket(self, numbers: Sequence[int]) -> Iterable[Row]:
        """Return the rows of some buckets."""
        ...
