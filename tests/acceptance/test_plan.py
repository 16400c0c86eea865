"""``storage-consumer plan`` before a first run, and beside what the program then does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.harness.program import ROOT, program
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import ID_NAME, SmallBucket, column, row, ts
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.server, pytest.mark.acceptance]


@pytest.fixture
def bucket(tmp_path: Path) -> SmallBucket:
    """Two tables with a row each, up to tick 3."""
    found = SmallBucket(root=tmp_path / "bucket")
    found.create("d.a", "d.b")
    for table in ("d.a", "d.b"):
        found.rows(table, 1, row(table, 2, "1", '"one"'))
    found.metadata(ts(3))
    (tmp_path / "changefeed.toml").write_text("[sink.csv]\ninclude-commit-ts = true\n", encoding="utf-8")
    return found


def plan(bucket: SmallBucket, uri: str, *words: str) -> subprocess.CompletedProcess[str]:
    """The command on this bucket, on a machine without Java."""
    config = ["--config", str(bucket.root.parent / "changefeed.toml")]
    command = [sys.executable, "-m", "storage_consumer", "plan", "--upstream-uri", bucket.uri, "--downstream-uri", uri]
    environ = {**os.environ, "JAVA_HOME": "/nowhere", "PATH": "/nowhere"}
    return subprocess.run(
        [*command, *config, *words], cwd=ROOT, env=environ, capture_output=True, text=True, check=False, timeout=60
    )


def test_a_first_run_is_shown(mariadb: DatabaseServer, bucket: SmallBucket) -> None:
    """As text, as a script that can be run, and as a document; nothing is there afterwards."""
    text = plan(bucket, mariadb.uri)
    assert (text.returncode, text.stderr) == (0, "")
    head = "the next round: 3 statements to run, 0 to skip, 2 rows in 2 files ("
    assert text.stdout.startswith(head)
    assert "first run: creates the state schema storage_consumer" in text.stdout
    assert "at source: CREATE DATABASE `d`" in text.stdout
    script = plan(bucket, mariadb.uri, "--sql", "--table", "d.a").stdout
    assert script.splitlines()[-3:-1] == ["USE `d`;", "CREATE TABLE `a` (id INT PRIMARY KEY, name VARCHAR(20));"]
    document: dict[str, Any] = json.loads(plan(bucket, mariadb.uri, "--json").stdout)
    assert (document["first_run"], document["creates_databases"], document["halts"]) == (True, ["d"], [])
    assert [each["rows"] for wave in document["waves"] for each in wave["rows"]] == [1, 1]
    assert mariadb.query("SHOW DATABASES LIKE 'd'") == mariadb.query("SHOW DATABASES LIKE 'storage_consumer'") == ()


def test_what_stands_in_the_way(mariadb: DatabaseServer, bucket: SmallBucket) -> None:
    """A table that would halt is exit code 4, a bucket without metadata or an unknown table 2, a target that does not answer 1."""
    mariadb.query("CREATE DATABASE d")
    halts = plan(bucket, mariadb.uri)
    assert (halts.returncode, "error 1007" in halts.stdout) == (4, True)
    assert plan(bucket, mariadb.uri, "--table", "d.zzz").returncode == 2
    silent = plan(bucket, "mysql://root@127.0.0.1:1/", "--retry-limit", "0s")
    assert (silent.returncode, silent.stdout) == (1, "")
    (bucket.root / "metadata").unlink()
    assert plan(bucket, mariadb.uri).returncode == 2


def test_only_so_many_lines(mariadb: DatabaseServer, bucket: SmallBucket) -> None:
    """Of many tables 20 are shown, and how many there are besides; --all shows them."""
    bucket.create(*(f"d.t{number}" for number in range(500)))
    short, long = plan(bucket, mariadb.uri), plan(bucket, mariadb.uri, "--all")
    assert "… and 483 more statements (--all)" in short.stdout
    assert len(short.stdout.splitlines()) < 100
    assert "(--all)" not in long.stdout
    assert "t499" in long.stdout


def state_of(server: DatabaseServer) -> dict[str, list[tuple[Any, ...]]]:
    """The state's tables, without those that a consumer writes while it waits."""
    names = server.query("SELECT table_name FROM information_schema.tables WHERE table_schema = 'storage_consumer'")
    beating = ("lease", "report")
    kept = sorted(name for (name,) in names if not name.startswith(beating))
    return {name: sorted(server.query(f"SELECT * FROM storage_consumer.`{name}`"), key=str) for name in kept}


@contextmanager
def locked(server: DatabaseServer, sql: str) -> Iterator[None]:
    """Hold the locks of a query inside the block."""
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute(sql)
        yield
        connection.rollback()


def lock_waits(server: DatabaseServer) -> int:
    """How often anybody has waited for the lock of a row."""
    ((_, count),) = server.query("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_waits'")
    return int(count)


@pytest.mark.spark
def test_beside_a_running_consumer(mariadb: DatabaseServer, bucket: SmallBucket, tmp_path: Path) -> None:
    """In the middle of a round that waits for a lock, a plan answers at once, waits for none, changes nothing, and the round goes on."""
    config = ["--config", str(tmp_path / "changefeed.toml")]
    given = ["--upstream-uri", bucket.uri, "--downstream-uri", mariadb.uri, "--flush-interval", "1s", *config]
    with program(given, tmp_path / "output") as running:
        running.wait_for("round_finished", rows=2)
        with locked(mariadb, "SELECT * FROM d.a WHERE id = 1 FOR UPDATE"):
            waited = lock_waits(mariadb)
            bucket.rows("d.a", 2, row("d.a", 5, "1", '"two"', operation="U"))
            bucket.schema("d.b", ts(6), "ALTER TABLE `b` ADD COLUMN `more` INT", 5, (*ID_NAME, column("more", "INT")))
            bucket.metadata(ts(9))
            wait_until("a round that waits for the lock", lambda: lock_waits(mariadb) > waited)
            before, waited = state_of(mariadb), lock_waits(mariadb)
            document: dict[str, Any] = json.loads(plan(bucket, mariadb.uri, "--json").stdout)
            assert state_of(mariadb) == before
            assert lock_waits(mariadb) == waited
        assert document["writer"]
        assert [(each["table"], each["rows"]) for wave in document["waves"] for each in wave["rows"]] == [("d.a", 1)]
        assert [each["table"] for wave in document["waves"] for each in wave["statements"]] == ["d.b"]
        running.wait_for("round_finished", rows=1)
        assert [event["event"] for event in running.events() if event.get("level") == "error"] == []
    assert mariadb.query("SELECT d.a.name, d.b.more FROM d.a JOIN d.b USING (id)") == (("two", None),)
