"""Renames: what a statement renames, and how those of one version can run on the tables that the target has."""

from __future__ import annotations

from itertools import permutations

import pytest

from storage_consumer.model import TableName
from storage_consumer.plan.planner import in_running_order, unfinished
from storage_consumer.plan.steps import DdlStep
from storage_consumer.sql.parse import parsed
from tests.unit.building import CREATE, RENAME, definition, named, step


def renames(*pairs: tuple[str, str]) -> list[DdlStep]:
    """One rename per pair, each in the directory of its new name."""
    made = []
    for old, new in pairs:
        (old_schema, old_table), (new_schema, new_table) = old.split("/"), new.split("/")
        query = f"RENAME TABLE `{old_schema}`.`{old_table}` TO `{new_schema}`.`{new_table}`"
        made.append(step(new, 5, query, RENAME))
    return made


def queries(group: list[DdlStep], *existing: str) -> set[tuple[str, ...]]:
    """What runs, as ``old > new``, whatever order the statements come in."""
    there = frozenset(named(table).folded() for table in existing)
    return {
        tuple(
            s.definition.query.removeprefix("RENAME TABLE ").replace("`", "").replace(" TO ", " > ")
            for s in in_running_order(arrived, there)
        )
        for arrived in permutations(group)
    }


def test_chain() -> None:
    """A rename waits for the one that frees its name."""
    assert queries(renames(("s/a", "s/b"), ("s/b", "s/c")), "s/a", "s/b") == {("s.b > s.c", "s.a > s.b")}


def test_lost_in_a_cycle() -> None:
    """The step that moved a table out of the way, whose file a later step overwrote, is put back."""
    found = queries(renames(("s/y", "s/x"), ("s/tmp", "s/y")), "s/x", "s/y")
    assert found == {("s.x > s.tmp", "s.y > s.x", "s.tmp > s.y")}


def test_lost_in_a_long_cycle() -> None:
    """However long the cycle is, the way back from the missing table leads to the occupied name."""
    group = renames(("s/b", "s/a"), ("s/c", "s/b"), ("q/tmp", "s/c"))
    found = queries(group, "s/a", "s/b", "s/c", "r/x")
    assert found == {("s.a > q.tmp", "s.b > s.a", "s.c > s.b", "q.tmp > s.c")}


def test_two_cycles() -> None:
    """Each of several cycles gets the step that it lacks."""
    group = renames(("s/y", "s/x"), ("s/t", "s/y"), ("s/n", "s/m"), ("s/u", "s/n"))
    for order in queries(group, "s/x", "s/y", "s/m", "s/n"):
        assert {"s.x > s.t", "s.m > s.u"} < set(order)
        assert order.index("s.x > s.t") < order.index("s.y > s.x") < order.index("s.t > s.y")
        assert order.index("s.m > s.u") < order.index("s.n > s.m") < order.index("s.u > s.n")


@pytest.mark.parametrize(
    "existing", [("s/tmp", "s/y"), ("s/tmp", "s/x"), ("s/x", "s/y", "s/tmp"), ()], ids=["one", "two", "odd", "none"]
)
def test_nothing_is_put_in(existing: tuple[str, ...]) -> None:
    """Where the lost step has taken effect, or the tables do not tell, only what was stored runs, each once."""
    for order in queries(renames(("s/y", "s/x"), ("s/tmp", "s/y")), *existing):
        assert sorted(order) == ["s.tmp > s.y", "s.y > s.x"]


def test_identity_of_what_is_put_in() -> None:
    """A step that no file holds is the same one after a restart, when some of the others are done, and like no other."""
    there = frozenset(named(t) for t in ("s/x", "s/y", "s/a"))
    more, fewer = renames(("s/y", "s/x"), ("s/tmp", "s/y"), ("s/a", "s/b")), renames(("s/tmp", "s/y"), ("s/y", "s/x"))
    lost = {s.identity: s for group in (more, fewer) for s in in_running_order(group, there) if s.inferred}
    assert len(lost) == 1
    (found,) = lost.values()
    assert found.identity not in {s.identity for s in more}
    assert (found.table_key, found.name, found.version) == ("`s`.`tmp`", TableName(schema="s", table="tmp"), 5)


def test_step_under_another_name() -> None:
    """A step of a cycle that lies under its table's last name leads to the name in its statement."""
    astray = definition("common/b", 5, "RENAME TABLE `s`.`a` TO `common`.`c`;", RENAME)
    assert (parsed(astray).subject, parsed(astray).is_astray) == (TableName(schema="common", table="c"), True)
    cycle = [
        DdlStep(table_dir="common/b", table_key="`common`.`c`", definition=astray),
        *renames(("s/b", "s/a"), ("common/c", "s/b")),
    ]
    assert queries(cycle, "s/a", "s/b") == {("s.a > common.c;", "s.b > s.a", "common.c > s.b")}


def test_unfinished() -> None:
    """A step that lies under its table's last name needs one after it that goes on from the name that it gives."""
    query = "RENAME TABLE `s`.`x` TO `s`.`tmp`"
    first = DdlStep(table_dir="s/y", table_key="`s`.`tmp`", definition=definition("s/y", 5, query, RENAME))
    there = frozenset((named("s/x").folded(), named("s/y").folded()))
    for group in permutations([first, *renames(("s/y", "s/x"), ("s/tmp", "s/y"))]):
        assert unfinished(in_running_order(group, there)) is None
    for group in permutations([first, *renames(("s/y", "s/x"))]):
        assert unfinished(in_running_order(group, there)) is first
    assert unfinished(in_running_order(renames(("s/y", "s/x"), ("s/tmp", "s/y")), there)) is None


@pytest.mark.parametrize(
    ("query", "astray"),
    [
        ("RENAME TABLE `x` TO `B`", False),
        ("RENAME TABLE `x` TO `Common`.`b`", False),
        ("ALTER TABLE `b` RENAME COLUMN `x` TO `c`", False),
        ("ALTER TABLE `x` RENAME TO `c`", True),
        ("CREATE TABLE `rename` (`to` INT)", False),
    ],
)
def test_astray(query: str, astray: bool) -> None:  # noqa: FBT001 - a column of the table
    """Only a rename to another name is another table's, and names are compared without case."""
    assert parsed(definition("common/b", 5, query, RENAME)).is_astray is astray


@pytest.mark.parametrize(
    ("query", "anywhere"),
    [
        ("RENAME TABLE `a` TO `s`.`b`", True),
        ("ALTER TABLE `a` RENAME `s`.`b`", True),
        ("RENAME TABLE `a` TO `b`", False),
        ("RENAME TABLE `r`.`a` TO `s`.`b`", False),
    ],
)
def test_where_the_old_name_is(query: str, anywhere: bool) -> None:  # noqa: FBT001 - a column of the table
    """The old name may be one of another database where the statement says only that of the new one."""
    found = parsed(definition("s/b", 5, query, RENAME)).rename
    assert found is not None
    assert found.from_anywhere is anywhere


def test_interrupted_rename() -> None:
    """A rename that was sent before goes first, whether or not the tables show that it took effect."""
    group = renames(("s/c", "s/y"), ("s/y", "s/x"))
    for existing in (("s/x", "s/c"), ("s/y", "s/c")):
        there = frozenset(named(table) for table in existing)
        order = in_running_order(group, there, frozenset([group[1].identity]))
        assert [s.table_dir for s in order] == ["s/x", "s/y"]


def test_other_statements_keep_their_order() -> None:
    """What is no rename runs first, in the order it came in."""
    group = [step("s/n", 5, "CREATE TABLE `n` (`i` INT)", CREATE), *renames(("s/a", "s/b")), step("s/m", 5)]
    assert [s.table_dir for s in in_running_order(group, frozenset([named("s/a")]))] == ["s/n", "s/m", "s/b"]
