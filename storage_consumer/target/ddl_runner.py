"""DdlRunner: one statement, once. The journal says planned → started → done; what was interrupted is settled by looking.

A statement that was started and never answered took effect if the structure of the tables that it names is no longer the one
noted before it. If it still is, the statement runs again: no row from after it has been written yet, so one that leaves the
structure as it is (TRUNCATE) may. Only EXCHANGE PARTITION can neither be seen nor repeated; it stops the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from storage_consumer.errors import DdlFailed, TargetBusy, TargetUnavailable
from storage_consumer.model import TableName
from storage_consumer.planning.steps import DdlStep
from storage_consumer.planning.touches import DROP_TABLE, DROP_VIEW, mentioned_names
from storage_consumer.ports import DdlContext, TableProgress
from storage_consumer.sql_text import has_words, quote, tokens
from storage_consumer.target.connection import escape
from storage_consumer.target.ddl import DdlAction, action_for, create_from_columns, refuse_what_only_tidb_holds
from storage_consumer.target.faults import ALREADY_DONE
from storage_consumer.target.journal import DONE, FAILED, PLANNED, SKIPPED, STARTED, JournalEntry
from storage_consumer.target.parts import names_index
from storage_consumer.work import TargetTable

_DROPS = (DROP_TABLE, DROP_VIEW)
_NO_SUCH_TABLE = frozenset((1051, 4092))
"""What a DROP of a table or view answers that does not exist; MariaDB has a number of its own for views."""


class Structure(Protocol):
    """What is asked of the target; see `database.TargetDatabase`."""

    def describe(self, wanted: Iterable[TableName]) -> dict[TableName, TargetTable]:
        """The tables that exist, by folded name."""
        ...

    def database_collation(self, schema: str) -> str | None:
        """Default collation of a database, None if it does not exist."""
        ...

    def index_names(self, name: TableName) -> frozenset[str]:
        """Folded names of a table's indexes."""
        ...

    def is_running(self, statement: str) -> bool:
        """Whether the server is executing the statement right now."""
        ...

    def fingerprint(self, names: Iterable[TableName]) -> str:
        """Tells two structures of these tables apart."""
        ...

    def fence_ddl(self) -> None:
        """Keep every other owner's connection from running a DDL."""

    def execute_ddl(self, statement: str, schema: str, version: int, ignorable: frozenset[int] = frozenset()) -> str:
        """Run one statement."""
        ...

    def close(self) -> None:
        """Close the connection."""


class Journal(Protocol):
    """What is asked of the state; see `state.StateStore`."""

    def journal_entry(self, step: DdlStep) -> JournalEntry | None:
        """What the journal says of a statement."""
        ...

    def journal(
        self,
        step: DdlStep,
        state: str,
        *,
        statement: str = "",
        structure_before: str = "",
        note: str = "",
        tables: Iterable[TableProgress] = (),
    ) -> None:
        """Store where a statement stands."""


class DdlRunner:
    """Runs statements on the target with a journal around each."""

    def __init__(self, database: Structure, state: Journal, flavor: str, *, zone: str = "UTC") -> None:
        """`flavor`: ``mariadb``, ``mysql`` or ``tidb``; `zone`: the feed's, in which statements run."""
        self._database = database
        self._state = state
        self._flavor = flavor
        self._zone = zone

    def run(self, step: DdlStep, context: DdlContext, moved: Sequence[TableProgress]) -> str:
        """Run `step`, or find out that it took effect; `moved` is stored in the transaction that says so.

        Returns what was changed or found, or an empty text. Raises `DdlFailed` when the target refuses the statement, and
        `TargetUnavailable` when its outcome is not known yet.
        """
        entry = self._state.journal_entry(step)
        if entry and entry.state in (DONE, SKIPPED):
            self._state.journal(step, entry.state, note=entry.note, tables=moved)
            return "done before"
        action = self._action(step, context)
        if not action.statement:
            self._state.journal(step, SKIPPED, note="; ".join(action.notes), tables=moved)
            return "; ".join(action.notes)
        note = self._once(step, action, entry, context)
        note = "; ".join(filter(None, (*action.notes, note)))
        self._state.journal(step, DONE, note=note, tables=moved)
        return note

    def fence(self) -> None:
        """End what a former owner may still be about to run over this runner's lane."""
        self._database.fence_ddl()

    def close(self) -> None:
        """Close the connection."""
        self._database.close()

    def _action(self, step: DdlStep, context: DdlContext) -> DdlAction:
        """What to run; a database that the source had before its changefeed is made first."""
        if step.skip:
            return DdlAction(statement="", schema="", notes=(step.skip,))
        refuse_what_only_tidb_holds(step.definition, self._flavor)
        name = step.name
        collation = None if context.database_is_ours else self._database.database_collation(name.schema)
        if name.table and not context.database_is_ours and collation is None:
            defaults = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
            self._database.execute_ddl(
                f"CREATE DATABASE IF NOT EXISTS {quote(name.schema)} {defaults}", "", step.version
            )
        if not step.ensure:
            indexes = self._database.index_names(name) if names_index(tokens(step.definition.query)) else None
            return action_for(step.definition, self._flavor, collation, indexes, zone=self._zone)
        if self._database.describe([name]):
            return DdlAction(statement="", schema="", notes=("the table is there",))
        statement = create_from_columns(step.definition, escape)
        note = (
            "made from the columns of the schema file, which tells no indexes, defaults, charsets or generated columns"
        )
        return DdlAction(statement=statement, schema=name.schema, notes=(note,))

    def _once(self, step: DdlStep, action: DdlAction, entry: JournalEntry | None, context: DdlContext) -> str:
        """Run the statement unless it took effect; returns what was found."""
        names = self._names(step)
        self._database.fence_ddl()
        interrupted = entry is not None and entry.state == STARTED
        if interrupted and entry is not None:
            if self._database.is_running(action.statement):
                message = f"the DDL of {step.name} with version {step.version} is still running on the target"
                raise TargetUnavailable(message)
            if self._database.fingerprint(names) != entry.structure_before:
                return "it had taken effect when an earlier run was interrupted"
            self._refuse_if_unknowable(step)
        before = self._database.fingerprint(names)
        for state in (PLANNED, STARTED):
            self._state.journal(step, state, statement=action.statement, structure_before=before)
        unseen = step.definition.ddl_type in _DROPS and not context.table_was_seen
        ignorable = ALREADY_DONE if interrupted else _NO_SUCH_TABLE if unseen else frozenset[int]()
        try:
            answer = self._database.execute_ddl(action.statement, action.schema, step.version, ignorable)
            self._refuse_if_not_ours(answer, names, "" if unseen else before)
        except TargetBusy:
            self._state.journal(step, PLANNED, statement=action.statement, structure_before=before)
            raise
        except DdlFailed as fault:
            self._state.journal(step, FAILED, note=str(fault))
            message = (
                f"{step.name}: the target refused the DDL with version {step.version} ({step.definition.path}): {fault}. "
                f"The statement is: {action.statement[:500]}. Make the target's table fit, then start again: it is tried again"
            )
            raise DdlFailed(message) from fault
        return answer

    def _refuse_if_not_ours(self, answer: str, names: Sequence[TableName], before: str) -> None:
        """Refuse an "already done" to a statement that was interrupted unless the structure has changed since.

        What was there before is not that statement's work, and the rest of the statement has not been done.
        """
        if answer and self._database.fingerprint(names) == before:
            raise DdlFailed(answer)

    def _names(self, step: DdlStep) -> list[TableName]:
        """Whose structure shows whether the statement took effect."""
        return sorted(mentioned_names(step.definition))

    def _refuse_if_unknowable(self, step: DdlStep) -> None:
        """Stop where neither looking nor repeating is right."""
        if has_words(tokens(step.definition.query), "EXCHANGE", "PARTITION"):
            message = (
                f"{step.name}: EXCHANGE PARTITION with version {step.version} was interrupted and the target does not show whether "
                "it took effect. Compare the rows, exchange by hand if it did not, then set its row in the state schema's "
                "ddl_journal to state 'done' and start again"
            )
            raise DdlFailed(message)
