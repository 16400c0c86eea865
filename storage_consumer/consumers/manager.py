"""ConsumerManager: new files to their tables, the next wave of work, and the checkpoint of the whole. No I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field

from storage_consumer.checkpoint import ddl_is_pending, ddl_is_stored, lowest
from storage_consumer.consumers.table import DROPPED, HALTED, RUNNING, WAITING, TableConsumer
from storage_consumer.consumers.table_version import Finished
from storage_consumer.model import DataFile, TableDefinition, TableName
from storage_consumer.planning.planner import PendingDdl, Position, barriers, ready_ddls, target_of
from storage_consumer.planning.steps import DdlStep, RowStep, Wave
from storage_consumer.planning.touches import CREATE_SCHEMA, DROP_SCHEMA, DROP_TABLE, renamed, touched_dirs

_VANISHED = (
    "a data file of this table vanished before it was read: data was lost at the source. Give the table a fresh copy, or "
    "restore the file, then set its row in the state schema's table_progress to state 'running' and start again"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """What an earlier run left in the target."""

    checkpoint: int = 0
    """Checkpoint of the whole, inclusive; every table that has none of its own follows it."""
    tables: Mapping[str, int] = field(default_factory=dict)
    """Table directory → its own checkpoint, inclusive."""
    behind: frozenset[str] = frozenset()
    """Table directories that do not follow the checkpoint of the whole: halted, or not caught up since they were."""
    dropped: frozenset[str] = frozenset()
    """Table directories whose table did not exist any more."""
    lost: frozenset[str] = frozenset()
    """Table directories of which a file vanished before it was read: only an operator can let them go on."""
    done: Mapping[str, Finished] = field(default_factory=dict)
    """Stream → how far it is finished."""
    journalled: frozenset[tuple[str, int, int]] = frozenset()
    """Identities of the DDL that are done, or skipped by decision."""


class ConsumerManager:
    """All tables of one bucket. One `TableConsumer` per table directory; the same one for all data of that table."""

    def __init__(self, restart: Restart, gap_timeout: float) -> None:
        """`gap_timeout`: seconds for which a missing file is waited for."""
        self.tables: dict[str, TableConsumer] = {}
        self.finished_files = 0
        self._restart = restart
        self.stored_checkpoint = restart.checkpoint
        self._gap_timeout = gap_timeout
        self._done = dict(restart.done)
        self._pending: dict[tuple[str, int, int], DdlStep] = {}
        self._ran = set(restart.journalled)
        self._dispatched = False
        self._rewound: dict[str, Finished] = {}
        self._created_schemas: dict[str, int] = {}
        self._touches: dict[tuple[str, int, int], frozenset[str]] = {}

    # (2) dispatch: new files to their tables

    def dispatch(
        self, definitions: Iterable[TableDefinition], table_dirs: Mapping[str, str], files: Iterable[DataFile]
    ) -> None:
        """Hand new schema files and data files to their tables. `table_dirs`: schema file path → table directory."""
        for definition in sorted(definitions, key=lambda d: (d.version, d.path)):
            table = self._table(table_dirs[definition.path])
            table.define(definition)
            self._enlist(table, definition)
            if definition.ddl_type == CREATE_SCHEMA:
                name = definition.name.schema.casefold()
                self._created_schemas[name] = min(
                    definition.version, self._created_schemas.get(name, definition.version)
                )
        for file in files:
            table = self._table(file.table_dir)
            finished = table.finished(file)
            if not table.offer(file, again=self._dispatched):
                self.finished_files += 1
            elif file.number <= finished.upto:
                self._rewound[file.stream] = table.finished(file)
        self._dispatched = True

    def _table(self, table_dir: str) -> TableConsumer:
        """The one consumer of a table directory."""
        if table_dir not in self.tables:
            own = self._restart.tables.get(table_dir, 0)
            follows = 0 if table_dir in self._restart.behind else self.stored_checkpoint
            table = TableConsumer(table_dir, max(own, follows), self._done)
            table.dropped = table_dir in self._restart.dropped
            if table_dir in self._restart.lost:
                table.state, table.error = HALTED, _VANISHED
            self.tables[table_dir] = table
            self._touches.clear()
        return self.tables[table_dir]

    def _enlist(self, table: TableConsumer, definition: TableDefinition) -> None:
        """Put a statement (or a first structure without one) on the line, unless it ran."""
        ensure = not definition.is_ddl
        if ensure and not table.needs_table_before(definition):
            return
        step = DdlStep(table_dir=table.table_dir, definition=definition, ensure=ensure)
        if ddl_is_pending(step.version, table.checkpoint, journalled=step.identity in self._ran):
            self._pending[step.identity] = step
            self._touches.clear()
        elif not ensure and step.version < table.checkpoint and step.identity not in self._ran:
            self.halt(
                table.table_dir,
                f"the DDL of {definition.path} turned up after rows beyond it had been applied; run it by hand if it is due "
                "(its rows are as the source wrote them), then note it as done in the state schema's ddl_journal",
            )

    # (2) plan: the next wave

    def look_for_gaps(self, storage_checkpoint: int, now: float) -> dict[str, str]:
        """Let tables wait for what is missing; table directory → reason for those that waited too long. `now` in seconds."""
        late = {}
        for table in self.tables.values():
            if table.state == HALTED:
                continue
            if reason := table.look_for_gaps(storage_checkpoint, now, self._gap_timeout):
                late[table.table_dir] = reason
        return late

    def next_wave(self, storage_checkpoint: int, *, settled: bool) -> Wave:
        """Rows of every table that has some to read; where no table has any before its next DDL, the DDL that can run.

        Tables without files in their window move on at once.
        """
        pending = self._with_touches()
        barrier = barriers(pending)
        steps = []
        for table in self.tables.values():
            if table.blocked:
                continue
            target = target_of(table.table_dir, barrier, storage_checkpoint)
            if step := table.row_step(target):
                steps.append(step)
            else:
                table.advance(target)
        if steps := self._without_twins(steps):
            return Wave(rows=tuple(steps), ddls=())
        positions = {
            d: Position(checkpoint=t.checkpoint, blocked=t.blocked, first=t.first) for d, t in self.tables.items()
        }
        return Wave(rows=(), ddls=ready_ddls(pending, positions, storage_checkpoint, settled=settled))

    def _without_twins(self, steps: Sequence[RowStep]) -> list[RowStep]:
        """Stop tables that are stored under several paths at once, which differ in case: their order would be lost."""
        by_name: dict[TableName, list[RowStep]] = defaultdict(list)
        for step in steps:
            by_name[step.name.folded()].append(step)
        for twins in by_name.values():
            if len(twins) > 1:
                paths = " and ".join(sorted(step.table_dir for step in twins))
                for step in twins:
                    self.halt(step.table_dir, f"one table is stored under {paths}: their rows can't be put in order")
        return [step for step in steps if not self.tables[step.table_dir].blocked]

    def _with_touches(self) -> list[PendingDdl]:
        """The DDL that have not run, each with the tables that it touches."""
        if self._pending and not self._touches:
            by_name: dict[TableName, list[str]] = defaultdict(list)
            for table in self.tables.values():
                by_name[table.name.folded()].append(table.table_dir)
            for identity, step in self._pending.items():
                self._touches[identity] = frozenset(touched_dirs(step.definition, by_name) | {step.table_dir})
        return [PendingDdl(step=step, touches=self._touches[identity]) for identity, step in self._pending.items()]

    def touched(self, step: DdlStep) -> frozenset[str]:
        """The table directories that a pending DDL is a barrier for."""
        if step.identity not in self._touches:
            self._with_touches()
        return self._touches[step.identity]

    # (6) acknowledge: what was done

    def beyond(self, step: DdlStep) -> list[str]:
        """Tables that a statement touches though they have been applied beyond it; there are none unless it came late."""
        tables = (self.tables[table_dir] for table_dir in sorted(self.touched(step)))
        return [str(t.name) for t in tables if t.checkpoint > step.version and 0 < t.first <= step.version]

    def rewound(self) -> dict[str, Finished]:
        """Streams of which a finished file has changed since the last call, as they are to be stored."""
        rewound, self._rewound = self._rewound, {}
        return rewound

    def rows_applied(self, step: RowStep) -> None:
        """All rows of the step's window are in the target."""
        self.tables[step.table_dir].advance(step.window.high)

    def moved_by(self, step: DdlStep) -> list[TableConsumer]:
        """The tables that a statement moves on, as they will be once it is done."""
        moved, pair = [], renamed(step.definition)
        gone = pair[0] if pair is not None and pair[0] != pair[1] else None
        for table_dir in sorted(self.touched(step)):
            table = copy(self.tables[table_dir])
            table.advance(step.version)
            table.dropped = self._dropped_after(step, table, gone)
            moved.append(table)
        return moved

    def ddl_done(self, step: DdlStep) -> None:
        """A statement took effect, or was found to have done so, or is not needed."""
        for moved in self.moved_by(step):
            table = self.tables[moved.table_dir]
            table.checkpoint, table.dropped = moved.checkpoint, moved.dropped
        self._ran.add(step.identity)
        self._touches.pop(step.identity, None)
        del self._pending[step.identity]

    def _dropped_after(self, step: DdlStep, table: TableConsumer, gone: TableName | None) -> bool:
        """Whether a table that the statement touches does not exist after it; `gone`: the name that it takes away, if any."""
        own = table.table_dir == step.table_dir
        if step.definition.ddl_type == DROP_SCHEMA:
            return bool(table.name.table)
        if step.definition.ddl_type == DROP_TABLE:
            return own or table.dropped
        if own:
            return False
        return table.dropped or table.name.folded() == gone

    def unreadable(self, table_dir: str, version: int) -> None:
        """A version is there whose structure cannot be read."""
        self._table(table_dir).version(version)

    def halt(self, table_dir: str, error: str) -> None:
        """Stop one table; the others go on."""
        table = self._table(table_dir)
        table.state, table.error = HALTED, error

    def wait(self, table_dir: str, reason: str) -> None:
        """Leave one table where it is for this round."""
        table = self._table(table_dir)
        table.state, table.error = WAITING, reason

    def new_round(self) -> None:
        """Tables that waited may try again."""
        for table in self.tables.values():
            if table.state == WAITING:
                table.state, table.error = RUNNING, ""

    def vanished(self, files: Iterable[DataFile]) -> list[TableConsumer]:
        """Files that are no longer stored; a table waits for those that were not finished. The tables that lost one now."""
        lost = {}
        for file in files:
            if file.table_dir in self.tables and self._table(file.table_dir).version(file.version).forget(file):
                lost[file.table_dir] = self.tables[file.table_dir]
        return list(lost.values())

    # what is known

    def checkpoint(self, storage_checkpoint: int) -> int:
        """The smallest checkpoint over the tables that are not halted, inclusive; an idle table has reached the storage's."""
        return lowest((t.checkpoint for t in self.tables.values() if t.state != HALTED), storage_checkpoint)

    def waiting_ddls(self, storage_checkpoint: int) -> list[DdlStep]:
        """DDL at exactly the storage checkpoint, which wait for it to move or to settle."""
        return [
            step
            for step in self._pending.values()
            if ddl_is_stored(step.version, storage_checkpoint, settled=True)
            and not ddl_is_stored(step.version, storage_checkpoint, settled=False)
        ]

    def stuck(self, storage_checkpoint: int) -> dict[str, str]:
        """Tables that a finished round could not bring to the storage checkpoint, since a DDL before it did not run.

        Table directory → which DDL, and which of the tables that it touches stand still.
        """
        stuck: dict[str, str] = {}
        for ddl in self._with_touches():
            step = ddl.step
            if not ddl_is_stored(step.version, storage_checkpoint, settled=False):
                continue
            tables = [self.tables[table_dir] for table_dir in sorted(ddl.touches)]
            still = ", ".join(str(table.name) for table in tables if table.is_in_the_way_of(step.version))
            why = f"waits for the DDL of {step.name} with version {step.version}{still and f': {still} stands still'}"
            stuck |= dict.fromkeys((table.table_dir for table in tables), why)
        return stuck

    def creates_database(self, step: DdlStep) -> bool:
        """Whether the bucket has a statement that made the step's database before it."""
        return self._created_schemas.get(step.name.schema.casefold(), step.version + 1) <= step.version

    def has_earlier(self, step: DdlStep) -> bool:
        """Whether the bucket has an earlier structure of the statement's table."""
        return any(
            version.definition is not None and number < step.version
            for number, version in self.tables[step.table_dir].versions.items()
        )

    @property
    def pending_bytes(self) -> int:
        """Bytes of the listed files that are not finished."""
        return sum(table.pending_bytes for table in self.tables.values())

    @property
    def pending_files(self) -> int:
        """How many listed files are not finished."""
        return sum(table.pending for table in self.tables.values())

    def state_of(self, table: TableConsumer) -> str:
        """``running``, ``waiting``, ``halted`` or ``dropped``, as it is stored and shown."""
        return DROPPED if table.dropped and table.state == RUNNING else table.state
