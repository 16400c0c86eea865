"""Each statement begins with a session of its own: nothing that one did to its session is there for the next, or for our own reads."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from storage_consumer.config.settings import Downstream
from storage_consumer.errors import DdlFailed, TargetUnavailable
from storage_consumer.model import TableName
from storage_consumer.target.connection import connect
from storage_consumer.target.database import TargetDatabase
from storage_consumer.target.session_settings import mark
from tests.harness.hostile_globals import changed
from tests.harness.servers import DatabaseServer, quoted
from tests.harness.small_bucket import ts

pytestmark = pytest.mark.server
LEFT_BEHIND = (
    "SET SESSION sql_select_limit = 1",
    "SET SESSION sql_mode = 'ANSI_QUOTES'",
    "SET SESSION time_zone = '+09:00'",
    "SET SESSION autocommit = 0",
    "SET SESSION foreign_key_checks = 1",
    "SET NAMES latin1",
    "SET @kept = 1",
    "USE other",
    "START TRANSACTION READ ONLY",
    "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "CREATE TEMPORARY TABLE t (other INT)",
    "SELECT GET_LOCK('kept', 0)",
    "LOCK TABLES other.t READ",
)
"""What an operator's text in the place of a statement may do to its session."""
_ASKED = "SELECT @@sql_select_limit, @@sql_mode, @@time_zone, @@autocommit, @@foreign_key_checks, @@character_set_client, @kept, DATABASE()"


@pytest.fixture
def database(server: DatabaseServer) -> Iterator[TargetDatabase]:
    """The program's own connection to it, with two databases."""
    found = TargetDatabase(Downstream(port=server.port, ddl_lock_wait=3), "")
    for name in ("d", "other"):
        found.execute_ddl(f"CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "", ts(1))
        found.execute_ddl("CREATE TABLE t (a INT PRIMARY KEY, b INT, c INT)", name, ts(1))
    yield found
    found.close()


@pytest.mark.parametrize("text", LEFT_BEHIND)
def test_nothing_is_left_behind(server: DatabaseServer, database: TargetDatabase, text: str) -> None:
    """Variables, default database, transactions, temporary tables and locks end with the statement that made them."""
    before = database.rows(_ASKED)
    try:
        database.execute_ddl(text, "d", ts(2))
    except DdlFailed:
        assert server.kind == "tidb"  # it knows no READ ONLY, and locks no tables, unless asked to
    assert database.rows(_ASKED) == before
    (table,) = database.describe([TableName(schema="d", table="t")]).values()
    assert [column.name for column in table.columns] == ["a", "b", "c"]
    assert database.fence_ddl()
    database.execute_ddl("ALTER TABLE t ADD COLUMN later INT", "d", ts(3))
    database.execute_ddl("ALTER TABLE `other`.`t` ADD COLUMN later INT", "", ts(4))
    assert len(server.query("SHOW COLUMNS FROM d.t")) == len(server.query("SHOW COLUMNS FROM other.t")) == 4
    assert server.query("SELECT IS_FREE_LOCK('kept')") == ((1,),)


def test_lock_that_was_lost(server: DatabaseServer, database: TargetDatabase) -> None:
    """A statement runs on the connection that took the lock for it, and on no other: a process that was paused long is not unfenced."""
    assert database.fence_ddl()
    connection = database.current
    assert connection is not None
    connection._sock.shutdown(socket.SHUT_RDWR)  # type: ignore[attr-defined] # not in the stubs
    database._used -= 3600  # as if it had slept since
    with pytest.raises(TargetUnavailable, match="lock for DDL"):
        database.execute_ddl("ALTER TABLE t ADD COLUMN later INT", "d", ts(3))
    assert len(server.query("SHOW COLUMNS FROM d.t")) == 3
    assert database.fence_ddl()
    database.execute_ddl("ALTER TABLE t ADD COLUMN later INT", "d", ts(3))
    assert len(server.query("SHOW COLUMNS FROM d.t")) == 4


@pytest.mark.parametrize(
    "left",
    ["SET autocommit = 0", "START TRANSACTION", "USE d", "SET @a = 1; START TRANSACTION; SET sql_select_limit = 1"],
)
def test_init_connect(server: DatabaseServer, left: str) -> None:
    """What the server's `init_connect` leaves behind is no transaction of ours: statements commit, and are seen by others."""
    server.query("CREATE DATABASE d")
    server.query("CREATE TABLE d.t (a INT)")
    server.query("CREATE USER IF NOT EXISTS plain@'%'")
    server.query("GRANT SELECT, INSERT ON *.* TO plain@'%'")
    with changed(server, "init_connect", f"'{left}'"), connect(Downstream(port=server.port, user="plain"), "") as ours:
        ours.query("INSERT INTO d.t VALUES (1), (2)")
        assert server.query("SELECT COUNT(*) FROM d.t") == ((2,),)
        server.query("INSERT INTO d.t VALUES (3)")
        with ours.cursor() as mine:
            mine.execute("SELECT a FROM d.t")
            assert len(mine.fetchall()) == 3


NAMES = ("a`b", "`", "a b", "a.b", "ü日", "x'y\"z", "50%s", "a\\b", "n" * 64, "Mixed")


@pytest.mark.parametrize("name", NAMES)
def test_databases_of_any_name(server: DatabaseServer, name: str) -> None:
    """A statement runs in a database whatever its name is made of, and a connection is marked by a state schema of any name."""
    database = TargetDatabase(Downstream(port=server.port), "")
    database.execute_ddl(f"CREATE DATABASE {quoted(name)}", "", ts(1))
    database.execute_ddl("CREATE TABLE t (a INT PRIMARY KEY)", name, ts(2))
    assert server.query(f"SHOW COLUMNS FROM {quoted(name)}.t")
    assert len(database.describe([TableName(schema=name, table="t")])) == 1
    assert database.fingerprint([TableName(schema=name, table="t")])
    database.close()
    with connect(Downstream(port=server.port), "") as marked, marked.cursor() as cursor:
        mark(marked.query, name)
        cursor.execute("SELECT DATABASE()")
        assert str(cursor.fetchall()[0][0]).lower() == name.lower()
    server.query(f"DROP DATABASE {quoted(name)}")
