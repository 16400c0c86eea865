"""What a task holds of changes that it took at once is what it holds of the same changes taken one by one."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_consumer.decode import canal_files as canal_json
from storage_consumer.decode import csv_files as scan
from storage_consumer.decode.canal_files import CanalJsonDecoder
from storage_consumer.decode.csv_files import CsvDecoder
from storage_consumer.decode.decoder import Decoder, FileRead, RowChange
from storage_consumer.decode.values import WireKind
from storage_consumer.errors import NotReplicable
from storage_consumer.model import CommitRange
from storage_consumer.rows import row_order as buffer
from storage_consumer.rows.halves import write_bucket
from storage_consumer.rows.row_keys import Key, compares_texts
from storage_consumer.rows.row_order import Buffer, Place, listed_keys, unpacked
from storage_consumer.rows.spec import Fold, KeyPart, Mode, TablePlan, VersionPlan, WireColumn
from tests.harness.twins.storage import MemoryWriter
from tests.unit.decode.encoders import OPTIONS, Row, canal_line, canal_message, csv_change, layout
from tests.unit.halves import events, table

KINDS = ("BIGINT", "VARCHAR", "VARCHAR")
FOLDS = (Fold.EXACT, Fold.PAD, Fold.EXACT)
Encoding = Literal["csv", "csv with old values", "canal-json"]
ENCODINGS: tuple[Encoding, ...] = ("csv", "csv with old values", "canal-json")
NUMBERS = ("0", "7", "-7", "1024", "9223372036854775807", "18446744073709551615", "007", "-0")
TEXTS = ("a", "a ", "", "x\ty", "back\\slash", "\\N", "line\r\nend", 'quo"te', "é日😀")


def work(key: tuple[int, ...]) -> TablePlan:
    """The table with these columns for its key."""
    columns = tuple(WireColumn(name=f"c{n}", kind=WireKind.TEXT, type=kind) for n, kind in enumerate(KINDS))
    version = VersionPlan(layout=layout(*KINDS), low=0, written=(0, 1, 2), key=key)
    parts = tuple(KeyPart(column=columns[place], fold=FOLDS[place]) for place in key)
    return replace(table(), written=columns, key=parts, versions={(1, "shop/orders"): version})


def encoded(rows: Sequence[Row], encoding: Encoding) -> tuple[Decoder, bytes]:
    """The rows as a file, and what decodes it."""
    if encoding == "canal-json":
        return CanalJsonDecoder(), "".join(canal_line(canal_message(KINDS, row)) for row in rows).encode()
    options = replace(OPTIONS, output_old_value=encoding == "csv with old values")
    return CsvDecoder(options), "".join(csv_change(KINDS, row, options) for row in rows).encode()


@dataclass(frozen=True)
class OneByOne(Decoder):
    """A decoder that gives no batches."""

    decoder: Decoder

    def scan(self, file: FileRead, *, many: bool) -> Iterator[RowChange]:
        """One row after another."""
        del many
        return self.decoder.rows(file)


def file(version: VersionPlan, content: bytes) -> FileRead:
    """All of a file."""
    return FileRead(
        blocks=[content],
        source="CDC1",
        layout=version.layout,
        commit_range=CommitRange(low=0, high=2**63),
        key=version.key,
    )


def held(
    of: TablePlan, decoder: Decoder, content: bytes, partitions: int, *, at_once: bool
) -> dict[tuple[Place, Key], tuple[int, int, bytes]]:
    """Bucket and key → commit ts, order and line of the last change."""
    (version,) = of.versions.values()
    buffer = Buffer(of, version, partitions)
    assert not list(buffer.read(decoder if at_once else OneByOne(decoder), file(version, content), 3))
    found = {}
    items = sorted(buffer.blocks(), key=lambda item: item[0])
    writer = MemoryWriter({of.name: [tuple(part.column.name for part in of.key)]})
    assert not [report.error for report in write_bucket(iter(items), {of.index: of}, writer) if report.error]
    for place, block in items:
        changes = unpacked(block)
        for (ts, order, line), key in zip(events(changes), listed_keys(changes.keys), strict=True):
            # What came into being depends on how the changes of a random history are divided.
            found[(*place[:3], 0), key] = ts, order & ~compares_texts(of.key), line
    return found


@pytest.mark.slow
@settings(max_examples=200)
@given(
    chance=st.randoms(use_true_random=True),
    key=st.sampled_from([(0,), (1,), (0, 1), (2, 0)]),
    encoding=st.sampled_from(ENCODINGS),
)
def test_same_changes(chance: random.Random, key: tuple[int, ...], encoding: Encoding) -> None:
    """The same last change of each key, with the same line, in the same bucket, whatever the key's columns are (C13, C18, C24)."""
    partitions = chance.choice((1, 5))
    usual = NUMBERS[:5] if chance.random() < 0.5 else NUMBERS

    def image() -> tuple[str | None, ...]:
        last = chance.choice((*TEXTS, None) if 2 not in key else TEXTS)
        return chance.choice(usual), chance.choice(TEXTS), last

    rows = []
    for does in chance.choices("IUD", k=chance.randint(1, 30)):
        values, told = image(), does == "U" and encoding != "csv" and chance.random() < 0.8
        old = chance.choice((values, image())) if told else None
        rows.append(Row(operation=does, values=values, old=old, ts=chance.randint(1, 9)))
    decoder, content = encoded(rows, encoding)
    with (
        patch.object(scan, "AT_ONCE_BYTES", 1),
        patch.object(canal_json, "AT_ONCE_BYTES", 1),
        patch.object(buffer, "PIECE_BYTES", chance.choice((100, 400, 1 << 20))),
    ):
        found = held(work(key), decoder, content, partitions, at_once=True)
    assert found == held(work(key), decoder, content, partitions, at_once=False)


def sent_events(
    of: TablePlan, decoder: Decoder, content: bytes, *, at_once: bool
) -> tuple[int, list[tuple[int, int, bytes]]] | str:
    """How many changes there are and all events that are sent on of them, or why there are none."""
    (version,) = of.versions.values()
    held_back = Buffer(of, version, 3)
    assert held_back.takes_batches
    read = file(version, content)
    try:
        assert not list(held_back.read(decoder if at_once else OneByOne(decoder), read, 3))
    except NotReplicable as fault:
        return str(fault)
    blocks = [(place, list(events(unpacked(block)))) for place, block in held_back.blocks()]
    assert all(found == sorted(found) and place[3] == found[0][0] for place, found in blocks)
    assert len({place[0] for place, _ in blocks}) == 1
    return read.tally.taken, [event for _, found in blocks for event in found]


@settings(max_examples=200)
@given(
    chance=st.randoms(use_true_random=True),
    unique=st.sampled_from([(), ((1,),), ((2,), (0, 1))]),
    encoding=st.sampled_from(ENCODINGS),
)
def test_same_events(chance: random.Random, unique: tuple[tuple[int, ...], ...], encoding: Encoding) -> None:
    """Of a table without a key the same events in sequence; an update that does not tell its row is refused as by itself (U8)."""
    work_of = replace(work(()), mode=Mode.KEYLESS)
    versions = {place: replace(version, unique=unique) for place, version in work_of.versions.items()}
    work_of = replace(work_of, versions=versions)

    def image() -> tuple[str | None, ...]:
        return chance.choice(NUMBERS[:5]), chance.choice((*TEXTS, None)), chance.choice((*TEXTS, None))

    kinds = "ID" if chance.random() < 0.7 else "IUD"
    rows = [
        Row(operation=does, values=image(), old=image() if does == "U" and told else None, ts=chance.randint(1, 9))
        for does in chance.choices(kinds, k=chance.randint(1, 20))
        for told in [encoding != "csv" and chance.random() < 0.8]
    ]
    decoder, content = encoded(rows, encoding)
    with (
        patch.object(scan, "AT_ONCE_BYTES", 1),
        patch.object(canal_json, "AT_ONCE_BYTES", 1),
    ):
        found = sent_events(work_of, decoder, content, at_once=True)
    assert found == sent_events(work_of, decoder, content, at_once=False)
