"""Rows that the target refuses: kept aside in the state, in the transaction that writes the rows beside them.

An entry holds the last state of its key. Whatever is written or deleted of that key later removes it, in the same transaction: so no
entry is ever older than what the target holds of its key, and none is lost while the target lacks its row.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pymysql.err

from storage_consumer.apply.refused_rows import too_large
from storage_consumer.apply.statements import key_expression, key_literal, row_text
from storage_consumer.apply.transaction import FencedConnection
from storage_consumer.decode.wire_format import decode_line
from storage_consumer.downstream.connection import escape
from storage_consumer.downstream.mysql_errors import described, is_refusal
from storage_consumer.errors import RowRefused
from storage_consumer.job.reports import RowPlace
from storage_consumer.job.spec import Quarantine, TablePlan
from storage_consumer.model import folded_name
from storage_consumer.order.key_digest import digest_function, has_lasting_keys, key_signature
from storage_consumer.order.keys import Action, Run
from storage_consumer.sql.tokens import qualified, quote

_LONGEST = 4_000
"""Characters of a reason or a key that are stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRow:
    """A row that goes into the quarantine."""

    line: bytes
    """Of the written columns."""
    place: RowPlace
    reason: str
    error_number: int


def takes(work: TablePlan, fault: RowRefused) -> bool:
    """Return whether a refused row may go into the quarantine."""
    return bool(
        work.quarantine and fault.content_error and fault.line and work.has_commit_ts and has_lasting_keys(work)
    )


class QuarantineStatements:
    """Changes the quarantine within the running transaction of a fenced connection."""

    def __init__(self, fenced: FencedConnection) -> None:
        """Write through `fenced`."""
        self._fenced = fenced
        self._statements = fenced.spec.statements

    def holds(self, work: TablePlan, key: bytes) -> bool:
        """Return whether the row with a key, a line of key columns, has an entry."""
        if not has_lasting_keys(work):
            return False
        there = self._fenced.rows(self._statements.open_entries % {"of": _text(work.table_key)})
        return (digest_function(work, key_only=True)(key),) in there

    def supersede(self, work: TablePlan, runs: Iterable[Run]) -> None:
        """Remove the entries of all keys that are written or deleted."""
        named = {"of": _text(work.table_key)}
        # Entries of these keys were committed before this transaction began, so no lock is needed to see them.
        there = {str(digest) for (digest,) in self._fenced.rows(self._statements.open_entries % named)}
        if not there:
            return
        gone: set[str] = set()
        for action, lines in runs:
            is_delete = action in (Action.DELETE, Action.REMOVE)
            gone.update(map(digest_function(work, key_only=is_delete), lines))
        if met := sorted(there & gone):
            self._fenced.query(self._statements.remove_entries % {**named, "digests": ", ".join(map(_text, met))})

    def put(self, work: TablePlan, rule: Quarantine, rows: Sequence[RefusedRow]) -> None:
        """Store rows as the last states of their keys; raise `RowRefused` for one that is too large for that."""
        # One writer of the table at a time: else each could count without the entries of the others.
        self._fenced.lock_table(work)
        digest = digest_function(work, key_only=False)
        for row in rows:
            values = self._values(work, rule, row) | {"digest": _text(digest(row.line))}
            self._put(work, row, self._statements.put_entry % values)

    def _put(self, work: TablePlan, row: RefusedRow, sql: str) -> None:
        """Store one row, which takes several times as many bytes here as in its table."""
        try:
            # The server would close the connection over it, which looks as if the server were gone.
            if fault := too_large(sql, self._fenced.spec.max_packet):
                raise fault
            self._fenced.query(sql)
        except (pymysql.err.MySQLError, ValueError) as fault:
            if not is_refusal(fault):
                raise
            key = row_text(work, row.line, escape, key_only=False)
            raise RowRefused(
                f"{work.name}: the target refused the row with {key}: {row.reason}. It cannot go into the quarantine "
                f"either: {described(fault)}. Make the target's table fit what the source holds, then start again",
                line=row.line,
            ) from fault

    def check_limit(self, work: TablePlan, rule: Quarantine, last: str) -> None:
        """Raise `RowRefused` if the table has more entries than it may. `last`: the reason of the last one."""
        found = len(self._fenced.rows(self._statements.lock_entries % {"of": _text(work.table_key)}))
        if found > rule.limit:
            raise RowRefused(
                f"{work.name}: the target refused more than {rule.limit} rows (--quarantine-limit); the last: {last}. Make "
                "the target's table fit what the source holds, then run `storage-consumer quarantine retry --all`, and "
                "`storage-consumer table resume`; or raise --quarantine-limit and start again"
            )

    def _values(self, work: TablePlan, rule: Quarantine, row: RefusedRow) -> dict[str, object]:
        """Return the columns of an entry as SQL literals, without its digest."""
        fields = decode_line(row.line)
        image = {column.name: text for column, text in zip(work.written, fields, strict=True)}
        before = self._held(work, image)
        texts = {
            "table_key": work.table_key,
            "schema_name": work.name.schema,
            "table_name": work.name.table,
            "path": rule.paths[row.place.rank] if row.place.rank < len(rule.paths) else "",
            "row_key": row_text(work, row.line, escape, key_only=False)[:_LONGEST],
            "key_columns": key_signature(work),
            "written_columns": json.dumps([[column.name, column.kind.value, column.type] for column in work.written]),
            "image": json.dumps(image),
            "reason": row.reason[:_LONGEST],
        }
        return {name: _text(text) for name, text in texts.items()} | {
            "version": work.version,
            "commit_ts": rule.as_of or row.place.commit_ts,
            "row_in_file": row.place.row,
            "line": f"x'{row.line.hex()}'",
            "held_before": "NULL" if before is None else _text(before),
            "error_number": row.error_number,
        }

    def _held(self, work: TablePlan, image: Mapping[str, str | None]) -> str | None:
        """Return what the target holds of a row's key, as JSON; None if it holds nothing."""
        by_name = {folded_name(name): text for name, text in image.items()}
        columns = ", ".join(quote(name) for name in image)
        try:
            same = " AND ".join(
                f"{key_expression(part)} = {key_literal(by_name[folded_name(part.column.name)], part, escape)}"
                for part in work.key
            )
        except ValueError:  # not a key that the table can hold
            return None
        row = self._fenced.row(f"SELECT {columns} FROM {qualified(work.name)} WHERE {same}")
        return None if row is None else json.dumps(dict(zip(image, map(_shown, row), strict=True)))


def _shown(value: object) -> str | None:
    if value is None:
        return None
    return value.hex() if isinstance(value, bytes) else str(value)


def _text(text: str) -> str:
    # A file may hold text that is no Unicode; the entry's line keeps it as it is.
    return f"'{escape(text.encode('utf-8', 'replace').decode())}'"
