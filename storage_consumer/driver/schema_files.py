"""The content of new schema files, with the state's own copy in place of files that have vanished."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from storage_consumer.errors import FilesMissing, TableError
from storage_consumer.model import SchemaFile, TableDefinition
from storage_consumer.plan.manager import ConsumerManager
from storage_consumer.plan.renames import is_astray
from storage_consumer.poll.reader import Poll, StorageReader
from storage_consumer.ports import State
from storage_consumer.telemetry import Log

_log = Log("intake")


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """The content of the schema files of one poll."""

    definitions: tuple[TableDefinition, ...]
    table_dirs: dict[str, str]
    """Schema file path → table directory."""
    unreadable: tuple[tuple[SchemaFile, str], ...]
    """Files that could not be read, each with the reason."""


def taken_in(poll: Poll, reader: StorageReader, manager: ConsumerManager, state: State) -> Intake:
    """Read the new schema files, keep their content, and look up what was kept of files that have vanished.

    Looked up are the schema files of data directories that have none and, at a start, those of statements that did not run.
    """
    read: list[tuple[str, TableDefinition]] = []
    unreadable: list[tuple[SchemaFile, str]] = []
    for file in poll.schema_files:
        try:
            definition = _definition(file, reader, state)
        except TableError as fault:
            unreadable.append((file, str(fault)))
            continue
        if is_astray(definition):
            reader.set_apart(file)
        read.append((file.table_dir, definition))
    state.keep(read)
    told = {(definition.version, table_dir) for table_dir, definition in read}
    told |= {(file.version, file.table_dir) for file, _ in unreadable}
    for key in sorted({file.version_key for file in poll.data_files} - told):
        if not manager.has_structure(key):
            read += [(key[1], definition) for definition in _vanished(key[1], key[0], state)]
    if manager.is_new:
        told |= {(definition.version, table_dir) for table_dir, definition in read}
        for table_dir, version in state.unsettled():
            if (version, table_dir) not in told:
                read += [(table_dir, definition) for definition in _vanished(table_dir, version, state)]
    return Intake(
        definitions=tuple(definition for _, definition in read),
        table_dirs={definition.path: table_dir for table_dir, definition in read},
        unreadable=tuple(unreadable),
    )


def _definition(file: SchemaFile, reader: StorageReader, state: State) -> TableDefinition:
    """Return the content of a listed file; if it has vanished since, what was kept of it."""
    try:
        return reader.definition(file)
    except FilesMissing:
        kept = [d for d in state.kept(file.table_dir, file.version) if file.checksum in (None, d.checksum)]
        if not kept:
            raise
        _say(kept)
        return kept[0]


def _vanished(table_dir: str, version: int, state: State) -> list[TableDefinition]:
    """Return what was kept of a version directory whose schema file no listing shows."""
    try:
        kept = state.kept(table_dir, version)
    except TableError as fault:
        _log.warning("schema_warning", text=str(fault))
        return []
    _say(kept)
    return kept


def _say(kept: Iterable[TableDefinition]) -> None:
    for definition in kept:
        text = "the file has vanished from the bucket; its copy in the state schema is used instead"
        _log.warning("schema_warning", text=text, path=definition.path, version=definition.version)
