"""What an operator decides about a table, and what that changes in what is stored of it. Pure.

A copy of a table *as of* a TSO holds every row and statement of the source up to that TSO
(inclusive), and none beyond it. What is not certain to be in a copy must still come from files, so
a copy counts only if nothing can be lost by it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from storage_consumer.model import TableName, folded_name
from storage_consumer.plan.copies import Copies
from storage_consumer.plan.table_state import TableState
from storage_consumer.plan.table_words import WAS_LEFT_OUT, copy_commands, table_flag
from storage_consumer.sql.parse import parse_ddl
from storage_consumer.sql.tokens import has_words, tokens

Verb = Literal["pause", "resume", "skip", "reload-done", "accept-keys", "moved"]
_PAUSED = ("paused by ", "held by ")
"""How a paused table's stored error begins, now and as earlier versions wrote it."""
_SKIPPED = "skipped by "
"""How a skipped table's stored error begins; the filter stores none of this kind."""


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
    state: str = TableState.RUNNING
    checkpoint: int = 0
    follows: bool = True
    error: str = ""
    copies: Copies = field(default_factory=Copies)
    loading: bool = False
    """Whether a copy of it is being written, whatever its state says meanwhile."""
    joining: bool = False
    """Whether it has not caught up with the others since its last load."""
    last_resolved: int = 0
    """Version of its last statement that is done or skipped."""
    started: int = 0
    """Version of the last started statement that may touch it and has not ended, or 0.

    For a table that can't be tried again (see `needs_copy`), statements whose outcome an operator
    has given no longer count.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Obeyed:
    """The result of a decision."""

    table: str
    decision: TableDecision
    refusal: str = ""
    """Why it changes nothing; empty where it took effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """The result that a decision would have now."""

    decision: TableDecision
    table: StoredTable
    """What would be stored of the table; as it is now where the decision changes nothing."""
    place: TableName
    """Its name in the target then."""
    refusal: str = ""
    """See `Obeyed.refusal`."""


def refusal(table: StoredTable, decision: TableDecision, *, tells_time: bool = True) -> str:
    """Return why a decision must wait, with next steps, or ""; `tells_time`: by commit-ts."""
    if decision.verb in ("pause", "skip") and table.state == TableState.DROPPED:
        return f"the source has dropped {table.name}: nothing of it is written, until a statement creates it again"
    if decision.verb in ("moved", "pause"):
        return ""
    if decision.verb in ("resume", "accept-keys"):
        return _needs_a_copy(table)
    if not table.name.table:
        return f"{table.name} is a database, where only statements can wait: see `storage-consumer ddl`"
    if decision.verb == "skip":
        return ""
    return _refused_copy(table, decision.at) or (
        "" if tells_time else no_commit_ts(str(table.name))
    )


def _refused_copy(table: StoredTable, at: int) -> str:
    if table.state not in (
        TableState.HALTED,
        TableState.LOST,
        TableState.EXCLUDED,
        TableState.LOADING,
    ):
        return (
            f"{table.name} is not halted: rows may be written at any time, older ones over a copy. Run "
            f"`storage-consumer table pause {table_flag(table.name)}`, wait until the consumer has obeyed "
            "(`storage-consumer table` shows that), and then reload the table"
        )
    # Resuming does not help a table that lacks rows: declare the statement done.
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
            "until the statement is done, pause the table again, and then reload it. If the target already has a "
            "copy, reload all tables that the statement touches: it may move rows of that copy into them"
        )
    least = max(table.checkpoint, table.last_resolved)
    if at < least:
        did = "passed over" if table.state == TableState.EXCLUDED else "applied"
        return (
            f"a copy of {table.name} as of {at} is too old: rows and statements up to {least} have been {did} and "
            f"will not be applied again. Reload the table as of {least} or later"
        )
    if at < table.copies.copy_from:
        return (
            f"a copy of {table.name} as of {at} may lack rows that no file holds any more: reload the table as of "
            f"{table.copies.copy_from}, when they were first missed, or later"
        )
    return ""


def no_commit_ts(whose: str) -> str:
    """Return why rows without commit-ts allow no copy, and the remedy; `whose`: table, bucket."""
    return (
        f"the rows of {whose} carry no commit ts (--allow-missing-commit-ts), so it is unknown which of them a copy "
        "holds: older ones would be applied over it. Have the changefeed write commit ts (`[sink.csv] "
        "include-commit-ts = true`) to a new prefix, reload all tables as of its start, and read that prefix with "
        "its own state schema (--state-schema)"
    )


def may_touch(query: str, name: TableName, table: TableName) -> bool:
    """Return whether a statement of `name` may touch `table`: any mention of its name counts.

    A view changes nothing of what it reads.
    """
    own, other, found = name.folded(), table.folded(), tokens(query)
    if not own.table:
        return other.schema == own.schema
    if found and found[0].upper == "CREATE" and has_words(found, "VIEW", depth=0):
        return own == other
    # In backquotes, as TiCDC writes names, a backquote in a name is doubled.
    spelled = (other.table, other.table.replace("`", "``"))
    return own == other or (
        bool(other.table) and any(text in folded_name(query) for text in spelled)
    )


def leads_to(query: str, own: TableName) -> bool:
    """Return whether a statement in table `own`'s folder is its own, no step of a rename."""
    return parse_ddl(query, own).subject.folded() == own.folded()


def needs_copy(state: str) -> bool:
    """Return whether a table lacks what it will not get, so that retrying does not help."""
    return state in (TableState.LOST, TableState.EXCLUDED)


def _needs_a_copy(table: StoredTable) -> str:
    if not needs_copy(table.state):
        return ""
    why = f"is {table.error}, and lacks" if is_skipped(table.state, table.error) else "lacks"
    return (
        f"{table.name} {why} rows that no file will bring: give it a copy by `{copy_commands(table.name)[0]}`, or, after one that you made "
        f"yourself, by `{copy_commands(table.name)[1]}`"
    )


def obeyed(table: StoredTable, decision: TableDecision, running: int) -> StoredTable:
    """Return what to store of a table that no longer follows `running` as idle tables do."""
    if decision.verb == "moved":
        return table
    # A table that follows has reached the feed's checkpoint, though its own row may be older.
    goes_along = table.follows and (table.state != TableState.EXCLUDED or decision.verb == "pause")
    # What is told to others did not count one that was loaded, and counts it now that it is left
    # out: that must not fall.
    goes_along |= decision.verb == "skip" and (table.loading or table.joining)
    ends_skip = decision.verb == "pause" and is_skipped(table.state, table.error)
    # All up to there has been passed over.
    goes_along |= ends_skip
    own = max(table.checkpoint, running) if goes_along else table.checkpoint
    stands = replace(table, checkpoint=own, follows=False)
    if decision.verb == "pause":
        # What is passed over of a skipped table ends here, so that a copy can be made in peace: as
        # where a wider filter takes a table in.
        if ends_skip:
            return replace(stands, error=WAS_LEFT_OUT)
        # A pause must not hide that the table lacks rows.
        return (
            stands
            if needs_copy(table.state)
            else replace(stands, state=TableState.HALTED, error=held(decision))
        )
    if decision.verb == "skip":
        return replace(stands, state=TableState.EXCLUDED, error=skipped(decision))
    if decision.verb in ("resume", "accept-keys"):
        # A table that is being loaded goes on with that.
        goes_on = TableState.LOADING if table.loading else TableState.RUNNING
        return (
            replace(stands, state=goes_on, error="") if table.state == TableState.HALTED else stands
        )
    return replace(
        stands,
        checkpoint=decision.at,
        state=TableState.RUNNING,
        error="",
        copies=table.copies.renewed(decision.at),
    )


def held(decision: TableDecision, why: str = "") -> str:
    """Return why a paused table is halted; `why`: the refusal of an unobeyed decision."""
    return why or (
        f"paused by {decision.decided_by} since {_since(decision)}, until `storage-consumer table resume` or `storage-consumer load`"
    )


def skipped(decision: TableDecision) -> str:
    """Return what is stored as the error of a table that an operator leaves out."""
    return (
        f"{_SKIPPED}{decision.decided_by} since {_since(decision)}, until `storage-consumer load`"
    )


def is_skipped(state: str, error: str) -> bool:
    """Return whether a stored table is left out by an operator, rather than by the filter."""
    return state == TableState.EXCLUDED and error.startswith(_SKIPPED)


def lacks_past(state: str, error: str) -> bool:
    """Return whether a left-out, halted table is taken again and lacks what was passed over.

    Whatever else halts it may have given it another error since; one that stays left out has none,
    or says who skips it.
    """
    return state == TableState.EXCLUDED and bool(error) and not is_skipped(state, error)


def shown_state(state: str, error: str, *, waits: bool = False) -> str:
    """Return a stored table's state as a word; `waits`: as the last writer reported, unstored."""
    if waits and state == TableState.RUNNING:
        return TableState.WAITING
    if state == TableState.HALTED and error.startswith(_PAUSED):
        return TableState.PAUSED
    # Taken again, it is halted until it has a copy.
    if lacks_past(state, error):
        return TableState.HALTED
    return TableState.SKIPPED if is_skipped(state, error) else state


def _since(decision: TableDecision) -> str:
    """Return when a decision was made, to the second."""
    return f"{decision.decided_at.partition('.')[0]} UTC"
