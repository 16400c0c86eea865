"""The outside world of a history: a bucket that shows itself in parts, and a target that notes whose rows are where.

They add to the twins what one process alone never sees: listings that lag, tasks that are tried again or come late, statements
that go on after their sender has died, and connections that a later owner ends.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from storage_consumer.bucket.storage import Storage
from storage_consumer.config.settings import Upstream
from storage_consumer.decode import decoder_for
from storage_consumer.decode.wire_format import LACKING, NULL
from storage_consumer.errors import DdlFailed, TargetUnavailable, TransientError
from storage_consumer.model import StoredObject, TableName
from storage_consumer.plan.journal_entry import DdlAnswer
from storage_consumer.rows.fitting import TargetColumn, TargetTable, UniqueKey
from storage_consumer.rows.halves import PlaceOf, RowWriter, file_blocks, read_files, write_bucket
from storage_consumer.rows.row_keys import Run
from storage_consumer.rows.row_order import Changes
from storage_consumer.rows.spec import FileReport, JobFile, JobSpec, TablePlan, WriteReport, Written, by_path
from storage_consumer.summary import Progress
from tests.campaigns.simulation.exports import Exports
from tests.campaigns.simulation.places import Places
from tests.harness.twins.records import Row, TargetRecords
from tests.harness.twins.storage import MemoryPipeline, MemoryStorage
from tests.harness.twins.target import _NAME, MemoryTarget, _Refused
from tests.harness.twins.writer import FencedWriter as Writer

ATTEMPTS = 3
"""How often a task is tried."""


class Differs(AssertionError):
    """The target is not as the source says; the message holds what is different."""


class Ends(Exception):
    """A table halts for a good reason, and the history ends."""


class InDoubt(Ends):
    """A table halts because a copy may show a rename and nothing tells whether it does: an operator has to look, and the history ends."""


class Refused(Ends):
    """Another changefeed is refused, since nothing shows that no row between it and the former one is lost."""


class Unread(Ends):
    """A table halts because nothing says which columns some of its rows have: an operator has to say it, and the history ends."""


class Torn(Ends):
    """A table halts because the target cannot hold two rows of it: an operator has to let it, and the history ends."""


@dataclass(slots=True)
class InFlight:
    """A statement that the server goes on with though nobody waits for it."""

    run: Callable[[], object]
    text: str
    worker: int | None
    looks: int
    """It ends after so many looks at whether it does."""


@dataclass(slots=True)
class ByHand:
    """What somebody has changed of a table in the target."""

    seen: bool = False
    """Whether the program, or a comparison, has met it."""
    broken: bool = False
    """Whether the structure is not what it was."""
    columns: dict[str, tuple[int, TargetColumn]] = field(default_factory=dict)
    """Those that were dropped or narrowed, with their places."""
    table: TargetTable | None = None
    """What was dropped."""


@dataclass(slots=True)
class Records(TargetRecords):
    """What a target keeps, and what a history notes about it."""

    owners: dict[TableName, int] = field(default_factory=dict)
    """Folded name → number of the source's table that is there."""
    applied: dict[TableName, int] = field(default_factory=dict)
    """Folded name → version of the last statement that took effect on the table there, or TSO of the copy that it was made from."""
    begun: dict[TableName, str] = field(default_factory=dict)
    """Folded name → id of the load that has emptied or created the table, until all of the copy is there."""
    places: Places = field(default_factory=Places)
    """Where the target has what is noted here under the names of the bucket."""
    exports: Exports = field(default_factory=Exports)
    """Copies of the source; they are no part of the target, and outlive processes as it does."""
    ran: dict[tuple[str, int], int] = field(default_factory=dict)
    """Text and version of the statements that took effect → how often."""
    in_flight: InFlight | None = None
    by_hand: dict[TableName, ByHand] = field(default_factory=dict)
    """Folded name → what somebody has changed of the table there since it was as the source's."""
    denies: bool = False
    """Whether the program's user lacks a right that statements on tables need."""
    full: int = 0
    """How many more writes the target answers by saying that its disk is full."""
    lock_holders: dict[int, object] = field(default_factory=dict)
    """Number of a DDL worker → the connection that holds its lock."""

    def forget(self, name: TableName) -> None:
        """Nothing is under a folded name any more."""
        for noted in (self.owners, self.applied, self.begun, self.by_hand):
            noted.pop(name, None)

    def write(self) -> None:
        """Something is about to be written, if there is room."""
        if self.full:
            self.full -= 1
            raise TargetUnavailable("error 1114: the table is full")


class LaggingStorage(MemoryStorage):
    """A bucket whose listings may lack objects for a while."""

    def __init__(self) -> None:
        """Empty, all shown."""
        super().__init__()
        self.listed = set[str]()
        self.hidden = frozenset[str]()
        """Objects that the next listings lack; never one that was shown before."""
        self.expired = frozenset[str]()
        """Objects that listings lack though they were shown before."""

    def listing(self, closed: frozenset[str], after: Mapping[str, str]) -> Iterator[StoredObject]:
        """As the twin, less what is hidden."""
        for stored in super().listing(closed, after):
            if stored.path in self.expired:
                continue
            if stored.path not in self.hidden or stored.path in self.listed:
                self.listed.add(stored.path)
                yield stored


class Watch(Protocol):
    """What a target tells, and asks."""

    def begins(self, version: int, name: TableName) -> None:
        """A statement of the bucket on a table is about to run; raises `Differs` where it must not."""

    def copies(self, load_id: str, name: TableName, *, alone: bool) -> int:
        """A statement of a load on a table is about to run; the number of the source's table that it is; raises where it must not."""
        ...

    def refused(self, version: int, name: TableName) -> None:
        """A statement on a table is refused for a reason that lies in the target."""

    def touched_by(self, version: int) -> frozenset[int]:
        """Numbers of the source's tables that a statement touches."""
        ...


class OwnedTarget(MemoryTarget):
    """A twin for several processes, which knows which of the source's tables each of its own is."""

    def __init__(self, records: Records, worker: int | None, watch: Watch) -> None:
        """`worker`: of a connection for statements."""
        super().__init__(records)
        self._own = records
        self._worker = worker
        self._watch = watch
        self._version = 0
        self._holds = False
        self.load_id = ""
        """Of the load whose statements it runs, if any."""
        self.is_alone = False
        """Whether the server goes on without the process that sent the statement."""
        self._statements = (
            (rf"CREATE TABLE {_NAME.format('a')} \((?P<body>.*)\)", self._create_keyed),
            (rf"DROP TABLE {_NAME.format('a')}", self._dropped),
            (rf"RENAME TABLE {_NAME.format('a')} TO {_NAME.format('b')}", self._renamed),
            (rf"ALTER TABLE {_NAME.format('a')} DROP COLUMN `?(?P<column>\w+)`?", self._drop_column),
            *self._statements,
        )

    def describe(self, wanted: Iterable[TableName]) -> dict[TableName, TargetTable]:
        """As the twin, by the names of the target."""
        places = self._own.places
        found = super().describe(places.name(name) for name in wanted)
        return {places.target(name): places.table(table) for name, table in found.items()}

    def existing(self, wanted: Iterable[TableName]) -> dict[TableName, TableName]:
        """As the twin, by the names of the target."""
        places = self._own.places
        found = super().existing(places.name(name) for name in wanted)
        return {places.target(name): places.target(there) for name, there in found.items()}

    def database_collation(self, schema: str) -> str | None:
        """As the twin, by the name of the target."""
        return super().database_collation(self._own.places.schema(schema))

    def fingerprint(self, names: Iterable[TableName]) -> str:
        """As the twin, by the names of the target."""
        return super().fingerprint(map(self._own.places.name, names))

    def is_running(self, statement: str) -> bool:
        """Whether the server goes on with it; that ends some time."""
        flight = self._own.in_flight
        return flight is not None and flight.text == statement and self._goes_on(flight)

    def _goes_on(self, flight: InFlight) -> bool:
        """Whether a statement is still being executed; each look brings its end nearer."""
        flight.looks -= 1
        if flight.looks > 0:
            return True
        self._own.in_flight = None
        flight.run()
        return False

    def fence_ddl(self) -> bool:
        """End the connection of a former owner of this worker, unless it is executing."""
        flight = self._own.in_flight
        if flight is not None and flight.worker == self._worker and self._goes_on(flight):
            return False
        if self._worker is not None:
            self._own.lock_holders[self._worker] = self
            self._holds = True
        return True

    def send(self, statement: str, schema: str, version: int, looks: int) -> None:
        """Have the server begin with a statement whose answer nobody will hear."""
        self._check_connection()

        other = OwnedTarget(self._own, None, self._watch)
        other.load_id, other.is_alone = self.load_id, True

        def run() -> None:
            with suppress(DdlFailed):
                other.execute_ddl(statement, schema, version)

        self._own.in_flight = InFlight(run, statement, self._worker, looks)

    def _check_connection(self) -> None:
        """A worker's lock goes with its connection; the one that lost it is ended, and each ends with its statement."""
        if self._holds:
            self._holds = False
            if self._own.lock_holders.get(self._worker or 0) is not self:
                raise TargetUnavailable("the connection was ended by another owner")
            del self._own.lock_holders[self._worker or 0]

    def execute_ddl(
        self, statement: str, schema: str, version: int, ignorable: frozenset[int] = frozenset()
    ) -> DdlAnswer:
        """Run one statement; `Differs` if it ran before and changes anything again."""
        self._check_connection()
        self._version, records = version, self._own
        records.write()
        statement, schema = records.places.statement(statement), records.places.schema(schema)
        ran = (f"{self.load_id}{statement}", version)
        again = records.ran.get(ran, 0)
        before = deepcopy((records.structures, records.rows)) if again else None
        name = _subject(statement, schema)
        if name is not None and records.denies:
            self._watch.refused(version, name)
            raise DdlFailed("error 1142: command denied to user")
        if name is not None and self.load_id:
            self._watch.copies(self.load_id, name, alone=self.is_alone)
        elif name is not None:
            self._watch.begins(version, name)
        answer = super().execute_ddl(statement, schema, version, ignorable)
        if answer.ignored:
            return answer
        if again and name not in records.by_hand and before != (records.structures, records.rows):
            raise Differs(f"took effect twice: {statement}")
        # A view that shows other columns than the source's is taken away again, and tried again later.
        made = [each for each in records.ran if each[1] == version and each[0].startswith("CREATE")]
        if made and statement.startswith("DROP VIEW"):
            del records.ran[made[0]]
            return answer
        records.ran[ran] = again + 1
        if name is not None:
            self._took_effect(name)
        return answer

    def _took_effect(self, name: TableName) -> None:
        """Note what a table is after a statement on it."""
        records = self._own
        if self.load_id:
            records.begun[name] = self.load_id
        if name in records.owners:
            records.applied[name] = self._version
            # What was another table until now is one of the copy.
            if self.load_id:
                records.owners[name] = self._watch.copies(self.load_id, name, alone=self.is_alone)

    def _create_keyed(self, name: TableName, found: re.Match[str]) -> None:
        """As the twin, with UNIQUE."""
        self._create(name, found)
        self._own.by_hand.pop(name.folded(), None)
        table, keys = self._own.structures[name.folded()], list[UniqueKey]()
        columns = list(table.columns)
        for place, words in enumerate(part.split() for part in found["body"].split(",")):
            if "UNIQUE" in words:
                keys.append(UniqueKey(name=columns[place].name, columns=(columns[place].name,), prefixes=(None,)))
                columns[place] = replace(columns[place], nullable="NOT" not in words)
        self._own.structures[name.folded()] = replace(
            table, columns=tuple(columns), unique_keys=(*table.unique_keys, *keys)
        )
        if self.load_id:
            self._own.owners[name.folded()] = self._watch.copies(self.load_id, name.folded(), alone=self.is_alone)
        else:
            (self._own.owners[name.folded()],) = self._watch.touched_by(self._version)

    def _dropped(self, name: TableName, found: re.Match[str]) -> None:
        self._drop(name, found)
        self._own.forget(name.folded())

    def _renamed(self, name: TableName, found: re.Match[str]) -> None:
        """As a server: the new name must be free, and its database must be there."""
        records = self._own
        new = TableName(schema=found["b_schema"] or name.schema, table=found["b"])
        if name.folded() not in records.structures:
            raise _Refused(1146, f"no table {name}")
        if new.folded() in records.structures:
            raise _Refused(1050, f"{new} exists")
        table, rows = records.structures.pop(name.folded()), records.rows.pop(name.folded(), [])
        records.structures[new.folded()] = replace(table, name=new)
        records.rows[new.folded()] = rows
        records.owners[new.folded()] = records.owners[name.folded()]
        records.by_hand.pop(new.folded(), None)
        if noted := records.by_hand.get(name.folded()):
            records.by_hand[new.folded()] = noted
        records.forget(name.folded())
        records.applied[new.folded()] = self._version

    def _drop_column(self, name: TableName, found: re.Match[str]) -> None:
        table: TargetTable = self._there(name)
        columns = tuple(column for column in table.columns if column.name != found["column"])
        if len(columns) == len(table.columns):
            raise _Refused(1091, f"no column {found['column']}")
        self._own.structures[name.folded()] = replace(table, columns=columns)
        for row in self._own.rows.get(name.folded(), []):
            del row[found["column"]]


class FencedWriter(Writer):
    """The twin of the writer, of tables by the names of the target."""

    def __init__(self, records: Records, spec: JobSpec) -> None:
        """Of a job."""
        super().__init__(records, spec)
        self._own = records
        self._places = records.places

    def write_runs(self, work: TablePlan, ordered: Sequence[Run], place_of: PlaceOf | None = None) -> Written:
        """As the twin."""
        self._own.write()
        return super().write_runs(replace(work, name=self._places.name(work.name)), ordered, place_of)

    def write_events(self, work: TablePlan, parts: Iterable[Changes]) -> int:
        """As the twin."""
        self._own.write()
        return super().write_events(replace(work, name=self._places.name(work.name)), parts)

    def _row(self, work: TablePlan, names: Sequence[str], line: bytes) -> Row:
        """As the twin, with the default, which is NULL, of the columns that the row lacks."""
        fields = (NULL if field == LACKING else field for field in line.split(b"\t"))
        return super()._row(work, names, b"\t".join(fields))


def _subject(statement: str, schema: str) -> TableName | None:
    """Folded name of the table that a statement changes."""
    if found := re.match(rf"\w+ TABLE {_NAME.format('a')}", statement):
        return TableName(schema=found["a_schema"] or schema, table=found["a"]).folded()
    return None


class RetryingPipeline(MemoryPipeline):
    """A job whose tasks come in any order, and are tried again."""

    def __init__(
        self,
        storage: Storage,
        upstream: Upstream,
        writer: Callable[[JobSpec], RowWriter],
        dice: random.Random,
        others: Callable[[Upstream], Storage] | None = None,
    ) -> None:
        """As the twin."""
        super().__init__(storage, upstream, writer, others)
        self._dice = dice

    def run(self, spec: JobSpec, files: Sequence[JobFile], progress: Progress) -> list[FileReport | WriteReport]:
        """Read all files, then write bucket after bucket; `Differs` where a file or row is not accounted for."""
        tables = {table.index: table for table in spec.tables}
        drawn = [work for work in files for _ in range(self._draws(tables[work.table], work.size))]
        in_turn = self._dice.random() < 0.5
        order = drawn if in_turn else self._dice.sample(drawn, len(drawn))
        works = list({(work.table, work.rank): work for work in order}.values())
        tasks = [[work] for work in works] if in_turn else [works]
        items = [item for task in tasks for item in self._read(spec, tables, task)]
        items.sort(key=lambda item: item[0])
        reports: list[FileReport | WriteReport] = []
        for bucket in self._dice.sample(range(spec.partitions), spec.partitions):
            mine = [item for item in items if item[0][0] == bucket]
            reports += self._task(lambda mine=mine: list(write_bucket(mine, tables, self._writer(spec))))  # type: ignore[misc] # bound now
        progress.advanced(files=len(files), rows=sum(r.applied for r in reports if isinstance(r, FileReport)))
        _account(files, reports)
        return reports

    def _draws(self, table: TablePlan, size: int) -> int:
        """Return how many parts such a file had when files were read in parts; the dice are used as then, so that a seed stays the history it was."""
        options = getattr(self._decoder, "options", None)
        if table.origin or table.quarantine is not None or (options and options.output_old_value):
            return 1
        borders = self._dice.sample(range(1, size), min(size - 1, self._dice.randrange(4))) if size > 1 else []
        return len(borders) + 1

    def _read(self, spec: JobSpec, tables: dict[int, TablePlan], task: Sequence[JobFile]) -> Iterator[Any]:
        """Read some files, those of each origin by themselves."""
        for number, origin in enumerate(spec.origins):
            mine = [work for work in task if tables[work.table].origin == number]
            if not number:
                yield from read_files(mine, tables, spec.partitions, partial(file_blocks, self._storage), self._decoder)
            elif mine and self._others is not None:
                blocks = partial(file_blocks, self._others(origin))
                yield from read_files(mine, tables, spec.partitions, blocks, decoder_for(origin))

    def _task(self, work: Callable[[], list[FileReport | WriteReport]]) -> list[FileReport | WriteReport]:
        for left in reversed(range(ATTEMPTS)):
            try:
                return work()
            except TransientError:
                if not left:
                    raise
        return []


def _account(files: Sequence[JobFile], reports: Sequence[FileReport | WriteReport]) -> None:
    """Each file is reported on once, and each of its rows was applied or skipped for one reason (G4), or its table stops."""
    stopped = {report.table for report in reports if isinstance(report, FileReport) and report.error}
    expected = sorted(file.file.stored.path for file in files if file.table not in stopped)
    counted = [report for report in by_path(reports).values() if report.table not in stopped]
    if expected != sorted(report.path for report in counted):
        raise Differs(f"reports on {[report.path for report in counted]}, not on {expected}")
    for report in counted:
        if report.rows != report.applied + report.duplicates + report.later:
            raise Differs(f"not every row is accounted for: {report}")
