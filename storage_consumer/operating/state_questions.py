"""Questions to a target's state, by a command or the status page; and requests of loads.

A request is stored in the state, and a consumer obeys it before its next round, or when it starts.
"""

from __future__ import annotations

import uuid
from contextlib import closing

from storage_consumer.checkpoint.store import StateStore, operated
from storage_consumer.checkpoint.tables import LoadRow
from storage_consumer.clock import Clock
from storage_consumer.config.commands import command
from storage_consumer.config.settings import Downstream
from storage_consumer.driver.lease import user
from storage_consumer.driver.remedies import table_command
from storage_consumer.errors import ConfigError
from storage_consumer.model import TableName
from storage_consumer.plan.loads import Load, LoadPhase
from storage_consumer.plan.steps import key_of
from storage_consumer.plan.table_decisions import Verb
from storage_consumer.plan.table_words import meant, named, table_flag
from storage_consumer.watch.page import Look, Site
from storage_consumer.watch.recorder import Recorder
from storage_consumer.watch.report import ShownEntry
from storage_consumer.watch.status import Status, judged, load_progress

_MINUTES = 24 * 60
"""Minutes of the feed's course that are read."""
_STATEMENTS = 50
"""Newest statements of one table that are shown."""


def status_now(
    desk: StateStore,
    downstream: Downstream,
    *,
    max_lag: float | None = None,
    needs_writer: bool = True,
) -> Status:
    """Return a feed's status by one snapshot of its state; for other parameters see `judged`."""
    return judged(
        desk.snapshot(),
        lambda verb, name: table_command(verb, name, downstream),
        max_lag=max_lag,
        needs_writer=needs_writer,
    )


def status_site(
    downstream: Downstream,
    password: str,
    recorder: Recorder,
    clock: Clock,
    *,
    max_lag: float | None = None,
) -> Site:
    """Return a feed's status page; `max_lag`: seconds until a checkpoint counts as behind."""

    def look() -> Look:
        with closing(operated(downstream, password)) as desk:
            return desk.snapshot(), desk.reports.minutes(_MINUTES)

    def journal(table: TableName) -> tuple[ShownEntry, ...]:
        with closing(operated(downstream, password)) as desk:
            return desk.journal.newest_of(table, _STATEMENTS)

    def command(verb: Verb, name: TableName) -> str:
        return table_command(verb, name, downstream)

    return Site(recorder, clock, look=look, journal=journal, command=command, max_lag=max_lag)


def request_load(desk: StateStore, given: str, source: str, *, replaces: bool) -> Load:
    """Store a request to load a table from an export; raise `ConfigError` during a load.

    Return what was stored.

    `given`: the table in an operator's words. `source`: the export's URI, with what has to be told
    of its files. `replaces`: whether the target's table is emptied first.
    """
    name = meant_table(desk, given)
    wish = Load(
        table_key=key_of(name),
        name=name,
        load_id=uuid.uuid4().hex,
        source=source,
        replaces=replaces,
    )
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
    """Return the table that is meant: known to the state or, as for a copy, the given name.

    Raises `ConfigError` where the words are no table's name, or several tables'.
    """
    known = [name for row in desk.decisions.tables() if (name := row.stored.name).table]
    return next(iter(meant(given, known, lambda name: name)), None) or named(
        "--table", given, whole=True
    )
