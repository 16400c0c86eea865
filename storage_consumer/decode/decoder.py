"""The interface of decoding: a data file's bytes in, row changes out; and the columns of rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from storage_consumer.config.settings import Protocol as Source
from storage_consumer.config.settings import Upstream
from storage_consumer.config.table_filter import skipped_in, unselected, vouching
from storage_consumer.decode.kernels.arrays import (
    Flags,
    Offsets,
    Operations,
    Packed,
    Places,
    Stamps,
)
from storage_consumer.decode.kernels.row_lines import Lines
from storage_consumer.decode.values import (
    UTC,
    BinaryEncoding,
    Converter,
    Spelling,
    converted_zone,
    converter,
    is_known,
    session_zone,
    to_session,
)
from storage_consumer.errors import NotReplicable, UndecodableRow
from storage_consumer.model import CommitRange, TableColumn, TableDefinition, TableName, folded_name

MOST_TS = 2**63 - 1
"""The highest commit-ts of rows that are read in bulk, where it is a signed integer."""

MAX_ROW_BYTES = 256 << 20
"""Longer rows are refused. TiDB's limit of 120 MiB for a row becomes 160 MiB in base64."""
_EXCERPT_CHARACTERS = 80

Values = tuple[str | None, ...]
"""One value per column of the `RowLayout`, as wire text (see `decode.values`); None is SQL NULL."""


class _Absent(str):
    __slots__ = ()


ABSENT: str = _Absent("\\D")
"""Stands for a value that a row lacks, left out by a column selector; compare by identity."""

SELECTED = (
    "a column selector: then give the changefeed's file, which has its [[sink.column-selectors]], with --config (one that leaves out a "
    "column of a key cannot be followed: change it, and load the table anew)"
)
"""A reason for a row that lacks a column, and the way on."""

RowChange = tuple[int, int, int, Values, Values | None]
"""(row number in the file from 1, commit-ts, operation, values, old values).

`values` is the new image of an INSERT or UPDATE and the old image of a DELETE. Old values exist
only for an UPDATE whose file has them. It is a plain tuple, since millions are created. If the file
lacks the row's commit-ts, it is the lowest one that the row may have.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLayout:
    """The columns, in order, of the rows in one version directory."""

    table: TableName
    columns: tuple[TableColumn, ...]
    """Without hidden and virtual generated columns, with stored ones and those a row may lack."""
    unselected: frozenset[str] = frozenset()
    """Folded names of columns outside the column selectors, which TiCDC may have obeyed or not."""
    may_lack: frozenset[str] = frozenset()
    """Folded names of columns that a row may lack if its file says so: selectors may have changed.
    """
    vouching: str = ""
    """What the operator must give before nameless rows are read by `unselected`; "": given."""
    listed: tuple[str, ...] = ()
    """Names of all columns of the schema file, in order; a CSV header may name absent ones too."""
    zone: str = ""
    """Zone whose TIMESTAMP texts become `session`'s during decoding; empty: they stay."""
    session: str = UTC
    """Zone of the target's session, as an offset."""
    spelled: tuple[Spelling | None, ...] = ()
    """Per column, the spelling of its texts in decoding (see `rows.fitting`); empty: all stay."""
    telling: frozenset[int] = frozenset()
    """Indexes of columns that tell rows apart: an ambiguous TIMESTAMP of `zone` is an error there.
    """

    @property
    def places(self) -> dict[str, int]:
        """The index of each column, by folded name."""
        return {folded_name(column.name): place for place, column in enumerate(self.columns)}

    def spelling(self, place: int) -> Spelling | None:
        """Return the spelling for this column's texts; None: they stay as they are."""
        return self.spelled[place] if self.spelled else None

    def converter(
        self, place: int, protocol: Source, encoding: BinaryEncoding = "base64"
    ) -> Converter | None:
        """Return `values.converter` of the column at this index."""
        column, moved = self.columns[place], None
        if self.zone and column.type == "TIMESTAMP":
            moved = to_session(self.zone, self.session, tells_rows=place in self.telling)
        return converter(
            column, protocol, binary_encoding=encoding, moved=moved, spelling=self.spelling(place)
        )


def undecodable(
    place: tuple[str, int, int],
    start: str,
    reason: str,
    *,
    at_end: bool,
    commit_ts: int | None = None,
) -> UndecodableRow:
    """Return the error to raise for a row.

    `place`: its file's path, its number from 1, and the byte at which it begins, from 0. `start`:
    its text, or as much of its beginning as is available. `at_end`: nothing follows it in its file.
    """
    source, number, offset = place
    known = "" if commit_ts is None else f", commit ts {commit_ts}"
    return UndecodableRow(
        f"{source}: row {number} at byte {offset}{known}: {reason}; the row begins {start[:_EXCERPT_CHARACTERS]!r}",
        at_end=at_end,
        commit_ts=commit_ts,
    )


@dataclass(slots=True)
class Tally:
    """Counts for one file, filled while its rows are decoded."""

    rows: int = 0
    """Rows read, whatever became of them."""
    duplicates: int = 0
    """Rows with commit-ts <= the commit range's low border: applied before."""
    repeated_ts: int = 0
    """Highest commit-ts of these, 0 if there is none."""
    later: int = 0
    """Rows with commit-ts > the commit range's high border: kept for a later round."""
    max_ts: int = 0
    """Highest commit-ts in the file."""
    next_ts: int = 0
    """Lowest commit-ts above the commit range, 0 if there is none."""
    taken: int = 0
    """Changes that were buffered; decoders leave it alone."""
    skipped: dict[int, int] = field(default_factory=dict)
    """Commit-ts → rows inside the commit range that are left out."""

    @property
    def inside(self) -> int:
        """Rows inside the commit range, where each is a change of its own."""
        return self.rows - self.duplicates - self.later

    def add(self, ts: Offsets, inside: Flags, later: Flags) -> None:
        """Count many rows, except in `rows`; `inside` and `later`: see `apart`."""
        if not len(ts):
            return
        # Each row is exactly one of three: inside, later, or a duplicate.
        beyond = int(later.sum())
        self.max_ts = max(self.max_ts, int(ts.max()))
        if repeated := len(ts) - int(inside.sum()) - beyond:
            self.duplicates += repeated
            self.repeated_ts = max(self.repeated_ts, int(ts[~(inside | later)].max()))
        if beyond:
            self.later += beyond
            self.next_ts = min(int(ts[later].min()), self.next_ts or MOST_TS)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FileRead:
    """One file, and what is wanted of it."""

    blocks: Iterable[bytes]
    """Its content; it is read once."""
    source: str
    """The file's path, for messages."""
    layout: RowLayout
    commit_range: CommitRange
    """Changes with ``low < commit-ts <= high`` are wanted; other rows are only counted."""
    key: tuple[int, ...] = ()
    """The indexes of the key's columns in the layout; empty if the table has no key."""
    tally: Tally = field(default_factory=Tally)
    """Filled while the file is read. Rows are numbered from `Tally.rows` + 1 on."""
    clock: int = 0
    """For rows without commit-ts: each gets this plus its number."""


def apart(ts: Offsets, commit_range: CommitRange) -> tuple[Flags, Flags]:
    """Return which rows with these commit-ts are inside the commit range, and which are later."""
    # The range's borders may exceed int64, the type of the array.
    later = ts > min(commit_range.high, MOST_TS)
    return (ts > min(commit_range.low, MOST_TS)) & ~later, later


class Batch(Protocol):
    """Row changes inside the commit range, in bulk, not as values.

    Every column has one entry per change.

    It holds inserts, full deletes, and updates that change no key or, in a table without a key,
    have no old image. Any other update is a delete of its old row, followed immediately by an
    insert of its new row with the same number.
    """

    numbers: Offsets
    """Row numbers in the file."""
    ts: Stamps
    """Commit-ts of each change."""
    operations: Operations
    """INSERT, UPDATE or DELETE for each change."""

    def integers(self, place: int) -> Offsets | None:
        """Return this column's values; None unless all are integers that such an array holds."""
        ...

    def texts(self, place: int, chosen: Places) -> list[str | None]:
        """Return wire texts of this column for the changes at the `chosen` indexes."""
        ...

    def packed(self, place: int, chosen: Places) -> Packed | None:
        """Return `texts` as bytes, joined; None where values have to be read one by one."""
        ...

    def lines(self, written: Sequence[int], chosen: Places) -> Lines:
        """Return these columns as `wire_format.LineEncoder`'s lines for `chosen` changes."""
        ...


class FilesBatch(NamedTuple):
    """The changes of several files, in file order."""

    batch: Batch
    """The batch; its row numbers count from 1 in each file."""
    files: Offsets
    """For each change, the index of its file, from 0."""
    tallies: list[Tally]
    """One for each file."""


class Decoder(ABC):
    """A decoder of one protocol."""

    skips: tuple[tuple[str, int], ...] = ()
    """See `Upstream.skip_commit_ts`."""

    @abstractmethod
    def scan(self, file: FileRead, *, many: bool) -> Iterator[Any]:
        """Yield `changes`, or `rows` if not `many`."""

    def changes(self, file: FileRead) -> Iterator[RowChange | Batch]:
        """Yield `rows` in any order, in batches where rows have the layout's usual form.

        An update whose file shows that it changes a column of the key comes by itself, or as a
        delete and an insert (see `Batch`); without a key this holds for every update with an old
        image. In old images of all other updates only the key has to be read.
        """
        return self.scan(file, many=True) if not self._skipped(file) else self.rows(file)

    def rows(self, file: FileRead) -> Iterator[RowChange]:
        """Yield changes inside the commit range, in file order, with all columns of old images.

        The key does not matter.

        Rows outside the commit range are only counted, before their columns are decoded. Raises
        `UndecodableRow` with file, row number, byte offset, excerpt and (if known) commit-ts.
        """
        rows, skipped = self.scan(file, many=False), self._skipped(file)
        return _others(rows, skipped, file.tally.skipped) if skipped else rows

    def _skipped(self, file: FileRead) -> frozenset[int]:
        return skipped_in(self.skips, file.layout.table, file.commit_range)

    def together(
        self,
        contents: Sequence[bytes],  # noqa: ARG002 - of a decoder that can
        layout: RowLayout,  # noqa: ARG002
        commit_range: CommitRange,  # noqa: ARG002
        key: Sequence[int],  # noqa: ARG002
    ) -> FilesBatch | None:
        """Return in bulk what `changes` yields for each of these files.

        Returns None if one of them has to be read by itself: some row does not have the form that
        is usual for the layout, or something in a file holds for all of its rows.
        """
        return None


def _others(
    rows: Iterable[RowChange], skipped: frozenset[int], counts: dict[int, int]
) -> Iterator[RowChange]:
    """Yield the rows of other transactions, and count those of the skipped ones."""
    for row in rows:
        if (ts := row[1]) in skipped:
            counts[ts] = counts.get(ts, 0) + 1
        else:
            yield row


_HIDDEN_PREFIX = "_v$_"
_SOFT_DELETES = frozenset(
    (("_tidb_origin_ts", "BIGINT", True), ("_tidb_softdelete_time", "TIMESTAMP", False))
)
"""Name, type, and whether that is unsigned: a column of another type is an application's own."""


def is_hidden(name: str) -> bool:
    """Return whether TiDB made the column for an expression index: it is in no rows."""
    return folded_name(name).startswith(_HIDDEN_PREFIX)


def hidden_columns(columns: Iterable[TableColumn]) -> tuple[str, ...]:
    """Return columns that rows have and queries do not, by which TiDB hides deleted rows."""
    named = ((folded_name(column.name), column) for column in columns)
    return tuple(
        name for name, column in named if (name, column.type, column.unsigned) in _SOFT_DELETES
    )


def row_layout(
    definition: TableDefinition, virtual: frozenset[str], upstream: Upstream
) -> RowLayout:
    """Return the columns of the definition's rows, in order.

    `virtual`: the folded names of the virtual generated columns as the target reports them. Schema
    files do not mark them, and rows never have them. Raises `NotReplicable`, before any row is
    read, if a column's type has no rule, or if it is TIMESTAMP and no time zone for its values is
    configured. A column that the changefeed's selectors leave out is no reason for that; without a
    rule for its values no row may have it.
    """
    real = [
        c
        for c in definition.columns
        if not is_hidden(c.name) and folded_name(c.name) not in virtual
    ]
    names = [column.name for column in real]
    table = (definition.name.schema, definition.name.table)
    lacking = unselected(upstream.column_selectors, table, names, case=upstream.case_sensitive)
    zoned = upstream.time_zone != ""
    columns = tuple(
        c
        for c in real
        if c.name not in lacking or (is_known(c) and (zoned or c.type != "TIMESTAMP"))
    )
    for column in columns:
        if not is_known(column):
            raise NotReplicable(
                f"{definition.name}: column {column.name} has the type {column.type} ({definition.path}), whose values "
                "this program cannot replicate; leave the table out of the changefeed, or give the column another type "
                "at the source"
            )
        if column.type == "TIMESTAMP" and not upstream.time_zone:
            raise NotReplicable(
                f"{definition.name}: column {column.name} is a TIMESTAMP ({definition.path}), whose values TiCDC writes "
                "in the time zone of its servers, which the files do not contain: give it with --tz, for example --tz "
                "UTC or --tz Asia/Shanghai",
                ways=(("with the time zone of the TiCDC servers as ZONE", "run --tz ZONE"),),
            )
    zone, session = zones(upstream)
    has_key = frozenset(folded_name(column.name) for column in columns if column.is_pk)
    return RowLayout(
        table=definition.name,
        columns=columns,
        unselected=frozenset(folded_name(name) for name in lacking),
        # Earlier or later selectors may have left out others, as TiCDC's own check has it: never a
        # part of the key.
        may_lack=frozenset(folded_name(name) for name in names) - has_key
        if lacking
        else frozenset(),
        vouching=vouching(upstream) if lacking else "",
        listed=tuple(column.name for column in definition.columns),
        zone=zone,
        session=session,
    )


def zones(upstream: Upstream) -> tuple[str, str]:
    """Return `RowLayout.zone` and `session`: the session's is the bucket's, not the export's."""
    if upstream.protocol not in ("dump-sql", "dump-csv"):
        return converted_zone(upstream.time_zone), UTC
    session = session_zone(upstream.dump.bucket_time_zone)
    is_same = session_zone(upstream.time_zone) == session and not converted_zone(upstream.time_zone)
    return ("" if is_same else upstream.time_zone), session
