"""Match files' structure with the target's table: how rows are told apart and written.

`table_work` decides it in one place; a mismatch is an error of that table, never a guess.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

from storage_consumer.config.settings import Protocol, Upstream
from storage_consumer.decode.decoder import RowLayout, hidden_columns, row_layout, zones
from storage_consumer.decode.values import (
    FLOAT_TYPES,
    INTEGER_TYPES,
    TEXT_TYPES,
    WireKind,
    wire_kind,
)
from storage_consumer.errors import NotReplicable
from storage_consumer.model import (
    CommitRange,
    TableColumn,
    TableDefinition,
    TableName,
    VersionKey,
    folded_name,
)
from storage_consumer.plan.steps import RowStep
from storage_consumer.rows.fitting import (
    BYTES_OF_A_CHARACTER,
    TargetColumn,
    TargetTable,
    by_name,
    is_its_text,
    is_lossy,
    key_forms,
    lasting_form,
    limits,
    narrowed,
    other_families,
    other_members,
)
from storage_consumer.rows.spec import Fold, KeyPart, Mode, TablePlan, VersionPlan, WireColumn
from storage_consumer.sql.parse import parsed
from storage_consumer.tso import row_floor

_STRIPE_BYTES, _STRIPE_BITS = 64 << 20, (8, 10)
"""Most bytes of a stripe of rows, and least and most bits of its size.

With stripes of 64 rows the server needs a fifth more CPU: they end inside pages of its index, which
writers then split.
"""
_BYTES_OF_A_NUMBER = 16
_FLOATS_THERE = {
    **dict.fromkeys((*(kind.lower() for kind in INTEGER_TYPES), "decimal"), "DECIMAL"),
    "float": "FLOAT",
    "double": "DOUBLE",
}
"""Target type → type for comparison: 0.1 in single precision is not a DECIMAL's or DOUBLE's."""


_FORMER = "the directory is of an earlier table of this name, and this table was made by the statement of version {}"


def table_work(index: int, step: RowStep, target: TargetTable, upstream: Upstream) -> TablePlan:
    """Return the work of one row step against the table as the target has it.

    Raises `NotReplicable` if the table's newest structure and the target's do not fit.
    """
    if target.is_planned:
        versions = _unread(step, upstream, "", virtual=target.virtual, is_uncompared=True)
        return replace(unread_work(index, step, upstream), name=target.name, versions=versions)
    # Without commit-ts nothing shows that rows are of before the commit range.
    former = {
        place: each
        for place, each in step.definitions.items()
        if upstream.has_commit_ts and step.is_former(each)
    }
    step = replace(
        step,
        definitions={
            place: each for place, each in step.definitions.items() if place not in former
        },
    )
    name = step.current.name
    if target.is_view:
        # Statements may replace and drop it.
        raise NotReplicable(
            f"{name}: {target.name} is a view in the target, and rows written to it would go into other tables. TiCDC "
            "writes no rows of views: find out who wrote these files, or give the table another name with a route"
        )
    refuse_changes(name, target)
    match = _Match(step, _without_effect(target, step), upstream)
    # One part that a collation judges is enough: then only the sequence of all changes is certain.
    key = match.key
    mode = (
        Mode.KEYLESS
        if not key
        else Mode.ORDERED
        if any(p.fold is Fold.LOOSE for p in key)
        else Mode.KEYED
    )
    if not upstream.has_commit_ts:
        _check_order(step, mode, upstream.protocol)
    # Of rows of full length, since how long they are is not known here.
    largest = sum(
        BYTES_OF_A_CHARACTER * (column.length or _BYTES_OF_A_NUMBER)
        for column in match.target.columns
    )
    fewest, most = _STRIPE_BITS
    return TablePlan(
        index=index,
        table_key=step.table_key,
        name=target.name,
        commit_range=step.commit_range,
        mode=mode,
        has_other_unique_keys=len(target.unique_keys) > 1 or bool(target.expression_keys),
        written=match.written,
        key=key,
        versions={version: match.version(version) for version in step.definitions}
        | _unread(replace(step, definitions=former), upstream, _FORMER.format(step.made_at)),
        replaces=mode is Mode.KEYLESS and bool(target.unique_keys or target.expression_keys),
        has_commit_ts=upstream.has_commit_ts,
        # So many low bits that a stripe of rows fits `_STRIPE_BYTES`.
        stripe_bits=min(most, max(fewest, (_STRIPE_BYTES // largest).bit_length() - 1)),
        version=step.current.version,
    )


def _without_effect(target: TargetTable, step: RowStep) -> TargetTable:
    """Return the table without the next statement's effect that its copy shows already.

    A column that is gone already is carried and not written, and one that is there already keeps
    its default: as a generated one. Where columns came and others went, one may be the other's new
    name; then nothing is left out.
    """
    if step.upcoming is None:
        return target
    now, then, there = (
        by_name(step.current.columns),
        by_name(step.upcoming.columns),
        by_name(target.columns),
    )
    gone = [column.name for name, column in now.items() if name not in there.keys() | then.keys()]
    come = there.keys() & then.keys() - now.keys()
    if (gone and come) or step.current.version >= step.upcoming.version:
        return target
    columns = (replace(c, generated="STORED") if name in come else c for name, c in there.items())
    return replace(target, columns=(*columns, *map(_unwritten, gone)))


def _unwritten(name: str) -> TargetColumn:
    return TargetColumn(name=name, data_type="", nullable=True, generated="STORED")


def refuse_changes(name: TableName, target: TargetTable) -> None:
    """Raise `NotReplicable` if the target's table was changed or is not visible.

    Writing could hit other rows.
    """
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


def _check_order(step: RowStep, mode: Mode, protocol: Protocol) -> None:
    """Raise `NotReplicable` if rows without commit-ts have no order, or may be repeats."""
    option = "include-commit-ts" if protocol == "csv" else "enable-tidb-extension"
    remedy = f"set {option} = true in the changefeed, and start it and this program again"
    if mode is Mode.KEYLESS:
        raise NotReplicable(
            f"{step.name} has no key: without commit ts a row that TiCDC delivers again cannot be distinguished from "
            f"another equal row; {remedy}, or give the table a primary key"
        )
    if protocol != "csv":
        return
    if len({file.dispatcher for file in step.files}) > 1:
        raise NotReplicable(
            f"{step.name}: its files come from several dispatchers, and their order is unknown; {remedy}"
        )
    if step.crossing:
        raise NotReplicable(
            f"{step.name} has several partitions and, by {step.crossing}, a GLOBAL index: a row may move between "
            f"partitions under one key, and without commit ts it is unknown which of their files comes first; {remedy}"
        )
    if step.out_of_turn:
        raise NotReplicable(
            f"{step.out_of_turn} came late or its content has changed, and rows of later files have been applied: "
            f"without commit ts its rows cannot be distinguished from older ones; {remedy}, or reload the table"
        )


def unread_work(index: int, step: RowStep, upstream: Upstream, missing: str = "") -> TablePlan:
    """Return the work for a table that does not exist (any more): its files hold only repeats.

    `missing`: the error for a table to which they hold other rows. Once the table is dropped, rows
    without commit-ts can only be repeats: what is written after a DROP has a new structure.
    """
    repeats = step.dropped and not upstream.has_commit_ts
    reason = (
        ""
        if repeats
        else missing or f"the table {step.name} does not exist in the target at this time"
    )
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
    """Return the plan for directories without rows in range, unless repeated or only counted."""
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
        commit_range.low,
        definition.version,
        is_ddl=definition.is_ddl and not parsed(definition).is_astray,
    )


class _Match:
    """One row step against the table as the target has it."""

    def __init__(self, step: RowStep, target: TargetTable, upstream: Upstream) -> None:
        """Raise `NotReplicable` if the table's newest structure and the target's do not fit."""
        self.step, self.target, self.upstream = step, target, upstream
        if upstream.column_selectors:
            # A column that the selectors leave out and the target lacks is carried and not written.
            layouts = (
                row_layout(each, target.virtual, upstream)
                for each in (*step.definitions.values(), step.current)
            )
            left_out = (
                set[str]().union(*(layout.unselected for layout in layouts))
                - by_name(target.columns).keys()
            )
            self.target = replace(
                target, columns=(*target.columns, *map(_unwritten, sorted(left_out)))
            )
        self.there = by_name(self.target.columns)
        self.layout = self._layout(step.current)
        others = [
            definition for definition in step.definitions.values() if definition is not step.current
        ]
        structures = [*others, *([step.upcoming] if step.upcoming is not None else [])]
        columns = [c for each in structures for c in (*each.columns, *step.current.columns)]
        # Folded names of columns that are texts in some structure of the range, or the next.
        self.become_texts = frozenset(
            folded_name(column.name) for column in columns if column.type in TEXT_TYPES
        )
        self.written: tuple[WireColumn, ...] = ()
        if misfit := self._misfit(self.layout):
            raise NotReplicable(f"{step.current.name}: {misfit} (schema file {step.current.path})")
        self.written = tuple(
            self._wire(c)
            for c in self.layout.columns
            if not self.there[folded_name(c.name)].generated
        )
        key_columns = self._key_columns()
        names = [folded_name(name) for name, _ in key_columns] or [
            folded_name(c.name) for c in self.written
        ]
        # Of the columns by whose texts rows are distinguished, by folded name. Without a key rows
        # are compared whole, which needs one spelling only where there are several structures.
        zone, _ = zones(upstream)
        versions = {version: by_name(each.columns) for version, each in step.definitions.items()}
        newest = by_name(step.current.columns)
        self.forms = {
            name: key_forms(
                {
                    version: columns[name]
                    for version, columns in versions.items()
                    if name in columns
                },
                newest[name],
                self.there[name],
                upstream.protocol,
                zone,
                is_key=bool(key_columns),
            )
            for name in (names if key_columns or others else ())
        }
        self.key = tuple(
            self._key_part(newest[folded_name(name)], prefix) for name, prefix in key_columns
        )
        if self.key:
            # Columns that rows carry and the target computes: from the same expression it may get
            # another value than the source.
            self.written += tuple(
                replace(self._wire(c), is_computed=True)
                for c in self.layout.columns
                if (there := self.there[folded_name(c.name)]).generated == "STORED"
                and there.data_type
            )

    def _layout(self, definition: TableDefinition) -> RowLayout:
        """Return a definition's columns; a unique key counts only if they have all of it."""
        layout = row_layout(definition, self.target.virtual, self.upstream)
        keyed = {folded_name(name) for key in self.target.unique_keys for name in key.columns}
        return replace(layout, may_lack=layout.may_lack - keyed)

    def _wire(self, column: TableColumn) -> WireColumn:
        """Return the column as written and compared, a number in the target's type."""
        there = self.there[folded_name(column.name)].data_type
        kind = "VARCHAR" if is_its_text(there, column.type) else column.type
        if column.type in FLOAT_TYPES:
            kind = _FLOATS_THERE.get(there, column.type)
        # Bits are written like any number, and only a BIT takes a text for something else.
        is_number = column.type == "BIT" and there != "bit"
        wire = WireKind.TEXT if is_number else wire_kind(column, self.upstream.protocol)
        return WireColumn(name=column.name, kind=wire, type=kind)

    def _misfit(self, layout: RowLayout) -> str:
        """Return why rows of this layout do not fit the target's table, or an empty text."""
        carried, protocol = layout.places.keys(), self.upstream.protocol
        needed = {name for name, column in self.there.items() if not column.generated}
        lacking = sorted(carried - self.there.keys())
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
        # `_wire` knows how bits are taken.
        kinds = {
            folded_name(c.name): wire_kind(c, protocol) for c in layout.columns if c.type != "BIT"
        }
        if other := sorted(
            c.name for c in self.written if kinds.get(folded_name(c.name), c.kind) is not c.kind
        ):
            return f"the rows hold another type of value than the current structure: {', '.join(other)}"
        return other_families(layout, self.target, self.become_texts) or other_members(
            layout, self.target, protocol
        )

    def _key_columns(self) -> list[tuple[str, int | None]]:
        """Return the columns that tell rows apart: primary or NOT NULL unique key, else none.

        Raises `NotReplicable` if the schema file's primary key is not the target's: writing by key
        would hit wrong rows.
        """
        newest, carried = self.step.current, self.layout.places.keys()
        declared = {folded_name(c.name) for c in newest.columns if c.is_pk}
        computed = {name for name, column in self.there.items() if column.generated} - carried
        keys = [set(map(folded_name, unique.columns)) for unique in self.target.unique_keys]
        is_of_key = declared not in keys and any(
            key & computed and key - computed == declared for key in keys
        )
        # Where the target computes a part of the source's primary key that the rows of a copy lack,
        # another key tells such rows apart, or none does. MariaDB has such a primary key as a
        # unique one.
        computed = computed if self.step.as_of and is_of_key else set()
        # Of a key that the target computes in part, the rows' structure has what is left.
        declared = set() if computed else declared
        certain = {folded_name(c.name) for c in newest.columns if not c.nullable or c.is_pk}
        # The target refuses a NULL in such a column, so each row that reaches it has a value.
        certain |= {name for name, column in self.there.items() if not column.nullable}
        # A declared key must match exactly. Without one, a primary key in the target is an error, a
        # not-null key will do.
        for unique, columns in zip(self.target.unique_keys, keys, strict=True):
            if not computed.isdisjoint(columns) or (declared and columns != declared):
                continue
            if not declared and unique.name == "PRIMARY":
                raise NotReplicable(
                    f"{newest.name}: the target's table has the primary key ({', '.join(unique.columns)}), but the "
                    "source has none"
                )
            # Only a key whose columns are in every row and never NULL identifies rows.
            if columns <= certain & carried:
                return list(zip(unique.columns, unique.prefixes, strict=True))
        if declared:
            raise NotReplicable(
                f"{newest.name}: the target's table has no unique key over the primary key ({', '.join(sorted(declared))})"
            )
        return []

    def _key_part(self, column: TableColumn, prefix: int | None) -> KeyPart:
        """Return one column of the key, and when two texts of it are one key in the target."""
        name = folded_name(column.name)
        there = self.there[name]
        form, is_lasting = lasting_form(column, there, self.upstream.protocol)
        fold = Fold.EXACT
        if column.type in FLOAT_TYPES:
            # Once every text is spelled in one form, equal numbers are equal texts.
            fold = Fold.EXACT if self.forms[name].spellings else Fold.NUMBER
        elif not there.binary_collation:
            fold = Fold.LOOSE
        elif there.pads:
            # A prefix that may end in ignored spaces is not imitated: there only an image decides.
            fold = Fold.PAD if prefix is None else Fold.LOOSE
        return KeyPart(
            column=self._wire(column),
            fold=fold,
            prefix=prefix,
            beyond_bmp=there.beyond_bmp,
            form=form,
            is_lasting=is_lasting,
        )

    def version(self, version: VersionKey) -> VersionPlan:
        """Return the plan for one version directory."""
        definition, current = self.step.definitions[version], self.step.current
        layout = self.layout if definition is current else self._layout(definition)
        places, keys = layout.places, [folded_name(part.column.name) for part in self.key]
        # The current structure is judged already, and raised an error.
        misfit = "" if definition is current else self._misfit(layout)
        if keyless := sorted(
            p.column.name for p, key in zip(self.key, keys, strict=True) if key not in places
        ):
            misfit = misfit or f"the rows do not carry columns of the key: {', '.join(keyless)}"
        # All others are in `_misfit`. What rows in the commit range would have to show is compared
        # with what the target computes.
        if uncompared := sorted(c.name for c in self.written if folded_name(c.name) not in places):
            lacks = f"the rows do not carry columns that the target's table computes: {', '.join(uncompared)}"
            misfit = misfit or lacks
        misfit = misfit or next(
            filter(None, (self.forms[key].unknown.get(version, "") for key in keys)), ""
        )
        later = [
            each
            for each in self.step.definitions.values()
            if each.version > definition.version and not each.is_ddl
        ]
        # Nothing of a misfit is written; its first row inside the commit range halts the table.
        taken = () if misfit else tuple(places[folded_name(c.name)] for c in self.written)
        telling = () if misfit else tuple(places[key] for key in keys)
        # Where the columns of each unique key are in a row, except for keys over prefixes or over
        # columns not in the row.
        nullable = [
            [*map(folded_name, each.columns)]
            for each in self.target.unique_keys
            if not (keys or any(each.prefixes))
        ]
        unique = tuple(
            tuple(places[name] for name in key)
            for key in nullable
            if not misfit and places.keys() >= {*key}
        )
        spelled = {
            name: found
            for name, form in self.forms.items()
            if (found := form.spellings.get(version))
        }
        return VersionPlan(
            layout=replace(
                layout,
                spelled=tuple(spelled.get(name) for name in places) if spelled else (),
                telling=frozenset(chain(telling, *unique)),
            ),
            low=_low(definition, self.step.commit_range),
            written=taken,
            key=telling,
            unique=unique,
            limits=(*limits(layout, taken, self.target), *narrowed(layout, later)),
            misfit=misfit,
        )


def altered(definition: TableDefinition, target: TargetTable, upstream: Upstream) -> str:
    """Return columns that the target lacks or holds in less room, so values may be lost; or ""."""
    if target.is_planned:
        return ""
    layout, there = row_layout(definition, target.virtual, upstream), by_name(target.columns)
    left_out = layout.unselected | {*hidden_columns(layout.columns)}
    pairs = [
        (c, there.get(name))
        for c in layout.columns
        if (name := folded_name(c.name)) not in left_out
    ]
    found = [f"lacks the column {column.name}" for column, own in pairs if own is None]
    found += [
        f"has less room in {column.name} than the source"
        for column, own in pairs
        if own and is_lossy(column, own)
    ]
    other = "" if found or left_out else other_families(layout, target)
    return " and ".join(found) or (f"is another one: {other}" if other else "")
