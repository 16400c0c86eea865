"""The examples of the page about Python, each as a program of its own, and typed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.pages import ROOT, blocks
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, row, ts

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance]
EXAMPLES = [block.text for block in blocks("python") if block.page == "docs/guide/python.md"]


def here(example: str, bucket: SmallBucket, target: str) -> str:
    """An example with this bucket and target in the place of its own."""
    return example.replace("file:///bucket?protocol=csv", bucket.uri).replace("mysql://root@127.0.0.1:3306/", target)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example(number: int, mariadb: DatabaseServer, tmp_path: Path) -> None:
    """It runs without an error, from a folder that holds the changefeed's file; what waits in the bucket is applied."""
    bucket = SmallBucket(root=tmp_path / "bucket")
    bucket.create("d.t")
    bucket.rows("d.t", 1, row("d.t", 2, "1", '"one"'))
    bucket.metadata(ts(3))
    (tmp_path / "changefeed.toml").write_text("[sink.csv]\ninclude-commit-ts = true\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", here(EXAMPLES[number], bucket, mariadb.uri)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    if "read_changes" in EXAMPLES[number]:
        assert done.stdout.splitlines()[0].startswith("['id', 'name', '_change_type'")
        return
    # The last one is asked to end as soon as it has begun.
    if "threading" not in EXAMPLES[number]:
        assert mariadb.query("SELECT * FROM d.t") == ((1, "one"),)
        assert ("d.t" in done.stdout) == ("plan()" in EXAMPLES[number])


def test_there_are_examples() -> None:
    """The page has some of each kind."""
    assert [word in " ".join(EXAMPLES) for word in ("run_once", "plan()", "status(", "run(stop)", "read_changes(")] == [
        True
    ] * 5
