"""Statements that no server takes, and target's tables that somebody changed: found, named, halted, with the way out."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from storage_consumer.cli.endings import answered
from tests.harness.servers import KINDS, DatabaseServer
from tests.harness.small_bucket import CREATE_TABLE, ID_NAME, SmallBucket, column, row, ts
from tests.integration.rounds import content, of, once

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.usefixtures("spark")]

ADD_COLUMN = 5
WIDER = (*ID_NAME, column("more", "INT"))
REFUSED = {
    "twice": "ALTER TABLE `twice` ADD COLUMN `name` INT, ADD COLUMN `more` INT",
    "nowhere": "ALTER TABLE `nowhere` ADD COLUMN `more` INT AFTER `nothing`",
}
"""Table → a statement in its directory that no server takes."""
FOREIGN = {
    "function": "ALTER TABLE `function` ADD COLUMN `more` INT DEFAULT (nonsense(1))",
    "unknown": "PLEASE ADD `more` TO `unknown` ⟪now⟫ $1 @@ \x01",
    "unclosed": "ALTER TABLE `unclosed` ADD COLUMN `more` INT COMMENT 'it''s",
    "comment": "ALTER TABLE `comment` ADD COLUMN `more` INT /* and on",
    "parenthesis": "ALTER TABLE `parenthesis` ADD COLUMN (`more` INT, ((",
    "half": "CREATE",
    "two": "ALTER TABLE `two` ADD COLUMN `more` INT; DROP DATABASE `d`",
    "grants": "GRANT ALL ON *.* TO `intruder`",
    "user": "CREATE USER `intruder` IDENTIFIED BY 'x'",
    "global": "SET GLOBAL max_connections = 11",
    "deletes": "DELETE FROM `d`.`good`",
    "elsewhere": "DROP DATABASE `other`",
    "other": "DROP TABLE `other`.`secret`",
    "stolen": "RENAME TABLE `unseen`.`secret` TO `d`.`stolen`",
    "copied": "CREATE TABLE `copied2` SELECT * FROM `other`.`secret`",
    "state": "DROP TABLE `storage_consumer`.`lease`",
    "system": "ALTER TABLE `mysql`.`user` ADD COLUMN `more` INT",
    "hidden": "ALTER TABLE `hidden` ADD COLUMN `more` INT /*!50000 , RENAME TO `other`.`gone` */",
    "tidbs": "ALTER TABLE `tidbs` ADD COLUMN `more` INT /*T! , RENAME TO `other`.`gone` */",
    "cut": "ALTER TABLE `cut` /*T! COMMENT '*/ DISCARD TABLESPACE /*T! ' */",
    "outfile": "CREATE VIEW `outfile` AS SELECT * FROM `other`.`secret` INTO OUTFILE 'stolen'",
    "procedure": "CREATE PROCEDURE `evil`() DELETE FROM `good`",
    "event": "CREATE EVENT `evil` ON SCHEDULE EVERY 1 SECOND DO DELETE FROM `d`.`good`",
    "trigger": "CREATE TRIGGER `evil` BEFORE INSERT ON `good` FOR EACH ROW SET NEW.id = 7",
    "immediate": "EXECUTE IMMEDIATE 'DROP DATABASE other'",
    "discard": "ALTER TABLE `discard` DISCARD TABLESPACE",
    "kill": "SHUTDOWN",
}
"""Table → a statement in its directory that TiCDC never stores there; some of them every server takes."""


def test_statements_that_no_server_takes(bucket: SmallBucket, server: DatabaseServer) -> None:
    """Each stops its own table before its later rows, told with the statement and the server's answer; others go on (D13)."""
    bucket.create("d.good", *(f"d.{name}" for name in REFUSED))
    bucket.rows("d.good", 1, row("d.good", 5, "1", '"good"'))
    for name, query in REFUSED.items():
        bucket.rows(f"d.{name}", 1, row(f"d.{name}", 5, "1", '"before"'))
        bucket.schema(f"d.{name}", ts(6), query, ADD_COLUMN, WIDER)
        bucket.rows(f"d.{name}", 1, row(f"d.{name}", 8, "2", '"after"', "5"), version=ts(6))
    bucket.metadata(ts(9))
    summary = once(bucket, server)
    assert {table.table.partition(".")[2] for table in summary.halted} == REFUSED.keys()
    for name, query in REFUSED.items():
        error = of(summary, f"d.{name}").error
        assert f"the target refused the DDL with version {ts(6)}" in error
        assert query in error
        assert re.search(r"error \d{4}: ", error)
        assert content(server, f"d.{name}") == [(1, "before")]
    assert content(server, "d.good") == [(1, "good")]
    assert summary.checkpoint_running == ts(9)


def test_statements_that_ticdc_never_stores(bucket: SmallBucket, server: DatabaseServer) -> None:
    """Each stops its own table, told with the ways on, and nothing of it has happened on the server; others go on."""
    for database in ("other", "unseen"):
        server.query(f"CREATE DATABASE {database}")
        server.query(f"CREATE TABLE {database}.secret (id INT PRIMARY KEY)")
        server.query(f"INSERT INTO {database}.secret VALUES (1)")
    users = "SELECT COUNT(*) FROM mysql.user"
    before = server.query(users), server.query("SELECT @@GLOBAL.max_connections")
    bucket.create("d.good", *(f"d.{name}" for name in FOREIGN))
    bucket.rows("d.good", 1, row("d.good", 5, "1", '"good"'))
    for tick, (name, query) in enumerate(FOREIGN.items(), 6):
        bucket.rows(f"d.{name}", 1, row(f"d.{name}", 5, "1", '"before"'))
        bucket.schema(f"d.{name}", ts(tick), query, 14 if query.startswith("RENAME") else ADD_COLUMN, WIDER)
        bucket.rows(f"d.{name}", 1, row(f"d.{name}", 80, "2", '"after"', "5"), version=ts(tick))
    bucket.metadata(ts(90))
    for _ in range(2):
        summary = once(bucket, server)
        assert {table.table.partition(".")[2] for table in summary.halted} == FOREIGN.keys()
    for name in FOREIGN:
        error = of(summary, f"d.{name}").error
        assert "was not run" in error or "names " in error
        assert all(f"storage-consumer ddl {verb}" in error for verb in ("done", "skip", "replace"))
        assert content(server, f"d.`{name}`") == [(1, "before")]
    assert content(server, "d.good") == [(1, "good")]
    assert content(server, "other.secret") == content(server, "unseen.secret") == [(1,)]
    assert (server.query(users), server.query("SELECT @@GLOBAL.max_connections")) == before
    tables = {
        name for (name,) in server.query("SELECT table_name FROM information_schema.tables WHERE table_schema = 'd'")
    }
    assert tables == {"good", *FOREIGN}
    assert set(server.databases()) == {"d", "other", "unseen", "storage_consumer"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What somebody does to a table of `ID_NAME`."""

    does: str
    undoes: str
    error: str = ""
    """What stops the table; empty where it goes on."""
    tidb: bool = True
    """TiDB lets one do so."""


CHANGES = {
    "an_index": Change(does="ADD INDEX mine (name)", undoes="DROP INDEX mine"),
    "wider": Change(does="MODIFY name VARCHAR(200)", undoes="MODIFY name VARCHAR(20)"),
    "a_comment": Change(does="COMMENT = 'mine'", undoes="COMMENT = ''"),
    "a_default": Change(does="ALTER COLUMN name SET DEFAULT 'mine'", undoes="ALTER COLUMN name DROP DEFAULT"),
    "generated": Change(does="ADD COLUMN mine INT GENERATED ALWAYS AS (id + 1) VIRTUAL", undoes="DROP COLUMN mine"),
    "a_column": Change(
        does="ADD COLUMN mine INT", undoes="DROP COLUMN mine", error="columns that the rows do not carry: mine"
    ),
    "no_column": Change(
        does="DROP COLUMN name",
        undoes="ADD COLUMN name VARCHAR(20)",
        error="columns that the target's table lacks: name",
    ),
    "a_type": Change(
        does="MODIFY name INT",
        undoes="MODIFY name VARCHAR(20)",
        error="columns of another type: name is int in the target, VARCHAR at the source",
    ),
    "a_unique_key": Change(
        does="ADD UNIQUE mine (name)",
        undoes="DROP INDEX mine",
        error="somebody changed the target's table since the last DDL that this program ran: unique key over `name`",
    ),
    "no_key": Change(
        does="DROP PRIMARY KEY",
        undoes="ADD PRIMARY KEY (id)",
        error="no unique key over the primary key (id)",
        tidb=False,
    ),
}
"""Table → what somebody does to it."""


def test_tables_that_somebody_changed(bucket: SmallBucket, server: DatabaseServer) -> None:
    """What could make rows wrong stops the table, named; what can't may stay; taken back, the table goes on (C17)."""
    changes = {f"d.{name}": one for name, one in CHANGES.items() if one.tidb or server.kind != "tidb"}
    bucket.create(*changes)
    for table in changes:
        bucket.rows(table, 1, row(table, 5, "1", '"007"'))
    bucket.metadata(ts(9))
    assert not once(bucket, server).halted
    for table, change in changes.items():
        server.query(f"ALTER TABLE {table} {change.does}")
        bucket.rows(
            table, 2, row(table, 12, "2", '"one"' if not change.error else '"two"'), row(table, 13, "3", '"one"')
        )
    bucket.metadata(ts(20))
    halted = {table.table: table.error for table in once(bucket, server).halted}
    assert halted.keys() == {table for table, change in changes.items() if change.error}
    for table, error in halted.items():
        assert changes[table].error in error
        assert table in error
        assert len(content(server, table)) == 1
        server.query(f"ALTER TABLE {table} {changes[table].undoes}")
    assert not once(bucket, server).halted
    for table in changes:
        assert [values[0] for values in content(server, table)] == [1, 2, 3]


@pytest.mark.parametrize("server", [kind for kind in KINDS if kind != "tidb"], indirect=True)
def test_collation_of_a_key_that_somebody_changed(bucket: SmallBucket, server: DatabaseServer) -> None:
    """Two keys of the source would be one in the target: the table stops before the second is written (D17), and its advice is a way on."""
    columns = (column("k", "VARCHAR", key=True, ColumnPrecision="9"), column("v", "INT"))
    bucket.schema("d", ts(0), "CREATE DATABASE `d`", 1)
    bucket.schema("d.t", ts(1), "CREATE TABLE `t` (`k` VARCHAR(9) PRIMARY KEY,`v` INT)", CREATE_TABLE, columns)
    bucket.rows("d.t", 1, row("d.t", 5, '"a"', "1"))
    bucket.metadata(ts(9))
    once(bucket, server)
    server.query("ALTER TABLE d.t MODIFY k VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")
    bucket.rows("d.t", 2, row("d.t", 12, '"A"', "2"))
    bucket.metadata(ts(20))
    error = of(once(bucket, server), "d.t").error
    assert "collation utf8mb4_general_ci of k instead of utf8mb4_bin" in error
    assert content(server, "d.t") == [("a", 1)]
    accept = {"downstream_uri": server.uri, "action": "accept-keys", "table": "d.t"}
    answered("table", accept, {})
    error = of(once(bucket, server), "d.t").error
    assert "the row with k = 'A' was not written, for the target holds the row with k = 'a'" in error
    assert content(server, "d.t") == [("a", 1)]
    found = re.search("ALTER TABLE `d`.`t` CONVERT TO CHARACTER SET utf8mb4 COLLATE [a-z0-9_]+", error)
    assert found
    server.query(found[0])
    answered("table", accept, {})
    assert not once(bucket, server).halted
    assert content(server, "d.t") == [("A", 2), ("a", 1)]


def test_table_that_contradicts_its_schema_file(bucket: SmallBucket, server: DatabaseServer) -> None:
    """A table that was there before halts at its CREATE TABLE; where the bucket has only its structure, at rows that do not fit."""
    made = {"plain": "CREATE TABLE", "asking": "CREATE TABLE IF NOT EXISTS"}
    there = dict.fromkeys(made, "id INT PRIMARY KEY, name VARCHAR(20)") | {
        "columns": "id INT PRIMARY KEY, title VARCHAR(20)",
        "key": "id INT NOT NULL, name VARCHAR(20) PRIMARY KEY",
        "types": "id INT PRIMARY KEY, name INT",
    }
    server.query("CREATE DATABASE d CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    for name, body in there.items():
        server.query(f"CREATE TABLE d.`{name}` ({body})")
        query = f"{made[name]} `{name}` (id INT PRIMARY KEY, name VARCHAR(20))" if name in made else ""
        bucket.schema(f"d.{name}", ts(1), query, CREATE_TABLE if query else 0)
        bucket.rows(f"d.{name}", 1, row(f"d.{name}", 5, "1", '"one"'))
    bucket.metadata(ts(9))
    summary = once(bucket, server)
    errors = dict.fromkeys(made, "error 1050") | {
        "columns": "columns that the target's table lacks: name",
        "key": "no unique key over the primary key (id)",
        "types": "columns of another type: name is int in the target, VARCHAR at the source",
    }
    for name, error in errors.items():
        assert error in of(summary, f"d.{name}").error
        assert content(server, f"d.`{name}`") == []
