"""A statement that takes long, on real servers: only its own table waits for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from storage_consumer.clock import Stop
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import ID_NAME, SmallBucket, column, row, ts
from tests.harness.waiting import wait_until
from tests.integration.rounds import consumer, content

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.usefixtures("spark")]

WIDER = (*ID_NAME, column("more", "INT"))


@contextmanager
def following(bucket: SmallBucket, server: DatabaseServer) -> Iterator[None]:
    """The program follows the bucket in a thread of its own for as long as the block lasts."""
    with Stop() as stop, consumer(bucket, server, flush_interval="200ms") as running:
        faults: list[BaseException] = []

        def run() -> None:
            try:
                running.run(stop)
            except BaseException as fault:
                faults.append(fault)
                raise

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            stop.requested.set()
            thread.join(60)
            assert not thread.is_alive()
        assert faults == []


def test_rows_and_statements_of_other_tables_go_on(bucket: SmallBucket, server: DatabaseServer) -> None:
    """While an ALTER of one table waits for a lock, another table gets rows of several rounds and a statement of its own (D7, D9)."""

    def holds(rows: int) -> bool:
        return len(content(server, "d.b")) == rows

    bucket.create("d.a", "d.b")
    bucket.rows("d.a", 1, row("d.a", 2, "1", '"one"'))
    bucket.rows("d.b", 1, row("d.b", 2, "1", '"one"'))
    bucket.metadata(ts(3))
    with following(bucket, server):
        wait_until("two tables", lambda: "d" in server.databases() and len(server.query("SHOW TABLES IN d")) == 2)
        wait_until("the first row", lambda: len(content(server, "d.a")) == 1)
        with server.connect() as holder, holder.cursor() as cursor:
            cursor.execute("START TRANSACTION")
            cursor.execute("SELECT * FROM d.a")
            bucket.schema("d.a", ts(4), "ALTER TABLE `a` ADD COLUMN `more` INT", 5, WIDER)
            bucket.rows("d.a", 1, row("d.a", 6, "2", '"two"', "2"), version=ts(4))
            for number in (2, 3):
                bucket.rows("d.b", number, row("d.b", 4 + 2 * number, str(number), '"b"'))
                bucket.metadata(ts(5 + 2 * number))
                wait_until(f"row {number} of the other table", partial(holds, number))
            bucket.schema("d.b", ts(12), "ALTER TABLE `b` ADD COLUMN `more` INT", 5, WIDER)
            bucket.rows("d.b", 1, row("d.b", 13, "4", '"b"', "4"), version=ts(12))
            bucket.metadata(ts(14))
            wait_until("the other table's own statement", lambda: (4, "b", 4) in content(server, "d.b"))
            assert len(server.query("SHOW COLUMNS FROM d.a")) == 2
            cursor.execute("COMMIT")
        wait_until("the statement, once the lock is gone", lambda: (2, "two", 2) in content(server, "d.a"))
    assert content(server, "d.a") == [(1, "one", None), (2, "two", 2)]
