"""The row jobs of a planned round: files are counted, or read and decoded in this process; no row is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from storage_consumer.decode import decoder_for
from storage_consumer.dry_run.recording import Recording
from storage_consumer.dry_run.result import PlannedRows
from storage_consumer.job.reports import FileReport, WriteReport
from storage_consumer.job.spec import FileSplit, JobSpec, TablePlan
from storage_consumer.model import TableName
from storage_consumer.pipeline import file_blocks, read_files
from storage_consumer.storage.base import Storage
from storage_consumer.summary import Progress


class PlannedRowJobs:
    """The double of `ports.RowPipeline`."""

    cores = 1

    def __init__(
        self, storage: Storage, recording: Recording, name_of: Callable[[str], TableName], *, reads: bool
    ) -> None:
        """Record each table's rows in `recording`; `name_of` returns the name in the bucket of a table's key.

        `reads`: count rows, by reading the files.
        """
        self._storage = storage
        self._recording = recording
        self._name_of = name_of
        self.reads = reads

    def run(
        self,
        spec: JobSpec,
        files: Sequence[FileSplit],
        progress: Progress,  # noqa: ARG002 - whoever waits for a plan sees no bar
    ) -> list[FileReport | WriteReport]:
        """Return a report for each file, as if all rows had been written."""
        reports = self._read(spec, files) if self.reads else [_unread(each) for each in files]
        by_table: dict[int, list[FileReport]] = {}
        for report in reports:
            by_table.setdefault(report.table, []).append(report)
        self._recording.wave(
            [
                self._planned(
                    table, [each for each in files if each.table == table.index], by_table.get(table.index, [])
                )
                for table in spec.tables
            ]
        )
        return list(reports)

    def _read(self, spec: JobSpec, files: Sequence[FileSplit]) -> list[FileReport]:
        """Read the files as a task does, and drop their rows."""
        tables = {table.index: table for table in spec.tables}
        items = read_files(files, tables, 1, partial(file_blocks, self._storage), decoder_for(spec.origins[0]))
        reports = {item.path: item for _, item in items if isinstance(item, FileReport)}
        return list(reports.values())

    def _planned(self, table: TablePlan, files: Sequence[FileSplit], reports: Sequence[FileReport]) -> PlannedRows:
        return PlannedRows(
            table=str(self._name_of(table.table_key)),
            target=str(table.name),
            low=table.commit_range.low,
            high=table.commit_range.high,
            files=len(files),
            size=sum(each.size for each in files),
            rows=sum(each.applied for each in reports) if self.reads else None,
            duplicates=sum(each.duplicates for each in reports),
            later=sum(each.later for each in reports),
            error=next((each.error for each in reports if each.error), ""),
        )


def _unread(file: FileSplit) -> FileReport:
    """Return the report of a file whose rows all lie in the commit range, as far as anybody knows."""
    return FileReport(table=file.table, path=file.file.stored.path)
