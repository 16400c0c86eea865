"""The command `verify`: is each table of the target equal to the source, at one commit-ts, while both go on?"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from storage_consumer.cli import screen
from storage_consumer.cli.answer import Answer
from storage_consumer.cli.exit_codes import ExitCode
from storage_consumer.cli.failures import print_error
from storage_consumer.cli.layout import wrapped
from storage_consumer.cli.reading_source import KEYWORDS, rows_per_second_of, server_of, with_zone_of, workers_of
from storage_consumer.cli.verb_options import number_of
from storage_consumer.clock import span
from storage_consumer.config import parsers
from storage_consumer.config.load import load, load_carried, load_target, with_files_read
from storage_consumer.config.settings import Secrets
from storage_consumer.config.table_filter import CarriedColumns
from storage_consumer.errors import ConfigError, TransientError
from storage_consumer.model import TableName
from storage_consumer.monitoring.wording import moment
from storage_consumer.operating.exported_source import exported_source
from storage_consumer.operating.opened_export import NO_BUCKET, opened_export
from storage_consumer.operating.verification import OpensSource, Server, VerifyReport, live, verified
from storage_consumer.operating.verified_table import Wishes
from storage_consumer.telemetry import json_text, lines_escaped, redact, register_secret
from storage_consumer.verifying.result import Outcome, RowDifference, TableResult

_ONLY_HERE = (
    *(
        *KEYWORDS,
        "against",
        "dump_tz",
        "upstream_uri",
        "table",
        "quick",
        "sample",
        "chunk_rows",
        "resume",
    ),
    *("frozen", "wait", "every", "json"),
)
_SHOWN_ROWS = 10
"""Differing rows of a table that are shown; the JSON has all that are kept."""
_LONGEST = 60
"""Characters of a value that are shown."""
_MOST_ROWS = 10_000_000
_OF_EXPORT = ("dump_tz", "upstream_uri")
_OF_SERVER = ("source", "source_password_file", "frozen", "every")
Compare = Callable[[Wishes], Answer]


def answer(options: Mapping[str, object], environ: Mapping[str, str]) -> Answer:
    """Return what a comparison found; with ``every`` show one after the other until SIGINT, and return the last one's code.

    Raises `ConfigError`, and `TransientError` where source or target do not answer.
    """
    own = {name: str(options[name]) for name in _ONLY_HERE if options.get(name) is not None}
    target, source, carried = _ends(options, environ, own)
    wishes = _wishes(own)

    def compare(wanted: Wishes) -> Answer:
        stop = threading.Event()
        try:
            report = verified(target, source, wanted, carried=carried, stop=stop)
        except BaseException:
            stop.set()
            raise
        text = json_text(document(report)) if "json" in own else "\n".join(_lines(report)) + "\n"
        return Answer(text, _code(report))

    if "every" in own:
        return _repeated(compare, wishes, number_of(own, "every", parsers.duration(low=1.0)), environ, own)
    return compare(wishes)


def _ends(
    options: Mapping[str, object], environ: Mapping[str, str], own: Mapping[str, str]
) -> tuple[Server, OpensSource, CarriedColumns]:
    """Return the target, what it is compared with, and which columns its feed carries; raise `ConfigError`."""
    _check(own)
    given = with_files_read({k: v for k, v in options.items() if k not in _ONLY_HERE or k == "upstream_uri"}, environ)
    without_bucket = {k: v for k, v in given.items() if k != "upstream_uri"}
    settings, secrets, hidden = load_target(without_bucket, environ)
    carried = load_carried(without_bucket, environ)
    for secret in hidden:
        register_secret(secret)
    target = Server(settings=settings, password=secrets.password)
    if "against" in own:
        return target, _export(own, given, environ), carried
    is_frozen = "frozen" in own
    return target, live(server_of(own, environ, settings, frozen=is_frozen), is_frozen=is_frozen), carried


def _export(own: Mapping[str, str], given: Mapping[str, object], environ: Mapping[str, str]) -> OpensSource:
    """Return what compares with the export that --against names."""
    upstream, secrets = NO_BUCKET, Secrets()
    if "upstream_uri" in own:
        bucket = load({k: v for k, v in given.items() if k in ("upstream_uri", "config")}, environ, target=False)
        for secret in bucket.hidden:
            register_secret(secret)
        upstream, secrets = bucket.config.upstream, bucket.secrets
    try:
        return exported_source(*opened_export(with_zone_of(own, own["against"]), upstream, secrets))
    except ConfigError as error:
        raise type(error)(str(error).replace("--dump ", "--against ")) from None


def _check(own: Mapping[str, str]) -> None:
    """Refuse flags that do not go together; raise `ConfigError`."""
    if "against" not in own:
        if "source" not in own:
            raise ConfigError(
                "verify needs --source, the TiDB that the changefeed reads: tidb://user@host:4000/ -- or --against, the URI of an export"
            )
        if alone := next((name for name in _OF_EXPORT if name in own), None):
            raise ConfigError(f"--{alone.replace('_', '-')} goes with --against")
    elif other := next((name for name in _OF_SERVER if name in own), None):
        raise ConfigError(
            f"--against compares with an export, which is as it is: leave out --{other.replace('_', '-')}"
        )


def _wishes(own: Mapping[str, str]) -> Wishes:
    """Return what is to be compared; raise `ConfigError` for values that mean nothing."""
    if "quick" in own and "sample" in own:
        raise ConfigError("--quick counts rows and --sample compares some of them: give one of the two")
    plain = Wishes()
    if "sample" in own:
        own = {**own, "sample": own["sample"].removesuffix("%")}
    return Wishes(
        tables=own.get("table", ""),
        how="quick" if "quick" in own else "sample" if "sample" in own else "full",
        sample=float(number_of(own, "sample", parsers.integer(low=1, high=100))) if "sample" in own else plain.sample,
        workers=workers_of(own, plain.workers),
        rows_per_second=rows_per_second_of(own, plain.rows_per_second),
        chunk_rows=int(number_of(own, "chunk_rows", parsers.integer(low=100, high=_MOST_ROWS), plain.chunk_rows)),
        resume="resume" in own,
        wait=number_of(own, "wait", parsers.duration(low=0), plain.wait),
    )


def _repeated(
    compare: Compare, wishes: Wishes, every: float, environ: Mapping[str, str], own: Mapping[str, str]
) -> Answer:
    """Compare again and again until SIGINT, or until nobody reads. A server that does not answer for a while ends nothing."""
    code, goes_on = ExitCode.FAILED, True
    try:
        while goes_on:
            began = time.monotonic()
            code, goes_on = _once_more(compare, wishes, environ, is_document="json" in own)
            # What was broken off before this run is resumed once.
            wishes = wishes.again()
            time.sleep(max(0.0, every - (time.monotonic() - began)) if goes_on else 0.0)
    except KeyboardInterrupt:
        pass
    return Answer("", code)


def _once_more(
    compare: Compare, wishes: Wishes, environ: Mapping[str, str], *, is_document: bool
) -> tuple[ExitCode, bool]:
    """Show one comparison; return its code, and whether anybody still reads."""
    try:
        found = compare(wishes)
    except TransientError as fault:
        print_error(str(fault))
        return ExitCode.FAILED, True
    text = lines_escaped(found.text if is_document else redact(found.text))
    return found.code, screen.write(text, environ, is_document=is_document)


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
    how = {"full": "", "sample": " in a sample", "quick": " by structure and number of rows"}[table.how]
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
