"""The twins keep to the rules of what they stand for."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from storage_consumer.errors import RowRefused
from storage_consumer.rows.spec import Mode
from tests.harness.twins.storage import MemoryWriter
from tests.unit.halves import NAME, as_events, as_runs, table


def test_no_row_takes_the_place_of_another() -> None:
    """The twin's own rule: a row takes its own place alone, NULLs are never in the way, and what is in the way stays."""
    writer = MemoryWriter({NAME: [("c0",), ("c1",)]})
    work = table()
    writer.write_runs(work, as_runs([], [b"a\t1", b"b\t2", b"c\t\\N", b"d\t\\N"]))
    writer.write_runs(work, as_runs([b"d"], [b"a\t3"]))
    with pytest.raises(RowRefused, match="'c1': '2'"):
        writer.write_runs(work, as_runs([], [b"a\t2"]))
    blocked = writer.write_runs(replace(work, has_other_unique_keys=True), as_runs([], [b"c\t2"]))
    assert (blocked[:2], writer.rows(NAME)) == ((0, 1), Counter({("b", "2"): 1}))


def test_key_texts_are_compared_as_asked() -> None:
    """Keys that the given notion finds equal are one key, for replacing and deleting."""
    writer = MemoryWriter({NAME: [("c0",)]}, same=str.casefold)
    writer.write_runs(table(), [*as_runs([], [b"a\t1", b"A\t2"]), *as_runs([b"x"], [])])
    assert writer.rows(NAME) == Counter({("A", "2"): 1})
    assert writer.write_runs(table(), as_runs([b"a"], [])).rows == 1


def test_events_once() -> None:
    """Events at or below the checkpoint change nothing; a delete that finds nothing is refused."""
    writer, work = MemoryWriter(), table(Mode.KEYLESS)
    assert writer.write_events(work, as_events((5, [(True, b"a\t1"), (True, b"a\t1")]), (6, [(False, b"a\t1")]))) == 3
    assert writer.write_events(work, as_events((6, [(False, b"a\t1")]))) == 0
    assert writer.rows(NAME) == Counter({("a", "1"): 1})
    with pytest.raises(RowRefused, match="commit ts 7"):
        writer.write_events(work, as_events((7, [(False, b"b\t1")])))
