"""Pieces of regular expressions that several readers share."""

from __future__ import annotations


def repeated(pattern: str) -> str:
    """The pattern as often as it fits and never less often, without groups.

    Not ``(?:…)*+``: Python 3.11.2, which Debian 12 has, does not go back to where a repetition that fails began.
    """
    return f"(?>(?:{pattern})*)"
