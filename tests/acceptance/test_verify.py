"""``storage-consumer verify`` as a command: beside a program that works, and for cron."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.test_ddl_verbs import run_arguments
from tests.harness.program import ROOT, command, program
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, row, ts
from tests.harness.small_export import export

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance]


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
    (sampled,) = json.loads(verify(source, mariadb, "--json", "--table", "d.b", "--sample", "100%").stdout)["tables"]
    assert (sampled["how"], sampled["rows"], sampled["checkpoint"]) == ("sample", 1, ts(3))
    unclear = verify(source, mariadb, "--table", "d")
    assert (unclear.returncode, "--table: the rule 'd' cannot be read" in unclear.stderr) == (2, True)


def test_again_and_again(mariadb: DatabaseServer, source: DatabaseServer, bucket: SmallBucket, tmp_path: Path) -> None:
    """With --every one result follows another, until Ctrl-C; the exit code is the last one's."""
    with program([*run_arguments(bucket, mariadb), "--once"], tmp_path / "log") as running:
        running.wait_for("stopped")
    words = ["verify", "--frozen", "--every", "1s", "--source", source.uri, "--downstream-uri", mariadb.uri]
    with subprocess.Popen(
        [sys.executable, "-m", "storage_consumer", *words], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as repeating:
        assert repeating.stdout is not None
        seen = 0
        while seen < 2:
            seen += "2 equal" in repeating.stdout.readline()
        repeating.send_signal(signal.SIGINT)
        assert repeating.wait(30) == 0


def test_against_an_export(mariadb: DatabaseServer, bucket: SmallBucket, tmp_path: Path) -> None:
    """A target that was run up to the export's TSO is compared with its files; beyond it, that is refused with a way on."""
    folder = export(tmp_path / "full", 2, {"a": ["(1,'one')"], "b": ["(1,'one')"], "old": ["(1,'one')"]})
    arguments = [*run_arguments(bucket, mariadb), "--once"]
    words = ["verify", "--against", folder.as_uri()]
    with program([*arguments, "--until", str(ts(2))], tmp_path / "log") as running:
        running.wait_for("stopped")
    equal = command(*words, "--upstream-uri", bucket.uri, server=mariadb)
    assert (equal.returncode, equal.stderr) == (0, "")
    assert "equal: d.a, 1 rows, at " in equal.stdout
    assert "an export shows a structure only as a statement" in " ".join(equal.stdout.split())
    assert "not in the bucket: d.old. The source has them" in equal.stdout
    mariadb.query("UPDATE d.a SET name = 'One'")
    mariadb.query("DELETE FROM d.b")
    different = command(*words, server=mariadb)
    assert different.returncode == 4
    assert "differs: id = '1': name is 'One', at the source 'one'" in different.stdout
    assert "missing: id = '1'" in different.stdout
    with program(arguments, tmp_path / "log2") as running:
        running.wait_for("stopped")
    later = command(*words, "--json", server=mariadb)
    reasons = {table["reason"] for table in json.loads(later.stdout)["tables"]}
    assert later.returncode == 1
    assert all("take a newer export" in reason for reason in reasons)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "verify needs --source"),
        (("--against", "file:///no/such/export", "--source", "tidb://root@127.0.0.1:1/"), "leave out --source"),
        (("--against", "file:///no/such/export", "--every", "1h"), "leave out --every"),
        (("--against", "s3://bucket/export?secret-access-key=x"), "storage-consumer: --against s3://bucket/export"),
        (("--source", "tidb://root@127.0.0.1:1/", "--dump-tz", "UTC"), "--dump-tz goes with --against"),
        (("--source", "mysql://root@127.0.0.1:1/"), "only with --frozen"),
        (("--source", "tidb://root@127.0.0.1:1/", "--sample", "0"), "--sample: "),
        (("--source", "tidb://root@127.0.0.1:1/", "--sample", "5", "--quick"), "give one of the two"),
        (("--source", "tidb://root@127.0.0.1:1/", "--workers", "many"), "--workers: "),
        (("--source", "tidb://root@127.0.0.1:1/", "--source-password-file", "/no/such/file"), "--source-password-file"),
    ],
)
def test_wrong_arguments(mariadb: DatabaseServer, words: tuple[str, ...], told: str) -> None:
    """They end with code 2, before any server is asked."""
    done = command("verify", *words, server=mariadb)
    assert (done.returncode, told in done.stderr) == (2, True), done.stderr


def test_resumed_in_another_mode(
    mariadb: DatabaseServer, source: DatabaseServer, bucket: SmallBucket, tmp_path: Path
) -> None:
    """A full comparison that was broken off is not ended by a sample, nor by the numbers of rows: code 2, and the way on."""
    with program([*run_arguments(bucket, mariadb), "--once"], tmp_path / "log") as running:
        running.wait_for("stopped")
    verify(source, mariadb)
    mariadb.query(
        "UPDATE storage_consumer.verify_results SET outcome = 'unfinished', "
        'document = REPLACE(document, \'"outcome": "equal"\', \'"outcome": "unfinished"\')'
    )
    for words in (("--quick",), ("--sample", "1")):
        done = verify(source, mariadb, "--resume", *words)
        assert (done.returncode, "leave out --quick and --sample" in done.stderr) == (2, True), done.stderr
    assert "2 equal; 2 rows" in verify(source, mariadb, "--resume").stdout


def test_what_there_is_to_go_on_with(mariadb: DatabaseServer, source: DatabaseServer) -> None:
    """Without a state, and with nothing to resume, that is said."""
    assert "there is no state schema" in verify(source, mariadb).stderr
