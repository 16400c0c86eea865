"""A planned round over twins: what it says is what then happens, and it leaves everything as it was."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any, Literal, cast

import pytest

from storage_consumer.checkpoint.store import StateStore
from storage_consumer.errors import ConfigError
from storage_consumer.model import TableName
from storage_consumer.operating.planned import Outcome, Plan
from storage_consumer.operating.planning import Heard, PlanSources, planned
from storage_consumer.plan.journal_entry import FAILED
from storage_consumer.plan.table_decisions import Verb
from storage_consumer.ports import Decision, ServerInfo
from storage_consumer.rows.fitting import TargetTable
from tests.harness.small_bucket import ID_NAME, column, row, ts
from tests.harness.twins.state import MemoryState
from tests.harness.twins.target import FACTS, MemoryTarget
from tests.unit.copying import MemoryCopy, WithCopies
from tests.unit.deciding import decide, put, start
from tests.unit.driving import World, of, two_tables


class ReadTarget(MemoryTarget):
    """The twin of a target that is only read, with all of its roles."""

    def read(self, wanted: Iterable[TableName]) -> dict[TableName, TargetTable]:
        """The same as `describe`: the twin notes no keys."""
        return self.describe(wanted)

    def has_rows(self, name: TableName) -> bool:
        """Whether a table has a row."""
        return bool(self._records.rows.get(name.folded()))

    def noted(self, names: Iterable[TableName]) -> dict[TableName, list[str]]:  # noqa: ARG002 - of the port
        """No notes."""
        return {}

    def server_info(self) -> ServerInfo:
        """What the twin is."""
        return FACTS


def plan_of(world: World, *, rows: bool | None = None) -> Plan:
    """The plan of a start, made beside whoever has the lease."""
    state = MemoryState(world.records, world.clock)
    # A reader asks for no lease; the twin lets only its holder read.
    state.progress._owned.epoch = world.records.epoch
    database: Any = ReadTarget(world.records)
    return planned(
        PlanSources(
            config=world.config,
            storage=world.bucket.storage,
            stored=cast("StateStore", state) if world.records.upstream else None,
            database=database,
            writer="",
            clock=world.clock,
            heard=Heard(),
            open_copy=world.copy.open if isinstance(world, WithCopies) else None,
        ),
        rows=rows,
    )


def test_a_first_run_is_planned_whole() -> None:
    """Databases, statements in order, then the rows of all tables in one wave; the round does just that."""
    world = two_tables()
    plan = plan_of(world)
    assert (plan.first_run, plan.databases, plan.halts, plan.warnings) == (True, ("shop",), (), ())
    assert [(each.table, each.outcome) for each in plan.statements] == [
        ("shop", Outcome.RUN),
        ("shop.a", Outcome.RUN),
        ("shop.b", Outcome.RUN),
    ]
    assert [(each.table, each.rows, each.files) for each in plan.rows] == [("shop.a", 1, 1), ("shop.b", 1, 1)]
    summary = world.once()
    assert [text for each in plan.statements for text in each.run] == world.records.effects
    assert (plan.reached, sum(each.rows or 0 for each in plan.rows)) == (summary.checkpoint, summary.rows)


def test_nothing_is_written() -> None:
    """State, structure and rows of the target are the same after a plan, before a first run and after rounds."""
    world = two_tables()
    for _ in range(2):
        world.bucket.schema("shop.a", ts(5), "ALTER TABLE `a` ADD COLUMN `more` INT", 5)
        before = deepcopy(world.records)
        plan_of(world)
        assert world.records == before
        world.once()
        world.bucket.metadata(ts(9))


def test_later_statements_see_earlier_ones() -> None:
    """A table that is created, renamed and dropped in one round is planned in the round's order; one that is there already halts."""
    world = two_tables()
    world.once()
    world.bucket.schema("shop.c", ts(4), "CREATE TABLE `c` (id INT PRIMARY KEY, name VARCHAR(20))", 3)
    world.bucket.schema("shop.d", ts(5), "RENAME TABLE `c` TO `d`", 14)
    world.bucket.schema("shop.d", ts(6), "DROP TABLE `d`", 4)
    world.bucket.schema("shop.b", ts(7), "CREATE TABLE `b` (id INT PRIMARY KEY)", 3)
    world.bucket.rows("shop.a", 2, row("shop.a", 8, "2", '"two"'))
    world.bucket.metadata(ts(9))
    plan = plan_of(world)
    assert [stop.table for stop in plan.halts] == ["shop.b"]
    assert "error 1050" in plan.halts[0].error
    done = len(world.records.effects)
    summary = world.once()
    ran = [text for each in plan.statements if each.outcome is Outcome.RUN for text in each.run]
    assert ran == world.records.effects[done:]
    assert summary.halted_tables == ("shop.b",)
    assert [(each.table, each.rows) for each in plan.rows] == [("shop.a", of(summary, "shop.a").rows)]


def test_only_the_first_statement_of_a_table_is_checked() -> None:
    """What follows another one of its table, or reads what one changes, is shown as it would be sent, and said to be unchecked."""
    world = two_tables()
    world.once()
    added = (*ID_NAME, column("more", "INT"))
    world.bucket.schema("shop.a", ts(4), "ALTER TABLE `a` ADD COLUMN `more` INT", 5, added)
    world.bucket.schema("shop.a", ts(5), "ALTER TABLE `a` ADD COLUMN `more` INT", 5, added)
    world.bucket.schema("shop.v", ts(6), "CREATE VIEW `shop`.`v` AS SELECT `id` FROM `shop`.`a`", 21)
    world.bucket.schema("shop.b", ts(7), "DROP TABLE `b`", 4)
    world.bucket.metadata(ts(9))
    plan = plan_of(world)
    assert [(each.table, each.outcome, each.unknown) for each in plan.statements] == [
        ("shop.a", Outcome.RUN, ""),
        ("shop.b", Outcome.RUN, ""),
        ("shop.a", Outcome.RUN, "an earlier statement of this plan changes shop.a"),
        ("shop.v", Outcome.RUN, "an earlier statement of this plan changes shop.a"),
    ]
    assert plan.statements[2].run == ("ALTER TABLE `a` ADD COLUMN `more` INT",)


@pytest.mark.parametrize(
    ("statement", "kind", "error"),
    [
        ("ALTER TABLE `a` ADD COLUMN `more` INT", 5, "error 1146: Table 'shop.a' doesn't exist"),
        ("DROP TABLE `a`", 4, "error 1051: Unknown table 'shop.a'"),
        ("RENAME TABLE `a` TO `b`", 14, "error 1050: Table 'b' already exists"),
    ],
)
def test_a_first_statement_that_the_target_refuses(statement: str, kind: int, error: str) -> None:
    """A table or database that is not there, or is there already, halts in the plan as on the server."""
    world = two_tables()
    world.once()
    if kind != 14:
        del world.records.structures[TableName(schema="shop", table="a")]
    world.bucket.schema("shop.b" if kind == 14 else "shop.a", ts(4), statement, kind)
    world.bucket.metadata(ts(9))
    plan, summary = plan_of(world), world.once()
    assert error in plan.halts[0].error
    assert [stop.table for stop in plan.halts] == [*summary.halted_tables]


def test_a_database_that_comes_again() -> None:
    """After DROP DATABASE its tables are gone for the plan too, and what is created under their names is unchecked."""
    world = two_tables()
    world.once()
    world.bucket.schema("shop", ts(4), "DROP DATABASE `shop`", 2)
    world.bucket.schema("shop", ts(5), "CREATE DATABASE `shop`", 1)
    world.bucket.schema("shop.a", ts(6), "CREATE TABLE `a` (id INT PRIMARY KEY, name VARCHAR(20))", 3)
    world.bucket.rows("shop.a", 1, row("shop.a", 7, "2", '"two"'), version=ts(6))
    world.bucket.metadata(ts(9))
    plan = plan_of(world)
    assert [(each.table, bool(each.unknown)) for each in plan.statements] == [
        ("shop", False),
        ("shop", True),
        ("shop.a", True),
    ]
    assert (plan.databases, plan.halts) == (("shop",), ())
    done, summary = len(world.records.effects), world.once()
    assert [text for each in plan.statements for text in each.run] == world.records.effects[done:]
    assert [(each.table, each.rows) for each in plan.rows] == [("shop.a", of(summary, "shop.a").rows)]


def test_rows_after_a_statement_are_only_counted() -> None:
    """Nobody knows the structure that they meet: only rows that cannot be decoded stop their table. Virtual columns are not in them."""
    world = two_tables()
    body = "`a` INT, `b` INT AS (`a` + 1), `c` VARCHAR(20)"
    columns = (column("a", "INT"), column("b", "INT"), column("c", "VARCHAR"))
    world.bucket.schema("shop.k", ts(1), f"CREATE TABLE `k` ({body})", 3, columns)
    world.bucket.rows("shop.k", 1, row("shop.k", 2, "1", '"x"'), row("shop.k", 3, "1", '"y"', operation="U"))
    plan = plan_of(world)
    assert [(each.table, each.rows, each.error) for each in plan.rows] == [
        ("shop.a", 1, ""),
        ("shop.b", 1, ""),
        ("shop.k", 2, ""),
    ]


def test_a_view_over_all_columns() -> None:
    """What its asterisk stands for is not compared, which is said."""
    world = two_tables()
    world.once()
    world.bucket.schema("shop.v", ts(4), "CREATE VIEW `shop`.`v` AS SELECT * FROM `shop`.`a`", 21)
    world.bucket.metadata(ts(9))
    (statement,) = plan_of(world).statements
    assert (statement.outcome, statement.unknown) == (
        Outcome.RUN,
        "its * may stand for other columns than at the source",
    )


def test_rows_that_stop_their_table() -> None:
    """A row that does not parse halts its table in the plan, with the words of the round; the others go on."""
    world = two_tables()
    world.bucket.rows("shop.a", 1, "not a row", row("shop.a", 3, "2", '"x"'))
    plan, summary = plan_of(world), world.once()
    assert [(stop.table, stop.error) for stop in plan.halts] == [(t.table, t.error) for t in summary.halted]
    assert {each.table: bool(each.error) for each in plan.rows} == {"shop.a": True, "shop.b": False}


def test_files_without_rows_counted() -> None:
    """Told not to read, it gives files and bytes, and says that rows were not counted."""
    plan = plan_of(two_tables(), rows=False)
    assert (plan.counted, {each.rows for each in plan.rows}) == (False, {None})
    assert all(each.files == 1 and each.size > 10 for each in plan.rows)


def test_a_table_with_rows_of_its_own() -> None:
    """A table that the target has with rows, and that no round has touched, is warned of."""
    world = two_tables()
    world.once()
    rows, structures = world.records.rows, world.records.structures
    fresh = two_tables()
    fresh.records.rows, fresh.records.structures, fresh.records.databases = rows, structures, {"shop"}
    warnings = plan_of(fresh).warnings
    assert [warning.partition(":")[0] for warning in warnings] == ["not empty", "not empty"]
    assert plan_of(world).warnings == ()


@pytest.mark.parametrize("what", ["unfinished", "start-ts", "rows", "columns"])
def test_a_copy_that_a_run_refuses(what: str) -> None:
    """A plan refuses what a run would refuse of the copy that a new feed begins with, for the same reason."""
    world = WithCopies(MemoryCopy(snapshot=ts(5)), start_ts=ts(6) if what == "start-ts" else 1)
    world.bucket.create("shop.a")
    world.bucket.metadata(ts(9))
    world.copy.add("shop.a", [])
    world.copy.is_finished = what != "unfinished"
    if what == "columns":
        world.bucket.schema(
            "shop.a", ts(5), "ALTER TABLE `a` ADD COLUMN `more` INT", 5, (*ID_NAME, column("more", "INT"))
        )
    if what == "rows":
        there = two_tables()
        there.once()
        world.records.rows, world.records.structures = there.records.rows, there.records.structures
        world.records.databases = {"shop"}
    with pytest.raises(ConfigError) as planned_fault:
        plan_of(world)
    with pytest.raises(ConfigError) as fault:
        world.once()
    assert str(planned_fault.value) == str(fault.value)


def test_copies() -> None:
    """What is going to be loaded is not shown, which is said: of a new feed that begins with a copy, and of each load."""
    world = WithCopies(MemoryCopy(snapshot=ts(5)))
    world.bucket.create("shop.a")
    world.bucket.metadata(ts(9))
    (warning,) = plan_of(world).warnings
    assert warning.startswith("--dump file:///copy: `run` loads its tables first")
    world = WithCopies(MemoryCopy(snapshot=ts(5)), initial=False)
    world.bucket.create("shop.a")
    world.bucket.metadata(ts(9))
    world.once()
    world.request("shop.a", replaces=True)
    (warning,) = plan_of(world).warnings
    assert warning.startswith("shop.a is loaded from file:///copy, in place of its rows in the target: ")


@pytest.mark.parametrize("verb", ["pause", "skip", "resume"])
def test_decisions_about_tables(verb: Verb) -> None:
    """A decision that waits is planned as the next round obeys it, and said; one that a table refuses changes nothing."""
    world = start()
    if verb == "resume":
        decide(world, "pause")
        world.once()
    put(world, 2, 6, "2")
    world.bucket.metadata(ts(9))
    decide(world, verb)
    plan = plan_of(world)
    assert f"`{verb}` of the table shop.a, decided by op" in "".join(plan.warnings)
    summary = world.once()
    assert [(each.table, each.rows) for each in plan.rows] == [(t.table, t.rows) for t in summary.tables if t.rows]
    assert bool(plan.rows) == (verb == "resume")
    assert [(stop.table, stop.error) for stop in plan.paused] == [(t.table, t.error) for t in summary.paused]
    assert bool(plan.paused) == (verb == "pause")
    assert plan.reached == summary.checkpoint
    assert plan_of(world).warnings == ()


def test_a_refused_decision_about_a_table() -> None:
    """A decision that the round is going to refuse is planned as refused, with the words of the refusal."""
    world = start()
    put(world, 2, 6, "2")
    world.bucket.metadata(ts(9))
    decide(world, "reload-done", ts(9))
    plan = plan_of(world)
    assert "would be refused: shop.a is not halted" in "".join(plan.warnings)
    summary = world.once()
    assert [(each.table, each.error) for each in plan.halts] == [(t.table, t.error) for t in summary.halted]
    assert plan.reached == summary.checkpoint


@pytest.mark.parametrize("verb", ["skip", "replace", "done"])
def test_decisions_about_statements(verb: Literal["skip", "replace", "done"]) -> None:
    """A statement about which an operator has decided is planned as the next round takes it, with who decided."""
    world = start()
    world.bucket.schema("shop.a", ts(5), "ALTER TABLE `a` ADD UNHEARD", 5)
    world.bucket.metadata(ts(6))
    assert world.once().halted_tables == ("shop.a",)
    assert [each.outcome for each in plan_of(world).statements] == [Outcome.HALT]
    (identity,) = [identity for identity, entry in world.records.journal.items() if entry.state == FAILED]
    better = "ALTER TABLE `a` ADD COLUMN `more` INT" if verb == "replace" else ""
    world.records.decisions[identity] = Decision(verb=verb, statement=better, decided_by="op", decided_at="now")
    (statement,) = plan_of(world).statements
    assert (statement.outcome, statement.run) == ((Outcome.RUN, (better,)) if better else (Outcome.SKIP, ()))
    assert "op" in "".join(statement.reasons)
    assert world.once().halted_tables == ()
