"""What goes wrong, for how long, and which alerts that must raise, may raise, and no others."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from signal import SIGCONT, SIGSTOP, Signals

from tests.campaigns.soak.feed import ODD, Feed
from tests.campaigns.soak.parts import Parts
from tests.campaigns.soak.watching import Watch
from tests.harness.servers import Child

NO_WRITER, DOWN, HALTED, WAITING = (
    f"StorageConsumer{name}" for name in ("NoWriter", "Down", "TableHalted", "TableWaiting")
)
LAG, STALLED, RETRYING, FLAPPING = (
    f"StorageConsumer{name}" for name in ("Lag", "SourceStalled", "Retrying", "LeaseFlapping")
)
STUCK, GROWS = (f"StorageConsumer{name}" for name in ("Stuck", "PendingFilesGrow"))
_GONE = (DOWN, NO_WRITER, FLAPPING, LAG, STALLED)
"""Of whoever is away for a while."""
_PATIENCE = 180.0
"""Seconds for a row to arrive, and for a table to halt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong."""

    name: str
    begin: Callable[[], None]
    seconds: float
    """Until `end`."""
    end: Callable[[], None]
    must: frozenset[str] = frozenset()
    """Alerts that fire before it is over, or right after."""
    may: frozenset[str] = frozenset()
    """Those that may."""


def _nothing() -> None:
    """What passes by itself."""


def _sends(server: Child, number: Signals) -> Callable[[], None]:
    return lambda: server.signal(number)


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
        """In the order in which they come: by turns one that passes by itself and one that an alert must tell."""
        return [fault for pair in zip(self._passing(), self._told(), strict=True) for fault in pair]

    def _passing(self) -> list[Fault]:
        """Who is gone for a moment is missed for a moment."""
        server, s3 = self.parts.server.child, self.parts.s3.child

        def moment(name: str, begin: Callable[[], None], end: Callable[[], None], seconds: float, *may: str) -> Fault:
            return Fault(name=name, begin=begin, end=end, seconds=seconds, may=frozenset({*_GONE, *may}))

        return [
            moment("kill -9 of the writer", self._writer("kill"), _nothing, 20),
            moment("SIGTERM to the writer", self._writer("terminate"), _nothing, 20),
            moment("kill -9 of the target", server.kill, server.start, 5, RETRYING),
            moment("kill -9 of the JVM", self._writer("kill_java"), _nothing, 20, RETRYING),
            moment("the target restarts", server.close, server.start, 2, RETRYING),
            moment("the bucket's server restarts", s3.kill, s3.start, 3, RETRYING),
        ]

    def _told(self) -> list[Fault]:
        """What lasts, so that somebody has to know."""
        server, s3 = self.parts.server.child, self.parts.s3.child

        def lasting(
            name: str, begin: Callable[[], None], end: Callable[[], None], seconds: float, must: set[str], *may: str
        ) -> Fault:
            return Fault(name=name, begin=begin, end=end, seconds=seconds, must=frozenset(must), may=frozenset(may))

        return [
            lasting("a row that the target refuses", self._refuse, self._cure, 40, {HALTED}, FLAPPING),
            # A request waits for its answer longer than this takes, so that the round has not failed yet.
            lasting("the bucket hangs", _sends(s3, SIGSTOP), _sends(s3, SIGCONT), 75, {LAG}, *_GONE, WAITING, RETRYING),
            lasting("the target is away", server.kill, server.start, 45, {RETRYING}, *_GONE, WAITING),
            lasting("the changefeed stands still", self.feed.stand, self.feed.go, 75, {STALLED}, FLAPPING),
            lasting("the writer is frozen", self._writer("freeze"), self._thaw, 45, {DOWN}, *_GONE),
            lasting("both consumers are gone", self._kill_all, self.ensure, 50, {DOWN, NO_WRITER}, *_GONE),
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
