"""Whatever TiCDC's habits do to a table's files, reading them range by range gives the table as it was at each commit range's end."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_consumer.config.settings import CsvOptions, Protocol, Upstream
from storage_consumer.decode import canal_files as canal_json
from storage_consumer.decode import csv_files as scan
from storage_consumer.decode.canal_files import CanalJsonDecoder
from storage_consumer.decode.csv_files import CsvDecoder
from storage_consumer.driver.row_jobs import files_of
from storage_consumer.model import TableDefinition, TableVersion
from storage_consumer.plan.finished_files import FileSequences
from storage_consumer.plan.steps import RowStep
from storage_consumer.plan.table import TableConsumer
from storage_consumer.rows import row_order as buffer
from storage_consumer.rows.fitting import TargetColumn, TargetTable, UniqueKey
from storage_consumer.rows.halves import read_files, write_bucket
from storage_consumer.rows.match import table_work
from storage_consumer.rows.row_order import Place
from storage_consumer.rows.spec import FileReport, JobFile, TablePlan, WriteReport, by_path, is_blocked
from tests.harness.twins.storage import MemoryWriter
from tests.property.histories import NAME, SHAPES, START, TABLE_DIR, WORDS, Shape, Sink, Source, same, sources
from tests.unit.decode.encoders import OPTIONS, column

SMALL = settings(max_examples=40)


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
    options: CsvOptions
    contents: dict[str, bytes] = field(default_factory=dict)

    def run(self, step: RowStep) -> list[FileReport]:
        """Apply the step; the reports of its files."""
        upstream = Upstream(
            scheme="file", root="/bucket", protocol=self.protocol, csv=self.options, enable_tidb_extension=True
        )
        work = table_work(self.rng.randrange(3), step, target(self.shape), upstream)
        reports = self._job(step, work)
        assert [report.error for report in reports if report.error] == []
        if is_blocked(reports):
            reports = self._job(step, replace(work, is_settled=True))
            assert [report.error for report in reports if report.error] == []
        assert all(report.table == work.index for report in reports if isinstance(report, WriteReport))
        return list(by_path(reports).values())

    def _job(self, step: RowStep, work: TablePlan) -> list[FileReport | WriteReport]:
        """Both halves."""
        tables, partitions = {work.index: work}, self.rng.randint(1, 4)
        shuffled = self._shuffle(self._read(step, tables, partitions), partitions)
        return [report for items in shuffled for report in write_bucket(iter(items), tables, self.writer)]

    def _read(self, step: RowStep, tables: dict[int, TablePlan], partitions: int) -> list[tuple[Place, Any]]:
        """The first half, in groups of files."""
        decoder = CsvDecoder(self.options) if self.protocol == "csv" else CanalJsonDecoder()
        files = list(self._works(step, next(iter(tables))))
        self.rng.shuffle(files)
        tasks = self.rng.randint(1, 3)
        items: list[tuple[Place, Any]] = []
        for task in range(tasks):
            group = files[task::tasks]
            items += read_files(group, tables, partitions, self._open, decoder)
        self.rng.shuffle(items)
        return items

    def _works(self, step: RowStep, index: int) -> Iterator[JobFile]:
        """The files of the step, with their sizes."""
        for work in files_of(step, index):
            stored = work.file.stored
            size = len(self.contents[stored.path])
            yield replace(work, file=replace(work.file, stored=replace(stored, size=size)))

    def _open(self, work: JobFile) -> Iterator[bytes]:
        return iter([self.contents[work.file.stored.path]])

    def _shuffle(self, items: list[tuple[Place, Any]], partitions: int) -> list[list[tuple[Place, Any]]]:
        """Items sorted by place per bucket, the buckets in any order."""
        buckets = [sorted((i for i in items if i[0][0] == b), key=lambda item: item[0]) for b in range(partitions)]
        self.rng.shuffle(buckets)
        return buckets


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
@SMALL
@given(
    data=st.data(),
    protocol=st.sampled_from(["csv", "canal-json"]),
    border=st.integers(0, 30),
    seed=st.integers(0, 2**32),
)
def test_equal_at_every_window(shape: Shape, data: st.DataObject, protocol: Protocol, border: int, seed: int) -> None:
    """The table equals the source at the end of each commit range, in any order of tasks, however often rows are delivered (C19, C24)."""
    rng = random.Random(seed)  # noqa: S311 - what TiCDC, Spark and time might do, not a secret
    options = replace(OPTIONS, output_old_value=rng.random() < 0.5)
    # A CSV row alone does not say which key it had before, so updates that give a row another key, or spelling of it, have to be split there.
    untold = protocol == "csv" and not options.output_old_value
    source = data.draw(sources(shape, "none" if untold else rng.choice(("none", "spelling", "all"))))
    is_ddl, dispatchers = rng.random() < 0.5, rng.random() < 0.3
    if is_ddl:
        border = max(1, border)
    sink = Sink(source, protocol, rng, START + border, is_ddl, dispatchers and bool(shape.keys), options)
    written = sink.write()
    table = TableConsumer(NAME, START, FileSequences())
    for version, query in (
        (START, "CREATE TABLE `orders` (`c0` INT)"),
        (START + border, "ALTER TABLE `orders` COMMENT 'x'" if is_ddl else ""),
    ):
        described = definition(shape, version, query)
        if described.is_ddl or not table.files.version((version, TABLE_DIR)).is_ddl:
            table.files.define((version, TABLE_DIR), described)
    keys = [tuple(f"c{place}" for place in places) for places in shape.keys]
    cluster = Cluster(shape, protocol, rng, MemoryWriter({NAME: keys}, same=same if shape.loose else str), options)
    visible = 0
    for end in window_ends(source, sink, rng):
        need = next((n for n, w in enumerate(written, 1) if w.highest >= min(end, sink.complete)), 0)
        shown = max(visible, need, rng.randint(0, len(written)))
        for item in written[visible:shown]:
            cluster.contents[item.file.stored.path] = item.content
            table.files.offer(item.file)
        visible = shown
        with (
            patch.object(buffer, "FLUSH_ROWS", rng.choice((2, 100))),
            patch.object(buffer, "BLOCK_ROWS", rng.choice((1, 2, 50))),
            patch.object(scan, "AT_ONCE_BYTES", rng.choice((1, 1000))),
            patch.object(canal_json, "AT_ONCE_BYTES", rng.choice((1, 3000))),
        ):
            catch_up(table, cluster, end)
        assert cluster.writer.rows(NAME) == source.at(end)
    assert table.files.pending == 0 or visible < len(written)


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


def test_same() -> None:
    """The test's own notion of equal texts: case, accents, width and digits of other scripts do not count."""
    assert len({same(word) for word in WORDS[3:6]}) == 1
    assert same("ß") == same("SS")
    assert same("\u0667") == same("7")
    assert {same(word) for word in ("a", "A", "ä")} == {"a"}
