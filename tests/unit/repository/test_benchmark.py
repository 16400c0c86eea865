"""What the benchmark makes of its figures, and what it writes into buckets."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pytest

from tests.benchmarks.__main__ import main
from tests.benchmarks.changes import PROFILES, SourceTable
from tests.benchmarks.limit import WrongResult
from tests.benchmarks.lines import LINES, Line
from tests.benchmarks.measuring import Asked, Bench
from tests.benchmarks.report import compared, line
from tests.benchmarks.results import Goal, Result, Run
from tests.benchmarks.sampling import Sampler
from tests.harness.pages import PAGES


def result(*ratios: float, goal: Goal | None = None) -> Result:
    """A line whose reference is 100 in each run."""
    runs = [Run(figure=100 * ratio, reference=100.0) for ratio in ratios]
    return Result(name="csv", unit="rows/s", against="LOAD DATA", runs=runs, goal=goal)


@pytest.mark.parametrize(
    ("goal", "verdict"),
    [
        (Goal(value=0.5), "yes"),
        (Goal(value=0.6), "no"),
        (Goal(value=50, ratio=False), "yes"),
        (Goal(value=49, ratio=False, at_least=False), "no"),
        (None, ""),
    ],
)
def test_median_is_judged_by_the_goal(goal: Goal | None, verdict: str) -> None:
    """The median of the runs' ratios, or of their figures, meets a goal or does not; one that is exactly met counts."""
    assert result(0.9, 0.5, 0.1, goal=goal).verdict == verdict


def test_line_names_goal_and_figures() -> None:
    """A line shows the goal, what was found, and both figures in their unit."""
    assert line(result(0.5, goal=Goal(value=0.5))).split() == [
        "csv",
        ">=",
        "0.5",
        "0.5",
        "yes",
        "50",
        "100",
        "rows/s",
    ]


def test_comparison_goes_by_each_runs_own_reference() -> None:
    """A machine that is half as fast in a later run does not count as a change of the program."""
    slower = Result(name="csv", unit="rows/s", against="LOAD DATA", runs=[Run(figure=25.0, reference=50.0)])
    earlier = {"results": [result(0.25).document()]}
    assert compared([slower], earlier).splitlines()[1].split()[-2:] == ["x", "2.00"]


@pytest.mark.parametrize("profile", PROFILES)
def test_transactions_can_be_applied(profile: str) -> None:
    """Each change starts from the row as it was, each transaction deletes before it inserts, and codes are never shared."""
    table = SourceTable(name="t", version=1)
    rows: dict[int, int] = {}
    for transaction in islice(PROFILES[profile](table, random.Random(1)), 3_000):  # noqa: S311 - repeatable, not secret
        for row, before, after in transaction:
            assert rows.pop(row, None) == before
            if after is not None:
                rows[row] = after
        codes = [state >> 60 for state in rows.values()]
        assert not any(codes) or len(set(codes)) == len(codes)
    assert rows == table.states


def test_sampler_puts_time_down_to_stages() -> None:
    """Time spent below a function of a stage is that stage's; the rest is the rest's."""
    sampler = Sampler({"sql_text": "quote"}, "rest")
    began = time.process_time()
    sampler.start()
    while time.process_time() - began < 0.1:
        sum(range(10_000))
    sampler.stop()
    assert set(sampler.seconds) == {"rest"}
    assert 0.05 < sampler.seconds["rest"] < 0.15


def test_wrong_result_leaves_the_other_lines(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line whose result is wrong is told and left out, the next one is measured and written, and the exit code says it."""

    def wrong(name: str, _: Bench, __: Asked) -> Sequence[Result]:
        raise WrongResult(f"{name} lacks a row")

    monkeypatch.setitem(LINES, "insert", Line(about="", measure=wrong))
    monkeypatch.setitem(LINES, "csv", Line(about="", measure=lambda *_: [result(0.5)]))
    assert main(["insert", "csv", "--json", str(tmp_path / "figures.json")]) == 1
    assert "insert: insert lacks a row" in capsys.readouterr().err
    written = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    assert [each["name"] for each in written["results"]] == ["csv"]


def test_comparison_with_no_figures_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that cannot be compared with is told before anything is measured."""
    with pytest.raises(SystemExit, match="2"):
        main(["csv", "--compare", str(tmp_path / "missing.json")])
    assert "holds no figures" in capsys.readouterr().err


def test_every_line_has_its_words() -> None:
    """The page of performance names each line that there is."""
    assert [name for name in LINES if f"`{name}`" not in PAGES["docs/performance.md"]] == []
