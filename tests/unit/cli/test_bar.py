"""The progress bar on terminals of any width, on real ptys."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from storage_consumer import telemetry
from storage_consumer.cli.progress import MANY, PATIENCE, Bar, RoundLog, bar_on
from storage_consumer.monitoring.recorder import Recorder
from storage_consumer.summary import RoundSummary, RunningStatement
from tests.harness.terminal import Terminal, terminal
from tests.harness.twins.storage import FakeClock

NOW = 1_700_000_000.0
BEHIND = int((NOW - 75) * 1000) << 18


class Shown:
    """A bar on a terminal, and what it shows."""

    def __init__(self, stream: TextIO, files: int = 8000, statements: int = 0) -> None:
        """A round begins."""
        self.clock = FakeClock(NOW)
        self.recorder = Recorder(self.clock, "")
        self.running: tuple[RunningStatement, ...] = ()
        self.bar = Bar(stream, self.recorder, self.clock, lambda: self.running)
        self.recorder.observers = (lambda _: self.bar.tick(),)
        self.begin(files, statements)

    def begin(self, files: int, statements: int = 0) -> None:
        """Begin a round."""
        self.recorder.round_started(files=files, size=10, storage_checkpoint=BEHIND, statements=statements)

    def advance(self, seconds: float = 0, **done: int) -> None:
        """Let something be done, and look."""
        self.clock.advance(seconds)
        self.recorder.advanced(**done)
        self.bar.tick()

    def runs(self, table: str) -> None:
        """Let a statement run."""
        self.running = (RunningStatement(table=table, version=1, query="x", seconds=1),)
        self.bar.tick()

    def end(self, checkpoint: int = 0) -> None:
        """End the round."""
        self.recorder.round_finished(RoundSummary(checkpoint=checkpoint))


def _bar(shown: Terminal) -> Shown:
    bar = Shown(shown.stream)
    bar.advance(files=4000, rows=1_234_567)
    return bar


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    """No bar is left for lines of other tests."""
    yield
    telemetry.around_writes(None)


def test_the_bar_shows_statements_files_rows_rate_and_lag() -> None:
    """A first run creates tables before it reads a file. Before our own checkpoint is known, the lag is more than the bucket's."""
    with terminal(200) as shown:
        bar = Shown(shown.stream, files=40, statements=60)
        for _ in range(30):
            bar.advance(statements=1)
        assert shown.show()[0].startswith("30% █")
        assert "30 of 60 statements, 0 of 40 files" in shown.show()[0]
        bar.advance(2, files=40, rows=1234)
        for part in ("70% █", " lag >1m17s, 0s left, ", "30 of 60 statements, 40 of 40 files, 617 rows/s, 1,234 rows"):
            assert part in shown.show()[0]
        bar.end(int((NOW - 7) * 1000) << 18)
        bar.begin(MANY)
        bar.bar.tick()
        assert " lag 9s, ? left, " in shown.show()[0]
        bar.bar.close()
        assert shown.show() == [""]


def test_short_rounds_have_no_bar() -> None:
    """A round of few files that is over soon, or one without files, shows nothing; one that lasts does, and leaves nothing behind."""
    with terminal(80) as shown:
        bar = Shown(shown.stream, files=3)
        bar.advance(PATIENCE - 0.1, files=2, rows=3)
        with telemetry._around_write():
            shown.stream.write("LINE\r\n")
        bar.end()
        bar.begin(0)
        bar.advance(100)
        assert shown.show() == ["LINE"]
        bar.end()
        bar.begin(3)
        bar.advance(PATIENCE)
        bar.runs("a.b")
        assert "DDL on a.b" in shown.show()[-1]
        bar.end()
        assert shown.show() == ["LINE"]


@pytest.mark.parametrize("columns", [*range(1, 24), 30, 40, 50, 60, 72, 80, 100, 120, 200, 300])
def test_the_bar_is_one_line_of_any_width(columns: int) -> None:
    """It never wraps, also while a statement on a long name runs, and leaves nothing on the screen."""
    with terminal(columns) as shown:
        bar = _bar(shown)
        for _ in range(3):
            assert len(shown.show()) == 1
            bar.runs(f"shop.{'表' * 64}")
            assert len(shown.show()) == 1
            bar.advance(files=1000, rows=1)
        bar.end()
        assert shown.show() == [""]


@pytest.mark.parametrize(
    ("columns", "parts"),
    [
        (10, ["50%"]),
        (20, ["50%", " lag >1m15s"]),
        (60, ["50% █", " lag >1m15s, 0s left, 4,000 of 8,000 files"]),
        (120, ["50% █", " lag >1m15s, 0s left, 4,000 of 8,000 files, ", " rows/s, 1,234,567 rows"]),
    ],
)
def test_what_matters_most_is_shown_longest(columns: int, parts: list[str]) -> None:
    """The percentage, then the lag, then the time left, then the rest, as far as there is room."""
    with terminal(columns) as shown:
        bar = _bar(shown)
        (line,) = shown.show()
        bar.end()
    assert [part for part in parts if part not in line] == []


def test_a_wide_terminal_has_a_wide_bar() -> None:
    """All columns but the last are used."""
    for columns in (120, 300):
        with terminal(columns) as shown:
            bar = _bar(shown)
            (line,) = shown.show()
            bar.end()
            assert len(line) == columns - 1


def test_the_bar_follows_a_resize() -> None:
    """Narrower or wider, it stays one line, and nothing of the old one is left; a line of the log stands above it."""
    with terminal(120) as shown:
        bar = _bar(shown)
        for columns in (40, 100, 25, 300, 20):
            shown.show()
            shown.resize(columns)
            bar.bar.tick()
            (line,) = shown.show()
            assert " lag >1m15s" in line
            assert len(line) < columns
        shown.show()
        shown.resize(30)
        with telemetry._around_write():
            shown.stream.write("LINE\r\n")
        assert shown.show()[0] == "LINE"
        assert len(shown.show()) == 2
        shown.resize(20)
        bar.end()
        assert shown.show() == ["LINE"]


def test_a_terminal_without_a_size_is_taken_for_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or for as many as COLUMNS says."""
    for told, most in (("", 79), ("40", 39), ("many", 79)):
        monkeypatch.setenv("COLUMNS", told)
        with terminal(0) as shown:
            bar = _bar(shown)
            (line,) = shown.show()
            bar.end()
        assert most - 20 < len(line) <= most


def test_only_one_escape_sequence_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """No colours, whether NO_COLOR asks for that or not; a name in a statement cannot bring one in."""
    monkeypatch.setenv("NO_COLOR", "1")
    with terminal(80) as shown:
        bar = _bar(shown)
        shown.resize(100)
        bar.runs("d.\x1b[31mred\x1b]0;title\x07")
        shown.show()
        assert "DDL on d.\\u001b[31mred" in shown.written
        assert shown.written.replace("\x1b[J", "").count("\x1b") == 0
        bar.end()


@pytest.mark.parametrize(("term", "wanted"), [("xterm", True), ("dumb", False), (None, False)])
def test_a_terminal_that_can_nothing_gets_no_bar(
    term: str | None,
    wanted: bool,  # noqa: FBT001 - a variant
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By TERM, as other programs go by it."""
    monkeypatch.delenv("TERM", raising=False)
    if term:
        monkeypatch.setenv("TERM", term)
    with terminal(80) as shown:
        recorder = Recorder(FakeClock(), "")
        assert (bar_on(shown.stream, recorder, FakeClock()) is not None) == wanted
        assert bar_on(io.StringIO(), recorder, FakeClock()) is None


def test_a_terminal_that_is_gone_ends_the_bar_only(caplog: pytest.LogCaptureFixture) -> None:
    """Writes to it fail from then on; rounds go on, with their lines in the log."""
    caplog.set_level("INFO", logger="storage_consumer")
    with Path(os.devnull).open("w", encoding="utf-8") as rest, terminal(80) as shown:
        bar = _bar(shown)
        # A descriptor that takes no writes any more, as that of a terminal after its end.
        dead = os.open(os.devnull, os.O_RDONLY)
        os.dup2(dead, shown.stream.fileno())
        os.close(dead)
        bar.recorder.observers += (RoundLog(bar.recorder, bar.clock).round_finished,)

        def work() -> None:
            bar.begin(8000)
            bar.advance(files=1, rows=1)
            bar.runs("a.b")
            with telemetry._around_write():
                rest.write("LINE\n")
            bar.recorder.round_finished(RoundSummary(rows=1))

        work()
        work()
        # No lock is left behind that another thread would wait for.
        other = threading.Thread(target=work, daemon=True)
        other.start()
        other.join(10)
        assert not other.is_alive()
        os.dup2(rest.fileno(), shown.stream.fileno())
    assert [message.split()[0] for message in caplog.messages] == ["round_finished"] * 3
