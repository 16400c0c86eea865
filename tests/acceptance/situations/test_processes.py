"""Who writes: another process, nobody any more; and the first run on a target that somebody else has filled."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.acceptance.situations.book import Book
from tests.acceptance.situations.feed import Feed
from tests.acceptance.situations.following import arguments
from tests.acceptance.situations.watching import Watch, fired, steps, typed
from tests.harness.program import program
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance, pytest.mark.timeout(900)]


@pytest.fixture
def watch(mariadb: DatabaseServer, book: Book, tmp_path: Path) -> Watch:
    """A feed of two tables."""
    feed = Feed(SmallBucket(root=tmp_path / "bucket"))
    feed.create("shop.orders", "shop.items")
    feed.rows("shop.orders", 1, '1,"one"')
    feed.advance()
    return Watch(feed=feed, uri=mariadb.uri, book=book)


def run_line(watch: Watch, *words: str) -> str:
    """The command `run`, as it is typed."""
    given = [
        *("--upstream-uri", watch.feed.bucket.uri, "--include-commit-ts", "--downstream-uri", watch.uri, "--tz", "UTC"),
        *words,
    ]
    return shlex.join(["storage-consumer", "run", *given])


def test_who_writes(watch: Watch, tmp_path: Path) -> None:
    """A second process leaves the target to the first; after that one is killed nobody writes, until a process is started."""
    with program(arguments(watch), tmp_path / "first") as first:
        watch.running = first
        first.wait_for("round_finished", checkpoint=watch.feed.marks[-1])
        watch.settled()
        second = typed(run_line(watch, "--once", "--lease-ttl", "3s"))
        status = watch.settled()
        watch.page_says(status.text, "healthy")
        seen = {"run": watch.logged(second), "status": watch.said(status), "alerts": watch.alerts()}
        watch.book.shows("lease-held", seen)
        watch.begin()
        watch.feed.rows("shop.orders", 2, '2,"two"')
        with program([*arguments(watch), "--standby"], tmp_path / "standby") as standby:
            standby.wait_for("lease_waiting")
            watch.running = standby
            first.kill()
            standby.wait_for("lease_acquired")
            watch.feed.advance()
            standby.wait_for("round_finished", checkpoint=watch.feed.marks[-1])
            watch.book.shows("lease-held", {"cure": watch.healed(watch.settled())})
            watch.begin()
            watch.feed.rows("shop.items", 1, '1,"one"')
            watch.feed.advance()
            standby.wait_for("round_finished", checkpoint=watch.feed.marks[-1])
            watch.settled()
            standby.kill()
        wait_until("an end of the lease", lambda: watch.status().code == 3)
        status = watch.status()
        down = [("up", '{job="storage-consumer",instance="db1:9464"}', 0.0, 0.0)]
        watch.book.shows(
            "writer-dead", {"status": watch.said(status), "alerts": "".join(f"{name}\n" for name in fired(down))}
        )
    assert "start `storage-consumer run`" in status.text
    with program([*arguments(watch)], tmp_path / "third") as third:
        third.wait_for("lease_acquired")
        watch.running = third
        third.wait_for("round_finished", checkpoint=watch.feed.marks[-1])
        watch.book.shows("writer-dead", {"cure": watch.healed(watch.settled())})


def test_first_run_on_a_foreign_target(watch: Watch, mariadb: DatabaseServer, tmp_path: Path) -> None:
    """A table of somebody else's is not touched: plan says so before, and run halts the table."""
    mariadb.query("CREATE DATABASE shop")
    mariadb.query("CREATE TABLE shop.orders (id INT PRIMARY KEY, title VARCHAR(9))")
    mariadb.query("INSERT INTO shop.orders VALUES (7, 'theirs')")
    page = "first-run-on-a-foreign-target"
    plan = typed(run_line(watch).replace(" run ", " plan "))
    once = typed(run_line(watch, "--once"))
    # What the first event says is said once more for all tables.
    assert " event=tables_halted halted=1 halted_tables=" in once.text
    watch.masks[r"\n.* event=tables_halted .*"] = ""
    status = watch.status("--batch")
    watch.book.shows(page, {"plan": watch.said(plan), "run": watch.logged(once), "status": watch.said(status)})
    said = [watch.said(typed(next(step for step in steps(status.text) if "ddl done" in step)))]
    once = typed(run_line(watch, "--once"))
    assert once.code == 4
    status = watch.status("--batch")
    watch.book.shows(page, {"second status": watch.said(status)})
    sql = "RENAME TABLE shop.orders TO shop.orders_before"
    mariadb.query(sql)
    said.append(f"mysql> {sql}\n")
    said.append(watch.logged(typed(run_line(watch, "--once"))))
    watch.book.shows(page, {"cure": "\n".join(said)})
    assert mariadb.query("SELECT * FROM shop.orders_before") == ((7, "theirs"),)
    assert mariadb.query("SELECT * FROM shop.orders") == ((1, "one"),)
