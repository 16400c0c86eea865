"""A run that ends right before or right after a statement: the next one neither loses it nor runs it twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from storage_consumer.plan.journal_entry import DdlAnswer
from storage_consumer.target.database import TargetDatabase
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import CREATE_TABLE, ID_NAME, SmallBucket, column, row, ts
from tests.harness.stopping import Crash, general_log
from tests.integration.rounds import content, once

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.usefixtures("spark")]

WIDER = (*ID_NAME, column("more", "INT"))
STATEMENTS = {
    "CREATE TABLE `t`": 1,
    "ALTER TABLE `t` ADD COLUMN": 1,
    "TRUNCATE TABLE `t`": 2,
    "RENAME TABLE `d`.`t`": 1,
}
"""Beginning of each statement and how often it may run at most: that TRUNCATE took effect cannot be seen in the structure."""


@pytest.fixture
def history(bucket: SmallBucket) -> SmallBucket:
    """One table through CREATE, ADD COLUMN, TRUNCATE and RENAME, with rows in between."""
    bucket.create("d.t")
    bucket.rows("d.t", 1, row("d.t", 2, "1", '"one"'), row("d.t", 3, "2", '"two"'))
    bucket.schema("d.t", ts(4), "ALTER TABLE `t` ADD COLUMN `more` INT DEFAULT 7", 5, WIDER)
    bucket.rows("d.t", 1, row("d.t", 5, "3", '"three"', "3"), version=ts(4))
    bucket.schema("d.t", ts(6), "TRUNCATE TABLE `t`", 11, WIDER)
    bucket.rows("d.t", 1, row("d.t", 7, "4", '"four"', "4"), version=ts(6))
    bucket.schema("d.u", ts(8), "RENAME TABLE `d`.`t` TO `d`.`u`", 14, WIDER)
    bucket.rows("d.u", 1, row("d.u", 9, "5", '"five"', "5"), version=ts(8))
    bucket.schema(
        "d.t", ts(10), "CREATE TABLE `t` (`id` INT PRIMARY KEY, `name` VARCHAR(20), `again` INT)", CREATE_TABLE, ID_NAME
    )
    bucket.metadata(ts(9))
    return bucket


@contextmanager
def crash_at(monkeypatch: pytest.MonkeyPatch, beginning: str, *, after: bool) -> Iterator[None]:
    """End the run at the statement with this beginning: before the server gets it, or after it ran."""
    original = TargetDatabase.execute_ddl

    def interrupted(
        self: TargetDatabase, statement: str, schema: str, version: int, ignorable: frozenset[int] = frozenset()
    ) -> DdlAnswer:
        if not statement.startswith(beginning):
            return original(self, statement, schema, version, ignorable)
        if after:
            original(self, statement, schema, version, ignorable)
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(TargetDatabase, "execute_ddl", interrupted)
        yield


def times_run(server: DatabaseServer, beginning: str) -> int:
    """How often a statement with this beginning reached the server."""
    like = beginning.replace("_", r"\_") + "%"
    (found,) = server.query(
        f"SELECT COUNT(*) FROM mysql.general_log WHERE command_type = 'Query' AND argument LIKE '{like}'"
    )
    return int(found[0])


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("beginning", STATEMENTS)
def test_crash_around_a_statement(
    history: SmallBucket, mariadb: DatabaseServer, monkeypatch: pytest.MonkeyPatch, beginning: str, *, after: bool
) -> None:
    """Whether the statement ran is found out, it takes effect once, and no row before or after it is lost (D4, D6)."""
    with general_log(mariadb):
        with crash_at(monkeypatch, beginning, after=after), pytest.raises(Crash):
            once(history, mariadb)
        (state,) = mariadb.query("SELECT state FROM storage_consumer.ddl_journal ORDER BY version DESC LIMIT 1")
        assert state == ("started",)
        summary = once(history, mariadb)
        assert not summary.halted
        assert summary.checkpoint == ts(9)
        assert content(mariadb, "d.u") == [(4, "four", 4), (5, "five", 5)]
        runs = {statement: times_run(mariadb, statement) for statement in STATEMENTS}
    most = {
        statement: times if (statement, after) == (beginning, True) else 1 for statement, times in STATEMENTS.items()
    }
    assert runs == most
    again = once(history, mariadb)
    assert (again.written, again.ddls) == (0, 0)


def test_crash_between_two_notes_of_the_journal(history: SmallBucket, mariadb: DatabaseServer) -> None:
    """A journal row that says only that a statement was started is resolved by the structure, at any later time (D6)."""
    history.metadata(ts(5))
    once(history, mariadb)
    mariadb.query(
        f"UPDATE storage_consumer.ddl_journal SET state = 'started', finished_at = NULL WHERE version = {ts(4)}"
    )
    mariadb.query(f"UPDATE storage_consumer.table_progress SET checkpoint = {ts(4)}, follows = 0")
    mariadb.query(f"UPDATE storage_consumer.feed SET checkpoint = {ts(4)}, storage_checkpoint = {ts(4)}")
    summary = once(history, mariadb)
    assert not summary.halted
    assert content(mariadb, "d.t") == [(1, "one", 7), (2, "two", 7), (3, "three", 3)]
