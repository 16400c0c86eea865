"""What a copy of a table has to hold for the table to continue, and what the last copy held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """What a copy of a table has to hold, and what the last one held."""

    copy_from: int = 0
    """A copy as of this TSO or later holds what no file holds any more; 0 where nothing is known to be missing."""
    absent: Mapping[str, int] = field(default_factory=dict)
    """Stream → the highest number (inclusive) that was listed or missed, for streams that lack one."""
    copied_at: int = 0
    """TSO of the last copy, 0 for none."""
    passed: Mapping[str, int] = field(default_factory=dict)
    """Stream → number up to which (inclusive) absent files are not waited for: that copy holds their rows."""
    listed: Mapping[str, int] = field(default_factory=dict)
    """Stream → highest number (inclusive) of the files that were there, unread, when the table was behind the bucket."""
    listed_at: int = 0
    """TSO of when the last of them came: a copy as of then or later holds all their rows."""
