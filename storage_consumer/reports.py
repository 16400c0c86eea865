"""Between a round and its job: the files of a row step as work for tasks, and what tasks report of them as text."""

from __future__ import annotations

from collections.abc import Iterable

from storage_consumer.model import DataFile
from storage_consumer.pipeline import FileReport, WriteReport
from storage_consumer.planning.steps import RowStep
from storage_consumer.work import FileWork


def told(report: FileReport | WriteReport, step: RowStep) -> str:
    """A report's error, with the place in the bucket that a refused row came from."""
    if isinstance(report, WriteReport) and report.row:
        path = in_sequence(step)[report.rank].stored.path
        at = f", commit ts {report.commit_ts}" if report.commit_ts else ""
        return f"{report.error} (row {report.row} of {path}{at})"
    return report.error


def in_sequence(step: RowStep) -> list[DataFile]:
    """The files of one table in its sequence: a file's rank is its place here."""
    return sorted(step.files, key=lambda file: (file.version_key, file.order))


def file_works(step: RowStep, index: int) -> Iterable[FileWork]:
    """The files of one table with their ranks in its sequence."""
    last: dict[str, int] = {}
    for file in step.files:
        last[file.stream] = max(last.get(file.stream, 0), file.number)
    for rank, file in enumerate(in_sequence(step)):
        yield FileWork(table=index, file=file, rank=rank, newest=file.number == last[file.stream])
