"""How rows share transactions."""

from __future__ import annotations

import pytest

from storage_consumer.apply import writer
from storage_consumer.apply.writer import together


def test_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs share a transaction up to a number of rows and of bytes, in their order; longer ones are cut."""
    monkeypatch.setattr(writer, "TRANSACTION_ROWS", 3)
    monkeypatch.setattr(writer, "TRANSACTION_SIZE", 10)
    ordered = [(True, [b"a"]), (False, [b"b", b"c"]), (True, [b"d"] * 4), (False, [b"e" * 10]), (False, [b"f"])]
    assert list(together(ordered)) == [
        [(True, [b"a"]), (False, [b"b", b"c"])],
        [(True, [b"d"] * 3)],
        [(True, [b"d"])],
        [(False, [b"e" * 10])],
        [(False, [b"f"])],
    ]
    assert list(together([(False, []), (True, [])])) == []
