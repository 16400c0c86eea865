"""Decode TiCDC's canal-json: a JSON object per row change, with or without commit-ts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from storage_consumer.decode.canal_message import (
    UNREADABLE,
    MessageShape,
    Texts,
    decode_any,
    shape_of,
)
from storage_consumer.decode.decoder import (
    MAX_ROW_BYTES,
    Batch,
    Decoder,
    FileRead,
    FilesBatch,
    RowChange,
    RowLayout,
    Tally,
    Values,
    undecodable,
)
from storage_consumer.decode.kernels.arrays import DELETE, INSERT, PARTIAL_DELETE, UPDATE
from storage_consumer.errors import UndecodableRow
from storage_consumer.model import TSO_PHYSICAL_SHIFT, CommitRange, TableName

if TYPE_CHECKING:
    from storage_consumer.decode.bulk import BulkForm

LINE_ENDS = (b"\r\n", b"\n")
"""Terminators that no JSON text holds."""
_NO_BRACE = rb'[^"{}]++|"(?>(?:[^"\\]++|\\.)*)"'
_MESSAGE = re.compile(rb"\{(?>(?:%b|\{(?>(?:%b)*)\})*)\}" % (_NO_BRACE, _NO_BRACE), re.DOTALL)
"""A JSON object whose members hold objects without further ones, as all TiCDC messages."""
_TRUNCATED = "truncated"
"""The word in msgspec's message for JSON that ends too early, and for no other fault."""


def _whole(pending: bytearray, terminator: bytes) -> list[bytes]:
    """Remove the complete rows from `pending` and return them."""
    rows = []
    start = 0
    # A closed message without terminator stays: its rest may come with the next block.
    while (found := _MESSAGE.match(pending, start)) and pending.startswith(terminator, found.end()):
        rows.append(found[0])
        start = found.end() + len(terminator)
    del pending[:start]
    return rows


def _is_none(pending: bytes | bytearray, terminator: bytes) -> bool:
    """Return whether `pending` cannot begin with a row, whatever follows."""
    found = _MESSAGE.match(pending)
    # Nothing is closed yet. Whether a message at least begins shows in the first byte.
    if found is None:
        return bytes(pending[:1]) not in (b"{", b"")
    # What follows the message has to be the terminator, or as much of it as there is.
    return not terminator.startswith(pending[found.end() : found.end() + len(terminator)])


def _no_row(terminator: bytes) -> str:
    text = terminator.decode("utf-8", "replace")
    return f"no canal-json message followed by the terminator {text!r}; is `[sink] terminator` the one given to TiCDC?"


def rows_of(lines: bytes) -> list[bytes]:
    """Return the rows in what `_MessageScan.lines` yields."""
    return lines[:-1].split(b"\n")


AT_ONCE_BYTES = 32 << 10
"""Least number of bytes that are read in bulk: reading fewer rows one by one is faster."""
_OPERATIONS = {"INSERT": INSERT, "UPDATE": UPDATE, "DELETE": DELETE}
_NO_COMMIT_TS = (
    "it has no _tidb.commitTs: set enable-tidb-extension=true in TiCDC's sink URI, or give "
    "--allow-missing-commit-ts, which promises less"
)
_NO_TIME = "it has neither _tidb.commitTs nor a time in es"
_LAST_LOGICAL = (1 << TSO_PHYSICAL_SHIFT) - 1


@dataclass(slots=True, kw_only=True)
class _MessageScan:
    """One file while it is read.

    JSON text holds no raw line end, so with CRLF and LF each LF ends a row. Any other terminator
    may also occur inside a text, or be empty: then a row ends at its closing brace.
    """

    blocks: Iterator[bytes]
    terminator: bytes
    shape: MessageShape
    """The form of the rows so far."""
    key: tuple[int, ...]
    """The columns that are read of old images, empty for all."""
    commit_range: CommitRange
    tally: Tally
    source: str
    lacks_commit_ts: bool
    """Whether rows may lack their commit-ts."""
    many: bool
    """Whether to yield rows in batches where possible."""
    read: int = 0
    """Number of bytes of the file read so far."""
    offset: int = 0
    """Byte at which the current row begins."""
    accepted: tuple[str, str] = ("", "")
    """Database and table of the rows so far, known to be the layout's."""
    number: int = 0
    """Number of the current row."""
    form: BulkForm | None = None
    """Form of the rows that are read in bulk."""

    def changes(self) -> Iterator[Any]:
        """Yield changes inside the commit range; raise `UndecodableRow` for a bad row."""
        if self.terminator in LINE_ENDS:
            for lines in self.lines():
                yield from self.changes_in(lines)
            return
        for rows in self.messages():
            # Rows with another terminator are joined by LF for bulk reading, unless one holds LF.
            lines = b"\n".join([*rows, b""])
            # Offsets in the file are counted with the real terminator's length (see `gap`).
            is_one_each = lines.count(b"\n") == len(rows) > 0
            yield from self.changes_in(lines) if is_one_each else self.changes_of(rows)

    @property
    def gap(self) -> int:
        """Bytes between the end of a row and the beginning of the next."""
        # A CR before the LF counts as part of the row, since JSON ignores it.
        return 1 if self.terminator in LINE_ENDS else len(self.terminator)

    def lines(self) -> Iterator[bytes]:
        """Yield rows in order, many in a piece, with their LF and CR, where LF ends rows.

        Raises `UndecodableRow` for bytes after the last complete row, and for a row that never
        ends.
        """
        rest: list[bytes] = []
        size = 0
        for block in self.blocks:
            self.read += len(block)
            # Only a block's last LF matters: whoever reads the rows before it finds their ends.
            if end := block.rfind(b"\n") + 1:
                whole = b"".join([*rest, memoryview(block)[:end]])
                # Free old pieces before reading rows, so that a long row is in memory only once.
                rest, size = [block[end:]], len(block) - end
                yield whole
                continue
            rest.append(block)
            size += len(block)
            if size > MAX_ROW_BYTES:
                raise self.bad_end(rest[0], f"the row is longer than {MAX_ROW_BYTES} bytes")
        if size:
            raise self.bad_end(
                b"".join(rest), "the file ends inside this row: no line end follows", torn=True
            )

    def messages(self) -> Iterator[list[bytes]]:
        """Yield the rows in order, as lists, for any terminator. Raises as `lines` does."""
        pending = bytearray()
        enough = 0
        for block in self.blocks:
            pending += block
            self.read += len(block)
            # Each attempt starts over, so attempts must become rarer as a row grows.
            if len(pending) >= enough:
                yield _whole(pending, self.terminator)
                # a long row is scanned again only when twice as much is there
                enough = 2 * len(pending)
                if _is_none(pending, self.terminator):
                    raise self.bad_end(bytes(pending[:1000]), _no_row(self.terminator))
            if len(pending) > MAX_ROW_BYTES:
                raise self.bad_end(
                    bytes(pending[:1000]), f"the row is longer than {MAX_ROW_BYTES} bytes"
                )
        yield _whole(pending, self.terminator)
        if pending:
            raise self._unended(bytes(pending))

    def _unended(self, pending: bytes) -> UndecodableRow:
        """Return the error for a file whose last bytes are not a complete row."""
        reason = "the file ends inside this row: no complete terminator follows"
        if _is_none(pending, self.terminator):
            return self.bad_end(pending, _no_row(self.terminator))
        # The message is whole, and its terminator is cut short.
        if _MESSAGE.match(pending):
            return self.bad_end(pending, reason, torn=True)
        # Raw skips the values: all that counts is whether the JSON ends too early.
        try:
            msgspec.json.decode(pending, type=msgspec.Raw)
        except (msgspec.MsgspecError, RecursionError) as error:
            return self.bad_end(pending, reason, torn=_TRUNCATED in str(error))
        return self.bad_end(pending, _no_row(self.terminator))

    def bad_end(self, start: bytes, reason: str, *, torn: bool = False) -> UndecodableRow:
        """Return the error for bytes after the last row; `torn`: the file may be incomplete."""
        self.number = self.tally.rows = self.tally.rows + 1
        return self.error(start, reason, torn=torn)

    def changes_in(self, lines: bytes) -> Iterator[RowChange | Batch]:
        """Yield changes inside the commit range: ordinary rows as a batch, others one by one."""
        first, start, gap = self.tally.rows + 1, self.offset, self.gap
        found = self.found(lines) if self.many and len(lines) >= AT_ONCE_BYTES else None
        if found is None:
            yield from self.changes_of(rows_of(lines))
            return
        batch, others = found
        # Ordinary rows come before the others of the same bytes: order is restored later, by
        # commit-ts and row number.
        if len(batch.numbers):
            yield batch
        for begin, line in others:
            # `begin` counts one byte of terminator per line, the file has `gap` bytes.
            self.number, self.offset = first + line, start + begin + line * (gap - 1)
            if change := self.change_inside(lines[begin : lines.index(b"\n", begin)]):
                yield change
        self.offset = start + len(lines) + (self.tally.rows + 1 - first) * (gap - 1)

    def found(self, lines: bytes) -> tuple[Batch, list[tuple[int, int]]] | None:
        """Return what `read_messages` does; None too if the first row is not an ordinary one."""
        from storage_consumer.decode.bulk import message_form, read_messages  # noqa: PLC0415 - late, see `jit`

        # Tried again until the first row of some bytes is an ordinary one.
        if self.form is None:
            first = lines[: lines.index(b"\n")]
            if self.shape.layout.may_lack:
                self.adopt(self.decoded(first))
            self.form = message_form(self.shape, first)
        return read_messages(self.form, lines, self.commit_range, self.tally) if self.form else None

    def changes_of(self, rows: list[bytes]) -> Iterator[RowChange]:
        """Yield the changes of these rows inside the commit range."""
        gap = self.gap
        for row in rows:
            self.number = self.tally.rows = self.tally.rows + 1
            if change := self.change_inside(row):
                yield change
            self.offset += len(row) + gap

    def change_inside(self, row: bytes) -> RowChange | None:
        """Return the change of a row; None for a row outside the commit range, which is counted."""
        message, tally, high = self.decoded(row), self.tally, self.commit_range.high
        ts = latest = 0 if message.tidb is None else message.tidb.commit_ts
        if ts <= 0:
            # The row is later if its lowest commit-ts is, a duplicate only if its highest one is.
            ts, latest = self.times(message, row)
        tally.max_ts = max(tally.max_ts, ts)
        # Values wait until the row is known to count: it may be of another table version.
        if ts > high:
            tally.later += 1
            tally.next_ts = min(ts, tally.next_ts or ts)
        elif latest <= self.commit_range.low:
            tally.duplicates += 1
            tally.repeated_ts = max(ts, tally.repeated_ts)
        else:
            return self.change(message, ts, row)
        return None

    def decoded(self, row: bytes) -> Any:
        """Return the message of a row."""
        try:
            return self.shape.decode(row)
        # Rare rows pay for a second attempt, so that usual ones are decoded without dictionaries.
        except UNREADABLE:
            return self.unshaped(row)

    def unshaped(self, row: bytes) -> Any:
        """Return a message without all columns: of another version, or a delete by key."""
        try:
            return decode_any(row)
        except UNREADABLE as error:
            raise self.error(row, f"it is not a readable canal-json row change: {error}") from error

    def times(self, message: Any, row: bytes) -> tuple[int, int]:
        """Return the lowest and highest (both inclusive) commit-ts of a message without one."""
        if not self.lacks_commit_ts:
            raise self.error(row, _NO_COMMIT_TS)
        if not 0 < message.es < 1 << 64 - TSO_PHYSICAL_SHIFT:
            raise self.error(row, _NO_TIME)
        earliest = message.es << TSO_PHYSICAL_SHIFT
        return earliest, earliest + _LAST_LOGICAL

    def change(self, message: Any, ts: int, row: bytes) -> RowChange:
        """Return the change of a message inside the commit range."""
        operation = _OPERATIONS.get(message.type)
        if operation is None or message.is_ddl:
            raise self.error(
                row, f"the type {message.type!r} (isDdl {message.is_ddl}) is not a row change", ts
            )
        # One comparison for each row; names are folded only if unlike the previous row's.
        if (message.database, message.table) != self.accepted:
            self.check_names(message, ts, row)
        if isinstance(message.data[0], dict) and self.shape.layout.may_lack and self.adopt(message):
            message = self.decoded(row)
        try:
            data = self.shape.texts(message.data[0])
            if isinstance(data, list) and UNSET in data:
                return self.number, ts, *self.partial(operation, data), None
            values = self.shape.values(data)
            # Old values matter for updates only: a delete has the old row in its data.
            if operation != UPDATE or message.old is None:
                return self.number, ts, operation, values, None
            return (
                self.number,
                ts,
                operation,
                values,
                self.shape.values(self.former(message.old[0], data, row)),
            )
        except ValueError as error:
            raise self.error(row, str(error), ts) from error

    def adopt(self, message: Any) -> bool:
        """Take the shape of a message with other columns; return whether it is another one."""
        image, before = message.data[0], self.shape
        if isinstance(image, dict):
            self.shape = before.fitting(image, self.key, is_delete=message.type == "DELETE")
        if self.shape is not before:
            self.form = None
        return self.shape is not before

    def former(self, old: Any, data: Texts, row: bytes) -> Texts:
        """Return the old image's texts; an update that moves its row deletes all that it was."""
        found = self.shape.former(old, data)
        if isinstance(old, dict) or all(found[place] == data[place] for place in self.shape.key):
            return found
        # Rare rows pay for a second attempt, so that of usual ones only the key is compared.
        return self.shape.whole(self.unshaped(row).old[0], data)

    def partial(self, operation: int, data: Texts) -> tuple[int, Values]:
        """Return operation and values of an image without all columns: an optional delete."""
        if operation != DELETE:
            raise ValueError(self.shape.lacking(data))
        return PARTIAL_DELETE, self.shape.values([None if text is UNSET else text for text in data])

    def check_names(self, message: Any, ts: int, row: bytes) -> None:
        """Remember the message's names; raise `UndecodableRow` unless they fold to the layout's."""
        table = self.shape.layout.table
        found = (message.database, message.table)
        if TableName(schema=message.database, table=message.table).folded() != table.folded():
            raise self.error(
                row,
                f"the row belongs to {'.'.join(found)}, but lies among the files of {table}",
                ts,
            )
        self.accepted = found

    def error(
        self, row: bytes, reason: str, commit_ts: int | None = None, *, torn: bool | None = None
    ) -> UndecodableRow:
        """Return the current `row`'s error; `torn`: whether it ends the file, None to find out."""
        last = torn
        if last is None:
            # `read` runs ahead of the rows by what is left of a block, so equality means that the
            # block is used up too.
            last = self.offset + len(row) + self.gap == self.read and not any(self.blocks)
        place, start = (self.source, self.number, self.offset), row[:400].decode("utf-8", "replace")
        return undecodable(place, start, reason, at_end=last, commit_ts=commit_ts)


class CanalJsonDecoder(Decoder):
    """Decodes canal-json files.

    A row's values are taken by name, so their order in the message does not matter. A row's own
    commit-ts is trusted. For a row without one, `allow_missing_commit_ts` falls back on the
    millisecond in ``es``: the row counts as committed at the lowest commit-ts of that millisecond,
    and as repeated only if the whole millisecond was applied.
    """

    def __init__(self, terminator: str = "\r\n", *, allow_missing_commit_ts: bool = False) -> None:
        """Initialize for TiCDC's ``[sink] terminator``: any text, or none."""
        self.terminator = terminator
        self.allow_missing_commit_ts = allow_missing_commit_ts

    def together(
        self,
        contents: Sequence[bytes],
        layout: RowLayout,
        commit_range: CommitRange,
        key: Sequence[int],
    ) -> FilesBatch | None:
        """See `Decoder`."""
        from storage_consumer.decode.bulk import read_messages_together  # noqa: PLC0415 - late, see `jit`

        if self.terminator.encode() not in LINE_ENDS:
            return None
        return read_messages_together(shape_of(layout, tuple(key)), contents, commit_range)

    def scan(self, file: FileRead, *, many: bool) -> Iterator[Any]:
        """See `Decoder`."""
        # The columns that are read of old images, none for all.
        key = file.key if many else ()
        return _MessageScan(
            blocks=iter(file.blocks),
            terminator=self.terminator.encode(),
            shape=shape_of(file.layout, key),
            key=key,
            commit_range=file.commit_range,
            tally=file.tally,
            source=file.source,
            lacks_commit_ts=self.allow_missing_commit_ts,
            many=many,
        ).changes()
