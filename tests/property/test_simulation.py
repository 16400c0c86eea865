"""Random histories of source, TiCDC, processes and target, and bugs that they must find; see `tests.campaigns.simulate`."""

from __future__ import annotations

import random

import pytest

from tests.campaigns.simulate import ACTS, of_seed, simulate
from tests.campaigns.simulation.hand_plants import HAND_PLANTS
from tests.campaigns.simulation.load_plants import LOAD_PLANTS
from tests.campaigns.simulation.plants import PLANTS, planted
from tests.campaigns.simulation.remembered import remembered
from tests.campaigns.simulation.shapes import csv_line
from tests.campaigns.simulation.sink import Habits, Sink
from tests.campaigns.simulation.source import Change, Source
from tests.harness.small_bucket import ts
from tests.property.shrinking import cut_down, fault_in

HISTORIES = 200
MOST = 2_000
"""Histories in which a planted bug must be found."""
FEW = 200
"""Histories in which one must be found that is in the loading of tables."""
HANDS = 80
"""Histories in which people change the target, and use the program's commands."""
BEGIN = {
    "written-anew-until-a-restart": 1_600,
    "skips-forgotten": 3_700,
    "views-known-by-what-they-read": 60_900,
}
"""First seed for bugs that many histories get through, so that they are found soon."""
LOGS = 100
"""What a sink is given to write."""
RARE = {"workers-unfenced", "read-ahead-is-proof"}
"""One takes a pause right before a statement, and rows of after it by another process meanwhile, and one a changefeed that begins anew between
what was applied and what was read: once in some thousand histories.
"""


def test_target_is_the_source() -> None:
    """Whatever is cut, delivered twice, killed, paused, late or unanswered: no history ends or stands other than promised."""
    outcome = simulate(range(HISTORIES), ACTS)
    assert outcome.failed == []
    counts = outcome.counts
    assert counts.histories == HISTORIES
    happened = (
        counts.failovers,
        counts.crashes,
        counts.takeovers,
        counts.fenced,
        counts.lost,
        counts.away,
        counts.late,
    )
    odd = (counts.refused, counts.alone, counts.repeated, counts.damaged, counts.collisions, counts.paused)
    copied = (counts.begun, counts.requested, counts.exchanged, counts.loaded, counts.refused_loads)
    fed = (counts.lacking, counts.unread, counts.feeds, counts.refused_feeds, counts.expired)
    assert min(*happened, *odd, *copied, *fed, counts.torn) > 0


def test_status_shows_what_people_did_to_the_target() -> None:
    """Whatever they drop, narrow, delete, skip, resume, load or compare: no table that is known to differ is shown as equal, and no feed healthy."""
    outcome = simulate(range(HANDS), ACTS, hands=True)
    assert outcome.failed == []
    counts = outcome.counts
    assert min(counts.by_hand, counts.doubted, counts.verified, counts.loaded, counts.crashes, counts.takeovers) > 0


def test_the_same_seed_is_the_same_history() -> None:
    """A history depends on its seed and on nothing else."""
    with remembered():
        runs, numbers = of_seed(8, ACTS)
        assert runs(numbers).story == runs(numbers).story  # type: ignore[attr-defined] # a History


def test_sink_writes_no_row_away() -> None:
    """A file that is written anew leaves each row somewhere as a new one, also where a later statement left the structure the same."""
    rewritten = 0
    for seed in range(LOGS):
        source = Source(new=False, raw=False, tells_old=False)
        sink = Sink(source, Habits(new=False, dates=False, dispatchers=False, raw=False, lagging=True), lambda: (-1, 0))
        dice = random.Random(seed)  # noqa: S311 - not for secrets
        for act in ("create", "change_rows", "respell", "respell", "change_rows", "truncate"):
            getattr(source, act)(dice)
        sink.follow(dice)
        sink.restart(dice, 0)
        sink.finish(dice)
        assert _written_away(source, sink) == []
        rewritten += sink.rewritten
    assert rewritten


def _written_away(source: Source, sink: Sink) -> list[Change]:
    """The rows that no file has as new ones: in the directory of a statement those that precede it are repeats."""
    kept = set[str]()
    for path, content in dict(sink.writes).items():
        if path.endswith(".csv"):
            lines, version = content.splitlines(), int(path.split("/")[2])
            is_statements = version in map(ts, source.statements)
            kept |= {line for line in lines if not is_statements or int(line.split(",")[3]) > version}
    rows = (entry for entry in source.log if isinstance(entry, Change))
    return [row for row in rows if csv_line(row.operation, row.name, ts(row.tick), row.values).rstrip() not in kept]


def _finds(plant: str, seeds: range, *, hands: bool = False) -> int:
    """The first seed whose history differs with a bug; without the bug it agrees, so that the bug is what was found."""
    ((seed, _),) = simulate(seeds, ACTS, [plant], until_one_fails=True, hands=hands).failed
    assert simulate([seed], ACTS, hands=hands).failed == []
    return seed


@pytest.mark.slow
@pytest.mark.parametrize("plant", sorted(LOAD_PLANTS))
def test_planted_bug_in_loads_is_found(plant: str) -> None:
    """A program that loads tables with this bug does not get through two hundred histories."""
    _finds(plant, range(FEW))


@pytest.mark.slow
@pytest.mark.parametrize("plant", sorted(HAND_PLANTS))
def test_planted_bug_in_what_is_shown_is_found(plant: str) -> None:
    """A program that shows a table as equal, or a feed as healthy, which it knows is not, does not get through two thousand histories."""
    _finds(plant, range(MOST), hands=True)


@pytest.mark.slow
@pytest.mark.parametrize("plant", sorted(PLANTS.keys() - RARE - LOAD_PLANTS.keys() - HAND_PLANTS.keys()))
def test_planted_bug_is_found(plant: str) -> None:
    """A program with this bug does not get through two thousand histories."""
    begin = BEGIN.get(plant, 0)
    _finds(plant, range(begin, begin + MOST))


def test_failing_history_is_cut_down() -> None:
    """A history that fails is told with what is needed for it, and fails again when it is replayed."""
    plant = "mark-before-rows"
    seed = _finds(plant, range(MOST))
    with remembered(), planted([plant]):
        runs, numbers = of_seed(seed, ACTS)
        fewer = cut_down(runs, numbers, 10.0)
        assert len(fewer) <= 4
        fault = fault_in(runs, fewer)
    assert "CREATE TABLE" in "".join(getattr(fault, "__notes__", ()))
