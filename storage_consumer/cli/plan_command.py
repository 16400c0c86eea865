"""The command `plan`: what would the next round do? As text, as SQL script, or as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from storage_consumer.api import Consumer
from storage_consumer.cli.endings import Answer, ExitCode, told
from storage_consumer.cli.screen import facts, message, wrapped
from storage_consumer.cli.verbs import PlanFlags
from storage_consumer.clock import counted, data_size
from storage_consumer.config.parsers import did_you_mean
from storage_consumer.errors import ConfigError, NoMetadata
from storage_consumer.model import TableName
from storage_consumer.operating.planned import (
    Outcome,
    Plan,
    PlannedRows,
    PlannedStatement,
    PlannedStop,
    PlannedWave,
)
from storage_consumer.plan import table_words
from storage_consumer.session import Session
from storage_consumer.telemetry import tso_time

T = TypeVar("T", PlannedRows, PlannedStatement, PlannedStop)
_SHOWN = 20
"""Tables, statements, halts and so on that are shown without --all."""
_ACTION = 9
"""Columns of what is done with a table, or a statement, before its name."""


def answer_plan(own: PlanFlags, session: Session) -> Answer:
    """Return what the next round would do; `TABLES_STOPPED` if a table would halt.

    Raises `ConfigError` for wrong arguments, another bucket's state, and a bucket without
    ``metadata``; `TransientError` if bucket or target do not answer.
    """
    given: dict[str, Any] = session.options
    try:
        with Consumer(**given) as consumer:
            plan = consumer.plan(rows=own.rows or None)
    except NoMetadata as fault:
        raise ConfigError(str(fault)) from fault
    plan = _of_table(plan, own.table) if own.table else plan
    lines = _script(plan) if own.sql else _lines(plan, None if own.all else _SHOWN)
    return told(
        own, document(plan), lines, ExitCode.TABLES_STOPPED if plan.halts else ExitCode.DONE
    )


def _of_table(plan: Plan, name: str) -> Plan:
    """Return the part of a plan that is about one table; raise `ConfigError` if it has none."""
    every: list[PlannedRows | PlannedStatement | PlannedStop] = [*plan.rows, *plan.statements]
    known = sorted({each.table for each in (*every, *plan.halts, *plan.waits, *plan.paused)})
    meant = set(
        table_words.meant(
            name,
            known,
            lambda each: TableName(schema=each.partition(".")[0], table=each.partition(".")[2]),
        )
    )
    if not meant:
        raise ConfigError(f"the next round does nothing about {name}{did_you_mean(name, known)}")

    def of(found: tuple[T, ...]) -> tuple[T, ...]:
        return tuple(each for each in found if each.table in meant)

    waves = (PlannedWave(rows=of(wave.rows), statements=of(wave.statements)) for wave in plan.waves)
    return replace(
        plan,
        waves=tuple(wave for wave in waves if wave.rows or wave.statements),
        halts=of(plan.halts),
        waits=of(plan.waits),
        paused=of(plan.paused),
    )


def _lines(plan: Plan, most: int | None) -> Iterator[str]:
    """Yield the plan; of each kind at most `most` entries, None for all."""
    runs, skips = (
        sum(each.outcome is kind for each in plan.statements)
        for kind in (Outcome.RUN, Outcome.SKIP)
    )
    words = f"{counted(runs, 'statement')} to run, {skips:,} to skip, {_sum_of(plan.rows, end='')}"
    halts = f"; {counted(len(plan.halts), 'table')} would halt" if plan.halts else ""
    yield from wrapped(f"the next round: {words}{halts}", further="  ")
    first = (
        f"first run: creates the state schema {plan.state_schema}"
        if plan.first_run
        else f"in {plan.state_schema}"
    )
    known = {
        "bucket": plan.upstream,
        "target": plan.server,
        "state": first,
        "writer": f"{plan.writer} runs now; this is what a start would have before it now"
        if plan.writer
        else "",
        "from": _moment(plan.checkpoint),
        "to": f"{_moment(plan.reached)}{'' if plan.reached >= plan.storage_checkpoint else ', held back by tables that halt or wait'}",
        "at source": _moment(plan.storage_checkpoint)
        if plan.reached != plan.storage_checkpoint
        else "",
        "databases": f"creates {', '.join(plan.databases)}" if plan.databases else "",
        "rows": ""
        if plan.counted
        else "not counted: the files are large in sum; --rows reads them all",
        "skipped": ", ".join(
            f"{count:,} {reason}" for reason, count in sorted(plan.skipped.items())
        ),
    }
    yield from facts(known)
    stops = {
        "would halt; the other tables go on:": plan.halts,
        "would wait:": plan.waits,
        "stand still by decision of an operator:": plan.paused,
    }
    said = {
        title: [f"{each.table}: {each.error}" for each in found] for title, found in stops.items()
    }
    for title, texts in {**said, "warnings:": list(plan.warnings)}.items():
        if texts:
            yield from ("", title)
            yield from (line for text in texts[:most] for line in message(text, "  ", "    "))
            if most is not None and len(texts) > most:
                yield f"  … and {len(texts) - most:,} more entries (--all)"
    rows = statements = 0
    for number, wave in enumerate(plan.waves, 1):
        if most is None or rows < most or statements < most:
            counts = f"{_sum_of(wave.rows)}{counted(len(wave.statements), 'statement')}"
            yield from ("", *wrapped(f"wave {number}: {counts}", further="  "))
            for part in wave.rows[: _rest(most, rows)]:
                name = part.table if part.table == part.target else f"{part.table} → {part.target}"
                number_of = "" if part.rows is None else f"{counted(part.rows, 'row')} in "
                also = [f"{part.duplicates:,} repeated"] if part.duplicates else []
                also += [f"{part.later:,} later"] if part.later else []
                files = f"{counted(part.files, 'file')} ({data_size(part.size)})"
                beside = f", {', '.join(also)} left out" if also else ""
                yield from wrapped(
                    f"{name}: {number_of}{files}{beside}", "  rows   ", " " * _ACTION
                )
            yield from (
                line
                for each in wave.statements[: _rest(most, statements)]
                for line in _statement_lines(each)
            )
            rows, statements = rows + len(wave.rows), statements + len(wave.statements)
    if most is not None and max(len(plan.rows), len(plan.statements)) > most:
        left = {"table": len(plan.rows) - most, "statement": len(plan.statements) - most}
        parts = (counted(count, f"more {what}") for what, count in left.items() if count > 0)
        yield from ("", f"… and {' and '.join(parts)} (--all)")


def _rest(most: int | None, shown: int) -> int | None:
    return None if most is None else max(0, most - shown)


def _sum_of(rows: Sequence[PlannedRows], end: str = ", ") -> str:
    if not rows:
        return "no rows" if not end else ""
    files = f"{counted(sum(each.files for each in rows), 'file')} ({data_size(sum(each.size for each in rows))})"
    numbers = [each.rows for each in rows if each.rows is not None]
    number = f"{counted(sum(numbers), 'row')} in " if numbers else ""
    return f"{number}{files} of {counted(len({each.table for each in rows}), 'table')}{end}"


def _statement_lines(statement: PlannedStatement) -> Iterator[str]:
    """Yield a statement's outcome, text, original if it differs, and reason."""
    text = f"{statement.table}, version {statement.version} ({tso_time(statement.version)})"
    indent = " " * _ACTION
    yield from wrapped(text, f"  {statement.outcome.value:<6} ", indent)
    original = " ".join(statement.original.split())
    for text in statement.run:
        yield from wrapped(text, f"{indent}  ")
    if statement.outcome is not Outcome.RUN or original.rstrip(";") not in {
        " ".join(t.split()) for t in statement.run
    }:
        yield from wrapped(
            f"at source: {original or 'no statement, only columns'}", indent, f"{indent}  "
        )
    # The error of a table that halts stands above, with its next steps.
    for reason in statement.reasons if statement.outcome is not Outcome.HALT else ():
        yield from wrapped(f"because: {reason}", indent, f"{indent}  ")
    if statement.unknown:
        yield from wrapped(f"unchecked: {statement.unknown}", indent, f"{indent}  ")


def _script(plan: Plan) -> Iterator[str]:
    """Yield the statements as a script; what is not part of one is a comment."""
    for each in plan.statements:
        yield from _commented(
            f"{each.outcome.value}: {each.table}, version {each.version} ({each.path})"
        )
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


def document(plan: Plan) -> dict[str, Any]:
    """Return the plan as JSON with stable keys; sizes are bytes, checkpoints TSOs."""
    found = _renamed(
        msgspec.to_builtins(plan), upstream="bucket", server="target", databases="creates_databases"
    )
    for wave in found["waves"]:
        wave["rows"] = [
            _renamed(each, size="bytes", duplicates="repeated") for each in wave["rows"]
        ]
    return found


def _renamed(record: dict[str, Any], **names: str) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in record.items()}
