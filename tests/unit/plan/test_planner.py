"""How far each table may go, and which statements can run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage_consumer.model import DdlKind
from storage_consumer.plan.planner import (
    PendingDdl,
    PendingDdls,
    Position,
    ready_ddls,
    standing_still,
    target_of,
)
from storage_consumer.plan.steps import DdlStep
from tests.unit.building import key, step

SQL = "ALTER TABLE `t` COMMENT 'x'"


def pending(table_dir: str, version: int, *others: str) -> PendingDdl:
    """A statement that touches its own directory and these."""
    return PendingDdl(step=step(table_dir, version, SQL), touches=frozenset(key(t) for t in (table_dir, *others)))


def ready_now(
    found: PendingDdls, positions: dict[str, Position], storage: int, *, is_stable: bool = False
) -> tuple[tuple[DdlStep, ...], ...]:
    """The groups that can run, by what stands still now."""
    return ready_ddls(found, positions, standing_still(found, positions), storage, is_stable=is_stable)


def ready(
    statements: list[PendingDdl], checkpoints: dict[str, int], storage: int, *, is_stable: bool = False, **still: bool
) -> list[list[str]]:
    """Directories of the groups that can run; ``a=True`` says that s/a stands still."""
    positions = {key(f"s/{t}"): Position(checkpoint=c, blocked=still.get(t, False)) for t, c in checkpoints.items()}
    groups = ready_now(PendingDdls(statements), positions, storage, is_stable=is_stable)
    return [[s.table_dir for s in group] for group in groups]


def test_barriers() -> None:
    """A table stops at the first statement that touches it, and at none that does not."""
    found = PendingDdls([pending("s/a", 20), pending("s/a", 10, "s/b"), pending("s/c", 5)]).barriers
    assert found == {key("s/a"): 10, key("s/b"): 10, key("s/c"): 5}
    assert [target_of(key(t), found, 8) for t in ("s/a", "s/c", "s/d")] == [8, 5, 8]


def test_what_alters_no_table_holds_up_no_rows() -> None:
    """Rows go on beyond a view over their table, as they may have in an earlier process; a statement on the table does not."""
    view = PendingDdl(
        step=step("s/v", 10, "CREATE VIEW `v` AS SELECT * FROM `t`", DdlKind.CREATE_VIEW),
        touches=frozenset((key("s/v"), key("s/t"))),
    )
    found = PendingDdls([view, pending("s/t", 20)])
    assert (found.row_barriers, found.barriers) == (
        {key("s/v"): 10, key("s/t"): 20},
        {key("s/v"): 10, key("s/t"): 10},
    )
    assert not ready([view, pending("s/t", 20)], {"v": 5, "t": 20}, 50)
    found.remove(view.step.identity)
    assert found.row_barriers == found.barriers == {key("s/t"): 20}


@pytest.mark.parametrize(("checkpoint", "runs"), [(9, False), (10, True)])
def test_arrival(checkpoint: int, runs: bool) -> None:  # noqa: FBT001 - a column of the table
    """A statement runs once all its tables stand at its version."""
    statements = [pending("s/a", 10, "s/b")]
    assert bool(ready(statements, {"a": 10, "b": checkpoint}, 50)) is runs
    assert bool(ready(statements, {"a": checkpoint, "b": 10}, 50)) is runs


@pytest.mark.parametrize(
    ("storage", "is_stable", "runs"), [(9, True, False), (10, False, False), (10, True, True), (11, False, True)]
)
def test_storage_checkpoint(storage: int, is_stable: bool, runs: bool) -> None:  # noqa: FBT001 - columns of the table
    """A statement at exactly the storage checkpoint waits until that has settled."""
    assert bool(ready([pending("s/a", 10)], {"a": 10}, storage, is_stable=is_stable)) is runs


def test_no_waiting_for_untouched_tables() -> None:
    """A statement never waits for a table that it does not touch, however far back or still that one stands."""
    assert ready([pending("s/a", 10), pending("s/b", 5)], {"a": 10, "b": 1}, 50) == [["s/a"]]
    assert ready([pending("s/a", 10)], {"a": 10, "b": 1}, 50, b=True) == [["s/a"]]


def test_still_tables() -> None:
    """A table that stands still holds up what touches it."""
    statements = [pending("s/a", 10, "s/b"), pending("s/c", 10)]
    assert ready(statements, {"a": 10, "b": 10, "c": 10}, 50, b=True) == [["s/c"]]


def test_earlier_statements_first() -> None:
    """A statement waits for an earlier one that touches one of its tables, also for one that cannot run."""
    statements = [pending("s/a", 10, "s/b"), pending("s/b", 20, "s/c")]
    assert ready(statements, {"a": 10, "b": 10, "c": 20}, 50) == [["s/a"]]
    assert ready(statements, {"a": 9, "b": 20, "c": 20}, 50) == []


def test_groups() -> None:
    """Statements come in groups of one version, by version."""
    statements = [pending("s/c", 30), pending("s/a", 20), pending("s/b", 20)]
    assert ready(statements, {"a": 20, "b": 20, "c": 30}, 50) == [["s/a", "s/b"], ["s/c"]]


def test_one_statement_in_several_files() -> None:
    """Of statements of one version that share a table none runs before all their tables have arrived."""
    chain = [pending("s/b", 10, "s/a"), pending("s/c", 10, "s/b"), pending("s/d", 10, "s/c"), pending("s/x", 10)]
    places = {"a": 9, "b": 10, "c": 10, "d": 10, "x": 10}
    assert ready(chain, places, 50) == [["s/x"]]
    assert ready(chain, places | {"a": 10}, 50) == [["s/b", "s/c", "s/d", "s/x"]]


@pytest.mark.parametrize("behind", "abc")
def test_statements_that_share_a_third_table(behind: str) -> None:
    """Two of one version that touch a table which is neither's own wait for all three tables, in whatever order they come."""
    statements = [pending("s/b", 10, "s/a"), pending("s/c", 10, "s/a")]
    for some in (statements, statements[::-1]):
        assert ready(some, dict.fromkeys("abc", 10) | {behind: 9}, 50) == []
        assert ready(some, dict.fromkeys("abc", 10), 50) == [["s/b", "s/c"]]


def test_a_table_that_begins_later() -> None:
    """A table that stands still holds up nothing from before its first version."""
    positions = {
        key("s"): Position(checkpoint=10, blocked=False),
        key("s/a"): Position(checkpoint=0, blocked=True, first=11),
    }
    assert ready_now(PendingDdls([pending("s", 10, "s/a")]), positions, 50)
    positions[key("s/a")] = Position(checkpoint=0, blocked=True, first=10)
    assert not ready_now(PendingDdls([pending("s", 10, "s/a")]), positions, 50)


def test_a_statement_is_not_tried_again_while_its_table_is_stopped() -> None:
    """A statement that had no effect stops a table, which may begin only after it; neither it nor those that go with it run."""
    statements = [replace(pending("s/a", 10, "s/b"), stops=frozenset({key("s/b")})), pending("s/c", 10, "s/a")]
    positions = {key(f"s/{t}"): Position(checkpoint=10, blocked=False, first=1) for t in "ac"}
    for stopped in (False, True):
        positions[key("s/b")] = Position(checkpoint=12, blocked=True, first=11, stopped=stopped)
        assert bool(ready_now(PendingDdls(statements), positions, 50)) is not stopped
