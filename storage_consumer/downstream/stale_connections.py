"""Ending the connections of former owners.

A process that is paused, or cut off from the network, may have stopped in the middle of a transaction. The server keeps that
open, with its locks on the state, until the connection ends, which can take hours. The fence refuses whatever it would still write,
so nobody has to wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

from storage_consumer.errors import StorageConsumerError
from storage_consumer.telemetry import Log

_log = Log("state")
Run = Callable[[str], Any]
"""Runs a statement, and raises our errors for the server's."""


def mark(query: Callable[[str], Any], state_schema: str) -> None:
    """Mark a connection as ours: its default database becomes the state schema, which other users of the target have no use for.

    Connections for DDL do not get that mark: `ddl_lock` decides about them, and whether to wait for their statement.

    Raise the server's error if that schema does not exist yet.
    """
    name = state_schema.replace("`", "``")
    query(f"USE `{name}`")


def evict(run: Run, state_schema: str, ours: Collection[int]) -> tuple[int, ...]:
    """End all connections of this user that `mark` marked, except `ours` and those that run a SELECT; return their ids.

    `run` goes through a marked connection too. A connection that runs a SELECT waits for a lock as we do, and holds none that we want.
    Any user may end connections of the same user name without a privilege.
    """
    found = _marked(run, ours)
    for connection in found:
        # Errors are passed over: a connection may have ended by itself, and the caller tries its own work again anyway.
        for statement in ("KILL {}", "KILL TIDB {}"):  # the second one is for TiDB without its global ids
            with suppress(StorageConsumerError):
                run(statement.format(connection))
    if found:
        _log.warning("connections_ended", connections=found, state_schema=state_schema)
    return found


def _marked(run: Run, ours: Collection[int]) -> tuple[int, ...]:
    """Return the other connections with our default database, of the server that answers, else of any other in its cluster.

    The server's own spelling of that database is compared: a name that differs only by case is another state.
    """
    # The driver formats the text, which halves the doubled `%`.
    for listing in ("processlist", "cluster_processlist"):  # TiDB alone has the second one, and takes long over it
        with suppress(StorageConsumerError):
            rows = run(
                # One's own user only: nobody else's connection is ours to end. Its name may hold an @, the host's may not.
                f"SELECT id FROM information_schema.{listing} WHERE CAST(db AS BINARY) = CAST(DATABASE() AS BINARY) "
                "AND user = LEFT(USER(), CHAR_LENGTH(USER()) - 1 - CHAR_LENGTH(SUBSTRING_INDEX(USER(), '@', -1))) "
                "AND COALESCE(info, '') NOT LIKE 'SELECT%%'"
            )
            if found := {int(connection) for (connection,) in rows}.difference(ours):
                return tuple(sorted(found))
    return ()
