"""What happens inside a task: (3) decode, (4) order, (5) apply. Pure, apart from the storage and the writer that are passed in.

A round's job has two halves. The first reads files, drops rows outside the commit range, keeps the last state per key and sends each
bucket its changes as opaque blocks of encoded lines. The second folds each bucket to the last state per key and writes it.
`spark.pipeline` puts a shuffle between them and has no rules of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from typing import Any, Protocol

import numpy as np

from storage_consumer.decode.decoder import Decoder, FileRead, Tally
from storage_consumer.decode.file_splits import NotSplittable, split_of
from storage_consumer.errors import FilesMissing, RowRefused, TableError, UndecodableRow
from storage_consumer.job.reports import FileReport, QuarantinedRow, RowPlace, WriteReport
from storage_consumer.job.spec import WHOLE, FileSplit, Mode, TablePlan, VersionPlan
from storage_consumer.kernels.row_lines import Lines
from storage_consumer.model import MAX_TSO, CommitRange
from storage_consumer.order.buffer import NOTICE, REPORT, Buffer, Place
from storage_consumer.order.changes import Changes, latest, listed_keys, together, unpacked
from storage_consumer.order.keyless import Events, in_parts
from storage_consumer.order.keys import image_function, is_upsert, long_runs, rank_of, row_of, sequence_of
from storage_consumer.order.small_files import read_together, runs
from storage_consumer.plan.loads import clock_of
from storage_consumer.storage.base import Blocks, whole
from storage_consumer.telemetry import tso_time

READ_BLOCK = 4 << 20
"""Upper limit of the bytes in one request to the storage."""
_BEHIND_PART = 64 << 10
"""Bytes after the end of a split that are requested with it: its last row ends there."""
FEW_ROWS, FEW_BYTES = 1_000, 256 << 10
"""Limits (exclusive) for a table's share of a bucket; a table below both shares a transaction with others, up to about these totals."""

_REPAIR = "Repair the file or restore it from a copy, then start again: nothing of this window was applied to its table"

_TOO_LATE = (
    f"{{}} has a row with commit ts {{}} ({{}}), which no source can have issued yet. {_REPAIR}. If the clock of "
    "this machine is wrong, correct it"
)

OpenBlocks = Callable[[FileSplit], Iterator[bytes]]
"""Yields the content of a file, or that from the start of a split on."""
_Folded = tuple[TablePlan, Changes]
"""A table and its last states."""


class RowWriter(Protocol):
    """Writes to the target. Every transaction checks the open window and the owner's epoch before it changes a row.

    All methods return the number of rows written or deleted, raise `RowRefused` when the target refuses a value, and raise
    `TransientError` or `LeaseLost` when nothing more may be written.
    """

    def write_states(self, work: TablePlan, deletes: Sequence[bytes], upserts: Sequence[bytes]) -> int:
        """Write last states: `deletes` are lines of key columns, `upserts` lines of written columns; deletes go first."""
        ...

    def write_accepted(
        self, work: TablePlan, deletes: Sequence[bytes], upserts: Sequence[bytes], place_of: Callable[[bytes], RowPlace]
    ) -> tuple[int, list[QuarantinedRow]]:
        """Write as `write_states` does, and quarantine rows that the target refuses for what they hold; return these too.

        `place_of` returns where a line of `upserts` comes from.
        """
        ...

    def write_together(self, states: Sequence[tuple[TablePlan, Sequence[bytes], Sequence[bytes]]]) -> list[int]:
        """Write the last states of several tables in one transaction, all or nothing; return the number of rows of each.

        Each table comes with its `deletes` and `upserts`; see `write_states`.
        """
        ...

    def write_runs(self, work: TablePlan, ordered: Iterable[tuple[bool, Sequence[bytes]]]) -> int:
        """Write runs of upserts (True) and deletes (False) one after another."""
        ...

    def write_events(self, work: TablePlan, parts: Iterable[Events]) -> int:
        """Write a keyless table's events, in parts that never divide a commit-ts; the same transactions move the table's checkpoint."""
        ...


# first half: files to blocks


def file_blocks(storage: Blocks, work: FileSplit) -> Iterator[bytes]:
    """Yield a file's blocks, or those of one split; raise `StorageUnavailable` if it has fewer bytes than were listed.

    A split requires the listed tag, so that all splits of a file read the same object version; so does a part of a copy.
    """
    stored, span = work.file.stored, work.span
    if span == WHOLE:
        return whole(storage.blocks(stored.path, READ_BLOCK, tag=stored.tag if work.exact else ""), stored)
    most = work.size + _BEHIND_PART
    # Divide the range into equal requests, rounded up, so that none fetches only a few bytes.
    size = -(-most // -(-most // READ_BLOCK))
    return whole(storage.blocks(stored.path, size, start=span.start, tag=stored.tag), stored, span.start)


def read_files(
    files: Iterable[FileSplit],
    tables: dict[int, TablePlan],
    partitions: int,
    open_blocks: OpenBlocks,
    decoder: Decoder,
) -> Iterator[tuple[Place, Any]]:
    """Read files; yield blocks of changes for each bucket, a report per file, and one with a table's error to all buckets."""
    # One buffer holds one version of a table: all of its rows have the same layout.
    in_order = sorted(files, key=lambda work: (work.table, work.file.version_key, work.rank))
    for (index, version), group in groupby(in_order, key=lambda work: (work.table, work.file.version_key)):
        table = tables[index]
        buffer = Buffer(table, table.versions[version], partitions)
        for run in runs(group) if buffer.takes_batches and decoder.mark else ([work] for work in group):
            reports = yield from _read_run(run, table, buffer, open_blocks, decoder)
            yield from (((0, REPORT, index, 0), report) for report in reports)
            # Every bucket must learn of the error, since rows of this table may already be on their way to any of them. Each tells of it
            # too: where Spark repeats this task, the bucket that gets the reports may have ended with those of an attempt without an error.
            if reports[-1].error:
                yield from (((bucket, NOTICE, index, 0), reports[-1]) for bucket in range(partitions))
                break
        # Also what was read before an error: each bucket drops it because of the notice.
        yield from buffer.blocks()


def _read_run(
    run: Sequence[FileSplit], table: TablePlan, buffer: Buffer, open_blocks: OpenBlocks, decoder: Decoder
) -> Generator[tuple[Place, Any], None, list[FileReport]]:
    """Decode files into the buffer, together if possible; return their reports, up to the first one with an error."""
    version = table.versions[run[0].file.version_key]
    kept: dict[str, bytes] = {}
    if len(run) > 1:
        with suppress(FileNotFoundError, FilesMissing):  # reported when that file is read alone
            for work in run:
                kept[work.file.stored.path] = b"".join(open_blocks(work))
        tallies = read_together(run, [*kept.values()], _commit_range_of(table, version), buffer, decoder)
        # Otherwise the files are read one by one from the kept content, which finds the file and the row to blame.
        if tallies and max(tally.max_ts for tally in tallies) <= table.latest:
            if buffer.is_full:
                yield from buffer.blocks()
            return [_report(work, tally) for work, tally in zip(run, tallies, strict=True)]
    reports: list[FileReport] = []
    for work in run:
        report = yield from _read_file(work, table, buffer, _kept_or(kept, open_blocks), decoder)
        if report.error and work.span != WHOLE and not report.gone:
            # Into a buffer that is thrown away: the file is read whole only to find out what its error says.
            scratch = Buffer(table, version, 1)
            report = _as_of_whole(report, _read_file(replace(work, span=WHOLE), table, scratch, open_blocks, decoder))
        reports.append(report)
        if report.error:
            break
    return reports


def _kept_or(kept: Mapping[str, bytes], open_blocks: OpenBlocks) -> OpenBlocks:
    """Return a function that opens files from content in memory, and all others with `open_blocks`."""

    def opened(work: FileSplit) -> Iterator[bytes]:
        content = kept.get(work.file.stored.path)
        return open_blocks(work) if content is None else iter([content])

    return opened


def _commit_range_of(table: TablePlan, version: VersionPlan) -> CommitRange:
    """Return the commit range of this version's rows that have not been applied yet."""
    return CommitRange(low=version.low, high=table.commit_range.high)


def _report(work: FileSplit, tally: Tally, **trouble: Any) -> FileReport:
    """Return the report of a file or split; `trouble` sets the report's fields of these names."""
    return FileReport(
        table=work.table,
        path=work.file.stored.path,
        # The rows of a split are numbered from its first byte on (see `ByteRange`), so its tally began there.
        rows=tally.rows - work.span.start,
        duplicates=tally.duplicates,
        later=tally.later,
        applied=tally.taken,
        max_ts=tally.max_ts,
        next_ts=tally.next_ts,
        span=work.span,
        **trouble,
    )


def _read_file(
    work: FileSplit, table: TablePlan, buffer: Buffer, open_blocks: OpenBlocks, decoder: Decoder
) -> Generator[tuple[Place, Any], None, FileReport]:
    """Decode one file or split into the buffer, yielding what grows too large; return its report."""
    version = table.versions[work.file.version_key]
    path = work.file.stored.path
    tally = Tally(rows=work.span.start)
    error, torn, gone = "", False, False
    try:
        file = FileRead(
            blocks=_content(work, open_blocks, decoder),
            source=path,
            layout=version.layout,
            commit_range=_commit_range_of(table, version),
            key=version.key,
            tally=tally,
            # The files of the bucket say each row's commit-ts; those of a copy are numbered, and their rows are counted.
            clock=clock_of(work.file.number) if table.origin else 0,
        )
        yield from buffer.read(decoder, file, work.rank)
    except (FileNotFoundError, NotSplittable):
        error, torn, gone = f"waits for {path}, which vanished before it was read", True, True
    except UndecodableRow as fault:
        # Only the last row of the newest file can be one that is still being written.
        error, torn = f"{fault}. {_REPAIR}", fault.at_end and work.newest
    except TableError as fault:
        error = str(fault)
    if not error and tally.max_ts > table.latest:
        error = _TOO_LATE.format(path, tally.max_ts, tso_time(min(tally.max_ts, MAX_TSO)))
    return _report(work, tally, error=error, torn=torn, gone=gone)


def _content(work: FileSplit, open_blocks: OpenBlocks, decoder: Decoder) -> Iterator[bytes]:
    """Return the blocks to decode of a file: all of them, or the whole rows of a split."""
    blocks, span = open_blocks(work), work.span
    return split_of(blocks, decoder.mark, span.start, span.end) if span != WHOLE and decoder.mark else blocks


def _as_of_whole(report: FileReport, steps: Generator[object, None, FileReport]) -> FileReport:
    """Return the report of a split that has an error, with the findings of `steps`, which read the whole file again.

    The error then names the row's number in the file, and only a row at the true end of the file can count as still being written. If the
    whole file has no error, the split was not what it seemed, and the file has to be read whole.
    """
    try:
        while True:
            next(steps)
    except StopIteration as end:
        whole: FileReport = end.value
    if not whole.error:
        return replace(report, torn=True, gone=True)
    return replace(report, error=whole.error, torn=whole.torn, gone=whole.gone)


# second half: blocks to the target


def write_bucket(
    items: Iterable[tuple[Place, Any]], tables: dict[int, TablePlan], writer: RowWriter
) -> Iterator[FileReport | WriteReport]:
    """Write one bucket, table by table, tables with few rows together; pass file reports on. `items` are sorted by `Place`.

    A table with a file that could not be read is left alone: none of this commit range is written to it.
    """
    held: list[_Folded] = []
    rows = size = 0
    for found in _by_table(items, tables, writer):
        if not isinstance(found, tuple):
            yield found
            continue
        held.append(found)
        rows, size = rows + len(found[1].lines), size + found[1].lines.size
        if rows >= FEW_ROWS or size >= FEW_BYTES:
            yield from _write_together(held, writer)
            held, rows, size = [], 0, 0
    yield from _write_together(held, writer)


def _by_table(
    items: Iterable[tuple[Place, Any]], tables: dict[int, TablePlan], writer: RowWriter
) -> Iterator[FileReport | WriteReport | _Folded]:
    """Yield file reports, some perhaps twice, and for each table the report of its write or its few rows that are still to be written."""
    stopped: set[int] = set()
    for (kind, index), group in groupby(items, key=lambda item: (item[0][1], item[0][2])):
        # Places sort NOTICE before a table's blocks, so a failed table is known before any of its rows.
        if kind == NOTICE:
            stopped.add(index)
        if kind in (NOTICE, REPORT):
            yield from (report for _, report in group)
        elif index not in stopped:
            yield _written_or_folded(tables[index], group, writer)


def _written_or_folded(
    work: TablePlan, blocks: Iterator[tuple[Place, bytes]], writer: RowWriter
) -> WriteReport | _Folded:
    """Write one bucket's changes of one table; return only its last states if they are few and may share a transaction."""
    try:
        if work.mode is Mode.KEYLESS:
            return WriteReport(
                table=work.index,
                written=writer.write_events(work, in_parts((place[3], block) for place, block in blocks)),
            )
        changes = together([unpacked(block) for _, block in blocks])
        states = changes.chosen(latest(changes.ts, changes.order, changes.keys, has_commit_ts=work.has_commit_ts))
        # Free the unfolded changes before the write: both would otherwise be held at the peak.
        del changes
        few = len(states.lines) < FEW_ROWS and states.lines.size < FEW_BYTES
        # Writers of tables with other unique keys may have to queue, which would hold up all tables of the transaction.
        is_shared = few and work.mode is Mode.KEYED and not work.has_other_unique_keys
        return (work, states) if is_shared else _write_states(work, states, writer)
    except (TableError, ValueError) as fault:
        return WriteReport(table=work.index, error=str(fault))


def _write_together(held: Sequence[_Folded], writer: RowWriter) -> Iterator[WriteReport]:
    """Write tables in one transaction; if the target refuses any of it, write each in a transaction of its own."""
    counts: list[int] = []
    if len(held) > 1:
        # a failure leaves nothing written; writing each table alone then shows which one is to blame
        with suppress(TableError, ValueError):
            counts = writer.write_together([(work, *_deletes_and_upserts(states)) for work, states in held])
    if counts:
        for (work, _), written in zip(held, counts, strict=True):
            yield WriteReport(table=work.index, written=written)
    else:
        for work, states in held:
            yield _write_states(work, states, writer)


def _write_states(work: TablePlan, states: Changes, writer: RowWriter) -> WriteReport:
    """Write last states; if the target refuses a row, report the file and row that it came from."""
    try:
        if work.quarantine is not None and work.mode is Mode.KEYED:
            written, aside = writer.write_accepted(
                work, *_deletes_and_upserts(states), lambda line: _place_of(states, line, work)
            )
            return WriteReport(table=work.index, written=written, quarantined=tuple(aside))
        return WriteReport(table=work.index, written=_write_folded(work, states, writer))
    except RowRefused as fault:
        if not fault.line or fault.line not in states.lines:
            return WriteReport(table=work.index, error=str(fault))
        place = _place_of(states, fault.line, work)
        return WriteReport(
            table=work.index, error=str(fault), commit_ts=place.commit_ts, rank=place.rank, row=place.row
        )
    except (TableError, ValueError) as fault:
        return WriteReport(table=work.index, error=str(fault))


def _place_of(states: Changes, line: bytes, work: TablePlan) -> RowPlace:
    """Return where one of the lines comes from."""
    place = states.lines.index(line)
    order = int(states.order[place])
    ts = int(states.ts[place]) if work.has_commit_ts else 0
    return RowPlace(commit_ts=ts, rank=rank_of(order), row=row_of(order))


def _write_folded(work: TablePlan, states: Changes, writer: RowWriter) -> int:
    """Write last states, in sequence if the target may find keys equal that differ here; return the number of rows."""
    if work.mode is Mode.ORDERED:
        in_sequence = states.chosen(
            np.lexsort((sequence_of(states.order, has_commit_ts=work.has_commit_ts), states.ts))
        )
        images = map(image_function(work.key), listed_keys(in_sequence.keys))
        return writer.write_runs(work, long_runs(in_sequence.pairs(), images))
    return writer.write_states(work, *_deletes_and_upserts(states))


def _deletes_and_upserts(states: Changes) -> tuple[Lines, Lines]:
    """Return the lines of both, with neighbours in the target's index side by side."""
    keys = states.keys
    if isinstance(keys, list):  # an array is sorted already
        by_kind = [(isinstance(key, str), key) for key in keys]  # a few texts among numbers sort last
        states = states.chosen(np.array(sorted(range(len(keys)), key=by_kind.__getitem__), np.intp))
    upserts = is_upsert(states.order)
    return states.lines.chosen(np.flatnonzero(~upserts)), states.lines.chosen(np.flatnonzero(upserts))
