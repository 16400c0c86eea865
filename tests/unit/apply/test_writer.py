"""How rows share transactions."""

from __future__ import annotations

from itertools import starmap

import pytest

from storage_consumer.apply import writer
from storage_consumer.apply.writer import together
from storage_consumer.order.keys import Action, Run


def test_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs share a transaction up to a number of rows and of bytes, in their order; longer ones are cut."""
    monkeypatch.setattr(writer, "TRANSACTION_ROWS", 3)
    monkeypatch.setattr(writer, "TRANSACTION_SIZE", 10)
    one, other = Action.INSERT, Action.DELETE
    ordered = [(one, [b"a"]), (other, [b"b", b"c"]), (one, [b"d"] * 4), (other, [b"e" * 10]), (other, [b"f"])]
    assert list(together(starmap(Run, ordered))) == [
        [(one, [b"a"]), (other, [b"b", b"c"])],
        [(one, [b"d"] * 3)],
        [(one, [b"d"])],
        [(other, [b"e" * 10])],
        [(other, [b"f"])],
    ]
    assert list(together([Run(other, []), Run(one, [])])) == []
