"""What an operator decides about a table, and what that changes in what is stored of it. Pure.

A copy of a table *as of* a TSO holds every row and statement of the source up to that TSO (inclusive), and none beyond it. What is
not certain to be in a copy must still come from files, so a copy counts only if nothing can be lost by it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from storage_consumer.model import TableName, folded_name
from storage_consumer.plan.copies import Copies
from storage_consumer.plan.steps import key_of
from storage_consumer.plan.table import EXCLUDED, HALTED, LOST, RUNNING
from storage_consumer.plan.table_words import table_flag

Verb = Literal["hold", "resume", "reload-done", "accept-keys", "moved"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDecision:
    """An operator's decision about one table."""

    table_key: str
    """See `plan.steps.key_of`."""
    verb: Verb
    at: int = 0
    """The TSO as of which the copy is."""
    to: TableName | None = None
    """Where its rows are in the target from now on."""
    decided_at: str = ""
    """By the target's clock, in UTC."""
    decided_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTable:
    """What is stored of one table, as far as decisions depend on it."""

    table_key: str
    name: TableName
    state: str = RUNNING
    checkpoint: int = 0
    follows: bool = True
    error: str = ""
    copies: Copies = field(default_factory=Copies)
    settled: int = 0
    """Version of its last statement that is done or skipped."""
    started: int = 0
    """Version of the last statement that may touch it, was started, and is not known to have ended; 0 for none.

    For a table that can't be tried again (see `needs_copy`), statements whose outcome an operator has given no longer count.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Obeyed:
    """The result of a decision."""

    table: str
    decision: TableDecision
    refusal: str = ""
    """Why it changes nothing; empty where it took effect."""


def refusal(table: StoredTable, decision: TableDecision, *, timed: bool = True) -> str:
    """Return why a decision can't be obeyed now, with the next steps; empty if it can. `timed`: rows carry a commit-ts."""
    if decision.verb in ("hold", "moved"):
        return ""
    if decision.verb in ("resume", "accept-keys"):
        return _needs_a_copy(table)
    if not table.name.table:
        return f"{table.name} is a database, where only statements can wait: see `storage-consumer ddl`"
    return _refused_copy(table, decision.at) or ("" if timed else _untimed(table.name))


def _refused_copy(table: StoredTable, at: int) -> str:
    if table.state not in (HALTED, LOST, EXCLUDED):
        return (
            f"{table.name} is not halted: rows may be written at any time, older ones over a copy. Run "
            f"`storage-consumer table hold {table_flag(table.name)}`, wait until the consumer has obeyed "
            "(`storage-consumer table` shows that), and then reload the table"
        )
    if table.started and needs_copy(table.state):
        return (
            f"a statement with version {table.started} that touches {table.name} was started and is not known to have "
            "ended: it may still change a copy. Make sure that the target no longer runs it (SHOW PROCESSLIST), run "
            "`storage-consumer ddl done` for it (`storage-consumer ddl` lists it), then reload the table, and run "
            "`storage-consumer table reload-done` again"
        )
    if table.started:
        return (
            f"a statement with version {table.started} that touches {table.name} was started and is not known to have "
            f"ended: it may still change a copy. Run `storage-consumer table resume {table_flag(table.name)}`, wait "
            "until the statement is done, hold the table again, and then reload it. If the target already has a "
            "copy, reload all tables that the statement touches: it may move rows of that copy into them"
        )
    least = max(table.checkpoint, table.settled)
    if at < least:
        return (
            f"a copy of {table.name} as of {at} is too old: rows and statements up to {least} have been applied and "
            f"will not be applied again. Reload the table as of {least} or later"
        )
    if at < table.copies.copy_from:
        return (
            f"a copy of {table.name} as of {at} may lack rows that no file holds any more: reload the table as of "
            f"{table.copies.copy_from}, when they were first missed, or later"
        )
    return ""


def _untimed(name: TableName) -> str:
    return (
        f"the rows of {name} carry no commit ts (--allow-missing-commit-ts), so it is unknown which of them a copy "
        "holds: older ones would be applied over it. Have the changefeed write commit ts (`[sink.csv] "
        "include-commit-ts = true`) to a new prefix, reload all tables as of its start, and read that prefix with "
        "its own state schema (--state-schema)"
    )


def may_touch(query: str, name: TableName, table_key: str) -> bool:
    """Return whether a statement of a table, or of a database, may touch a table; any mention of its name counts, so rather too often."""
    database, _, table = table_key.partition("`.`")
    if not name.table:
        return database.strip("`") == name.folded().schema
    return key_of(name) == table_key or (bool(table) and table.rstrip("`") in folded_name(query))


def needs_copy(state: str) -> bool:
    """Return whether a table in this state lacks rows or statements that it will not get, so that trying again does not help."""
    return state in (LOST, EXCLUDED)


def _needs_a_copy(table: StoredTable) -> str:
    if not needs_copy(table.state):
        return ""
    return (
        f"{table.name} lacks rows that no file will bring: reload it, then run `storage-consumer table reload-done "
        f"{table_flag(table.name)} --at TSO`"
    )


def obeyed(table: StoredTable, decision: TableDecision, running: int) -> StoredTable:
    """Return what to store of a table. `running`: what idle tables follow; a table that was decided about no longer does."""
    if decision.verb == "moved":
        return table
    own = max(table.checkpoint, running) if table.follows and table.state != EXCLUDED else table.checkpoint
    stands = replace(table, checkpoint=own, follows=False)
    if decision.verb == "hold":
        return stands if needs_copy(table.state) else replace(stands, state=HALTED, error=held(decision))
    if decision.verb in ("resume", "accept-keys"):
        return replace(stands, state=RUNNING, error="") if table.state == HALTED else stands
    return replace(stands, checkpoint=decision.at, state=RUNNING, error="", copies=_copied(table.copies, decision.at))


def _copied(before: Copies, at: int) -> Copies:
    """Return what is known after a copy: files that were listed after it are still needed."""
    passed = {**before.passed, **before.absent}
    if at < before.listed_at:
        return Copies(copied_at=at, passed=passed, listed=before.listed, listed_at=before.listed_at)
    more = {stream: max(number, passed.get(stream, 0)) for stream, number in before.listed.items()}
    return Copies(copied_at=at, passed={**passed, **more})


def held(decision: TableDecision, why: str = "") -> str:
    """Return why a table is halted that an operator holds; `why`: the refusal of a decision that could not be obeyed."""
    return why or (
        f"held by {decision.decided_by} since {decision.decided_at} UTC, until `storage-consumer table resume` or `storage-consumer "
        "table reload-done`"
    )
