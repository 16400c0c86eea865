"""Amounts as readers like them: of data, and of names."""

from __future__ import annotations

from collections.abc import Sequence

_STEP = 1024
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def data_size(number: float) -> str:
    """Return a number of bytes with its unit: ``640 B``, ``1.5 MiB``."""
    unit = 0
    while number >= _STEP and unit < len(_UNITS) - 1:
        number, unit = number / _STEP, unit + 1
    return f"{number:.0f} {_UNITS[unit]}" if not unit else f"{number:.1f} {_UNITS[unit]}"


def some_of(names: Sequence[str], most: int) -> str:
    """Return at most so many names, and how many more there are: ``a, b and 3 more``."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"
