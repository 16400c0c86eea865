"""StateInspector: a target's state as an operator sees it, without the lease. It writes nothing but decisions about DDL.

A decision is a row of its own, which the consumer follows at its next round or start. It counts only while the journal says that
the statement is neither done nor skipped. Both are read under a lock on the journal's row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import pymysql.err

from storage_consumer.checkpoint.tables import STATE_VERSION
from storage_consumer.config.settings import Downstream
from storage_consumer.downstream.connection import connect, translating
from storage_consumer.downstream.mysql_errors import is_denied, translated
from storage_consumer.downstream.rights import state_remedy
from storage_consumer.errors import ConfigError
from storage_consumer.model import TableName
from storage_consumer.plan.journal import DONE, SKIPPED
from storage_consumer.ports import Decision
from storage_consumer.sql.tokens import quote

_READ_TIMEOUT = 60
"""Seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalRow:
    """One statement of the journal, and the decision about it."""

    identity: tuple[str, int, int]
    name: TableName
    state: str
    query: str
    statement: str
    """What ran last, or was to run."""
    note: str
    answer: str
    seconds: float | None
    started_at: str
    """By the target's clock, in the time zone of this session; empty if it never started."""
    finished_at: str
    decision: Decision | None

    @property
    def version(self) -> int:
        """The statement's TSO."""
        return self.identity[1]

    @property
    def settled(self) -> bool:
        """Whether nothing is left to decide."""
        return self.state in (DONE, SKIPPED)


class StateInspector:
    """One short-lived connection to the state. Raises `TargetUnavailable` and `ConfigError`."""

    readable_versions: ClassVar[tuple[int, ...]] = (STATE_VERSION,)
    """Versions of the state tables that can be read."""

    def __init__(self, downstream: Downstream, password: str) -> None:
        """Connect; raise `ConfigError` if there is no state of a readable version."""
        self._schema = downstream.state_schema
        self._connection = connect(downstream, password, read_timeout=_READ_TIMEOUT)
        try:
            self._check(downstream)
        except BaseException:
            self.close()
            raise

    def _check(self, downstream: Downstream) -> None:
        """Raise `ConfigError` if there is no state of a readable version."""
        there = self.rows(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = %s AND table_name = 'version'",
            (self._schema,),
        )
        if not there:
            message = (
                f"there is no state schema {self._schema} on {downstream.address}: was `storage-consumer run` started "
                "there, and with which --state-schema?"
            )
            raise ConfigError(message)
        found = self.rows(f"SELECT version FROM {self.table('version')}")
        if not found or found[0][0] not in self.readable_versions:
            message = (
                f"the state schema {self._schema} has version {found[0][0] if found else 'none'}, this program reads "
                f"version {STATE_VERSION}: start `storage-consumer run`, which migrates an older state"
            )
            raise ConfigError(message)

    def close(self) -> None:
        """Close the connection."""
        if self._connection.open:
            self._connection.close()

    def table(self, name: str) -> str:
        """Return a state table's name in SQL."""
        return f"{quote(self._schema)}.{quote(name)}".replace("%", "%%")

    def rows(self, sql: str, arguments: Collection[Any] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        try:
            return self._rows(sql, arguments)
        except pymysql.err.MySQLError as fault:
            if is_denied(fault):
                raise ConfigError(state_remedy(fault, self._rows, self._schema)) from fault
            raise translated(fault, "reading the state") from fault
        except (OSError, EOFError) as fault:
            raise translated(fault, "reading the state") from fault

    def _rows(self, sql: str, arguments: Collection[Any] = ()) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            # The driver formats only with arguments; without them a doubled `%` would be sent as it is.
            cursor.execute(sql if arguments else sql.replace("%%", "%"), tuple(arguments) or None)
            return list(cursor.fetchall())

    # the journal

    def unsettled(self) -> list[JournalRow]:
        """Return the statements that are neither done nor skipped, in order."""
        return self._journal("j.state NOT IN (%s, %s)", (DONE, SKIPPED))

    def of_version(self, version: int) -> list[JournalRow]:
        """Return the statements of one version."""
        return self._journal("j.version = %s", (version,))

    def of_directories(self, directories: Collection[str]) -> list[JournalRow]:
        """Return the statements whose schema files are in these table directories."""
        if not directories:
            return []
        return self._journal(f"j.table_dir IN ({', '.join(['%s'] * len(directories))})", tuple(directories))

    def _journal(self, where: str, arguments: Collection[Any]) -> list[JournalRow]:
        sql = (
            "SELECT j.table_dir, j.version, j.checksum, j.schema_name, j.table_name, j.state, j.query, j.statement, j.note, "
            "j.answer, j.seconds, j.started_at, j.finished_at, d.verb, d.statement, d.decided_at, d.decided_by "
            f"FROM {self.table('ddl_journal')} j LEFT JOIN {self.table('ddl_decision')} d ON d.table_dir = j.table_dir AND "
            f"d.version = j.version AND d.checksum = j.checksum WHERE {where} ORDER BY j.version, j.table_dir, j.checksum"
        )
        return [_row(*row) for row in self.rows(sql, arguments)]

    # decisions

    def decide(self, row: JournalRow, decision: Decision) -> str:
        """Store a decision. Return ``stored``, ``same`` if it was stored before, or ``settled`` if it comes too late."""
        of_it = "table_dir = %s AND version = %s AND checksum = %s"
        with self.transaction():
            (state,) = self.rows(
                f"SELECT state FROM {self.table('ddl_journal')} WHERE {of_it} FOR UPDATE", row.identity
            )
            if state[0] in (DONE, SKIPPED):
                return "settled"
            before = self.rows(
                f"SELECT verb, statement FROM {self.table('ddl_decision')} WHERE {of_it} FOR UPDATE", row.identity
            )
            self.rows(
                f"REPLACE INTO {self.table('ddl_decision')} "
                "(table_dir, version, checksum, verb, statement, decided_at, decided_by) "
                "VALUES (%s, %s, %s, %s, %s, UTC_TIMESTAMP(6), %s)",
                (*row.identity, decision.verb, decision.statement, decision.decided_by),
            )
        return "same" if before == [(decision.verb, decision.statement)] else "stored"

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


def _row(table_dir: str, version: int, checksum: int, schema: str, table: str, state: str, *rest: Any) -> JournalRow:
    query, statement, note, answer, seconds, started, finished, verb, text, decided_at, decided_by = rest
    return JournalRow(
        identity=(table_dir, version, checksum),
        name=TableName(schema=schema, table=table),
        state=state,
        query=query,
        statement=statement,
        note=note,
        answer=answer or "",
        seconds=seconds,
        started_at=str(started or ""),
        finished_at=str(finished or ""),
        decision=verb and Decision(verb=verb, statement=text, decided_at=str(decided_at), decided_by=str(decided_by)),
    )
