"""Rows in portions, and pauses between tries."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

_Item = TypeVar("_Item")


def batched(items: Iterable[_Item], size: int) -> Iterator[list[_Item]]:
    """`items` in lists of at most `size`."""
    remaining = iter(items)
    while some := list(islice(remaining, size)):
        yield some


def batches(rows: Sequence[bytes], most: int, most_size: int) -> Iterator[Sequence[bytes]]:
    """`rows` in order, cut so that no batch has more than `most` rows or, unless it is one row, `most_size` bytes."""
    first = size = 0
    for index, row in enumerate(rows):
        if index > first and (index - first >= most or size + len(row) > most_size):
            yield rows[first:index]
            first, size = index, 0
        size += len(row)
    if first < len(rows):
        yield rows[first:]


def pause(tries: int, base: float) -> None:
    """Wait a little longer after each try, never as long as another task does."""
    time.sleep(min(5.0, base * 2**tries) * random.uniform(0.5, 1.0))  # noqa: S311 - not for secrets
