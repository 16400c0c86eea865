"""Prometheus' own tool on what this repository gives it: rules, configuration, and a scrape."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest

from storage_consumer.config.settings import Monitoring
from storage_consumer.summary import RoundSummary, TableSummary
from storage_consumer.watch.collector import MetricSources, Showing, processes
from storage_consumer.watch.http_server import Request
from storage_consumer.watch.recorder import Recorder
from tests.harness.program import ROOT
from tests.harness.twins.storage import FakeClock

pytestmark = pytest.mark.slow
_KEPT = Path.home() / ".cache" / "storage-consumer" / "prometheus"


def promtool(*words: str, given: bytes = b"", fails: str = "") -> str:
    """Run promtool; return what it says if it is content, or what it says with these words against something."""
    folder = Path(os.environ.get("STORAGE_CONSUMER_PROMETHEUS", str(_KEPT)))
    program = shutil.which("promtool") or str(folder / "usr" / "bin" / "promtool")
    done = subprocess.run([program, *words], input=given, capture_output=True, cwd=ROOT, check=False)
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == 0 or (fails and fails in said), said
    return said


def test_rules() -> None:
    """The example configuration is right, and each rule fires when it should and not else."""
    assert "SUCCESS" in promtool("check", "config", "conf/prometheus/prometheus.yml")
    assert "SUCCESS" in promtool("test", "rules", "conf/prometheus/alerts_test.yml")


def test_a_scrape_has_nothing_to_complain_of() -> None:
    """`promtool check metrics` finds neither a wrong name nor a missing meaning."""
    recorder = Recorder(FakeClock(), "1.2")
    recorder.round_started(files=1, size=1, storage_checkpoint=1 << 60)
    table = TableSummary(table="d.a", rows=1, checkpoint=1 << 60, state="halted", error="why")
    recorder.round_finished(RoundSummary(checkpoint=1 << 60, checkpoint_running=1 << 60, tables=(table,)))
    sources = MetricSources(
        facts=recorder.facts,
        is_writer=lambda: True,
        statements=lambda: (),
        processes=partial(processes, 3306),
        silent_seconds=lambda: None,
        expiration_days=1,
    )
    body = Showing(Monitoring(), sources).metrics(Request(query={})).body
    assert promtool("check", "metrics", given=body) == ""
