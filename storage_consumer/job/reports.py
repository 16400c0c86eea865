"""Between a round and its job: the files of a row step as work for tasks, and the reports of tasks as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from storage_consumer.job.spec import ByteRange, FileSplit
from storage_consumer.job.task_reports import FileReport, WriteReport
from storage_consumer.model import DataFile
from storage_consumer.plan.steps import RowStep


def told(report: FileReport | WriteReport, step: RowStep, reports: Sequence[FileReport | WriteReport]) -> str:
    """Return a report's error, with the place in the bucket of a refused row. `reports`: all of the table."""
    if isinstance(report, WriteReport) and report.row:
        path = in_sequence(step)[report.rank].stored.path
        at = f", commit ts {report.commit_ts}" if report.commit_ts else ""
        parts = [part for part in _of_files(reports) if part.path == path]
        # Rows of a split are numbered from its first byte on: subtract that, and add the rows of the splits before it.
        start = max((part.span.start for part in parts if part.span.start < report.row), default=0)
        before = sum(part.rows for part in parts if part.span.start < start)
        return f"{report.error} (row {report.row - start + before} of {path}{at})"
    return report.error


def by_path(reports: Iterable[FileReport | WriteReport]) -> dict[str, FileReport]:
    """Return one report for each file; its span is `WHOLE` if all of the file was read, in one split or several."""
    found: dict[str, FileReport] = {}
    for report in sorted(_of_files(reports), key=lambda report: report.span.start):
        before = found.get(report.path)
        found[report.path] = _together(before, report) if before else report
    return found


def _together(before: FileReport, report: FileReport) -> FileReport:
    """Return the sum of two adjacent splits: their counts added up, with the error of the first that has one."""
    if before.span.end != report.span.start:
        return before
    faulty = before if before.error else report
    return replace(
        faulty,
        rows=before.rows + report.rows,
        duplicates=before.duplicates + report.duplicates,
        later=before.later + report.later,
        applied=before.applied + report.applied,
        max_ts=max(before.max_ts, report.max_ts),
        next_ts=min(filter(None, (before.next_ts, report.next_ts)), default=0),
        span=ByteRange(before.span.start, report.span.end),
    )


def _of_files(reports: Iterable[FileReport | WriteReport]) -> list[FileReport]:
    return [report for report in reports if isinstance(report, FileReport)]


def in_sequence(step: RowStep) -> list[DataFile]:
    """Return the files of one table in its sequence: a file's rank is its index here."""
    return sorted(step.files, key=lambda file: (file.version_key, file.order))


def file_works(step: RowStep, index: int, is_divisible: Callable[[str], bool]) -> Iterable[FileSplit]:
    """Yield the files of one table with their ranks. `is_divisible`: whether the file at a path may be split."""
    last: dict[str, int] = {}
    for file in step.files:
        last[file.stream] = max(last.get(file.stream, 0), file.number)
    for rank, file in enumerate(in_sequence(step)):
        yield FileSplit(
            table=index,
            file=file,
            rank=rank,
            newest=file.number == last[file.stream],
            splittable=is_divisible(file.stored.path),
        )
