"""Laws of planning and progress: tables, statements across tables, late and repeated files, crashes at any step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from storage_consumer.model import DataFile, DdlId
from storage_consumer.plan.directories import Restart
from storage_consumer.plan.finished_files import FileVerdict, Finished, digest_of
from storage_consumer.plan.manager import ConsumerManager
from storage_consumer.plan.steps import DdlStep, RowStep
from storage_consumer.plan.table import checkpoints
from storage_consumer.tso import row_floor
from tests.property.planning_source import TABLES, Writing, directory
from tests.unit.building import key, place


class Replicating(Writing):
    """A source writes by TiCDC's rules while a consumer follows, is killed and starts again."""

    def __init__(self) -> None:
        """Nothing is written yet."""
        super().__init__()
        self.applied: dict[str, set[int]] = {table: set() for table in TABLES}
        self.ran: list[DdlId] = []
        self.done: dict[str, Finished] = {}
        self.start()

    def start(self) -> None:
        """A new process: it knows what is stored, and finds all files anew."""
        restart = Restart(
            checkpoint=self.checkpoint,
            tables=dict(self.table_checkpoints),
            done=dict(self.done),
            journalled=frozenset(self.ran),
        )
        self.manager = ConsumerManager(restart, gap_timeout=1e9)
        self.new_schemas = list(self.seen_schemas)
        self.new_files = [self.judged(file) for file in self.seen_files.values()]

    def judged(self, file: DataFile) -> DataFile:
        """A file as a first listing shows it: finished where what is stored says that it was finished as it is."""
        verdict = self.done.get(file.sequence, Finished()).judge(file.number, digest_of(file.stored))
        assert verdict is not FileVerdict.UNSURE
        return replace(file, finished=verdict is FileVerdict.UNCHANGED)

    # the consumer works

    @rule(steps=st.integers(0, 12), is_stable=st.booleans())
    def round(self, steps: int, is_stable: bool) -> None:  # noqa: FBT001 - drawn
        """A round of at most so many steps."""
        self.poll()
        for _ in self.work(is_stable=is_stable):
            steps -= 1
            if steps <= 0:
                return
        self.end_round()

    @rule(steps=st.integers(0, 6), is_stable=st.booleans(), stored=st.booleans())
    def crash(self, steps: int, is_stable: bool, stored: bool) -> None:  # noqa: FBT001 - drawn
        """The process is killed after some steps, the last one's rows stored or not, and starts again."""
        self.poll()
        for _, store in zip(range(steps), self.work(is_stable=is_stable, stores=stored), strict=False):
            assert store is None
        self.start()

    def poll(self) -> None:
        """What was listed since the last time goes to the tables."""
        self.manager.new_round()
        dirs = {schema.path: directory(schema) for schema in self.new_schemas}
        self.manager.dispatch(self.new_schemas, dirs, self.new_files)
        self.new_schemas, self.new_files = [], []
        self.keep(self.manager.sequences.rewound())
        assert self.manager.look_for_gaps(self.storage_checkpoint, 0.0) == {}

    def work(self, *, is_stable: bool, stores: bool = True) -> Iterator[None]:
        """Step by step what the next waves hold; `stores`: what rows did is stored at once."""
        while wave := self.manager.next_wave(self.storage_checkpoint, is_stable=is_stable):
            for step in wave.rows:
                self.apply_rows(step)
                if stores:
                    self.store(step)
                yield
            for ddl in (ddl for group in wave.ddls for ddl in group):
                self.run_ddl(ddl)
                yield

    def apply_rows(self, step: RowStep) -> None:
        """What a job does, and what it tells."""
        table_dir = place(step.table_key)
        before = len(self.applied[table_dir])
        found: dict[str, list[int]] = {}
        for file in step.files:
            version = step.definitions[file.version_key]
            low = row_floor(step.commit_range.low, version.version, is_ddl=version.is_ddl)
            found[file.stored.path] = rows = self.contents[file.stored.path]
            self.applied[table_dir] |= {ts for ts in rows if low < ts <= step.commit_range.high}
        missing = {t for t in self.rows[table_dir] if t <= step.commit_range.high} - self.applied[table_dir]
        assert not missing, f"{table_dir} lacks {missing} in {step.commit_range} after {before} rows"
        self.check_borders(table_dir, step.commit_range.low)
        self.manager.rows_applied(step)
        table = self.manager.tables[step.table_key]
        for file in step.files:
            later = [ts for ts in found[file.stored.path] if ts > step.commit_range.high]
            table.finish(file, max_ts=max(found[file.stored.path]), next_ts=min(later, default=0))

    def check_borders(self, table_dir: str, low: int) -> None:
        """No row stands on the wrong side of a statement that touches its table, unless that alters no table."""
        for identity, statement in self.statements.items():
            if table_dir not in statement.touches or not self.query_of(identity) or statement.alters_no_table:
                continue
            after = [ts for ts in self.applied[table_dir] if ts > max(low, statement.version)]
            assert not after or identity in self.ran, f"{after} of {table_dir} before {identity}"

    def query_of(self, identity: DdlId) -> str:
        """The text of a schema file's statement."""
        return next(f.query for f in self.statements[identity].files if directory(f) == identity[0])

    def store(self, step: RowStep) -> None:
        """What is stored after a job."""
        table = self.manager.tables[step.table_key]
        self.table_checkpoints[step.table_key] = table.checkpoint
        self.keep(self.manager.sequences.to_store())

    def keep(self, sequences: Mapping[str, Finished]) -> None:
        """Store the sequences that moved."""
        for name, sequence in sequences.items():
            digests = {**self.done.get(name, Finished()).digests, **sequence.digests}
            self.done[name] = Finished(upto=sequence.upto, digests=digests)

    def run_ddl(self, step: DdlStep) -> None:
        """A statement takes effect and is stored as done, with the tables that it moves."""
        statement = self.statements[step.identity]
        assert step.identity not in self.ran, f"{step.identity} ran twice"
        assert statement.touches <= {place(key) for key in self.manager.touches.of(step)}
        self.ran.append(step.identity)
        for table in statement.touches if step.definition.query else ():
            rows = {ts for ts in self.rows[table] if ts <= step.version}
            assert rows <= self.applied[table], f"{step.identity} ran before rows of {table}"
            is_late = not (statement.alters_no_table or self.applied[table] <= rows)
            assert not is_late, f"{step.identity} ran after rows of {table} that come later"
        for moved in self.manager.moved_by(step):
            self.table_checkpoints[moved.key] = max(moved.checkpoint, self.table_checkpoints.get(moved.key, 0))
        self.manager.ddl_done(step)

    def end_round(self) -> None:
        """The checkpoint of the whole is stored."""
        reached = checkpoints(self.manager.tables.values(), self.storage_checkpoint)
        self.manager.catalog.stored_checkpoint = self.checkpoint = max(reached.running, self.checkpoint)

    # laws

    @invariant()
    def everything_at_or_below_the_checkpoint_is_there(self) -> None:
        """The checkpoint never promises more than was done."""
        for table, rows in self.rows.items():
            upto = max(self.checkpoint, self.table_checkpoints.get(key(table), 0))
            assert {ts for ts in rows if ts <= upto} <= self.applied[table]
        for identity, statement in self.statements.items():
            assert statement.version >= self.checkpoint or identity in self.ran or not self.query_of(identity)

    @invariant()
    def statements_of_one_table_run_in_order(self) -> None:
        """Statements that touch a common table run by version."""
        for table in TABLES:
            versions = [ran.version for ran in self.ran if table in self.statements[ran].touches]
            assert versions == sorted(versions)

    def teardown(self) -> None:
        """Once all files are there, one round ends with everything applied and nothing left to do."""
        self.seen_schemas += self.unseen_schemas
        self.new_schemas += self.unseen_schemas
        for file in self.unseen_files:
            self.see(file)
        self.unseen_schemas, self.unseen_files = [], []
        self.storage_checkpoint = self.clock + 1
        self.poll()
        for _ in self.work(is_stable=True):
            pass
        self.end_round()
        assert self.applied == {table: set(rows) for table, rows in self.rows.items()}
        assert {i for i in self.statements if self.query_of(i)} <= set(self.ran)
        assert self.checkpoint == self.storage_checkpoint
        assert self.manager.pending_files == 0
        self.start()
        self.poll()
        assert not self.manager.next_wave(self.storage_checkpoint, is_stable=True)


TestReplicating = Replicating.TestCase
TestReplicating.settings = settings(max_examples=30, stateful_step_count=25)
