"""One history as it goes on: the source, its sink, what the bucket shows of it, and processes that come, pause and go."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from unittest.mock import patch

from storage_consumer.config.settings import Limits
from storage_consumer.decode import canal_files as canal_json
from storage_consumer.decode import csv_files as scan
from storage_consumer.driver import service as service_module
from storage_consumer.errors import (
    ConfigError,
    ExportUnfinished,
    LeaseLost,
    NotTheWriter,
    RowRefused,
    StorageConsumerError,
    TargetUnavailable,
)
from storage_consumer.plan.table_decisions import TableDecision, Verb, shown_state
from storage_consumer.plan.table_state import TableState
from storage_consumer.summary import RoundSummary
from tests.campaigns.simulation.bucket import Bucket
from tests.campaigns.simulation.counts import Counts
from tests.campaigns.simulation.faults import PAUSES, Crash, Fault, some_faults
from tests.campaigns.simulation.hands import Hands
from tests.campaigns.simulation.judge import Judge
from tests.campaigns.simulation.loaded import tick_of
from tests.campaigns.simulation.loads import Loads
from tests.campaigns.simulation.places import Places
from tests.campaigns.simulation.process import Beat, Process
from tests.campaigns.simulation.shapes import LAX_SHAPES, WIDE_SHAPE
from tests.campaigns.simulation.sink import Habits, Sink
from tests.campaigns.simulation.source import DATABASES, Source, Statement
from tests.campaigns.simulation.twins import Differs, LaggingStorage, Records, Refused
from tests.harness.small_bucket import ts
from tests.harness.twins.operator import unobeyed
from tests.harness.twins.storage import FakeClock

_LIMITED = 0.2
"""Share of processes that end somewhere before everything is done."""
_DECIDES = 0.2
"""Share of acts after which an operator decides."""
_LOADS = 0.25
"""Share of acts after which an operator has something to do with copies."""
_EXCHANGES = 0.1
_EXPIRES = 0.5
"""Share of acts after which another changefeed is given the prefix, if none was before."""
_SELECTS = 0.1
"""Share of acts after which column selectors change."""
_VIEWS = 0.25
"""Share of acts after which a view comes or goes."""
_HANDS = 0.5
"""Share of acts after which somebody does something to the target, or has the program do it."""
_SKIPS = 0.1
"""Share of acts after which an operator leaves a table out, if none was before."""


@dataclass(frozen=True, slots=True)
class Operator:
    """What an operator does."""

    pauses: bool = False
    """Pauses tables now and then, and lets them go on."""
    skips: bool = False
    """Leaves out one table for good."""
    begins: bool = False
    """Begins the feed with a copy."""
    late: bool = False
    """Creates the changefeed right before that, so that older tables come without the statements that created them."""
    loads: bool = False
    """Has tables loaded from copies."""

    routes: Mapping[str, str] = field(default_factory=dict)
    """Databases that the program sends elsewhere."""

    exchanges: bool = False
    """Gives the emptied prefix to another changefeed."""

    expires: bool = False
    """Takes files out of the bucket for a while, read or not."""

    hands: bool = False
    """Changes the target by hand, and uses all commands of the program."""

    is_lax: bool = False
    """Has a target that finds keys equal which the source may tell apart."""

    @property
    def copies(self) -> bool:
        """Whether tables are loaded at all."""
        return self.begins or self.loads or self.hands


@dataclass(slots=True)
class History:
    """One history. Each number says by itself what happens next."""

    habits: Habits
    slow_workers: bool
    operator: Operator
    counts: Counts = field(default_factory=lambda: Counts(histories=1))
    story: list[str] = field(default_factory=list)
    records: Records = field(default_factory=Records)
    clock: FakeClock = field(default_factory=FakeClock)
    source: Source = field(init=False)
    bucket: Bucket = field(init=False)
    judge: Judge = field(init=False)
    loads: Loads = field(init=False)
    hands: Hands = field(init=False)
    process: Process | None = None
    dice: random.Random = field(default_factory=random.Random)
    decided: int = 0
    """Decisions of the operator."""
    _late: list[tuple[Callable[[], object], Process, tuple[int, int]]] = field(default_factory=list)
    _depth: int = 0
    _ends: bool = False
    """Processes that begin now have no limit."""

    def __post_init__(self) -> None:
        """Source and sink by their habits."""
        self.source = Source(new=self.habits.new, raw=self.habits.raw, tells_old=self.habits.protocol == "canal-json")
        if self.operator.is_lax:
            self.source.shapes = LAX_SHAPES
        if self.habits.selectors.obeyed:
            self.source.shapes = (*self.source.shapes, *[WIDE_SHAPE] * 4)
            self.source.unselected = self.habits.selectors.obeyed[0]
        self.records.places = Places(self.operator.routes)
        self.counts.routed = int(bool(self.operator.routes))
        self.judge = Judge(self.source, self.records)
        self.judge.reads = partial(self.habits.selectors.reads, protocol=self.habits.protocol)
        self.bucket = Bucket(Sink(self.source, self.habits, self._applied), self.judge, self.tell)
        self.bucket.is_early = self.operator.late
        self.loads = Loads(self)
        self.hands = Hands(self)
        self.judge.look_at_hands, self.judge.may_stop = self.hands.look, self.operator.hands

    def _applied(self) -> tuple[int, int]:
        """Up to which tick the target has all rows of all tables, by what is stored; and the highest checkpoint told."""
        behind = [table.checkpoint for table in self.records.tables.values() if not table.follows]
        return tick_of(min([self.records.checkpoint, *behind])), self.judge.told

    @property
    def storage(self) -> LaggingStorage:
        """What the bucket shows."""
        return self.bucket.storage

    # what a number says

    def act(self, number: int) -> None:
        """One more thing happens."""
        self.dice = random.Random(number)  # noqa: S311 - not for secrets
        random.seed(number)  # pauses between tries have a random length
        self._do(self.dice.choices(_ACTS, _WEIGHTS)[0], self.dice)

        # By dice of its own, so that histories without an operator stay what they are.
        if self.operator.pauses and (operator := random.Random(number + 1)).random() < _DECIDES:  # noqa: S311 - not for secrets
            self._decide(operator)
        if self.operator.skips and (operator := random.Random(number + 2)).random() < _SKIPS:  # noqa: S311 - not for secrets
            self._skip(operator)
        if self.operator.loads and (operator := random.Random(number + 3)).random() < _LOADS:  # noqa: S311 - not for secrets
            self.loads.act(operator)
        if self.habits.selectors.obeyed and (operator := random.Random(number + 4)).random() < _SELECTS:  # noqa: S311 - not for secrets
            self._select(operator)

        if self.operator.exchanges and (operator := random.Random(number + 5)).random() < _EXCHANGES:  # noqa: S311 - not for secrets
            self._exchange(operator)
        if self.operator.expires and (operator := random.Random(number + 6)).random() < _EXPIRES:  # noqa: S311 - not for secrets
            self.counts.expired += self.bucket.expire(operator)
        if self.habits.views and (others := random.Random(number + 7)).random() < _VIEWS:  # noqa: S311 - not for secrets
            self.counts.views += 1
            self._do("view", others)
        if self.operator.hands and (operator := random.Random(number + 8)).random() < _HANDS:  # noqa: S311 - not for secrets
            self.hands.act(operator)

    def _exchange(self, dice: random.Random) -> None:
        """Another changefeed is given the emptied prefix, which begins where the former one was, before it or after it."""
        applied, told = self._applied()[0], self.bucket.told
        if self.judge.begun_anew or applied <= len(DATABASES):
            return
        last = self.source.log[-1].tick - 1
        tick = dice.choice((told, told, told - dice.randint(0, 3), dice.randint(told, max(told, last))))
        # What came at this very tick is not written, and the statement there may not have run.
        while tick in self.source.statements:
            tick -= 1
        begins_late = tick > applied
        if tick < 1 or (begins_late and tick > last):
            return
        self.counts.feeds += 1
        self.judge.exchanged(applied)
        self.bucket.exchange(tick, dice, begins_late=begins_late)

    def _select(self, dice: random.Random) -> None:
        """The selectors of the changefeed change, or TiCDC begins to obey them."""
        self.source.unselected = dice.choice(self.habits.selectors.obeyed)
        self.tell(f"rows lack {sorted(self.source.unselected)} from now on")

    def _decide(self, dice: random.Random) -> None:
        """An operator pauses a table that the target knows, or lets a paused one go on."""
        if self.paused and dice.random() < 0.5:
            self._resume(dice.choice(sorted(self.paused)))
        elif known := self._known:
            self.counts.paused += 1
            self._put_decision(dice.choice(known), "pause")

    def _skip(self, dice: random.Random) -> None:
        """An operator leaves out one table of the target for good."""
        if not self.judge.left_out.names and (known := self._known):
            self.counts.skipped += 1
            key = dice.choice(known)
            table = self.records.tables[key]
            reached = self.records.checkpoint if table.follows else min(table.checkpoint, self.records.checkpoint)
            self._put_decision(key, "skip")
            # A statement at this very ts may still wait.
            self.judge.left_out.add((table.schema, table.table), tick_of(reached) - 1)

    @property
    def _known(self) -> list[str]:
        """Keys of the tables that an operator can decide about."""
        skipped = {key for key, decision in self.records.table_decisions.items() if decision.verb == "skip"}
        tables = self.records.tables.items()
        return sorted(key for key, table in tables if table.state != TableState.DROPPED and key not in skipped)

    @property
    def paused(self) -> frozenset[str]:
        """Keys of the tables that an operator paused: a refused decision, as that to skip a database, lets the pause stand."""
        made, tables = self.records.table_decisions.items(), self.records.tables.items()
        standing = {key for key, table in tables if shown_state(table.state, table.error) == TableState.PAUSED}
        return frozenset(standing | {key for key, decision in made if decision.verb == "pause"})

    @property
    def _has_decisions(self) -> bool:
        """Whether a table is paused, or a decision waits for a statement to end."""
        return bool(self.paused or unobeyed(self.records))

    def _resume(self, key: str) -> None:
        self._put_decision(key, "resume")

    def _put_decision(self, key: str, verb: Verb) -> None:
        self.decided += 1
        # No two are the same, or the later one would count as obeyed.
        made = TableDecision(table_key=key, verb=verb, decided_at=f"{self.decided}", decided_by="an operator")
        self.records.table_decisions[key] = made
        self.tell(f"an operator says {verb} to {key}")

    def _do(self, act: str, dice: random.Random) -> None:
        """Have one of the acts be done by whoever can."""
        log = len(self.source.log)
        self.counts.failovers += act == "fail_over"
        self.counts.damaged += act == "damage_metadata"
        self.counts.collisions += act == "collide" and self.source.colliding is None
        actor = next(one for one in (self, self.bucket, self.source) if hasattr(one, act))
        getattr(actor, act)(dice)
        self._tell_of(log)

    def _tell_of(self, log: int) -> None:
        """What has happened at the source."""
        self.judge.left_out.spread()
        for entry in self.source.log[log:]:
            if isinstance(entry, Statement):
                self.counts.statements += 1
                self.tell(f"{entry.tick}: {entry.text}")
            else:
                self.counts.rows += 1
                self.counts.lacking += bool(entry.lacks)
                self.tell(f"{entry.tick}: {entry.operation} {'.'.join(entry.name)} {', '.join(entry.values)}")

    def tell(self, text: str) -> None:
        """One more line of the story."""
        self.story.append(text)

    # processes

    def round(self, dice: random.Random) -> None:
        """One round of the running process, or of a new one."""
        self._late_tasks()
        if dice.random() < 0.7:
            self.bucket.show(dice)
        process = self._running(dice)
        process.faults = some_faults(dice, nested=False, loads=self.operator.copies)
        once = self.bucket.is_whole and dice.random() < 0.3
        if self.operator.hands and dice.random() < 0.3:
            process.faults.append(Fault("hand", dice.choice(PAUSES), dice.randint(1, 6)))
        self.run(process, once=once)

    def quiet_round(self, dice: random.Random) -> None:
        """One round in which nothing goes wrong."""
        process = self._running(dice)
        process.spare()
        self.run(process)

    def _running(self, dice: random.Random) -> Process:
        if self.process is None:
            self.counts.processes += 1
            self.bucket.is_back = False
            seed = dice.getrandbits(32)
            own = random.Random(seed)  # noqa: S311 - not for secrets
            limits = Limits() if self._ends else self._limits(random.Random(seed + 1))  # noqa: S311 - not for secrets
            dump, loads = self.loads.dump(own), self.operator.copies
            self.process = Process(
                self, self.counts.processes, own, self.habits.protocol, self.slow_workers, limits, dump, loads
            )
        return self.process

    def _limits(self, dice: random.Random) -> Limits:
        """Where a process ends before everything is done: mostly nowhere."""
        if dice.random() > _LIMITED:
            return Limits()
        self.counts.limited += 1
        until = ts(max(1, self.bucket.told + dice.randint(-3, 6))) if dice.random() < 0.7 else 0
        return Limits(until=until, max_files=dice.randint(0, 2))

    def end_process(self, dice: random.Random) -> None:
        """The process ends as it should."""
        if self.process is not None:
            self._end()
            self._down(dice)

    def _end(self) -> None:
        if (process := self.process) is not None:
            self.process = None
            process.end()

    def _down(self, dice: random.Random) -> None:
        """While no process runs, TiCDC may start again and write files anew."""
        if self.habits.lagging:
            for act in ("change_rows", "fail_over", "follow", "change_rows", "follow", "show"):
                self._do(act, dice)

    def run(self, process: Process, *, once: bool = False) -> RoundSummary | None:
        """One round of a process, whatever comes of it; its summary if it came to its end as the writer."""
        self.counts.rounds += 1
        hid_from_the_paused_one = self.bucket.hid and bool(self._depth)
        self.bucket.hid = hid_from_the_paused_one or bool(self.storage.hidden or self.storage.expired)
        # A decision is obeyed at the start of a round, or of the first one after a statement on its table.
        had_decisions, written = self._has_decisions or self.loads.is_any_open, len(self.bucket.sink.writes)
        shown = self.storage.listed - self.storage.expired
        summary, went_on = self._round_of(process, once=once)
        if not went_on:
            return None
        if process.epoch != self.records.epoch:
            process.notices = True  # it did nothing after the other one took over, and will be told before it does
            return None
        if summary is None:
            if self.loads.waits:
                return None
            raise Differs("a round ended before it began")
        self.bucket.known |= shown
        self.tell(f"a round of process {process.number} to {self.bucket.told}")
        self.counts.repeated += summary.skipped.get("row: repeated delivery", 0)
        may_wait = self.bucket.hid or self.bucket.is_back or bool(process.ddl_workers.running)
        # It may have become another one while the process was paused, and whole again since.
        takes_last = once and self.bucket.is_whole and written == len(self.bucket.sink.writes)
        stays = had_decisions or self._has_decisions or self.loads.is_any_open
        # What was loaded may be further than the bucket.
        stays |= summary.storage_checkpoint < max(self.records.floor, self.judge.loaded.highest)
        part_of_version = once and not takes_last
        self.judge.round_over(
            summary,
            may_wait=may_wait,
            takes_last=takes_last,
            until=process.limits.until,
            stays=stays,
            part_of_version=part_of_version,
        )
        if part_of_version and summary.halted and self.process is process:
            # What halted is tried again by the next one.
            self._end()
        return summary

    def _round_of(self, process: Process, *, once: bool) -> tuple[RoundSummary | None, bool]:
        """The summary of one round of a process, and whether it came to its end."""
        try:
            return process.round(once=once), True
        except Crash:
            self.counts.crashes += 1
            self.tell(f"process {process.number} is killed")
            self._gone(process)
            self._down(process.dice)
            return None, False
        except NotTheWriter as fault:
            if process.epoch == self.records.epoch:
                raise Differs(f"the writer thinks that it is none: {fault}") from fault
            self.counts.fenced += 1
            self.tell(f"process {process.number} ends: it is the writer no more")
            self._gone(process)
            process.end()
            return None, False
        except StorageConsumerError as fault:
            is_owner, is_refused = process.epoch == self.records.epoch, self.judge.may_refuse(str(fault))
            if is_owner and is_refused:
                raise Refused from fault
            # One that is the owner no more may find what the other one has loaded.
            not_its_own = isinstance(fault, ConfigError) and not is_owner
            if not (is_refused or not_its_own or isinstance(fault, ExportUnfinished)):
                raise
            self._gone(process)
            process.end()
            return None, False

    def _gone(self, process: Process) -> None:
        if self.process is process:
            self.process = None

    # what happens while a process is at a call

    def befalls(self, kind: str, text: str) -> None:
        """A fault is due."""
        self.tell(text)
        self.counts.lost += kind == "lost"
        self.counts.away += kind == "away"
        self.counts.alone += kind == "send"

    def meanwhile(self, kind: str, process: Process) -> None:
        """Objects come, or another process takes over while this one is paused."""
        dice = process.dice
        if kind == "show":
            self.bucket.show(dice)
        elif kind == "hand":
            self.hands.act(dice)
        elif kind == "pause" and not self._depth:
            self._depth = 1
            process.notices = dice.random() < 0.5
            try:
                self._another(process, dice)
            finally:
                self._depth = 0

    def _another(self, paused: Process, dice: random.Random) -> None:
        """Another process works while this one is paused; it may stay."""
        self.counts.takeovers += 1
        self._gone(paused)
        for _ in range(dice.randint(1, 3)):
            for act in dice.choices(
                ("change_rows", "change_rows", "truncate", "follow", "show", "fail_over"), k=dice.randint(0, 4)
            ):
                self._do(act, dice)
            other = self._running(dice)
            other.faults = some_faults(dice, nested=True, loads=self.operator.copies)
            self.run(other)
        if dice.random() < 0.3:
            self.end_process(dice)
        self.tell(f"process {paused.number} wakes up")

    def put_off(self, late: Callable[[], object], process: Process, window: tuple[int, int]) -> None:
        """A task of a window goes on though its job has ended."""
        self.counts.late += 1
        self._late.append((late, process, window))

    def _late_tasks(self) -> None:
        """Tasks of former jobs go on; what they are late for is refused."""
        late, self._late = self._late, []
        for write, process, window in late:
            process.spare()
            self.tell(f"a late task of process {process.number} goes on")
            try:
                write()
            # A late one reads, too, before it learns that its window is closed.
            except (LeaseLost, RowRefused, TargetUnavailable):
                self.counts.refused += 1
            else:
                if window != self.records.window:
                    raise Differs(f"a task of {window} wrote when {self.records.window} was open")

    # the end

    def finish(self) -> None:
        """Everything is written and shown; the target ends like the source, and one more start has nothing to do."""
        dice = self.dice = random.Random(1)  # noqa: S311 - not for secrets
        self._ends = True
        for key in sorted(self.paused):
            self._resume(key)
        self.bucket.sink.finish(dice)
        self.bucket.show_all()
        # A new process lists everything, and has no statement that a decision could wait for.
        if self.process is not None and (self.process.limits != Limits() or self._has_decisions or self.bucket.is_back):
            self.process.spare()
            self._end()
        self.bucket.tell_checkpoint(self.source.tick + 1)
        self._late_tasks()
        self._last_round(dice)
        if self.operator.hands:
            self.hands.finish()
        # What came late into a directory that is listed no more is read by a later process, when the checkpoint has risen.
        self.bucket.tell_checkpoint(self.source.tick + 2)
        again = self._last_round(dice)
        if self.judge.left_out.names:
            self.judge.says_why(again)
            return
        if again.written or again.ddls:
            raise Differs(f"one more start wrote {again.written} rows and ran {again.ddls} DDL")
        left = self.bucket.all_is_finished(self.records)
        if again.pending_files != left or (not again.halted and again.checkpoint != ts(self.source.tick + 2)):
            raise Differs(f"{again.pending_files} files are left at the end, not {left}, at {again.checkpoint}")
        self.counts.rewritten = self.bucket.sink.rewritten

    def _last_round(self, dice: random.Random) -> RoundSummary:
        for _ in range(3):
            process = self._running(dice)
            process.spare()
            process.notices = True
            summary = self.run(process, once=True)
            if summary is not None:
                self._end()
                return summary
        raise Differs("three processes after one another are not the writer")


_ACTS, _WEIGHTS = zip(
    ("create", 5), ("change_rows", 36), ("change_columns", 4), ("truncate", 4), ("drop", 2), ("rename", 4), ("next_day", 2), ("respell", 6),
    ("collide", 1), ("follow", 22), ("fail_over", 4), ("show", 6), ("round", 15), ("quiet_round", 1), ("end_process", 2),
    ("damage_metadata", 1), strict=True,
)  # fmt: skip


def run(habits: Habits, slow_workers: bool, operator: Operator, numbers: Iterable[int]) -> History:  # noqa: FBT001 - as drawn
    """A history from its numbers. `Differs` where it fails; the story is in the fault's notes."""
    history = History(habits, slow_workers, operator)
    with (
        patch.object(service_module, "Renewal", Beat),
        patch.object(service_module, "identity", str),
        patch.object(scan, "AT_ONCE_BYTES", 1 if slow_workers else 1 << 20),  # rows are read at once, or never
        patch.object(canal_json, "AT_ONCE_BYTES", 1 if slow_workers else 1 << 20),
    ):
        try:
            for number in numbers:
                history.act(number)
            history.finish()
            history.loads.count()
        except BaseException as fault:
            history.story.append(f"statements that took effect: {history.records.effects}")
            fault.add_note("\n".join(history.story))
            raise
    return history
