"""``storage-consumer changes`` as a process of its own: what it prints, in which order, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from signal import SIGINT

import pytest

from tests.harness.program import ROOT
from tests.harness.servers import DatabaseServer, program
from tests.harness.small_bucket import SmallBucket, column, row, ts

pytestmark = [pytest.mark.acceptance]
WITHOUT_OTHERS = {key: text for key, text in os.environ.items() if not key.startswith("STORAGE_CONSUMER_")}


def printed(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    command = [sys.executable, "-m", "storage_consumer", "changes", *words]
    return subprocess.run(
        command, cwd=ROOT, env=WITHOUT_OTHERS, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture
def bucket(tmp_path: Path) -> SmallBucket:
    """d.a and d.b with some rows, complete up to tick 9."""
    found = SmallBucket(root=tmp_path / "bucket")
    found.create("d.a", "d.b")
    found.rows("d.a", 1, row("d.a", 2, "1", '"one"'), row("d.a", 5, "1", '"uno"', operation="U"))
    found.rows("d.b", 1, row("d.b", 3, "7", '"seven"'), row("d.b", 12, "8", '"later"'))
    found.metadata(ts(9))
    return found


def test_what_happened_to_a_row(bucket: SmallBucket) -> None:
    """One table, one key, a window that is given by a time and a TSO: settings that nobody gave are inferred."""
    ended = printed("--upstream-uri", bucket.uri, "--table", "d.a", "--key", "1", "--from", "2026-09-21T14:13:23Z")
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [(line["type"], line.get("after")) for line in lines] == [("update", {"id": 1, "name": "uno"})]
    window = ["--from", str(ts(2)), "--to", str(ts(3))]
    ended = printed("--upstream-uri", bucket.uri, *window)
    assert [json.loads(line)["commit_ts"] for line in ended.stdout.splitlines()] == [ts(2), ts(3)]
    bucket.rows("d.b", 1, str(row("d.b", 3, "7", '"seven"')).replace(str(ts(3)), str(ts(3) + 5)))
    (shown,) = printed("--upstream-uri", bucket.uri, "--table", "d.b", "--from", str(ts(2))).stdout.splitlines()
    window = ["--from", json.loads(shown)["commit_time"], "--to", json.loads(shown)["commit_time"]]
    assert printed("--upstream-uri", bucket.uri, *window).stdout.splitlines() == [shown], (
        "the time that it was shown with"
    )


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "gbk"])
@pytest.mark.parametrize("form", ["json", "sql"])
def test_documents_are_utf_8(bucket: SmallBucket, form: str, encoding: str) -> None:
    """Whatever the locale says: a script with other bytes would write other values."""
    bucket.rows("d.b", 2, row("d.b", 8, "9", '"日本 é 😀"'))
    words = ["--upstream-uri", bucket.uri, "--table", "d.b", "--format", form, "--from", str(ts(8))]
    ended = subprocess.run(
        [sys.executable, "-m", "storage_consumer", "changes", *words],
        cwd=ROOT,
        env={**WITHOUT_OTHERS, "PYTHONIOENCODING": encoding},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode, "日本 é 😀" in ended.stdout.decode("utf-8")) == (0, True)


def test_a_window_that_is_not_there_yet(bucket: SmallBucket) -> None:
    """Nothing is printed, and why is said."""
    ended = printed("--upstream-uri", bucket.uri, "--table", "d.a", "--from", str(ts(20)))
    assert (ended.returncode, ended.stdout) == (0, "")
    assert f"complete up to {ts(9)} only" in ended.stderr


def test_a_script_begins_when_its_first_statement_is_known(bucket: SmallBucket) -> None:
    """A table that is left out of a script for a fault leaves no head behind that would pass for a script."""
    bucket.rows("d.a", 1, "no row")
    window = ["--from", str(ts(2)), "--table", "d.a"]
    for form in ("sql", "undo-sql"):
        ended = printed(
            "--upstream-uri", bucket.uri, "--output-old-value=false", "--include-commit-ts", "--format", form, *window
        )
        assert (ended.returncode, ended.stdout) == (1, "")


def followed(bucket: SmallBucket, *words: str) -> tuple[str, str]:
    """Follow a bucket until something is said on standard error, then end that; return both texts."""
    command = [sys.executable, "-m", "storage_consumer", "changes", "--upstream-uri", bucket.uri, "--follow"]
    more = ["--flush-interval", "100ms", *words]
    with subprocess.Popen(
        [*command, *more], cwd=ROOT, env=WITHOUT_OTHERS, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        first = running.stderr.readline()
        running.send_signal(SIGINT)
        out, rest = running.communicate(timeout=20)
        assert running.returncode == 0
    return out, first + rest


def test_a_table_to_follow_that_is_not_there_yet(bucket: SmallBucket) -> None:
    """It may come, so standard error says it in one line and the command goes on; so it does of a window that begins later."""
    out, told = followed(bucket, "--table", "d.nope", "--from", str(ts(1)))
    assert (out, told.count("\n")) == ("", 1)
    assert "the bucket has no table d.nope yet" in told
    out, told = followed(bucket, "--from", str(ts(20)))
    assert (out, told.count("\n")) == ("", 1)
    assert f"complete up to {ts(9)} only" in told


def test_a_row_that_nothing_happened_to(bucket: SmallBucket) -> None:
    """It is said on stderr that no change is of that row, and how a key is given; a line break in it is a character as others."""
    for key in ("9", "a\nb"):
        ended = printed("--upstream-uri", bucket.uri, "--table", "d.a", "--key", key)
        assert (ended.returncode, [json.loads(line)["type"] for line in ended.stdout.splitlines()]) == (0, ["ddl"] * 2)
        assert f"--key {key!r}: no change of the window is of that row" in ended.stderr


def test_what_came_before_an_error_is_printed(bucket: SmallBucket) -> None:
    """A row that cannot be read ends the command with code 1 and names the file; a reader that goes away ends it without a word."""
    path = bucket.rows("d.a", 2, "no row")
    ended = printed("--upstream-uri", bucket.uri, "--include-commit-ts", "--output-old-value=false", "--table", "d.b")
    assert (ended.returncode, len(ended.stdout.splitlines())) == (0, 3)
    ended = printed("--upstream-uri", bucket.uri, "--table", "d.a")
    assert (ended.returncode, path.name in ended.stderr) == (1, True)
    path.unlink()
    command = f"{sys.executable} -m storage_consumer changes --upstream-uri '{bucket.uri}' | head -n 1; exit ${{PIPESTATUS[0]}}"
    piped = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, env=WITHOUT_OTHERS, capture_output=True, text=True, timeout=60, check=False
    )
    assert (piped.returncode, piped.stderr, piped.stdout.count("\n")) == (0, "", 1)


def test_what_comes_is_followed(bucket: SmallBucket) -> None:
    """New changes are printed as soon as the checkpoint covers them; Ctrl-C ends it with code 0."""
    command = [sys.executable, "-m", "storage_consumer", "changes", "--upstream-uri", bucket.uri, "--follow"]
    more = ["--flush-interval", "100ms", "--table", "d.b"]
    with subprocess.Popen(
        [*command, *more], cwd=ROOT, env=WITHOUT_OTHERS, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        first = [json.loads(running.stdout.readline())["type"] for _ in range(3)]
        assert first == ["ddl", "ddl", "insert"]
        bucket.metadata(ts(20))
        assert json.loads(running.stdout.readline())["after"] == {"id": 8, "name": "later"}
        running.send_signal(SIGINT)
        assert running.wait(20) == 0


def test_what_comes_is_followed_over_an_outage(bucket: SmallBucket) -> None:
    """A bucket whose ``metadata`` is away is tried again, which one line on stderr tells; after the retry limit the command ends with code 1."""
    command = [sys.executable, "-m", "storage_consumer", "changes", "--upstream-uri", bucket.uri, "--follow"]
    more = ["--flush-interval", "100ms", "--retry-limit", "2s", "--table", "d.b", "--from", str(ts(3))]
    with subprocess.Popen(
        [*command, *more],
        cwd=ROOT,
        env=WITHOUT_OTHERS,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert json.loads(running.stdout.readline())["after"] == {"id": 7, "name": "seven"}
        (bucket.root / "metadata").unlink()
        told = running.stderr.readline()
        assert told.startswith(
            "storage-consumer: the storage does not answer, and is tried again for 2s (--retry-limit)"
        )
        bucket.metadata(ts(20))
        assert json.loads(running.stdout.readline())["after"] == {"id": 8, "name": "later"}
        (bucket.root / "metadata").unlink()
        assert running.wait(30) == 1
        again, ended = running.stderr.read().splitlines()
        assert "is tried again for 2s" in again
        assert "metadata is gone" in ended


def run(server: DatabaseServer, script: str) -> None:
    """Run the statements of a script."""
    lines = (line.partition(" -- ")[0] for line in script.splitlines())
    texts = (statement.strip(" ;") for line in lines for statement in line.split("; "))
    with server.connect(autocommit=True) as connection, connection.cursor() as cursor:
        for text in filter(None, texts):
            cursor.execute(text)


@pytest.mark.server
def test_times_of_updates(server: DatabaseServer, tmp_path: Path) -> None:
    """A column with ON UPDATE CURRENT_TIMESTAMP has what it had at the source, though the statements run at another time and it did not change."""
    bucket = SmallBucket(root=tmp_path)
    columns = (column("id", "INT", key=True), column("a", "INT"), column("upd", "TIMESTAMP"), column("at", "DATETIME"))
    bucket.schema("upd", ts(0), "CREATE DATABASE `upd`", 1)
    moments = (
        "upd TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, "
        "at DATETIME NULL DEFAULT NULL ON UPDATE CURRENT_TIMESTAMP"
    )
    bucket.schema("upd.t", ts(1), f"CREATE TABLE `t` (id INT PRIMARY KEY, a INT, {moments})", 3, columns)
    text = '"{}","t","upd",{},{},1,{},"2026-09-21 14:13:22",\\N'
    rows = (("I", ts(2), "false", 1), ("D", ts(4), "true", 1), ("I", ts(4), "true", 2))
    bucket.rows("upd.t", 1, *(text.format(*values) for values in rows))
    bucket.metadata(ts(9))
    (tmp_path / "old.toml").write_text("[sink.csv]\ninclude-commit-ts = true\noutput-old-value = true\n")
    at = ["--upstream-uri", bucket.uri, "--config", str(tmp_path / "old.toml"), "--tz", "UTC"]
    shown = "SELECT a, UNIX_TIMESTAMP(upd), at FROM upd.t"
    try:
        run(server, printed(*at, "--format", "sql").stdout)
        assert server.query(shown) == ((2, 1_790_000_002, None),)
        run(server, printed(*at, "--from", str(ts(3)), "--format", "undo-sql").stdout)
        assert server.query(shown) == ((1, 1_790_000_002, None),)
    finally:
        run(server, "DROP DATABASE IF EXISTS upd")


def piped(server: DatabaseServer, script: str) -> str:
    """Run a script as a client does that it is piped into; return what it complains of."""
    client = [
        program("mariadb"),
        "--no-defaults",
        "--protocol=tcp",
        "--host=127.0.0.1",
        f"--port={server.port}",
        "--user=root",
    ]
    ended = subprocess.run(client, input=script, capture_output=True, text=True, timeout=60, check=False)
    return ended.stderr


@pytest.mark.server
def test_children_of_a_row_that_gets_its_key_back(server: DatabaseServer, tmp_path: Path) -> None:
    """What a foreign key did to other rows is among the changes, so it is not done again while they are taken back: these rows stay."""
    bucket = SmallBucket(root=tmp_path / "bucket")
    bucket.schema("fk", ts(0), "CREATE DATABASE `fk`", 1)
    bucket.schema("fk.z", ts(1), "CREATE TABLE `z` (id INT PRIMARY KEY)", 3, (column("id", "INT", key=True),))
    query = "CREATE TABLE `a` (id INT PRIMARY KEY, z INT, FOREIGN KEY (z) REFERENCES z (id) ON DELETE CASCADE ON UPDATE CASCADE)"
    bucket.schema("fk.a", ts(2), query, 3, (column("id", "INT", key=True), column("z", "INT")))
    moved = ("D", "false", 1), ("I", "false", 2)
    bucket.rows("fk.z", 1, *(f'"{kind}","z","fk",{ts(5)},{update},{key}' for kind, update, key in moved))
    updated = ("D", "true", 1), ("I", "true", 2)
    rows = (f'"{kind}","a","fk",{ts(5)},{update},10,{key}' for kind, update, key in updated)
    bucket.rows("fk.a", 1, *rows, version=ts(2))
    bucket.metadata(ts(9))
    (tmp_path / "old.toml").write_text("[sink.csv]\ninclude-commit-ts = true\noutput-old-value = true\n")
    at = ["--upstream-uri", bucket.uri, "--config", str(tmp_path / "old.toml"), "--tz", "UTC"]
    try:
        run(server, printed(*at, "--to", str(ts(4)), "--format", "sql").stdout)
        run(server, "INSERT INTO fk.z VALUES (1); INSERT INTO fk.a VALUES (10, 1); UPDATE fk.z SET id = 2")
        assert piped(server, printed(*at, "--from", str(ts(5)), "--format", "undo-sql").stdout) == ""
        assert (server.query("SELECT * FROM fk.z"), server.query("SELECT * FROM fk.a")) == (((1,),), ((10, 1),))
    finally:
        run(server, "DROP DATABASE IF EXISTS fk")


@pytest.mark.server
def test_rows_with_keys_that_the_source_made_by_chance(server: DatabaseServer, tmp_path: Path) -> None:
    """A deleted row of a table with AUTO_RANDOM comes back under its own key, from a client that removes comments too."""
    bucket = SmallBucket(root=tmp_path)
    columns = (column("id", "BIGINT", key=True), column("n", "INT"))
    bucket.schema("rnd", ts(0), "CREATE DATABASE `rnd`", 1)
    query = "CREATE TABLE `t` (id BIGINT PRIMARY KEY /*T![clustered_index] CLUSTERED */ /*T![auto_rand] AUTO_RANDOM(5) */, n INT)"
    bucket.schema("rnd.t", ts(1), query, 3, columns)
    bucket.rows("rnd.t", 1, row("rnd.t", 2, "77", "1"), row("rnd.t", 3, "77", "1", operation="D"))
    bucket.metadata(ts(9))
    at = ["--upstream-uri", bucket.uri]
    try:
        run(server, printed(*at, "--format", "sql").stdout)
        assert server.query("SELECT * FROM rnd.t") == ()
        assert piped(server, printed(*at, "--from", str(ts(3)), "--format", "undo-sql").stdout) == ""
        assert server.query("SELECT * FROM rnd.t") == ((77, 1),)
    finally:
        run(server, "DROP DATABASE IF EXISTS rnd")
