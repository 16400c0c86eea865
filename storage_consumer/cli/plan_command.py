"""The command `plan`: what would the next round do? As text, as a script of its statements, or as one JSON document with stable keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from storage_consumer.amounts import data_size
from storage_consumer.api import Consumer
from storage_consumer.cli.answer import Answer
from storage_consumer.cli.exit_codes import ExitCode
from storage_consumer.cli.layout import facts, message, wrapped
from storage_consumer.cli.verbs import PlanFlags
from storage_consumer.config.parsers import did_you_mean
from storage_consumer.dry_run.result import Outcome, Plan, PlannedRows, PlannedStatement, PlannedWave, Stop
from storage_consumer.errors import ConfigError, NoMetadata
from storage_consumer.model import TableName
from storage_consumer.operating.session import Session
from storage_consumer.plan import table_words
from storage_consumer.telemetry import json_text, tso_time

_SHOWN = 20
"""Tables, statements, halts and so on that are shown without --all."""
_ACTION = 9
"""Columns of what is done with a table, or a statement, before its name."""


def answer(own: PlanFlags, session: Session) -> Answer:
    """Return what the next round would do; `TABLES_STOPPED` if a table would halt.

    Raises `ConfigError` for wrong arguments, another bucket's state, and a bucket without ``metadata``; `TransientError` if bucket or
    target do not answer.
    """
    given: dict[str, Any] = session.options
    try:
        with Consumer(**given) as consumer:
            plan = consumer.plan(rows=own.rows or None)
    except NoMetadata as fault:
        raise ConfigError(str(fault)) from fault
    if own.table:
        plan = _of_table(plan, own.table)
    code = ExitCode.TABLES_STOPPED if plan.halts else ExitCode.DONE
    if own.json:
        return Answer(json_text(document(plan)), code)
    lines = _script(plan) if own.sql else _lines(plan, most=None if own.all else _SHOWN)
    return Answer("\n".join(lines) + "\n", code)


def _of_table(plan: Plan, name: str) -> Plan:
    """Return the part of a plan that is about one table; raise `ConfigError` if it has none."""
    known = sorted(
        {each.table for each in plan.rows}
        | {each.table for each in plan.statements}
        | {each.table for each in (*plan.halts, *plan.waits, *plan.paused)}
    )
    meant = set(table_words.meant(name, known, _name))
    if not meant:
        raise ConfigError(f"the next round does nothing about {name}{did_you_mean(name, known)}")
    waves = (
        PlannedWave(
            rows=tuple(each for each in wave.rows if each.table in meant),
            statements=tuple(each for each in wave.statements if each.table in meant),
        )
        for wave in plan.waves
    )
    return replace(
        plan,
        waves=tuple(wave for wave in waves if wave.rows or wave.statements),
        halts=tuple(each for each in plan.halts if each.table in meant),
        waits=tuple(each for each in plan.waits if each.table in meant),
        paused=tuple(each for each in plan.paused if each.table in meant),
    )


def _name(text: str) -> TableName:
    schema, _, table = text.partition(".")
    return TableName(schema=schema, table=table)


# as text


def _lines(plan: Plan, most: int | None) -> Iterator[str]:
    """Yield the plan; of each kind at most `most` entries, None for all."""
    yield from wrapped(_headline(plan), further="  ")
    yield from _facts(plan)
    for title, texts in (
        ("would halt; the other tables go on:", [_stop_line(each) for each in plan.halts]),
        ("would wait:", [_stop_line(each) for each in plan.waits]),
        ("stand still by decision of an operator:", [_stop_line(each) for each in plan.paused]),
        ("warnings:", list(plan.warnings)),
    ):
        if texts:
            yield from ("", title)
            yield from (line for text in texts[:most] for line in message(text, "  ", "    "))
            yield from _more(texts, most, "entries")
    shown = _Budget(most)
    for number, wave in enumerate(plan.waves, 1):
        if shown.has_room:
            counts = f"{_sum_of(wave.rows)}{_count(len(wave.statements), 'statement')}"
            yield from ("", *wrapped(f"wave {number}: {counts}", further="  "))
            yield from (line for each in shown.rows(wave.rows) for line in _rows_lines(each))
            yield from (line for each in shown.statements(wave.statements) for line in _statement_lines(each))
    yield from shown.rest(plan)


class _Budget:
    """How many tables and statements may still be shown."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._rows = self._statements = 0

    @property
    def has_room(self) -> bool:
        """Whether anything more may be shown."""
        return self._most is None or self._rows < self._most or self._statements < self._most

    def rows(self, rows: Sequence[PlannedRows]) -> Sequence[PlannedRows]:
        """Return those that may be shown."""
        shown = rows if self._most is None else rows[: self._most - self._rows]
        self._rows += len(shown)
        return shown

    def statements(self, statements: Sequence[PlannedStatement]) -> Sequence[PlannedStatement]:
        """Return those that may be shown."""
        shown = statements if self._most is None else statements[: self._most - self._statements]
        self._statements += len(shown)
        return shown

    def rest(self, plan: Plan) -> Iterator[str]:
        """Yield how much was not shown."""
        rows, statements = len(plan.rows) - self._rows, len(plan.statements) - self._statements
        if rows or statements:
            parts = [_count(rows, "more table")] * bool(rows) + [_count(statements, "more statement")] * bool(
                statements
            )
            yield from ("", f"… and {' and '.join(parts)} (--all)")


def _headline(plan: Plan) -> str:
    counts = {kind: sum(each.outcome is kind for each in plan.statements) for kind in Outcome}
    words = [
        f"{_count(counts[Outcome.RUN], 'statement')} to run",
        f"{counts[Outcome.SKIP]:,} to skip",
        _sum_of(plan.rows, end=""),
    ]
    halts = f"; {_count(len(plan.halts), 'table')} would halt" if plan.halts else ""
    return f"the next round: {', '.join(words)}{halts}"


def _facts(plan: Plan) -> Iterator[str]:
    first = f"first run: creates the state schema {plan.state_schema}" if plan.first_run else f"in {plan.state_schema}"
    known = {
        "bucket": plan.upstream,
        "target": plan.server,
        "state": first,
        "writer": f"{plan.writer} runs now; this is what a start would have before it now" if plan.writer else "",
        "from": _moment(plan.checkpoint),
        "to": f"{_moment(plan.reached)}{'' if plan.reached >= plan.storage_checkpoint else ', held back by tables that halt or wait'}",
        "at source": _moment(plan.storage_checkpoint) if plan.reached != plan.storage_checkpoint else "",
        "databases": f"creates {', '.join(plan.databases)}" if plan.databases else "",
        "rows": "" if plan.counted else "not counted: the files are large in sum; --rows reads them all",
        "skipped": ", ".join(f"{count:,} {reason}" for reason, count in sorted(plan.skipped.items())),
    }
    yield from facts(known)


def _sum_of(rows: Sequence[PlannedRows], end: str = ", ") -> str:
    if not rows:
        return "no rows" if not end else ""
    files = f"{_count(sum(each.files for each in rows), 'file')} ({data_size(sum(each.size for each in rows))})"
    counted = [each.rows for each in rows if each.rows is not None]
    number = f"{_count(sum(counted), 'row')} in " if counted else ""
    return f"{number}{files} of {_count(len({each.table for each in rows}), 'table')}{end}"


def _rows_lines(rows: PlannedRows) -> list[str]:
    name = rows.table if rows.table == rows.target else f"{rows.table} → {rows.target}"
    number = "" if rows.rows is None else f"{_count(rows.rows, 'row')} in "
    also = [f"{rows.duplicates:,} repeated"] * bool(rows.duplicates) + [f"{rows.later:,} later"] * bool(rows.later)
    beside = f", {', '.join(also)} left out" if also else ""
    return wrapped(
        f"{name}: {number}{_count(rows.files, 'file')} ({data_size(rows.size)}){beside}", "  rows   ", " " * _ACTION
    )


def _statement_lines(statement: PlannedStatement) -> Iterator[str]:
    """Yield a statement: what becomes of it, its text, the original where that is another one, and why."""
    text = f"{statement.table}, version {statement.version} ({tso_time(statement.version)})"
    indent = " " * _ACTION
    yield from wrapped(text, f"  {statement.outcome.value:<6} ", indent)
    original = " ".join(statement.original.split())
    for text in statement.run:
        yield from wrapped(text, f"{indent}  ")
    if statement.outcome is not Outcome.RUN or original.rstrip(";") not in {" ".join(t.split()) for t in statement.run}:
        yield from wrapped(f"at source: {original or 'no statement, only columns'}", indent, f"{indent}  ")
    # The error of a table that halts stands above, with its next steps.
    for reason in statement.reasons if statement.outcome is not Outcome.HALT else ():
        yield from wrapped(f"because: {reason}", indent, f"{indent}  ")
    if statement.unknown:
        yield from wrapped(f"unchecked: {statement.unknown}", indent, f"{indent}  ")


def _stop_line(stop: Stop) -> str:
    return f"{stop.table}: {stop.error}"


def _script(plan: Plan) -> Iterator[str]:
    """Yield the statements as a script; what is not part of one is a comment."""
    for each in plan.statements:
        yield from _commented(f"{each.outcome.value}: {each.table}, version {each.version} ({each.path})")
        if each.outcome is not Outcome.RUN or each.original not in each.run:
            yield from _commented(f"at source: {each.original or 'no statement, only columns'}")
        yield from (line for reason in each.reasons for line in _commented(reason))
        if each.unknown:
            yield from _commented(f"unchecked: {each.unknown}")
        if each.outcome is Outcome.RUN:
            yield from ([f"USE `{each.schema.replace('`', '``')}`;"] if each.schema else [])
            yield from (f"{text};" for text in each.run)
        else:
            yield from (line for text in each.run for line in _commented(text))
        yield ""


def _commented(text: str) -> list[str]:
    return [f"-- {line}" for line in text.splitlines()]


def _moment(checkpoint: int) -> str:
    return f"{checkpoint} ({tso_time(checkpoint)})" if checkpoint else "the beginning"


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _more(texts: Sequence[str], most: int | None, what: str) -> list[str]:
    return [] if most is None or len(texts) <= most else [f"  … and {len(texts) - most:,} more {what} (--all)"]


# as a document


def document(plan: Plan) -> dict[str, Any]:
    """Return the plan as JSON takes it; the keys are part of the program's interface. Sizes are bytes, checkpoints TSOs."""
    return {
        "bucket": plan.upstream,
        "target": plan.server,
        "state_schema": plan.state_schema,
        "first_run": plan.first_run,
        "writer": plan.writer,
        "checkpoint": plan.checkpoint,
        "reached": plan.reached,
        "storage_checkpoint": plan.storage_checkpoint,
        "counted": plan.counted,
        "creates_databases": list(plan.databases),
        "halts": _stops(plan.halts),
        "waits": _stops(plan.waits),
        "paused": _stops(plan.paused),
        "skipped": plan.skipped,
        "warnings": list(plan.warnings),
        "waves": [
            {
                "rows": [_rows_document(each) for each in wave.rows],
                "statements": [_statement_document(each) for each in wave.statements],
            }
            for wave in plan.waves
        ],
    }


def _stops(stops: Iterable[Stop]) -> list[dict[str, Any]]:
    return [{"table": each.table, "checkpoint": each.checkpoint, "error": each.error} for each in stops]


def _rows_document(rows: PlannedRows) -> dict[str, Any]:
    return {
        "table": rows.table,
        "target": rows.target,
        "low": rows.low,
        "high": rows.high,
        "files": rows.files,
        "bytes": rows.size,
        "rows": rows.rows,
        "repeated": rows.duplicates,
        "later": rows.later,
        "error": rows.error,
    }


def _statement_document(statement: PlannedStatement) -> dict[str, Any]:
    return {
        "table": statement.table,
        "version": statement.version,
        "path": statement.path,
        "outcome": statement.outcome.value,
        "original": statement.original,
        "run": list(statement.run),
        "schema": statement.schema,
        "reasons": list(statement.reasons),
        "unknown": statement.unknown,
    }
