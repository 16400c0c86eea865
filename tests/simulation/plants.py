"""Planted bugs: each breaks one function of the program for a while, to show that the simulation can fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from storage_consumer import checkpoint, ordering, pipeline
from storage_consumer.ordering import Key, is_upsert
from storage_consumer.parts import progress_of
from storage_consumer.planning.steps import RowStep
from storage_consumer.round import Round
from storage_consumer.testing_writer import FencedWriter
from storage_consumer.work import TableWork
from tests.simulation.remembered import everywhere


def _mark_before_rows(stack: ExitStack) -> None:
    """Progress is stored before the rows."""
    works = Round._works

    def bad(self: Round, steps: Sequence[RowStep]) -> list[tuple[RowStep, TableWork]]:
        found = works(self, steps)
        manager = self.parts.manager
        moved = [
            replace(progress_of(manager.tables[step.table_key], manager), checkpoint=step.window.high)
            for step, _ in found
        ]
        self.parts.state.save(tables=moved, streams={}, checkpoint=0, storage_checkpoint=0)
        return found

    stack.enter_context(patch.object(Round, "_works", bad))


def _lt_for_le(stack: ExitStack) -> None:
    """A row at exactly the mark is taken for one that was not applied."""
    good = checkpoint.row_floor

    def bad(low: int, version: int, *, is_ddl: bool) -> int:
        return good(low, version, is_ddl=is_ddl) - 1

    everywhere(stack, good, bad)


def _lt_for_le_in_writer(stack: ExitStack) -> None:
    """The same where the writer of a keyless table asks what an earlier try has written."""

    def bad(commit_ts: int, mark: int) -> bool:
        return commit_ts < mark

    everywhere(stack, checkpoint.is_applied, bad)


def _live_mark(stack: ExitStack) -> None:
    """Rows are judged by a mark of their table that moves while its files are read, not by the window's bounds."""
    good = pipeline._read_file
    marks: dict[int, tuple[TableWork, int]] = {}

    def bad(work: Any, table: TableWork, *rest: Any) -> Iterator[Any]:
        of, mark = marks.get(table.index, (table, 0))
        mark = mark if of is table else 0
        versions = {key: replace(version, low=max(version.low, mark)) for key, version in table.versions.items()}
        report = yield from good(work, replace(table, versions=versions), *rest)
        marks[table.index] = table, max(mark, min(report.max_ts, table.window.high))
        return report

    stack.enter_context(patch.object(pipeline, "_read_file", bad))


def _no_epoch(stack: ExitStack) -> None:
    """A writer writes whoever is the owner and whatever window is open."""

    def bad(self: FencedWriter, work: TableWork) -> list[Any]:
        return self._records.rows.setdefault(work.name.folded(), [])

    stack.enter_context(patch.object(FencedWriter, "_rows", bad))


def _delete_after_upsert(stack: ExitStack) -> None:
    """Of one commit ts a key's delete comes after its upsert, so that a row which got another unique value is gone."""

    def bad(states: dict[Key, tuple[int, int, Any]], key: Key, commit_ts: int, order: int, row: Any) -> None:
        current = states.get(key)
        if current is None or (commit_ts, not is_upsert(order)) >= (current[0], not is_upsert(current[1])):
            states[key] = (commit_ts, order, row)

    everywhere(stack, ordering.fold, bad)


PLANTS: Mapping[str, Callable[[ExitStack], None]] = {
    "mark-before-rows": _mark_before_rows,
    "lt-for-le": _lt_for_le,
    "lt-for-le-in-writer": _lt_for_le_in_writer,
    "live-mark": _live_mark,
    "no-epoch": _no_epoch,
    "delete-after-upsert": _delete_after_upsert,
}


@contextmanager
def planted(names: Iterable[str]) -> Iterator[None]:
    """With these bugs in the program."""
    with ExitStack() as stack:
        for name in names:
            PLANTS[name](stack)
        yield
