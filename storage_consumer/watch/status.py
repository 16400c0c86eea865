"""The status of a feed: what an operator asks first. Judged from a snapshot of the state; pure.

Is it healthy, how far behind is it, which tables stopped, and which command comes next?
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from storage_consumer.clock import counted, data_size, some_of, span
from storage_consumer.model import TableName
from storage_consumer.plan.loads import Load, LoadPhase
from storage_consumer.plan.selection import AT_A_START
from storage_consumer.plan.table_decisions import Verb, needs_copy
from storage_consumer.plan.table_state import STOPPED, TableState
from storage_consumer.plan.table_words import OR_BY_HAND
from storage_consumer.rows.comparison import TableResult, VerifyOutcome
from storage_consumer.watch.report import (
    AHEAD,
    OVERDUE,
    Health,
    Phase,
    Report,
    Snapshot,
    StoredStatement,
    Table,
    beyond_source,
    is_late,
    lag_of,
    seconds_ahead,
    verdict,
)

STALLED = 300.0
"""Seconds that the bucket's checkpoint may lie back before the source counts as stalled. TiCDC
moves it every few seconds.
"""
_BEHIND = (*STOPPED, TableState.WAITING, TableState.LOADING)
_WRITABLE = (
    "the target is read-only, so that no process can have the lease. Point at its primary, or make it writable; a process that "
    "still runs goes on by itself, else start `storage-consumer run`"
)
_NAMED = 5
"""Most tables that a reason names."""
_AGAIN = "`storage-consumer table resume"
"""How a message names the command, without the options that lead to the target."""
_KILL = re.compile(r"`(KILL \d+)`")
_PASSWORD_FILE = re.compile(r" --downstream-password-file ('(?:[^']|'\\'')*'|\S+)")
_BEGINNING = re.compile(
    r"(?<!`)(?=storage-consumer (?:ddl|load|table|quarantine|rebind|inspect|run) )"
)
# What ends a command may stand inside of a quoted word, such as the name of a table. A word that is
# never closed is none of ours.
_COMMAND = re.compile(
    r"(?:\$'(?:[^'\\]|\\.)*'|'[^']*'|\"[^\"]*\"|\$(?!')|[^'\"$\n.; ]++|[.; ])*?(?= -- |[.;] |\.?$)"
)
_TARGET = re.compile(r" --downstream-uri ('(?:[^']|'\\'')*'|\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """A table that an operator should know of."""

    name: TableName
    state: TableState
    """``halted``, ``lost``, ``paused`` or ``waiting``, or ``running`` if only a decision about it
    waits.
    """
    checkpoint: int
    lag: float | None
    """Seconds since the time of its checkpoint; None without one."""
    reason: str
    decision: str = ""
    """The operator's decision that no consumer has seen yet, or that was refused; with who and
    when.
    """
    next_steps: tuple[str, ...] = ()
    """Commands, the likeliest first."""

    @property
    def meanings(self) -> dict[str, str]:
        """Return commands' purposes in the reason: command → words such as ``to skip it``."""
        ways = self.reason.rpartition("Next steps: ")[2].rstrip(".").split(" -- ")
        found = (way.rpartition(": ") for way in ways)
        return {
            command: words.rpartition(". ")[2]
            for words, _, command in found
            if words and command in self.next_steps
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The status of a feed."""

    health: Health
    reasons: tuple[str, ...]
    """Why it is not healthy, and what else is odd, in sentences; the first one is the reason of
    `health` unless that is healthy.
    """
    snapshot: Snapshot
    lag: float | None
    """Seconds since the time of the checkpoint of all tables; None before the first round."""
    lag_running: float | None
    """The same for the tables that are not stopped."""
    source_lag: float | None
    """Seconds since the time of the bucket's checkpoint: what TiCDC itself is behind. It is part of
    the others.
    """
    seconds_left: float | None
    """Until the running round ends, at its pace so far; None if that is not known."""
    counts: dict[str, int]
    """State → number of tables; those that the source dropped are left out."""
    tables: tuple[TableStatus, ...]
    """Those that are stopped or waiting, or about which a decision waits."""
    statements: tuple[StoredStatement, ...]
    """Those that run, wait or failed."""

    @property
    def text(self) -> str:
        """The health with its first reason, or a healthy feed's number of tables and checkpoint."""
        if self.health != Health.HEALTHY:
            return f"{self.health}: {self.reasons[0]}"
        taken, others = _taken(self.counts)
        lag = f"{span(self.lag)} behind now" if self.lag is not None else "no checkpoint yet"
        return f"{self.health}: {counted(taken, 'table')}, {lag}{others}"

    @property
    def report(self) -> Report | None:
        """What the writer last said of itself."""
        return self.snapshot.report

    @property
    def is_reported(self) -> bool:
        """Whether the report tells what the writer is doing now."""
        return self.snapshot.reported is not None


def commands_in(text: str) -> tuple[str, ...]:
    """Return the commands of this program in a text; those in backquotes are only named."""
    # Most of ten thousand messages may hold none.
    if "storage-consumer " not in text:
        return ()
    # Cut first, so that none reaches into the next one.
    found = (_COMMAND.match(part) for part in _BEGINNING.split(text)[1:])
    return tuple(command[0].rstrip(".") for command in found if command)


def given_commands(message: str) -> tuple[str, ...]:
    """Return a message's commands to paste, but not those in quotes of a file or the target.

    A message ends with its last command, and what it quotes stands before. All of its commands lead
    to one target, whose address nobody knows who only writes into the bucket.
    """
    found = commands_in(message)
    if not found or not message.rstrip(". ").endswith(found[-1].rstrip(". ")):
        return ()
    return tuple(command for command in found if _target(command) == _target(found[-1]))


def _target(command: str) -> str:
    return found[1] if (found := _TARGET.search(command)) else ""


def judged(
    snapshot: Snapshot,
    command: Callable[[Verb, TableName], str],
    *,
    max_lag: float | None = None,
    needs_writer: bool = True,
) -> Status:
    """Return the status of a feed.

    `command` returns the command for a verb on a table, `max_lag` is the most seconds that the
    checkpoint may lie back, and without `needs_writer` it is no fault that nobody writes at the
    moment.
    """
    # By folded name what comparisons found of the tables that are not equal to the source.
    different = {
        each.table.folded(): each
        for each in snapshot.verified
        if each.outcome is VerifyOutcome.DIFFERENT
    }
    tables = tuple(_tables(snapshot, command, different))
    stopped = [each for each in tables if each.state in STOPPED]
    late = _late(snapshot, max_lag)
    lonely = needs_writer and not snapshot.writer
    health = verdict(
        is_alone=lonely,
        is_retrying=snapshot.reported is not None and snapshot.reported.phase == Phase.RETRYING,
        has_stopped=bool(stopped),
        is_unequal=bool(different) or any(table.quarantined for table in snapshot.tables),
        ahead=seconds_ahead(_claimed(snapshot), snapshot.now),
        is_late=bool(late),
    )
    # One that is lost is halted too.
    found = Counter(
        TableState.HALTED if each.state == TableState.LOST else snapshot.shown(each)
        for each in snapshot.tables
        if each.state != TableState.DROPPED
    )
    counts = {str(state): count for state, count in sorted(found.items())}
    return Status(
        health=health,
        reasons=tuple(_reasons(snapshot, stopped, counts, different, late, lonely=lonely)),
        snapshot=snapshot,
        lag=lag_of(snapshot.checkpoint, snapshot.now),
        lag_running=lag_of(snapshot.checkpoint_running, snapshot.now),
        source_lag=lag_of(snapshot.storage_checkpoint, snapshot.now),
        seconds_left=snapshot.report.work.seconds_left
        if snapshot.report and snapshot.report.work
        else None,
        counts=counts,
        tables=tables,
        statements=snapshot.statements,
    )


def _taken(counts: Mapping[str, int]) -> tuple[int, str]:
    """Return how many tables are replicated, and words for those left out; empty for none."""
    out = sum(counts.get(state, 0) for state in (TableState.EXCLUDED, TableState.SKIPPED))
    return sum(counts.values()) - out, f"; {out:,} left out" if out else ""


def _reasons(
    snapshot: Snapshot,
    stopped: list[TableStatus],
    counts: Mapping[str, int],
    different: Mapping[TableName, TableResult],
    late: str,
    *,
    lonely: bool,
) -> Iterator[str]:
    """Yield reasons and oddities; `counts`: see `Status`, `late`: what is wrong with the lag."""
    report = snapshot.report
    if lonely:
        last = f"; {snapshot.last_writer} was the last" if snapshot.last_writer else ""
        how = "; it ended" if report and report.phase == Phase.ENDED else ""
        error = f". Its error was: {report.retry}" if how and report and report.retry else ""
        do = _WRITABLE if snapshot.read_only else "start `storage-consumer run`"
        yield f"nobody writes{last}{how}: {do}{error}"
    if (now := snapshot.reported) is not None and now.phase == Phase.RETRYING:
        yield f"the writer has been retrying for {span(now.phase_seconds + snapshot.report_age)}: {now.retry}"
    if stopped:
        paused = sum(each.state == TableState.PAUSED for each in stopped)
        taken, others = _taken(counts)
        by_itself, of = len(stopped) - paused, f"of {taken:,} tables"
        numbers = [f"{by_itself:,} {of} halted"] if by_itself else []
        numbers += [f"{paused:,} {of} paused by an operator"] if paused else []
        yield f"{', '.join(numbers)}; the others go on{others}"
    if unequal := [table for table in snapshot.tables if table.quarantined]:
        rows = sum(table.quarantined for table in unequal)
        yield f"{counted(rows, 'row')} of {counted(len(unequal), 'table')} in the quarantine: the target is not equal to the source there"
    found = [str(each.table) for each in different.values() if each.checkpoint]
    # Nobody has compared these since something made them doubtful.
    doubted = [str(each.table) for each in different.values() if not each.checkpoint]
    verify = (
        [f"`verify` found {counted(len(found), 'table')} different: {some_of(found, _NAMED)}"]
        if found
        else []
    )
    if doubted:
        tables = f"the rows of {counted(len(doubted), 'table')} are in doubt"
        verify += [f"{tables} until `verify` or a copy: {some_of(doubted, _NAMED)}"]
    if verify:
        yield "; ".join(verify)
    ahead = seconds_ahead(_claimed(snapshot), snapshot.now)
    if ahead > AHEAD:
        is_believed = _claimed(snapshot) == snapshot.storage_checkpoint
        then = (
            "no lag is to be relied on"
            if is_believed
            else "it is not believed, and nothing new is applied"
        )
        yield f"the bucket's checkpoint is {span(ahead)} ahead of the target's clock, so {then}: set the clock that is wrong"
    if late:
        yield late
    if snapshot.writer and snapshot.reported is None:
        yield (
            f"the writer has the lease, but has said nothing of itself for {span(snapshot.report_age)}"
            if report is not None
            else f"the writer has the lease, but {snapshot.state_schema} holds no report of it that this program can read: it has just "
            "started, or is of another version; whether it gets ahead shows only in the checkpoint"
        )
    stalled = _source_lag(snapshot)
    if stalled is not None and stalled > STALLED and snapshot.writer:
        yield (
            f"the bucket's checkpoint is {span(stalled)} old: look at the changefeed, which this program cannot be "
            "ahead of"
        )
    if snapshot.writer and not snapshot.checkpoint:
        yield "no round has ended yet"


def _late(snapshot: Snapshot, limit: float | None) -> str:
    """Return how far the checkpoint is beyond what is allowed; empty if it is not."""
    if limit is None:
        beyond = (
            beyond_source(snapshot.checkpoint_running, snapshot.now, _source_lag(snapshot)) or 0.0
        )
        allowed = f"and more than {span(OVERDUE)} is late where no limit is given"
        return (
            f"the tables are {span(beyond)} further behind than the bucket, {allowed}"
            if beyond > OVERDUE
            else ""
        )
    # A table that catches up after its load counts for no checkpoint, but is behind all the same.
    if not is_late(snapshot.slowest, snapshot.now, limit):
        return ""
    behind = lag_of(snapshot.slowest, snapshot.now)
    so_far = f"{span(behind)} old" if behind is not None else "not there yet"
    is_of_all = snapshot.slowest == snapshot.checkpoint
    whose = "the checkpoint" if is_of_all else "that of a table that catches up after its load"
    return f"{whose} is {so_far}, and at most {span(limit)} is allowed"


def _source_lag(snapshot: Snapshot) -> float | None:
    """Return how old the bucket's checkpoint was when it was read, as far as anybody said."""
    report = snapshot.reported
    if report is None or report.source_checkpoint < snapshot.storage_checkpoint:
        return lag_of(snapshot.storage_checkpoint, snapshot.now)
    return report.source_lag(snapshot.now, snapshot.report_age)


def _claimed(snapshot: Snapshot) -> int:
    """Return the bucket's checkpoint, be it believed or not."""
    return (
        snapshot.reported and snapshot.reported.refused_checkpoint
    ) or snapshot.storage_checkpoint


def _tables(
    snapshot: Snapshot,
    command: Callable[[Verb, TableName], str],
    different: Mapping[TableName, TableResult],
) -> Iterator[TableStatus]:
    """Yield the tables to be shown: halted ones first, then those that wait, by name."""
    waiting = snapshot.report.waiting if snapshot.report else {}
    order = {state: place for place, state in enumerate(_BEHIND)}
    loads = {load.name.folded(): load for load in snapshot.loads}
    found = []
    for table in snapshot.tables:
        load = loads.get(table.name.folded())
        result = different.get(table.name.folded())
        said = [table.error or waiting.get(str(table.name), "")]
        if load is not None and load.is_pending:
            said += [f"the load from {load.source}: {load_progress(load)}", load.error]
        reason = "; ".join(filter(None, said)) or _unequal(table, result)
        state = snapshot.shown(table)
        is_open = bool(table.decision) and (not table.obeyed or bool(table.refusal))
        # A view that is left out runs, for it has no rows that could be behind.
        is_left_out = state == TableState.RUNNING and bool(table.error)
        is_odd = is_open or table.quarantined or is_left_out or (load and load.is_pending) or result
        if state not in _BEHIND and not is_odd:
            continue
        checkpoint = (
            snapshot.checkpoint_running
            if table.follows and state not in STOPPED
            else table.checkpoint
        )
        outcome = f"refused: {table.refusal}" if table.refusal else "no consumer has seen it yet"
        # What a person has to do in between stands beside the commands in `verify`. What halted a
        # table that is in doubt names them.
        is_told = result is None or (state in STOPPED and not result.checkpoint)
        lines = [] if is_told or result is None else result.heal.split("\n")
        healing = (line for line in lines if line and not line.startswith("#"))
        found.append(
            TableStatus(
                name=table.name,
                state=state,
                checkpoint=checkpoint,
                lag=lag_of(checkpoint, snapshot.now),
                reason=reason,
                decision=f"{table.decision} by {table.decided_by} at {table.decided_at} UTC; {outcome}"
                if is_open
                else "",
                next_steps=(*_next_steps(table, state, reason, command), *healing),
            )
        )
    yield from sorted(found, key=lambda each: (order.get(each.state, len(order)), str(each.name)))


def _next_steps(
    table: Table, state: TableState, reason: str, command: Callable[[Verb, TableName], str]
) -> tuple[str, ...]:
    if state not in STOPPED:
        # Of several connections that may hold a lock, a person has to choose.
        kills = tuple(ends) if len(ends := _KILL.findall(reason)) == 1 else ()
        # The same words, with another verb.
        retry = command("resume", table.name).replace(" table resume ", " quarantine retry ", 1)
        return (*kills, retry) if table.quarantined else (*kills, *given_commands(table.error))
    # The message knows best: it was written where the fault was met. But the writer's file may be
    # one that only a service can read.
    again = command("resume", table.name)
    mine = found[0] if (found := _PASSWORD_FILE.search(again)) else ""
    named = tuple(_PASSWORD_FILE.sub(lambda _: mine, each) for each in given_commands(reason))
    if AT_A_START in reason:
        return named
    if needs_copy(table.state):
        return named or tuple(command("reload-done", table.name).split(OR_BY_HAND))
    return named if named and (again in named or _AGAIN not in reason) else (again, *named)


def load_progress(load: Load) -> str:
    """Return how far a load is."""
    if load.phase == LoadPhase.LOADING:
        return f"{load.parts_done:,} of {load.parts:,} files ({data_size(load.size)})"
    words = {
        LoadPhase.REQUESTED: "the copy does not answer"
        if load.error
        else "no consumer has looked at the copy yet",
        LoadPhase.JOINING: "the copy is written; the changes since then are being applied",
        LoadPhase.DONE: "it has caught up with the other tables",
        LoadPhase.REFUSED: "nothing was written",
        LoadPhase.CANCELLED: "an operator decided otherwise",
    }
    return words[load.phase]


def _unequal(table: Table, result: TableResult | None) -> str:
    refused = (
        f"{counted(table.quarantined, 'row')} in the quarantine, which the target refused"
        if table.quarantined
        else ""
    )
    found = ""
    if result is not None:
        if not result.checkpoint:
            return "; ".join(filter(None, (refused, result.reason)))
        what = [counted(result.different_rows, "row")] if result.different_rows else []
        what += ["its structure"] if result.structure else []
        found = f"`verify` found {' and '.join(what) or 'it'} different as of {result.checkpoint}"
    return "; ".join(filter(None, (refused, found)))
