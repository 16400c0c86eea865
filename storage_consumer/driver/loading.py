"""Loading tables from copies: their structures are created first, then their parts are written, a few in each job.

A table that is loaded stands still otherwise. When the last part of its copy is written, what is stored of it is as after any other copy,
and the next round reads that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from storage_consumer.driver.context import RoundContext
from storage_consumer.driver.copies import CopiedTable, Loading, OpenCopy
from storage_consumer.driver.ddl_prepare import described, prepared
from storage_consumer.driver.ledger import RoundLedger
from storage_consumer.errors import TableError
from storage_consumer.job.target_table import TargetTable
from storage_consumer.model import (
    CommitRange,
    DataFile,
    DdlKind,
    TableDefinition,
    TableVersion,
    folded_name,
)
from storage_consumer.plan.loads import Load, Slice, clock_of, end_of, next_slices
from storage_consumer.plan.steps import DdlStep, RowStep, key_of
from storage_consumer.plan.table import is_all_apart
from storage_consumer.plan.table_state import TableState
from storage_consumer.ports import DdlContext
from storage_consumer.sql.tokens import quote
from storage_consumer.telemetry import Log

_log = Log("load")

_ALONE, _BESIDE_OTHERS = 20.0, 2.0
"""Seconds that a job with parts of copies should take: while nothing else is to be done, and while other tables go on."""
_OTHER_COPY = (
    "{} holds another copy than the one that the load of {} began with. Put that one back, or begin again: give {} a copy as of "
    "now or later"
)


@dataclass(slots=True)
class LoadJobs:
    """The loads of one round."""

    context: RoundContext
    ledger: RoundLedger
    loading: Loading
    fence_rows: Callable[[], None]
    """Keeps late tasks of earlier jobs from writing; see `RowJobs.fence`."""

    @property
    def is_any_open(self) -> bool:
        """Whether any table is being loaded."""
        return bool(self.loading.loads)

    def steps(self) -> list[RowStep]:
        """Return what the next job writes of copies; tables that cannot be loaded halt here."""
        ready = [load for load in self._open() if self._is_ready(load)]
        sizes = [(load, tuple(part.size for part in self._table(load).parts)) for load in ready if not load.is_written]
        seconds = _ALONE if is_all_apart(self.context.manager.tables.values()) else _BESIDE_OTHERS
        slices = next_slices(sizes, max(1, int(self.loading.rate * seconds)))
        return [self._step(each) for each in slices]

    def note(self, steps: Iterable[RowStep], written: Collection[str], seconds: float) -> None:
        """Store how far loads are after a job that took `seconds`; `written`: the keys of the tables whose steps it wrote."""
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
            if why := self.context.state.loads.finish(load):
                self.ledger.halt(load.table_key, why, kind="ddl")
                continue
            del self.loading.loads[load.table_key]
            self.loading.ended = True
            _log.info("load_finished", table=str(load.name), checkpoint=load.low, files=load.parts)

    # one load

    def _open(self) -> list[Load]:
        """Return the loads whose tables are neither halted nor left out: small tables first, then views as the copy has them."""
        loads = [load for load in self.loading.loads.values() if self._runs(load.table_key)]
        order = {key: place for copy in self.loading.copies.values() for place, key in enumerate(copy.tables)}
        return sorted(loads, key=lambda load: (load.is_view, load.size, order.get(load.table_key, 0)))

    def _runs(self, key: str) -> bool:
        table = self.context.manager.tables.get(key)
        return table is not None and table.status.state == TableState.LOADING and not table.status.excluded

    def _table(self, load: Load) -> CopiedTable:
        return self.loading.copy_at(load.source).tables[load.table_key]

    def _is_ready(self, load: Load) -> bool:
        """Return whether the target has the table; create it if it does not. A table that cannot be created halts."""
        if load.load_id in self.loading.created:
            return True
        copy = self.loading.copy_at(load.source)
        if copy.identity != load.identity or load.table_key not in copy.tables:
            text = _OTHER_COPY.format(load.source, load.name, load.name)
            self.ledger.halt(load.table_key, text, kind="file")
            return False
        try:
            if not all(self._run(step, copy) for step in self._statements(load, copy)):
                return False
        except TableError as fault:
            self.ledger.halt(load.table_key, str(fault), kind="ddl")
            return False
        self.loading.created.add(load.load_id)
        if load.source == self.context.config.loading.dump:
            self.loading.databases.add(load.source)
        return True

    def _statements(self, load: Load, copy: OpenCopy) -> list[DdlStep]:
        """Return what has to run before the rows of a load can be written."""
        table, name = copy.tables[load.table_key], load.name
        manager, target = self.context.manager, self.context.target
        steps = list(self._databases(load, copy))
        there = described([name], manager, target).get(name.folded())
        # A restart finds the table of its own load: with rows, which stay.
        if there is None or there.is_view:
            return [*steps, _ddl(load, table.definition)]
        if load.replaces and not load.done:
            steps += _emptying(load, table.definition, there)
        return steps

    def _databases(self, load: Load, copy: OpenCopy) -> Iterator[DdlStep]:
        """Yield the statements for the databases that are to exist: that of the table; all of them, the empty ones too, if the feed begins so."""
        filter_, routes = self.context.manager.selection.filter, self.context.manager.selection.routes
        own = copy.databases.get(folded_name(load.name.schema))
        begins = load.source == self.context.config.loading.dump
        wanted = [made for made in copy.databases.values() if not filter_.leaves_out(made.name)] if begins else [own]
        # Under a route the database may be another one, which the statement does not name.
        named = [made for made in wanted if made is not None and made.name.schema in routes.databases(made.name.schema)]
        if load.source in self.loading.databases or not named:
            return
        there = self.context.target.existing([made.name for made in named])
        yield from (_ddl(load, made) for made in named if made.name.folded() not in there)

    def _run(self, step: DdlStep, copy: OpenCopy) -> bool:
        """Run one statement of a copy; return False when asked to end before it. Raise `TableError` if it cannot run."""
        manager, epoch = self.context.manager, self.context.state.lease.epoch
        ready = prepared(step, manager, self.context.target)
        self.fence_rows()
        if self.loading.fenced_for != epoch:
            self.loading.ddl.fence()
            self.loading.fenced_for = epoch
        if not self.ledger.should_continue():
            return False
        made = copy.databases.get(folded_name(step.name.schema))
        surroundings = DdlContext(
            database_is_ours=made is not None,
            database_statements=(made.query,) if made is not None else (),
            table_was_seen=True,
            should_continue=self.context.ddl_workers.should_continue,
        )
        self.context.progress.ddl(table=str(ready.name), query=ready.definition.query)
        _log.info("ddl_started", table=str(ready.name), version=step.version, query=ready.definition.query)
        self.loading.ddl.run(ready, surroundings, ())
        self.ledger.ddl_done(ready)
        return True

    def _step(self, part: Slice) -> RowStep:
        """Return the rows of some parts as a step of their table."""
        load, table = part.load, self._table(part.load)
        # Rows carry the load's clock instead of a commit-ts, so no version may cut any of them off.
        plain = replace(table.definition, version=TableVersion(0), query="", ddl_type=0)
        folder = f"load/{load.load_id}"
        files = tuple(
            DataFile(
                stored=table.parts[number - 1],
                table_dir=folder,
                version=TableVersion(0),
                partition=None,
                date="",
                dispatcher="",
                number=number,
                width=0,
            )
            for number in range(part.first, part.last + 1)
        )
        return RowStep(
            table_key=load.table_key,
            name=load.name,
            commit_range=CommitRange(low=max(load.done, clock_of(part.first)), high=end_of(part.last)),
            current=plain,
            definitions={(plain.version, folder): plain},
            files=files,
            origin=self.loading.origin_of(load.source),
        )


def _ddl(load: Load, definition: TableDefinition) -> DdlStep:
    """Return a statement of a copy; its identity in the journal is that of the load, so that another load runs it again."""
    name = definition.name
    # In the journal of statements it stands beside those of the bucket, whose directories never begin so.
    return DdlStep(
        table_dir=f"load/{load.load_id}/{key_of(name)}"[:500], table_key=load.table_key, definition=definition
    )


def _emptying(load: Load, wanted: TableDefinition, there: TargetTable) -> Sequence[DdlStep]:
    """Return the statements that empty a table: TRUNCATE where its columns are those of the copy, else it is created anew."""
    columns = {folded_name(column.name) for column in wanted.columns}
    needed = {folded_name(column.name) for column in there.columns if not column.generated}
    same = columns == needed
    name = wanted.name
    verb, kind = ("TRUNCATE", DdlKind.TRUNCATE_TABLE) if same else ("DROP", DdlKind.DROP_TABLE)
    query = f"{verb} TABLE {quote(name.schema)}.{quote(name.table)}"
    # Another checksum than the CREATE's, which has the same version.
    emptying = replace(wanted, query=query, ddl_type=kind, checksum=wanted.checksum ^ 1)
    return [_ddl(load, emptying)] if same else [_ddl(load, emptying), _ddl(load, wanted)]
