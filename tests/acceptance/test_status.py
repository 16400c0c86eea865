"""``storage-consumer status`` beside a program that works, has stopped tables, and is gone."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.harness.program import ROOT, command, program, run_arguments
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance]
NONE: dict[str, Any] = {"totals": {"rounds": 0}}
REFUSED = "ALTER TABLE `a` ADD COLUMN `note` VARCHAR(20) AFTER `nowhere`"


def status(server: DatabaseServer, *words: str) -> tuple[int, dict[str, Any]]:
    """Exit code and document of `status`."""
    done = command("status", "--json", *words, server=server)
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


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
