"""The status page of the real program: it shows what `status` says, beside rounds and on standby, and nothing of that once it is old."""

from __future__ import annotations

import json
import re
import signal
import urllib.request
from html import unescape
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.test_status import REFUSED, status
from tests.harness.browser import chromium
from tests.harness.program import Program, command, program, run_arguments
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, row, ts
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance]
_AGE = re.compile(r"\b(\d+[dhms])+( ago)?")
"""What differs between two looks a second apart."""


def get(running: Program, path: str) -> str:
    """What the program answers."""
    address = running.wait_for("listening")["address"]
    with urllib.request.urlopen(f"http://{address}{path}", timeout=60) as answer:
        return unescape(answer.read().decode())


def facts_of(page: Page) -> dict[str, str]:
    """Label → text of what the page says of a feed, without ages."""
    rows = page.locator("#facts .facts div").all_inner_texts()
    return {label: _AGE.sub("-", " ".join(text.split())) for label, _, text in (row.partition("\n") for row in rows)}


def facts_of_command(text: str) -> dict[str, str]:
    """The same of what `status` prints."""
    found = {}
    for line in text.split("\n\n", maxsplit=1)[0].splitlines():
        if known := re.fullmatch(r"  ([a-z ]{10})  (\S.*)", line):
            found[known[1].strip() or "running tables"] = _AGE.sub("-", known[2])
    return found


def test_page_document_and_command_agree(mariadb: DatabaseServer, tmp_path: Path) -> None:
    """Every field that two of them show is the same in both; the page says by word and colour that it is old, once nothing renews it."""
    bucket = SmallBucket(root=tmp_path / "bucket")
    bucket.create("d.a", "d.b")
    for table in ("d.a", "d.b"):
        bucket.rows(table, 1, row(table, 2, "1", '"one"'), row(table, 2, "2", '"two"'))
    bucket.schema("d.a", ts(4), REFUSED, 5)
    bucket.metadata(ts(6))
    arguments = [*run_arguments(bucket, mariadb), "--flush-interval", "1h", "--metrics-listen", ":0"]
    with chromium() as browser, program(arguments, tmp_path / "log") as running:
        running.wait_for("round_finished", halted=1)
        wait_until("the report of the round", lambda: (status(mariadb)[1]["report"] or {}).get("last_round_at"))
        page = browser.new_page(viewport={"width": 400, "height": 800})
        page.goto(f"http://{running.wait_for('listening')['address']}/")
        shown, document = facts_of(page), json.loads(get(running, "/status.json"))
        _, said = status(mariadb)
        text = command("status", server=mariadb).stdout
        assert shown == facts_of_command(text)
        word = page.locator("#headline h1").inner_text().split()[-1]
        assert word == document["health"] == said["health"] == text.partition(":")[0] == "stopped"
        reasons = page.locator("#headline li").all_inner_texts()
        assert reasons == document["reasons"] == said["reasons"]
        same = (
            "target",
            "bucket",
            "writer",
            "checkpoint",
            "checkpoint_running",
            "storage_checkpoint",
            "tables_by_state",
        )
        for key in (*same, "tables", "statements", "needed"):
            assert _AGE.sub("-", _without_lags(document[key])) == _AGE.sub("-", _without_lags(said[key])), key
        assert shown["target"] == f"127.0.0.1:{mariadb.port} ({said['target']['server']})"
        assert said["target"] == {
            "address": f"127.0.0.1:{mariadb.port}",
            "server": f"mariadb {mariadb.query('SELECT VERSION()')[0][0]}",
        }
        assert shown["version"] == said["report"]["version"]
        for label, key in (
            ("checkpoint", "checkpoint"),
            ("running tables", "checkpoint_running"),
            ("at source", "storage_checkpoint"),
        ):
            assert shown[label].startswith(f"{said[key]['ts']} ({said[key]['time']}), -")
        assert shown["tables"] == ", ".join(f"{count} {state}" for state, count in said["tables_by_state"].items())
        rows = {line.split()[0]: line.split() for line in page.locator("#list tbody tr").all_inner_texts()}
        assert (rows["d.b"][1], rows["d.b"][3]) == ("running", "2")
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
        # Its plots begin with the feed.
        expect(page.locator("#plot-lag .said")).to_contain_text(re.compile(r"over the last \d?m?\d\d?s: "))
        running.signal(signal.SIGTERM)
        running.end()
        # The last look may be one after the lease was given up.
        last = re.compile(r"\? unknown, was (stopped|no-writer)$")
        expect(page.locator("#headline h1")).to_have_text(last, timeout=30_000)
        expect(page.locator("#lost")).to_contain_text("The program has not answered")
        assert page.title().startswith("unknown · ")


def _without_lags(value: object) -> str:
    return re.sub(r'"lag": [\d.]+', "", json.dumps(value))
