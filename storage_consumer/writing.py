"""The second half of a job, inside a task: blocks of changes to the target. Pure but for the writer that is handed in.

It folds what the first half (`reading`) sent to each bucket to the last state per key, and writes that. `spark/job.py` puts a shuffle
between them and contains no rule of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol

import numpy as np

from storage_consumer.buffer import NOTICE, REPORT, Place
from storage_consumer.decoding.lines import Lines
from storage_consumer.errors import RowRefused, TableError
from storage_consumer.events import Events, in_parts
from storage_consumer.folding import Changes, latest, listed_keys, together, unpacked
from storage_consumer.ordering import image_function, is_upsert, long_runs, rank_of, row_of, sequence_of
from storage_consumer.reading import FileReport
from storage_consumer.work import Mode, TableWork

FEW_ROWS, FEW_BYTES = 1_000, 256 << 10
"""A table of which a bucket has fewer rows, and fewer bytes of them, shares a transaction with others, which all together have about so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteReport:
    """What became of one table in one bucket."""

    table: int
    written: int = 0
    """Rows written and deleted."""
    error: str = ""
    """Why the target did not take a row; empty if it took all."""
    commit_ts: int = 0
    """Of the row that the target did not take; 0 where that is not known, as `rank` (of its file) and `row` (number) then."""
    rank: int = 0
    row: int = 0


_Folded = tuple[TableWork, Changes]
"""A table and its last states."""


class RowWriter(Protocol):
    """Writes to the target. Every transaction checks the open window and the owner's epoch before it changes a row.

    All methods return the number of rows written or deleted, raise `RowRefused` when the target refuses a value, and
    `TransientError` or `LeaseLost` when nothing more may be written.
    """

    def write_states(self, work: TableWork, deletes: Sequence[bytes], upserts: Sequence[bytes]) -> int:
        """Write last states: `deletes` are lines of key columns, `upserts` lines of written columns; deletes go first."""
        ...

    def write_together(self, states: Sequence[tuple[TableWork, Sequence[bytes], Sequence[bytes]]]) -> list[int]:
        """Write the last states of several tables in one transaction, all or nothing; the number of rows of each.

        Each with its `deletes` and `upserts`, see `write_states`.
        """
        ...

    def write_runs(self, work: TableWork, ordered: Iterable[tuple[bool, Sequence[bytes]]]) -> int:
        """Write runs of upserts (True) and deletes (False) one after another."""
        ...

    def write_events(self, work: TableWork, parts: Iterable[Events]) -> int:
        """Write a keyless table's events, in parts that cut no commit ts; the table's checkpoint is moved in the same transactions."""
        ...


def write_bucket(
    items: Iterable[tuple[Place, Any]], tables: dict[int, TableWork], writer: RowWriter
) -> Iterator[FileReport | WriteReport]:
    """Write one bucket, table by table, those with few rows together; `items` are sorted by `Place`. Passes file reports on.

    A table of which some file could not be read is left alone: nothing of this window is written.
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
    items: Iterable[tuple[Place, Any]], tables: dict[int, TableWork], writer: RowWriter
) -> Iterator[FileReport | WriteReport | _Folded]:
    """The reports of files, and of each table either the report of having written it or the few rows that are to be written."""
    stopped: set[int] = set()
    for (kind, index), group in groupby(items, key=lambda item: (item[0][1], item[0][2])):
        if kind == NOTICE:
            stopped.add(index)
        elif kind == REPORT:
            yield from (report for _, report in group)
        elif index not in stopped:
            yield _written_or_folded(tables[index], group, writer)


def _written_or_folded(
    work: TableWork, blocks: Iterator[tuple[Place, bytes]], writer: RowWriter
) -> WriteReport | _Folded:
    """Write what one bucket has of one table; the last states alone where they are few and no writer of it queues."""
    try:
        if work.mode is Mode.KEYLESS:
            return WriteReport(
                table=work.index,
                written=writer.write_events(work, in_parts((place[3], block) for place, block in blocks)),
            )
        changes = together([unpacked(block) for _, block in blocks])
        states = changes.chosen(latest(changes.ts, changes.order, changes.keys, timed=work.timed))
        del changes
        few = len(states.lines) < FEW_ROWS and states.lines.size < FEW_BYTES
        is_shared = few and work.mode is Mode.KEYED and not work.serial
        return (work, states) if is_shared else _write_states(work, states, writer)
    except (TableError, ValueError) as fault:
        return WriteReport(table=work.index, error=str(fault))


def _write_together(held: Sequence[_Folded], writer: RowWriter) -> Iterator[WriteReport]:
    """Write tables in one transaction; where the target does not take all of it, each in one of its own."""
    counts: list[int] = []
    if len(held) > 1:
        # where it fails nothing was written, and which table is to blame shows when it is alone
        with suppress(TableError, ValueError):
            counts = writer.write_together([(work, *_deletes_and_upserts(states)) for work, states in held])
    if counts:
        for (work, _), written in zip(held, counts, strict=True):
            yield WriteReport(table=work.index, written=written)
    else:
        for work, states in held:
            yield _write_states(work, states, writer)


def _write_states(work: TableWork, states: Changes, writer: RowWriter) -> WriteReport:
    """Write last states; where the target refuses a row, the report says where it came from."""
    try:
        return WriteReport(table=work.index, written=_write_folded(work, states, writer))
    except RowRefused as fault:
        place = states.lines.index(fault.line) if fault.line in states.lines else None
        if place is None:
            return WriteReport(table=work.index, error=str(fault))
        ts, order = int(states.ts[place]) if work.timed else 0, int(states.order[place])
        return WriteReport(table=work.index, error=str(fault), commit_ts=ts, rank=rank_of(order), row=row_of(order))
    except (TableError, ValueError) as fault:
        return WriteReport(table=work.index, error=str(fault))


def _write_folded(work: TableWork, states: Changes, writer: RowWriter) -> int:
    """Write last states; where keys may be equal to the target that differ to us, in their sequence."""
    if work.mode is Mode.ORDERED:
        in_sequence = states.chosen(np.lexsort((sequence_of(states.order, timed=work.timed), states.ts)))
        images = map(image_function(work.key), listed_keys(in_sequence.keys))
        return writer.write_runs(work, long_runs(in_sequence.pairs(), images))
    return writer.write_states(work, *_deletes_and_upserts(states))


def _deletes_and_upserts(states: Changes) -> tuple[Lines, Lines]:
    """The lines of both, neighbours in the target's index side by side."""
    keys = states.keys
    if isinstance(keys, list):  # an array is in sequence already
        by_kind = [(isinstance(key, str), key) for key in keys]  # a few texts among numbers come last
        states = states.chosen(np.array(sorted(range(len(keys)), key=by_kind.__getitem__), np.intp))
    upserts = is_upsert(states.order)
    return states.lines.chosen(np.flatnonzero(~upserts)), states.lines.chosen(np.flatnonzero(upserts))
