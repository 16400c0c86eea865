"""Faults that pass by themselves: they are waited for, up to a limit, and nothing is lost or doubled over them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pymysql
import pytest

from storage_consumer import Consumer
from storage_consumer.errors import StorageUnavailable, TargetUnavailable
from tests.faulty_proxy import FaultyProxy
from tests.integration.rounds import consumer, content, once
from tests.s3_server import S3Server
from tests.servers import DatabaseServer
from tests.small_bucket import CREATE_TABLE, SmallBucket, column, row, ts

pytestmark = [
    *(pytest.mark.server, pytest.mark.spark, pytest.mark.usefixtures("spark")),
    pytest.mark.parametrize("bucket", ["csv", "canal-json"], indirect=True),
]
MANY = 20_000


@pytest.fixture
def one_row(bucket: SmallBucket) -> SmallBucket:
    """Table d.t with one row at tick 5; ``metadata`` says tick 9."""
    bucket.create("d.t")
    bucket.rows("d.t", 1, row("d.t", 5, "1", '"old"'))
    bucket.metadata(ts(9))
    return bucket


@contextmanager
def lock_on_the_row(server: DatabaseServer) -> Iterator[threading.Event]:
    """Row 1 of d.t is locked until the event is set, or to the end of the block; the server waits a second for locks."""
    release, (before,) = threading.Event(), server.query("SELECT @@GLOBAL.innodb_lock_wait_timeout")
    server.query("SET GLOBAL innodb_lock_wait_timeout = 1")
    with server.connect(autocommit=False) as holder, holder.cursor() as cursor:
        cursor.execute("SELECT * FROM d.t WHERE id = 1 FOR UPDATE")

        def let_go() -> None:
            release.wait(60)
            holder.rollback()

        waiting = threading.Thread(target=let_go)
        waiting.start()
        try:
            yield release
        finally:
            release.set()
            waiting.join()
            server.query(f"SET GLOBAL innodb_lock_wait_timeout = {before[0]}")


def test_lock_that_is_let_go(one_row: SmallBucket, mariadb: DatabaseServer) -> None:
    """A row that another connection holds is waited for beyond the server's own patience, then written."""
    once(one_row, mariadb)
    one_row.rows("d.t", 2, row("d.t", 12, "1", '"new"', operation="U"))
    one_row.metadata(ts(20))
    with lock_on_the_row(mariadb) as release:
        threading.Timer(4, release.set).start()
        assert once(one_row, mariadb).checkpoint == ts(20)
    assert content(mariadb, "d.t") == [(1, "new")]


def test_lock_that_stays(one_row: SmallBucket, mariadb: DatabaseServer) -> None:
    """After the limit the run ends with the reason; nothing is lost, and the next start writes the row."""
    once(one_row, mariadb)
    one_row.rows("d.t", 2, row("d.t", 12, "1", '"new"', operation="U"))
    one_row.metadata(ts(20))
    with lock_on_the_row(mariadb), pytest.raises(TargetUnavailable, match=r"[Ll]ock"):
        once(one_row, mariadb, retry_limit="2s")
    assert content(mariadb, "d.t") == [(1, "old")]
    assert once(one_row, mariadb).checkpoint == ts(20)
    assert content(mariadb, "d.t") == [(1, "new")]


def ended(cursor: pymysql.cursors.Cursor, number: int) -> bool:
    """End one connection; False if it has ended by itself."""
    with suppress(pymysql.err.OperationalError):
        cursor.execute(f"KILL {number}")
        return True
    return False


class Killer(threading.Thread):
    """Ends connections of the program while they write rows, so many times."""

    def __init__(self, server: DatabaseServer, times: int) -> None:
        """`times`: how many connections."""
        super().__init__(daemon=True)
        self.server, self.left, self.ended = server, times, threading.Event()

    def run(self) -> None:
        """Look for a connection that writes, again and again."""
        with self.server.connect() as connection, connection.cursor() as cursor:
            while self.left and not self.ended.is_set():
                cursor.execute(
                    "SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND "
                    "(info LIKE 'LOAD DATA%' OR info LIKE 'INSERT INTO `d`%')"
                )
                for (number,) in cursor.fetchall()[: self.left]:
                    self.left -= ended(cursor, number)
                time.sleep(0.002)


def test_connections_that_break(one_row: SmallBucket, mariadb: DatabaseServer) -> None:
    """Connections that end in the middle of a transaction cost time, no rows: neither of a keyed nor of a keyless table."""
    columns = (column("a", "INT"), column("v", "VARCHAR", ColumnPrecision="20"))
    one_row.schema("d.heap", ts(1), "CREATE TABLE `heap` (a INT, v VARCHAR(20))", CREATE_TABLE, columns)
    one_row.rows("d.t", 2, *(row("d.t", 6, str(number), '"many"') for number in range(2, MANY)))
    one_row.rows("d.heap", 1, *(row("d.heap", 6, "7", '"same"', names=("a", "v")) for _ in range(MANY)))
    killer = Killer(mariadb, 3)
    with consumer(one_row, mariadb) as running:
        killer.start()
        summary = running.run_once()
        killer.ended.set()
        killer.join()
    assert killer.left < 3
    assert summary.checkpoint == ts(9)
    assert mariadb.query("SELECT COUNT(*), COUNT(DISTINCT id) FROM d.t") == ((MANY - 1, MANY - 1),)
    assert mariadb.query("SELECT COUNT(*) FROM d.heap") == ((MANY,),)


@pytest.mark.parametrize("fault", ["503", "cut"])
def test_store_that_does_not_answer(
    one_row: SmallBucket, mariadb: DatabaseServer, s3: S3Server, fault: str, tmp_path: Path
) -> None:
    """Answers of 503 and answers that break off are asked for again; where they stay, the run ends, and the next goes on."""
    name = f"faults-{tmp_path.name.lower().replace('_', '-')}"[-60:].strip("-")
    s3.upload(one_row.root, name)
    with FaultyProxy(s3.endpoint, fault) as proxy:
        uri = s3.uri(name, "", s3.reader, endpoint=proxy.endpoint) + "&" + one_row.uri.partition("?")[2]
        options: dict[str, Any] = {
            "config": {"sink": {"csv": {"include-commit-ts": True}}},
            "downstream_uri": mariadb.uri,
        }
        proxy.faults = 3
        with Consumer(upstream_uri=uri, **options) as running:
            assert running.run_once().checkpoint == ts(9)
        assert proxy.faults == 0
        assert content(mariadb, "d.t") == [(1, "old")]
        proxy.faults = 1_000_000
        with pytest.raises(StorageUnavailable), Consumer(upstream_uri=uri, retry_limit="2s", **options) as running:
            running.run_once()
        proxy.faults = 0
        with Consumer(upstream_uri=uri, **options) as running:
            assert running.run_once().checkpoint == ts(9)
