"""The twin of the state: what a restart reads, and what operators decide about tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from storage_consumer.model import DdlId, TableName
from storage_consumer.plan.copies import Copies
from storage_consumer.plan.directories import Restart
from storage_consumer.plan.journal_entry import DONE, FAILED, SKIPPED, STARTED
from storage_consumer.plan.loads import OPEN, LoadPhase
from storage_consumer.plan.steps import OF_SKIPPED, key_of
from storage_consumer.plan.table_decisions import (
    Foreseen,
    Obeyed,
    StoredTable,
    TableDecision,
    held,
    is_skipped,
    leads_to,
    may_touch,
    needs_copy,
    obeyed,
    refusal,
)
from storage_consumer.plan.table_state import TableState
from storage_consumer.ports import TableProgress
from tests.harness.twins.records import TargetRecords


def restart_of(records: TargetRecords) -> Restart:
    """Return what was saved."""
    return Restart(
        checkpoint=records.checkpoint,
        lowest=records.lowest,
        tables={table_key: table.checkpoint for table_key, table in records.tables.items()},
        behind=frozenset(table_key for table_key, table in records.tables.items() if not table.follows),
        dropped=frozenset(
            table_key for table_key, table in records.tables.items() if table.state == TableState.DROPPED
        ),
        lost={table_key: table.error for table_key, table in records.tables.items() if table.state == TableState.LOST},
        excluded={
            key: TableName(schema=table.schema, table=table.table)
            for key, table in records.tables.items()
            if table.state == TableState.EXCLUDED
        },
        targets={
            # Without a place of its own a table is where its name says.
            key: (name := TableName(schema=table.schema, table=table.table), table.target or name)
            for key, table in records.tables.items()
            if table.table and table.state not in (TableState.DROPPED, TableState.EXCLUDED)
        },
        done=dict(records.sequences),
        copies=dict(records.copies),
        loads={key: load for key, load in records.loads.items() if load.phase in OPEN},
        based=frozenset(key for key, load in records.loads.items() if load.low),
        written=dict(records.writes),
        floor=records.floor,
        paused=frozenset(key for key, made in records.table_decisions.items() if _is_paused(records, made)),
        skipped={key: table.error for key, table in records.tables.items() if is_skipped(table.state, table.error)},
        held={
            key: held(made, _refusal(records, made))
            for key, made in records.table_decisions.items()
            if _stays(records, made)
        },
        journalled=frozenset(
            [
                *(i for i, entry in records.journal.items() if entry.state in (DONE, SKIPPED)),
                *(DdlId(OF_SKIPPED + key_of(name), ts, 0) for name, ts in records.skipped),
            ]
        ),
        started=frozenset(i for i, entry in records.journal.items() if entry.state == STARTED),
        refused=frozenset(i for i, entry in records.journal.items() if entry.state == FAILED),
    )


def apply_decisions(records: TargetRecords, busy: Collection[str] = (), *, tells_time: bool = True) -> list[Obeyed]:
    """Apply operators' decisions, each once, except those on `busy` tables; return their results."""
    found = [_obeyed(records, made, tells_time=tells_time) for made in unobeyed(records) if made.table_key not in busy]
    records.obeyed |= {each.decision.table_key: each for each in found}
    return found


def _stays(records: TargetRecords, made: TableDecision) -> bool:
    """Return whether a table stands still because of an operator's decision."""
    return _is_paused(records, made) or (made.verb == "reload-done" and bool(_refusal(records, made)))


def _is_paused(records: TargetRecords, made: TableDecision) -> bool:
    seen = records.obeyed.get(made.table_key)
    return made.verb == "pause" and seen is not None and seen.decision == made


def _refusal(records: TargetRecords, made: TableDecision) -> str:
    # A refusal counts only for the very decision that was refused: a later one starts afresh.
    seen = records.obeyed.get(made.table_key)
    return seen.refusal if seen is not None and seen.decision == made else ""


def unobeyed(records: TargetRecords) -> list[TableDecision]:
    """Return the decisions that no consumer has seen."""
    seen = {key: each.decision for key, each in records.obeyed.items()}
    return [decision for key, decision in records.table_decisions.items() if seen.get(key) != decision]


def foresee_decisions(records: TargetRecords, *, tells_time: bool = True) -> list[Foreseen]:
    """Return what decisions that no consumer has seen would make of their tables; change nothing."""
    return [
        _judged(records, made, _progress(records, made.table_key), tells_time=tells_time) for made in unobeyed(records)
    ]


def follow(records: TargetRecords, decision: TableDecision) -> str:
    """Apply a decision that nobody has stored; return why it cannot be followed, or ""."""
    return _obeyed(records, decision, tells_time=True, follows_a_load=True).refusal


def _obeyed(
    records: TargetRecords, decision: TableDecision, *, tells_time: bool, follows_a_load: bool = False
) -> Obeyed:
    key = decision.table_key
    progress = _progress(records, key)
    found = _judged(records, decision, progress, tells_time=tells_time)
    if not found.refusal:
        after = found.table
        records.copies[key] = after.copies
        if decision.verb == "reload-done" and not follows_a_load:
            records.verified.pop(key, None)
        if decision.verb in ("reload-done", "skip") and key in records.loads:
            records.loads[key] = replace(records.loads[key], phase=LoadPhase.CANCELLED)
        records.tables[key] = replace(
            progress,
            target=decision.to or progress.target,
            state=after.state,
            checkpoint=after.checkpoint,
            follows=after.follows,
            error=after.error,
        )
    return Obeyed(table=str(found.table.name), decision=decision, refusal=found.refusal)


def _progress(records: TargetRecords, key: str) -> TableProgress:
    """Return what is stored of a table; of one of which nothing has run yet, only a schema file tells the name."""
    if (progress := records.tables.get(key)) is not None:
        return progress
    name = next(kept.name for kept in records.kept.values() if key_of(kept.name) == key)
    return TableProgress(table_key=key, schema=name.schema, table=name.table, checkpoint=0, state=TableState.RUNNING)


def _judged(records: TargetRecords, decision: TableDecision, progress: TableProgress, *, tells_time: bool) -> Foreseen:
    key, name = decision.table_key, TableName(schema=progress.schema, table=progress.table)
    stored = StoredTable(
        table_key=key,
        name=name,
        state=progress.state,
        checkpoint=progress.checkpoint,
        follows=progress.follows,
        error=progress.error,
        copies=records.copies.get(key, Copies()),
        loading=key in records.loads and records.loads[key].phase == LoadPhase.LOADING,
        joining=key in records.loads and records.loads[key].phase == LoadPhase.JOINING,
        last_resolved=_last_resolved(records, key),
        started=_started(records, name, given_up=needs_copy(progress.state)),
    )
    if why := refusal(stored, decision, tells_time=tells_time):
        return Foreseen(decision=decision, table=stored, place=progress.target or name, refusal=why)
    after = obeyed(stored, decision, records.checkpoint)
    return Foreseen(decision=decision, table=after, place=decision.to or progress.target or name)


def _last_resolved(records: TargetRecords, key: str) -> int:
    done = [identity for identity, entry in records.journal.items() if entry.state in (DONE, SKIPPED)]
    kept = records.kept
    own = (i for i in done if i in kept and kept[i].is_ddl and key_of(kept[i].name) == key)
    return max((i.version for i in own if leads_to(kept[i].query, kept[i].name)), default=0)


def unsettled(records: TargetRecords, key: str, table: TableName) -> tuple[int, bool]:
    """Return the version of the last statement that may touch a table and is not known to have ended; and whether the table is halted."""
    state = records.tables[key].state if key in records.tables else ""
    return _started(records, table, given_up=needs_copy(state)), state in (TableState.HALTED, TableState.LOST)


def _started(records: TargetRecords, table: TableName, *, given_up: bool) -> int:
    said = {i for i, made in records.decisions.items() if given_up and made.verb in ("done", "skip")}
    begun = [i for i, entry in records.journal.items() if entry.state == STARTED and i not in said]
    found = (
        i.version for i in begun if i in records.kept and may_touch(records.kept[i].query, records.kept[i].name, table)
    )
    return max(found, default=0)


def put_tables(records: TargetRecords, tables: Iterable[TableProgress], *, as_they_were: bool = False) -> None:
    """Store tables; `as_they_were`: progress of some time ago, so that a table that stopped since then stays stopped."""
    known = records.tables
    for table in tables:
        before = known.get(table.table_key, table)
        # As in the real state: what a statement stores of its tables is older than a halt in the meantime.
        stopped = as_they_were and before.state in (TableState.HALTED, TableState.LOST)
        kept = replace(table, state=before.state, error=before.error, follows=before.follows)
        if table.may_be_outdated:
            stored = replace(kept, target=before.target, may_be_outdated=False)
        else:
            stored = kept if stopped else table
        records.skipped.update({each[:2]: each for each in table.skipped})
        if table.copies is not None and not as_they_were:
            records.copies[table.table_key] = table.copies
        # A checkpoint never goes back, whichever of two writers was later.
        known[table.table_key] = replace(
            stored, copies=None, skipped=(), checkpoint=max(before.checkpoint, table.checkpoint)
        )
