"""TargetWriter: what a task does to the target, on one connection and for one slot.

Every transaction checks the fence first.

Rows that the target refuses are kept aside in the state, in the transaction that writes the rows
beside them. An entry of this quarantine holds the last state of its key. Whatever is written or
deleted of that key later removes it, in the same transaction: so no entry is ever older than what
the target holds of its key, and none is lost while the target lacks its row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby

import pymysql.err

from storage_consumer.clock import Pace
from storage_consumer.decode.kernels.row_lines import size_of
from storage_consumer.decode.wire_format import decode_line
from storage_consumer.errors import RowRefused
from storage_consumer.model import folded_name
from storage_consumer.rows.row_keys import (
    Action,
    Run,
    digest_function,
    has_lasting_keys,
    key_signature,
)
from storage_consumer.rows.row_order import Changes
from storage_consumer.rows.spec import (
    JobSpec,
    Quarantine,
    QuarantinedRow,
    RowPlace,
    TablePlan,
    Written,
)
from storage_consumer.sql.tokens import qualified, quote
from storage_consumer.target.apply_rows import TRANSACTION_ROWS, TRANSACTION_SIZE, RowStatements
from storage_consumer.target.connection import escape
from storage_consumer.target.keyless import KeylessTable
from storage_consumer.target.mysql_errors import described, is_refusal
from storage_consumer.target.row_statements import (
    batches,
    key_expression,
    key_literal,
    row_text,
    too_large,
)
from storage_consumer.target.transaction import FencedConnection

_FEWEST = 100
"""Rows of a transaction that a limited pace leaves together."""
_LONGEST = 4_000
"""Characters of a reason or a key that are stored."""


PlaceOf = Callable[[bytes], RowPlace]
"""Returns where the line of a row comes from."""


class QuarantineStatements:
    """Changes the quarantine within the running transaction of a fenced connection."""

    def __init__(self, fenced: FencedConnection) -> None:
        """Write through `fenced`."""
        self._fenced = fenced
        self._statements = fenced.spec.statements

    def holds(self, work: TablePlan, key: bytes) -> bool:
        """Return whether the row with a key, a line of key columns, has an entry."""
        if not (work.has_entries or work.quarantine) or not has_lasting_keys(work):
            return False
        there = self._fenced.rows(self._statements.open_entries % {"of": _text(work.table_key)})
        return (digest_function(work, key_only=True)(key),) in there

    def supersede(self, work: TablePlan, runs: Iterable[Run]) -> None:
        """Remove the entries of all keys that are written or deleted."""
        named = {"of": _text(work.table_key)}
        # Entries of these keys were committed before this transaction, so reading them needs no
        # lock.
        there = {
            str(digest) for (digest,) in self._fenced.rows(self._statements.open_entries % named)
        }
        if not there:
            return
        gone: set[str] = set()
        for action, lines in runs:
            is_delete = action in (Action.DELETE, Action.REMOVE)
            gone.update(map(digest_function(work, key_only=is_delete), lines))
        if met := sorted(there & gone):
            self._fenced.query(
                self._statements.remove_entries % {**named, "digests": ", ".join(map(_text, met))}
            )

    def put(self, work: TablePlan, rule: Quarantine, rows: Sequence[QuarantinedRow]) -> None:
        """Store rows as the last states of their keys; raise `RowRefused` for a too large one."""
        # One writer of the table at a time: else each would count without the others' entries.
        self._fenced.lock_table(work)
        digest = digest_function(work, key_only=False)
        for row in rows:
            fields = decode_line(row.line)
            image = {column.name: text for column, text in zip(work.written, fields, strict=True)}
            before = self._held(work, image)
            texts = {
                "table_key": work.table_key,
                "schema_name": work.name.schema,
                "table_name": work.name.table,
                "path": rule.paths[row.place.rank] if row.place.rank < len(rule.paths) else "",
                "row_key": row.key[:_LONGEST],
                "key_columns": key_signature(work),
                "written_columns": json.dumps(
                    [[column.name, column.kind.value, column.type] for column in work.written]
                ),
                "image": json.dumps(image),
                "reason": row.reason[:_LONGEST],
                "digest": digest(row.line),
            }
            sql = self._statements.put_entry % {
                **{name: _text(text) for name, text in texts.items()},
                "version": work.version,
                "commit_ts": rule.as_of or row.place.commit_ts,
                "row_in_file": row.place.row,
                "line": f"x'{row.line.hex()}'",
                "held_before": "NULL" if before is None else _text(before),
                "error_number": row.error_number,
            }
            try:
                # The server would close the connection over it, as if the server were gone.
                if fault := too_large(sql, self._fenced.spec.max_packet):
                    raise fault
                self._fenced.query(sql)
            except (pymysql.err.MySQLError, ValueError) as fault:
                if not is_refusal(fault):
                    raise
                raise RowRefused(
                    f"{work.name}: the target refused the row with {row.key}: {row.reason}. It cannot go into the quarantine "
                    f"either: {described(fault)}. Make the target's table fit what the source holds, then start again",
                    line=row.line,
                ) from fault

    def check_limit(self, work: TablePlan, rule: Quarantine, last: str) -> None:
        """Raise `RowRefused`, with the `last` entry's reason, if the table has too many entries."""
        found = len(
            self._fenced.rows(self._statements.lock_entries % {"of": _text(work.table_key)})
        )
        if found > rule.limit:
            raise RowRefused(
                f"{work.name}: the target refused more than {rule.limit} rows (--quarantine-limit); the last: {last}. Make "
                "the target's table fit what the source holds, then run `storage-consumer quarantine retry --all`, and "
                "`storage-consumer table resume`; or raise --quarantine-limit and start again"
            )

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
        if row is None:
            return None
        shown = [
            value.hex() if isinstance(value, bytes) else value if value is None else str(value)
            for value in row
        ]
        return json.dumps(dict(zip(image, shown, strict=True)))


def _text(text: str) -> str:
    # A file may hold text that is no Unicode; the entry's line keeps it as it is.
    return f"'{escape(text.encode('utf-8', 'replace').decode())}'"


def together(ordered: Iterable[Run], most: int = TRANSACTION_ROWS) -> Iterator[list[Run]]:
    """Group runs for one transaction of at most `most` rows each; long runs are cut."""
    held: list[Run] = []
    rows = size = 0
    for action, lines in ordered:
        for batch in batches(lines, most, TRANSACTION_SIZE):
            more = size_of(batch)
            # Short runs share a transaction: each commit costs the server more than a few rows.
            if held and (rows + len(batch) > most or size + more > TRANSACTION_SIZE):
                yield held
                held, rows, size = [], 0, 0
            held.append(Run(action, batch))
            rows, size = rows + len(batch), size + more
    if held:
        yield held


class TargetWriter:
    """A `pipeline.RowWriter` over one connection."""

    def __init__(self, spec: JobSpec, password: str, partition: int) -> None:
        """Take this task's number `partition`, which is also its slot."""
        self._fenced = FencedConnection(spec, password, partition)
        self._rows = RowStatements(self._fenced)
        self._quarantine = QuarantineStatements(self._fenced)
        self._pace = Pace(spec.rows_per_second)
        self._most = max(
            _FEWEST, min(TRANSACTION_ROWS, int(spec.rows_per_second) or TRANSACTION_ROWS)
        )
        """Rows of one transaction: about a second's, where the pace is limited."""
        self._with_entries: set[int] = set()
        """Indexes of the tables of which this writer quarantined a row."""

    def finish(self) -> None:
        """Close the slot: no other attempt of this task may write in this window."""
        self._fenced.finish()

    def close(self) -> None:
        """Close the connection."""
        self._fenced.close()

    def write_together(self, states: Sequence[tuple[TablePlan, Sequence[Run]]]) -> list[int]:
        """Write runs of tables without queueing in one transaction; return numbers of rows."""

        def write() -> list[int]:
            return [self._write(work, runs)[0] for work, runs in states]

        # Any of the tables serves here: the plan only decides about queueing, which none of them
        # does, and names a table in errors.
        counts = self._fenced.transaction(states[0][0], write)
        self._pace.spend(sum(counts))
        return counts

    def write_runs(
        self, work: TablePlan, ordered: Sequence[Run], place_of: PlaceOf | None = None
    ) -> Written:
        """Write runs in order, in transactions of bounded size, many short runs in one. Idempotent.

        Each transaction holds both its rows and the entries of the rows that it left out, since the
        target refuses them for what they hold.
        """
        parts = list(together(ordered, self._most))
        is_alone = self._fenced.spec.whole or self._fenced.spec.partitions == 1
        blocks = sum(1 for upserts, _ in groupby(ordered, _is_upserts) if upserts)
        # Where one transaction writes all of the table, no row in the way is about to go.
        work = replace(
            work, is_settled=work.is_settled or (is_alone and len(parts) <= 1 and blocks <= 1)
        )
        rows = blocked = 0
        aside: list[QuarantinedRow] = []
        for some in parts:
            refused: list[QuarantinedRow] = []
            written = None
            while written is None:
                written = self._accepted(work, some, refused, place_of)
            rows, blocked = rows + written[0], blocked + written[1]
            self._pace.spend(sum(written))
            # Only places and reasons go to the driver: rows of many tasks would exceed its memory.
            aside += [replace(row, line=b"") for row in refused]
        return Written(rows, blocked, tuple(aside))

    def _accepted(
        self,
        work: TablePlan,
        some: Sequence[Run],
        refused: list[QuarantinedRow],
        place_of: PlaceOf | None,
    ) -> tuple[int, int] | None:
        """Write a transaction's runs without `refused` rows; add the next one and return None."""
        known = {row.line for row in refused}
        accepted = [
            Run(run.action, [line for line in run.lines if line not in known])
            if known and _is_upserts(run)
            else run
            for run in some
        ]
        try:
            written = self._fenced.transaction(
                work, partial(self._write_beside, work, accepted, refused)
            )
        except RowRefused as fault:
            # One that is refused again although it is left out would be asked for without end.
            can = fault.content_error and fault.line and fault.line not in known
            rule = (
                work.quarantine if can and work.has_commit_ts and has_lasting_keys(work) else None
            )
            if rule is None or place_of is None:
                raise
            refused.append(
                QuarantinedRow(
                    key=row_text(work, fault.line, escape, key_only=False),
                    line=fault.line,
                    place=place_of(fault.line),
                    reason=described(fault.__cause__ or fault),
                    error_number=fault.content_error,
                )
            )
            if len(refused) > rule.limit:
                self._fenced.transaction(work, partial(self._write_beside, work, (), refused))
            return None
        if refused:
            self._with_entries.add(work.index)
        return written

    def _write_beside(
        self, work: TablePlan, accepted: Sequence[Run], refused: Sequence[QuarantinedRow]
    ) -> tuple[int, int]:
        """Write accepted rows, and the entries of refused ones, in the running transaction."""
        if not refused or work.quarantine is None:
            return self._write(work, accepted)
        # Entries first: they record what the target holds, and may give way to an accepted row.
        self._quarantine.put(work, work.quarantine, refused)
        written = self._write(work, accepted)
        # Counted last, since rows that are accepted remove the entries of their keys.
        self._quarantine.check_limit(work, work.quarantine, refused[-1].reason)
        return written

    def _write(self, work: TablePlan, some: Sequence[Run]) -> tuple[int, int]:
        """Write the runs of one transaction; return how many rows it wrote, and blocked ones."""
        # A row that an earlier attempt of this task quarantined may be accepted by now.
        if (
            work.has_entries
            or work.index in self._with_entries
            or (self._fenced.repeats and work.quarantine)
        ):
            self._quarantine.supersede(work, some)
        rows = blocked = 0
        for upserts, runs in groupby(some, _is_upserts):
            lines: dict[Action, Sequence[bytes]] = {}
            for action, some_lines in runs:
                lines[action] = [*lines[action], *some_lines] if action in lines else some_lines
            if upserts:
                born, others = lines.get(Action.INSERT, ()), lines.get(Action.REPLACE, ())
                # The target's row is an old state of a quarantined row: it may go.
                gives_way = self._quarantine.holds
                refused = self._rows.put(
                    work, born, others, is_settled=work.is_settled, gives_way=gives_way
                )
                rows, blocked = rows + len(born) + len(others) - refused, blocked + refused
            else:
                rows += sum(
                    self._rows.delete(work, keys, exact=action is Action.REMOVE)
                    for action, keys in lines.items()
                )
        return rows, blocked

    def write_events(self, work: TablePlan, parts: Iterable[Changes]) -> int:
        """Write a keyless table's events; return how many.

        The table's stored checkpoint moves in the same transactions, only at ends of a commit-ts.
        """
        return KeylessTable(self._rows, work, self._pace, self._most).write(parts)


def _is_upserts(run: Run) -> bool:
    return run.action in (Action.INSERT, Action.REPLACE)
