"""A feed that is followed: healthy, and then with a table stopped by each kind of reason."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from signal import SIGTERM

import pytest

from tests.acceptance.situations.book import Book
from tests.acceptance.situations.feed import Feed
from tests.acceptance.situations.following import arguments
from tests.acceptance.situations.watching import Ended, Watch, steps, typed
from tests.harness.program import program
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import ID_NAME, SmallBucket, column
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance, pytest.mark.timeout(900)]
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
    status = watch.settled()
    watch.page_says(status.text, f"halted {table}")
    watch.book.shows(
        page,
        {
            "status": watch.said(status),
            "metrics": watch.metrics(),
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
    said.append(watch.healed(watch.settled()))
    watch.book.shows(page, {"cure": "\n".join(said)})


WIDER = (*ID_NAME, column("note", "VARCHAR", ColumnPrecision="20"))
ADD_COLUMN = 5


def refused_row(watch: Watch, mariadb: DatabaseServer) -> None:
    """A value is longer than the target's column."""
    watch.feed.rows("shop.orders", 2, '2,"a name of more than twenty characters"')
    watch.feed.advance()
    commands = halted(watch, "halted-by-row", "shop.orders")
    sql = "ALTER TABLE shop.orders MODIFY name VARCHAR(80)"
    mariadb.query(sql)
    cured(watch, "halted-by-row", commands[0], sql=sql)


def refused_statement(watch: Watch, _: DatabaseServer) -> None:
    """The target lacks a column that a statement names."""
    query = "ALTER TABLE `customers` ADD COLUMN `note` VARCHAR(20) AFTER `nowhere`"
    watch.feed.ddl("shop.customers", query, ADD_COLUMN, WIDER)
    watch.feed.advance()
    commands = halted(watch, "halted-by-ddl", "shop.customers")
    replace = next(each for each in commands if "ddl replace" in each)
    own = shlex.quote("ALTER TABLE customers ADD COLUMN note VARCHAR(20)")
    cured(watch, "halted-by-ddl", replace.replace("'...'", own))


def statement_that_may_not_run(watch: Watch, _: DatabaseServer) -> None:
    """Somebody wrote a statement into the bucket that TiCDC does not write."""
    watch.feed.ddl("shop.invoices", "GRANT ALL ON *.* TO `app`", ADD_COLUMN)
    watch.feed.advance()
    commands = halted(watch, "halted-by-gate", "shop.invoices")
    cured(watch, "halted-by-gate", next(each for each in commands if "ddl skip" in each))


def damaged_file(watch: Watch, _: DatabaseServer) -> None:
    """A row does not parse."""
    path = watch.feed.rows("shop.payments", 2, '2,"two"')
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b",2,", b",x2,"))
    watch.feed.advance()
    commands = halted(watch, "halted-by-file", "shop.payments")
    path.write_bytes(whole)
    cured(watch, "halted-by-file", commands[0])


def missing_file(watch: Watch, _: DatabaseServer) -> None:
    """A number is missing among a table's files, and somebody finds the file."""
    missing = watch.feed.rows("shop.stock", 2, '2,"two"')
    whole = missing.read_bytes()
    missing.unlink()
    watch.feed.rows("shop.stock", 3, '3,"three"')
    watch.feed.advance()
    commands = halted(watch, "halted-by-gap", "shop.stock")
    missing.write_bytes(whole)
    cured(watch, "halted-by-gap", commands[0])


def altered_target(watch: Watch, mariadb: DatabaseServer) -> None:
    """Somebody dropped a column of the target's table."""
    mariadb.query("ALTER TABLE shop.returns DROP COLUMN name")
    # The program looks at the target's table again after a statement about it.
    watch.feed.ddl("shop.returns", "ALTER TABLE `returns` COMMENT 'x'", ADD_COLUMN)
    watch.feed.rows("shop.returns", 2, '2,"two"')
    watch.feed.advance()
    commands = halted(watch, "halted-by-schema", "shop.returns")
    sql = "ALTER TABLE shop.returns ADD COLUMN name VARCHAR(20)"
    mariadb.query(sql)
    # The column is back, what it held is not.
    assert typed(f"storage-consumer table resume --table shop.returns --downstream-uri {watch.uri}").code == 0
    wait_until("the table goes on", lambda: mariadb.query("SELECT COUNT(*) FROM shop.returns") == ((2,),))
    wait_until("it is in doubt", lambda: watch.status().text.startswith("unequal"))
    watch.book.shows("halted-by-schema", {"resumed alone": watch.said(watch.settled())})
    assert typed(f"storage-consumer table pause --table shop.returns --downstream-uri {watch.uri}").code == 0
    wait_until("a paused table", lambda: watch.status().text.startswith("stopped"))
    mariadb.query("UPDATE shop.returns SET name = 'one' WHERE id = 1")
    cured(watch, "halted-by-schema", commands[1].replace(" TSO ", f" {watch.feed.copied()} "), sql=sql)


def expired_files(watch: Watch, mariadb: DatabaseServer) -> None:
    """Files of a paused table are deleted unread, and nobody has them any more."""
    feed, running = watch.feed, watch.running
    assert running is not None
    resume = f"storage-consumer table resume --table shop.prices --downstream-uri {watch.uri}"
    assert typed(resume.replace("resume", "pause")).code == 0
    running.wait_for("round_finished", paused=["shop.prices"])
    path = feed.rows("shop.prices", 2, '2,"two"')
    running.wait_for("round_finished", paused=["shop.prices"], checkpoint_running=feed.advance())
    path.unlink()
    assert typed(resume).code == 0
    commands = halted(watch, "files-expired", "shop.prices")
    mariadb.query("REPLACE INTO shop.prices VALUES (1, 'one'), (2, 'two')")
    copied = feed.copied()
    done = next(each for each in commands if "reload-done" in each)
    cured(watch, "files-expired", done.replace("TSO", str(copied)), sql="-- shop.prices is copied from the source here")


HALTS = (
    *(refused_row, refused_statement, statement_that_may_not_run, damaged_file),
    *(missing_file, altered_target, expired_files),
)


def test_halts_by_kind(watch: Watch, mariadb: DatabaseServer) -> None:
    """What status, metrics, page, log and alerts say of each is on its page, and a command that the status names cures it."""
    watch.begin()
    healthy = watch.settled()
    watch.page_says(healthy.text, "healthy")
    watch.book.shows("healthy", {"status": watch.said(healthy), "alerts": watch.alerts()})
    for make in HALTS:
        watch.begin()
        make(watch, mariadb)


def test_what_others_do(watch: Watch, mariadb: DatabaseServer, tmp_path: Path) -> None:
    """A table that an operator pauses, a statement that waits for a lock, a name that is taken: each shows, and is cured."""
    watch.begin()
    paused_table(watch)
    watch.begin()
    waiting_statement(watch, mariadb)
    watch.begin()
    taken_name(watch, tmp_path)


def paused_table(watch: Watch) -> None:
    """An operator pauses a table."""
    assert watch.running is not None
    pause = typed(f"storage-consumer table pause --table shop.orders --downstream-uri {watch.uri}")
    watch.feed.rows("shop.orders", 2, '2,"two"')
    checkpoint = watch.feed.advance()
    watch.running.wait_for("round_finished", paused=["shop.orders"], checkpoint_running=checkpoint)
    status = watch.settled()
    watch.page_says(status.text, "paused shop.orders")
    seen = {
        "cause": watch.said(pause),
        "status": watch.said(status),
        "metrics": watch.metrics(),
        "log": watch.log("decision_obeyed", table="shop.orders"),
        "alerts": watch.alerts(),
    }
    watch.book.shows("table-paused", seen)
    cured(watch, "table-paused", *steps(status.text))


def waiting_statement(watch: Watch, mariadb: DatabaseServer) -> None:
    """Somebody's open transaction has read the table that a statement alters."""
    assert watch.running is not None
    watch.masks |= {r"connection \d+": "connection 48", r"KILL \d+": "KILL 48", r"idle for \d+ s": "idle for 6 s"}
    watch.masks[r"root@127.0.0.1:\d+"] = "report@10.0.0.9:50312"
    # It runs and waits in turns, and rounds come and go beside it.
    watch.masks[r"(doing +)(idle|applying) for (\d+ s|\d+s)"] = r"\1idle for \3"
    watch.masks[r".*(statements_running|statement_seconds) .*\n?"] = ""
    with mariadb.connect(autocommit=False) as other, other.cursor() as cursor:
        cursor.execute("SELECT * FROM shop.items")
        watch.feed.ddl("shop.items", "ALTER TABLE `items` ADD COLUMN `note` VARCHAR(20)", ADD_COLUMN, WIDER)
        watch.feed.advance()
        watch.running.wait_for("ddl_waits", table="shop.items")
        text = watch.once(lambda: watch.status().text, "waits for locks", "started for")
        watch.page_says(text, "waiting shop.items", "KILL", "started")
        seen = {
            "status": watch.said(Ended(typed=watch.status_line(), code=0, text=text)),
            "metrics": watch.once(watch.metrics, 'reason="lock"'),
            "log": watch.log("ddl_waits", table="shop.items"),
            "alerts": watch.alerts(),
        }
        watch.book.shows("ddl-waits", seen)
        (kill,) = steps(text)
        mariadb.query(kill)
        wait_until("an end of the wait", lambda: "waiting" not in watch.status().text)
    watch.book.shows("ddl-waits", {"cure": watch.normal(f"mysql> {kill}") + "\n" + watch.healed(watch.settled())})


def taken_name(watch: Watch, folder: Path) -> None:
    """A database of the source has the name of one of the server's own."""
    assert watch.running is not None
    watch.feed.create("mysql.notes")
    watch.feed.advance()
    assert halted(watch, "halted-by-name", "mysql.notes") == []
    watch.running.signal(SIGTERM)
    assert watch.running.end() == 4
    without = ["--filter", "*.*", "--filter", "!mysql.*"]
    assert shlex.join(without) in " ".join(watch.status().text.split())
    with program([*arguments(watch), *without], folder / "second") as second:
        watch.running = second
        second.wait_for("round_finished", halted=0)
        watch.book.shows("halted-by-name", {"cure": watch.said(watch.settled())})


def test_behind(mariadb: DatabaseServer, book: Book, tmp_path: Path) -> None:
    """A target that takes rows slowly: the status says how far behind, how fast, and for how long."""
    feed = Feed(SmallBucket(root=tmp_path / "bucket"))
    feed.create("shop.orders", ago=3000)
    feed.rows("shop.orders", 1, '1,"one"', at=feed.now(2890))
    feed.bucket.metadata(feed.now(2880))
    watch = Watch(feed=feed, uri=mariadb.uri, book=book)
    with program(arguments(watch), tmp_path / "log") as running:
        watch.running = running
        running.wait_for("round_finished", checkpoint=feed.marks[-1])
        slow = "CREATE TRIGGER shop.slow BEFORE INSERT ON shop.orders FOR EACH ROW DO SLEEP(0.008)"
        mariadb.query(slow)
        for number in range(2, 10):
            rows = (f'{number * 1000 + row},"{row}"' for row in range(300))
            feed.rows("shop.orders", number, *rows, at=feed.now(1900 - number))
        feed.advance()
        watch.masks[r"\d of 8 files .*rows/s(, \w+ left)?"] = "3 of 8 files (93.5 KiB), 900 rows, 48 rows/s, 35s left"
        limit = ("--max-lag", "5m")
        seen = watch.once(lambda: watch.status(*limit).text, "of 8 files")
        watch.book.shows(
            "behind",
            {
                "status": watch.said(Ended(typed=watch.status_line(*limit), code=5, text=seen)),
                "metrics": watch.metrics(),
                "page": watch.page("behind"),
                "alerts": watch.alerts(files_read=True),
            },
        )
        mariadb.query("DROP TRIGGER shop.slow")
        wait_until("an end of the backlog", lambda: watch.status(*limit).code == 0)
        watch.book.shows("behind", {"cure": watch.healed(watch.status(*limit))})
