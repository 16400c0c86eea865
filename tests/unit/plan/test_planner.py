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


@pytest.mark.parametrize(
    ("storage", "is_stable", "runs"), [(9, True, False), (10, False, False), (10, True, True), (11, False, True)]
)
def test_storage_checkpoint(storage: int, is_stable: bool, runs: bool) -> None:  # noqa: FBT001 - columns of the table
    """A statement at exactly the storage checkpoint waits until that has settled."""
    assert bool(ready([pending("s/a", 10)], {"a": 10}, storage, is_stable=is_stable)) is runs


RUNS = {
    "once all its tables stand at its version": ("a10+b", "a10 b10", "", ["a"]),
    "not before its own": ("a10+b", "a9 b10", "", []),
    "not before another one that it touches": ("a10+b", "a10 b9", "", []),
    "whatever is behind and untouched": ("a10 b5", "a10 b1", "", ["a"]),
    "whatever stands still and is untouched": ("a10", "a10 b1", "b", ["a"]),
    "not if a table that it touches stands still": ("a10+b c10", "a10 b10 c10", "b", ["c"]),
    "not before an earlier one of its tables": ("a10+b b20+c", "a10 b10 c20", "", ["a"]),
    "nor if that cannot run": ("a10+b b20+c", "a9 b20 c20", "", []),
    "in groups of one version, by version": ("c30 a20 b20", "a20 b20 c30", "", ["a b", "c"]),
    "not while a table of the same statement is behind": ("b10+a c10+b d10+c x10", "a9 b10 c10 d10 x10", "", ["x"]),
    "with all of its statement": ("b10+a c10+b d10+c x10", "a10 b10 c10 d10 x10", "", ["b c d x"]),
    "not while the third table of two is behind": ("b10+a c10+a", "a9 b10 c10", "", []),
    "nor while that of the first is": ("b10+a c10+a", "a10 b9 c10", "", []),
    "nor while that of the second is": ("b10+a c10+a", "a10 b10 c9", "", []),
    "once all three are there": ("b10+a c10+a", "a10 b10 c10", "", ["b c"]),
}
"""When a statement runs: statements with the tables that they touch besides their own, where the tables are, which stand still."""


@pytest.mark.parametrize(("statements", "places", "still", "groups"), RUNS.values(), ids=RUNS)
def test_what_runs(statements: str, places: str, still: str, groups: list[str]) -> None:
    """A statement waits for the tables that it touches and for no others, whatever order statements of one version come in."""
    made = [
        pending(f"s/{own[0]}", int(own[1:]), *(f"s/{each}" for each in others))
        for own, *others in (statement.split("+") for statement in statements.split())
    ]
    checkpoints = {place[0]: int(place[1:]) for place in places.split()}
    for some in (made, made[::-1]):
        found = ready(some, checkpoints, 50, **dict.fromkeys(still, True))
        assert [" ".join(name.removeprefix("s/") for name in group) for group in found] == groups


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
