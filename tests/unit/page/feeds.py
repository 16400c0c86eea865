"""Feeds that do not exist, and the status page of one."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from storage_consumer.monitoring.http_server import Request
from storage_consumer.monitoring.report import Minute, Report
from storage_consumer.monitoring.snapshot import JournalEntry, Snapshot
from storage_consumer.monitoring.status import judged
from storage_consumer.monitoring.table_minutes import TableMinute, TableRows
from storage_consumer.page.site import Look, Site, Sources
from tests.harness.twins.storage import FakeClock
from tests.unit.monitoring.test_status import NOW, report


class Feed:
    """A status page, and what it looks at. Change its attributes, and let two seconds pass."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Show one snapshot."""
        self.clock = FakeClock(NOW)
        self.look: Callable[[], Look] = lambda: Look(snapshot=snapshot, minutes=self.minutes)
        self.minutes: tuple[Minute, ...] = ()
        self.journal: tuple[JournalEntry, ...] = ()
        self.process: Report = report(started_at=1.0)
        self.table_minutes: tuple[TableMinute, ...] = ()
        self.table_rows: dict[str, TableRows] = {}
        self.site = Site(
            Sources(
                look=self._looked,
                journal=lambda _: self.journal,
                judge=lambda found: judged(found, lambda verb, name: f"storage-consumer table {verb} --table {name}"),
                command=lambda verb, name: f"storage-consumer table {verb} --table {name}",
                process=lambda: self.process,
                table_minutes=lambda _: self.table_minutes,
                table_rows=lambda: self.table_rows,
            ),
            self.clock,
        )

    def _looked(self) -> Look:
        """Look as `look` is at that time."""
        return self.look()

    def get(self, route: str = "/", below: str = "", **query: str) -> str:
        """Return a page, which must be one."""
        status, text = self.answer(route, below, **query)
        assert status == HTTPStatus.OK
        return text

    def answer(self, route: str = "/", below: str = "", **query: str) -> tuple[HTTPStatus, str]:
        """Return what is answered at a route."""
        found = self.site.routes()[route](Request(query=query, below=below))
        return found.status, found.body.decode()
