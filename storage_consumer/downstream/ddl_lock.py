"""The fence around DDL, a lock that lives as long as the connection that holds it; and who else keeps a DDL from running.

A paused former owner still has that connection, and could wake up with its statement. So its connection is ended before the lock is
ours. A connection that is executing a statement is another matter: the journal has that statement as started, the next owner waits
for it and resolves it, and killing it would only make it start again. Whatever its owner sends afterwards needs a lease.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any

from storage_consumer.downstream.query import Query, text_of
from storage_consumer.errors import StorageConsumerError, TableError, TargetUnavailable, TransientError
from storage_consumer.model import TableName

_TRIES = 10
_HARMLESS = ("SELECT", "SHOW", "SET", "USE", "KILL", "COMMIT", "ROLLBACK", "BEGIN")
"""What an owner's connection runs besides DDL; a DDL may follow."""
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


def fenced(query: Query, name: str, *, tidb: bool) -> bool:
    """Take the lock `name`; return False while its holder is executing a DDL, which is left alone.

    Raise `TargetUnavailable` if the holder could not be ended.
    """
    if tidb:
        with suppress(TableError, TransientError):  # before TiDB 7.4 there is no such name
            # By this name the next owner finds the connection, since TiDB does not show who holds a lock.
            query("SET SESSION tidb_session_alias = %s", (name,))
    for _ in range(_TRIES):
        if query("SELECT GET_LOCK(%s, 1)", (name,))[0][0] == 1:
            return True
        holders = _namesakes(query, name) if tidb else _holder(query, name)
        # A look right before the KILL: a statement that is already running has to end by itself.
        if any(_is_executing(statement) for _, statement in holders):
            return False
        # A DDL that begins between the look and the KILL is in the journal as started, so it is resolved by the structure that it leaves.
        for holder, _ in holders:
            with suppress(TableError, TransientError):  # it may be gone by now
                query(f"KILL {'TIDB ' if tidb else ''}{holder}")
    message = "another connection holds the lock for DDL on the target and could not be ended"
    raise TargetUnavailable(message)


def _is_executing(statement: str) -> bool:
    """Return whether a connection executes a statement that only an owner's DDL can be."""
    return bool(statement.strip()) and statement.split(maxsplit=1)[0].upper() not in _HARMLESS


def _holder(query: Query, lock: str) -> list[tuple[int, str]]:
    """Return the connection that holds a lock and what it executes; empty if nobody holds it."""
    holder = query("SELECT IS_USED_LOCK(%s)", (lock,))[0][0]
    # A holder that the processlist does not show is ended as an idle one would be.
    return [] if holder is None else _with_statements(query, "id = %s", (int(holder),)) or [(int(holder), "")]


def _namesakes(query: Query, alias: str) -> list[tuple[int, str]]:
    """Return every other connection with this alias to any server of the cluster; TiDB does not tell who holds a lock."""
    found: dict[int, str] = {}
    for listing in ("processlist", "cluster_processlist"):
        with suppress(TableError, TransientError):
            found |= dict(_with_statements(query, "session_alias = %s AND id <> CONNECTION_ID()", (alias,), listing))
    return sorted(found.items())


def _with_statements(
    query: Query, where: str, arguments: Collection[Any], listing: str = "processlist"
) -> list[tuple[int, str]]:
    found = query(f"SELECT id, info FROM information_schema.{listing} WHERE {where}", arguments)
    return [(int(connection), text_of(statement or "")) for connection, statement in found]


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
