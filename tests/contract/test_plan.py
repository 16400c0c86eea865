"""A plan on real servers: it writes nothing, needs rights to read only, and disturbs no consumer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from storage_consumer import Consumer
from storage_consumer.checkpoint.store import StateStore
from storage_consumer.config.load import load
from storage_consumer.errors import ConfigError
from storage_consumer.operating.planned import Outcome, Plan
from tests.harness.plans import planned_and_run
from tests.harness.servers import KINDS, DatabaseServer
from tests.harness.small_bucket import CONFIG, ID_NAME, SmallBucket, column, row, ts

pytestmark = pytest.mark.server
READS = re.compile(
    r"\s*(SELECT|SHOW|SET (SESSION|NAMES)|SET AUTOCOMMIT|USE|COMMIT|ROLLBACK|BEGIN|START TRANSACTION)\b", re.IGNORECASE
)
WRITES = re.compile(r"FOR UPDATE|GET_LOCK|INTO OUTFILE|NEXTVAL", re.IGNORECASE)


@pytest.fixture
def bucket(tmp_path: Path) -> SmallBucket:
    """Two tables with a row each, an ALTER, and more rows."""
    found = SmallBucket(root=tmp_path / "bucket")
    found.create("d.a", "d.b")
    for table in ("d.a", "d.b"):
        found.rows(table, 1, row(table, 2, "1", '"one"'))
    found.schema("d.a", ts(4), "ALTER TABLE `a` ADD UNIQUE INDEX `name` (`name`)", 7)
    found.metadata(ts(9))
    return found


def plan(bucket: SmallBucket, uri: str) -> Plan:
    """The plan of a start on this bucket."""
    with Consumer(upstream_uri=bucket.uri, downstream_uri=uri, config=CONFIG) as consumer:
        return consumer.plan()


@contextmanager
def logged(server: DatabaseServer) -> Iterator[list[str]]:
    """All statements that the server gets inside the block."""
    found: list[str] = []
    server.query("SET GLOBAL log_output = 'TABLE'")
    server.query("TRUNCATE TABLE mysql.general_log")
    server.query("SET GLOBAL general_log = 1")
    try:
        yield found
    finally:
        server.query("SET GLOBAL general_log = 0")
        rows = server.query("SELECT argument FROM mysql.general_log WHERE command_type IN ('Query', 'Execute')")
        found += [text if isinstance(text, str) else text.decode() for (text,) in rows][:-1]


def with_state(bucket: SmallBucket, server: DatabaseServer) -> None:
    """Create the state, as a consumer does that ended before its first round."""
    loaded = load({"upstream_uri": bucket.uri, "downstream_uri": server.uri, "config": CONFIG}, {})
    store = StateStore(loaded.config.downstream, "")
    store.open(loaded.config.upstream.identity)
    store.close()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "tidb"])
def test_only_reads(kind: str, request: pytest.FixtureRequest, bucket: SmallBucket) -> None:
    """The server's own log of a plan holds nothing but reads and settings of the session, on an empty target and beside a state."""
    server: DatabaseServer = request.getfixturevalue(kind)
    for has_state in (False, True):
        if has_state:
            with_state(bucket, server)
        databases = server.query("SHOW DATABASES")
        with logged(server) as statements:
            found = plan(bucket, server.uri)
        assert len(found.statements) == 4
        assert len(statements) > 10
        assert [text for text in statements if not READS.match(text) or WRITES.search(text)] == []
        assert server.query("SHOW DATABASES") == databases


def test_rights_to_read_suffice(server: DatabaseServer, bucket: SmallBucket) -> None:
    """A user who may only SELECT gets the whole plan, before the first run and beside a state."""
    server.query("CREATE USER looker@'%' IDENTIFIED BY 'x'")
    try:
        server.query("GRANT SELECT ON *.* TO looker@'%'")
        uri = f"mysql://looker:x@127.0.0.1:{server.port}/"
        first = plan(bucket, uri)
        with_state(bucket, server)
        again = plan(bucket, uri)
    finally:
        server.query("DROP USER looker@'%'")
    assert (first.first_run, again.first_run) == (True, False)
    assert first.waves == again.waves
    assert [each.outcome for each in first.statements] == [Outcome.RUN] * 4
    assert [(each.table, each.rows) for each in first.rows] == [("d.a", 1), ("d.b", 1)]


def test_tables_of_the_target(mariadb: DatabaseServer, tmp_path: Path) -> None:
    """A table that is there already: its CREATE would halt, with the words of the server; rows in it are warned of."""
    bucket = SmallBucket(root=tmp_path / "bucket")
    for table in ("a", "c"):
        bucket.schema(f"d.{table}", ts(1), f"CREATE TABLE `{table}` (id INT PRIMARY KEY, name VARCHAR(20))", 3)
    bucket.metadata(ts(9))
    mariadb.query("CREATE DATABASE d")
    mariadb.query("CREATE TABLE d.a (id INT PRIMARY KEY, name VARCHAR(20))")
    mariadb.query("INSERT INTO d.a VALUES (7, 'mine')")
    found = plan(bucket, mariadb.uri)
    assert [(stop.table, "error 1050" in stop.error) for stop in found.halts] == [("d.a", True)]
    assert len([warning for warning in found.warnings if "not empty" in warning and "d.a" in warning]) == 1


def test_first_statements_are_checked(server: DatabaseServer, tmp_path: Path) -> None:
    """Tables that are missing, or there already, halt in the plan as on the server; names inside a table only the server compares."""
    bucket = SmallBucket(root=tmp_path / "bucket")
    bucket.create("d.altered", "d.dropped", "d.renamed", "d.onto", "d.fine", "d.emptied", "d.twice")
    bucket.metadata(ts(3))
    with Consumer(upstream_uri=bucket.uri, downstream_uri=server.uri, config=CONFIG) as consumer:
        assert planned_and_run(consumer, server) == []
        for table in ("altered", "dropped", "emptied"):
            server.query(f"DROP TABLE d.{table}")
        server.query("CREATE TABLE d.created (id INT PRIMARY KEY)")
        added = (*ID_NAME, column("x", "INT"))
        bucket.schema("d.altered", ts(4), "ALTER TABLE `altered` ADD COLUMN `x` INT", 5, added)
        bucket.schema("d.dropped", ts(4), "DROP TABLE `dropped`", 4)
        bucket.schema("d.emptied", ts(4), "TRUNCATE TABLE `emptied`", 11)
        bucket.schema("d.onto", ts(4), "RENAME TABLE `renamed` TO `onto`", 14)
        bucket.schema("d.created", ts(4), "CREATE TABLE `created` (id INT PRIMARY KEY, name VARCHAR(20))", 3)
        bucket.schema("d.fine", ts(4), "ALTER TABLE `fine` ADD COLUMN `x` INT", 5, added)
        bucket.schema("d.twice", ts(4), "ALTER TABLE `twice` ADD INDEX `i` (`name`)", 7)
        bucket.schema("d.twice", ts(5), "ALTER TABLE `twice` DROP INDEX `i`", 8)
        bucket.rows("d.twice", 1, row("d.twice", 6, "1", '"one"'), version=ts(5))
        bucket.metadata(ts(9))
        found = consumer.plan()
        assert planned_and_run(consumer, server) == []
    expected = {"altered": 1146, "dropped": 1051, "emptied": 1146, "onto": 1050, "created": 1050}
    assert {stop.table: int(stop.error.partition("error ")[2][:4]) for stop in found.halts} == {
        f"d.{table}": number for table, number in expected.items()
    }
    (unchecked,) = [each for each in found.statements if each.unknown]
    assert (unchecked.run, unchecked.outcome) == (("ALTER TABLE `twice` DROP INDEX `i`",), Outcome.RUN)


def test_pace_and_transactions_left_out(mariadb: DatabaseServer, bucket: SmallBucket) -> None:
    """A pace does not divide what a plan shows; rows that are left out do not count."""
    options: dict[str, Any] = {"upstream_uri": bucket.uri, "downstream_uri": mariadb.uri, "config": CONFIG}
    bucket.rows("d.b", 2, *(row("d.b", 3, str(key), '"x"') for key in range(2, 9_000)))
    with Consumer(**options, rows_per_second=1, skip_commit_ts=f"d.b:{ts(2)}") as consumer:
        found = consumer.plan(rows=True)
    assert [
        (each.table, each.rows, each.high) for wave in found.waves for each in wave.rows if each.table == "d.b"
    ] == [("d.b", 8_998, ts(9))]


def test_another_buckets_state(mariadb: DatabaseServer, bucket: SmallBucket, tmp_path: Path) -> None:
    """The state of another bucket is refused, with the way on."""
    other = SmallBucket(root=tmp_path / "other")
    other.metadata(ts(1))
    with_state(other, mariadb)
    with pytest.raises(ConfigError, match="rebind"):
        plan(bucket, mariadb.uri)
