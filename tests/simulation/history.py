"""One history as it goes on: the source, its sink, what the bucket shows of it, and processes that come, pause and go."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from unittest.mock import patch

from storage_consumer import service as service_module
from storage_consumer.errors import LeaseLost
from storage_consumer.summary import RoundSummary
from storage_consumer.testing import FakeClock
from tests.simulation.judge import Judge
from tests.simulation.process import Beat, Crash, Process, some_faults
from tests.simulation.sink import Habits, Mark, Sink, table_of
from tests.simulation.source import Source, Statement
from tests.simulation.twins import Differs, LaggingStorage, Records
from tests.small_bucket import ts

_NUMBERED = re.compile(r"CDC(?:_\d+_)?(\d+)\.(?:csv|json)")


@dataclass(slots=True)
class Counts:
    """What happened in histories."""

    histories: int = 0
    rows: int = 0
    statements: int = 0
    failovers: int = 0
    """Of TiCDC."""
    rounds: int = 0
    processes: int = 0
    crashes: int = 0
    takeovers: int = 0
    """By another process, while the writer was paused."""
    fenced: int = 0
    """Processes that found out that they are not the writer any more."""
    lost: int = 0
    """Answers."""
    away: int = 0
    """Calls that were not heard."""
    late: int = 0
    """Tasks that went on after their job."""
    refused: int = 0
    """Those of them that came too late."""
    alone: int = 0
    """Statements that the server went on with alone."""
    repeated: int = 0
    """Rows that were delivered again."""

    def add(self, other: Counts) -> None:
        """Sum up."""
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))


@dataclass(slots=True)
class History:
    """One history. Each number says by itself what happens next."""

    habits: Habits
    slow_lanes: bool
    counts: Counts = field(default_factory=lambda: Counts(histories=1))
    story: list[str] = field(default_factory=list)
    storage: LaggingStorage = field(default_factory=LaggingStorage)
    records: Records = field(default_factory=Records)
    clock: FakeClock = field(default_factory=FakeClock)
    source: Source = field(init=False)
    sink: Sink = field(init=False)
    judge: Judge = field(init=False)
    process: Process | None = None
    dice: random.Random = field(default_factory=random.Random)
    _shown: list[bool] = field(default_factory=list)
    _late: list[tuple[Callable[[], object], Process, tuple[int, int]]] = field(default_factory=list)
    _told: int = 0
    _hid: bool = False
    """A file that can be missed was hidden in this round."""
    _depth: int = 0

    def __post_init__(self) -> None:
        """Source and sink by their habits."""
        self.source = Source(new=self.habits.new, raw=self.habits.raw, tells_old=self.habits.protocol == "canal-json")
        self.sink = Sink(self.source, self.habits)
        self.judge = Judge(self.source, self.records)

    # what a number says

    def act(self, number: int) -> None:
        """One more thing happens."""
        self.dice = random.Random(number)  # noqa: S311 - not for secrets
        random.seed(number)  # pauses between tries have a random length
        act = self.dice.choices(_ACTS, _WEIGHTS)[0]
        log = len(self.source.log)
        getattr(self if hasattr(self, act) else self.source, act)(self.dice)
        self._tell_of(log)

    def _tell_of(self, log: int) -> None:
        """What has happened at the source."""
        for entry in self.source.log[log:]:
            if isinstance(entry, Statement):
                self.counts.statements += 1
                self.tell(f"{entry.tick}: {entry.text}")
            else:
                self.counts.rows += 1
                self.tell(f"{entry.tick}: {entry.operation} {'.'.join(entry.name)} {', '.join(entry.values)}")

    def tell(self, text: str) -> None:
        """One more line of the story."""
        self.story.append(text)

    # the bucket

    def follow(self, dice: random.Random) -> None:
        """TiCDC takes some more of the log, and writes."""
        self.sink.follow(dice)

    def fail_over(self, dice: random.Random) -> None:
        """TiCDC starts again from an earlier checkpoint."""
        self.counts.failovers += 1
        self.sink.restart(dice, self._told)
        self.tell(f"TiCDC starts again from {self.sink.start}")

    def show(self, dice: random.Random) -> None:
        """Some more objects can be listed, in the order of each table, and ``metadata`` may tell another checkpoint."""
        writes = self.sink.writes
        self._shown += [False] * (len(writes) - len(self._shown))
        told = self._next_mark(dice)
        all_of = told.writes if told else 0
        held = set[str]()
        new = []
        for place, (path, content) in enumerate(writes):
            if self._shown[place] or (place >= all_of and (table_of(path) in held or dice.random() < 0.3)):
                held |= set() if self._shown[place] else {table_of(path)}
                continue
            self._shown[place] = True
            self.storage.put(path, content.encode())
            self.tell(f"    {path}{'' if 'CDC' in path else ': ' + _query(content)}")
            new.append(path)
        if told is not None:
            self._tell_checkpoint(told.tick)
        self.storage.hidden = frozenset(_between(new)) if dice.random() < 0.1 else frozenset()
        self._hid |= bool(self.storage.hidden)
        for path in self.storage.hidden:
            self.tell(f"    {path} is not listed yet")

    def _next_mark(self, dice: random.Random) -> Mark | None:
        """A checkpoint to tell: of the next ones, or one from before."""
        if not self.sink.marks:
            return None
        if dice.random() < 0.05:
            return dice.choice(self.sink.marks)
        later = [mark for mark in self.sink.marks if mark.tick >= self._told]
        return dice.choice(later[-6:]) if later else None

    def _tell_checkpoint(self, tick: int) -> None:
        if tick != self._told:
            self.tell(f"metadata tells {tick}")
        self._told = tick
        self.judge.told = max(self.judge.told, tick)
        self.storage.put("metadata", f'{{"checkpoint-ts":{ts(tick)}}}'.encode())

    # processes

    def round(self, dice: random.Random) -> None:
        """One round of the running process, or of a new one."""
        self._late_tasks()
        if dice.random() < 0.7:
            self.show(dice)
        process = self._running(dice)
        process.faults = some_faults(dice, nested=False)
        self.run(process)

    def quiet_round(self, dice: random.Random) -> None:
        """One round in which nothing goes wrong."""
        process = self._running(dice)
        process.faults = []
        self.run(process)

    def _running(self, dice: random.Random) -> Process:
        if self.process is None:
            self.counts.processes += 1
            own = random.Random(dice.getrandbits(32))  # noqa: S311 - not for secrets
            self.process = Process(self, self.counts.processes, own, self.habits.protocol, self.slow_lanes)
        return self.process

    def end_process(self, dice: random.Random) -> None:
        """The process ends as it should."""
        del dice
        if (process := self.process) is not None:
            self.process = None
            process.end()

    def run(self, process: Process, *, once: bool = False) -> RoundSummary | None:
        """One round of a process, whatever comes of it; its summary if it came to its end as the writer."""
        self.counts.rounds += 1
        self._hid = bool(self.storage.hidden)
        try:
            summary = process.round(once=once)
        except Crash:
            self.counts.crashes += 1
            self.tell(f"process {process.number} is killed")
            self._gone(process)
            return None
        except LeaseLost as fault:
            if process.epoch == self.records.epoch:
                raise Differs(f"the writer thinks that it is none: {fault}") from fault
            self.counts.fenced += 1
            self.tell(f"process {process.number} ends: it is the writer no more")
            self._gone(process)
            process.end()
            return None
        if process.epoch != self.records.epoch:
            process.notices = True  # it did nothing after the other one took over, and will be told before it does
            return None
        if summary is None:
            raise Differs("a round ended before it began")
        self.tell(f"a round of process {process.number} to {self._told}")
        self.counts.repeated += summary.skipped.get("row: repeated delivery", 0)
        self.judge.round_over(summary, may_wait=self._hid or bool(process.lanes.running))
        return summary

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
            self.show(dice)
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
                log = len(self.source.log)
                getattr(self if hasattr(self, act) else self.source, act)(dice)
                self._tell_of(log)
            other = self._running(dice)
            other.faults = some_faults(dice, nested=True)
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
            process.faults = []
            self.tell(f"a late task of process {process.number} goes on")
            try:
                write()
            except LeaseLost:
                self.counts.refused += 1
            else:
                if window != self.records.window:
                    raise Differs(f"a task of {window} wrote when {self.records.window} was open")

    # the end

    def finish(self) -> None:
        """Everything is written and shown; the target ends like the source, and one more start has nothing to do."""
        dice = self.dice = random.Random(1)  # noqa: S311 - not for secrets
        self.sink.finish(dice)
        self.show(dice)
        for shown, (path, content) in zip(self._shown, self.sink.writes, strict=True):
            if not shown:
                self.storage.put(path, content.encode())
        self._tell_checkpoint(self.source.tick + 1)
        self.storage.hidden = frozenset()
        self._late_tasks()
        self._last_round(dice)
        # What came late into a directory that is listed no more is read by a later process, when the checkpoint has risen.
        self._tell_checkpoint(self.source.tick + 2)
        again = self._last_round(dice)
        if again.written or again.ddls:
            raise Differs(f"one more start wrote {again.written} rows and ran {again.ddls} DDL")
        if again.pending_files or again.checkpoint != ts(self.source.tick + 2):
            raise Differs(f"{again.pending_files} files are left at the end, at {again.checkpoint}")
        self._all_is_accounted_for()

    def _last_round(self, dice: random.Random) -> RoundSummary:
        for _ in range(3):
            process = self._running(dice)
            process.faults, process.notices = [], True
            summary = self.run(process, once=True)
            if summary is not None:
                self.end_process(dice)
                return summary
        raise Differs("three processes after one another are not the writer")

    def _all_is_accounted_for(self) -> None:
        """G4: every data file is finished by what is stored."""
        for path in self.storage._objects:
            folder, _, name = path.rpartition("/")
            if found := _NUMBERED.fullmatch(name):
                dispatcher = name.split("_")[1] if "_" in name else ""
                stored = self.records.streams.get(f"{folder}|{dispatcher}|{len(found[1])}")
                if stored is None or stored.upto < int(found[1]):
                    raise Differs(f"{path} was never finished")


_ACTS, _WEIGHTS = zip(
    ("create", 5), ("change_rows", 36), ("change_columns", 4), ("truncate", 4), ("drop", 2), ("rename", 4), ("next_day", 2),
    ("follow", 22), ("fail_over", 4), ("show", 6), ("round", 15), ("quiet_round", 1), ("end_process", 2), strict=True,
)  # fmt: skip


def _query(content: str) -> str:
    return content.partition('"Query": ')[2].partition('",\n')[0] if '"Query"' in content else content


def _between(paths: Iterable[str]) -> list[str]:
    """Data files after which another one of the same directory and dispatcher has come, so that their lack can be seen."""
    last: dict[str, str] = {}
    found = []
    for path in paths:
        stem = path.rpartition("_" if "CDC_" in path else "C")[0]
        if _NUMBERED.fullmatch(path.rpartition("/")[2]):
            found += [last[stem]] if stem in last else []
            last[stem] = path
    return found[:1]


def run(habits: Habits, slow_lanes: bool, numbers: Iterable[int]) -> History:  # noqa: FBT001 - as drawn
    """A history from its numbers. `Differs` where it fails; the story is in the fault's notes."""
    history = History(habits, slow_lanes)
    with patch.object(service_module, "Renewal", Beat), patch.object(service_module, "identity", str):
        try:
            for number in numbers:
                history.act(number)
            history.finish()
        except BaseException as fault:
            history.story.append(f"statements that took effect: {history.records.effects}")
            fault.add_note("\n".join(history.story))
            raise
    return history
