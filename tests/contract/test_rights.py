"""The GRANT that a message holds, typed on every server: it gives the right that was missing, and no other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import pymysql
import pytest

from storage_consumer.target.rights import all_rights, state_remedy
from tests.harness.servers import KINDS, DatabaseServer

pytestmark = pytest.mark.server
DATABASES = ("a_b", "axb", "a%b")


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest) -> DatabaseServer:
    """Each server in turn, with databases whose names a wildcard could mean, and a user without rights."""
    found: DatabaseServer = request.getfixturevalue(request.param)
    for name in DATABASES:
        found.query(f"CREATE DATABASE `{name}`")
        found.query(f"CREATE TABLE `{name}`.t (id INT)")
    found.query("CREATE USER 'plain'@'%'")
    return found


@contextmanager
def literal_names(server: DatabaseServer) -> Iterator[None]:
    """MySQL's setting by which nothing in a database's name is a wildcard."""
    server.query("SET GLOBAL partial_revokes = ON")
    try:
        yield
    finally:
        server.query("DROP USER 'plain'@'%'")
        server.query("SET GLOBAL partial_revokes = OFF")


def grants_for(server: DatabaseServer, database: str) -> tuple[str, str]:
    """The GRANTs that messages about rows and about the state hold for that user."""
    with closing(pymysql.connect(host="127.0.0.1", port=server.port, user="plain", ssl_disabled=True)) as plain:

        def query(sql: str) -> Any:
            with plain.cursor() as cursor:
                cursor.execute(sql)
                return cursor.fetchall()

        messages = (all_rights(query, database), state_remedy(Exception(1044, "denied"), query, database))
    return messages[0][messages[0].index("GRANT") :], messages[1][messages[1].index("GRANT") :]


def readable(server: DatabaseServer) -> set[str]:
    """The databases of which that user can read the table."""
    found = set()
    with closing(pymysql.connect(host="127.0.0.1", port=server.port, user="plain", ssl_disabled=True)) as plain:
        for name in DATABASES:
            with suppress(pymysql.err.OperationalError), plain.cursor() as cursor:
                cursor.execute(f"SELECT * FROM `{name}`.t")
                found.add(name)
    return found


def test_quote_in_an_account() -> None:
    """An account's name is a text of SQL, whatever it holds."""
    assert all_rights(lambda _: [["o'brien@%", "OFF"]], "d").endswith(" ON `d`.* TO 'o''brien'@'%'")


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("database", ["a_b", "a%b"])
def test_only_this_database(server: DatabaseServer, database: str, which: int) -> None:
    """A name with _ or % is no pattern that would give rights on other databases too."""
    server.query(grants_for(server, database)[which])
    assert readable(server) == {database}


def test_partial_revokes(mysql: DatabaseServer) -> None:
    """Where MySQL takes names as they are, so does the GRANT."""
    mysql.query("CREATE USER 'plain'@'%'")
    for name in DATABASES:
        mysql.query(f"CREATE DATABASE `{name}`")
        mysql.query(f"CREATE TABLE `{name}`.t (id INT)")
    with literal_names(mysql):
        mysql.query(grants_for(mysql, "a_b")[0])
        assert readable(mysql) == {"a_b"}
