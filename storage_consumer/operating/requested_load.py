"""What an operator may want of loads: a request is stored in the state, and a consumer obeys it before its next round, or when it starts."""

from __future__ import annotations

import uuid

from storage_consumer.checkpoint.store import StateStore
from storage_consumer.checkpoint.tables import LoadRow
from storage_consumer.config.commands import command
from storage_consumer.driver.lease import user
from storage_consumer.errors import ConfigError
from storage_consumer.model import TableName
from storage_consumer.plan.loads import Load, LoadPhase
from storage_consumer.plan.steps import key_of
from storage_consumer.plan.table_words import meant, named, table_flag
from storage_consumer.watch.status import load_progress


def request_load(desk: StateStore, given: str, source: str, *, replaces: bool) -> Load:
    """Store that a table is to be loaded from an export, and return what was stored; raise `ConfigError` if it is being loaded already.

    `given`: the table in an operator's words. `source`: the export's URI, with what has to be told of its files. `replaces`: whether the
    target's table is emptied first.
    """
    name = meant_table(desk, given)
    wish = Load(table_key=key_of(name), name=name, load_id=uuid.uuid4().hex, source=source, replaces=replaces)
    refuse_running(desk, desk.loads.request(wish, user()))
    return wish


def refuse_running(desk: StateStore, row: LoadRow | None) -> None:
    """Raise `ConfigError` if this is a load that has begun and not ended."""
    if row is not None and row.load.phase == LoadPhase.LOADING:
        raise ConfigError(
            f"{row.load.name} is being loaded from {row.load.source} ({load_progress(row.load)}). To load it from elsewhere, first run: "
            f"{command(f'load cancel {table_flag(row.load.name)}', desk.downstream)}"
        )


def meant_table(desk: StateStore, given: str) -> TableName:
    """Return the table that is meant: one that the state knows, or else, since a copy may bring it, the name as it is given.

    Raises `ConfigError` where the words are no table's name, or several tables'.
    """
    known = [name for row in desk.decisions.tables() if (name := row.stored.name).table]
    return next(iter(meant(given, known, lambda name: name)), None) or named("--table", given, whole=True)
