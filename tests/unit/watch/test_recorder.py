"""The recorder: what it says of a process before, during and after rounds."""

from __future__ import annotations

import pytest

from storage_consumer.summary import RoundSummary, Silent, TableSummary
from storage_consumer.telemetry import forget_secrets, register_secret
from storage_consumer.watch.recorder import KEPT, MOST_TABLES, WINDOW, Recorder
from storage_consumer.watch.report import SHOWN_TABLES, Phase, Report, Work
from tests.harness.twins.storage import FakeClock


class Heard(Silent):
    """Remembers which calls arrived."""

    def __init__(self) -> None:
        """Nothing arrived yet."""
        self.calls: list[str] = []

    def round_started(self, *, files: int, size: int, storage_checkpoint: int, statements: int = 0) -> None:
        """Remember the call."""
        self.calls.append(f"started {files} {size} {storage_checkpoint} {statements}")

    def advanced(self, *, files: int = 0, rows: int = 0, statements: int = 0) -> None:
        """Remember the call."""
        self.calls.append(f"advanced {files} {rows} {statements}")

    def ddl(self, *, table: str, query: str) -> None:
        """Remember the call."""
        self.calls.append(f"ddl {table} {query}")

    def round_finished(self, summary: RoundSummary) -> None:
        """Remember the call."""
        self.calls.append(f"finished {summary.rows}")


@pytest.fixture
def clock() -> FakeClock:
    """A clock that the test moves."""
    return FakeClock()


@pytest.fixture
def recorder(clock: FakeClock) -> Recorder:
    """A recorder before anything happened."""
    return Recorder(clock, "1.2")


def test_all_calls_are_passed_on(clock: FakeClock) -> None:
    """A bar or a user's own `Progress` gets what it would get without the recorder."""
    inner = Heard()
    recorder = Recorder(clock, "", inner)
    recorder.round_started(files=3, size=10, storage_checkpoint=7, statements=2)
    recorder.advanced(files=1, rows=5)
    recorder.advanced(statements=1)
    recorder.ddl(table="d.a", query="DROP")
    recorder.round_finished(RoundSummary(rows=5))
    assert inner.calls == ["started 3 10 7 2", "advanced 1 5 0", "advanced 0 0 1", "ddl d.a DROP", "finished 5"]


def test_how_long_a_phase_lasts(recorder: Recorder, clock: FakeClock) -> None:
    """It is counted from its beginning, by a clock that nobody sets."""
    clock.advance(7)
    assert recorder.report().phase_seconds == 7
    recorder.heard("retry", {"what": "round", "error": "no route"})
    clock.advance(3)
    recorder.heard("retry", {"what": "round", "error": "no route"})
    clock.advance(2)
    clock.jump(-3600)
    assert recorder.report().phase_seconds == 5


def test_phases(recorder: Recorder, clock: FakeClock) -> None:
    """A process starts, stands by, gets the lease, applies, idles and retries; each phase says when it began."""
    began = clock.now()
    assert (recorder.report().phase, recorder.report().since) == (Phase.STARTING, began)
    seen = []
    for event in ("lease_waiting", "lease_acquired"):
        clock.advance(1)
        recorder.heard(event, {})
        seen.append((recorder.report().phase, recorder.report().since - began))
    clock.advance(1)
    recorder.round_started(files=0, size=0, storage_checkpoint=0)
    seen.append((recorder.report().phase, recorder.report().since - began))
    clock.advance(1)
    recorder.round_finished(RoundSummary())
    seen.append((recorder.report().phase, recorder.report().since - began))
    clock.advance(1)
    recorder.heard("retry", {"what": "round", "error": "no answer"})
    seen.append((recorder.report().phase, recorder.report().since - began))
    assert seen == [
        (Phase.STANDBY, 1),
        (Phase.LOADING, 2),
        (Phase.APPLYING, 3),
        (Phase.IDLE, 4),
        (Phase.RETRYING, 5),
    ]
    assert recorder.report().retry == "no answer"
    clock.advance(1)
    recorder.heard("retry", {"what": "round", "error": "still none"})
    assert (recorder.report().retry, recorder.report().since - began, recorder.report().totals.retries) == (
        "still none",
        5,
        2,
    )
    recorder.round_started(files=0, size=0, storage_checkpoint=0)
    assert recorder.report().retry == "still none"
    recorder.round_finished(RoundSummary())
    assert (recorder.report().retry, recorder.report().phase) == ("", Phase.IDLE)


def test_a_retry_lasts_until_work_succeeds(recorder: Recorder, clock: FakeClock) -> None:
    """A round that gets as far as the ones that failed, and fails too, is one more attempt; one that gets further ends the retry."""

    def attempt(files: int, *, fails: bool = True) -> tuple[Phase, float, str]:
        clock.advance(10)
        recorder.heard("lease_acquired", {})
        recorder.round_started(files=9, size=1, storage_checkpoint=1)
        recorder.advanced(files=files, rows=files)
        report = recorder.report()
        if fails:
            recorder.heard("retry", {"what": "round", "error": "the disk is full"})
        return report.phase, report.phase_seconds, report.retry

    assert attempt(2)[0] == Phase.APPLYING
    assert [attempt(2), attempt(1)] == [
        (Phase.RETRYING, 10.0, "the disk is full"),
        (Phase.RETRYING, 20.0, "the disk is full"),
    ]
    assert attempt(3) == (Phase.APPLYING, 0.0, "")
    assert attempt(3, fails=False)[0] == Phase.RETRYING


def test_a_round_that_only_runs_statements(recorder: Recorder, clock: FakeClock) -> None:
    """Its work says how many are done of how many, and each of them is progress for one that is retried."""
    recorder.round_started(files=9, size=1, storage_checkpoint=1, statements=4)
    recorder.advanced(statements=1)
    recorder.heard("retry", {"what": "round", "error": "too many connections"})
    recorder.round_started(files=9, size=1, storage_checkpoint=1, statements=3)
    assert recorder.report().phase == Phase.RETRYING
    clock.advance(4)
    recorder.advanced(statements=1)
    assert recorder.report().phase == Phase.APPLYING
    assert recorder.report().work == Work(seconds=4, files=9, bytes=1, statements=3, statements_done=1)


def test_an_error_has_no_secret(recorder: Recorder) -> None:
    """What is stored of an error is blanked, as a log has it."""
    register_secret("hunter2-of-the-recorder")
    try:
        recorder.failed("no way in with hunter2-of-the-recorder")
        assert recorder.report().retry.startswith("no way in with ")
        assert "hunter2" not in recorder.report().retry
    finally:
        forget_secrets()


def test_retry_of_the_lease_alone(recorder: Recorder) -> None:
    """A renewal that is tried again does not end the round that is running."""
    recorder.round_started(files=2, size=1, storage_checkpoint=1)
    recorder.heard("retry", {"what": "lease renewal", "error": "no answer"})
    report = recorder.report()
    assert (report.phase, report.retry, report.totals.retries) == (Phase.APPLYING, "", 1)
    assert report.work is not None


def test_rows_of_each_table(recorder: Recorder, clock: FakeClock) -> None:
    """They count since the start; the rate is that of the last five minutes, or since the start if that is later."""
    recorder.round_finished(
        RoundSummary(tables=(TableSummary(table="d.a", rows=600), TableSummary(table="d.b", ddls=1)))
    )
    clock.advance(60)
    ((name, found),) = recorder.table_rows().items()
    assert (name, found.rows, found.per_second) == ("d.a", 600, 10.0)
    clock.advance(600)
    assert recorder.table_rows()["d.a"].per_second == 0.0


def test_running_round(recorder: Recorder, clock: FakeClock) -> None:
    """While a round runs, its work shows how far it is; afterwards there is none."""
    recorder.round_started(files=10, size=1000, storage_checkpoint=1)
    clock.advance(2)
    recorder.advanced(files=4, rows=100)
    clock.advance(2)
    recorder.advanced(files=1, rows=100)
    assert recorder.report().work == Work(seconds=4, files=10, bytes=1000, files_done=5, rows=200)
    assert recorder.report().rows_per_second == 50
    recorder.round_finished(RoundSummary(rows=200, files=5, pending_files=5, pending_bytes=500, written=150, ddls=1))
    report = recorder.report()
    assert report.work is None
    assert (report.pending_files, report.pending_bytes, report.last_round_at) == (5, 500, clock.now())
    totals = report.totals
    assert (totals.rounds, totals.rows, totals.written, totals.files, totals.ddls) == (1, 200, 150, 5, 1)


def test_rate_counts_work_only(recorder: Recorder, clock: FakeClock) -> None:
    """Pauses between rounds do not lower the rate; what is older than the window no longer counts."""
    for _ in range(3):
        recorder.round_started(files=1, size=1, storage_checkpoint=1)
        clock.advance(1)
        recorder.advanced(files=1, rows=300)
        recorder.round_finished(RoundSummary(rows=300))
        clock.advance(9)
    assert recorder.report().rows_per_second == 300
    clock.advance(WINDOW)
    recorder.round_started(files=1, size=1, storage_checkpoint=1)
    clock.advance(2)
    recorder.advanced(files=1, rows=20)
    assert recorder.report().rows_per_second == 10


def test_totals_add_up(recorder: Recorder) -> None:
    """Rounds and reasons are summed; a table waits only as long as the last round says so."""
    waits = TableSummary(table="d.a", state="waiting", error="a file is missing")
    recorder.round_finished(RoundSummary(rows=1, skipped={"duplicates": 2}, tables=(waits,)))
    assert recorder.report().waiting == {"d.a": "a file is missing"}
    recorder.round_finished(RoundSummary(rows=2, skipped={"duplicates": 3, "left out": 1}))
    report = recorder.report()
    assert (report.totals.rounds, report.totals.rows) == (2, 3)
    assert report.skipped == {"duplicates": 5, "left out": 1}
    assert report.waiting == {}


def test_report_stays_small(recorder: Recorder) -> None:
    """Of ten thousand waiting tables only the first are named."""
    tables = tuple(TableSummary(table=f"d.t{n}", state="waiting", error="x" * 100) for n in range(10_000))
    recorder.round_finished(RoundSummary(tables=tables))
    assert len(recorder.report().waiting) == SHOWN_TABLES
    assert len(recorder.report().to_json()) < 40_000


def test_report_as_json(recorder: Recorder, clock: FakeClock) -> None:
    """A report comes back from JSON as it was; a document of another program is no report, and no error."""
    recorder.round_started(files=10, size=1000, storage_checkpoint=1)
    clock.advance(1)
    recorder.advanced(files=1, rows=3)
    report = recorder.report()
    assert Report.from_json(report.to_json()) == report
    assert Report.from_json('{"phase": "dreaming"}') is None
    assert Report.from_json("no JSON") is None
    assert Report.from_json(report.to_json()[:-1] + ',"new_member":1}') == report


def test_minutes(clock: FakeClock) -> None:
    """Each row is counted in one minute, those between two looks in the later one; a minute holds the last round's checkpoints."""
    clock.advance(60 - clock.now() % 60)
    recorder = Recorder(clock, "")
    minutes = []
    for rows in (5, 7, 11):
        recorder.round_started(files=1, size=1, storage_checkpoint=1)
        recorder.advanced(files=1, rows=rows)
        recorder.round_finished(
            RoundSummary(rows=rows, ddls=1, checkpoint=rows, checkpoint_running=rows + 1, storage_checkpoint=rows + 2)
        )
        minutes.append(recorder.minute())
        clock.advance(40)
    assert [(each.minute - minutes[0].minute, each.row_changes, each.statements) for each in minutes] == [
        (0, 5, 1),
        (0, 12, 2),
        (1, 11, 1),
    ]
    assert (minutes[2].checkpoint, minutes[2].checkpoint_running, minutes[2].storage_checkpoint) == (11, 12, 13)
    clock.advance(100)
    assert (recorder.minute().row_changes, recorder.minute().minute - minutes[0].minute) == (0, 3)


def test_a_table_that_is_resumed_counts_as_running_at_once(recorder: Recorder) -> None:
    """As in the state: the round that catches up may take long. What the table then does counts at the end of that round."""
    tables = tuple(TableSummary(table=f"d.{state}", state=state) for state in ("halted", "paused"))
    recorder.round_finished(RoundSummary(tables=tables, states={"halted": 1, "paused": 1, "running": 1}))
    recorder.heard("decision_obeyed", {"table": "d.unknown", "verb": "resume"})
    recorder.heard("decision_obeyed", {"table": "d.paused", "verb": "pause"})
    assert recorder.summary().tables == tables
    recorder.heard("decision_obeyed", {"table": "d.halted", "verb": "resume"})
    assert recorder.summary().states == {"halted": 0, "paused": 1, "running": 2}
    recorder.heard("decision_obeyed", {"table": "d.paused", "verb": "reload-done"})
    assert (recorder.summary().tables, recorder.summary().states["running"]) == ((), 3)


def _ends(recorder: Recorder, clock: FakeClock, at: float, *tables: str, rows: int = 1) -> None:
    """End a round that read rows of each table."""
    clock.advance(at - clock.now())
    recorder.round_finished(RoundSummary(tables=tuple(TableSummary(table=table, rows=rows) for table in tables)))


def test_minutes_of_a_table(recorder: Recorder, clock: FakeClock) -> None:
    """A minute holds all rounds that ended in it; older ones than an hour are neither kept nor shown."""
    begin = clock.now() // 60 * 60 + 60
    for seconds, rows in ((1, 5), (59, 7), (60, 11)):
        _ends(recorder, clock, begin + seconds, "d.a", rows=rows)
    first = int(begin) // 60
    assert (recorder.table_minutes("d.a"), recorder.table_minutes("d.b")) == ({first: 12, first + 1: 11}, {})
    for minute in range(2, 2 * KEPT):
        _ends(recorder, clock, begin + 60 * minute, "d.a")
    assert len(recorder.table_minutes("d.a")) == KEPT
    clock.advance(3600)
    assert recorder.table_minutes("d.a") == {}


def test_bounded_number_of_tables(recorder: Recorder, clock: FakeClock) -> None:
    """A minute has no more tables than the bound, whatever comes in it; each minute begins anew."""
    begin = clock.now() // 60 * 60 + 60
    _ends(recorder, clock, begin, *(f"d.t{n}" for n in range(MOST_TABLES)))
    _ends(recorder, clock, begin + 30, "d.new", "d.t1")
    assert (recorder.table_minutes("d.new"), [*recorder.table_minutes("d.t1").values()]) == ({}, [2])
    assert (recorder.table_rows()["d.new"].rows, recorder.table_rows()["d.new"].per_second) == (1, None)
    _ends(recorder, clock, begin + 60, "d.new")
    assert [len(recorder.table_minutes(name)) for name in ("d.new", "d.t0", "d.t1")] == [1, 1, 1]
