"""Retry quarantined rows for an operator: between windows, under the lease, one by one.

Each has a transaction of its own.

Between two windows the target holds what the source held at the table's checkpoint, but for the
quarantined keys. A row whose unique value is held by the former state of another quarantined one
waits for that one.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import closing
from dataclasses import replace
from functools import partial

from storage_consumer.checkpoint.findings import QuarantinedEntry
from storage_consumer.checkpoint.store import StateStore
from storage_consumer.config.settings import Upstream
from storage_consumer.decode.wire_format import decode_line
from storage_consumer.driver.ledger import RoundContext
from storage_consumer.errors import NotReplicable, RowRefused
from storage_consumer.model import (
    CommitRange,
    TableColumn,
    TableDefinition,
    TableVersion,
    folded_name,
)
from storage_consumer.plan.steps import RowStep
from storage_consumer.plan.table import TableConsumer
from storage_consumer.rows.fitting import TargetTable, check
from storage_consumer.rows.match import table_work
from storage_consumer.rows.row_keys import key_signature
from storage_consumer.rows.spec import JobSpec, TablePlan
from storage_consumer.target.apply_rows import RowStatements
from storage_consumer.target.connection import escape
from storage_consumer.target.mysql_errors import described
from storage_consumer.target.transaction import FencedConnection
from storage_consumer.telemetry import Log

_log = Log("quarantine")
_ANY_LENGTH = 1 << 30
"""Longer, and with more digits, than any column of a target."""
_HOW = "change the row at the source, which brings its new state, or give it up with `storage-consumer quarantine drop`"


class QuarantineRetries:
    """Tries rows again; see `RoundContext.retry_quarantined`."""

    def __init__(self, state: StateStore, password: str) -> None:
        """Take the state that holds the rows, and the target's password."""
        self._state = state
        self._password = password

    def __call__(self, context: RoundContext, busy: Collection[str]) -> None:
        """Try the rows again that operators asked for; those of tables that are `busy` wait."""
        asked, manager = self._state.quarantine.asked(), context.manager
        if not asked:
            return
        # Tables whose copies are being written hold parts of them, and no state that the source
        # ever had.
        held = {*busy, *(key for key, table in manager.tables.items() if table.status.loading)}
        # Nor may a table have a row where a statement was started and is not known to have ended:
        # it may be as that leaves it.
        held |= {
            key
            for ddl in manager.touches.pending()
            if ddl.step.identity in manager.backlog.started
            for key in ddl.touches
        }
        asked = [entry for entry in asked if entry.table_key not in held]
        if not asked:
            return
        lease = self._state.lease
        spec = JobSpec(
            origins=(context.config.upstream,),
            downstream=context.config.downstream,
            secrets_file="",
            tables=(),
            partitions=1,
            epoch=lease.epoch,
            # A window of their own: tasks of earlier ones can commit nothing from here on.
            window_id=lease.open_window(1, 0),
            statements=lease.task_statements,
            load_data=False,
            max_packet=context.server_info.max_packet,
        )
        names = {}
        for entry in asked:
            own = manager.tables.get(entry.table_key)
            names[entry.table_key] = (
                manager.selection.routes.target(own.name) if own else entry.table
            )
        there = context.target.describe({name.folded() for name in names.values()})
        with closing(FencedConnection(spec, self._password, 0)) as fenced:
            for entry in asked:
                fields = {"table": str(entry.table), "key": entry.key, "commit_ts": entry.commit_ts}
                try:
                    work = _work(context, entry, there.get(names[entry.table_key].folded()))
                    fenced.transaction(work, partial(self._write, fenced, work, entry))
                except RowRefused as fault:
                    reason = described(fault.__cause__ or fault)
                    self._state.quarantine.stays(
                        entry, "refused again", reason=reason, number=fault.content_error
                    )
                    _log.error("retry_refused", **fields, error=reason)
                except NotReplicable as fault:
                    self._state.quarantine.stays(entry, str(fault))
                    _log.error("retry_refused", **fields, error=str(fault))
                else:
                    _log.info("row_retried", **fields)
        manager.quarantined.replace(self._state.quarantine.entries())

    def _write(self, fenced: FencedConnection, work: TablePlan, entry: QuarantinedEntry) -> int:
        """Write a row and remove its entry in the transaction, unless an operator dropped it."""
        literals = {"of": f"'{escape(entry.table_key)}'", "digests": f"'{entry.digest}'"}
        locked = {
            str(digest) for (digest,) in fenced.rows(fenced.spec.statements.lock_entries % literals)
        }
        if entry.digest not in locked:
            return 0
        RowStatements(fenced).put(work, [entry.line], (), is_settled=True)
        return fenced.query(fenced.spec.statements.remove_entries % literals)


def _work(context: RoundContext, entry: QuarantinedEntry, there: TargetTable | None) -> TablePlan:
    """Return how to write an entry's row; raise `NotReplicable` if the table now forbids it."""
    table = context.manager.tables.get(entry.table_key)
    if table is None or there is None or table.status.dropped or table.status.left_out:
        raise NotReplicable(
            f"the table is no longer replicated, or the target does not have it: {_HOW}"
        )
    current, upstream = _structure(context, entry, table)
    place = (current.version, "")
    step = RowStep(
        table_key=entry.table_key,
        name=table.name,
        commit_range=CommitRange(low=0, high=entry.commit_ts),
        current=current,
        definitions={place: current},
        files=(),
    )
    # As a job does it: whoever changed the target's table since must not have the row meet another
    # one, or be changed itself.
    work = table_work(0, step, there, upstream)
    if key_signature(work) != entry.key_columns:
        raise NotReplicable(
            f"the key of the target's table is no longer compared as it was when the row was refused: {_HOW}"
        )
    kept = [(name, kind) for name, kind, _ in json.loads(entry.written_columns)]
    if kept != [(column.name, column.kind.value) for column in work.written]:
        raise NotReplicable(
            f"the target's table has other columns than when the row was refused: {_HOW}"
        )
    version = work.versions[place]
    values: list[str | None] = [None] * len(version.layout.columns)
    for at, text in zip(version.written, decode_line(entry.line), strict=True):
        values[at] = text
    try:
        # The target would silently change such a value.
        check(tuple(values), version.limits)
    except ValueError as fault:
        raise NotReplicable(str(fault)) from fault
    return work


def _structure(
    context: RoundContext, entry: QuarantinedEntry, table: TableConsumer
) -> tuple[TableDefinition, Upstream]:
    """Return an entry's structure and format; raise `NotReplicable` if the table's changed."""
    # Rows go up to a statement that still waits, and statements before it have run.
    waiting = (
        ddl.step.version - 1
        for ddl in context.manager.touches.pending()
        if table.key in ddl.touches
    )
    reached, upstream = min((table.checkpoint, *waiting)), context.config.upstream
    # A row of a copy has the structure as of the copy, which no schema file may ever have shown.
    if not entry.version:
        if table.timeline.has_statement(entry.commit_ts + 1, reached):
            raise NotReplicable(
                f"a statement has changed the table since, and the row is of the copy as of {entry.commit_ts}: {_HOW}"
            )
        keyed = {part[0] for part in json.loads(entry.key_columns)[1:]}
        of_copy = TableDefinition(
            name=table.name,
            version=TableVersion(entry.version),
            query="",
            ddl_type=0,
            # Of any length, so that each value is checked.
            columns=tuple(
                TableColumn(
                    name=written,
                    type=kind,
                    precision=_ANY_LENGTH,
                    scale=_ANY_LENGTH,
                    is_pk=folded_name(written) in keyed,
                )
                for written, _, kind in json.loads(entry.written_columns)
            ),
            path=entry.path,
            checksum=0,
        )
        return of_copy, replace(upstream, protocol="dump-sql", column_selectors=())
    current = table.timeline.in_force(reached)
    version = current.version if current else 0
    if current is None or version != entry.version:
        raise NotReplicable(
            f"the table has version {version} now, and the row is of version {entry.version}: {_HOW}"
        )
    return current, upstream
