"""A file that was written anew where no listing looked stops its table, whenever the process that finds it ends."""

from __future__ import annotations

import pytest

from tests.harness.small_bucket import row, ts
from tests.unit.driving import World, killed_after, numbers, one_table


@pytest.fixture
def world() -> World:
    """A table of which file 3 was written anew with a later row, far below the last file, while the checkpoint went on."""
    found = one_table()
    for number in range(2, 30):
        found.bucket.rows("shop.a", number, row("shop.a", number + 2, str(number), '"file"'))
    found.bucket.metadata(ts(40))
    service = found.service()
    service.run_once(found.stop)
    service.run_once(found.stop)
    found.bucket.rows("shop.a", 3, row("shop.a", 45, "100", '"new row"'))
    found.bucket.metadata(ts(50))
    service.run_once(found.stop)
    service.close()
    assert "100" not in numbers(found, "shop.a")
    return found


@pytest.mark.parametrize("saves", range(8))
def test_killed_behind_any_save(world: World, saves: int) -> None:
    """Also one that is killed right after any of its transactions: the next one stops the table, or has the row."""
    killed_after(world, saves, "after MemoryProgress.save")
    summary = world.once()
    assert [table.table for table in summary.halted] == ["shop.a"] or "100" in numbers(world, "shop.a")
