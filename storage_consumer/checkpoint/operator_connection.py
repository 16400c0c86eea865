"""An operator's connection to the state, beside a running consumer. It asks for no lease."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import pymysql.err
from sqlalchemy import Column, Table, select, text
from sqlalchemy.sql.elements import DQLDMLClauseElement

from storage_consumer.config.settings import Downstream
from storage_consumer.downstream.connection import connect, translating
from storage_consumer.downstream.mysql_errors import is_denied, translated
from storage_consumer.downstream.rights import state_remedy
from storage_consumer.downstream.state_tables import STATE_VERSION, as_text, state_tables
from storage_consumer.errors import ConfigError

_READ_TIMEOUT = 60
"""Seconds."""


class OperatorConnection:
    """One short-lived connection to the state. Raises `TargetUnavailable` and `ConfigError`."""

    def __init__(self, downstream: Downstream, password: str, readable: Collection[int]) -> None:
        """Connect; raise `ConfigError` if there is no state of a `readable` version."""
        self.schema = downstream.state_schema
        self.address = downstream.address
        self.tables = state_tables(downstream.state_schema)
        # With a limit: a person waits for the answer, and a lock may be held for long.
        self._connection = connect(downstream, password, read_timeout=_READ_TIMEOUT)
        try:
            self._check(downstream, readable)
        except BaseException:
            self.close()
            raise

    def _check(self, downstream: Downstream, readable: Collection[int]) -> None:
        """Raise `ConfigError` if there is no state of a readable version."""
        if not self.has(self.tables.version):
            message = (
                f"there is no state schema {self.schema} on {downstream.address}: was `storage-consumer run` started "
                "there, and with which --state-schema?"
            )
            raise ConfigError(message)
        found = self.rows(select(self.tables.version.c.version))
        # A state without a version row was not written to its end.
        if not found or found[0][0] not in readable:
            message = (
                f"the state schema {self.schema} has version {found[0][0] if found else 'none'}, this program reads "
                f"version {STATE_VERSION}: start `storage-consumer run`, which migrates an older state"
            )
            raise ConfigError(message)

    def close(self) -> None:
        """Close the connection."""
        if self._connection.open:
            self._connection.close()

    def has(self, wanted: Table | Column[Any]) -> bool:
        """Return whether a state table, or a column of one, exists; a state of an older version may lack it."""
        where, arguments = "table_schema = :schema AND table_name = :name", {"schema": self.schema}
        if isinstance(wanted, Table):
            query = text(f"SELECT 1 FROM information_schema.tables WHERE {where}")
            return bool(self.rows(query.bindparams(**arguments, name=wanted.name)))
        query = text(f"SELECT 1 FROM information_schema.columns WHERE {where} AND column_name = :called")
        return bool(self.rows(query.bindparams(**arguments, name=wanted.table.name, called=wanted.name)))

    def rows(self, statement: DQLDMLClauseElement) -> list[tuple[Any, ...]]:
        """Return all rows of a statement."""
        try:
            return self._rows(*as_text(statement))
        except pymysql.err.MySQLError as fault:
            if is_denied(fault):
                raise ConfigError(state_remedy(fault, self._rows, self.schema)) from fault
            raise translated(fault, "reading the state") from fault
        except (OSError, EOFError) as fault:
            raise translated(fault, "reading the state") from fault

    def _rows(self, sql: str, arguments: Collection[Any] = ()) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            # The driver formats only with arguments; without them a doubled `%` would be sent as it is.
            cursor.execute(sql if arguments else sql.replace("%%", "%"), tuple(arguments) or None)
            return list(cursor.fetchall())

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run a block whose statements take effect together at its end, or not at all."""
        with translating("storing a decision"):
            self._connection.begin()
        try:
            yield
        except BaseException:
            # Closing is the rollback.
            self.close()
            raise
        with translating("storing a decision"):
            self._connection.commit()
