"""One round after another over twins: what is applied, what stands still, what is counted, and what a killed process leaves."""

from __future__ import annotations

from typing import Any

import pytest

from tests.small_bucket import ID_NAME, column, row, ts
from tests.unit.driving import World

KEYLESS = (column("a", "INT"), column("b", "VARCHAR", ColumnPrecision="20"))
WIDER = (*ID_NAME, column("note", "VARCHAR", ColumnPrecision="20"))
ALTER, DROP, TRUNCATE, RENAME = 5, 4, 11, 14


class Killed(BaseException):
    """The process ends here."""


def history(world: World) -> None:
    """The whole history of a small bucket: all kinds of statements, keyed and keyless rows, two checkpoints on the way."""
    bucket = world.bucket
    bucket.create("shop.a", "shop.b")
    bucket.schema("shop.k", ts(1), "CREATE TABLE `k` (a INT, b VARCHAR(20))", 3, KEYLESS)
    bucket.rows("shop.a", 1, row("shop.a", 2, "1", '"one"'), row("shop.a", 3, "2", '"two"'))
    bucket.rows("shop.b", 1, row("shop.b", 2, "1", '"gone"'))
    bucket.rows("shop.k", 1, row("shop.k", 2, "1", '"x"'), row("shop.k", 3, "1", '"x"'))
    bucket.schema("shop.a", ts(4), "ALTER TABLE `a` ADD COLUMN `note` VARCHAR(20)", ALTER, WIDER)
    bucket.rows("shop.a", 1, row("shop.a", 6, "1", '"uno"', '"n"'), version=ts(4))
    bucket.schema("shop.b", ts(5), "TRUNCATE TABLE `b`", TRUNCATE)
    bucket.rows("shop.b", 1, row("shop.b", 6, "7", '"seven"'), version=ts(5))
    bucket.rows("shop.k", 2, row("shop.k", 6, "1", '"x"', operation="D"), row("shop.k", 7, "3", "\\N"))
    bucket.schema("shop.c", ts(8), "RENAME TABLE `shop`.`b` TO `shop`.`c`", RENAME)
    bucket.rows("shop.c", 1, row("shop.c", 9, "8", '"eight"'), version=ts(8))
    bucket.schema("shop.d", ts(9), "CREATE TABLE `d` (id INT PRIMARY KEY, name VARCHAR(20))", 3)
    bucket.schema("shop.d", ts(10), "DROP TABLE `d`", DROP)


CHECKPOINTS = (ts(3), ts(7), ts(10))


def state_of(world: World) -> dict[str, Any]:
    """All that a target holds in the end, but for who was there and how often."""
    records = world.records
    return {
        "structures": dict(records.structures),
        "rows": {table: world.rows(table) for table in ("shop.a", "shop.b", "shop.c", "shop.d", "shop.k")},
        "tables": {d: (max(t.checkpoint, records.checkpoint), t.state, t.follows) for d, t in records.tables.items()},
        "streams": dict(records.streams),
        "journal": {identity: entry.state for identity, entry in records.journal.items()},
        "checkpoint": (records.checkpoint, records.storage_checkpoint),
    }


def replayed(kill_at: int = -1) -> tuple[World, int]:
    """The history, checkpoint by checkpoint, with one process that is killed at a call; and how many calls there were."""
    world = World()
    history(world)
    calls = 0

    def tick(_: str) -> None:
        nonlocal calls
        calls += 1
        if calls == kill_at:
            raise Killed

    world.tick = tick
    for checkpoint in CHECKPOINTS:
        world.bucket.metadata(checkpoint)
        try:
            world.killed(lambda service: service.run_once(world.stop))
        except Killed:
            world.once()
    return world, calls


def test_killed_at_every_call(capsys: pytest.CaptureFixture[str]) -> None:
    """A process that ends right before or after any call to the outside leaves what the next one completes, no DDL twice."""
    whole, calls = replayed()
    wanted = state_of(whole)
    assert [(r["id"], r["name"], r["note"]) for r in wanted["rows"]["shop.a"]] == [
        ("1", "uno", "n"),
        ("2", "two", None),
    ]
    assert [tuple(r.values()) for r in wanted["rows"]["shop.c"]] == [("7", "seven"), ("8", "eight")]
    assert [tuple(r.values()) for r in wanted["rows"]["shop.k"]] == [("1", "x"), ("3", None)]
    for point in range(1, calls + 1):
        world, _ = replayed(point)
        assert state_of(world) == wanted, point
        once = [s for s in world.records.effects if not s.startswith("TRUNCATE")]
        assert once == [s for s in whole.records.effects if not s.startswith("TRUNCATE")], point
    with capsys.disabled():
        print(f" [{calls} points]", end="")
    assert calls > 100
