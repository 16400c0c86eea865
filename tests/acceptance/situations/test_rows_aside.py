"""A feed with a quarantine, into which a row goes that the target refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.situations.book import Book
from tests.acceptance.situations.feed import Feed
from tests.acceptance.situations.following import arguments
from tests.acceptance.situations.watching import Watch, steps, typed
from tests.harness.program import program
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance, pytest.mark.timeout(900)]
PAGE = "rows-in-quarantine"


def test_quarantined_row(mariadb: DatabaseServer, book: Book, tmp_path: Path) -> None:
    """Status, metrics, page, log and alerts say that a table lacks a row; what the status names brings it back."""
    feed = Feed(SmallBucket(root=tmp_path / "bucket"))
    feed.create("shop.orders", "shop.items")
    for name in ("orders", "items"):
        feed.rows(f"shop.{name}", 1, '1,"one"')
    feed.advance()
    watch = Watch(feed=feed, uri=mariadb.uri, book=book)
    with program([*arguments(watch), "--quarantine", "shop.*"], tmp_path / "log") as running:
        watch.running = running
        running.wait_for("round_finished", checkpoint=feed.marks[-1])
        watch.settled()
        watch.begin()
        feed.rows("shop.orders", 2, '2,"a name of more than twenty characters"', '3,"three"')
        feed.advance()
        running.wait_for("row_quarantined", table="shop.orders")
        wait_until("an unequal table in the status", lambda: watch.status().code == 4)
        status = watch.settled()
        watch.page_says(status.text, "quarantine")
        listed = typed(f"storage-consumer quarantine --downstream-uri {watch.uri}")
        watch.book.shows(
            PAGE,
            {
                "status": watch.said(status),
                "rows": watch.said(listed),
                "metrics": watch.metrics(),
                "log": watch.log("row_quarantined", table="shop.orders"),
                "alerts": watch.alerts(),
            },
        )
        sql = "ALTER TABLE shop.orders MODIFY name VARCHAR(80)"
        mariadb.query(sql)
        (retry,) = steps(status.text)
        said = [watch.normal(f"mysql> {sql}"), watch.said(typed(retry))]
        wait_until("a healthy feed", watch.is_healthy)
        said.append(watch.healed(watch.status()))
        watch.book.shows(PAGE, {"cure": "\n".join(said)})
        found = mariadb.query("SELECT id, name FROM shop.orders ORDER BY id")
    assert list(found) == [(1, "one"), (2, "a name of more than twenty characters"), (3, "three")]
