"""The fence around DDL: a lock that lives as long as the connection that holds it.

A paused former owner still has that connection, and could wake up with its statement. So its connection is ended before the lock is
ours. A connection that is executing a statement is another matter: the journal has that statement as started, the next owner waits
for it and resolves it, and killing it would only make it start again. Whatever its owner sends afterwards needs a lease.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Any

from storage_consumer.downstream.query import Query, text_of
from storage_consumer.errors import TableError, TargetUnavailable, TransientError

_TRIES = 10
_HARMLESS = ("SELECT", "SHOW", "SET", "USE", "KILL", "COMMIT", "ROLLBACK", "BEGIN")
"""What an owner's connection runs besides DDL; a DDL may follow."""


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
