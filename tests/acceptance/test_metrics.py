"""Metrics and probes of the program as a process of its own: while it applies, stops a table, stands by, and cannot listen."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.harness.program import ROOT, Program, program, run_arguments
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, row, ts
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance]


def address_of(running: Program) -> str:
    """Where a program answers, by its log."""
    return f"http://{running.wait_for('listening')['address']}"


def answer(address: str) -> tuple[int, str]:
    """Status and text of an answer."""
    try:
        with urllib.request.urlopen(address, timeout=10) as response:  # noqa: S310 - http on loopback
            return response.status, response.read().decode()
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read().decode()


def scraped(address: str) -> dict[tuple[str, str], float]:
    """(Name without prefix, value of the label) → value."""
    code, text = answer(f"{address}/metrics")
    assert code == 200
    return _samples(text)


def _samples(text: str) -> dict[tuple[str, str], float]:
    return {
        (sample.name.removeprefix("storage_consumer_"), next(iter(sample.labels.values()), "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_bucket_is_applied_and_a_table_halts(mariadb: DatabaseServer, bucket: SmallBucket, tmp_path: Path) -> None:
    """Probes answer before the first round; then rows, checkpoints, processes and a halt with its kind show in a scrape."""
    textfile = tmp_path / "feed.prom"
    arguments = [
        *run_arguments(bucket, mariadb),
        *("--flush-interval", "200ms", "--metrics-listen", "127.0.0.1:0", "--metrics-textfile", str(textfile)),
    ]
    with program(arguments, tmp_path / "log") as running:
        address = address_of(running)
        assert answer(f"{address}/healthz")[0] == 200
        code, reason = answer(f"{address}/readyz")
        assert (code, reason.startswith(("not the writer yet", "no round has ended yet"))) == (503, True)
        assert scraped(address)["rounds_total", ""] == 0
        running.wait_for("round_finished", checkpoint=ts(3))
        assert answer(f"{address}/readyz") == (200, "ready\n")
        found = scraped(address)
        assert (found["rows_read_total", ""], found["rows_written_total", ""], found["writer", ""]) == (2, 2, 1)
        assert found["table_rows_total", "d.a"] == 1
        assert found["checkpoint_timestamp_seconds", ""] == found["source_checkpoint_timestamp_seconds", ""]
        assert found["tables", "halted"] == 0
        # Looked up every few seconds, so the first scrape may have kept what there was before Java started.
        wait_until("Java's memory in a scrape", lambda: ("memory_bytes", "jvm") in scraped(address))
        found = scraped(address)
        assert min(found["memory_bytes", kind] for kind in ("driver", "jvm")) > 10 << 20
        assert found["target_connections", ""] >= 1
        # A row that the target cannot take: it is longer than its column.
        bucket.rows("d.a", 2, row("d.a", 4, "2", json.dumps("x" * 5000)))
        bucket.metadata(ts(5))
        running.wait_for("table_halted", table="d.a", kind="row")
        wait_until("the halt in a scrape", lambda: scraped(address)["tables", "halted"] == 1)
        found = scraped(address)
        assert (found["table_halts_total", "row"], found["table_halted", "d.a"]) == (1, 1)
        assert found["lag_seconds", ""] > found["running_lag_seconds", ""]
        assert answer(f"{address}/healthz")[0] == 200
        running.signal(signal.SIGTERM)
        assert running.end() == 4
    last = _samples(textfile.read_text(encoding="utf-8"))
    assert (last["tables", "halted"], last["rows_written_total", ""]) == (1, 2)


def test_a_standby_says_so_and_is_ready_once_it_takes_over(
    mariadb: DatabaseServer, bucket: SmallBucket, tmp_path: Path
) -> None:
    """Both are alive; only the writer is ready, and after its end the other one."""
    arguments = [
        *run_arguments(bucket, mariadb),
        *("--flush-interval", "200ms", "--lease-ttl", "3s", "--metrics-listen", "127.0.0.1:0"),
    ]
    with program(arguments, tmp_path / "standby.log") as second:
        # The first to have the lease is the one that starts first; the other waits.
        second.wait_for("round_finished", checkpoint=ts(3))
        with program(arguments, tmp_path / "log") as first:
            address = address_of(first)
            first.wait_for("lease_waiting")
            ((epoch,),) = mariadb.query("SELECT epoch FROM storage_consumer.lease")
            assert answer(f"{address}/healthz") == (200, "alive: standby\n")
            assert answer(f"{address}/readyz") == (503, "standby: another process is the writer\n")
            assert scraped(address)["writer", ""] == 0
            second.kill()
            first.wait_for("round_finished", checkpoint=ts(3))
            assert answer(f"{address}/readyz") == (200, "ready\n")
            found = scraped(address)
            assert found["writer", ""] == 1
            assert found["lease_epoch", ""] > epoch


def test_a_lag_beyond_the_limit_is_not_ready(mariadb: DatabaseServer, bucket: SmallBucket, tmp_path: Path) -> None:
    """The bucket of the test is years old: with --ready-lag the writer is alive, and never ready."""
    arguments = [*run_arguments(bucket, mariadb), "--metrics-listen", "127.0.0.1:0", "--ready-lag", "60s"]
    with program(arguments, tmp_path / "log") as running:
        address = address_of(running)
        running.wait_for("round_finished", checkpoint=ts(3))
        code, reason = answer(f"{address}/readyz")
        assert (code, "more than 60 s" in reason) == (503, True)


def test_a_port_that_is_taken_ends_the_program_before_anything_is_touched(
    mariadb: DatabaseServer, bucket: SmallBucket
) -> None:
    """Exit code 2, and a message that names the option, the address and the way on."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "storage_consumer",
                "run",
                *run_arguments(bucket, mariadb),
                f"--metrics-listen=:{port}",
            ],
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
        )
    assert done.returncode == 2
    assert (
        f"--metrics-listen 127.0.0.1:{port}: nothing can listen there: Address already in use"
        in done.stdout + done.stderr
    )
    assert mariadb.query("SHOW DATABASES LIKE 'storage_consumer'") == ()
