"""The state of a feed at one moment, as `status` and the status page judge it. It only reads, and asks for no lease."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, select, text, true

from storage_consumer.checkpoint.operator_connection import OperatorConnection
from storage_consumer.checkpoint.operator_loads import LoadInspector
from storage_consumer.checkpoint.operator_quarantine import QuarantineInspector
from storage_consumer.checkpoint.operator_tables import TableInspector, last_report, seconds_between
from storage_consumer.checkpoint.operator_verified import VerifiedInspector
from storage_consumer.downstream.session import kind_of
from storage_consumer.driver.lease_holder import readable
from storage_consumer.errors import ConfigError
from storage_consumer.model import DdlId, TableName
from storage_consumer.monitoring.report import Minute
from storage_consumer.monitoring.snapshot import SHOWN_CHARACTERS, JournalEntry, Snapshot, Statement, Table
from storage_consumer.plan.journal import DONE, SKIPPED, STARTED

_OFF = ("0", "OFF", "NONE")
"""Values of ``read_only`` with which a target takes writes; newer versions of MariaDB have words."""


class StatusInspector:
    """Reads everything at once."""

    def __init__(self, connection: OperatorConnection) -> None:
        """Use `connection`."""
        self._connection = connection
        self._tables = connection.tables

    def snapshot(self) -> Snapshot:
        """Return the state as it is now; raise `ConfigError` if it is bound to no bucket yet."""
        feed, lease = self._tables.feed.c, self._tables.lease.c
        query = select(
            feed.upstream,
            feed.checkpoint,
            feed.checkpoint_running,
            feed.storage_checkpoint,
            lease.holder,
            seconds_between("expires_at", "UTC_TIMESTAMP(6)"),
            text("UNIX_TIMESTAMP(NOW(6))"),
            text("@@GLOBAL.read_only"),
            text("VERSION()"),
        ).join_from(self._tables.feed, self._tables.lease, true())
        found = self._connection.rows(query)
        if not found:
            message = f"the state schema {self._connection.schema} is not bound to a bucket yet: `storage-consumer run` binds it"
            raise ConfigError(message)
        ((upstream, checkpoint, running, storage, holder, expired, now, read_only, version),) = found
        report, age = last_report(self._connection)
        return Snapshot(
            now=float(now),
            state_schema=self._connection.schema,
            upstream=upstream,
            checkpoint=checkpoint,
            checkpoint_running=running,
            storage_checkpoint=storage,
            writer=readable(holder) if holder and expired <= 0 else "",
            last_writer=readable(holder) if holder else "",
            read_only=str(read_only).upper() not in _OFF,
            tables=tuple(self._all_tables()),
            statements=tuple(self._statements()),
            loads=tuple(row.load for row in LoadInspector(self._connection).all()),
            verified=tuple(VerifiedInspector(self._connection).standing()),
            target=self._connection.address,
            server=f"{kind_of(version)} {version}",
            report=report,
            report_age=age,
        )

    def minutes(self, most: int) -> tuple[Minute, ...]:
        """Return the course of the feed over the last minutes, the oldest first; minutes without a writer have none."""
        kept = self._tables.minutes
        if not self._connection.has(kept):
            return ()
        rows = self._connection.rows(select(kept).order_by(kept.c.minute.desc()).limit(most))
        names = kept.c.keys()
        return tuple(Minute(**dict(zip(names, row, strict=True))) for row in reversed(rows))

    def journal_of(self, table: TableName, most: int) -> tuple[JournalEntry, ...]:
        """Return the newest statements of a table, the newest first."""
        journal = self._tables.journal
        query = (
            select(
                journal.c.version,
                journal.c.state,
                *(func.left(journal.c[name], SHOWN_CHARACTERS) for name in ("query", "statement", "note")),
                journal.c.seconds,
                seconds_between("started_at", "NOW(6)"),
                seconds_between("finished_at", "NOW(6)"),
            )
            .where(journal.c.schema_name == table.schema, journal.c.table_name == table.table)
            .order_by(journal.c.version.desc(), journal.c.table_dir, journal.c.checksum)
            .limit(most)
        )
        return tuple(_entry(*row) for row in self._connection.rows(query))

    def _all_tables(self) -> list[Table]:
        found, counts = [], QuarantineInspector(self._connection).counts()
        for row in TableInspector(self._connection).all():
            stored = row.stored
            found.append(
                Table(
                    name=stored.name,
                    state=stored.state,
                    checkpoint=stored.checkpoint,
                    follows=stored.follows,
                    error=stored.error,
                    decision=row.decision.verb if row.decision else "",
                    decided_by=row.decision.decided_by if row.decision else "",
                    decided_at=row.decision.decided_at if row.decision else "",
                    obeyed=row.obeyed,
                    refusal=row.refusal,
                    quarantined=counts.get(stored.table_key, 0),
                )
            )
        return found

    def _statements(self) -> list[Statement]:
        """Return the statements that are neither done nor skipped, in order."""
        journal = self._tables.journal
        names = ("schema_name", "table_name", "state", "query", "note")
        query = (
            select(*journal.primary_key, *(journal.c[name] for name in names), seconds_between("started_at", "NOW(6)"))
            .where(journal.c.state.not_in((DONE, SKIPPED)))
            .order_by(journal.c.version, journal.c.table_dir, journal.c.checksum)
        )
        return [_statement(*row) for row in self._connection.rows(query)]


def _statement(table_dir: str, version: int, checksum: int, schema: str, table: str, *rest: Any) -> Statement:
    state, query, note, ago = rest
    return Statement(
        identity=DdlId(table_dir, version, checksum),
        name=TableName(schema=schema, table=table),
        state=state,
        query=query,
        note=note,
        seconds=float(ago) if state == STARTED and ago is not None else None,
    )


def _entry(version: int, state: str, query: str, statement: str, note: str, *times: Any) -> JournalEntry:
    took, started, ended = (None if each is None else float(each) for each in times)
    return JournalEntry(
        version=version,
        state=state,
        query=query,
        statement=statement,
        note=note,
        seconds=started if state == STARTED else took,
        ended_ago=ended,
    )
