"""What a task needs to know about a table: its rows' layouts, its target columns, its key. Frozen, picklable, no secret.

`table_work` decides, in one place, how a table's rows are told apart and how they may be written; what does not fit is an
error of that table, never a guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from storage_consumer.checkpoint import row_floor
from storage_consumer.config.settings import Downstream, Protocol, Upstream
from storage_consumer.decoding.decoder import RowLayout
from storage_consumer.decoding.layout import row_layout
from storage_consumer.decoding.values import WireKind, wire_kind
from storage_consumer.errors import NotReplicable
from storage_consumer.limits import Limit
from storage_consumer.model import DataFile, TableColumn, TableDefinition, TableName, VersionKey, Window
from storage_consumer.planning.steps import RowStep


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

    @property
    def virtual(self) -> frozenset[str]:
        """Casefolded names of the virtual generated columns."""
        return frozenset(c.name.casefold() for c in self.columns if c.generated == "VIRTUAL")


class Mode(Enum):
    """How a table's changes are ordered and written."""

    KEYED = "keyed"
    """Only the last state of each key counts; deletes of a bucket first, then upserts in any order."""
    ORDERED = "ordered"
    """The target may find keys equal that differ in text: all changes of a bucket in sequence."""
    KEYLESS = "keyless"
    """No key: every event counts, in sequence, in one bucket, committed with its position."""


class Fold(Enum):
    """When two texts of a key column are the same key."""

    EXACT = "exact"
    PAD = "pad"
    """After trailing spaces are taken off."""
    NUMBER = "number"
    """As floating point numbers."""
    LOOSE = "loose"
    """By a collation that we do not imitate: only a coarse image of the text tells keys surely apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WireColumn:
    """A target column that rows are written to or compared by."""

    name: str
    kind: WireKind
    type: str
    """Upper-case type name of the schema file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPart:
    """One column of the key."""

    column: WireColumn
    fold: Fold
    prefix: int | None = None
    """Only so many leading characters (bytes for binary types) count; None = all."""
    beyond_bmp: bool = True
    """For LOOSE: the collation tells characters beyond U+FFFF from one another; older ones find all of them equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionWork:
    """One version directory of a table."""

    layout: RowLayout
    low: int
    """Rows with commit ts <= low are repeated deliveries."""
    written: tuple[int, ...]
    """Per written column its place in the layout."""
    key: tuple[int, ...]
    """Per key column its place in the layout."""
    unique: tuple[tuple[int, ...], ...] = ()
    """For a keyless table: per unique key that may hold NULL the places of its columns in the layout."""
    limits: tuple[Limit, ...] = ()
    """What the target would not keep of values that these rows may hold."""
    misfit: str = ""
    """Why its rows do not fit the target's table as it is now; empty if they do. No row in the window may be of it then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWork:
    """All that tasks need to know about one table in one window."""

    index: int
    table_key: str
    """Under which its progress is stored."""
    name: TableName
    """With the target's own spelling."""
    window: Window
    mode: Mode
    serial: bool
    """It has further unique keys: its write transactions queue, so that REPLACE does not deadlock with itself."""
    written: tuple[WireColumn, ...]
    key: tuple[KeyPart, ...]
    versions: Mapping[VersionKey, VersionWork]
    replaces: bool = False
    """A keyless table has unique keys over columns that may be NULL: a row replaces the one that shares such a key."""
    timed: bool = True
    """Every row says its commit ts; else the place in the files is the order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileWork:
    """One file to read."""

    table: int
    """`TableWork.index`."""
    file: DataFile
    rank: int
    """Place in the sequence order of its table's files in this job."""
    newest: bool
    """No file follows it in its stream, so its last row may still be in writing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """One Spark job: the row steps of a wave."""

    upstream: Upstream
    downstream: Downstream
    secrets_file: str
    """Path of the file that holds the secrets on this machine, or empty: then they come from the environment."""
    tables: tuple[TableWork, ...]
    partitions: int
    epoch: int
    window_id: int
    load_data: bool
    """Whether LOAD DATA LOCAL may be used; otherwise multi-row statements."""
    max_packet: int
    """max_allowed_packet of the server, bytes."""


_FLOATS = frozenset(("FLOAT", "DOUBLE"))


def table_work(index: int, step: RowStep, target: TargetTable, upstream: Upstream) -> TableWork:
    """The work of one row step against the table as the target has it.

    Raises `NotReplicable` when the table's newest structure and the target's do not fit.
    """
    newest = step.current
    protocol = upstream.protocol
    written, key_columns = _written(newest, target, upstream), _key(newest, target, upstream)
    by_name = {column.name.casefold(): column for column in newest.columns}
    key = tuple(
        KeyPart(
            column=_wire(by_name[name.casefold()], protocol),
            fold=_fold(by_name[name.casefold()], _column(target, name), prefix),
            prefix=prefix,
            beyond_bmp=_column(target, name).beyond_bmp,
        )
        for name, prefix in key_columns
    )
    mode = Mode.KEYLESS if not key else Mode.ORDERED if any(p.fold is Fold.LOOSE for p in key) else Mode.KEYED
    return TableWork(
        index=index,
        table_key=step.table_key,
        name=target.name,
        window=step.window,
        mode=mode,
        serial=len(target.unique_keys) > 1,
        written=written,
        key=key,
        versions={
            place: _version(d, step.window, target, written, key, upstream) for place, d in step.definitions.items()
        },
        replaces=mode is Mode.KEYLESS and bool(target.unique_keys),
    )


def unread_work(index: int, step: RowStep, upstream: Upstream) -> TableWork:
    """The work for files of a table that does not exist (any more): they may hold repeated deliveries only."""
    reason = f"the table {step.name} does not exist in the target at this time"
    versions = {
        place: VersionWork(
            layout=row_layout(d, frozenset(), upstream), low=_low(d, step.window), written=(), key=(), misfit=reason
        )
        for place, d in step.definitions.items()
    }
    return TableWork(
        index=index,
        table_key=step.table_key,
        name=step.name,
        window=step.window,
        mode=Mode.KEYED,
        serial=False,
        written=(),
        key=(),
        versions=versions,
    )


def _low(definition: TableDefinition, window: Window) -> int:
    """Rows at or below are repeated deliveries."""
    return row_floor(window.low, definition.version, is_ddl=definition.is_ddl)


def _wire(column: TableColumn, protocol: Protocol) -> WireColumn:
    return WireColumn(name=column.name, kind=wire_kind(column, protocol), type=column.type)


def _column(target: TargetTable, name: str) -> TargetColumn:
    return next(c for c in target.columns if c.name.casefold() == name.casefold())


def _written(newest: TableDefinition, target: TargetTable, upstream: Upstream) -> tuple[WireColumn, ...]:
    """The target's columns that rows are written to, in the rows' order."""
    generated = {c.name.casefold() for c in target.columns if c.generated}
    layout = row_layout(newest, target.virtual, upstream)
    if misfit := _misfit(layout, target):
        message = f"{newest.name}: {misfit} (schema file {newest.path})"
        raise NotReplicable(message)
    return tuple(_wire(c, upstream.protocol) for c in layout.columns if c.name.casefold() not in generated)


def _misfit(layout: RowLayout, target: TargetTable) -> str:
    """Which columns the rows and the target's table do not share, or an empty text."""
    carried = {c.name.casefold() for c in layout.columns}
    there = {c.name.casefold() for c in target.columns}
    needed = {c.name.casefold() for c in target.columns if not c.generated}
    if lacking := sorted(carried - there):
        return f"the rows carry columns that the target's table lacks: {', '.join(lacking)}"
    if unknown := sorted(needed - carried - layout.unselected):
        return f"the target's table has columns that the rows do not carry: {', '.join(unknown)}"
    return ""


def _key(newest: TableDefinition, target: TargetTable, upstream: Upstream) -> list[tuple[str, int | None]]:
    """The columns that tell rows apart: the target's primary key, else a not-null unique key, else none.

    Raises `NotReplicable` when the schema file's primary key is not the target's: writing by key would hit wrong rows.
    """
    declared = {c.name.casefold() for c in newest.columns if c.is_pk}
    certain = {c.name.casefold() for c in newest.columns if not c.nullable or c.is_pk}
    certain |= {c.name.casefold() for c in target.columns if not c.nullable}
    carried = {c.name.casefold() for c in row_layout(newest, target.virtual, upstream).columns}
    for unique in target.unique_keys:
        columns = {name.casefold() for name in unique.columns}
        if declared and columns != declared:
            continue
        if not declared and unique.name == "PRIMARY":
            message = (
                f"{newest.name}: the target's table has the primary key ({', '.join(unique.columns)}), the source none"
            )
            raise NotReplicable(message)
        if columns <= certain & carried:
            return list(zip(unique.columns, unique.prefixes, strict=True))
    if declared:
        message = (
            f"{newest.name}: the target's table has no unique key over the primary key ({', '.join(sorted(declared))})"
        )
        raise NotReplicable(message)
    return []


def _fold(column: TableColumn, there: TargetColumn, prefix: int | None) -> Fold:
    """When two texts of this column are one key in the target."""
    if column.type in _FLOATS:
        return Fold.NUMBER
    if not there.binary_collation:
        return Fold.LOOSE
    return Fold.PAD if there.pads and prefix is None else Fold.LOOSE if there.pads else Fold.EXACT


def _version(
    definition: TableDefinition,
    window: Window,
    target: TargetTable,
    written: tuple[WireColumn, ...],
    key: tuple[KeyPart, ...],
    upstream: Upstream,
) -> VersionWork:
    """One version directory against the target's table as it is now."""
    layout = row_layout(definition, target.virtual, upstream)
    places = {c.name.casefold(): place for place, c in enumerate(layout.columns)}
    misfit = _misfit(layout, target) or _other_kinds(layout, written, upstream.protocol)
    if keyless := sorted(p.column.name for p in key if p.column.name.casefold() not in places):
        misfit = misfit or f"the rows do not carry columns of the key: {', '.join(keyless)}"
    return VersionWork(
        layout=layout,
        low=_low(definition, window),
        written=() if misfit else tuple(places[c.name.casefold()] for c in written),
        key=() if misfit else tuple(places[p.column.name.casefold()] for p in key),
        unique=() if misfit or key else _nullable_keys(target, places),
        misfit=misfit,
    )


def _other_kinds(layout: RowLayout, written: tuple[WireColumn, ...], protocol: Protocol) -> str:
    """Which columns this directory's rows write in another form than the structure in force, or an empty text."""
    forms = {c.name.casefold(): wire_kind(c, protocol) for c in layout.columns}
    other = sorted(c.name for c in written if forms.get(c.name.casefold(), c.kind) is not c.kind)
    return f"the rows hold another type of value than the structure in force: {', '.join(other)}" if other else ""


def _nullable_keys(target: TargetTable, places: dict[str, int]) -> tuple[tuple[int, ...], ...]:
    """Where the columns of each unique key are in a row; keys over prefixes or over columns not in the row are left out."""
    found = []
    for unique in target.unique_keys:
        columns = [name.casefold() for name in unique.columns]
        if all(prefix is None for prefix in unique.prefixes) and all(name in places for name in columns):
            found.append(tuple(places[name] for name in columns))
    return tuple(found)
