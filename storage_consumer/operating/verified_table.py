"""One table, compared with the source: a cut is taken, held for as long as nothing has to wait for it, and taken anew where it is lost."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, TypedDict

from storage_consumer.checkpoint.verified import SnapshotState
from storage_consumer.config.table_filter import CarriedColumns
from storage_consumer.downstream.compared_table import ComparedTable
from storage_consumer.downstream.reading import Reading
from storage_consumer.errors import Abandoned, TableError, TransientError
from storage_consumer.model import TSO_PHYSICAL_SHIFT, TableName, folded_name, physical_ms
from storage_consumer.operating.compared_source import ComparedSource, NotComparable
from storage_consumer.verifying.comparing import Comparison, Found
from storage_consumer.verifying.cut import TableLook, is_compared, moves_on, obstacle
from storage_consumer.verifying.healing import NOT_AT_SOURCE
from storage_consumer.verifying.layout import LaidOutSide, TableLayout, layout_of, without
from storage_consumer.verifying.result import Outcome, Span, TableResult
from storage_consumer.verifying.side import Key, TableShape, fingerprint
from storage_consumer.verifying.structure import StructureFound, compared

_PAUSE = 0.03
"""Seconds between two looks for a moment at which a table is at rest."""
_LOOK = 1.0
"""Seconds between two looks whether a statement waits for the snapshot."""
_SETTLING = 10_000
"""Milliseconds that the consumer has to come further before a difference counts: a statement that explains it would be known by then."""
_EARLY = 600_000
"""Milliseconds for which the source may show the effect of a statement before its version; TiDB's own transactions hold it up."""
_PATIENCE = 60.0
"""Seconds to wait for that."""
_TRIES = 20
"""How often a cut that was lost is taken anew."""
JUDGED_EVERY = 0.5
"""Seconds between two looks whether the differences of a table count."""
_STORED_EVERY = 2.0
_RESTARTS = 3
Verdict = Literal["final", "again", "later"]
"""Of a table that was compared: its result is there, it has to be compared again, or that is not known yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What is to be compared, and how."""

    tables: str = ""
    """Rules in the filter's language; empty for all tables."""
    how: Literal["full", "quick"] = "full"
    workers: int = 2
    """How many tables are compared at a time."""
    rows_per_second: float = 50_000.0
    """The most rows that all workers together read on each side; 0 for any number."""
    chunk_rows: int = 50_000
    resume: bool = False
    """Whether to go on with the run that was broken off last, which has to be one of the same mode (`how`)."""
    wait: float = 300.0
    """Seconds to wait for a moment at which a table is at rest."""


class VerifyOptions(TypedDict, total=False):
    """The fields of `Wishes`, as keywords."""

    tables: str
    how: Literal["full", "quick"]
    workers: int
    rows_per_second: float
    chunk_rows: int
    resume: bool
    wait: float


class Desk(Protocol):
    """What is asked of the state beside the snapshots, and told to it; any thread may call it."""

    def now(self, table_key: str) -> TableLook | None:
        """Return what the state says of a table now."""
        ...

    def put(self, table_key: str, result: TableResult) -> None:
        """Store the result of a table."""
        ...

    def next_statement(self, table: TableName, low: int, high: int) -> int:
        """Return the version of the first known statement from `low` to `high` (both inclusive) that may touch a table; 0 for none."""
        ...


@dataclass(frozen=True, slots=True)
class Ends:
    """What a worker reads on."""

    source: ComparedSource
    target: Reading

    def close(self) -> None:
        """Close both."""
        self.source.close()
        self.target.close()


class _GivesWay(Exception):
    """A statement waits for the snapshot, or the table has another structure now."""


@dataclass(frozen=True, slots=True)
class _Both:
    """Both sides of a table, and their structures."""

    source: LaidOutSide
    target: LaidOutSide
    shapes: tuple[TableShape, TableShape]


@dataclass(frozen=True, slots=True)
class _Cut:
    """A table at one commit-ts."""

    look: TableLook
    structure: StructureFound
    both: _Both | None = None
    """None where a side has no such table."""
    left_out: tuple[str, ...] = ()
    """Columns that the feed does not carry."""


@dataclass(slots=True)
class _SetAside:
    """A table that differs, while the consumer may not know a statement yet that explains it."""

    look: TableLook
    result: TableResult
    until: float
    """When its differences count without the consumer."""
    next: float = 0.0


@dataclass(slots=True, kw_only=True)
class TableVerification:
    """The comparison of one table, with what was found so far."""

    table_key: str
    wishes: Wishes
    desk: Desk
    schema: str
    """Of the state."""
    stop: threading.Event
    carried: CarriedColumns
    result: TableResult
    """What is known so far; of an interrupted run if it is resumed."""
    ends: Ends = field(init=False)
    _aside: _SetAside | None = None
    _restarts: int = 0
    _found: Found = field(default_factory=Found)
    _deadline: float = 0.0
    _stored: float = 0.0
    _looked: float = 0.0

    def run(self, ends: Ends) -> None:
        """Compare the table on these connections, and store what is known; `judge` says whether that is its result."""
        self.ends, began = ends, time.monotonic()
        self._take_up()
        try:
            self._run()
        # What a server refuses about one table says nothing of the others.
        except (NotComparable, TableError) as why:
            self.result = replace(self.result, outcome=Outcome.NOT_COMPARED, reason=str(why))
        finally:
            self._end_snapshots()
            self.result = replace(self.result, seconds=round(self.result.seconds + time.monotonic() - began, 3))
            self.desk.put(self.table_key, self.result)

    def _take_up(self) -> None:
        """Go on from what is noted: whole chunks count, and nothing that was found behind the last one."""
        if self.result.after is None:
            self._begin_anew()
            return
        counts = {"differs": self.result.differing, "missing": self.result.missing, "extra": self.result.extra}
        self._found = Found(counts=Counter(counts), kept=list(self.result.differences))

    def _begin_anew(self) -> None:
        """Forget what was compared so far."""
        self._found = Found()
        before = self.result
        self.result = TableResult(
            table=before.table,
            target=before.target,
            outcome=Outcome.UNFINISHED,
            checkpoint=before.checkpoint,
            how=before.how,
            run=before.run,
            seconds=before.seconds,
        )

    def _run(self) -> None:
        """Compare until the end of the table, in as many cuts as it takes."""
        lost = 0
        while True:
            try:
                cut = self._cut()
                self._follow(cut)
                self._compare(cut)
            except _GivesWay:
                self._end_snapshots()
                self._take_up()
            except TransientError as fault:
                lost += 1
                self._lost(fault, lost)
            else:
                break
        if self.result.outcome is Outcome.DIFFERENT and self.ends.source.shows_early:
            self._aside = _SetAside(cut.look, self.result, time.monotonic() + min(_PATIENCE, self.wishes.wait))
            # A difference that does not count yet is none for whoever resumes this.
            self.result = replace(self.result, outcome=Outcome.UNFINISHED)

    def _lost(self, fault: TransientError, lost: int) -> None:
        """Prepare another cut after one that was lost; raise what is wrong after too many."""
        if lost >= _TRIES:
            raise fault
        self.ends.close()
        self._take_up()
        self._rest(min(5.0, 0.1 * 2**lost))

    def _follow(self, cut: _Cut) -> None:
        """Begin anew in this cut where a side has another structure than in the chunks so far."""
        shapes = fingerprint(cut.both.shapes) if cut.both is not None else ""
        if self.result.after is not None and self.result.shapes != shapes:
            if self._restarts >= _RESTARTS:
                raise NotComparable("its structure changed again and again meanwhile: verify it later")
            self._restarts += 1
            self._begin_anew()
        self.result = replace(self.result, shapes=shapes)

    def judge(self) -> Verdict:
        """Say whether what `run` found is the table's result; it is then in `result`. It takes no snapshot, and does not wait.

        TiDB shows the effect of some statements before their version, and a table that has come to exactly the version of one has not run it.
        So a difference counts only once a statement that explains it would be known; if one is, another cut is worth taking.
        """
        if (aside := self._aside) is None or time.monotonic() < aside.next:
            return "final" if aside is None else "later"
        aside.next, is_over = time.monotonic() + JUDGED_EVERY, time.monotonic() >= aside.until
        look, last = aside.look, aside.look.checkpoint + (_EARLY << TSO_PHYSICAL_SHIFT)
        try:
            now = self.desk.now(self.table_key)
            # From which version on a statement may explain what differs, also one that was run between two cuts. One at exactly the
            # first cut may have been run after it; a finished one at the lower border does not count.
            spans, first = aside.result.spans, look.checkpoint
            first = first if not spans or spans[0].checkpoint == first else spans[0].checkpoint - 1
            version = self.desk.next_statement(look.table, first, last)
        except TransientError:
            if is_over:
                raise
            return "later"
        moves = now is not None and moves_on(now)
        # One that was run between two cuts: whatever becomes of the table, one cut after it shows what is equal.
        has_run = 0 < version < look.checkpoint
        if version and now is not None and (moves or has_run) and self._restarts < _RESTARTS:
            # Another cut before the statement has moved anything would find the same.
            if not (has_run or is_over or now.statements != look.statements or now.checkpoint > look.checkpoint):
                return "later"
            self._restarts += 1
            self._aside = None
            return "again"
        if not (version or now is None or not moves or is_over or _is_settled_since(look, now)):
            return "later"
        note = (
            f"the statement of version {version} was run while the table was compared"
            if has_run
            else f"the statement of version {version} follows at the source, which may show its effect before"
        )
        notes = (*aside.result.notes, *([note] if version else ()))
        self.result = replace(aside.result, notes=notes, seconds=self.result.seconds)
        return "final"

    # the cut

    def _cut(self) -> _Cut:
        """Take a cut, waiting for a moment at which the table is at rest."""
        self._deadline = self._deadline or time.monotonic() + self.wishes.wait
        while True:
            look, passes = self._look()
            if not passes:
                cut = self._opened(look)
                if cut is not None:
                    # From here on the time counts anew: this cut was had.
                    self._deadline = 0.0
                    return cut
            self.ends.target.end()
            if time.monotonic() >= self._deadline:
                why = passes or "statements run on it one after the other"
                raise NotComparable(f"it was not at rest for {self.wishes.wait:g} s (--wait): {why}")
            self._rest(_PAUSE)

    def _look(self) -> tuple[TableLook, str]:
        """Take a snapshot of the target; return what it says of the table, and what stands in the way for now; empty if nothing."""
        self.ends.target.begin()
        look = SnapshotState(self.ends.target, self.schema).look(self.table_key)
        if look is None:
            raise NotComparable("the state does not know it any more")
        if not is_compared(look.state, look.error):
            raise NotComparable(f"it is {look.state}")
        self.result = replace(self.result, table=look.table, target=look.target, checkpoint=look.checkpoint)
        found = obstacle(look)
        if found is not None and not found.passes:
            raise NotComparable(found.why)
        return look, "" if found is None else found.why

    def _opened(self, look: TableLook) -> _Cut | None:
        """Return both sides at the checkpoint of a snapshot; None if a statement began meanwhile."""
        target = ComparedTable(self.ends.target, look.target)
        there = target.structure()
        # Statements are not part of a snapshot. Looking at the table took its lock, so whatever changes it from now on waits; what
        # was begun between the snapshot and the lock shows in the state by now.
        now = self.desk.now(self.table_key)
        if now is None or now.statements != look.statements:
            return None
        opened = self.ends.source.opened(look)
        if opened is None or there is None:
            found = StructureFound()
            if (opened is None) != (there is None):
                found.differences.append(NOT_AT_SOURCE if opened is None else "the target lacks the table")
            return _Cut(look, found)
        source, here = opened
        left_out = self.carried.lacking(look.table, [column.name for column in here.columns])
        folded = {*map(folded_name, left_out)}
        # Statements reach the target whole, so it may have these columns, without the source's values.
        lacking = folded - {folded_name(column.name) for column in there.columns}
        structure = compared(without(here, lacking), there)
        shapes = (without(here, folded), without(there, folded))
        return _Cut(look, structure, _Both(source, target, shapes), tuple(left_out))

    def _rest(self, seconds: float) -> None:
        if self.stop.wait(seconds):
            raise Abandoned("the comparison was broken off")

    def _end_snapshots(self) -> None:
        self.ends.target.end()
        self.ends.source.end()

    # the comparison

    def _compare(self, cut: _Cut) -> None:
        """Compare what the table's structures have in common, and its rows behind the last key that was compared."""
        self.result = replace(
            self.result,
            structure=tuple(cut.structure.differences),
            alike=tuple(sorted(cut.structure.used)),
            notes=tuple(_notes(cut)),
        )
        both, layout = cut.both, self._layout(cut)
        if both is None or layout is None:
            is_all = both is None or all(shape.is_view for shape in both.shapes)
            same = Outcome.EQUAL if is_all else Outcome.NOT_COMPARED
            self._finish(Outcome.DIFFERENT if self.result.structure else same)
            return
        both.source.layout, both.target.layout = layout.source, layout.target
        # Its thread asks the target while this one asks the source.
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="verify") as side:
            if self.wishes.how == "quick":
                self.result = _counted(self.result, both, side)
            else:
                self._compare_rows(cut.look, Comparison((both.source, both.target), layout, self._found, side))
        equal = not (self._found.counts.total() or self.result.structure or self.result.different_rows)
        self._finish(Outcome.EQUAL if equal else Outcome.DIFFERENT)

    def _layout(self, cut: _Cut) -> TableLayout | None:
        """Return what is compared; None if there are no rows to compare."""
        if cut.both is None:
            if not cut.structure.differences:
                # As one that the source has dropped before the copy with which the feed began.
                self.result = replace(self.result, notes=("neither side has the table",))
            return None
        views = [shape.is_view for shape in cut.both.shapes]
        if all(views):
            self.result = replace(self.result, notes=(*self.result.notes, "it is a view, which has no rows of its own"))
            return None
        if any(views):
            only = f"it is a view only {'at the source' if views[0] else 'in the target'}"
            self.result = replace(self.result, structure=(*self.result.structure, only))
            return None
        layout = layout_of(*cut.both.shapes)
        return layout if layout.columns else None

    def _compare_rows(self, look: TableLook, comparison: Comparison) -> None:
        after = None if self.result.after is None else tuple(map(bytes.fromhex, self.result.after))
        self._looked = time.monotonic()
        for step in comparison.run(self.wishes.chunk_rows, after):
            self._note(look.checkpoint, step.rows, step.after)
            if step.after is None:
                return
            self._may_go_on(look)

    def _note(self, checkpoint: int, rows: int, after: Key | None) -> None:
        """Note a chunk that was compared."""
        *before, last = self.result.spans or (Span(checkpoint=checkpoint),)
        if last.checkpoint != checkpoint:
            before, last = [*before, last], Span(checkpoint=checkpoint)
        counts = self._found.counts
        self.result = replace(
            self.result,
            outcome=Outcome.UNFINISHED,
            spans=(*before, replace(last, chunks=last.chunks + 1, rows=last.rows + rows)),
            rows=self.result.rows + rows,
            differing=counts["differs"],
            missing=counts["missing"],
            extra=counts["extra"],
            differences=tuple(self._found.kept),
            after=None if after is None else tuple(value.hex() for value in after),
        )
        if after is not None and time.monotonic() - self._stored >= _STORED_EVERY:
            self._stored = time.monotonic()
            self.desk.put(self.table_key, self.result)

    def _may_go_on(self, look: TableLook) -> None:
        """Raise where the comparison is to end, or has to let a statement pass that waits for the table."""
        self._rest(0)
        if time.monotonic() - self._looked < _LOOK:
            return
        self._looked = time.monotonic()
        now = self.desk.now(self.table_key)
        if now is None or (now.statement and now.statements != look.statements):
            raise _GivesWay

    def _finish(self, outcome: Outcome) -> None:
        spans = self.result.spans if len(self.result.spans) > 1 else ()
        self.result = replace(self.result, outcome=outcome, after=None, spans=spans)


def _counted(result: TableResult, both: _Both, side: ThreadPoolExecutor) -> TableResult:
    """Return the result with the numbers of rows of both sides."""
    counted = side.submit(both.target.count)
    try:
        source = both.source.count()
    finally:
        counted.exception()
    target = counted.result()
    return replace(result, rows=source, missing=max(0, source - target), extra=max(0, target - source))


def _is_settled_since(look: TableLook, now: TableLook) -> bool:
    """Return whether the table has come so far that a statement which could explain differences would be known."""
    return physical_ms(now.checkpoint) - physical_ms(look.checkpoint) >= _SETTLING


def _notes(cut: _Cut) -> list[str]:
    """Return what should be known of a table beside what is compared."""
    look, notes = cut.look, list[str]()
    if cut.left_out:
        notes.append(f"left out by the changefeed's column-selectors: {', '.join(cut.left_out)}")
    if look.state not in ("running", "waiting"):
        notes.append(f"it is {look.state}, and was compared at its own checkpoint")
    if look.quarantined:
        notes.append(
            f"{look.quarantined} of its rows are in the quarantine, and differ for that reason: see `storage-consumer quarantine`"
        )
    return notes
