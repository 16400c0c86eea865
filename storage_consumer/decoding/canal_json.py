"""TiCDC's canal-json: one JSON object per row change and line, with the TiDB extension's commit ts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter

import msgspec

from storage_consumer.decoding.decoder import DELETE, INSERT, UPDATE, RowChange, RowLayout, Tally, Values
from storage_consumer.decoding.faults import MAX_ROW_BYTES, RowPlace
from storage_consumer.decoding.layout import is_hidden
from storage_consumer.decoding.values import Converter, converter, grammar
from storage_consumer.errors import ConfigError, UndecodableRow
from storage_consumer.model import Window

_OPERATIONS = {"INSERT": INSERT, "UPDATE": UPDATE, "DELETE": DELETE}
_NO_COMMIT_TS = "it has no _tidb.commitTs: TiCDC must write with enable-tidb-extension=true in its sink URI"
_Image = dict[str, str | None]


class _Extension(msgspec.Struct, rename="camel", gc=False):
    commit_ts: int = 0


class _Message(msgspec.Struct, rename="camel", gc=False):
    """What is read of a message; every other field is passed over."""

    type: str
    database: str
    table: str
    data: tuple[_Image]
    old: tuple[_Image] | None = None
    is_ddl: bool = False
    tidb: _Extension | None = msgspec.field(name="_tidb", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """A layout, prepared for many rows."""

    layout: RowLayout
    names: tuple[str, ...]
    pick: Callable[[_Image], Values]
    """The values in layout order; KeyError for a missing column."""
    checks: tuple[tuple[int, Callable[[str], object]], ...]
    """Full matches of the columns whose texts have a grammar."""
    conversions: tuple[tuple[int, Converter], ...]

    def values(self, image: _Image) -> Values:
        """The wire texts of a full row image. Raises ValueError, naming the column, when image and layout disagree."""
        if len(image) != len(self.names):
            image = self._without_hidden(image)
        try:
            picked = self.pick(image)
        except KeyError as error:
            raise ValueError(self._mismatch(image)) from error
        for index, matches in self.checks:
            text = picked[index]
            if text is not None and not matches(text):
                column = self.layout.columns[index]
                raise ValueError(f"column {column.name} ({column.type}): {text[:40]!r} is not the form of such a value")
        return self._converted(picked) if self.conversions else picked

    def old_values(self, data: _Image, old: _Image) -> Values:
        """The wire texts before an update; what a partial `old` leaves out was not changed."""
        return self.values(old if len(old) == len(self.names) else {**data, **old})

    def _converted(self, picked: Values) -> Values:
        values = list(picked)
        index = 0
        try:
            for index, convert in self.conversions:
                text = values[index]
                if text is not None:
                    values[index] = convert(text)
        except ValueError as error:
            raise ValueError(f"column {self.names[index]}: {error}") from error
        return tuple(values)

    def _without_hidden(self, image: _Image) -> _Image:
        known = {name: value for name, value in image.items() if not is_hidden(name)}
        if len(known) != len(self.names):
            raise ValueError(self._mismatch(known))
        return known

    def _mismatch(self, image: _Image) -> str:
        missing = [name for name in self.names if name not in image]
        extra = [name for name in image if name not in self.names]
        found = [
            f"{what} {', '.join(names)}"
            for what, names in (("lacks the column", missing), ("has the unknown column", extra))
            if names
        ]
        return (
            f"the row {' and '.join(found)}; {self.layout.table} should have {', '.join(self.names)}. Reasons may be a column "
            "that is a virtual generated one on one side only, a column selector, or TiCDC's "
            "delete-only-output-handle-key-columns"
        )


def _picker(names: tuple[str, ...]) -> Callable[[_Image], Values]:
    if len(names) > 1:
        return itemgetter(*names)
    return lambda image: tuple(image[name] for name in names)


@lru_cache(maxsize=1024)
def _shape(layout: RowLayout) -> _Shape:
    columns = layout.columns
    names = tuple(column.name for column in columns)
    grammars = ((index, grammar(column, "canal-json")) for index, column in enumerate(columns))
    conversions = ((index, converter(column, "canal-json")) for index, column in enumerate(columns))
    return _Shape(
        layout=layout,
        names=names,
        pick=_picker(names),
        checks=tuple((index, re.compile(form).fullmatch) for index, form in grammars if form),
        conversions=tuple((index, convert) for index, convert in conversions if convert is not None),
    )


@dataclass(slots=True, kw_only=True)
class _Scan:
    """One file being read."""

    blocks: Iterator[bytes]
    shape: _Shape
    window: Window
    tally: Tally
    source: str
    offset: int = 0
    """Byte at which the current row begins."""
    accepted: tuple[str, str] = ("", "")
    """The database and table that rows had so far, known to be the layout's."""
    rest: list[bytes] = field(default_factory=list)
    """The beginning of a row whose end has not been read."""
    following: int = 0
    """Bytes at hand behind the current row, counted from the beginning of its block."""

    def changes(self) -> Iterator[RowChange]:
        """The changes inside the window. Raises `UndecodableRow`."""
        decode = msgspec.json.Decoder(_Message).decode
        tally, low, high = self.tally, self.window.low, self.window.high
        for line in self.lines():
            tally.rows += 1
            try:
                message = decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise self.error(line, f"no canal-json row change that can be read: {error}") from error
            ts = 0 if message.tidb is None else message.tidb.commit_ts
            if ts <= 0:
                raise self.error(line, _NO_COMMIT_TS)
            tally.max_ts = max(ts, tally.max_ts)
            if low < ts <= high:
                yield self.change(message, ts, line)
            elif ts > high:
                tally.later += 1
                tally.next_ts = min(ts, tally.next_ts or ts)
            else:
                tally.duplicates += 1
            self.offset += len(line) + 1

    def lines(self) -> Iterator[bytes]:
        """The lines without their LF. Raises `UndecodableRow` for what stands behind the last LF, or never ends."""
        held = 0
        for block in self.blocks:
            self.rest.append(block)
            held += len(block)
            if b"\n" in block:
                lines = b"".join(self.rest).split(b"\n")
                self.rest = [lines.pop()]
                self.following = self.offset + held
                held = len(self.rest[0])
                yield from lines
            elif held > MAX_ROW_BYTES:
                self.tally.rows += 1
                raise self.error(self.rest[0], f"the row is longer than {MAX_ROW_BYTES} bytes", torn=False)
        if held:
            self.tally.rows += 1
            raise self.error(b"".join(self.rest), "the file ends inside this row: no line end follows", torn=True)

    def change(self, message: _Message, ts: int, line: bytes) -> RowChange:
        """The change of one message inside the window."""
        operation = _OPERATIONS.get(message.type)
        if operation is None or message.is_ddl:
            raise self.error(line, f"the type {message.type!r} (isDdl {message.is_ddl}) is no row change", ts)
        if (message.database, message.table) != self.accepted:
            self.check_names(message, ts, line)
        data, old = message.data[0], None
        try:
            values = self.shape.values(data)
            if operation == UPDATE and message.old is not None:
                old = self.shape.old_values(data, message.old[0])
        except ValueError as error:
            raise self.error(line, str(error), ts) from error
        return self.tally.rows, ts, operation, values, old

    def check_names(self, message: _Message, ts: int, line: bytes) -> None:
        """Remember the message's names if they are the layout's, without case; raise `UndecodableRow` if not."""
        table = self.shape.layout.table
        found = (message.database, message.table)
        if tuple(name.casefold() for name in found) != (table.schema.casefold(), table.table.casefold()):
            raise self.error(line, f"the row belongs to {'.'.join(found)}, but lies among the files of {table}", ts)
        self.accepted = found

    def error(
        self, line: bytes, reason: str, commit_ts: int | None = None, *, torn: bool | None = None
    ) -> UndecodableRow:
        """The error for the current row, which is `line`; `torn` says whether it ends the file, None: find out."""
        place = RowPlace(
            source=self.source,
            number=self.tally.rows,
            offset=self.offset,
            start=line[:400].decode("utf-8", "replace"),
            commit_ts=commit_ts,
        )
        return place.error(reason, at_end=self.is_last(line) if torn is None else torn)

    def is_last(self, line: bytes) -> bool:
        """Whether nothing follows the current row."""
        return self.offset + len(line) + 1 == self.following and not any(self.blocks)


class CanalJsonDecoder:
    """Decodes canal-json files.

    The terminator must be CRLF (TiCDC's default) or LF: TiCDC's JSON has no raw line end inside. A row's values are
    taken by name, so their order in the message does not matter.
    """

    def __init__(self, terminator: str = "\r\n") -> None:
        """Raises `ConfigError` for a terminator that is neither CRLF nor LF."""
        if terminator not in ("\r\n", "\n"):
            raise ConfigError(
                f"canal-json with terminator = {terminator!r} cannot be read; use CRLF (the default) or LF"
            )
        self.terminator = terminator

    def rows(
        self, blocks: Iterable[bytes], layout: RowLayout, window: Window, tally: Tally, source: str
    ) -> Iterator[RowChange]:
        """See `Decoder.rows`."""
        scan = _Scan(blocks=iter(blocks), shape=_shape(layout), window=window, tally=tally, source=source)
        return scan.changes()
