"""What somebody who may write to the bucket cannot do on a server: each harm halts its own table, and the server stays as it was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from storage_consumer.summary import RoundSummary
from tests.harness import servers
from tests.harness.hostile_statements import (
    CREATE_VIEW,
    DROP,
    EXCHANGE,
    HARMS,
    KEPT_ELSEWHERE,
    RENAME,
    Harm,
    Hostile,
    some,
)
from tests.harness.servers import KINDS, DatabaseServer, quoted
from tests.harness.small_bucket import CREATE_TABLE, ID_NAME, SmallBucket, column, row, ts
from tests.integration.rounds import content, of, once

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.usefixtures("spark")]
PLANTED = "in no table of the feed"
MOVES = (RENAME, EXCHANGE, DROP)
_LATE = 900
"""Tick of the rows behind all statements."""
PARTITIONED = "CREATE TABLE {} (id INT PRIMARY KEY, name VARCHAR(20)) PARTITION BY RANGE (id) (PARTITION `p` VALUES LESS THAN MAXVALUE)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A server with tables, routines and files of others."""

    server: DatabaseServer
    file: str
    """A file with a secret, as the server finds it."""
    folder: str
    """Where the server may write."""

    def written(self, name: str) -> bool:
        """Whether the server wrote a file of this name."""
        if self.server.kind == "mysql":  # which sees other folders than this process
            return self.server.query(f"SELECT LOAD_FILE('{self.folder}/{name}')") != ((None,),)
        return (Path(self.folder) / name).exists()


@pytest.fixture(scope="module")
def _mysql_with_files() -> Iterator[DatabaseServer]:
    with servers.mysql(options=["--secure-file-priv=", "--federated"]) as server:
        yield server


@pytest.fixture(params=KINDS)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    """Each server in turn; it may read and write files, and has another database than the feed's."""
    own = request.param == "mysql"
    server: DatabaseServer = request.getfixturevalue("_mysql_with_files" if own else request.param)
    server.drop_all()
    folder = server.query("SELECT @@datadir")[0][0].rstrip("/") if own else str(tmp_path / "files")
    found = Site(server=server, file=f"{folder}/secret", folder=folder)
    if not own:
        (tmp_path / "files").mkdir()
        (tmp_path / "files" / "secret").write_text(PLANTED)
    elif not found.written("secret"):
        server.query(f"SELECT '{PLANTED}' INTO DUMPFILE '{found.file}'")
    furnish(server)
    return found


def furnish(server: DatabaseServer) -> None:
    """Make what belongs to others: a table, what it is merged of, a routine that writes, a sequence."""
    server.query("CREATE DATABASE other CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    for name in ("secret", "called"):
        server.query(f"CREATE TABLE other.{name} (id INT PRIMARY KEY, name VARCHAR(20))")
    server.query("INSERT INTO other.secret VALUES (1, 'secret')")
    if server.kind != "tidb":
        server.query("CREATE TABLE other.heap (id INT, name VARCHAR(20)) ENGINE = MyISAM")
        server.query(
            "CREATE FUNCTION other.f(x INT) RETURNS INT DETERMINISTIC MODIFIES SQL DATA BEGIN "
            "REPLACE INTO other.called VALUES (x, 'called'); RETURN 1; END"
        )
    if server.kind != "mysql":
        server.query("CREATE SEQUENCE other.s")


def held(server: DatabaseServer) -> dict[str, Any]:
    """Everything outside the feed's database that a statement could have changed."""
    asked = {
        "tables": "SELECT table_schema, table_name, table_type FROM information_schema.tables WHERE table_schema <> 'd'",
        "columns": "SELECT table_schema, COUNT(*) FROM information_schema.columns WHERE table_schema <> 'd' GROUP BY table_schema",
        "routines": "SELECT routine_schema, routine_name FROM information_schema.routines",
        "triggers": "SELECT trigger_schema, trigger_name FROM information_schema.triggers",
        "events": "SELECT event_schema, event_name FROM information_schema.events",
        "rights": "SELECT grantee, privilege_type, is_grantable FROM information_schema.user_privileges",
        "more rights": "SELECT grantee, privilege_type FROM information_schema.schema_privileges",
        "users": "SELECT user, host, authentication_string FROM mysql.user",
        "settings": "SELECT @@GLOBAL.max_connections, @@GLOBAL.sql_mode, @@GLOBAL.general_log, @@GLOBAL.local_infile",
        "secret": "SELECT * FROM other.secret",
        "secret's form": "SHOW CREATE TABLE other.secret",
        "called": "SELECT * FROM other.called",
        "lease": "SHOW CREATE TABLE storage_consumer.lease",
    }
    if server.kind != "tidb":
        asked |= {"servers": "SELECT server_name FROM mysql.servers", "libraries": "SELECT name FROM mysql.func"}
        asked |= {"plugins": "SELECT plugin_name FROM information_schema.plugins"}
    if server.kind == "mariadb":
        asked |= {"sequence": "SELECT * FROM other.s"}
    return {name: sorted(map(str, server.query(query))) for name, query in asked.items()}


def told(server: DatabaseServer) -> str:
    """All that the feed's tables and views say, and what they are made by."""
    parts = []
    for name, kind in server.query(
        "SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = 'd'"
    ):
        parts.append(server.query(f"SHOW CREATE TABLE d.{quoted(name)}"))
        parts.append(server.query(f"SELECT * FROM d.{quoted(name)}") if "VIEW" not in kind else ())
    return str(parts)


def plant(bucket: SmallBucket, site: Site, harms: Mapping[str, Harm], each: int) -> dict[str, Hostile]:
    """Make the tables in the first round, and a neighbour; then put one hostile statement into each one's directory."""
    chosen = {f"t{number}": one for number, one in enumerate(some(harms, each))}
    made = [name for name, one in chosen.items() if not harms[one.harm].makes]
    bucket.create("d.good", "d.read", *(f"d.{name}" for name in made if chosen[name].kind != EXCHANGE))
    for name in made:
        if chosen[name].kind == EXCHANGE:
            bucket.schema(f"d.{name}", ts(1), PARTITIONED.format(name), CREATE_TABLE)
    bucket.metadata(ts(4))
    assert not once(bucket, site.server).halted
    for tick, (name, one) in enumerate(chosen.items(), 6):
        bucket.schema(f"d.{name}", ts(tick), one.of(name, site.file, site.folder), one.kind, ID_NAME)
        if name in made:
            bucket.rows(f"d.{name}", 1, row(f"d.{name}", _LATE, "2", '"after"'), version=ts(tick))
    bucket.rows("d.good", 1, row("d.good", _LATE, "1", '"good"'))
    bucket.metadata(ts(_LATE + 1))
    return chosen


def unlike(summary: RoundSummary, name: str, one: Hostile, site: Site) -> str:
    """Return the state or error of a table where that is not the program's own refusal of the statement; else an empty text.

    The error has the statement, or the name that it may not have. One that names a table of another halted statement waits for it.
    A view is left out, and halts nothing, unless no TiCDC stores such a statement.
    """
    text = one.of(name, site.file, site.folder)
    start = text.partition("\\")[0].rstrip(";")[:100]  # backslashes are shown escaped
    halted = [table for table in summary.halted if table.table.partition(".")[2] == name]
    table = of(summary, f"d.{name}")
    state = table.state
    if one.kind == CREATE_VIEW and "The view is left out" in table.error:
        halted = [table]
    elif not halted or state not in ("halted", "waiting"):
        may_wait = (
            one.kind in MOVES or "RENAME" in text.upper() or (one.spelling != "plain" and one.kind == CREATE_VIEW)
        )
        return "" if state == "waiting" and may_wait else state
    error = halted[0].error
    says = start in error or any(words in error for words in (" names ", "at the source", "which has the name of"))
    return "" if says and "the target refused" not in error else error


def test_harms(bucket: SmallBucket, site: Site) -> None:
    """Each stops its own table before anything of it runs; the neighbour goes on, and nothing of others is read or changed."""
    chosen = plant(bucket, site, HARMS, 1)
    before = held(site.server)
    summary = once(bucket, site.server)
    wrong = {name: (one, why) for name, one in chosen.items() if (why := unlike(summary, name, one, site))}
    assert wrong == {}
    assert not [name for name in chosen if site.written(name)]
    assert held(site.server) == before
    assert content(site.server, "d.good") == [(1, "good")]
    made = {name for name, one in chosen.items() if not HARMS[one.harm].makes}
    there = site.server.query("SELECT table_name FROM information_schema.tables WHERE table_schema = 'd'")
    assert {name for (name,) in there} == {"good", "read", *made}
    assert not {PLANTED, "after"} & set(told(site.server).split("'"))


def test_options_that_keep_rows_elsewhere(bucket: SmallBucket, site: Site) -> None:
    """A table halts, or it is one of the server's usual ones without any of them."""
    chosen = plant(bucket, site, KEPT_ELSEWHERE, 2)
    before = held(site.server)
    summary = once(bucket, site.server)
    halted = {table.table for table in summary.halted}
    for name, one in chosen.items():
        if f"d.{name}" in halted:
            why = unlike(summary, name, one, site)
            assert not why or "the target refused" in why, one
            continue
        engine = f"SELECT engine FROM information_schema.tables WHERE table_schema = 'd' AND table_name = '{name}'"
        assert site.server.query(engine) == (("InnoDB",),), one
        ((_, text),) = site.server.query(f"SHOW CREATE TABLE d.{name}")
        assert not [word for word in ("DIRECTORY", "CONNECTION=", "UNION=") if word in text.partition("COMMENT=")[0]], (
            one
        )
    assert 0 < len(halted) < len(chosen)
    assert held(site.server) == before
    assert content(site.server, "d.good") == [(1, "good")]


TYPES = (
    "INT DEFAULT (LOAD_FILE('{file}'))",
    "INT) AS SELECT 1 AS `id` -- ",
    "INT, `x` TEXT DEFAULT (SLEEP(60))",
    "INT /*!50000 DEFAULT 7 */",
    "VARCHAR(20",
    "SERIAL",
    "GEOMETRY",
    "ENUM('a')",
    "",
)
"""Types of a column that no schema file of TiCDC has."""
ODD_COLUMNS: dict[str, dict[str, str]] = {
    "precision": {"ColumnType": "VARCHAR", "ColumnPrecision": "20) DEFAULT (SLEEP(60)"},
    "scale": {"ColumnType": "DECIMAL", "ColumnPrecision": "9", "ColumnScale": "0) DEFAULT (1"},
    "default": {"ColumnType": "INT", "ColumnDefault": "1) AS SELECT 1"},
    "nullable": {"ColumnType": "INT", "ColumnNullable": "false DEFAULT (SLEEP(60))"},
}
"""Attributes that hold more than their value."""


def test_types_of_columns(bucket: SmallBucket, site: Site) -> None:
    """A schema file without a statement makes a table of TiDB's types alone; any other text there never reaches the server."""
    bucket.create("d.good")
    bucket.rows("d.good", 1, row("d.good", 8, "1", '"good"'))
    for number, text in enumerate(TYPES):
        columns = (column("id", "INT", key=True), column("c", text.format(file=site.file)))
        bucket.schema(f"d.t{number}", ts(2), "", 0, columns)
    for name, attributes in ODD_COLUMNS.items():
        bucket.schema(f"d.{name}", ts(2), "", 0, (column("id", "INT", key=True), {"ColumnName": "c", **attributes}))
    named = "c` INT DEFAULT (SLEEP(60)), `x"
    bucket.schema("d.named", ts(2), "", 0, (column("id", "INT", key=True), column(named, "INT")))
    bucket.metadata(ts(9))
    summary = once(bucket, site.server, no_copy=True)
    halted = {table.table for table in summary.halted}
    assert halted >= {f"d.t{number}" for number in range(len(TYPES))}
    assert {(f"d.{name}" in halted) or plain(site.server, name) for name in ODD_COLUMNS} == {True}
    assert [name for (name, *_) in site.server.query("SHOW COLUMNS FROM d.named")] == ["id", named]
    assert content(site.server, "d.good") == [(1, "good")]
    assert PLANTED not in told(site.server)


def plain(server: DatabaseServer, name: str) -> bool:
    """Whether a table has the two columns of its schema file and no default that is computed."""
    found = server.query(f"SHOW COLUMNS FROM d.{quoted(name)}")
    return [one[0] for one in found] == ["id", "c"] and found[1][4] in (None, "1", "NULL")


def test_rows_of_views(bucket: SmallBucket, site: Site) -> None:
    """Rows are written into no view, whoever made it and when: a view would hand them on to another table."""
    made = "CREATE VIEW `{}` AS SELECT `id`,`name` FROM `other`.`secret`"
    bucket.create("d.good", "d.turned")
    bucket.rows("d.good", 1, row("d.good", 8, "1", '"good"'))
    bucket.schema("d.made", ts(2), made.format("made"), CREATE_VIEW, ID_NAME)
    bucket.schema("d.turned", ts(2), "DROP TABLE `turned`", DROP, ID_NAME)
    bucket.schema("d.turned", ts(3), made.format("turned"), CREATE_VIEW, ID_NAME)
    site.server.query("CREATE DATABASE d CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    site.server.query("CREATE VIEW d.there AS SELECT id, name FROM other.secret")
    bucket.schema("d", ts(0), "CREATE DATABASE IF NOT EXISTS `d`", 1)
    bucket.schema("d.there", ts(2), "", 0, ID_NAME)
    for name, tick in {"made": 2, "turned": 3, "there": 2}.items():
        rows = (row(f"d.{name}", 5, "1", '"x"', operation=operation) for operation in "ID")
        bucket.rows(f"d.{name}", 1, *rows, row(f"d.{name}", 6, "7", '"new"'), version=ts(tick))
    bucket.metadata(ts(9))
    summary = once(bucket, site.server)
    assert {table.table for table in summary.halted} == {"d.made", "d.turned", "d.there"}
    assert content(site.server, "other.secret") == [(1, "secret")]
    assert content(site.server, "d.good") == [(1, "good")]


PLACES = (
    "mysql",
    "MySQL",
    "sys",
    "INFORMATION_SCHEMA",
    "performance_schema",
    "storage_consumer",
    "Storage_Consumer",
    "stórage_consumer",
)


def test_places(bucket: SmallBucket, site: Site) -> None:
    """Folders and schema files of reserved databases halt, and rows go by their folder, whatever database they name."""
    bucket.create("d.good", *(f"{name}.t" for name in PLACES))
    for name in PLACES:
        bucket.rows(f"{name}.t", 1, row(f"{name}.t", 5, "1", '"x"'))
        bucket.schema(name, ts(7), f"DROP DATABASE `{name}`", 2)
    strange = row("storage_consumer.lease", 5, "1", '"x"')
    bucket.rows("d.good", 1, row("d.good", 5, "1", '"good"'), strange)
    bucket.metadata(ts(9))
    before = site.server.query("SELECT user, host FROM mysql.user ORDER BY 1, 2")
    for _ in range(2):
        summary = once(bucket, site.server)
        halted = {table.table.lower() for table in summary.halted}
        assert halted >= {f"{name}.t".lower() for name in PLACES}
    assert site.server.query("SELECT user, host FROM mysql.user ORDER BY 1, 2") == before
    assert len(site.server.query("SELECT * FROM storage_consumer.lease")) == 1
    tables = "SELECT table_schema FROM information_schema.tables WHERE table_name = 't'"
    assert site.server.query(tables) == ()
