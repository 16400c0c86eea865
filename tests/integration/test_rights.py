"""A database user with exactly the rights that the pages list, and with fewer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from storage_consumer.errors import StorageConsumerError
from storage_consumer.summary import RoundSummary
from tests.harness.pages import RIGHTS
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import CREATE_TABLE, ID_NAME, SmallBucket, column, row, ts
from tests.integration.rounds import content, once

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.usefixtures("spark")]
WIDER = (*ID_NAME, column("more", "INT"))
HEAP = (column("id", "INT"), column("name", "VARCHAR", ColumnPrecision="20"))
PARENT = (*ID_NAME, column("parent", "INT"))


@contextmanager
def user(server: DatabaseServer, rights: str) -> Iterator[str]:
    """The URI of a user who may do that in databases d and e, and all in the state schema."""
    server.query("CREATE USER app@'%' IDENTIFIED BY 'x'")
    for database in ("d", "e"):
        server.query(f"GRANT {rights} ON `{database}`.* TO app@'%'")
    server.query("GRANT ALL ON storage_consumer.* TO app@'%'")
    try:
        yield f"mysql://app:x@127.0.0.1:{server.port}/"
    finally:
        server.query("DROP USER app@'%'")


def first_half(bucket: SmallBucket) -> None:
    """Tables with rows, a foreign key, a view, an index, and a table without a key."""
    bucket.create("d.a", "d.gone", "d.moved", "e.other")
    query = "CREATE TABLE `child` (id INT PRIMARY KEY, name VARCHAR(20), parent INT, CONSTRAINT `c` FOREIGN KEY (`parent`) REFERENCES `a` (`id`))"
    bucket.schema("d.child", ts(2), query, CREATE_TABLE, PARENT)
    bucket.schema("d.heap", ts(2), "CREATE TABLE `heap` (id INT, name VARCHAR(20))", CREATE_TABLE, HEAP)
    bucket.schema("d.v", ts(3), "CREATE VIEW `v` AS SELECT `id`, `name` FROM `a`", 21)
    bucket.schema("d.a", ts(4), "ALTER TABLE `a` ADD COLUMN `more` INT", 5, WIDER)
    bucket.rows("d.a", 1, row("d.a", 5, "1", '"one"', "1"), row("d.a", 5, "2", '"two"', r"\N"), version=ts(4))
    bucket.rows("d.child", 1, row("d.child", 6, "1", '"c"', "1"), version=ts(2))
    bucket.rows("d.heap", 1, row("d.heap", 6, "1", '"h"'), version=ts(2))
    for name in ("d.gone", "d.moved", "e.other"):
        bucket.rows(name, 1, row(name, 5, "1", '"x"'))
    bucket.metadata(ts(9))


def second_half(bucket: SmallBucket) -> None:
    """Updates, deletes, and statements over tables that have rows."""
    bucket.rows(
        "d.a",
        2,
        row("d.a", 12, "1", '"ONE"', "7", operation="U"),
        row("d.a", 12, "2", '"two"', r"\N", operation="D"),
        version=ts(4),
    )
    bucket.rows("d.heap", 2, row("d.heap", 12, "1", '"h"', operation="D"), version=ts(2))
    bucket.schema("e.moved", ts(13), "RENAME TABLE `d`.`moved` TO `e`.`moved`", 14, ID_NAME)
    bucket.schema("e.other", ts(13), "TRUNCATE TABLE `other`", 11, ID_NAME)
    bucket.schema("d.gone", ts(13), "DROP TABLE `gone`", 4, ID_NAME)
    bucket.schema("d.v", ts(14), "DROP VIEW `d`.`v`", 24)
    bucket.schema("d.child", ts(14), "ALTER TABLE `child` DROP FOREIGN KEY `c`", 10, PARENT)
    bucket.schema("d.a", ts(14), "CREATE INDEX `i` ON `a` (`name`)", 7, WIDER)
    bucket.schema("d", ts(15), "ALTER DATABASE `d` CHARACTER SET = utf8mb4 COLLATE = utf8mb4_bin", 26)
    bucket.metadata(ts(20))


@pytest.mark.parametrize("local_infile", [True, False], ids=["load data", "literals"])
def test_enough(server: DatabaseServer, bucket: SmallBucket, *, local_infile: bool) -> None:
    """With the rights that the pages list, and no others, every kind of statement and rows runs."""
    with user(server, RIGHTS) as uri:
        for half in (first_half, second_half):
            half(bucket)
            summary = once(bucket, server, downstream_uri=uri, local_infile=local_infile)
            assert "\n".join(table.error for table in summary.halted) == ""
    assert summary.checkpoint == ts(20)
    assert content(server, "d.a") == [(1, "ONE", 7)]
    assert content(server, "d.child") == [(1, "c", 1)]
    assert content(server, "d.heap") == content(server, "e.other") == []
    assert content(server, "e.moved") == [(1, "x")]


GRANT = re.compile(r"GRANT [A-Z, ]+ ON (?:`[\w\\]+`|\*)\.\* TO 'app'@'%'")


def grant(server: DatabaseServer, summary: RoundSummary, granted: set[str]) -> set[str]:
    """Type the GRANTs that the halted tables' errors hold; each has to be one that was not typed before."""
    errors = "\n".join(table.error for table in summary.halted)
    # Whoever pastes the command must not be asked which table.
    assert "table resume`" not in errors
    assert "table fit" not in errors
    new = set(GRANT.findall(errors)) - granted
    assert new, errors
    for statement in sorted(new):
        server.query(statement)
    return new


@pytest.mark.parametrize("local_infile", [True, False], ids=["load data", "literals"])
def test_errors_say_what_to_grant(server: DatabaseServer, bucket: SmallBucket, *, local_infile: bool) -> None:
    """A user with no right but on the state: each error is a table's own and holds a GRANT; what they say together is enough."""
    granted: set[str] = set()
    with user(server, "SHOW VIEW") as uri:
        for half, end in ((first_half, ts(9)), (second_half, ts(20))):
            half(bucket)
            options = {"downstream_uri": uri, "local_infile": local_infile}
            while (summary := once(bucket, server, **options)).checkpoint != end:
                granted |= grant(server, summary, granted)
    assert summary.checkpoint == ts(20)
    assert content(server, "d.a") == [(1, "ONE", 7)]
    assert content(server, "e.moved") == [(1, "x")]


def test_rights_on_the_state(server: DatabaseServer, bucket: SmallBucket) -> None:
    """Where the state's own schema lacks a right the program ends, and says what to grant there."""
    first_half(bucket)
    with user(server, RIGHTS) as uri:
        for rights, left in (("ALL", "CREATE"), ("UPDATE", "SELECT, INSERT, CREATE")):
            server.query(f"REVOKE {rights} ON storage_consumer.* FROM app@'%'")
            with pytest.raises(StorageConsumerError, match=r"GRANT ALL ON `storage\\_consumer`\.\* TO 'app'@'%'"):
                once(bucket, server, downstream_uri=uri)
            server.query(f"GRANT {left}, UPDATE ON storage_consumer.* TO app@'%'")
        server.query("GRANT ALL ON storage_consumer.* TO app@'%'")
        assert once(bucket, server, downstream_uri=uri).checkpoint == ts(9)
