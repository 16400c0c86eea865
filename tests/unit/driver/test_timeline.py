"""The timeline over twins: each statement stands between the rows of the tables that it touches, and holds up no others."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest

from storage_consumer.errors import DdlFailed, TargetBusy
from storage_consumer.plan.journal_entry import DdlAnswer
from tests.harness.small_bucket import CREATE_TABLE, ID_NAME, column, row, ts
from tests.harness.twins.records import TargetRecords
from tests.harness.twins.target import MemoryTarget
from tests.unit.driving import World, held, numbers, of, running

CREATE_DATABASE, DROP_DATABASE, DROP, ALTER, TRUNCATE, RENAME, CREATE_VIEW, ALTER_DATABASE = 1, 2, 4, 5, 11, 14, 21, 26
WIDER = (*ID_NAME, column("more", "INT"))
_UNKNOWN = re.compile(r"CREATE TABLE \S+ \(?LIKE|CREATE VIEW|ALTER DATABASE|.*\b(?:FOREIGN KEY|EXCHANGE PARTITION)\b")
"""Statements that the twin of a target does not know and takes as done here: what counts is when they run."""


@dataclass(slots=True)
class Seen:
    """What the tables held when each statement began."""

    rows: list[tuple[str, dict[str, list[str]]]] = field(default_factory=list)

    def before(self, beginning: str) -> dict[str, list[str]]:
        """Table → its keys, right before the one statement that begins so."""
        (found,) = [rows for statement, rows in self.rows if statement.startswith(beginning)]
        return found

    @property
    def statements(self) -> list[str]:
        """What was sent, in order."""
        return [statement for statement, _ in self.rows]


class Telling(MemoryTarget):
    """A target that tells what its tables hold when a statement begins, and takes some more statements."""

    def __init__(self, records: TargetRecords, seen: Seen) -> None:
        """A handle on `records`."""
        super().__init__(records)
        self._kept, self._seen = records, seen

    def execute_ddl(
        self, statement: str, schema: str, version: int, ignorable: frozenset[int] = frozenset()
    ) -> DdlAnswer:
        """Note what is there, then run it."""
        rows = {str(name): sorted(r["id"] or "" for r in rows) for name, rows in self._kept.rows.items()}
        self._seen.rows.append((statement, rows))
        if not _UNKNOWN.match(statement):
            return super().execute_ddl(statement, schema, version, ignorable)
        self._kept.effects.append(statement)
        return DdlAnswer()


@pytest.fixture
def seen() -> Seen:
    """Nothing yet."""
    return Seen()


@pytest.fixture
def world(seen: Seen) -> World:
    """Tables of two databases, each with a row at tick 2, and rows at 5 and 6, applied up to tick 3; more up to tick 9."""
    found = World()
    found.target = lambda records: Telling(records, seen)
    found.bucket.create(*TABLES)
    for table in TABLES:
        found.bucket.rows(table, 1, row(table, 2, "1", '"one"'))
    found.once(3)
    for table in TABLES:
        found.bucket.rows(table, 2, row(table, 5, "2", '"two"'), row(table, 6, "3", '"three"'))
    found.bucket.metadata(ts(9))
    return found


TABLES = ("crm.o", "shop.a", "shop.b")


def add_column(world: World, table: str, tick: int) -> None:
    """A statement about one table alone."""
    world.bucket.schema(table, ts(tick), f"ALTER TABLE `{table.partition('.')[2]}` ADD COLUMN `more` INT", ALTER, WIDER)


TOUCHING = [
    pytest.param("shop.n", "CREATE TABLE `n` LIKE `a`", CREATE_TABLE, id="like"),
    pytest.param("shop.n", "CREATE TABLE `n` (LIKE `a`)", CREATE_TABLE, id="like in parentheses"),
    pytest.param("crm.n", "CREATE TABLE `crm`.`n` LIKE `shop`.`a`", CREATE_TABLE, id="like of another database"),
    pytest.param(
        "shop.n", "CREATE TABLE `n` (id INT, FOREIGN KEY (id) REFERENCES `a` (id))", CREATE_TABLE, id="child table"
    ),
    pytest.param("shop.b", "ALTER TABLE `b` ADD FOREIGN KEY (id) REFERENCES `a` (id)", 9, id="foreign key"),
    pytest.param("shop.v", "CREATE VIEW `v` AS SELECT `id` FROM `a`", CREATE_VIEW, id="view"),
    pytest.param("crm.v", "CREATE VIEW `crm`.`v` AS SELECT `id` FROM `shop`.`a`", CREATE_VIEW, id="view elsewhere"),
    pytest.param("shop.b", "ALTER TABLE `b` EXCHANGE PARTITION `p` WITH TABLE `a`", 42, id="exchange"),
    pytest.param("shop", "ALTER DATABASE `shop` CHARACTER SET utf8mb4", ALTER_DATABASE, id="alter database"),
]
"""Statements at tick 5 that touch ``shop.a`` and do not change its rows."""


ALTERS_NONE = (CREATE_VIEW, ALTER_DATABASE)


def rows_beside(kind: int) -> list[str]:
    """The rows of ``shop.a`` when a statement of tick 5 begins."""
    return ["1", "2", "3"] if kind in ALTERS_NONE else ["1", "2"]


@pytest.mark.parametrize(("place", "query", "kind"), TOUCHING)
def test_between_the_rows_of_what_it_touches(world: World, seen: Seen, place: str, query: str, kind: int) -> None:
    """When a statement of tick 5 begins, a table that it touches has its rows up to tick 5; none of later unless it alters no table."""
    world.bucket.schema(place, ts(5), query, kind)
    add_column(world, "shop.a", 8)
    assert world.once().checkpoint == ts(9)
    before = seen.before(query[:20])
    assert (before["shop.a"], before["crm.o"]) == (rows_beside(kind), ["1", "2", "3"])
    assert numbers(world, "shop.a") == ["1", "2", "3"]
    assert [s for s in seen.statements if "`" in s][-1] == "ALTER TABLE `a` ADD COLUMN `more` INT"


@pytest.mark.parametrize(("place", "query", "kind"), TOUCHING)
def test_while_it_runs_nothing_of_what_it_touches_goes_on(
    world: World, seen: Seen, place: str, query: str, kind: int
) -> None:
    """No later statement of a touched table passes one that runs for long, nor a row if it alters a table; another table's do (D8, D10)."""
    world.bucket.schema(place, ts(5), query, kind)
    add_column(world, "shop.a", 8)
    add_column(world, "crm.o", 8)
    works, there = held(world, 1), rows_beside(kind)

    def act(rounds: int) -> None:
        if rounds == 1:
            assert (numbers(world, "shop.a"), numbers(world, "crm.o")) == (there, ["1", "2", "3"])
            assert [s for s in seen.statements if "`more`" in s] == ["ALTER TABLE `o` ADD COLUMN `more` INT"]
            world.bucket.rows("crm.o", 1, row("crm.o", 10, "4", '"four"', "4"), version=ts(8))
            world.bucket.metadata(ts(11))
        elif rounds == 2:
            assert (numbers(world, "shop.a"), numbers(world, "crm.o")) == (there, ["1", "2", "3", "4"])
            works.popleft()()

    assert running(world, act, rounds=3).checkpoint == ts(11)
    assert (numbers(world, "shop.a"), len(works)) == (["1", "2", "3"], 0)
    assert "ALTER TABLE `a` ADD COLUMN `more` INT" in seen.statements


@pytest.mark.parametrize(("place", "query", "kind"), [each for each in TOUCHING if each.values[2] not in ALTERS_NONE])
def test_it_waits_for_a_halted_table(world: World, seen: Seen, place: str, query: str, kind: int) -> None:
    """A statement does not run while a table that it touches stands still before it, also in a later process."""
    world.bucket.schema("shop.a", ts(4), "ALTER TABLE `a` NONSENSE", ALTER)
    world.bucket.schema(place, ts(5), query, kind)
    for _ in range(2):
        assert [t.table for t in world.once().halted] == ["shop.a"]
        assert not [s for s in seen.statements if s.startswith(query[:20])]
        assert numbers(world, "crm.o") == ["1", "2", "3"] or place.startswith("crm")


@pytest.mark.parametrize(("place", "query", "kind"), [each for each in TOUCHING if each.values[2] in ALTERS_NONE])
def test_it_runs_beside_a_halted_table(world: World, seen: Seen, place: str, query: str, kind: int) -> None:
    """What alters no table runs whatever has become of those that it names, and the other tables of its database go on."""
    world.bucket.schema("shop.a", ts(4), "ALTER TABLE `a` NONSENSE", ALTER)
    world.bucket.schema(place, ts(5), query, kind)
    summary = world.once()
    assert ([t.table for t in summary.halted], summary.waiting) == (["shop.a"], ())
    assert [s for s in seen.statements if s.startswith(query[:20])]
    assert world.records.tables["`shop`.`a`"].checkpoint == ts(4)
    assert numbers(world, "crm.o") == ["1", "2", "3"]


def test_a_database_goes_between_the_rows_of_its_tables(world: World, seen: Seen) -> None:
    """DROP DATABASE comes after all rows of its tables up to it; what follows it, made anew, comes after it."""
    world.bucket.schema("shop", ts(5), "DROP DATABASE `shop`", DROP_DATABASE)
    for table in ("shop.a", "shop.b"):  # rows after their table's end are none of the source's
        world.bucket.rows(table, 2, row(table, 5, "2", '"two"'))
    world.bucket.schema("shop", ts(6), "CREATE DATABASE `shop`", CREATE_DATABASE)
    world.bucket.schema("shop.a", ts(7), "CREATE TABLE `a` (id INT PRIMARY KEY, name VARCHAR(20))", CREATE_TABLE)
    world.bucket.rows("shop.a", 1, row("shop.a", 8, "9", '"new"'), version=ts(7))
    works = held(world, 1)
    sent = len(seen.statements)

    def act(rounds: int) -> None:
        if rounds == 1:
            assert [numbers(world, table) for table in TABLES] == [["1", "2", "3"], ["1", "2"], ["1", "2"]]
            assert seen.statements[sent:] == []
            works.popleft()()

    assert running(world, act, rounds=3).checkpoint == ts(9)
    before = seen.before("DROP DATABASE")
    assert [before[table] for table in TABLES] == [["1", "2", "3"], ["1", "2"], ["1", "2"]]
    assert [numbers(world, table) for table in TABLES] == [["1", "2", "3"], ["9"], []]


# others flow on


@pytest.mark.parametrize("fault", [DdlFailed, TargetBusy])
def test_others_flow_on_beside_one_that_stands_still(world: World, fault: type[Exception]) -> None:
    """Rows and statements of tables before and behind a table that halts or waits for a lock are applied, in each round."""
    query = "ALTER TABLE `a` ADD COLUMN `more` INT"
    add_column(world, "shop.a", 4)
    others = ("crm.o", "shop.b")

    def tick(where: str) -> None:
        journal = world.records.journal.values()
        if where == "before MemoryTarget.execute_ddl" and any(
            e.state == "started" and e.statement == query for e in journal
        ):
            raise fault("no")

    def act(rounds: int) -> None:
        found = [world.rows(table) for table in others]
        if rounds == 1:
            assert [[r["id"] for r in rows] for rows in found] == [["1", "2", "3"]] * 2
            for table in others:
                add_column(world, table, 10)
                world.bucket.rows(table, 1, row(table, 11, "4", '"four"', "4"), version=ts(10))
            world.bucket.metadata(ts(12))
        else:
            assert [[r["more"] for r in rows] for rows in found] == [[None, None, None, "4"]] * 2
            world.stop.requested.set()

    world.tick = tick
    summary = running(world, act)
    assert [t.table for t in summary.tables if t.state in ("halted", "waiting")] == ["shop.a"]
    assert numbers(world, "shop.a") == ["1"]


# statements at exactly the storage checkpoint


def test_a_statement_at_the_checkpoint_runs_once_it_is_stored_whole(world: World, seen: Seen) -> None:
    """Of a version that is the storage checkpoint a file may be missing yet: nothing of it runs before the checkpoint passes it."""
    world.bucket.schema("shop.a", ts(9), "RENAME TABLE `shop`.`b` TO `shop`.`a`", RENAME)
    renames: list[int] = []

    def act(rounds: int) -> None:
        renames.append(sum("RENAME" in s for s in seen.statements))
        if rounds == 2:
            world.bucket.schema("shop.c", ts(9), "RENAME TABLE `shop`.`a` TO `shop`.`c`", RENAME)
            world.bucket.metadata(ts(9) + 1)

    summary = running(world, act, rounds=3)
    assert (renames, summary.halted, summary.checkpoint) == ([0, 0, 2], (), ts(9) + 1)
    assert seen.statements[-2:] == ["RENAME TABLE `shop`.`a` TO `shop`.`c`", "RENAME TABLE `shop`.`b` TO `shop`.`a`"]


def test_a_statement_at_a_checkpoint_that_stands_still(world: World, seen: Seen) -> None:
    """A statement at exactly the checkpoint runs once that has stood still for long enough, counted anew when it moved."""
    add_column(world, "shop.a", 9)
    add_column(world, "shop.b", 10)
    ran: list[int] = []

    def act(rounds: int) -> None:
        ran.append(sum("`more`" in s for s in seen.statements))
        if rounds == 2:
            world.clock.advance(15)
        elif rounds in (3, 5, 6):
            world.clock.advance(17)
        elif rounds == 4:
            world.bucket.metadata(ts(10))

    running(world, act, rounds=7)
    assert ran == [0, 0, 0, 1, 1, 1, 2]


# what comes late


def test_a_late_statement_halts_its_table_with_the_files_name(world: World, seen: Seen) -> None:
    """A schema file that turns up when later rows were applied is not run; its table halts and names it, others go on."""
    world.once()
    late = world.bucket.schema("shop.a", ts(4), "TRUNCATE TABLE `a`", TRUNCATE)
    for table in ("shop.a", "shop.b"):
        world.bucket.rows(table, 3, row(table, 10, "4", '"four"'))
    world.bucket.metadata(ts(11))
    for _ in range(2):
        (halted,) = world.once().halted
        assert (halted.table, late.name in halted.error) == ("shop.a", True)
    assert "TRUNCATE TABLE `a`" not in seen.statements
    assert (numbers(world, "shop.a"), numbers(world, "shop.b")) == (["1", "2", "3"], ["1", "2", "3", "4"])


def test_late_files_of_an_old_version(world: World) -> None:
    """Rows that were delivered once more into an old version's directory are dropped and counted (C5)."""
    add_column(world, "shop.a", 8)
    world.once()
    world.bucket.rows("shop.a", 3, row("shop.a", 5, "2", '"two"'), row("shop.a", 6, "3", '"three"'))
    summary = world.once(10)
    assert (summary.halted, summary.skipped, summary.checkpoint) == ((), {"row: repeated delivery": 2}, ts(10))
    assert [r["name"] for r in world.rows("shop.a")] == ["one", "two", "three"]


@pytest.mark.parametrize(
    ("query", "kind"),
    [("ALTER TABLE `a` ADD COLUMN `more` INT", ALTER), ("DROP TABLE `a`", DROP)],
    ids=["alter", "drop"],
)
def test_a_late_row_that_was_never_applied(world: World, query: str, kind: int) -> None:
    """A row in an old version's directory that is not a repeat cannot be placed: its table halts and names the file (C5)."""
    world.bucket.schema("shop.a", ts(8), query, kind, WIDER if kind == ALTER else ID_NAME)
    world.once()
    late = world.bucket.rows("shop.a", 3, row("shop.a", 6, "3", '"three"'), row("shop.a", 10, "4", '"four"'))
    world.bucket.metadata(ts(11))
    for _ in range(2):
        (halted,) = world.once().halted
        assert (halted.table, late.name in halted.error) == ("shop.a", True)
        assert f"commit ts {ts(10)}" in halted.error
    assert of(world.once(), "shop.a").checkpoint == ts(9)


# statements of one version


def test_statements_of_one_version_in_the_order_that_they_need(world: World, seen: Seen) -> None:
    """A database is made before its tables, a table before one that is to be there like it, whatever their names."""
    world.bucket.schema("z", ts(8), "CREATE DATABASE `z`", CREATE_DATABASE)
    world.bucket.schema("z.a", ts(8), "CREATE TABLE `a` (id INT PRIMARY KEY, name VARCHAR(20))", CREATE_TABLE)
    world.bucket.rows("z.a", 1, row("z.a", 8, "0", '"old"'), row("z.a", 9, "1", '"one"'), version=ts(8))
    sent = len(seen.statements)
    assert world.once().halted == ()
    assert [s[:15] for s in seen.statements[sent:]] == ["CREATE DATABASE", "CREATE TABLE `a"]
    assert numbers(world, "z.a") == ["1"]


def test_a_group_waits_for_all_tables_of_all_its_members(world: World, seen: Seen) -> None:
    """Renames of one statement hang together: none runs while a table of another one of them waits, others of the version do."""
    world.bucket.rows("shop.a", 4, row("shop.a", 6, "4", '"four"'))  # the third file is missing
    for old, new in (("crm`.`o", "shop.c"), ("shop`.`b", "crm.o"), ("shop`.`a", "shop.b")):
        query = f"RENAME TABLE `{old}` TO `{new.replace('.', '`.`')}`"
        world.bucket.schema(new, ts(8), query, RENAME)
    sent = len(seen.statements)

    def act(rounds: int) -> None:
        if rounds == 1:
            assert seen.statements[sent:] == []
            world.bucket.rows("shop.a", 3, row("shop.a", 6, "5", '"five"'))

    assert running(world, act, rounds=2).checkpoint == ts(9)
    assert [s.rpartition(" ")[2] for s in seen.statements[sent:]] == ["`shop`.`c`", "`crm`.`o`", "`shop`.`b`"]
    assert numbers(world, "shop.b") == ["1", "2", "3", "4", "5"]
