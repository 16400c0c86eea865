"""The differences between two structures, in words. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from storage_consumer.model import TableColumn, TableDefinition
from storage_consumer.sql.tokens import has_words, tokens

_HIDDEN = "_V$_"
"""Prefix of the columns that TiDB adds for expression indexes."""


def changes(before: TableDefinition | None, after: TableDefinition) -> list[str]:
    """Return a line per column that was added, removed, renamed, changed or moved; `before` is None if there was no table."""
    new = _shown(after)
    if before is None:
        return [f"added {described(column)}" for column in new]
    old = _shown(before)
    names = _renames(old, new, after.query)
    was = {names.get(column.name, column.name): column for column in old}
    now = {column.name: column for column in new}
    lines = [f"renamed {old_name} to {new_name}" for old_name, new_name in names.items()]
    lines += [f"removed {described(column)}" for name, column in was.items() if name not in now]
    for place, column in enumerate(new):
        if column.name not in was:
            lines.append(f"added {described(column)} {_place(new, place)}")
        elif differences := _differences(was[column.name], column):
            lines.append(f"changed {column.name}: {', '.join(differences)}")
    kept_before = [name for name in was if name in now]
    kept = [column.name for column in new if column.name in was]
    lines += [
        f"moved {name} {_place(new, [column.name for column in new].index(name))}" for name in _moved(kept_before, kept)
    ]
    return lines


def described(column: TableColumn) -> str:
    """Return a column with everything that the schema file says of it."""
    parts = [column.name, _type(column)]
    if not column.nullable:
        parts.append("not null")
    if column.default is not None:
        parts.append(f"default {column.default!r}")
    if column.is_pk:
        parts.append("primary key")
    return " ".join(parts)


def _shown(definition: TableDefinition) -> list[TableColumn]:
    return [column for column in definition.columns if not column.name.startswith(_HIDDEN)]


def _type(column: TableColumn) -> str:
    text = column.type
    if column.elements:
        members = ", ".join(repr(member) for member in column.elements)
        text += f"({members})"
    elif column.precision is not None:
        text += f"({column.precision}{f',{column.scale}' if column.scale is not None else ''})"
    elif column.scale is not None:
        text += f"({column.scale})"
    return f"{text} UNSIGNED" if column.unsigned else text


def _differences(before: TableColumn, after: TableColumn) -> list[str]:
    """Return what changed in one column."""
    found = [f"{_type(before)} is {_type(after)}"] if _type(before) != _type(after) else []
    if before.nullable != after.nullable:
        found.append("may be null" if after.nullable else "not null")
    if before.default != after.default:
        found.append("no default" if after.default is None else f"default {after.default!r}")
    if before.is_pk != after.is_pk:
        found.append("in the primary key" if after.is_pk else "not in the primary key")
    return found


def _renames(old: Sequence[TableColumn], new: Sequence[TableColumn], query: str) -> dict[str, str]:
    """Return old name → new name, where a statement that renames left another name at the same position."""
    found = tokens(query)
    if len(old) != len(new) or not (has_words(found, "CHANGE") or has_words(found, "RENAME")):
        return {}
    before, after = {column.name for column in old}, {column.name for column in new}
    pairs = zip(old, new, strict=True)
    return {a.name: b.name for a, b in pairs if a.name not in after and b.name not in before}


def _moved(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """Return the fewest names whose moves turn one order into the other: those outside a longest common subsequence."""
    place = {name: number for number, name in enumerate(before)}
    numbers = [place[name] for name in after]
    # Patience sorting: `ends[k]` is the smallest last number of an increasing sequence of length k + 1.
    ends: list[int] = []
    lengths: list[int] = []
    for number in numbers:
        length = bisect_left(ends, number)
        ends[length : length + 1] = [number]
        lengths.append(length)
    wanted, staying = len(ends) - 1, set[str]()
    for name, length in zip(reversed(after), reversed(lengths), strict=True):
        if length == wanted:
            staying.add(name)
            wanted -= 1
    return [name for name in after if name not in staying]


def _place(columns: Sequence[TableColumn], place: int) -> str:
    return f"after {columns[place - 1].name}" if place else "at the front"
