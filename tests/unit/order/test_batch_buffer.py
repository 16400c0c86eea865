"""When the lines of batches are written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from storage_consumer.kernels.arrays import UPDATE
from storage_consumer.kernels.row_lines import Lines
from storage_consumer.order.batch_buffer import WAITING_BYTES, BatchBuffer
from tests.unit.halves import table

HOT, COLD = 10, 1_000
ROWS = 1_000


class Updates:
    """A batch of updates of random keys, which counts the lines that are written of it."""

    written = 0

    def __init__(self, keys: int, start: int) -> None:
        """Updates of so many keys, of which the first has row number `start`."""
        chance = np.random.default_rng(start)
        self.numbers = np.arange(start, start + ROWS)
        self.ts = self.numbers.view(np.uint64)
        self.operations = np.full(ROWS, UPDATE, np.int8)
        self._keys = chance.integers(0, keys, ROWS).astype(str).tolist() if keys < COLD else [*map(str, self.numbers)]

    def integers(self, place: int) -> None:
        """The key is a text."""

    def texts(self, _: int, chosen: NDArray[np.intp]) -> list[str | None]:
        """The keys."""
        return [self._keys[number] for number in chosen.tolist()]

    def lines(self, _: Sequence[int], chosen: NDArray[np.intp]) -> Lines:
        """A line for each."""
        type(self).written += len(chosen)
        return Lines.of([f"{self._keys[number]}\t{self.numbers[number]}".encode() for number in chosen.tolist()])


@pytest.fixture
def buffer(monkeypatch: pytest.MonkeyPatch) -> BatchBuffer:
    """An empty buffer; no line is counted yet."""
    monkeypatch.setattr(Updates, "written", 0)
    work = table()
    return BatchBuffer(work, *work.versions.values())


def take(buffer: BatchBuffer, keys: int, *reads: int) -> None:
    """Take a batch at each of these numbers of bytes read."""
    for read in reads:
        batch: Any = Updates(keys, read + 1)
        assert buffer.take(batch, 0, read) == ROWS


def test_lines_of_hot_keys_wait(buffer: BatchBuffer) -> None:
    """Of many changes of few keys hardly a line is written, and what is left is the last change of each key."""
    take(buffer, HOT, *range(0, 4 * WAITING_BYTES, WAITING_BYTES // 8))
    assert 3 * HOT <= Updates.written <= 4 * HOT
    changes = buffer.drain()
    assert changes is not None
    assert len(changes) == HOT
    assert changes.ts.min() > 4 * WAITING_BYTES - WAITING_BYTES // 8


def test_lines_of_other_keys_do_not(buffer: BatchBuffer) -> None:
    """Where waiting has spared too few lines, each batch's are written as it comes."""
    take(buffer, COLD, 0, WAITING_BYTES)
    assert Updates.written == 2 * ROWS
    take(buffer, HOT, WAITING_BYTES + 1)
    assert Updates.written == 3 * ROWS


def test_what_waits_when_all_is_sent_is_not_judged(buffer: BatchBuffer) -> None:
    """The rest that waits when a buffer is emptied may be too small to show that its keys are hot."""
    take(buffer, COLD, 1)
    assert buffer.drain() is not None
    take(buffer, HOT, 0, WAITING_BYTES // 2)
    assert Updates.written == ROWS
