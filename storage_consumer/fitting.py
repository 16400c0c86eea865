"""How a table's rows are told apart and how they may be written: the files' structure against the target's table.

`table_work` decides it in one place; what does not fit is an error of that table, never a guess.
"""

from __future__ import annotations

from storage_consumer.checkpoint import row_floor
from storage_consumer.config.settings import Protocol, Upstream
from storage_consumer.decoding.decoder import RowLayout
from storage_consumer.decoding.layout import row_layout
from storage_consumer.decoding.values import wire_kind
from storage_consumer.errors import NotReplicable
from storage_consumer.limits import limits, other_families, other_members
from storage_consumer.model import TableColumn, TableDefinition, TableName, Window
from storage_consumer.planning.renames import is_astray
from storage_consumer.planning.steps import RowStep
from storage_consumer.work import Fold, KeyPart, Mode, TableWork, TargetColumn, TargetTable, VersionWork, WireColumn

_STRIPE_BYTES, _STRIPE_BITS = 64 << 20, (8, 10)
"""With stripes of 64 rows the server needs a fifth more CPU: they end inside pages of its index, which writers then split."""
_BYTES_OF_A_CHARACTER, _BYTES_OF_A_NUMBER = 4, 16
_FLOATS = frozenset(("FLOAT", "DOUBLE"))


def table_work(index: int, step: RowStep, target: TargetTable, upstream: Upstream) -> TableWork:
    """The work of one row step against the table as the target has it.

    Raises `NotReplicable` when the table's newest structure and the target's do not fit.
    """
    newest = step.current
    protocol = upstream.protocol
    refuse_changes(newest.name, target)
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
    if not upstream.has_commit_ts:
        _check_order(step, mode, protocol)
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
        timed=upstream.has_commit_ts,
        stripe_bits=_stripe_bits(target),
    )


def _stripe_bits(target: TargetTable) -> int:
    """So many that the rows of as many neighbours take no more than `_STRIPE_BYTES`, however long their values are, but not too few."""
    largest = sum(_BYTES_OF_A_CHARACTER * (column.length or _BYTES_OF_A_NUMBER) for column in target.columns)
    fewest, most = _STRIPE_BITS
    return min(most, max(fewest, (_STRIPE_BYTES // largest).bit_length() - 1))


def refuse_changes(name: TableName, target: TargetTable) -> None:
    """Raise `NotReplicable` where somebody changed the target's table so that writing would hit other rows."""
    if target.by_hand:
        raise NotReplicable(
            f"{name}: somebody changed the target's table since the last DDL that this program ran: {target.by_hand}. The "
            "source does not keep its rows to that, so that writing one would remove others. Take the change back, and start "
            f"again; if it is meant and the source has it too, delete the table's row in the state schema's table_keys"
        )


def _check_order(step: RowStep, mode: Mode, protocol: Protocol) -> None:
    """Raise `NotReplicable` where rows that do not say their commit ts can't be put in order, or not be told from repeats."""
    option = "include-commit-ts" if protocol == "csv" else "enable-tidb-extension"
    remedy = f"set {option} = true in the changefeed, and start it and this program anew"
    if mode is Mode.KEYLESS:
        raise NotReplicable(
            f"{step.name} has no key: without commit ts a row that TiCDC delivers again can't be told from another equal row; "
            f"{remedy}, or give the table a primary key"
        )
    if protocol == "csv" and len({file.dispatcher for file in step.files}) > 1:
        raise NotReplicable(
            f"{step.name}: its files come from several dispatchers, and nothing tells their order; {remedy}"
        )
    if protocol == "csv" and step.crossing:
        raise NotReplicable(
            f"{step.name} has several partitions and, by {step.crossing}, a GLOBAL index: a row may move between partitions under one "
            f"key, and without commit ts nothing tells which of their files comes first; {remedy}"
        )
    if protocol == "csv" and step.out_of_turn:
        raise NotReplicable(
            f"{step.out_of_turn} came late or has other content now, and rows of later files are applied: without commit ts its "
            f"rows can't be told from older ones; {remedy}, or give the table a fresh copy"
        )


def unread_work(index: int, step: RowStep, upstream: Upstream) -> TableWork:
    """The work for files of a table that does not exist (any more): they may hold repeated deliveries only.

    Rows without commit ts can be nothing else once the table is dropped: what is written after a DROP has a new structure.
    """
    repeats = step.dropped and not upstream.has_commit_ts
    reason = "" if repeats else f"the table {step.name} does not exist in the target at this time"
    versions = {
        place: VersionWork(
            layout=row_layout(d, frozenset(), upstream),
            low=_low(d, step.window),
            written=(),
            key=(),
            misfit=reason,
            repeats=repeats,
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
    return row_floor(window.low, definition.version, is_ddl=definition.is_ddl and not is_astray(definition))


def _wire(column: TableColumn, protocol: Protocol) -> WireColumn:
    return WireColumn(name=column.name, kind=wire_kind(column, protocol), type=column.type)


def _column(target: TargetTable, name: str) -> TargetColumn:
    return next(c for c in target.columns if c.name.casefold() == name.casefold())


def _written(newest: TableDefinition, target: TargetTable, upstream: Upstream) -> tuple[WireColumn, ...]:
    """The target's columns that rows are written to, in the rows' order."""
    generated = {c.name.casefold() for c in target.columns if c.generated}
    layout = row_layout(newest, target.virtual, upstream)
    misfit = _misfit(layout, target) or other_families(layout, target)
    if misfit := misfit or other_members(layout, target, upstream.protocol):
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
    layout = row_layout(newest, target.virtual, upstream)
    carried = {c.name.casefold() for c in layout.columns}
    if dropped := sorted(declared & layout.unselected):
        message = (
            f"{newest.name}: a [[sink.column-selectors]] of the changefeed keeps {', '.join(dropped)} out of the rows, which the "
            "primary key needs to tell rows apart: select the primary key's columns, and start a new changefeed"
        )
        raise NotReplicable(message)
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
    taken = () if misfit else tuple(places[c.name.casefold()] for c in written)
    return VersionWork(
        layout=layout,
        low=_low(definition, window),
        written=taken,
        key=() if misfit else tuple(places[p.column.name.casefold()] for p in key),
        unique=() if misfit or key else _nullable_keys(target, places),
        limits=limits(layout, taken, target),
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
