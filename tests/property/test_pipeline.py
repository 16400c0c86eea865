"""Whatever TiCDC's habits do to a table's files, reading them window by window gives the table as it was at each window's end."""

from __future__ import annotations

import random
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_consumer import pipeline
from storage_consumer.config.settings import Protocol
from storage_consumer.consumers.table import TableConsumer
from storage_consumer.decoding.canal_json import CanalJsonDecoder
from storage_consumer.decoding.csv import CsvDecoder
from storage_consumer.model import DataFile, StoredObject, TableDefinition, TableName, TableVersion
from storage_consumer.pipeline import FileReport, Place, WriteReport, read_files, write_bucket
from storage_consumer.planning.steps import RowStep
from storage_consumer.round import _file_works
from storage_consumer.testing import MemoryWriter
from storage_consumer.work import TableWork, TargetColumn, TargetTable, UniqueKey, table_work
from tests.unit.decoding.encoders import OPTIONS, Row, canal_line, canal_message, column, csv_row

NAME = TableName(schema="shop", table="orders")
TABLE_DIR = "shop/orders"
SMALL = settings(max_examples=40, deadline=None)
START = 100
"""Version of the first directory; every change is later."""
Image = tuple[str | None, ...]
State = Counter[Image]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A kind of table. Its first column says the partition, so that an update can move a row."""

    name: str
    keys: tuple[tuple[int, ...], ...]
    """Columns of each unique key, the primary key first; none for a keyless table."""
    domains: tuple[tuple[str | None, ...], ...]
    """Values of each column after the first."""
    loose: bool = False
    """Key texts are equal by a case-insensitive collation."""

    @property
    def width(self) -> int:
        """How many columns there are."""
        return len(self.domains) + 1


WORDS = ("a", "A", "ä", "b1", "B1", "\uff42\uff11", "ß", "ss", "SS", "7", "\u0667", "")
"""Among them full-width b1 and an Arabic-Indic 7."""
SHAPES = (
    Shape(name="keyed", keys=((1,),), domains=(("1", "2", "3", "4", "5"), ("x", "y", "", None))),
    Shape(name="two keys", keys=((1,), (2,)), domains=(("1", "2", "3", "4"), ("1", "2", "3", None), ("x", "y"))),
    Shape(name="loose", keys=((1,),), domains=(WORDS, ("x", "y")), loose=True),
    Shape(name="loose, two columns", keys=((1, 2),), domains=(WORDS, ("1", "2"), ("x", "y")), loose=True),
    Shape(name="keyless", keys=(), domains=(("x", "y", "\\", None), ("1", "\t"))),
)


def same(text: str) -> str:
    """What a case- and accent-insensitive collation makes of a text."""
    folded = unicodedata.normalize("NFKD", text.casefold()).casefold()
    bare = "".join(sign for sign in folded if not unicodedata.combining(sign)).rstrip(" ")
    return "".join(str(unicodedata.digit(sign, sign)) for sign in bare)


# the source: transactions, and the table after each


@dataclass(slots=True)
class Source:
    """A table's history: per commit ts its changes as TiCDC orders them, and the rows afterwards."""

    shape: Shape
    transactions: list[tuple[int, list[Row]]] = field(default_factory=list)
    states: dict[int, State] = field(default_factory=dict)

    def at(self, ts: int) -> State:
        """The rows after everything with commit ts <= `ts`."""
        return next((self.states[t] for t in sorted(self.states, reverse=True) if t <= ts), Counter())


def keys_of(shape: Shape, row: Image) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Which places in unique indexes a row takes."""
    for number, columns in enumerate(shape.keys):
        texts = [row[place] for place in columns]
        if None not in texts:
            yield number, tuple(same(str(text)) if shape.loose else str(text) for text in texts)


def identity(shape: Shape, row: Image) -> tuple[str | None, ...]:
    """The texts of all unique keys: an update that changes one is split."""
    return tuple(row[place] for columns in shape.keys for place in columns)


@st.composite
def sources(draw: st.DrawFn, shape: Shape, whole: str) -> Source:
    """A history of up to ten transactions with up to six edits each; `whole`: which updates of keys are not split."""
    source, rows, ts = Source(shape), list[tuple[int, Image]](), START
    images = st.tuples(st.sampled_from(("0", "1")), *(st.sampled_from(domain) for domain in shape.domains))
    edits = st.lists(st.tuples(st.integers(0, 9), st.sampled_from("IIUUD"), images), min_size=1, max_size=6)
    made = 0
    for gap, transaction in draw(st.lists(st.tuples(st.integers(1, 3), edits), max_size=10)):
        ts += gap
        before = dict(rows)
        for pick, operation, image in transaction:
            made += 1
            rows = _edited(shape, rows, (pick, operation, image), made)
        if changes := _changes(shape, before, dict(rows), ts, whole):
            source.transactions.append((ts, changes))
        source.states[ts] = Counter(image for _, image in rows)
    return source


def _edited(
    shape: Shape, rows: list[tuple[int, Image]], edit: tuple[int, str, Image], made: int
) -> list[tuple[int, Image]]:
    """The rows (with their inner numbers) after one statement; what breaks a unique key goes, as by a delete before it."""
    pick, operation, image = edit
    chosen = rows[pick % len(rows)][0] if rows and operation != "I" else None
    if operation == "D":
        return [row for row in rows if row[0] != chosen]
    taken = set(keys_of(shape, image))
    kept = [row for row in rows if row[0] == chosen or not taken & set(keys_of(shape, row[1]))]
    if chosen is None:
        return [*kept, (made, image)]
    return [(number, image if number == chosen else old) for number, old in kept]


def _changes(shape: Shape, before: dict[int, Image], after: dict[int, Image], ts: int, whole: str) -> list[Row]:
    """One change per row, in TiCDC's order: deletes, updates, inserts."""
    deletes = [Row(operation="D", values=old, ts=ts) for number, old in before.items() if number not in after]
    inserts = [Row(operation="I", values=new, ts=ts) for number, new in after.items() if number not in before]
    updates = []
    for number in before.keys() & after.keys():
        old, new = before[number], after[number]
        if old == new:
            continue
        if old[0] == new[0] and _is_whole(shape, old, new, whole):
            updates.append(Row(operation="U", values=new, old=old, ts=ts))
        else:
            deletes.append(Row(operation="D", values=old, ts=ts))
            inserts.append(Row(operation="I", values=new, ts=ts))
    return [*deletes, *updates, *inserts]


def _is_whole(shape: Shape, old: Image, new: Image, whole: str) -> bool:
    """Whether an update is one row: that of a key is split, but for the spelling of one (`spelling`), or not at all (`all`)."""
    same_key = list(keys_of(shape, old)) == list(keys_of(shape, new)) and whole == "spelling"
    return whole == "all" or bool(shape.keys and (same_key or identity(shape, old) == identity(shape, new)))


# the files: passes over the history, each from a checkpoint on


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One file, as it was written."""

    file: DataFile
    content: bytes
    highest: int
    """Commit ts up to which everything is stored with this file, inclusive."""


@dataclass(slots=True)
class Sink:
    """Writes files by TiCDC's habits."""

    source: Source
    protocol: Protocol
    rng: random.Random
    border: int
    """Version of a second directory; changes after it go there."""
    is_ddl: bool
    dispatchers: bool
    files: list[Written] = field(default_factory=list)
    numbers: Counter[str] = field(default_factory=Counter)
    complete: int = START
    passes: int = 0

    def write(self) -> list[Written]:
        """Passes with restarts in between until the whole history is stored."""
        history, position, restarts = self.source.transactions, 0, self.rng.randrange(4)
        self.passes = 1
        while position < len(history) or restarts:
            if restarts and self.rng.random() < 0.5:
                restarts -= 1
                self.passes += 1
                position = self.rng.randint(max(0, position - 4), position)
            batch = history[position : position + self.rng.randint(1, 4)]
            position += len(batch)
            self._flush([row for _, rows in batch for row in rows])
            if batch and batch[-1][0] > self.complete:
                self.complete = batch[-1][0]
                self.files[-1] = replace(self.files[-1], highest=self.complete)
        return self.files

    def _flush(self, rows: list[Row]) -> None:
        """One flush: per directory and dispatcher a file, or two where a file grew too large."""
        placed = [(self._place(row), row) for row in rows]
        for place in sorted({place for place, _ in placed}):
            mine = [row for at, row in placed if at == place]
            cut = self._cut(mine)
            for part in filter(None, (mine[:cut], mine[cut:])):
                self._store(place, part)

    def _place(self, row: Row) -> tuple[int, int, str]:
        """(version, partition, dispatcher) of a change; a restarted TiCDC puts all into the newest directory."""
        late = row.ts > self.border or (self.complete > self.border and self.passes > 1)
        half = str(sum(map(ord, "".join(map(str, row.values)))) % 2 + 2 * self.passes) if self.dispatchers else ""
        return (self.border if late else START, int(str(row.values[0])), half)

    def _cut(self, rows: list[Row]) -> int:
        """Where a file ends early. A keyless transaction is cut only where the parts tell that they are parts."""
        cut = self.rng.randint(0, len(rows))
        if self.source.shape.keys or not 0 < cut < len(rows) or rows[cut - 1].ts != rows[cut].ts:
            return cut
        ts = rows[cut].ts
        head, tail = (Counter(events(part, ts)) for part in (rows[:cut], rows[cut:]))
        return cut if not head <= tail and not tail <= head and not self.dispatchers else 0

    def _store(self, place: tuple[int, int, str], rows: Sequence[Row]) -> None:
        version, partition, dispatcher = place
        folder = f"{TABLE_DIR}/{version}/{partition}"
        stream = f"{folder}|{dispatcher}"
        self.numbers[stream] += 1
        number = self.numbers[stream]
        stem = f"CDC_{dispatcher}_{number:020d}" if dispatcher else f"CDC{number:020d}"
        content = "".join(self._line(row) for row in rows).encode()
        stored = StoredObject(path=f"{folder}/{stem}.{self.protocol}", size=len(content), tag="1")
        file = DataFile(
            stored=stored,
            table_dir=TABLE_DIR,
            version=TableVersion(version),
            partition=partition,
            date="",
            dispatcher=dispatcher,
            number=number,
            width=20,
        )
        self.files.append(Written(file=file, content=content, highest=self.complete))

    def _line(self, row: Row) -> str:
        kinds = ["VARCHAR"] * self.source.shape.width
        return csv_row(kinds, row) if self.protocol == "csv" else canal_line(canal_message(kinds, row))


def events(rows: Sequence[Row], ts: int) -> Iterator[tuple[str, Image]]:
    """Deletes and inserts with one commit ts; an update is one of each."""
    for row in (row for row in rows if row.ts == ts):
        if row.old is not None:
            yield "D", tuple(map(str, row.old))
        yield "D" if row.operation == "D" else "I", tuple(map(str, row.values))


# the consumer: one table, window by window


def definition(shape: Shape, version: int, query: str) -> TableDefinition:
    """The schema file of a directory."""
    primary = shape.keys[0] if shape.keys else ()
    columns = tuple(
        replace(column(f"c{place}"), is_pk=place in primary, nullable=place not in primary)
        for place in range(shape.width)
    )
    return TableDefinition(
        name=NAME,
        version=TableVersion(version),
        query=query,
        ddl_type=3 if query else 0,
        columns=columns,
        path=f"{TABLE_DIR}/meta/schema_{version}_1.json",
        checksum=1,
    )


def target(shape: Shape) -> TargetTable:
    """The table as information_schema would show it."""
    columns = tuple(
        TargetColumn(name=f"c{place}", data_type="varchar", nullable=True, binary_collation=not shape.loose)
        for place in range(shape.width)
    )
    keys = tuple(
        UniqueKey(
            name=f"u{number}" if number else "PRIMARY",
            columns=tuple(f"c{place}" for place in places),
            prefixes=(None,) * len(places),
        )
        for number, places in enumerate(shape.keys)
    )
    return TargetTable(name=NAME, columns=columns, unique_keys=keys)


@dataclass(slots=True)
class Cluster:
    """Runs a row step as Spark would: any groups, any order of groups and buckets, a shuffle between the halves."""

    shape: Shape
    protocol: Protocol
    rng: random.Random
    writer: MemoryWriter
    contents: dict[str, bytes] = field(default_factory=dict)

    def run(self, step: RowStep) -> list[FileReport]:
        """Apply the step; the reports of its files."""
        work = table_work(self.rng.randrange(3), step, target(self.shape), self.protocol)
        tables, partitions = {work.index: work}, self.rng.randint(1, 4)
        shuffled = self._shuffle(self._read(step, tables, partitions), partitions)
        reports = [report for items in shuffled for report in write_bucket(iter(items), tables, self.writer)]
        assert [report.error for report in reports if report.error] == []
        assert all(report.table == work.index for report in reports if isinstance(report, WriteReport))
        return [report for report in reports if isinstance(report, FileReport)]

    def _read(self, step: RowStep, tables: dict[int, TableWork], partitions: int) -> list[tuple[Place, Any]]:
        """The first half, in groups of files."""
        files = list(_file_works(step, next(iter(tables))))
        self.rng.shuffle(files)
        tasks = self.rng.randint(1, 3)
        decoder = CsvDecoder(OPTIONS) if self.protocol == "csv" else CanalJsonDecoder()
        items: list[tuple[Place, Any]] = []
        for task in range(tasks):
            group = files[task::tasks]
            items += read_files(group, tables, partitions, lambda path: iter([self.contents[path]]), decoder)
        self.rng.shuffle(items)
        return items

    def _shuffle(self, items: list[tuple[Place, Any]], partitions: int) -> list[list[tuple[Place, Any]]]:
        """Items sorted by place per bucket, the buckets in any order."""
        buckets = [sorted((i for i in items if i[0][0] == b), key=lambda item: item[0]) for b in range(partitions)]
        self.rng.shuffle(buckets)
        return buckets


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
@SMALL
@given(
    data=st.data(),
    protocol=st.sampled_from(["csv", "canal-json"]),
    border=st.integers(0, 30),
    seed=st.integers(0, 2**32),
)
def test_equal_at_every_window(shape: Shape, data: st.DataObject, protocol: Protocol, border: int, seed: int) -> None:
    """The table equals the source at the end of each window, in any order of tasks, however often rows are delivered."""
    rng = random.Random(seed)  # noqa: S311 - what TiCDC, Spark and time might do, not a secret
    # A CSV row does not say which key it had before, so updates that give a row another key have to be split there.
    source = data.draw(sources(shape, rng.choice(("none", "spelling", "all")[: 2 if protocol == "csv" else 3])))
    is_ddl, dispatchers = rng.random() < 0.5, rng.random() < 0.3
    if is_ddl:
        border = max(1, border)
    sink = Sink(source, protocol, rng, START + border, is_ddl, dispatchers and bool(shape.keys))
    written = sink.write()
    table = TableConsumer(TABLE_DIR, START, {})
    table.define(definition(shape, START, "CREATE TABLE `orders` (`c0` INT)"))
    table.define(definition(shape, START + border, "ALTER TABLE `orders` COMMENT 'x'" if is_ddl else ""))
    keys = [tuple(f"c{place}" for place in places) for places in shape.keys]
    cluster = Cluster(shape, protocol, rng, MemoryWriter({NAME: keys}, same=same if shape.loose else str))
    visible = 0
    for end in window_ends(source, sink, rng):
        need = next((n for n, w in enumerate(written, 1) if w.highest >= min(end, sink.complete)), 0)
        shown = max(visible, need, rng.randint(0, len(written)))
        for item in written[visible:shown]:
            cluster.contents[item.file.stored.path] = item.content
            table.offer(item.file, again=True)
        visible = shown
        with patch.multiple(pipeline, FLUSH_ROWS=rng.choice((2, 100)), BLOCK_ROWS=rng.choice((1, 2, 50))):
            catch_up(table, cluster, end)
        assert cluster.writer.rows(NAME) == source.at(end)
    assert table.pending == 0 or visible < len(written)


def window_ends(source: Source, sink: Sink, rng: random.Random) -> list[int]:
    """Storage checkpoints in rising order; a statement is a border as well, and the last one covers everything."""
    last = max([sink.border, *source.states]) + 1
    ends = {rng.randint(START, last) for _ in range(rng.randint(0, 4))} | {last}
    return sorted(ends | {sink.border} if sink.is_ddl else ends)


def catch_up(table: TableConsumer, cluster: Cluster, end: int) -> None:
    """Take one table to a storage checkpoint."""
    if step := table.row_step(end):
        reports = {report.path: report for report in cluster.run(step)}
        table.advance(end)
        for file in step.files:
            report = reports[file.stored.path]
            table.finish(file, max_ts=report.max_ts, next_ts=report.next_ts)
        assert table.row_step(end) is None
    table.advance(end)


def test_a_table_is_as_it_was_by_commit_ts() -> None:
    """The test's own notion of equal texts: case, accents, width and digits of other scripts do not count."""
    assert len({same(word) for word in WORDS[3:6]}) == 1
    assert same("ß") == same("SS")
    assert same("\u0667") == same("7")
    assert [key for key, _ in groupby(sorted(map(same, ("a", "A", "ä"))))] == ["a"]
