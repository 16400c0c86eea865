"""Sorting what a task is sent."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from storage_consumer.rows.row_order import CHANGES, NOTICE, REPORT, Place
from storage_consumer.spark.pipeline import received

ITEMS: list[tuple[Place, Any]] = [
    ((0, NOTICE, 3, 0), None),
    *(((0, CHANGES, 3, ts), bytes([ts]) * ts) for ts in range(100)),
    ((0, REPORT, 3, 0), "report"),
]


def test_in_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Items come by place as they were, though blocks wait in a file; the file is gone with them."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},elsewhere")
    shuffled = random.Random(5).sample(ITEMS, len(ITEMS))  # noqa: S311 - data, not a secret
    assert list(received(shuffled, "")) == ITEMS
    assert list(received([], "")) == []
    assert list(tmp_path.iterdir()) == []


def test_a_killed_worker_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The file has no name while it is used: Spark kills the workers of a cancelled job, and they can remove nothing."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    assert [list(tmp_path.iterdir()) for _ in received(ITEMS, "")] == [[]] * len(ITEMS)


def test_folder_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a folder of Spark's the system's own does."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/nowhere/at/all")
    assert list(received(ITEMS, "")) == ITEMS
