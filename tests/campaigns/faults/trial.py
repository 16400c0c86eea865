"""One trial: the workload under a fault, another start without it where the program ended, and what is to be seen then."""

from __future__ import annotations

import logging
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from storage_consumer import Consumer
from storage_consumer.errors import ConfigError, NotTheWriter, StorageConsumerError
from storage_consumer.summary import RoundSummary
from storage_consumer.telemetry import ROOT
from tests.campaigns.faults import workload
from tests.campaigns.faults.wire import Wire, passing
from tests.harness.pages import RIGHTS
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import CONFIG, SmallBucket

USER = "app"
LEASE = "6s"
"""``--lease-ttl``: the next start here is in the same process, which is not gone, so that it has to wait so long."""
_COUNTED = ("retry", "ddl_lost", "ddl_waits")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the table."""

    fault: str
    where: str
    outcome: str
    equal: bool
    kept: bool
    """Whether it is as promised."""

    def __str__(self) -> str:
        """As Markdown."""
        said = self.outcome if self.kept else f"**not as promised**: {self.outcome}"
        return "| " + " | ".join([self.fault, self.where, said.replace("|", "/"), "yes" if self.equal else "NO"]) + " |"


@dataclass(slots=True, kw_only=True)
class Seen:
    """What was seen of one trial."""

    error: Exception | None = None
    """By which the first start ended."""
    events: Counter[str] = field(default_factory=Counter)
    """How often the program said that it tries again, over both starts."""
    summary: RoundSummary = field(default_factory=RoundSummary)
    """Of the last round."""
    wrong: list[str] = field(default_factory=list)

    @property
    def code(self) -> int:
        """The exit code that the first start would have had."""
        codes = {ConfigError: 2, NotTheWriter: 3}
        return 0 if self.error is None else next((c for kind, c in codes.items() if isinstance(self.error, kind)), 1)

    def told(self) -> str:
        """In one line."""
        again = sum(self.events.values())
        tried = f"tried again {again} times" if again else "no round began again"
        if self.error is None:
            return f"{tried}, went on"
        name = "" if isinstance(self.error, StorageConsumerError) else f"unexpected {type(self.error).__name__}: "
        return f"{tried}, ended with {self.code}: {name}{_short(str(self.error))}; the next start went on"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 300 else f"{line[:200]} … {line[-90:]}"


@dataclass(slots=True, kw_only=True)
class World:
    """A server behind a `Wire`, a folder for buckets, and the active Spark session."""

    server: DatabaseServer
    wire: Wire
    folder: Path
    cut: int = -1
    """Whose round runs; -1 before the first."""
    wide: int = workload.WIDE
    """Rows of the table of long rows."""
    upstream: str = ""
    """The bucket; empty for the folder."""
    upload: Callable[[], object] = bool
    """Puts what has been added to the bucket's folder where the program reads it; a folder is read where it is."""

    @property
    def bucket(self) -> SmallBucket:
        """Filled cut by cut."""
        return SmallBucket(root=self.folder / "bucket")

    @property
    def downstream(self) -> str:
        """The server through the wire."""
        return f"mysql://{USER}@127.0.0.1:{self.wire.port}/"

    def empty(self) -> None:
        """No database, no bucket, nothing wrong."""
        self.server.drop_all()
        self.server.query(f"CREATE USER IF NOT EXISTS {USER}")
        self.server.query(f"GRANT {RIGHTS} ON *.* TO {USER}")  # root would write to a read-only server
        shutil.rmtree(self.bucket.root, ignore_errors=True)
        self.bucket.root.mkdir(parents=True)
        self.wire.watch, self.cut, self.upstream, self.upload = passing, -1, "", bool

    def play(self, fault: AbstractContextManager[object] | None = None, **options: Any) -> Seen:
        """The workload under `fault`, which is over after the first start; the `options` are that start's."""
        self.empty()
        seen = Seen()
        with counted(seen.events):
            with fault or nullcontext():
                try:
                    self._rounds(seen, options)
                except Exception as error:  # noqa: BLE001 - which one it is, is what the trial is about
                    seen.error = error
            self.wire.watch = passing
            if seen.error is not None:
                self._rounds(seen, {})
        seen.wrong = workload.differences(self.server, self.wide)
        return seen

    def _rounds(self, seen: Seen, options: Mapping[str, Any]) -> None:
        """One start of the program: a round for each cut that has not been shown, or not been finished."""
        given: dict[str, Any] = {
            "upstream_uri": self.upstream or self.bucket.uri,
            "downstream_uri": self.downstream,
            "config": CONFIG,
            "lease_ttl": LEASE,
        }
        given |= options
        with Consumer(**given) as running:
            for cut in range(max(self.cut, 0), workload.CUTS):
                if cut != self.cut:
                    workload.show(self.bucket, cut, self.wide)
                    self.upload()
                self.cut = cut
                seen.summary = running.run_once()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What goes wrong, and what is promised then."""

    name: str
    where: str
    around: Callable[[World], AbstractContextManager[object]]
    """The fault strikes somewhere inside the block, and is over at its end."""
    ends: str = ""
    """The program ends with code 1 and an error that has this in it; empty: it goes on by itself."""
    halts: str = ""
    """The one table that halts, and is no part of what has to be equal."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of the program."""
    limit: str = ""
    """Why nothing is promised; the line shows what comes of it."""

    def __call__(self, world: World) -> Line:
        """Try it."""
        try:
            seen = world.play(self.around(world), **self.options)
        except Exception as error:  # noqa: BLE001 - one trial that fails must not hide the others
            return self._line(
                f"the trial failed: {type(error).__name__}: {_short(str(error))}", equal=False, kept=False
            )
        if self.halts:
            return self._judged_without_one(seen)
        kept = seen.error is None
        if self.ends:
            kept = seen.code == 1 and re.search(self.ends, str(seen.error)) is not None
        if self.limit:
            return self._line(f"known limit ({self.limit}): {seen.told()}", equal=not seen.wrong, kept=True)
        told = "; ".join([seen.told(), *map(_short, seen.wrong)])
        return self._line(told, equal=not seen.wrong, kept=kept and not seen.wrong)

    def _judged_without_one(self, seen: Seen) -> Line:
        """As promised if that table halted, and all others are equal."""
        its = (f"d.{self.halts} is there", f"{self.halts} is halted")
        wrong = [text for text in seen.wrong if not text.startswith(its)]
        halted = {table.table: table.error for table in seen.summary.halted}
        told = [f"{table} halted: {_short(error)}" for table, error in halted.items()]
        kept = set(halted) == {f"d.{self.halts}"} and seen.error is None and not wrong
        return self._line("; ".join([*told, *wrong]) or seen.told(), equal=not wrong, kept=kept)

    def _line(self, outcome: str, *, equal: bool, kept: bool) -> Line:
        return Line(fault=self.name, where=self.where, outcome=outcome, equal=equal, kept=kept)


@contextmanager
def counted(events: Counter[str]) -> Iterator[None]:
    """Count what the program says of trying again."""

    class Handler(logging.Handler):
        """Listens."""

        def emit(self, record: logging.LogRecord) -> None:
            """Count one."""
            event = record.getMessage().partition(" ")[0]
            events.update([event] if event in _COUNTED else [])

    handler, logger = Handler(), logging.getLogger(ROOT)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
