"""CSV under every option and of every type is read back as it was written; ``python -m tests.property.million`` goes further."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.csv_files import case
from tests.property.million import PROTOCOLS, main


@settings(max_examples=150)
@given(st.randoms(use_true_random=True), st.integers(0, 8))
def test_round_trip(chance: random.Random, rows: int) -> None:
    """Whatever the options, the types, the values and the blocks, a file gives back its rows, or is refused where it is open (T8, T10, T11, T12, U4)."""
    found = case(chance, rows)
    assert found.found == found.expected, found.what


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_command(protocol: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The command for a million rows says how many it compared."""
    assert main([protocol, "--rows", "1500", "--seed", "3"]) == 0
    assert "without a difference" in capsys.readouterr().out
