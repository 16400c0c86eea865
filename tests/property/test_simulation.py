"""Random histories of source, TiCDC, processes and target, and bugs that they must find; see `tests.campaigns.simulate`."""

from __future__ import annotations

import pytest

from tests.campaigns.simulate import ACTS, of_seed, simulate
from tests.campaigns.simulation.plants import PLANTS, planted
from tests.campaigns.simulation.remembered import remembered
from tests.property.cutting import cut_down, fault_in

HISTORIES = 200
MOST = 2_000
"""Histories in which a planted bug must be found."""
RARE = {"lanes-unfenced"}
"""It takes a pause right before a statement, and rows of after it by another process meanwhile: once in a thousand histories."""


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
    odd = (counts.refused, counts.alone, counts.repeated, counts.damaged, counts.collisions)
    assert min(*happened, *odd) > 0


def test_the_same_seed_is_the_same_history() -> None:
    """A history depends on its seed and on nothing else."""
    with remembered():
        runs, numbers = of_seed(7, ACTS)
        assert runs(numbers).story == runs(numbers).story  # type: ignore[attr-defined] # a History


@pytest.mark.slow
@pytest.mark.parametrize("plant", sorted(PLANTS.keys() - RARE))
def test_planted_bug_is_found(plant: str) -> None:
    """A program with this bug does not get through two thousand histories."""
    assert simulate(range(MOST), ACTS, [plant], until_one_fails=True).failed


def test_failing_history_is_cut_down() -> None:
    """A history that fails is told with what is needed for it, and fails again when it is replayed."""
    plant = "mark-before-rows"
    ((seed, _),) = simulate(range(MOST), ACTS, [plant], until_one_fails=True).failed
    with remembered(), planted([plant]):
        runs, numbers = of_seed(seed, ACTS)
        fewer = cut_down(runs, numbers, 10.0)
        assert len(fewer) <= 4
        fault = fault_in(runs, fewer)
    assert "CREATE TABLE" in "".join(getattr(fault, "__notes__", ()))
