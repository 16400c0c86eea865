"""The command `history`: the versions of a table, what changed between them, and how each statement went."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from storage_consumer.checkpoint.operator import JournalRow
from storage_consumer.checkpoint.operator_history import KeptTable, KeptVersion, SchemaHistoryReader
from storage_consumer.cli.structure_changes import changes, described
from storage_consumer.cli.target_state import opened
from storage_consumer.config.parsers import did_you_mean, is_unsigned
from storage_consumer.errors import ConfigError
from storage_consumer.model import TableDefinition
from storage_consumer.plan.renames import is_astray, renamed
from storage_consumer.plan.steps import key_of
from storage_consumer.plan.table_words import is_meant, refuse_several
from storage_consumer.telemetry import json_text, tso_time

_ONLY_HERE = ("table", "at", "json")
_SHOWN = 100
"""Characters of a statement in the list of tables."""
_INDENT = " " * 4


def history(options: Mapping[str, object], environ: Mapping[str, str]) -> str:
    """Return what to print; `options` are keywords of the target, and those of `_ONLY_HERE`.

    Raises `ConfigError` for an unknown table, with the nearest names, and `TargetUnavailable`.
    """
    own = {name: str(options[name]) for name in _ONLY_HERE if options.get(name) is not None}
    if not is_unsigned(own.get("at", "0")):
        raise ConfigError(f"--at {own['at']!r}: a TSO is expected, as `storage-consumer history` shows them")
    if "at" in own and "table" not in own:
        raise ConfigError("--at needs --table")
    with opened(SchemaHistoryReader, options, environ, _ONLY_HERE) as desk:
        if "table" not in own:
            return _all_tables(desk, as_json="json" in own)
        keys = _keys(desk, own["table"])
        if "at" in own:
            return _structure(desk, own["table"], keys, int(own["at"]), as_json="json" in own)
        return _versions(desk, own["table"], keys, as_json="json" in own)


def _keys(desk: SchemaHistoryReader, table: str) -> list[str]:
    """Return the keys of the named table; raise `ConfigError` if nothing is stored of it. A name may itself contain dots."""
    tables = desk.tables()
    refuse_several((each.name for each in tables), table)
    found = [each.key for each in tables if is_meant(each.name, table)]
    if not found:
        known = [str(each.name) for each in tables]
        near = did_you_mean(table, known) or (f"; known tables: {', '.join(known[:10])}" if known else "")
        raise ConfigError(f"no version of a table {table} is kept in the state schema{near}")
    return found


# all tables


def _all_tables(desk: SchemaHistoryReader, *, as_json: bool) -> str:
    tables = desk.tables()
    waiting: dict[str, JournalRow] = {}
    for row in desk.unsettled():
        waiting.setdefault(key_of(row.name), row)
    if as_json:
        return json_text({"tables": [_table_document(table, waiting.get(table.key)) for table in tables]})
    if not tables:
        return "no structure is kept yet\n"
    width = max(len(str(table.name)) for table in tables)
    return "".join(f"{_table_line(table, width, waiting.get(table.key))}\n" for table in tables)


def _table_line(table: KeptTable, width: int, waiting: JournalRow | None) -> str:
    count = f"{table.versions} version{'s' if table.versions > 1 else ''}"
    state = f"  {waiting.state}: {waiting.version}" if waiting else ""
    return f"{table.name!s:<{width}}  {count:<12} last {tso_time(table.last)}  {_short(table.query)}{state}"


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


def _versions(desk: SchemaHistoryReader, table: str, keys: Sequence[str], *, as_json: bool) -> str:
    kept = desk.versions(keys)
    journal = {row.identity: row for row in desk.of_directories(sorted({version.table_dir for version in kept}))}
    documents = [
        _document(version, before, journal.get(version.identity)) for version, before in _with_before(desk, kept)
    ]
    if as_json:
        return json_text({"table": table, "versions": documents})
    return "\n".join(_text(document) for document in documents)


def _with_before(
    desk: SchemaHistoryReader, kept: Sequence[KeptVersion]
) -> Iterator[tuple[KeptVersion, TableDefinition | None]]:
    """Yield each version with the structure before it: the table's own, or that of the table it was renamed from."""
    before: TableDefinition | None = None
    for version in kept:
        definition = version.definition
        source = before
        pair = renamed(definition) if definition is not None else None
        if definition is not None and pair is not None and pair[0].folded() != definition.name.folded():
            older = desk.structure_at(key_of(pair[0]), version.version - 1)
            source = older.definition if older is not None else None
        yield version, source
        if definition is not None and not is_astray(definition):
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
    if row is not None and row.state in ("done", "failed") and row.statement not in ("", row.query):
        document["ran"] = row.statement
    return document


def _text(document: Mapping[str, object]) -> str:
    seconds = document["seconds"]
    took = "" if seconds is None else f" in {seconds:.3f} s"
    state = f"{document['state']}{took}" if document["state"] else "not run yet, or nothing to run"
    lines = [f"{document['version']}  {document['time']}  {state}"]
    statement = document["statement"] or "(a structure without a statement)"
    lines.append(f"{_INDENT}{statement}")
    if "ran" in document:
        lines.append(f"{_INDENT}ran as: {document['ran']}")
    found = document["changes"]
    lines += [f"{_INDENT}- {change}" for change in found] if isinstance(found, list) and found else []
    if not found and not document["damage"]:
        lines.append(f"{_INDENT}- the columns are the same")
    lines += [f"{_INDENT}{document[name]}" for name in ("note", "damage") if document[name]]
    if document["answer"] not in ("", "OK", document["note"]):
        lines.append(f"{_INDENT}the target answered: {document['answer']}")
    return "\n".join(lines) + "\n"


def _structure(desk: SchemaHistoryReader, table: str, keys: Sequence[str], ts: int, *, as_json: bool) -> str:
    """Return the columns in force at a version or commit-ts."""
    found = desk.structure_at(keys[0], ts)
    if found is None or found.definition is None:
        raise ConfigError(found.damage if found else f"no structure of {table} from before {ts} is kept")
    columns = [described(column) for column in found.definition.columns]
    if as_json:
        document = {"table": table, "version": found.version, "time": tso_time(found.version), "columns": columns}
        return json_text(document | {"path": found.definition.path, "statement": found.definition.query})
    head = f"{table} at {ts}: version {found.version} ({tso_time(found.version)}), {found.definition.path}"
    return "\n".join([head, *(f"{_INDENT}{column}" for column in columns)]) + "\n"


def _short(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= _SHOWN else f"{plain[:_SHOWN]}…"
