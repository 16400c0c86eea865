"""The progress bar shows a backlog on a terminal and nothing elsewhere; a round becomes one line."""

from __future__ import annotations

import io
import logging
import threading

import pytest

from storage_consumer import telemetry
from storage_consumer.cli.progress import Bar, Reporter, progress_for, round_fields
from storage_consumer.clock import span
from storage_consumer.summary import RoundSummary, Silent, TableSummary
from storage_consumer.telemetry import EVENTS

NOW = 1_700_000_000.0


def _tso(seconds: float) -> int:
    return int(seconds * 1000) << 18


def test_halted_tables_are_logged_again(caplog: pytest.LogCaptureFixture) -> None:
    """A line at level error says which tables stand still when that changes and every ten minutes, in idle rounds too."""
    passed = [0.0]
    reporter = Reporter(Silent(), now=lambda: NOW, monotonic=lambda: passed[0])
    names = tuple(TableSummary(table=f"shop.t{number:02}", state="halted", error="broken") for number in range(30))
    stands = RoundSummary(checkpoint=_tso(NOW - 7), checkpoint_running=_tso(NOW), tables=names)

    def lines_after(seconds: float, summary: RoundSummary) -> list[str]:
        passed[0] += seconds
        caplog.clear()
        reporter.round_finished(summary)
        return [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]

    with caplog.at_level(logging.INFO):
        (line,) = lines_after(2, stands)
        assert line.startswith("tables_halted halted=30 halted_tables=")
        assert ("shop.t00" in line, "shop.t09" in line, "shop.t10" in line) == (True, True, False)
        assert f"checkpoint={_tso(NOW - 7)}" in line
        assert f"checkpoint_running={_tso(NOW)}" in line
        assert "lag_seconds=7.0" in line
        assert [len(lines_after(2, stands)) for _ in range(3)] == [0, 0, 0]
        assert [len(lines_after(300, stands)) for _ in range(5)] == [0, 1, 0, 1, 0]
        assert len(lines_after(1, RoundSummary(tables=names[1:]))) == 1
        assert lines_after(600, RoundSummary()) == []
        assert len(lines_after(1, stands)) == 1


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """It does."""
        return True


def _bar(stream: Terminal, *, many_files: int = 1, patience: float = 0.0) -> Bar:
    return Bar(stream=stream, now=lambda: NOW, many_files=many_files, patience=patience, every=0)


def test_the_bar_shows_files_rows_rate_and_lag() -> None:
    """Before our own checkpoint is known, the lag is more than the bucket's; afterwards it is known."""
    stream = Terminal()
    bar = _bar(stream)
    bar.round_started(files=4, size=10, storage_checkpoint=_tso(NOW - 75))
    bar.advanced(files=2, rows=1234)
    bar.advanced(files=2, rows=0)
    bar.round_finished(RoundSummary(checkpoint=_tso(NOW - 7)))
    bar.round_started(files=1, size=1, storage_checkpoint=_tso(NOW))
    bar.advanced(files=1, rows=1)
    bar.round_finished(RoundSummary())
    shown = stream.getvalue()
    for part in ("catching up: ", "4/4 files", "1,234 rows, ", " rows/s, lag >1m15s", "lag 7s"):
        assert part in shown


def test_the_bar_shows_how_many_statements_are_done() -> None:
    """A first run over many tables creates them before it reads a file, and the bar moves with that."""
    stream = Terminal()
    bar = _bar(stream)
    bar.round_started(files=40, size=10, storage_checkpoint=0, statements=60)
    for _ in range(30):
        bar.advanced(statements=1)
    assert " 30%|" in stream.getvalue()
    assert "30/60 statements, 0/40 files [" in stream.getvalue()
    bar.advanced(files=40, rows=40)
    assert " 70%|" in stream.getvalue()
    bar.round_finished(RoundSummary())


def test_the_bar_leaves_nothing_behind() -> None:
    """After the round the line is empty again."""
    stream = Terminal()
    bar = _bar(stream)
    bar.round_started(files=2, size=10, storage_checkpoint=0)
    bar.advanced(files=2, rows=3)
    bar.round_finished(RoundSummary())
    assert stream.getvalue().rpartition("\r")[2] == ""
    assert stream.getvalue().rstrip("\r").rpartition("\r")[2].strip() == ""


def test_short_rounds_have_no_bar() -> None:
    """A round of few files that is over soon, or one without files, shows nothing."""
    stream = Terminal()
    bar = _bar(stream, many_files=50, patience=60)
    bar.round_started(files=3, size=10, storage_checkpoint=0)
    bar.advanced(files=3, rows=3)
    bar.ddl(table="a.b", query="DROP TABLE b")
    bar.round_finished(RoundSummary())
    bar.round_started(files=0, size=0, storage_checkpoint=0)
    bar.round_finished(RoundSummary())
    assert stream.getvalue() == ""


def test_a_ddl_is_named_by_its_table() -> None:
    """While a statement runs, the bar says on which table, although no file moves."""
    stream = Terminal()
    bar = _bar(stream)
    bar.round_started(files=9, size=10, storage_checkpoint=0)
    bar.advanced(files=3, rows=1)
    bar.advanced(files=3, rows=1)
    bar.ddl(table="shop.items", query="ALTER TABLE …")
    assert "DDL on shop.items" in stream.getvalue()
    bar.round_finished(RoundSummary())


def _advance(bar: Bar) -> None:
    for _ in range(20):
        bar.advanced(files=1, rows=1)


def test_calls_may_come_in_any_order_and_from_any_thread() -> None:
    """A call without a round, two rounds in parallel, or many threads: no error, and all files are counted."""
    stream = Terminal()
    bar = _bar(stream)
    bar.advanced(files=1, rows=1)
    bar.ddl(table="a.b", query="x")
    bar.round_started(files=1, size=1, storage_checkpoint=0)
    bar.round_started(files=80, size=1, storage_checkpoint=0)
    threads = [threading.Thread(target=_advance, args=(bar,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bar._bar is not None
    assert bar._bar.n == 80
    bar.round_finished(RoundSummary())
    bar.round_finished(RoundSummary())


def test_a_log_line_does_not_cut_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bar is taken away before a line is written, and comes back after it."""
    stream = Terminal()
    bar = _bar(stream)
    bar.round_started(files=2, size=10, storage_checkpoint=0)
    with telemetry._around_write():
        before = stream.getvalue()
        stream.write("LINE\n")
    bar.round_finished(RoundSummary())
    assert before.endswith("\r")
    assert before.rstrip("\r").rpartition("\r")[2].strip() == ""


def test_a_log_line_shows_no_bar_before_its_time() -> None:
    """In a short round only the line is written."""
    stream = Terminal()
    bar = _bar(stream, many_files=50, patience=60)
    bar.round_started(files=3, size=10, storage_checkpoint=0)
    with telemetry._around_write():
        stream.write("LINE\n")
    bar.round_finished(RoundSummary())
    assert stream.getvalue() == "LINE\n"


def test_a_bar_that_only_a_statement_showed_leaves_nothing_behind() -> None:
    """Without a file that moves, tqdm would take the bar for one that was never shown."""
    stream = Terminal()
    bar = _bar(stream, many_files=50, patience=60)
    bar.round_started(files=3, size=10, storage_checkpoint=0)
    bar._started -= 60
    bar.ddl(table="a.b", query="DROP TABLE b")
    assert "DDL on a.b" in stream.getvalue()
    bar.round_finished(RoundSummary())
    assert stream.getvalue().rstrip("\r").rpartition("\r")[2].strip() == ""


@pytest.mark.parametrize(
    ("wanted", "terminal", "term", "kind"),
    [
        (True, True, "xterm", Bar),
        (False, True, "xterm", Silent),
        (True, False, "xterm", Silent),
        (True, True, "dumb", Silent),
    ],
)
def test_a_bar_needs_a_terminal(
    wanted: bool,  # noqa: FBT001 - a variant
    terminal: bool,  # noqa: FBT001 - a variant
    term: str,
    kind: type,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a terminal, on a dumb one, or with --no-progress nothing is shown."""
    monkeypatch.setenv("TERM", term)
    assert isinstance(progress_for(wanted=wanted, stream=Terminal() if terminal else io.StringIO()), kind)


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
    passed = [0.0]
    reporter = Reporter(Silent(), lambda: NOW, lambda: passed[0])

    def logged(seconds: float, summary: RoundSummary) -> tuple[int, str]:
        passed[0] += seconds
        reporter.round_finished(summary)
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
    passed = [0.0]
    reporter = Reporter(Silent(), lambda: NOW, lambda: passed[0])
    reporter.round_finished(HALTED)
    (line,) = _lines(caplog, "tables_halted")
    assert line.endswith("error=broken")
    counts = []
    for _ in range(1300):
        passed[0] += 1
        reporter.tick()
        counts.append(len(_lines(caplog, "tables_halted")))
    assert [second for second, count in enumerate(counts, 1) if count] == [600, 1200]


def test_a_wait_of_growing_length_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """The seconds in a reason, which are others in each round, make no new line."""
    caplog.set_level(logging.INFO, logger="storage_consumer")
    reporter = Reporter(Silent(), lambda: NOW)
    for seconds in range(5):
        error = f"the DDL of a.b with version 7 has been running for {seconds} s"
        reporter.round_finished(RoundSummary(tables=(TableSummary(table="a.b", state="waiting", error=error),)))
    assert len(_lines(caplog, "table_waiting")) == 1


class Noting(Silent):
    """A `Progress` that notes its calls."""

    def __init__(self) -> None:
        """Nothing was called yet."""
        self.calls: list[str] = []

    def round_started(self, *, files: int, size: int, storage_checkpoint: int, statements: int = 0) -> None:
        """A round begins."""
        self.calls.append(f"started {files} {size} {storage_checkpoint} {statements}")

    def advanced(self, *, files: int = 0, rows: int = 0, statements: int = 0) -> None:
        """Files were read."""
        self.calls.append(f"advanced {files} {rows} {statements}")

    def ddl(self, *, table: str, query: str) -> None:
        """A statement runs."""
        self.calls.append(f"ddl {table} {query}")

    def round_finished(self, summary: RoundSummary) -> None:
        """The round is over."""
        self.calls.append(f"finished {summary.rows}")


def test_a_round_is_one_line_and_is_passed_on(caplog: pytest.LogCaptureFixture) -> None:
    """The reporter logs one line a round and tells the bar everything."""
    caplog.set_level(logging.INFO, logger="storage_consumer")
    inner = Noting()
    reporter = Reporter(inner, lambda: NOW)
    reporter.round_started(files=1, size=2, storage_checkpoint=3, statements=4)
    reporter.advanced(files=1, rows=7)
    reporter.advanced(statements=1)
    reporter.ddl(table="a.b", query="x")
    reporter.round_finished(RoundSummary(rows=7, checkpoint=_tso(NOW - 1)))
    assert inner.calls == ["started 1 2 3 4", "advanced 1 7 0", "advanced 0 0 1", "ddl a.b x", "finished 7"]
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("round_finished rows=7 ")


def test_a_waiting_table_is_logged_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    """A table that begins to wait, waits for something else, or goes on is a line; one that waits on is not."""
    caplog.set_level(logging.INFO, logger="storage_consumer")
    reporter = Reporter(Silent(), lambda: NOW)
    for error in ("file 3 is missing", "file 3 is missing", "file 5 is missing", ""):
        tables = (TableSummary(table="a.b", state="waiting", error=error),) if error else ()
        reporter.round_finished(RoundSummary(tables=tables))
    said = [message.split(" checkpoint")[0] for message in caplog.messages if "round_finished" not in message]
    assert said == ["table_waiting table=a.b", "table_waiting table=a.b", "table_resumed table=a.b"]


def _is(line: str, event: str) -> bool:
    return line.startswith(f"{event} ")
