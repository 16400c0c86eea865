"""DdlRunner: run one statement once, journalled from started to done.

An interrupted statement is resolved by the target's structure.

A statement that others kept from running is planned again: it did nothing.

A statement that was started and never answered may still run: the server finishes it whether or not
anybody listens. So the runner waits for it first. Then the structure of the tables that it names
shows what became of it:

* The structure is the one noted before the statement: it did not take effect, and runs again. No
  row from after it has been written yet, unless it alters no table, so a statement that leaves the
  structure as it is (TRUNCATE) may run twice. Only EXCHANGE PARTITION can neither be seen nor
  repeated; it stops the table.
* The structure is another one: the statement took effect. What SHOW CREATE says afterwards cannot
  be predicted, since each server words it in its own way, but the columns can: the schema file
  lists them. If they differ, somebody else changed the table, and it stops. Only the holder of the
  DDL lock runs our statements, so there is no third case.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from storage_consumer.clock import Clock, SystemClock
from storage_consumer.errors import (
    Abandoned,
    DdlFailed,
    NotReplicable,
    StatementRefused,
    TableError,
    TargetBusy,
    TargetUnavailable,
)
from storage_consumer.model import DdlKind, TableDefinition, TableName, folded_name
from storage_consumer.plan.covered import SHOWS_EARLY, near_copy
from storage_consumer.plan.journal_entry import (
    DONE,
    FAILED,
    PLANNED,
    SKIPPED,
    STARTED,
    DdlAnswer,
    ExecutionOutcome,
    JournalEntry,
    Sent,
)
from storage_consumer.plan.steps import DROPS, DdlStep
from storage_consumer.plan.table_words import table_flag
from storage_consumer.ports import DdlContext, Journal, TableProgress, Target
from storage_consumer.rows.fitting import TargetTable
from storage_consumer.rows.match import refuse_changes
from storage_consumer.sql.gate import refuse_unsafe
from storage_consumer.sql.parse import parsed, reads_all_columns
from storage_consumer.sql.statement import copied_table
from storage_consumer.sql.tokens import Token, has_words, quote, tokens
from storage_consumer.target.connection import escape
from storage_consumer.target.ddl.column_rules import source_collation
from storage_consumer.target.ddl.index_rules import IN_THE_WAY, LEFT_OUT, Attempt, next_attempt
from storage_consumer.target.ddl.translate import (
    DdlAction,
    action_for,
    create_from_columns,
    refuse_uncertain_moments,
    refuse_what_may_not_run,
    stored_text,
    unfolded,
)
from storage_consumer.target.existing_names import ForeignKey, PartNames, matters_for
from storage_consumer.target.mysql_errors import ALREADY_DONE
from storage_consumer.telemetry import Log

_log = Log("ddl")

_NOTHING_THERE = frozenset((1008, 1051, 4092))
"""Answers to a DROP of a missing database, table or view; MariaDB has its own for views."""
_EARLY = ALREADY_DONE | _NOTHING_THERE | {1146}
"""Answers to statements whose effect the copy has; the last: a rename's old name is gone."""
_LOOK = 1.0
"""Seconds between two looks at a statement that still runs."""
_LOGGED_EVERY = 30.0
"""Seconds between two log lines about it."""
_LOCK_TRIES = 3
"""How often a statement waits for others' locks before its table waits for the next round."""
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


class DdlTarget(Target, Protocol):
    """The target on the connection of one runner; see `database.TargetDatabase`."""

    @property
    def zone(self) -> str:
        """The time zone of the feed, in which statements run if the server knows it."""
        ...

    def read(self, wanted: Iterable[TableName]) -> dict[TableName, TargetTable]:
        """Return the same as `describe`, without comparing noted keys."""
        ...

    def noted(self, names: Iterable[TableName]) -> Mapping[TableName, Sequence[str]]:
        """Return the noted keys of those tables that have a note, by folded name."""
        ...

    def forget(self, names: Iterable[TableName]) -> None:
        """Delete the notes of these tables."""

    def remember(self, names: Iterable[TableName]) -> None:
        """Note the keys that these tables have."""

    def database_collation(self, schema: str) -> str | None:
        """Return a database's default collation: "" if the source's, None if it does not exist."""
        ...

    def part_names(self, name: TableName, found: Sequence[Token] = ()) -> PartNames | None:
        """Return a table's part names; None if unknown before the statement runs."""
        ...

    def foreign_keys(
        self, names: Sequence[TableName]
    ) -> tuple[list[ForeignKey], dict[str, list[str]]]:
        """Return foreign keys of and to these tables; and the first one's indexes, folded."""
        ...

    def fingerprint(self, names: Iterable[TableName]) -> str:
        """Return a digest that differs for two different structures of these tables."""
        ...

    def statement_zone(self, version: int) -> str:
        """Return the time zone of the session in which a statement of this version runs."""
        ...

    def is_running(self, statement: str) -> bool:
        """Return whether the server is executing the statement right now."""
        ...

    def fence_ddl(self) -> bool:
        """Stop other owners from beginning a DDL; return False while one is running, unharmed."""
        ...

    def execute_ddl(
        self, statement: str, schema: str, version: int, ignorable: frozenset[int] = frozenset()
    ) -> DdlAnswer:
        """Run one statement."""
        ...


class DdlRunner:
    """Runs statements on the target with a journal around each, and notes the keys that they leave.

    A table that somebody else changed gets no note. If the process ends between the statement and
    the note, there is nothing to compare with until the next statement.
    """

    def __init__(
        self,
        target: DdlTarget,
        journal: Journal,
        server_type: str,
        *,
        clock: Clock | None = None,
        patience: float = 24 * 3600.0,
    ) -> None:
        """`server_type` is ``mariadb``, ``mysql`` or ``tidb``.

        `patience` is how many seconds to wait for a statement that lost its connection while the
        server still runs it.
        """
        self._target = target
        self._journal = journal
        self._server_type = server_type
        self._clock = clock or SystemClock()
        self._patience = patience

    def run(self, step: DdlStep, context: DdlContext, moved: Sequence[TableProgress]) -> str:
        """Run `step`, or find out that it took effect; store `moved` in the same transaction.

        Return what was changed or found, or "". Raise `DdlFailed` if the target refuses the
        statement, `TargetBusy` if others keep it from running, `TargetUnavailable` if its outcome
        is not known yet, and `TableError` if somebody changed the table's keys.
        """
        names = sorted(step.ddl.mentioned)
        # A table that goes away needs no keys; and an operator who decided has looked at the table.
        if step.definition.ddl_type not in DROPS and context.decision is None and not step.skip:
            try:
                # a new table has none, and searching for it takes a while
                noted = self._target.noted(names)
                for table in self._target.describe(
                    name for name in names if name.folded() in noted
                ).values():
                    refuse_changes(table.name, table)
            except TableError as fault:
                self._journal.refused(step, str(fault))
                raise
        # First, since it needs the lease: whoever has lost it forgets nothing of the next owner.
        entry = self._journal.entry(step)
        # Before the statement: if the process ends after it, a former note would take the
        # statement's own keys for somebody else's.
        self._target.forget(names)
        try:
            note = self._run(step, entry, context, moved)
        except TableError as fault:
            if not step.makes_view or isinstance(fault, StatementRefused):
                raise
            # What keeps a view from being made stops nothing: `moved` is stored all the same, and
            # it is said that the view is left out.
            self._journal.record(step, FAILED, note=str(fault), tables=moved)
            raise DdlFailed(str(fault), left_out=True) from fault
        # Whatever they are now is the source statement's work, and what jobs are compared with.
        self._target.remember(names)
        return note

    def _run(
        self,
        step: DdlStep,
        entry: JournalEntry | None,
        context: DdlContext,
        moved: Sequence[TableProgress],
    ) -> str:
        # It may have run without its tables advanced: store the entry again, with them.
        if entry and entry.state in (DONE, SKIPPED):
            self._journal.record(step, entry.state, note=entry.note, tables=moved)
            return "done before"
        state = SKIPPED
        if (decision := context.decision) is None:
            try:
                action = self._action(step, context)
            except TableError as fault:
                self._journal.refused(step, str(fault))
                raise
        else:
            state, what, statement = {
                "done": (DONE, "it took effect manually", ""),
                "skip": (SKIPPED, "it is not to run", ""),
                "replace": (SKIPPED, "another statement ran instead", decision.statement),
            }[decision.verb]
            note = f"{what}, decided by {decision.decided_by} at {decision.decided_at} UTC"
            action = DdlAction(
                statement=statement, schema=step.definition.session_database, notes=(note,)
            )
        # Skipped rather than done, so that a later DROP of what this would have made knows that it
        # need not exist.
        if not action.statement:
            if entry is not None and entry.state == STARTED:
                # An earlier run started it: neither rows after it nor a copy of its table may be
                # written before it ends.
                sent = DdlAction(statement=entry.statement, schema="")
                began = _Started(step=step, action=sent, context=context, names=(step.name,))
                self._wait_while_running(began, entry.statement)
                self._fence(began)
            self._journal.record(step, state, note="; ".join(action.notes), tables=moved)
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
        """Stop a former owner from beginning a statement under this lock; spare a running one."""
        self._target.fence_ddl()

    def close(self) -> None:
        """Close the connection."""
        self._target.close()

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
        why_not_copied = ""
        # TiCDC passes a statement LIKE another table though it leaves that out: the target may have
        # another one of its name, or none.
        if (
            step.ddl.creates_table
            and not step.ensure
            and (copied := copied_table(step.definition.query)) is not None
        ):
            original = TableName(schema=copied[0] or name.schema, table=copied[1])
            if why := self._unlike(step.definition, original):
                why_not_copied = f", since it is a copy of {original}, and in the target {why}"
        if not (step.ensure or why_not_copied):
            # Names are queried only where they can matter: each costs queries on
            # information_schema.
            names = self._target.part_names(name, found) if matters_for(found) else None
            # A server without the zone's name gets the offset in force at the statement's version,
            # so this differs between statements.
            zone, feed_zone = self._target.statement_zone(step.version), self._target.zone
            if zone != feed_zone:
                refuse_uncertain_moments(step.definition, text, feed_zone, self._target.describe)
            source = source_collation(context.database_statements, self._server_type)
            action = action_for(
                step.definition,
                self._server_type,
                collation,
                names,
                zone=zone,
                source_collation=source,
            )
            if action.statement:
                # The text that is sent is judged again, not only the stored one: an edit must not
                # open a way around the gate.
                refuse_unsafe(step.definition, action.statement, self._server_type)
            return action
        # A table that is only to exist may have been there before the changefeed; whether it fits
        # shows with its first rows.
        if step.ensure and self._target.describe([name]):
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
        collation = self._target.database_collation(name.schema)
        if (
            collation is None
            and not ours
            and (name.table or step.definition.ddl_type == DdlKind.ALTER_SCHEMA)
        ):
            defaults = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
            statement = f"CREATE DATABASE IF NOT EXISTS {quote(name.schema)} {defaults}"
            action = DdlAction(statement=statement, schema="")
            try:
                self._run_beside(
                    _Started(step=step, action=action, context=context, names=()), statement
                )
            except DdlFailed as fault:
                raise _refusal(step, statement, fault, context) from fault
        return collation

    def _once(self, started: _Started, entry: JournalEntry | None) -> tuple[str, ExecutionOutcome]:
        """Run the statement unless it took effect; return what was found, and how it ended.

        If the connection breaks under it, find out immediately, over a new connection, what became
        of it.
        """
        # Each turn begins as a restart would: with the journal's entry and the target's structure.
        for _ in range(_LOSSES):
            begun = entry if entry is not None and entry.state == STARTED else None
            # Wait, then fence, then probe: otherwise the structure could change after the probe.
            if begun is not None:
                self._wait_while_running(started, begun.statement or started.action.statement)
            self._fence(started)
            if begun is not None and (found := self._resolved(started, begun)) is not None:
                return found
            try:
                return self._execute(started, interrupted=begun is not None)
            # Not a loss, though it is a TargetUnavailable too: the journal already has the
            # statement as planned again.
            except TargetBusy:
                raise
            except TargetUnavailable as fault:
                step = started.step
                _log.warning(
                    "ddl_lost", table=str(step.name), version=step.version, error=str(fault)
                )
                lost, entry = fault, self._journal.entry(step)
        raise lost

    def _wait_while_running(self, started: _Started, statement: str) -> None:
        """Let the server finish an interrupted statement; raise as `_wait_while` does."""
        self._wait_while(started, statement, lambda: self._target.is_running(statement))

    def _fence(self, started: _Started) -> None:
        """Fence former owners under this lock; wait for a running statement rather than kill it."""
        self._wait_while(
            started, "a statement of a former owner", lambda: not self._target.fence_ddl()
        )

    def _run_beside(
        self, started: _Started, statement: str, ignorable: frozenset[int] = frozenset()
    ) -> None:
        """Run a statement other than the step's; raise `LeaseLost` first if the lease is lost."""
        self._fence(started)
        # After the fence, which took the lock even from the next owner: what that one has made
        # since is not to be touched.
        self._journal.entry(started.step)
        self._target.execute_ddl(statement, "", started.step.version, ignorable)

    def _wait_while(self, started: _Started, statement: str, is_so: Callable[[], bool]) -> None:
        """Wait while `is_so`; raise `TargetUnavailable` if out of patience, or `Abandoned`."""
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
                    blockers="; ".join(self._target.blockers(started.names)),
                )
                logged_at = waited
            if not started.context.should_continue():
                raise Abandoned
            # An event that nobody sets: a plain pause by the clock, which tests can move.
            self._clock.wait(threading.Event(), _LOOK)

    def _resolved(
        self, started: _Started, entry: JournalEntry
    ) -> tuple[str, ExecutionOutcome] | None:
        """Return what became of an interrupted statement, or None if it is to run."""
        step = started.step
        if started.context.decision is not None and entry.statement != started.action.statement:
            return None  # the operator has replaced the text since, and so has judged this one
        now = self._target.fingerprint(started.names)
        # The same structure: it had no effect, or its effect cannot be seen.
        if now == entry.structure_before and not step.ddl.exchanges_partition:
            return None
        message = ""
        if now == entry.structure_before:
            # Neither looking nor repeating is right.
            message = (
                f"{step.name}: EXCHANGE PARTITION with version {step.version} was interrupted and the target does not "
                "show whether it took effect. Compare the rows, and exchange the partition manually if it did not"
            )
        elif why := self._unlike(step.definition, step.name):
            message = (
                f"{step.name}: the DDL with version {step.version} ({step.definition.path}) was interrupted, and the "
                f"table now has neither its former structure nor the one that the statement produces: {why}. Somebody "
                "else changed it; change it to what the statement produces"
            )
        if message:
            self._journal.refused(step, message)
            raise DdlFailed(message)
        return "it had taken effect when an earlier run was interrupted", ExecutionOutcome(
            structure_after=now
        )

    def _refuse_other_columns(self, started: _Started) -> None:
        """Drop a view with other columns than the source's, as from an outdated asterisk.

        Other views read columns by their names.
        """
        step = started.step
        wanted = [folded_name(column.name) for column in step.definition.columns]
        if not step.creates_view or not wanted or not reads_all_columns(step.definition.query):
            return
        there = self._target.describe([step.name]).get(step.name.folded())
        found = [] if there is None else [folded_name(column.name) for column in there.columns]
        # Servers name unnamed expressions differently: only a column in another's place counts.
        if len(found) == len(wanted) and not any(
            has != it
            and (it in found or has in wanted or (has.isidentifier() and it.isidentifier()))
            for has, it in zip(found, wanted, strict=True)
        ):
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

    def _execute(self, started: _Started, *, interrupted: bool) -> tuple[str, ExecutionOutcome]:
        """Send the statement, past foreign keys that block it; return a note and how it ended."""
        step, first = started.step, None
        unmade = _why_unmade(step, started.context, self._journal)
        early = bool(started.context.after_copy) and step.definition.ddl_type in SHOWS_EARLY
        # Only a statement that may have been sent before can meet its own effect, or one whose
        # effect a copy may hold.
        ignorable = ALREADY_DONE if interrupted else _NOTHING_THERE if unmade else frozenset[int]()
        ignorable |= _EARLY if early else frozenset()
        if doubt := near_copy(step.definition, started.context.after_copy):
            _log.warning("ddl_near_copy", table=str(step.name), version=step.version, text=doubt)
        attempt, answer = Attempt(whole=started.action.statement), None
        while answer is None:
            # After the fence, so no other statement of ours changes this before it is sent.
            before = self._target.fingerprint(started.names)
            try:
                sent, seconds = self._sent(started, before, ignorable)
                # No fingerprint is empty, so "" accepts the answer whatever the structure.
                self._refuse_others_work(
                    started, sent.ignored, "" if unmade or early else before, early=early
                )
                answer = sent
            except DdlFailed as fault:
                first = first or fault
                following = self._past_foreign_keys(started, attempt, fault)
                if following is None:
                    # The answer is noted before the error is worded for people: the journal keeps
                    # what the server said.
                    self._journal.record(
                        step, FAILED, note=str(first), run=ExecutionOutcome(answer=str(first))
                    )
                    raise _refusal(step, attempt.whole, first, started.context) from first
                attempt, started = following
                # What dropped keys brought to light is the reason now. An answer without the
                # statement's own keys says less than the first.
                first = None if attempt.first else first
        after = self._target.fingerprint(started.names)
        why = unmade or ("the table's copy holds its effect already" if early else "")
        note = (
            f"nothing to do, because {why}: {answer.ignored}"
            if why and answer.ignored
            else answer.ignored
        )
        note = "; ".join(filter(None, (*started.notes, note, doubt)))
        return note, ExecutionOutcome(structure_after=after, seconds=seconds, answer=str(answer))

    def _refuse_others_work(
        self, started: _Started, answer: str, before: str, *, early: bool
    ) -> None:
        """Refuse "already done" unless the structure changed since the interrupted statement began.

        What was there `before` is not that statement's work, and the rest of the statement has not
        been done. `early`: accept the answer only if the table is as the statement leaves it: of
        several changes a copy may hold only some.
        """
        if answer and self._target.fingerprint(started.names) == before:
            raise DdlFailed(answer)
        if answer and early and (why := self._unlike(started.step.definition, started.step.name)):
            raise DdlFailed(
                f"{answer}. The table's copy may hold a part of the statement's effect: {why}"
            )

    def _past_foreign_keys(
        self, started: _Started, tried: Attempt, fault: DdlFailed
    ) -> tuple[Attempt, _Started] | None:
        """Return what to try after a refusal once blocking keys are gone; None if none blocks.

        If the process is killed meanwhile, the next one finds the statement as planned, which did
        nothing.
        """
        step, name = started.step, started.step.name
        # Not those that it only reads: a parent's keys are not in the way of its child.
        tables = [name, *(one.within(name.schema) for one in step.ddl.names if not one.reads)]
        there, indexes = self._target.foreign_keys(tables)
        following = next_attempt(
            tried, str(fault), name, there if fault.of_foreign_key else (), indexes
        )
        if following is None and fault.of_foreign_key and tried.unfound != str(fault):
            # A concurrent statement on the other table of a key may have removed it.
            following = replace(
                tried,
                first=(),
                unfound=str(fault),
                notes=(*tried.notes, f"tried again after {fault}"),
            )
        if following is None or (following.left_out and started.context.decision is not None):
            return None
        text = following.text(indexes)
        if text and started.context.decision is None:
            refuse_unsafe(step.definition, text, self._server_type)
        started = replace(
            started, action=replace(started.action, statement=text), notes=following.notes
        )
        _log.warning(
            "ddl_foreign_key", table=str(name), version=step.version, text=following.notes[-1]
        )
        sent = Sent(statement=text, structure_before=self._target.fingerprint(started.names))
        self._journal.record(step, PLANNED, run=sent, note="; ".join(following.notes))
        for statement in following.first:
            try:
                self._run_beside(started, statement, ALREADY_DONE)
            except DdlFailed as refused:
                self._journal.record(
                    step, FAILED, note=str(refused), run=ExecutionOutcome(answer=str(refused))
                )
                raise _refusal(step, statement, refused, started.context) from refused
        self._fence(started)
        return following, started

    def _sent(
        self, started: _Started, before: str, ignorable: frozenset[int]
    ) -> tuple[DdlAnswer, float]:
        """Send the statement, again while others hold locks; return the answer and its seconds."""
        step, action, pause = started.step, started.action, _FIRST_PAUSE
        if not action.statement:
            return DdlAnswer(), 0.0  # all of it was about foreign keys that are left out
        for left in reversed(range(_LOCK_TRIES)):
            # Before sending: after a crash, from here on, the structure must show whether it took
            # effect.
            sent = Sent(statement=action.statement, structure_before=before)
            self._journal.record(step, STARTED, run=sent, note="; ".join(started.notes))
            began = self._clock.monotonic()
            try:
                answer = self._target.execute_ddl(
                    action.statement, action.schema, step.version, ignorable
                )
            except TargetBusy as fault:
                # At once: a moment later the holders may be gone, and nobody could name them.
                blockers = "; ".join(self._target.blockers(started.names))
                who = (
                    blockers
                    or "the target does not show who holds them: look for long transactions in its process list"
                )
                busy = TargetBusy(
                    f"{step.name}: the DDL with version {step.version} waits for locks that others hold ({fault}): {who}"
                )
                # No longer started: it did nothing, so no restart has to look for its effect.
                self._journal.record(step, PLANNED, run=sent, note=str(busy))
                _log.warning(
                    "ddl_blocked",
                    table=str(step.name),
                    version=step.version,
                    error=str(fault),
                    blockers=who,
                )
            else:
                return answer, self._clock.monotonic() - began
            if not left or not started.context.should_continue():
                break
            self._clock.wait(threading.Event(), pause)
            pause *= 2
            # The lock for DDL went with the connection that ran the statement.
            self._fence(started)
        raise busy

    def _unlike(self, definition: TableDefinition, name: TableName) -> str:
        """Return how a table differs from what a statement leads to, or "" if it may be its result.

        Only the names of the columns are compared: every server shows those in the same way. Views,
        databases and statements about another table than the file's own tell nothing.
        """
        is_view = definition.ddl_type in (DdlKind.CREATE_VIEW, DdlKind.DROP_VIEW)
        if is_view or not definition.columns or parsed(definition).is_astray:
            return ""
        there = self._target.describe([name]).get(name.folded())
        if definition.ddl_type == DdlKind.DROP_TABLE:
            return "" if there is None else "it exists"
        if there is None:
            return "it does not exist"
        wanted = {
            folded_name(c.name): c.name
            for c in definition.columns
            if not c.name.startswith(_HIDDEN)
        }
        found = {folded_name(column.name): column.name for column in there.columns}
        lacking = ", ".join(name for folded, name in wanted.items() if folded not in found)
        beyond = ", ".join(name for folded, name in found.items() if folded not in wanted)
        parts = (
            lacking and f"it lacks the columns {lacking}",
            beyond and f"it has the extra columns {beyond}",
        )
        return " and ".join(part for part in parts if part)


def _why_unmade(step: DdlStep, context: DdlContext, journal: Journal) -> str:
    """Return why the object of a DROP need not exist; "" if it must, or for other statements."""
    if step.definition.ddl_type not in DROPS:
        return ""
    # It has no rows, so that nothing is lost with it, whoever dropped it.
    if step.definition.ddl_type == DdlKind.DROP_VIEW:
        return "there is no such view"
    # Nothing that was read ever made the object, so there may be nothing to drop.
    if not context.table_was_seen:
        return "it never appeared in the bucket"
    entry = journal.entry(context.made_by) if context.made_by is not None else None
    return (
        "the statement that creates it was not run"
        if entry is not None and entry.state in (SKIPPED, FAILED)
        else ""
    )


def _names(step: DdlStep, action: DdlAction) -> tuple[TableName, ...]:
    """Return the tables that show whether it took effect: the original's and the sent text's."""
    # What a view reads may be made or changed meanwhile, since neither waits for the other.
    if step.makes_view:
        return (step.name,)
    if action.statement == stored_text(step.definition):
        return tuple(sorted(step.ddl.mentioned))
    # The operator's text may name other tables, and its effect may show only there.
    run = replace(step.definition, query=action.statement)
    return tuple(sorted(step.ddl.mentioned | parsed(run).mentioned))


def _refusal(step: DdlStep, statement: str, fault: DdlFailed, context: DdlContext) -> DdlFailed:
    """Return the error of a refused statement: the server's answer, the statement, next steps."""
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
    """Return how to make the target take a statement, or what to do if its object exists."""
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
