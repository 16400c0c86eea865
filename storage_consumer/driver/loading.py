"""Load tables from copies: create their structures, then write their parts, a few per job.

A table that is loaded stands still otherwise. When the last part of its copy is written, what is
stored of it is as after any other copy, and the next round reads that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from storage_consumer.bucket.table_statements import binary_columns, index_count, unique_keys
from storage_consumer.driver.ddl_prepare import described, prepared
from storage_consumer.driver.ledger import JOB_SECONDS, RoundContext, RoundLedger
from storage_consumer.driver.open_copies import CopiedTable, LoadingState, OpenCopy, unsettled
from storage_consumer.driver.remedies import copy_again, load_command, reason_of, table_command
from storage_consumer.errors import ConfigError, NotReplicable, TableError
from storage_consumer.model import (
    CommitRange,
    DataFile,
    DdlKind,
    TableDefinition,
    TableName,
    TableVersion,
    folded_name,
)
from storage_consumer.plan.journal_entry import DONE, STARTED
from storage_consumer.plan.loads import Load, clock_of, end_of, next_slices
from storage_consumer.plan.manager import ConsumerManager
from storage_consumer.plan.steps import OF_LOADS, DdlStep, RowStep, key_of
from storage_consumer.plan.table import is_all_apart
from storage_consumer.plan.table_state import TableState
from storage_consumer.plan.table_words import table_flag
from storage_consumer.ports import DdlContext, Target
from storage_consumer.rows.fitting import TargetTable
from storage_consumer.rows.match import table_work
from storage_consumer.rows.spec import ROW_BYTES
from storage_consumer.sql.tokens import quote
from storage_consumer.telemetry import Log

_log = Log("load")

_ALONE, _BESIDE_OTHERS = 20.0, 2.0
"""Seconds that a job with copies' parts should take: alone, and while other tables go on."""
_EMPTYING = {
    DdlKind.DROP_TABLE: "DROP TABLE",
    DdlKind.DROP_VIEW: "DROP VIEW",
    DdlKind.TRUNCATE_TABLE: "TRUNCATE TABLE",
}
_OTHER_COPY = "{} holds another copy than the one that the load of {} began with. {}"
_NO_COPY = "the copy at {} that {} is loaded from cannot be read any more: {}. {}"
_HOLDS_DATABASE = (
    "the database {} is dropped and created again (version {}) before the copy, and neither can happen while this table waits for its load. "
    "Next steps: to leave the table out for now: {} -- once the database is there again, to request the load again: {}"
)

_ROWS_CAME = (
    "somebody has written rows into {} since its load was requested: it would be created anew for the copy, and they would be lost. Remove them, "
    "or load the copy in their place: cancel the load, and request it again with --replace"
)


@dataclass(slots=True)
class LoadJobs:
    """The loads of one round."""

    context: RoundContext
    ledger: RoundLedger
    loading: LoadingState
    fence_rows: Callable[[], None]
    """Keeps late tasks of earlier jobs from writing; see `RowJobs.fence`."""

    @property
    def is_any_open(self) -> bool:
        """Whether any table is being loaded."""
        return bool(self.loading.loads)

    def steps(self) -> list[RowStep]:
        """Return what the next job writes of copies; tables that cannot be loaded halt here."""
        # Of copies that are not open nothing tells which view selects from which.
        for load in self._open():
            if load.load_id not in self.loading.created:
                self._copy_of(load)
        ready = [load for load in self._open() if self._is_ready(load)]
        sizes = [
            (load, tuple(part.size for part in self._table(load).parts))
            for load in ready
            if not load.is_written
        ]
        seconds = _ALONE if is_all_apart(self.context.manager.tables.values()) else _BESIDE_OTHERS
        most, pace = int(self.loading.rate * seconds), self.context.config.tuning.rows_per_second
        most = min(most, pace * JOB_SECONDS * ROW_BYTES["dump-sql"]) if pace else most
        steps = []
        for part in next_slices(sizes, max(1, most)):
            load, table = part.load, self._table(part.load)
            files = tuple(
                DataFile(
                    stored=table.parts[number - 1],
                    table_dir=f"{OF_LOADS}{load.load_id}",
                    version=TableVersion(0),
                    partition=None,
                    date="",
                    dispatcher="",
                    number=number,
                    width=0,
                )
                for number in range(part.first, part.last + 1)
            )
            borders = CommitRange(low=max(load.done, clock_of(part.first)), high=end_of(part.last))
            origin, rows = self.loading.origin_of(load.source), _rows_of(load, table.definition)
            steps.append(replace(rows, commit_range=borders, files=files, origin=origin))
        return steps

    def note(self, steps: Iterable[RowStep], written: Collection[str], seconds: float) -> None:
        """Store loads' progress after a job of `seconds`; `written`: keys of tables written."""
        done = [step for step in steps if step.origin and step.table_key in written]
        if not done:
            return
        self.context.state.loads.advance({step.table_key: step.commit_range.high for step in done})
        for step in done:
            self.loading.loads[step.table_key] = replace(
                self.loading.loads[step.table_key], done=step.commit_range.high
            )
        size = sum(file.stored.size for step in steps for file in step.files)
        self.loading.rate = max(1.0, size / max(seconds, 0.1))

    def end_written(self) -> None:
        """Let the tables go on whose copies are written."""
        for load in self._open():
            if not (load.is_written and load.load_id in self.loading.created):
                continue
            version, _ = self.context.state.loads.unsettled(load)
            if version:
                self.loading.waits.tell(load, "statement", unsettled(f"with version {version}"))
                continue
            # A late task goes by how far this load is, which another load of the table begins anew.
            self.fence_rows()
            if why := self.context.state.loads.finish(load):
                self.ledger.halt(load.table_key, why, kind="ddl")
                continue
            del self.loading.loads[load.table_key]
            self.ledger.loaded.add(load.table_key)
            self.loading.ended = True
            _log.info("load_finished", table=str(load.name), checkpoint=load.low, files=load.parts)

    # one load

    def _open(self) -> list[Load]:
        """Return loads to continue: small tables first, then views as the copy has them.

        Their tables are neither halted nor left out.
        """
        tables, loads = self.context.manager.tables, []
        for load in self.loading.loads.values():
            table = tables.get(load.table_key)
            if (
                table is not None
                and table.status.state == TableState.LOADING
                and not table.status.excluded
            ):
                loads.append(load)
        order = {
            key: place
            for copy in self.loading.copies.values()
            for place, key in enumerate(copy.tables)
        }
        return sorted(
            loads, key=lambda load: (load.is_view, load.size, order.get(load.table_key, 0))
        )

    def _table(self, load: Load) -> CopiedTable:
        return self.loading.copy_at(load.source).tables[load.table_key]

    def _is_ready(self, load: Load) -> bool:
        """Return whether the target has the table; create it, or halt it if that fails."""
        if load.load_id in self.loading.created:
            return True
        copy = self._copy_of(load)
        if copy is None or self._must_wait(load):
            return False
        manager, epoch = self.context.manager, self.context.state.lease.epoch
        try:
            for step in self._statements(load, copy):
                ready = prepared(step, manager, self.context.target)
                self.fence_rows()
                if self.loading.fenced_for != epoch:
                    self.loading.ddl.fence()
                    self.loading.fenced_for = epoch
                if not self.ledger.should_continue():
                    return False
                surroundings = surroundings_of(step, copy, self.context)
                fields = {
                    "table": str(ready.name),
                    "version": step.version,
                    "query": ready.definition.query,
                }
                self.context.progress.ddl(table=str(ready.name), query=ready.definition.query)
                # A copy may have thousands of tables, each of which is told when it has its rows.
                _log.debug("ddl_started", **fields)
                began = self.context.clock.monotonic()
                note = self.loading.ddl.run(ready, surroundings, ())
                seconds = round(self.context.clock.monotonic() - began, 3)
                _log.debug("ddl_finished", **fields, note=note, seconds=seconds)
                self.ledger.ddl_done(ready)
        except TableError as fault:
            self.ledger.halt(load.table_key, reason_of(fault, self.context.config), kind="ddl")
            return False
        self.loading.created.add(load.load_id)
        return True

    def _copy_of(self, load: Load) -> OpenCopy | None:
        """Return a load's copy; None if unreadable: its table waits for an answer, or halts.

        The others go on.
        """
        downstream = self.context.config.downstream
        try:
            copy = self.loading.answered(load, self.context.clock, downstream)
        except ConfigError as fault:
            ways = copy_again(load.name, downstream)
            self.ledger.halt(
                load.table_key, _NO_COPY.format(load.source, load.name, fault, ways), kind="file"
            )
            return None
        if copy is not None and (
            copy.identity != load.identity or load.table_key not in copy.tables
        ):
            ways = copy_again(load.name, downstream)
            self.ledger.halt(
                load.table_key, _OTHER_COPY.format(load.source, load.name, ways), kind="file"
            )
            return None
        return copy

    def _statements(self, load: Load, copy: OpenCopy) -> list[DdlStep]:
        """Return what has to run before the rows of a load can be written."""
        table, name = copy.tables[load.table_key], load.name
        manager, target = self.context.manager, self.context.target
        own = copy.databases.get(folded_name(name.schema))
        steps = database_steps(
            f"{OF_LOADS}{load.load_id}", [own] if own is not None else [], manager, target
        )
        there = described([name], manager, target).get(name.folded())
        journal, create = self.context.state.journal, statement_of(load, table.definition)
        drop_table = _emptying(load, table.definition, DdlKind.DROP_TABLE)
        drop_view = _emptying(load, table.definition, DdlKind.DROP_VIEW)
        begun = [
            (drop, entry.state)
            for drop in (drop_table, drop_view)
            if (entry := journal.entry(drop)) is not None
        ]
        # Whether it took effect is not known yet, and no load ends beside such a statement.
        if in_doubt := [drop for drop, state in begun if state == STARTED]:
            return [*steps, *in_doubt, create]
        # A restart finds the table of its own load: with rows, which stay.
        if there is None or journal.entry(create) is not None:
            return [*steps, create]
        # Rows are written into tables only, so nothing of this load is lost where somebody has put
        # a view there since.
        if load.done:
            return steps
        if there.is_view:
            refuse_unmade(create, manager, target)
            # Unasked, the CREATE meets it and fails.
            return [*steps, *([drop_view] if load.replaces else []), create]
        # One that has been sent goes on, whatever is known by now.
        if begun or not self._is_as_copied(load, copy, there):
            refuse_unmade(create, manager, target)
            # They came after the load was found to begin with an empty table.
            if not (begun or load.replaces) and self.loading.has_rows(there.name):
                raise NotReplicable(
                    _ROWS_CAME.format(there.name),
                    ways=(("to cancel the load", f"load cancel {table_flag(name)}"),),
                )
            return [*steps, drop_table, create]
        return (
            [*steps, _emptying(load, table.definition, DdlKind.TRUNCATE_TABLE)]
            if load.replaces
            else steps
        )

    def _is_as_copied(self, load: Load, copy: OpenCopy, there: TargetTable) -> bool:
        """Return whether a target's table can take the copy as it is, and what follows it.

        The statements that the copy holds will not run. So where some of them may be still to come,
        the table has to be created anew.
        """
        wanted = copy.tables[load.table_key].definition
        columns = [folded_name(column.name) for column in wanted.columns]
        if columns != [
            folded_name(column.name) for column in there.columns if not column.generated
        ]:
            return False
        # Unknown of a table made by others: its keys, collations, expressions and triggers.
        if not self.loading.is_ours(there.name):
            return False
        # One without an index, as made from its columns, does not get it by the rows.
        if _tells_less_apart(there, wanted.query) or there.indexes < index_count(wanted.query):
            return False
        # Before it is emptied: such as one with another primary key.
        try:
            table_work(0, _rows_of(load, wanted), there, copy.origin)
        except NotReplicable:
            return False
        # Whether all statements that the copy holds had their effects on it.
        manager = self.context.manager
        if load.low <= manager.floor:
            return True
        may_come = self.ledger.reach <= load.low
        if may_come or any(
            s.table_key == load.table_key and s.version <= load.low for s in manager.backlog
        ):
            return False
        # What was passed over while the table was left out shows in nothing else, such as a key
        # that the source has dropped.
        table = manager.tables[load.table_key]
        for step in table.timeline.statements(table.copies.copied_at + 1, load.low):
            entry = (
                self.context.state.journal.entry(step) if manager.backlog.has_run(step) else None
            )
            if entry is None or entry.state != DONE:
                return False
        return True

    def _must_wait(self, load: Load) -> bool:
        """Return whether a load waits for its database; halt the table if for ever."""
        manager, schema = self.context.manager, load.name.schema
        # The versions of the statements that have not run and create its database, up to its copy.
        creating = [
            step.version
            for step in manager.backlog
            if step.definition.ddl_type == DdlKind.CREATE_SCHEMA
            and manager.floor < step.version <= load.low
            and folded_name(step.name.schema) == folded_name(schema)
        ]
        # It follows a DROP DATABASE, which waits for the database's older tables, like this one.
        first = manager.tables[load.table_key].files.first
        if version := next((version for version in creating if 0 < first < version), 0):
            downstream = self.context.config.downstream
            ways = table_command("skip", load.name, downstream), load_command(load.name, downstream)
            self.ledger.halt(
                load.table_key, _HOLDS_DATABASE.format(schema, version, *ways), kind="ddl"
            )
            return True
        # What a feed began with holds the statements before it.
        if load.low <= manager.floor:
            return False
        # One at exactly the storage checkpoint may not be there yet.
        place = manager.selection.routes.target(TableName(schema=schema, table=""))
        may_come = self.ledger.reach <= load.low and not self.context.target.existing([place])
        # Also one that was sent, outcome unknown: it would find the database there and fail.
        waits = may_come or bool(creating)
        if waits:
            self.loading.waits.tell(
                load,
                "database",
                f"the bucket may still bring the CREATE DATABASE of {schema}, up to the copy's TSO {load.low}",
            )
        return waits


def _rows_of(load: Load, definition: TableDefinition) -> RowStep:
    """Return the rows of a copy's table as a step of it, without files."""
    # Rows carry the load's clock instead of a commit-ts, so no version may cut any of them off.
    plain = replace(definition, version=TableVersion(0), query="", ddl_type=0)
    return RowStep(
        table_key=load.table_key,
        name=load.name,
        commit_range=CommitRange(low=load.done, high=end_of(load.parts)),
        current=plain,
        definitions={(plain.version, f"{OF_LOADS}{load.load_id}"): plain},
        files=(),
        as_of=load.low,
    )


def refuse_unmade(create: DdlStep, manager: ConsumerManager, target: Target) -> None:
    """Raise `TableError` if a copy's statement must not run: what is in its place stays first."""
    if skip := prepared(create, manager, target).skip:
        raise NotReplicable(
            f"{create.name} stays as it is in the target, since the copy's would not be created: {skip}"
        )


def database_steps(
    folder: str, wanted: Iterable[TableDefinition], manager: ConsumerManager, target: Target
) -> list[DdlStep]:
    """Return CREATE statements for missing databases; `folder`: of their journal identities."""
    routes = manager.selection.routes
    places: dict[TableName, TableDefinition] = {}
    for made in wanted:
        # Where a database's tables go to several, each is created before its first table.
        if not routes.splits(made.name.schema):
            places.setdefault(routes.target(made.name).folded(), made)
    there = target.existing(places) if places else {}
    return [
        _copied(folder, key_of(made.name), made)
        for place, made in places.items()
        if place not in there
    ]


def surroundings_of(step: DdlStep, copy: OpenCopy, context: RoundContext) -> DdlContext:
    """Return what a statement of a copy runs among."""
    schema = step.name.schema
    made = copy.databases.get(folded_name(schema))
    return DdlContext(
        database_is_ours=made is not None and not context.manager.selection.routes.splits(schema),
        database_statements=(made.query,) if made is not None else (),
        table_was_seen=True,
        should_continue=context.ddl_workers.should_continue,
    )


def _copied(folder: str, table_key: str, definition: TableDefinition) -> DdlStep:
    """Return a copy's statement; `folder`: its journal identity's, beside the bucket's own."""
    return DdlStep(
        table_dir=f"{folder}/{key_of(definition.name)}"[:500],
        table_key=table_key,
        definition=definition,
    )


def _tells_less_apart(there: TargetTable, create: str) -> bool:
    """Return whether the target's key may equate rows that differ at the source, losing one.

    It has a unique key that the copy's CREATE TABLE does not imply, or compares the texts of a key
    less strictly.
    """
    wanted, binary = unique_keys(create), binary_columns(create)
    keyed = {folded_name(column) for key in there.unique_keys for column in key.columns}
    lax = {folded_name(column.name) for column in there.columns if not column.binary_collation}
    # Each server writes expressions in its own way, so they are counted.
    if keyed & lax & binary or len(there.expression_keys) > sum("" in key for key in wanted):
        return True
    for key in there.unique_keys:
        # Rows that differ in a known key's columns differ in one that has all of them, and as many
        # of their characters.
        lengths = {
            folded_name(name): prefix or math.inf
            for name, prefix in zip(key.columns, key.prefixes, strict=True)
        }
        if not any(
            all(lengths.get(name, 0) >= (length or math.inf) for name, length in known.items())
            for known in wanted
        ):
            return True
    return False


def statement_of(load: Load, definition: TableDefinition) -> DdlStep:
    """Return a copy's statement with the load's identity: another load runs it again."""
    return _copied(f"{OF_LOADS}{load.load_id}", load.table_key, definition)


def _emptying(load: Load, wanted: TableDefinition, kind: DdlKind) -> DdlStep:
    """Return the statement that makes room for a copy: it empties or drops table or view."""
    query = f"{_EMPTYING[kind]} {quote(wanted.name.schema)}.{quote(wanted.name.table)}"
    # Another checksum than the CREATE's, which has the same version.
    return statement_of(
        load, replace(wanted, query=query, ddl_type=kind, checksum=wanted.checksum ^ kind)
    )
