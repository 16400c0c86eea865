"""Changes as SQL: what happened, or what takes it back; or why no SQL would mean that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from storage_consumer.changes.alterations import Alteration, alterations
from storage_consumer.changes.rendering import reader
from storage_consumer.changes.window import Change, Event, FeedStatement, Structure, Window
from storage_consumer.config.settings import Protocol
from storage_consumer.decode.decoder import Values
from storage_consumer.decode.kernels.arrays import INSERT, PARTIAL_DELETE, UPDATE
from storage_consumer.decode.values import offset_at, wire_kind
from storage_consumer.errors import NotReplicable
from storage_consumer.model import DdlKind, TableColumn, TableDefinition, TableName, physical_ms
from storage_consumer.rows.spec import WireColumn
from storage_consumer.sql.parse import parsed
from storage_consumer.sql.tokens import qualified, quote
from storage_consumer.target.row_statements import TEXTS, json_equals, literal, same
from storage_consumer.telemetry import escaped, tso_time

_ESCAPES = str.maketrans(
    {"\\": "\\\\", "'": "\\'", "\0": "\\0", "\n": "\\n", "\r": "\\r", "\x1a": "\\Z"}
)
_MOMENTS = frozenset(("DATETIME", "TIMESTAMP"))
_JSON_EQUALS = json_equals("TiDB")


_ZONE = "+00:00"
_LAX_MODE = "ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO"
_STRICT_MODE = f"STRICT_ALL_TABLES,{_LAX_MODE}"
_LAX, _STRICT = (
    f"SET SESSION sql_mode = '{_LAX_MODE}'; ",
    f" SET SESSION sql_mode = '{_STRICT_MODE}';",
)
_HEAD = """\
SET NAMES utf8mb4;
SET SESSION sql_mode = '{mode}';
SET time_zone = '+00:00';
SET SESSION foreign_key_checks = 0 /*!99999 , allow_auto_random_explicit_insert = 1 */;
"""
HEAD = _HEAD.format(mode=_LAX_MODE)
"""What a script begins with, on TiDB, MySQL and MariaDB. It holds until the session ends.

What a foreign key did to other rows is among the changes, so it may not be done again. TiDB alone
knows the other variable, and reads comments with any version; clients remove those that begin with
``/*T!``. It is not strict, as the sessions of its statements need not have been.
"""
UNDO_HEAD = f"{_HEAD.format(mode=_STRICT_MODE)}BEGIN;\n"
"""What a script begins with that takes changes back: a value that does not fit ends it, and then
nothing is taken back.
"""
UNDO_FOOT = "COMMIT;\n"


def statements(protocol: Protocol, zone: str = "UTC") -> Callable[[Event], str]:
    """Return the function from event to its statement in a line; `zone`: the DDL's."""

    def line(event: Event) -> str:
        if isinstance(event, FeedStatement):
            if event.unclear:
                raise NotReplicable(event.unclear)
            name = event.definition.name
            # A database need not exist before the statement that creates it.
            use = f"USE {quote(name.schema)}; " if name.table else ""
            # CURRENT_TIMESTAMP, as the default of a new column, is that of the statement.
            moment = f"SET timestamp = {physical_ms(event.commit_ts) / 1000:.3f};"
            text = event.definition.query.rstrip().rstrip(";")
            # By its offset then, since a server need not know its name.
            offset = offset_at(zone, physical_ms(event.commit_ts))
            there, back = (
                (f" SET time_zone = '{each}';" for each in (offset, _ZONE))
                if offset != _ZONE
                else ("", "")
            )
            return f"{use}{moment}{there} {text};{back} SET timestamp = DEFAULT; -- {_where(event.commit_ts)}"
        return f"{_redone(event, protocol)}; -- {_where(event.commit_ts)}"

    return line


def taken_back(event: Change, protocol: Protocol) -> str:
    """Return the statement that takes a change back, in a line.

    Raises `NotReplicable` where the files lack old values.
    """
    structure = event.structure
    place = f"{structure.table}, {event.file}, row {event.row}, commit ts {event.commit_ts}"
    if event.operation == PARTIAL_DELETE:
        raise NotReplicable(
            f"{place}: the files have only the key of a deleted row (delete-only-output-handle-key-columns), so it cannot be put back"
        )
    if event.operation == INSERT:
        text = _deletion(structure, event.values, protocol, event.given())
        return f"{text}; -- {_where(event.commit_ts)}"
    pairs = zip(structure.columns, (event.old or event.values), strict=True)
    lax, strict = (
        (_LAX, _STRICT)
        if (
            protocol == "canal-json"
            and any(column.type == "ENUM" and text == "0" for column, text in pairs)
        )
        else ("", "")
    )
    if event.operation == UPDATE:
        if event.old is None:
            raise NotReplicable(
                f"{place}: the files do not have what an updated row was before: set output-old-value = true under [sink.csv] in the "
                "changefeed, for changes from then on"
            )
        text = _update(structure, event.values, event.old, protocol)
    else:
        text = _insertion(structure, event.values, protocol)
    return f"{lax}{text};{strict} -- {_where(event.commit_ts)}"


def _redone(event: Change, protocol: Protocol) -> str:
    structure = event.structure
    if event.operation == INSERT:
        return _insertion(structure, event.values, protocol)
    if event.operation != UPDATE:
        return _deletion(structure, event.values, protocol, event.given())
    old = event.old
    if old is None and not structure.key:
        raise NotReplicable(
            f"{structure.table}, {event.file}, row {event.row}, commit ts {event.commit_ts}: the files do not say which row of a table "
            "without a primary key was updated: set output-old-value = true under [sink.csv] in the changefeed"
        )
    return _update(structure, old or event.values, event.values, protocol)


def _insertion(structure: Structure, values: Values, protocol: Protocol) -> str:
    written = _written(structure)
    names = ", ".join(quote(structure.columns[place].name) for place in written)
    cells = ", ".join(_literals(structure, values, written, protocol))
    return f"INSERT INTO {qualified(structure.table)} ({names}) VALUES ({cells})"


def _update(structure: Structure, old: Values, new: Values, protocol: Protocol) -> str:
    """Return the statement that turns row `old` into `new`; without a change it sets all.

    It sets columns of a moment also where they are the same: one with ON UPDATE CURRENT_TIMESTAMP
    would get that of the statement.
    """
    written = _written(structure)
    is_moment = [column.type in _MOMENTS for column in structure.columns]
    changed = [place for place in written if old[place] != new[place] or is_moment[place]]
    if all(old[place] == new[place] for place in changed):
        changed = written
    cells = zip(changed, _literals(structure, new, changed, protocol), strict=True)
    sets = ", ".join(f"{quote(structure.columns[place].name)} = {text}" for place, text in cells)
    condition = _condition(structure, old, protocol, range(len(old)))
    return f"UPDATE {qualified(structure.table)} SET {sets} WHERE {condition} LIMIT 1"


def _deletion(
    structure: Structure, values: Values, protocol: Protocol, given: Sequence[int]
) -> str:
    condition = _condition(structure, values, protocol, given)
    return f"DELETE FROM {qualified(structure.table)} WHERE {condition} LIMIT 1"


def _condition(
    structure: Structure, values: Values, protocol: Protocol, given: Sequence[int]
) -> str:
    """Return the row's own condition: its key or, without one, all `given` columns."""
    places = structure.key or given
    if not places:
        raise NotReplicable(
            f"{structure.table}: the files have no column of a deleted row (delete-only-output-handle-key-columns, and no key): leave the "
            "table out with --filter"
        )
    wires = ((values[place], _wire(structure.columns[place], protocol)) for place in places)
    if not structure.key:
        return " AND ".join(same(text, wire, _escaped, _JSON_EQUALS) for text, wire in wires)
    # A key's own collation finds one row, and finds it by the index.
    return " AND ".join(
        f"{quote(wire.name)} = {literal(text, wire, _escaped)}"
        if wire.type in TEXTS
        else same(text, wire, _escaped, _JSON_EQUALS)
        for text, wire in wires
    )


def _wire(column: TableColumn, protocol: Protocol) -> WireColumn:
    return WireColumn(name=column.name, kind=wire_kind(column, protocol), type=column.type)


def _written(structure: Structure) -> list[int]:
    """Return the columns that may be given a value: not generated ones."""
    return [place for place in range(len(structure.columns)) if place not in structure.generated]


def _literals(
    structure: Structure, values: Values, places: Sequence[int], protocol: Protocol
) -> Iterator[str]:
    for place in places:
        column, text = structure.columns[place], values[place]
        if text is not None and column.elements and protocol == "canal-json":
            # By name where it is known: TiDB's UPDATE takes a number for the member of that name,
            # if there is one.
            yield f"'{_escaped(str(reader(column, protocol)(text)))}'"
        else:
            yield literal(text, _wire(column, protocol), _escaped)


def _escaped(text: str) -> str:
    return text.translate(_ESCAPES)


def _where(ts: int) -> str:
    return f"{ts} {tso_time(ts)}"


_OF_VIEWS = frozenset((DdlKind.CREATE_VIEW, DdlKind.DROP_VIEW))
"""Statements on what has no rows of its own."""


def undone(
    window: Window, events: Iterable[Event], known: Sequence[TableDefinition], protocol: Protocol
) -> list[str]:
    """Return the lines that undo a window's events, last first.

    A statement that changes nothing for them becomes a comment.

    `known`: all definitions, in running order. Raises `NotReplicable`, which names the event, where
    that is impossible: for a DDL statement of the window, or one after it that touches a table with
    changes, after which rows may be others; and for changes whose old values the files lack.
    """
    comments = dict[str, str]()
    for statement in window.statements:
        definition, ddl = statement.definition, parsed(statement.definition)
        name = ddl.subject if ddl.rename is None else ddl.rename.old
        if definition.ddl_type in _OF_VIEWS or (not name.table and ddl.head[:1] == ("ALTER",)):
            alteration = Alteration(definition, "")
        elif not name.table:
            alteration = Alteration(definition, "made or dropped the database")
        else:
            found = alterations(name, window.low, known)
            alteration = next(each for each in found if each.definition is definition)
        if alteration.harm:
            raise NotReplicable(
                f"{name}: the statement {alteration.shown} {alteration.harm}. It cannot be taken back, nor what was before "
                f"it: begin after it, with --from {definition.version + 1}"
            )
        comments[statement.definition.path] = _comment(_harmless(alteration, name))
    touched = set[TableName]()
    lines = list[str]()
    for event in events:
        if isinstance(event, FeedStatement):
            lines.append(comments[event.definition.path])
        else:
            touched.add(event.structure.table.folded())
            lines.append(taken_back(event, protocol))
    since = list[str]()
    for name in sorted(touched):
        for alteration in alterations(name, window.low, known):
            if alteration.harm:
                raise NotReplicable(
                    f"{name}: {alteration.shown} {alteration.harm}. It came after changes that are to be taken back, so statements on these rows would "
                    "mean something else. Print the window with --format json, which has what each row was, and write the statements for the table as it is now"
                )
            if alteration.definition.version > window.high:
                since.append(_comment(_harmless(alteration, name)))
    return [*since, *reversed(lines)]


def _comment(text: str) -> str:
    # A name may hold a line break, behind which the server would read on.
    return f"-- {escaped(text)}"


def _harmless(alteration: Alteration, name: TableName) -> str:
    return f"{name}: {alteration.shown} stays; it changes nothing for these statements"
