"""What a plan says of statements that a server refuses for the names inside a table, and what then happens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from storage_consumer import Consumer
from tests.harness.plans import planned_and_run
from tests.harness.servers import KINDS, DatabaseServer
from tests.harness.small_bucket import CONFIG, ID_NAME, SmallBucket, column, ts

pytestmark = pytest.mark.server
PARTITIONED = "PARTITION BY RANGE (id) (PARTITION `p0` VALUES LESS THAN (10), PARTITION `p1` VALUES LESS THAN (20))"
BODY = "id INT PRIMARY KEY, name VARCHAR(20), KEY k (name)"
REFUSED = {
    "after": "ADD COLUMN `x` INT AFTER `nowhere`",
    "dropcol": "DROP COLUMN `nowhere`",
    "modify": "MODIFY COLUMN `nowhere` BIGINT",
    "change": "CHANGE COLUMN `nowhere` `x` BIGINT",
    "default": "ALTER COLUMN `nowhere` SET DEFAULT 1",
    "renamecol": "RENAME COLUMN `nowhere` TO `x`",
    "renameonto": "RENAME COLUMN `name` TO `extra`",
    "dupcol": "ADD COLUMN `extra` INT",
    "dropindex": "DROP INDEX `nowhere`",
    "renameindex": "RENAME INDEX `nowhere` TO `x`",
    "dupindex": "ADD INDEX `k2` (`name`)",
    "indexof": "ADD INDEX `x` (`nowhere`)",
    "onto": "RENAME INDEX `k` TO `k2`",
    "primary": "ADD PRIMARY KEY (`name`)",
    "foreign": "DROP FOREIGN KEY `nowhere`",
    "droppart": "DROP PARTITION `nowhere`",
    "nopart": "TRUNCATE PARTITION `nowhere`",
    "duppart": "ADD PARTITION (PARTITION `p1` VALUES LESS THAN (30))",
    "plain": "DROP PARTITION `p0`",
}
"""Table → what is done to it, and cannot be: it has no such name, or its target has a column `extra` and an index `k2` by now."""
TAKEN = {
    "fresh": "ADD COLUMN `x` INT AFTER `name`",
    "again": "ADD INDEX `x` (`name`)",
    "upper": "ADD COLUMN `y` INT AFTER `NAME`",
    "swap": "RENAME INDEX `k` TO `x`",
    "morepart": "ADD PARTITION (PARTITION `p2` VALUES LESS THAN (30))",
    "lesspart": "DROP PARTITION `p0`",
}
"""Table → what runs all the same."""
LEFT_OUT = frozenset(("dropindex", "renameindex", "foreign"))
"""What MySQL and MariaDB are not even asked to do: an index that they may never have had needs no end."""
TYPES = {"DROP PARTITION": 20, "TRUNCATE PARTITION": 23, "ADD PARTITION": 19}
"""Words of a statement → the type that its schema file has."""
MORE = {"fresh": "x", "upper": "y"}


def columns(table: str) -> Sequence[Mapping[str, Any]]:
    """The columns of a table after its statement."""
    return (*ID_NAME, column(MORE[table], "INT")) if table in MORE else ID_NAME


def write_alters(bucket: SmallBucket) -> None:
    """One ALTER of each table."""
    for table, action in (REFUSED | TAKEN).items():
        number = next((number for words, number in TYPES.items() if action.startswith(words)), 5)
        bucket.schema(f"d.{table}", ts(4), f"ALTER TABLE `{table}` {action}", number, columns(table))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rounds", [1, 2])
def test_names_that_are_there_or_not(kind: str, rounds: int, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """A missing or repeated name of a column, index or partition halts in the plan as on the server, whether the table is new or not."""
    server: DatabaseServer = request.getfixturevalue(kind)
    bucket = SmallBucket(root=tmp_path / "bucket")
    for table in REFUSED | TAKEN:
        is_cut = "part" in table
        body = BODY if table not in REFUSED or rounds == 2 else f"{BODY}, extra INT, KEY k2 (name)"
        made = ID_NAME if body == BODY else (*ID_NAME, column("extra", "INT"))
        bucket.schema(f"d.{table}", ts(1), f"CREATE TABLE `{table}` ({body}) {PARTITIONED if is_cut else ''}", 3, made)
    bucket.metadata(ts(3))
    if rounds == 1:
        write_alters(bucket)
        bucket.metadata(ts(9))
    with Consumer(upstream_uri=bucket.uri, downstream_uri=server.uri, config=CONFIG) as consumer:
        assert planned_and_run(consumer, server) == []
        if rounds == 2:
            for table in REFUSED:
                server.query(f"ALTER TABLE d.`{table}` ADD COLUMN extra INT")
                server.query(f"ALTER TABLE d.`{table}` ADD INDEX k2 (name)")
            write_alters(bucket)
            bucket.metadata(ts(9))
            assert planned_and_run(consumer, server) == []
        plan = consumer.plan()
    refused = [table for table in REFUSED if server.kind == "tidb" or table not in LEFT_OUT]
    assert sorted(stop.table for stop in plan.halts) == sorted(f"d.{table}" for table in refused)
