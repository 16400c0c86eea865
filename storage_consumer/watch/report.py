"""What the writer says of itself, as frozen records that travel to the state and back as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from storage_consumer.watch.health import lag_of

SHOWN_TABLES = 200
"""Most waiting tables that a report names."""


class Phase(StrEnum):
    """What a process is doing."""

    STARTING = "starting"
    """Before it asks for the lease: it looks at the bucket and the target."""
    STANDBY = "standby"
    """Another process is the writer."""
    LOADING = "loading"
    """It has the lease, and its first round has not begun."""
    APPLYING = "applying"
    """A round is running."""
    IDLE = "idle"
    """Between two rounds."""
    RETRYING = "retrying"
    """Something did not answer, and no round has got further since; see `Report.retry`."""
    ENDED = "ended"
    """The program has ended; nothing is written until it is started again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """How far the round is that is running."""

    seconds: float
    """Since it began."""
    files: int
    """Files that it has to read."""
    bytes: int
    files_done: int = 0
    rows: int = 0
    """Row changes read so far."""
    statements: int = 0
    """DDL statements that it has to run."""
    statements_done: int = 0

    @property
    def steps(self) -> int:
        """Files and statements."""
        return self.files + self.statements

    @property
    def steps_done(self) -> int:
        """Those of them that are done."""
        return self.files_done + self.statements_done

    @property
    def seconds_left(self) -> float | None:
        """Until it ends, if each file and statement takes as long as those done; None if none is done."""
        kinds = ((self.files_done, self.files), (self.statements_done, self.statements))
        # A kind of which none is done does not count: nobody knows its pace.
        left = sum(max(0, of - done) for done, of in kinds if done)
        return self.seconds * left / self.steps_done if self.steps_done else None

    @property
    def counted(self) -> str:
        """How many statements and files are done, of how many: ``1 of 2 statements, 3 of 8 files``."""
        of = ((self.statements_done, self.statements, "statements"), (self.files_done, self.files, "files"))
        return ", ".join(f"{done:,} of {every:,} {what}" for done, every, what in of if every)


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What the process did since it started."""

    rounds: int = 0
    rows: int = 0
    written: int = 0
    files: int = 0
    ddls: int = 0
    retries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One report. Times are seconds since 1970-01-01 UTC by the writer's clock."""

    version: str
    """Of the program."""
    started_at: float
    phase: Phase
    since: float
    """When the phase began."""
    phase_seconds: float = 0.0
    """For how long the phase had lasted when the report was made."""
    retry: str = ""
    """What did not answer last, while the phase is `RETRYING`; with `ENDED` the error with which the program ended, or an empty text."""
    work: Work | None = None
    """The running round, once it knows what it has to do."""
    rows_per_second: float = 0.0
    """Over the last minute in which rows were read."""
    pending_files: int = 0
    """Files with rows beyond the storage checkpoint, or not yet read, at the end of the last round."""
    pending_bytes: int = 0
    refused_checkpoint: int = 0
    """The checkpoint-ts of the bucket's ``metadata`` if it lies too far ahead of the clock to be believed; else 0."""
    source_checkpoint: int = 0
    """The bucket's checkpoint-ts as last read; 0 before that."""
    source_age: float = 0.0
    """Seconds from then until the report was made."""
    last_round_at: float = 0.0
    """When the last round ended; 0 before the first."""
    totals: Totals = Totals()
    skipped: dict[str, int] = field(default_factory=dict)
    """Reason → rows and objects skipped since the start."""
    waiting: dict[str, str] = field(default_factory=dict)
    """Table → what it waited for at the end of the last round; at most `SHOWN_TABLES`."""

    def source_lag(self, now: float, age: float = 0.0) -> float | None:
        """Return how old the bucket's checkpoint was when it was read: in a long round nobody reads it, and TiCDC is not behind for that."""
        return lag_of(self.source_checkpoint, now - age - self.source_age)

    def to_json(self) -> str:
        """Return the report as JSON."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, document: str) -> Report | None:
        """Return the report of a document; None if a program of another version wrote it in a way that this one cannot read."""
        try:
            return msgspec.json.decode(document, type=cls)
        except msgspec.MsgspecError:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Minute:
    """How far the feed was in one minute, and what was done in it."""

    minute: int
    """Minutes since 1970-01-01 UTC."""
    checkpoint: int
    checkpoint_running: int
    storage_checkpoint: int
    row_changes: int
    """Row changes read in this minute."""
    statements: int
    """DDL statements executed in it."""
