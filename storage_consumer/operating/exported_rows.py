"""The rows of a table in an export as a side of a comparison: decoded once, into a file of SQLite that is sorted by the key."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from hashlib import sha256
from itertools import islice
from operator import xor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from storage_consumer.config.settings import Upstream
from storage_consumer.decode import export_decoder
from storage_consumer.decode.decoder import FileRead
from storage_consumer.decode.layout import row_layout
from storage_consumer.decode.values import BINARY_TYPES, INTEGER_TYPES
from storage_consumer.downstream.reading import Pace
from storage_consumer.driver.copies import CopiedTable
from storage_consumer.errors import Abandoned, FilesMissing
from storage_consumer.model import CommitRange, TableColumn, folded_name
from storage_consumer.storage.base import Storage, whole
from storage_consumer.verifying.forms import BEGINNING, FEW_BYTES
from storage_consumer.verifying.layout import SideColumn, SideLayout
from storage_consumer.verifying.side import Digest, Key, KeyRange, Row, TableShape

_BLOCK = 1 << 22
_AT_A_TIME = 2_000
"""Rows that are written into the file at a time."""
_DIGITS_BEHIND = 30
"""Most digits behind the point of a DECIMAL."""
_ALL = CommitRange(low=0, high=1 << 62)
_EMPTY = Digest(rows=0, sums=(0, 0))
Stored = tuple[bytes | int | None, ...]


@dataclass(frozen=True, slots=True)
class Files:
    """The files of an export, and how they are read."""

    origin: Upstream
    """Where they are, and how they are written."""
    storage: Storage
    pace: Pace
    stop: threading.Event
    """Once it is set, reading ends with `Abandoned`."""


class ExportedRows:
    """A table of an export; a `verifying.layout.LaidOutSide`."""

    def __init__(self, table: CopiedTable, shape: TableShape, files: Files) -> None:
        """Take the table; nothing is read before rows are asked for."""
        self.layout = SideLayout(columns=(), key=())
        """What is compared of it; to be set before rows are asked for."""
        self._table = table
        self._shape = shape
        self._files = files
        self._read_for: SideLayout | None = None
        self._folder: TemporaryDirectory[str] | None = None
        self._file: sqlite3.Connection | None = None

    def close(self) -> None:
        """Remove what was decoded."""
        if self._file is not None:
            self._file.close()
        if self._folder is not None:
            self._folder.cleanup()
        self._file = self._folder = self._read_for = None

    # what a side shows

    def structure(self) -> TableShape:
        """Return what the table looks like, as far as the export shows it."""
        return self._shape

    def count(self) -> int:
        """Return the number of rows."""
        ((rows,),) = self._asked("SELECT COUNT(*) FROM rows")
        return int(rows)

    def chunk(self, keys: KeyRange) -> Digest:
        """Return the digest of a range of keys."""
        where, arguments = _within(self.layout, keys)
        hashes = [row[0] for row in self._asked(f"SELECT hash FROM rows WHERE {where}", arguments)]  # noqa: S608 - of this module
        parts = (slice(8), slice(8, 16))
        sums = tuple(reduce(xor, (int.from_bytes(each[part]) for each in hashes), 0) for part in parts)
        return Digest(rows=len(hashes), sums=sums)

    def rows(self, keys: KeyRange) -> Iterable[Row]:
        """Return the rows of a range of keys."""
        where, arguments = _within(self.layout, keys)
        return self._fetched(where, arguments)

    def rows_at(self, keys: Sequence[Key]) -> Iterable[Row]:
        """Return the rows with these keys, byte by byte: an export knows no collation."""
        sorted_ = [_sortable(self.layout, key) for key in keys]
        return self._fetched(f"key IN ({', '.join('?' * len(sorted_))})", sorted_)

    def boundary(self, keys: KeyRange, rows: int) -> Key | None:
        """Return the key of a range's row number `rows`, from 1; None if it has fewer."""
        where, arguments = _within(self.layout, keys)
        shown = ", ".join(f"c{place}" for place in self.layout.key)
        found = list(
            self._asked(f"SELECT {shown} FROM rows WHERE {where} ORDER BY key LIMIT 1 OFFSET {rows - 1}", arguments)  # noqa: S608 - of this module
        )
        return tuple(value or b"" for value in found[0]) if found else None

    def buckets(self) -> dict[int, Digest]:
        """Return the digests of all rows, by the bucket into which a hash of their content puts them."""
        found: dict[int, Digest] = {}
        for bucket, hashed in self._asked("SELECT bucket, hash FROM rows"):
            digits, before = hashed.hex(), found.get(bucket, _EMPTY)
            sums = (int(digits[:15], 16), int(digits[15:30], 16))
            totals = tuple(one + two for one, two in zip(sums, before.sums, strict=True))
            found[bucket] = Digest(rows=before.rows + 1, sums=totals)
        return found

    def bucket(self, numbers: Sequence[int]) -> Iterable[Row]:
        """Return the rows of some buckets."""
        return self._fetched(f"bucket IN ({', '.join('?' * len(numbers))})", numbers)

    # the file

    def _fetched(self, where: str, arguments: Sequence[bytes | int]) -> Iterator[Row]:
        shown = ", ".join(f"c{place}" for place in range(len(self.layout.columns)))
        yield from self._asked(f"SELECT {shown} FROM rows WHERE {where}", arguments)  # noqa: S608 - of this module

    def _asked(self, sql: str, arguments: Sequence[bytes | int] = ()) -> Iterator[tuple[Any, ...]]:
        if self._read_for != self.layout:
            self._read()
        assert self._file is not None
        yield from self._file.execute(sql, arguments)

    def _read(self) -> None:
        """Decode the export's files into a file of SQLite."""
        self.close()
        self._folder = TemporaryDirectory(prefix="storage-consumer-verify-")
        # Closed by whoever ends the comparison, which may be another thread.
        self._file = file = sqlite3.connect(
            Path(self._folder.name, "rows"), isolation_level=None, check_same_thread=False
        )
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "locking_mode = EXCLUSIVE"):
            file.execute(f"PRAGMA {pragma}")
        columns = "".join(f", c{place} BLOB" for place in range(len(self.layout.columns)))
        file.execute(f"CREATE TABLE rows (key BLOB, bucket INTEGER, hash BLOB{columns})")
        file.execute("BEGIN")
        sql = f"INSERT INTO rows VALUES (?, ?, ?{', ?' * len(self.layout.columns)})"  # noqa: S608 - of this module
        for some in _batches(self._stored()):
            file.executemany(sql, some)
            self._files.pace.spend(len(some))
            if self._files.stop.is_set():
                raise Abandoned("the comparison was broken off")
        file.execute(f"CREATE INDEX way ON rows ({'key' if self.layout.key else 'bucket'})")
        file.execute("COMMIT")
        self._read_for = self.layout

    def _stored(self) -> Iterator[Stored]:
        """Yield the rows as the file has them."""
        definition = self._table.definition
        laid_out = row_layout(definition, frozenset(), self._files.origin)
        places = {folded_name(column.name): place for place, column in enumerate(laid_out.columns)}
        read = [
            (places[folded_name(column.name)], _text_of(laid_out.columns[places[folded_name(column.name)]]), column)
            for column in self.layout.columns
        ]
        decoder = export_decoder(self._files.origin.dump)
        for part in self._table.parts:
            blocks = whole(self._files.storage.blocks(part.path, _BLOCK, tag=part.tag), part)
            try:
                for _, _, _, values, _ in decoder.rows(
                    FileRead(blocks=blocks, source=part.path, layout=laid_out, commit_range=_ALL)
                ):
                    yield self._row([(values[place], text_of, column) for place, text_of, column in read])
            except FileNotFoundError as fault:
                raise FilesMissing(
                    f"{part.path} was removed or replaced meanwhile: leave the export as it is, or take a new one"
                ) from fault

    def _row(self, values: Sequence[tuple[str | None, Callable[[str], bytes], SideColumn]]) -> Stored:
        texts = [None if value is None else text_of(value) for value, text_of, _ in values]
        shown = [_shown(text, column) for text, (_, _, column) in zip(texts, values, strict=True)]
        hashed = sha256(
            b"".join(_part(text, column) for text, (_, _, column) in zip(texts, values, strict=True) if column.agrees)
        ).digest()
        key = tuple(shown[place] or b"" for place in self.layout.key)
        return (_sortable(self.layout, key), hashed[15], hashed[:16], *shown)


# What the expressions of `ComparedTable` say of a value.


def _shown(text: bytes | None, column: SideColumn) -> bytes | None:
    """Return a value as it is fetched."""
    if text is None or not column.form.is_wide:
        return text
    if len(text) <= FEW_BYTES:
        return b"=" + text
    beginning = text[:BEGINNING] if column.form.is_binary else text.decode()[:BEGINNING].encode()
    return b"#%b... %d bytes, SHA-256 %b" % (beginning, len(text), sha256(text).hexdigest().encode())


def _part(text: bytes | None, column: SideColumn) -> bytes:
    """Return what a value adds to the hash of its row."""
    if column.form.is_plain:
        return b"%b;" % (b"N" if text is None else text)
    if text is None:
        return b"N"
    return sha256(text).hexdigest().encode() if column.form.is_wide else b"%d:%b" % (len(text), text)


def _text_of(column: TableColumn) -> Callable[[str], bytes]:
    """Return the function from a wire text to the text in which values are compared; see `verifying.forms`."""
    if column.type in INTEGER_TYPES or column.type in ("BIT", "YEAR"):
        return lambda text: b"%d" % int(text)
    if column.type == "DECIMAL":
        return _plain_decimal
    if column.type in BINARY_TYPES:
        return bytes.fromhex
    return _unpadded if column.type == "CHAR" else str.encode


def _plain_decimal(text: str) -> bytes:
    """Return a DECIMAL with its own digits behind the point, and without zeros before it."""
    return format(Decimal(text), "f").encode()


def _unpadded(text: str) -> bytes:
    return text.rstrip(" ").encode()


# the order of keys


def _within(layout: SideLayout, keys: KeyRange) -> tuple[str, list[bytes | int]]:
    """Return the condition of a range of keys, and its arguments."""
    conditions = ["key > ?"] * len(keys.above) + ["key <= ?"] * len(keys.upto)
    return " AND ".join(conditions) or "1", [_sortable(layout, key) for key in (*keys.above, *keys.upto)]


def _sortable(layout: SideLayout, key: Key) -> bytes:
    """Return bytes that sort as keys do: numbers by their value, and all else byte by byte."""
    return b"".join(
        _number(value) if layout.columns[place].literal == "number" else value.replace(b"\0", b"\0\xff") + b"\0\0"
        for place, value in zip(layout.key, key, strict=True)
    )


def _number(value: bytes) -> bytes:
    """Return a number of up to 65 digits, 30 of them behind the point, as bytes of one length."""
    digits, _, behind = value.partition(b".")
    return (int(digits + behind.ljust(_DIGITS_BEHIND, b"0")) + (1 << 319)).to_bytes(40)


def _batches(rows: Iterable[Stored]) -> Iterator[list[Stored]]:
    remaining = iter(rows)
    while some := list(islice(remaining, _AT_A_TIME)):
        yield some
