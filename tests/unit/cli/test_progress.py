"""What the log says of rounds: one line at the end of each, and at intervals of one that takes long; by a clock that the test moves."""

from __future__ import annotations

import logging
import threading

import pytest

from storage_consumer import telemetry
from storage_consumer.cli.progress_bar import RoundLog, round_fields
from storage_consumer.clock import span
from storage_consumer.summary import RoundSummary, RunningStatement, TableSummary
from storage_consumer.watch.recorder import Recorder, Ticker
from tests.harness.log_events import EVENTS
from tests.harness.twins.storage import FakeClock

QUERY = "ALTER TABLE `orders` ADD INDEX (`a`)"
NOW = 1_700_000_000.0


def _tso(seconds: float) -> int:
    return int(seconds * 1000) << 18


class Watched:
    """A recorder and the log of its rounds, with the clock of both, and the statements that run."""

    def __init__(self) -> None:
        """Nothing has happened yet."""
        self.clock = FakeClock(NOW)
        self.recorder = Recorder(self.clock, "1.2")
        self.statements: tuple[RunningStatement, ...] = ()
        self.log = RoundLog(self.recorder, self.clock, lambda: self.statements)
        self.recorder.observers = (self.log.round_finished,)

    def starts(self, files: int = 0, statements: int = 0) -> None:
        """A round knows what it has to do."""
        self.recorder.round_started(files=files, size=4096, storage_checkpoint=9, statements=statements)

    def ends(self) -> None:
        """The round is over."""
        self.recorder.round_finished(RoundSummary())

    def after(self, seconds: float, *statements: RunningStatement) -> dict[str, object]:
        """The fields of the line about progress that is due so much later."""
        self.clock.advance(seconds)
        self.statements = statements
        said: list[dict[str, object]] = [{}]
        remove = telemetry.listen(lambda name, _, fields: said.append({**fields}) if name == "round_progress" else None)
        self.log.tick()
        remove()
        return said[-1]

    def due_in(self, seconds: int) -> list[int]:
        """The seconds after which a line was due."""
        return [second for second in range(1, seconds + 1) if self.after(1)]


def _statement(seconds: float, table: str = "shop.orders", query: str = QUERY) -> RunningStatement:
    return RunningStatement(table=table, version=7, query=query, seconds=seconds)


def test_halted_tables_are_logged_again(caplog: pytest.LogCaptureFixture) -> None:
    """A line at level error says which tables stand still when that changes and every ten minutes, in idle rounds too."""
    watched = Watched()
    names = tuple(TableSummary(table=f"shop.t{number:02}", state="halted", error="broken") for number in range(30))
    stands = RoundSummary(checkpoint=_tso(NOW - 7), checkpoint_running=_tso(NOW), tables=names)

    def lines_after(seconds: float, summary: RoundSummary) -> list[str]:
        watched.clock.advance(seconds)
        caplog.clear()
        watched.recorder.round_finished(summary)
        return [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]

    with caplog.at_level(logging.INFO):
        (line,) = lines_after(2, stands)
        assert line.startswith("tables_halted halted=30 halted_tables=")
        assert ("shop.t00" in line, "shop.t09" in line, "shop.t10" in line) == (True, True, False)
        assert f"checkpoint={_tso(NOW - 7)}" in line
        assert f"checkpoint_running={_tso(NOW)}" in line
        assert "lag_seconds=9.0" in line
        assert [len(lines_after(2, stands)) for _ in range(3)] == [0, 0, 0]
        assert [len(lines_after(300, stands)) for _ in range(5)] == [0, 1, 0, 1, 0]
        assert len(lines_after(1, RoundSummary(tables=names[1:]))) == 1
        assert lines_after(600, RoundSummary()) == []
        assert len(lines_after(1, stands)) == 1


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59.9, "59s"), (60, "1m00s"), (3599, "59m59s"), (3600, "1h00m"), (86399, "23h59m"), (187200, "2d04h")],
)
def test_spans_have_two_units(seconds: float, text: str) -> None:
    """A duration is shown with its two greatest units."""
    assert span(seconds) == text


def test_a_rounds_line_has_the_declared_fields() -> None:
    """The summary becomes exactly the fields of round_finished, with rate, lags, and counts of tables (O9)."""
    tables = (
        TableSummary(table="a", state="halted"),
        TableSummary(table="b", state="waiting"),
        TableSummary(table="c"),
    )
    summary = RoundSummary(
        rows=300, seconds=1.5, checkpoint=_tso(NOW - 9), storage_checkpoint=_tso(NOW - 4), tables=tables
    )
    fields = round_fields(summary, NOW)
    assert set(fields) == set(EVENTS["round_finished"].fields)
    assert (fields["rows_per_second"], fields["lag_seconds"], fields["source_lag_seconds"]) == (200, 9.0, 4.0)
    assert (fields["halted"], fields["waiting"]) == (1, 1)
    assert round_fields(RoundSummary(), NOW)["rows_per_second"] == 0


def _lines(caplog: pytest.LogCaptureFixture, name: str) -> list[str]:
    """The lines about an event since the last question, without those at level debug."""
    found = [record.getMessage() for record in caplog.records if record.levelno > logging.DEBUG]
    caplog.clear()
    return [line for line in found if _is(line, name)]


def test_rounds_without_work_are_summed_up(caplog: pytest.LogCaptureFixture) -> None:
    """A round that did something, or found something changed, is logged at once; of others one line every ten minutes."""
    caplog.set_level(logging.DEBUG, logger="storage_consumer")
    watched = Watched()

    def logged(seconds: float, summary: RoundSummary) -> tuple[int, str]:
        watched.clock.advance(seconds)
        watched.recorder.round_finished(summary)
        assert sum(_is(record.getMessage(), "round_finished") for record in caplog.records) == 1
        (idle,) = [record.getMessage() for record in caplog.records if _is(record.getMessage(), "idle")] or [""]
        return len(_lines(caplog, "round_finished")), idle

    nothing = RoundSummary(checkpoint=5, storage_checkpoint=5)
    assert logged(2, nothing) == (1, "")
    found = [logged(2, nothing) for _ in range(600)]
    assert {lines for lines, _ in found} == {0}
    assert [(place, "rounds=300 checkpoint=5 " in idle) for place, (_, idle) in enumerate(found) if idle] == [
        (299, True),
        (599, True),
    ]
    assert logged(2, RoundSummary(rows=1, files=1, checkpoint=6, storage_checkpoint=6)) == (1, "")
    assert [logged(2, nothing) for _ in range(299)] == [(0, "")] * 299
    assert "rounds=300 " in logged(2, nothing)[1]
    behind = RoundSummary(checkpoint=5, storage_checkpoint=7)
    waiting = RoundSummary(tables=(TableSummary(table="a.b", state="waiting", error="file 3"),))
    for changed in (behind, waiting, RoundSummary(skipped={"path: unknown": 1}), RoundSummary(), HALTED):
        assert [logged(2, changed) for _ in range(3)] == [(1, ""), (0, ""), (0, "")]


HALTED = RoundSummary(tables=(TableSummary(table="a.b", state="halted", error="broken"),))


def test_halted_tables_are_logged_again_within_a_round(caplog: pytest.LogCaptureFixture) -> None:
    """A round of hours does not silence the line about halted tables; it has the error of the first."""
    caplog.set_level(logging.INFO, logger="storage_consumer")
    watched = Watched()
    watched.recorder.round_finished(HALTED)
    (line,) = _lines(caplog, "tables_halted")
    assert line.endswith("error=broken")
    counts = []
    for _ in range(1300):
        watched.clock.advance(1)
        watched.log.tick()
        counts.append(len(_lines(caplog, "tables_halted")))
    assert [second for second, count in enumerate(counts, 1) if count] == [600, 1200]


def test_a_wait_of_growing_length_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """The seconds in a reason, which are others in each round, make no new line."""
    caplog.set_level(logging.INFO, logger="storage_consumer")
    watched = Watched()
    for seconds in range(5):
        error = f"the DDL of a.b with version 7 has been running for {seconds} s"
        watched.recorder.round_finished(RoundSummary(tables=(TableSummary(table="a.b", state="waiting", error=error),)))
    assert len(_lines(caplog, "table_waiting")) == 1


def test_a_waiting_table_is_logged_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    """A table that begins to wait, waits for something else, or goes on is a line; one that waits on is not."""
    caplog.set_level(logging.INFO, logger="storage_consumer")
    watched = Watched()
    for error in ("file 3 is missing", "file 3 is missing", "file 5 is missing", ""):
        tables = (TableSummary(table="a.b", state="waiting", error=error),) if error else ()
        watched.recorder.round_finished(RoundSummary(tables=tables))
    said = [message.split(" checkpoint")[0] for message in caplog.messages if "round_finished" not in message]
    assert said == ["table_waiting table=a.b", "table_waiting table=a.b", "table_resumed table=a.b"]


def _is(line: str, event: str) -> bool:
    return line.startswith(f"{event} ")


def test_a_long_round_is_a_line_each_half_minute() -> None:
    """The first after 30 seconds of the round; none between rounds, and none about short ones."""
    watched = Watched()
    assert watched.due_in(100) == []
    watched.recorder.heard("round_started", {})
    watched.starts(4)
    assert watched.due_in(100) == [30, 60, 90]
    watched.ends()
    assert watched.due_in(100) == []
    for _ in range(50):
        watched.starts(1)
        assert watched.due_in(29) == []
        watched.ends()


def test_a_line_says_how_far_how_fast_and_until_when() -> None:
    """Files done and in all, bytes, rows, rate, and the expected end by the files that are left, as seconds and time."""
    watched = Watched()
    watched.starts(8)
    watched.recorder.advanced(files=1, rows=500)
    watched.recorder.advanced(files=1, rows=1000)
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
    watched.recorder.advanced(files=6, rows=0)
    assert "expected_end" not in watched.after(30)
    watched.starts(8)
    assert "expected_end" not in watched.after(30)


def test_a_line_says_how_many_statements_are_done() -> None:
    """A first run over many tables runs nothing but statements for minutes: the end goes by these too."""
    watched = Watched()
    watched.starts(2000, statements=2000)
    watched.recorder.advanced(statements=1000)
    line = watched.after(30, _statement(1))
    assert (line["ddls_done"], line["ddls"], line["seconds_left"]) == (1000, 2000, 30)


def test_a_line_names_the_statement_that_takes_longest() -> None:
    """In a round that only waits for it, beside rows, and after the round; a long text is cut."""
    watched = Watched()
    watched.starts(2)
    watched.recorder.advanced(files=1, rows=1)
    beside = watched.after(30, _statement(10), _statement(20, "shop.items", "x" * 5000))
    assert (beside["phase"], beside["statements"], beside["table"]) == ("rows", 2, "shop.items")
    assert (len(str(beside["query"])), beside["statement_seconds"], beside["version"]) == (200, 20.0, 7)
    waiting = watched.after(30, _statement(50))
    assert (waiting["phase"], waiting["query"]) == ("statement", QUERY)
    watched.ends()
    assert watched.after(29, _statement(79)) == {}
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
    watched.starts(2)
    assert watched.after(2, _statement(80)) == outlasting


def test_a_long_listing_is_a_line_and_a_round_that_is_given_up_is_none() -> None:
    """Before the bucket was listed nothing is known but the time; a retry has lines of its own."""
    watched = Watched()
    watched.recorder.heard("round_started", {"number": 1})
    assert watched.after(31) == {"phase": "poll", "seconds": 31.0}
    watched.recorder.heard("retry", {"what": "lease renewal"})
    assert watched.after(30) == {"phase": "poll", "seconds": 61.0}
    watched.recorder.heard("retry", {"what": "round"})
    assert watched.after(31) == {}


def test_lines_have_declared_fields_only(caplog: pytest.LogCaptureFixture) -> None:
    """What a line can hold is in the table of events, all of it."""
    caplog.set_level(logging.INFO, logger="storage_consumer")
    watched = Watched()
    watched.starts(2, statements=1)
    watched.recorder.advanced(files=1, rows=1)
    assert set(watched.after(30, _statement(40))) == set(EVENTS["round_progress"].fields)
    assert watched.after(0, _statement(40)) == {}
    assert caplog.messages[0].startswith("round_progress phase=rows seconds=30.0 files_done=1 files=2 ")


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
