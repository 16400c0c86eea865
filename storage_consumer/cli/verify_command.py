"""The command `verify`: is each table of the target equal to the source, at one commit-ts, while both go on?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from storage_consumer.cli.answer import Answer
from storage_consumer.cli.exit_codes import ExitCode
from storage_consumer.cli.layout import wrapped
from storage_consumer.cli.reading_source import KEYWORDS, rows_per_second_of, server_of, workers_of
from storage_consumer.cli.verb_options import number_of
from storage_consumer.clock import span
from storage_consumer.config import parsers
from storage_consumer.config.load import load_carried, load_target, with_files_read
from storage_consumer.config.table_filter import CarriedColumns
from storage_consumer.errors import ConfigError
from storage_consumer.model import TableName
from storage_consumer.monitoring.wording import moment
from storage_consumer.operating.verification import OpensSource, Server, VerifyReport, live, verified
from storage_consumer.operating.verified_table import Wishes
from storage_consumer.telemetry import json_text, register_secret
from storage_consumer.verifying.result import Outcome, RowDifference, TableResult

_ONLY_HERE = (
    *(
        *KEYWORDS,
        "upstream_uri",
        "table",
        "quick",
        "chunk_rows",
        "resume",
    ),
    *("frozen", "wait", "json"),
)
_SHOWN_ROWS = 10
"""Differing rows of a table that are shown; the JSON has all that are kept."""
_LONGEST = 60
"""Characters of a value that are shown."""
_MOST_ROWS = 10_000_000


def answer(options: Mapping[str, object], environ: Mapping[str, str]) -> Answer:
    """Return what a comparison found.

    Raises `ConfigError`, and `TransientError` where source or target do not answer.
    """
    own = {name: str(options[name]) for name in _ONLY_HERE if options.get(name) is not None}
    target, source, carried = _ends(options, environ, own)
    report = verified(target, source, _wishes(own), carried=carried)
    text = json_text(document(report)) if "json" in own else "\n".join(_lines(report)) + "\n"
    return Answer(text, _code(report))


def _ends(
    options: Mapping[str, object], environ: Mapping[str, str], own: Mapping[str, str]
) -> tuple[Server, OpensSource, CarriedColumns]:
    """Return the target, what it is compared with, and which columns its feed carries; raise `ConfigError`."""
    if "source" not in own:
        raise ConfigError("verify needs --source, the TiDB that the changefeed reads: tidb://user@host:4000/")
    given = with_files_read({k: v for k, v in options.items() if k not in _ONLY_HERE or k == "upstream_uri"}, environ)
    without_bucket = {k: v for k, v in given.items() if k != "upstream_uri"}
    settings, secrets, hidden = load_target(without_bucket, environ)
    carried = load_carried(without_bucket, environ)
    for secret in hidden:
        register_secret(secret)
    target = Server(settings=settings, password=secrets.password)
    is_frozen = "frozen" in own
    return target, live(server_of(own, environ, settings, frozen=is_frozen), is_frozen=is_frozen), carried


def _wishes(own: Mapping[str, str]) -> Wishes:
    """Return what is to be compared; raise `ConfigError` for values that mean nothing."""
    plain = Wishes()
    return Wishes(
        tables=own.get("table", ""),
        how="quick" if "quick" in own else "full",
        workers=workers_of(own, plain.workers),
        rows_per_second=rows_per_second_of(own, plain.rows_per_second),
        chunk_rows=int(number_of(own, "chunk_rows", parsers.integer(low=100, high=_MOST_ROWS), plain.chunk_rows)),
        resume="resume" in own,
        wait=number_of(own, "wait", parsers.duration(low=0), plain.wait),
    )


def _code(report: VerifyReport) -> ExitCode:
    if report.differs:
        return ExitCode.TABLES_STOPPED
    return ExitCode.DONE if report.is_equal else ExitCode.FAILED


def document(report: VerifyReport) -> dict[str, object]:
    """Return a report as JSON takes it; the keys are part of the program's interface."""
    counts = {str(outcome): sum(table.outcome is outcome for table in report.tables) for outcome in Outcome}
    return {
        "run": report.run,
        "equal": report.is_equal,
        "counts": {name: count for name, count in counts.items() if count},
        "seconds": report.seconds,
        "tables": [table.document() for table in report.tables],
        "unknown": [str(name) for name in report.unknown],
    }


def _lines(report: VerifyReport) -> Iterator[str]:
    """Yield the report for people: what differs first, and then what is equal."""
    ranks = {Outcome.DIFFERENT: 0, Outcome.NOT_COMPARED: 1}
    for table in sorted(report.tables, key=lambda each: (ranks.get(each.outcome, 2), str(each.table))):
        yield from _of_table(table)
    if report.unknown:
        yield from wrapped(_of_unknown(report.unknown), further="  ")
    rows = sum(table.rows for table in report.tables)
    counts = ", ".join(
        f"{sum(table.outcome is outcome for table in report.tables):,} {outcome}"
        for outcome in Outcome
        if any(table.outcome is outcome for table in report.tables)
    )
    yield ""
    yield f"{counts}; {rows:,} rows in {span(report.seconds)}"


def _of_unknown(names: Sequence[TableName]) -> str:
    """Return what is said of tables that only the source has."""
    shown = ", ".join(map(str, names[:_SHOWN_ROWS]))
    more = f" and {len(names) - _SHOWN_ROWS:,} more (--json has them)" if len(names) > _SHOWN_ROWS else ""
    return (
        f"not in the bucket: {shown}{more}. The source has them, and no file names them: the changefeed's filter leaves them out, or nothing "
        "of them has changed since it began. Then they need a copy: storage-consumer load"
    )


def _of_table(table: TableResult) -> Iterator[str]:
    place = "" if table.target == table.table else f" (in the target {table.target})"
    if table.outcome is Outcome.NOT_COMPARED:
        yield from wrapped(f"not compared: {table.table}{place}: {table.reason}", further="  ")
        return
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
        yield from wrapped(_row(difference), "    ", "      ")
    if 0 < len(table.differences) < table.different_rows or len(table.differences) > _SHOWN_ROWS:
        yield f"    … {table.different_rows - min(len(table.differences), _SHOWN_ROWS):,} more; --json has {len(table.differences):,}"
    if table.heal:
        yield "  next:"
        yield from (f"    {line}" for line in table.heal.split("\n"))


def _row(difference: RowDifference) -> str:
    key = ", ".join(f"{name} = {_value(value)}" for name, value in difference.key.items())
    times = f" ({difference.count} times)" if difference.count > 1 else ""
    source, target = difference.source or {}, difference.target or {}
    if difference.kind == "differs":
        values = "; ".join(
            f"{name} is {_value(target[name])}, at the source {_value(value)}" for name, value in source.items()
        )
        return f"differs: {key}: {values}"
    shown = ", ".join(f"{name} = {_value(value)}" for name, value in (source or target).items())
    return f"{difference.kind}{times}: {key or shown}"


def _value(value: str | None) -> str:
    if value is None:
        return "NULL"
    return repr(value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…")
