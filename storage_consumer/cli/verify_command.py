"""The command `verify`: does each target table equal the source at one commit-ts?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from storage_consumer.changes.render_sql import UNDO_FOOT, UNDO_HEAD
from storage_consumer.cli.endings import Answer, ExitCode, told
from storage_consumer.cli.screen import wrapped
from storage_consumer.cli.verbs import VerifyFlags
from storage_consumer.clock import span
from storage_consumer.config.load import load_carried, load_source
from storage_consumer.errors import ConfigError
from storage_consumer.operating.verification import Repair, VerifyReport, Wishes, verified
from storage_consumer.rows.comparison import VerifyOutcome
from storage_consumer.session import Session
from storage_consumer.watch.wording import moment

_SHOWN_ROWS = 10
"""Differing rows of a table that are shown; the JSON has all that are kept."""
_LONGEST = 60
"""Characters of a value that are shown."""
_REPAIR: dict[str, Repair] = {"": "", "true": "apply", "print": "print"}


def answer_verify(own: VerifyFlags, session: Session) -> Answer:
    """Return what a comparison found.

    Raises `ConfigError`, and `TransientError` where source or target do not answer.
    """
    if not own.source:
        raise ConfigError("verify needs --source, the TiDB that the changefeed reads: tidb://user@host:4000/")
    target = session.target
    source = load_source(own.source, own.source_password_file, session.environ, target.settings, frozen=own.frozen)
    if own.repair_limit is not None and not own.repair:
        raise ConfigError("--repair-limit goes with --repair")
    names = ("workers", "rows_per_second", "chunk_rows", "wait", "repair_limit")
    numbers = {name: getattr(own, name) for name in names}
    wishes = Wishes(
        tables=own.table or "",
        how="quick" if own.quick else "full",
        resume=own.resume,
        frozen=own.frozen,
        repair=_REPAIR[own.repair],
        **{name: value for name, value in numbers.items() if value is not None},
    )
    carried = load_carried(session.options, session.environ)
    report = verified(target, source, wishes, carried=carried)
    equal = ExitCode.DONE if report.is_equal else ExitCode.FAILED
    return told(own, document(report), _lines(report), ExitCode.TABLES_STOPPED if report.differs else equal)


def document(report: VerifyReport) -> dict[str, object]:
    """Return a report as JSON takes it; the keys are part of the program's interface."""
    return {
        "run": report.run,
        "equal": report.is_equal,
        "counts": _counts(report),
        "seconds": report.seconds,
        "tables": [table.document() for table in report.tables],
        "unknown": [str(name) for name in report.unknown],
    }


def _counts(report: VerifyReport) -> dict[str, int]:
    found = Counter(table.outcome for table in report.tables)
    return {str(outcome): found[outcome] for outcome in VerifyOutcome if found[outcome]}


def _lines(report: VerifyReport) -> Iterator[str]:
    """Yield the report for people: what differs first, and then what is equal."""
    ranks = {VerifyOutcome.DIFFERENT: 0, VerifyOutcome.NOT_COMPARED: 1}
    for table in sorted(report.tables, key=lambda each: (ranks.get(each.outcome, 2), str(each.table))):
        place = "" if table.target == table.table else f" (in the target {table.target})"
        if table.outcome is VerifyOutcome.NOT_COMPARED:
            yield from wrapped(f"not compared: {table.table}{place}: {table.reason}", further="  ")
            continue
        how = " by structure and number of rows" if table.how == "quick" else ""
        at = f", at {moment(table.checkpoint, None)}" if table.checkpoint else ""
        yield from wrapped(f"{table.outcome}{how}: {table.table}{place}, {table.rows:,} rows{at}", further="  ")
        if table.spans:
            spans = ", ".join(f"{each.rows:,} rows at {each.checkpoint}" for each in table.spans)
            yield from wrapped(f"compared in several cuts: {spans}", "  ", "    ")
        for line in (*table.structure, *table.notes):
            yield from wrapped(line, "  ", "    ")
        if table.different_rows:
            yield f"  rows: {table.differing:,} differ, {table.missing:,} missing, {table.extra:,} extra"
        for difference in table.differences[:_SHOWN_ROWS]:
            key = ", ".join(f"{name} = {_value(value)}" for name, value in difference.key.items())
            times = f" ({difference.count} times)" if difference.count > 1 else ""
            source, target = difference.source or {}, difference.target or {}
            shown = ", ".join(f"{name} = {_value(value)}" for name, value in (source or target).items())
            text = f"{difference.kind}{times}: {key or shown}"
            if difference.kind == "differs":
                values = (f"{name} is {_value(target[name])}, at the source {_value(source[name])}" for name in source)
                text = f"differs: {key}: {'; '.join(values)}"
            yield from wrapped(text, "    ", "      ")
        if 0 < len(table.differences) < table.different_rows or len(table.differences) > _SHOWN_ROWS:
            yield f"    … {table.different_rows - min(len(table.differences), _SHOWN_ROWS):,} more; --json has {len(table.differences):,}"
        if table.repair:
            yield "  to be run after a look at each statement:"
            yield from (*UNDO_HEAD.splitlines(), *table.repair, *UNDO_FOOT.splitlines())
        elif table.heal:
            yield "  next:"
            yield from (f"    {line}" for line in table.heal.split("\n"))
    if report.unknown:
        shown, more = ", ".join(map(str, report.unknown[:_SHOWN_ROWS])), len(report.unknown) - _SHOWN_ROWS
        others = f" and {more:,} more (--json has them)" if more > 0 else ""
        yield from wrapped(
            f"not in the bucket: {shown}{others}. The source has them, and no file names them: the changefeed's filter leaves them "
            "out, or nothing of them has changed since it began. Then they need a copy: storage-consumer load",
            further="  ",
        )
    rows = sum(table.rows for table in report.tables)
    counts = ", ".join(f"{count:,} {outcome}" for outcome, count in _counts(report).items())
    yield ""
    yield f"{counts}; {rows:,} rows in {span(report.seconds)}"


def _value(value: str | None) -> str:
    if value is None:
        return "NULL"
    return repr(value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…")
