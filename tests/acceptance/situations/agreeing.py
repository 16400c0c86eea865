"""Whether all that shows a feed says the same of it at every second: status, page, JSON, metrics and probe."""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from itertools import groupby

from storage_consumer.cli.endings import answered
from storage_consumer.cli.status_command import CODES
from storage_consumer.errors import StorageConsumerError
from storage_consumer.watch.report import Health

LATE = 6.0
"""Seconds by which two views may be apart: the process knows after 5 what `verify` found, and the page shows a look for 2."""
BRIEF = 2.0
"""Seconds for which the state may show a mix of before and after: the lease and the report are stored one after the other."""
_EVERY = 0.5
"""Seconds between two looks."""
_HEALTH = re.compile(r'^storage_consumer_health\{health="([\w-]+)"\} 1', re.MULTILINE)
_HEADLINE = re.compile(r'class="headline (\w+)".*?<h1 id="word">.*</span> ([\w-]+)</h1>', re.DOTALL)
_NOT_READY = (Health.RETRYING, Health.NO_WRITER)
_SAYS_NOTHING = ""
"""Of a process that stands by, or has ended no round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """What was seen in one moment."""

    began: float
    process: str
    """The word for the feed by the process' metrics."""
    ready: bool | None
    """By the probe; None without a process."""
    applies: bool
    """Whether a round is applying changes."""
    shown: dict[str, str]
    """View → its word."""


@dataclass(slots=True)
class Witness:
    """Looks at everything, several times within two seconds."""

    uri: str
    """Of the target."""
    address: Callable[[], str]
    """Where the program answers; empty before it does."""
    glances: list[Glance] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)
    """What no look may show."""
    _ends: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, unless it has begun."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="witness", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Look no more; raise `AssertionError` where views disagreed."""
        self._ends.set()
        if self._thread is not None:
            self._thread.join()
        found = [*self.odd, *disagreements(self.glances)]
        assert not found, "\n".join([*found[:20], *map(_line, self.glances)])

    def words(self, view: str = "", since: float = 0.0) -> list[str]:
        """The words that a view, or the process, has said since a moment, each once for as long as it lasted."""
        return list(_in_turn(self.glances, view, since))

    def _run(self) -> None:
        while not self._ends.wait(_EVERY):
            if address := self.address():
                self.glances.append(self._glance(address))

    def _glance(self, address: str) -> Glance:
        began = time.monotonic()
        metrics = _get(f"{address}/metrics")[1]
        code, _ = _get(f"{address}/readyz")
        shown = {"status": self._status()}
        # Who has ended shows nothing.
        if html := _get(f"{address}/")[1]:
            shown["page"] = self._page(html)
        if text := _get(f"{address}/status.json")[1]:
            shown["json"] = _word_of_document(text)
        ready = (code == 200) if code else None
        return Glance(
            began=began,
            process=_word_of_process(metrics),
            ready=ready,
            applies="storage_consumer_round_running 1" in metrics,
            shown=shown,
        )

    def _status(self) -> str:
        try:
            found = answered("status", {"downstream_uri": self.uri}, {})
        except StorageConsumerError:
            return Health.UNKNOWN
        word = found.text.partition(":")[0]
        if CODES[Health(word)] != found.code:
            self.odd.append(f"status: {word} with exit code {found.code}")
        return word

    def _page(self, html: str) -> str:
        found = _HEADLINE.search(html)
        if found is None:
            return f"no page: {html[:200]}"
        if found[1] == "good" and found[2] != Health.HEALTHY:
            self.odd.append(f"page: {found[2]} is green")
        return found[2]


def disagreements(glances: Sequence[Glance]) -> Iterator[str]:
    """Yield where a view said, for longer than briefly, what the process did not say about then."""
    for view in sorted({view for glance in glances for view in glance.shown}):
        shown = [glance for glance in glances if view in glance.shown]
        runs = [(word, list(several)) for word, several in groupby(shown, key=lambda glance: glance.shown[view])]
        for at, (word, looks) in enumerate(runs):
            lasted = looks[-1].began - looks[0].began
            # What passes before the process looks again, it goes over, from the word before to the one after.
            beside = {runs[each][0] for each in (at - 1, at + 1) if 0 <= each < len(runs)}
            is_passed = lasted < LATE and len(beside) == 2 and beside <= _around(glances, looks[0], LATE, lasted + LATE)
            if lasted >= BRIEF and not is_passed:
                yield from _unlike(glances, looks, view, word)
    for glance in glances:
        close = _around(glances, glance, BRIEF, BRIEF)
        fitting = {word not in _NOT_READY for word in close}
        if glance.ready is not None and _SAYS_NOTHING not in close and glance.ready not in fitting:
            yield f"the probe says {'ready' if glance.ready else 'not ready'}: {_line(glance)}"


def _unlike(glances: Sequence[Glance], looks: Sequence[Glance], view: str, word: str) -> Iterator[str]:
    """Yield the looks at which a view said a word that the process did not say about then."""
    for glance in looks:
        # The metrics count the tables at the end of a round, which may begin with an operator's decision.
        end = next((each.began for each in glances if each.began >= glance.began and not each.applies), glance.began)
        said = _around(glances, glance, LATE, end - glance.began + LATE)
        # Who cannot read the state does not know; the process does.
        if said.isdisjoint((_SAYS_NOTHING, *(_NOT_READY if word == Health.UNKNOWN else (word,)))):
            yield f"{view} says {word} while the metrics say {said}: {_line(glance)}"


def _around(glances: Sequence[Glance], glance: Glance, before: float, after: float) -> set[str]:
    """Return what the process said from so many seconds before a look to so many after it."""
    return {each.process for each in glances if -before <= each.began - glance.began <= after}


def _in_turn(glances: Sequence[Glance], view: str = "", since: float = 0.0) -> Iterator[str]:
    """Yield the words of a view, or of the process, each once for as long as it lasted."""
    said = (glance.shown.get(view) if view else glance.process for glance in glances if glance.began >= since)
    yield from (word for word, _ in groupby(word for word in said if word is not None))


def _line(glance: Glance) -> str:
    shown = " ".join(f"{view}={word}" for view, word in glance.shown.items())
    return f"{glance.began:.1f} metrics={glance.process} ready={glance.ready} {shown}"


def _word_of_process(metrics: str) -> str:
    """Return the word that the metrics have; that of a feed without a process if there are none."""
    if not metrics:
        return Health.NO_WRITER
    if 'phase{phase="standby"} 1' in metrics:
        return _SAYS_NOTHING
    if "storage_consumer_writer 0" in metrics:
        return Health.NO_WRITER
    found = _HEALTH.search(metrics)
    return found[1] if found else _SAYS_NOTHING


def _word_of_document(text: str) -> str:
    with suppress(ValueError):
        return str(json.loads(text).get("health", Health.UNKNOWN))
    return f"no document: {text[:200]}"


def _get(address: str) -> tuple[int, str]:
    """Return code and text of an answer; 0 and nothing from who does not answer."""
    try:
        with urllib.request.urlopen(address, timeout=6) as answered:  # noqa: S310 - http on loopback
            return answered.status, answered.read().decode()
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read().decode()
    except (OSError, HTTPException):  # a program that is killed ends in the middle of an answer
        return 0, ""
