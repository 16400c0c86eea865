"""Whether a table can be compared now, and what a comparison finds: stored and shown records."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Literal

import msgspec

from storage_consumer.model import TableName
from storage_consumer.plan.table_decisions import lacks_past
from storage_consumer.plan.table_state import TableState
from storage_consumer.plan.table_words import copy_commands, table_flag
from storage_consumer.tso import is_settled

KEPT_ROWS = 100
"""Most differing rows of a table that are kept with both images; the rest is counted."""


class VerifyOutcome(StrEnum):
    """What is known of a table after a comparison."""

    EQUAL = "equal"
    DIFFERENT = "different"
    NOT_COMPARED = "not-compared"
    """It could not be compared; the reason says why."""
    UNFINISHED = "unfinished"
    """The comparison was broken off, and can be resumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowDifference:
    """A row that is not the same on both sides."""

    kind: Literal["differs", "missing", "extra"]
    """``missing``: only the source has it; ``extra``: only the target has it."""
    key: Mapping[str, str]
    """Column → value; empty for a table without a key."""
    source: Mapping[str, str | None] | None = None
    """The source's row: column → text, None for NULL; only differing columns if both have it."""
    target: Mapping[str, str | None] | None = None
    count: int = 1
    """How many such rows; more than one only in a table without a key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of a table's keys that was compared at one commit-ts."""

    checkpoint: int
    chunks: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TableResult:
    """What was found in one table."""

    table: TableName
    """The name at the source."""
    target: TableName
    outcome: VerifyOutcome
    checkpoint: int = 0
    """The commit-ts at which both sides were read; the last one, if `spans` has several."""
    how: str = "full"
    """``full`` or ``quick``; ``sample`` in what an earlier build has stored."""
    rows: int = 0
    """Rows of the source that were compared."""
    differing: int = 0
    missing: int = 0
    extra: int = 0
    differences: tuple[RowDifference, ...] = ()
    """The first ones, with both images."""
    structure: tuple[str, ...] = ()
    """What differs in the structure, in sentences."""
    alike: tuple[str, ...] = ()
    """Names of the equivalences under which the structures are the same."""
    notes: tuple[str, ...] = ()
    reason: str = ""
    """Why it was not compared, and what to do."""
    heal: str = ""
    """The command that makes the target equal."""
    repair: tuple[str, ...] = ()
    """The statements that make its rows equal, if they were asked for."""
    spans: tuple[Span, ...] = ()
    """At which commit-ts how much was compared, where it was more than one."""
    seconds: float = 0.0
    run: str = ""
    """Names the run of `verify` that compared it."""
    after: tuple[str, ...] | None = None
    """Of an unfinished comparison: the last key that was compared, in hexadecimal digits."""
    shapes: str = ""
    """Fingerprint of both structures in the comparison; `after` means nothing with others."""

    @property
    def different_rows(self) -> int:
        """How many rows are not the same."""
        return self.differing + self.missing + self.extra

    def document(self) -> dict[str, Any]:
        """Return the result as JSON takes it; the keys are part of the program's interface."""
        found = asdict(self)
        found["table"], found["target"] = str(self.table), str(self.target)
        found["names"] = [asdict(self.table), asdict(self.target)]
        return found


def counting(result: TableResult, before: VerifyOutcome | None, run: str) -> VerifyOutcome | None:
    """Return the outcome that counts from a result on; None where it is no news.

    `before`: the outcome that counted so far, `run`: of what is stored. What the numbers of rows do
    not show is no news, and neither is a comparison that did not come about: a difference that all
    rows have shown stays. It counts as one, too, while another comparison is not finished, and
    after one that had begun before the difference was found.
    """
    if result.outcome is VerifyOutcome.DIFFERENT or before is not VerifyOutcome.DIFFERENT:
        return result.outcome
    begins = result.outcome is VerifyOutcome.UNFINISHED and not result.spans
    if (
        result.how != "full"
        or result.outcome is VerifyOutcome.NOT_COMPARED
        or not (begins or result.run == run)
    ):
        return None
    return VerifyOutcome.DIFFERENT if result.outcome is VerifyOutcome.UNFINISHED else result.outcome


def says_more(doubt: TableResult, known: TableResult) -> bool:
    """Return whether a doubt outranks what is known of a table; a final result says the most."""
    return not (
        known.outcome is VerifyOutcome.DIFFERENT
        and (known.checkpoint or known.reason == doubt.reason)
    )


def result_from(document: Mapping[str, Any]) -> TableResult:
    """Return the result in `TableResult.document`, ignoring what a newer program added."""
    table, target = document["names"]
    return msgspec.convert({**document, "table": table, "target": target}, TableResult)


NOT_AT_SOURCE = "the source does not have the table"
"""What is said of the structure of a table that only the target has."""


def heal_command(result: TableResult, reaching: Sequence[str]) -> str:
    """Return the shell lines that repair a table that differs; empty if nothing is to be done.

    `reaching`: the flags that lead to the target. What a person has to decide or to do stands in
    comments.
    """
    if not result.different_rows and not result.structure:
        return ""
    flag, reach = table_flag(result.table), shlex.join(reaching)
    if NOT_AT_SOURCE in result.structure:
        return (
            "# Is this the right source? If it is, drop the table in the target, and leave it out:\n"
            + f"storage-consumer table skip {flag} {reach}".rstrip()
        )
    load, done = copy_commands(result.table)
    lines = [
        f"storage-consumer table pause {flag} {reach}",
        "# When it is paused, export the table to URI, and load it:",
    ]
    if result.structure:
        lines.append(
            "# (what of the structure differs: first change it in the target as the source has it, or drop the target's table)"
        )
    lines.append(f"{load} {reach}")
    lines.append(
        f"# Or have it exported, to the empty folder URI: {load} --source SOURCE --upstream-uri BUCKET {reach}"
    )
    lines.append(f"# Or, after a copy that you made yourself, with its TSO: {done} {reach}")
    if not result.structure and all(each.key for each in result.differences):
        mend = f"storage-consumer verify --repair {flag} --source SOURCE {reach}"
        lines.append(f"# Or write only the rows that differ, while the table goes on: {mend}")
    return "\n".join(line.rstrip() for line in lines)


def renamed(result: TableResult, new: TableName) -> TableResult:
    """Return what was found of a table, now that it has another name."""
    old, flag = table_flag(result.table), table_flag(new)
    return replace(result, table=new, target=new, heal=result.heal.replace(f" {old} ", f" {flag} "))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLook:
    """What one snapshot of the target's state says about a table."""

    table_key: str
    table: TableName
    """The name at the source."""
    target: TableName
    state: str
    """See `plan.table_state.TableState`."""
    checkpoint: int
    """Commit-ts up to which it is applied, inclusive; the running tables' if it follows them."""
    noted: int = 0
    """Commit-ts up to which windows may have written its rows."""
    statement: int = 0
    """Version of the last started statement that may touch it and has not ended; 0 for none."""
    statements: str = ""
    """A mark of the journal; if it changes, a statement was begun or ended meanwhile."""
    quarantined: int = 0
    is_loaded: bool = True
    """Whether it has all rows of the copy that it goes on with, if any."""
    writer: bool = False
    """Whether a process holds the lease."""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a table cannot be compared as it is now."""

    why: str
    passes: bool
    """Whether it may pass by itself soon."""


def obstacle(look: TableLook) -> Obstacle | None:
    """Return why a table cannot be compared in this snapshot; None if rows match its checkpoint."""
    stands, moves = _stands(look), moves_on(look)
    if look.state == TableState.RUNNING and look.error:
        return Obstacle(f"it is a view that is left out: {look.error}", passes=False)
    if lacks_past(look.state, look.error):
        return Obstacle(f"it is halted: {look.error}", passes=False)
    if look.statement:
        return Obstacle(
            f"the statement of version {look.statement} may touch it and is not known to have ended: see "
            "`storage-consumer ddl`",
            passes=look.writer,
        )
    if not look.is_loaded:
        return Obstacle("it is being loaded from a copy: see `storage-consumer load`", passes=moves)
    if not look.checkpoint:
        return Obstacle("nothing of it is applied yet", passes=False)
    if not is_settled(look.noted, look.checkpoint):
        way = (
            "see `storage-consumer table`, and verify it once it has gone on"
            if stands
            else "run `storage-consumer run`"
        )
        return Obstacle(
            f"a job that has not ended may have written rows up to {look.noted}, beyond its checkpoint {look.checkpoint}"
            + ("" if moves else f": {way}"),
            passes=moves,
        )
    return None


def moves_on(look: TableLook) -> bool:
    """Return whether a table's checkpoint will move: not if it is halted or nobody writes it."""
    return look.writer and not _stands(look)


def _stands(look: TableLook) -> bool:
    return look.state in (TableState.HALTED, TableState.LOST)


def is_compared(state: str, error: str) -> bool:
    """Return whether a table should equal the source or else be named; `error`: its halt."""
    return state not in (TableState.DROPPED, TableState.EXCLUDED) or lacks_past(state, error)
