"""The command `quarantine`: which rows the target refused, and what the operator decides about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from storage_consumer.checkpoint.operator_quarantine import QuarantinedEntry
from storage_consumer.cli.answer import Answer
from storage_consumer.cli.target_state import opened
from storage_consumer.driver.lease_holder import user
from storage_consumer.errors import ConfigError
from storage_consumer.plan.table_words import is_meant, refuse_several
from storage_consumer.telemetry import json_text, tso_time

LIST = "list"
_ONLY_HERE = ("action", "table", "key", "all", "yes", "json")


def answer(options: Mapping[str, object], environ: Mapping[str, str]) -> Answer:
    """Return what was shown or decided; `options` are keywords of the target, and those of `_ONLY_HERE`.

    Raises `ConfigError` where no row is meant or the wish is not clear, and `TargetUnavailable`.
    """
    own = {name: str(options[name]) for name in _ONLY_HERE if options.get(name) is not None}
    action, as_json = own.get("action", LIST), "json" in own
    _check(action, own)
    with opened(options, environ, _ONLY_HERE) as desk:
        chosen = _chosen(desk.quarantine.all(), own)
        if action == LIST:
            return Answer(_listed(chosen, as_json=as_json))
        if not chosen:
            raise ConfigError("no such row is in the quarantine; `storage-consumer quarantine` lists those that are")
        if action == "retry":
            desk.quarantine.retry(chosen, user())
        else:
            desk.quarantine.drop(chosen)
    if as_json:
        return Answer(json_text({"decision": action, "rows": len(chosen)}))
    return Answer(_report(action, chosen))


def _check(action: str, own: Mapping[str, str]) -> None:
    """Refuse options that do not go together."""
    if action != LIST and "table" not in own and "all" not in own:
        raise ConfigError(f"quarantine {action} needs --table, or --all for the rows of all tables")
    if "all" in own and "table" in own:
        raise ConfigError("--all means the rows of all tables, so it does not go with --table")
    if "key" in own and "table" not in own:
        raise ConfigError("--key goes with --table")
    if action == "drop" and "yes" not in own:
        raise ConfigError(
            "`quarantine drop` removes rows for good, and their tables stay different from the source: add --yes if that is wanted"
        )


def _chosen(entries: Sequence[QuarantinedEntry], own: Mapping[str, str]) -> list[QuarantinedEntry]:
    """Return the rows that are meant."""
    if "table" in own:
        refuse_several((entry.table for entry in entries), own["table"])
    return [
        entry
        for entry in entries
        if ("table" not in own or is_meant(entry.table, own["table"])) and own.get("key", entry.key) == entry.key
    ]


def _listed(entries: Sequence[QuarantinedEntry], *, as_json: bool) -> str:
    if as_json:
        return json_text({"rows": [_document(entry) for entry in entries]})
    if not entries:
        return "the quarantine is empty\n"
    return "\n".join("\n".join(_lines(entry)) for entry in entries) + "\n"


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


def _report(action: str, chosen: Sequence[QuarantinedEntry]) -> str:
    rows = f"{len(chosen):,} row{'' if len(chosen) == 1 else 's'}"
    if action == "drop":
        tables = ", ".join(sorted({str(entry.table) for entry in chosen}))
        return f"{rows} dropped from the quarantine; the target lacks them in {tables} until the source changes them\n"
    return f"{rows} to be tried again: a running consumer does it in its next round, a stopped one when it starts\n"


def _document(entry: QuarantinedEntry) -> dict[str, object]:
    return {
        "table": str(entry.table),
        "key": entry.key,
        "commit_ts": entry.commit_ts,
        "path": entry.path,
        "row": entry.row,
        "version": entry.version,
        "reason": entry.reason,
        "error_number": entry.error_number,
        "image": entry.image,
        "held_before": entry.held_before,
        "first_seen": entry.first_seen,
        "last_seen": entry.last_seen,
        "retry_asked_by": entry.retry_asked_by,
        "retry_answer": entry.retry_answer,
    }
