"""Files under every option and of every type are read back as they were written, or refused by file, row and byte."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_consumer.decode.decoder import FileRead, Tally
from storage_consumer.errors import UndecodableRow
from storage_consumer.model import CommitRange
from tests.harness.corpora import THOROUGH
from tests.property import canal_files, csv_files
from tests.property.csv_files import Case
from tests.property.test_batches import JSON_MUTATIONS, spoilt

EXAMPLES = 5_000 if THOROUGH else 150
CASES = (csv_files.case, canal_files.case)


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=EXAMPLES)
@given(chance=st.randoms(use_true_random=True), rows=st.integers(0, 12))
def test_round_trip(case: Callable[[random.Random, int], Case], chance: random.Random, rows: int) -> None:
    """Whatever the options, the types, the values and the blocks, a file gives back its rows, or is refused where it is open (T8, T10, T11, T12, U4)."""
    found = case(chance, rows)
    assert found.found == found.expected, found.what


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=EXAMPLES)
@given(chance=st.randoms(use_true_random=True), rows=st.integers(0, 6), low=st.sampled_from([0, csv_files.TS + 2]))
def test_spoilt(case: Callable[[random.Random, int], Case], chance: random.Random, rows: int, low: int) -> None:
    """Other bytes, a cut or doubled parts give rows of the commit range, or an error that names the file, the row and the byte."""
    made, tally = case(chance, rows), Tally()
    content = spoilt(made.content, chance, JSON_MUTATIONS)
    if content and chance.random() < 0.3:
        place, other = chance.randrange(len(content)), chance.randrange(len(content))
        content = content[:place] + chance.choice((b"", content[other:], b"[" * 5000, b'"' * 5000, b"\\" * 5000))
    size = chance.choice((1, 7, 997, 1 << 20)) if len(content) < 3000 else 4096
    blocks = (content[start : start + size] for start in range(0, len(content), size))
    commit_range = CommitRange(low=low, high=2**64)
    file = FileRead(blocks=blocks, source="CDC1.x", layout=made.layout, commit_range=commit_range, tally=tally)
    told = ""
    try:
        for _, ts, _, values, old in made.decoder.rows(file):
            assert len(values) == len(made.layout.columns)
            assert old is None or len(old) == len(values)
            # Without the extension a message has no commit-ts of its own.
            assert case is canal_files.case or not 0 < ts <= low
    except UndecodableRow as error:
        told = str(error)
    assert not told or f"CDC1.x: row {tally.rows} at byte " in told, made.what
