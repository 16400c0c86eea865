"""Small tables and files in memory, and what both halves of a task make of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from storage_consumer.config.settings import CsvOptions, Protocol
from storage_consumer.decode.canal_files import CanalJsonDecoder
from storage_consumer.decode.csv_files import CsvDecoder
from storage_consumer.decode.decoder import RowLayout
from storage_consumer.decode.kernels.row_lines import Lines
from storage_consumer.decode.values import WireKind
from storage_consumer.model import CommitRange, DataFile, TableName
from storage_consumer.rows.halves import read_files, write_bucket
from storage_consumer.rows.row_keys import Action, Run, order_of
from storage_consumer.rows.row_order import Changes, Place
from storage_consumer.rows.spec import (
    FileReport,
    Fold,
    JobFile,
    KeyPart,
    Mode,
    TablePlan,
    VersionPlan,
    WireColumn,
    WriteReport,
)
from tests.harness.twins.storage import MemoryWriter
from tests.unit.building import data_file
from tests.unit.decode.encoders import OPTIONS, Row, canal_line, canal_message, csv_change, layout

NAME = TableName(schema="shop", table="orders")
KINDS = ("VARCHAR", "VARCHAR")
WIRE = tuple(WireColumn(name=f"c{place}", kind=WireKind.TEXT, type="VARCHAR") for place in (0, 1))
LAYOUT: RowLayout = layout(*KINDS)
_BLOCK = 4_096


def events(found: Changes) -> Iterator[tuple[int, int, bytes]]:
    """Of each change its commit ts, order and line."""
    return zip(found.ts.tolist(), found.order.tolist(), found.lines, strict=True)


def as_events(*groups: tuple[int, list[tuple[bool, bytes]]]) -> list[Changes]:
    """The events of some commit ts, each whether it leaves a row behind and its line, as one part."""
    told = [(ts, upsert, line) for ts, events in groups for upsert, line in events]
    if not told:
        return []
    ts, upserts, lines = zip(*told, strict=True)
    order = np.array([order_of(0, 0, upsert=upsert) for upsert in upserts], np.int64)
    return [Changes(ts=np.array(ts, np.uint64), order=order, keys=[], lines=Lines.of(lines))]


def table(mode: Mode = Mode.KEYED, *, index: int = 0, low: int = 0, high: int = 100) -> TablePlan:
    """shop.orders with columns c0 (the key, if there is one) and c1."""
    fold = Fold.LOOSE if mode is Mode.ORDERED else Fold.EXACT
    key = () if mode is Mode.KEYLESS else (KeyPart(column=WIRE[0], fold=fold),)
    version = VersionPlan(layout=LAYOUT, low=low, written=(0, 1), key=(0,) if key else ())
    return TablePlan(
        index=index,
        table_key="`shop`.`orders`",
        name=NAME,
        commit_range=CommitRange(low=low, high=high),
        mode=mode,
        has_other_unique_keys=False,
        written=WIRE,
        key=key,
        versions={(1, "shop/orders"): version},
    )


def as_runs(deletes: Sequence[bytes], upserts: Sequence[bytes]) -> list[Run]:
    """Rows that go, and then rows that were there before and have changed."""
    runs = [Run(Action.DELETE, deletes), Run(Action.REPLACE, upserts)]
    return [run for run in runs if len(run.lines)]


def row(operation: str, ts: int, key: str, value: str = "x", old: tuple[str, str] | None = None) -> Row:
    """One change."""
    return Row(operation=operation, values=(key, value), old=old, ts=ts)


class Files:
    """Files in memory, and what both halves make of them."""

    def __init__(
        self, work: TablePlan, *, protocol: Protocol = "csv", partitions: int = 3, options: CsvOptions = OPTIONS
    ) -> None:
        """Without files."""
        self.work = work
        self.protocol = protocol
        self.options = options
        self.partitions = partitions
        self.files: list[JobFile] = []
        self.contents: dict[str, bytes] = {}
        self.writer = MemoryWriter({NAME: [("c0",)]} if work.key else {})

    def add(self, *rows: Row, partition: int = 0, version: int = 1, newest: bool = False, tail: str = "") -> DataFile:
        """One more file with these rows, and a `tail` of raw text."""
        encode: Callable[[Row], str] = self._csv if self.protocol == "csv" else self._canal
        file = data_file("shop/orders", version, len(self.files) + 1, partition=partition)
        self.contents[file.stored.path] = ("".join(map(encode, rows)) + tail).encode()
        file = replace(file, stored=replace(file.stored, size=len(self.contents[file.stored.path])))
        self.files.append(JobFile(table=self.work.index, file=file, rank=len(self.files), newest=newest))
        return file

    def _csv(self, change: Row) -> str:
        return csv_change(KINDS, change, self.options)

    def _canal(self, change: Row) -> str:
        return canal_line(canal_message(KINDS, change))

    def open(self, work: JobFile) -> Iterator[bytes]:
        """The content of a file."""
        path = work.file.stored.path
        if path not in self.contents:
            raise FileNotFoundError(path)
        content = self.contents[path]
        return (content[start : start + _BLOCK] for start in range(0, len(content), _BLOCK))

    def read(self) -> list[tuple[Place, Any]]:
        """The first half, each file in a task of its own, in any order."""
        decoder = CsvDecoder(self.options) if self.protocol == "csv" else CanalJsonDecoder()
        tasks = [[file] for file in self.files]
        random.shuffle(tasks)
        tables = {self.work.index: self.work}
        return [i for task in tasks for i in read_files(task, tables, self.partitions, self.open, decoder)]

    def apply(self) -> list[FileReport | WriteReport]:
        """Both halves."""
        items = sorted(self.read(), key=lambda item: item[0])
        buckets = [[item for item in items if item[0][0] == bucket] for bucket in range(self.partitions)]
        random.shuffle(buckets)
        tables = {self.work.index: self.work}
        return [report for bucket in buckets for report in write_bucket(iter(bucket), tables, self.writer)]

    def rows(self) -> dict[tuple[str | None, ...], int]:
        """What is in the target."""
        return dict(self.writer.rows(NAME))


def errors(reports: Sequence[FileReport | WriteReport]) -> list[str]:
    """What went wrong; each bucket tells of what stops a table."""
    return list(dict.fromkeys(report.error for report in reports if report.error))
