"""Holds a plan against the round that follows it: statements, skips, halts and rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from storage_consumer import Consumer
from storage_consumer.operating.planned import Outcome, Plan
from storage_consumer.operating.planning import reasons_of
from storage_consumer.plan.journal_entry import DONE, FAILED, SKIPPED, STARTED
from storage_consumer.summary import RoundSummary
from storage_consumer.target.state_tables import as_text, state_tables
from tests.harness.servers import DatabaseServer

_STATES = {DONE: Outcome.RUN, SKIPPED: Outcome.SKIP, FAILED: Outcome.HALT, STARTED: Outcome.HALT}


class Ran(NamedTuple):
    """One statement, as it was planned or as the journal has it."""

    version: int
    original: str
    outcome: str
    statement: str
    """What was sent; empty for one that halts, since the server may refuse it or the program."""
    reasons: tuple[str, ...]
    """Empty for one that halts: each has its own words."""


Statements = Mapping[str, list[Ran]]
"""By table, in order."""


def planned_and_run(consumer: Consumer, server: DatabaseServer, state_schema: str = "storage_consumer") -> list[str]:
    """Plan, run one round, and return what differs, but for tables of whose statements the plan says that something is not known."""
    before = _journal(server, state_schema)
    plan = consumer.plan(rows=True)
    if _journal(server, state_schema) != before:
        return ["the plan wrote into the journal"]
    summary = consumer.run_once()
    after = _journal(server, state_schema)
    happened = {identity: row for identity, row in after.items() if before.get(identity) != row}
    problems = [*_statements(_planned(plan), _happened(happened)), *_tables(plan, summary)]
    # What a plan says that it cannot know is no error of it; nor how far the whole gets then.
    unknown = tuple(f"{each.table}{end}" for each in plan.statements if each.unknown for end in (":", " "))
    if unknown and any(problem.startswith(unknown) for problem in problems):
        unknown += ("checkpoint:",)
    return [problem for problem in problems if not (unknown and problem.startswith(unknown))]


def _journal(server: DatabaseServer, schema: str) -> Mapping[tuple[Any, ...], tuple[Any, ...]]:
    """What the journal says: identity → table, query, state, statement, note and end; nothing without a state."""
    table = state_tables(schema).journal
    sql = f"SELECT 1 FROM information_schema.tables WHERE table_schema = '{schema}' AND table_name = '{table.name}'"
    if not server.query(sql):
        return {}
    text, _ = as_text(table.select())
    names = [column.name for column in table.columns]
    rows = [dict(zip(names, row, strict=True)) for row in server.query(text)]
    return {
        (row["table_dir"], row["version"], row["checksum"]): tuple(
            row[name] for name in ("schema_name", "table_name", "query", "state", "statement", "note", "finished_at")
        )
        for row in rows
    }


def _happened(rows: Mapping[tuple[Any, ...], tuple[Any, ...]]) -> Statements:
    found = defaultdict[str, list[Ran]](list)
    for (_, version, _), (schema, table, query, state, statement, note, _) in sorted(rows.items(), key=str):
        outcome = _STATES[state]
        halts = outcome is Outcome.HALT
        reasons = () if halts else reasons_of(note)
        sent = statement if outcome is Outcome.RUN else ""
        found[f"{schema}.{table}" if table else schema].append(Ran(version, query, outcome.value, sent, reasons))
    return {table: sorted(ran) for table, ran in found.items()}


def _planned(plan: Plan) -> Statements:
    found = defaultdict[str, list[Ran]](list)
    for each in plan.statements:
        halts = each.outcome is Outcome.HALT
        sent = each.run[-1] if each.outcome is Outcome.RUN else ""
        reasons = () if halts else each.reasons
        found[each.table].append(Ran(each.version, each.original, each.outcome.value, sent, reasons))
    for table, ran in found.items():
        assert [each.version for each in ran] == sorted(each.version for each in ran), f"{table}: out of order"
    return {table: sorted(ran) for table, ran in found.items()}


def _statements(planned: Statements, happened: Statements) -> Iterator[str]:
    for table in sorted({*planned, *happened}):
        mine, theirs = planned.get(table, []), happened.get(table, [])
        yield from (f"{table}: planned, but not so: {each}" for each in mine if each not in theirs)
        yield from (f"{table}: not planned so: {each}" for each in theirs if each not in mine)
        if len(mine) != len(theirs):
            yield f"{table}: {len(mine)} statements planned, {len(theirs)} in the journal"


def _tables(plan: Plan, summary: RoundSummary) -> Iterator[str]:
    halted = {table.table: table.error for table in summary.halted}
    expected = {stop.table: stop.error for stop in plan.halts}
    yield from (f"{table} was to halt: {expected[table]}" for table in sorted({*expected} - {*halted}))
    yield from (f"{table} halted, not planned: {halted[table]}" for table in sorted({*halted} - {*expected}))
    rows = defaultdict[str, int](int)
    for each in plan.rows:
        # Of a table that halts in a job nothing counts.
        rows[each.table] += 0 if each.error else each.rows or 0
    counted = {table.table: table.rows for table in summary.tables}
    for table in sorted({*rows, *counted}):
        if rows.get(table, 0) != counted.get(table, 0):
            yield f"{table}: {rows.get(table, 0)} rows planned, {counted.get(table, 0)} taken"
    skipped = {reason: count for reason, count in summary.skipped.items() if count}
    if plan.skipped != skipped:
        yield f"skipped: planned {plan.skipped}, happened {skipped}"
    if plan.reached != summary.checkpoint:
        yield f"checkpoint: planned {plan.reached}, reached {summary.checkpoint}"
