"""What the DDL journal holds about a statement, and the server's answer to it."""

from __future__ import annotations

from dataclasses import dataclass

PLANNED, STARTED, DONE, SKIPPED, FAILED = "planned", "started", "done", "skipped", "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """What the journal holds about one statement."""

    state: str
    structure_before: str
    note: str
    statement: str = ""
    """The text that was to run, or ran, last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A statement that is about to run."""

    statement: str
    structure_before: str
    """Fingerprint of the tables that it names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionOutcome:
    """How the execution of a statement ended."""

    structure_after: str = ""
    """Fingerprint of the tables that it names; empty where nobody looked."""
    seconds: float | None = None
    """How long the server took, by a monotonic clock; None if it ran while nobody waited for it."""
    answer: str = ""
    """The server's answer: OK with rows and warnings, or its error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlAnswer:
    """The server's answer to one statement."""

    ignored: str = ""
    """An error that the caller takes for done; empty where the statement ran."""
    affected: int = 0
    """Number of rows."""
    warnings: tuple[str, ...] = ()
    """The first few, with their numbers."""

    def __str__(self) -> str:
        """Return the answer in one line."""
        if self.ignored:
            return self.ignored
        rows = f", {self.affected} rows" if self.affected else ""
        return f"OK{rows}{''.join(f'; {warning}' for warning in self.warnings)}"
