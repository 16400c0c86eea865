"""Where the columns of a table come from, in rows that were written under an older structure of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from storage_consumer.errors import NotReplicable
from storage_consumer.feed.defaults import default_in
from storage_consumer.inspection.column_history import virtual_columns
from storage_consumer.model import TableColumn, TableDefinition, folded_name
from storage_consumer.sql.statement import statement_of
from storage_consumer.sql.tokens import tokens

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
    """Return for each wanted column after some steps, by folded name, where it comes from in rows with the structure `columns`.

    `steps`: what came after that structure, in order. A column that they do not lead to is left out. Raises `NotReplicable` for a statement that may have rewritten values of such a column,
    or added it with values that the files do not have.
    """
    found = {folded_name(column.name): Origin(name=folded_name(column.name)) for column in columns}
    before = {folded_name(column.name): column for column in columns}
    for step in steps:
        # A statement on the table alone may come without its columns.
        if not step.columns:
            continue
        renamed, virtual = statement_of(step.query).renamed, virtual_columns(step.query)
        after = {folded_name(column.name): column for column in step.columns}
        carried: dict[str, Origin] = {}
        for name, column in after.items():
            former = renamed.get(name, name)
            if former not in before and name in before:
                # An export may show the new name already.
                former = name
            if former in before and former in found:
                origin = found[former]
                carried[name] = replace(origin, unknown=origin.unknown or _rewritten(before[former], column, step))
            elif name not in virtual and former not in before:
                carried[name] = _added(column, step)
        found, before = carried, after
    chosen = {name: found[name] for name in wanted if name in found}
    for origin in chosen.values():
        if origin.unknown:
            raise NotReplicable(origin.unknown)
    return chosen


def _rewritten(before: TableColumn, after: TableColumn, step: TableDefinition) -> str:
    """Return why a column's values may be others after a statement; empty if they stay what they are."""
    if not _CHANGING & {token.upper for token in tokens(step.query)} or keeps_values(before, after):
        return ""
    return (
        f"{step.name}: {_shown(step)} may have rewritten the values of column {after.name}, and the files do not have the new ones. Leave the "
        "column out with columns, read the table as of before the statement, or give a later export as base"
    )


def _shown(step: TableDefinition) -> str:
    return f"{step.query.strip()[:200]!r} at {step.version}"


def keeps_values(before: TableColumn, after: TableColumn) -> bool:
    """Return whether a column certainly holds all values that it could hold before a statement, as they were."""
    if before.type != after.type or before.unsigned != after.unsigned:
        # Negative numbers would be others, and TiDB makes others of those beyond the signed ones, however wide the new type is.
        return before.unsigned == after.unsigned and _is_wider(before, after)
    if before.type in _LISTED:
        return bool(after.elements) and after.elements[: len(before.elements)] == before.elements != ()
    if before.type == "DECIMAL":
        digits = [(each.precision or 10) - (each.scale or 0) for each in (before, after)]
        return digits[0] <= digits[1] and (before.scale or 0) <= (after.scale or 0)
    if before.type in _TIMES:
        return (before.scale or 0) <= (after.scale or 0)
    if before.type in _FIXED:
        return (before.precision, before.scale) == (after.precision, after.scale)
    # A whole number's is how wide it is shown, and a text's how long it may be.
    return before.type in _WHOLE or (before.precision or 0) <= (after.precision or before.precision or 0)


def _is_wider(before: TableColumn, after: TableColumn) -> bool:
    for kinds in _GROWING:
        if before.type in kinds and after.type in kinds:
            return kinds.index(before.type) <= kinds.index(after.type)
    return (before.type, after.type) == ("CHAR", "VARCHAR") and (before.precision or 0) <= (after.precision or 0)


def has_known_default(column: TableColumn, step: TableDefinition) -> bool:
    """Return whether rows have one value of a new column, NULL or a constant, which its statement tells."""
    return not _added(column, step).unknown


def _added(column: TableColumn, step: TableDefinition) -> Origin:
    """Return what a column was added with."""
    given = default_in(step.query, folded_name(column.name))
    # TiCDC up to 6.5.2 writes no defaults into schema files; the statement has them.
    text = given.text if column.default is None else column.default
    if text is None and column.nullable and given.kind == "none":
        return Origin(name=None)
    implicit = "0" if column.type in _NUMBERS else "" if column.type in TEXTS and given.kind == "none" else None
    value = implicit if text is None else text
    # An expression is a default that each row has for itself; a schema file does not tell it from a text.
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
    """Return whether a default is certainly the value that rows have, in the form in which values are read.

    `kind`: of the literal in the statement that it was taken from.
    """
    if column.type in _NUMBERS:
        return _is_constant_number(column, value)
    if column.type in _TIMES:
        return _is_constant_time(column, value)
    # A number is shown by other rules as a text, and means the place of a member.
    if column.type in TEXTS:
        return kind != "number" or re.fullmatch(r"0|-?[1-9]\d*", value) is not None
    return column.type == "ENUM" and kind != "number" and value in column.elements


def _is_constant_number(column: TableColumn, value: str) -> bool:
    scale = column.scale or 0
    if column.type in _WHOLE:
        return re.fullmatch(r"-?\d+", value) is not None
    found = re.fullmatch(r"[-+]?\d+(?:\.(\d+))?([eE][-+]?\d+)?", value)
    if found is None:
        return False
    is_exact = not found[2] and len(found[1] or "") <= scale
    # Those of a schema file are rounded, except decimals.
    return is_exact or (column.type != "DECIMAL" and (column.default is not None or column.scale is None))


def _is_constant_time(column: TableColumn, value: str) -> bool:
    found = re.fullmatch(r"\d{4}-\d{2}-\d{2}( \d{2}:\d{2}:\d{2}(?:\.(\d+))?)?", value)
    if found is None or (column.type == "DATE" and found[1]):
        return False
    # Without a default in the schema file a TIMESTAMP is one of the session's zone, which nothing tells.
    is_told = column.type != "TIMESTAMP" or column.default is not None
    return is_told and len(found[2] or "") <= (column.scale or 0)
