"""The consumers of a history, and the operators who look after them."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from storage_consumer import Consumer, RoundSummary
from storage_consumer.checkpoint.findings import QuarantinedEntry
from storage_consumer.checkpoint.progress import StoredProgress
from storage_consumer.checkpoint.store import StateStore, operated
from storage_consumer.checkpoint.tables import StoredLoads
from storage_consumer.cli.main import main as command
from storage_consumer.config.settings import Downstream
from storage_consumer.plan.loads import OPEN
from tests.campaigns.refusing.source import Diary, Key, Table
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import CONFIG

USUAL = 100
"""Rows that a consumer's quarantine may hold of one table."""
_TRIES = 6
_NOTES = ((StoredProgress, "save"), (StoredLoads, "advance"), (StoredLoads, "finish"))
"""Before what a consumer ends: rows are written, and nothing is noted of them."""


class Wrong(AssertionError):
    """Target and quarantine are not what the source is."""


class Crash(RuntimeError):
    """A planted end of a consumer."""


@dataclass(slots=True)
class Consumers:
    """One consumer at a time."""

    chance: random.Random
    server: DatabaseServer
    upstream: str
    diary: Diary
    limit: int = USUAL
    """Of the running consumer; 0: it has no quarantine."""
    _running: Consumer | None = None

    def open(self, limit: int) -> None:
        """Start another consumer."""
        self.close()
        self.limit = limit
        self.diary.say("consumer, limit", limit)
        quarantine = ["d.*"] if limit else None
        self._running = Consumer(
            upstream_uri=self.upstream,
            downstream_uri=self.server.uri,
            config=CONFIG,
            quarantine=quarantine,
            quarantine_limit=limit or USUAL,
        )

    def close(self) -> None:
        """End the consumer."""
        if self._running is not None:
            self._running.close()
        self._running = None

    def _run(self) -> RoundSummary:
        assert self._running is not None
        return self._running.run_once()

    def round(self, *, crashes: bool) -> None:
        """One round; `crashes`: it may end when its rows are written and nothing is noted of them."""
        left = self.chance.randint(0, 2) if crashes else -1

        def dying(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*words: Any, **named: Any) -> Any:
                nonlocal left
                left -= 1
                if left == -1:
                    raise Crash
                return real(*words, **named)

            return call

        try:
            with ExitStack() as stack:
                for place, name in _NOTES:
                    stack.enter_context(patch.object(place, name, dying(getattr(place, name))))
                self._run()
        except Crash:
            self.diary.say("crash")
            self.diary.count("crashes")
            self.open(self.limit)

    def finish(self, checkpoint: int) -> None:
        """Have all up to the checkpoint applied; halted tables are cured as their messages say."""
        for _ in range(_TRIES):
            summary = self._run()
            if not summary.halted and summary.checkpoint == checkpoint and not self._is_loading():
                return
            for halted in summary.halted:
                self._cure(halted.table, halted.error)
        raise Wrong(f"the checkpoint is {summary.checkpoint}, not {checkpoint}; halted: {summary.halted}")

    def _is_loading(self) -> bool:
        """Whether a load has not come to its end."""
        with self.desk() as desk:
            return any(row.load.phase in OPEN for row in desk.loads.all())

    def _cure(self, table: str, error: str) -> None:
        self.diary.say("halted", table, error[:200])
        self.diary.count("halts")
        if "the target refused" not in error:
            raise Wrong(f"{table} halted: {error}")
        if self.limit != USUAL:
            self.open(USUAL)
        self._type("table", "resume", "--table", table)

    # operators

    def load(self, table: str, folder: Path) -> None:
        """Have a table loaded anew from an export."""
        self.diary.say("load", table, folder.name)
        self.diary.count("loads")
        self._type("load", "--table", f"d.{table}", "--dump", folder.as_uri(), "--replace")

    def _type(self, *words: str) -> None:
        with redirect_stdout(io.StringIO()):
            code = command([*words, "--downstream-uri", self.server.uri])
        if code:
            raise Wrong(f"{' '.join(words[:2])} ends with {code}")

    def operate(self, tables: Mapping[str, Table]) -> None:
        """Retry some rows, and give one up."""
        with self.desk() as desk:
            entries = desk.quarantine.all()
            if entries and self.chance.random() < 0.5:
                chosen = [entry for entry in entries if self.chance.random() < 0.6]
                desk.quarantine.retry(chosen, "operator")
                self.diary.say("retry", [(entry.table.table, entry.key) for entry in chosen])
                self.diary.count("retried", len(chosen))
            if entries and self.chance.random() < 0.1:
                entry = self.chance.choice(entries)
                desk.quarantine.drop([entry])
                table = tables[entry.table.table]
                table.given_up.add(key_of(table, entry))
                self.diary.say("drop", entry.table.table, entry.key)
                self.diary.count("given up")

    @contextmanager
    def desk(self) -> Iterator[StateStore]:
        """Open what operators see."""
        with closing(operated(Downstream(port=self.server.port), "")) as desk:
            yield desk

    def entries(self) -> list[QuarantinedEntry]:
        """Return the rows in the quarantine."""
        with self.desk() as desk:
            return desk.quarantine.all()


def key_of(table: Table, entry: QuarantinedEntry) -> Key:
    """Return the key of a row in the quarantine."""
    return tuple(str(entry.image[name]) for name in table.keys)
