"""Digests of finished files: what a later run, in another process on another machine, makes of a listed file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_consumer.model import StoredObject
from storage_consumer.plan.finished_files import (
    CHUNK,
    EVERYTHING,
    REWRITTEN,
    WIDTH,
    Digests,
    FileVerdict,
    Finished,
    digest_of,
    is_mark,
)

NUMBERS = st.one_of(st.integers(1, 3 * CHUNK), st.integers((1 << 64) - 99, (1 << 64) - 1))


def test_digest_is_the_same_everywhere() -> None:
    """A digest does not depend on the process; it is what older states hold."""
    assert digest_of(StoredObject(path="a", size=10, tag="表-1")) == 11068021632477361142


@given(st.integers(0, 1 << 40), st.text())
def test_digest_tells_size_and_tag(size: int, tag: str) -> None:
    """Another size or another tag is another digest, whatever the path; none is 0 or 1."""
    found = digest_of(StoredObject(path="a", size=size, tag=tag))
    assert found == digest_of(StoredObject(path="b", size=size, tag=tag)) > REWRITTEN
    assert found != digest_of(StoredObject(path="a", size=size + 1, tag=tag))
    assert found != digest_of(StoredObject(path="a", size=size, tag=f"{tag}x"))


@given(st.dictionaries(NUMBERS, st.integers(1, (1 << 64) - 1), max_size=20), st.lists(NUMBERS, max_size=5), NUMBERS)
def test_chunks(noted: dict[int, int], later: list[int], beyond: int) -> None:
    """What is noted comes back over what is stored, chunk by chunk; each chunk is stored where it moved, and not again."""
    digests, stored = Digests({}), dict[int, bytes]()
    for some in (noted, dict.fromkeys(later, REWRITTEN)):
        for number, digest in some.items():
            digests[number] = digest
        moved, replaces = digests.moved()
        assert moved.keys() == {number // CHUNK for number in some}
        assert not replaces
        assert all(len(chunk) <= CHUNK * WIDTH for chunk in moved.values())
        stored |= moved
    expected = noted | dict.fromkeys(later, REWRITTEN)
    again = Digests(stored)
    assert {number: again[number] for number in expected} == expected
    assert digests.moved() == ({}, False)
    finished = sorted(n for n, digest in expected.items() if digest != REWRITTEN and n > beyond)
    assert list(again.finished_beyond(beyond)) == finished
    rewritten = [n for n, digest in expected.items() if digest == REWRITTEN]
    assert sorted(again.rewritten()) == sorted(rewritten)
    for number in expected:
        again.pass_over(number)
    # What is not waited for any more is no file's digest: whatever comes under the number is read.
    assert [*again.rewritten()] == []
    assert all(is_mark(again[number]) for number in rewritten)
    others = expected.keys() - set(rewritten)
    assert [again[number] for number in others] == [expected[number] for number in others]


@pytest.mark.parametrize(
    ("known", "number", "left_out", "verdict", "unseen"),
    [
        (7, 5, 0, FileVerdict.UNCHANGED, False),
        (8, 5, 4, FileVerdict.REWRITTEN, False),
        (8, 5, 5, FileVerdict.REWRITTEN, True),
        (8, 5, EVERYTHING, FileVerdict.REWRITTEN, True),
        (REWRITTEN, 5, 5, FileVerdict.REWRITTEN, False),
        (7, 12, 0, FileVerdict.UNCHANGED, False),
        (8, 12, 0, FileVerdict.REWRITTEN, False),
        (0, 12, 20, FileVerdict.NEW, True),
        (0, 5, 4, FileVerdict.UNSURE, False),
        (0, 5, EVERYTHING, FileVerdict.UNCHANGED, True),
    ],
)
def test_verdicts(known: int, number: int, left_out: int, verdict: FileVerdict, *, unseen: bool) -> None:
    """A file with digest 7 in a sequence that is finished up to 10, by what is `known` of it."""
    digests = Digests({})
    digests[number] = known
    finished = Finished(upto=10, left_out=left_out, digests=digests.moved()[0])
    assert (finished.judge(number, 7), finished.was_unseen(number)) == (verdict, unseen)
