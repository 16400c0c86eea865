"""The twins that are shipped for tests keep to the rules of what they stand for."""

from __future__ import annotations

from collections import Counter

import pytest

from storage_consumer.errors import RowRefused
from storage_consumer.job.spec import Mode
from storage_consumer.testing.storage import MemoryWriter
from tests.unit.halves import NAME, as_events, table


def test_replace_goes_by_all_unique_keys() -> None:
    """The twin's own rule: a row takes the place of all rows that share any of its unique keys, NULLs aside."""
    writer = MemoryWriter({NAME: [("c0",), ("c1",)]})
    work = table()
    writer.write_states(work, [], [b"a\t1", b"b\t2", b"c\t\\N", b"d\t\\N"])
    writer.write_states(work, [b"d"], [b"a\t2"])
    assert writer.rows(NAME) == Counter({("a", "2"): 1, ("c", None): 1})


def test_key_texts_are_compared_as_asked() -> None:
    """Keys that the given notion finds equal are one key, for replacing and deleting."""
    writer = MemoryWriter({NAME: [("c0",)]}, same=str.casefold)
    assert writer.write_runs(table(), [(True, [b"a\t1", b"A\t2"]), (False, [b"x"])]) == 2
    assert writer.rows(NAME) == Counter({("A", "2"): 1})
    assert writer.write_states(table(), [b"a"], []) == 1


def test_events_once() -> None:
    """Events at or below the checkpoint change nothing; a delete that finds nothing is refused."""
    writer, work = MemoryWriter(), table(Mode.KEYLESS)
    assert writer.write_events(work, as_events((5, [(True, b"a\t1"), (True, b"a\t1")]), (6, [(False, b"a\t1")]))) == 3
    assert writer.write_events(work, as_events((6, [(False, b"a\t1")]))) == 0
    assert writer.rows(NAME) == Counter({("a", "1"): 1})
    with pytest.raises(RowRefused, match="commit ts 7"):
        writer.write_events(work, as_events((7, [(False, b"b\t1")])))
