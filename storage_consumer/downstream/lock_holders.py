"""Who keeps a DDL from running: what each server tells of the holders of metadata locks and of open transactions."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from storage_consumer.downstream.query import Query, text_of
from storage_consumer.errors import StorageConsumerError
from storage_consumer.model import TableName

_SHOWN = 5
_TEXT = 120
"""Characters of a running statement that are shown."""
_WHO = "p.id, p.user, p.host, p.time, p.info"
_MYSQL = (
    f"SELECT {_WHO}, l.lock_type FROM performance_schema.metadata_locks l "
    "JOIN performance_schema.threads t ON t.thread_id = l.owner_thread_id "
    "JOIN information_schema.processlist p ON p.id = t.processlist_id "
    "WHERE l.lock_status = 'GRANTED' AND p.id <> CONNECTION_ID() AND (l.object_schema, l.object_name) IN ({})"
)
_MARIADB = (
    f"SELECT {_WHO}, l.lock_mode FROM information_schema.metadata_lock_info l "
    "JOIN information_schema.processlist p ON p.id = l.thread_id "
    "WHERE p.id <> CONNECTION_ID() AND (l.table_schema, l.table_name) IN ({})"
)
"""With its plug-in for that, which many servers do not load."""
_TIDB = (
    f"SELECT {_WHO}, CONCAT('a transaction since ', x.start_time) FROM information_schema.tidb_trx x "
    "JOIN information_schema.processlist p ON p.id = x.session_id "
    "JOIN information_schema.tables t ON FIND_IN_SET(t.tidb_table_id, x.related_table_ids) "
    "WHERE p.id <> CONNECTION_ID() AND (t.table_schema, t.table_name) IN ({})"
)
"""Open transactions that have used a table, of the TiDB server that answers: asking a whole cluster can take a minute."""
_ON_TABLES = (_MYSQL, _MARIADB, _TIDB)
"""Queries for the holders of locks on given tables; a server that does not know one refuses it."""
_OPEN = (
    f"SELECT {_WHO}, CONCAT('a transaction since ', x.trx_started) FROM information_schema.innodb_trx x "
    "JOIN information_schema.processlist p ON p.id = x.trx_mysql_thread_id "
    "WHERE p.id <> CONNECTION_ID() ORDER BY x.trx_started"
)
"""Open transactions, oldest first: where the server does not tell of locks, one of them holds them."""
_LASTING = 2
"""Seconds for which such a transaction has to go on to be told: longer than the second to which its start is known."""


def blockers(query: Query, names: Iterable[TableName]) -> tuple[str, ...]:
    """Return one line per connection that may hold a lock on these tables; nothing if the server tells nothing.

    These are the holders if the server names them, else all connections with an open transaction, oldest first. What is over within two
    seconds, such as a transaction of this program, has kept nothing waiting.
    """
    # Databases are left out: locks are shown by table.
    wanted = sorted({(name.schema, name.table) for name in names if name.table})
    if not wanted:
        return ()
    pairs = ", ".join(["(%s, %s)"] * len(wanted))
    arguments = [part for pair in wanted for part in pair]
    # Each server refuses queries that are made for others, so trying them is surer than judging by its version.
    for sql in _ON_TABLES:
        with suppress(StorageConsumerError):  # not this server's, or a right that we lack
            if found := query(sql.format(pairs), arguments):
                return _lines(found)
    with suppress(StorageConsumerError):  # likewise
        return _lines(_lasting(query))
    return ()


def _lasting(query: Query) -> list[tuple[Any, ...]]:
    """Return the open transactions that are still open a while later."""
    found = list(query(_OPEN, []))
    if found:
        query("SELECT SLEEP(%s)", [_LASTING])
    still = {_identity(row) for row in query(_OPEN, [])} if found else set()
    return [row for row in found if _identity(row) in still]


def _identity(row: tuple[Any, ...]) -> tuple[Any, Any]:
    """Return the connection of a transaction, and since when that is open."""
    return row[0], row[-1]


def _lines(found: list[tuple[Any, ...]]) -> tuple[str, ...]:
    """Return the rows as text, each connection once."""
    # One connection may hold several locks; people need each connection only once.
    by_connection = {row[0]: row for row in found}
    lines = [_line(*row) for row in by_connection.values()]
    more = len(lines) - _SHOWN
    return (*lines[:_SHOWN], f"and {more} more") if more > 0 else tuple(lines)


def _line(connection: Any, user: Any, host: Any, seconds: Any, running: Any, lock: Any) -> str:
    who = f" of {text_of(user)}@{text_of(host)}" if user else ""
    # A connection without a statement still holds what its transaction took.
    doing = f"running {text_of(running)[:_TEXT]!r}" if running else "idle"
    return f"connection {connection}{who}, {doing} for {seconds} s, holds {text_of(lock)} (`KILL {connection}` ends it)"
