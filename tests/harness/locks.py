"""Locks that another client holds, and who waits for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.harness.servers import DatabaseServer
from tests.harness.waiting import wait_until


@contextmanager
def lock(server: DatabaseServer, table: str, key: int) -> Iterator[None]:
    """A transaction of another client holds a key."""
    with server.connect(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {table} VALUES ({key}, 'not committed')")
        yield
        connection.rollback()


def wait_for_a_blocked_write(server: DatabaseServer) -> None:
    """Return when a transaction of another client waits for a lock."""
    waiting = "SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
    wait_until("a write that waits for a lock", lambda: server.query(waiting))
