"""Draws the pictures of the status page in ``docs/images``: ``python -m tests.harness.pictures``.

The page, the state and the server are real; the feed in the state is made up, so that every part of the page has something to show.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from functools import cache
from typing import Any

from storage_consumer import __version__
from storage_consumer.checkpoint.store import StateStore
from storage_consumer.clock import SystemClock
from storage_consumer.config.settings import Downstream
from storage_consumer.driver.lease import identity
from storage_consumer.model import TableDefinition, TableName, TableVersion
from storage_consumer.operating.state_questions import status_site
from storage_consumer.plan.journal_entry import DONE, FAILED, STARTED, Sent
from storage_consumer.plan.steps import DdlStep, key_of
from storage_consumer.ports import TableProgress
from storage_consumer.summary import RoundSummary, TableSummary
from storage_consumer.watch.http_server import HttpServer
from storage_consumer.watch.recorder import Recorder
from storage_consumer.watch.report import Minute, Phase, Report, Totals, Work
from tests.harness.browser import chromium, tab
from tests.harness.pages import ROOT
from tests.harness.servers import mariadb

FOLDER = ROOT / "docs" / "images"
PICTURES: Mapping[str, dict[str, Any]] = {
    "status-page-light": {"color_scheme": "light"},
    "status-page-dark": {"color_scheme": "dark"},
    "status-page-table": {"color_scheme": "light"},
}
"""Name of a picture → options of the browser."""
_DATABASES = {"shop": ("orders", "items", "customers", "payments", "carts"), "stock": ("bins", "moves", "suppliers")}
_HALTED = TableName(schema="shop", table="payments")
_HALTED_FOR = 15
"""Minutes."""
_MINUTES = 380
_SIZE = {"width": 1200, "height": 1720}
_SCALE = 0.62
"""Keeps each picture below 150 kB."""


def now_ts(ago: float) -> int:
    """Return the TSO of a moment before now."""
    return int((time.time() - ago) * 1000) << 18


def _statement(table: TableName, ago: float, query: str) -> DdlStep:
    version = now_ts(ago)
    definition = TableDefinition(
        name=table,
        version=TableVersion(version),
        query=query,
        ddl_type=5,
        columns=(),
        path=f"{table.schema}/{table.table}/meta/schema_{version}_3765990308.json",
        checksum=3765990308,
    )
    return DdlStep(table_dir=f"{table.schema}/{table.table}", table_key=key_of(table), definition=definition)


def _fill(state: StateStore) -> None:
    """Store a feed of which one table is halted since a quarter of an hour, and whose writer catches up."""
    state.open("s3://warehouse/shop-feed")
    state.lease.acquire(identity(time.time() - 93_600), 600)
    ran = _statement(_HALTED, 2500, "ALTER TABLE `payments` ADD COLUMN `fee` DECIMAL(10,2) NOT NULL DEFAULT 0")
    state.journal.record(ran, STARTED, run=Sent(statement=ran.definition.query, structure_before=""))
    state.journal.record(ran, DONE)
    broken = _statement(_HALTED, 900, "ALTER TABLE `payments` ADD COLUMN `note` VARCHAR(20) AFTER `remark`")
    state.journal.record(broken, STARTED, run=Sent(statement=broken.definition.query, structure_before=""))
    state.journal.record(broken, FAILED, note="error 1054: Unknown column 'remark' in 'payments'")
    error = (
        f"the target refused the DDL with version {broken.version}: error 1054: Unknown column 'remark' in 'payments'. "
        "Make it fit, then run `storage-consumer table resume` to try it again"
    )
    tables = [
        TableProgress(table_key=key_of(name), schema=schema, table=table, checkpoint=now_ts(4), state="running")
        for schema, tables in _DATABASES.items()
        for table in tables
        if (name := TableName(schema=schema, table=table)) != _HALTED
    ]
    tables.append(
        TableProgress(
            table_key=key_of(_HALTED),
            schema=_HALTED.schema,
            table=_HALTED.table,
            checkpoint=broken.version,
            state="halted",
            follows=False,
            error=error,
        )
    )
    state.progress.save(
        tables=tables, sequences={}, checkpoint=now_ts(4), storage_checkpoint=now_ts(2), lowest=broken.version
    )
    for ago in range(_MINUTES, -1, -1):
        state.reports.save(_report().to_json(), _minute(ago, broken.version))


def _minute(ago: int, halted_at: int) -> Minute:
    """Return a minute of a feed that fell behind once, and of which a table is halted for a quarter of an hour."""
    seconds = 60 * ago
    behind = 240 * math.exp(-(((ago - 200) / 18) ** 2))
    checkpoint = now_ts(seconds + 4 + behind)
    rate = 5200 + 2600 * math.sin(ago / 55) + 700 * math.sin(ago * 1.7) + 9000 * math.exp(-(((ago - 180) / 14) ** 2))
    return Minute(
        minute=int(time.time() - seconds) // 60,
        checkpoint=min(checkpoint, halted_at),
        checkpoint_running=checkpoint,
        storage_checkpoint=now_ts(seconds + 2),
        row_changes=int(60 * rate),
        statements=0,
    )


@cache
def _report() -> Report:
    now = time.time()
    return Report(
        version=__version__,
        started_at=now - 93_600,
        phase=Phase.APPLYING,
        since=now - 14,
        work=Work(seconds=14, files=640, bytes=3_400_000_000, files_done=410, rows=2_140_000),
        rows_per_second=152_800.0,
        pending_files=12,
        pending_bytes=34 << 20,
        last_round_at=now - 20,
        totals=Totals(rounds=41_200, rows=611_000_000),
        skipped={"duplicates": 1_204},
        waiting={"stock.moves": "a file is missing: CDC00000000000000000412.csv. It waits until the file is there"},
    )


class _Writer(Recorder):
    """The writer that the state tells of."""

    def report(self) -> Report:
        return _report()


def _recorder() -> Recorder:
    """Return what the process knows of its tables."""

    class Then(SystemClock):
        ago = 0

        def now(self) -> float:
            return super().now() - self.ago

    clock = Then()
    recorder = _Writer(clock, __version__)
    for ago in range(59, 0, -1):
        clock.ago = 60 * ago
        rows = int(9000 + 4000 * math.sin(ago / 7))
        names = (f"{schema}.{table}" for schema, tables in _DATABASES.items() for table in tables)
        done = {name: rows * place for place, name in enumerate(names, 1)}
        if ago <= _HALTED_FOR:
            del done[str(_HALTED)]
        read = tuple(TableSummary(table=name, rows=count) for name, count in done.items())
        recorder.round_finished(RoundSummary(tables=read))
    clock.ago = 0
    return recorder


def _draw(home: str) -> None:
    with chromium() as browser:
        for name, options in PICTURES.items():
            with tab(browser, home, viewport=_SIZE, device_scale_factor=_SCALE, **options) as found:
                found.page.goto(f"{home}/tables/{_HALTED}" if name.endswith("table") else f"{home}/")
                found.page.screenshot(path=FOLDER / f"{name}.png")


def main() -> None:
    """Draw all pictures."""
    FOLDER.mkdir(exist_ok=True)
    with mariadb() as server:
        downstream = Downstream(host="db.example.com", port=3306, user="app")
        state = StateStore(Downstream(port=server.port), "")
        _fill(state)
        site = status_site(
            Downstream(port=server.port, given_uri=f"mysql://{downstream.user}@{downstream.host}:3306/"),
            "",
            _recorder(),
            SystemClock(),
        )
        pages = HttpServer("127.0.0.1:0", site.routes())
        home = f"http://{pages.address}"
        _draw(home)
        pages.close()
        state.close()


if __name__ == "__main__":
    main()
