"""``storage-consumer doctor`` as a process of its own; the page shows what it prints."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from storage_consumer.operating.checks import CHECKS
from tests.contract.doctor_rigs import now_ts
from tests.harness.pages import blocks
from tests.harness.program import ROOT
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, row

pytestmark = [pytest.mark.server, pytest.mark.acceptance]


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """The options of a bucket with one table."""
    found = SmallBucket(root=tmp_path / "bucket")
    found.create("shop.orders")
    found.rows("shop.orders", 1, row("shop.orders", 2, "1", '"one"'))
    found.metadata(now_ts())
    (tmp_path / "changefeed.toml").write_text("[sink.csv]\ninclude-commit-ts = true\n", encoding="utf-8")
    return ["--upstream-uri", found.uri, "--config", str(tmp_path / "changefeed.toml"), "--tz", "UTC"]


def doctor(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The command."""
    return subprocess.run(
        [sys.executable, "-m", "storage_consumer", "doctor", *words],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "160", **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def as_on_the_page(text: str, port: int) -> str:
    """An output with the names that the page has instead of this machine's."""
    text = text.replace(f"127.0.0.1:{port}", "db.example.com:3306")
    return re.sub(r"MariaDB-\S+", "MariaDB", text)


def test_the_page_shows_what_is_printed(mariadb: DatabaseServer, words: list[str]) -> None:
    """What the page's example shows is in the output, in the same order; the statements mend what they stand for."""
    mariadb.query("CREATE USER app@'%'")
    mariadb.query("GRANT ALL ON `storage\\_consumer`.* TO app@'%'")
    target = ["--downstream-uri", f"mysql://app@127.0.0.1:{mariadb.port}/"]
    before = mariadb.query("SELECT @@GLOBAL.max_allowed_packet")[0][0]
    mariadb.query("SET GLOBAL max_allowed_packet = 1048576")
    try:
        done = doctor(*words, *target)
        assert (done.returncode, done.stderr) == (4, "")
        (example,) = [each for each in blocks("text") if each.page == "docs/operations/doctor.md"]
        # Where there is no terminal nothing is broken into lines.
        printed = " ".join(as_on_the_page(done.stdout, mariadb.port).split())
        shown = [" ".join(part.split()) for part in example.text.split("…")]
        assert [part for part in shown if part not in printed] == []
        assert shown == sorted(shown, key=printed.find)
        for statement in re.findall(r"^ +((?:GRANT|SET) .*);$", done.stdout, re.MULTILINE):
            mariadb.query(statement)
        assert doctor(*words, *target).returncode == 0
    finally:
        mariadb.query(f"SET GLOBAL max_allowed_packet = {before}")


def test_other_command_lines(mariadb: DatabaseServer, words: list[str]) -> None:
    """A group alone, a bucket alone and a document; wrong words end with 2, and what does not answer is no traceback."""
    target = ["--downstream-uri", mariadb.uri]
    document = json.loads(doctor("--json", *words, *target).stdout)
    assert [each["check"] for each in document["findings"]] == [*CHECKS]
    assert document["verdict"] == "ok", [each for each in document["findings"] if each["verdict"] != "ok"]
    state = doctor("--only", "state", *target)
    assert (state.returncode, state.stdout.splitlines()[0], "bucket-" in state.stdout) == (0, "state", False)
    assert doctor("--only", "bucket", *words).returncode == 0
    assert doctor().returncode == 2
    assert doctor("--only", "disk", *target).returncode == 2
    silent = doctor("--only", "target", "--downstream-uri", "mysql://root@127.0.0.1:1/")
    assert (silent.returncode, silent.stderr, "FAIL  target-reachable" in silent.stdout) == (4, "", True)


def test_without_java(mariadb: DatabaseServer, words: list[str]) -> None:
    """A machine without Java is told so, in a second or two, before anything is started."""
    done = doctor("--only", "spark", *words, "--downstream-uri", mariadb.uri, JAVA_HOME="/nowhere", PATH="/nowhere")
    assert (done.returncode, "FAIL  spark-java" in done.stdout) == (4, True)
