"""What a random file must be read as, and what it was read as."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One random file."""

    rows: int
    """Row changes in it that were compared."""
    what: str
    """The file and how it was written, for the message where the two differ."""
    found: object
    expected: object
