"""The status page of the real program: it shows what `status` says, beside rounds and on standby."""

from __future__ import annotations

import json
import urllib.request
from html import unescape
from pathlib import Path

import pytest

from tests.acceptance.test_ddl_verbs import run_arguments
from tests.acceptance.test_status import REFUSED, status
from tests.harness.program import Program, program
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, row, ts
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance]


def get(running: Program, path: str) -> str:
    """What the program answers."""
    address = running.wait_for("listening")["address"]
    with urllib.request.urlopen(f"http://{address}{path}", timeout=60) as answer:
        return unescape(answer.read().decode())


def test_page_beside_the_rounds(mariadb: DatabaseServer, tmp_path: Path) -> None:
    """A halted table is there with the command that `status` names; its page has its rows and the statement; a standby shows the same."""
    bucket = SmallBucket(root=tmp_path / "bucket")
    bucket.create("d.a", "d.b")
    bucket.rows("d.a", 1, row("d.a", 2, "1", '"one"'))
    bucket.schema("d.a", ts(4), REFUSED, 5)
    bucket.metadata(ts(6))
    (tmp_path / "changefeed.toml").write_text("[sink.csv]\ninclude-commit-ts = true\n", encoding="utf-8")
    arguments = [*run_arguments(bucket, mariadb), "--flush-interval", "200ms", "--metrics-listen", ":0"]
    with program(arguments, tmp_path / "log") as running:
        running.wait_for("round_finished", halted=1)
        wait_until("the halted table", lambda: "stopped" in get(running, "/"))
        _, said = status(mariadb)
        page = get(running, "/")
        for step in said["tables"][0]["next"]:
            assert step in page
        assert f"pid {running.process.pid}" in page
        shown = json.loads(get(running, "/status.json"))
        assert shown.keys() == said.keys()
        assert shown["tables"][0]["next"] == said["tables"][0]["next"]
        table = get(running, "/tables/d.a")
        for text in (REFUSED, "failed", "Row changes per minute over the last hour: 1 at last"):
            assert text in table
        with program(arguments, tmp_path / "standby.log") as standby:
            standby.wait_for("lease_waiting")
            other = get(standby, "/")
            for text in ("stopped", f"pid {running.process.pid}", "this process", "standby for"):
                assert text in other
