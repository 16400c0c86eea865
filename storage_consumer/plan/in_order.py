"""Numbers in ascending order, whose neighbours are found by bisection. No I/O."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Iterator
from typing import Generic, TypeVar

_Value = TypeVar("_Value")


class Numbers(Collection[int]):
    """Distinct numbers in ascending order."""

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        """Begin with these, in any order."""
        self._numbers = sorted(set(numbers))

    def add(self, number: int) -> None:
        """Add a number unless it is there."""
        if number not in self:
            insort(self._numbers, number)

    def discard(self, number: int) -> None:
        """Remove a number if it is there."""
        if number in self:
            del self._numbers[bisect_left(self._numbers, number)]

    def __contains__(self, number: object) -> bool:
        """Return whether a number is there."""
        if not isinstance(number, int):
            return False
        place = bisect_left(self._numbers, number)
        return place < len(self._numbers) and self._numbers[place] == number

    def __iter__(self) -> Iterator[int]:
        """Yield the numbers in ascending order."""
        return iter(self._numbers)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._numbers)

    @property
    def first(self) -> int | None:
        """The lowest number; None if there is none."""
        return self._numbers[0] if self._numbers else None

    @property
    def last(self) -> int | None:
        """The highest number; None if there is none."""
        return self._numbers[-1] if self._numbers else None

    def before(self, number: int) -> int | None:
        """Return the highest one below `number` (exclusive)."""
        place = bisect_left(self._numbers, number)
        return self._numbers[place - 1] if place else None

    def after(self, number: int) -> int | None:
        """Return the lowest one above `number` (exclusive)."""
        place = bisect_right(self._numbers, number)
        return self._numbers[place] if place < len(self._numbers) else None

    def below(self, number: int) -> list[int]:
        """Return all below `number` (exclusive), in ascending order."""
        return self._numbers[: bisect_left(self._numbers, number)]

    def since(self, number: int) -> list[int]:
        """Return all from `number` on (inclusive), in ascending order."""
        return self._numbers[bisect_left(self._numbers, number) :]

    def has_within(self, first: int, last: int) -> bool:
        """Return whether there is one in a span, both ends inclusive."""
        place = bisect_left(self._numbers, first)
        return place < len(self._numbers) and self._numbers[place] <= last


class Together:
    """The numbers of several `Numbers`, looked up as if they were in one; nothing is copied."""

    def __init__(self, *parts: Numbers) -> None:
        """Look in these, now and later."""
        self._parts = parts

    def __contains__(self, number: object) -> bool:
        """Return whether a number is in any of them."""
        return any(number in part for part in self._parts)

    @property
    def last(self) -> int | None:
        """The highest number; None if there is none."""
        return highest(part.last for part in self._parts)

    def before(self, number: int) -> int | None:
        """Return the highest one below `number` (exclusive)."""
        return highest(part.before(number) for part in self._parts)

    def after(self, number: int) -> int | None:
        """Return the lowest one above `number` (exclusive)."""
        return min(
            (found for part in self._parts if (found := part.after(number)) is not None),
            default=None,
        )

    def has_within(self, first: int, last: int) -> bool:
        """Return whether there is one in a span, both ends inclusive."""
        return any(part.has_within(first, last) for part in self._parts)


class ByNumber(Generic[_Value]):
    """Values by number, which can be asked for by a number between theirs."""

    def __init__(self) -> None:
        """Begin without any."""
        self.numbers = Numbers()
        self._values: dict[int, _Value] = {}

    def __setitem__(self, number: int, value: _Value) -> None:
        """Set the value of a number."""
        self.numbers.add(number)
        self._values[number] = value

    def __getitem__(self, number: int) -> _Value:
        """Return the value of a number."""
        return self._values[number]

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._values)

    def before(self, number: int) -> _Value | None:
        """Return the value of the highest number below `number` (exclusive), or None."""
        found = self.numbers.before(number)
        return None if found is None else self._values[found]


def highest(numbers: Iterable[int | None]) -> int | None:
    """Return the highest of those that are not None; None if all are."""
    return max((number for number in numbers if number is not None), default=None)
