"""A version directory's files: each read until it is finished, none passed over."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_consumer.plan.finished_files import (
    EVERYTHING,
    FileSequence,
    FileSequences,
    FileVerdict,
    Finished,
    Rest,
    digest_of,
)
from storage_consumer.plan.table_files import TableFiles, TableVersionConsumer
from tests.unit.building import changed, data_file

ONE, TWO, THREE, FOUR = (data_file("s/t", 100, number) for number in range(1, 5))


@pytest.fixture
def sequence() -> FileSequence:
    """A sequence of which files 1 to 3 are listed."""
    found = FileSequence()
    for file in (ONE, TWO, THREE):
        assert found.offer(file)
    return found


def test_finished_in_order(sequence: FileSequence) -> None:
    """Finished files move the mark up to the first that is not finished, whatever order they finish in."""
    for file, mark in ((THREE, 0), (ONE, 1), (TWO, 3)):
        sequence.finish(file)
        assert sequence.done_upto == mark


def over_a_restart(sequence: FileSequence) -> Finished:
    """What a later run gets of what this one stores."""
    stored = sequence.to_store()
    return Finished(upto=stored.upto, left_out=stored.left_out, digests=stored.digests)


def test_an_earlier_run_finished_it() -> None:
    """At a restart a file that is finished is not taken, the one after it is."""
    sequence = FileSequence(Finished(upto=2))
    files = (replace(ONE, finished=True), replace(TWO, finished=True), THREE)
    assert [sequence.offer(file) for file in files] == [False, False, True]


def test_what_a_later_run_knows(sequence: FileSequence) -> None:
    """Of each finished file it is known whether it is still the same, also of one beyond a pending file."""
    sequence.finish(ONE)
    sequence.finish(THREE)
    finished = over_a_restart(sequence)
    assert finished.upto == 1
    verdicts = [
        [finished.judge(file.number, digest_of(shown.stored)) for shown in (file, changed(file, "2"))]
        for file in (ONE, TWO, THREE)
    ]
    unchanged = [FileVerdict.UNCHANGED, FileVerdict.REWRITTEN]
    assert verdicts == [unchanged, [FileVerdict.NEW, FileVerdict.NEW], unchanged]
    again = FileSequence(finished)
    assert again.offer(TWO)
    again.finish(TWO)
    assert (again.done_upto, again.is_open) == (3, False)


def test_a_later_run_reads_what_was_written_anew(sequence: FileSequence) -> None:
    """A finished file that turned out to be written anew is read again by a later run, whatever it looks like then."""
    for file in (ONE, TWO, THREE):
        sequence.finish(file)
    sequence.offer(changed(TWO, "2"))
    finished = over_a_restart(sequence)
    for shown in (TWO, changed(TWO, "2"), changed(TWO, "3")):
        assert finished.judge(2, digest_of(shown.stored)) is FileVerdict.REWRITTEN
    assert not finished.was_unseen(2)


def test_nothing_is_kept_where_nothing_is_written_any_more(sequence: FileSequence) -> None:
    """Once TiCDC has left a directory, only which files must be read again is kept; and nothing of what is finished from then on."""
    sequence.finish(ONE)
    sequence.finish(TWO)
    sequence.offer(changed(ONE, "2"))
    sequence.leave_out(EVERYTHING)
    left = sequence.to_store()
    assert left.replaces
    assert left.judge(1, digest_of(changed(ONE, "2").stored)) is FileVerdict.REWRITTEN
    assert left.judge(2, digest_of(changed(TWO, "2").stored)) is FileVerdict.UNCHANGED
    sequence.finish(changed(ONE, "2"))
    sequence.finish(THREE)
    assert sequence.to_store() == Finished(upto=3, left_out=EVERYTHING, replaces=True)


def test_a_file_of_which_nothing_is_known_counts_as_it_is() -> None:
    """A finished file without a digest gets that of what is listed; a digest that there is stays."""
    sequence = FileSequence(Finished(upto=2))
    sequence.offer(replace(ONE, finished=True))
    sequence.offer(replace(changed(ONE, "2"), finished=True))
    finished = over_a_restart(sequence)
    assert finished.judge(1, digest_of(ONE.stored)) is FileVerdict.UNCHANGED
    assert finished.judge(2, digest_of(TWO.stored)) is FileVerdict.UNSURE


def test_readable_is_inclusive(sequence: FileSequence) -> None:
    """A deferred file is read again as soon as the border reaches its lowest row that was not applied."""
    sequence.defer(TWO, Rest(20, 20, 1))
    assert [[f.number for f in sequence.readable(high)] for high in (19, 20)] == [[1, 3], [1, 2, 3]]


def test_old_number_far_below_the_mark() -> None:
    """New content of the first of a million finished files costs no more than that of the last."""
    sequence = FileSequence(Finished(upto=10**12))
    assert sequence.offer(changed(ONE, "2"))
    assert (sequence.done_upto, sequence.known) == (10**12, [(1, 1)])
    sequence.finish(changed(ONE, "2"))
    assert (sequence.to_store().upto, sequence.is_open) == (10**12, False)


def test_changed_while_read(sequence: FileSequence) -> None:
    """A file whose content changed while it was read stays to be read."""
    sequence.offer(changed(ONE, "2"))
    sequence.finish(ONE)
    assert sequence.done_upto == 0
    assert changed(ONE, "2") in sequence.readable(1)


def test_changed_after_it_was_deferred(sequence: FileSequence) -> None:
    """New content of a deferred file is read at once: its rows may be others."""
    sequence.defer(TWO, Rest(99, 99, 1))
    sequence.offer(changed(TWO, "2"))
    assert changed(TWO, "2") in sequence.readable(1)


def test_changed_after_it_was_finished(sequence: FileSequence) -> None:
    """New content of a finished file is read again, and is no gap; its digest is that of what was read."""
    for file in (ONE, TWO, THREE):
        sequence.finish(file)
    sequence.offer(changed(TWO, "2"))
    assert (sequence.done_upto, sequence.is_open) == (3, True)
    assert list(sequence.readable(1)) == [changed(TWO, "2")]
    sequence.finish(changed(TWO, "2"))
    assert not sequence.is_open
    assert sequence.to_store().judge(2, digest_of(changed(TWO, "2").stored)) is FileVerdict.UNCHANGED


def test_changed_beyond_the_mark(sequence: FileSequence) -> None:
    """New content of a file that was finished before its neighbours keeps the mark below it."""
    sequence.finish(TWO)
    sequence.offer(changed(TWO, "2"))
    sequence.finish(ONE)
    assert sequence.done_upto == 1


@given(st.lists(st.tuples(st.sampled_from(["offer", "finish"]), st.integers(1, 9)), max_size=60))
def test_finished_runs(acts: list[tuple[str, int]]) -> None:
    """Whatever is offered again and finished, the mark is the number below the first that was never finished up to it.

    And what is stored tells of each file whether it is the one that was finished last.
    """
    sequence, done, upto, stored = FileSequence(), dict[int, str](), 0, dict[int, bytes]()
    for turn, (act, number) in enumerate(acts):
        if act == "offer":
            sequence.offer(data_file("s/t", 100, number, tag=str(turn)))
            done.pop(number, None)
        else:
            for file in [file for file in sequence.pending.values() if file.number == number]:
                sequence.finish(file)
                done[number] = file.stored.tag
        upto = next(n for n in range(upto, 11) if n + 1 not in done)
        stored |= sequence.to_store().digests
        for n in range(1, 10):
            verdict = Finished(upto=upto, digests=stored).judge(n, digest_of(data_file("s/t", 100, n, tag="x").stored))
            assert verdict is (
                FileVerdict.NEW if n not in done and n > upto and verdict is FileVerdict.NEW else FileVerdict.REWRITTEN
            )
            if n in done:
                same = digest_of(data_file("s/t", 100, n, tag=done[n]).stored)
                assert Finished(upto=upto, digests=stored).judge(n, same) is FileVerdict.UNCHANGED
        known = {n for first, last in sequence.known for n in range(first, last + 1)}
        assert sequence.done_upto == upto
        assert known - {file.number for file in sequence.pending.values()} == {n for n in done if n > upto}


@pytest.fixture
def version() -> TableVersionConsumer:
    """The consumer of s/t/100."""
    return TableVersionConsumer(100, "s/t", FileSequences())


@pytest.mark.parametrize(
    ("numbers", "missing"), [((1, 2, 3), 0), ((1, 3), 2), ((2,), 1), ((1, 2, 5, 6), 3), ((), 0)], ids=str
)
def test_gap(version: TableVersionConsumer, numbers: tuple[int, ...], missing: int) -> None:
    """The lowest number that is missing below a listed one is a gap; numbers start at 1."""
    for number in numbers:
        version.offer(data_file("s/t", 100, number))
    assert version.gap() == (f"file number {missing} in s/t/100" if missing else "")


def test_gap_below_finished_files(version: TableVersionConsumer) -> None:
    """A finished file beyond a missing one does not hide the gap; the late file closes it."""
    version.offer(ONE)
    version.offer(THREE)
    for file in (ONE, THREE):
        version.sequences[file.sequence].finish(file)
    assert version.gap() == "file number 2 in s/t/100"
    version.offer(TWO)
    assert version.gap() == ""


def test_no_gap_where_the_index_width_changed(version: TableVersionConsumer) -> None:
    """After a change of file-index-digit numbering goes on, or repeats the last number, in files of the other width."""
    for number, width in ((1, 6), (2, 6), (2, 20), (3, 20)):
        version.offer(data_file("s/t", 100, number, width=width))
    assert version.gap() == ""
    version.offer(data_file("s/t", 100, 5, width=20))
    assert version.gap() == "file number 4 in s/t/100"


def test_sequences_have_gaps_of_their_own(version: TableVersionConsumer) -> None:
    """Partitions and dispatchers count apart: the one's files do not fill the other's gap."""
    version.offer(data_file("s/t", 100, 1, partition=7))
    version.offer(data_file("s/t", 100, 2, partition=8))
    assert version.gap() == "file number 1 in s/t/100/8"
    other = TableVersionConsumer(100, "s/t", FileSequences())
    other.offer(data_file("s/t", 100, 1, dispatcher="1"))
    other.offer(data_file("s/t", 100, 2, dispatcher="2"))
    assert other.gap() == "file number 1 in s/t/100"


def test_order_of_files(version: TableVersionConsumer) -> None:
    """Files come by partition, dispatcher and number, not as they were listed; 10 follows 9."""
    files = [data_file("s/t", 100, number, partition=partition) for partition in (2, 10) for number in (1, 2, 9, 10)]
    for file in reversed(files):
        version.offer(file)
    assert version.readable(1) == files


def test_vanished(version: TableVersionConsumer) -> None:
    """A file that is gone matters only if it was not finished."""
    version.offer(ONE)
    version.offer(TWO)
    version.sequences[ONE.sequence].finish(ONE)
    assert [version.forget(file) for file in (ONE, TWO, THREE)] == [False, True, False]


def test_sequences_that_are_done_are_not_walked(version: TableVersionConsumer) -> None:
    """Only sequences with something pending, finished out of turn or lost are looked at again."""
    files = [data_file("s/t", 100, 1, partition=number) for number in range(5)]
    for file in files:
        version.offer(file)
    for file in files[1:]:
        version.finish(file)
    assert version.open_sequences() == [version.sequences[files[0].sequence]]
    assert version.forget(files[0])
    assert version.open_sequences() == [version.sequences[files[0].sequence]]
    assert version.gap() == "file number 1 in s/t/100/0"


def test_a_bar_in_a_name() -> None:
    """A table's name may hold the sign that separates the parts of a sequence's name."""
    files = TableFiles(FileSequences())
    file = data_file("s/a|b", 5, 2)
    assert files.offer(file)
    assert [files.is_before(file.sequence, version) for version in (5, 6)] == [False, True]
    assert files.version(file.version_key).gap() == "file number 1 in s/a|b/5"
