"""Tables that are renamed, and statements of one table, in whatever order and over however many polls their files come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import pytest

from tests.harness.small_bucket import CREATE_TABLE, ID_NAME, column, row, ts
from tests.unit.driving import World, held, numbers, running

RENAME, ALTER = 14, 5
POLLS = 3
WIDER = (*ID_NAME, column("more", "INT"))


def there_and_back(world: World) -> list[tuple[int, Callable[[], object]]]:
    """A table that gets another name and its own again, with rows before, between and after: tick → what writes the file."""
    bucket = world.bucket
    return [
        (2, lambda: bucket.rows("shop.a", 1, row("shop.a", 2, "1", '"one"'), row("shop.a", 3, "2", '"two"'))),
        (4, lambda: bucket.schema("shop.b", ts(4), "RENAME TABLE `shop`.`a` TO `shop`.`b`", RENAME)),
        (5, lambda: bucket.rows("shop.b", 1, row("shop.b", 5, "1", '"one"', operation="D"), version=ts(4))),
        (7, lambda: bucket.schema("shop.a", ts(7), "RENAME TABLE `shop`.`b` TO `shop`.`a`", RENAME)),
        (8, lambda: bucket.rows("shop.a", 1, row("shop.a", 8, "3", '"three"'), version=ts(7))),
    ]


def delivered(polls: Sequence[int]) -> World:
    """A process that found each file at its poll; ``metadata`` covers at each what has come, as TiCDC promises."""
    world = World()
    world.bucket.create("shop.a")
    files = list(zip(there_and_back(world), polls, strict=True))
    service = world.service()
    for poll in range(POLLS):
        for write in (write for (_, write), when in files if when == poll):
            write()
        missing = [tick for (tick, _), when in files if when > poll]
        world.bucket.metadata(ts(min([10, *missing]) - 1))
        assert service.run_once(world.stop).halted == (), polls
    service.close()
    return world


def test_there_and_back_in_every_order() -> None:
    """A rename to another name and back, delivered in every order over three polls, ends equal, each statement run once (D1)."""
    for polls in (some for some in product(range(POLLS), repeat=5) if len(set(some)) == POLLS):
        world = delivered(polls)
        assert (numbers(world, "shop.a"), numbers(world, "shop.b")) == (["2", "3"], []), polls
        assert [s.split()[0] for s in world.records.effects] == ["CREATE", "CREATE", "RENAME", "RENAME"], polls


FORMS = [
    ("shop.c", "RENAME TABLE `shop`.`a` TO `shop`.`c`"),
    ("crm.c", "RENAME TABLE `shop`.`a` TO `crm`.`c`"),
]


@pytest.mark.parametrize("restarted", [True, False])
@pytest.mark.parametrize(("new", "query"), FORMS)
def test_old_name_files_after_the_rename(new: str, query: str, *, restarted: bool) -> None:
    """Rows that turn up once more under the name that their table had are repeats, not rows of a table that is missing (D2)."""
    world = World()
    world.bucket.create("shop.a", "crm.o")
    old = (row("shop.a", 2, "1", '"one"'), row("shop.a", 3, "2", '"two"'))
    world.bucket.rows("shop.a", 1, *old)
    world.bucket.schema(new, ts(4), query, RENAME)
    world.bucket.rows(new, 1, row(new, 5, "1", '"uno"', operation="U"), version=ts(4))
    world.bucket.metadata(ts(6))
    service = world.service()
    assert service.run_once(world.stop).halted == ()
    world.bucket.rows("shop.a", 2, *old)
    world.bucket.rows(new, 2, row(new, 8, "3", '"three"'), version=ts(4))
    world.bucket.metadata(ts(9))
    if restarted:
        service.close()
        service = world.service()
    summary = service.run_once(world.stop)
    service.close()
    assert (summary.halted, summary.checkpoint, summary.skipped) == ((), ts(9), {"row: repeated delivery": 2})
    assert [values["name"] for values in world.rows(new)] == ["uno", "two", "three"]
    assert world.rows("shop.a") == []


def test_statements_of_one_table_queue() -> None:
    """Of two statements of one table the second is not sent while the first one runs, over several rounds (D8)."""
    world = World()
    world.bucket.create("shop.a")
    world.once(3)
    world.bucket.schema("shop.a", ts(4), "ALTER TABLE `a` ADD COLUMN `more` INT", ALTER, WIDER)
    query = "CREATE TABLE `b` (id INT PRIMARY KEY, name VARCHAR(20))"
    world.bucket.schema("shop.b", ts(5), query, CREATE_TABLE)
    world.bucket.schema("shop.c", ts(5), "RENAME TABLE `shop`.`a` TO `shop`.`c`", RENAME, WIDER)
    world.bucket.metadata(ts(9))
    works = held(world, 1)
    sent: list[list[str]] = []

    def act(rounds: int) -> None:
        sent.append(world.records.effects[2:])
        if rounds == 3:
            works.popleft()()

    running(world, act, rounds=5)
    assert sent[:3] == [[query]] * 3
    assert sent[-1] == [query, "ALTER TABLE `a` ADD COLUMN `more` INT", "RENAME TABLE `shop`.`a` TO `shop`.`c`"]
