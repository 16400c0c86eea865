"""What tasks report to the driver, frozen and picklable, and what a table's reports say together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from storage_consumer.model import DataFile
from storage_consumer.plan.steps import RowStep


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """The outcome of one file."""

    table: int
    path: str
    rows: int = 0
    duplicates: int = 0
    later: int = 0
    applied: int = 0
    max_ts: int = 0
    next_ts: int = 0
    error: str = ""
    """Why the file's table cannot go on; empty if it can."""
    torn: bool = False
    """Whether the error may vanish by itself: the last row of the newest file may still be being written, or see `gone`."""
    gone: bool = False
    """Whether the listed object no longer exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPlace:
    """Where a row comes from."""

    commit_ts: int
    rank: int
    """Of its file."""
    row: int
    """Its number in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedRow:
    """A row that went into the quarantine instead of its table."""

    key: str
    """Columns and values of its key, for people."""
    reason: str
    """What the target said."""
    place: RowPlace


class Written(NamedTuple):
    """What became of the rows of a table in one bucket."""

    rows: int
    """Rows written and deleted."""
    blocked: int = 0
    """See `WriteReport.blocked`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteReport:
    """The outcome of one table in one bucket."""

    table: int
    written: int = 0
    """Rows written and deleted."""
    blocked: int = 0
    """Rows not written yet: others are in their way, which may be about to go; see `TablePlan.is_settled`."""
    error: str = ""
    """Why the target refused a row; empty if it took all of them."""
    commit_ts: int = 0
    """Commit-ts of the refused row; 0 if it is not known, and so are then `rank` (of its file) and `row` (number)."""
    rank: int = 0
    row: int = 0
    quarantined: tuple[QuarantinedRow, ...] = ()
    """Rows that went into the quarantine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOutcome:
    """What a job did with one table."""

    files: dict[str, FileReport]
    """By path; see `by_path`."""
    written: int
    """Rows written and deleted."""
    error: str
    """Why the table cannot go on, with the place in the bucket; the first of several. Empty if it can."""
    refused: bool
    """Whether it is the target that refused a row; else a file cannot be read."""
    may_pass: bool
    """Whether every error may vanish by itself; see `FileReport.torn`."""
    gone: bool
    """Whether a listed file no longer exists."""
    quarantined: tuple[QuarantinedRow, ...] = ()
    """Rows that went into the quarantine, by commit-ts."""

    def unread(self, step: RowStep) -> list[str]:
        """Return the paths of files of the step that were not read."""
        return [file.stored.path for file in step.files if file.stored.path not in self.files]


def table_outcome(step: RowStep, reports: Sequence[FileReport | WriteReport]) -> TableOutcome:
    """Return the outcome of a step. `reports`: all of its table."""
    of_files, faulty = _of_files(reports), [report for report in reports if report.error]
    return TableOutcome(
        files=by_path(reports),
        written=sum(report.written for report in reports if isinstance(report, WriteReport)),
        error=_with_place(faulty[0], step) if faulty else "",
        refused=bool(faulty) and isinstance(faulty[0], WriteReport),
        may_pass=all(isinstance(report, FileReport) and report.torn for report in faulty),
        gone=any(report.gone for report in of_files),
        quarantined=_quarantined(reports),
    )


def is_blocked(reports: Iterable[FileReport | WriteReport]) -> bool:
    """Return whether rows of a table wait for others to make way for them, and nothing else holds the table up."""
    found = list(reports)
    blocked = any(report.blocked for report in found if isinstance(report, WriteReport))
    return blocked and not any(report.error for report in found)


def _quarantined(reports: Iterable[FileReport | WriteReport]) -> tuple[QuarantinedRow, ...]:
    """Return all rows that went into the quarantine, the first of them first."""
    rows = [row for report in reports if isinstance(report, WriteReport) for row in report.quarantined]
    return tuple(sorted(rows, key=lambda row: (row.place.commit_ts, row.place.rank, row.place.row)))


def _with_place(report: FileReport | WriteReport, step: RowStep) -> str:
    """Return a report's error, with the place in the bucket of a refused row."""
    if not (isinstance(report, WriteReport) and report.row):
        return report.error
    path = in_sequence(step)[report.rank].stored.path
    # A row of a copy has the load's clock there, which tells nobody anything.
    at = f", commit ts {report.commit_ts}" if report.commit_ts and not step.as_of else ""
    return f"{report.error} (row {report.row} of {path}{at})"


def by_path(reports: Iterable[FileReport | WriteReport]) -> dict[str, FileReport]:
    """Return one report for each file: the first one, since a report with an error may come from each bucket."""
    return {report.path: report for report in reversed(_of_files(reports))}


def _of_files(reports: Iterable[FileReport | WriteReport]) -> list[FileReport]:
    return [report for report in reports if isinstance(report, FileReport)]


def in_sequence(step: RowStep) -> list[DataFile]:
    """Return the files of one table in its sequence: a file's rank is its index here."""
    return sorted(step.files, key=lambda file: (file.version_key, file.order))
