"""``storage-consumer status`` beside a program that works, has stopped tables, and is gone."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.test_ddl_verbs import run_arguments
from tests.harness.program import ROOT, command, program
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, row, ts
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance]
NONE: dict[str, Any] = {"totals": {"rounds": 0}}
REFUSED = "ALTER TABLE `a` ADD COLUMN `note` VARCHAR(20) AFTER `nowhere`"


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


def status(server: DatabaseServer, *words: str) -> tuple[int, dict[str, Any]]:
    """Exit code and document of `status`."""
    done = command("status", "--json", *words, server=server)
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def test_life_of_a_feed(mariadb: DatabaseServer, bucket: SmallBucket, tmp_path: Path) -> None:
    """Healthy, then stopped by a statement with the command that cures it, healthy again, behind, and without a writer."""
    nothing = command("status", server=mariadb)
    assert (nothing.returncode, "there is no state schema" in nothing.stderr) == (2, True)
    arguments = [*run_arguments(bucket, mariadb), "--flush-interval", "200ms", "--lease-ttl", "3s"]
    with program(arguments, tmp_path / "log") as running:
        running.wait_for("round_finished", checkpoint=ts(3))
        # A report is stored every few seconds.
        wait_until("the report of a round", lambda: (status(mariadb)[1]["report"] or NONE)["totals"]["rounds"])
        code, found = status(mariadb)
        assert (code, found["health"]) == (0, "healthy")
        # a database counts as a table of its own: statements of it alone have a checkpoint too
        assert set(found["tables_by_state"]) == {"running"}
        assert found["checkpoint"]["ts"] == found["storage_checkpoint"]["ts"] == found["needed"]["checkpoint"] == ts(3)
        assert (found["report"]["totals"]["rows"], found["tables"], found["statements"]) == (2, [], [])
        assert f"pid {running.process.pid}" in found["writer"]
        # what the bucket holds is of September: beyond any limit
        assert status(mariadb, "--max-lag", "5m")[0] == 5
        assert any("look at the changefeed" in reason for reason in found["reasons"])

        bucket.schema("d.a", ts(4), REFUSED, 5)
        bucket.metadata(ts(6))
        running.wait_for("table_halted", table="d.a")
        running.wait_for("round_finished", halted=1)
        code, found = status(mariadb)
        assert (code, found["health"]) == (4, "stopped")
        (table,) = found["tables"]
        assert (table["table"], table["state"], table["checkpoint"]["ts"]) == ("d.a", "halted", ts(4))
        assert "nowhere" in table["reason"]
        (failed,) = found["statements"]
        assert (failed["state"], failed["query"]) == ("failed", REFUSED)
        text = command("status", "--table", "d.a", server=mariadb)
        assert text.returncode == 4
        shown = [line.removeprefix("  next: ") for line in text.stdout.splitlines() if line.startswith("  next: ")]
        assert shown == table["next"]

        cure = shlex.split(next(step for step in shown if "ddl skip" in step))[1:]
        assert command(*cure).returncode == 0
        running.wait_for("table_resumed", table="d.a")
        running.wait_for("round_finished", halted=0, checkpoint=ts(6))
        assert status(mariadb)[0] == 0
        running.signal(signal.SIGTERM)
        assert running.end() == 0
    code, found = status(mariadb)
    assert (code, found["health"], found["report"]["phase"]) == (3, "no-writer", "ended")
    assert status(mariadb, "--batch")[0] == 0


def test_writer_that_was_killed(mariadb: DatabaseServer, bucket: SmallBucket, tmp_path: Path) -> None:
    """Until its lease has run out it counts as the writer; then nobody writes, and it is named."""
    with program([*run_arguments(bucket, mariadb), "--lease-ttl", "3s"], tmp_path / "log") as running:
        running.wait_for("round_finished", checkpoint=ts(3))
        running.kill()
        wait_until("an end of the lease", lambda: status(mariadb)[0] == 3)
        found = status(mariadb)[1]
        assert f"pid {running.process.pid}" in found["last_writer"]
        assert found["reasons"][0].startswith("nobody writes; host ")


def test_watch(mariadb: DatabaseServer, bucket: SmallBucket, tmp_path: Path) -> None:
    """It shows one look after the other; Ctrl-C, or a reader that goes away, ends it with the code of the last."""
    with program([*run_arguments(bucket, mariadb), "--once"], tmp_path / "log") as running:
        assert running.end() == 0
    words = [sys.executable, "-m", "storage_consumer", "status", "--watch", "--batch", "--downstream-uri", mariadb.uri]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        looks = 0
        began = time.monotonic()
        for line in watching.stdout:
            looks += line.startswith("healthy")
            if looks == 2:
                watching.send_signal(signal.SIGINT)
                break
            assert time.monotonic() - began < 60
        assert watching.wait(60) == 0
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        assert watching.stderr is not None
        assert watching.stdout.readline().startswith("healthy")
        watching.stdout.close()
        assert (watching.stderr.read(), watching.wait(60)) == ("", 0)


def test_files_that_are_needed(mariadb: DatabaseServer, bucket: SmallBucket, tmp_path: Path) -> None:
    """What may be deleted is what lies below: the first number of each directory that is still needed is named."""
    with program([*run_arguments(bucket, mariadb), "--once"], tmp_path / "log") as running:
        assert running.end() == 0
    found = status(mariadb, "--batch", "--files")[1]["files"]
    assert [(each["directory"].split("/")[1], each["dispatcher"], each["needed_from"]) for each in found] == [
        ("a", "", 2),
        ("b", "", 2),
    ]
