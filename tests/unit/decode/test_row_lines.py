"""Lines in one piece of bytes are what a list of them is."""

from __future__ import annotations

from itertools import repeat
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_consumer.decode.kernels import row_lines as module
from storage_consumer.decode.kernels.row_lines import Lines, in_one, size_of

LINES = st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"\t")), max_size=12)


@given(LINES, st.data())
def test_as_a_list(lines: list[bytes], data: st.DataObject) -> None:
    """Length, each line, slices, membership and places are those of the list."""
    found = Lines.of(lines)
    assert (len(found), list(found), bool(found)) == (len(lines), lines, bool(lines))
    assert [found[place] for place in range(-len(lines), len(lines))] == [*lines, *lines]
    some = data.draw(st.slices(len(lines)).map(lambda chosen: slice(chosen.start, chosen.stop)))
    assert list(found[some]) == lines[some]
    assert list(found[some][1:]) == lines[some][1:]
    assert all(line in found and found.index(line) == lines.index(line) for line in lines)
    assert in_one(lines) == in_one(found) == b"".join(line + b"\n" for line in lines)
    assert size_of(found) == size_of(lines) + len(lines)


def test_beyond() -> None:
    """A place that is not there is an error."""
    with pytest.raises(IndexError):
        Lines.of([b"a"])[1]


@given(LINES, st.data(), st.sampled_from((0, 500)))
def test_chosen(lines: list[bytes], data: st.DataObject, few: int) -> None:
    """Those at any places, more than once too, whether many or few; also out of a slice."""
    places = data.draw(st.lists(st.integers(0, len(lines) - 1), max_size=20)) if lines else []
    with patch.object(module, "FEW", few):
        found = Lines.of([b"before", *lines])[1:].chosen(np.array(places, np.intp))
        assert list(found) == [lines[place] for place in places]
        assert list(found.chosen(np.arange(len(found)))) == list(found)


@given(st.lists(LINES, min_size=1, max_size=4))
def test_joined(parts: list[list[bytes]]) -> None:
    """All lines of all parts, whichever of them are empty."""
    found = Lines.joined([Lines.of(part) for part in parts])
    assert list(found) == [line for part in parts for line in part]
    assert list(Lines.joined([found, found])) == [*found, *found]


def test_long() -> None:
    """Lines that are chosen by the loop keep every byte, whatever their lengths are."""
    lines = [bytes(repeat(97 + number % 26, number % 23)) for number in range(700)]
    places = np.arange(700)[::-1]
    assert list(Lines.of(lines).chosen(places)) == lines[::-1]
