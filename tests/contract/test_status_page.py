"""The status page of real states: what it reads, and what is left of it without a target."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from html import unescape

import pytest

from storage_consumer.checkpoint.store import operated
from storage_consumer.clock import SystemClock
from storage_consumer.config.settings import Downstream
from storage_consumer.driver.lease import identity
from storage_consumer.model import TableName
from storage_consumer.plan.journal_entry import FAILED, STARTED, Sent
from storage_consumer.watch.recorder import Recorder
from storage_consumer.watch.report import Minute
from tests.contract.served_page import served
from tests.contract.state_rigs import Rig, progress, real_rig, statement
from tests.harness.servers import DatabaseServer, mariadb
from tests.harness.waiting import wait_until

pytestmark = pytest.mark.server
ME = identity(1_790_000_000)
TABLES = 10_000


@pytest.fixture
def rig(mariadb: DatabaseServer) -> Iterator[Rig]:
    """A state."""
    found = real_rig(mariadb)
    yield found
    found.close()


def get(address: str) -> str:
    """What a program that is no browser gets."""
    with urllib.request.urlopen(address, timeout=60) as answer:  # noqa: S310 - an address of our own
        return unescape(answer.read().decode())


def now_ts(ago: float = 0.0) -> int:
    """The TSO of a moment before now."""
    return int((time.time() - ago) * 1000) << 18


def test_journal_of_a_table(mariadb: DatabaseServer, rig: Rig) -> None:
    """The newest statements come first, with how long each took and when it ended; those of other tables are not among them."""
    owner = rig.owner(ME)
    for version in (3, 4, 5):
        owner.journal.record(statement(version=version), STARTED, run=Sent(statement="x" * 9000, structure_before=""))
    owner.journal.record(statement(version=4), FAILED, note="1054")
    owner.journal.record(statement("shop/other", version=9), STARTED, run=Sent(statement="", structure_before=""))
    with closing(operated(Downstream(port=mariadb.port), "")) as desk:
        found = desk.journal.newest_of(TableName(schema="shop", table="a"), 2)
    assert [(each.version, each.state, each.note, len(each.statement)) for each in found] == [
        (5, STARTED, "", 4000),
        (4, FAILED, "1054", 4000),
    ]
    assert found[0].seconds is not None
    assert found[1].ended_ago is not None
    assert 0 <= found[0].seconds < 60
    assert 0 <= found[1].ended_ago < 60


@pytest.mark.alone
@pytest.mark.slow
def test_ten_thousand_tables(mariadb: DatabaseServer, rig: Rig) -> None:
    """Each page of a feed with ten thousand tables takes less than two seconds of a processor and two megabytes, the first look included."""
    owner = rig.owner(ME)
    tables = [
        progress(f"shop/orders_{n:05}", now_ts(9), "halted", follows=False, error="x" * 500) for n in range(TABLES)
    ]
    marks = {"checkpoint": now_ts(2), "storage_checkpoint": now_ts(1), "lowest": now_ts(9)}
    owner.progress.save(tables=tables, sequences={}, **marks)
    minute = int(time.time()) // 60
    for ago in range(300):
        mark = now_ts(60 * ago)
        owner.reports.save(
            "{}",
            Minute(
                minute=minute - ago,
                checkpoint=mark,
                checkpoint_running=mark,
                storage_checkpoint=mark,
                row_changes=9,
                statements=0,
            ),
        )
    # The best of some: how long it takes is asked, not what else the machine does.
    took: dict[str, list[float]] = {}
    for _ in range(4):
        with served(mariadb.port) as address:
            for path in ("/", "/?q=09999", "/?sort=lag&desc=1&page=50", "/tables/shop.orders_09999"):
                began = time.process_time()
                page = get(f"{address}{path}")
                took.setdefault(path, []).append(time.process_time() - began)
                assert "orders_09999" in page or path == "/"
                assert len(page.encode()) < 2_000_000
    assert {path: best for path, times in took.items() if (best := min(times)) >= 2} == {}


@pytest.mark.alone
@pytest.mark.slow
def test_many_viewers_are_one_query(mariadb: DatabaseServer, rig: Rig) -> None:
    """Thirty viewers who look for three seconds cause two or three looks at the target."""
    rig.owner(ME).progress.save(tables=[], sequences={}, checkpoint=7, storage_checkpoint=9, lowest=4)

    def connections() -> int:
        ((_, count),) = mariadb.query("SHOW GLOBAL STATUS LIKE 'Connections'")
        return int(count)

    with served(mariadb.port) as address:
        before, deadline = connections(), time.monotonic() + 3

        def view(_: int) -> int:
            seen = 0
            while time.monotonic() < deadline:
                seen += 'class="headline unknown"' not in get(f"{address}/")
                time.sleep(0.2)
            return seen

        with ThreadPoolExecutor(30) as viewers:
            assert all(count > 1 for count in viewers.map(view, range(30)))
        # One of them is this test's own.
        assert connections() - before <= 4


def test_target_that_went_away() -> None:
    """The page goes on to answer, with what it knew, how old that is, and what the process knows of itself; then it is whole again."""
    with mariadb() as server:
        # The tests' servers lose their last second in a crash, unless they are told otherwise.
        server.query("SET GLOBAL innodb_flush_log_at_trx_commit = 1")
        rig = real_rig(server)
        rig.owner(ME).progress.save(
            tables=[progress("shop/a", 5)], sequences={}, checkpoint=7, storage_checkpoint=9, lowest=4
        )
        rig.close()
        recorder = Recorder(SystemClock(), "1")
        with served(server.port, recorder) as address:
            assert "shop.a" in get(f"{address}/")
            server.child.kill()
            wait_until("the page notices", lambda: "the state could not be read for" in get(f"{address}/"))
            recorder.heard("retry", {"what": "round", "error": "no answer"})
            page = get(f"{address}/")
            for text in ("headline unknown", "shop.a", "this process", "retrying", "no answer"):
                assert text in page
            server.child.start()
            wait_until("the page recovers", lambda: "the state could not be read for" not in get(f"{address}/"))
            assert "shop.a" in get(f"{address}/")
