"""The command `status`: is the feed healthy, how late, which tables stopped, what is next?"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from storage_consumer.cli import screen
from storage_consumer.cli.endings import Answer, ExitCode, told
from storage_consumer.cli.screen import cut, facts, wrapped
from storage_consumer.cli.verbs import StatusFlags
from storage_consumer.clock import span
from storage_consumer.errors import ConfigError, StorageConsumerError
from storage_consumer.operating.state_questions import status_now
from storage_consumer.plan.table_words import known
from storage_consumer.session import Session
from storage_consumer.telemetry import lines_escaped, redact
from storage_consumer.watch import wording
from storage_consumer.watch.report import Health, StoredStatement, lag_of
from storage_consumer.watch.status import Status, TableStatus
from storage_consumer.watch.wording import document, moment

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


def answer_status(own: StatusFlags, session: Session) -> Answer:
    """Return a feed's status; with ``watch`` repeat until SIGINT, and return the last code.

    Raises `ConfigError` for an unknown table or a target without a state, and `TargetUnavailable`.
    """
    if not own.watch:
        return _look(own, session)
    code = ExitCode.FAILED
    try:
        while True:
            # A target that does not answer for a while ends nothing.
            try:
                found = _look(own, session)
                text, code = found.text, found.code
            except ConfigError:
                raise
            except StorageConsumerError as fault:
                text, code = redact(f"{fault}\n"), ExitCode.FAILED
            # A terminal shows the newest look alone; a pipe gets them all.
            clear = _CLEAR if screen.is_smart(sys.stdout, session.environ) else ""
            text = lines_escaped(text if own.json else redact(text))
            # Nobody may read it any more.
            if not screen.write(clear + text, session.environ, is_document=own.json):
                break
            time.sleep(_EVERY)
    except KeyboardInterrupt:
        pass
    return Answer("", code)


def _look(own: StatusFlags, session: Session) -> Answer:
    """Return one look at the state."""
    with session.state() as desk:
        status = status_now(
            desk, session.target.settings, max_lag=own.max_lag, needs_writer=not own.batch
        )
        sequences = desk.progress.sequences() if own.files else None
    chosen = (
        known(own.table, status.snapshot.tables, lambda each: each.name)[0] if own.table else None
    )
    if chosen:
        if shown := next((each for each in status.tables if each.name == chosen.name), None):
            lines = list(_table_lines(shown))
        else:
            snapshot = status.snapshot
            checkpoint = snapshot.reached(chosen)
            at = moment(checkpoint, lag_of(checkpoint, snapshot.now))
            lines = wrapped(f"{snapshot.shown(chosen)}: {chosen.name}, at {at}", further="  ")
        statements = [
            each for each in status.statements if each.name.folded() == chosen.name.folded()
        ]
        lines += [line for each in statements for line in _statement_lines(each)]
    else:
        lines = _lines(status, None if own.all else _SHOWN)
    needed: list[dict[str, object]] | None = None
    if sequences is not None:
        needed = []
        lines += ["", "data files that are still needed, by directory:"]
        for sequence, finished in sorted(sequences.items()):
            directory, dispatcher, _width = sequence.rsplit("|", 2)
            first = finished.upto + 1
            needed.append({"directory": directory, "dispatcher": dispatcher, "needed_from": first})
            lines.append(
                f"  {directory}{f' (dispatcher {dispatcher})' if dispatcher else ''}: from number {first} on"
            )
    return told(own, document(status, needed, chosen), lines, CODES[status.health])


def _lines(status: Status, most: int | None) -> list[str]:
    """Return the feed's status with up to so many tables and statements; None for all."""
    lines = wrapped(status.text, further="  ")
    more = status.reasons[status.health != Health.HEALTHY :]
    lines += [line for reason in more for line in wrapped(reason, "  ")]
    lines += facts(wording.facts(status))
    for table in status.tables[:most]:
        lines += ["", *_table_lines(table)]
    lines += _more(len(status.tables), most, "table")
    if status.statements:
        lines += ["", "statements that are not done:"]
        lines += [line for each in status.statements[:most] for line in _statement_lines(each)]
    return lines + _more(len(status.statements), most, "statement")


def _table_lines(table: TableStatus) -> Iterator[str]:
    """Yield what is to be said of a table that stands still."""
    behind = f", {span(table.lag)} behind now" if table.lag is not None else ""
    yield from wrapped(
        f"{table.state}: {table.name}, at {moment(table.checkpoint, None)}{behind}", further="  "
    )
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


def _statement_lines(statement: StoredStatement) -> list[str]:
    took = f" for {span(statement.seconds)}" if statement.seconds is not None else ""
    query = cut(statement.query, _LONGEST)
    head = f"{statement.state}{took}: {statement.name}, version {statement.identity.version}"
    return wrapped(f"{head}: {query}", "  ", "    ")


def _more(count: int, most: int | None, what: str) -> list[str]:
    return (
        []
        if most is None or count <= most
        else ["", f"… and {count - most:,} more {what}s: add --all"]
    )
