"""Feeds that do not exist, and the status page of one."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from storage_consumer.watch.http_server import Request
from storage_consumer.watch.page import Look, Site
from storage_consumer.watch.recorder import Recorder, TableRows
from storage_consumer.watch.report import Minute, Report, ShownEntry, Snapshot
from tests.harness.twins.storage import FakeClock
from tests.unit.watch.test_status import NOW, report


class Told(Recorder):
    """A recorder that says what a test wants."""

    def __init__(self, feed: Feed) -> None:
        """Say what the feed holds."""
        super().__init__(feed.clock, "")
        self._feed = feed

    def report(self) -> Report:
        """Of the process."""
        return self._feed.process

    def table_minutes(self, table: str) -> dict[int, int]:  # noqa: ARG002 - of all tables
        """Of each table."""
        return self._feed.table_minutes

    def table_rows(self) -> dict[str, TableRows]:
        """Of all tables."""
        return self._feed.table_rows


class Feed:
    """A status page, and what it looks at. Change its attributes, and let two seconds pass."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Show one snapshot."""
        self.clock = FakeClock(NOW)
        self.look: Callable[[], Look] = lambda: (snapshot, self.minutes)
        self.minutes: tuple[Minute, ...] = ()
        self.journal: tuple[ShownEntry, ...] = ()
        self.process: Report = report(started_at=1.0)
        self.table_minutes: dict[int, int] = {}
        self.table_rows: dict[str, TableRows] = {}
        self.site = Site(
            Told(self),
            self.clock,
            look=self._looked,
            journal=lambda _: self.journal,
            command=lambda verb, name: f"storage-consumer table {verb} --table {name}",
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
