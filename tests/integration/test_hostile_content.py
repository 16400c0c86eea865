"""Names and values that look like SQL stay names and values, whatever the server's own settings are."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.harness.servers import KINDS, DatabaseServer, quoted
from tests.harness.small_bucket import CREATE_TABLE, SmallBucket, column, row, ts
from tests.integration.rounds import content, once

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.usefixtures("spark")]
NAMES = ("a`b", "'; DROP TABLE victim; -- x", '"', "%s {0} {x}", "back\\slash", "新 表", "--", "* c * #", "%2e%2e")
"""Of tables and columns; of those with a slash or dot see the tests of paths."""
VALUES = (
    "'",
    "\\",
    "\\'",
    "'' OR 1=1 -- ",
    '"); DROP TABLE d.victim; -- ',
    "\\\\'; DROP TABLE d.victim; -- ",
    "\xbf\\' OR 1=1 -- ",
    "縗' OR 1=1 -- ",
    "%s%(x)s{0}",
    "\x00\x1a\b\t\n\r",
    "\\N",
    "NULL",
    "${jndi:ldap://x}",
    "\u2019\uff07",
)


@pytest.fixture(params=KINDS)
def unkind(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    """Each server with a sql_mode in which backslashes are no escapes, and (but for TiDB) GBK for every new connection."""
    server: DatabaseServer = request.getfixturevalue(request.param)
    ((before,),) = server.query("SELECT @@GLOBAL.sql_mode")
    server.query("SET GLOBAL sql_mode = 'NO_BACKSLASH_ESCAPES,ANSI_QUOTES,STRICT_TRANS_TABLES'")
    server.query("CREATE USER app@'%' IDENTIFIED BY ''")
    server.query("GRANT ALL ON *.* TO app@'%'")
    if server.kind != "tidb":
        server.query("SET GLOBAL init_connect = 'SET NAMES gbk'")
    yield server
    if server.kind != "tidb":
        server.query("SET GLOBAL init_connect = ''")
    server.query("DROP USER app@'%'")
    server.query(f"SET GLOBAL sql_mode = '{before}'")


@pytest.mark.parametrize("bucket", ["canal-json"], indirect=True)
@pytest.mark.parametrize("local_infile", [True, False], ids=["load data", "literals"])
def test_names_and_values(bucket: SmallBucket, unkind: DatabaseServer, *, local_infile: bool) -> None:
    """Each name is a table with one column of each name, which holds each value as it is; keys and deletes too (S4)."""
    bucket.create("d.victim")
    bucket.rows("d.victim", 1, row("d.victim", 2, "1", '"safe"'))
    columns = (column("id", "VARCHAR", key=True, ColumnPrecision="60"), *(column(name, "TEXT") for name in NAMES))
    body = ", ".join(f"{quoted(name)} TEXT" for name in NAMES)
    for name in NAMES:
        query = f"CREATE TABLE {quoted(name)} (id VARCHAR(60) PRIMARY KEY, {body}) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
        bucket.schema(f"d.{name}", ts(1), query, CREATE_TABLE, columns)
        names = ("id", *NAMES)
        made = [message(name, 5, names, value) for value in VALUES] + [message(name, 6, names, VALUES[2], "DELETE")]
        bucket.rows(f"d.{name}", 1, *made)
    bucket.metadata(ts(9))
    uri = f"mysql://app@127.0.0.1:{unkind.port}/"
    summary = once(bucket, unkind, downstream_uri=uri, local_infile=local_infile)
    assert "\n".join(table.error for table in summary.halted) == ""
    expected = sorted((value,) * (len(NAMES) + 1) for value in VALUES if value != VALUES[2])
    for name in NAMES:
        assert content(unkind, f"d.{quoted(name)}") == expected
    assert content(unkind, "d.victim") == [(1, "safe")]


def message(table: str, tick: int, names: tuple[str, ...], value: str, kind: str = "INSERT") -> str:
    """A canal-json row of a table whose columns all hold the value."""
    return json.dumps(
        {
            "id": 0,
            "database": "d",
            "table": table,
            "pkNames": ["id"],
            "isDdl": False,
            "type": kind,
            "es": ts(tick) >> 18,
            "ts": ts(tick) >> 18,
            "sql": "",
            "sqlType": {},
            "mysqlType": {},
            "old": None,
            "data": [dict.fromkeys(names, value)],
            "_tidb": {"commitTs": ts(tick)},
        },
        ensure_ascii=False,
        separators=(",", ":"),
    )
