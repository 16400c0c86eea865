"""The quarantine as an operator sees it: what it holds, what is to be tried again, and what is given up."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.sql.elements import ColumnElement

from storage_consumer.checkpoint.operator_connection import OperatorConnection
from storage_consumer.model import TableName


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
    path: str
    row: int
    """Its number in that file."""
    version: int
    """The table version in which it is written."""
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


class QuarantineInspector:
    """Reads and changes the quarantine."""

    def __init__(self, connection: OperatorConnection) -> None:
        """Use `connection`."""
        self._connection = connection
        self._kept = connection.tables.quarantine

    def all(self) -> list[QuarantinedEntry]:
        """Return all rows, by table and commit-ts."""
        kept = self._kept.c
        query = select(
            *(kept.table_key, kept.digest, kept.schema_name, kept.table_name, kept.row_key, kept.commit_ts, kept.path),
            *(kept.row_in_file, kept.version, kept.reason, kept.error_number, kept.image, kept.held_before),
            *(kept.first_seen, kept.last_seen, kept.retry_asked_at, kept.retry_asked_by, kept.retry_answer),
        ).order_by(kept.schema_name, kept.table_name, kept.commit_ts, kept.digest)
        return [_entry(*row) for row in self._connection.rows(query)]

    def counts(self) -> Mapping[str, int]:
        """Return table key → number of rows; a state of an older version has none."""
        if not self._connection.has(self._kept):
            return {}
        kept = self._kept.c
        return dict(self._connection.rows(select(kept.table_key, func.count()).group_by(kept.table_key)))

    def retry(self, entries: list[QuarantinedEntry], by: str) -> None:
        """Note that rows are to be tried again."""
        values = {"retry_asked_at": func.utc_timestamp(6), "retry_asked_by": by, "retry_answer": None}
        with self._connection.transaction():
            for entry in entries:
                self._connection.rows(update(self._kept).where(*self._is(entry)).values(**values))

    def drop(self, entries: list[QuarantinedEntry]) -> None:
        """Give rows up, unless a newer state of their keys has been refused since they were read."""
        with self._connection.transaction():
            for entry in entries:
                same = self._kept.c.commit_ts == entry.commit_ts
                self._connection.rows(delete(self._kept).where(*self._is(entry), same))

    def _is(self, entry: QuarantinedEntry) -> tuple[ColumnElement[bool], ...]:
        return self._kept.c.table_key == entry.table_key, self._kept.c.digest == entry.digest


def _entry(*row: Any) -> QuarantinedEntry:
    key, digest, schema, table, named, ts, path, number, version, reason, error, image, before, *seen = row
    first, last, asked_at, asked_by, answer = seen
    return QuarantinedEntry(
        table_key=key,
        digest=digest,
        table=TableName(schema=schema, table=table),
        key=named,
        commit_ts=ts,
        path=path,
        row=number,
        version=version,
        reason=reason,
        error_number=error,
        image=json.loads(image),
        held_before=None if before is None else json.loads(before),
        first_seen=str(first),
        last_seen=str(last),
        retry_asked_by=asked_by if asked_at else "",
        retry_answer=answer or "",
    )
