"""canal-json under every option and of every type is read back as it was written, against an encoder of its own."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.canal_files import case
from tests.property.million import PROTOCOLS


@settings(max_examples=60)
@given(st.randoms(use_true_random=False), st.integers(0, 12))
def test_what_is_read_is_what_was_written(chance: random.Random, rows: int) -> None:
    """Random tables, values, options, terminators and blocks give the rows that went in."""
    made = case(chance, rows)
    assert made.found == made.expected, made.what


def test_the_long_run_has_it() -> None:
    """The command for a million rows knows the protocol."""
    assert PROTOCOLS["canal-json"] is case
