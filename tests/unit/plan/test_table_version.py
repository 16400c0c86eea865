"""A version directory's files: each read until it is finished, none passed over."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_consumer.plan.file_sequence import FileStream, Streams
from storage_consumer.plan.finished_files import EVERYTHING, Finished, Verdict, digest_of
from storage_consumer.plan.table_version import TableVersionConsumer
from tests.unit.building import changed, data_file

ONE, TWO, THREE, FOUR = (data_file("s/t", 100, number) for number in range(1, 5))


@pytest.fixture
def stream() -> FileStream:
    """A stream of which files 1 to 3 are listed."""
    found = FileStream()
    for file in (ONE, TWO, THREE):
        assert found.offer(file)
    return found


def test_finished_in_order(stream: FileStream) -> None:
    """Finished files move the mark up to the first that is not finished, whatever order they finish in."""
    for file, mark in ((THREE, 0), (ONE, 1), (TWO, 3)):
        stream.finish(file)
        assert stream.done_upto == mark


def over_a_restart(stream: FileStream) -> Finished:
    """What a later run gets of what this one stores."""
    stored = stream.to_store()
    return Finished(upto=stored.upto, left_out=stored.left_out, digests=stored.digests)


def test_an_earlier_run_finished_it() -> None:
    """At a restart a file that is settled is not taken, the one after it is."""
    stream = FileStream(Finished(upto=2))
    files = (replace(ONE, settled=True), replace(TWO, settled=True), THREE)
    assert [stream.offer(file) for file in files] == [False, False, True]


def test_what_a_later_run_knows(stream: FileStream) -> None:
    """Of each finished file it is known whether it is still the same, also of one beyond a pending file."""
    stream.finish(ONE)
    stream.finish(THREE)
    finished = over_a_restart(stream)
    assert finished.upto == 1
    verdicts = [
        [finished.judge(file.number, digest_of(shown.stored)) for shown in (file, changed(file, "2"))]
        for file in (ONE, TWO, THREE)
    ]
    settled = [Verdict.SETTLED, Verdict.ANEW]
    assert verdicts == [settled, [Verdict.NEW, Verdict.NEW], settled]
    again = FileStream(finished)
    assert again.offer(TWO)
    again.finish(TWO)
    assert (again.done_upto, again.is_open) == (3, False)


def test_a_later_run_reads_what_was_written_anew(stream: FileStream) -> None:
    """A finished file that turned out to be written anew is read again by a later run, whatever it looks like then."""
    for file in (ONE, TWO, THREE):
        stream.finish(file)
    stream.offer(changed(TWO, "2"))
    finished = over_a_restart(stream)
    for shown in (TWO, changed(TWO, "2"), changed(TWO, "3")):
        assert finished.judge(2, digest_of(shown.stored)) is Verdict.ANEW
    assert not finished.was_unseen(2)


def test_nothing_is_kept_where_nothing_is_written_any_more(stream: FileStream) -> None:
    """Once TiCDC has left a directory, only which files must be read again is kept; and nothing of what is finished from then on."""
    stream.finish(ONE)
    stream.finish(TWO)
    stream.offer(changed(ONE, "2"))
    stream.leave_out(EVERYTHING)
    left = stream.to_store()
    assert left.replaces
    assert left.judge(1, digest_of(changed(ONE, "2").stored)) is Verdict.ANEW
    assert left.judge(2, digest_of(changed(TWO, "2").stored)) is Verdict.SETTLED
    stream.finish(changed(ONE, "2"))
    stream.finish(THREE)
    assert stream.to_store() == Finished(upto=3, left_out=EVERYTHING, replaces=True)


def test_a_file_of_which_nothing_is_known_counts_as_it_is() -> None:
    """A settled file without a digest gets that of what is listed; a digest that there is stays."""
    stream = FileStream(Finished(upto=2))
    stream.offer(replace(ONE, settled=True))
    stream.offer(replace(changed(ONE, "2"), settled=True))
    finished = over_a_restart(stream)
    assert finished.judge(1, digest_of(ONE.stored)) is Verdict.SETTLED
    assert finished.judge(2, digest_of(TWO.stored)) is Verdict.UNSURE


def test_readable_is_inclusive(stream: FileStream) -> None:
    """A deferred file is read again as soon as the border reaches its lowest row that was not applied."""
    stream.defer(TWO, 20)
    assert [[f.number for f in stream.readable(high)] for high in (19, 20)] == [[1, 3], [1, 2, 3]]


def test_old_number_far_below_the_mark() -> None:
    """New content of the first of a million finished files costs no more than that of the last."""
    stream = FileStream(Finished(upto=10**12))
    assert stream.offer(changed(ONE, "2"))
    assert (stream.done_upto, stream.known) == (10**12, [(1, 1)])
    stream.finish(changed(ONE, "2"))
    assert (stream.to_store().upto, stream.is_open) == (10**12, False)


def test_changed_while_read(stream: FileStream) -> None:
    """A file whose content changed while it was read stays to be read."""
    stream.offer(changed(ONE, "2"))
    stream.finish(ONE)
    assert stream.done_upto == 0
    assert changed(ONE, "2") in stream.readable(1)


def test_changed_after_it_was_deferred(stream: FileStream) -> None:
    """New content of a deferred file is read at once: its rows may be others."""
    stream.defer(TWO, 99)
    stream.offer(changed(TWO, "2"))
    assert changed(TWO, "2") in stream.readable(1)


def test_changed_after_it_was_finished(stream: FileStream) -> None:
    """New content of a finished file is read again, and is no gap; its digest is that of what was read."""
    for file in (ONE, TWO, THREE):
        stream.finish(file)
    stream.offer(changed(TWO, "2"))
    assert (stream.done_upto, stream.is_open) == (3, True)
    assert list(stream.readable(1)) == [changed(TWO, "2")]
    stream.finish(changed(TWO, "2"))
    assert not stream.is_open
    assert stream.to_store().judge(2, digest_of(changed(TWO, "2").stored)) is Verdict.SETTLED


def test_changed_beyond_the_mark(stream: FileStream) -> None:
    """New content of a file that was finished before its neighbours keeps the mark below it."""
    stream.finish(TWO)
    stream.offer(changed(TWO, "2"))
    stream.finish(ONE)
    assert stream.done_upto == 1


@given(st.lists(st.tuples(st.sampled_from(["offer", "finish"]), st.integers(1, 9)), max_size=60))
def test_finished_runs(acts: list[tuple[str, int]]) -> None:
    """Whatever is offered again and finished, the mark is the number below the first that was never finished up to it.

    And what is stored tells of each file whether it is the one that was finished last.
    """
    stream, done, upto, stored = FileStream(), dict[int, str](), 0, dict[int, bytes]()
    for turn, (act, number) in enumerate(acts):
        if act == "offer":
            stream.offer(data_file("s/t", 100, number, tag=str(turn)))
            done.pop(number, None)
        else:
            for file in [file for file in stream.pending.values() if file.number == number]:
                stream.finish(file)
                done[number] = file.stored.tag
        upto = next(n for n in range(upto, 11) if n + 1 not in done)
        stored |= stream.to_store().digests
        for n in range(1, 10):
            verdict = Finished(upto=upto, digests=stored).judge(n, digest_of(data_file("s/t", 100, n, tag="x").stored))
            assert verdict is (Verdict.NEW if n not in done and n > upto and verdict is Verdict.NEW else Verdict.ANEW)
            if n in done:
                same = digest_of(data_file("s/t", 100, n, tag=done[n]).stored)
                assert Finished(upto=upto, digests=stored).judge(n, same) is Verdict.SETTLED
        known = {n for first, last in stream.known for n in range(first, last + 1)}
        assert stream.done_upto == upto
        assert known - {file.number for file in stream.pending.values()} == {n for n in done if n > upto}


@pytest.fixture
def version() -> TableVersionConsumer:
    """The consumer of s/t/100."""
    return TableVersionConsumer(100, "s/t", Streams())


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
        version.streams[file.stream].finish(file)
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


def test_streams_have_gaps_of_their_own(version: TableVersionConsumer) -> None:
    """Partitions and dispatchers count apart: the one's files do not fill the other's gap."""
    version.offer(data_file("s/t", 100, 1, partition=7))
    version.offer(data_file("s/t", 100, 2, partition=8))
    assert version.gap() == "file number 1 in s/t/100/8"
    other = TableVersionConsumer(100, "s/t", Streams())
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
    version.streams[ONE.stream].finish(ONE)
    assert [version.forget(file) for file in (ONE, TWO, THREE)] == [False, True, False]


def test_streams_that_are_done_are_not_walked(version: TableVersionConsumer) -> None:
    """Only streams with something pending, finished out of turn or lost are looked at again."""
    files = [data_file("s/t", 100, 1, partition=number) for number in range(5)]
    for file in files:
        version.offer(file)
    for file in files[1:]:
        version.finish(file)
    assert version.open_streams() == [version.streams[files[0].stream]]
    assert version.forget(files[0])
    assert version.open_streams() == [version.streams[files[0].stream]]
    assert version.gap() == "file number 1 in s/t/100/0"
