"""``storage-consumer ddl`` and ``history`` as processes of their own, beside a consumer that runs and one that does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.harness.program import command, program, run_arguments
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import ID_NAME, SmallBucket, column, row, ts

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance]
WIDER = (*ID_NAME, column("note", "VARCHAR", ColumnPrecision="20"))
REFUSED = "ALTER TABLE `a` ADD COLUMN `note` VARCHAR(20) AFTER `nowhere`"
STATE = "storage_consumer"


@pytest.fixture
def bucket(tmp_path: Path) -> SmallBucket:
    """Two tables; one of them has a statement that the target refuses, and a row behind it."""
    found = SmallBucket(root=tmp_path / "bucket")
    found.create("d.a", "d.b")
    found.rows("d.a", 1, row("d.a", 2, "1", '"one"'))
    found.schema("d.a", ts(4), REFUSED, 5, WIDER)
    found.rows("d.a", 1, row("d.a", 5, "2", '"two"', '"n"'), version=ts(4))
    found.rows("d.b", 1, row("d.b", 2, "1", '"b"'))
    found.metadata(ts(6))
    return found


def test_decided_before_it_starts(mariadb: DatabaseServer, bucket: SmallBucket, tmp_path: Path) -> None:
    """A decision is kept until a consumer comes; said twice it changes nothing, and a wrong version is told what waits."""
    arguments = [*run_arguments(bucket, mariadb), "--once"]
    with program(arguments, tmp_path / "first") as running:
        assert running.end() == 4
    wrong = command("ddl", "done", "--table", "d.a", "--version", str(ts(3)), server=mariadb)
    assert wrong.returncode == 2
    assert f"--table d.a --version {ts(4)}" in wrong.stderr
    mariadb.query("ALTER TABLE d.a ADD COLUMN note VARCHAR(20)")
    done = ["ddl", "done", "--table", "D.A", "--version", str(ts(4)), "--json"]
    outcomes = [json.loads(command(*done, server=mariadb).stdout)["outcome"] for _ in range(2)]
    assert outcomes == ["stored", "same"]
    with program(arguments, tmp_path / "second") as running:
        assert running.end() == 0
    assert mariadb.query("SELECT * FROM d.a ORDER BY id") == ((1, "one", None), (2, "two", "n"))
    listed = command("ddl", "list", "--json", server=mariadb)
    assert json.loads(listed.stdout) == {"waiting": []}


def test_history(mariadb: DatabaseServer, bucket: SmallBucket, tmp_path: Path) -> None:
    """Each version of a table with its time, statement, changes and fate; and how the tables stand, one line each."""
    with program([*run_arguments(bucket, mariadb), "--once"], tmp_path / "log") as running:
        assert running.end() == 4
    shown = command("history", "--table", "d.a", server=mariadb)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "added note VARCHAR(20) after name" in shown.stdout
    assert REFUSED in shown.stdout
    document: dict[str, Any] = json.loads(command("history", "--table", "d.a", "--json", server=mariadb).stdout)
    first, second = document["versions"]
    assert (first["state"], second["state"]) == ("done", "failed")
    assert (first["version"], second["version"]) == (ts(1), ts(4))
    assert first["seconds"] > 0
    assert "1054" in second["note"]
    tables = command("history", server=mariadb).stdout.splitlines()
    assert [line.split()[0] for line in tables] == ["d", "d.a", "d.b"]
    at = json.loads(command("history", "--table", "d.a", "--at", str(ts(3)), "--json", server=mariadb).stdout)
    assert [text.split()[0] for text in at["columns"]] == ["id", "name"]
    missing = command("history", "--table", "d.aa", server=mariadb)
    assert (missing.returncode, "did you mean `d.a`?" in missing.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["ddl", "done"], "needs --table"),
        (["ddl", "skip", "--table", "d.a"], "needs --version"),
        (["ddl", "skip", "--table", "d.a", "--version", "x"], "not 'x'; `storage-consumer ddl` shows it"),
        (["ddl", "replace", "--table", "d.a", "--version", "1"], "--sql, the text to run"),
        (["ddl", "dome"], "invalid choice"),
        (["history", "--tabel", "d.a"], "did you mean `--table`?"),
        (["history", "--at", "1"], "--at needs --table"),
        (["history"], "there is no state schema storage_consumer"),
    ],
)
def test_wrong_arguments(mariadb: DatabaseServer, words: list[str], told: str) -> None:
    """What is wrong is said in a line, with code 2."""
    ended = command(*words, server=mariadb)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert told in ended.stderr
    assert ended.stderr.count("\n") == 1
