"""The command `history`: the versions of a table, what changed between them, and how each statement went."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher

from storage_consumer.checkpoint.journal import JournalRow, KeptTable, KeptVersion, StoredHistory
from storage_consumer.checkpoint.store import StateStore
from storage_consumer.cli.answer import Answer
from storage_consumer.cli.layout import columns, cut, wrapped
from storage_consumer.cli.layout import table as laid_out
from storage_consumer.cli.verbs import HistoryFlags
from storage_consumer.errors import ConfigError
from storage_consumer.model import TableColumn, TableDefinition
from storage_consumer.operating.session import Session
from storage_consumer.plan.steps import key_of
from storage_consumer.plan.table_words import known
from storage_consumer.sql.parse import parsed
from storage_consumer.sql.tokens import has_words, tokens
from storage_consumer.telemetry import json_text, tso_time

_INDENT = " " * 4
_SHOWN = 100
"""Columns of a statement in a list on a terminal."""
_HIDDEN = "_V$_"
"""Prefix of the columns that TiDB adds for expression indexes."""


def answer(own: HistoryFlags, session: Session) -> Answer:
    """Return what is kept. Raise `ConfigError` for an unknown table, with the nearest names, and `TargetUnavailable`."""
    if own.at is not None and not own.table:
        raise ConfigError("--at needs --table")
    with session.state() as desk:
        if not own.table:
            return Answer(_all_tables(desk, as_json=own.json))
        keys = [each.key for each in known(own.table, desk.history.tables(), lambda each: each.name)]
        if own.at is not None:
            return Answer(_structure(desk.history, own.table, keys[0], own.at, as_json=own.json))
        return Answer(_versions(desk, own.table, keys, as_json=own.json))


# all tables


def _all_tables(desk: StateStore, *, as_json: bool) -> str:
    tables = desk.history.tables()
    waiting: dict[str, JournalRow] = {}
    for row in desk.journal.unresolved():
        # The first one of a table: the others wait behind it.
        waiting.setdefault(key_of(row.name), row)
    if as_json:
        return json_text({"tables": [_table_document(table, waiting.get(table.key)) for table in tables]})
    if not tables:
        return "no structure is kept yet\n"
    rows = []
    for each in tables:
        count = f"{each.versions} version{'s' if each.versions > 1 else ''}"
        last = waiting.get(each.key)
        state = f"{last.state}: {last.version}  " if last else ""
        statement = cut(f"{state}{each.query}", None if columns() is None else _SHOWN)
        rows.append((str(each.name), count, f"last {tso_time(each.last)}", statement))
    return "\n".join(laid_out(rows)) + "\n"


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


def _versions(desk: StateStore, table: str, keys: Sequence[str], *, as_json: bool) -> str:
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
    history: StoredHistory, kept: Sequence[KeptVersion]
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


def _structure(history: StoredHistory, table: str, key: str, ts: int, *, as_json: bool) -> str:
    """Return the columns in force at a version or commit-ts."""
    found = history.structure_at(key, ts)
    if found is None or found.definition is None:
        raise ConfigError(found.damage if found else f"no structure of {table} from before {ts} is kept")
    described_columns = [described(column) for column in found.definition.columns]
    if as_json:
        document = {
            "table": table,
            "version": found.version,
            "time": tso_time(found.version),
            "columns": described_columns,
        }
        return json_text(document | {"path": found.definition.path, "statement": found.definition.query})
    head = f"{table} at {ts}: version {found.version} ({tso_time(found.version)}), {found.definition.path}"
    lines = [line for column in described_columns for line in wrapped(column, _INDENT, f"{_INDENT}  ")]
    return "\n".join([*wrapped(head, further=_INDENT), *lines]) + "\n"


# two structures


def changes(before: TableDefinition | None, after: TableDefinition) -> list[str]:
    """Return a line per column that was added, removed, renamed, changed or moved; `before` is None if there was no table."""
    new = [column for column in after.columns if not column.name.startswith(_HIDDEN)]
    if before is None:
        return [f"added {described(column)}" for column in new]
    old = [column for column in before.columns if not column.name.startswith(_HIDDEN)]
    now = {column.name: column for column in new}
    found, names, old_names = tokens(after.query), dict[str, str](), {column.name for column in old}
    # With as many columns as before and such a word, a name that changed at its place was renamed.
    if len(old) == len(new) and (has_words(found, "CHANGE") or has_words(found, "RENAME")):
        pairs = zip(old, new, strict=True)
        names = {a.name: b.name for a, b in pairs if a.name not in now and b.name not in old_names}
    # The old columns by their new names, so that a renamed one is compared and not removed and added.
    was = {names.get(column.name, column.name): column for column in old}
    places = dict(zip(now, ("at the front", *(f"after {name}" for name in now)), strict=False))
    lines = [f"renamed {old_name} to {new_name}" for old_name, new_name in names.items()]
    lines += [f"removed {described(column)}" for name, column in was.items() if name not in now]
    for name, column in now.items():
        if name not in was:
            lines.append(f"added {described(column)} {places[name]}")
            continue
        facts = zip(_facts(was[name]), _facts(column), strict=True)
        differences = [f"{a} is {b}" if a == _type(was[name]) else b for a, b in facts if a != b]
        if differences:
            lines.append(f"changed {name}: {', '.join(differences)}")
    # Moves are counted among columns that stayed: one that was added pushes others back without moving them.
    kept_before, kept = [name for name in was if name in now], [name for name in now if name in was]
    blocks = SequenceMatcher(None, kept_before, kept, autojunk=False).get_matching_blocks()
    staying = {name for block in blocks for name in kept[block.b : block.b + block.size]}
    return lines + [f"moved {name} {places[name]}" for name in kept if name not in staying]


def _facts(column: TableColumn) -> tuple[str, str, str, str]:
    """Return what may change of a column, as it is said of the new one."""
    return (
        _type(column),
        "may be null" if column.nullable else "not null",
        "no default" if column.default is None else f"default {column.default!r}",
        "in the primary key" if column.is_pk else "not in the primary key",
    )


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
