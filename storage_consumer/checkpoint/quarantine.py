"""StoredQuarantine: the rows that the target refused, as the lease's owner sees them. Tasks put them there; see `apply.quarantine`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, func, or_, select, update
from sqlalchemy.engine import Connection

from storage_consumer.checkpoint.transactions import OwnedTransactions
from storage_consumer.downstream.state_tables import StateTables
from storage_consumer.plan.quarantined import TableEntries, closed_by
from storage_consumer.plan.steps import DdlStep

_DOING = "reading the quarantine"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedEntry:
    """A quarantined row that an operator wants to be tried again."""

    table_key: str
    digest: str
    schema: str
    table: str
    """Its table's name in the target."""
    version: int
    """Of the structure of the row; 0 for a row of a copy, which has that as of the copy."""
    commit_ts: int
    """Of the row, or the TSO of the copy that it is of."""
    path: str
    """Of its file."""
    key: str
    key_columns: str
    """How its key is compared; see `order.key_digest.key_signature`."""
    written_columns: str
    """JSON: name, kind and type of each column of the line."""
    line: bytes


class StoredQuarantine:
    """The quarantine of one feed."""

    def __init__(self, transactions: OwnedTransactions) -> None:
        """Read and change it in `transactions`."""
        self._transactions = transactions
        self._tables = transactions.tables

    def entries(self) -> Mapping[str, TableEntries]:
        """Return what the quarantine holds, by table key."""
        kept = self._tables.quarantine.c
        query = select(kept.table_key, kept.key_columns, func.count()).group_by(kept.table_key, kept.key_columns)
        found: dict[str, TableEntries] = {}
        with self._transactions.shared(_DOING) as connection:
            for key, signature, count in connection.execute(query).all():
                old = found.get(key, TableEntries(count=0, signatures=frozenset()))
                found[key] = TableEntries(count=old.count + count, signatures=old.signatures | {signature})
        return found

    def asked(self) -> list[AskedEntry]:
        """Return the rows that are to be tried again, the oldest first."""
        kept = self._tables.quarantine.c
        query = select(
            *(kept.table_key, kept.digest, kept.schema_name, kept.table_name, kept.version, kept.commit_ts),
            *(kept.path, kept.row_key, kept.key_columns, kept.written_columns, kept.line),
        ).where(kept.retry_asked_at.is_not(None))
        with self._transactions.shared(_DOING) as connection:
            rows = connection.execute(query.order_by(kept.commit_ts, kept.digest)).all()
        return [_asked(*row) for row in rows]

    def stays(self, entry: AskedEntry, answer: str, *, reason: str = "", number: int = 0) -> None:
        """Note why a row stays in the quarantine after it was tried. `reason` and `number`: what the target said, if it was asked."""
        kept = self._tables.quarantine
        said = {"reason": reason, "error_number": number} if reason else {}
        with self._transactions.owned("storing the result of a retry") as connection:
            connection.execute(
                update(kept)
                .where(kept.c.table_key == entry.table_key, kept.c.digest == entry.digest)
                .values(retry_asked_at=None, retry_answer=answer, last_seen=func.utc_timestamp(6), **said)
            )


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


def _asked(*row: Any) -> AskedEntry:
    key, digest, schema, table, version, commit_ts, path, named, signature, written, line = row
    return AskedEntry(
        table_key=key,
        digest=digest,
        schema=schema,
        table=table,
        version=version,
        commit_ts=commit_ts,
        path=path,
        key=named,
        key_columns=signature,
        written_columns=written,
        line=line,
    )
