"""Match the files' structure with the target's table: how its rows are distinguished, and how they may be written.

`table_work` decides it in one place; a mismatch is an error of that table, never a guess.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from storage_consumer.config.settings import Protocol, Upstream
from storage_consumer.decode.decoder import RowLayout
from storage_consumer.decode.row_layouts import hidden_columns, row_layout, zones
from storage_consumer.decode.values import FLOAT_TYPES, INTEGER_TYPES, WireKind, wire_kind
from storage_consumer.errors import NotReplicable
from storage_consumer.job.key_forms import KeyForms, key_forms, lasting_form
from storage_consumer.job.lossy_columns import (
    BYTES_OF_A_CHARACTER,
    is_its_text,
    is_lossy,
    is_text,
    limits,
    narrowed,
    other_families,
    other_members,
)
from storage_consumer.job.spec import Fold, KeyPart, Mode, TablePlan, VersionPlan, WireColumn
from storage_consumer.job.target_table import TargetColumn, TargetTable
from storage_consumer.model import CommitRange, TableColumn, TableDefinition, TableName, VersionKey, folded_name
from storage_consumer.plan.steps import RowStep
from storage_consumer.sql.parse import parsed
from storage_consumer.tso import row_floor

_STRIPE_BYTES, _STRIPE_BITS = 64 << 20, (8, 10)
"""Most bytes of a stripe of rows, and least and most bits of its size.

With stripes of 64 rows the server needs a fifth more CPU: they end inside pages of its index, which writers then split.
"""
_BYTES_OF_A_NUMBER = 16
_FLOATS_THERE = {
    **dict.fromkeys((*(kind.lower() for kind in INTEGER_TYPES), "decimal"), "DECIMAL"),
    "float": "FLOAT",
    "double": "DOUBLE",
}
"""Target type → the type as which such a number is compared: 0.1 in single precision is not the 0.1 of a DECIMAL or a DOUBLE."""


_FORMER = "the directory is of an earlier table of this name, and this table was made by the statement of version {}"


class _Columns(NamedTuple):
    """The target's columns in a step."""

    written: tuple[WireColumn, ...]
    key: tuple[KeyPart, ...]
    forms: Mapping[str, KeyForms]
    """Of the columns by whose texts rows are distinguished (the key's, or all written ones of a table without a key), by folded name."""
    become_texts: frozenset[str]
    """See `other_families`."""


def table_work(index: int, step: RowStep, target: TargetTable, upstream: Upstream) -> TablePlan:
    """Return the work of one row step against the table as the target has it.

    Raises `NotReplicable` if the table's newest structure and the target's do not fit.
    """
    if target.is_planned:
        versions = _unread(step, upstream, "", virtual=target.virtual, is_uncompared=True)
        return replace(unread_work(index, step, upstream), name=target.name, versions=versions)
    # Without commit-ts nothing shows that rows are of before the commit range.
    former = {
        place: each for place, each in step.definitions.items() if upstream.has_commit_ts and step.is_former(each)
    }
    step = replace(step, definitions={place: each for place, each in step.definitions.items() if place not in former})
    newest = step.current
    protocol = upstream.protocol
    _refuse_view(newest.name, target)
    refuse_changes(newest.name, target)
    target = _without_effect(target, step)
    become_texts = _become_texts(step)
    layout = _layout(newest, target, upstream)
    target = _without_unselected(target, [*step.definitions.values(), newest], upstream)
    written, key_columns = _written(newest, layout, target, become_texts, protocol), _key(step, layout, target)
    by_name = {folded_name(column.name): column for column in newest.columns}
    names = [name for name, _ in key_columns] or [column.name for column in written]
    forms = _forms([folded_name(name) for name in names], step, target, upstream, is_key=bool(key_columns))
    key = tuple(
        _key_part(by_name[folded_name(name)], _column(target, name), prefix, forms[folded_name(name)], protocol)
        for name, prefix in key_columns
    )
    if key:
        written += _compared(layout, target, protocol)
    columns = _Columns(written, key, forms, become_texts)
    # One part that a collation judges is enough: then only the sequence of all changes is certain.
    mode = Mode.KEYLESS if not key else Mode.ORDERED if any(p.fold is Fold.LOOSE for p in key) else Mode.KEYED
    if not upstream.has_commit_ts:
        _check_order(step, mode, protocol)
    return TablePlan(
        index=index,
        table_key=step.table_key,
        name=target.name,
        commit_range=step.commit_range,
        mode=mode,
        has_other_unique_keys=len(target.unique_keys) > 1 or bool(target.expression_keys),
        written=written,
        key=key,
        versions=_versions(step, layout, target, columns, upstream)
        | _unread(replace(step, definitions=former), upstream, _FORMER.format(step.made_at)),
        replaces=mode is Mode.KEYLESS and bool(target.unique_keys or target.expression_keys),
        has_commit_ts=upstream.has_commit_ts,
        stripe_bits=_stripe_bits(target),
        version=newest.version,
    )


def _without_effect(target: TargetTable, step: RowStep) -> TargetTable:
    """Return the table so that rows from before the next statement fit where its copy shows that statement's effect already.

    A column that is gone already is carried and not written, and one that is there already keeps its default: as a generated one.
    Where columns came and others went, one may be the other's new name; then nothing is left out.
    """
    if step.upcoming is None:
        return target
    now, then = ({folded_name(c.name): c for c in each.columns} for each in (step.current, step.upcoming))
    there = {folded_name(c.name) for c in target.columns}
    gone = [column.name for name, column in now.items() if name not in there | then.keys()]
    come = there & then.keys() - now.keys()
    if (gone and come) or step.current.version >= step.upcoming.version:
        return target
    columns = (replace(c, generated="STORED") if folded_name(c.name) in come else c for c in target.columns)
    return replace(target, columns=(*columns, *map(_unwritten, gone)))


def _layout(definition: TableDefinition, target: TargetTable, upstream: Upstream) -> RowLayout:
    """Return the columns of a definition's rows; a unique key tells rows apart in the target only if they have all of it."""
    layout = row_layout(definition, target.virtual, upstream)
    if not layout.may_lack:
        return layout
    keyed = {folded_name(name) for key in target.unique_keys for name in key.columns}
    return replace(layout, may_lack=layout.may_lack - keyed)


def _without_unselected(target: TargetTable, definitions: Iterable[TableDefinition], upstream: Upstream) -> TargetTable:
    """Return the table so that rows fit that have a column which the selectors leave out and the target lacks: it is carried and not written."""
    if not upstream.column_selectors:
        return target
    there = {folded_name(c.name) for c in target.columns}
    left_out = set[str]().union(*(row_layout(each, target.virtual, upstream).unselected for each in definitions))
    return replace(target, columns=(*target.columns, *map(_unwritten, sorted(left_out - there))))


def _unwritten(name: str) -> TargetColumn:
    return TargetColumn(name=name, data_type="", nullable=True, generated="STORED")


def _key_part(
    column: TableColumn, there: TargetColumn, prefix: int | None, forms: KeyForms, protocol: Protocol
) -> KeyPart:
    """Return one column of the key."""
    form, is_lasting = lasting_form(column, there, protocol)
    return KeyPart(
        column=_wire(column, there, protocol),
        fold=_fold(column, there, prefix, forms),
        prefix=prefix,
        beyond_bmp=there.beyond_bmp,
        form=form,
        is_lasting=is_lasting,
    )


def _forms(
    names: Collection[str], step: RowStep, target: TargetTable, upstream: Upstream, *, is_key: bool
) -> Mapping[str, KeyForms]:
    """Return, by folded name, how the values of the columns that are compared are spelled in each directory."""
    # Without a key rows are compared whole, which needs one spelling only where there are several structures.
    if not (is_key or _others(step)):
        return {}
    (zone, _), there = zones(upstream), {folded_name(column.name): column for column in target.columns}
    newest = {folded_name(column.name): column for column in step.current.columns}
    columns: dict[str, dict[VersionKey, TableColumn]] = {name: {} for name in names}
    for version, definition in step.definitions.items():
        for column in definition.columns:
            if (found := columns.get(folded_name(column.name))) is not None:
                found[version] = column
    return {
        name: key_forms(columns[name], newest[name], there[name], upstream.protocol, zone, is_key=is_key)
        for name in names
    }


def _stripe_bits(target: TargetTable) -> int:
    """Return the number of low bits, within `_STRIPE_BITS`, so that a stripe of rows of full length fits `_STRIPE_BYTES`."""
    # Of rows of full length, since how long they are is not known here.
    largest = sum(BYTES_OF_A_CHARACTER * (column.length or _BYTES_OF_A_NUMBER) for column in target.columns)
    fewest, most = _STRIPE_BITS
    return min(most, max(fewest, (_STRIPE_BYTES // largest).bit_length() - 1))


def refuse_changes(name: TableName, target: TargetTable) -> None:
    """Raise `NotReplicable` if the target's table was changed so that writing would hit other rows, or if it is not visible."""
    if target.unseen:
        raise NotReplicable(
            f"{name}: the target has the table {target.name} but does not show its columns. {target.unseen}"
        )
    if target.key_drift:
        raise NotReplicable(
            f"{name}: somebody changed the target's table since the last DDL that this program ran: "
            f"{target.key_drift}. The source does not enforce that, so its rows may not fit beside one another. Undo the "
            "change and start again; if it is intended and the source has it too, run `storage-consumer table "
            "accept-keys`"
        )


def _refuse_view(name: TableName, target: TargetTable) -> None:
    """Raise `NotReplicable` if the target has a view of that name; statements may replace and drop it."""
    if target.is_view:
        raise NotReplicable(
            f"{name}: {target.name} is a view in the target, and rows written to it would go into other tables. TiCDC "
            "writes no rows of views: find out who wrote these files, or give the table another name with a route"
        )


def _check_order(step: RowStep, mode: Mode, protocol: Protocol) -> None:
    """Raise `NotReplicable` if rows without commit-ts cannot be put in order, or cannot be distinguished from repeats."""
    option = "include-commit-ts" if protocol == "csv" else "enable-tidb-extension"
    remedy = f"set {option} = true in the changefeed, and start it and this program again"
    if mode is Mode.KEYLESS:
        raise NotReplicable(
            f"{step.name} has no key: without commit ts a row that TiCDC delivers again cannot be distinguished from "
            f"another equal row; {remedy}, or give the table a primary key"
        )
    if protocol == "csv" and len({file.dispatcher for file in step.files}) > 1:
        raise NotReplicable(
            f"{step.name}: its files come from several dispatchers, and their order is unknown; {remedy}"
        )
    if protocol == "csv" and step.crossing:
        raise NotReplicable(
            f"{step.name} has several partitions and, by {step.crossing}, a GLOBAL index: a row may move between "
            f"partitions under one key, and without commit ts it is unknown which of their files comes first; {remedy}"
        )
    if protocol == "csv" and step.out_of_turn:
        raise NotReplicable(
            f"{step.out_of_turn} came late or its content has changed, and rows of later files have been applied: "
            f"without commit ts its rows cannot be distinguished from older ones; {remedy}, or reload the table"
        )


def unread_work(index: int, step: RowStep, upstream: Upstream, missing: str = "") -> TablePlan:
    """Return the work for files of a table that does not exist (any more): they may hold repeated deliveries only.

    `missing`: the error for a table to which they hold other rows. Once the table is dropped, rows without commit-ts
    can only be repeats: what is written after a DROP has a new structure.
    """
    repeats = step.dropped and not upstream.has_commit_ts
    reason = "" if repeats else missing or f"the table {step.name} does not exist in the target at this time"
    return TablePlan(
        index=index,
        table_key=step.table_key,
        name=step.name,
        commit_range=step.commit_range,
        mode=Mode.KEYED,
        has_other_unique_keys=False,
        written=(),
        key=(),
        versions=_unread(step, upstream, reason, is_all_duplicates=repeats),
    )


def _unread(
    step: RowStep,
    upstream: Upstream,
    misfit: str,
    *,
    virtual: frozenset[str] = frozenset(),
    is_all_duplicates: bool = False,
    is_uncompared: bool = False,
) -> dict[VersionKey, VersionPlan]:
    """Return the plan for directories of which no row may be in the commit range, unless all are repeats or only counted."""
    return {
        place: VersionPlan(
            layout=row_layout(definition, virtual, upstream),
            low=_low(definition, step.commit_range),
            written=(),
            key=(),
            misfit=misfit,
            is_all_duplicates=is_all_duplicates,
            is_uncompared=is_uncompared,
        )
        for place, definition in step.definitions.items()
    }


def _low(definition: TableDefinition, commit_range: CommitRange) -> int:
    """Return the commit-ts at or below which rows are repeated deliveries."""
    return row_floor(
        commit_range.low, definition.version, is_ddl=definition.is_ddl and not parsed(definition).is_astray
    )


def _wire(column: TableColumn, there: TargetColumn, protocol: Protocol) -> WireColumn:
    """Return the column as it is written and compared; a number gets the type that the target gives it."""
    kind = "VARCHAR" if is_its_text(there.data_type, column.type) else column.type
    if column.type in FLOAT_TYPES:
        kind = _FLOATS_THERE.get(there.data_type, column.type)
    # Bits are written like any number, and only a BIT takes a text for something else.
    is_number = column.type == "BIT" and there.data_type != "bit"
    return WireColumn(name=column.name, kind=WireKind.TEXT if is_number else wire_kind(column, protocol), type=kind)


def _column(target: TargetTable, name: str) -> TargetColumn:
    return next(c for c in target.columns if folded_name(c.name) == folded_name(name))


def _others(step: RowStep) -> list[TableDefinition]:
    """Return the structures of the commit range other than the current one."""
    return [definition for definition in step.definitions.values() if definition is not step.current]


def _become_texts(step: RowStep) -> frozenset[str]:
    """Return the folded names of columns that are texts in some structure of the commit range or in the next one; none if there is one only."""
    others = [*_others(step), *([step.upcoming] if step.upcoming is not None else [])]
    columns = (column for definition in (*others, *([step.current] if others else [])) for column in definition.columns)
    return frozenset(folded_name(column.name) for column in columns if is_text(column.type))


def _written(
    newest: TableDefinition, layout: RowLayout, target: TargetTable, become_texts: frozenset[str], protocol: Protocol
) -> tuple[WireColumn, ...]:
    """Return the target's columns that rows are written to, in the rows' order. `layout`: that of the newest structure."""
    there = {folded_name(c.name): c for c in target.columns}
    misfit = _misfit(layout, target) or other_families(layout, target, become_texts)
    if misfit := misfit or other_members(layout, target, protocol):
        message = f"{newest.name}: {misfit} (schema file {newest.path})"
        raise NotReplicable(message)
    return tuple(
        _wire(c, there[name], protocol) for c in layout.columns if not there[name := folded_name(c.name)].generated
    )


def _compared(layout: RowLayout, target: TargetTable, protocol: Protocol) -> tuple[WireColumn, ...]:
    """Return the columns that rows carry and the target computes: from the same expression it may get another value than the source."""
    stored = {folded_name(c.name): c for c in target.columns if c.generated == "STORED" and c.data_type}
    pairs = ((c, stored.get(folded_name(c.name))) for c in layout.columns)
    return tuple(replace(_wire(c, there, protocol), is_computed=True) for c, there in pairs if there)


def _misfit(layout: RowLayout, target: TargetTable) -> str:
    """Return which columns the rows and the target's table do not share, or an empty text."""
    carried = {folded_name(c.name) for c in layout.columns}
    there = {folded_name(c.name) for c in target.columns}
    needed = {folded_name(c.name) for c in target.columns if not c.generated}
    lacking = sorted(carried - there)
    if lacking and (hidden := sorted({*hidden_columns(layout.columns)} & {*lacking})):
        return (
            f"the rows carry columns that the target's table lacks: {', '.join(hidden)}. TiDB's soft delete is on for the table, which is not "
            "supported: rows that are deleted at the source would be visible in the target. Leave the table out with --filter; or "
            "add these columns to the target's table, and read it with WHERE _tidb_softdelete_time IS NULL"
        )
    if lacking:
        return f"the rows carry columns that the target's table lacks: {', '.join(lacking)}; add them as the source has them"
    if unknown := sorted(needed - carried - layout.unselected):
        return f"the target's table has columns that the rows do not carry: {', '.join(unknown)}; drop them as the source did"
    return ""


def altered(definition: TableDefinition, target: TargetTable, upstream: Upstream) -> str:
    """Return which columns the target's table lacks, or holds in less room than the source, so that values may have been lost; "" for none."""
    if target.is_planned:
        return ""
    layout, there = row_layout(definition, target.virtual, upstream), {folded_name(c.name): c for c in target.columns}
    left_out = layout.unselected | {*hidden_columns(layout.columns)}
    pairs = [(c, there.get(name)) for c in layout.columns if (name := folded_name(c.name)) not in left_out]
    found = [f"lacks the column {column.name}" for column, own in pairs if own is None]
    found += [
        f"has less room in {column.name} than the source" for column, own in pairs if own and is_lossy(column, own)
    ]
    other = "" if found or left_out else other_families(layout, target)
    return " and ".join(found) or (f"is another one: {other}" if other else "")


def _key(step: RowStep, layout: RowLayout, target: TargetTable) -> list[tuple[str, int | None]]:
    """Return the columns that tell rows apart: the target's primary key, else a not-null unique key, else none.

    Raises `NotReplicable` if the schema file's primary key is not the target's: writing by key would hit wrong rows.
    """
    newest, computed = step.current, _computed_of_key(step, layout, target)
    # Of a key that the target computes in part, the rows' structure has what is left.
    declared = {folded_name(c.name) for c in newest.columns if c.is_pk and not computed}
    certain = {folded_name(c.name) for c in newest.columns if not c.nullable or c.is_pk}
    # The target refuses a NULL in such a column, so each row that reaches it has a value.
    certain |= {folded_name(c.name) for c in target.columns if not c.nullable}
    carried = {folded_name(c.name) for c in layout.columns}
    # A declared key must match exactly. Without one, a primary key in the target is an error, a not-null key will do.
    for unique in target.unique_keys:
        columns = {folded_name(name) for name in unique.columns}
        if not computed.isdisjoint(columns):
            continue
        if declared and columns != declared:
            continue
        if not declared and unique.name == "PRIMARY":
            message = (
                f"{newest.name}: the target's table has the primary key ({', '.join(unique.columns)}), but the "
                "source has none"
            )
            raise NotReplicable(message)
        # Only a key whose columns are in every row and never NULL identifies rows.
        if columns <= certain & carried:
            return list(zip(unique.columns, unique.prefixes, strict=True))
    if declared:
        message = (
            f"{newest.name}: the target's table has no unique key over the primary key ({', '.join(sorted(declared))})"
        )
        raise NotReplicable(message)
    return []


def _computed_of_key(step: RowStep, layout: RowLayout, target: TargetTable) -> frozenset[str]:
    """Return the folded names of columns that the target computes, where its key of the source's primary key has any that the rows of a copy lack.

    Another key tells such rows apart, or none does. MariaDB has such a primary key as a unique one.
    """
    declared = {folded_name(column.name) for column in step.current.columns if column.is_pk}
    carried = {folded_name(column.name) for column in layout.columns}
    computed = {folded_name(column.name) for column in target.columns if column.generated} - carried
    keys = [set(map(folded_name, unique.columns)) for unique in target.unique_keys]
    is_of_key = declared not in keys and any(key & computed and key - computed == declared for key in keys)
    return frozenset(computed) if step.as_of and is_of_key else frozenset()


def _fold(column: TableColumn, there: TargetColumn, prefix: int | None, forms: KeyForms) -> Fold:
    """Return when two texts of this column are one key in the target."""
    # Once every text is spelled in one form, equal numbers are equal texts.
    if column.type in FLOAT_TYPES:
        return Fold.EXACT if forms.spellings else Fold.NUMBER
    if not there.binary_collation:
        return Fold.LOOSE
    # A prefix that may end in ignored spaces is not imitated, so there only an image decides.
    return Fold.PAD if there.pads and prefix is None else Fold.LOOSE if there.pads else Fold.EXACT


def _versions(
    step: RowStep, newest: RowLayout, target: TargetTable, columns: _Columns, upstream: Upstream
) -> dict[VersionKey, VersionPlan]:
    """Return the plan for each version directory. `newest`: the layout of the current structure."""
    plans = {}
    for version, definition in step.definitions.items():
        layout = newest if definition is step.current else _layout(definition, target, upstream)
        plans[version] = _version(version, layout, step, target, columns, upstream.protocol)
    return plans


def _version(
    version: VersionKey,
    layout: RowLayout,
    step: RowStep,
    target: TargetTable,
    columns: _Columns,
    protocol: Protocol,
) -> VersionPlan:
    """Return the plan for one version directory, whose rows have this layout, against the target's current table."""
    written, key = columns.written, columns.key
    definition = step.definitions[version]
    places = {folded_name(c.name): place for place, c in enumerate(layout.columns)}
    misfit = ""
    # `_written` has judged the current structure, and raised an error.
    if definition is not step.current:
        misfit = _misfit(layout, target) or _other_kinds(layout, written, protocol)
        misfit = misfit or other_families(layout, target, columns.become_texts)
        misfit = misfit or other_members(layout, target, protocol)
    if keyless := sorted(p.column.name for p in key if folded_name(p.column.name) not in places):
        misfit = misfit or f"the rows do not carry columns of the key: {', '.join(keyless)}"
    # `_misfit` passes over computed columns: rows have to carry them only where they are compared with the target's own values.
    if uncompared := sorted(c.name for c in written if folded_name(c.name) not in places):
        lacks = f"the rows do not carry columns that the target's table computes: {', '.join(uncompared)}"
        misfit = misfit or lacks
    unlike = (columns.forms[folded_name(p.column.name)].unknown.get(version, "") for p in key)
    misfit = misfit or next(filter(None, unlike), "")
    later = [each for each in step.definitions.values() if each.version > definition.version and not each.is_ddl]
    # Nothing of a misfit is written; its first row inside the commit range halts the table.
    taken = () if misfit else tuple(places[folded_name(c.name)] for c in written)
    telling = () if misfit else tuple(places[folded_name(p.column.name)] for p in key)
    unique = () if misfit or key else _nullable_keys(target, places)
    return VersionPlan(
        layout=replace(_spelled(version, layout, columns.forms), telling=frozenset(chain(telling, *unique))),
        low=_low(definition, step.commit_range),
        written=taken,
        key=telling,
        unique=unique,
        limits=(*limits(layout, taken, target), *narrowed(layout, later)),
        misfit=misfit,
    )


def _spelled(version: VersionKey, layout: RowLayout, forms: Mapping[str, KeyForms]) -> RowLayout:
    """Return the layout with the spellings of this directory."""
    spelled = {name: found for name, form in forms.items() if (found := form.spellings.get(version))}
    if not spelled:
        return layout
    return replace(layout, spelled=tuple(spelled.get(folded_name(column.name)) for column in layout.columns))


def _other_kinds(layout: RowLayout, written: tuple[WireColumn, ...], protocol: Protocol) -> str:
    """Return which columns this directory's rows write in another form than the current structure, or an empty text."""
    # `_wire` knows how bits are taken.
    forms = {folded_name(c.name): wire_kind(c, protocol) for c in layout.columns if c.type != "BIT"}
    other = sorted(c.name for c in written if forms.get(folded_name(c.name), c.kind) is not c.kind)
    return f"the rows hold another type of value than the current structure: {', '.join(other)}" if other else ""


def _nullable_keys(target: TargetTable, places: dict[str, int]) -> tuple[tuple[int, ...], ...]:
    """Return where the columns of each unique key are in a row, except for keys over prefixes or over columns not in the row."""
    found = []
    for unique in target.unique_keys:
        columns = [folded_name(name) for name in unique.columns]
        if all(prefix is None for prefix in unique.prefixes) and all(name in places for name in columns):
            found.append(tuple(places[name] for name in columns))
    return tuple(found)
