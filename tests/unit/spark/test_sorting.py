"""Sorting what a task is sent."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage_consumer.order.changes import CHANGES, NOTICE, REPORT, Place
from storage_consumer.spark import blocks
from storage_consumer.spark.blocks import received

ITEMS: list[tuple[Place, Any]] = [
    ((0, NOTICE, 3, 0), None),
    *(((0, CHANGES, 3, ts), bytes([ts]) * ts) for ts in range(100)),
    ((0, REPORT, 3, 0), "report"),
]


@pytest.mark.parametrize("held", [0, 1_000, 1 << 20])
def test_in_order(held: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Items come by place as they were, whatever of them waits in a file; the file is gone with them."""
    monkeypatch.setattr(blocks, "HELD_BYTES", held)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},elsewhere")
    shuffled = random.Random(5).sample(ITEMS, len(ITEMS))  # noqa: S311 - data, not a secret
    assert list(received(shuffled, "")) == ITEMS
    assert list(received([], "")) == []
    assert list(tmp_path.iterdir()) == []


def test_memory_is_let_go() -> None:
    """What was given out and is no longer used is not kept."""

    class Piece:
        """Counts how many there are."""

        alive = 0

        def __init__(self) -> None:
            Piece.alive += 1

        def __del__(self) -> None:
            Piece.alive -= 1

    def made() -> Iterator[tuple[Place, Any]]:
        yield from (((0, CHANGES, 0, number), Piece()) for number in range(9))

    left = [Piece.alive for _ in received(made(), "")]
    assert left[-1] == 1


def test_folder_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a folder of Spark's the system's own does."""
    monkeypatch.setattr(blocks, "HELD_BYTES", 0)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/nowhere/at/all")
    assert list(received(ITEMS, "")) == ITEMS
