"""``storage-consumer verify`` as a command: beside a program that works, and for cron."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.harness.program import command, program, run_arguments
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, ts

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance]


@pytest.fixture
def source(mysql: DatabaseServer) -> DatabaseServer:
    """The same tables in a server that nobody writes to."""
    mysql.query("CREATE DATABASE d CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    for table in ("a", "b"):
        mysql.query(f"CREATE TABLE d.{table} (id INT PRIMARY KEY, name VARCHAR(20))")
        mysql.query(f"INSERT INTO d.{table} VALUES (1, 'one')")
    return mysql


def verify(source: DatabaseServer, target: DatabaseServer, *words: str) -> subprocess.CompletedProcess[str]:
    """The command, with a source that nobody writes to."""
    return command("verify", "--frozen", "--source", source.uri, *words, server=target)


def test_beside_a_program_that_works(
    mariadb: DatabaseServer, source: DatabaseServer, bucket: SmallBucket, tmp_path: Path
) -> None:
    """Equal while it runs; then one row is changed in the target: exit code 4, the row, the command that heals it, and `status` says so."""
    arguments = [*run_arguments(bucket, mariadb), "--flush-interval", "200ms"]
    with program(arguments, tmp_path / "log") as running:
        running.wait_for("round_finished", checkpoint=ts(3))
        equal = verify(source, mariadb)
        assert (equal.returncode, equal.stderr) == (0, "")
        assert "equal: d.a, 1 rows, at " in equal.stdout
        assert "2 equal; 2 rows" in equal.stdout
        mariadb.query("UPDATE d.a SET name = 'One'")
        different = verify(source, mariadb)
        assert different.returncode == 4
        assert "differs: id = '1': name is 'One', at the source 'one'" in different.stdout
        assert "next:\n    storage-consumer table pause --table d.a --downstream-uri " in different.stdout
        assert "storage-consumer load --table d.a --dump URI --replace --downstream-uri " in different.stdout
        shown = command("status", server=mariadb)
        assert "verified" in shown.stdout
        assert "1 different (d.a)" in shown.stdout
        documents = json.loads(command("status", "--json", server=mariadb).stdout)["verified"]
        assert {each["table"]: each["outcome"] for each in documents} == {"d.a": "different", "d.b": "equal"}
    source.query("CREATE TABLE d.old (id INT PRIMARY KEY)")
    more = verify(source, mariadb)
    assert "not in the bucket: d.old. The source has them" in more.stdout
    assert json.loads(verify(source, mariadb, "--json", "--quick").stdout)["unknown"] == ["d.old"]
    assert json.loads(verify(source, mariadb, "--json", "--quick", "--table", "d.a").stdout)["unknown"] == []
    found = json.loads(verify(source, mariadb, "--json", "--table", "d.b", "--quick").stdout)
    assert (found["equal"], [table["how"] for table in found["tables"]]) == (True, ["quick"])
    unclear = verify(source, mariadb, "--table", "d")
    assert (unclear.returncode, "--table: the rule 'd' cannot be read" in unclear.stderr) == (2, True)


def test_resumed_in_another_mode(
    mariadb: DatabaseServer, source: DatabaseServer, bucket: SmallBucket, tmp_path: Path
) -> None:
    """A full comparison that was broken off is not ended by the numbers of rows: code 2, and the way on."""
    with program([*run_arguments(bucket, mariadb), "--once"], tmp_path / "log") as running:
        running.wait_for("stopped")
    verify(source, mariadb)
    mariadb.query(
        "UPDATE storage_consumer.verify_results SET outcome = 'unfinished', "
        'document = REPLACE(document, \'"outcome": "equal"\', \'"outcome": "unfinished"\')'
    )
    done = verify(source, mariadb, "--resume", "--quick")
    assert (done.returncode, "leave out --quick" in done.stderr) == (2, True), done.stderr
    assert "2 equal; 2 rows" in verify(source, mariadb, "--resume").stdout


def test_what_there_is_to_go_on_with(mariadb: DatabaseServer, source: DatabaseServer) -> None:
    """Without a state, and with nothing to resume, that is said."""
    assert "there is no state schema" in verify(source, mariadb).stderr
