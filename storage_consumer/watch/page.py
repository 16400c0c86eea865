"""The status page: the routes, what is answered to whom, and how records become HTML.

All viewers share one look at the state: at most one at a time, at most one every few seconds, and
nobody waits long for it. Whatever a template shows passes `_shown` and is then escaped; secrets are
blanked before texts are cut.
"""

from __future__ import annotations

import base64
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from http import HTTPStatus
from importlib import resources
from typing import Any, Generic, TypeVar

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from storage_consumer.clock import Clock, span
from storage_consumer.config.parsers import did_you_mean
from storage_consumer.errors import StorageConsumerError
from storage_consumer.model import TableName
from storage_consumer.plan.table_decisions import Verb
from storage_consumer.plan.table_state import STOPPED, TableState
from storage_consumer.telemetry import json_text, lines_escaped, redact, tso_time, utc_time
from storage_consumer.watch.http_server import Handler, Request, Response
from storage_consumer.watch.page_views import (
    RANGES,
    RELOAD,
    SORTS,
    Row,
    ViewerQuery,
    lag_plot,
    listed,
    rate_plot,
    rows_of,
    short,
    table_path,
    table_plot,
)
from storage_consumer.watch.recorder import Recorder
from storage_consumer.watch.report import Health, Minute, Phase, ShownEntry, Snapshot
from storage_consumer.watch.status import Status, judged
from storage_consumer.watch.wording import document, facts, pending, skipped

_HTML = "text/html; charset=utf-8"
_JSON = "application/json"
_SHOWN = 20
"""Stopped tables, waiting tables and statements on the overview, each."""
_JOURNALS = 32
"""Tables whose statements are kept at a time."""


_LOOKS = {
    Health.UNKNOWN: "unknown",
    Health.HEALTHY: "good",
    Health.BEHIND: "warn",
    Health.RETRYING: "warn",
}


KEPT = 2.0
"""Seconds for which a look is shown before the next viewer causes another."""
PATIENCE = 2.0
"""Seconds that a viewer waits for a look; then the last one is shown."""
FIRST_PATIENCE = 5.0
"""The same while there is no last one."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen(Generic[T]):
    """What was seen last, and what has become of looking since."""

    value: T | None
    """None before the first look that succeeded."""
    age: float
    """Seconds since then."""
    fault: str = ""
    """Why there is nothing newer; empty if there is no reason to expect that."""


class Shared(Generic[T]):
    """Looks when somebody asks, in a thread of its own, and keeps what was seen."""

    def __init__(self, look: Callable[[], T], clock: Clock) -> None:
        """`look` may raise any `StorageConsumerError`, and may take long."""
        self._look = look
        self._clock = clock
        self._lock = threading.Lock()
        self._value: T | None = None
        self._seen_at = 0.0
        self._tried_at = -KEPT
        self._fault = ""
        self._running: threading.Event | None = None

    def latest(self) -> Seen[T]:
        """Return the snapshot of the last `KEPT` seconds.

        Return an older one if the new one fails or takes longer than `PATIENCE`.
        """
        with self._lock:
            running = self._running
            if running is None and self._clock.monotonic() - self._tried_at >= KEPT:
                running = self._running = threading.Event()
                threading.Thread(
                    target=self._refresh, args=(running,), name="status-page", daemon=True
                ).start()
            patience = PATIENCE if self._value is not None else FIRST_PATIENCE
        late = running is not None and not running.wait(patience)
        with self._lock:
            age = self._clock.monotonic() - self._seen_at if self._value is not None else 0.0
            fault = self._fault or (f"no answer for {patience:.0f} s" if late else "")
            return Seen(value=self._value, age=age, fault=fault)

    def _refresh(self, running: threading.Event) -> None:
        value, fault = None, "looking at the state failed; the log says why"
        began = self._clock.monotonic()
        try:
            value, fault = self._look(), ""
        except StorageConsumerError as error:
            fault = str(error)
        finally:
            with self._lock:
                self._tried_at = self._clock.monotonic()
                self._fault = fault
                if not fault:
                    # What was seen is as old as the question.
                    self._value, self._seen_at = value, began
                self._running = None
            running.set()


Look = tuple[Snapshot, tuple[Minute, ...]]
"""The state at one moment, and the minutes before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _JudgedLook:
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
        journal: Callable[[TableName], tuple[ShownEntry, ...]],
        command: Callable[[Verb, TableName], str],
        max_lag: float | None = None,
    ) -> None:
        """Read nothing before the first request; `max_lag`: seconds until a checkpoint is late.

        `look` looks at the state, `journal` returns the newest statements of a table, the newest
        first; both may raise `StorageConsumerError`. `command` returns the command for a verb on a
        table.
        """
        self._recorder = recorder
        self._clock = clock
        self._journal = journal
        self._command = command
        self._max_lag = max_lag
        self._looks = Shared(lambda: self._known(*look()), clock)
        self._journals: OrderedDict[TableName, Shared[tuple[ShownEntry, ...]]] = OrderedDict()
        self._lock = threading.Lock()

    def routes(self) -> dict[str, Handler]:
        """Return path → what answers it."""
        return {"/": self._overview, "/tables/": self._table, "/status.json": self._document}

    def _known(self, snapshot: Snapshot, minutes: tuple[Minute, ...]) -> _JudgedLook:
        process = self._recorder.report()
        if _started(snapshot) == process.started_at:
            # The same process knows better than what it stored some seconds ago.
            snapshot = replace(snapshot, report=process, report_age=0.0)
        return self._judged(snapshot, minutes)

    def _judged(self, snapshot: Snapshot, minutes: tuple[Minute, ...]) -> _JudgedLook:
        status = judged(snapshot, self._command, max_lag=self._max_lag)
        return _JudgedLook(
            status=status, rows=rows_of(status, self._recorder.table_rows()), minutes=minutes
        )

    def _seen(self) -> Seen[_JudgedLook]:
        """Return the newest snapshot; an old one's lags grow with age, and nothing is certain."""
        seen = self._looks.latest()
        if seen.value is None or not seen.fault:
            return seen
        snapshot = seen.value.status.snapshot
        aged = replace(
            snapshot, now=snapshot.now + seen.age, report_age=snapshot.report_age + seen.age
        )
        known = self._judged(aged, seen.value.minutes)
        last = f"the state could not be read for {span(seen.age)}; this is what was seen before that ({known.status.health})"
        status = replace(known.status, health=Health.UNKNOWN, reasons=(last, seen.fault))
        return replace(seen, value=replace(known, status=status))

    def _overview(self, request: Request) -> Response:
        query, seen = ViewerQuery.of(request.query), self._seen()
        known = seen.value
        values = self._common(seen, query) | {"root": "", "listing": None}
        if known is None:
            return _page("overview.html", values)
        status, now = known.status, known.status.snapshot.now
        work = status.snapshot.reported and status.snapshot.reported.work
        stopped = [each for each in status.tables if each.state in STOPPED]
        # Stopped tables stand first. One that runs is among the others if a decision about it is
        # open.
        waiting = status.tables[len(stopped) :]
        more = {
            "listing": listed(known.rows, query),
            "facts": [
                (label or "running tables", text) for label, text in facts(status).items() if text
            ],
            "progress": work if work and work.steps else None,
            "stopped": stopped[:_SHOWN],
            "waiting": waiting[:_SHOWN],
            "statements": status.statements[:_SHOWN],
            "totals": {
                "stopped": len(stopped),
                "waiting": len(waiting),
                "statements": len(status.statements),
            },
            "plots": (
                lag_plot(known.minutes, now, query.hours),
                rate_plot(known.minutes, now, query.hours),
            ),
        }
        return _page("overview.html", values | more)

    def _table(self, request: Request) -> Response:
        query, seen = ViewerQuery.of(request.query), self._seen()
        values = self._common(seen, query) | {
            "root": "../",
            "wanted": request.below,
            "row": None,
            "hint": "",
        }
        known = seen.value
        if known is None:
            return _page("table.html", values)
        row = next((each for each in known.rows if each.shown == request.below), None)
        if row is None:
            hint = did_you_mean(request.below, [each.shown for each in known.rows])
            return _page("table.html", values | {"hint": hint}, HTTPStatus.NOT_FOUND)
        name = row.name
        with self._lock:
            shared = self._journals.setdefault(
                name, Shared(lambda: self._journal(name), self._clock)
            )
            self._journals.move_to_end(name)
            if len(self._journals) > _JOURNALS:
                self._journals.popitem(last=False)
        journal = shared.latest()
        entries, minutes = journal.value or (), self._recorder.table_minutes(row.shown)
        now = known.status.snapshot.now
        more = {
            "row": row,
            "journal": entries,
            "journal_fault": journal.fault,
            "now": now - journal.age,
            "steps": row.status.next_steps if row.status else (),
            "pause": self._command("pause", row.name) if row.state == TableState.RUNNING else "",
            "plot": table_plot(minutes, entries, now, self._recorder.report().started_at)
            if minutes
            else None,
        }
        return _page("table.html", values | more)

    def _document(self, _request: Request) -> Response:
        seen = self._seen()
        if seen.value is None:
            body = json_text({"error": seen.fault})
            return Response(
                body=body.encode(), content_type=_JSON, status=HTTPStatus.SERVICE_UNAVAILABLE
            )
        headers = {"Age": f"{seen.age:.0f}"}
        return Response(
            body=json_text(document(seen.value.status)).encode(),
            content_type=_JSON,
            headers=headers,
        )

    def _common(self, seen: Seen[_JudgedLook], query: ViewerQuery) -> dict[str, Any]:
        """Return what every page shows."""
        status = seen.value.status if seen.value else None
        process, now, own = self._recorder.report(), self._clock.now(), dict[str, str]()
        word, look, reasons = Health.UNKNOWN, "", [seen.fault or "nothing was seen yet"]
        if status is not None:
            word, reasons = status.health, [*status.reasons]
            # A healthy feed can have something odd to say too, such as that the source stands
            # still: it is not green then.
            if word == Health.HEALTHY:
                look = "warn" if reasons else ""
                reasons = [status.text.partition(": ")[2], *reasons]
        # What the serving process knows of itself, unless the state has its report anyway.
        if status is None or seen.fault or _started(status.snapshot) != process.started_at:
            retry = f": {process.retry}" if process.phase == Phase.RETRYING else ""
            rounds = process.totals.rounds
            own = {
                "this process": f"{process.phase} for {span(process.phase_seconds)}{retry}",
                "its rounds": f"{rounds:,}, with {process.totals.rows:,} row changes"
                if rounds
                else "",
                "pending": pending(process),
                "skipped": skipped(process),
            }
        return {
            "query": query,
            "head": {"word": word, "look": look or _LOOKS.get(word, "bad"), "reasons": reasons},
            "status": status,
            "process": [fact for fact in own.items() if fact[1]],
            "version": process.version,
            "shown_at": now,
        }


def _started(snapshot: Snapshot) -> float | None:
    """Return when the process started whose report is in the state."""
    return snapshot.report.started_at if snapshot.report else None


def _page(template: str, values: Mapping[str, Any], status: HTTPStatus = HTTPStatus.OK) -> Response:
    body = _environment().get_template(template).render(values).encode("utf-8", "replace")
    return Response(
        body=body, content_type=_HTML, status=status, headers={"Content-Security-Policy": _policy()}
    )


_FOLDER = "templates"
_CUT = 300
"""Characters of a reason or a statement in a list."""


@cache
def _policy() -> str:
    """Return the Content-Security-Policy: only own style, script and data."""
    style, script = (
        base64.b64encode(hashlib.sha256(_text(name).encode()).digest()).decode()
        for name in ("style.css", "script.js")
    )
    return (
        f"default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; img-src data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )


@cache
def _text(name: str) -> str:
    """Return a file that every page holds."""
    return (
        resources.files("storage_consumer.watch")
        .joinpath(_FOLDER, name)
        .read_text(encoding="utf-8")
        .strip()
    )


@cache
def _environment() -> Environment:
    """Return the templates, compiled at first use."""
    found = Environment(
        loader=PackageLoader("storage_consumer.watch", _FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.globals.update(
        span=span,
        tso_time=tso_time,
        utc_time=utc_time,
        table_path=table_path,
        sorts=SORTS,
        ranges=RANGES,
        reload_seconds=RELOAD,
        style=Markup(_text("style.css")),  # noqa: S704 - files of the package, whose digest the policy names
        script=Markup(_text("script.js")),  # noqa: S704 - likewise
    )
    found.filters.update(
        cut=_cut,
        one_line=lambda text: " ".join(text.split()),
        number=lambda number: f"{number:,}",
        short=short,
    )
    return found


def _shown(value: object) -> object:
    """Return a value without secrets and without invisible or direction-changing characters."""
    return (
        lines_escaped(redact(value))
        if isinstance(value, str) and not isinstance(value, Markup)
        else value
    )


def _cut(text: str, most: int = _CUT) -> str:
    """Return the beginning of a text."""
    # Before it is cut: half a secret would no longer be known as one.
    text = redact(text)
    return text if len(text) <= most else f"{text[:most]}…"
