"""The command `table`: which tables stand still, and what the operator decides about one."""

from __future__ import annotations

from storage_consumer.checkpoint.tables import TableRow
from storage_consumer.cli.answer import OBEYED, Answer, told
from storage_consumer.cli.screen_layout import message, table, wrapped
from storage_consumer.cli.verbs import TableFlags
from storage_consumer.driver.lease import user
from storage_consumer.errors import ConfigError
from storage_consumer.plan.copy_proof import is_in_future
from storage_consumer.plan.table_decisions import TableDecision, is_skipped, refusal
from storage_consumer.plan.table_state import TableState
from storage_consumer.plan.table_words import known, named
from storage_consumer.session import Session
from storage_consumer.telemetry import tso_time

_INDENT = " " * 4
_PROMISES = {
    "pause": "it is paused, also across restarts, until `table resume` or `load` (one that was skipped: until `load`); the checkpoint stays with it",
    "skip": "it is left out, also across restarts: neither its rows nor its statements are applied, and the checkpoint goes on "
    "without it. A copy brings it back: `load`",
    "resume": "it is tried again from where it stopped",
    "accept-keys": "its unique keys in the target are taken as they are, and it is tried again",
    "moved": "its rows are expected there; give the route that leads to it",
    "reload-done": "it continues after the copy: rows and statements up to there are neither applied nor waited for",
}


def answer(own: TableFlags, session: Session) -> Answer:
    """Return what was shown or decided.

    Raises `ConfigError` for an unknown table, or for a decision that its state does not allow, and `TargetUnavailable`.
    """
    _check(own)
    with session.state() as desk:
        rows = desk.decisions.tables()
        meant = known(own.table, rows, lambda row: row.stored.name) if own.table else []
        if own.action == "list":
            shown = meant or [row for row in rows if own.all or _stands_still(row)]
            left_out = 0 if own.all or meant else sum(map(_is_left_out, rows))
            lines = [*map(_line, shown)] or ["no table is halted, paused or waiting"]
            lines += [f"{left_out:,} skipped or left out by the filter: add --all"] if left_out else []
            return told(own, {"tables": [_document(row) for row in shown]}, lines)
        (row,) = meant
        decision = TableDecision(
            table_key=row.stored.table_key,
            verb=own.action,  # type: ignore[arg-type]  # checked
            at=own.at or 0,
            to=named("--to", own.to, whole=True) if own.to else None,
            decided_by=user(),
        )
        at = f" as of {decision.at} ({tso_time(decision.at)})" if decision.at else ""
        # By the target's clock, since this machine's may be wrong; a TSO in the future would have all rows until then left out.
        if is_in_future(decision.at, desk.decisions.now_ms()):
            raise ConfigError(
                f"--at {decision.at} ({tso_time(decision.at)}) is in the future; give the TSO of the copy"
            )
        # For an immediate answer only: the consumer judges again, under its lock, when it obeys.
        if why := refusal(desk.decisions.judged(row.stored), decision):
            raise ConfigError(why)
        outcome = desk.decisions.decide_on(row, decision)
    document = {"outcome": outcome, "decision": own.action, "at": decision.at, "table": str(row.stored.name)}
    end = "but not obeyed yet; nothing was changed"
    said = (
        f"already decided: {own.action}{at}, {end}"
        if outcome == "same"
        else f"decided: {own.action}{at}; {_PROMISES[own.action]}"
    )
    return told(own, document, [f"{row.stored.name}: {said}", OBEYED])


def _check(own: TableFlags) -> None:
    """Refuse options that do not go together."""
    if own.action != "list" and not own.table:
        raise ConfigError(
            f"table {own.action} needs --table; `storage-consumer table` lists those that are halted or waiting"
        )
    if (own.action == "reload-done") != (own.at is not None):
        raise ConfigError("`table reload-done` needs --at, the TSO of the copy; no other verb takes it")
    if (own.action == "moved") != bool(own.to):
        raise ConfigError("`table moved` needs --to, the table's name in the target; no other verb takes it")
    if own.all and (own.action != "list" or own.table):
        raise ConfigError("--all goes with `table list`, and not with --table")


def _stands_still(row: TableRow) -> bool:
    """Return whether an operator may want to see the table: it is stopped, or a decision about it waits or had no effect."""
    # A decision that could not be obeyed is shown until another one replaces it.
    waits = row.decision is not None and (not row.obeyed or bool(row.refusal))
    return waits or not (_is_left_out(row) or row.shown in (TableState.RUNNING, TableState.DROPPED))


def _is_left_out(row: TableRow) -> bool:
    """Return whether the table is left out on purpose; one that was left out until now, and lacks rows, has an error."""
    stored = row.stored
    return stored.state == TableState.EXCLUDED and (not stored.error or is_skipped(stored.state, stored.error))


def _line(row: TableRow) -> str:
    """Return one table as a few lines."""
    stored, decision = row.stored, row.decision
    at = f"checkpoint {row.reached} ({tso_time(row.reached)})"
    lines = list(table([(str(stored.name), row.shown, at)], "  "))
    lines += message(said, _INDENT) if (said := stored.error or row.waits) else []
    if copy_from := stored.copies.copy_from:
        lines += wrapped(f"the copy has to be as of {copy_from} ({tso_time(copy_from)}) or later", _INDENT)
    if decision is not None:
        at = f" --at {decision.at}" if decision.at else ""
        end = f"not obeyed: {row.refusal}" if row.refusal else "obeyed" if row.obeyed else "no consumer has seen it yet"
        said = f"decided at {decision.decided_at} UTC by {decision.decided_by}: {decision.verb}{at}; {end}"
        lines += wrapped(said, _INDENT)
    return "\n".join(lines)


def _document(row: TableRow) -> dict[str, object]:
    stored, decision = row.stored, row.decision
    return {
        "table": str(stored.name),
        "state": row.shown,
        "checkpoint": row.reached,
        "error": stored.error or row.waits,
        "copy_from": stored.copies.copy_from,
        "copied_at": stored.copies.copied_at,
        "decided": decision
        and {
            "verb": decision.verb,
            "at": decision.at,
            "by": decision.decided_by,
            "obeyed": row.obeyed,
            "refusal": row.refusal,
        },
    }
