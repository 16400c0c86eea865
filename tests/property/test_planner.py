"""Laws of planning and progress: tables, statements across tables, late and repeated files, crashes at any step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from storage_consumer.checkpoint import row_floor
from storage_consumer.consumers.catalog import Restart
from storage_consumer.consumers.manager import ConsumerManager
from storage_consumer.consumers.table_version import Finished
from storage_consumer.model import DataFile, TableDefinition
from storage_consumer.planning.steps import DdlStep, RowStep
from tests.unit.building import ALTER, CREATE, changed, data_file, definition, key, place

TABLES = ("s/a", "s/b", "s/c", "r/d")
OTHER = {"s/a": "120", "s/b": "S/B", "r/d": "130"}
"""Further directories of tables: ids as path, and a name in another case."""
FIRST = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A DDL of the source, with the tables that it touches."""

    files: tuple[TableDefinition, ...]
    touches: frozenset[str]

    @property
    def version(self) -> int:
        """When it ran."""
        return self.files[0].version


def directory(file: TableDefinition) -> str:
    """Whose schema file it is."""
    return file.path.partition("/meta/")[0]


class Replicating(RuleBasedStateMachine):
    """A source writes by TiCDC's rules while a consumer follows, is killed and starts again."""

    def __init__(self) -> None:
        """Nothing is written yet."""
        super().__init__()
        self.clock = FIRST
        self.storage_checkpoint = 0
        # the source
        self.rows: dict[str, list[int]] = {table: [] for table in TABLES}
        self.versions: dict[str, list[int]] = {table: [] for table in TABLES}
        self.statements: dict[tuple[str, int, int], Statement] = {}
        self.places: dict[str, tuple[int, str]] = {}
        self.contents: dict[str, list[int]] = {}
        self.numbers: dict[tuple[str, int], Iterator[int]] = {}
        self.unseen_schemas: list[TableDefinition] = []
        self.unseen_files: list[DataFile] = []
        self.seen_schemas: list[TableDefinition] = []
        self.seen_files: dict[str, DataFile] = {}
        # the target
        self.applied: dict[str, set[int]] = {table: set() for table in TABLES}
        self.ran: list[tuple[str, int, int]] = []
        # what is stored in the target
        self.checkpoint = 0
        self.table_checkpoints: dict[str, int] = {}
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
        self.new_files = list(self.seen_files.values())

    # the source writes

    @initialize()
    def create(self) -> None:
        """All tables begin; the last one only as a structure, as a table does that was there before its changefeed."""
        for table in TABLES[:-1]:
            self.write_schemas(CREATE, {table: f"CREATE TABLE `{table[2:]}` (`id` INT)"}, {table})
        self.write_schemas(ALTER, {TABLES[-1]: ""}, {TABLES[-1]})

    def write_schemas(self, kind: int, queries: dict[str, str], touches: set[str]) -> None:
        """One statement (or structure) with a schema file in each of these directories."""
        self.clock += 2
        files = tuple(definition(table, self.clock, query, kind) for table, query in queries.items())
        for file in files:
            self.statements[directory(file), file.version, file.checksum] = Statement(
                files=files, touches=frozenset(touches)
            )
            if directory(file) in self.versions:
                self.versions[directory(file)].append(self.clock)
        self.unseen_schemas.extend(files)

    @rule(table=st.sampled_from(TABLES))
    def alter(self, table: str) -> None:
        """A statement that touches one table."""
        self.write_schemas(ALTER, {table: f"ALTER TABLE `{table[2:]}` ADD COLUMN `a` INT COMMENT 'like b, c'"}, {table})

    @rule(tables=st.sets(st.sampled_from(TABLES), min_size=1))
    def create_view(self, tables: set[str]) -> None:
        """A statement with a directory of its own that names some tables."""
        view = f"s/v{self.clock}"
        names = ", ".join(f"`{schema}`.`{name}`" for schema, name in (table.split("/") for table in sorted(tables)))
        self.write_schemas(21, {view: f"CREATE VIEW `v` AS SELECT 1 FROM {names}"}, tables)

    @rule(one=st.sampled_from(TABLES), other=st.sampled_from(TABLES))
    def exchange(self, one: str, other: str) -> None:
        """A statement that touches two tables and leaves a schema file with each, one of them without the statement."""
        if one != other:
            names = [f"`{t[0]}`.`{t[2:]}`" for t in (one, other)]
            query = f"ALTER TABLE {names[0]} EXCHANGE PARTITION `p` WITH TABLE {names[1]} WITHOUT VALIDATION"
            self.write_schemas(42, {one: query, other: ""}, {one, other})

    @rule(schema=st.sampled_from("sr"))
    def alter_database(self, schema: str) -> None:
        """A statement that touches a whole database."""
        self.write_schemas(
            26,
            {schema: f"ALTER DATABASE `{schema}` CHARACTER SET utf8mb4"},
            {table for table in TABLES if table.startswith(f"{schema}/")},
        )

    @rule(gaps=st.lists(st.tuples(st.integers(0, 2), st.sampled_from(TABLES)), min_size=1, max_size=8))
    def change_rows(self, gaps: list[tuple[int, str]]) -> None:
        """Rows, flushed into one file per table and version; several tables share a commit ts."""
        self.clock += 1
        written: dict[str, list[int]] = {table: [] for table in TABLES}
        for gap, table in gaps:
            self.clock += gap
            written[table].append(self.clock)
        for table, rows in written.items():
            self.rows[table] += rows
            self.write_file(table, self.versions[table][-1], rows)

    @rule(table=st.sampled_from(sorted(OTHER)))
    def move(self, table: str) -> None:
        """From now on, until its next statement, the rows of a table go to another directory of it, of the same version."""
        version, other = self.versions[table][-1], OTHER[table]
        if self.places.get(table) != (version, other):
            self.places[table] = version, other
            made = replace(definition(table, version), path=f"{other}/meta/schema_{version}_1.json")
            self.unseen_schemas.append(made)
            self.statements[other, made.version, 1] = Statement(files=(made,), touches=frozenset({table}))

    @rule(table=st.sampled_from(TABLES), back=st.integers(0, 5), split=st.booleans())
    def deliver_again(self, table: str, back: int, split: bool) -> None:  # noqa: FBT001 - drawn
        """A restarted TiCDC writes the last rows once more, into the newest directory."""
        rows = self.rows[table][-back:] if back else []
        cut = len(rows) // 2 if split else 0
        for part in (rows[:cut], rows[cut:]):
            self.write_file(table, self.versions[table][-1], part)

    def write_file(self, table: str, version: int, rows: list[int]) -> None:
        """The next file of a directory."""
        if rows:
            at, other = self.places.get(table, (0, table))
            table_dir = other if at == version else table
            number = next(self.numbers.setdefault((table_dir, version), count(1)))
            file = data_file(table_dir, version, number)
            self.contents[file.stored.path] = sorted(rows)
            self.unseen_files.append(file)

    # the storage shows

    @rule(data=st.data())
    def show(self, data: st.DataObject) -> None:
        """Some files appear; a data file never before its schema file."""
        schemas = data.draw(st.integers(0, len(self.unseen_schemas)))
        for schema in self.unseen_schemas[:schemas]:
            self.seen_schemas.append(schema)
            self.new_schemas.append(schema)
        del self.unseen_schemas[:schemas]
        hidden = {(directory(schema), schema.version) for schema in self.unseen_schemas}
        may = [file for file in self.unseen_files if (file.table_dir, file.version) not in hidden]
        for file in data.draw(
            st.lists(st.sampled_from(may), unique_by=lambda f: f.stored.path) if may else st.just([])
        ):
            self.unseen_files.remove(file)
            self.see(file)

    def see(self, file: DataFile) -> None:
        """A file is listed."""
        self.seen_files[file.stored.path] = file
        self.new_files.append(file)

    @precondition(lambda self: self.seen_files)
    @rule(data=st.data())
    def change_file(self, data: st.DataObject) -> None:
        """A file is written once more under its name: it is listed with another tag."""
        path = data.draw(st.sampled_from(sorted(self.seen_files)))
        self.see(changed(self.seen_files[path], str(self.clock) + self.seen_files[path].stored.tag[:8]))

    @rule()
    def move_storage_checkpoint(self) -> None:
        """``metadata`` says how far all rows, and all statements before it, are stored."""
        hidden_rows = [min(self.contents[file.stored.path]) - 1 for file in self.unseen_files]
        hidden_statements = [s.version for s in self.unseen_schemas if directory(s) not in OTHER.values()]
        self.storage_checkpoint = max(self.storage_checkpoint, min([self.clock, *hidden_rows, *hidden_statements]))

    # the consumer works

    @rule(steps=st.integers(0, 12), settled=st.booleans())
    def round(self, steps: int, settled: bool) -> None:  # noqa: FBT001 - drawn
        """A round of at most so many steps."""
        self.poll()
        for _ in self.work(settled=settled):
            steps -= 1
            if steps <= 0:
                return
        self.end_round()

    @rule(steps=st.integers(0, 6), settled=st.booleans(), stored=st.booleans())
    def crash(self, steps: int, settled: bool, stored: bool) -> None:  # noqa: FBT001 - drawn
        """The process is killed after some steps, the last one's rows stored or not, and starts again."""
        self.poll()
        for _, store in zip(range(steps), self.work(settled=settled, stores=stored), strict=False):
            assert store is None
        self.start()

    def poll(self) -> None:
        """What was listed since the last time goes to the tables."""
        self.manager.new_round()
        dirs = {schema.path: directory(schema) for schema in self.new_schemas}
        self.manager.dispatch(self.new_schemas, dirs, self.new_files)
        self.new_schemas, self.new_files = [], []
        assert self.manager.look_for_gaps(self.storage_checkpoint, 0.0) == {}

    def work(self, *, settled: bool, stores: bool = True) -> Iterator[None]:
        """Step by step what the next waves hold; `stores`: what rows did is stored at once."""
        while wave := self.manager.next_wave(self.storage_checkpoint, settled=settled):
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
            low = row_floor(step.window.low, version.version, is_ddl=version.is_ddl)
            found[file.stored.path] = rows = self.contents[file.stored.path]
            self.applied[table_dir] |= {ts for ts in rows if low < ts <= step.window.high}
        missing = {t for t in self.rows[table_dir] if t <= step.window.high} - self.applied[table_dir]
        assert not missing, f"{table_dir} lacks {missing} in {step.window} after {before} rows"
        self.check_borders(table_dir, step.window.low)
        self.manager.rows_applied(step)
        table = self.manager.tables[step.table_key]
        for file in step.files:
            later = [ts for ts in found[file.stored.path] if ts > step.window.high]
            table.finish(file, max_ts=max(found[file.stored.path]), next_ts=min(later, default=0))

    def check_borders(self, table_dir: str, low: int) -> None:
        """No row stands on the wrong side of a statement that touches its table."""
        for identity, statement in self.statements.items():
            if table_dir not in statement.touches or not self.query_of(identity):
                continue
            after = [ts for ts in self.applied[table_dir] if ts > max(low, statement.version)]
            assert not after or identity in self.ran, f"{after} of {table_dir} before {identity}"

    def query_of(self, identity: tuple[str, int, int]) -> str:
        """The text of a schema file's statement."""
        return next(f.query for f in self.statements[identity].files if directory(f) == identity[0])

    def store(self, step: RowStep) -> None:
        """What is stored after a job."""
        table = self.manager.tables[step.table_key]
        self.table_checkpoints[step.table_key] = table.checkpoint
        for file in step.files:
            self.done[file.stream] = table.version(file.version_key).streams[file.stream].finished

    def run_ddl(self, step: DdlStep) -> None:
        """A statement takes effect and is stored as done, with the tables that it moves."""
        statement = self.statements[step.identity]
        assert step.identity not in self.ran, f"{step.identity} ran twice"
        assert statement.touches <= {place(key) for key in self.manager.touched(step)}
        self.ran.append(step.identity)
        for table in statement.touches if step.definition.query else ():
            rows = {ts for ts in self.rows[table] if ts <= step.version}
            assert rows <= self.applied[table], f"{step.identity} ran before rows of {table}"
            assert self.applied[table] <= rows, f"{step.identity} ran after rows of {table} that come later"
        for moved in self.manager.moved_by(step):
            self.table_checkpoints[moved.key] = max(moved.checkpoint, self.table_checkpoints.get(moved.key, 0))
        self.manager.ddl_done(step)

    def end_round(self) -> None:
        """The checkpoint of the whole is stored."""
        checkpoint = self.manager.checkpoint(self.storage_checkpoint)
        self.manager.stored_checkpoint = self.checkpoint = max(checkpoint, self.checkpoint)

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
            versions = [version for d, version, c in self.ran if table in self.statements[d, version, c].touches]
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
        for _ in self.work(settled=True):
            pass
        self.end_round()
        assert self.applied == {table: set(rows) for table, rows in self.rows.items()}
        assert {i for i in self.statements if self.query_of(i)} <= set(self.ran)
        assert self.checkpoint == self.storage_checkpoint
        assert self.manager.pending_files == 0
        self.start()
        self.poll()
        assert not self.manager.next_wave(self.storage_checkpoint, settled=True)


TestReplicating = Replicating.TestCase
TestReplicating.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
