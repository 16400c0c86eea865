"""Files that expire while their table is left out: nothing shows whether a later copy holds their rows, so none is passed over in silence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage_consumer.config.settings import Selecting
from tests.harness.small_bucket import row, ts
from tests.unit.copying import names_in
from tests.unit.deciding import decide
from tests.unit.driver.test_requested_loads import feed
from tests.unit.driving import of


@pytest.mark.parametrize("how", ["skip", "filter"])
def test_a_copy_that_may_lack_the_rows_of_an_expired_file(how: str) -> None:
    """The table halts, and the message says that the copy may hold them; a copy as of later ends it."""
    world = feed(snapshot=14)
    world.clock.advance((ts(20) >> 18) / 1000 - world.clock.now())
    world.once()
    if how == "skip":
        decide(world, "skip")
    else:
        world.config = replace(world.config, selecting=Selecting(rules=("shop.*", "!shop.a")))
    world.once()
    world.bucket.rows("shop.a", 2, row("shop.a", 11, "1", '"copy"'))
    world.bucket.rows("shop.a", 3, row("shop.a", 12, "2", '"copy"'))
    world.once(13)
    world.bucket.storage.delete(world.bucket.file("shop.a", 2).relative_to("/bucket").as_posix())
    world.bucket.rows("shop.a", 4, row("shop.a", 16, "3", '"new"'))
    if how == "filter":
        world.config = replace(world.config, selecting=Selecting())
        world.once()
    world.request("shop.a", replaces=True)
    world.bucket.metadata(ts(20))
    service = world.service()
    for _ in range(3):
        summary = service.run_once(world.stop)
        world.clock.advance(200)
    service.close()
    error = of(summary, "shop.a").error
    assert "file number 2 in" in error
    assert f"nothing shows whether the copy as of {ts(14)} holds its rows" in error
    assert "data was lost" not in error
    world.bucket.metadata(ts(1000))
    world.copy.snapshot, world.copy.identity = ts(900), "two"
    world.copy.add("shop.a", [("1", '"copy"'), ("2", '"copy"'), ("3", '"new"')])
    world.request("shop.a", replaces=True, low=ts(14))
    assert not world.once().halted
    assert names_in(world, "shop.a") == {"1": "copy", "2": "copy", "3": "new"}
