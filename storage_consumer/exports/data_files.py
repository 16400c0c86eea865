"""Whether the data files of a table are all there and of one export, as far as their numbers, beginnings, ends and times show it.

Whether the files of an export are all of one run of Dumpling, as far as the times at which they were written show it.

A run overwrites what has the same name and leaves everything else: of a table that shrank, the last files of an older run; of one that was
dropped, all of them. No file is older than the run that wrote it, and a copy is younger still, so a time before the beginning proves an
older run, whoever copied what. How exactly the beginning is known depends on the export:

* ``metadata`` has the local time of Dumpling's host, without a zone, and none is more than 14 hours ahead of UTC;
* rows of a snapshot were not written before it, and its TSO has a time in UTC, by the source's clock;
* ``metadata`` is written last. If its own time is the one that it says, in some zone, and the run began with the snapshot, then the files have
  their times from the run itself: the beginning is known by the store's own clock, and nothing of the run is younger than ``metadata``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, groupby, islice
from typing import Literal

from storage_consumer.config.settings import Compression
from storage_consumer.decode.compression import decompressed
from storage_consumer.decode.values import BINARY_TYPES, INTEGER_TYPES, TEXT_TYPES
from storage_consumer.errors import ExportRefused, ExportUnfinished, UndecodableRow
from storage_consumer.exports.names import METADATA, ExportFile, Metadata
from storage_consumer.model import StoredObject, TableColumn, TableDefinition, TableName, physical_ms
from storage_consumer.storage.base import Storage, whole

AGAIN = "export again into an empty folder"
"""What remedies an export that cannot be used."""
Numbered = tuple[ExportFile, StoredObject]
"""A data file: what its name says, and where it is."""
Beginning = tuple[StoredObject, bytes]
"""A data file and its first bytes."""
_DUMPLINGS_WIDTH = 9
"""Digits that the numbers of Dumpling's files have at least; mydumper's have five, or there is none."""
_CHUNKED_WIDTH = 13
"""Digits of a number that is a chunk's and, in the last four, a file's within it (``--rows`` with ``--filesize``)."""
_FILES = 10_000
_HEAD_BYTES, _TAIL_BYTES = 64 << 10, 64
"""How much of a data file is looked at, at its beginning and at its end."""
_FIRST_ROW = re.compile(rb".*?\n?VALUES\s*\(.*?\)[,;]\r?\n", re.DOTALL)
_TWO_LINES = re.compile(rb"[^\n]*\n[^\n]*\n")
_SQL_KEY = re.compile(rb"VALUES\s*\('?(-?\d+)'?[,)]")
_OF_NUMBERS = frozenset("-0123456789")
_CSV_KEY = re.compile(rb"\"?(-?\d+)\"?(?:[^\d\w.]|\Z)")


def is_mydumpers(files: Iterable[Numbered]) -> bool:
    """Return whether mydumper has numbered one of the files."""
    return any(file.width < _DUMPLINGS_WIDTH for file, _ in files)


def refuse_numbers(name: TableName, files: Sequence[Numbered]) -> None:
    """Raise `ExportRefused` if the numbers of a table's files, in their order, are those of two exports, or lack one for certain.

    Format: dumpling-format, *Chunks, order*: within a chunk files are numbered from 0 on, while a chunk without rows has no file.
    """
    if len({file.width for file, _ in files}) > 1 or len({file.number for file, _ in files}) < len(files):
        raise ExportRefused(
            f"the numbers of {name}'s files, {files[0][1].path} and {files[-1][1].path} among them, have different lengths: files of "
            f"two exports lie in one folder, and its rows would be there twice; {AGAIN}"
        )
    if files[0][0].width != _CHUNKED_WIDTH:
        return
    for _, chunk in groupby(files, lambda each: each[0].number // _FILES):
        for expected, (file, stored) in enumerate(chunk):
            if file.number % _FILES != expected:
                lacking = _numbered(file.number - file.number % _FILES + expected, file)
                path = stored.path.replace(_numbered(file.number, file), lacking)
                raise ExportRefused(f"{path} is missing, but {stored.path} is there: copy the export again, or {AGAIN}")


def gaps_note(tables: Mapping[TableName, Sequence[Numbered]]) -> str:
    """Return a note if the numbers of Dumpling's files leave some out, which may be a loss; empty if they do not."""
    found = {name: number for name, files in tables.items() if (number := _first_gap(files))}
    if not found:
        return ""
    name = min(found)
    others = f" (and {len(found) - 1} more of its tables)" if len(found) > 1 else ""
    return (
        f"in the export the files of {name}{others} lack a number, {found[name]} first: after an export with --rows that is normal, since a chunk without "
        "rows has no file. After one with --filesize alone the file's rows are missing: `storage-consumer verify` with the source tells"
    )


def _first_gap(files: Sequence[Numbered]) -> str:
    # Thirteen digits are those of --rows, with which chunks may be missing.
    if not _DUMPLINGS_WIDTH <= files[0][0].width < _CHUNKED_WIDTH:
        return ""
    there = {file.number for file, _ in files}
    lacking = next((number for number in range(max(there)) if number not in there), None)
    return "" if lacking is None else f"{lacking:0{_DUMPLINGS_WIDTH}d}"


def _numbered(number: int, file: ExportFile) -> str:
    return f"{number:0{file.width}d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFiles:
    """Looks at the data files of an export, which all have one form."""

    storage: Storage
    file_format: Literal["sql", "csv"]
    compression: Compression

    def check(self, definition: TableDefinition, carried: Sequence[TableColumn], files: Sequence[Numbered]) -> None:
        """Raise `ExportRefused` if a table's files, in the order of their numbers, are cut or of two exports.

        `carried`: the columns of its rows, which lack the generated ones.
        """
        objects = [stored for _, stored in files]
        for stored in objects:
            self._check_end(stored)
        if not _begins_with_key(definition.columns, carried):
            return
        heads = ((stored, self.head(stored)) for stored in objects)
        first = tuple(islice(heads, 2))
        self._check_beginnings(definition.name, first)
        if len(files) > 1 and _is_in_order(definition) and not is_mydumpers(files):
            self._check_order(chain(first, heads))

    def _check_end(self, stored: StoredObject) -> None:
        """Refuse a file that ends inside a statement; what is compressed shows that when it is read."""
        if self.file_format != "sql" or self.compression:
            return
        start = max(stored.size - _TAIL_BYTES, 0)
        tail = b"".join(whole(self.storage.blocks(stored.path, _TAIL_BYTES, start), stored, start))
        if not tail.rstrip().endswith(b";"):
            raise ExportRefused(
                f"{stored.path} cannot be read: its last statement has no semicolon: it was cut; copy it again, or {AGAIN}"
            )

    def _check_beginnings(self, name: TableName, first: Sequence[Beginning]) -> None:
        """Refuse the first two files of a table whose rows begin with the primary key if they have the same first row."""
        rows = [self._first_row(head) for _, head in first]
        if len(rows) > 1 and rows[0] is not None and rows[0] == rows[1]:
            raise ExportRefused(
                f"{first[0][0].path} and {first[1][0].path} begin with the same row, although {name} has a primary key: files of "
                f"two exports lie in one folder; {AGAIN}"
            )

    def _first_row(self, head: bytes) -> bytes | None:
        """Return a data file up to the end of its first row, if that is a short one."""
        pattern = _FIRST_ROW if self.file_format == "sql" else _TWO_LINES
        found = pattern.match(head)
        return found[0] if found else None

    def _check_order(self, beginnings: Iterable[Beginning]) -> None:
        """Refuse files that begin with keys which do not grow."""
        before: tuple[int, StoredObject] | None = None
        for part, key in self._keys(beginnings):
            if before is not None and key <= before[0]:
                raise ExportRefused(
                    f"{part.path} begins with key {key}, not after the {before[0]} with which {before[1].path} begins: files of two exports lie "
                    f"in one folder, or this one was made with --order-by-primary-key=false, which looks the same; {AGAIN}, without that option"
                )
            before = key, part

    def _keys(self, beginnings: Iterable[Beginning]) -> Iterator[tuple[StoredObject, int]]:
        """Yield the first keys of the files in which they can be told."""
        for part, head in beginnings:
            if self.file_format == "sql":
                found = _SQL_KEY.search(head)
            else:
                # Behind the names of the columns, if the file has them.
                first, _, rest = head.partition(b"\n")
                found = _CSV_KEY.match(first) or _CSV_KEY.match(rest)
            if found is not None:
                yield part, int(found[1])

    def head(self, stored: StoredObject) -> bytes:
        """Return the first bytes of a data file; see `head_of`."""
        return head_of(self.storage, stored, self.compression)


def head_of(storage: Storage, stored: StoredObject, compression: Compression) -> bytes:
    """Return the first bytes of a data file, decompressed; raise `ExportRefused` if they are damaged."""
    head = b""
    try:
        for block in decompressed(storage.blocks(stored.path, _HEAD_BYTES), compression, stored.path):
            head += block
            if len(head) >= _HEAD_BYTES:
                break
    except UndecodableRow as fault:
        raise ExportRefused(str(fault)) from fault
    return head


def _begins_with_key(columns: Sequence[TableColumn], carried: Sequence[TableColumn]) -> bool:
    """Return whether the first values of a row are its primary key, and hold no ends of lines."""
    key = [column for column in columns if column.is_pk]
    # A text could hold what looks like the end of the row, and two rows be alike up to there.
    return bool(key) and list(carried[: len(key)]) == key and not any(c.type in TEXT_TYPES | BINARY_TYPES for c in key)


def _is_in_order(definition: TableDefinition) -> bool:
    """Return whether Dumpling gives a table's rows in the order of the first column, a whole number of which each is there once.

    It orders by a clustered primary key; by the hidden row id where there is none, and by partition where there are any.
    """
    keys = [column for column in definition.columns if column.is_pk]
    first = definition.columns[0] if definition.columns else None
    # A name that begins as a number does, at the beginning of a CSV file, could be a key.
    is_key = first is not None and keys == [first] and first.type in INTEGER_TYPES and first.name[:1] not in _OF_NUMBERS
    query = definition.query.upper()
    return is_key and "[CLUSTERED_INDEX] CLUSTERED" in query and "PARTITION BY" not in query


_FARTHEST_ZONE = 14 * 3600
_CLOCKS = 10 * 60
"""Seconds by which the source's clock may differ from the store's."""
_ZONES = 15 * 60
"""All zones differ from UTC by a multiple of this."""
_WRITING = 10
"""Seconds between the time in ``metadata`` and that of the file."""
_SLACK = 60


def refuse_other_runs(head: Metadata, listed: Sequence[StoredObject]) -> None:
    """Raise `ExportRefused` for files of an older run, `ExportUnfinished` for those of a newer one that has no ``metadata`` yet."""
    try:
        started, finished = map(_seconds, (head.started_at, head.finished_at))
    except ValueError:
        return
    end = next(stored.modified for stored in listed if stored.path == METADATA)
    snapshot = physical_ms(head.snapshot) / 1000
    first, last = max(started - _FARTHEST_ZONE, snapshot - _CLOCKS), float("inf")
    # Where `metadata` itself is too old, or has no time, the times mean something else, as in an archive that keeps none.
    if end < first:
        return
    began = end - (finished - started)
    off = (end - finished + _ZONES / 2) % _ZONES - _ZONES / 2
    if abs(off) <= _WRITING and abs(began - snapshot) <= _CLOCKS:
        first, last = max(first, began - _SLACK), end + _SLACK
    if older := [stored for stored in listed if 0 < stored.modified < first]:
        raise ExportRefused(
            f"{_named(older)}, before this export began, which is as of {_time(snapshot) if snapshot else head.started_at}: files of two exports "
            f"lie in one folder, and rows of the older one would be loaded too; {AGAIN}, or move all files away that are older"
        )
    if newer := [stored for stored in listed if stored.modified > last]:
        raise ExportUnfinished(
            f"{_named(newer)}, after {METADATA}, which is written last: another export into the same folder has begun since, or failed; wait "
            f"for it, or {AGAIN}. If you changed the file yourself, make {METADATA} younger again (`touch`)"
        )


def _seconds(local: str) -> float:
    return datetime.fromisoformat(local).replace(tzinfo=UTC).timestamp()


def _named(files: Sequence[StoredObject]) -> str:
    shown = min(files, key=lambda stored: stored.path)
    more = f" (and {len(files) - 1} more)" if len(files) > 1 else ""
    return f"{shown.path}{more} was written at {_time(shown.modified)}"


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
