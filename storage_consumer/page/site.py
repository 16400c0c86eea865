"""The routes of the status page: what is answered to whom."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
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
from storage_consumer.monitoring.recorder import Recorder
from storage_consumer.monitoring.report import Minute, Phase, Report, Work
from storage_consumer.monitoring.snapshot import JournalEntry, Snapshot
from storage_consumer.monitoring.status import Status, judged
from storage_consumer.monitoring.wording import facts, pending, skipped
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


_LOOKS = {Health.UNKNOWN: "unknown", Health.HEALTHY: "good", Health.BEHIND: "warn", Health.RETRYING: "warn"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The one word, and why."""

    word: str
    look: str
    """``good``, ``warn``, ``bad`` or ``unknown``: the colour beside the word."""
    reasons: tuple[str, ...]


def headline(status: Status | None, fault: str) -> Headline:
    """Return the headline; `fault`: why there is no status, if there is none."""
    if status is None:
        return Headline(word=Health.UNKNOWN, look=_LOOKS[Health.UNKNOWN], reasons=(fault or "nothing was seen yet",))
    # A healthy feed can have something odd to say too, such as that the source stands still: it is not green then.
    look = "warn" if status.health == Health.HEALTHY and status.reasons else _LOOKS.get(status.health, "bad")
    return Headline(word=status.health, look=look, reasons=status.reasons)


def process_facts(process: Report, snapshot: Snapshot | None, now: float) -> Iterator[tuple[str, str]]:
    """Yield label and text of what the serving process knows of itself; nothing if the state has its report anyway."""
    if snapshot is not None and is_own(process, snapshot):
        return
    retry = f": {process.retry}" if process.phase == Phase.RETRYING else ""
    yield "this process", f"{process.phase} for {span(process.lasted(now))}{retry}"
    yield (
        "its rounds",
        f"{process.totals.rounds:,}, with {process.totals.rows:,} row changes" if process.totals.rounds else "",
    )
    yield "pending", pending(process)
    yield "skipped", skipped(process)


def is_own(process: Report, snapshot: Snapshot) -> bool:
    """Return whether the report in the state is of the serving process."""
    return snapshot.report is not None and snapshot.report.started_at == process.started_at


def progress(status: Status) -> Work | None:
    """Return how far the running round is; None if none runs, or it has nothing to read."""
    work = status.snapshot.reported and status.snapshot.reported.work
    return work if work and work.steps else None


Look = tuple[Snapshot, tuple[Minute, ...]]
"""The state at one moment, and the minutes before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A look, judged."""

    status: Status
    rows: tuple[Row, ...]
    minutes: tuple[Minute, ...]


class Site:
    """Answers requests, from several threads at a time."""

    def __init__(
        self,
        recorder: Recorder,
        clock: Clock,
        *,
        look: Callable[[], Look],
        journal: Callable[[TableName], tuple[JournalEntry, ...]],
        command: Callable[[Verb, TableName], str],
        max_lag: float | None = None,
    ) -> None:
        """Look at nothing before the first request; a checkpoint older than `max_lag` seconds counts as behind.

        `look` looks at the state, `journal` returns the newest statements of a table, the newest first; both may raise
        `StorageConsumerError`. `command` returns the command for a verb on a table.
        """
        self._recorder = recorder
        self._clock = clock
        self._journal = journal
        self._command = command
        self._max_lag = max_lag
        self._looks = Shared(lambda: self._known(*look()), clock)
        self._journals: OrderedDict[TableName, Shared[tuple[JournalEntry, ...]]] = OrderedDict()
        self._lock = Lock()

    def routes(self) -> dict[str, Handler]:
        """Return path → what answers it."""
        return {"/": self._overview, "/tables/": self._table, "/status.json": self._document}

    def _known(self, snapshot: Snapshot, minutes: tuple[Minute, ...]) -> _Known:
        process = self._recorder.report()
        if is_own(process, snapshot):
            # The same process knows better than what it stored some seconds ago.
            snapshot = replace(snapshot, report=process, report_age=0.0)
        return self._judged(snapshot, minutes)

    def _judged(self, snapshot: Snapshot, minutes: tuple[Minute, ...]) -> _Known:
        status = judged(snapshot, self._command, max_lag=self._max_lag)
        return _Known(status=status, rows=rows_of(status, self._recorder.table_rows()), minutes=minutes)

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
        entries, minutes = journal.value or (), self._recorder.table_minutes(row.shown)
        now = known.status.snapshot.now
        more = {
            "row": row,
            "journal": entries,
            "journal_fault": journal.fault,
            "now": now - journal.age,
            "steps": row.status.next_steps if row.status else (),
            "pause": self._command("pause", row.name) if row.state == TableState.RUNNING else "",
            "plot": table_plot(minutes, entries, now, self._recorder.report().started_at) if minutes else None,
        }
        return _page("table.html", values | more)

    def _journal_of(self, name: TableName) -> Shared[tuple[JournalEntry, ...]]:
        with self._lock:
            found = self._journals.setdefault(name, Shared(lambda: self._journal(name), self._clock))
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
        process, now = self._recorder.report(), self._clock.now()
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
