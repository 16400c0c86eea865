"""Random histories of renames, swaps, drops, recreations and exchanges, in both architectures; see `rename_histories`."""

from __future__ import annotations

import pytest

from tests.property.rename_histories import of_seed, runner
from tests.property.renaming import run
from tests.property.renaming_source import ARCHS, Arch
from tests.property.shrinking import cut_down, fault_in

RENAMES = 25


@pytest.mark.parametrize("seed", range(8))
def test_equal_after_every_round(seed: int) -> None:
    """Whatever is cut, restarted, killed, delivered twice or late: the target is as the source was at each checkpoint (D1, D2)."""
    arch, numbers = of_seed(seed)
    history = run(arch, numbers, RENAMES)
    assert history.counts.renames >= RENAMES


@pytest.mark.parametrize("arch", ARCHS)
def test_failing_history_is_cut_down(arch: Arch, monkeypatch: pytest.MonkeyPatch) -> None:
    """A history that fails for one of its statements is told with little else than that statement."""
    monkeypatch.setattr("tests.property.renaming_target.RenamingTarget._renamed", lambda *_: None)
    _, endless = of_seed(1)
    numbers = [next(endless) for _ in range(60)]
    assert fault_in(runner(arch), numbers) is not None
    fewer = cut_down(runner(arch), numbers, 20.0)
    assert len(fewer) <= 6
    fault = fault_in(runner(arch), fewer)
    assert fault is not None
    assert "RENAME" in "".join(fault.__notes__)
