"""The command `quarantine`: which rows the target refused, and what the operator decides about them."""

from __future__ import annotations

from collections.abc import Iterator

from storage_consumer.checkpoint.findings import QuarantinedEntry
from storage_consumer.cli.answer import Answer, told
from storage_consumer.cli.verbs import QuarantineFlags
from storage_consumer.driver.lease import user
from storage_consumer.errors import ConfigError
from storage_consumer.plan.table_words import meant
from storage_consumer.session import Session
from storage_consumer.telemetry import tso_time

_SHOWN = (
    *("key", "commit_ts", "path", "row", "version", "reason", "error_number", "image", "held_before"),
    *("first_seen", "last_seen", "retry_asked_by", "retry_answer"),
)
"""Fields of a row that a document has."""


def answer(own: QuarantineFlags, session: Session) -> Answer:
    """Return what was shown or decided.

    Raises `ConfigError` where no row is meant or the wish is not clear, and `TargetUnavailable`.
    """
    _check(own)
    with session.state() as desk:
        rows = desk.quarantine.all()
        chosen = meant(own.table, rows, lambda entry: entry.table) if own.table else rows
        chosen = [entry for entry in chosen if own.key in (None, entry.key)]
        if own.action == "list":
            lines = [line for entry in chosen for line in _lines(entry)] or ["the quarantine is empty"]
            return told(own, {"rows": [document(entry) for entry in chosen]}, lines)
        if not chosen:
            raise ConfigError("no such row is in the quarantine; `storage-consumer quarantine` lists those that are")
        if own.action == "retry":
            desk.quarantine.retry(chosen, user())
            said = "to be tried again: a running consumer does it in its next round, a stopped one when it starts"
        else:
            desk.quarantine.drop(chosen)
            tables = ", ".join(sorted({str(entry.table) for entry in chosen}))
            said = f"dropped from the quarantine; the target lacks them in {tables} until the source changes them"
    count = f"{len(chosen):,} row{'' if len(chosen) == 1 else 's'}"
    return told(own, {"decision": own.action, "rows": len(chosen)}, [f"{count} {said}"])


def _check(own: QuarantineFlags) -> None:
    """Refuse options that do not go together."""
    if own.action != "list" and not own.table and not own.all:
        raise ConfigError(f"quarantine {own.action} needs --table, or --all for the rows of all tables")
    if own.all and own.table:
        raise ConfigError("--all means the rows of all tables, so it does not go with --table")
    if own.key and not own.table:
        raise ConfigError("--key goes with --table")
    if own.action == "drop" and not own.yes:
        raise ConfigError(
            "`quarantine drop` removes rows for good, and their tables stay different from the source: add --yes if that is wanted"
        )


def document(entry: QuarantinedEntry) -> dict[str, object]:
    """Return a row as JSON takes it; the keys are part of the program's interface."""
    return {"table": str(entry.table), **{name: getattr(entry, name) for name in _SHOWN}}


def _lines(entry: QuarantinedEntry) -> Iterator[str]:
    before = "had an earlier row of this key" if entry.held_before is not None else "had no row of this key"
    yield f"  {entry.table}  {entry.key}  commit-ts {entry.commit_ts} ({tso_time(entry.commit_ts)})"
    yield f"    {entry.reason}"
    yield f"    row {entry.row} of {entry.path}; the target {before}; first refused at {entry.first_seen} UTC"
    if entry.retry_asked_by:
        yield f"    to be tried again, by {entry.retry_asked_by}; no consumer has done it yet"
    if entry.retry_answer:
        yield f"    last retry: {entry.retry_answer}"
