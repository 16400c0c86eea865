"""The command `quarantine`: which rows the target refused, and what the operator decides about them."""

from __future__ import annotations

from collections.abc import Sequence

from storage_consumer.checkpoint.findings import QuarantinedEntry
from storage_consumer.cli.answer import Answer
from storage_consumer.cli.verbs_of_operators import QuarantineFlags
from storage_consumer.driver.lease_holder import user
from storage_consumer.errors import ConfigError
from storage_consumer.operating.session import Session
from storage_consumer.plan.table_words import meant
from storage_consumer.telemetry import json_text, tso_time

LIST = "list"
_SHOWN = (
    *("key", "commit_ts", "path", "row", "version", "reason", "error_number", "image", "held_before"),
    *("first_seen", "last_seen", "retry_asked_by", "retry_answer"),
)
"""Fields of a row that a document has."""


def answer(own: QuarantineFlags, session: Session) -> Answer:
    """Return what was shown or decided.

    Raises `ConfigError` where no row is meant or the wish is not clear, and `TargetUnavailable`.
    """
    action = own.action or LIST
    _check(action, own)
    with session.state() as desk:
        rows = desk.quarantine.all()
        chosen = meant(own.table, rows, lambda entry: entry.table) if own.table else rows
        chosen = [entry for entry in chosen if own.key in (None, entry.key)]
        if action == LIST:
            return Answer(_listed(chosen, as_json=own.json))
        if not chosen:
            raise ConfigError("no such row is in the quarantine; `storage-consumer quarantine` lists those that are")
        if action == "retry":
            desk.quarantine.retry(chosen, user())
        else:
            desk.quarantine.drop(chosen)
    if own.json:
        return Answer(json_text({"decision": action, "rows": len(chosen)}))
    count = f"{len(chosen):,} row{'' if len(chosen) == 1 else 's'}"
    if action == "retry":
        when = "a running consumer does it in its next round, a stopped one when it starts"
        return Answer(f"{count} to be tried again: {when}\n")
    tables = ", ".join(sorted({str(entry.table) for entry in chosen}))
    return Answer(
        f"{count} dropped from the quarantine; the target lacks them in {tables} until the source changes them\n"
    )


def _check(action: str, own: QuarantineFlags) -> None:
    """Refuse options that do not go together."""
    if action != LIST and not own.table and not own.all:
        raise ConfigError(f"quarantine {action} needs --table, or --all for the rows of all tables")
    if own.all and own.table:
        raise ConfigError("--all means the rows of all tables, so it does not go with --table")
    if own.key and not own.table:
        raise ConfigError("--key goes with --table")
    if action == "drop" and not own.yes:
        raise ConfigError(
            "`quarantine drop` removes rows for good, and their tables stay different from the source: add --yes if that is wanted"
        )


def _listed(entries: Sequence[QuarantinedEntry], *, as_json: bool) -> str:
    if as_json:
        return json_text({"rows": [_document(entry) for entry in entries]})
    if not entries:
        return "the quarantine is empty\n"
    return "\n".join("\n".join(_lines(entry)) for entry in entries) + "\n"


def _document(entry: QuarantinedEntry) -> dict[str, object]:
    """Return a row as JSON takes it; the keys are part of the program's interface."""
    return {"table": str(entry.table), **{name: getattr(entry, name) for name in _SHOWN}}


def _lines(entry: QuarantinedEntry) -> list[str]:
    before = "had an earlier row of this key" if entry.held_before is not None else "had no row of this key"
    lines = [
        f"  {entry.table}  {entry.key}  commit-ts {entry.commit_ts} ({tso_time(entry.commit_ts)})",
        f"    {entry.reason}",
        f"    row {entry.row} of {entry.path}; the target {before}; first refused at {entry.first_seen} UTC",
    ]
    if entry.retry_asked_by:
        lines.append(f"    to be tried again, by {entry.retry_asked_by}; no consumer has done it yet")
    return lines + ([f"    last retry: {entry.retry_answer}"] if entry.retry_answer else [])
