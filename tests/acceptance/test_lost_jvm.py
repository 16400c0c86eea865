"""Spark's JVM is killed under a running program: another try with a new one, or a clear end where it was somebody else's."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.campaigns.faults.processes import below, kill_workers
from tests.harness.program import Program, program
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, row, ts
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance]
JVM = "org.apache.spark.deploy.SparkSubmit"
GIVEN_SESSION = """
import os, signal, sys
from pyspark.sql import SparkSession
from storage_consumer import Consumer
from storage_consumer.summary import Silent
session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
upstream, downstream, config, how = sys.argv[-6:-2]
class Ends(Silent):
    def round_started(self, **_):
        if how == "killed":
            os.kill(session.sparkContext._gateway.proc.pid, signal.SIGKILL)
        else:
            session.sparkContext.stop()
try:
    with Consumer(upstream_uri=upstream, downstream_uri=downstream, config=config, progress=Ends()) as consumer:
        consumer.run_once()
except Exception as error:
    print(f"{type(error).__name__}: {error}")
"""
"""A user's own session, which ends when a round has begun."""


def filled(home: Path, number: int) -> SmallBucket:
    """A bucket with a keyed and a keyless table, after so many cuts."""
    small = SmallBucket(root=home / "bucket")
    if number == 1:
        small.create("d.a")
        (home / "changefeed.toml").write_text("[sink.csv]\ninclude-commit-ts = true\n", encoding="utf-8")
    small.rows("d.a", number, row("d.a", 5 * number, str(number), '"one"'))
    small.metadata(ts(5 * number + 1))
    return small


@contextmanager
def following(server: DatabaseServer, home: Path) -> Iterator[Program]:
    """The program after its first row."""
    small = filled(home, 1)
    arguments = ["--upstream-uri", small.uri, "--downstream-uri", server.uri, "--config", str(home / "changefeed.toml")]
    with program([*arguments, "--flush-interval", "200ms"], home / "output") as running:
        running.wait_for("round_finished", rows=1)
        yield running


def kill_jvm(running: Program) -> None:
    """Kill -9 the one JVM of the program."""
    (java,) = below(running.process.pid, JVM)
    os.kill(java, signal.SIGKILL)


def test_killed(mariadb: DatabaseServer, tmp_path: Path) -> None:
    """Between rounds and in the middle of a transaction: `SparkUnavailable`, then a new session does the work, once."""
    with following(mariadb, tmp_path) as running:
        kill_jvm(running)
        filled(tmp_path, 2)
        running.wait_for("retry", what="round")
        wait_until("the second row", lambda: len(mariadb.query("SELECT * FROM d.a")) == 2)
        with mariadb.connect() as other, other.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("SELECT * FROM d.a FOR UPDATE")
            filled(tmp_path, 3)
            waiting = "SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
            wait_until("a writer waits", lambda: mariadb.query(waiting))
            kill_jvm(running)
            wait_until("it is noticed", lambda: len(running.events("retry")) >= 2)
            other.rollback()
        wait_until("the third row", lambda: len(mariadb.query("SELECT * FROM d.a")) == 3)
        running.signal(signal.SIGTERM)
        assert running.end() == 0
        said = running.events("retry")
        assert all("Spark's JVM is gone" in one["error"] for one in said)
        assert len(running.events("spark_started")) == 3
        assert running.events("failed") == []
    assert not [*Path("/dev/shm").glob(f"storage-consumer-*/leftover-*{running.process.pid}*")]  # noqa: S108 - looked at


def test_a_worker_that_dies(mariadb: DatabaseServer, tmp_path: Path) -> None:
    """A task that fails and is tried again is told in one line, `retry`, without stack traces of Spark around it."""
    with following(mariadb, tmp_path) as running, mariadb.connect() as other, other.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT * FROM d.a FOR UPDATE")
        filled(tmp_path, 2)
        waiting = "SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
        wait_until("a writer waits", lambda: mariadb.query(waiting))
        assert kill_workers(running.process.pid)
        retry = running.wait_for("retry", what="round")
        other.rollback()
        running.wait_for("round_finished", rows=1, checkpoint=ts(11))
        assert "Python worker exited unexpectedly" in retry["error"]
        assert [each["text"] for each in running.events("spark_said") if each["level"] == "WARN"] == []


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_session_of_a_user(how: str, mariadb: DatabaseServer, tmp_path: Path) -> None:
    """A session that was given is not the program's to start anew: the run ends at once, and says what to do."""
    small = filled(tmp_path, 1)
    (tmp_path / "own.py").write_text(GIVEN_SESSION, encoding="utf-8")
    words = [small.uri, mariadb.uri, str(tmp_path / "changefeed.toml"), how]
    command = [sys.executable, str(tmp_path / "own.py")]
    around = {"PYSPARK_PYTHON": sys.executable}
    with program(words, tmp_path / "output", environment=around, command=command) as running:
        assert running.end() == 0
        (said,) = [line for line in running.text().splitlines() if line.startswith(("Storage", "Spark", "Unexpected"))]
    assert said.startswith(
        "StorageConsumerError: the Spark session that this program was given was stopped, or its JVM is gone"
    )
