"""A script that takes the changes of a window back, or why there is none that would mean what it says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from storage_consumer.config.settings import Protocol
from storage_consumer.errors import NotReplicable
from storage_consumer.feed.alterations import Alteration, alterations
from storage_consumer.feed.records import Event, Statement
from storage_consumer.feed.render_sql import taken_back
from storage_consumer.feed.window import Window
from storage_consumer.model import DdlKind, TableDefinition, TableName
from storage_consumer.sql.parse import parsed
from storage_consumer.telemetry import lines_escaped

_OF_VIEWS = frozenset((DdlKind.CREATE_VIEW, DdlKind.DROP_VIEW))
"""Statements on what has no rows of its own."""


def undone(window: Window, events: Iterable[Event], known: Sequence[TableDefinition], protocol: Protocol) -> list[str]:
    """Return the lines that take the events of a window back, the last one first; of a statement that changes nothing for them, a comment.

    `known`: all definitions, in running order. Raises `NotReplicable`, which names the event, where that is impossible: for a DDL statement
    of the window, or one after it that touches a table with changes, after which rows may be others; and for changes whose old values the
    files lack.
    """
    comments = dict[str, str]()
    for statement in window.statements:
        name, alteration = _judged(statement.definition, window.low, known)
        if alteration.harm:
            raise NotReplicable(_within(alteration, name))
        comments[statement.definition.path] = _comment(_harmless(alteration, name))
    touched = set[TableName]()
    lines = list[str]()
    for event in events:
        if isinstance(event, Statement):
            lines.append(comments[event.definition.path])
        else:
            touched.add(event.structure.table.folded())
            lines.append(taken_back(event, protocol))
    since = [_comment(text) for name in sorted(touched) for text in _since(name, window, known)]
    return [*since, *reversed(lines)]


def _comment(text: str) -> str:
    # A name may hold a line break, behind which the server would read on.
    return f"-- {lines_escaped(text)}"


def _judged(definition: TableDefinition, low: int, known: Sequence[TableDefinition]) -> tuple[TableName, Alteration]:
    """Return what a statement of the window did, and to which table, by its name before; or database."""
    ddl = parsed(definition)
    name = ddl.subject if ddl.rename is None else ddl.rename.old
    if definition.ddl_type in _OF_VIEWS or (not name.table and ddl.head[:1] == ("ALTER",)):
        return name, Alteration(definition, "")
    if not name.table:
        return name, Alteration(definition, "made or dropped the database")
    return name, next(each for each in alterations(name, low, known) if each.definition is definition)


def _since(name: TableName, window: Window, known: Sequence[TableDefinition]) -> Iterable[str]:
    """Yield what is said of harmless statements on a table behind the window. Raises `NotReplicable` for others."""
    for alteration in alterations(name, window.low, known):
        if alteration.harm:
            raise NotReplicable(_behind(alteration, name))
        if alteration.definition.version > window.high:
            yield _harmless(alteration, name)


def _within(alteration: Alteration, name: TableName) -> str:
    version = alteration.definition.version
    return (
        f"{name}: the statement {alteration.shown} {alteration.harm}. It cannot be taken back, nor what was before "
        f"it: begin after it, with --from {version + 1}"
    )


def _behind(alteration: Alteration, name: TableName) -> str:
    return (
        f"{name}: {alteration.shown} {alteration.harm}. It came after changes that are to be taken back, so statements on these rows would "
        "mean something else. Print the window with --format json, which has what each row was, and write the statements for the table as it is now"
    )


def _harmless(alteration: Alteration, name: TableName) -> str:
    return f"{name}: {alteration.shown} stays; it changes nothing for these statements"
