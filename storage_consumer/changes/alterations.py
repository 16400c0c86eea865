"""What statements made of a table and its rows, as far as their texts tell.

Which took rows away or brought others without a change of any row; what became of one table up to a
commit-ts, and where each of its columns came from; and whether SQL that was written for its rows
before still means the same after them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Literal, NamedTuple

from storage_consumer.bucket.table_statements import generated_columns, string_value
from storage_consumer.errors import NotReplicable
from storage_consumer.model import (
    DdlKind,
    ParsedDdl,
    TableColumn,
    TableDefinition,
    TableName,
    folded_name,
)
from storage_consumer.sql.parse import parsed
from storage_consumer.sql.statement import Column, Statement, column_at, statement_of
from storage_consumer.sql.tokens import Token, closing, has_words, tokens
from storage_consumer.telemetry import tso_time

_DROPS = frozenset((DdlKind.DROP_TABLE, DdlKind.DROP_VIEW))
_OF_PARTITIONS = frozenset(
    (DdlKind.DROP_PARTITION, DdlKind.TRUNCATE_PARTITION, DdlKind.EXCHANGE_PARTITION)
)
_TOOK: dict[int, str] = {
    DdlKind.TRUNCATE_TABLE: "took all rows away",
    DdlKind.DROP_TABLE: "dropped the table",
    DdlKind.DROP_VIEW: "dropped the table",
}
_BACK = frozenset((("RECOVER",), ("FLASHBACK",)))


class Move(NamedTuple):
    """What such a statement did to a table."""

    version: int
    what: str
    """The statement, and what it did, in words."""


def moves(name: TableName, low: int, high: int, known: Sequence[TableDefinition]) -> Iterator[Move]:
    """Yield a table's moves with ``low < version <= high``, in order.

    `known`: all definitions, sorted by version.
    """
    first = bisect_right(known, low, key=lambda each: each.version)
    for place in takewhile(lambda place: known[place].version <= high, range(first, len(known))):
        definition = known[place]
        if definition.is_ddl and (what := effect(definition, name.folded())):
            yield Move(definition.version, f"{_in_short(definition)} {what}")


def effect(definition: TableDefinition, name: TableName) -> str:
    """Return what a statement did to the rows of a table (folded name); empty if it moved none."""
    ddl, own = parsed(definition), definition.name.folded()
    if not own.table:
        is_drop = ddl.head[:1] == ("DROP",)
        did = (
            "dropped the table with its database"
            if is_drop
            else "brought back rows"
            if brings_back(ddl)
            else ""
        )
        return did if own.schema == name.schema else ""
    if ddl.rename is not None:
        old, new = ddl.rename.folded
        if ddl.rename.from_anywhere and old.table == name.table and new != name:
            return "may have given the table another name: it does not say which database's table it renames"
        if name == old and name != new:
            return f"gave the table the name {ddl.rename.new}"
        is_moved = old != new or ddl.rename.from_anywhere
        return "gave another table's rows this name" if name == new and is_moved else ""
    if ddl.exchanges_partition:
        return "put other rows in the place of the table's" if name in ddl.touched else ""
    if ddl.subject.folded() != name:
        return ""
    if took := _TOOK.get(definition.ddl_type):
        return took
    if brings_back(ddl):
        return "brought back rows"
    return "took rows away" if is_of_partitions(definition) else ""


def brings_back(ddl: ParsedDdl) -> bool:
    """Return whether a statement brings back past rows without a row change in the files."""
    return ddl.head[:1] in _BACK


def is_of_partitions(definition: TableDefinition) -> bool:
    """Return whether a statement removes or replaces partitions' rows without row changes.

    The files then hold no change of any such row.
    """
    if definition.ddl_type in _OF_PARTITIONS or parsed(definition).exchanges_partition:
        return True
    return bool(statement_of(definition.query).find("{DROP|TRUNCATE} PARTITION", depth=0))


_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w.$])")
_PREFIXED = frozenset(("N", "X", "B"))
"""What may stand right before the quote of a literal."""
_PLAIN_CHARSETS = frozenset(("_UTF8", "_UTF8MB3", "_UTF8MB4"))


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenDefault:
    """The default of one column in a statement."""

    kind: Literal["none", "string", "number", "literal", "expression", "unseen"]
    """``none``: there is none, or NULL. ``literal``: one of another form, such as 0x41 or TRUE.
    ``expression``: each row may have its own value. ``unseen``: the statement does not define the
    column.
    """
    text: str | None = None
    """Of a string or number."""


def default_in(query: str, name: str) -> GivenDefault:
    """Return the default that a statement gives a column. `name`: folded."""
    for column in statement_of(query).columns:
        if folded_name(column.name) == name and column.verb in ("", "ADD"):
            given = column.defaults()
            return (
                _literal(query, column.tokens[given[0] :], is_whole=False)
                if given
                else GivenDefault(kind="none")
            )
    return GivenDefault(kind="unseen")


def _literal(query: str, part: Sequence[Token], *, is_whole: bool) -> GivenDefault:
    """Return what a text begins with; `is_whole`: what follows makes it an expression."""
    begin = 1 if part and part[0].text.startswith("_") else 0
    rest = part[begin:]
    if not rest:
        return GivenDefault(kind="unseen")
    first = rest[0]
    if first.text == "(":
        end = closing(rest, 0)
        return _literal(query, rest[1:end], is_whole=True)
    if first.kind == "string":
        is_plain = first.text.startswith("'") and (not begin or part[0].upper in _PLAIN_CHARSETS)
        strings = sum(1 for each in rest[:2] if each.kind == "string")
        if is_whole and any(each.kind != "string" for each in rest):
            return GivenDefault(kind="expression")
        return (
            GivenDefault(kind="string", text=string_value(first.text))
            if is_plain and strings == 1
            else GivenDefault(kind="literal")
        )
    if number := _NUMBER.match(query, first.start):
        is_rest = is_whole and number.end() != rest[-1].end
        return (
            GivenDefault(kind="expression")
            if is_rest
            else GivenDefault(kind="number", text=number[0])
        )
    # A word, or a symbol.
    is_prefix = (
        first.upper in _PREFIXED
        and len(rest) > 1
        and rest[1].kind == "string"
        and rest[1].start == first.end
    )
    if is_whole and len(rest) > 1 + is_prefix:
        return GivenDefault(kind="expression")
    if first.upper == "NULL":
        return GivenDefault(kind="none")
    is_literal = first.text[:1].isdigit() or first.upper in ("TRUE", "FALSE") or is_prefix
    # A sign apart from its number, say, is no expression outside of parentheses.
    return GivenDefault(kind="literal" if is_literal or first.kind != "word" else "expression")


TEXTS = frozenset(("CHAR", "VARCHAR", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT"))
_WHOLE = ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT")
_NUMBERS = frozenset((*_WHOLE, "DECIMAL", "FLOAT", "DOUBLE"))
_TIMES = frozenset(("DATE", "DATETIME", "TIMESTAMP"))
_FIXED = frozenset(("TIME", "BINARY", "BIT", "FLOAT", "DOUBLE"))
"""Types whose values are others under another length."""
_LISTED = frozenset(("ENUM", "SET"))
_TOLD = frozenset(("none", "string", "number"))
"""Kinds of defaults whose value a statement alone tells."""
_CHANGING = frozenset(("MODIFY", "CHANGE"))
"""Every statement that may rewrite values has one of these words."""
_GROWING = (
    _WHOLE,
    ("VARCHAR", "TEXT", "MEDIUMTEXT", "LONGTEXT"),
    ("TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT"),
    ("TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"),
)
"""Types of which each holds all values of those before it, as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a column's values come from in rows of an older structure."""

    name: str | None
    """The column's folded name there; None: it was added later."""
    default: str | None = None
    """What it was added with, as the schema file has it; None: NULL."""
    unknown: str = ""
    """Why the values are not known; empty: they are."""


def origins(
    columns: Sequence[TableColumn], steps: Sequence[TableDefinition], wanted: Sequence[str]
) -> dict[str, Origin]:
    """Return where wanted columns, by folded name, come from in rows with structure `columns`.

    Some steps lie between both.

    `steps`: what came after that structure, in order. A column that they do not lead to is left
    out. Raises `NotReplicable` for a statement that may have rewritten values of such a column, or
    added it with values that the files do not have.
    """
    found = {folded_name(column.name): Origin(name=folded_name(column.name)) for column in columns}
    before = {folded_name(column.name): column for column in columns}
    for step in steps:
        # A statement on the table alone may come without its columns.
        if not step.columns:
            continue
        renamed, virtual = (
            statement_of(step.query).renamed,
            generated_columns(step.query, stored=False),
        )
        may_rewrite = bool(_CHANGING & {token.upper for token in tokens(step.query)})
        after = {folded_name(column.name): column for column in step.columns}
        carried: dict[str, Origin] = {}
        for name, column in after.items():
            former = renamed.get(name, name)
            if former not in before and name in before:
                # An export may show the new name already.
                former = name
            if former in before and former in found:
                why = (
                    f"{step.name}: {_shown(step)} may have rewritten the values of column {column.name}, and the files do not have the new ones. "
                    "Leave the column out with columns, read the table as of before the statement, or give a later export as base"
                    if may_rewrite and not keeps_values(before[former], column)
                    else ""
                )
                carried[name] = replace(found[former], unknown=found[former].unknown or why)
            elif name not in virtual and former not in before:
                carried[name] = _added_with(column, step)
        found, before = carried, after
    chosen = {name: found[name] for name in wanted if name in found}
    for origin in chosen.values():
        if origin.unknown:
            raise NotReplicable(origin.unknown)
    return chosen


def _shown(step: TableDefinition) -> str:
    return f"{step.query.strip()[:200]!r} at {step.version}"


def keeps_values(before: TableColumn, after: TableColumn) -> bool:
    """Return whether a column surely holds all its possible values as before a statement."""
    # Negative numbers would be others, and TiDB makes others of those beyond the signed ones,
    # however wide the new type is.
    if before.unsigned != after.unsigned:
        return False
    if before.type != after.type:
        for kinds in _GROWING:
            if before.type in kinds and after.type in kinds:
                return kinds.index(before.type) <= kinds.index(after.type)
        return (before.type, after.type) == ("CHAR", "VARCHAR") and (before.precision or 0) <= (
            after.precision or 0
        )
    if before.type in _LISTED:
        return (
            bool(after.elements) and after.elements[: len(before.elements)] == before.elements != ()
        )
    if before.type == "DECIMAL":
        digits = [(each.precision or 10) - (each.scale or 0) for each in (before, after)]
        return digits[0] <= digits[1] and (before.scale or 0) <= (after.scale or 0)
    if before.type in _TIMES:
        return (before.scale or 0) <= (after.scale or 0)
    if before.type in _FIXED:
        return (before.precision, before.scale) == (after.precision, after.scale)
    # A whole number's is how wide it is shown, and a text's how long it may be.
    return before.type in _WHOLE or (before.precision or 0) <= (
        after.precision or before.precision or 0
    )


def _added_with(column: TableColumn, step: TableDefinition) -> Origin:
    """Return what a column was added with."""
    given = default_in(step.query, folded_name(column.name))
    # TiCDC up to 6.5.2 writes no defaults into schema files; the statement has them.
    text = given.text if column.default is None else column.default
    if text is None and column.nullable and given.kind == "none":
        return Origin(name=None)
    implicit = (
        "0"
        if column.type in _NUMBERS
        else ""
        if column.type in TEXTS and given.kind == "none"
        else None
    )
    value = implicit if text is None else text
    # An expression is a default that each row has for itself; a schema file does not tell it from a
    # text.
    is_known = given.kind != "expression" if column.default is not None else given.kind in _TOLD
    kind = given.kind if column.default is None else "string"
    if value is not None and is_known and _is_constant(column, value, kind):
        # TiDB keeps texts of CHAR without blanks at their end.
        return Origin(name=None, default=value.rstrip(" ") if column.type == "CHAR" else value)
    why = (
        f"{step.name}: {_shown(step)} gave the rows a value of column {column.name} that the files do not have (default {text!r}). Leave the column "
        "out with columns, or give a later export as base"
    )
    return Origin(name=None, unknown=why)


def _is_constant(column: TableColumn, value: str, kind: str) -> bool:
    """Return whether a default is surely what rows have, in the form in which they are read.

    `kind`: of the literal in the statement that it was taken from.
    """
    if column.type in _NUMBERS:
        scale = column.scale or 0
        if column.type in _WHOLE:
            return re.fullmatch(r"-?\d+", value) is not None
        found = re.fullmatch(r"[-+]?\d+(?:\.(\d+))?([eE][-+]?\d+)?", value)
        if found is None:
            return False
        is_exact = not found[2] and len(found[1] or "") <= scale
        # Those of a schema file are rounded, except decimals.
        return is_exact or (
            column.type != "DECIMAL" and (column.default is not None or column.scale is None)
        )
    if column.type in _TIMES:
        found = re.fullmatch(r"\d{4}-\d{2}-\d{2}( \d{2}:\d{2}:\d{2}(?:\.(\d+))?)?", value)
        if found is None or (column.type == "DATE" and found[1]):
            return False
        # Without a default in the schema file a TIMESTAMP is one of the session's zone, which
        # nothing tells.
        is_told = column.type != "TIMESTAMP" or column.default is not None
        return is_told and len(found[2] or "") <= (column.scale or 0)
    # A number is shown by other rules as a text, and means the place of a member.
    if column.type in TEXTS:
        return kind != "number" or re.fullmatch(r"0|-?[1-9]\d*", value) is not None
    return column.type == "ENUM" and kind != "number" and value in column.elements


@dataclass(slots=True, kw_only=True)
class TableHistory:
    """A table from where it began, or from where the bucket first shows it."""

    begin: int | None
    """Commit-ts at which (inclusive) it was made, or emptied; None: the bucket does not show it."""
    steps: list[TableDefinition] = field(default_factory=list)
    """Its structures in order, with the statements that led to them."""
    broken: str = ""
    """Why rows cannot be followed through a statement; empty: they can."""
    broken_at: int = 0
    """The last such statement's version."""

    @property
    def last(self) -> TableDefinition:
        """Its structure in the end."""
        return next(step for step in reversed(self.steps) if step.columns)

    @property
    def names(self) -> tuple[TableName, ...]:
        """The names that it had, each once."""
        return tuple(dict.fromkeys(parsed(step).subject for step in self.steps))

    def name_at(self, commit_ts: int) -> TableName:
        """Return the name that it had at a commit-ts."""
        before = [step for step in self.steps if step.version <= commit_ts]
        if before:
            return parsed(before[-1]).subject
        rename = parsed(self.steps[0]).rename
        return parsed(self.steps[0]).subject if rename is None else rename.old

    def after(self, version: int) -> list[TableDefinition]:
        """Return the steps after a version."""
        return [step for step in self.steps if step.version > version]


def history_at(name: TableName, commit_ts: int, known: Sequence[TableDefinition]) -> TableHistory:
    """Return the table with a name at a commit-ts, after its statements.

    `known`: all definitions, in running order.

    Raises `NotReplicable` if there is none.
    """
    tables: dict[TableName, TableHistory] = {}
    for definition in known:
        if definition.version > commit_ts:
            break
        subject = parsed(definition).subject.folded()
        if not subject.table:
            if parsed(definition).head[:1] == ("DROP",):
                tables = {
                    name: table for name, table in tables.items() if name.schema != subject.schema
                }
        elif definition.ddl_type in _DROPS:
            tables.pop(subject, None)
        else:
            _add_step(definition, subject, tables)
    found = tables.get(name.folded())
    if found is None or not any(step.columns for step in found.steps):
        raise NotReplicable(f"{name}: the bucket shows no such table at commit-ts {commit_ts}")
    return found


def _add_step(
    definition: TableDefinition, subject: TableName, tables: dict[TableName, TableHistory]
) -> None:
    """Add a step to a table, which it may have made, emptied or renamed."""
    ddl, version = parsed(definition), definition.version
    if ddl.rename is not None and ddl.rename.from_anywhere:
        # Nothing tells in which database its old name was; see `with_databases`.
        old = ddl.rename.old.folded().table
        why = f"a statement does not say which database's table it renames ({_shown(definition)})"
        for name, table in tables.items():
            if name.table == old and name != subject:
                table.broken, table.broken_at = why, version
        tables[subject] = TableHistory(begin=None, broken=why, broken_at=version)
    elif ddl.renamed is not None and ddl.renamed[0] != ddl.renamed[1]:
        tables[subject] = tables.pop(ddl.renamed[0], TableHistory(begin=None))
    elif ddl.creates_table:
        tables[subject] = TableHistory(begin=version)
    table = tables.setdefault(subject, TableHistory(begin=None))
    if definition.ddl_type == DdlKind.TRUNCATE_TABLE:
        table.begin, table.broken = version, ""
    elif why := _loss(definition, table):
        table.broken, table.broken_at = f"{why} ({_shown(definition)})", version
    table.steps.append(definition)
    # The table that gives its rows for those of a partition has no file of the statement.
    others = ddl.touched - {subject} if ddl.exchanges_partition else ()
    for name in others:
        if name in tables:
            tables[name].broken, tables[name].broken_at = table.broken, version


def _loss(definition: TableDefinition, table: TableHistory) -> str:
    """Return why rows cannot be followed through a statement; empty if they can."""
    if brings_back(parsed(definition)):
        return "a statement brought back rows that the files do not have"
    if is_of_partitions(definition):
        return "a statement took away or put in rows that the files do not show"
    before = next((step for step in reversed(table.steps) if step.columns), None)
    if definition.is_ddl or before is None or not definition.columns:
        return ""
    then, now = (
        [(folded_name(c.name), c.type, c.unsigned, c.scale) for c in d.columns]
        for d in (before, definition)
    )
    return "" if then == now else "the structure changed and no statement shows how"


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
"""First word of an action → second words of those that change neither rows nor columns. A row that
they forbid is an error, not another row.
"""
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
    """What it did so that statements on older rows would mean something else, in words; empty:
    nothing.
    """

    @property
    def shown(self) -> str:
        """The statement in short, with its version."""
        return _in_short(self.definition)


def _in_short(definition: TableDefinition) -> str:
    return f"{definition.query.strip()[:200]!r} (version {definition.version}, {tso_time(definition.version)})"


def alterations(
    name: TableName, low: int, known: Sequence[TableDefinition]
) -> Iterator[Alteration]:
    """Yield what became of a table after `low` (exclusive), in order.

    `known`: all definitions, in running order.
    """
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
        """Return why SQL on older rows would mean something else after a statement; or empty."""
        if moved := effect(definition, self.name):
            return moved
        if not definition.is_ddl:
            before, after = (
                {_looks(column) for column in each} for each in (self.columns, definition.columns)
            )
            is_same = not before or not after or before == after
            return (
                ""
                if is_same
                else "shows another structure, and no statement says how it came about"
            )
        ddl = parsed(definition)
        if ddl.creates_table:
            return "made the table"
        statement = statement_of(definition.query.strip().removesuffix(";"))
        if statement.head[:1] in (("CREATE",), ("DROP",)) and has_words(
            statement.tokens[:3], "INDEX"
        ):
            return ""
        if statement.head != ("ALTER", "TABLE"):
            return _UNKNOWN
        if harm := self._of_columns(definition, statement):
            return harm
        # What else an action does does not show in the columns.
        for part in statement.elements:
            first, second = ([token.upper for token in part[:2]] + ["", ""])[:2]
            if _is_on_columns(part):
                name = part[column_at(part)].name if column_at(part) > 0 else ""
                if first != "ADD" and folded_name(name) in self.added:
                    return f"changed column {name}, which was added before"
            elif second not in _HARMLESS.get(first, ()) and (
                first not in _OPTIONS or len(part) > _OPTION_SIZE
            ):
                return _UNKNOWN
        return ""

    def _of_columns(self, definition: TableDefinition, statement: Statement) -> str:
        """Return the harm that shows in the columns before and after a statement."""
        if not definition.columns or not self.columns:
            # What a statement on columns did is not known then.
            return _UNKNOWN if any(map(_is_on_columns, statement.elements)) else ""
        before, after = (
            {folded_name(each.name): each for each in them}
            for them in (self.columns, definition.columns)
        )
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
        if name in generated_columns(definition.query):
            return ""
        if part is not None and has_words(part.tokens, "ON", "UPDATE", depth=part.tokens[0].depth):
            return f"added column {column.name}, which any update of a row sets"
        is_without = column.default is None and default_in(definition.query, name).kind in (
            "none",
            "unseen",
        )
        if not column.nullable and is_without:
            return f"added column {column.name}, which is NOT NULL and has no default"
        # Where rows have one value of it, NULL or a constant, its statement tells which.
        if _added_with(column, definition).unknown:
            return f"added column {column.name}, whose default may be another one for each row"
        return ""


def _is_on_columns(part: Sequence[Token]) -> bool:
    words = [token.upper for token in part[:3]]
    if words[:1] in (["DROP"], ["RENAME"]):
        return words[1:2] == ["COLUMN"] or (
            words[0] == "DROP" and words[1:2] != ["PRIMARY"] and words[1] not in _PARTS
        )
    return column_at(part) > 0 or (words[:1] == ["ADD"] and "(" in words[1:3])


def _looks(column: TableColumn) -> tuple[object, ...]:
    return (
        folded_name(column.name),
        column.type,
        column.unsigned,
        column.scale,
        column.nullable,
        column.is_pk,
    )


def _key(columns: _Columns) -> list[str]:
    return [folded_name(column.name) for column in columns if column.is_pk]


def _changed(before: TableColumn, after: TableColumn, part: Column | None) -> str:
    """Return what became of a column that stays; `part`: its new definition, or None."""
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
