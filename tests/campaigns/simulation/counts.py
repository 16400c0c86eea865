"""What happened in histories."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(slots=True)
class Counts:
    """What happened in histories."""

    histories: int = 0
    rows: int = 0
    statements: int = 0
    failovers: int = 0
    """Of TiCDC."""
    damaged: int = 0
    """Times that ``metadata`` said what can't be."""
    rewritten: int = 0
    """Data files that were written again."""
    rounds: int = 0
    processes: int = 0
    limited: int = 0
    """Processes that end at a commit-ts, or rounds after some files."""
    paused: int = 0
    """Tables that an operator paused."""
    skipped: int = 0
    """Tables that an operator left out for good."""
    routed: int = 0
    """Histories with routes."""
    begun: int = 0
    """Feeds that began with a copy."""
    requested: int = 0
    """Loads that an operator wanted."""
    exchanged: int = 0
    """Copies in whose place another one came while they were loaded."""
    loaded: int = 0
    """Loads that came to their end."""
    refused_loads: int = 0
    crashes: int = 0
    takeovers: int = 0
    """By another process, while the writer was paused."""
    fenced: int = 0
    """Processes that found out that they are not the writer any more."""
    lost: int = 0
    """Answers."""
    away: int = 0
    """Calls that were not heard."""
    late: int = 0
    """Tasks that went on after their job."""
    refused: int = 0
    """Those of them that came too late."""
    alone: int = 0
    """Statements that the server went on with alone."""
    repeated: int = 0
    """Rows that were delivered again."""
    collisions: int = 0
    """Databases with a name that the target keeps for itself."""
    views: int = 0
    """Statements that made or dropped views."""
    lacking: int = 0
    """Rows without some of their table's columns, in histories that came to their end."""
    expired: int = 0
    """Files that went out of the bucket for a while."""
    unread: int = 0
    """Histories that ended at a table that halted, since nothing says which columns its rows have."""
    feeds: int = 0
    """Changefeeds that were given the emptied prefix of another one."""
    refused_feeds: int = 0
    """Histories that ended at such a one, since rows between the two may be lost."""
    torn: int = 0
    """Histories that ended at a table that halted, since the target finds two of its rows equal."""
    doubtful: int = 0
    """Histories that ended at a rename of which nothing tells whether a copy shows it."""

    by_hand: int = 0
    """Things that people did to the target, or had the program do."""
    doubted: int = 0
    """Tables that halted with another structure than the program had left."""
    verified: int = 0
    """Comparisons that began."""

    def add(self, other: Counts) -> None:
        """Sum up."""
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))
