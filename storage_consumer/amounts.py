"""Amounts of data as readers like them."""

from __future__ import annotations

_STEP = 1024
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def data_size(number: float) -> str:
    """Return a number of bytes with its unit: ``640 B``, ``1.5 MiB``."""
    unit = 0
    while number >= _STEP and unit < len(_UNITS) - 1:
        number, unit = number / _STEP, unit + 1
    return f"{number:.0f} {_UNITS[unit]}" if not unit else f"{number:.1f} {_UNITS[unit]}"
