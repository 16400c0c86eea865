"""A DDL means the same whatever the server's own settings are: our session has those that the source's statement needs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from storage_consumer.config.settings import Downstream
from storage_consumer.target.database import TargetDatabase
from tests.harness.servers import KINDS, DatabaseServer
from tests.harness.small_bucket import ts

pytestmark = pytest.mark.server

_STRICT = (
    "'STRICT_TRANS_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,ANSI_QUOTES,NO_BACKSLASH_ESCAPES'"
)
UNKIND = {
    "mariadb": {
        "sql_mode": _STRICT,
        "explicit_defaults_for_timestamp": "OFF",
        "innodb_strict_mode": "ON",
        "default_storage_engine": "Aria",
        "time_zone": "'+09:00'",
    },
    "mysql": {
        "sql_mode": _STRICT,
        "explicit_defaults_for_timestamp": "OFF",
        "innodb_strict_mode": "ON",
        "default_storage_engine": "MyISAM",
        "sql_require_primary_key": "ON",
        "sql_generate_invisible_primary_key": "ON",
        "foreign_key_checks": "ON",
        "restrict_fk_on_non_standard_key": "ON",
        "time_zone": "'+09:00'",
    },
    "tidb": {"sql_mode": _STRICT, "foreign_key_checks": "ON", "time_zone": "'+09:00'"},
}
"""Server → settings of the server that would change what a statement does."""


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    """Each server in turn, with unkind settings; afterwards with its own."""
    found: DatabaseServer = request.getfixturevalue(request.param)
    settings = UNKIND[found.kind]
    names = ", ".join(f"@@GLOBAL.{name}" for name in settings)
    before = dict(zip(settings, found.query(f"SELECT {names}")[0], strict=True))
    for name, value in settings.items():
        found.query(f"SET GLOBAL {name} = {value}")
    yield found
    with found.connect() as connection, connection.cursor() as cursor:
        for name, value in before.items():
            cursor.execute(f"SET GLOBAL {name} = %s", (value,))


@pytest.fixture
def database(server: DatabaseServer) -> Iterator[TargetDatabase]:
    """The program's own connection to it, with a database ``d``."""
    found = TargetDatabase(Downstream(port=server.port), "")
    for name in ("storage_consumer", "d"):
        found.execute_ddl(f"CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "mysql", ts(1))
    yield found
    found.close()


def columns(server: DatabaseServer, table: str) -> list[tuple[str, str, object, str]]:
    """Name, nullability, default and extra of each column."""
    found = server.query(
        "SELECT column_name, is_nullable, column_default, extra FROM information_schema.columns "
        f"WHERE table_schema = 'd' AND table_name = '{table}' ORDER BY ordinal_position"
    )
    return [(name, null, None if default in (None, "NULL") else default, extra) for name, null, default, extra in found]


def test_table_without_a_key(server: DatabaseServer, database: TargetDatabase) -> None:
    """It is made, in InnoDB, with the columns that it has at the source and no other."""
    database.execute_ddl("CREATE TABLE `t` (`a` INT)", "d", ts(2))
    assert columns(server, "t") == [("a", "YES", None, "")]
    engine = server.query("SELECT engine FROM information_schema.tables WHERE table_schema = 'd'")
    assert engine == (("InnoDB",),)


def test_timestamps_are_what_they_say(server: DatabaseServer, database: TargetDatabase) -> None:
    """A TIMESTAMP that says nothing may be NULL and has no default, and a zero date may be one."""
    database.execute_ddl(
        "CREATE TABLE `t` (`id` INT PRIMARY KEY,`a` TIMESTAMP,`z` DATETIME NOT NULL DEFAULT '0000-00-00 00:00:00')",
        "d",
        ts(2),
    )
    assert columns(server, "t")[1] == ("a", "YES", None, "")
    assert "0000-00-00" in str(columns(server, "t")[2][2])


def test_strings_are_read_as_tidb_wrote_them(server: DatabaseServer, database: TargetDatabase) -> None:
    """Double quotes are strings, a backslash escapes, and a lossy change goes through as at the source (D17)."""
    database.execute_ddl(r"""CREATE TABLE `t` (`id` INT PRIMARY KEY,`s` VARCHAR(9) DEFAULT "a\\b")""", "d", ts(2))
    assert str(columns(server, "t")[1][2]).strip("'") in ("a\\b", "a\\\\b")
    server.query("INSERT INTO d.t (id, s) VALUES (1, 'abcdef')")
    database.execute_ddl("ALTER TABLE `t` MODIFY COLUMN `s` VARCHAR(3)", "d", ts(3))
    assert server.query("SELECT s FROM d.t") == (("abc",),)


def test_fractions_are_rounded(server: DatabaseServer, database: TargetDatabase) -> None:
    """Fewer digits of a second round the moments that are there, as TiDB does, also where the server would cut them."""
    database.execute_ddl("CREATE TABLE `t` (`id` INT PRIMARY KEY,`a` DATETIME(3),`b` TIME(2))", "d", ts(2))
    server.query("INSERT INTO d.t VALUES (1, '2024-05-06 07:08:09.500', '10:00:00.49')")
    database.execute_ddl("ALTER TABLE `t` MODIFY COLUMN `a` DATETIME, MODIFY COLUMN `b` TIME", "d", ts(3))
    found = server.query("SELECT CAST(a AS CHAR), CAST(b AS CHAR) FROM d.t")
    assert found == (("2024-05-06 07:08:10", "10:00:00"),)


def test_foreign_keys_are_not_checked(server: DatabaseServer, database: TargetDatabase) -> None:
    """A child may come before its parent, and refer to a key that is not unique."""
    child = "CREATE TABLE `c` (`id` INT PRIMARY KEY,`x` INT,CONSTRAINT `fk` FOREIGN KEY (`x`) REFERENCES `p`(`x`))"
    database.execute_ddl(child, "d", ts(2))
    database.execute_ddl("CREATE TABLE `p` (`id` INT PRIMARY KEY,`x` INT,INDEX(`x`))", "d", ts(3))
    assert columns(server, "p")
    database.execute_ddl("DROP TABLE `d`.`p`", "d", ts(4))


def test_wide_rows(server: DatabaseServer, database: TargetDatabase) -> None:
    """A row that could be longer than half a page of InnoDB is no reason to refuse a table."""
    wide = ",".join(f"`c{number}` CHAR(200) CHARACTER SET latin1 COLLATE latin1_bin" for number in range(60))
    database.execute_ddl(f"CREATE TABLE `t` (`id` INT PRIMARY KEY,{wide})", "d", ts(2))
    assert len(columns(server, "t")) == 61
