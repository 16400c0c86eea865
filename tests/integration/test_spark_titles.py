"""What Spark's UI and history server show of the program's jobs."""

from __future__ import annotations

import json
import socket
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.harness.program import program, run_arguments
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, row, ts
from tests.integration.rounds import once

pytestmark = [pytest.mark.server, pytest.mark.spark]


@pytest.fixture
def filled(bucket: SmallBucket, tmp_path: Path) -> SmallBucket:
    """A bucket with two tables and a row in each."""
    bucket.create("d.a", "d.b")
    for table in ("d.a", "d.b"):
        bucket.rows(table, 1, row(table, 2, "1", '"one"'))
    bucket.metadata(ts(3))
    return bucket


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _asked(port: int, path: str) -> Any:
    """The answer of the UI's REST API."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/applications{path}", timeout=30) as answer:
        return json.load(answer)


@pytest.mark.parametrize("shape", [[], ["--partitions", "2"]], ids=["one stage", "two stages"])
def test_jobs_and_stages_say_what_they_do(
    filled: SmallBucket, mariadb: DatabaseServer, tmp_path: Path, shape: list[str]
) -> None:
    """Each job and each of its stages has round, wave, files and tables in its description, in either shape of a job."""
    port = _free_port()
    spark = f"--conf spark.ui.enabled=true --conf spark.ui.port={port} --conf spark.port.maxRetries=0 pyspark-shell"
    arguments = [*run_arguments(filled, mariadb), "--flush-interval", "200ms", *shape]
    with program(arguments, tmp_path / "log", environment={"PYSPARK_SUBMIT_ARGS": spark}) as running:
        running.wait_for("round_finished", checkpoint=ts(3))
        filled.rows("d.b", 2, row("d.b", 6, "2", '"two"'))
        filled.metadata(ts(9))
        running.wait_for("round_finished", checkpoint=ts(9), rows=1)
        (application,) = _asked(port, "")
        jobs = _asked(port, f"/{application['id']}/jobs")
        stages = _asked(port, f"/{application['id']}/stages")
    said = [job["description"] for job in sorted(jobs, key=lambda job: job["jobId"])]
    assert said[0].startswith("round 1, wave 1: 2 files, ")
    assert said[0].endswith(" B, 2 tables: d.a, d.b")
    assert said[-1].startswith("round ")
    assert ", wave 1: 1 file, " in said[-1]
    assert said[-1].endswith(", 1 table: d.b")
    assert {stage["description"] for stage in stages} == set(said)
    assert all("jobGroup" not in job for job in jobs)


def test_a_session_of_others_keeps_its_own_description(
    filled: SmallBucket, mariadb: DatabaseServer, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the rounds the caller's description and job group are as they were; a job costs three calls of the JVM."""
    context = spark.sparkContext
    client = context._gateway._gateway_client  # type: ignore[union-attr]  # the session has one
    context.setJobGroup("mine", "what I do")
    calls: list[str] = []
    send = client.send_command

    def counted(command: str, *arguments: Any, **options: Any) -> Any:
        calls.append(command)
        return send(command, *arguments, **options)

    monkeypatch.setattr(client, "send_command", counted)
    try:
        once(filled, mariadb)
        ours = [command for command in calls if "spark.job.description" in command]
        left = [context.getLocalProperty(f"spark.{name}") for name in ("job.description", "jobGroup.id")]
    finally:
        for name in ("job.description", "jobGroup.id", "job.interruptOnCancel"):
            context.setLocalProperty(f"spark.{name}", None)  # type: ignore[arg-type]  # None removes it
    assert left == ["what I do", "mine"]
    assert len(ours) == 3
