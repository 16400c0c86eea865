"""The command `status`: is the feed healthy, how far behind is it, which tables stopped, and which command comes next?"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing

from storage_consumer.checkpoint.operator import StateInspector
from storage_consumer.cli import screen
from storage_consumer.cli.answer import Answer
from storage_consumer.cli.exit_codes import ExitCode
from storage_consumer.cli.layout import columns, cut, facts, wrapped
from storage_consumer.clock import span
from storage_consumer.config import parsers
from storage_consumer.config.load import load_target
from storage_consumer.config.parsers import did_you_mean
from storage_consumer.config.settings import Downstream
from storage_consumer.errors import ConfigError, StorageConsumerError
from storage_consumer.monitoring import wording
from storage_consumer.monitoring.document import document
from storage_consumer.monitoring.health import Health, lag_of
from storage_consumer.monitoring.snapshot import Snapshot, Statement, Table
from storage_consumer.monitoring.status import Status, TableStatus
from storage_consumer.monitoring.wording import moment
from storage_consumer.operating.looking import status_now
from storage_consumer.plan.finished_files import Finished
from storage_consumer.plan.table_words import is_meant, refuse_several
from storage_consumer.telemetry import json_text, lines_escaped, redact, register_secret

_ONLY_HERE = ("table", "max_lag", "batch", "watch", "files", "all", "json")
_SHOWN = 20
"""Tables and statements that are shown without --all."""
_EVERY = 2.0
"""Seconds between two looks with --watch."""
_LONGEST = 100
"""Columns of a statement on a terminal."""
CODES = {
    Health.HEALTHY: ExitCode.DONE,
    Health.UNKNOWN: ExitCode.FAILED,
    Health.NO_WRITER: ExitCode.NOT_THE_WRITER,
    Health.RETRYING: ExitCode.BEHIND,
    Health.STOPPED: ExitCode.TABLES_STOPPED,
    Health.UNEQUAL: ExitCode.TABLES_STOPPED,
    Health.CLOCK_SKEW: ExitCode.BEHIND,
    Health.BEHIND: ExitCode.BEHIND,
}
"""First word of a status → how the command ends."""
_CLEAR = "\x1b[H\x1b[2J\x1b[3J"


def answer(options: Mapping[str, object], environ: Mapping[str, str]) -> Answer:
    """Return the status of a feed; with ``watch`` show it again and again until SIGINT, and return the last one's code.

    Raises `ConfigError` for an unknown table or a target without a state, and `TargetUnavailable`.
    """
    own = {name: str(options[name]) for name in _ONLY_HERE if options.get(name) is not None}
    downstream, secrets, hidden = load_target({k: v for k, v in options.items() if k not in _ONLY_HERE}, environ)
    for secret in hidden:
        register_secret(secret)
    max_lag = _max_lag(own)

    def look() -> Answer:
        with closing(StateInspector(downstream, secrets.password)) as desk:
            return _answered(desk, downstream, own, max_lag)

    return _watched(look, environ, is_document="json" in own) if "watch" in own else look()


def _max_lag(own: Mapping[str, str]) -> float | None:
    if "max_lag" not in own:
        return None
    try:
        return float(parsers.duration(low=0)(own["max_lag"]))  # type: ignore[arg-type]  # the parser returns a number
    except ValueError as error:
        raise ConfigError(f"--max-lag: {error}") from None


def _answered(desk: StateInspector, downstream: Downstream, own: Mapping[str, str], max_lag: float | None) -> Answer:
    """Return one look at the state."""
    status = status_now(desk, downstream, max_lag=max_lag, needs_writer="batch" not in own)
    files = desk.feed.sequences() if "files" in own else None
    code = CODES[status.health]
    chosen = _chosen(status.snapshot, own["table"]) if "table" in own else None
    if "json" in own:
        return Answer(json_text(document(status, None if files is None else _needed(files), chosen)), code)
    lines = _of_table(status, chosen) if chosen else _lines(status, everything="all" in own)
    if files is not None:
        lines = [*lines, "", *_file_lines(files)]
    return Answer("\n".join(lines) + "\n", code)


def _watched(look: Callable[[], Answer], environ: Mapping[str, str], *, is_document: bool) -> Answer:
    """Show one look after the other until SIGINT, or until nobody reads. A target that does not answer for a while ends nothing."""
    code = ExitCode.FAILED
    try:
        while True:
            try:
                found = look()
                text, code = found.text, found.code
            except ConfigError:
                raise
            except StorageConsumerError as fault:
                text, code = redact(f"{fault}\n"), ExitCode.FAILED
            # A terminal shows the newest look alone; a pipe gets them all.
            clear = _CLEAR if screen.is_smart(sys.stdout, environ) else ""
            text = lines_escaped(text if is_document else redact(text))
            if not screen.write(clear + text, environ, is_document=is_document):
                break
            time.sleep(_EVERY)
    except KeyboardInterrupt:
        pass
    return Answer("", code)


def _chosen(snapshot: Snapshot, name: str) -> Table:
    """Return the one table that is meant."""
    refuse_several((table.name for table in snapshot.tables), name)
    for table in snapshot.tables:
        if is_meant(table.name, name):
            return table
    raise ConfigError(f"the state knows no table {name}{did_you_mean(name, [str(t.name) for t in snapshot.tables])}")


def _lines(status: Status, *, everything: bool) -> list[str]:
    """Return the status of the whole feed."""
    lines = wrapped(_headline(status), further="  ")
    lines += [line for reason in status.reasons[status.health != Health.HEALTHY :] for line in wrapped(reason, "  ")]
    lines += facts(wording.facts(status))
    for table in status.tables if everything else status.tables[:_SHOWN]:
        lines += ["", *_table_lines(table)]
    lines += _more(len(status.tables), "table", everything=everything)
    if status.statements:
        lines += ["", "statements that are not done:"]
        for each in status.statements if everything else status.statements[:_SHOWN]:
            lines += _statement_lines(each)
        lines += _more(len(status.statements), "statement", everything=everything)
    return lines


def _headline(status: Status) -> str:
    """Return the first line: the one word, and why."""
    if status.health != Health.HEALTHY:
        return f"{status.health}: {status.reasons[0]}"
    lag = f"{span(status.lag)} behind now" if status.lag is not None else "no checkpoint yet"
    return f"{status.health}: {sum(status.counts.values()):,} tables, {lag}"


def _table_lines(table: TableStatus) -> Iterator[str]:
    """Yield what is to be said of a table that stands still."""
    behind = f", {span(table.lag)} behind now" if table.lag is not None else ""
    yield from wrapped(f"{table.state}: {table.name}, at {moment(table.checkpoint, None)}{behind}", further="  ")
    # Its commands follow, whole.
    reason = table.reason.rpartition(" Next steps: ")[0] or table.reason
    yield from wrapped(reason, "  ") if reason else ()
    if table.decision:
        yield f"  decided: {table.decision}"
    for step in table.next_steps:
        if words := table.meanings.get(step):
            yield f"  {words}:"
        # Not wrapped: it is to be pasted.
        yield f"  next: {step}"


def _of_table(status: Status, table: Table) -> list[str]:
    """Return what is known of one table."""
    shown = next((each for each in status.tables if each.name == table.name), None)
    if shown is not None:
        lines = list(_table_lines(shown))
    else:
        snapshot = status.snapshot
        checkpoint = snapshot.reached(table)
        at = moment(checkpoint, lag_of(checkpoint, snapshot.now))
        lines = wrapped(f"{snapshot.shown(table)}: {table.name}, at {at}", further="  ")
    own = [each for each in status.statements if each.name.folded() == table.name.folded()]
    return lines + [line for each in own for line in _statement_lines(each)]


def _statement_lines(statement: Statement) -> list[str]:
    took = f" for {span(statement.seconds)}" if statement.seconds is not None else ""
    query = cut(statement.query, None if columns() is None else _LONGEST)
    head = f"{statement.state}{took}: {statement.name}, version {statement.identity.version}"
    return wrapped(f"{head}: {query}", "  ", "    ")


def _file_lines(files: Mapping[str, Finished]) -> Iterator[str]:
    yield "data files that are still needed, by directory:"
    for each in _needed(files):
        of = f" (dispatcher {each['dispatcher']})" if each["dispatcher"] else ""
        yield f"  {each['directory']}{of}: from number {each['needed_from']} on"


def _needed(files: Mapping[str, Finished]) -> list[dict[str, object]]:
    """Return the first number of each directory, and dispatcher, that is still needed."""
    found = []
    for sequence, finished in sorted(files.items()):
        directory, dispatcher, _width = sequence.rsplit("|", 2)
        found.append({"directory": directory, "dispatcher": dispatcher, "needed_from": finished.upto + 1})
    return found


def _more(count: int, what: str, *, everything: bool) -> list[str]:
    return [] if everything or count <= _SHOWN else ["", f"… and {count - _SHOWN:,} more {what}s: add --all"]
