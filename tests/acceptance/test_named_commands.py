"""The commands that messages name, pasted as they are printed: where a setting is missing, they have it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.program import ROOT
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import ID_NAME, SmallBucket, column, row, ts

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance]
AT = (*ID_NAME, column("at", "TIMESTAMP"))


def pasted(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command as it was printed, in a shell, with this program in front."""
    script = f'storage-consumer() {{ {shlex.quote(sys.executable)} -m storage_consumer "$@"; }}; {line}'
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("STORAGE_CONSUMER_")}
    return subprocess.run(
        ["bash", "-c", script],
        cwd=ROOT,
        env=inherited | environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def named(text: str, beginning: str) -> str:
    """Return the only line of a text that is such a command."""
    (found,) = {
        line.partition(beginning)[1] + line.partition(beginning)[2] for line in text.splitlines() if beginning in line
    }
    return found


def test_a_missing_time_zone(mariadb: DatabaseServer, tmp_path: Path) -> None:
    """Without --tz a table with a TIMESTAMP halts; what `inspect`, `status` and the log name has it, and all other settings."""
    bucket = SmallBucket(root=tmp_path / "bucket")
    bucket.schema("d", ts(0), "CREATE DATABASE `d`", 1)
    bucket.schema("d.a", ts(1), "CREATE TABLE `a` (id INT PRIMARY KEY, name VARCHAR(20), at TIMESTAMP NULL)", 3, AT)
    bucket.rows("d.a", 1, row("d.a", 2, "1", '"one"', '"2026-01-31 10:00:00"'))
    bucket.metadata(ts(3))
    mariadb.query("CREATE USER app@'%' IDENTIFIED BY 'hush'")
    mariadb.query("GRANT ALL ON *.* TO app@'%'")
    own = tmp_path / "my own.toml"
    uri = f"mysql://app:hush@127.0.0.1:{mariadb.port}/"
    own.write_text(
        f"[sink.csv]\ninclude-commit-ts = true\n[consumer]\ndownstream-uri = '{uri}'\nstate-schema = 'mine'\n",
        encoding="utf-8",
    )
    words = f"--upstream-uri '{bucket.uri}' --config {shlex.quote(str(own))}"
    seen = pasted(f"storage-consumer inspect {words}")
    assert seen.returncode == 2, seen.stderr
    run = named(seen.stdout, "storage-consumer run ")
    halted = pasted(f"storage-consumer run {words} --once")
    assert halted.returncode == 4, halted.stderr
    assert "is a TIMESTAMP" in halted.stderr, halted.stderr
    status = pasted(f"storage-consumer status --batch --config {shlex.quote(str(own))}")
    line = named(status.stdout, "next: storage-consumer run ").removeprefix("next: ")
    assert " --tz ZONE --downstream-uri " in halted.stderr
    assert "hush" not in seen.stdout + halted.stderr + status.stdout
    assert "table resume" not in status.stdout
    done = pasted(line.replace(" ZONE ", " +09:00 "))
    assert done.returncode == 0, done.stderr
    assert mariadb.query("SELECT id, UNIX_TIMESTAMP(at) FROM d.a") == ((1, 1_769_821_200),)
    again = pasted(f"{run.replace('<ZONE>', '+09:00')} --once")
    assert again.returncode == 0, again.stderr
    assert "other" not in again.stderr
