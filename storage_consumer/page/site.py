"""The routes of the status page: what is answered to whom."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from threading import Lock
from typing import Any

from storage_consumer.clock import Clock, span
from storage_consumer.config.parsers import did_you_mean
from storage_consumer.model import TableName
from storage_consumer.monitoring.document import document
from storage_consumer.monitoring.health import Health
from storage_consumer.monitoring.http_server import Handler, Request, Response
from storage_consumer.monitoring.report import Minute, Report
from storage_consumer.monitoring.snapshot import JournalEntry, Snapshot
from storage_consumer.monitoring.status import Status
from storage_consumer.monitoring.table_minutes import TableMinute, TableRows
from storage_consumer.monitoring.wording import facts
from storage_consumer.page.facts import headline, is_own, process_facts, progress
from storage_consumer.page.plots import lag_plot, rate_plot, table_plot
from storage_consumer.page.query import Query
from storage_consumer.page.render import policy, rendered
from storage_consumer.page.sharing import Seen, Shared
from storage_consumer.page.tables import Row, listed, rows_of, table_called
from storage_consumer.plan.table_decisions import Verb
from storage_consumer.plan.table_state import STOPPED, TableState
from storage_consumer.telemetry import json_text

_HTML = "text/html; charset=utf-8"
_JSON = "application/json"
_SHOWN = 20
"""Stopped tables, waiting tables and statements on the overview, each."""
_JOURNALS = 32
"""Tables whose statements are kept at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The state at one moment."""

    snapshot: Snapshot
    minutes: tuple[Minute, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where the page has its facts from."""

    look: Callable[[], Look]
    """Looks at the state; raises `StorageConsumerError`."""
    journal: Callable[[TableName], tuple[JournalEntry, ...]]
    """Returns the newest statements of a table, the newest first; raises `StorageConsumerError`."""
    judge: Callable[[Snapshot], Status]
    command: Callable[[Verb, TableName], str]
    """Returns the command for a verb on a table."""
    process: Callable[[], Report]
    """Returns what this process knows of itself."""
    table_minutes: Callable[[str], tuple[TableMinute, ...]]
    table_rows: Callable[[], Mapping[str, TableRows]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A look, judged."""

    status: Status
    rows: tuple[Row, ...]
    minutes: tuple[Minute, ...]


class Site:
    """Answers requests, from several threads at a time."""

    def __init__(self, sources: Sources, clock: Clock) -> None:
        """Look at nothing before the first request."""
        self._sources = sources
        self._clock = clock
        self._looks = Shared(self._look, clock)
        self._journals: OrderedDict[TableName, Shared[tuple[JournalEntry, ...]]] = OrderedDict()
        self._lock = Lock()

    def routes(self) -> dict[str, Handler]:
        """Return path → what answers it."""
        return {"/": self._overview, "/tables/": self._table, "/status.json": self._document}

    def _look(self) -> _Known:
        look, process = self._sources.look(), self._sources.process()
        snapshot = look.snapshot
        if is_own(process, snapshot):
            # The same process knows better than what it stored some seconds ago.
            snapshot = replace(snapshot, report=process, report_age=0.0)
        return self._judged(snapshot, look.minutes)

    def _judged(self, snapshot: Snapshot, minutes: tuple[Minute, ...]) -> _Known:
        status = self._sources.judge(snapshot)
        return _Known(status=status, rows=rows_of(status, self._sources.table_rows()), minutes=minutes)

    def _seen(self) -> Seen[_Known]:
        """Return the newest look. Lags in one that is old grow with its age, and nothing is known for sure."""
        seen = self._looks.latest()
        if seen.value is None or not seen.fault:
            return seen
        snapshot = seen.value.status.snapshot
        aged = replace(snapshot, now=snapshot.now + seen.age, report_age=snapshot.report_age + seen.age)
        known = self._judged(aged, seen.value.minutes)
        last = f"the state could not be read for {span(seen.age)}; this is what was seen before that ({known.status.health})"
        status = replace(known.status, health=Health.UNKNOWN, reasons=(last, seen.fault))
        return replace(seen, value=replace(known, status=status))

    def _overview(self, request: Request) -> Response:
        query, seen = Query.of(request.query), self._seen()
        known = seen.value
        values = self._common(seen, query) | {"root": "", "listing": None}
        if known is None:
            return _page("overview.html", values)
        status, now = known.status, known.status.snapshot.now
        stopped = [each for each in status.tables if each.state in STOPPED]
        # Stopped tables stand first. One that runs is among the others if a decision about it is open.
        waiting = status.tables[len(stopped) :]
        more = {
            "listing": listed(known.rows, query),
            "facts": [(label or "running tables", text) for label, text in facts(status).items() if text],
            "progress": progress(status),
            "stopped": stopped[:_SHOWN],
            "waiting": waiting[:_SHOWN],
            "statements": status.statements[:_SHOWN],
            "totals": {"stopped": len(stopped), "waiting": len(waiting), "statements": len(status.statements)},
            "plots": (lag_plot(known.minutes, now, query.hours), rate_plot(known.minutes, now, query.hours)),
        }
        return _page("overview.html", values | more)

    def _table(self, request: Request) -> Response:
        query, seen = Query.of(request.query), self._seen()
        values = self._common(seen, query) | {"root": "../", "wanted": request.below, "row": None, "hint": ""}
        known = seen.value
        row = table_called(known.rows, request.below) if known else None
        if known is None:
            return _page("table.html", values)
        if row is None:
            hint = did_you_mean(request.below, [each.shown for each in known.rows])
            return _page("table.html", values | {"hint": hint}, HTTPStatus.NOT_FOUND)
        journal = self._journal_of(row.name).latest()
        entries, minutes = journal.value or (), self._sources.table_minutes(row.shown)
        now = known.status.snapshot.now
        more = {
            "row": row,
            "journal": entries,
            "journal_fault": journal.fault,
            "now": now - journal.age,
            "steps": row.status.next_steps if row.status else (),
            "pause": self._sources.command("pause", row.name) if row.state == TableState.RUNNING else "",
            "plot": table_plot(minutes, entries, now, self._sources.process().started_at) if minutes else None,
        }
        return _page("table.html", values | more)

    def _journal_of(self, name: TableName) -> Shared[tuple[JournalEntry, ...]]:
        with self._lock:
            found = self._journals.setdefault(name, Shared(lambda: self._sources.journal(name), self._clock))
            self._journals.move_to_end(name)
            if len(self._journals) > _JOURNALS:
                self._journals.popitem(last=False)
            return found

    def _document(self, _request: Request) -> Response:
        seen = self._seen()
        if seen.value is None:
            body = json_text({"error": seen.fault})
            return Response(body=body.encode(), content_type=_JSON, status=HTTPStatus.SERVICE_UNAVAILABLE)
        headers = {"Age": f"{seen.age:.0f}"}
        return Response(body=json_text(document(seen.value.status)).encode(), content_type=_JSON, headers=headers)

    def _common(self, seen: Seen[_Known], query: Query) -> dict[str, Any]:
        """Return what every page shows."""
        status = seen.value.status if seen.value else None
        process, now = self._sources.process(), self._clock.now()
        snapshot = status.snapshot if status and not seen.fault else None
        return {
            "query": query,
            "head": headline(status, seen.fault),
            "status": status,
            "process": [fact for fact in process_facts(process, snapshot, now) if fact[1]],
            "version": process.version,
            "shown_at": now,
        }


def _page(template: str, values: Mapping[str, Any], status: HTTPStatus = HTTPStatus.OK) -> Response:
    body = rendered(template, values).encode("utf-8", "replace")
    return Response(body=body, content_type=_HTML, status=status, headers={"Content-Security-Policy": policy()})
