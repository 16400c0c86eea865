"""The progress bar on a real pty."""

from __future__ import annotations

import os
import pty
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import pytest

from storage_consumer import telemetry
from storage_consumer.cli.progress_bar import MANY, PATIENCE, Bar, RoundLog
from storage_consumer.summary import RoundSummary, RunningStatement
from storage_consumer.watch.recorder import Recorder
from tests.harness.terminal import terminal
from tests.harness.twins.storage import FakeClock

NOW = 1_700_000_000.0
BEHIND = int((NOW - 75) * 1000) << 18


class Shown:
    """A bar on a terminal, and what it shows."""

    def __init__(self, files: int = 8000, statements: int = 0) -> None:
        """A round begins."""
        self.clock = FakeClock(NOW)
        self.recorder = Recorder(self.clock, "")
        self.running: tuple[RunningStatement, ...] = ()
        self.bar = Bar(self.recorder, self.clock, lambda: self.running)
        self.recorder.observers = (self.bar.tick,)
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


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    """No bar is left for lines of other tests."""
    yield
    telemetry.around_writes(None)


def on(stream: TextIO, monkeypatch: pytest.MonkeyPatch, files: int = 8000, statements: int = 0) -> Shown:
    """A bar on this terminal."""
    monkeypatch.setattr(sys, "stderr", stream)
    return Shown(files, statements)


def test_the_bar_shows_statements_files_rows_rate_and_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first run creates tables before it reads a file. Before our own checkpoint is known, the lag is more than the bucket's."""
    with terminal(200) as shown:
        bar = on(shown.stream, monkeypatch, files=40, statements=60)
        bar.advance(statements=30)
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


def test_short_rounds_have_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round of few files that is over soon, or one without files, shows nothing; one that lasts does, and leaves nothing behind."""
    with terminal(80) as shown:
        bar = on(shown.stream, monkeypatch, files=3)
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
        with telemetry._around_write():
            shown.stream.write("MORE\r\n")
        assert shown.show()[:2] == ["LINE", "MORE"]
        bar.end()
        assert shown.show() == ["LINE", "MORE"]


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 120, 200, 300])
def test_the_bar_is_one_line_of_any_width(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It never wraps, also while a statement on a long name runs; what matters most is shown longest, and nothing is left."""
    with terminal(columns) as shown:
        bar = on(shown.stream, monkeypatch)
        bar.advance(files=4000, rows=1_234_567)
        (line,) = shown.show()
        assert "50%" in line
        assert ("lag >1m15s" in line) == (columns >= 20)
        bar.runs(f"shop.{'表' * 64}")
        bar.advance(files=1000, rows=1)
        assert len(shown.show()) == 1
        bar.end()
        assert shown.show() == [""]


def test_a_name_brings_no_escape_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of the source can have any name, and a terminal would obey it."""
    with terminal(120) as shown:
        bar = on(shown.stream, monkeypatch)
        bar.runs("d.\x1b[31mred\x1b]0;title\x07")
        shown.show()
        assert "DDL on d.\\u001b[31mred" in shown.written
        assert "\x1b[31m" not in shown.written
        bar.end()


def test_the_bar_follows_a_resize(monkeypatch: pytest.MonkeyPatch) -> None:
    """Narrower or wider, it stays one line, and nothing of the old one is left; a line of the log stands whole above it."""
    with terminal(120) as shown:
        bar = on(shown.stream, monkeypatch)
        for columns in (40, 100, 25, 300, 20):
            shown.show()
            shown.resize(columns)
            bar.bar.tick()
            (line,) = shown.show()
            assert "lag >1m15s" in line
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
    """As that of a container may be."""
    with terminal(0) as shown:
        bar = on(shown.stream, monkeypatch)
        bar.advance(files=4000, rows=1_234_567)
        (line,) = shown.show()
        assert 60 < len(line) < 80
        bar.end()


def test_a_terminal_that_is_gone_ends_the_bar_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Writes to it fail from then on; rounds go on, with their lines in the log, and no lock is left behind."""
    caplog.set_level("INFO", logger="storage_consumer")
    with Path(os.devnull).open("w", encoding="utf-8") as rest, terminal(80) as shown:
        bar = on(shown.stream, monkeypatch)
        bar.advance(files=1)
        # A descriptor that takes no writes any more; what a terminal answers after its end, tqdm knows itself.
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
        other = threading.Thread(target=work, daemon=True)
        other.start()
        other.join(10)
        assert not other.is_alive()
        bar.bar.close()
        os.dup2(rest.fileno(), shown.stream.fileno())
    assert [message.split()[0] for message in caplog.messages] == ["round_finished"] * 3


def test_a_terminal_whose_other_end_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, with what a terminal answers then."""
    ours, theirs = pty.openpty()
    stream = os.fdopen(theirs, "w", encoding="utf-8")
    bar = on(stream, monkeypatch)
    bar.advance(files=1)
    os.close(ours)
    for _ in range(2):
        bar.advance(files=1, rows=1)
        bar.runs("a.b")
        bar.end()
        bar.begin(8000)
    bar.bar.close()
    with suppress(OSError):
        stream.close()
