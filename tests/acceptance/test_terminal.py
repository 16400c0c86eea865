"""``run`` on a terminal."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.harness.program import ROOT, run_arguments
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, row, ts
from tests.harness.terminal import terminal

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance]

_BAR = re.compile(r"\d% [█ ]*lag ")


@pytest.mark.parametrize(("term", "shown"), [("xterm", True), ("dumb", False)])
def test_the_bar_leaves_only_lines(
    mariadb: DatabaseServer,
    tmp_path: Path,
    term: str,
    shown: bool,  # noqa: FBT001 - a variant
) -> None:
    """A backlog shows its bar beside the log, within the width; at the end only lines of the log are left. A dumb terminal has none."""
    bucket = SmallBucket(root=tmp_path / "bucket")
    bucket.create("d.t")
    for number in range(1, 61):
        bucket.rows("d.t", number, row("d.t", 1 + number, str(number), '"x"'))
    bucket.metadata(ts(100))
    words = [sys.executable, "-m", "storage_consumer", "run", *run_arguments(bucket, mariadb), "--once"]
    with terminal(60) as screen:
        process = subprocess.Popen(words, cwd=ROOT, env={**os.environ, "TERM": term}, stderr=screen.stream)
        try:
            deadline = time.monotonic() + 120
            while process.poll() is None and time.monotonic() < deadline:
                screen.show()
            assert process.wait(1) == 0
        finally:
            process.kill()
        lines = screen.show()
    assert bool(_BAR.search(screen.written)) == shown
    assert [line for line in lines if _BAR.search(line)] == []
    assert lines[-1].endswith("exit_code=0 reason=done") or "stopped exit_code=0 reason=done" in "".join(lines[-2:])
