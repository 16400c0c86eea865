"""Loads of tables that somebody changed in the target."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage_consumer.job.target_table import UniqueKey
from storage_consumer.model import TableName
from tests.harness.small_bucket import ts
from tests.unit.copying import names_in
from tests.unit.driver.test_requested_loads import feed


@pytest.mark.parametrize("changed", ["order", "key", "unique"])
def test_a_table_that_cannot_take_the_copy_is_created_anew(changed: str) -> None:
    """Somebody gave it other columns or keys in the target: emptying it first would leave it empty and halted."""
    world = feed(snapshot=15)
    world.once()
    name = TableName(schema="shop", table="a")
    there = world.records.structures[name]
    world.records.structures[name] = {
        "order": replace(there, columns=there.columns[::-1]),
        "key": replace(there, unique_keys=(UniqueKey(name="PRIMARY", columns=("id", "name"), prefixes=(None, None)),)),
        "unique": replace(there, key_drift="unique key over `name`"),
    }[changed]
    world.bucket.metadata(ts(20))
    world.request("shop.a", replaces=True)
    assert not world.once().halted
    assert names_in(world, "shop.a") == {"1": "copy", "2": "copy"}
    assert world.records.structures[name] == there
