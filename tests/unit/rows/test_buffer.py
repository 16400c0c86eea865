"""What a task holds of the rows that it has read one by one, most of them without their commit ts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage_consumer.decode.csv_files import CsvDecoder
from storage_consumer.decode.decoder import FileRead, RowChange
from storage_consumer.decode.kernels.arrays import DELETE, INSERT, UPDATE
from storage_consumer.errors import NotReplicable
from storage_consumer.rows.fitting import Limit
from storage_consumer.rows.row_keys import Key, is_upsert
from storage_consumer.rows.row_order import Buffer, listed_keys
from tests.unit.decode.encoders import OPTIONS, csv_change
from tests.unit.halves import KINDS, events, row, table

WORK = replace(table(), has_commit_ts=False)
(VERSION,) = WORK.versions.values()


def kept(*changes: tuple[RowChange, int]) -> dict[Key, bytes]:
    """Key → line of the last state of each key, ``-`` for a deleted one, after (change, rank of its file)."""
    buffer = Buffer(WORK, VERSION, 1)
    for change, rank in changes:
        buffer.take(change, rank)
    found = buffer.drain()
    assert found is not None
    assert buffer.drain() is None
    return {
        key: line if is_upsert(order) else b"-"
        for (_, order, line), key in zip(events(found), listed_keys(found.keys), strict=True)
    }


def test_the_place_in_the_files_is_the_order() -> None:
    """An insert, a delete and an insert of one key end with the last insert, and a delete behind it takes the row away."""
    first, last = (1, 0, INSERT, ("1", "a"), None), (3, 0, INSERT, ("1", "b"), None)
    deleted = (2, 0, DELETE, ("1", "a"), None)
    assert kept((first, 0), (deleted, 0), (last, 0)) == {"1": b"1\tb"}
    assert kept((first, 0), (last, 0), ((4, 0, DELETE, ("1", "b"), None), 0)) == {"1": b"-"}


def test_a_later_file_comes_after_an_earlier_one() -> None:
    """Row 1 of the second file is later than row 9 of the first, in whatever order they are read."""
    early, late = (9, 0, INSERT, ("1", "a"), None), (1, 0, UPDATE, ("1", "b"), None)
    assert kept((late, 1), (early, 0)) == {"1": b"1\tb"}


def test_a_known_millisecond_goes_before_the_place() -> None:
    """A replayed older row in a newer file does not undo a younger one."""
    assert kept(((5, 2 << 18, INSERT, ("1", "new"), None), 0), ((1, 1 << 18, INSERT, ("1", "old"), None), 7)) == {
        "1": b"1\tnew"
    }


def test_an_update_that_moves_a_row_is_refused() -> None:
    """Without commit ts a changed key can't be put in order within its transaction."""
    with pytest.raises(NotReplicable, match="output-raw-change-event"):
        kept(((1, 0, UPDATE, ("2", "a"), ("1", "a")), 0))


@pytest.mark.parametrize(
    "change",
    [(1, 5, DELETE, ("6162", None), None), (1, 5, UPDATE, ("616263", "a"), ("6162", "a"))],
    ids=["delete", "update of the key"],
)
def test_a_key_that_the_target_would_change_is_refused(change: RowChange) -> None:
    """A delete of a key that the target holds in another form, such as padded bytes, would find no row: it is refused too."""
    version = replace(VERSION, limits=(Limit(place=0, name="c0", keeps="bytes", amount=3),))
    buffer = Buffer(replace(WORK, has_commit_ts=True), version, 1)
    with pytest.raises(ValueError, match="column c0: '6162' has a length other than 3 bytes"):
        buffer.take(change, 0)
    buffer.take((2, 5, DELETE, ("616263", None), None), 0)


@pytest.mark.parametrize(("width", "at_least"), [(100, 1), (100_000, 8)])
def test_blocks_of_wide_rows_are_small(width: int, at_least: int) -> None:
    """A block holds fewer rows the wider they are, since Spark collects a number of blocks, whatever their size."""
    buffer = Buffer(WORK, VERSION, 1)
    content = [csv_change(KINDS, row("I", n + 1, str(n), "x" * width)).encode() for n in range(50)]
    file = FileRead(blocks=content, source="CDC1.csv", layout=VERSION.layout, commit_range=WORK.commit_range)
    assert not list(buffer.read(CsvDecoder(OPTIONS), file, 0))
    blocks = [block for _, block in buffer.blocks()]
    assert not list(buffer.blocks())
    assert len(blocks) >= at_least
    assert max(map(len, blocks)) < 600_000
