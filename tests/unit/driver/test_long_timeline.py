"""Tables with long histories over twins: a version that cannot be read, and processes that end anywhere in between."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import pytest

from storage_consumer.errors import DdlFailed
from storage_consumer.model import TableName
from storage_consumer.plan.journal_entry import DdlAnswer
from storage_consumer.summary import RoundSummary
from tests.harness.small_bucket import ID_NAME, column, row, ts
from tests.harness.twins.records import TargetRecords
from tests.harness.twins.target import MemoryTarget
from tests.unit.driving import Killed, KilledAt, World, numbers, of, running

pytestmark = pytest.mark.slow
ALTER, ADD_COLUMN = 61, 5
WIDER = (*ID_NAME, column("more", "INT"))


class Commenting(MemoryTarget):
    """A target that also takes comments on tables, which belong to their structures."""

    def __init__(self, records: TargetRecords, comments: dict[str, str]) -> None:
        """A handle on `records`. `comments`: table → its comment, which the target keeps too."""
        super().__init__(records)
        self._kept, self._comments = records, comments

    def execute_ddl(
        self, statement: str, schema: str, version: int, ignorable: frozenset[int] = frozenset()
    ) -> DdlAnswer:
        """Take a comment, as the server does."""
        if " COMMENT " not in statement:
            return super().execute_ddl(statement, schema, version, ignorable)
        table = statement.split("`")[1]
        if not any(name.table == table for name in self._kept.structures):
            raise DdlFailed(f"error 1146: {statement}")
        self._comments[table] = statement.partition(" COMMENT ")[2]
        self._kept.effects.append(statement)
        return DdlAnswer()

    def fingerprint(self, names: Iterable[TableName]) -> str:
        """With the comments."""
        wanted = sorted(set(names))
        return super().fingerprint(wanted) + repr([self._comments.get(name.table) for name in wanted])


class History:
    """Tables with many versions, each of which has one row; in the middle a column is added, which later rows have."""

    def __init__(self, count: int, *tables: str, written: int = 0) -> None:
        """So many versions of each table, at ticks 1, 3, 5 and so on; `written`: how many of them are there, 0 for all."""
        self.world, self.count = World(), count
        comments: dict[str, str] = {}
        self.world.target = lambda records: Commenting(records, comments)
        self.bucket = self.world.bucket
        self.tables = tables
        self.bucket.create(*tables)
        for table in tables:
            self.bucket.rows(table, 1, row(table, 2, "0", '"old"'))
        self.paths: dict[tuple[str, int], str] = {}
        """Table and number of a version → path of its schema file."""
        self._written = 1
        self.write(written or count)

    def write(self, upto: int) -> None:
        """Write versions up to a number (exclusive), and the checkpoint behind them."""
        for number, table in product(range(self._written, upto), self.tables):
            self.paths[table, number] = self._add(table, number)
        self._written = upto
        self.bucket.metadata(ts(2 * upto + 1))

    def _add(self, table: str, number: int) -> str:
        """Write a version with its row; the path of its schema file."""
        version, columns = ts(1 + 2 * number), ID_NAME if number < self.count // 2 else WIDER
        kind = ADD_COLUMN if number == self.count // 2 else ALTER
        values = (str(number), '"old"') if columns is ID_NAME else (str(number), '"new"', str(-number))
        path = self.bucket.schema(table, version, self.statement(table, number), kind, columns)
        self.bucket.rows(table, 1, row(table, 2 + 2 * number, *values), version=version)
        return path.relative_to(self.bucket.root).as_posix()

    def statement(self, table: str, number: int) -> str:
        """What leads to a version after the first."""
        change = "ADD COLUMN `more` INT" if number == self.count // 2 else f"COMMENT 'version {number}'"
        return f"ALTER TABLE `{table.partition('.')[2]}` {change}"

    def ran(self, table: str) -> list[str]:
        """The statements of a table that took effect, in order."""
        name = f"`{table.partition('.')[2]}`"
        return [statement for statement in self.world.records.effects if statement.split()[2] == name]

    def check(self, table: str) -> None:
        """A table is as the source has it, and each of its statements ran once, in order."""
        created, *altered = self.ran(table)
        assert created.startswith("CREATE TABLE")
        assert altered == [self.statement(table, number) for number in range(1, self.count)]
        middle = self.count // 2
        assert sorted(self.world.rows(table), key=lambda found: int(found["id"] or "")) == [
            {"id": str(n), "name": "old", "more": None}
            if n < middle
            else {"id": str(n), "name": "new", "more": str(-n)}
            for n in range(self.count)
        ]

    def check_end(self, summary: RoundSummary) -> None:
        """All tables are at the end."""
        assert summary.checkpoint == self.world.records.checkpoint == ts(2 * self.count + 1)
        for table in self.tables:
            self.check(table)


def test_each_version_once() -> None:
    """Many versions of one table are applied in order, old rows by the old columns; a restart finds nothing left to do."""
    history = History(200, "shop.a")
    history.check_end(history.world.once())
    before = len(history.world.records.effects)
    assert history.world.once().tables == ()
    assert len(history.world.records.effects) == before


def spoilt(history: History, number: int) -> tuple[str, bytes]:
    """Cut the schema file of one version of shop.a; its path and its content."""
    path = history.paths["shop.a", number]
    whole = history.bucket.storage.read(path)
    history.bucket.storage.put(path, whole[: len(whole) // 2])
    return path, whole


def test_a_spoilt_version_in_the_middle() -> None:
    """It halts its table with an error that names file, table and version; the others go on. Mended, all runs, once and in order."""
    history = History(200, "shop.a", "shop.b")
    path, whole = spoilt(history, 117)
    stopped = of(history.world.once(), "shop.a")
    assert path in stopped.error
    assert f"{ts(1 + 2 * 117)}" in stopped.error
    assert "--table shop.a" in stopped.error
    history.check("shop.b")
    assert history.ran("shop.a") == []
    history.bucket.storage.put(path, whole)
    history.check_end(history.world.once())


def test_a_version_that_arrives_spoilt() -> None:
    """A spoilt version that is new holds up its table alone, over rounds and a restart, until it is mended; nothing runs again."""
    history = History(60, "shop.a", "shop.b", written=30)
    cut: list[tuple[str, bytes]] = []

    def act(rounds: int) -> None:
        if rounds == 1:
            assert numbers(history.world, "shop.a") == numbers(history.world, "shop.b")
            history.write(60)
            cut.append(spoilt(history, 44))

    stopped = of(running(history.world, act, rounds=3), "shop.a")
    ((path, whole),) = cut
    for error in (stopped.error, of(history.world.once(), "shop.a").error):
        assert path in error
        assert len(history.ran("shop.a")) == 30
        history.check("shop.b")
    history.bucket.storage.put(path, whole)
    history.check_end(history.world.once())


VERSIONS = 40


def test_processes_that_end_again_and_again() -> None:
    """Processes that each end once they have stored a little, come to the same end."""
    history = History(VERSIONS, "shop.a")
    processes = 0
    while True:
        history.world.tick = KilledAt(2, "after MemoryProgress.save")
        processes += 1
        try:
            history.world.killed(lambda service: service.run_once(history.world.stop))
            break
        except Killed:
            history.world.clock.advance(1_000)
    history.world.tick = str
    assert processes > VERSIONS // 2
    history.check_end(history.world.once())
