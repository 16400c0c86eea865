"""Plots: where lines and bars are, and what their axes say."""

from __future__ import annotations

import re

import pytest

from storage_consumer.watch.page_views import POINTS, lag_plot, rate_plot, short, table_plot
from storage_consumer.watch.report import Minute, ShownEntry

NOW = 1_789_999_980.0
"""The begin of a minute."""
LAST = int(NOW) // 60


def minute(ago: int, lag: float = 30, rows: int = 0, **more: int) -> Minute:
    """A minute in the past, at whose end the checkpoint lay back by `lag` seconds."""
    ts = int(((LAST - ago + 1) * 60 - lag) * 1000) << 18
    values = {"checkpoint": ts, "checkpoint_running": ts, "storage_checkpoint": ts, **more}
    return Minute(minute=LAST - ago, row_changes=rows, statements=0, **values)


def test_line_of_lags() -> None:
    """A line runs from left to right, high lags are up, and the axis ends at a plain duration above the highest."""
    plot = lag_plot([minute(60, 30), minute(3, 30), minute(2, 90), minute(1, 60)], NOW, 1)
    (line,) = {line.path for line in plot.lines}
    assert line == "M0.0 75.0H16.7M950.0 75.0H966.7L983.3 25.0L1000.0 50.0"
    assert plot.y_labels == ("2m00s", "1m00s", "0s")
    assert plot.description == "The lag of all tables over the last 1h00m: 1m00s at last, 30s to 1m30s."
    assert plot.x_labels == ("13:13", "13:28", "13:43", "13:58", "14:13")


def test_a_young_feed_fills_its_plot() -> None:
    """A feed that has run for three minutes has a plot of three minutes, with seconds at its times, whatever range is chosen."""
    minutes = [minute(3, 30, 60), minute(2, 90, 60), minute(1, 60, 60)]
    for hours in (1, 24):
        plot = lag_plot(minutes, NOW, hours)
        assert plot.lines[0].path == "M0.0 75.0H333.3L666.7 25.0L1000.0 50.0"
        assert plot.x_labels == ("14:10:00", "14:10:45", "14:11:30", "14:12:15", "14:13:00")
        assert plot.description.startswith("The lag of all tables over the last 3m00s: ")
        assert rate_plot(minutes, NOW, hours).lines[0].path.startswith("M0.0 ")
    table = table_plot({LAST - 1: 5}, [], NOW, NOW - 120)
    assert table.lines[0].path == "M500.0 100V0.0H1000.0V100Z".replace("V0.0", "V16.7")
    assert len(lag_plot([minute(0)], NOW, 6).x_labels[0]) == len("14:12:00")


def test_gap() -> None:
    """Minutes in which nobody wrote interrupt the line; a feed without a checkpoint has none."""
    assert lag_plot([minute(30), minute(29), minute(9), minute(8)], NOW, 1).lines[0].path.count("M") == 2
    none = lag_plot([minute(1, checkpoint=0)], NOW, 1)
    assert (none.lines[0].path, none.lines[1].path != "") == ("", True)


def test_only_the_chosen_hours() -> None:
    """What is older than the range is left out, and nothing is drawn outside of the plot."""
    every = [minute(ago, 30, 60) for ago in range(1440, -1, -1)]
    for hours in (1, 6, 24):
        for plot in (lag_plot(every, NOW, hours), rate_plot(every, NOW, hours)):
            for line in plot.lines:
                numbers = [float(found) for found in re.findall(r"[\d.]+", line.path)]
                assert 0 <= min(numbers) <= max(numbers) <= 1000
                assert 50 < len(re.findall("[ML]", line.path)) <= POINTS + 1


def test_worst_lag_of_a_point_is_shown() -> None:
    """Where minutes are put together, a short lag is not lost."""
    every = [minute(ago, 500 if ago == 700 else 10) for ago in range(1440, -1, -1)]
    assert " 16.7" in lag_plot(every, NOW, 24).lines[0].path


def test_rates() -> None:
    """Bars have the height of a rate; the running minute counts by its seconds so far."""
    plot = rate_plot([minute(2, rows=600), minute(0, rows=10)], NOW + 5, 1)
    assert plot.y_labels == ("10", "5", "0")
    assert plot.description == "Row changes per second over the last 2m05s: 2 at last, 2 to 10."
    assert plot.lines[0].path.count("M") == 2
    assert "V0.0" in plot.lines[0].path
    assert "V80.0" in plot.lines[0].path


def test_nothing_known() -> None:
    """Without any minute there is an empty plot that says so."""
    for plot in (lag_plot([], NOW, 6), rate_plot([], NOW, 6), table_plot({}, [], NOW, 0.0)):
        assert {line.path for line in plot.lines} == {""}
        assert plot.description.endswith("nothing is known.")


def test_statements_of_a_table_are_marked() -> None:
    """A statement is marked where it ended; one of more than an hour ago, or without an end, is not."""
    done = [ShownEntry(version=1, state="done", query="", ended_ago=ago) for ago in (1800.0, 3700.0, None)]
    assert table_plot({LAST - 1: 5}, done, NOW, 0.0).marks == (500.0,)


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (0.25, "0.25"), (999, "999"), (1500, "1.5k"), (98_000, "98k"), (2e7, "20M"), (3e9, "3G")],
)
def test_short_numbers(number: float, text: str) -> None:
    """Numbers of an axis take little room."""
    assert short(number) == text
