"""The command `history`: a table's versions, their differences, and how each statement went."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from storage_consumer.checkpoint.journal import JournalRow, KeptTable, KeptVersion, StoredHistory
from storage_consumer.cli.endings import Answer, told
from storage_consumer.cli.screen import cut, wrapped
from storage_consumer.cli.screen import table as laid_out
from storage_consumer.cli.verbs import HistoryFlags
from storage_consumer.errors import ConfigError
from storage_consumer.model import DdlId, TableColumn, TableDefinition, folded_name
from storage_consumer.plan.steps import key_of
from storage_consumer.plan.table_words import known
from storage_consumer.session import Session
from storage_consumer.sql.parse import parsed
from storage_consumer.sql.statement import statement_of
from storage_consumer.telemetry import tso_time

_INDENT = " " * 4
_SHOWN = 100
"""Columns of a statement in a list on a terminal."""
_HIDDEN = "_V$_"
"""Prefix of the columns that TiDB adds for expression indexes."""


def answer_history(own: HistoryFlags, session: Session) -> Answer:
    """Return the history; raise `ConfigError` for an unknown table, or `TargetUnavailable`."""
    if own.at is not None and not own.table:
        raise ConfigError("--at needs --table")
    with session.state() as desk:
        tables = desk.history.tables()
        if not own.table:
            return _all_tables(own, tables, desk.journal.unresolved())
        keys = [each.key for each in known(own.table, tables, lambda each: each.name)]
        if own.at is not None:
            found = desk.history.structure_at(keys[0], own.at)
            if found is None or (definition := found.definition) is None:
                raise ConfigError(
                    found.damage
                    if found
                    else f"no structure of {own.table} from before {own.at} is kept"
                )
            shown, time = (
                [described(column) for column in definition.columns],
                tso_time(found.version),
            )
            document = {
                "table": own.table,
                "version": found.version,
                "time": time,
                "columns": shown,
            }
            document |= {"path": definition.path, "statement": definition.query}
            head = f"{own.table} at {own.at}: version {found.version} ({time}), {definition.path}"
            texts = (line for column in shown for line in wrapped(column, _INDENT, f"{_INDENT}  "))
            return told(own, document, [*wrapped(head, further=_INDENT), *texts])
        kept = desk.history.versions(keys)
        # By directory: the journal may have this table's statement under its former name.
        rows = desk.journal.of_directories(sorted({version.table_dir for version in kept}))
        journal = {row.identity: row for row in rows}
        documents = _documents(desk.history, kept, journal)
    lines: list[str] = []
    for each in documents:
        took = "" if each["seconds"] is None else f" in {each['seconds']:.3f} s"
        state = f"{each['state']}{took}" if each["state"] else "not run yet, or nothing to run"
        head = f"{each['version']}  {each['time']}  {state}"
        lines += ["", *wrapped(head, further=_INDENT)]
        notes = [each["statement"] or "(a structure without a statement)"]
        notes += [f"ran as: {each['ran']}"] if "ran" in each else []
        notes += [f"- {change}" for change in each["changes"]]
        if not each["changes"] and not each["damage"]:
            notes.append("- the columns are the same")
        notes += [each[name] for name in ("note", "damage") if each[name]]
        if each["answer"] not in ("", "OK", each["note"]):
            notes.append(f"the target answered: {each['answer']}")
        lines += (line for text in notes for line in wrapped(text, _INDENT, f"{_INDENT}  "))
    return told(own, {"table": own.table, "versions": documents}, lines[1:])


def _all_tables(
    own: HistoryFlags, tables: Sequence[KeptTable], unresolved: Iterable[JournalRow]
) -> Answer:
    waiting: dict[str, JournalRow] = {}
    for row in unresolved:
        # The first one of a table: the others wait behind it.
        waiting.setdefault(key_of(row.name), row)
    documents, rows = [], []
    for each in tables:
        last = waiting.get(each.key)
        documents.append(
            {
                "table": str(each.name),
                "versions": each.versions,
                "first": each.first,
                "first_time": tso_time(each.first),
                "last": each.last,
                "last_time": tso_time(each.last),
                "statement": each.query,
                "waiting": last
                and {"version": last.version, "state": last.state, "error": last.note},
            }
        )
        count = f"{each.versions} version{'s' if each.versions > 1 else ''}"
        state = f"{last.state}: {last.version}  " if last else ""
        statement = cut(f"{state}{each.query}", _SHOWN)
        rows.append((str(each.name), count, f"last {tso_time(each.last)}", statement))
    return told(
        own, {"tables": documents}, laid_out(rows) if rows else ["no structure is kept yet"]
    )


# one table


def _documents(
    history: StoredHistory, kept: Sequence[KeptVersion], journal: Mapping[DdlId, JournalRow]
) -> list[dict[str, Any]]:
    """Return the versions for JSON, each compared with the previous structure.

    That is the table's own, or that of the table it was renamed from.
    """
    documents: list[dict[str, Any]] = []
    before: TableDefinition | None = None
    for version in kept:
        definition = version.definition
        source = before
        # Before a rename the structure was the other table's: comparing with this name's own past
        # would show a new table.
        pair = parsed(definition).renamed if definition is not None else None
        if (
            definition is not None
            and pair is not None
            and pair[0].folded() != definition.name.folded()
        ):
            older = history.structure_at(key_of(pair[0]), version.version - 1)
            source = older.definition if older is not None else None
        row = journal.get(version.identity)
        document: dict[str, Any] = {
            "version": version.version,
            "time": tso_time(version.version),
            "statement": definition.query if definition else "",
            "ddl_type": definition.ddl_type if definition else None,
            "path": definition.path if definition else "",
            "checksum": version.checksum,
            "changes": changes(source, definition) if definition else [],
            "damage": version.damage,
            "state": row.state if row else "",
            "seconds": row.seconds if row else None,
            "note": row.note if row else "",
            "answer": row.answer if row else "",
        }
        # Only a text that differs from the stored one is worth a line.
        if (
            row is not None
            and row.state in ("done", "failed")
            and row.statement not in ("", row.query)
        ):
            document["ran"] = row.statement
        documents.append(document)
        # A file with the columns of another table says nothing about this one's.
        if definition is not None and not parsed(definition).is_astray:
            before = definition
    return documents


# two structures


def changes(before: TableDefinition | None, after: TableDefinition) -> list[str]:
    """Return a line per added, removed, renamed, changed or moved column; `before` may be None."""
    new = [column for column in after.columns if not column.name.startswith(_HIDDEN)]
    if before is None:
        return [f"added {described(column)}" for column in new]
    old = [column for column in before.columns if not column.name.startswith(_HIDDEN)]
    now = {column.name: column for column in new}
    formerly = statement_of(after.query).renamed
    stayed = {formerly.get(folded_name(name), ""): name for name in now}
    names = {
        each.name: later
        for each in old
        if each.name not in now and (later := stayed.get(folded_name(each.name)))
    }
    # Old columns by new names, so that a renamed one is compared, not removed and added.
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
    # Moves count among columns that stayed: an added one shifts others without moving them.
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
    kind, null, default, _ = _facts(column)
    usual = ("may be null", "no default")
    parts = [column.name, kind, *(each for each in (null, default) if each not in usual)]
    return " ".join(parts + ["primary key"] * column.is_pk)


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
