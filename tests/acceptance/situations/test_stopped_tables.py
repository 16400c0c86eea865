"""A feed that is followed: healthy, and then with a table stopped by each kind of reason."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.situations.book import Book
from tests.acceptance.situations.feed import Feed
from tests.acceptance.situations.following import arguments
from tests.acceptance.situations.watching import Watch, steps, typed
from tests.harness.program import program
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import ID_NAME, SmallBucket, column
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance]
TABLES = ("orders", "items", "customers", "invoices", "payments", "stock", "returns", "prices")


@pytest.fixture
def watch(mariadb: DatabaseServer, book: Book, tmp_path: Path) -> Iterator[Watch]:
    """A program that follows a feed of some tables."""
    feed = Feed(SmallBucket(root=tmp_path / "bucket"))
    feed.create(*(f"shop.{name}" for name in TABLES))
    for name in TABLES:
        feed.rows(f"shop.{name}", 1, '1,"one"')
    feed.advance()
    found = Watch(feed=feed, uri=mariadb.uri, book=book)
    with program(arguments(found), tmp_path / "log") as running:
        found.running = running
        running.wait_for("round_finished", checkpoint=feed.marks[-1])
        found.settled()
        yield found


def halted(watch: Watch, page: str, table: str) -> list[str]:
    """Wait until a table is halted, and show what is seen of that; the commands that the status names."""
    assert watch.running is not None
    watch.running.wait_for("table_halted", table=table)
    wait_until("a halted table in the status", lambda: watch.status().code == 4)
    on_page = watch.page(f"halted {table}")
    status = watch.settled()
    watch.book.shows(
        page,
        {
            "status": watch.said(status),
            "metrics": watch.metrics(),
            "page": on_page,
            "log": watch.log("table_halted", table=table),
            "alerts": watch.alerts(),
        },
    )
    return steps(status.text)


def cured(watch: Watch, page: str, *commands: str, sql: str = "") -> None:
    """Type commands, wait until the feed is healthy, and show what they said."""
    said = [watch.normal(f"mysql> {sql}")] if sql else []
    for command in commands:
        done = typed(command)
        assert done.code == 0, done
        said.append(watch.said(done))
    wait_until("a healthy feed", watch.is_healthy)
    said.append(watch.said(watch.status()).partition("\n  ")[0] + "\nexit code 0\n")
    watch.book.shows(page, {"cure": "\n".join(said)})


def test_each_kind(watch: Watch, mariadb: DatabaseServer) -> None:
    """What status, metrics, page, log and alerts say of each is on its page, and the command that the status names cures it."""
    feed, running = watch.feed, watch.running
    assert running is not None
    watch.begin()
    watch.book.shows("healthy", {"status": watch.said(watch.status()), "page": watch.page("healthy"), "alerts": watch.alerts()})

    watch.begin()
    feed.rows("shop.orders", 2, '2,"a name of more than twenty characters"')
    feed.advance()
    commands = halted(watch, "halted-by-row", "shop.orders")
    sql = "ALTER TABLE shop.orders MODIFY name VARCHAR(80)"
    mariadb.query(sql)
    cured(watch, "halted-by-row", commands[0], sql=sql)

    watch.begin()
    wider = (*ID_NAME, column("note", "VARCHAR", ColumnPrecision="20"))
    feed.ddl("shop.customers", "ALTER TABLE `customers` ADD COLUMN `note` VARCHAR(20) AFTER `nowhere`", 5, wider)
    feed.advance()
    commands = halted(watch, "halted-by-ddl", "shop.customers")
    replace = next(each for each in commands if "ddl replace" in each)
    cured(watch, "halted-by-ddl", replace.replace("'...'", shlex.quote("ALTER TABLE customers ADD COLUMN note VARCHAR(20)")))

    watch.begin()
    feed.ddl("shop.invoices", "GRANT ALL ON *.* TO `app`", 5)
    feed.advance()
    commands = halted(watch, "halted-by-gate", "shop.invoices")
    cured(watch, "halted-by-gate", next(each for each in commands if "ddl skip" in each))

    watch.begin()
    path = feed.rows("shop.payments", 2, '2,"two"')
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b",2,", b",x2,"))
    feed.advance()
    commands = halted(watch, "halted-by-file", "shop.payments")
    path.write_bytes(whole)
    cured(watch, "halted-by-file", commands[0])

    watch.begin()
    missing = feed.rows("shop.stock", 2, '2,"two"')
    whole = missing.read_bytes()
    missing.unlink()
    feed.rows("shop.stock", 3, '3,"three"')
    feed.advance()
    commands = halted(watch, "halted-by-gap", "shop.stock")
    missing.write_bytes(whole)
    cured(watch, "halted-by-gap", commands[0])

    watch.begin()
    mariadb.query("ALTER TABLE shop.returns DROP COLUMN name")
    feed.ddl("shop.returns", "ALTER TABLE `returns` COMMENT 'x'", 5)
    feed.rows("shop.returns", 2, '2,"two"')
    feed.advance()
    commands = halted(watch, "halted-by-schema", "shop.returns")
    sql = "ALTER TABLE shop.returns ADD COLUMN name VARCHAR(20)"
    mariadb.query(sql)
    cured(watch, "halted-by-schema", commands[0], sql=sql)


def test_no_fault_of_the_feed(watch: Watch, mariadb: DatabaseServer) -> None:
    """A table that an operator pauses, a statement that waits for a lock, and a target that is slow: each shows, and is cured."""
    feed, running = watch.feed, watch.running
    assert running is not None
    watch.begin()
    pause = typed(f"storage-consumer table pause --table shop.orders --downstream-uri {watch.uri}")
    feed.rows("shop.orders", 2, '2,"two"')
    checkpoint = feed.advance()
    running.wait_for("round_finished", paused=["shop.orders"], checkpoint_running=checkpoint)
    on_page = watch.page("paused shop.orders")
    status = watch.settled()
    watch.book.shows(
        "table-paused",
        {
            "cause": watch.said(pause),
            "status": watch.said(status),
            "metrics": watch.metrics(),
            "page": on_page,
            "log": watch.log("decision_obeyed", table="shop.orders"),
            "alerts": watch.alerts(),
        },
    )
    cured(watch, "table-paused", *steps(status.text))

    watch.begin()
    with mariadb.connect(autocommit=False) as other, other.cursor() as cursor:
        cursor.execute("SELECT * FROM shop.items")
        wider = (*ID_NAME, column("note", "VARCHAR", ColumnPrecision="20"))
        feed.ddl("shop.items", "ALTER TABLE `items` ADD COLUMN `note` VARCHAR(20)", 5, wider)
        feed.advance()
        running.wait_for("ddl_waits", table="shop.items")
        wait_until("the table in the status", lambda: "waiting: shop.items" in watch.status().text)
        on_page = watch.page("waiting shop.items")
        status = watch.status()
        watch.book.shows(
            "ddl-waits",
            {
                "status": watch.said(status),
                "metrics": watch.metrics(),
                "page": on_page,
                "log": watch.log("ddl_waits", table="shop.items"),
                "alerts": watch.alerts(),
            },
        )
        (kill,) = steps(status.text)
        mariadb.query(kill)
        wait_until("a healthy feed", lambda: "waiting" not in watch.status().text)
    watch.book.shows("ddl-waits", {"cure": watch.normal(f"mysql> {kill}\n\n{watch.settled().text}")})
