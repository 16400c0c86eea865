"""Lines about a round that takes long, by clocks that the test moves."""

from __future__ import annotations

import logging
import threading

import pytest

from storage_consumer import telemetry
from storage_consumer.cli.progress import Reporter
from storage_consumer.cli.round_watch import RoundWatch
from storage_consumer.cli.ticker import Ticker
from storage_consumer.summary import RoundSummary, RunningStatement, Silent
from storage_consumer.telemetry import EVENTS

NOW = 1_700_000_000.0
QUERY = "ALTER TABLE `orders` ADD INDEX (`a`)"


class Watched:
    """A watch with both of its clocks at one hand."""

    def __init__(self) -> None:
        """Nothing has passed yet."""
        self.passed = 0.0
        self.watch = RoundWatch(lambda: NOW + self.passed, lambda: self.passed)

    def after(self, seconds: float, *statements: RunningStatement) -> dict[str, object] | None:
        """What is due so much later."""
        self.passed += seconds
        return self.watch.due(statements)

    def due_in(self, seconds: int) -> list[int]:
        """The seconds after which a line was due."""
        return [second for second in range(1, seconds + 1) if self.after(1)]


def _statement(seconds: float, table: str = "shop.orders", query: str = QUERY) -> RunningStatement:
    return RunningStatement(table=table, version=7, query=query, seconds=seconds)


def test_a_long_round_is_a_line_each_half_minute() -> None:
    """The first after 30 seconds of the round; none between rounds, and none about short ones."""
    watched = Watched()
    assert watched.due_in(100) == []
    watched.watch.heard("round_started", logging.DEBUG, {})
    watched.watch.started(files=4, size=1, storage_checkpoint=9)
    assert watched.due_in(100) == [30, 60, 90]
    watched.watch.finished()
    assert watched.due_in(100) == []
    for _ in range(50):
        watched.watch.started(files=1, size=1, storage_checkpoint=9)
        assert watched.due_in(29) == []
        watched.watch.finished()


def test_a_line_says_how_far_how_fast_and_until_when() -> None:
    """Files done and in all, bytes, rows, rate, and the expected end by the files that are left, as seconds and time."""
    watched = Watched()
    watched.watch.started(files=8, size=4096, storage_checkpoint=9)
    watched.watch.advanced(files=1, rows=500)
    watched.watch.advanced(files=1, rows=1000)
    assert watched.after(30) == {
        "phase": "rows",
        "seconds": 30.0,
        "files_done": 2,
        "files": 8,
        "bytes": 4096,
        "rows": 1500,
        "rows_per_second": 50,
        "storage_checkpoint": 9,
        "seconds_left": 90,
        "expected_end": "2023-11-14T22:15:20.000Z",
    }
    watched.watch.advanced(files=6, rows=0)
    assert "expected_end" not in (watched.after(30) or {})
    watched.watch.started(files=8, size=4096, storage_checkpoint=9)
    assert "expected_end" not in (watched.after(30) or {})


def test_a_line_says_how_many_statements_are_done() -> None:
    """A first run over many tables runs nothing but statements for minutes: the end goes by these too."""
    watched = Watched()
    watched.watch.started(files=2000, size=4096, storage_checkpoint=9, statements=2000)
    watched.watch.advanced(statements=1000)
    line = watched.after(30, _statement(1)) or {}
    assert (line["ddls_done"], line["ddls"], line["seconds_left"]) == (1000, 2000, 30)


def test_a_line_names_the_statement_that_takes_longest() -> None:
    """In a round that only waits for it, beside rows, and after the round; a long text is cut."""
    watched = Watched()
    watched.watch.started(files=2, size=1, storage_checkpoint=9)
    watched.watch.advanced(files=1, rows=1)
    beside = watched.after(30, _statement(10), _statement(20, "shop.items", "x" * 5000)) or {}
    assert (beside["phase"], beside["statements"], beside["table"]) == ("rows", 2, "shop.items")
    assert (len(str(beside["query"])), beside["statement_seconds"], beside["version"]) == (200, 20.0, 7)
    waiting = watched.after(30, _statement(50)) or {}
    assert (waiting["phase"], waiting["query"]) == ("statement", QUERY)
    watched.watch.finished()
    assert watched.after(29, _statement(79)) is None
    outlasting = {
        "phase": "statement",
        "statements": 1,
        "table": "shop.orders",
        "version": 7,
        "query": QUERY,
        "statement_seconds": 80.0,
    }
    assert watched.after(1, _statement(80)) == outlasting
    watched.after(28)
    watched.watch.started(files=2, size=1, storage_checkpoint=9)
    assert watched.after(2, _statement(80)) == outlasting


def test_a_long_listing_is_a_line_and_a_round_that_is_given_up_is_none() -> None:
    """Before the bucket was listed nothing is known but the time; a retry has lines of its own."""
    watched = Watched()
    watched.watch.heard("round_started", logging.DEBUG, {"number": 1})
    assert watched.after(31) == {"phase": "poll", "seconds": 31.0}
    watched.watch.heard("retry", logging.WARNING, {"what": "lease renewal"})
    assert watched.after(30) == {"phase": "poll", "seconds": 61.0}
    watched.watch.heard("retry", logging.WARNING, {"what": "round"})
    assert watched.after(31) is None


def test_lines_have_declared_fields_only(caplog: pytest.LogCaptureFixture) -> None:
    """What a line can hold is in the table of events, all of it."""
    caplog.set_level(logging.INFO, logger="storage_consumer")
    passed = [0.0]
    reporter = Reporter(Silent(), lambda: NOW, lambda: passed[0])
    reporter.statements = lambda: (_statement(40),)
    said: list[set[str]] = []
    remove = telemetry.listen(lambda name, _, fields: said.append(set(fields)) if name == "round_progress" else None)
    reporter.round_started(files=2, size=1, storage_checkpoint=9, statements=1)
    reporter.advanced(files=1, rows=1)
    passed[0] = 30
    reporter.tick()
    reporter.tick()
    remove()
    assert said == [set(EVENTS["round_progress"].fields)]
    assert caplog.messages[0].startswith("round_progress phase=rows seconds=30.0 files_done=1 files=2 ")
    reporter.round_finished(RoundSummary())


def test_a_ticker_that_fails_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """Its error is one line, however often it comes; the program neither notices nor waits."""
    called = threading.Semaphore(0)

    def call() -> None:
        called.release()
        raise OSError("no terminal")

    with Ticker(call, every=0.001):
        for _ in range(3):
            assert called.acquire(timeout=10)
    assert [message for message in caplog.messages if message.startswith("listener_failed listener=ticker")] == [
        'listener_failed listener=ticker error="OSError: no terminal"'
    ]


def test_a_ticker_that_hangs_keeps_nobody() -> None:
    """The end of the program waits for it for a second at most."""
    called, free = threading.Event(), threading.Event()

    def call() -> None:
        called.set()
        free.wait(60)

    with Ticker(call, every=0.001) as ticker:
        assert called.wait(10)
    assert ticker._thread.is_alive()
    free.set()
    ticker._thread.join(10)
    assert not ticker._thread.is_alive()
