"""Histories as lists of numbers, each of which says by itself what happens next: any part of the list is a history too.

So one that fails can be cut down to what is needed, and told.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

Run = Callable[[Sequence[int]], object]
"""Runs a history from its numbers; raises where it fails."""


class Noted:
    """Numbers that remember which of them were taken."""

    def __init__(self, numbers: Iterator[int]) -> None:
        """From an endless source."""
        self._numbers = numbers
        self.taken: list[int] = []

    def __iter__(self) -> Iterator[int]:
        """One after another."""
        for number in self._numbers:
            self.taken.append(number)
            yield number


def fault_in(run: Run, numbers: Sequence[int]) -> Exception | None:
    """What goes wrong in a history, None if nothing does."""
    try:
        run(numbers)
    except Exception as fault:  # noqa: BLE001 - any fault is one
        return fault
    return None


def cut_down(run: Run, numbers: Sequence[int], seconds: float) -> list[int]:
    """A part of a failing history's numbers that fails too, and from which nothing more can be left out in the time."""
    deadline, left = time.monotonic() + seconds, list(numbers)
    size = len(left) // 2
    while size and time.monotonic() < deadline:
        start, shorter = 0, False
        while start < len(left) and time.monotonic() < deadline:
            without = left[:start] + left[start + size :]
            if fault_in(run, without) is not None:
                left, shorter = without, True
            else:
                start += size
        size = size if shorter and size == 1 else size // 2
    return left


def tell(run: Run, numbers: Sequence[int]) -> None:
    """Print the story of a history that fails: its notes, then the fault."""
    fault = fault_in(run, numbers)
    print(f"cut down to {len(numbers)} numbers: {','.join(map(str, numbers))}")
    if fault is not None:
        print("\n".join([*getattr(fault, "__notes__", ()), f"{type(fault).__name__}: {fault}"]))
