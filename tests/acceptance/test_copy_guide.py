"""The commands of docs/guide/copy.md, in their order: an export, the changes after it, and the proof that nothing is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.program import command, program, run_arguments
from tests.harness.s3_server import S3Server
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, row, ts
from tests.harness.small_export import export
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance]
ROWS = {"a": {1: "copy", 2: "new", 3: "copy", 4: "new"}, "b": {1: "copy"}}
"""What the source has in the end."""


@pytest.fixture
def source(mysql: DatabaseServer) -> DatabaseServer:
    """The source at the bucket's checkpoint, in a server that nobody writes to."""
    mysql.query("CREATE DATABASE d CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    for table, rows in ROWS.items():
        mysql.query(f"CREATE TABLE d.{table} (id INT NOT NULL PRIMARY KEY, name VARCHAR(20)) COLLATE utf8mb4_bin")
        values = ", ".join(f"({number}, '{name}')" for number, name in rows.items())
        mysql.query(f"INSERT INTO d.{table} VALUES {values}")
    return mysql


@pytest.mark.parametrize("store", ["folder", "s3"])
def test_from_nothing_to_a_verified_replica(
    store: str, request: pytest.FixtureRequest, mariadb: DatabaseServer, source: DatabaseServer, tmp_path: Path
) -> None:
    """The start-ts comes from what `cdc` printed; after the run each table is equal, and `status` says that it was compared.

    The export may be in S3 though the bucket is a folder: keys of the environment open it.
    """
    bucket = SmallBucket(root=tmp_path / "bucket")
    bucket.rows("d.a", 1, row("d.a", 8, "2", '"new"', operation="U"), row("d.a", 9, "4", '"new"'))
    bucket.schema("d.a", ts(1), "", 0)
    bucket.metadata(ts(12))
    full = export(tmp_path / "full", 5, {"a": ["(1,'copy'),\n(2,'copy')", "(3,'copy')"], "b": ["(1,'copy')"]})
    printed = {
        "id": "feed",
        "sink_uri": bucket.uri,
        "start_ts": ts(5),
        "config": {"sink": {"csv": {"include_commit_ts": True}}},
    }
    document = tmp_path / "changefeed.json"
    document.write_text(f"Create changefeed successfully!\nInfo: {json.dumps(printed)}\n", encoding="utf-8")
    arguments = [*run_arguments(bucket, mariadb), "--config", str(document), "--flush-interval", "200ms"]
    dump, keys = full.as_uri(), dict[str, str]()
    if store == "s3":
        s3: S3Server = request.getfixturevalue("s3")
        s3.upload(full, "guide", "full")
        dump = f"s3://guide/full?endpoint={s3.endpoint}"
        keys = {"AWS_ACCESS_KEY_ID": s3.reader.access_key, "AWS_SECRET_ACCESS_KEY": s3.reader.secret_access_key}
    given = [*arguments, "--dump", dump, "--dump-tz", "UTC"]
    with program(given, tmp_path / "log", environment=keys) as running:
        running.wait_for("round_finished", checkpoint=ts(12))
        wait_until("the tables have caught up", lambda: "2 ended" in command("load", server=mariadb).stdout)
        status = command("status", server=mariadb)
        assert (status.returncode, status.stderr) == (0, "")
        assert "healthy: " in status.stdout
        assert command("load", server=mariadb).stdout == "no table is being loaded\n2 ended: add --all\n"
        verified = command("verify", "--frozen", "--source", source.uri, server=mariadb)
        assert (verified.returncode, verified.stderr) == (0, ""), verified.stdout
        assert "2 equal; 5 rows" in verified.stdout
