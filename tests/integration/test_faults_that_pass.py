"""Connections that break again and again under large transactions; for all other faults see `test_faults`."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import pymysql
import pytest

from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import CREATE_TABLE, SmallBucket, column, row, ts
from tests.integration.rounds import consumer

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
