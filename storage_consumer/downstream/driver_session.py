"""The driver's connection to the target: opened at first use, and again after a loss."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

import pymysql.err

from storage_consumer.config.settings import Downstream
from storage_consumer.downstream.connection import Connection, connect, translating
from storage_consumer.downstream.mysql_errors import is_denied
from storage_consumer.downstream.rights import state_remedy
from storage_consumer.downstream.session import fetched, kind_of
from storage_consumer.errors import ConfigError
from storage_consumer.ports import ServerInfo

_IDLE = 60.0
"""Seconds."""


class DriverSession:
    """Runs the driver's queries on one connection at a time."""

    def __init__(self, downstream: Downstream, password: str) -> None:
        """Take the settings; nothing connects yet."""
        self._downstream = downstream
        self._password = password
        self._used = 0.0
        self._server_type = ""
        self.current: Connection | None = None
        """The connection of the latest query; None after `close`."""

    def close(self) -> None:
        """Close the connection; the next query opens another one."""
        if self.current is not None and self.current.open:
            self.current.close()
        self.current = None

    def check(self) -> None:
        """Connect once. Raise `ConfigError` for a refused login, `TargetUnavailable` if nobody answers."""
        self.live()
        self.close()

    def live(self) -> Connection:
        """Return the connection. Replace one that was idle for long if the server has ended it."""
        # Only after a pause, since a ping costs a round trip before each query otherwise.
        if time.monotonic() - self._used > _IDLE and self.current is not None:
            try:
                self.current.ping(reconnect=False)
            except (pymysql.err.MySQLError, OSError, EOFError):
                self.close()
        if self.current is None or not self.current.open:
            # With the settings for DDL: what the driver reads and what its statements do happen in the same kind of session.
            self.current = connect(self._downstream, self._password, ddl=True)
        self._used = time.monotonic()
        return self.current

    def rows(self, sql: str, arguments: Collection[Any] = (), /) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        try:
            with translating("reading the target's structure"):
                return fetched(self.live(), sql, arguments)
        except Exception as fault:
            self.close()
            if fault.__cause__ is not None and is_denied(fault.__cause__):  # of tables it reads only the state's own
                message = state_remedy(fault.__cause__, self.rows, self._downstream.state_schema)
                raise ConfigError(message) from fault
            raise

    def server_info(self) -> ServerInfo:
        """Return what the server is. Raise `ConfigError` or `TargetUnavailable`."""
        version, packet, local = self.rows("SELECT VERSION(), @@max_allowed_packet, @@local_infile")[0]
        text = str(version)
        return ServerInfo(
            server_type=kind_of(text), version=text, max_packet=int(packet), load_data=str(local).upper() in ("1", "ON")
        )

    def is_tidb(self) -> bool:
        """Return whether the server is a TiDB; it is asked once."""
        self._server_type = self._server_type or self.server_info().server_type
        return self._server_type == "tidb"
