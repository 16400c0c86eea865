"""Rows in batches."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice
from typing import TypeVar

from storage_consumer.decode.kernels.row_lines import size_of

_Item = TypeVar("_Item")


def batched(items: Iterable[_Item], size: int) -> Iterator[list[_Item]]:
    """Yield `items` in lists of at most `size`."""
    remaining = iter(items)
    while some := list(islice(remaining, size)):
        yield some


def batches(rows: Sequence[bytes], most: int, most_size: int) -> Iterator[Sequence[bytes]]:
    """Yield `rows` in order, cut so that no batch has more than `most` rows or, unless it is one row, `most_size` bytes."""
    first = 0
    while first < len(rows):
        some = rows[first : first + most]
        # Rows are measured one by one only where all of them together are too much, which is rare.
        if size_of(some) > most_size:
            some = some[: max(1, bisect_right([*accumulate(map(len, some))], most_size))]
        yield some
        first += len(some)
