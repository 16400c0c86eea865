"""Changes in columns: packing, joining, and the last change of each key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_consumer.decode.kernels.row_lines import Lines
from storage_consumer.rows.row_keys import Key, is_birth, order_of
from storage_consumer.rows.row_order import (
    Changes,
    Keys,
    compact_keys,
    folded,
    in_sequence,
    latest,
    listed_keys,
    together,
    unpacked,
)
from storage_consumer.rows.spec import Fold
from tests.unit.halves import events, table


def changes(*rows: tuple[int, int, Key, bytes]) -> Changes:
    """Each row: commit ts, order, key, line."""
    ts, order, keys, lines = zip(*rows, strict=True)
    return Changes(
        ts=np.array(ts, np.uint64),
        order=np.array(order, np.int64),
        keys=compact_keys(list(keys)),
        lines=Lines.of(lines),
    )


def rows(found: Changes) -> list[tuple[int, int, Key, bytes]]:
    """The same, back again."""
    keys: list[Key] = found.keys if isinstance(found.keys, list) else found.keys.tolist()
    return [(*event[:2], key, event[2]) for event, key in zip(events(found), keys, strict=True)]


INTEGERS = [(5, 1, 7, b"a"), (2**63 + 5, 1 << 60, -7, b""), (6, 3, 2**63 - 1, b"c\t\\n")]
TEXTS: list[tuple[int, int, Key, bytes]] = [(5, 1, "x", b""), (6, 2, ("a", "\ud800"), b"b"), (7, 3, 2**64 - 1, b"c")]


@pytest.mark.parametrize("of", [INTEGERS, TEXTS, INTEGERS[:1], TEXTS[:1]], ids=str)
def test_packed(of: list[tuple[int, int, Key, bytes]]) -> None:
    """What is packed comes out as it went in, empty lines and keys of any kind too."""
    assert rows(unpacked(changes(*of).packed())) == of


def test_together() -> None:
    """Parts with integers and with texts for keys are one behind the other."""
    assert rows(together([changes(*INTEGERS), changes(*TEXTS)])) == [*INTEGERS, *TEXTS]
    assert isinstance(together([changes(*INTEGERS)] * 2).keys, np.ndarray)


def test_chosen() -> None:
    """Changes are taken by their places, in the sequence of these."""
    for of in (INTEGERS, TEXTS):
        assert rows(changes(*of).chosen(np.array([2, 0]))) == [of[2], of[0]]


@pytest.mark.parametrize("key", [1, "k", ("k", "l")], ids=["integer", "text", "two columns"])
def test_latest_is_independent_of_arrival(key: Key) -> None:
    """The last change of a key wins in whatever order changes arrive: by commit ts, then upserts over deletes, then place (C18, C24)."""
    given = [
        (5, order_of(9, 9, upsert=True), key, b"first"),
        (7, order_of(3, 1, upsert=True), key, b"last"),
        (7, order_of(8, 9, upsert=False), key, b"delete"),
    ]
    for arrived in permutations(given):
        found = changes(*arrived)
        assert list(folded(found, table()).lines) == [b"last"]


def test_latest_by_place() -> None:
    """Where commit ts are not told, the file and the row decide, whatever the change does."""
    given = changes((7, order_of(3, 1, upsert=True), 1, b"row"), (7, order_of(3, 2, upsert=False), 1, b"delete"))
    assert list(folded(given, replace(table(), has_commit_ts=False)).lines) == [b"delete"]


def test_latest_of_many() -> None:
    """Each key has one last change; integers come in their sequence."""
    keys: Keys = np.array([3, -1, 3, 2, -1], np.int64)
    ts, order = np.array([1, 9, 2, 1, 8], np.uint64), np.arange(5, dtype=np.int64)
    assert latest(ts, order, keys, table())[0].tolist() == [1, 3, 2]
    assert sorted(latest(ts, order, [str(key) for key in keys], table())[0].tolist()) == [1, 2, 3]
    assert latest(ts[:0], order[:0], keys[:0], table())[0].tolist() == []


def test_compact_keys() -> None:
    """Only keys that are all integers of 64 bits become an array; true and false are none."""
    assert isinstance(compact_keys([1, -(2**63)]), np.ndarray)
    assert compact_keys([1, 2**63]) == [1, 2**63]
    assert compact_keys([1, "1"]) == [1, "1"]


@given(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=6).map(sorted), max_size=6))
def test_in_sequence(pieces: list[list[int]]) -> None:
    """Pieces that overlap come out as one sequence, no commit ts is in two parts, and none is opened before its time."""
    pieces.sort(key=lambda piece: piece[0])
    made = [
        Changes(
            ts=np.array(piece, np.uint64),
            order=np.arange(100 - number, 100 - number + len(piece)),
            keys=[],
            lines=Lines.of([b"%d" % (100 * number + place) for place in range(len(piece))]),
        )
        for number, piece in enumerate(pieces)
    ]
    taken: list[int] = []

    def given_out() -> Iterator[tuple[int, bytes]]:
        for piece in made:
            taken.append(int(piece.ts[0]))
            yield taken[-1], piece.packed()

    seen: set[int] = set()
    found: list[tuple[int, int, bytes]] = []
    for part in in_sequence(given_out()):
        of_part = list(events(part))
        assert not seen & {ts for ts, _, _ in of_part}
        seen |= {ts for ts, _, _ in of_part}
        assert len(taken) == len(made) or all(ts < taken[-1] for ts, _, _ in of_part)
        found += of_part
    assert found == sorted((event for piece in made for event in events(piece)), key=lambda event: event[:2])


BORN, GONE, CHANGED = (1, True), (0, False), (0, True)
"""A birth, a delete, and an update: whether it is a birth, and whether it leaves a row in place."""


@pytest.mark.parametrize(
    ("life", "expected"),
    [
        ([BORN], True),
        ([CHANGED], False),
        ([BORN, CHANGED], True),
        ([GONE, BORN], True),
        ([GONE], False),
        ([BORN, GONE], True),
        ([CHANGED, GONE], False),
        ([BORN, GONE, CHANGED], False),
        ([BORN, GONE, GONE], False),
        ([BORN, CHANGED, GONE, BORN, CHANGED, CHANGED], True),
        ([GONE, BORN, GONE], True),
    ],
)
@pytest.mark.parametrize("fold", [Fold.PAD, Fold.LOOSE])
def test_births(life: list[tuple[int, bool]], expected: bool, fold: Fold) -> None:  # noqa: FBT001 - a column of the table
    """Whether the last life of a key began among its changes; folded piece by piece, beside other keys, no birth is lost.

    One may be added there, of a key that came back under its own spelling without an event of that.
    """
    work = table()
    work = replace(work, key=(replace(work.key[0], fold=fold),))
    given = [
        (ts, order_of(0, ts, upsert=upsert, birth=bool(birth)), key, f"{key}{ts}".encode())
        for key, events in (("a", [CHANGED, BORN]), ("b", life), ("c", [BORN]))
        for ts, (birth, upsert) in enumerate(events, 1)
    ]
    for first in range(len(given)):
        for then in range(first, len(given)):
            pieces = [changes(*some) for some in (given[:first], given[first:then], given[then:]) if some]
            found = folded(together([folded(piece, work) for piece in pieces]), work)
            last = dict(zip(listed_keys(found.keys), is_birth(found.order).tolist(), strict=True))
            is_whole = first in (0, 2) and then in (2 + len(life), len(given))
            assert last == {"a": True, "b": expected or (last["b"] and not is_whole), "c": True}


@pytest.mark.parametrize("passes", [2, 3])
@pytest.mark.parametrize("left_out", range(4))
def test_births_of_what_is_delivered_again(passes: int, left_out: int) -> None:
    """A delete that is delivered several times, with or without all that comes before it, ends the life that began among the changes."""
    work = table()
    work = replace(work, key=(replace(work.key[0], fold=Fold.PAD),))
    life = [(5, True, True), (6, False, True), (7, False, False)]
    given = [
        (ts, order_of(rank, number, upsert=upsert, birth=birth), "a", b"")
        for rank in range(passes)
        for number, (ts, birth, upsert) in enumerate(life, 1)
        # What TiCDC delivers again begins anywhere.
        if not rank or number > left_out
    ]
    for first in range(len(given)):
        for then in range(first, len(given)):
            pieces = [changes(*some) for some in (given[:first], given[first:then], given[then:]) if some]
            found = folded(together([folded(piece, work) for piece in pieces]), work)
            assert is_birth(found.order).tolist() == [True]


def test_births_where_no_row_can_be_in_the_way() -> None:
    """Keys that are equal only where their texts are have the birth of their last change alone."""
    given = changes(
        (1, order_of(0, 1, upsert=True, birth=True), "a", b"x"), (2, order_of(0, 2, upsert=True), "a", b"y")
    )
    assert is_birth(folded(given, table()).order).tolist() == [False]
