"""A real Prometheus with this repository's alert rules, in which time goes faster; and what its alerts said."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.harness.servers import free_port, running, wait_for

RULES = Path(__file__).resolve().parents[2] / "conf" / "prometheus" / "alerts.yml"
FASTER = 15
"""Times, unless somebody asks for more. What a rule waits for 5 minutes for, it waits 20 s for, and 600 s of lag are 40 s."""
NAMES = tuple(re.findall(r"- alert: (\w+)", RULES.read_text(encoding="utf-8")))
"""Of all rules."""
_DURATION = re.compile(r"(for: |\[)(\d+)([mh])((?::\d+[mh])?)")
# A clock that is wrong by a minute is wrong at any pace.
_SECONDS = re.compile(r"((?<!_ahead)_seconds(?: - [a-z_]+_seconds)? > )(\d+)\b")
_POLL = 1.0


def faster(rules: str, times: int = FASTER) -> str:
    """Return alert rules whose waits, ranges and limits of seconds are so many times shorter."""

    def shorter(found: re.Match[str]) -> str:
        seconds = max(1, int(found[2]) * {"m": 60, "h": 3600}[found[3]] // times)
        return f"{found[1]}{seconds}s{':2s' if found[4] else ''}"

    return _SECONDS.sub(lambda found: f"{found[1]}{int(found[2]) / times:g}", _DURATION.sub(shorter, rules))


@dataclass(slots=True)
class Alerts:
    """Polls the alerts of a Prometheus."""

    port: int
    fired: list[tuple[str, float, float]] = field(default_factory=list)
    """Name, first and last second (of the monotonic clock) of each time that an alert fired."""
    firing: frozenset[str] = frozenset()
    """Names of those that fire now."""
    _open: dict[str, tuple[float, float]] = field(default_factory=dict)
    _ends: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Poll until `end`."""
        while not self._ends.wait(_POLL):
            with suppress(OSError, ValueError):
                self._poll()

    def _poll(self) -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/alerts", timeout=10) as answer:
            alerts = json.load(answer)["data"]["alerts"]
        now, firing = time.monotonic(), {each["labels"]["alertname"] for each in alerts if each["state"] == "firing"}
        self.firing = frozenset(firing)
        for name in firing:
            began, _ = self._open.get(name, (now, now))
            self._open[name] = began, now
        for name in [name for name in self._open if name not in firing]:
            self.fired.append((name, *self._open.pop(name)))

    def end(self) -> list[tuple[str, float, float]]:
        """Poll no more; return all that fired."""
        self._ends.set()
        return [*self.fired, *((name, *times) for name, times in self._open.items())]


@contextmanager
def prometheus(home: Path, targets: Sequence[int], times: int = FASTER) -> Iterator[Alerts]:
    """A Prometheus that scrapes these ports each second, while the block lasts; its time goes so many `times` faster."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "storage-consumer" / "prometheus"
    folder = Path(os.environ.get("STORAGE_CONSUMER_PROMETHEUS") or cache)
    program = shutil.which("prometheus") or str(folder / "usr" / "bin" / "prometheus")
    port, config = free_port(), home / "prometheus.yml"
    (home / "alerts.yml").write_text(faster(RULES.read_text(encoding="utf-8"), times), encoding="utf-8")
    listed = ", ".join(f"'127.0.0.1:{target}'" for target in targets)
    config.write_text(
        "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\n"
        "rule_files: [alerts.yml]\n"
        f"scrape_configs: [{{job_name: storage-consumer, static_configs: [{{targets: [{listed}]}}]}}]\n",
        encoding="utf-8",
    )
    command = [
        program,
        f"--config.file={config}",
        f"--storage.tsdb.path={home / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with running(command, home / "prometheus.log") as process:
        wait_for(process, port, home / "prometheus.log")
        alerts = Alerts(port)
        polling = threading.Thread(target=alerts.run, name="alerts", daemon=True)
        polling.start()
        yield alerts
        alerts.end()
        polling.join()
