"""The rulers of the situations: what is replaced in outputs, and how pages are compared and written."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage_consumer.telemetry import tso_time
from tests.acceptance.situations.book import FOLDER, Book
from tests.acceptance.situations.normal import normal, tick, wrapped
from tests.acceptance.situations.watching import page_lines
from tests.harness.small_bucket import ts

BLOCK = "<!-- shown: status -->\n```text\nold\n```\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"at {ts(7)} ({tso_time(ts(7))})", f"at {tick(2)} (2026-11-23T10:00:20.000Z)"),
        (f"since {ts(1)} ({tso_time(ts(1))})", f"since {tick(0)} (2026-11-23T10:00:00.000Z)"),
        ("since 2027-01-01 11:12:13.5 UTC", "since 2026-11-23 10:00:00.000 UTC"),
        ("2m03s ago, 12s left", "3s ago, 3s left"),
        ("49m55s old, at most 5m is allowed", "45m00s old, at most 5m is allowed"),
        ("host vm, pid 99, since x", "host db1, pid 4711, since x"),
        ("storage_consumer_lag_seconds 2950.2", "storage_consumer_lag_seconds 2700.0"),
        ('storage_consumer_lag_seconds{table="a"} 12.5', 'storage_consumer_lag_seconds{table="a"} 3.0'),
        ("in /data/x/y", "in there"),
    ],
)
def test_what_is_replaced(text: str, shown: str) -> None:
    """Moments of the situation keep their order; all others, durations, processes and places are always the same."""
    assert normal(text, [ts(7), ts(4)], {"/data/x": "not", "/data/x/y": "there"}) == shown


def test_lines() -> None:
    """Long lines are continued below themselves, so that they fit the page; commands stay whole."""
    words = " ".join(["word"] * 40)
    lines = wrapped(f"  {words}", 60).splitlines()
    assert max(map(len, lines)) <= 60
    assert [line.startswith("    ") for line in lines] == [False, *[True] * (len(lines) - 1)]
    assert " ".join(map(str.strip, lines)) == words
    command = f"  next: storage-consumer table resume --table {'x' * 90}"
    assert wrapped(command, 60) == f"{command}\n"


def test_pages(tmp_path: Path) -> None:
    """A block that says something else is told, and so is one that nothing was seen of; writing makes the page right."""
    page = tmp_path / "a.md"
    page.write_text(f"# A\n\nText.\n\n{BLOCK}{BLOCK.replace('status', 'log')}", encoding="utf-8")
    for seen, stale in (({"status": "old\n"}, ["`log`"]), ({"status": "new\n", "log": "old\n"}, ["--- seen\nnew"])):
        book = Book(writes=False, folder=tmp_path)
        book.shows("a", seen)
        with pytest.raises(AssertionError) as told:
            book.close()
        assert all(text in str(told.value) for text in stale)
    Book(writes=True, folder=tmp_path).shows("a", {"status": "new\n", "page": "more\n"})
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# A\n\nText.\n")
    book = Book(writes=False, folder=tmp_path)
    book.shows("a", {"status": "new\n", "log": "old\n", "page": "more\n"})
    book.close()


def test_lines_of_a_page() -> None:
    """Hidden sections, other sections and reasons say nothing."""
    html = (
        '<section id="headline"><h1>✕ <b>stopped</b></h1></section><section id="stopped" hidden><p>no</p></section>'
        '<section id="waiting"><h2>Waiting</h2><p class="reason">no</p><p>at  now</p></section><section id="x"><p>no</p></section>'
    )
    assert page_lines(html) == ["✕ stopped", "Waiting", "at now"]


def test_every_page_is_in_the_list() -> None:
    """The list of situations leads to each page."""
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert [
        path.name for path in FOLDER.glob("*.md") if path.name != "README.md" and f"({path.name})" not in text
    ] == []
