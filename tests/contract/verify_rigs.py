"""A source and a target that can be compared: databases on real servers, with a state that says how far the target is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from storage_consumer.checkpoint.store import StateStore
from storage_consumer.config.settings import Downstream, Server
from storage_consumer.config.table_filter import ALL_COLUMNS, CarriedColumns
from storage_consumer.model import TableName
from storage_consumer.operating.verification import VerifyReport, Wishes, verified
from storage_consumer.plan.steps import key_of
from storage_consumer.ports import TableProgress
from storage_consumer.rows.comparison import TableResult
from tests.contract.state_rigs import BUCKET
from tests.harness.servers import DatabaseServer

SOURCE, TARGET = "shop", "copy"
"""Databases: of one server in two places, of two servers likewise."""
_FROZEN_TSO = 470_717_383_448_985_600
_MODES = "SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES', time_zone = '+00:00', foreign_key_checks = 0"


@dataclass(slots=True)
class VerifyRig:
    """Both sides, and the state of the target. A source that is no TiDB is frozen."""

    source: DatabaseServer
    target: DatabaseServer
    tables: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Make the databases."""
        if self.is_live:
            self.source.allow_snapshots()
        for server, name in ((self.source, SOURCE), (self.target, TARGET)):
            server.query(f"CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")

    @property
    def is_live(self) -> bool:
        """Whether the source can be read as of a commit-ts."""
        return self.source.kind == "tidb"

    def at_source(self, *statements: str, rows: Collection[Any] = ()) -> None:
        """Run statements there, the last one for each of `rows`."""
        self._run(self.source, SOURCE, statements, rows)

    def at_target(self, *statements: str, rows: Collection[Any] = ()) -> None:
        """The same at the target."""
        self._run(self.target, TARGET, statements, rows)

    def both(self, *statements: str, rows: Collection[Any] = ()) -> None:
        """The same on both sides."""
        self.at_source(*statements, rows=rows)
        self.at_target(*statements, rows=rows)

    def _run(self, server: DatabaseServer, database: str, statements: Collection[str], rows: Collection[Any]) -> None:
        with server.connect(database=database) as connection, connection.cursor() as cursor:
            *first, last = (_MODES, *statements)
            for statement in first:
                cursor.execute(statement)
            if rows:
                cursor.executemany(last, rows)
            else:
                cursor.execute(last)

    def now(self) -> int:
        """A TSO of now, at the source."""
        return self.source.tso() if self.is_live else _FROZEN_TSO

    @property
    def settings(self) -> Downstream:
        """How the target is reached."""
        return Downstream(port=self.target.port)

    def state(self, holder: str = "me") -> StateStore:
        """A handle of the lease's owner."""
        state = StateStore(self.settings, "")
        state.open(BUCKET)
        assert state.lease.acquire(holder, 60) == ""
        return state

    def at_rest(self, *tables: str, at: int = 0, state: str = "running") -> int:
        """Store that these tables are applied up to a TSO, of now if none is given; return it."""
        at = at or self.now()
        with closing(self.state()) as store:
            store.progress.save(
                tables=[self.progress(name, at, state=state) for name in tables],
                sequences={},
                checkpoint=at,
                storage_checkpoint=at,
                lowest=at,
            )
            store.lease.release()
        return at

    def progress(self, name: str, at: int, **more: Any) -> TableProgress:
        """What is stored of a table."""
        return TableProgress(
            table_key=self.key(name),
            schema=SOURCE,
            table=name,
            checkpoint=at,
            target=TableName(schema=TARGET, table=name),
            **{"state": "running", **more},
        )

    def key(self, name: str) -> str:
        """The key under which the state has a table."""
        return key_of(TableName(schema=SOURCE, table=name))

    def compared(self, *, stop: threading.Event | None = None, **wishes: Any) -> dict[str, TableResult]:
        """What a comparison finds, by table."""
        return {result.table.table: result for result in self.report(stop=stop, **wishes).tables}

    def report(
        self,
        *,
        stop: threading.Event | None = None,
        carried: CarriedColumns = ALL_COLUMNS,
        heard: Callable[[TableResult], None] = lambda _: None,
        **wishes: Any,
    ) -> VerifyReport:
        """All that a comparison finds."""
        frozen = wishes.pop("frozen", not self.is_live)
        wanted = Wishes(**{"chunk_rows": 100, "wait": 0.5, "frozen": frozen, **wishes})
        return verified(
            Server(settings=self.settings),
            Server(settings=Downstream(port=self.source.port)),
            wanted,
            carried=carried,
            stop=stop,
            heard=heard,
        )

    def one(self, name: str, **wishes: Any) -> TableResult:
        """What it finds in one table, by rules that mean all."""
        return self.compared(**wishes)[name]


class Running:
    """Something that runs in a thread until it is closed."""

    def __init__(self, work: Callable[[], object], *, again: bool = False) -> None:
        """Run `work`, once or again and again."""
        self.ended = threading.Event()
        self.fault: Exception | None = None
        self._work, self._again = work, again
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work()
            while self._again and not self.ended.wait(0.05):
                self._work()
        except Exception as fault:  # noqa: BLE001 - told by the test
            self.fault = fault

    def close(self) -> None:
        """Wait for its end."""
        self.ended.set()
        self._thread.join(30)
