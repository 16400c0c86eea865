"""Looks at the consumers all the time: metrics each second, the page and `status` now and then, and what they take of the machine."""

from __future__ import annotations

import os
import threading
import time
import urllib.error
import urllib.request
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Self

from prometheus_client.parser import text_string_to_metric_families

from tests.campaigns.soak.parts import Consumer, Parts

_SCRAPE, _PAGE, _SAMPLE, _STATUS = 1.0, 5.0, 10.0, 60.0
"""Seconds between two looks."""
_MIB = 1 << 20
_PREFIX = "storage_consumer_"


@dataclass(slots=True)
class Watch:
    """What was seen."""

    parts: Parts
    scrapes: int = 0
    slowest: float = 0.0
    """Seconds of a scrape."""
    pages: int = 0
    statuses: list[int] = field(default_factory=list)
    """Exit codes of `status`."""
    odd: list[str] = field(default_factory=list)
    """Answers that nobody may get: of a page that broke, or a command."""
    samples: list[tuple[float, dict[str, float]]] = field(default_factory=list)
    """Monotonic time, and what the writer and its processes took."""
    _values: dict[str, dict[str, float]] = field(default_factory=dict)
    _ends: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Self:
        """Begin."""
        for each in (self._scrape, self._look_at_pages, self._sample, self._ask_status):
            thread = threading.Thread(target=each, name=each.__name__, daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._ends.set()
        for thread in self._threads:
            thread.join()

    def writer(self) -> Consumer | None:
        """Who writes, by the last scrape."""
        return next((each for each in self.parts.consumers if self._values.get(each.name, {}).get("writer") == 1), None)

    def value(self, consumer: Consumer, name: str) -> float:
        """A value of the last scrape; -1 without one."""
        return self._values.get(consumer.name, {}).get(name, -1.0)

    def _scrape(self) -> None:
        while not self._ends.wait(_SCRAPE):
            for each in self.parts.consumers:
                began = time.monotonic()
                text = self._answer(each, "/metrics")
                self._values[each.name] = _samples(text) if text else {}
                if text:
                    self.scrapes += 1
                    self.slowest = max(self.slowest, time.monotonic() - began)

    def _look_at_pages(self) -> None:
        while not self._ends.wait(_PAGE):
            pages = [text for each in self.parts.consumers if (text := self._answer(each, "/"))]
            self.pages += len(pages)
            self.odd += [f"half a page: {text[-200:]}" for text in pages if "</html>" not in text]

    def _answer(self, consumer: Consumer, path: str) -> str:
        """What it answers; empty if it does not."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{consumer.port}{path}", timeout=5) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as refusal:
            with refusal:
                # A page that cannot ask the target says so.
                if refusal.code != 503:
                    self.odd.append(f"{path} of {consumer.name}: {refusal.code}")
        except (OSError, ValueError):
            pass
        return ""

    def _ask_status(self) -> None:
        while not self._ends.wait(_STATUS):
            done = self.parts.command("status", "--json")
            self.statuses.append(done.returncode)
            if "Traceback" in done.stderr:
                self.odd.append(f"status: {done.stderr[-500:]}")

    def _sample(self) -> None:
        while not self._ends.wait(_SAMPLE):
            if (writer := self.writer()) is not None:
                taken = _taken(writer)
                for name in ("running_lag_seconds", "target_connections"):
                    taken[name] = self.value(writer, name)
                with suppress(Exception):  # the target may be away
                    taken["state rows"] = float(self._state_rows())
                self.samples.append((time.monotonic(), taken))

    def _state_rows(self) -> int:
        tables = self.parts.server.query(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'storage_consumer'"
        )
        return sum(
            int(self.parts.server.query(f"SELECT COUNT(*) FROM storage_consumer.`{name}`")[0][0]) for (name,) in tables
        )

    def growth(self) -> dict[str, dict[str, float]]:
        """For each thing that was sampled: median of the first third of the time, of the last, and the highest."""
        if not self.samples:
            return {}
        third = (self.samples[-1][0] - self.samples[0][0]) / 3
        first = [taken for at, taken in self.samples if at < self.samples[0][0] + third]
        last = [taken for at, taken in self.samples if at > self.samples[-1][0] - third]
        found: dict[str, dict[str, float]] = {}
        for name in sorted({name for _, taken in self.samples for name in taken}):
            values = [[taken[name] for taken in some if name in taken] for some in (first, last)]
            if all(values):
                highest = max(taken[name] for _, taken in self.samples if name in taken)
                found[name] = {"first": median(values[0]), "last": median(values[1]), "highest": highest}
        return found


def _taken(consumer: Consumer) -> dict[str, float]:
    """MiB, processes, threads and open files of a consumer's processes, by kind."""
    found = defaultdict[str, float](float)
    driver = consumer.running.process.pid if consumer.running else 0
    for pid in consumer.processes():
        folder = Path(f"/proc/{pid}")
        with suppress(OSError, ValueError, IndexError):
            comm = (folder / "comm").read_text(encoding="utf-8").strip()
            kind = "driver" if pid == driver else "JVM" if comm == "java" else "workers"
            resident = int((folder / "statm").read_text(encoding="utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE")
            # How many workers there are is Spark's affair.
            size, name = resident / _MIB, "largest worker MiB" if kind == "workers" else f"{kind} MiB"
            found[name] = max(found[name], size)
            found[f"{kind} threads"] += len(list((folder / "task").iterdir()))
            found[f"{kind} open files"] += len(list((folder / "fd").iterdir()))
            found["processes"] += 1
    return dict(found)


def _samples(text: str) -> dict[str, float]:
    """Name without prefix → value, of the metrics without labels."""
    found: dict[str, float] = {}
    with suppress(ValueError):
        for family in text_string_to_metric_families(text):
            plain = (sample for sample in family.samples if not sample.labels)
            found.update((sample.name.removeprefix(_PREFIX), sample.value) for sample in plain)
    return found


def as_report(watch: Watch) -> dict[str, Any]:
    """What was seen, for the report."""
    return {
        "scrapes": watch.scrapes,
        "slowest scrape": round(watch.slowest, 3),
        "pages": watch.pages,
        "status exit codes": {str(code): watch.statuses.count(code) for code in sorted(set(watch.statuses))},
        "odd answers": watch.odd,
    }
