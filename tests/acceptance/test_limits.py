"""The real program with an end: at a time, or after some files; and with tables that are paused or skipped."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from storage_consumer.telemetry import tso_time
from tests.harness.program import command, program, run_arguments
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, row, ts

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance]


@pytest.fixture
def bucket(tmp_path: Path) -> SmallBucket:
    """Two tables with rows at ticks 2 and 6, in a file each, up to tick 9."""
    found = SmallBucket(root=tmp_path / "bucket")
    found.create("d.a", "d.b")
    for table in ("d.a", "d.b"):
        for number, tick in ((1, 2), (2, 6)):
            found.rows(table, number, row(table, tick, str(number), '"x"'))
    found.metadata(ts(9))
    return found


def test_a_run_that_ends_at_a_time(mariadb: DatabaseServer, bucket: SmallBucket, tmp_path: Path) -> None:
    """A run that follows the bucket ends with code 0 at the time that was given; batches do the rest, and say what they left."""
    arguments = run_arguments(bucket, mariadb)
    assert str(ts(4)) in command("tso", "--tz", "+08:00", tso_time(ts(4))).stdout
    with program([*arguments, "--until", tso_time(ts(4))], tmp_path / "until") as running:
        assert running.wait_for("until_reached")["checkpoint"] == ts(4)
        assert running.end() == 0
    assert mariadb.query("SELECT (SELECT COUNT(*) FROM d.a), (SELECT COUNT(*) FROM d.b)") == ((1, 1),)
    with program([*arguments, "--once", "--max-files", "1"], tmp_path / "batch") as running:
        finished = running.wait_for("round_finished")
        assert (finished["ended_early"], finished["files"], finished["pending_files"]) == ("max-files", 1, 1)
        assert running.wait_for("stopped")["reason"] == "max-files"
        assert running.end() == 0
    # One that is paused keeps --once from saying that all is well; one that is skipped does not.
    assert command("table", "pause", "--table", "d.b", server=mariadb).returncode == 0
    with program([*arguments, "--once"], tmp_path / "paused") as running:
        assert running.wait_for("round_finished")["paused"] == ["d.b"]
        assert running.end() == 4
    listed = command("table", server=mariadb)
    assert "d.b  paused" in listed.stdout
    assert "paused by" in listed.stdout
    assert command("table", "skip", "--table", "d.b", server=mariadb).returncode == 0
    with program([*arguments, "--once"], tmp_path / "skipped") as running:
        finished = running.wait_for("round_finished")
        assert (finished["checkpoint"], finished["paused"]) == (ts(9), [])
        assert running.end() == 0
    assert "1 skipped or left out" in command("table", server=mariadb).stdout
    shown = json.loads(command("table", "--all", "--json", server=mariadb).stdout)["tables"]
    assert {each["table"]: each["state"] for each in shown} == {"d": "running", "d.a": "running", "d.b": "skipped"}


@pytest.mark.parametrize("tasks", [1, 4])
def test_a_limited_pace(mariadb: DatabaseServer, bucket: SmallBucket, tmp_path: Path, tasks: int) -> None:
    """All tasks together write at the rate that is given, in several jobs if a table has more than a minute's rows; `status` shows it."""
    for number in range(3, 7):
        keys = range(number * 10_000, number * 10_000 + 2_500)
        bucket.rows("d.a", number, *[row("d.a", number * 100 + key % 7, str(key), '"x"') for key in keys])
    bucket.metadata(ts(1000))
    arguments = [*run_arguments(bucket, mariadb), "--rows-per-second", "500", "--partitions", str(tasks)]
    with program([*arguments, "--once"], tmp_path / "paced") as running:
        began = time.monotonic()
        finished = running.wait_for("round_finished")
        assert (finished["written"], finished["skipped"], running.end()) == (10_004, {}, 0)
    assert 15 < time.monotonic() - began < 60
    assert mariadb.query("SELECT COUNT(*) FROM d.a") == ((10_002,),)
    shown = json.loads(command("status", "--json", "--batch", server=mariadb).stdout)
    assert shown["report"]["rows_per_second_limit"] == 500
