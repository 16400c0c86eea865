"""Quarantined rows that an operator wants to be tried again: between windows, under the lease, each in a transaction of its own.

Between two windows the target holds what the source held at the table's checkpoint, but for the quarantined keys. So a row that the
REPLACE pushes out by another unique key is itself a former state of such a key. In the middle of a window it could be a newer row.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import closing
from functools import partial

from storage_consumer.apply.rows import RowStatements
from storage_consumer.apply.transaction import FencedConnection
from storage_consumer.checkpoint.quarantine import AskedEntry
from storage_consumer.checkpoint.store import StateStore
from storage_consumer.decode.values import WireKind
from storage_consumer.downstream.connection import escape
from storage_consumer.driver.context import RoundContext
from storage_consumer.errors import RowRefused
from storage_consumer.job.spec import JobSpec, Mode, TablePlan, WireColumn
from storage_consumer.job.target_table import TargetTable
from storage_consumer.model import CommitRange, TableName, folded_name
from storage_consumer.telemetry import Log

_log = Log("quarantine")
_HOW = "change the row at the source, which brings its new state, or give it up with `storage-consumer quarantine drop`"


class QuarantineRetries:
    """Tries rows again; see `RoundContext.retry_quarantined`."""

    def __init__(self, state: StateStore, password: str) -> None:
        """Take the state that holds the rows, and the target's password."""
        self._state = state
        self._password = password

    def __call__(self, context: RoundContext, busy: Collection[str]) -> None:
        """Try the rows again that operators asked for; those of tables that are `busy` wait."""
        asked = [entry for entry in self._state.quarantine.asked() if entry.table_key not in busy]
        if not asked:
            return
        # Tasks of earlier windows can commit nothing from here on.
        spec = self._spec(context)
        names = {entry.table_key: self._place(context, entry) for entry in asked}
        there = context.target.describe({name.folded() for name in names.values()})
        with closing(FencedConnection(spec, self._password, 0)) as fenced:
            for entry in asked:
                self._retry(context, fenced, entry, there.get(names[entry.table_key].folded()))
        context.manager.quarantined.replace(self._state.quarantine.entries())

    def _place(self, context: RoundContext, entry: AskedEntry) -> TableName:
        """Return the name of an entry's table in the target."""
        table = context.manager.tables.get(entry.table_key)
        name = TableName(schema=entry.schema, table=entry.table)
        return context.manager.selection.routes.target(table.name) if table else name

    def _retry(
        self, context: RoundContext, fenced: FencedConnection, entry: AskedEntry, there: TargetTable | None
    ) -> None:
        """Write one row and remove its entry; if that is refused, the entry stays."""
        fields = {
            "table": str(TableName(schema=entry.schema, table=entry.table)),
            "key": entry.key,
            "commit_ts": entry.commit_ts,
        }
        why = _obstacle(context, entry, there)
        if why or there is None:
            self._state.quarantine.stays(entry, why)
            _log.error("retry_refused", **fields, error=why)
            return
        work = _work(entry, there.name)
        try:
            fenced.transaction(work, partial(self._write, fenced, work, entry))
        except RowRefused as fault:
            self._state.quarantine.stays(entry, "refused again", reason=str(fault), number=fault.content_error)
            _log.error("retry_refused", **fields, error=str(fault))
        else:
            _log.info("row_retried", **fields)

    def _write(self, fenced: FencedConnection, work: TablePlan, entry: AskedEntry) -> int:
        """Write the row and remove its entry, in the running transaction; do nothing if an operator has dropped the entry."""
        literals = {"of": f"'{escape(entry.table_key)}'", "digests": f"'{entry.digest}'"}
        locked = {str(digest) for (digest,) in fenced.rows(fenced.spec.statements.lock_entries % literals)}
        if entry.digest not in locked:
            return 0
        RowStatements(fenced).replace(work, [entry.line])
        return fenced.query(fenced.spec.statements.remove_entries % literals)

    def _spec(self, context: RoundContext) -> JobSpec:
        """Return what the transactions need, with a window of their own."""
        lease = self._state.lease
        return JobSpec(
            origins=(context.config.upstream,),
            downstream=context.config.downstream,
            secrets_file="",
            tables=(),
            partitions=1,
            epoch=lease.epoch,
            window_id=lease.open_window(1, 0),
            statements=lease.task_statements,
            load_data=False,
            max_packet=context.server_info.max_packet,
        )


def _obstacle(context: RoundContext, entry: AskedEntry, there: TargetTable | None) -> str:
    """Return why a row may not be written to its table as the table is now; empty if it may."""
    table = context.manager.tables.get(entry.table_key)
    if table is None or there is None or table.status.dropped or table.status.left_out:
        return f"the table is no longer replicated, or the target does not have it: {_HOW}"
    current = table.timeline.in_force(table.checkpoint)
    version = current.version if current else 0
    if version != entry.version:
        return f"the table has version {version} now, and the row is of version {entry.version}: {_HOW}"
    key = {part[0] for part in json.loads(entry.key_columns)[1:]}
    if not any({folded_name(name) for name in unique.columns} == key for unique in there.unique_keys):
        return f"the target's table has no unique key over {', '.join(sorted(key))} any more: {_HOW}"
    return ""


def _work(entry: AskedEntry, name: TableName) -> TablePlan:
    """Return what is needed to write the row of an entry."""
    columns = tuple(
        WireColumn(name=called, kind=WireKind(kind), type=of) for called, kind, of in json.loads(entry.written_columns)
    )
    return TablePlan(
        index=0,
        table_key=entry.table_key,
        name=name,
        commit_range=CommitRange(low=0, high=entry.commit_ts),
        mode=Mode.KEYED,
        has_other_unique_keys=False,
        written=columns,
        key=(),
        versions={},
    )
