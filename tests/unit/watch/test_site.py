"""What the status page answers, as a browser without JavaScript gets it."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from http import HTTPStatus

import pytest

from storage_consumer.errors import TargetUnavailable
from storage_consumer.model import DdlId, TableName
from storage_consumer.plan.table_state import STOPPED as STOPPED_STATES
from storage_consumer.plan.table_state import TableState
from storage_consumer.telemetry import forget_secrets, register_secret
from storage_consumer.watch.http_server import Request
from storage_consumer.watch.page import Look
from storage_consumer.watch.recorder import TableRows
from storage_consumer.watch.report import Phase, ShownEntry, StoredStatement, Table, Totals, Work
from tests.unit.watch.feeds import Feed
from tests.unit.watch.test_status import DONE, NOW, SKIP, at, report, snapshot, table

HOSTILE = "<script>alert('x')</script>\"'&\u202e\x1b[2J\x00"
STOPPED = f"the target refused it. Next steps: if you ran it manually: {DONE} -- to skip it: {SKIP}"


class Elements(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        """Read a page."""
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self._hidden = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Remember an element."""
        self._hidden = tag in ("script", "style")
        self.text += " "
        self.found.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        """Remember its text, if it is shown."""
        if not self._hidden:
            self.text += data

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002 - the parser asks for it
        """Leave an element."""
        self._hidden = False

    def all(self, tag: str) -> Iterator[dict[str, str]]:
        """Yield the attributes of all elements of a kind."""
        return (attributes for name, attributes in self.found if name == tag)


@pytest.fixture
def feed() -> Feed:
    """A feed with a table of each kind, in the middle of a round."""
    work = Work(seconds=10, files=400, bytes=1 << 30, files_done=100, rows=98_000)
    said = report(
        Phase.APPLYING,
        work=work,
        rows_per_second=9_800.0,
        waiting={"d.late": "a file is missing"},
        skipped={"duplicates": 4},
        pending_files=12,
        last_round_at=NOW - 5,
    )
    failed = StoredStatement(
        identity=DdlId("d/a", at(60), 1), name=TableName(schema="d", table="a"), state="failed", query="ALTER TABLE a"
    )
    tables = (table("a", "halted", error=STOPPED, checkpoint=at(3600)), table("b"), table("late"))
    return Feed(snapshot(*tables, checkpoint=at(3600), report=said, statements=(failed,)))


def test_overview(feed: Feed) -> None:
    """The one word, why, who writes, how far the round is, what stopped with its commands, what waits, and all tables."""
    shown = " ".join(Elements(feed.get()).text.split())
    for text in (
        "✕ stopped 1 of 3 tables halted; the others go on",
        "writer host h, pid 1",
        "applying for 12s: 100 of 400 files (1.0 GiB), 98,000 rows, 9,800 rows/s, 30s left 100 of 400 files",
        ", 1h00m ago running tables",
        "target h:3306 (mariadb 10.11)",
        "version 1",
        "pending 12 files",
        "skipped 4 duplicates",
        f"the target refused it. if you ran it manually: {DONE} to skip it: {SKIP}",
        "waiting d.late",
        "a file is missing",
        "failed d.a",
        "all halted 1 waiting 1 running 1",
        "3 tables",
    ):
        assert text in shown


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({}, "✓ healthy"),
        ({"writer": ""}, "✕ no-writer"),
        (
            {"report": report(Phase.RETRYING, retry="no route")},
            "! retrying the writer has been retrying for 12s: no route",
        ),
    ],
)
def test_headline(more: dict[str, object], word: str) -> None:
    """The first thing on the page is the word, told by a sign too, and what is odd."""
    page = Elements(Feed(snapshot(table("b"), **more)).get())
    assert word in " ".join(page.text.split())


@pytest.mark.parametrize(("route", "below"), [("/", ""), ("/tables/", "d.a"), ("/tables/", "d.none")])
def test_self_contained(feed: Feed, route: str, below: str) -> None:
    """A page names no other host, loads nothing, has no inline event or style, and its policy names its own two digests."""
    status, text = feed.answer(route, below)
    page = Elements(text)
    for _, attributes in page.found:
        assert not {"src", "style", "srcset"} & attributes.keys()
        assert not any(name.startswith("on") for name in attributes)
        for name in ("href", "action"):
            assert not re.match(r"(?i)[a-z+.-]*:?//|javascript:", attributes.get(name, ""))
    assert re.findall(r"@import|url\(", text) == []
    found = feed.site.routes()[route](Request(query={}, below=below))
    policy = found.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert status == (HTTPStatus.NOT_FOUND if below == "d.none" else HTTPStatus.OK)


def test_ids_are_unique(feed: Feed) -> None:
    """No two elements have one id, and each label and description that is named exists."""
    for route, below in (("/", ""), ("/tables/", "d.a"), ("/tables/", "d.b")):
        feed.table_minutes = {int(NOW) // 60: 1}
        page = Elements(feed.get(route, below))
        ids = [attributes["id"] for _, attributes in page.found if "id" in attributes]
        assert len(ids) == len(set(ids))
        named = [attributes.get("aria-labelledby", "") for _, attributes in page.found]
        assert {name for text in named for name in text.split()} <= set(ids)


def test_hostile_texts() -> None:
    """Names, errors and statements cannot leave their place, run, hide anything or change the direction of others."""
    name = TableName(schema="d", table=HOSTILE)
    found = snapshot(
        Table(name=name, state="halted", checkpoint=at(9), error=HOSTILE, decision="pause", decided_by=HOSTILE),
        upstream=HOSTILE,
        writer=HOSTILE,
        statements=(
            StoredStatement(identity=DdlId("d/x", 7, 1), name=name, state="failed", query=HOSTILE, note=HOSTILE),
        ),
        report=report(waiting={HOSTILE: HOSTILE}, skipped={HOSTILE: 1}, retry=HOSTILE),
    )
    feed = Feed(found)
    feed.journal = (ShownEntry(version=7, state=HOSTILE, query=HOSTILE, statement=HOSTILE + " ", note=HOSTILE),)
    pages = [
        feed.get(),
        feed.get(q=HOSTILE, state=HOSTILE, sort=HOSTILE),
        feed.get("/tables/", str(name)),
        feed.answer("/tables/", HOSTILE)[1],
    ]
    for text in pages:
        assert text.count("<script") == 1
        assert not re.search("[\x00-\x09\x0b-\x1f\u202a-\u202e]", text)
        assert "alert(" in html.unescape(text)
        assert "\\u202e" in text


def test_secrets() -> None:
    """A secret is blanked wherever it stands, also across the place where a text is cut."""
    secret = "s3cr3t<&'x" * 3
    padding = "x" * 295
    try:
        register_secret(secret)
        feed = Feed(
            snapshot(
                table("a", "halted", error=f"{padding}{secret}"),
                upstream=f"s3://k:{secret}@b/",
                statements=(
                    StoredStatement(
                        identity=DdlId("d/a", 7, 1),
                        name=TableName(schema="d", table="a"),
                        state="failed",
                        query=padding + secret,
                    ),
                ),
            )
        )
        feed.journal = (ShownEntry(version=7, state="done", query=f"SET PASSWORD = '{secret}'"),)
        for text in (feed.get(q=secret), feed.get("/tables/", "d.a"), feed.get("/status.json")):
            assert "s3cr3t" not in html.unescape(text)
    finally:
        forget_secrets()


def test_filter_sort_and_pages() -> None:
    """Links carry the whole choice; the heading that sorts says so, and turns the order round."""
    feed = Feed(
        snapshot(*(table(f"orders_{n:04}", checkpoint=at(n), follows=False) for n in range(401)), table("other"))
    )
    page = Elements(feed.get(q="orders", sort="lag", desc="1", page="2"))
    links = {each["id"]: each["href"] for each in page.all("a") if "id" in each}
    assert links["sort-lag"] == "?q=orders&sort=lag#tables"
    assert links["sort-table"] == "?q=orders&sort=table#tables"
    assert links["page-next"] == "?q=orders&sort=lag&desc=1&page=3#tables"
    assert links["state-running"] == "?state=running&q=orders&sort=lag&desc=1#tables"
    assert [each["aria-sort"] for each in page.all("th") if "aria-sort" in each] == ["descending"]
    shown = [each["href"] for each in page.all("a") if each["href"].startswith("tables/")]
    assert shown == [f"tables/d.orders_{n:04}" for n in range(200, 0, -1)]
    assert "401 tables, 201 to 400 shown" in page.text


def test_rows_and_rates(feed: Feed) -> None:
    """Each table has its row changes since the process started, and how many there were a second; blank where that is not known."""
    feed.table_rows = {"d.b": TableRows(rows=12_345, per_second=1500.0), "d.late": TableRows(rows=7, per_second=None)}
    cells = re.findall(r'<td class="figure" data-label="rows(/s)?">([^<]*)</td>', feed.get(sort="table"))
    assert cells == [("", ""), ("/s", ""), ("", "12,345"), ("/s", "1.5k"), ("", "7"), ("/s", "")]


def test_reload_without_javascript(feed: Feed) -> None:
    """A browser without JavaScript loads the page again only if its user has asked for that."""
    assert 'http-equiv="refresh"' not in feed.get()
    assert '<noscript><meta http-equiv="refresh" content="10"></noscript>' in feed.get(reload="1")


def test_one_table(feed: Feed) -> None:
    """Its state, checkpoint, reason, commands, rows per minute where known, and its statements with what ran instead."""
    feed.journal = (
        ShownEntry(
            version=at(60),
            state="failed",
            query="ALTER a",
            statement="ALTER b",
            note="1054",
            seconds=0.25,
            ended_ago=65.0,
        ),
    )
    text = " ".join(Elements(feed.get("/tables/", "d.a")).text.split())
    assert "nothing is known" not in text
    assert "Row changes per minute" not in text
    feed.table_minutes = {int(NOW) // 60: 7}
    text = " ".join(Elements(feed.get("/tables/", "d.a")).text.split())
    for part in (
        "d.a halted",
        ", 1h00m ago",
        "on its own",
        DONE,
        "failed 1m05s ago, took 0.250s",
        "ALTER a ran here as: ALTER b",
    ):
        assert part in text
    assert "Row changes per minute over the last 1h00m: 7 at last" in text
    assert "storage-consumer table pause --table d.b" in feed.get("/tables/", "d.b")


@pytest.mark.parametrize("state", list(TableState))
def test_each_state(state: TableState) -> None:
    """A table in any state has its place on the page, its own page, and its state in words; a stopped one stands among the stopped."""
    since = "by ada on db1 since 2026-11-23 10:00:00 UTC"
    error = {TableState.PAUSED: f"paused {since}", TableState.SKIPPED: f"skipped {since}"}.get(state, "")
    stored = {TableState.PAUSED: "halted", TableState.SKIPPED: "excluded", TableState.WAITING: "running"}.get(
        state, state
    )
    waiting = {"d.a": "a file"} if state == TableState.WAITING else {}
    refused = table("a", stored, error=error, decision="resume", refusal="no", obeyed=True)
    feed = Feed(snapshot(refused, report=report(waiting=waiting)))
    text = feed.get()
    assert f'<span class="state {state}">' in text + feed.get(state=state)
    stopped = text.partition('id="waiting"')[0]
    assert ("d.a" in stopped) == (state in STOPPED_STATES)
    assert state in feed.get("/tables/", "d.a")


def test_unknown_table(feed: Feed) -> None:
    """It is not found, and the nearest name is given."""
    status, text = feed.answer("/tables/", "d.lat")
    assert (status, "did you mean `d.late`?" in html.unescape(text)) == (HTTPStatus.NOT_FOUND, True)


def test_document(feed: Feed) -> None:
    """``status.json`` is the document of the command `status`."""
    found = json.loads(feed.get("/status.json"))
    assert (found["health"], found["tables"][0]["next"], found["checkpoint"]["lag"]) == ("stopped", [DONE, SKIP], 3600)


def test_own_report_is_newer(feed: Feed) -> None:
    """The writer's own page shows what it does now, not what it stored some seconds ago; another process is shown beside it."""
    assert "applying for 12s" in feed.get()
    assert "this process" in feed.get()
    feed.process = replace(report(Phase.RETRYING, retry="no route"), phase_seconds=2.0)
    feed.clock.advance(2)
    text = feed.get()
    assert "retrying for 2s" in text
    assert "this process" not in text


def test_target_that_is_down(feed: Feed) -> None:
    """The page stays: the word is unknown, what was seen last is shown with its age, and what the process knows stands beside it."""

    def refuse() -> Look:
        raise TargetUnavailable("cannot connect to h:1")

    feed.process = report(Phase.RETRYING, retry="cannot connect", totals=Totals(rounds=7, rows=5))
    seen, feed.look = feed.look, refuse
    first = " ".join(Elements(feed.get()).text.split())
    assert "? unknown cannot connect to h:1" in first
    assert "this process retrying for 12s: cannot connect its rounds 7, with 5 row changes" in first
    assert feed.answer("/status.json")[0] == HTTPStatus.SERVICE_UNAVAILABLE
    assert "unknown" in feed.get("/tables/", "d.a")
    feed.clock.advance(2)
    feed.look = seen
    assert "stopped" in feed.get()
    feed.look = refuse
    feed.clock.advance(60)
    down = " ".join(Elements(feed.get()).text.split())
    assert "? unknown the state could not be read for 1m00s; this is what was seen before that (stopped)" in down
    assert ", 1h01m ago" in down
    status, told = feed.answer("/status.json")
    assert (status, json.loads(told)["health"]) == (HTTPStatus.OK, "unknown")
    feed.look = seen
    assert "this process retrying for 12s" in down
