"""A run of `verify`: the meant tables, several at a time, each on two connections.

Of each table a cut is taken, held for as long as nothing has to wait for it, and taken anew where
it is lost.
"""

from __future__ import annotations

import hashlib
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from queue import SimpleQueue
from typing import Literal, TypedDict, TypeVar

from storage_consumer.checkpoint.store import StateStore, operated
from storage_consumer.clock import Pace, counted
from storage_consumer.config.commands import reaching
from storage_consumer.config.settings import Server
from storage_consumer.config.table_filter import ALL_COLUMNS, CarriedColumns, table_rules
from storage_consumer.errors import Abandoned, ConfigError, TableError, TransientError
from storage_consumer.model import TSO_PHYSICAL_SHIFT, TableName, folded_name, physical_ms
from storage_consumer.operating.compared_source import (
    SHOWN_EARLY,
    ComparedSource,
    NotComparable,
    look_at,
)
from storage_consumer.operating.mending import STILL_DIFFERS, TableMending
from storage_consumer.plan.steps import key_of
from storage_consumer.rows.compared_layout import Key, TableLayout, TableShape, layout_of, without
from storage_consumer.rows.comparing import Comparison, Found, StructureFound, compared
from storage_consumer.rows.comparison import (
    NOT_AT_SOURCE,
    Span,
    TableLook,
    TableResult,
    VerifyOutcome,
    heal_command,
    is_compared,
    moves_on,
    obstacle,
)
from storage_consumer.target.source_reading import ComparedTable, Reading

_PAUSE = 0.03
"""Seconds between two looks for a moment at which a table is at rest."""
_LOOK = 1.0
"""Seconds between two looks whether a statement waits for the snapshot."""
_SETTLING = 10_000
"""Milliseconds that the consumer has to come further before a difference counts: a statement that
explains it would be known by then.
"""
_PATIENCE = 60.0
"""Seconds to wait for that."""
_TRIES = 20
"""How often a cut that was lost is taken anew."""
_JUDGED_EVERY = 0.5
"""Seconds between two looks whether the differences of a table count."""
_STORED_EVERY = 2.0
_RESTARTS = 3
_ASKED_AGAIN = (0.2, 1.0, 5.0)
"""Seconds after which the state is asked again that did not answer: a long comparison is worth
waiting for a server that starts.
"""
T = TypeVar("T")
Repair = Literal["", "apply", "print"]
Verdict = Literal["final", "again", "later"]
"""Of a table that was compared: its result is there, it has to be compared again, or that is not
known yet.
"""


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
    """Whether to go on with the run that was broken off last, which has to be one of the same mode
    (`how`).
    """
    wait: float = 300.0
    """Seconds to wait for a moment at which a table is at rest."""
    frozen: bool = False
    """Whether nothing writes to the source, so that it need not be a TiDB."""
    repair: Repair = ""
    """Whether rows that differ are mended, or the statements for that are returned; see
    `operating.mending`.
    """
    repair_limit: int = 1_000
    """The most rows of a table that are mended: one with more differences stays as it is."""


class VerifyOptions(TypedDict, total=False):
    """The fields of `Wishes` but for `frozen`, as keywords."""

    tables: str
    how: Literal["full", "quick"]
    workers: int
    rows_per_second: float
    chunk_rows: int
    resume: bool
    wait: float
    repair: Repair
    repair_limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What a run found."""

    run: str
    tables: tuple[TableResult, ...]
    seconds: float = 0.0
    unknown: tuple[TableName, ...] = ()
    """Tables of the source of which the state says nothing: no file of the bucket names them."""

    @property
    def is_equal(self) -> bool:
        """Whether all tables are equal."""
        return all(table.outcome is VerifyOutcome.EQUAL for table in self.tables)

    @property
    def differs(self) -> bool:
        """Whether a table differs."""
        return any(table.outcome is VerifyOutcome.DIFFERENT for table in self.tables)


def _answered(question: Callable[[], T]) -> T:
    """Return what the state answers, asked again where a connection to it was lost."""
    for pause in _ASKED_AGAIN:
        with suppress(TransientError):
            return question()
        time.sleep(pause)
    return question()


_Ends = tuple[ComparedSource, Reading]
"""What a worker reads on."""


def verified(
    target: Server,
    source: Server,
    wishes: Wishes,
    *,
    carried: CarriedColumns = ALL_COLUMNS,
    stop: threading.Event | None = None,
    heard: Callable[[TableResult], None] = lambda _: None,
) -> VerifyReport:
    """Compare the tables of a feed with their source, and return what was found, by name.

    `carried`: which columns the feed has of each table; the others are not compared.
    `heard` is called with each result as soon as it is there, from any thread. Raises `ConfigError`
    and `TransientError`; what is known by then is stored. Once `stop` is set, it raises
    `Abandoned`, and the run can be resumed.
    """
    began = time.monotonic()
    try:
        rules = table_rules((wishes.tables or "*.*",))
    except ValueError as fault:
        raise ConfigError(
            f"--table: {fault}; a rule such as 'shop.orders' or 'shop.*' is expected"
        ) from None
    if wishes.repair and (wishes.resume or wishes.how == "quick"):
        raise ConfigError(
            "--repair has to see each row that differs: give it without --resume and --quick"
        )
    with closing(operated(target.settings, target.password)) as state:
        tables = [row.stored for row in state.decisions.tables()]
        name, before = uuid.uuid4().hex, dict[str, TableResult]()
        if wishes.resume:
            name, before = _interrupted(state.verified.all(), wishes.how)
        begun = partial(TableResult, outcome=VerifyOutcome.UNFINISHED, how=wishes.how, run=name)
        meant = {
            table.table_key: before.get(str(table.name))
            or begun(table=table.name, target=table.name)
            for table in tables
            if table.name.table
            and is_compared(table.state, table.error)
            and rules.matches(table.name.schema, table.name.table)
        }
        if not meant:
            raise ConfigError(
                "the state knows no table that is meant"
                + (f" by --table {wishes.tables}" if wishes.tables else "")
            )
        done = [
            result for result in meant.values() if result.outcome is not VerifyOutcome.UNFINISHED
        ]
        open_tables = {
            key: result
            for key, result in meant.items()
            if result.outcome is VerifyOutcome.UNFINISHED
        }
        # Known from the start, so that a run that is killed can be resumed wherever it was.
        for key, result in open_tables.items():
            state.verified.put(key, result)
        run = _Run(target, source, wishes, carried, state, stop or threading.Event(), heard)
        done += _all(run, open_tables)
        # The newest cut: what was created until then has come to the state, or comes at once. None
        # if no table could be compared.
        newest, there = max(result.checkpoint for result in done), frozenset[TableName]()
        if newest:
            with closing(run.opened_source(Pace())) as one:
                there = one.tables(newest)
        known = {row.stored.table_key for row in _answered(state.decisions.tables)}
        unknown = (
            each
            for each in there
            if key_of(each) not in known and rules.matches(each.schema, each.table)
        )
        return VerifyReport(
            run=name,
            tables=tuple(sorted(done, key=lambda each: str(each.table))),
            seconds=round(time.monotonic() - began, 3),
            unknown=tuple(sorted(unknown)),
        )


def _interrupted(found: Collection[TableResult], how: str) -> tuple[str, dict[str, TableResult]]:
    """Return a mode's interrupted run and its results by table; raise `ConfigError` without one."""
    broken_off = [result for result in found if result.outcome is VerifyOutcome.UNFINISHED]
    if not broken_off:
        raise ConfigError("--resume: no comparison was broken off; leave it out")
    run = next((result.run for result in broken_off if result.how == how), None)
    if run is None:
        first = broken_off[0]
        raise ConfigError(
            f"--resume: the comparison that was broken off in {first.table} was of another mode, {first.how}. To go on with it, "
            f"{'add' if first.how == 'quick' else 'leave out'} --quick (in Python, how={first.how!r}); to begin a new comparison, leave out --resume"
        )
    return run, {str(result.table): result for result in found if result.run == run}


@dataclass(frozen=True, slots=True)
class _Run:
    """What the workers of a run share."""

    target: Server
    source: Server
    wishes: Wishes
    carried: CarriedColumns
    state: StateStore
    stop: threading.Event
    heard: Callable[[TableResult], None]

    def put(self, table_key: str, result: TableResult) -> None:
        """Store the result of a table."""
        _answered(lambda: self.state.verified.put(table_key, result))

    def opened_source(self, pace: Pace) -> ComparedSource:
        """Return what a worker compares with; it keeps the pace."""
        reading = Reading(self.source.settings, self.source.password, "source", pace)
        return ComparedSource(reading, is_frozen=self.wishes.frozen)


def _all(run: _Run, tables: Mapping[str, TableResult]) -> list[TableResult]:
    """Compare these tables, several at a time."""
    free: SimpleQueue[_Ends] = SimpleQueue()
    source_pace, target_pace = (Pace(run.wishes.rows_per_second) for _ in range(2))
    everyone = [
        (
            run.opened_source(source_pace),
            Reading(run.target.settings, run.target.password, "target", target_pace),
        )
        for _ in range(min(run.wishes.workers, len(tables)))
    ]
    for ends in everyone:
        free.put(ends)

    def compared(work: TableVerification) -> TableVerification:
        ends = free.get()
        try:
            work.run(*ends)
        finally:
            free.put(ends)
        return work

    with ThreadPoolExecutor(max_workers=max(1, len(everyone)), thread_name_prefix="verify") as pool:
        try:
            return list(_results(run, tables, lambda work: pool.submit(compared, work)))
        except BaseException:
            # The others end at their next chunk.
            run.stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        finally:
            pool.shutdown()
            for source, target in everyone:
                source.close()
                target.close()


def _results(
    run: _Run,
    tables: Mapping[str, TableResult],
    begin: Callable[[TableVerification], Future[TableVerification]],
) -> Iterator[TableResult]:
    """Yield these tables' results; one with pending differences leaves its worker to others."""
    running = {
        begin(TableVerification(shared=run, table_key=key, result=result))
        for key, result in tables.items()
    }
    aside: list[TableVerification] = []
    while running or aside:
        ended, running = wait(
            running, timeout=_JUDGED_EVERY if aside else None, return_when=FIRST_COMPLETED
        )
        aside += [each.result() for each in ended]
        verdicts = [(work, work.judge()) for work in aside]
        for work in (work for work, verdict in verdicts if verdict == "final"):
            found = work.result
            if found.outcome is VerifyOutcome.DIFFERENT:
                found = replace(found, heal=heal_command(found, reaching(run.target.settings)))
                found = work.mended(found) if run.wishes.repair else found
                run.put(work.table_key, replace(found, repair=()))
            run.heard(found)
            yield found
        running |= {begin(work) for work, verdict in verdicts if verdict == "again"}
        aside = [work for work, verdict in verdicts if verdict == "later"]
        if aside and not running and run.stop.wait(_JUDGED_EVERY):
            raise Abandoned("the comparison was broken off")


class _GivesWay(Exception):
    """A statement waits for the snapshot, or the table has another structure now."""


@dataclass(frozen=True, slots=True)
class _Cut:
    """A table at one commit-ts."""

    look: TableLook
    structure: StructureFound
    sides: tuple[ComparedTable, ...] = ()
    """Source and target; none where one of them has no such table."""
    shapes: tuple[TableShape, ...] = ()
    """Their structures."""
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

    shared: _Run
    table_key: str
    result: TableResult
    """What is known so far; of an interrupted run if it is resumed."""
    source: ComparedSource = field(init=False)
    target: Reading = field(init=False)
    _aside: _SetAside | None = None
    _restarts: int = 0
    _found: Found = field(init=False)
    _keys: tuple[Key, ...] = ()
    """Those of the rows that differ, up to the last chunk that counts."""
    _deadline: float = 0.0
    _stored: float = 0.0
    _looked: float = 0.0

    def run(self, source: ComparedSource, target: Reading) -> None:
        """Compare the table on these connections and store it; `judge` tells if that is final."""
        self.source, self.target, began = source, target, time.monotonic()
        self._take_up()
        try:
            self._run()
        # What a server refuses about one table says nothing of the others.
        except (NotComparable, TableError) as why:
            self.result = replace(self.result, outcome=VerifyOutcome.NOT_COMPARED, reason=str(why))
        finally:
            self._end_snapshots()
            self.result = replace(
                self.result, seconds=round(self.result.seconds + time.monotonic() - began, 3)
            )
            self.shared.put(self.table_key, self.result)

    def _take_up(self) -> None:
        """Resume from what is noted: whole chunks count, and nothing found after the last one."""
        if self.result.after is None:
            self._begin_anew()
            return
        counts = {
            "differs": self.result.differing,
            "missing": self.result.missing,
            "extra": self.result.extra,
        }
        self._found = Found(
            Counter(counts), [*self.result.differences], [*self._keys], self._most_keys
        )

    @property
    def _most_keys(self) -> int:
        return self.shared.wishes.repair_limit if self.shared.wishes.repair else 0

    def _begin_anew(self) -> None:
        """Forget what was compared so far."""
        self._found, self._keys = Found(most_keys=self._most_keys), ()
        before = self.result
        self.result = TableResult(
            table=before.table,
            target=before.target,
            outcome=VerifyOutcome.UNFINISHED,
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
        if self.result.outcome is VerifyOutcome.DIFFERENT and self.source.shows_early:
            self._aside = _SetAside(
                cut.look, self.result, time.monotonic() + min(_PATIENCE, self.shared.wishes.wait)
            )
            # A difference that does not count yet is none for whoever resumes this.
            self.result = replace(self.result, outcome=VerifyOutcome.UNFINISHED)

    def _lost(self, fault: TransientError, lost: int) -> None:
        """Prepare another cut after one that was lost; raise what is wrong after too many."""
        if lost >= _TRIES:
            raise fault
        self.source.close()
        self.target.close()
        self._take_up()
        self._rest(min(5.0, 0.1 * 2**lost))

    def _follow(self, cut: _Cut) -> None:
        """Begin anew in this cut where a side has another structure than in the chunks so far."""
        # The same while nothing of either structure changes.
        text = repr(cut.shapes).encode("utf-8", "surrogatepass")
        shapes = hashlib.sha256(text).hexdigest() if cut.sides else ""
        if self.result.after is not None and self.result.shapes != shapes:
            if self._restarts >= _RESTARTS:
                raise NotComparable(
                    "its structure changed again and again meanwhile: verify it later"
                )
            self._restarts += 1
            self._begin_anew()
        self.result = replace(self.result, shapes=shapes)

    def judge(self) -> Verdict:
        """Judge whether `run` found the table's `result`, without a snapshot and without waiting.

        TiDB shows the effect of some statements before their version, and a table that has come to
        exactly the version of one has not run it. So a difference counts only once a statement that
        explains it would be known; if one is, another cut is worth taking.
        """
        if (aside := self._aside) is None or time.monotonic() < aside.next:
            return "final" if aside is None else "later"
        aside.next, is_over = time.monotonic() + _JUDGED_EVERY, time.monotonic() >= aside.until
        look, last = aside.look, aside.look.checkpoint + (SHOWN_EARLY << TSO_PHYSICAL_SHIFT)
        try:
            now = self.shared.state.verified.now(self.table_key)
            # From which version on a statement may explain what differs, also one that was run
            # between two cuts. One at exactly the first cut may have been run after it; a finished
            # one at the lower border does not count.
            spans, first = aside.result.spans, look.checkpoint
            first = first if not spans or spans[0].checkpoint == first else spans[0].checkpoint - 1
            version = self.shared.state.verified.next_statement(look.table, first, last)
        except TransientError:
            if is_over:
                raise
            return "later"
        moves = now is not None and moves_on(now)
        # Whether a statement which could explain differences would be known by now.
        came = 0 if now is None else physical_ms(now.checkpoint) - physical_ms(look.checkpoint)
        # One that was run between two cuts: whatever becomes of the table, one cut after it shows
        # what is equal.
        has_run = 0 < version < look.checkpoint
        if version and now is not None and (moves or has_run) and self._restarts < _RESTARTS:
            # Another cut before the statement has moved anything would find the same.
            if not (
                has_run
                or is_over
                or now.statements != look.statements
                or now.checkpoint > look.checkpoint
            ):
                return "later"
            self._restarts += 1
            self._aside = None
            return "again"
        if not (version or now is None or not moves or is_over or came >= _SETTLING):
            return "later"
        note = (
            f"the statement of version {version} was run while the table was compared"
            if has_run
            else f"the statement of version {version} follows at the source, which may show its effect before"
        )
        notes = (*aside.result.notes, *([note] if version else ()))
        self.result = replace(aside.result, notes=notes, seconds=self.result.seconds)
        return "final"

    def mended(self, found: TableResult) -> TableResult:
        """Return a differing table's result after its rows were mended, or why they were not."""
        run = self.shared
        limit, rows = run.wishes.repair_limit, found.different_rows
        why = (
            "its structure differs" if found.structure else "" if rows else "no single row is known"
        )
        if rows > limit:
            why = f"{rows:,} of its rows differ, more than {limit:,} (--repair-limit)"
        elif run.wishes.repair == "apply" and not run.wishes.tables and self._lacks_skipped():
            why = "--skip-commit-ts left rows of it out, which would come back: name it by --table if they shall"
        if why:
            return replace(found, notes=(*found.notes, f"not mended: {why}"))
        mending = TableMending(
            target=run.target,
            source=run.source,
            state=run.state,
            table_key=self.table_key,
            carried=run.carried,
            wait=run.wishes.wait,
            stop=run.stop,
            is_frozen=run.wishes.frozen,
        )
        try:
            with closing(mending):
                done = mending.mend(self._keys, only_show=run.wishes.repair == "print")
        except (NotComparable, TableError, TransientError) as fault:
            return replace(found, notes=(*found.notes, f"not all of it was mended: {fault}"))
        if done.statements:
            return replace(found, repair=done.statements)
        note = f"{counted(rows, 'row')} mended as of {done.as_of}"
        if not done.is_equal:
            way = (
                STILL_DIFFERS
                if done.is_equal is False
                else "they are equal once its checkpoint has passed that: run `storage-consumer verify` then"
            )
            return replace(found, notes=(*found.notes, f"{note}; {way}"))
        return replace(
            found,
            outcome=VerifyOutcome.EQUAL,
            differing=0,
            missing=0,
            extra=0,
            differences=(),
            notes=(*found.notes, note),
            heal="",
        )

    def _lacks_skipped(self) -> bool:
        """Return whether rows of the table were left out, or may have been."""
        skipped = self.shared.state.progress.skipped()
        return any(each.table == self.result.table and each.rows != 0 for each in skipped)

    # the cut

    def _cut(self) -> _Cut:
        """Take a cut, waiting for a moment at which the table is at rest."""
        self._deadline = self._deadline or time.monotonic() + self.shared.wishes.wait
        while True:
            look, passes = self._look()
            if not passes:
                cut = self._opened(look)
                if cut is not None:
                    # From here on the time counts anew: this cut was had.
                    self._deadline = 0.0
                    return cut
            self.target.end()
            if time.monotonic() >= self._deadline:
                why = passes or "statements run on it one after the other"
                raise NotComparable(
                    f"it was not at rest for {self.shared.wishes.wait:g} s (--wait): {why}"
                )
            self._rest(_PAUSE)

    def _look(self) -> tuple[TableLook, str]:
        """Take a snapshot; return the table's state in it, and its obstacle for now, or empty."""
        look = look_at(self.target, self.shared.target.settings.state_schema, self.table_key)
        self.result = replace(
            self.result, table=look.table, target=look.target, checkpoint=look.checkpoint
        )
        found = obstacle(look)
        if found is not None and not found.passes:
            raise NotComparable(found.why)
        return look, "" if found is None else found.why

    def _opened(self, look: TableLook) -> _Cut | None:
        """Return both sides at a snapshot's checkpoint; None if a statement began meanwhile."""
        target = ComparedTable(self.target, look.target)
        there = target.structure()
        # Statements are not part of a snapshot. Looking at the table took its lock, so whatever
        # changes it from now on waits; what was begun between the snapshot and the lock shows in
        # the state by now.
        now = self.shared.state.verified.now(self.table_key)
        if now is None or now.statements != look.statements:
            return None
        opened = self.source.opened(look)
        if opened is None or there is None:
            found = StructureFound()
            if (opened is None) != (there is None):
                found.differences.append(
                    NOT_AT_SOURCE if opened is None else "the target lacks the table"
                )
            return _Cut(look, found)
        source, here = opened
        left_out = self.shared.carried.lacking(look.table, [column.name for column in here.columns])
        folded = {*map(folded_name, left_out)}
        # Statements reach the target whole, so it may have these columns, without the source's
        # values.
        lacking = folded - {folded_name(column.name) for column in there.columns}
        structure = compared(without(here, lacking), there)
        shapes = (without(here, folded), without(there, folded))
        return _Cut(look, structure, (source, target), shapes, tuple(left_out))

    def _rest(self, seconds: float) -> None:
        if self.shared.stop.wait(seconds):
            raise Abandoned("the comparison was broken off")

    def _end_snapshots(self) -> None:
        self.target.end()
        self.source.end()

    # the comparison

    def _compare(self, cut: _Cut) -> None:
        """Compare the common structures, and the rows after the last compared key."""
        look, notes = cut.look, list[str]()
        if cut.left_out:
            notes.append(
                f"left out by the changefeed's column-selectors: {', '.join(cut.left_out)}"
            )
        if look.state not in ("running", "waiting"):
            notes.append(f"it is {look.state}, and was compared at its own checkpoint")
        if look.quarantined:
            notes.append(
                f"{look.quarantined} of its rows are in the quarantine, and differ for that reason: see `storage-consumer quarantine`"
            )
        differences, alike = tuple(cut.structure.differences), tuple(sorted(cut.structure.used))
        self.result = replace(self.result, structure=differences, alike=alike, notes=tuple(notes))
        layout = self._layout(cut)
        if layout is None:
            is_all = all(shape.is_view for shape in cut.shapes)
            same = VerifyOutcome.EQUAL if is_all else VerifyOutcome.NOT_COMPARED
            self._finish(VerifyOutcome.DIFFERENT if self.result.structure else same)
            return
        source, target = cut.sides
        source.layout, target.layout = layout.sides
        # Its thread asks the target while this one asks the source.
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="verify") as pool:
            comparison = Comparison((source, target), layout, self._found, pool)
            if self.shared.wishes.how == "quick":
                here, there = comparison.counts()
                self.result = replace(
                    self.result, rows=here, missing=max(0, here - there), extra=max(0, there - here)
                )
            else:
                self._compare_rows(look, comparison)
        equal = not (
            self._found.counts.total() or self.result.structure or self.result.different_rows
        )
        self._finish(VerifyOutcome.EQUAL if equal else VerifyOutcome.DIFFERENT)

    def _layout(self, cut: _Cut) -> TableLayout | None:
        """Return what is compared; None if there are no rows to compare."""
        if not cut.sides:
            if not cut.structure.differences:
                # As one that the source has dropped before the copy with which the feed began.
                self.result = replace(self.result, notes=("neither side has the table",))
            return None
        views = [shape.is_view for shape in cut.shapes]
        if all(views):
            self.result = replace(
                self.result,
                notes=(*self.result.notes, "it is a view, which has no rows of its own"),
            )
            return None
        if any(views):
            only = f"it is a view only {'at the source' if views[0] else 'in the target'}"
            self.result = replace(self.result, structure=(*self.result.structure, only))
            return None
        layout = layout_of(*cut.shapes)
        return layout if layout.names else None

    def _compare_rows(self, look: TableLook, comparison: Comparison) -> None:
        after = None if self.result.after is None else tuple(map(bytes.fromhex, self.result.after))
        self._looked = time.monotonic()
        for rows, last in comparison.run(self.shared.wishes.chunk_rows, after):
            *before, span = self.result.spans or (Span(checkpoint=look.checkpoint),)
            if span.checkpoint != look.checkpoint:
                before, span = [*before, span], Span(checkpoint=look.checkpoint)
            counts, self._keys = self._found.counts, tuple(self._found.keys)
            self.result = replace(
                self.result,
                outcome=VerifyOutcome.UNFINISHED,
                spans=(*before, replace(span, chunks=span.chunks + 1, rows=span.rows + rows)),
                rows=self.result.rows + rows,
                differing=counts["differs"],
                missing=counts["missing"],
                extra=counts["extra"],
                differences=tuple(self._found.kept),
                after=None if last is None else tuple(value.hex() for value in last),
            )
            if last is not None and time.monotonic() - self._stored >= _STORED_EVERY:
                self._stored = time.monotonic()
                self.shared.state.verified.put(self.table_key, self.result)
            if last is None:
                return
            self._may_go_on(look)

    def _may_go_on(self, look: TableLook) -> None:
        """Raise where the comparison has to end, or to let a waiting statement pass."""
        self._rest(0)
        if time.monotonic() - self._looked < _LOOK:
            return
        self._looked = time.monotonic()
        now = self.shared.state.verified.now(self.table_key)
        if now is None or (now.statement and now.statements != look.statements):
            raise _GivesWay

    def _finish(self, outcome: VerifyOutcome) -> None:
        spans = self.result.spans if len(self.result.spans) > 1 else ()
        self.result = replace(self.result, outcome=outcome, after=None, spans=spans)
