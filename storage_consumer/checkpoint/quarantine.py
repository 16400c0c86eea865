"""StoredQuarantine: the rows that the target refused. Tasks put them there; see `apply.quarantine`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, func, or_, select, true, update
from sqlalchemy.engine import Connection

from storage_consumer.checkpoint.transactions import StateTransactions, name_in
from storage_consumer.downstream.state_tables import StateTables
from storage_consumer.model import TableName
from storage_consumer.plan.quarantined import TableEntries, closed_by
from storage_consumer.plan.steps import DdlStep

_DOING = "reading the quarantine"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedEntry:
    """One quarantined row."""

    table_key: str
    digest: str
    table: TableName
    """As the target spells it."""
    key: str
    """Columns and values of its key, for people."""
    commit_ts: int
    """Of the row, or the TSO of the copy that it is of."""
    path: str
    row: int
    """Its number in that file."""
    version: int
    """Of the structure of the row; 0 for a row of a copy, which has that as of the copy."""
    reason: str
    error_number: int
    image: Mapping[str, str | None]
    """The row, by column; bytes in hexadecimal digits."""
    held_before: Mapping[str, str | None] | None
    """What the target held of the key when the row was refused; None for nothing."""
    first_seen: str
    """By the target's clock, in UTC."""
    last_seen: str
    retry_asked_by: str
    """Who wants it to be tried again; empty for nobody, or if that was done."""
    retry_answer: str
    """What became of the last retry."""
    key_columns: str
    """How its key is compared; see `order.key_digest.key_signature`."""
    written_columns: str
    """JSON: name, kind and type of each column of the line."""
    line: bytes


class StoredQuarantine:
    """The quarantine of one feed."""

    def __init__(self, transactions: StateTransactions) -> None:
        """Read and change it in `transactions`."""
        self._transactions = transactions
        self._tables = transactions.tables

    def entries(self) -> Mapping[str, TableEntries]:
        """Return what the quarantine holds, by table key."""
        kept = self._tables.quarantine.c
        query = select(kept.table_key, kept.key_columns, func.count()).group_by(kept.table_key, kept.key_columns)
        found: dict[str, TableEntries] = {}
        for key, signature, count in self._transactions.rows(query, _DOING):
            old = found.get(key, TableEntries(count=0, signatures=frozenset()))
            found[key] = TableEntries(count=old.count + count, signatures=old.signatures | {signature})
        return found

    def asked(self) -> list[QuarantinedEntry]:
        """Return the rows that are to be tried again, the oldest first."""
        kept = self._tables.quarantine.c
        return self._rows(kept.retry_asked_at.is_not(None), kept.commit_ts, kept.digest)

    def stays(self, entry: QuarantinedEntry, answer: str, *, reason: str = "", number: int = 0) -> None:
        """Note why a row stays in the quarantine after it was tried. `reason` and `number`: what the target said, if it was asked."""
        kept = self._tables.quarantine
        said = {"reason": reason, "error_number": number} if reason else {}
        with self._transactions.owned("storing the result of a retry") as connection:
            connection.execute(
                update(kept)
                .where(self._is(entry))
                .values(retry_asked_at=None, retry_answer=answer, last_seen=func.utc_timestamp(6), **said)
            )

    def _is(self, entry: QuarantinedEntry) -> ColumnElement[bool]:
        kept = self._tables.quarantine.c
        return (kept.table_key == entry.table_key) & (kept.digest == entry.digest)

    # what an operator sees and decides

    def all(self) -> list[QuarantinedEntry]:
        """Return all rows, by table and commit-ts."""
        kept = self._tables.quarantine.c
        return self._rows(true(), kept.schema_name, kept.table_name, kept.commit_ts, kept.digest)

    def _rows(self, where: ColumnElement[bool], *order: ColumnElement[Any]) -> list[QuarantinedEntry]:
        query = select(self._tables.quarantine).where(where).order_by(*order)
        return [
            QuarantinedEntry(
                table_key=row.table_key,
                digest=row.digest,
                table=name_in(row),
                key=row.row_key,
                commit_ts=row.commit_ts,
                path=row.path,
                row=row.row_in_file,
                version=row.version,
                reason=row.reason,
                error_number=row.error_number,
                image=json.loads(row.image),
                held_before=None if row.held_before is None else json.loads(row.held_before),
                first_seen=str(row.first_seen),
                last_seen=str(row.last_seen),
                retry_asked_by=row.retry_asked_by if row.retry_asked_at else "",
                retry_answer=row.retry_answer or "",
                key_columns=row.key_columns,
                written_columns=row.written_columns,
                line=row.line,
            )
            for row in self._transactions.rows(query, _DOING)
        ]

    def counts(self) -> Mapping[str, int]:
        """Return table key → number of rows; a state of an older version has none."""
        if not self._transactions.has(self._tables.quarantine):
            return {}
        # By the short column alone: a group by a long one takes room on a disk that may be full when `status` asks.
        kept = self._tables.quarantine.c
        rows = self._transactions.rows(select(kept.table_key, func.count()).group_by(kept.table_key))
        return {key: int(count) for key, count in rows}

    def retry(self, entries: Iterable[QuarantinedEntry], by: str) -> None:
        """Note that rows are to be tried again."""
        values = {"retry_asked_at": func.utc_timestamp(6), "retry_asked_by": by, "retry_answer": None}
        with self._transactions.shared("storing a decision") as connection:
            for entry in entries:
                connection.execute(update(self._tables.quarantine).where(self._is(entry)).values(**values))

    def drop(self, entries: Iterable[QuarantinedEntry]) -> None:
        """Give rows up, unless a newer state of their keys has been refused since they were read."""
        kept = self._tables.quarantine
        with self._transactions.shared("storing a decision") as connection:
            for entry in entries:
                same = kept.c.commit_ts == entry.commit_ts
                connection.execute(delete(kept).where(self._is(entry), same))


def close_entries(connection: Connection, tables: StateTables, step: DdlStep, *, upto: int) -> None:
    """Remove the entries of tables whose rows a statement has removed, in its transaction; `upto`: their highest commit-ts.

    Later rows are none of those, though the statement may be recorded after they were refused.
    """
    kept = tables.quarantine.c
    table, database = closed_by(step)
    gone: list[ColumnElement[bool]] = [kept.table_key == table] if table else []
    # Not LIKE: a name may hold a wildcard.
    gone += [func.left(kept.table_key, len(database)) == database] if database else []
    if gone:
        connection.execute(delete(tables.quarantine).where(or_(*gone), kept.commit_ts <= upto))


def close_copied(connection: Connection, tables: StateTables, table_key: str, at: int) -> None:
    """Remove the entries of a table that was copied as of a TSO, which the copy holds, and what a comparison found before."""
    kept, compared = tables.quarantine, tables.verified
    connection.execute(delete(kept).where(and_(kept.c.table_key == table_key, kept.c.commit_ts <= at)))
    connection.execute(delete(compared).where(compared.c.table_key == table_key))
