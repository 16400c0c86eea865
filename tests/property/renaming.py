"""One random history of renames as it goes on: the source, what the bucket shows of it, and processes that follow it."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from storage_consumer.driver.service import ConsumerService
from storage_consumer.model import DdlId
from storage_consumer.plan.journal_entry import DONE, PLANNED, STARTED, JournalEntry
from storage_consumer.summary import RoundSummary
from tests.harness.small_bucket import ts
from tests.property.renaming_sink import Sink
from tests.property.renaming_source import Arch, Snapshot, Source, Statement
from tests.property.renaming_target import Differs, RenamingTarget
from tests.unit.driving import World

AMBIGUOUS = re.compile(r"renames \S+ without naming its database")
UNKNOWABLE = "EXCHANGE PARTITION with version"
MOST_HALTS = 20
_MOST_CALLS = 60


class Crash(BaseException):
    """The end of a process."""


@dataclass(slots=True)
class Counts:
    """What happened in histories."""

    histories: int = 0
    renames: int = 0
    statements: int = 0
    rows: int = 0
    rounds: int = 0
    crashes: int = 0
    restarts: int = 0
    """Of TiCDC."""
    ambiguous: int = 0
    """Renames that could mean several tables, so that the table halted and the operator ran them."""
    half: int = 0
    """Renames that say the new database and not the old one."""
    rivalled: int = 0
    """Of these those for which another table of the name had the same columns."""
    unknowable: int = 0
    """Interrupted exchanges that the operator had to decide on."""

    def add(self, other: Counts) -> None:
        """Sum up."""
        for name in Counts.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class History:
    """One history as it goes on: the source, its sink, what the bucket shows of it, and processes that follow."""

    arch: Arch
    counts: Counts = field(default_factory=lambda: Counts(histories=1))
    story: list[str] = field(default_factory=list)
    source: Source = field(init=False)
    sink: Sink = field(init=False)
    world: World = field(default_factory=World)
    ran: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Text and version of the statements that took effect, over all processes."""
    shown: int = 0
    told: int = 0
    """The checkpoint in ``metadata``, a tick."""
    service: ConsumerService | None = None
    _written: int = 0

    def __post_init__(self) -> None:
        """Source and sink of the architecture."""
        self.source = Source(self.arch)
        self.sink = Sink(self.source)
        self.world.target = lambda records: RenamingTarget(records, self.ran)

    # what a number says

    def act(self, number: int) -> None:
        """One more thing happens."""
        dice = random.Random(number)  # noqa: S311 - not for secrets
        acts: list[tuple[int, Callable[[random.Random], object]]] = [
            (30, self.source.rename),
            (12, self.source.rename_several),
            (10, self.source.create),
            (4, self.source.drop),
            (3, self.source.truncate),
            (3, self.source.add_column),
            (5, self.source.exchange),
            (1, self.source.recreate_database),
            (45, self.source.change_rows),
            (18, self.sink.follow),
            (3, self._restart_sink),
            (14, self.show),
            (10, self.round),
            (5, self.crash),
            (3, self.end_process),
        ]
        act = dice.choices([a for _, a in acts], [weight for weight, _ in acts])[0]
        before, log = len(self.story), len(self.source.log)
        act(dice)
        if len(self.source.log) > log:
            entries = self.source.log[log:]
            self.story[before:before] = [_told(entry) for entry in entries]
            self.counts.rows += sum(not isinstance(entry, Statement) for entry in entries)
            self.counts.rivalled += sum(
                isinstance(entry, Statement) and entry.half and entry.rivalled for entry in entries
            )
            self.counts.half += sum(isinstance(entry, Statement) and entry.half for entry in entries)
            self.counts.statements += sum(isinstance(entry, Statement) for entry in entries)

    def _restart_sink(self, dice: random.Random) -> None:
        self.counts.restarts += 1
        self.sink.restart(dice, self.told)
        self.story.append(f"TiCDC starts again from {self.sink.start}")

    def show(self, dice: random.Random) -> None:
        """Some more objects can be listed, and ``metadata`` may tell a later checkpoint."""
        self.shown = dice.randint(self.shown, len(self.sink.writes))
        marks = [tick for writes, tick, _ in self.sink.marks if writes <= self.shown]
        self.told = max([self.told, *marks[-dice.randint(1, 6) :][:1]])
        self._put()

    def _put(self) -> None:
        self.world.bucket.metadata(ts(self.told))
        for path, content in self.sink.writes[self._written : self.shown]:
            self.world.bucket.write(path, content)
            self.story.append(f"    {path}: {content if 'CDC' in path else _query(content)!r}")
        self._written = self.shown

    # processes

    def round(self, dice: random.Random) -> None:
        """One round, of the running process or of a new one."""
        del dice
        self._until_equal()

    def end_process(self, dice: random.Random) -> None:
        """The process ends as it should."""
        del dice
        if self.service is not None:
            self.service.close()
            self.service = None

    def crash(self, dice: random.Random) -> None:
        """A process is killed at one of its next calls."""
        left = dice.randint(1, _MOST_CALLS)

        def tick(_: str) -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                raise Crash

        self.world.tick = tick
        try:
            self._round()
        except Crash:
            self.counts.crashes += 1
            self.story.append("a process is killed")
            if self.service is not None and self.service._renewal is not None:
                self.service._renewal.stop()
            self.service = None
            self.world.clock.advance(1000)
        finally:
            self.world.tick = str

    def _round(self) -> RoundSummary:
        self.service = self.service or self.world.service()
        self.counts.rounds += 1
        summary = self.service._round(self.world.stop, once=False)
        if summary is None:
            raise Differs("a round ended before it began")
        return summary

    def _until_equal(self) -> None:
        """A round after which the target is as the source was at the checkpoint; the operator does what is asked for."""
        for _ in range(MOST_HALTS):
            summary = self._round()
            self.story.append(f"a round to {self.told}")
            if not summary.halted:
                break
            for table in summary.halted:
                self._settle(table.error)
            self.end_process(random.Random(0))  # noqa: S311 - not for secrets
        else:
            raise Differs(f"tables halt again and again: {[table.error for table in summary.halted]}")
        if self.told and summary.checkpoint != ts(self.told):
            waiting = [f"{table.table}: {table.error}" for table in summary.tables if table.error]
            raise Differs(f"stands at {summary.checkpoint}, not at {ts(self.told)} (tick {self.told}): {waiting}")
        self._compare(self.source.at(self.told))

    def _compare(self, expected: Snapshot) -> None:
        found = {
            (table.name.schema, table.name.table): tuple(
                sorted(
                    tuple("\\N" if value is None else value for value in row.values())
                    for row in self.world.records.rows.get(name, [])
                )
            )
            for name, table in self.world.records.structures.items()
        }
        if found != expected:
            lines = [
                f"{'.'.join(name)}: {found.get(name, 'not there')}, at the source {expected.get(name, 'not there')}"
                for name in sorted(found.keys() | expected.keys())
                if found.get(name) != expected.get(name)
            ]
            raise Differs(f"at tick {self.told}:\n" + "\n".join(lines))

    # the operator

    def _settle(self, error: str) -> None:
        """What the program asks for: a rename by hand, or the outcome of an exchange."""
        journal = self.world.records.journal
        if UNKNOWABLE in error:
            self.counts.unknowable += 1
            self.story.append("the operator decides on an exchange")
            for identity, entry in list(journal.items()):
                if entry.state == STARTED:
                    state = DONE if any(v == identity[1] for _, v in self.ran) else PLANNED
                    journal[identity] = replace(entry, state=state)
            return
        if not AMBIGUOUS.search(error):
            raise Differs(f"halted: {error}")
        self.counts.ambiguous += 1
        found = re.search(r"schema_(\d+)_(\d+)\.json", error)
        path = re.search(r"the DDL of (\S+)/meta/", error)
        assert found
        assert path
        statement = next(e for e in self.source.log if isinstance(e, Statement) and ts(e.tick) == int(found[1]))
        target = RenamingTarget(self.world.records, self.ran)
        if not statement.rivalled:
            raise Differs(f"halted though one table only can be meant: {error}")
        for old, new in statement.truth:
            target.execute_ddl(f"RENAME TABLE {'.'.join(old)} TO {'.'.join(new)}", "", ts(statement.tick))
        self.story.append(f"the operator runs {statement.text}")
        identity = DdlId(path[1], int(found[1]), int(found[2]))
        journal[identity] = JournalEntry(state=DONE, structure_before="", note="by hand")

    def finish(self) -> None:
        """Everything is written and shown; the target ends like the source, and one more start has nothing to do."""
        dice = random.Random(1)  # noqa: S311 - not for secrets
        self.sink.finish(dice)
        self.shown, self.told = len(self.sink.writes), self.source.tick + 1
        self._put()
        self._until_equal()
        self.end_process(dice)
        again = self._round()
        if again.written or again.ddls:
            raise Differs(f"one more start wrote {again.written} rows and ran {again.ddls} DDL")
        self.end_process(dice)
        self.counts.renames += self.source.renames


def _told(entry: Any) -> str:
    if isinstance(entry, Statement):
        return f"{entry.tick}: {entry.text}"
    return f"{entry.tick}: {entry.operation} {'.'.join(entry.name)} {entry.values}"


def _query(content: str) -> str:
    return content.partition('"Query": ')[2].partition('",\n')[0]


def run(arch: Arch, numbers: Iterable[int], renames: int | None = None) -> History:
    """A history from its numbers, until there were so many `renames` if that is given. `Differs` where it fails."""
    history = History(arch)
    try:
        for number in numbers:
            history.act(number)
            if renames is not None and history.source.renames >= renames:
                break
        history.finish()
    except BaseException as fault:
        fault.add_note("\n".join(history.story))
        raise
    finally:
        if history.service is not None and history.service._renewal is not None:
            history.service._renewal.stop()
    return history
