"""``python -m tests.campaigns soak``: half an hour on call.

A simulated source goes on in real time: transactions on a handful of tables ten times a second, a statement every 15 s, TiCDC's files in a
real S3 server. Two real consumers (one stands by) apply them to a real database. All the time something is killed, stopped, restarted or
away, a table halts and is cured by the command that `status` names, a real Prometheus evaluates this repository's alert rules (in which
time goes 15 times faster), and metrics, page and `status` are looked at.

At the end the target must equal the source; each alert that a fault must raise has fired, and none fired without a fault; nothing that was
sampled has grown beyond its limit. Exit code 0 if so, else 1; the report is printed, and with ``--report`` written as JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.campaigns.soak.faults import Fault, Faults
from tests.campaigns.soak.feed import Feed
from tests.campaigns.soak.parts import BUCKET, PREFIX, Consumer, Parts, arguments_for
from tests.campaigns.soak.watching import Watch, as_report
from tests.harness.hook_server import hook_server
from tests.harness.prometheus import FASTER, Alerts, prometheus
from tests.harness.s3_server import s3_server
from tests.harness.servers import SERVERS, quoted

_WARM_UP, _BETWEEN = 45.0, 30.0
"""Seconds before the first fault, and after each."""
_AFTER = 60.0
"""Seconds after a fault in which its alerts may still fire."""
_DRAIN = 180.0
"""Seconds that the consumers have for the rest."""
_MORE, _SLACK = 0.25, {"MiB": 64.0, "threads": 16.0, "open files": 32.0, "state rows": 2_000.0}
"""What may be added from the first third to the last: a share, and so many more of what is counted."""


@dataclass(slots=True)
class Soak:
    """One run."""

    minutes: float
    parts: Parts
    feed: Feed
    watch: Watch
    alerts: Alerts
    faults: Faults
    made: list[tuple[Fault, float, float]] = field(default_factory=list)
    """Faults, and when they began and ended."""

    def run(self) -> list[str]:
        """Go on for the time; return what was wrong."""
        end = time.monotonic() + self.minutes * 60
        self._wait(_WARM_UP)
        while True:
            for fault in self.faults.all():
                if time.monotonic() + fault.seconds + _BETWEEN > end:
                    return [*self._settled(), *self.faults.wrong]
                self._make(fault)

    def _make(self, fault: Fault) -> None:
        began = time.monotonic()
        print(f"{time.strftime('%H:%M:%S')} {fault.name}", flush=True)
        fault.begin()
        self._wait(fault.seconds)
        fault.end()
        self.made.append((fault, began, time.monotonic()))
        self._wait(_BETWEEN)

    def _wait(self, seconds: float) -> None:
        """Wait, and start again what has ended; what is meant to be gone for a while stays so."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(1)
            if seconds in {_BETWEEN, _WARM_UP}:
                self.faults.ensure()

    def _settled(self) -> Iterator[str]:
        """Let the rest be applied, and compare."""
        last = self.feed.finish()
        until = time.monotonic() + _DRAIN
        while time.monotonic() < until and self._checkpoint() < last:
            self.faults.ensure()
            time.sleep(1)
        if (reached := self._checkpoint()) < last:
            yield f"the checkpoint stands at {reached}, not at {last}"
        yield from self._differences()
        yield from self._wrong_alerts()
        yield from self._growth()
        yield from self.watch.odd

    def _checkpoint(self) -> int:
        done = self.parts.command("status", "--json")
        try:
            return int(json.loads(done.stdout)["checkpoint"]["ts"])
        except (ValueError, KeyError):
            return 0

    def _differences(self) -> Iterator[str]:
        server, wanted = self.parts.server, self.feed.tables()
        there = {
            (str(schema), str(table))
            for schema, table in server.query(
                "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema IN ('shop', 'depot', 'odd')"
            )
        }
        if there != set(wanted):
            yield f"tables {sorted(there)}, at the source {sorted(wanted)}"
        for name in sorted(there & set(wanted)):
            columns, rows = wanted[name]
            listed = ", ".join(f"CAST({quoted(column)} AS CHAR)" for column in columns)
            found = sorted(server.query(f"SELECT {listed} FROM {quoted(name[0])}.{quoted(name[1])}"), key=repr)
            if found != rows:
                yield f"{name}: {found[:5]} ({len(found)} rows), at the source {rows[:5]} ({len(rows)})"

    def _wrong_alerts(self) -> Iterator[str]:
        fired = self.alerts.end()
        for fault, began, ended in self.made:
            seen = {name for name, first, last in fired if first <= ended + _AFTER and last >= began}
            yield from (f"{name} did not fire: {fault.name}" for name in sorted(fault.must - seen))
        for name, first, last in fired:
            causes = [
                f
                for f, began, ended in self.made
                if first <= ended + _AFTER and last >= began and name in f.must | f.may
            ]
            if not causes:
                yield f"{name} fired without a cause, {last - first:.0f} s"

    def _growth(self) -> Iterator[str]:
        for name, values in self.watch.growth().items():
            slack = next((more for words, more in _SLACK.items() if name.endswith(words)), None)
            if slack is not None and values["last"] > values["first"] * (1 + _MORE) + slack:
                yield f"{name} grew from {values['first']:.0f} to {values['last']:.0f}"

    def report(self, wrong: Sequence[str]) -> dict[str, Any]:
        """All figures."""
        return {
            "minutes": self.minutes,
            "server": self.parts.server.version,
            "feed": self.feed.counts,
            "faults": [fault.name for fault, _, _ in self.made],
            "starts": {each.name: each.starts for each in self.parts.consumers},
            "alerts": [f"{name} {last - first:.0f} s" for name, first, last in self.alerts.end()],
            "rules": f"{FASTER} times faster",
            "cured by": self.faults.cured,
            "growth": {
                name: {k: round(v, 1) for k, v in values.items()} for name, values in self.watch.growth().items()
            },
            **as_report(self.watch),
            "wrong": list(wrong),
        }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns soak", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--server", choices=sorted(SERVERS), default="mariadb")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ddl-every", type=float, default=15.0, help="seconds between two statements")
    parser.add_argument("--report", type=Path, help="JSON file for the figures")
    parser.add_argument("--keep", type=Path, help="folder for the logs, which is kept")
    asked = parser.parse_args(arguments)
    with ExitStack() as stack:
        home = asked.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))
        home.mkdir(parents=True, exist_ok=True)
        server, s3 = stack.enter_context(SERVERS[asked.server]()), stack.enter_context(s3_server())
        hook = stack.enter_context(hook_server())
        client = s3.client(s3.writer)
        (home / "empty").mkdir(exist_ok=True)
        s3.upload(home / "empty", BUCKET)
        given = arguments_for(server, s3, home, hook.command())
        consumers = tuple(Consumer(name, given, home) for name in ("one", "two"))
        parts = Parts(server, s3, consumers)
        feed = Feed(
            lambda path, content: client.put_object(Bucket=BUCKET, Key=f"{PREFIX}/{path}", Body=content),
            asked.seed,
            asked.ddl_every,
        )
        stack.enter_context(feed)
        for each in consumers:
            stack.callback(each.close)
            each.start()
        watch = stack.enter_context(Watch(parts))
        alerts = stack.enter_context(prometheus(home, [each.port for each in consumers]))
        soak = Soak(asked.minutes, parts, feed, watch, alerts, Faults(parts, feed, watch))
        wrong = soak.run()
        report = soak.report(wrong) | {"hook documents": [each["event"] for each in hook.got]}
    text = json.dumps(report, indent=2)
    print(text)
    if asked.report:
        asked.report.write_text(text + "\n", encoding="utf-8")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
