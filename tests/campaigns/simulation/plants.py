"""Planted bugs: each breaks one function of the program for a while, to show that the simulation can fail."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from storage_consumer import tso
from storage_consumer.bucket import metadata
from storage_consumer.config import table_filter
from storage_consumer.config.parsers import why_reserved
from storage_consumer.decode import csv_dialect as header
from storage_consumer.decode import decoder as row_layouts
from storage_consumer.decode.decoder import RowLayout
from storage_consumer.decode.kernels.arrays import Offsets, Places, Stamps
from storage_consumer.driver import row_jobs as rows
from storage_consumer.driver.ledger import RoundLedger, progress_of
from storage_consumer.driver.row_jobs import RowJobs
from storage_consumer.model import MAX_TSO, DataFile, TableName, is_ahead_of_clock
from storage_consumer.plan.ddl_backlog import LeftOutViews
from storage_consumer.plan.directories import Restart
from storage_consumer.plan.finished_files import REWRITTEN, FileSequences, FileVerdict, Finished, digest_of
from storage_consumer.plan.manager import ConsumerManager
from storage_consumer.plan.steps import DdlStep, RowStep
from storage_consumer.plan.table import Checkpoints, TableConsumer, checkpoints
from storage_consumer.plan.table_files import TableFiles, TableVersionConsumer
from storage_consumer.rows import fitting as key_forms
from storage_consumer.rows import halves as pipeline
from storage_consumer.rows import row_keys as keys
from storage_consumer.rows import row_order as changes
from storage_consumer.rows.row_keys import Action, Run, is_upsert, order_of
from storage_consumer.rows.row_order import Keys
from storage_consumer.rows.spec import FileReport, TablePlan, WriteReport, Written, is_blocked
from storage_consumer.target.ddl import runner
from storage_consumer.target.ddl.runner import DdlRunner
from storage_consumer.target.ddl.translate import DdlAction
from tests.campaigns.simulation.hand_plants import HAND_PLANTS
from tests.campaigns.simulation.load_plants import LOAD_PLANTS
from tests.campaigns.simulation.remembered import everywhere
from tests.campaigns.simulation.twins import OwnedTarget
from tests.harness.twins import operator, writer
from tests.harness.twins.records import Row, TargetRecords
from tests.harness.twins.state import MemoryLease
from tests.harness.twins.writer import FencedWriter


def _mark_before_rows(stack: ExitStack) -> None:
    """Progress is stored before the rows."""
    planned = RowJobs._planned

    def bad(self: RowJobs, steps: Sequence[RowStep]) -> list[tuple[RowStep, TablePlan]]:
        found = planned(self, steps)
        manager = self.context.manager
        moved = [
            replace(progress_of(manager.tables[step.table_key], manager), checkpoint=step.commit_range.high)
            for step, _ in found
        ]
        self.context.state.progress.save(tables=moved, sequences={}, checkpoint=0, storage_checkpoint=0)
        return found

    stack.enter_context(patch.object(RowJobs, "_planned", bad))


def _lt_for_le(stack: ExitStack) -> None:
    """A row at exactly the mark is taken for one that was not applied."""
    good = tso.row_floor

    def bad(low: int, version: int, *, is_ddl: bool) -> int:
        return good(low, version, is_ddl=is_ddl) - 1

    everywhere(stack, good, bad)


def _lt_for_le_in_writer(stack: ExitStack) -> None:
    """The same where the writer of a keyless table asks what an earlier try has written."""

    def bad(commit_ts: int, mark: int) -> bool:
        return commit_ts < mark

    everywhere(stack, tso.is_applied, bad)


def _live_mark(stack: ExitStack) -> None:
    """Rows are judged by a mark of their table that moves while its files are read, not by the commit range's bounds."""
    good = pipeline._read_file
    marks: dict[int, tuple[TablePlan, int]] = {}

    def bad(work: Any, table: TablePlan, *rest: Any) -> Generator[Any, None, Any]:
        of, mark = marks.get(table.index, (table, 0))
        mark = mark if of is table else 0
        versions = {key: replace(version, low=max(version.low, mark)) for key, version in table.versions.items()}
        report = yield from good(work, replace(table, versions=versions), *rest)
        marks[table.index] = table, max(mark, min(report.max_ts, table.commit_range.high))
        return report

    stack.enter_context(patch.object(pipeline, "_read_file", bad))


def _no_epoch(stack: ExitStack) -> None:
    """A writer writes whoever is the owner and whatever window is open."""

    def bad(self: FencedWriter, work: TablePlan) -> list[Any]:
        return self._records.rows.setdefault(work.name.folded(), [])

    stack.enter_context(patch.object(FencedWriter, "_rows", bad))


def _delete_after_upsert(stack: ExitStack) -> None:
    """Of one commit ts a key's delete comes after its upsert, so that a row which got another unique value is gone."""

    def bad(ts: Stamps, order: Offsets, keys: Keys, table: TablePlan) -> tuple[Places, Offsets]:
        places, _ = right(ts, order ^ order_of(0, 0, upsert=True), keys, table)
        return places, order[places]

    right = changes.latest
    everywhere(stack, right, bad)


def _repeats_summed(stack: ExitStack) -> None:
    """Repeated deliveries of a keyless transaction are added up."""

    def bad(changes: Iterable[tuple[int, bytes]]) -> list[tuple[bool, bytes]]:
        return sorted((is_upsert(order), row) for order, row in changes)

    everywhere(stack, keys.delivered_once, bad)


def _later_rows_forgotten(stack: ExitStack) -> None:
    """A file that was read is done with, though some of its rows are beyond the commit range."""

    def bad(self: TableConsumer, file: DataFile, *, max_ts: int, next_ts: int) -> None:
        self.files.version(file.version_key).finish(file)

    stack.enter_context(patch.object(TableConsumer, "finish", bad))


def _gaps_unseen(stack: ExitStack) -> None:
    """Nobody looks for missing numbers."""
    stack.enter_context(patch.object(TableVersionConsumer, "gap", str))
    stack.enter_context(patch.object(TableFiles, "not_there", lambda *_: []))


def _writes_unnoted(stack: ExitStack) -> None:
    """Nothing tells that a table is in the middle of a job."""
    stack.enter_context(patch.object(rows, "_early_writes", lambda _: {}))


def _windows_stay_open(stack: ExitStack) -> None:
    """Nothing closes a window but the next one: not a statement, and not a new owner."""
    good = MemoryLease.open_window

    def bad(
        self: MemoryLease, partitions: int, storage_checkpoint: int, writes: Mapping[str, int] | None = None
    ) -> int:
        return good(self, partitions, storage_checkpoint, writes) if partitions else self._records.window[1]

    stack.enter_context(patch.object(MemoryLease, "open_window", bad))


def _statements_unresolved(stack: ExitStack) -> None:
    """A statement that was interrupted just runs again."""

    def bad(*_: object) -> None:
        return None

    stack.enter_context(patch.object(DdlRunner, "_resolved", bad))


def _workers_unfenced(stack: ExitStack) -> None:
    """A former owner's connections stay as they are."""

    def bad(self: OwnedTarget) -> bool:
        return self._worker is None or self._own.lock_holders.setdefault(self._worker, self) is not None

    def unchecked(*_: object) -> None:
        return None

    stack.enter_context(patch.object(OwnedTarget, "fence_ddl", bad))
    stack.enter_context(patch.object(OwnedTarget, "_check_connection", unchecked))


def _any_metadata(stack: ExitStack) -> None:
    """Whatever number ``metadata`` says is believed."""

    def bad(ts: int, now: float) -> bool:
        return False

    everywhere(stack, is_ahead_of_clock, bad)


def _keys_as_written(stack: ExitStack) -> None:
    """Keys' texts are compared as they are written, whatever the types of the directories that they come from."""

    def bad(*_: object, **__: object) -> key_forms.KeyForms:
        return key_forms.KeyForms()

    everywhere(stack, key_forms.key_forms, bad)


def _names_unreserved(stack: ExitStack) -> None:
    """A database of the source may be called like the state schema, or like a system's."""

    def bad(*_: object) -> str:
        return ""

    everywhere(stack, why_reserved, bad)


def _files_known_until_a_restart(stack: ExitStack) -> None:
    """A later run takes every finished file for what it was, whatever is listed."""
    good = Finished.judge

    def bad(self: Finished, number: int, digest: int) -> FileVerdict:
        return FileVerdict.UNCHANGED if number < self.upto else good(self, number, digest)

    stack.enter_context(patch.object(Finished, "judge", bad))


def _written_anew_until_a_restart(stack: ExitStack) -> None:
    """That a finished file was found to be written anew is forgotten by a process that ends before it has read it."""

    def bad(self: FileSequences) -> dict[str, Finished]:
        for sequence in self._moved.values():
            for file in sequence.pending.values():
                if sequence._digests[file.number] == REWRITTEN:
                    sequence._digests[file.number] = digest_of(file.stored)
        return stored(self)

    stored = FileSequences.to_store
    stack.enter_context(patch.object(FileSequences, "to_store", bad))


def _reported_too_far(stack: ExitStack) -> None:
    """The checkpoint that is reported to others is the bucket's, whatever the tables have reached."""

    def bad(tables: Iterable[TableConsumer], storage_checkpoint: int) -> Checkpoints:
        return replace(checkpoints(tables, storage_checkpoint), lowest=storage_checkpoint)

    everywhere(stack, checkpoints, bad)


def _pauses_forgotten(stack: ExitStack) -> None:
    """A process does not ask which tables an operator has paused."""
    good = operator.restart_of

    def bad(records: TargetRecords) -> Restart:
        return replace(good(records), held={}, paused=frozenset())

    everywhere(stack, good, bad)


def _behind_for_ever(stack: ExitStack) -> None:
    """A table that goes on after a pause stays where its row says until something of it is applied."""

    def bad(self: RoundLedger, reached: Checkpoints) -> None:
        del self, reached

    stack.enter_context(patch.object(RoundLedger, "_save_caught_up", bad))


def _skips_forgotten(stack: ExitStack) -> None:
    """A process does not ask which tables an operator has left out."""
    good = operator.restart_of

    def bad(records: TargetRecords) -> Restart:
        return replace(good(records), excluded={}, skipped={})

    everywhere(stack, good, bad)


def _pushed_out_unnoticed(stack: ExitStack) -> None:
    """A row takes the place of whatever shares a unique key with it, and counts as written."""

    def bad(
        rows: list[Row],
        work: TablePlan,
        ordered: Sequence[Run],
        unique: Collection[tuple[str, ...]],
        row_of: Callable[[Sequence[str], bytes], Row],
        same: writer.Same,
    ) -> Written:
        for run in ordered:
            is_upsert = run.action in (Action.INSERT, Action.REPLACE)
            key = tuple(part.column.name for part in work.key)
            names = tuple(column.name for column in work.written) if is_upsert else key
            for row in (row_of(names, line) for line in run.lines):
                gone = {key, *unique} if is_upsert else {key}
                rows[:] = [one for one in rows if not any(writer._is_one(one, row, each, same) for each in gone)]
                rows += [row] if is_upsert else []
        return Written(sum(len(run.lines) for run in ordered))

    everywhere(stack, writer.write_blocks, bad)


def _blocked_forgotten(stack: ExitStack) -> None:
    """Nobody writes the rows that others were in the way of."""

    def bad(reports: Iterable[FileReport | WriteReport]) -> bool:
        del reports
        return False

    everywhere(stack, is_blocked, bad)


def _births_forgotten(stack: ExitStack) -> None:
    """Every row counts as one that was there before."""

    def bad(order: Any) -> Any:
        return is_upsert(order) & False

    everywhere(stack, keys.is_birth, bad)


def _selectors_believed(stack: ExitStack) -> None:
    """Rows without names are read by the selectors that are given, whoever wrote them."""

    def bad(*_: object) -> str:
        return ""

    everywhere(stack, table_filter.vouching, bad)


def _header_unread(stack: ExitStack) -> None:
    """Of a header line only the number of columns counts."""
    good = header._by_name

    def bad(*given: Any) -> tuple[tuple[int, ...], str]:
        order, problem = good(*given)
        return tuple(range(len(order))), problem

    stack.enter_context(patch.object(header, "_by_name", bad))


def _lacks_only_what_is_given(stack: ExitStack) -> None:
    """A row may lack the columns that the given selectors leave out, and no others, though it names what it has."""

    def bad(*given: Any) -> RowLayout:
        found = good(*given)
        return replace(found, may_lack=found.unselected)

    good = row_layouts.row_layout
    everywhere(stack, good, bad)


def _exchanges_unnoticed(stack: ExitStack) -> None:
    """Whatever is in the prefix goes on with what was read before."""

    def bad(*_: object) -> tuple[str, ...]:
        return ()

    everywhere(stack, metadata.doubts, bad)


def _read_ahead_is_proof(stack: ExitStack) -> None:
    """One schema file that was read before is enough, though it lies beyond what was applied, so that another changefeed writes it too."""
    good = metadata._is_any_known

    def bad(there: Collection[tuple[str, int]], before: metadata.Before) -> bool:
        return good(there, replace(before, applied=MAX_TSO))

    stack.enter_context(patch.object(metadata, "_is_any_known", bad))


def _listed_forgotten(stack: ExitStack) -> None:
    """Files that were listed are known in their process only."""

    def bad(*_: object) -> list[TableConsumer]:
        return []

    stack.enter_context(patch.object(ConsumerManager, "note_listed", bad))


def _views_like_any_statement(stack: ExitStack) -> None:
    """A view halts where the target refuses it, and tables wait for it."""
    stack.enter_context(patch.object(DdlStep, "makes_view", property(lambda _: False)))


def _views_made_once(stack: ExitStack) -> None:
    """A view that was left out is left out until the next start, whatever comes of what it reads."""
    stack.enter_context(patch.object(LeftOutViews, "look_at", lambda *_: None))


def _views_known_by_what_they_read(stack: ExitStack) -> None:
    """What becomes of the tables that an interrupted view reads shows that it was made."""
    good = runner._names

    def bad(step: DdlStep, action: DdlAction) -> tuple[TableName, ...]:
        with patch.object(DdlStep, "makes_view", property(lambda _: False)):
            return good(step, action)

    stack.enter_context(patch.object(runner, "_names", bad))


def _views_with_todays_columns(stack: ExitStack) -> None:
    """An asterisk stands for what the table has when the view is made."""
    stack.enter_context(patch.object(runner.DdlRunner, "_refuse_other_columns", lambda *_: None))


PLANTS: Mapping[str, Callable[[ExitStack], None]] = {
    "mark-before-rows": _mark_before_rows,
    "lt-for-le": _lt_for_le,
    "lt-for-le-in-writer": _lt_for_le_in_writer,
    "live-mark": _live_mark,
    "no-epoch": _no_epoch,
    "delete-after-upsert": _delete_after_upsert,
    "repeats-summed": _repeats_summed,
    "later-rows-forgotten": _later_rows_forgotten,
    "gaps-unseen": _gaps_unseen,
    "windows-stay-open": _windows_stay_open,
    "writes-unnoted": _writes_unnoted,
    "statements-unresolved": _statements_unresolved,
    "workers-unfenced": _workers_unfenced,
    "any-metadata": _any_metadata,
    "keys-as-written": _keys_as_written,
    "names-unreserved": _names_unreserved,
    "files-known-until-a-restart": _files_known_until_a_restart,
    "written-anew-until-a-restart": _written_anew_until_a_restart,
    "reported-too-far": _reported_too_far,
    "pauses-forgotten": _pauses_forgotten,
    "behind-for-ever": _behind_for_ever,
    "skips-forgotten": _skips_forgotten,
    "pushed-out-unnoticed": _pushed_out_unnoticed,
    "blocked-forgotten": _blocked_forgotten,
    "births-forgotten": _births_forgotten,
    "exchanges-unnoticed": _exchanges_unnoticed,
    "read-ahead-is-proof": _read_ahead_is_proof,
    "listed-forgotten": _listed_forgotten,
    "selectors-believed": _selectors_believed,
    "header-unread": _header_unread,
    "lacks-only-what-is-given": _lacks_only_what_is_given,
    "views-like-any-statement": _views_like_any_statement,
    "views-made-once": _views_made_once,
    "views-known-by-what-they-read": _views_known_by_what_they_read,
    "views-with-todays-columns": _views_with_todays_columns,
    **LOAD_PLANTS,
    **HAND_PLANTS,
}
"""The bugs by name; the first ones are those that a simulation must find at the least."""


@contextmanager
def planted(names: Iterable[str]) -> Iterator[None]:
    """With these bugs in the program."""
    with ExitStack() as stack:
        for name in names:
            PLANTS[name](stack)
        yield
