"""One random history of renames as it goes on: the source, what the bucket shows of it, and processes that follow it."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from storage_consumer.driver.service import ConsumerService
from storage_consumer.model import DdlId, TableName
from storage_consumer.plan.journal_entry import DONE, PLANNED, STARTED, DdlAnswer, JournalEntry
from storage_consumer.summary import RoundSummary
from tests.harness.small_bucket import SchemaFile, row, schema_document, ts
from tests.harness.twins.records import TargetRecords
from tests.harness.twins.target import _NAME, MemoryTarget, _Refused
from tests.property.renaming_source import BORDER, Arch, Change, Name, Snapshot, Source, Statement
from tests.unit.driving import World


class Sink:
    """Writes the files of a source's log, and writes what is not confirmed once more after a restart."""

    def __init__(self, source: Source) -> None:
        """From the beginning of the log."""
        self._source = source
        self._new = source.arch == "new"
        self.writes: list[tuple[str, str]] = []
        """Path and content of every object, in order."""
        self.marks: list[tuple[int, int, bool]] = []
        """Number of writes, and the checkpoint (a tick) that may be told from then on; True where a statement may be missing."""
        self._at = 0
        self._waiting: list[Change] = []
        self.start = 0
        """Checkpoint (a tick) from which it was started last."""
        self._lowered: set[int] = set()
        self._hashes = defaultdict[str, dict[int, set[int]]](lambda: defaultdict(set))
        self._numbers = defaultdict[str, int](int)
        self._written = set[tuple[int, str]]()

    def follow(self, dice: random.Random) -> None:
        """Write the statements of the log that were not written yet, and some or all rows."""
        log = self._source.log
        while self._at < len(log):
            entry = log[self._at]
            self._at += 1
            if isinstance(entry, Change):
                self._waiting.append(entry)
                continue
            some = {change.table for change in self._waiting if dice.random() < 0.6}
            self._flush(some | entry.tables, dice)
            if not self._new:
                self._mark(entry.tick, early=True)
            self._lowered -= entry.tables
            self._lowered |= {entry.lowers} - {0}
            for file in entry.files:
                self._schema(file.name, entry.tick, file.columns, file.query, file.kind)
            self._mark(entry.tick)
        self._flush({change.table for change in self._waiting if dice.random() < 0.7}, dice)

    def restart(self, dice: random.Random, told: int) -> None:
        """End and begin again from a checkpoint that is not before the one that was `told`.

        The new architecture stores a checkpoint before it tells it (format sheet 2.3), so that it begins again at one that is not
        before any that was told: what a path of a cycle of renames holds for a moment is then beyond every checkpoint.
        """
        marks = [tick for _, tick, early in self.marks if tick >= told and not early]
        if not marks:
            return
        self.start = dice.choice(marks)
        if self._new:
            self.marks = [mark for mark in self.marks if mark[1] <= self.start]
        self._waiting, self._lowered = [], set()
        self._at = next((n for n, e in enumerate(self._source.log) if e.tick > self.start), len(self._source.log))

    def finish(self, dice: random.Random) -> None:
        """Write everything."""
        self.follow(dice)
        self._flush({change.table for change in self._waiting}, dice)
        self._mark(self._source.tick + 1)

    def _mark(self, tick: int, *, early: bool = False) -> None:
        if self._waiting:
            tick = min(tick, min(change.tick for change in self._waiting) - 1)
        self.marks.append((len(self.writes), tick, early))

    def _flush(self, tables: set[int], dice: random.Random) -> None:
        """Write the rows of these tables: per directory a file or two."""
        groups = defaultdict[tuple[str, Name], list[Change]](list)
        for change in (c for c in self._waiting if c.table in tables):
            name = (change.name[0].lower(), change.name[1]) if change.table in self._lowered else change.name
            if (version := self._directory(name, change)) is not None:
                part = "" if change.part is None else f"/{change.part}"
                groups[f"{name[0]}/{name[1]}/{ts(version)}{part}/2026-11-21", name].append(change)
        self._written |= {(c.tick, c.values[0]) for c in self._waiting if c.table in tables}
        self._waiting = [c for c in self._waiting if c.table not in tables]
        for folder, name in dice.sample(sorted(groups), len(groups)):
            changes = groups[folder, name]
            cut = dice.randint(0, len(changes))
            for some in filter(None, (changes[:cut], changes[cut:])):
                self._numbers[folder] += 1
                lines = (row(".".join(name), c.tick, *_wire(c.values), operation=c.operation) for c in some)
                self.writes.append(
                    (f"{folder}/CDC{self._numbers[folder]:020d}.csv", "".join(f"{x}\r\n" for x in lines))
                )
        if self._at == len(self._source.log) or groups:
            last = self._source.log[self._at - 1]
            self._mark(last.tick - isinstance(last, Statement))

    def _directory(self, name: Name, change: Change) -> int | None:
        """The version of the directory that a row goes to; None for a row that is left out as stale."""
        candidate = max(change.version, self.start)
        _, checksum = _document(name, candidate, change.columns, "", 0)
        known = self._hashes["/".join(name)]
        if checksum in known.get(candidate, ()):
            return candidate
        if same := [version for version, hashes in known.items() if checksum in hashes]:
            # What was not written before would be lost at the source: that is not what is tried here.
            return (
                None
                if self._new and max(same) > candidate and (change.tick, change.values[0]) in self._written
                else max(same)
            )
        self._schema(name, candidate, change.columns, "", 0)
        return candidate

    def _schema(self, name: Name, tick: int, columns: Sequence[Mapping[str, Any]], query: str, kind: int) -> None:
        text, checksum = _document(name, tick, columns, query, kind)
        folder = "/".join(filter(None, name))
        self._hashes[folder][tick].add(checksum)
        self.writes.append((f"{folder}/meta/schema_{ts(tick)}_{checksum:010d}.json", text))


def _document(name: Name, tick: int, columns: Sequence[Mapping[str, Any]], query: str, kind: int) -> tuple[str, int]:
    """The text of a schema file, and its checksum."""
    return schema_document(SchemaFile(name=name, query=query, kind=kind, columns=columns), ts(tick))


def _wire(values: Sequence[str]) -> Iterator[str]:
    """As CSV has them."""
    for place, value in enumerate(values):
        yield value if place == 0 or value == "\\N" else f'"{value}"'


class Differs(AssertionError):
    """The target is not as the model says; the message holds what is different."""


class RenamingTarget(MemoryTarget):
    """A twin that knows partitions by a border between ids, and notes whether a statement takes effect twice."""

    def __init__(self, records: TargetRecords, ran: Counter[tuple[str, int]]) -> None:
        """`ran`: text and version of the statements that took effect, over all processes."""
        super().__init__(records)
        self._ran = ran
        self._session = ""
        exchange = rf"{_NAME.format('a')} EXCHANGE PARTITION `?p(?P<part>\d)`? WITH TABLE {_NAME.format('b')}"
        self._statements = (
            (r"DROP DATABASE `?(?P<a>\w+)`?", self._drop_database),
            (rf"RENAME TABLE {_NAME.format('a')} TO {_NAME.format('b')}", self._renamed),
            (rf"ALTER TABLE {_NAME.format('a')} RENAME (?:AS |TO )?{_NAME.format('b')}", self._renamed),
            (rf"ALTER TABLE {exchange}", self._exchange),
            *self._statements,
        )

    def execute_ddl(
        self, statement: str, schema: str, version: int, ignorable: frozenset[int] = frozenset()
    ) -> DdlAnswer:
        """Run one statement; `Differs` if it ran before and changes anything again."""
        self._session = schema
        again = self._ran[statement, version] > 0
        before = deepcopy((self._records.structures, self._records.rows)) if again else None
        partless = re.sub(r" PARTITION BY .*", "", statement)
        partless = re.sub(r", PRIMARY KEY \(`id`\)", "", partless.replace("`id` INT NOT NULL", "`id` INT PRIMARY KEY"))
        answer = super().execute_ddl(partless, schema, version, ignorable)
        self._ran[statement, version] += not answer.ignored
        if again and not answer.ignored and before != (self._records.structures, self._records.rows):
            message = f"took effect twice: {statement}"
            raise Differs(message)
        return answer

    def _drop_database(self, name: TableName, _: re.Match[str]) -> None:
        self._records.databases.discard(name.table)
        for found in [n for n in self._records.structures if n.schema == name.folded().table]:
            del self._records.structures[found]
            self._records.rows.pop(found, None)

    def _renamed(self, name: TableName, found: re.Match[str]) -> None:
        new = TableName(schema=found["b_schema"] or self._session, table=found["b"])
        if name.folded() not in self._records.structures:
            raise _Refused(1146, f"no table {name}")
        if new.folded() in self._records.structures:
            raise _Refused(1050, f"{new} exists")
        if new.schema not in self._records.databases:
            raise _Refused(1049, f"no database {new.schema}")
        table, rows = self._records.structures.pop(name.folded()), self._records.rows.pop(name.folded(), [])
        self._records.structures[new.folded()] = replace(table, name=new)
        self._records.rows[new.folded()] = rows

    def _exchange(self, name: TableName, found: re.Match[str]) -> None:
        other = TableName(schema=found["b_schema"] or self._session, table=found["b"]).folded()
        rows, whole = self._records.rows, name.folded()
        inside = [row for row in rows.get(whole, []) if (int(str(row["id"])) >= BORDER) == (found["part"] == "1")]
        rows[whole], rows[other] = (
            [row for row in rows.get(whole, []) if row not in inside] + rows.get(other, []),
            inside,
        )


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
