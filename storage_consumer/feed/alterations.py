"""What statements made of a table, and whether SQL that was written for its rows before still means the same after them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from storage_consumer.feed.defaults import default_in
from storage_consumer.feed.moves import effect
from storage_consumer.feed.origins import TEXTS, has_known_default, keeps_values
from storage_consumer.inspection.column_history import stored_columns, virtual_columns
from storage_consumer.model import TableColumn, TableDefinition, TableName, folded_name
from storage_consumer.sql.parse import parsed
from storage_consumer.sql.statement import Column, Statement, column_at, statement_of
from storage_consumer.sql.tokens import Token, has_words
from storage_consumer.telemetry import tso_time

_Columns = Sequence[TableColumn]
_INDEXES = frozenset(("INDEX", "UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR", "COLUMNAR", "HYBRID"))
_PARTS = frozenset(("INDEX", "KEY", "FOREIGN", "CONSTRAINT", "CHECK", "STATS_EXTENDED"))
_HARMLESS = {
    "ADD": _PARTS | _INDEXES | {"PARTITION"},
    "DROP": _PARTS,
    "RENAME": frozenset(("INDEX", "KEY")),
    "ALTER": frozenset(("INDEX", "CHECK", "CONSTRAINT")),
    "REORGANIZE": frozenset(("PARTITION",)),
    "SET": frozenset(("TIFLASH",)),
}
"""First word of an action → second words of those that change neither rows nor columns. A row that they forbid is an error, not another row."""
_OPTIONS = frozenset(
    (
        *("COMMENT", "AUTO_INCREMENT", "AUTO_RANDOM_BASE", "AUTO_ID_CACHE", "SHARD_ROW_ID_BITS"),
        *("ALGORITHM", "LOCK", "CACHE", "NOCACHE"),
    )
)
_OPTION_SIZE = 3
"""Tokens of an option with its value."""
_CHARSETS = frozenset(("CHARACTER", "CHARSET", "COLLATE"))
_UNKNOWN = "may have changed the table or its rows"


class Alteration(NamedTuple):
    """What a statement did to a table."""

    definition: TableDefinition
    harm: str
    """What it did so that statements on older rows would mean something else, in words; empty: nothing."""

    @property
    def shown(self) -> str:
        """The statement in short, with its version."""
        query, version = self.definition.query.strip(), self.definition.version
        return f"{query[:200]!r} (version {version}, {tso_time(version)})"


def alterations(name: TableName, low: int, known: Sequence[TableDefinition]) -> Iterator[Alteration]:
    """Yield what became of a table behind `low` (exclusive), in order. `known`: all definitions, in running order."""
    table = _Table(name.folded())
    for definition in known:
        if parsed(definition).subject.folded() != table.name and not effect(definition, table.name):
            continue
        if definition.version > low:
            harm = table.harm(definition)
            # A structure alone, as it was, is no statement.
            if harm or definition.is_ddl:
                yield Alteration(definition, harm)
        table.take(definition)


@dataclass(slots=True)
class _Table:
    """A table as its statements come."""

    name: TableName
    """Folded."""
    columns: _Columns = ()
    """Those before the next statement; empty: not known."""
    added: set[str] = field(default_factory=set)
    """Folded names of columns that were added where somebody looked."""

    def take(self, definition: TableDefinition) -> None:
        """Note the structure that a statement led to."""
        self.columns = definition.columns or self.columns

    def harm(self, definition: TableDefinition) -> str:
        """Return what a statement did so that SQL on older rows would mean something else, in words; empty: nothing."""
        if moved := effect(definition, self.name):
            return moved
        if not definition.is_ddl:
            return self._of_structure(definition)
        return self._of_statement(definition)

    def _of_statement(self, definition: TableDefinition) -> str:
        """Return the harm of a statement that neither moves rows nor names."""
        ddl = parsed(definition)
        if ddl.creates_table:
            return "made the table"
        statement = statement_of(definition.query.strip().removesuffix(";"))
        if statement.head[:1] in (("CREATE",), ("DROP",)) and has_words(statement.tokens[:3], "INDEX"):
            return ""
        if statement.head != ("ALTER", "TABLE"):
            return _UNKNOWN
        harm = self._of_columns(definition, statement)
        return harm or next((why for part in statement.elements if (why := self._of_action(part))), "")

    def _of_structure(self, definition: TableDefinition) -> str:
        """Return the harm of a file that shows a structure alone."""
        before, after = ({_looks(column) for column in each} for each in (self.columns, definition.columns))
        is_same = not before or not after or before == after
        return "" if is_same else "shows another structure, and no statement says how it came about"

    def _of_columns(self, definition: TableDefinition, statement: Statement) -> str:
        """Return the harm that shows in the columns before and after a statement."""
        if not definition.columns or not self.columns:
            # What a statement on columns did is not known then.
            return _UNKNOWN if any(map(_is_on_columns, statement.elements)) else ""
        before, after = ({folded_name(each.name): each for each in them} for them in (self.columns, definition.columns))
        for new, old in statement.renamed.items():
            if old in before:
                return f"gave column {before[old].name} the name {after[new].name if new in after else new}"
        if gone := [column.name for name, column in before.items() if name not in after]:
            return f"dropped column {', '.join(gone)}"
        if _key(self.columns) != _key(definition.columns):
            return "changed the primary key"
        parts = {folded_name(column.name): column for column in statement.columns}
        judged = (
            _changed(before[name], column, parts.get(name))
            if name in before
            else self._added(column, definition, parts.get(name))
            for name, column in after.items()
        )
        return next(filter(None, judged), "")

    def _added(self, column: TableColumn, definition: TableDefinition, part: Column | None) -> str:
        """Return what is wrong with a new column, which statements on older rows give no value."""
        name = folded_name(column.name)
        self.added.add(name)
        if not _key(self.columns):
            return f"added column {column.name} to a table without a primary key, whose rows are found by all of their columns"
        if name in virtual_columns(definition.query) | stored_columns(definition.query):
            return ""
        if part is not None and has_words(part.tokens, "ON", "UPDATE", depth=part.tokens[0].depth):
            return f"added column {column.name}, which any update of a row sets"
        is_without = column.default is None and default_in(definition.query, name).kind in ("none", "unseen")
        if not column.nullable and is_without:
            return f"added column {column.name}, which is NOT NULL and has no default"
        if not has_known_default(column, definition):
            return f"added column {column.name}, whose default may be another one for each row"
        return ""

    def _of_action(self, part: Sequence[Token]) -> str:
        """Return the harm of one action of ALTER TABLE, beyond that which shows in the columns."""
        first, second = ([token.upper for token in part[:2]] + ["", ""])[:2]
        if _is_on_columns(part):
            name = part[column_at(part)].name if column_at(part) > 0 else ""
            is_later = first != "ADD" and folded_name(name) in self.added
            return f"changed column {name}, which was added before" if is_later else ""
        is_option = first in _OPTIONS and len(part) <= _OPTION_SIZE
        return "" if is_option or second in _HARMLESS.get(first, ()) else _UNKNOWN


def _is_on_columns(part: Sequence[Token]) -> bool:
    words = [token.upper for token in part[:3]]
    if words[:1] in (["DROP"], ["RENAME"]):
        return words[1:2] == ["COLUMN"] or (words[0] == "DROP" and words[1:2] != ["PRIMARY"] and words[1] not in _PARTS)
    return column_at(part) > 0 or (words[:1] == ["ADD"] and "(" in words[1:3])


def _looks(column: TableColumn) -> tuple[object, ...]:
    return folded_name(column.name), column.type, column.unsigned, column.scale, column.nullable, column.is_pk


def _key(columns: _Columns) -> list[str]:
    return [folded_name(column.name) for column in columns if column.is_pk]


def _changed(before: TableColumn, after: TableColumn, part: Column | None) -> str:
    """Return what became of a column that stays. `part`: its new definition in the statement; None: it has none."""
    if part is None:
        return "" if _looks(before) == _looks(after) else f"changed column {after.name}"
    if not keeps_values(before, after):
        return f"gave column {after.name} another type"
    if before.nullable and not after.nullable:
        return f"made column {after.name} NOT NULL"
    words = {token.upper for token in part.tokens}
    if words & _CHARSETS or (after.is_pk and after.type in TEXTS):
        return f"may have given column {after.name} another collation"
    return f"made column {after.name} a generated one" if part.generated[0] > 0 else ""
