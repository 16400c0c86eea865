"""What a round with few rows asks of the target, counted by the server: little, and nothing for each table but its rows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, row, ts
from tests.integration.rounds import consumer, content, of

pytestmark = [pytest.mark.server, pytest.mark.spark]
TABLES = [f"d.t{number:02d}" for number in range(40)]
COUNTED = ("Questions", "Com_commit", "Com_load")


def status(server: DatabaseServer) -> dict[str, int]:
    """How many statements, commits and LOAD DATA the server has seen."""
    names = ", ".join(f"'{name}'" for name in COUNTED)
    rows = server.query(f"SHOW GLOBAL STATUS WHERE variable_name IN ({names})")
    return {name: int(value) for name, value in rows}


def counted(server: DatabaseServer, work: Callable[[], object]) -> dict[str, int]:
    """How many of them it saw while something was done."""
    before = status(server)
    work()
    return {name: value - before[name] for name, value in status(server).items()}


def fill(bucket: SmallBucket, number: int) -> None:
    """One more file for each table, with two rows, and a checkpoint that covers it."""
    tick = 10 * number
    for table in TABLES:
        bucket.rows(table, number, *(row(table, tick, str(2 * number + place), f'"{number}"') for place in (0, 1)))
    bucket.metadata(ts(tick + 1))


def test_many_tables(bucket: SmallBucket, mariadb: DatabaseServer, spark: SparkSession) -> None:
    """Many tables with two rows each are few transactions; rounds without news ask little, however many tables there are."""
    bucket.create(*TABLES)
    fill(bucket, 1)
    with consumer(bucket, mariadb) as running:
        running.run_once()
        fill(bucket, 2)
        busy = counted(mariadb, running.run_once)
        bucket.metadata(ts(50))
        # The lease is renewed beside the rounds: its statement falls into one of them, not into all.
        idle = min(counted(mariadb, running.run_once)["Questions"] for _ in range(3))
    assert busy["Com_load"] == len(TABLES)
    assert busy["Com_commit"] <= 11
    assert busy["Questions"] <= 3 * len(TABLES) + 100
    assert idle <= 12
    assert {len(content(mariadb, table)) for table in TABLES} == {4}


def test_one_of_many_is_refused(bucket: SmallBucket, mariadb: DatabaseServer, spark: SparkSession) -> None:
    """A row that the target refuses stops its own table; those that shared its transaction are written (O12)."""
    bucket.create(*TABLES)
    fill(bucket, 1)
    path = bucket.rows(TABLES[7], 1, row(TABLES[7], 10, "1", '"fine"'), row(TABLES[7], 10, "2", f'"{"x" * 21}"'))
    with consumer(bucket, mariadb) as running:
        summary = running.run_once()
    assert [table.table for table in summary.halted] == [TABLES[7]]
    assert path.relative_to(bucket.root).as_posix() in of(summary, TABLES[7]).error
    assert content(mariadb, TABLES[7]) == []
    assert {len(content(mariadb, table)) for table in TABLES if table != TABLES[7]} == {2}
