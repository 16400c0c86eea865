"""The whole driver where a step of a cycle of renames lies under the name of a table that it has nothing to do with."""

from __future__ import annotations

from tests.small_bucket import row, ts
from tests.unit.driving import World

RENAME = 14


def test_rows_go_on_beside_a_step_of_another_table() -> None:
    """Rows of the table that has the name meanwhile go on in its own, older version directory, and none of them is missed.

    The new architecture writes the step ``a TO spare`` under the last name of that table, ``c``, in the database of ``spare``,
    where another ``c`` is. It has the columns of that one, so its checksum is the same.
    """
    world = World()
    bucket = world.bucket
    bucket.create("shop.a", "shop.c", "common.c")
    bucket.rows("shop.c", 1, row("shop.c", 2, "1", '"one"'))
    bucket.rows("shop.a", 1, row("shop.a", 2, "7", '"a"'))
    bucket.rows("common.c", 1, row("common.c", 2, "8", '"c"'))
    bucket.schema("shop.c", ts(10), "RENAME TABLE `shop`.`a` TO `shop`.`spare`;", RENAME)
    bucket.schema("shop.a", ts(10), "RENAME TABLE `common`.`c` TO `shop`.`a`;", RENAME)
    bucket.schema("common.c", ts(10), "RENAME TABLE `shop`.`spare` TO `common`.`c`;", RENAME)
    bucket.metadata(ts(12))
    service = world.service()
    assert service.run_once(world.stop).halted == ()
    bucket.rows("shop.c", 2, row("shop.c", 14, "2", '"two"'))
    bucket.metadata(ts(20))
    assert service.run_once(world.stop).checkpoint == ts(20)
    service.close()
    names = {table: [one["name"] for one in world.rows(table)] for table in ("shop.a", "shop.c", "common.c")}
    assert names == {"shop.a": ["c"], "shop.c": ["one", "two"], "common.c": ["a"]}


def test_rows_in_the_directory_of_another_tables_step() -> None:
    """Where such a step made a directory, its version is no border for the rows of the table that has the name."""
    world = World()
    bucket = world.bucket
    bucket.create("shop.a", "shop.c", "common.c")
    bucket.schema("shop.c", ts(10), "RENAME TABLE `shop`.`a` TO `shop`.`spare`;", RENAME)
    bucket.schema("shop.a", ts(10), "RENAME TABLE `common`.`c` TO `shop`.`a`;", RENAME)
    bucket.schema("common.c", ts(10), "RENAME TABLE `shop`.`spare` TO `common`.`c`;", RENAME)
    bucket.rows("shop.c", 1, row("shop.c", 9, "1", '"before"'), row("shop.c", 11, "2", '"after"'), version=ts(10))
    bucket.metadata(ts(12))
    assert world.once().checkpoint == ts(12)
    assert [one["name"] for one in world.rows("shop.c")] == ["before", "after"]
