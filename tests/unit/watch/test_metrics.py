"""Metrics: that what is exported is what the table says, and that no counter ever goes back."""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from storage_consumer.config.settings import Monitoring
from storage_consumer.errors import ConfigError
from storage_consumer.summary import RoundSummary, RunningStatement, TableSummary
from storage_consumer.telemetry import forget_secrets, register_secret
from storage_consumer.watch.collector import METRICS, OTHERS, PREFIX, MetricSources, Processes, Showing, processes
from storage_consumer.watch.http_server import Request
from storage_consumer.watch.recorder import Recorder
from storage_consumer.watch.report import AHEAD, OVERDUE
from storage_consumer.watch.status import STALLED
from tests.harness.twins.storage import FakeClock

_CONF = Path(__file__).resolve().parents[3] / "conf"
_NAMED = re.compile(rf"{PREFIX}\w+")
_FOREIGN = ("process_", "python_gc_")
_AT = 1_700_000_000
_TSO = _AT * 1000 << 18


@pytest.fixture
def clock() -> FakeClock:
    """A clock that the test moves."""
    return FakeClock(_AT + 100)


@pytest.fixture
def recorder(clock: FakeClock) -> Recorder:
    """A recorder before anything happened."""
    return Recorder(clock, "1.2")


def _exposition(
    recorder: Recorder, *, most_tables: int = 100, max_lag: float | None = 300.0, textfile: str = ""
) -> Showing:
    sources = MetricSources(
        facts=recorder.facts,
        is_writer=lambda: True,
        statements=lambda: (RunningStatement(table="d.a", version=7, query="DROP", seconds=2.5),),
        processes=lambda: Processes(memory={"driver": 5}, counts={"driver": 1}, connections=3),
        silent_seconds=lambda: None,
        expiration_days=1,
    )
    return Showing(Monitoring(metrics_tables=most_tables, ready_lag=max_lag, metrics_textfile=textfile), sources)


def _scraped(exposition: Showing) -> dict[tuple[str, str], float]:
    """Return (name without prefix, value of its label) → value."""
    text = exposition.metrics(Request(query={})).body.decode()
    return {
        (sample.name.removeprefix(PREFIX), next(iter(sample.labels.values()), "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def _summary(**more: object) -> RoundSummary:
    fields: dict[str, object] = {
        "rows": 3,
        "written": 2,
        "files": 1,
        "bytes": 50,
        "seconds": 0.7,
        "checkpoint": _TSO,
        "checkpoint_running": _TSO + (60_000 << 18),
        "storage_checkpoint": _TSO + (90_000 << 18),
        "skipped": {"row: repeated delivery": 4},
        "stages": {"poll": 0.2, "rows": 0.5},
        "states": {"running": 1, "halted": 1, "waiting": 1},
        "quarantined": {"d.a": 2},
        "tables": (
            TableSummary(table="d.a", rows=3, checkpoint=_TSO + (90_000 << 18)),
            TableSummary(table="d.halted", checkpoint=_TSO, state="halted", error="why"),
            TableSummary(table="d.waits", checkpoint=_TSO, state="waiting", error="why", waits_for="lock"),
        ),
    }
    return RoundSummary(**{**fields, **more})  # type: ignore[arg-type]  # each has the type of its field


def _round(recorder: Recorder, summary: RoundSummary) -> None:
    recorder.round_started(files=1, size=50, storage_checkpoint=summary.storage_checkpoint)
    recorder.advanced(files=summary.files, rows=summary.rows)
    recorder.round_finished(summary)


def test_what_is_exported_is_what_the_table_says(recorder: Recorder) -> None:
    """Each metric of the table is in a scrape with its type and labels, and nothing else is, in both formats."""
    _round(recorder, _summary())
    recorder.compared({"equal": 1})
    exposition = _exposition(recorder)
    for accept, parse in (
        ("", text_string_to_metric_families),
        ("application/openmetrics-text; version=1.0.0", openmetrics),
    ):
        response = exposition.metrics(Request(query={}, accept=accept))
        assert ("openmetrics" in response.content_type) == bool(accept)
        found = {}
        for family in parse(response.body.decode()):
            if not family.name.startswith(_FOREIGN):
                name = family.name.removeprefix(PREFIX) + ("_total" if family.type == "counter" else "")
                labels = {label for sample in family.samples for label in sample.labels} - {"le"}
                found[name] = (family.type, labels)
        assert found == {name: (metric.kind, set(metric.labels)) for name, metric in METRICS.items()}


def test_names_keep_to_the_rules() -> None:
    """Counters end with _total and nothing else does; units are seconds and bytes; no label is one that Prometheus sets."""
    for name, metric in METRICS.items():
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", name), name
        assert name.endswith("_total") == (metric.kind == "counter"), name
        assert not re.search(r"_(ms|minutes|kb|mb|millis|count|sum|bucket)(_|$)", name), name
        assert len(metric.labels) <= 1, name
        assert not {"job", "instance", "le"} & set(metric.labels), name
        assert metric.meaning.endswith("."), name


def test_values(recorder: Recorder) -> None:
    """A round shows as what it did; lags count from the times of the checkpoints."""
    recorder.heard("lease_acquired", {"epoch": 4})
    recorder.heard("table_halted", {"kind": "gate"})
    recorder.heard("decision_obeyed", {"table": "d.p", "verb": "pause"})  # no halt
    recorder.heard("retry", {"what": "round", "error": "no"})
    _round(recorder, _summary())
    found = _scraped(_exposition(recorder))
    assert sum(value for (name, _), value in found.items() if name == "table_halts_total") == 1
    expected = {
        ("build_info", "1.2"): 1,
        ("writer", ""): 1,
        ("lease_epoch", ""): 4,
        ("phase", "idle"): 1,
        ("phase", "standby"): 0,
        ("lag_seconds", ""): 100,
        ("running_lag_seconds", ""): 40,
        ("source_lag_seconds", ""): 10,
        ("checkpoint_timestamp_seconds", ""): _AT,
        ("source_file_expiration_seconds", ""): 86400,
        ("rows_read_total", ""): 3,
        ("rows_written_total", ""): 2,
        ("read_bytes_total", ""): 50,
        ("skipped_total", "row: repeated delivery"): 4,
        ("stage_seconds_total", "rows"): 0.5,
        ("stage_seconds_total", "ddl"): 0,
        ("round_duration_seconds_bucket", "0.5"): 0,
        ("round_duration_seconds_bucket", "1.0"): 1,
        ("round_duration_seconds_count", ""): 1,
        ("tables", "halted"): 1,
        ("tables", "paused"): 0,
        ("tables_waiting", "lock"): 1,
        ("tables_waiting", "file"): 0,
        ("table_halts_total", "gate"): 1,
        ("table_halts_total", "row"): 0,
        ("table_halted", "d.halted"): 1,
        ("table_lag_seconds", "d.halted"): 100,
        ("table_lag_seconds", "d.a"): 10,
        ("table_rows_total", "d.a"): 3,
        ("retries_total", "round"): 1,
        ("statements_running", ""): 1,
        ("statement_seconds", ""): 2.5,
        ("memory_bytes", "driver"): 5,
        ("target_connections", ""): 3,
    }
    assert {key: found.get(key) for key in expected} == expected
    assert ("table_halted", "d.a") not in found


@pytest.mark.parametrize(
    ("health", "changes", "checkpoint"),
    [
        ("healthy", {}, _TSO),
        ("stopped", {"states": {"running": 1, "paused": 1}, "quarantined": {"d.a": 1}}, _TSO),
        ("unequal", {"quarantined": {"d.a": 1}}, _TSO),
        ("clock-skew", {}, _TSO + (161_000 << 18)),
        ("behind", {"checkpoint": _TSO - (201_000 << 18)}, _TSO),
    ],
)
def test_the_word_for_the_feed(recorder: Recorder, health: str, changes: dict[str, object], checkpoint: int) -> None:
    """One word is 1, by the judgement that `status` has, and all others are 0; while a round is tried again it is `retrying`."""
    plain = {"states": {"running": 3}, "quarantined": {}, "storage_checkpoint": checkpoint}
    _round(recorder, _summary(**{**plain, **changes}))
    exposition = _exposition(recorder)
    assert {word for (name, word), value in _scraped(exposition).items() if name == "health" and value} == {health}
    recorder.heard("retry", {"what": "round", "error": "no answer"})
    assert {word for (name, word), value in _scraped(exposition).items() if name == "health" and value} == {"retrying"}


@pytest.mark.parametrize(("beyond", "health"), [(590, "healthy"), (620, "behind")])
def test_a_stale_checkpoint_without_a_limit(recorder: Recorder, beyond: int, health: str) -> None:
    """Tables further behind the bucket, as it was read, than the alert allows are `behind`, as `status` says it."""
    late = _TSO - ((beyond * 1000) << 18)
    _round(
        recorder, _summary(states={}, quarantined={}, checkpoint=late, checkpoint_running=late, storage_checkpoint=_TSO)
    )
    found = _scraped(_exposition(recorder, max_lag=None))
    assert {word for (name, word), value in found.items() if name == "health" and value} == {health}


def test_a_table_that_catches_up_after_its_load_is_behind(recorder: Recorder) -> None:
    """It counts for no checkpoint, yet the limit of the lag holds for it, as in `status`."""
    joining = (_TSO - (400_000 << 18),)
    _round(recorder, _summary(states={}, quarantined={}, joining=joining, storage_checkpoint=_TSO))
    found = _scraped(_exposition(recorder))
    assert {word for (name, word), value in found.items() if name == "health" and value} == {"behind"}


def test_alerts_have_the_limits_of_the_status() -> None:
    """What an alert fires at is what `status` and the page say."""
    rules = (_CONF / "prometheus" / "alerts.yml").read_text(encoding="utf-8")
    for limit, expression in (
        (OVERDUE, "storage_consumer_running_lag_seconds - storage_consumer_source_lag_seconds > {:.0f})"),
        (STALLED, "(storage_consumer_source_lag_seconds > {:.0f})"),
        (AHEAD, "storage_consumer_source_ahead_seconds > {:.0f}\n"),
    ):
        assert expression.format(limit) in rules


def test_before_the_first_round_there_is_no_lag(recorder: Recorder) -> None:
    """A checkpoint of 0 is no time, so nothing is derived from it."""
    found = _scraped(_exposition(recorder))
    assert not [name for name, _ in found if name.endswith(("lag_seconds", "checkpoint_timestamp_seconds"))]
    assert found["rounds_total", ""] == 0


def test_the_lag_of_the_source_does_not_grow_while_nobody_reads_it(recorder: Recorder, clock: FakeClock) -> None:
    """During a long round TiCDC is not behind for what this program does."""
    recorder.round_started(files=1, size=1, storage_checkpoint=_TSO)
    clock.advance(3600)
    assert _scraped(_exposition(recorder))["source_lag_seconds", ""] == 100


def test_rows_move_during_a_round_and_never_go_back(recorder: Recorder) -> None:
    """Rows and files count as they are read, also those of a round that fails and is tried again."""
    exposition = _exposition(recorder)
    seen = []
    steps: tuple[Callable[[], None], ...] = (
        lambda: recorder.round_started(files=2, size=9, storage_checkpoint=_TSO),
        lambda: recorder.advanced(files=1, rows=10),
        lambda: recorder.advanced(files=1, rows=5),
        lambda: recorder.heard("retry", {"what": "round", "error": "gone"}),
        lambda: recorder.round_started(files=2, size=9, storage_checkpoint=_TSO),
        lambda: recorder.advanced(files=2, rows=15),
        lambda: recorder.round_finished(_summary(rows=15)),
    )
    for step in steps:
        step()
        found = _scraped(exposition)
        seen.append((found["rows_read_total", ""], found["files_read_total", ""]))
    assert seen == [(0, 0), (10, 1), (15, 2), (15, 2), (15, 2), (30, 4), (30, 4)]


@pytest.mark.parametrize("seed", range(5))
def test_rows_by_table_add_up_and_never_go_back(recorder: Recorder, seed: int) -> None:
    """However the tables with series of their own change, each series only grows, and all together are all rows."""
    chance, exposition = random.Random(seed), _exposition(recorder, most_tables=3)  # noqa: S311 - not for secrets
    before, total = Counter[str](), 0
    for _ in range(60):
        tables = tuple(
            TableSummary(
                table=f"d.t{number}",
                rows=chance.randrange(1, 50),
                checkpoint=_TSO,
                state=chance.choice(["running", "halted"]),
            )
            for number in chance.sample(range(12), 5)
        )
        total += sum(table.rows for table in tables)
        _round(recorder, _summary(tables=tables))
        if chance.random() < 0.6:
            continue
        shown = {table: rows for (name, table), rows in _scraped(exposition).items() if name == "table_rows_total"}
        assert len(shown) <= 4
        assert all(rows >= before[table] for table, rows in shown.items())
        before.update({table: int(rows - before[table]) for table, rows in shown.items()})
        assert before.total() == total


def test_halted_tables_come_first(recorder: Recorder) -> None:
    """With room for one table the halted one has it; the others are summed up with their lowest checkpoint."""
    exposition = _exposition(recorder, most_tables=1)
    _round(recorder, _summary())
    found = _scraped(exposition)
    assert {table for name, table in found if name == "table_lag_seconds"} == {"d.halted", OTHERS}
    assert found["table_checkpoint_timestamp_seconds", OTHERS] == _AT
    assert found["table_rows_total", OTHERS] == 3


def test_ten_thousand_tables(recorder: Recorder) -> None:
    """A scrape takes well below half a second, and its size does not grow with the number of tables."""
    tables = tuple(
        TableSummary(table=f"shop.t{n}", rows=n + 1, checkpoint=_TSO, state="running") for n in range(10_000)
    )
    exposition = _exposition(recorder)
    _round(recorder, _summary(tables=tables))
    began = time.perf_counter()
    body = exposition.metrics(Request(query={})).body
    assert time.perf_counter() - began < 0.5
    assert len(body) < 100_000


def test_hostile_names_spoil_no_scrape(recorder: Recorder) -> None:
    """A name from outside is a label without secrets, and without what no terminal should get or no UTF-8 has."""
    name = 'd.\ud800"}\n\x1b[31m opensesame'
    _round(recorder, _summary(tables=(TableSummary(table=name, rows=1, checkpoint=_TSO, state="halted"),)))
    register_secret("opensesame")
    try:
        found = _scraped(_exposition(recorder))
    finally:
        forget_secrets()
    assert found["table_halted", 'd.\\ud800"}\\u000a\\u001b[31m ***'] == 1


def test_the_file_is_written_at_once_and_at_the_end(recorder: Recorder, tmp_path: Path) -> None:
    """The file is whole from the start, and its last version has what happened since; no other file is left."""
    path = tmp_path / "feed.prom"
    file = _exposition(recorder, textfile=str(path))
    file.start()
    assert "storage_consumer_rounds_total 0.0" in path.read_text(encoding="utf-8")
    _round(recorder, _summary())
    file.close()
    assert "storage_consumer_rounds_total 1.0" in path.read_text(encoding="utf-8")
    assert [each.name for each in tmp_path.iterdir()] == ["feed.prom"]


def test_a_file_that_cannot_be_written_is_refused(recorder: Recorder, tmp_path: Path) -> None:
    """The message names the option, the file and what the system says."""
    with pytest.raises(ConfigError, match=r"--metrics-textfile .*none/feed\.prom: it cannot be written: No such file"):
        _exposition(recorder, textfile=str(tmp_path / "none" / "feed.prom")).start()


def test_the_process_itself_is_seen() -> None:
    """The driver's memory is that of this process."""
    found = processes(1)
    assert found.memory["driver"] > 1 << 20
    assert found.counts["driver"] == 1


@pytest.mark.parametrize(
    "file", ["prometheus/alerts.yml", "prometheus/alerts_test.yml", "grafana/storage-consumer.json"]
)
def test_rules_and_dashboard_name_metrics_that_exist(file: str) -> None:
    """A metric that is renamed must not leave an alert or a panel silent."""
    named = set(_NAMED.findall((_CONF / file).read_text(encoding="utf-8")))
    known = {PREFIX + name for name in METRICS} | {f"{PREFIX}round_duration_seconds_bucket"}
    assert named
    assert named <= known


def test_each_alert_is_explained() -> None:
    """The page about alerts has a section for each rule, and none for another."""
    rules = (_CONF / "prometheus" / "alerts.yml").read_text(encoding="utf-8")
    alerts = re.findall(r"alert: (\w+)", rules)
    page = (_CONF.parent / "docs" / "operations" / "monitoring.md").read_text(encoding="utf-8")
    assert re.findall(r"^### (StorageConsumer\w+)", page, re.MULTILINE) == alerts
    assert re.findall(r"runbook_url: docs/operations/monitoring.md#(\w+)", rules) == [alert.lower() for alert in alerts]
