"""The progress bar on terminals of any width, on real ptys."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from storage_consumer import telemetry
from storage_consumer.cli.progress import Bar, Reporter, progress_for
from storage_consumer.summary import RoundSummary, Silent
from tests.harness.terminal import Terminal, terminal

NOW = 1_700_000_000.0
BEHIND = int((NOW - 75) * 1000) << 18


def _bar(shown: Terminal) -> Bar:
    bar = Bar(stream=shown.stream, now=lambda: NOW, many_files=1, patience=0.0, every=0)
    bar.round_started(files=8000, size=10, storage_checkpoint=BEHIND)
    bar.advanced(files=4000, rows=1_234_567)
    return bar


@pytest.mark.parametrize("columns", [*range(1, 24), 30, 40, 50, 60, 72, 80, 100, 120, 200, 300])
def test_the_bar_is_one_line_of_any_width(columns: int) -> None:
    """It never wraps, also while a statement on a long name runs, and leaves nothing on the screen."""
    with terminal(columns) as shown:
        bar = _bar(shown)
        for _ in range(3):
            assert len(shown.show()) == 1
            bar.ddl(table=f"shop.{'表' * 64}", query="x")
            assert len(shown.show()) == 1
            bar.advanced(files=1000, rows=1)
            bar.tick()
        bar.round_finished(RoundSummary())
        assert shown.show() == [""]


@pytest.mark.parametrize(
    ("columns", "parts"),
    [
        (10, ["50%"]),
        (20, ["50% lag >1m15s"]),
        (30, ["50% 0s left, lag >1m15s"]),
        (60, ["50%|", "█", "| 0s left, lag >1m15s"]),
        (80, ["50%|", "█", "| 4000/8000 files [0s left, ", " rows/s, lag >1m15s]"]),
        (120, ["catching up:  50%|", "█", "| 4000/8000 files [0s<0s, 1,234,567 rows, ", " rows/s, lag >1m15s]"]),
    ],
)
def test_what_matters_most_is_shown_longest(columns: int, parts: list[str]) -> None:
    """The percentage, then the lag, then the time left, then the rest, as far as there is room."""
    with terminal(columns) as shown:
        bar = _bar(shown)
        (line,) = shown.show()
        bar.round_finished(RoundSummary())
    assert [part for part in parts if part not in line] == []


def test_a_wide_terminal_has_a_wide_bar() -> None:
    """All columns but the last are used."""
    for columns in (120, 300):
        with terminal(columns) as shown:
            bar = _bar(shown)
            (line,) = shown.show()
            bar.round_finished(RoundSummary())
            assert len(line) == columns - 1


def test_the_bar_follows_a_resize() -> None:
    """Narrower or wider, it stays one line, and nothing of the old one is left; a line of the log stands above it."""
    with terminal(120) as shown:
        bar = _bar(shown)
        for columns in (40, 100, 25, 300, 20):
            shown.show()
            shown.resize(columns)
            bar.tick()
            (line,) = shown.show()
            assert line.endswith("lag >1m15s" if columns < 90 else "lag >1m15s]")
            assert len(line) < columns
        shown.show()
        shown.resize(30)
        with telemetry._around_write():
            shown.stream.write("LINE\r\n")
        assert shown.show()[0] == "LINE"
        assert len(shown.show()) == 2
        shown.resize(20)
        bar.round_finished(RoundSummary())
        assert shown.show() == ["LINE"]


def test_a_terminal_without_a_size_is_taken_for_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or for as many as COLUMNS says."""
    for told, most in (("", 79), ("40", 39), ("many", 79)):
        monkeypatch.setenv("COLUMNS", told)
        with terminal(0) as shown:
            bar = _bar(shown)
            (line,) = shown.show()
            bar.round_finished(RoundSummary())
        assert most - 20 < len(line) <= most


def test_only_one_escape_sequence_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """No colours, whether NO_COLOR asks for that or not; a name in a statement cannot bring one in."""
    monkeypatch.setenv("NO_COLOR", "1")
    with terminal(80) as shown:
        bar = _bar(shown)
        shown.resize(100)
        bar.ddl(table="d.\x1b[31mred\x1b]0;title\x07", query="x")
        shown.show()
        assert "DDL on d.\\u001b[31mred" in shown.written
        assert shown.written.replace("\x1b[J", "").count("\x1b") == 0
        bar.round_finished(RoundSummary())


@pytest.mark.parametrize(("term", "kind"), [("xterm", Bar), ("dumb", Silent), (None, Silent)])
def test_a_terminal_that_can_nothing_gets_no_bar(term: str | None, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """By TERM, as other programs go by it."""
    monkeypatch.delenv("TERM", raising=False)
    if term:
        monkeypatch.setenv("TERM", term)
    with terminal(80) as shown:
        assert isinstance(progress_for(wanted=True, stream=shown.stream), kind)


def test_a_terminal_that_is_gone_ends_the_bar_only(caplog: pytest.LogCaptureFixture) -> None:
    """Writes to it fail from then on; rounds go on, with their lines in the log."""
    caplog.set_level("INFO", logger="storage_consumer")
    with Path(os.devnull).open("w", encoding="utf-8") as rest, terminal(80) as shown:
        bar = _bar(shown)
        # A descriptor that takes no writes any more, as that of a terminal after its end.
        dead = os.open(os.devnull, os.O_RDONLY)
        os.dup2(dead, shown.stream.fileno())
        os.close(dead)
        reporter = Reporter(bar)

        def work() -> None:
            reporter.round_started(files=9, size=1, storage_checkpoint=BEHIND)
            reporter.advanced(files=1, rows=1)
            reporter.ddl(table="a.b", query="x")
            bar.tick()
            with telemetry._around_write():
                rest.write("LINE\n")
            reporter.round_finished(RoundSummary(rows=1))

        work()
        work()
        # No lock is left behind that another thread would wait for.
        other = threading.Thread(target=work, daemon=True)
        other.start()
        other.join(10)
        assert not other.is_alive()
        os.dup2(rest.fileno(), shown.stream.fileno())
    assert [message.split()[0] for message in caplog.messages] == ["round_finished"] * 3
