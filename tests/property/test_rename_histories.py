"""Random histories of renames, swaps, drops, recreations and exchanges, in both architectures, held against a model.

Each history is a list of numbers; each number says by itself what happens next, so that any part of the list is a history too
and one that fails can be cut down. Planner, consumers, manager, journal and state are the real ones, the rest are memory twins.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial

import pytest

from tests.harness.corpora import THOROUGH
from tests.property.renaming import run
from tests.property.renaming_source import ARCHS, Arch
from tests.property.shrinking import Run, cut_down, fault_in

RENAMES = 200 if THOROUGH else 25
"""Of each history, at least."""
SEEDS = range(500 if THOROUGH else 8)


def of_seed(seed: int) -> tuple[Arch, Iterator[int]]:
    """The architecture and the endless numbers of a history."""
    dice = random.Random(seed)  # noqa: S311 - not for secrets
    arch = dice.choice(ARCHS)
    return arch, iter(lambda: dice.getrandbits(48), -1)


def runner(arch: Arch) -> Run:
    """What runs histories of one architecture."""
    return partial(run, arch)


@pytest.mark.parametrize("seed", SEEDS)
def test_equal_after_every_round(seed: int) -> None:
    """Whatever is cut, restarted, killed, delivered twice or late: the target is as the source was at each checkpoint (D1, D2)."""
    arch, numbers = of_seed(seed)
    history = run(arch, numbers, RENAMES)
    assert history.counts.renames >= RENAMES


@pytest.mark.parametrize("arch", ARCHS)
def test_failing_history_is_cut_down(arch: Arch, monkeypatch: pytest.MonkeyPatch) -> None:
    """A history that fails for one of its statements is told with little else than that statement."""
    monkeypatch.setattr("tests.property.renaming.RenamingTarget._renamed", lambda *_: None)
    _, endless = of_seed(1)
    numbers = [next(endless) for _ in range(60)]
    assert fault_in(runner(arch), numbers) is not None
    fewer = cut_down(runner(arch), numbers, 20.0)
    assert len(fewer) <= 6
    fault = fault_in(runner(arch), fewer)
    assert fault is not None
    assert "RENAME" in "".join(fault.__notes__)
