"""Files that TiCDC writes anew under their old names, while the program runs or while it does not: no row is lost, none is doubled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from storage_consumer.summary import RoundSummary
from tests.harness.s3_server import S3Server
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import CREATE_TABLE, SmallBucket, column, row, ts
from tests.integration.rounds import consumer, content, of, once

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.usefixtures("spark")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied(SmallBucket):
    """A small bucket that the program reads from another place."""

    elsewhere: Callable[[], str]
    """Copy the files; what ``--upstream-uri`` takes."""

    @property
    def uri(self) -> str:
        """Where the files are now."""
        return self.elsewhere()


@pytest.fixture(params=["file", "s3"])
def stored(bucket: SmallBucket, request: pytest.FixtureRequest) -> SmallBucket:
    """A bucket on a file system, and one in S3."""
    if request.param == "file":
        return bucket
    s3: S3Server = request.getfixturevalue("s3")

    def copied() -> str:
        s3.upload(bucket.root, "written-anew", "prefix")
        return s3.uri("written-anew", "prefix", s3.reader, protocol="csv")

    return Copied(root=bucket.root, elsewhere=copied)


def numbered(bucket: SmallBucket, last: int, *, table: str = "d.t") -> None:
    """Files 1 to `last` of a table, one row each, all covered by the checkpoint."""
    for number in range(1, last + 1):
        bucket.rows(table, number, row(table, 10 + number, str(number), f'"n{number}"'))
    bucket.metadata(ts(10 + last))


def rows(*numbers: int, **others: str) -> list[tuple[Any, ...]]:
    """The rows that files of these numbers hold, and more of them: ``_7="text"``."""
    return sorted([(n, f"n{n}") for n in numbers] + [(int(n[1:]), text) for n, text in others.items()])


def test_files_written_anew_between_two_runs(stored: SmallBucket, mariadb: DatabaseServer) -> None:
    """After a restart of TiCDC files 4 and 5 of five have other rows above the checkpoint, and repeats: they are read, once."""
    stored.create("d.t")
    numbered(stored, 5)
    assert once(stored, mariadb).files == 5
    stored.rows("d.t", 4, row("d.t", 14, "4", '"n4"'), row("d.t", 21, "40", '"anew"'))
    stored.rows("d.t", 5, row("d.t", 22, "50", '"anew"'), row("d.t", 23, "4", '"newer"', operation="U"))
    stored.metadata(ts(30))
    second, third = once(stored, mariadb), once(stored, mariadb)
    assert content(mariadb, "d.t") == rows(1, 2, 3, 5, _4="newer", _40="anew", _50="anew")
    assert (second.files, second.rows, second.finished_files) == (2, 3, 3)
    assert (third.files, third.written, third.finished_files) == (0, 0, 5)


def test_slow_partition_of_a_shared_directory(bucket: SmallBucket, mariadb: DatabaseServer) -> None:
    """With enable-partition-separator = false number 1 of twenty is read again, before and after a restart."""
    bucket.create("d.t")
    numbered(bucket, 20)
    told = {"enable_partition_separator": False}
    with consumer(bucket, mariadb, **told) as running:
        for turn in (1, 2):
            running.run_once()
            bucket.rows("d.t", turn, row("d.t", 30 + turn, str(100 + turn), '"slow"'))
            bucket.metadata(ts(30 + turn))
    once(bucket, mariadb, **told)
    assert content(mariadb, "d.t") == rows(*range(1, 21), _101="slow", _102="slow")


def test_file_that_was_left_out_halts_after_a_restart_too(bucket: SmallBucket, mariadb: DatabaseServer) -> None:
    """A file far below the newest ones that changed while a process left it out of its listings halts the table in the next one."""
    bucket.create("d.t")
    numbered(bucket, 20)
    with consumer(bucket, mariadb) as running:
        running.run_once()
        bucket.rows("d.t", 3, row("d.t", 31, "31", '"unseen"'))
        bucket.metadata(ts(35))
        assert running.run_once().halted == ()
    halted = of(once(bucket, mariadb), "d.t")
    assert halted.state == "halted"
    assert "CDC00000000000000000003.csv was overwritten" in halted.error


def test_table_without_a_key(bucket: SmallBucket, mariadb: DatabaseServer) -> None:
    """Of a file that is read again only rows above the applied mark count: a table without a key gets none twice."""
    bucket.schema("d", ts(0), "CREATE DATABASE `d`", 1)
    keyless = (column("id", "INT"), column("name", "VARCHAR", ColumnPrecision="20"))
    bucket.schema("d.t", ts(1), "CREATE TABLE `t` (id INT, name VARCHAR(20))", CREATE_TABLE, keyless)
    twice = row("d.t", 11, "1", '"one"')
    bucket.rows("d.t", 1, twice, twice)
    bucket.rows("d.t", 2, row("d.t", 12, "2", '"two"'))
    bucket.metadata(ts(20))
    once(bucket, mariadb)
    bucket.rows("d.t", 1, twice, twice, row("d.t", 21, "3", '"three"'), row("d.t", 21, "3", '"three"'))
    bucket.metadata(ts(30))
    once(bucket, mariadb)
    assert content(mariadb, "d.t") == [(1, "one"), (1, "one"), (2, "two"), (3, "three"), (3, "three")]


def without_digests(server: DatabaseServer) -> None:
    """Make the state what one of version 3 is once it is migrated."""
    server.query("DELETE FROM storage_consumer.file_digests")
    server.query("UPDATE storage_consumer.file_progress SET left_out = 0")


def test_state_that_knows_nothing_of_single_files(bucket: SmallBucket, mariadb: DatabaseServer) -> None:
    """After a migration finished files are read again, once, since any may have been written anew."""
    bucket.create("d.t")
    numbered(bucket, 3)
    bucket.schema("d.t", ts(14), "ALTER TABLE `t` COMMENT = 'same columns'", 17)
    for number in (1, 2):
        bucket.rows("d.t", number, row("d.t", 20 + number, str(20 + number), '"later"'), version=ts(14))
    bucket.metadata(ts(30))
    once(bucket, mariadb)
    without_digests(mariadb)
    bucket.rows("d.t", 1, row("d.t", 31, "31", '"anew"'), version=ts(14))
    bucket.metadata(ts(40))
    second, third = once(bucket, mariadb), once(bucket, mariadb)
    assert content(mariadb, "d.t") == rows(1, 2, 3, _21="later", _22="later", _31="anew")
    assert (second.files, second.rows, second.finished_files) == (5, 1, 0)
    assert (third.files, third.finished_files) == (0, 5)


def test_without_commit_ts(bucket: SmallBucket, mariadb: DatabaseServer) -> None:
    """Where rows do not say when they committed, a file of which nothing is known is not read again; one that changed is.

    The newest one is applied; before one that was applied it would bring back older rows, so the table halts.
    """
    untimed = {"allow_missing_commit_ts": True, "config": {"sink": {"csv": {"include-commit-ts": False}}}}

    def write(number: int, text: str) -> None:
        bucket.write(f"d/t/{ts(1)}/2026-11-21/CDC{number:020d}.csv", f'"I","t","d",{number},"{text}"\r\n')

    def start(tick: int) -> RoundSummary:
        bucket.metadata(ts(tick))
        return once(bucket, mariadb, **untimed)

    bucket.create("d.t")
    for number in (1, 2, 3):
        write(number, "old")
    start(20)
    without_digests(mariadb)
    assert start(30).files == 0
    write(3, "new")
    assert (start(40).files, content(mariadb, "d.t")[-1]) == (1, (3, "new"))
    write(2, "new")
    assert "its content has changed" in of(start(50), "d.t").error
