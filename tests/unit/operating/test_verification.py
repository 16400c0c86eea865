"""What a comparison does where the state does not answer."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from storage_consumer.errors import TargetUnavailable
from storage_consumer.model import TableName
from storage_consumer.operating import verification
from storage_consumer.operating.verification import TableVerification
from storage_consumer.rows.comparison import TableResult, VerifyOutcome

NAME = TableName(schema="shop", table="a")
RESULT = TableResult(table=NAME, target=NAME, outcome=VerifyOutcome.EQUAL)


def _compared(monkeypatch: pytest.MonkeyPatch, fails: int) -> list[TableResult]:
    """Return what is stored of a table that was compared, where the state fails to answer so many times."""
    stored: list[TableResult] = []

    def put(_: str, result: TableResult) -> None:
        nonlocal fails
        fails -= 1
        if fails >= 0:
            raise TargetUnavailable("lost")
        stored.append(result)

    state = SimpleNamespace(verified=SimpleNamespace(put=put))
    run = verification._Run(*cast("Any", (None, None, verification.Wishes(), None, state, None, lambda _: None)))
    monkeypatch.setattr(TableVerification, "_run", lambda _: None)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    end = SimpleNamespace(end=lambda: None)
    TableVerification(shared=run, table_key="shop/a", result=RESULT).run(*cast("Any", (end, end)))
    return stored


def test_a_result_outlives_a_lost_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hours of a comparison are not lost with the one statement that stores them; a state that stays away ends it."""
    (stored,) = _compared(monkeypatch, fails=3)
    assert stored.outcome is VerifyOutcome.UNFINISHED
    with pytest.raises(TargetUnavailable):
        _compared(monkeypatch, fails=9)
