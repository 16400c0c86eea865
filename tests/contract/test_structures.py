"""What is read of a server: every property by its name, whatever the names of databases and tables have in them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.servers import KINDS, DatabaseServer
from tests.harness.structures import Fact, structure_of

pytestmark = pytest.mark.server


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    """Each kind of server in turn."""
    found: DatabaseServer = request.getfixturevalue(request.param)
    yield found
    found.drop_all()


def test_names_with_points(server: DatabaseServer) -> None:
    """A database and a table with points in their names are kept apart from one another and read like any other."""
    for statement in (
        "CREATE DATABASE `a.b` CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
        "CREATE DATABASE a",
        "CREATE TABLE `a.b`.`c.d` (`x.y` INT(5) ZEROFILL PRIMARY KEY, v VARCHAR(9) NOT NULL DEFAULT 'd' COMMENT 'c', KEY k (v(3)))",
        "CREATE DATABASE storage_consumer",
        "CREATE TABLE storage_consumer.lease (a INT)",
    ):
        server.query(statement)
    found = structure_of(server)
    assert found[Fact("a.b.", "", "collation")] == "utf8mb4_bin"
    assert found[Fact("a.b.c.d", "", "columns")] == "x.y, v"
    assert "zerofill" in found[Fact("a.b.c.d", "column x.y", "type")]
    assert found[Fact("a.b.c.d", "column v", "nullable")] == "NO"
    assert found[Fact("a.b.c.d", "column v", "comment")] == "c"
    assert found[Fact("a.b.c.d", "index k", "columns")] == "v(3)"
    assert found[Fact("a.b.c.d", "index PRIMARY", "unique")] == "YES"
    assert "CREATE TABLE `c.d`" in found[Fact("a.b.c.d", "", "definition")]
    assert {fact.table for fact in found} == {"a.", "a.b.", "a.b.c.d"}


def test_partitions_and_views(server: DatabaseServer) -> None:
    """Partitions are described with method, expression and values, views with what they select."""
    for statement in (
        "CREATE DATABASE p",
        "CREATE TABLE p.t (a INT PRIMARY KEY) PARTITION BY RANGE (a) (PARTITION x VALUES LESS THAN (3), PARTITION y VALUES LESS THAN (9))",
        "CREATE VIEW p.v AS SELECT a FROM p.t",
    ):
        server.query(statement)
    found = structure_of(server)
    assert found[Fact("p.t", "", "partitions")] == "partition x, partition y"
    assert found[Fact("p.t", "", "partition method")].startswith("RANGE")
    assert "`a`" in found[Fact("p.t", "", "partition expression")]
    assert found[Fact("p.t", "partition x", "values")] == "3"
    assert found[Fact("p.v", "", "kind")] == "VIEW"
    assert "`a`" in found[Fact("p.v", "", "select")]
