"""What the DDL journal says of a statement."""

from __future__ import annotations

from dataclasses import dataclass

PLANNED, STARTED, DONE, SKIPPED, FAILED = "planned", "started", "done", "skipped", "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """What the journal says of one statement."""

    state: str
    structure_before: str
    note: str
