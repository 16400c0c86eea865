"""What goes wrong, for how long, and which alerts that must raise, may raise, and no others."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from signal import SIGCONT, SIGSTOP

from tests.campaigns.soak.feed import ODD, Feed
from tests.campaigns.soak.parts import Parts
from tests.campaigns.soak.watching import Watch

NO_WRITER, DOWN, HALTED, WAITING = (
    f"StorageConsumer{name}" for name in ("NoWriter", "Down", "TableHalted", "TableWaiting")
)
LAG, STALLED, RETRYING, FLAPPING = (
    f"StorageConsumer{name}" for name in ("Lag", "SourceStalled", "Retrying", "LeaseFlapping")
)
STUCK, GROWS = (f"StorageConsumer{name}" for name in ("Stuck", "PendingFilesGrow"))
_PATIENCE = 180.0
"""Seconds for a row to arrive, and for a table to halt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong."""

    name: str
    begin: Callable[[], None]
    seconds: float
    """Until `end`."""
    end: Callable[[], None] = lambda: None
    must: frozenset[str] = frozenset()
    """Alerts that fire before it is over, or right after."""
    may: frozenset[str] = frozenset()
    """Those that may."""


@dataclass(slots=True)
class Faults:
    """Makes them, over and over."""

    parts: Parts
    feed: Feed
    watch: Watch
    cured: list[str] = field(default_factory=list)
    """The commands that cured halted tables, as `status` named them."""
    wrong: list[str] = field(default_factory=list)

    def all(self) -> list[Fault]:
        """In the order in which they come."""
        server, s3 = self.parts.server.child, self.parts.s3.child
        # Whoever is gone for a moment is missed for a moment.
        moment = frozenset({DOWN, NO_WRITER, FLAPPING, LAG, STALLED})
        return [
            Fault(name="kill -9 of the writer", begin=self._writer("kill"), seconds=20, may=moment),
            Fault(name="SIGTERM to the writer", begin=self._writer("terminate"), seconds=20, may=moment),
            Fault(
                name="a row that the target refuses",
                begin=self._refuse,
                seconds=40,
                end=self._cure,
                must=frozenset({HALTED}),
                may=frozenset({FLAPPING}),
            ),
            Fault(
                name="kill -9 of the target", begin=server.kill, seconds=5, end=server.start, may=moment | {RETRYING}
            ),
            Fault(name="kill -9 of the JVM", begin=self._writer("kill_java"), seconds=20, may=moment | {RETRYING}),
            Fault(
                name="the bucket hangs",
                begin=lambda: s3.signal(SIGSTOP),
                seconds=75,
                end=lambda: s3.signal(SIGCONT),
                # A request waits for its answer longer than this fault takes, so that the round has not failed yet.
                must=frozenset({LAG}),
                may=moment | {WAITING, RETRYING},
            ),
            Fault(name="the target restarts", begin=server.close, seconds=2, end=server.start, may=moment | {RETRYING}),
            Fault(
                name="the target is away",
                begin=server.kill,
                seconds=45,
                end=server.start,
                must=frozenset({RETRYING}),
                may=moment | {WAITING},
            ),
            Fault(
                name="the changefeed stands still",
                begin=self.feed.stand,
                seconds=75,
                end=self.feed.go,
                must=frozenset({STALLED}),
                may=frozenset({FLAPPING}),
            ),
            Fault(
                name="the writer is frozen",
                begin=self._writer("freeze"),
                seconds=45,
                end=self._thaw,
                must=frozenset({DOWN}),
                may=moment,
            ),
            Fault(name="the bucket's server restarts", begin=s3.kill, seconds=3, end=s3.start, may=moment | {RETRYING}),
            Fault(
                name="both consumers are gone",
                begin=self._kill_all,
                seconds=50,
                end=self.ensure,
                must=frozenset({DOWN, NO_WRITER}),
                may=moment,
            ),
        ]

    # the parts

    def _writer(self, what: str) -> Callable[[], None]:
        def begin() -> None:
            getattr(self.watch.writer() or self.parts.consumers[0], what)()

        return begin

    def _thaw(self) -> None:
        for each in self.parts.consumers:
            each.thaw()

    def _kill_all(self) -> None:
        for each in self.parts.consumers:
            each.kill()

    def ensure(self) -> None:
        """Start again what has ended."""
        for each in self.parts.consumers:
            each.ensure()

    # the table

    def _refuse(self) -> None:
        """The target has a check that the next row does not meet."""
        self.feed.odd_row("fits")
        if not self._wait_for_rows():
            return
        self.parts.server.query(
            f"ALTER TABLE `{ODD[0]}`.`{ODD[1]}` ADD CONSTRAINT full_up CHECK (id <= {self.feed.odd_rows})"
        )
        self.feed.odd_row("does not fit")

    def _wait_for_rows(self) -> bool:
        """Wait until the target has all rows of the table; return whether it has."""
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            with suppress(Exception):
                if self.parts.server.query(f"SELECT COUNT(*) FROM `{ODD[0]}`.`{ODD[1]}`") == ((self.feed.odd_rows,),):
                    return True
            time.sleep(0.5)
        self.wrong.append(f"row {self.feed.odd_rows} did not arrive within {_PATIENCE:.0f} s")
        return False

    def _named(self) -> list[str]:
        """The commands that `status` names for the table, once it has halted."""
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            told = self.parts.command("status", "--json")
            if told.returncode == 4:
                tables = json.loads(told.stdout)["tables"]
                return [command for each in tables if each["table"] == ".".join(ODD) for command in each["next"]]
            time.sleep(1)
        return []

    def _cure(self) -> None:
        """Make room for it, and do what `status` says."""
        commands = self._named()
        if not commands:
            self.wrong.append("status names no command for a halted table")
            return
        self.parts.server.query(f"ALTER TABLE `{ODD[0]}`.`{ODD[1]}` DROP CONSTRAINT full_up")
        words = commands[0].split()
        self.cured.append(commands[0])
        done = self.parts.command(*words[1 : words.index("--downstream-uri")])
        if done.returncode:
            self.wrong.append(f"{commands[0]}: {done.stdout}{done.stderr}")
        self._wait_for_rows()
