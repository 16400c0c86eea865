"""Names that a server finds equal have one spelling here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pymysql.err
import pytest

from storage_consumer.config.parsers import is_system, spelling
from tests.harness.servers import KINDS, DatabaseServer, mariadb, quoted

pytestmark = pytest.mark.server
LETTERS = "abcdefghijklmnopqrstuvwxyz_"
NAMES = (
    *(
        "state_s",
        "State_S",
        "STATE_S",
        "st\u00e1te_s",
        "\u017ftate_s",
        "state_s ",
        "stat\uff45_s",
        "#mysql50#state_s",
        "s\u0308tate_s",
    ),
    *(
        "state_k",
        "state_\u212a",
        "\u0130nformation_schema",
        "\u0131nformation_schema",
        "MySQL",
        "Sys",
        "\u017fys",
        "METRICS_schema",
    ),
)


@pytest.fixture(params=[*KINDS, "mariadb, names without case"])
def server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    """Each server in turn, and one that keeps names in lower case."""
    if request.param in KINDS:
        yield request.getfixturevalue(request.param)
        return
    with mariadb(options=("--lower-case-table-names=1",)) as found:
        yield found


def test_databases_that_a_server_finds_equal(server: DatabaseServer) -> None:
    """Where a name is taken by another one, both have one spelling, or both are the server's own."""
    made: list[str] = []
    for name in NAMES:
        try:
            server.query(f"CREATE DATABASE {quoted(name)}")
        except pymysql.err.MySQLError as fault:
            if fault.args[0] == 1007 and not is_system(name):  # it exists
                assert spelling(name) in map(spelling, made)
            if fault.args[0] == 1044:  # no rights on what is the server's own
                assert is_system(name)
        else:
            made.append(name)
    with server.connect() as connection, connection.cursor() as cursor:
        for name in NAMES:
            with suppress(pymysql.err.MySQLError):
                cursor.execute("SELECT schema_name FROM information_schema.schemata WHERE schema_name = %s", [name])
                assert {spelling(found) for (found,) in cursor.fetchall()} <= {spelling(name)}
    for name in made:
        server.query(f"DROP DATABASE IF EXISTS {quoted(name)}")


@pytest.mark.slow
@pytest.mark.parametrize("server", [kind for kind in KINDS if kind != "tidb"], indirect=True)
def test_letters_that_a_collation_finds_equal(server: DatabaseServer) -> None:
    """Each sign that utf8mb3_general_ci, the collation of names, finds equal to a plain letter is spelled like that letter."""
    with server.connect() as connection, connection.cursor() as cursor:
        for low in range(0x80, 0x10000, 2048):
            signs = [chr(code) for code in range(low, min(low + 2048, 0x10000)) if not 0xD800 <= code < 0xE000]
            for letter in LETTERS if signs else "":
                equal = ",".join(
                    f"_utf8mb3 X'{sign.encode().hex()}' COLLATE utf8mb3_general_ci = '{letter}'" for sign in signs
                )
                cursor.execute(f"SELECT {equal}")
                row = cursor.fetchone() or ()
                assert {spelling(sign) for sign, same in zip(signs, row, strict=True) if same} <= {letter}
