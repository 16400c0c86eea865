"""The first half of a job, inside a task: files to blocks of changes. Pure but for the storage that is handed in.

It drops what is outside the window, keeps the last state per key and sends each bucket its changes as opaque blocks of encoded lines.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from storage_consumer.buffer import NOTICE, REPORT, BadKey, Buffer, Place
from storage_consumer.decoding.cutting import Indivisible, part_of
from storage_consumer.decoding.decoder import Batch, Decoder, RowChange, Tally
from storage_consumer.errors import NotReplicable, TableError, UndecodableRow
from storage_consumer.model import Window
from storage_consumer.small_files import read_together, runs
from storage_consumer.storage.small_file import Blocks
from storage_consumer.work import WHOLE, FileWork, Span, TableWork, VersionWork

FLUSH_BYTES = 32 << 20
"""File bytes after which the first half sends on what it holds of one table, also in the middle of a file."""
FLUSH_ROWS = 100_000
"""Row changes after which it does so."""
READ_BLOCK = 4 << 20
"""Bytes asked of the storage at once."""
_BEHIND_PART = 64 << 10
"""Bytes behind a part that are asked for with it: its last row ends there."""
_REPAIR = "Repair the file or restore it from a copy, then start again: nothing of this window was applied to its table"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """What became of one file."""

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
    """The error may go away by itself: the last row of the newest file, which may still be in writing; or `gone`."""
    gone: bool = False
    """What was listed is no longer there; of a part also: the file has to be read whole."""
    span: Span = WHOLE
    """Which part of the file this is about."""


OpenBlocks = Callable[[FileWork], Iterator[bytes]]
"""Gives the content of a file, or from where a part of it begins."""


def file_blocks(storage: Blocks, work: FileWork) -> Iterator[bytes]:
    """The content of a file, or from where a part of it begins; a part only of what was listed, so that all parts are of the same."""
    stored, span = work.file.stored, work.span
    if span == WHOLE:
        return storage.blocks(stored.path, READ_BLOCK)
    most = work.size + _BEHIND_PART
    return storage.blocks(stored.path, -(-most // -(-most // READ_BLOCK)), start=span.start, tag=stored.tag)


def read_files(
    files: Iterable[FileWork],
    tables: dict[int, TableWork],
    partitions: int,
    open_blocks: OpenBlocks,
    decoder: Decoder,
) -> Iterator[tuple[Place, Any]]:
    """Read files; give blocks of changes for every bucket, a report per file, and a notice to all buckets of a table's error."""
    in_order = sorted(files, key=lambda work: (work.table, work.file.version_key, work.rank))
    for (index, version), group in groupby(in_order, key=lambda work: (work.table, work.file.version_key)):
        table = tables[index]
        buffer = Buffer(table, table.versions[version], partitions)
        for run in runs(group) if buffer.takes_batches and decoder.mark else ([work] for work in group):
            reports = yield from _read_run(run, table, buffer, open_blocks, decoder)
            yield from (((0, REPORT, index, 0), report) for report in reports)
            if reports[-1].error:
                yield from (((bucket, NOTICE, index, 0), None) for bucket in range(partitions))
                break
        yield from buffer.blocks()


def _read_run(
    run: Sequence[FileWork], table: TableWork, buffer: Buffer, open_blocks: OpenBlocks, decoder: Decoder
) -> Generator[tuple[Place, Any], None, list[FileReport]]:
    """Decode files into the buffer, together where that may be; their reports, up to the first one with an error."""
    version = table.versions[run[0].file.version_key]
    kept: dict[str, bytes] = {}
    if len(run) > 1:
        with suppress(FileNotFoundError):  # told when that file is read by itself
            for work in run:
                kept[work.file.stored.path] = b"".join(open_blocks(work))
        tallies = read_together(run, [*kept.values()], version, _window(table, version), buffer, decoder)
        if tallies:
            if buffer.rows >= FLUSH_ROWS or buffer.size >= FLUSH_BYTES:
                yield from buffer.blocks()
            return [_report(work, tally, tally.inside) for work, tally in zip(run, tallies, strict=True)]
    reports: list[FileReport] = []
    for work in run:
        report = yield from _read_file(work, table, buffer, _kept_or(kept, open_blocks), decoder)
        if report.error and work.span != WHOLE and not report.gone:
            scratch = Buffer(table, version, 1)
            report = _as_of_whole(report, _read_file(replace(work, span=WHOLE), table, scratch, open_blocks, decoder))
        reports.append(report)
        if report.error:
            break
    return reports


def _kept_or(kept: Mapping[str, bytes], open_blocks: OpenBlocks) -> OpenBlocks:
    """Opens files of which the content is there already, and others."""

    def opened(work: FileWork) -> Iterator[bytes]:
        content = kept.get(work.file.stored.path)
        return open_blocks(work) if content is None else iter([content])

    return opened


def _window(table: TableWork, version: VersionWork) -> Window:
    """The rows of this version that have not been applied yet."""
    return Window(low=version.low, high=table.window.high)


def _report(work: FileWork, tally: Tally, applied: int, **trouble: Any) -> FileReport:
    """What became of a file or part. `trouble`: the report's fields of that name."""
    return FileReport(
        table=work.table,
        path=work.file.stored.path,
        rows=tally.rows - work.span.start,
        duplicates=tally.duplicates,
        later=tally.later,
        applied=applied,
        max_ts=tally.max_ts,
        next_ts=tally.next_ts,
        span=work.span,
        **trouble,
    )


def _read_file(
    work: FileWork, table: TableWork, buffer: Buffer, open_blocks: OpenBlocks, decoder: Decoder
) -> Generator[tuple[Place, Any], None, FileReport]:
    """Decode one file or part into the buffer, sending on what grows too large; returns its report."""
    version = table.versions[work.file.version_key]
    path = work.file.stored.path
    tally = Tally(rows=work.span.start)
    window = _window(table, version)
    applied, error, torn, gone = 0, "", False, False
    try:
        blocks = buffer.measured(_content(work, open_blocks, decoder))
        asked = (blocks, version.layout, window, tally, path)
        for change in decoder.changes(*asked, version.key) if buffer.takes_batches else decoder.rows(*asked):
            if version.repeats:
                tally.duplicates += 1
                continue
            applied += _add(buffer, change, work, path)
            if buffer.rows >= FLUSH_ROWS or buffer.size >= FLUSH_BYTES:
                yield from buffer.blocks()
    except (FileNotFoundError, Indivisible):
        error, torn, gone = f"waits for {path}, which vanished before it was read", True, True
    except UndecodableRow as fault:
        error, torn = f"{fault}. {_REPAIR}", fault.at_end and work.newest
    except TableError as fault:
        error = str(fault)
    return _report(work, tally, applied, error=error, torn=torn, gone=gone)


def _content(work: FileWork, open_blocks: OpenBlocks, decoder: Decoder) -> Iterator[bytes]:
    """What is to be decoded of a file."""
    blocks, span = open_blocks(work), work.span
    return part_of(blocks, decoder.mark, span.start, span.end) if span != WHOLE and decoder.mark else blocks


def _as_of_whole(report: FileReport, steps: Generator[object, None, FileReport]) -> FileReport:
    """The report of a part that has an error, with what `steps`, which read the whole file once more, say of it.

    So the error is told with the row's number in the file, and only the file's own end may be in writing yet. Where the whole file has
    no error, a part was not what it seemed, and the file is to be read whole.
    """
    try:
        while True:
            next(steps)
    except StopIteration as end:
        whole: FileReport = end.value
    if not whole.error:
        return replace(report, torn=True, gone=True)
    return replace(report, error=whole.error, torn=whole.torn, gone=whole.gone)


def _add(buffer: Buffer, change: RowChange | Batch, work: FileWork, path: str) -> int:
    """Buffer one change or many, telling file and row where one cannot be applied; how many they are."""
    if not isinstance(change, tuple):
        try:
            return buffer.take(change, work.rank)
        except BadKey as fault:
            number, ts = change.numbers[fault.place], change.ts[fault.place]
            raise NotReplicable(f"{path}, row {number}, commit ts {ts}: {fault}") from fault
    if buffer.misfit:
        raise NotReplicable(f"{buffer.misfit}; the row is number {change[0]} of {path}, commit ts {change[1]}")
    try:
        buffer.add(change, work.rank)
    except (ValueError, NotReplicable) as fault:
        raise NotReplicable(f"{path}, row {change[0]}, commit ts {change[1]}: {fault}") from fault
    return 1
