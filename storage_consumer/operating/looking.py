"""What is asked of a target's state: how the feed is, and for the status page the statements of one table, on connections of their own."""

from __future__ import annotations

from contextlib import closing

from storage_consumer.checkpoint.store import StateStore, operated
from storage_consumer.clock import Clock
from storage_consumer.config.settings import Downstream
from storage_consumer.driver.remedies import table_command
from storage_consumer.model import TableName
from storage_consumer.plan.table_decisions import Verb
from storage_consumer.watch.page import Look, Site
from storage_consumer.watch.recorder import Recorder
from storage_consumer.watch.report import ShownEntry
from storage_consumer.watch.status import Status, judged

_MINUTES = 24 * 60
"""Minutes of the feed's course that are read."""
_STATEMENTS = 50
"""Newest statements of one table that are shown."""


def status_now(
    desk: StateStore, downstream: Downstream, *, max_lag: float | None = None, needs_writer: bool = True
) -> Status:
    """Return the status of a feed by one look at its state; the other parameters are those of `judged`."""
    return judged(
        desk.snapshot(),
        lambda verb, name: table_command(verb, name, downstream),
        max_lag=max_lag,
        needs_writer=needs_writer,
    )


def status_site(
    downstream: Downstream, password: str, recorder: Recorder, clock: Clock, *, max_lag: float | None = None
) -> Site:
    """Return the status page of a feed; a checkpoint older than `max_lag` seconds counts as behind."""

    def look() -> Look:
        with closing(operated(downstream, password)) as desk:
            return desk.snapshot(), desk.reports.minutes(_MINUTES)

    def journal(table: TableName) -> tuple[ShownEntry, ...]:
        with closing(operated(downstream, password)) as desk:
            return desk.journal.newest_of(table, _STATEMENTS)

    def command(verb: Verb, name: TableName) -> str:
        return table_command(verb, name, downstream)

    return Site(recorder, clock, look=look, journal=journal, command=command, max_lag=max_lag)
