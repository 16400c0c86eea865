"""DdlRunner: one statement, once. The journal goes from started to done; an interrupted statement is resolved by looking at the target.

A statement that others kept from running is planned again: it did nothing.

A statement that was started and never answered may still run: the server finishes it whether or not anybody listens. So the runner
waits for it first. Then the structure of the tables that it names shows what became of it:

* The structure is the one noted before the statement: it did not take effect, and runs again. No row from after it has been
  written yet, unless it alters no table, so a statement that leaves the structure as it is (TRUNCATE) may run twice. Only EXCHANGE
  PARTITION can neither be seen nor repeated; it stops the table.
* The structure is another one: the statement took effect. What SHOW CREATE says afterwards cannot be predicted, since each server
  words it in its own way, but the columns can: the schema file lists them. If they differ, somebody else changed the
  table, and it stops. Only the holder of the DDL lock runs our statements, so there is no third case.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from storage_consumer.clock import Clock, SystemClock
from storage_consumer.ddl.foreign_keys import IN_THE_WAY, LEFT_OUT, Attempt, next_attempt
from storage_consumer.ddl.ports import Execution, Structure
from storage_consumer.ddl.rules.arrangement import unfolded
from storage_consumer.ddl.rules.collations import source_collation
from storage_consumer.ddl.time_literals import refuse_uncertain_moments
from storage_consumer.ddl.translate import (
    DdlAction,
    create_from_columns,
    refuse_what_may_not_run,
    safe_action,
    stored_text,
)
from storage_consumer.downstream.connection import escape
from storage_consumer.downstream.existing_names import matters_for
from storage_consumer.downstream.mysql_errors import ALREADY_DONE
from storage_consumer.errors import (
    Abandoned,
    DdlFailed,
    NotReplicable,
    StatementRefused,
    TableError,
    TargetBusy,
    TargetUnavailable,
)
from storage_consumer.gate.judging import refuse_unsafe
from storage_consumer.job.target_table import TargetTable
from storage_consumer.model import DdlKind, TableDefinition, TableName, folded_name
from storage_consumer.plan.barriers import DROPS
from storage_consumer.plan.early import SHOWS_EARLY, near_copy
from storage_consumer.plan.journal import (
    DONE,
    FAILED,
    PLANNED,
    SKIPPED,
    STARTED,
    DdlAnswer,
    JournalEntry,
    Outcome,
    Sent,
)
from storage_consumer.plan.steps import DdlStep
from storage_consumer.plan.table_words import table_flag
from storage_consumer.ports import DdlContext, Decision, Journal, TableProgress
from storage_consumer.sql.parse import parsed
from storage_consumer.sql.statement import copied_table
from storage_consumer.sql.tokens import Token, has_words, quote, tokens
from storage_consumer.sql.view_columns import reads_all_columns
from storage_consumer.telemetry import Log

_log = Log("ddl")

_NOTHING_THERE = frozenset((1008, 1051, 4092))
"""Answers to a DROP of a database, table or view that does not exist; MariaDB has a number of its own for views."""
_EARLY = ALREADY_DONE | _NOTHING_THERE | {1146}
"""Answers to a statement whose effect the table's copy has; the last one is that to a rename whose old name is gone."""
_LOOK = 1.0
"""Seconds between two looks at a statement that still runs."""
_LOGGED_EVERY = 30.0
"""Seconds between two log lines about it."""
_LOCK_TRIES = 3
"""How often a statement asks for locks that others hold before its table waits for the next round."""
_FIRST_PAUSE = 1.0
_LOSSES = 3
"""How often in a row a connection may break under one statement before the round starts over."""
_HIDDEN = "_V$_"
"""Prefix of the hidden columns in which TiDB keeps expression indexes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Started:
    """A statement that is being run."""

    step: DdlStep
    action: DdlAction
    context: DdlContext
    names: tuple[TableName, ...]
    """The tables whose structure shows whether it took effect."""
    notes: tuple[str, ...] = ()
    """What became of foreign keys that held it up."""


class DdlRunner:
    """Runs statements on the target with a journal around each."""

    def __init__(
        self,
        structure: Structure,
        execution: Execution,
        journal: Journal,
        server_type: str,
        *,
        clock: Clock | None = None,
        patience: float = 24 * 3600.0,
    ) -> None:
        """`server_type` is ``mariadb``, ``mysql`` or ``tidb``.

        `patience` is how many seconds to wait for a statement that lost its connection while the server still runs it.
        """
        self._structure = structure
        self._execution = execution
        self._journal = journal
        self._server_type = server_type
        self._clock = clock or SystemClock()
        self._patience = patience

    def run(self, step: DdlStep, context: DdlContext, moved: Sequence[TableProgress]) -> str:
        """Run `step`, or find out that it took effect; the transaction that records this also stores `moved`.

        Return what was changed or found, or "". Raise `DdlFailed` if the target refuses the statement, `TargetBusy` if others keep it
        from running, and `TargetUnavailable` if its outcome is not known yet.
        """
        entry = self._journal.entry(step)
        # It may have run though its tables were not advanced: the entry is stored again, together with them.
        if entry and entry.state in (DONE, SKIPPED):
            self._journal.record(step, entry.state, note=entry.note, tables=moved)
            return "done before"
        decision = context.decision
        if decision is not None and decision.verb != "replace":
            state, what = (
                (DONE, "it took effect manually") if decision.verb == "done" else (SKIPPED, "it is not to run")
            )
            note = f"{what}, decided by {decision.decided_by} at {decision.decided_at} UTC"
            self._let_end(step, context, entry)
            self._journal.record(step, state, note=note, tables=moved)
            return note
        with _leaving_views_out(step, self._journal, moved):
            try:
                action = self._action(step, context) if decision is None else _replaced(step, decision)
            except TableError as fault:
                self._journal.refused(step, str(fault))
                raise
            # Skipped rather than done, so that a later DROP of what this would have made knows that it need not exist.
            if not action.statement:
                self._let_end(step, context, entry)
                self._journal.record(step, SKIPPED, note="; ".join(action.notes), tables=moved)
                return "; ".join(action.notes)
            started = _Started(step=step, action=action, context=context, names=_names(step, action))
            # Keys that went before an earlier run was killed.
            kept = entry.note if entry and (LEFT_OUT in entry.note or IN_THE_WAY in entry.note) else ""
            note, outcome = self._once(started, entry)
            if decision is None:
                self._refuse_other_columns(started)
            note = "; ".join(dict.fromkeys(filter(None, (*action.notes, kept, note))))
            self._journal.record(step, DONE, note=note, run=outcome, tables=moved)
            return note

    def refused(self, step: DdlStep, error: str) -> None:
        """Note why a statement stops its table."""
        self._journal.refused(step, error)

    def fence(self) -> None:
        """Stop a former owner from beginning a statement under this runner's lock; leave alone what it is running already."""
        self._execution.fence_ddl()

    def close(self) -> None:
        """Close the connection."""
        self._execution.close()

    def _action(self, step: DdlStep, context: DdlContext) -> DdlAction:
        """Return what to run; create a database first that the source had before its changefeed."""
        if step.skip:
            return DdlAction(statement="", schema="", notes=(step.skip,))
        if step.refusal:
            raise NotReplicable(step.refusal)
        refuse_what_may_not_run(step, self._server_type)
        name, text = step.name, unfolded(step.definition.query)
        found = tokens(text)
        collation = self._collation(step, context, found)
        why_not_copied = _why_not_copied(step, self._structure)
        if not (step.ensure or why_not_copied):
            # Names are asked for only where they can matter: each costs several queries on information_schema.
            names = self._structure.part_names(name, found) if matters_for(found) else None
            # A server without the zone's name gets the offset in force at the statement's version, so this differs between statements.
            zone, feed_zone = self._execution.statement_zone(step.version), self._execution.zone
            if zone != feed_zone:
                refuse_uncertain_moments(step.definition, text, feed_zone, self._structure.describe)
            source = source_collation(context.database_statements, self._server_type)
            return safe_action(step.definition, self._server_type, collation, names, zone=zone, source_collation=source)
        # A table that is only to exist may have been there before the changefeed; whether it fits shows with its first rows.
        if step.ensure and self._structure.describe([name]):
            return DdlAction(statement="", schema="", notes=("the table already exists",))
        statement = create_from_columns(step.definition, escape)
        note = f"created from the columns of the schema file, which has no indexes, defaults, charsets or generated columns{why_not_copied}"
        return DdlAction(statement=statement, schema=name.schema, notes=(note,))

    def _collation(self, step: DdlStep, context: DdlContext, found: Sequence[Token]) -> str | None:
        """Return the default collation of the statement's database, or None if it does not matter.

        Create the database if it does not exist and the bucket has no CREATE DATABASE for it.
        """
        ours, name = context.database_is_ours, step.name
        if ours and not has_words(found[:2], "CREATE", "TABLE"):
            return None
        collation = self._structure.database_collation(name.schema)
        if collation is None and not ours and (name.table or step.definition.ddl_type == DdlKind.ALTER_SCHEMA):
            defaults = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
            statement = f"CREATE DATABASE IF NOT EXISTS {quote(name.schema)} {defaults}"
            action = DdlAction(statement=statement, schema="")
            try:
                self._run_beside(_Started(step=step, action=action, context=context, names=()), statement)
            except DdlFailed as fault:
                raise _refusal(step, statement, fault, context) from fault
        return collation

    def _once(self, started: _Started, entry: JournalEntry | None) -> tuple[str, Outcome]:
        """Run the statement unless it took effect; return what was found, and how it ended.

        If the connection breaks under it, find out immediately, over a new connection, what became of it.
        """
        # Each turn begins as a restart would: with the journal's entry, and with a look at the target.
        for _ in range(_LOSSES):
            interrupted = entry is not None and entry.state == STARTED
            # First wait, then fence, then look: otherwise the structure could still change after the look.
            if interrupted and entry is not None:
                self._wait_while_running(started, entry.statement or started.action.statement)
            self._fence(started)
            if interrupted and entry is not None and (found := self._resolved(started, entry)) is not None:
                return found
            try:
                return self._execute(started, interrupted=interrupted)
            # Not a loss, though it is a TargetUnavailable too: the journal already has the statement as planned again.
            except TargetBusy:
                raise
            except TargetUnavailable as fault:
                step = started.step
                _log.warning("ddl_lost", table=str(step.name), version=step.version, error=str(fault))
                lost, entry = fault, self._journal.entry(step)
        raise lost

    def _let_end(self, step: DdlStep, context: DdlContext, entry: JournalEntry | None) -> None:
        """Wait for the end of a statement that an earlier run started and that is not to run now.

        Neither rows after it nor a copy of its table may be written before that.
        """
        if entry is None or entry.state != STARTED:
            return
        sent = DdlAction(statement=entry.statement, schema="")
        started = _Started(step=step, action=sent, context=context, names=(step.name,))
        self._wait_while_running(started, entry.statement)
        self._fence(started)

    def _wait_while_running(self, started: _Started, statement: str) -> None:
        """Let the server finish an interrupted statement; raise as `_wait_while` does."""
        self._wait_while(started, statement, lambda: self._execution.is_running(statement))

    def _fence(self, started: _Started) -> None:
        """Stop former owners from running anything under this lock. If one is running a statement, wait for it rather than kill it."""
        self._wait_while(started, "a statement of a former owner", lambda: not self._execution.fence_ddl())

    def _run_beside(self, started: _Started, statement: str, ignorable: frozenset[int] = frozenset()) -> None:
        """Run another statement than the step's own. Raise `LeaseLost` before it if another process has the lease."""
        self._fence(started)
        # After the fence, which took the lock even from the next owner: what that one has made since is not to be touched.
        self._journal.entry(started.step)
        self._execution.execute_ddl(statement, "", started.step.version, ignorable)

    def _wait_while(self, started: _Started, statement: str, is_so: Callable[[], bool]) -> None:
        """Wait while `is_so`. Raise `TargetUnavailable` if that takes longer than the patience, `Abandoned` if asked to end."""
        # Not 0, so that the first look that finds it running is logged.
        step, began, logged_at = started.step, self._clock.monotonic(), -_LOGGED_EVERY
        while is_so():
            waited = self._clock.monotonic() - began
            if waited >= self._patience:
                message = (
                    f"the DDL of {step.name} with version {step.version} cannot continue: {statement[:500]} is still "
                    f"running on the target after a wait of {waited:.0f} s (--ddl-patience)"
                )
                raise TargetUnavailable(message)
            if waited - logged_at >= _LOGGED_EVERY:
                _log.warning(
                    "ddl_running",
                    table=str(step.name),
                    version=step.version,
                    query=statement,
                    seconds=waited,
                    blockers="; ".join(self._structure.blockers(started.names)),
                )
                logged_at = waited
            if not started.context.should_continue():
                raise Abandoned
            # An event that nobody sets: a plain pause by the clock, which tests can move.
            self._clock.wait(threading.Event(), _LOOK)

    def _resolved(self, started: _Started, entry: JournalEntry) -> tuple[str, Outcome] | None:
        """Return what became of an interrupted statement, or None if it is to run."""
        step = started.step
        if started.context.decision is not None and entry.statement != started.action.statement:
            return None  # the operator has replaced the text since, and so has judged this one
        now = self._structure.fingerprint(started.names)
        # The same structure: it had no effect, or its effect cannot be seen. `_refuse_if_unknowable` knows the one kind that matters.
        if now == entry.structure_before:
            _refuse_if_unknowable(step, self._journal)
            return None
        there = self._structure.describe([step.name])
        if why := _unlike(step.definition, there.get(step.name.folded())):
            message = (
                f"{step.name}: the DDL with version {step.version} ({step.definition.path}) was interrupted, and the "
                f"table now has neither its former structure nor the one that the statement produces: {why}. Somebody "
                "else changed it; change it to what the statement produces"
            )
            self._journal.refused(step, message)
            raise DdlFailed(message)
        return "it had taken effect when an earlier run was interrupted", Outcome(structure_after=now)

    def _refuse_other_columns(self, started: _Started) -> None:
        """Take a view away that shows other columns than the source's: what an asterisk stood for there has changed since, or is not there yet.

        Other views read columns by their names.
        """
        step = started.step
        wanted = [folded_name(column.name) for column in step.definition.columns]
        if not step.creates_view or not wanted or not reads_all_columns(step.definition.query):
            return
        there = self._structure.describe([step.name]).get(step.name.folded())
        found = [] if there is None else [folded_name(column.name) for column in there.columns]
        if len(found) == len(wanted) and not _misplaced(found, wanted):
            return
        # It is not there where an earlier run was killed right after this.
        if there is not None:
            drop = f"DROP VIEW {quote(step.name.schema)}.{quote(step.name.table)}"
            self._run_beside(started, drop, _NOTHING_THERE)
        raise DdlFailed(
            f"{step.name}: the view of {step.definition.path} has the columns {', '.join(wanted)} at the source, and here it would have "
            f"{', '.join(found) or 'others'}: a table behind its * is another one than it was. Run it with its columns written out: "
            f"{step.definition.query.strip()[:200]}"
        )

    def _execute(self, started: _Started, *, interrupted: bool) -> tuple[str, Outcome]:
        """Send the statement; return a note about the answer, and how the statement ended."""
        step = started.step
        unmade = _why_unmade(step, started.context, self._journal)
        early = bool(started.context.after_copy) and step.definition.ddl_type in SHOWS_EARLY
        # Only a statement that may have been sent before can meet its own effect, or one whose effect a copy may hold.
        ignorable = ALREADY_DONE if interrupted else _NOTHING_THERE if unmade else frozenset[int]()
        ignorable |= _EARLY if early else frozenset()
        if doubt := near_copy(step.definition, started.context.after_copy):
            _log.warning("ddl_near_copy", table=str(step.name), version=step.version, text=doubt)
        answer, seconds, eased = self._tried(started, ignorable, checked=not (unmade or early), early=early)
        after = self._structure.fingerprint(started.names)
        why = unmade or ("the table's copy holds its effect already" if early else "")
        note = f"nothing to do, because {why}: {answer.ignored}" if why and answer.ignored else answer.ignored
        note = "; ".join(filter(None, (*eased, note, doubt)))
        return note, Outcome(structure_after=after, seconds=seconds, answer=str(answer))

    def _tried(
        self, started: _Started, ignorable: frozenset[int], *, checked: bool, early: bool
    ) -> tuple[DdlAnswer, float, tuple[str, ...]]:
        """Send the statement, and again past the foreign keys that hold it up; return answer, seconds, and what became of these keys.

        `checked`: refuse an "already done" of what is not its own work. `early`: accept one only if the table is as it leaves it.
        """
        step, first = started.step, None
        attempt = Attempt(whole=started.action.statement)
        while True:
            # After the fence, so no other statement of ours changes this until the statement is sent.
            before = self._structure.fingerprint(started.names)
            try:
                answer, seconds = self._sent(started, before, ignorable)
                # No fingerprint is empty, so "" accepts the answer whatever the structure.
                _refuse_if_not_ours(answer.ignored, started.names, before if checked else "", self._structure)
                if early and answer.ignored:
                    _refuse_if_unlike(step, answer.ignored, self._structure)
            except DdlFailed as fault:
                first = first or fault
                following = self._past_foreign_keys(started, attempt, fault)
                if following is None:
                    # The answer is noted before the error is worded for people: the journal keeps what the server said.
                    self._journal.record(step, FAILED, note=str(first), run=Outcome(answer=str(first)))
                    raise _refusal(step, attempt.whole, first, started.context) from first
                attempt, started = following
                # What dropped keys brought to light is the reason now. An answer without the statement's own keys says less than the first.
                first = None if attempt.first else first
            else:
                return answer, seconds, started.notes

    def _past_foreign_keys(
        self, started: _Started, tried: Attempt, fault: DdlFailed
    ) -> tuple[Attempt, _Started] | None:
        """Return what to try after a refusal, once the keys that are in the way are gone; None if none is.

        If the process is killed meanwhile, the next one finds the statement as planned, which did nothing.
        """
        step, name = started.step, started.step.name
        # Not those that it only reads: a parent's keys are not in the way of its child.
        tables = [name, *(one.within(name.schema) for one in step.ddl.names if not one.reads)]
        there, indexes = self._structure.foreign_keys(tables)
        following = next_attempt(tried, str(fault), name, there if fault.of_foreign_key else (), indexes)
        if following is None and fault.of_foreign_key and tried.unfound != str(fault):
            # A statement on the other table of a key, which runs beside this one, may have removed it since.
            following = replace(tried, first=(), unfound=str(fault), notes=(*tried.notes, f"tried again after {fault}"))
        if following is None or (following.left_out and started.context.decision is not None):
            return None
        text = following.text(indexes)
        if text and started.context.decision is None:
            refuse_unsafe(step.definition, text, self._server_type)
        started = replace(started, action=replace(started.action, statement=text), notes=following.notes)
        _log.warning("ddl_foreign_key", table=str(name), version=step.version, text=following.notes[-1])
        sent = Sent(statement=text, structure_before=self._structure.fingerprint(started.names))
        self._journal.record(step, PLANNED, run=sent, note="; ".join(following.notes))
        for statement in following.first:
            try:
                self._run_beside(started, statement, ALREADY_DONE)
            except DdlFailed as refused:
                self._journal.record(step, FAILED, note=str(refused), run=Outcome(answer=str(refused)))
                raise _refusal(step, statement, refused, started.context) from refused
        self._fence(started)
        return following, started

    def _sent(self, started: _Started, before: str, ignorable: frozenset[int]) -> tuple[DdlAnswer, float]:
        """Send the statement; return the server's answer and the seconds it took. Ask again while others hold locks."""
        step, action, pause = started.step, started.action, _FIRST_PAUSE
        if not action.statement:
            return DdlAnswer(), 0.0  # all of it was about foreign keys that are left out
        for left in reversed(range(_LOCK_TRIES)):
            # Before it is sent: from here on, after a crash, the structure has to show whether it took effect.
            sent = Sent(statement=action.statement, structure_before=before)
            self._journal.record(step, STARTED, run=sent, note="; ".join(started.notes))
            began = self._clock.monotonic()
            try:
                answer = self._execution.execute_ddl(action.statement, action.schema, step.version, ignorable)
            except TargetBusy as fault:
                busy = self._blocked(started, before, fault)
            else:
                return answer, self._clock.monotonic() - began
            if not left or not started.context.should_continue():
                break
            self._clock.wait(threading.Event(), pause)
            pause *= 2
            # The lock for DDL went with the connection that ran the statement.
            self._fence(started)
        raise busy

    def _blocked(self, started: _Started, before: str, fault: TargetBusy) -> TargetBusy:
        """Journal and log that others keep a statement from running, and who they are; return the error."""
        step = started.step
        # Asked right now: a moment later the holders may be gone, and nobody could say who they were.
        blockers = "; ".join(self._structure.blockers(started.names))
        who = blockers or "the target does not show who holds them: look for long transactions in its process list"
        message = f"{step.name}: the DDL with version {step.version} waits for locks that others hold ({fault}): {who}"
        # No longer started: it did nothing, so no restart has to look for its effect.
        self._journal.record(
            step, PLANNED, run=Sent(statement=started.action.statement, structure_before=before), note=message
        )
        _log.warning("ddl_blocked", table=str(step.name), version=step.version, error=str(fault), blockers=who)
        return TargetBusy(message)


def _refuse_if_unknowable(step: DdlStep, journal: Journal) -> None:
    """Stop the table if neither looking nor repeating is right."""
    if step.ddl.exchanges_partition:
        message = (
            f"{step.name}: EXCHANGE PARTITION with version {step.version} was interrupted and the target does not "
            "show whether it took effect. Compare the rows, and exchange the partition manually if it did not"
        )
        journal.refused(step, message)
        raise DdlFailed(message)


def _why_unmade(step: DdlStep, context: DdlContext, journal: Journal) -> str:
    """Return why the object of a DROP need not exist; "" if it should, and for all other statements."""
    if step.definition.ddl_type not in DROPS:
        return ""
    # It has no rows, so that nothing is lost with it, whoever dropped it.
    if step.definition.ddl_type == DdlKind.DROP_VIEW:
        return "there is no such view"
    # Nothing that was read ever made the object, so there may be nothing to drop.
    if not context.table_was_seen:
        return "it never appeared in the bucket"
    entry = journal.entry(context.made_by) if context.made_by is not None else None
    return "the statement that creates it was not run" if entry is not None and entry.state in (SKIPPED, FAILED) else ""


def _refuse_if_not_ours(answer: str, names: Sequence[TableName], before: str, structure: Structure) -> None:
    """Refuse an "already done" from the server unless the structure has changed since the interrupted statement began.

    What was there before is not that statement's work, and the rest of the statement has not been done.
    """
    if answer and structure.fingerprint(names) == before:
        raise DdlFailed(answer)


def _refuse_if_unlike(step: DdlStep, answer: str, structure: Structure) -> None:
    """Refuse an "already done" unless the table is as the statement leaves it: of several changes a copy may hold only some."""
    there = structure.describe([step.name])
    if why := _unlike(step.definition, there.get(step.name.folded())):
        raise DdlFailed(f"{answer}. The table's copy may hold a part of the statement's effect: {why}")


def _why_not_copied(step: DdlStep, structure: Structure) -> str:
    """Return why a table is not made LIKE the one that its statement names, as the end of a note; empty if it is.

    TiCDC passes such a statement though it leaves out the other table, of which the target may have another one, or none.
    """
    if step.ensure or not step.ddl.creates_table or (copied := copied_table(step.definition.query)) is None:
        return ""
    source = TableName(schema=copied[0] or step.name.schema, table=copied[1])
    why = _unlike(step.definition, structure.describe([source]).get(source.folded()))
    return f", since it is a copy of {source}, and in the target {why}" if why else ""


@contextmanager
def _leaving_views_out(step: DdlStep, journal: Journal, moved: Sequence[TableProgress]) -> Iterator[None]:
    """Let what keeps a view from being made stop nothing: store `moved` all the same, and say that it is left out."""
    try:
        yield
    except TableError as fault:
        if not step.makes_view or isinstance(fault, StatementRefused):
            raise
        journal.record(step, FAILED, note=str(fault), tables=moved)
        raise DdlFailed(str(fault), left_out=True) from fault


def _replaced(step: DdlStep, decision: Decision) -> DdlAction:
    """Return what an operator wants to run instead of a statement."""
    note = f"another statement ran instead, decided by {decision.decided_by} at {decision.decided_at} UTC"
    return DdlAction(statement=decision.statement, schema=step.definition.session_database, notes=(note,))


def _names(step: DdlStep, action: DdlAction) -> tuple[TableName, ...]:
    """Return the tables whose structure shows whether a statement took effect: those in the original, and those in the text that runs."""
    # What a view reads may be made or changed meanwhile, since neither waits for the other.
    if step.makes_view:
        return (step.name,)
    if action.statement == stored_text(step.definition):
        return tuple(sorted(step.ddl.mentioned))
    # The operator's text may name other tables than the original, and its effect may show only there.
    run = replace(step.definition, query=action.statement)
    return tuple(sorted(step.ddl.mentioned | parsed(run).mentioned))


def _misplaced(found: Sequence[str], wanted: Sequence[str]) -> bool:
    """Return whether a view has a column in another's place. Servers name an expression without a name in their own ways."""
    return any(
        has != it and (it in found or has in wanted or (has.isidentifier() and it.isidentifier()))
        for has, it in zip(found, wanted, strict=True)
    )


def _unlike(definition: TableDefinition, there: TargetTable | None) -> str:
    """Return how a table differs from what a statement leads to, or "" if it may be its result; `there` is None if it does not exist.

    Only the names of the columns are compared: every server shows those in the same way. Views, databases and statements about another
    table than the file's own tell nothing.
    """
    is_view = definition.ddl_type in (DdlKind.CREATE_VIEW, DdlKind.DROP_VIEW)
    if is_view or not definition.columns or parsed(definition).is_astray:
        return ""
    if definition.ddl_type == DdlKind.DROP_TABLE:
        return "" if there is None else "it exists"
    if there is None:
        return "it does not exist"
    wanted = {folded_name(c.name): c.name for c in definition.columns if not c.name.startswith(_HIDDEN)}
    found = {folded_name(column.name): column.name for column in there.columns}
    lacking = ", ".join(name for folded, name in wanted.items() if folded not in found)
    beyond = ", ".join(name for folded, name in found.items() if folded not in wanted)
    parts = (lacking and f"it lacks the columns {lacking}", beyond and f"it has the extra columns {beyond}")
    return " and ".join(part for part in parts if part)


def _refusal(step: DdlStep, statement: str, fault: DdlFailed, context: DdlContext) -> DdlFailed:
    """Return the error of a statement that the target refuses: its answer, the statement, and the next steps."""
    refused = (
        f"{step.name}: the target refused the DDL with version {step.version} ({step.definition.path}): {fault}. The "
        f"statement is: {statement[:500]}"
    )
    if step.makes_view:
        return DdlFailed(f"{refused}. {fault.remedy}".rstrip(". "))
    return DdlFailed(
        f"{refused}. {fault.remedy or _remedy(step, context)}, then start again or run `storage-consumer "
        f"table resume {table_flag(context.resumes or step.origin.name)}` to try it again"
    )


def _remedy(step: DdlStep, context: DdlContext) -> str:
    """Return what makes the target take a statement; of one that creates something, also what if that is there already."""
    if step.definition.ddl_type == DdlKind.CREATE_SCHEMA:
        return (
            "If the target has this database already and the source's tables may go into it, run the `ddl done` below. "
            "Otherwise move that database away, or make the target fit"
        )
    if step.definition.ddl_type == DdlKind.CREATE_TABLE:
        return (
            "If the table already holds the source's rows as of a known TSO (from a copy, or because a state was "
            f"lost), run `storage-consumer table reload-done {table_flag(step.origin.name)} --at TSO`. If it is "
            "somebody else's, move it away. Otherwise make the target's table fit"
        )
    if context.in_doubt_by:
        return (
            f"The copy as of {context.in_doubt_by}, from right before the statement, may show it already. If the target's tables are as "
            "the source has them after it, run the `ddl done` below. Otherwise give them the names that they had before it"
        )
    return "Make the target's table fit"
