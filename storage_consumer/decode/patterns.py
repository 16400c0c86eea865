"""Pieces of regular expressions that several readers share."""

from __future__ import annotations


def repeated(pattern: str) -> str:
    """Return the pattern repeated as often as it fits and never less often, without groups.

    Not ``(?:…)*+``: Python 3.11.2, which Debian 12 has, does not backtrack to where a failed repetition began.
    """
    return f"(?>(?:{pattern})*)"
