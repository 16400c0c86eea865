"""The command `ddl`: what waits for an operator, and what the operator decides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from storage_consumer.checkpoint.journal import JournalRow, StoredJournal
from storage_consumer.cli.answer import OBEYED, Answer, told
from storage_consumer.cli.screen_layout import cut, message, wrapped
from storage_consumer.cli.verbs import DdlFlags
from storage_consumer.config.parsers import did_you_mean
from storage_consumer.driver.lease import user
from storage_consumer.errors import ConfigError
from storage_consumer.model import TableName
from storage_consumer.plan.table_words import meant, table_flag
from storage_consumer.ports import Decision
from storage_consumer.session import Session
from storage_consumer.telemetry import tso_time

_SHOWN = 300
"""Columns of a statement in a list on a terminal."""
_INDENT = " " * 4
_PROMISES = {
    "done": "it counts as done; nothing is run",
    "skip": "it is not run, and its table goes on without it",
    "replace": "the given text is run in its place",
}


def answer(own: DdlFlags, session: Session) -> Answer:
    """Return what was shown or decided.

    Raises `ConfigError` for a statement that does not exist, is already resolved, or is ambiguous; and `TargetUnavailable`.
    """
    _check(own)
    with session.state() as desk:
        if own.action == "list":
            rows = desk.journal.unresolved()
            rows = meant(own.table, rows, _name) if own.table else rows
            head = f"{len(rows)} not done yet:" if rows else "no statement waits"
            return told(own, {"waiting": [_document(row) for row in rows]}, [head, *map(_line, rows)])
        row = _chosen(desk.journal, own)
        # The same decision as before has been carried out: that is an answer, not an error.
        if row.resolved:
            return Answer(f"{_where(own)} is {row.state}, as was decided: {row.note}\n")
        decision = Decision(verb=own.action, statement=own.sql or "", decided_by=user())  # type: ignore[arg-type]  # checked
        outcome = desk.journal.decide(row, decision)
    # A consumer brought the statement to its end between the look and the decision.
    if outcome == "resolved":
        raise ConfigError(
            f"the DDL of {row.name} with version {row.version} was resolved in the meantime; nothing was changed"
        )
    document = {"outcome": outcome, "decision": decision.verb, "sql": decision.statement} | _document(row)
    return told(own, document, _report(row, decision.verb, outcome))


def _check(own: DdlFlags) -> None:
    """Refuse options that do not go together."""
    if own.action == "list":
        if more := [f"--{name}" for name in ("version", "checksum", "sql") if getattr(own, name) is not None]:
            raise ConfigError(
                f"{' and '.join(more)}: give one of the verbs `ddl done`, `ddl skip` or `ddl replace` too"
            )
        return
    for name in ("table", "version"):
        if getattr(own, name) is None:
            raise ConfigError(f"ddl {own.action} needs --{name}; `storage-consumer ddl` lists what waits")
    # An empty text would mean to run nothing, for which `skip` is the word.
    if (own.action == "replace") != bool((own.sql or "").strip()):
        raise ConfigError("`ddl replace` needs --sql, the text to run; no other verb takes it")


def _name(row: JournalRow) -> TableName:
    return row.name


def _chosen(journal: StoredJournal, own: DdlFlags) -> JournalRow:
    """Return the one statement that is meant; it is not resolved yet, or was by the same decision."""
    assert own.table is not None and own.version is not None  # noqa: PT018 - checked
    of_version = meant(own.table, journal.of_version(own.version), _name)
    # One version may have several statements of a table, such as those of a rename; the checksum in the file's name differs.
    rows = [row for row in of_version if own.checksum in (None, row.identity.checksum)]
    where = _where(own)
    if len(rows) > 1:
        raise ConfigError(f"there are several statements like {where}; choose one with --checksum:\n{_listed(rows)}")
    if rows and not rows[0].resolved:
        return rows[0]
    if rows and rows[0].decision is not None and rows[0].decision.verb == own.action:
        return rows[0]
    waiting = journal.unresolved()
    names = [str(row.name) for row in waiting]
    why = f"is {rows[0].state} already" if rows else "does not wait for a decision" + did_you_mean(own.table, names)
    listed = f"what waits:\n{_listed(waiting)}" if waiting else "nothing waits for a decision"
    raise ConfigError(f"{where} {why}; {listed}")


def _where(own: DdlFlags) -> str:
    """Return the statement that is asked about, in words."""
    return f"the DDL of {own.table} with version {own.version}"


def _line(row: JournalRow) -> str:
    """Return one statement as a few lines."""
    lines = [f"  {table_flag(row.name)} --version {row.version} --checksum {row.identity.checksum}"]
    lines += wrapped(f"{tso_time(row.version)}  {row.state}  {cut(row.query or row.statement, _SHOWN)}", _INDENT)
    if row.note:
        lines += message(row.note, _INDENT)
    if (decision := row.decision) is not None:
        lines += wrapped(f"decided at {decision.decided_at} UTC by {decision.decided_by}: {decision.verb}", _INDENT)
    return "\n".join(lines)


def _listed(rows: Iterable[JournalRow]) -> str:
    return "\n".join(map(_line, rows))


def _report(row: JournalRow, verb: str, outcome: str) -> Iterator[str]:
    """Yield what was done, in words."""
    yield f"{row.name}, version {row.version} ({tso_time(row.version)}): {cut(row.query, _SHOWN)}"
    if outcome == "same":
        yield f"already decided: {verb}, but not obeyed yet; nothing was changed"
    else:
        yield f"decided: {verb}; {_PROMISES[verb]}"
        if row.decision is not None:
            yield f"this replaces the decision of {row.decision.decided_by}: {row.decision.verb}"
    if row.state == "started":
        yield "it was sent to the target and may still be running: if it succeeds, nothing is left to decide"
    yield OBEYED


def _document(row: JournalRow) -> dict[str, object]:
    decision = row.decision
    return {
        "table": str(row.name),
        "version": row.version,
        "time": tso_time(row.version),
        "checksum": row.identity.checksum,
        "state": row.state,
        "query": row.query,
        "statement": row.statement,
        "error": row.note,
        "decided": None
        if decision is None
        else {"verb": decision.verb, "sql": decision.statement, "by": decision.decided_by},
    }
