"""The source of the planner's laws: tables, statements across them, rows in files, and what the storage shows of these."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from storage_consumer.model import DataFile, DdlId, DdlKind, TableDefinition
from tests.unit.building import ALTER, CREATE, changed, data_file, definition, key

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

    @property
    def alters_no_table(self) -> bool:
        """Whether later rows of what it touches need not wait for it."""
        return self.files[0].ddl_type in (DdlKind.ALTER_SCHEMA, DdlKind.CREATE_VIEW)


def directory(file: TableDefinition) -> str:
    """Whose schema file it is."""
    return file.path.partition("/meta/")[0]


class Writing(RuleBasedStateMachine):
    """A source that writes by TiCDC's rules; how far its rows are applied is what is stored in the target."""

    def __init__(self) -> None:
        """Nothing is written yet."""
        super().__init__()
        self.clock = FIRST
        self.storage_checkpoint = 0
        self.rows: dict[str, list[int]] = {table: [] for table in TABLES}
        self.versions: dict[str, list[int]] = {table: [] for table in TABLES}
        self.statements: dict[DdlId, Statement] = {}
        self.places: dict[str, tuple[int, str]] = {}
        self.contents: dict[str, list[int]] = {}
        self.numbers: dict[tuple[str, int], Iterator[int]] = {}
        self.unseen_schemas: list[TableDefinition] = []
        self.unseen_files: list[DataFile] = []
        self.seen_schemas: list[TableDefinition] = []
        self.seen_files: dict[str, DataFile] = {}
        self.new_schemas: list[TableDefinition] = []
        self.new_files: list[DataFile] = []
        self.checkpoint = 0
        self.table_checkpoints: dict[str, int] = {}

    def start(self) -> None:
        """A new process."""

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
            self.statements[DdlId(directory(file), file.version, file.checksum)] = Statement(
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
            self.statements[DdlId(other, made.version, 1)] = Statement(files=(made,), touches=frozenset({table}))

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

    @precondition(lambda self: self.seen_files)
    @rule(data=st.data(), gap=st.integers(0, 2), down=st.booleans())
    def write_anew(self, data: st.DataObject, gap: int, down: bool) -> None:  # noqa: FBT001 - drawn
        """TiCDC writes a file anew under its name, with other rows, maybe while the program is `down`."""
        may = [path for path, file in self.seen_files.items() if self.is_applied(file)]
        if not may:
            return
        file = self.seen_files[data.draw(st.sampled_from(sorted(may)))]
        table = next(t for t in TABLES if file.table_dir in (t, OTHER.get(t)))
        if file.version != self.versions[table][-1]:
            return
        self.clock += gap + 1
        self.rows[table].append(self.clock)
        self.contents[file.stored.path] = [self.clock]
        self.see(changed(file, f"anew {self.clock}"))
        if down:
            self.start()

    def is_applied(self, file: DataFile) -> bool:
        """Whether nothing in the file is still needed: what is written over is never sent again."""
        table = next(t for t in TABLES if file.table_dir in (t, OTHER.get(t)))
        upto = max(self.checkpoint, self.table_checkpoints.get(key(table), 0))
        return max(self.contents[file.stored.path]) <= upto

    @rule()
    def move_storage_checkpoint(self) -> None:
        """``metadata`` says how far all rows, and all statements before it, are stored."""
        hidden_rows = [min(self.contents[file.stored.path]) - 1 for file in self.unseen_files]
        hidden_statements = [s.version for s in self.unseen_schemas if directory(s) not in OTHER.values()]
        self.storage_checkpoint = max(self.storage_checkpoint, min([self.clock, *hidden_rows, *hidden_statements]))
