"""The command `history`: the versions of a table, what changed between them, and how each statement went."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

from storage_consumer.checkpoint.operator import StateInspector
from storage_consumer.checkpoint.operator_history import HistoryInspector, KeptTable, KeptVersion
from storage_consumer.checkpoint.operator_journal import JournalRow
from storage_consumer.cli.answer import Answer
from storage_consumer.cli.layout import table as laid_out
from storage_consumer.cli.layout import wrapped
from storage_consumer.cli.target_state import opened
from storage_consumer.config.parsers import did_you_mean
from storage_consumer.errors import ConfigError
from storage_consumer.instants import parse_instant
from storage_consumer.model import TableColumn, TableDefinition
from storage_consumer.plan.steps import key_of
from storage_consumer.plan.table_words import is_meant, refuse_several
from storage_consumer.sql.parse import parsed
from storage_consumer.sql.tokens import has_words, tokens
from storage_consumer.telemetry import json_text, tso_time

_ONLY_HERE = ("table", "at", "json")
_INDENT = " " * 4
_HIDDEN = "_V$_"
"""Prefix of the columns that TiDB adds for expression indexes."""


def answer(options: Mapping[str, object], environ: Mapping[str, str]) -> Answer:
    """Return what is kept; `options` are keywords of the target, and those of `_ONLY_HERE`.

    Raises `ConfigError` for an unknown table, with the nearest names, and `TargetUnavailable`.
    """
    own = {name: str(options[name]) for name in _ONLY_HERE if options.get(name) is not None}
    try:
        at = parse_instant(own.get("at", "0"))
    except ValueError as error:
        raise ConfigError(f"--at: {error}; `storage-consumer history` shows the TSO of each version") from None
    if "at" in own and "table" not in own:
        raise ConfigError("--at needs --table")
    with opened(options, environ, _ONLY_HERE) as desk:
        if "table" not in own:
            return Answer(_all_tables(desk, as_json="json" in own))
        keys = _keys(desk.history, own["table"])
        if "at" in own:
            return Answer(_structure(desk.history, own["table"], keys, at, as_json="json" in own))
        return Answer(_versions(desk, own["table"], keys, as_json="json" in own))


def _keys(history: HistoryInspector, table: str) -> list[str]:
    """Return the keys of the named table; raise `ConfigError` if nothing is stored of it. A name may itself contain dots."""
    tables = history.tables()
    refuse_several((each.name for each in tables), table)
    found = [each.key for each in tables if is_meant(each.name, table)]
    if not found:
        known = [str(each.name) for each in tables]
        near = did_you_mean(table, known) or (f"; known tables: {', '.join(known[:10])}" if known else "")
        raise ConfigError(f"no version of a table {table} is kept in the state schema{near}")
    return found


# all tables


def _all_tables(desk: StateInspector, *, as_json: bool) -> str:
    tables = desk.history.tables()
    waiting: dict[str, JournalRow] = {}
    for row in desk.journal.unresolved():
        # The first one of a table: the others wait behind it.
        waiting.setdefault(key_of(row.name), row)
    if as_json:
        return json_text({"tables": [_table_document(table, waiting.get(table.key)) for table in tables]})
    if not tables:
        return "no structure is kept yet\n"
    rows = [_table_row(table, waiting.get(table.key)) for table in tables]
    return "\n".join(laid_out(rows, is_cut=True)) + "\n"


def _table_row(table: KeptTable, waiting: JournalRow | None) -> tuple[str, ...]:
    count = f"{table.versions} version{'s' if table.versions > 1 else ''}"
    state = f"{waiting.state}: {waiting.version}  " if waiting else ""
    return str(table.name), count, f"last {tso_time(table.last)}", f"{state}{table.query}"


def _table_document(table: KeptTable, waiting: JournalRow | None) -> dict[str, object]:
    return {
        "table": str(table.name),
        "versions": table.versions,
        "first": table.first,
        "first_time": tso_time(table.first),
        "last": table.last,
        "last_time": tso_time(table.last),
        "statement": table.query,
        "waiting": None
        if waiting is None
        else {"version": waiting.version, "state": waiting.state, "error": waiting.note},
    }


# one table


def _versions(desk: StateInspector, table: str, keys: Sequence[str], *, as_json: bool) -> str:
    kept = desk.history.versions(keys)
    # By directory, since a statement of this table's history may be in the journal under its former name.
    journal = {
        row.identity: row for row in desk.journal.of_directories(sorted({version.table_dir for version in kept}))
    }
    documents = [
        _document(version, before, journal.get(version.identity))
        for version, before in _with_before(desk.history, kept)
    ]
    if as_json:
        return json_text({"table": table, "versions": documents})
    return "\n".join(_text(document) for document in documents)


def _with_before(
    history: HistoryInspector, kept: Sequence[KeptVersion]
) -> Iterator[tuple[KeptVersion, TableDefinition | None]]:
    """Yield each version with the structure before it: the table's own, or that of the table it was renamed from."""
    before: TableDefinition | None = None
    for version in kept:
        definition = version.definition
        source = before
        # Before a rename the structure was the other table's: comparing with this name's own past would show a new table.
        pair = parsed(definition).renamed if definition is not None else None
        if definition is not None and pair is not None and pair[0].folded() != definition.name.folded():
            older = history.structure_at(key_of(pair[0]), version.version - 1)
            source = older.definition if older is not None else None
        yield version, source
        # A file with the columns of another table says nothing about this one's.
        if definition is not None and not parsed(definition).is_astray:
            before = definition


def _document(version: KeptVersion, before: TableDefinition | None, row: JournalRow | None) -> dict[str, object]:
    definition = version.definition
    document: dict[str, object] = {
        "version": version.version,
        "time": tso_time(version.version),
        "statement": "" if definition is None else definition.query,
        "ddl_type": None if definition is None else definition.ddl_type,
        "path": "" if definition is None else definition.path,
        "checksum": version.checksum,
        "changes": [] if definition is None else changes(before, definition),
        "damage": version.damage,
        "state": "" if row is None else row.state,
        "seconds": None if row is None else row.seconds,
        "note": "" if row is None else row.note,
        "answer": "" if row is None else row.answer,
    }
    # Only a text that differs from the stored one is worth a line.
    if row is not None and row.state in ("done", "failed") and row.statement not in ("", row.query):
        document["ran"] = row.statement
    return document


def _text(document: Mapping[str, object]) -> str:
    seconds = document["seconds"]
    took = "" if seconds is None else f" in {seconds:.3f} s"
    state = f"{document['state']}{took}" if document["state"] else "not run yet, or nothing to run"
    lines = wrapped(f"{document['version']}  {document['time']}  {state}", further=_INDENT)
    statement = document["statement"] or "(a structure without a statement)"
    texts = [str(statement)]
    if "ran" in document:
        texts.append(f"ran as: {document['ran']}")
    found = document["changes"]
    texts += [f"- {change}" for change in found] if isinstance(found, list) and found else []
    if not found and not document["damage"]:
        texts.append("- the columns are the same")
    texts += [str(document[name]) for name in ("note", "damage") if document[name]]
    if document["answer"] not in ("", "OK", document["note"]):
        texts.append(f"the target answered: {document['answer']}")
    lines += [line for text in texts for line in wrapped(text, _INDENT, f"{_INDENT}  ")]
    return "\n".join(lines) + "\n"


def _structure(history: HistoryInspector, table: str, keys: Sequence[str], ts: int, *, as_json: bool) -> str:
    """Return the columns in force at a version or commit-ts."""
    found = history.structure_at(keys[0], ts)
    if found is None or found.definition is None:
        raise ConfigError(found.damage if found else f"no structure of {table} from before {ts} is kept")
    columns = [described(column) for column in found.definition.columns]
    if as_json:
        document = {"table": table, "version": found.version, "time": tso_time(found.version), "columns": columns}
        return json_text(document | {"path": found.definition.path, "statement": found.definition.query})
    head = f"{table} at {ts}: version {found.version} ({tso_time(found.version)}), {found.definition.path}"
    lines = [line for column in columns for line in wrapped(column, _INDENT, f"{_INDENT}  ")]
    return "\n".join([*wrapped(head, further=_INDENT), *lines]) + "\n"


# two structures


def changes(before: TableDefinition | None, after: TableDefinition) -> list[str]:
    """Return a line per column that was added, removed, renamed, changed or moved; `before` is None if there was no table."""
    new = _shown(after)
    if before is None:
        return [f"added {described(column)}" for column in new]
    old = _shown(before)
    names = _renames(old, new, after.query)
    # The old columns by their new names, so that a renamed one is compared and not removed and added.
    was = {names.get(column.name, column.name): column for column in old}
    now = {column.name: column for column in new}
    lines = [f"renamed {old_name} to {new_name}" for old_name, new_name in names.items()]
    lines += [f"removed {described(column)}" for name, column in was.items() if name not in now]
    for place, column in enumerate(new):
        if column.name not in was:
            lines.append(f"added {described(column)} {_place(new, place)}")
        elif differences := _differences(was[column.name], column):
            lines.append(f"changed {column.name}: {', '.join(differences)}")
    # Moves are counted among columns that stayed: one that was added pushes others back without moving them.
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
    # With as many columns as before and such a word, a name that changed at its place was renamed.
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
    # Backwards: numbers that got the same length only fall, so the latest of each length is below the one that is taken already.
    wanted, staying = len(ends) - 1, set[str]()
    for name, length in zip(reversed(after), reversed(lengths), strict=True):
        if length == wanted:
            staying.add(name)
            wanted -= 1
    return [name for name in after if name not in staying]


def _place(columns: Sequence[TableColumn], place: int) -> str:
    return f"after {columns[place - 1].name}" if place else "at the front"
