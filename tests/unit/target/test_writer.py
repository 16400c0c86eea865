"""How rows share transactions."""

from __future__ import annotations

from itertools import starmap

import pytest

from storage_consumer.rows.row_keys import Action, Run
from storage_consumer.target import bucket_writer as writer
from storage_consumer.target.bucket_writer import together


def test_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs share a transaction up to a number of rows and of bytes, in their order; longer ones are cut."""
    monkeypatch.setattr(writer, "TRANSACTION_SIZE", 10)
    one, other = Action.INSERT, Action.DELETE
    ordered = [(one, [b"a"]), (other, [b"b", b"c"]), (one, [b"d"] * 4), (other, [b"e" * 10]), (other, [b"f"])]
    assert list(together(starmap(Run, ordered), 3)) == [
        [(one, [b"a"]), (other, [b"b", b"c"])],
        [(one, [b"d"] * 3)],
        [(one, [b"d"])],
        [(other, [b"e" * 10])],
        [(other, [b"f"])],
    ]
    assert list(together([Run(other, []), Run(one, [])])) == []
