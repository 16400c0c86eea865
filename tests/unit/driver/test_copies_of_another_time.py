"""Copies whose TSO or files are of another time, as the bucket's schema files show: refused before anything is written."""

from __future__ import annotations

import threading

import pytest

from storage_consumer.driver.open_copies import OpenCopy
from storage_consumer.errors import ConfigError
from tests.harness.small_bucket import ID_NAME, column, ts
from tests.unit.copying import COLUMNS, MemoryCopy, WithCopies, names_in
from tests.unit.driver.test_loads import ALTER_ADD, DROP_COLUMN, ONE

PHONE = (*ID_NAME, column("Phone", "VARCHAR", ColumnPrecision="20"))


def begun(*, checkpoint: int, snapshot: int = 8, initial: bool = True) -> WithCopies:
    """shop.a, which got a column more at tick 5, shop.b beside it, and a copy of both without that column."""
    world = WithCopies(MemoryCopy(snapshot=ts(snapshot)), initial=initial)
    world.copy.add("shop.a", [ONE])
    world.copy.add("shop.b", [ONE])
    world.bucket.create("shop.a", "shop.b")
    world.bucket.schema("shop.a", ts(5), "ALTER TABLE `a` ADD COLUMN `Phone` VARCHAR(20)", ALTER_ADD, PHONE)
    world.bucket.metadata(ts(checkpoint))
    return world


def test_a_tso_that_is_too_late() -> None:
    """The table has had a column at that TSO that the export lacks: nothing is written of any table."""
    world = begun(checkpoint=10)
    with pytest.raises(ConfigError, match=r"shop\.a of the copy \(shop\.a-schema\.sql\) lacks phone") as fault:
        world.once()
    assert f"shop/a/meta/schema_{ts(5)}_" in str(fault.value)
    assert str(ts(8)) in str(fault.value)
    assert "are of another time. Restore the `metadata`" in str(fault.value)
    assert not world.records.effects
    assert not world.records.loads


def test_a_tso_that_is_too_early() -> None:
    """The export has a column that the table gets after that TSO only."""
    world = begun(checkpoint=10, snapshot=4)
    more = COLUMNS[1]
    world.copy.add("shop.a", columns=(*COLUMNS, type(more)(name="phone", type="VARCHAR", precision=20)))
    with pytest.raises(ConfigError, match=r"shop\.a of the copy .* has phone, unlike"):
        world.once()
    assert not world.records.loads


@pytest.mark.parametrize("snapshot", [4, 5])
def test_a_statement_at_the_very_tso_is_in_the_copy(snapshot: int) -> None:
    """And one right after it is not."""
    world = begun(checkpoint=10, snapshot=snapshot)
    if snapshot == 4:
        assert not world.once().halted
        assert names_in(world, "shop.b") == {"1": "copy"}
    else:
        with pytest.raises(ConfigError, match="lacks phone"):
            world.once()


def test_a_dropped_column_that_the_copy_shows_early() -> None:
    """A snapshot from right before a DROP COLUMN can lack the column already."""
    world = begun(checkpoint=10)
    world.bucket.schema("shop.a", ts(9), "ALTER TABLE `a` DROP COLUMN `phone`", DROP_COLUMN, ID_NAME)
    assert not world.once().halted
    assert names_in(world, "shop.a") == {"1": "copy"}


def test_the_bucket_may_still_explain_it() -> None:
    """While its checkpoint has not passed the TSO a service waits, and begins once a statement has come; --once refuses."""
    world = begun(checkpoint=6)
    with pytest.raises(ConfigError, match="wait until its checkpoint has passed that TSO"):
        world.once()
    service, wait = world.service(), world.clock.wait

    def passing(event: threading.Event, seconds: float) -> bool:
        if threading.current_thread() is threading.main_thread():
            if world.records.loads:
                world.stop.requested.set()
            world.bucket.schema("shop.a", ts(7), "ALTER TABLE `a` DROP COLUMN `phone`", DROP_COLUMN, ID_NAME)
            world.bucket.metadata(ts(10))
        return wait(event, seconds)

    world.clock.wait = passing  # type: ignore[method-assign]  # the bucket goes on meanwhile
    try:
        service.run(world.stop)
    finally:
        service.close()
    assert names_in(world, "shop.a") == {"1": "copy"}


def test_a_statement_that_the_changefeed_leaves_out() -> None:
    """Columns that no schema file of the bucket has prove nothing: the copy is taken."""
    world = begun(checkpoint=10)
    more = type(COLUMNS[1])(name="more", type="VARCHAR", precision=20)
    world.copy.add("shop.a", columns=(*COLUMNS, more), body="id INT PRIMARY KEY, name VARCHAR(20), more VARCHAR(20)")
    assert not world.once().halted


def test_interrupted_while_it_begins() -> None:
    """A feed whose start was interrupted, as in a notebook, begins with its copy when it is asked for again."""
    world = WithCopies(InterruptedOnce(snapshot=ts(8)), initial=True)
    world.copy.add("shop.b", [ONE])
    world.bucket.create("shop.b")
    world.bucket.metadata(ts(10))
    service = world.service()
    try:
        with pytest.raises(KeyboardInterrupt):
            service.run_once(world.stop)
        service.run_once(world.stop)
    finally:
        service.close()
    assert names_in(world, "shop.b") == {"1": "copy"}


class InterruptedOnce(MemoryCopy):
    """A copy whose first opening is interrupted."""

    def open(self, uri: str) -> OpenCopy:
        """Raise `KeyboardInterrupt` the first time."""
        if not self.opened:
            self.opened += 1
            raise KeyboardInterrupt
        return super().open(uri)


def test_a_refused_copy_stays_refused() -> None:
    """The same process, asked for another round, does not begin the feed without the copy."""
    world = begun(checkpoint=10)
    service = world.service()
    try:
        for _ in range(2):
            with pytest.raises(ConfigError, match="lacks phone"):
                service.run_once(world.stop)
    finally:
        service.close()
    assert not world.records.effects
