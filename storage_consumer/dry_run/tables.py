"""What a table of the target is after a statement that has not run: its columns by the schema file, its keys by the text. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from storage_consumer.dry_run.indexes import Indexes, indexes_after, name_behind, renamed_columns
from storage_consumer.dry_run.partitions import Partitions, partitions_after
from storage_consumer.inspection.virtual_columns import virtual_columns
from storage_consumer.job.target_table import TargetColumn, TargetTable, UniqueKey
from storage_consumer.model import TableColumn, TableDefinition, TableName, folded_name
from storage_consumer.sql.column_parts import NAMES
from storage_consumer.sql.tokens import Token, find_words, has_words, tokens

_HIDDEN = "_V$_"
_LENGTHS = {
    **dict.fromkeys(("tinytext", "tinyblob"), 255),
    **dict.fromkeys(("text", "blob"), 65_535),
    **dict.fromkeys(("mediumtext", "mediumblob"), 16_777_215),
    **dict.fromkeys(("longtext", "longblob"), 4_294_967_295),
}
_TYPES = {"var_string": "varchar", "integer": "int"}
_MOMENTS = frozenset(("datetime", "timestamp", "time"))
_WHOLE = frozenset(("tinyint", "smallint", "mediumint", "int", "bigint"))
_NO_COLUMNS = frozenset(
    ("INDEX", "KEY", "PRIMARY", "FOREIGN", "CONSTRAINT", "CHECK", "PARTITION", "STATISTICS", "STATS_EXTENDED")
)
"""What else DROP may be about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTable:
    """A table as it is after planned statements."""

    table: TargetTable
    indexes: Mapping[str, UniqueKey | None] = field(default_factory=dict)
    """See `indexes.Indexes`."""
    unsure: frozenset[str] = frozenset()
    """Folded names of indexes that may be there or not."""
    foreign_keys: frozenset[str] = frozenset()
    """Their folded names."""
    has_unnamed: bool = False
    """Whether it has indexes or foreign keys whose names the server chose, so that nobody knows them."""
    partitions: Partitions = frozenset()
    is_scattered: bool = False
    """Whether its partitions hold other rows than those of the same names at the source; see `PartNames.scattered`."""

    def called(self, name: TableName) -> PlannedTable:
        """Return the same under another name."""
        return replace(self, table=replace(self.table, name=name))


def created(name: TableName, definition: TableDefinition, statement: str, like: PlannedTable | None) -> PlannedTable:
    """Return what a CREATE TABLE makes; `like`: the table that it copies, if it does."""
    empty = PlannedTable(table=TargetTable(name=name, columns=(), unique_keys=()))
    return changed(empty if like is None else like.called(name), definition, statement)


def changed(before: PlannedTable, definition: TableDefinition, statement: str) -> PlannedTable:
    """Return what a statement makes of a table; `definition` has the columns after it."""
    found = tokens(statement)
    indexes = indexes_after(statement, before.table.name.table, before.indexes)
    declared = tuple(column.name for column in definition.columns if column.is_pk)
    # The schema file is sure of it, the text may say it in several ways.
    if declared and "primary" not in indexes:
        indexes["primary"] = UniqueKey(name="PRIMARY", columns=declared, prefixes=(None,) * len(declared))
    columns = _columns(before.table, definition, statement, renamed_columns(found)) or before.table.columns
    names = {folded_name(column.name) for column in columns}
    keys = [key for key in indexes.values() if key is not None and all(folded_name(c) in names for c in key.columns)]
    # A key over a column that is gone is gone, or is another one.
    kept = {name: key for name, key in indexes.items() if key is None or key in keys}
    keys.sort(key=lambda key: (key.name != "PRIMARY", folded_name(key.name)))
    foreign = _foreign_keys(found)
    return PlannedTable(
        table=replace(before.table, columns=columns, unique_keys=tuple(keys), key_drift=""),
        indexes=kept,
        unsure=before.unsure | _unsure(indexes, kept, before.table.columns, names),
        foreign_keys=before.foreign_keys | foreign - {""},
        has_unnamed=before.has_unnamed or "" in kept or "" in foreign,
        partitions=partitions_after(found, before.partitions),
        is_scattered=_is_scattered(found, before=before.is_scattered),
    )


def dropped_column(action: Sequence[Token]) -> str:
    """Return the column that an action of an ALTER TABLE drops; empty for none."""
    if not has_words(action[:1], "DROP"):
        return ""
    at = 1 + has_words(action[1:2], "COLUMN")
    named = action[at : at + 1]
    is_other = at == 1 and any(token.upper in _NO_COLUMNS for token in named)
    return name_behind(action, at - 1) if named and named[0].kind in NAMES and not is_other else ""


def _foreign_keys(found: Sequence[Token]) -> frozenset[str]:
    """Return the folded names of the foreign keys that a statement defines, "" among them if one has no name."""
    names = set()
    for at, token in enumerate(found):
        if token.upper == "FOREIGN" and not has_words(found[max(at - 1, 0) : at], "DROP"):
            is_named = at > 1 and found[at - 2].upper == "CONSTRAINT"
            names.add(folded_name(found[at - 1].name) if is_named else "")
    return frozenset(names)


def _unsure(indexes: Indexes, kept: Indexes, before: Sequence[TargetColumn], names: Collection[str]) -> frozenset[str]:
    """Return the indexes that may have gone with a column, `names` being those of the columns that are there now."""
    if all(folded_name(column.name) in names for column in before):
        return frozenset()
    return frozenset(name for name, key in indexes.items() if key is None or name not in kept)


def _is_scattered(found: Sequence[Token], *, before: bool) -> bool:
    """Return whether a table is partitioned by KEY or by a linear method after a statement."""
    at = find_words(found, "PARTITION", "BY")
    if at < 0:
        return before and not has_words(found, "REMOVE", "PARTITIONING")
    return found[at + 2].upper in ("KEY", "LINEAR") if at + 2 < len(found) else before


def _columns(
    before: TargetTable, definition: TableDefinition, statement: str, renamed: Mapping[str, str]
) -> tuple[TargetColumn, ...]:
    former = {folded_name(renamed.get(folded_name(c.name), c.name)): c for c in before.columns}
    virtual = virtual_columns(statement)
    mentioned = {folded_name(token.name) for token in tokens(statement) if token.kind in ("quoted", "word")}
    columns = []
    for column in definition.columns:
        name = folded_name(column.name)
        # They belong to TiDB's expression indexes, and no other server has them.
        if column.name.startswith(_HIDDEN):
            continue
        old = former.pop(name, None)
        # A statement that does not name a column leaves it as it was, be it missing.
        if name not in mentioned and before.columns:
            columns += [] if old is None else [old]
        else:
            generated = "VIRTUAL" if name in virtual else old.generated if old else ""
            columns.append(_column(column, generated))
    # Only the target has the others, unless the statement drops them.
    return (*columns, *(old for name, old in former.items() if name not in mentioned)) if columns else ()


def _column(column: TableColumn, generated: str) -> TargetColumn:
    """Return a column as the target's information_schema is going to show it."""
    data_type = _TYPES.get(column.type.lower(), column.type.lower())
    members = ",".join("'" + member.replace("'", "''") + "'" for member in column.elements)
    return TargetColumn(
        name=column.name,
        data_type=data_type,
        nullable=column.nullable and not column.is_pk,
        generated=generated,
        digits=_digits(data_type, column),
        length=_LENGTHS.get(data_type, column.precision if data_type.endswith(("char", "binary")) else None),
        column_type=f"{data_type}({members})" if column.elements else data_type,
    )


def _digits(data_type: str, column: TableColumn) -> int | None:
    if data_type in _WHOLE:
        return 0
    return (column.scale or 0) if data_type in _MOMENTS or data_type == "decimal" else None
