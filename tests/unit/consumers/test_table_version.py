"""A version directory's files: each read until it is finished, none passed over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_consumer.consumers.table_version import FileStream, Finished, TableVersionConsumer
from tests.unit.building import changed, data_file

ONE, TWO, THREE, FOUR = (data_file("s/t", 100, number) for number in range(1, 5))


@pytest.fixture
def stream() -> FileStream:
    """A stream of which files 1 to 3 are listed."""
    found = FileStream()
    for file in (ONE, TWO, THREE):
        assert found.offer(file, again=False)
    return found


def test_finished_in_order(stream: FileStream) -> None:
    """Finished files move the mark up to the first that is not finished, whatever order they finish in."""
    for file, mark in ((THREE, 0), (ONE, 1), (TWO, 3)):
        stream.finish(file)
        assert stream.done_upto == mark


def test_an_earlier_run_finished_it() -> None:
    """At a restart a file at the mark counts as finished, the one after it does not."""
    stream = FileStream(done_upto=2)
    assert [stream.offer(file, again=False) for file in (ONE, TWO, THREE)] == [False, False, True]


def test_readable_is_inclusive(stream: FileStream) -> None:
    """A deferred file is read again as soon as the border reaches its lowest row that was not applied."""
    stream.defer(TWO, 20)
    assert [[f.number for f in stream.readable(high)] for high in (19, 20)] == [[1, 3], [1, 2, 3]]


def test_old_number_far_below_the_mark() -> None:
    """New content of the first of a million finished files costs no more than that of the last."""
    stream = FileStream(done_upto=10**12, tag="1")
    assert stream.offer(changed(ONE, "2"), again=True)
    assert (stream.done_upto, stream.known) == (0, [(2, 10**12), (1, 1)])
    stream.finish(changed(ONE, "2"))
    assert stream.finished == Finished(upto=10**12, tag="1")
    assert not stream.is_open


def test_changed_while_read(stream: FileStream) -> None:
    """A file whose content changed while it was read stays to be read."""
    stream.offer(changed(ONE, "2"), again=True)
    stream.finish(ONE)
    assert stream.done_upto == 0
    assert changed(ONE, "2") in stream.readable(1)


def test_changed_after_it_was_deferred(stream: FileStream) -> None:
    """New content of a deferred file is read at once: its rows may be others."""
    stream.defer(TWO, 99)
    stream.offer(changed(TWO, "2"), again=True)
    assert changed(TWO, "2") in stream.readable(1)


def test_changed_after_it_was_finished(stream: FileStream) -> None:
    """New content of a finished file lowers the mark until it is read, so that a restart does not pass over it."""
    for file in (ONE, TWO, THREE):
        stream.finish(file)
    stream.offer(changed(TWO, "2"), again=True)
    assert stream.done_upto == 1
    stream.finish(changed(TWO, "2"))
    assert stream.done_upto == 3


def test_changed_beyond_the_mark(stream: FileStream) -> None:
    """New content of a file that was finished before its neighbours keeps the mark below it."""
    stream.finish(TWO)
    stream.offer(changed(TWO, "2"), again=True)
    stream.finish(ONE)
    assert stream.done_upto == 1


@given(st.lists(st.tuples(st.sampled_from(["offer", "finish"]), st.integers(1, 9)), max_size=60))
def test_finished_runs(acts: list[tuple[str, int]]) -> None:
    """Whatever is offered again and finished, the mark is the number below the first that is not finished."""
    stream, done = FileStream(), set[int]()
    for turn, (act, number) in enumerate(acts):
        if act == "offer":
            stream.offer(data_file("s/t", 100, number, tag=str(turn)), again=True)
            done.discard(number)
        else:
            for file in [file for file in stream.pending.values() if file.number == number]:
                stream.finish(file)
                done.add(number)
        upto = next(n for n in range(11) if n + 1 not in done)
        known = {n for first, last in stream.known for n in range(first, last + 1)}
        assert stream.done_upto == upto
        assert known - {file.number for file in stream.pending.values()} == {n for n in done if n > upto}


@pytest.fixture
def version() -> TableVersionConsumer:
    """The consumer of s/t/100."""
    return TableVersionConsumer(100, "s/t", {})


@pytest.mark.parametrize(
    ("numbers", "missing"), [((1, 2, 3), 0), ((1, 3), 2), ((2,), 1), ((1, 2, 5, 6), 3), ((), 0)], ids=str
)
def test_gap(version: TableVersionConsumer, numbers: tuple[int, ...], missing: int) -> None:
    """The lowest number that is missing below a listed one is a gap; numbers start at 1."""
    for number in numbers:
        version.offer(data_file("s/t", 100, number), again=False)
    assert version.gap() == (f"file number {missing} in s/t/100" if missing else "")


def test_gap_below_finished_files(version: TableVersionConsumer) -> None:
    """A finished file beyond a missing one does not hide the gap; the late file closes it."""
    version.offer(ONE, again=False)
    version.offer(THREE, again=False)
    for file in (ONE, THREE):
        version.streams[file.stream].finish(file)
    assert version.gap() == "file number 2 in s/t/100"
    version.offer(TWO, again=True)
    assert version.gap() == ""


def test_no_gap_where_the_index_width_changed(version: TableVersionConsumer) -> None:
    """After a change of file-index-digit numbering goes on, or repeats the last number, in files of the other width."""
    for number, width in ((1, 6), (2, 6), (2, 20), (3, 20)):
        version.offer(data_file("s/t", 100, number, width=width), again=False)
    assert version.gap() == ""
    version.offer(data_file("s/t", 100, 5, width=20), again=False)
    assert version.gap() == "file number 4 in s/t/100"


def test_streams_have_gaps_of_their_own(version: TableVersionConsumer) -> None:
    """Partitions and dispatchers count apart: the one's files do not fill the other's gap."""
    version.offer(data_file("s/t", 100, 1, partition=7), again=False)
    version.offer(data_file("s/t", 100, 2, partition=8), again=False)
    assert version.gap() == "file number 1 in s/t/100/8"
    other = TableVersionConsumer(100, "s/t", {})
    other.offer(data_file("s/t", 100, 1, dispatcher="1"), again=False)
    other.offer(data_file("s/t", 100, 2, dispatcher="2"), again=False)
    assert other.gap() == "file number 1 in s/t/100"


def test_order_of_files(version: TableVersionConsumer) -> None:
    """Files come by partition, dispatcher and number, not as they were listed; 10 follows 9."""
    files = [data_file("s/t", 100, number, partition=partition) for partition in (2, 10) for number in (1, 2, 9, 10)]
    for file in reversed(files):
        version.offer(file, again=False)
    assert version.readable(1) == files


def test_vanished(version: TableVersionConsumer) -> None:
    """A file that is gone matters only if it was not finished."""
    version.offer(ONE, again=False)
    version.offer(TWO, again=False)
    version.streams[ONE.stream].finish(ONE)
    assert [version.forget(file) for file in (ONE, TWO, THREE)] == [False, True, False]


def test_streams_that_are_done_are_not_walked(version: TableVersionConsumer) -> None:
    """Only streams with something pending, finished out of turn or lost are looked at again."""
    files = [data_file("s/t", 100, 1, partition=number) for number in range(5)]
    for file in files:
        version.offer(file, again=False)
    for file in files[1:]:
        version.finish(file)
    assert version.open_streams() == [version.streams[files[0].stream]]
    assert version.forget(files[0])
    assert version.open_streams() == [version.streams[files[0].stream]]
    assert version.gap() == "file number 1 in s/t/100/0"
