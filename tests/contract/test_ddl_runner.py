"""One statement, once: the real runner, journal and structure on every server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from storage_consumer.checkpoint.store import StateStore
from storage_consumer.clock import Clock, SystemClock
from storage_consumer.config.settings import Downstream
from storage_consumer.errors import DdlFailed, TargetUnavailable
from storage_consumer.model import TableColumn, TableDefinition, TableName, TableVersion
from storage_consumer.plan.journal_entry import DONE, FAILED, PLANNED, SKIPPED, STARTED, DdlAnswer, Sent
from storage_consumer.plan.steps import DdlStep, key_of
from storage_consumer.ports import DdlContext, Decision, TableProgress
from storage_consumer.target.database import TargetDatabase
from storage_consumer.target.ddl.runner import DdlRunner
from tests.harness.servers import KINDS, DatabaseServer
from tests.harness.small_bucket import ts

pytestmark = pytest.mark.server

CREATE_DATABASE, CREATE, DROP, ALTER, TRUNCATE, RENAME, CREATE_VIEW, DROP_VIEW, ALTER_DATABASE, EXCHANGE = (
    *(1, 3, 4, 5, 11, 14),
    *(21, 24, 26, 42),
)
COLUMNS = (
    TableColumn(name="id", type="INT", is_pk=True, nullable=False),
    TableColumn(name="name", type="VARCHAR", precision=20),
)


WIDER = (*COLUMNS, TableColumn(name="more", type="INT"))
"""After a statement that adds a column ``more``."""


@dataclass(slots=True)
class Rig:
    """A target with a database ``shop`` and a table ``shop.a`` with one row."""

    server: DatabaseServer
    state: StateStore
    database: TargetDatabase
    version: int = 1
    clock: Clock = field(default_factory=SystemClock)
    patience: float = 60.0

    @property
    def runner(self) -> DdlRunner:
        """A runner as a new process would have it."""
        return DdlRunner(
            self.database,
            self.state.journal,
            self.server.kind,
            clock=self.clock,
            patience=self.patience,
        )

    def step(self, query: str, kind: int, name: str = "shop.a") -> DdlStep:
        """The next statement on the line; one without a query only records a structure."""
        self.version += 1
        schema, _, table = name.partition(".")
        definition = TableDefinition(
            name=TableName(schema=schema, table=table),
            version=TableVersion(ts(self.version)),
            query=query,
            ddl_type=kind,
            columns=(WIDER if "`more`" in query else COLUMNS) if table else (),
            path=f"{name.replace('.', '/')}/meta/schema_{ts(self.version)}_1.json",
            checksum=1,
        )
        table_dir, table_key = name.replace(".", "/"), key_of(definition.name)
        return DdlStep(table_dir=table_dir, table_key=table_key, definition=definition, ensure=not query)

    def run(
        self,
        step: DdlStep,
        *,
        seen: bool = True,
        ours: bool = True,
        decision: Decision | None = None,
        made_by: DdlStep | None = None,
        after_copy: int = 0,
    ) -> str:
        """Run a step that moves its table."""
        moved = TableProgress(
            table_key=step.table_key,
            schema=step.name.schema,
            table=step.name.table,
            checkpoint=step.version,
            state="running",
        )
        context = DdlContext(
            database_is_ours=ours, table_was_seen=seen, decision=decision, made_by=made_by, after_copy=after_copy
        )
        return self.runner.run(step, context, [moved])

    def interrupted(self, step: DdlStep, statement: str = "") -> None:
        """What the journal says when a process ends while a statement runs."""
        before = self.database.fingerprint([step.name] if step.makes_view else step.ddl.mentioned)
        for where in (PLANNED, STARTED):
            self.state.journal.record(
                step, where, run=Sent(statement=statement or step.definition.query, structure_before=before)
            )

    def run_elsewhere(self, statement: str) -> None:
        """Run a statement on a connection of its own."""
        with self.server.connect(database="shop") as connection, connection.cursor() as cursor:
            cursor.execute(statement)

    def journalled(self, step: DdlStep) -> str:
        """Where the journal says that a statement stands."""
        entry = self.state.journal.entry(step)
        return entry.state if entry else ""

    def moved(self, step: DdlStep) -> bool:
        """Whether its table moved to it."""
        return self.state.progress.load()[0].tables.get(step.table_key) == step.version

    def columns(self, table: str = "a") -> list[str]:
        """The columns of a table, none where there is none."""
        sql = "SELECT column_name FROM information_schema.columns WHERE table_schema = 'shop' AND table_name = '{}' ORDER BY 1"
        return [str(name) for (name,) in self.server.query(sql.format(table))]


@pytest.fixture
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """On MariaDB, or on the server that the test names."""
    server: DatabaseServer = request.getfixturevalue(getattr(request, "param", "mariadb"))
    server.query("CREATE DATABASE shop CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    server.query("CREATE TABLE shop.a (id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(20))")
    server.query("INSERT INTO shop.a VALUES (1, 'one')")
    downstream = Downstream(port=server.port)
    state = StateStore(downstream, "")
    state.open("file:///bucket")
    state.lease.acquire("me", 30)
    database = TargetDatabase(downstream, "")
    yield Rig(server=server, state=state, database=database)
    database.close()
    state.close()


@pytest.mark.parametrize("rig", KINDS, indirect=True)
def test_planned_started_done(rig: Rig) -> None:
    """A statement runs once; asked again, the runner only says that it was done (O16)."""
    step = rig.step("ALTER TABLE `a` ADD COLUMN `more` INT", ALTER)
    assert rig.run(step) == ""
    row = rig.server.query("SELECT state, statement, started_at <= finished_at FROM storage_consumer.ddl_journal")
    assert row == ((DONE, step.definition.query, 1),)
    assert (rig.columns(), rig.moved(step)) == (["id", "more", "name"], True)
    assert rig.run(step) == "done before"


def test_started_is_written_before_the_statement(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the statement reaches the server the journal says so, and no table has moved."""
    step = rig.step("ALTER TABLE `a` ADD COLUMN `more` INT", ALTER)
    seen: list[Any] = []
    execute = rig.database.execute_ddl

    def watched(*args: Any) -> DdlAnswer:
        seen.append((rig.journalled(step), rig.moved(step), rig.columns()))
        return execute(*args)

    monkeypatch.setattr(rig.database, "execute_ddl", watched)
    rig.run(step)
    assert seen == [(STARTED, False, ["id", "name"])]


@pytest.mark.parametrize(
    ("query", "kind", "name", "effect"),
    [
        ("ALTER TABLE `a` ADD COLUMN `more` INT", ALTER, "shop.a", "ALTER TABLE shop.a ADD COLUMN more INT"),
        ("ALTER TABLE `a` ADD INDEX (`name`)", ALTER, "shop.a", "ALTER TABLE shop.a ADD INDEX (name)"),
        (
            "CREATE TABLE `b` (id INT PRIMARY KEY, name INT)",
            CREATE,
            "shop.b",
            "CREATE TABLE shop.b (id INT PRIMARY KEY, name INT)",
        ),
        ("DROP TABLE `a`", DROP, "shop.a", "DROP TABLE shop.a"),
        ("RENAME TABLE `shop`.`a` TO `shop`.`b`", RENAME, "shop.b", "RENAME TABLE shop.a TO shop.b"),
        ("CREATE DATABASE `new`", CREATE_DATABASE, "new", "CREATE DATABASE new"),
        ("DROP DATABASE `shop`", 2, "shop", "DROP DATABASE shop"),
    ],
)
@pytest.mark.parametrize("took_effect", [True, False])
@pytest.mark.parametrize("rig", KINDS, indirect=True)
def test_interrupted(rig: Rig, query: str, kind: int, name: str, effect: str, *, took_effect: bool) -> None:
    """Whether an interrupted statement took effect is seen in the structure; either way it has taken effect once in the end (D4, D6)."""
    step = rig.step(query, kind, name)
    rig.interrupted(step)
    if took_effect:
        rig.server.query(effect)
    indexes = "SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = 'shop' AND table_name = 'a'"
    note = rig.run(step)
    assert ("had taken effect" in note) == took_effect
    assert (rig.journalled(step), rig.moved(step)) == (DONE, True)
    if "INDEX" in query:
        assert rig.server.query(indexes) == ((2,),)
    assert rig.run(step) == "done before"


@pytest.mark.parametrize("earlier", ["", "CREATE VIEW shop.v AS SELECT 1 AS x"])
@pytest.mark.parametrize("rig", KINDS, indirect=True)
def test_what_a_view_reads_tells_nothing_of_it(rig: Rig, earlier: str) -> None:
    """An interrupted view that lacked its table is made, though that table has come meanwhile."""
    step = rig.step("CREATE OR REPLACE VIEW `v` AS SELECT `id` AS `x` FROM `b`", CREATE_VIEW, "shop.v")
    if earlier:
        rig.server.query(earlier)
    with pytest.raises(DdlFailed, match="1146"):
        rig.run(step)
    rig.interrupted(step)
    rig.server.query("CREATE TABLE shop.b (id INT PRIMARY KEY)")
    rig.run(step)
    assert "`b`" in str(rig.server.query("SHOW CREATE VIEW shop.v"))


@pytest.mark.parametrize("interrupted", [False, True])
@pytest.mark.parametrize("rig", KINDS, indirect=True)
def test_a_view_whose_asterisk_means_something_else_by_now(rig: Rig, *, interrupted: bool) -> None:
    """A view of all columns is there only with the columns that the source's has, in their order; one that names its columns is there anyway."""
    query = "CREATE VIEW `v` AS SELECT * FROM `a`"
    step, named = (
        rig.step(query, CREATE_VIEW, "shop.v"),
        rig.step(query.replace("*", "`id`,`name`"), CREATE_VIEW, "shop.w"),
    )
    rig.server.query("ALTER TABLE shop.a ADD COLUMN later INT FIRST")
    if interrupted:
        rig.interrupted(step)
        rig.server.query("CREATE VIEW shop.v AS SELECT * FROM shop.a")
    with pytest.raises(
        DdlFailed, match="has the columns id, name at the source, and here it would have later, id, name"
    ):
        rig.run(step)
    assert rig.server.query("SHOW TABLES FROM shop LIKE 'v'") == ()
    named = replace(named, definition=replace(named.definition, query=named.definition.query.replace("`v`", "`w`")))
    rig.run(named)
    rig.server.query("ALTER TABLE shop.a DROP COLUMN later")
    rig.run(step)
    assert rig.server.query("SELECT COUNT(*) FROM shop.v") == rig.server.query("SELECT COUNT(*) FROM shop.w")


@pytest.mark.parametrize("rig", KINDS, indirect=True)
def test_killed_after_such_a_view_was_taken_away(rig: Rig) -> None:
    """It is left out all the same: that the earlier view is gone does not show that the statement took effect."""
    step = rig.step("CREATE OR REPLACE VIEW `v` AS SELECT * FROM `a`", CREATE_VIEW, "shop.v")
    rig.server.query("CREATE VIEW shop.v AS SELECT id FROM shop.a")
    rig.interrupted(step)
    rig.server.query("DROP VIEW shop.v")
    rig.server.query("ALTER TABLE shop.a ADD COLUMN later INT")
    for _ in range(2):
        with pytest.raises(DdlFailed, match="at the source, and here it would have"):
            rig.run(step)
        assert rig.journalled(step) == FAILED


@pytest.mark.parametrize("rig", KINDS, indirect=True)
def test_alter_database_without_a_name(rig: Rig) -> None:
    """It is about the database of its file, as at the source that of the session."""
    rig.run(rig.step("ALTER DATABASE CHARACTER SET = utf8mb4 COLLATE = utf8mb4_general_ci", ALTER_DATABASE, "shop."))
    found = "SELECT default_collation_name FROM information_schema.schemata WHERE schema_name = 'shop'"
    assert rig.server.query(found) == (("utf8mb4_general_ci",),)


@pytest.mark.parametrize("rig", KINDS, indirect=True)
def test_row_writes_are_no_structure(rig: Rig) -> None:
    """A counter that rose for other reasons does not make an interrupted statement look done."""
    step = rig.step("ALTER TABLE `a` ADD COLUMN `more` INT", ALTER)
    rig.interrupted(step)
    rig.server.query("INSERT INTO shop.a VALUES (50, 'fifty')")
    rig.run(step)
    assert rig.columns() == ["id", "more", "name"]


def test_truncate_runs_again(rig: Rig) -> None:
    """Of an interrupted TRUNCATE nothing can be seen; it runs again, for no later row has been written (D4)."""
    step = rig.step("TRUNCATE TABLE `a`", TRUNCATE)
    rig.interrupted(step)
    rig.run(step)
    assert rig.server.query("SELECT COUNT(*) FROM shop.a") == ((0,),)


@pytest.mark.parametrize("rig", KINDS, indirect=True)
def test_exchange_halts(rig: Rig) -> None:
    """An interrupted EXCHANGE PARTITION stops its table, at every start, until it is decided to be done manually (D4, D10)."""
    rig.server.query(
        "CREATE TABLE shop.p (id INT PRIMARY KEY) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (9))"
    )
    step = rig.step("ALTER TABLE `p` EXCHANGE PARTITION `p0` WITH TABLE `a`", EXCHANGE, "shop.p")
    rig.interrupted(step)
    with pytest.raises(DdlFailed, match=r"EXCHANGE PARTITION .* exchange the partition manually if it did not"):
        rig.run(step)
    assert (rig.journalled(step), rig.moved(step)) == (STARTED, False)
    with pytest.raises(DdlFailed, match="EXCHANGE PARTITION"):
        rig.run(step)
    assert "took effect manually" in rig.run(step, decision=Decision(verb="done"))
    assert (rig.journalled(step), rig.moved(step)) == (DONE, True)
    assert rig.server.query("SELECT COUNT(*) FROM shop.a") == ((1,),)


@pytest.mark.parametrize("rig", KINDS, indirect=True)
def test_statement_that_still_runs(rig: Rig) -> None:
    """While the server still executes an interrupted statement it is waited for, and nothing is decided (D5, D7)."""
    rig.patience = 0.0
    step = rig.step("ALTER TABLE `a` ADD COLUMN `more` INT", ALTER)
    rig.interrupted(step)
    late = threading.Thread(target=rig.run_elsewhere, args=[step.definition.query])
    with rig.server.connect(autocommit=False) as reader, reader.cursor() as cursor:
        cursor.execute("SELECT * FROM shop.a")
        late.start()
        while not rig.database.is_running(step.definition.query):
            time.sleep(0.01)
        with pytest.raises(TargetUnavailable, match="is still running on the target"):
            rig.run(step)
        rig.patience = 60.0
        threading.Timer(1.0, reader.rollback).start()
        assert "had taken effect" in rig.run(step)
    late.join()
    assert rig.columns() == ["id", "more", "name"]
    assert rig.run(step) == "done before"


def test_refused(rig: Rig) -> None:
    """A refused statement is noted with the server's answer, moves nothing, and is tried again at the next start."""
    step = rig.step("ALTER TABLE `a` ADD COLUMN `more` INT AFTER `nope`", ALTER)
    with pytest.raises(DdlFailed, match=r"shop\.a: the target refused .*error 1054: .*`nope`.*start again"):
        rig.run(step)
    assert (rig.journalled(step), rig.moved(step)) == (FAILED, False)
    rig.server.query("ALTER TABLE shop.a ADD COLUMN nope INT")
    assert rig.run(step) == ""
    assert (rig.journalled(step), rig.columns()) == (DONE, ["id", "more", "name", "nope"])


def test_what_is_there_already_is_no_success(rig: Rig) -> None:
    """Something of the same name that was there before is refused, also on the second try of a statement that did not run."""
    rig.server.query("ALTER TABLE shop.a ADD COLUMN more VARCHAR(5)")
    query = "ALTER TABLE `a` ADD COLUMN `more` INT, ADD COLUMN `most` INT"
    step, interrupted = rig.step(query, ALTER), rig.step(query, ALTER)
    with pytest.raises(DdlFailed, match="error 1060"):
        rig.run(step)
    rig.interrupted(interrupted)
    with pytest.raises(DdlFailed, match="error 1060"):
        rig.run(interrupted)
    assert (rig.journalled(interrupted), rig.moved(interrupted)) == (FAILED, False)


def test_ensure_creates(rig: Rig) -> None:
    """A structure without a statement is created where the target lacks it, and the journal says what the file does not tell (T14)."""
    step = rig.step("", 0, "shop.b")
    assert "created from the columns" in rig.run(step)
    assert (rig.columns("b"), rig.journalled(step)) == (["id", "name"], DONE)


def test_ensure_leaves(rig: Rig) -> None:
    """A structure that the target has, in whatever shape, is left alone."""
    step = rig.step("", 0)
    assert rig.run(step) == "the table already exists"
    assert (rig.journalled(step), rig.moved(step)) == (SKIPPED, True)
    assert rig.server.query("SELECT * FROM shop.a") == ((1, "one"),)


def test_interrupted_ensure(rig: Rig) -> None:
    """An interrupted creation is completed."""
    step = rig.step("", 0, "shop.b")
    rig.interrupted(step, "CREATE TABLE")
    rig.run(step)
    rig.run(step)
    assert (rig.columns("b"), rig.moved(step)) == (["id", "name"], True)


def test_database_that_the_source_had_before(rig: Rig) -> None:
    """A database whose CREATE is not in the bucket is made, with the source's default collation; one that is, is not."""
    step = rig.step("CREATE TABLE `t` (id INT PRIMARY KEY, name VARCHAR(9))", CREATE, "old.t")
    rig.run(step, ours=False)
    assert rig.database.database_collation("old") == "utf8mb4_bin"
    with pytest.raises(DdlFailed, match="error 1049"):
        rig.run(rig.step("CREATE TABLE `t` (id INT PRIMARY KEY)", CREATE, "never.t"), ours=True)


def test_statement_with_every_kind_of_sign(rig: Rig) -> None:
    """Percent signs, colons, quotes and other scripts in a statement reach the server as they are."""
    query = "ALTER TABLE `a` COMMENT '100% :x \\'q\\' %s 表'"
    rig.run(rig.step(query, ALTER))
    found = rig.server.query("SELECT table_comment FROM information_schema.tables WHERE table_schema = 'shop'")
    assert found == (("100% :x 'q' %s 表",),)


@pytest.mark.parametrize(
    ("action", "kind", "name"),
    [
        ("DROP `name`", ALTER, "shop.a"),
        ("RENAME `b`", RENAME, "shop.b"),
        ("COMMENT 'x'", ALTER, "shop.a"),
        ("ENGINE InnoDB", ALTER, "shop.a"),
        ("FORCE", ALTER, "shop.a"),
    ],
)
def test_short_statements(rig: Rig, action: str, kind: int, name: str) -> None:
    """An ALTER TABLE of a few words runs."""
    rig.run(rig.step(f"ALTER TABLE `a` {action}", kind, name))
    assert rig.server.query("SELECT state FROM storage_consumer.ddl_journal") == ((DONE,),)


def test_clock_is_that_of_the_source(rig: Rig) -> None:
    """A default of the current time fills old rows with the time of the version, and the session's clock is let go again."""
    step = rig.step("ALTER TABLE `a` ADD COLUMN `at` TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)", ALTER)
    rig.run(step)
    rig.server.query("SET GLOBAL time_zone = '+00:00'")
    found = rig.server.query("SELECT UNIX_TIMESTAMP(at) FROM shop.a")[0][0]
    assert float(found) == (step.version >> 18) / 1000
    assert abs(int(rig.database.rows("SELECT UNIX_TIMESTAMP() - UNIX_TIMESTAMP(SYSDATE())")[0][0])) < 5


EARLY = {
    "DROP COLUMN": ("ALTER TABLE `a` DROP COLUMN `former`", 6),
    "DROP TABLE": ("DROP TABLE `gone`", DROP),
    "RENAME TABLE": ("RENAME TABLE `former` TO `a`", RENAME),
}
"""Statements that shop.a shows the effect of, as a copy from right before their version may."""


@pytest.mark.parametrize("rig", KINDS, indirect=True)
@pytest.mark.parametrize("case", EARLY)
def test_what_a_copy_shows_already_counts_as_done(rig: Rig, case: str) -> None:
    """The first statement after a copy may meet its own effect; without a copy the same answer stops its table."""
    query, kind = EARLY[case]
    name = "shop.gone" if kind == DROP else "shop.a"
    with pytest.raises(DdlFailed):
        rig.run(rig.step(query, kind, name))
    step = rig.step(query, kind, name)
    assert "the table's copy holds its effect already" in rig.run(step, after_copy=1)
    assert (rig.journalled(step), rig.moved(step)) == (DONE, True)


def test_a_part_of_an_effect_is_not_the_effect(rig: Rig) -> None:
    """Of several changes in one statement a copy may hold only some: the table halts, and the error names what is lacking."""
    step = rig.step("ALTER TABLE `a` DROP COLUMN `former`, ADD COLUMN `more` INT", 61)
    with pytest.raises(DdlFailed, match="lacks the columns more"):
        rig.run(step, after_copy=1)
    assert rig.journalled(step) == FAILED


def test_a_table_in_the_way_is_no_effect_of_a_create(rig: Rig) -> None:
    """A CREATE TABLE shows at its version and not before, so a table that is there is another one."""
    with pytest.raises(DdlFailed):
        rig.run(rig.step("CREATE TABLE `a` (id INT PRIMARY KEY, name VARCHAR(20))", CREATE), after_copy=1)


def test_a_partition_emptied_near_a_copy_is_told(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """It runs, and the log and the journal name the doubt: rows of the copy may be from after it."""
    rig.server.query("ALTER TABLE shop.a PARTITION BY HASH (id) PARTITIONS 2")
    step = rig.step("ALTER TABLE `a` TRUNCATE PARTITION p0", 23)
    assert "verify" in rig.run(step, after_copy=step.version - 1)
    assert "ddl_near_copy" in caplog.text
    assert "verify" not in rig.run(rig.step("ALTER TABLE `a` TRUNCATE PARTITION p0", 23))


def test_after_a_copy_statements_run_as_ever(rig: Rig) -> None:
    """What the copy does not show yet is run."""
    rig.run(rig.step("ALTER TABLE `a` DROP COLUMN `name`", 6), after_copy=1)
    assert rig.columns() == ["id"]
