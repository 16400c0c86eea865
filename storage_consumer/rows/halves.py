"""Inside a task: (3) decode, (4) order, (5) apply. Pure, but for the storage and writer passed in.

A round's job has two halves. The first reads files, drops rows outside the commit range, keeps the
last state per key and sends each bucket its changes as opaque blocks of encoded lines. The second
folds each bucket to the last state per key and writes it. `spark.pipeline` puts a shuffle between
them and has no rules of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any, Protocol

import numpy as np

from storage_consumer.bucket.storage import Blocks, whole
from storage_consumer.decode.decoder import Decoder, FileRead, Tally
from storage_consumer.errors import FilesMissing, RowRefused, TableError, UndecodableRow
from storage_consumer.model import MAX_TSO, CommitRange, StoredObject
from storage_consumer.plan.loads import clock_of
from storage_consumer.rows.row_keys import (
    Action,
    Run,
    compares_texts,
    image_function,
    is_birth,
    is_padded,
    is_upsert,
    long_runs,
    rank_of,
    row_of,
    sequence_of,
)
from storage_consumer.rows.row_order import (
    NOTICE,
    REPORT,
    Buffer,
    Changes,
    Place,
    folded,
    in_parts,
    listed_keys,
    read_together,
    runs,
    together,
    unpacked,
)
from storage_consumer.rows.spec import (
    FileReport,
    JobFile,
    Mode,
    RowPlace,
    TablePlan,
    WriteReport,
    Written,
)
from storage_consumer.telemetry import tso_time

READ_BLOCK = 4 << 20
"""Upper limit of the bytes in one request to the storage."""
FEW_ROWS, FEW_BYTES = 1_000, 256 << 10
"""Exclusive limits of a table's share of a bucket, below which tables share transactions.

Such a transaction has up to about these totals.
"""

_REPAIR = "Repair the file or restore it from a copy, then start again: nothing of this window was applied to its table"

_TOO_LATE = (
    f"{{}} has a row with commit ts {{}} ({{}}), which no source can have issued yet. {_REPAIR}. If the clock of "
    "this machine is wrong, correct it"
)

OpenBlocks = Callable[[JobFile], Iterator[bytes]]
"""Yields the content of a file."""
PlaceOf = Callable[[bytes], RowPlace]
_Folded = tuple[TablePlan, Changes]
"""A table and its last states."""


class RowWriter(Protocol):
    """Writes to the target; each transaction first checks the open window and the owner's epoch.

    All methods return what they wrote or deleted, raise `RowRefused` when the target refuses a
    value, or a row that another one is in the way of, and raise `TransientError` or `LeaseLost`
    when nothing more may be written.
    """

    def write_runs(
        self, work: TablePlan, ordered: Sequence[Run], place_of: PlaceOf | None = None
    ) -> Written:
        """Write runs one after another. No row takes the place of another: see `apply.rows`.

        Quarantine rows that the target refuses for what they hold, where the plan says so.
        `place_of` returns where the line of a row comes from.
        """
        ...

    def write_together(self, states: Sequence[tuple[TablePlan, Sequence[Run]]]) -> list[int]:
        """Write runs of several tables in one transaction; return the number of rows of each."""
        ...

    def write_events(self, work: TablePlan, parts: Iterable[Changes]) -> int:
        """Write a keyless table's events in parts of whole commit-ts, and its checkpoint.

        The same transactions move the checkpoint.
        """
        ...


# first half: files to blocks


def file_blocks(storage: Blocks, work: JobFile) -> Iterator[bytes]:
    """Yield a file's blocks; raise `StorageUnavailable` if it has fewer bytes than were listed."""
    stored, tag = object_of(work)
    return whole(storage.blocks(stored.path, READ_BLOCK, tag=tag), stored)


def object_of(work: JobFile) -> tuple[StoredObject, str]:
    """Return a file's object, and the tag that it has to have, or empty."""
    return work.file.stored, work.file.stored.tag if work.exact else ""


def in_order(files: Iterable[JobFile]) -> list[JobFile]:
    """Return files as `read_files` reads them."""
    return sorted(files, key=lambda work: (work.table, work.file.version_key, work.rank))


def read_files(
    files: Iterable[JobFile],
    tables: dict[int, TablePlan],
    partitions: int,
    open_blocks: OpenBlocks,
    decoder: Decoder,
) -> Iterator[tuple[Place, Any]]:
    """Read files; yield blocks of changes per bucket, file reports, and errors to all buckets."""
    # One buffer holds one version of a table: all of its rows have the same layout.
    for (index, version), group in groupby(
        in_order(files), key=lambda work: (work.table, work.file.version_key)
    ):
        table = tables[index]
        buffer = Buffer(table, table.versions[version], partitions)
        for run in runs(group) if buffer.takes_batches else ([work] for work in group):
            reports = yield from _read_run(run, table, buffer, open_blocks, decoder)
            yield from (((0, REPORT, index, 0), report) for report in reports)
            # Every bucket must learn of the error, since rows of this table may already be on their
            # way to any of them. Each tells of it too: where Spark repeats this task, the bucket
            # that gets the reports may have ended with those of an attempt without an error.
            if reports[-1].error:
                yield from (
                    ((bucket, NOTICE, index, 0), reports[-1]) for bucket in range(partitions)
                )
                break
        # Also what was read before an error: each bucket drops it because of the notice.
        yield from buffer.blocks()


def _read_run(
    run: Sequence[JobFile],
    table: TablePlan,
    buffer: Buffer,
    open_blocks: OpenBlocks,
    decoder: Decoder,
) -> Generator[tuple[Place, Any], None, list[FileReport]]:
    """Decode files into the buffer, together if possible; report up to the first error."""
    version = table.versions[run[0].file.version_key]
    kept: dict[str, bytes] = {}
    if len(run) > 1:
        with suppress(FileNotFoundError, FilesMissing):  # reported when that file is read alone
            for work in run:
                kept[work.file.stored.path] = b"".join(open_blocks(work))
        tallies = read_together(
            run,
            [*kept.values()],
            CommitRange(low=version.low, high=table.commit_range.high),
            buffer,
            decoder,
        )
        # Otherwise the files are read one by one from the kept content, which finds the file and
        # the row to blame.
        if tallies and max(tally.max_ts for tally in tallies) <= table.latest:
            if buffer.is_full:
                yield from buffer.blocks()
            return [_report(work, tally) for work, tally in zip(run, tallies, strict=True)]

    def opened(work: JobFile) -> Iterator[bytes]:
        content = kept.get(work.file.stored.path)
        return open_blocks(work) if content is None else iter([content])

    reports: list[FileReport] = []
    for work in run:
        report = yield from _read_file(work, table, buffer, opened, decoder)
        reports.append(report)
        if report.error:
            break
    return reports


def _report(work: JobFile, tally: Tally, **trouble: Any) -> FileReport:
    """Return the report of a file; `trouble` sets the report's fields of these names."""
    return FileReport(
        table=work.table,
        path=work.file.stored.path,
        rows=tally.rows,
        duplicates=tally.duplicates,
        repeated_ts=tally.repeated_ts,
        later=tally.later,
        applied=tally.taken,
        max_ts=tally.max_ts,
        next_ts=tally.next_ts,
        skipped=tuple(tally.skipped.items()),
        **trouble,
    )


def _read_file(
    work: JobFile, table: TablePlan, buffer: Buffer, open_blocks: OpenBlocks, decoder: Decoder
) -> Generator[tuple[Place, Any], None, FileReport]:
    """Decode one file into the buffer, yielding what grows too large; return its report."""
    version = table.versions[work.file.version_key]
    path = work.file.stored.path
    tally = Tally()
    error, torn, gone = "", False, False
    try:
        file = FileRead(
            blocks=open_blocks(work),
            source=path,
            layout=version.layout,
            commit_range=CommitRange(low=version.low, high=table.commit_range.high),
            key=version.key,
            tally=tally,
            # The files of the bucket say each row's commit-ts; those of a copy are numbered, and
            # their rows are counted.
            clock=clock_of(work.file.number) if table.origin else 0,
        )
        yield from buffer.read(decoder, file, work.rank)
    except FileNotFoundError:
        error, torn, gone = f"waits for {path}, which vanished before it was read", True, True
    except UndecodableRow as fault:
        # Only the last row of the newest file can be one that is still being written.
        error, torn = f"{fault}. {_REPAIR}", fault.at_end and work.newest
    except TableError as fault:
        error = str(fault)
    if not error and tally.max_ts > table.latest:
        error = _TOO_LATE.format(path, tally.max_ts, tso_time(min(tally.max_ts, MAX_TSO)))
    return _report(work, tally, error=error, torn=torn, gone=gone)


# second half: blocks to the target


def write_bucket(
    items: Iterable[tuple[Place, Any]], tables: dict[int, TablePlan], writer: RowWriter
) -> Iterator[FileReport | WriteReport]:
    """Write a bucket by table, small ones together; pass on file reports, some maybe twice.

    `items` are sorted by `Place`.

    A table with a file that could not be read is left alone: none of this commit range is written
    to it.
    """
    held: list[_Folded] = []
    rows = size = 0
    stopped: set[int] = set()
    for (kind, index), group in groupby(items, key=lambda item: (item[0][1], item[0][2])):
        # Places sort NOTICE before a table's blocks: an error is known before any of its rows.
        if kind == NOTICE:
            stopped.add(index)
        if kind in (NOTICE, REPORT):
            yield from (report for _, report in group)
        elif index not in stopped:
            found = _written_or_folded(tables[index], group, writer)
            if isinstance(found, tuple):
                held.append(found)
                rows, size = rows + len(found[1].lines), size + found[1].lines.size
            else:
                yield found
        if rows >= FEW_ROWS or size >= FEW_BYTES:
            yield from _write_together(held, writer)
            held, rows, size = [], 0, 0
    yield from _write_together(held, writer)


def _written_or_folded(
    work: TablePlan, blocks: Iterator[tuple[Place, bytes]], writer: RowWriter
) -> WriteReport | _Folded:
    """Write a bucket's changes of a table, or return its last states if few and shareable."""
    try:
        if work.mode is Mode.KEYLESS:
            return WriteReport(
                table=work.index,
                written=writer.write_events(
                    work, in_parts((place[3], block) for place, block in blocks)
                ),
            )
        changes = together([unpacked(block) for _, block in blocks])
        states = folded(changes, work)
        # Free the unfolded changes before the write: both would otherwise be held at the peak.
        del changes
        few = len(states.lines) < FEW_ROWS and states.lines.size < FEW_BYTES
        # Writers of tables with other unique keys may have to queue, which would hold up all tables
        # of the transaction.
        is_shared = few and not (work.has_other_unique_keys or _is_ordered(work, states))
        return (work, states) if is_shared else _write_states(work, states, writer)
    except (TableError, ValueError) as fault:
        return WriteReport(table=work.index, error=str(fault))


def _write_together(held: Sequence[_Folded], writer: RowWriter) -> Iterator[WriteReport]:
    """Write tables in one transaction; if any of it is refused, each in its own."""
    counts: list[int] = []
    if len(held) > 1:
        # a failure leaves nothing written; writing each table alone shows which is to blame
        with suppress(TableError, ValueError):
            counts = writer.write_together([(work, _runs(work, states)) for work, states in held])
    if counts:
        for (work, _), written in zip(held, counts, strict=True):
            yield WriteReport(table=work.index, written=written)
    else:
        for work, states in held:
            yield _write_states(work, states, writer)


def _write_states(work: TablePlan, states: Changes, writer: RowWriter) -> WriteReport:
    """Write last states; if the target refuses a row, report the file and row that it came from."""

    def place_of(line: bytes) -> RowPlace:
        place = states.lines.index(line)
        order = int(states.order[place])
        ts = int(states.ts[place]) if work.has_commit_ts else 0
        return RowPlace(commit_ts=ts, rank=rank_of(order), row=row_of(order))

    try:
        rows, blocked, aside = writer.write_runs(work, _runs(work, states), place_of)
        return WriteReport(table=work.index, written=rows, blocked=blocked, quarantined=aside)
    except RowRefused as fault:
        place = place_of(fault.line) if fault.line and fault.line in states.lines else None
        return WriteReport(table=work.index, error=str(fault), place=place)
    except (TableError, ValueError) as fault:
        return WriteReport(table=work.index, error=str(fault))


def _runs(work: TablePlan, states: Changes) -> list[Run]:
    """Return last states as runs: in sequence if the target may equate keys, else by neighbours.

    Those are neighbours in its index.
    """
    if _is_ordered(work, states):
        in_sequence = states.chosen(
            np.lexsort((sequence_of(states.order, has_commit_ts=work.has_commit_ts), states.ts))
        )
        images = map(image_function(work.key), listed_keys(in_sequence.keys))
        return list(long_runs(in_sequence.pairs(), images))
    keys = states.keys
    if isinstance(keys, list):  # an array is sorted already
        # a few texts among numbers sort last
        by_kind = [(isinstance(key, str), key) for key in keys]
        states = states.chosen(np.array(sorted(range(len(keys)), key=by_kind.__getitem__), np.intp))
    upsert, birth = is_upsert(states.order), is_birth(states.order)
    # Elsewhere no other row can be in the way of one that came into being.
    if not (work.has_other_unique_keys or compares_texts(work.key)):
        birth = np.zeros_like(upsert)
    chosen = {
        Action.DELETE: ~upsert & ~birth,
        Action.REMOVE: ~upsert & birth,
        Action.INSERT: upsert & birth,
        Action.REPLACE: upsert & ~birth,
    }
    return [
        Run(action, states.lines.chosen(np.flatnonzero(those)))
        for action, those in chosen.items()
        if those.any()
    ]


def _is_ordered(work: TablePlan, states: Changes) -> bool:
    """Return whether the target may find keys of these changes equal."""
    return work.mode is Mode.ORDERED or is_padded(work.key, states.keys)
