"""Rows that are read many at once are the rows that are read one by one: the same values, lines, counts and errors."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_consumer.config.settings import CsvOptions
from storage_consumer.decode import canal_files as canal_json
from storage_consumer.decode import csv_files as scan
from storage_consumer.decode.canal_files import CanalJsonDecoder
from storage_consumer.decode.csv_files import CsvDecoder
from storage_consumer.decode.decoder import Batch, FileRead, RowChange, RowLayout, Tally, Values
from storage_consumer.decode.kernels.arrays import DELETE, INSERT
from storage_consumer.decode.wire_format import LineEncoder
from storage_consumer.errors import UndecodableRow
from storage_consumer.model import CommitRange
from tests.harness.corpora import THOROUGH
from tests.property import canal_files
from tests.property.csv_encoding import Source
from tests.property.csv_files import SPECIALS, TS, random_change, random_source
from tests.unit.decode import encoders

_PLAIN = CsvOptions(include_commit_ts=True)
EXAMPLES = 5_000 if THOROUGH else 300
_EVERYTHING = CommitRange(low=0, high=2**64)
_MUTATIONS = (
    b'"',
    b",",
    b"\r\n",
    b"\n",
    b"\\N",
    b"\xff",
    b"\xc3",
    b"0",
    b"-",
    b" ",
    b"\t",
    b"\\",
    b'""',
    b"true",
    b"D",
)
JSON_MUTATIONS = (
    *_MUTATIONS,
    b"null",
    b"7",
    b"1e5",
    b"}",
    b"{}",
    b"\\/",
    b"\\b\\f\\r",
    b"\\u00E9",
    b"\\u000a",
    b"\\u0100",
    b"\\ud83d\\ude00",
    b"\\ud83d",
    b"\\ude00",
    b"\\ud83d\\u0041",
    b"\\u12",
    b"\\x",
    b"\x00",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xc0\x80",
    "😀".encode(),
)

Row = tuple[int, int, int, tuple[str | None, ...], bytes]
"""Number, commit ts, operation, values, line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was read of a file: its changes by their numbers, or the error."""

    rows: tuple[Row, ...] = ()
    error: tuple[str, bool] = ("", False)
    tally: Tally | None = None
    at_once: frozenset[int] = field(default=frozenset(), compare=False)
    """The numbers of those that came in batches."""


def spread(
    found: Iterable[RowChange | Batch], layout: RowLayout, written: tuple[int, ...], tally: Tally, key: tuple[int, ...]
) -> Found:
    """Every change by itself, with its line; an update that tells that it changes its key is a delete and an insert."""
    rows: list[Row] = []
    encoder, at_once = LineEncoder(layout, written), set[int]()
    try:
        for change in found:
            if isinstance(change, tuple):
                rows += [(*half, encoder.encode_line(half[3])) for half in halves(change, key)]
                continue
            texts = [change.texts(place, np.arange(len(change.ts))) for place in range(len(layout.columns))]
            for place, column in enumerate(texts):
                numbers = change.integers(place) if layout.columns[place].type.endswith("INT") else None
                assert numbers is None or [str(number) for number in numbers.tolist()] == column
            columns = (
                change.numbers.tolist(),
                change.ts.tolist(),
                change.operations.tolist(),
                zip(*texts, strict=True),
            )
            lines = list(change.lines(written, np.arange(len(change.ts))))
            for step in (2, 3):
                assert list(change.lines(written, np.arange(0, len(lines), step))) == lines[::step]
            rows += zip(*columns, lines, strict=True)
            at_once.update(change.numbers.tolist())
    except UndecodableRow as error:
        return Found(error=(str(error), error.at_end))
    return Found(rows=tuple(sorted(of_key(rows, key), key=repr)), tally=tally, at_once=frozenset(at_once))


def halves(change: RowChange, key: tuple[int, ...]) -> list[tuple[int, int, int, Values]]:
    """A change, or the delete and the insert that an update is which tells that it changes its key, or its old row where there is none."""
    number, ts, operation, values, old = change
    if old is None or (key and all(old[place] == values[place] for place in key)):
        return [(number, ts, operation, values)]
    return [(number, ts, DELETE, old), (number, ts, INSERT, values)]


def of_key(rows: list[Row], key: tuple[int, ...]) -> list[Row]:
    """The rows, with the key alone of the delete that is half of an update: nothing else of it counts."""
    numbers = Counter(row[0] for row in rows)
    return [
        (*row[:3], tuple(row[3][place] for place in key), b"")
        if key and row[2] == DELETE and numbers[row[0]] > 1
        else row
        for row in rows
    ]


def disordered(rows: list[str], chance: random.Random) -> list[str]:
    """The rows, of which some are missing, twice there or elsewhere: an update's two rows may be apart then."""
    rows = [*rows]
    for _ in range(chance.choice((0, 0, 0, 1, 2))):
        row = chance.choice(rows)
        if chance.random() < 0.5:
            rows.remove(row)
        rows.insert(chance.randint(0, len(rows)), row if chance.random() < 0.5 else chance.choice([*rows, row]))
    return rows


def spoilt(content: bytes, chance: random.Random, mutations: Sequence[bytes] = _MUTATIONS) -> bytes:
    """The content with some bytes that are others."""
    for _ in range(chance.choice((0, 0, 1, 1, 3))):
        at, size = chance.randrange(len(content) + 1), chance.choice((0, 1, 1, 5))
        content = content[:at] + chance.choice(mutations) + content[at + size :]
    return content


def retold(line: str, terminator: str, chance: random.Random) -> str:
    """A message as TiCDC would not write it, or as it would write another."""
    message = json.loads(line.removesuffix(terminator))
    does = chance.choice(("escapes", "spaces", "members", "columns", "lacks", "types", "twice", "members of", "names"))
    if does == "members":
        message = dict(chance.sample(list(message.items()), len(message)))
    elif does == "columns":
        message["data"] = [dict(chance.sample(list(message["data"][0].items()), len(message["data"][0])))]
    elif does == "lacks":
        del message[chance.choice(list(message))]
    elif does == "types":
        place = chance.choice(list(message))
        message[place] = chance.choice((None, 7, "x", [], [{}], {}, True, -1, 1.5, 2**63, [{}, {}]))
    elif does == "twice":
        message["data"] *= 2
    elif does == "members of":
        told = message.get("old") or message["data"]
        told[0] |= {chance.choice((*told[0], "other")): chance.choice((None, "", "7", 7, [], {}, True))}
    elif does == "names":
        message |= chance.choice(({"isDdl": True}, {"type": "CREATE"}, {"table": "other"}, {"type": "TIDB_WATERMARK"}))
    spaces = (", ", ": ") if does == "spaces" else (",", ":")
    return json.dumps(message, ensure_ascii=does == "escapes", separators=spaces) + terminator


def plain_source(chance: random.Random) -> Source:
    """A source whose options let rows be read at once, mostly."""
    source = random_source(chance)
    quote, delimiter, end = chance.choice(
        (("\t", ",", "\n"), ('"', ",", "\r\n"), ('"', ",", "\n"), ("'", ";", "\r\n"), ('"', "\t", "\r\n"))
    )
    options = replace(_PLAIN, quote=quote, delimiter=delimiter, terminator=end)
    options = replace(options, output_old_value=chance.random() < 0.5)
    options = replace(options, output_field_header=source.options.output_field_header)
    options = replace(options, binary_encoding_method=source.options.binary_encoding_method)
    return replace(source, options=options, handle_key=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file and how to read it."""

    decoder: CsvDecoder | CanalJsonDecoder
    blocks: list[bytes]
    layout: RowLayout
    commit_range: CommitRange
    written: tuple[int, ...]
    key: tuple[int, ...] = ()

    def one_by_one(self) -> Found:
        """All changes, each by itself."""
        read = self.read()
        return spread(self.decoder.rows(read), self.layout, self.written, read.tally, self.key)

    def at_once(self) -> Found:
        """All changes, many at once."""
        read = self.read()
        return spread(self.decoder.changes(read), self.layout, self.written, read.tally, self.key)

    def read(self) -> FileRead:
        """What a decoder is given."""
        return FileRead(
            blocks=self.blocks, source="CDC1.x", layout=self.layout, commit_range=self.commit_range, key=self.key
        )


def file(
    decoder: CsvDecoder | CanalJsonDecoder, content: bytes, layout: RowLayout, chance: random.Random, rows: int
) -> File:
    """A file of so many rows in random blocks, with a random commit range and random columns, and a key for canal-json."""
    keyed = isinstance(decoder, CanalJsonDecoder)
    size = chance.choice((7, 100, 1 << 20))
    high = chance.choice((TS + chance.randint(0, rows), 2**64))
    return File(
        decoder=decoder,
        blocks=[content[start : start + size] for start in range(0, len(content), size)],
        layout=layout,
        commit_range=CommitRange(low=TS + chance.randint(-1, rows), high=high),
        written=tuple(chance.sample(range(len(layout.columns)), chance.randint(1, len(layout.columns)))),
        key=tuple(chance.sample(range(len(layout.columns)), chance.randint(0, min(2, len(layout.columns)))))
        if keyed
        else (),
    )


@settings(max_examples=EXAMPLES)
@given(st.randoms(use_true_random=True), st.integers(1, 12))
def test_csv(chance: random.Random, count: int) -> None:
    """Whatever the types, values, commit ranges, blocks and spoilt bytes, both ways of reading give the same (C6, T8, T11)."""
    source = plain_source(chance)
    changes = [random_change(chance, source, TS + number, SPECIALS) for number in range(count)]
    rows = disordered([row for change in changes for row in source.rows(change)], chance)
    content = spoilt("".join([source.header(), *rows]).encode(), chance)
    layout = RowLayout(table=source.table, columns=source.columns)
    read = file(CsvDecoder(source.options), content, layout, chance, count)
    most = chance.choice((50, 1 << 20))
    with patch.object(scan, "AT_ONCE_BYTES", 1), patch.object(scan, "MOST_AT_ONCE", most):
        assert read.at_once() == read.one_by_one(), read


@settings(max_examples=EXAMPLES)
@given(st.randoms(use_true_random=True), st.integers(1, 12))
def test_canal_json(chance: random.Random, count: int) -> None:
    """The same for canal-json; an update that tells that it changes the key comes by itself (C13).

    Only what is wrong in an old image beside the key is found by those alone who want whole old images.
    """
    source = canal_files.random_source(chance)
    options = replace(
        source.options, tidb_extension=chance.random() < 0.9, terminator=chance.choice(("\r\n", "\n", "|"))
    )
    source = replace(source, options=options)
    changes = [canal_files.random_change(chance, source, TS + number, [*SPECIALS]) for number in range(count)]
    lines = [source.line(change, chance) for change in changes]
    for place in chance.sample(range(count), chance.choice((0, 0, 1, count))):
        lines[place] = retold(lines[place], source.options.terminator, chance)
    content = spoilt("".join(lines).encode(), chance, JSON_MUTATIONS)
    layout = RowLayout(table=source.table, columns=source.columns)
    decoder = CanalJsonDecoder(source.options.terminator, allow_missing_commit_ts=chance.random() < 0.5)
    read = file(decoder, content, layout, chance, count)
    with patch.object(canal_json, "AT_ONCE_BYTES", 1):
        found = read.at_once()
    with patch.object(canal_json, "AT_ONCE_BYTES", sys.maxsize):
        assert found == read.at_once(), read
    whole_images = read.one_by_one()
    assert whole_images.error[0] or found == whole_images, read


@pytest.mark.parametrize("size", [300, 1000, 1 << 20])
def test_updates_are_read_at_once(size: int) -> None:
    """Where a block ends between an update's two rows both are read at once with the next block."""
    options = replace(_PLAIN, output_old_value=True)
    changes = [encoders.Row(operation="U", values=("b", str(n)), old=("a", str(n)), ts=TS + n) for n in range(100)]
    content = "".join(encoders.csv_change(("VARCHAR", "INT"), change, options) for change in changes).encode()
    blocks = [content[start : start + size] for start in range(0, len(content), size)]
    read = File(
        decoder=CsvDecoder(options),
        blocks=blocks,
        layout=encoders.layout("VARCHAR", "INT"),
        commit_range=_EVERYTHING,
        written=(0, 1),
    )
    with patch.object(scan, "AT_ONCE_BYTES", 200):
        found = read.at_once()
    assert found == read.one_by_one()
    assert len(found.at_once) > 95
    assert found.tally == Tally(rows=200, max_ts=TS + 99)


def test_something_is_read_at_once() -> None:
    """The comparisons compare something."""
    chance = random.Random(7)  # noqa: S311 - repeatable, not secret
    together = Counter[str]()
    for _ in range(50):
        for options in (_PLAIN, replace(_PLAIN, output_old_value=True)):
            source = plain_source(chance)
            source = replace(source, options=options, written=tuple(range(len(source.columns))))
            changes = [random_change(chance, source, TS + number, SPECIALS) for number in range(8)]
            content = "".join(row for change in changes for row in source.rows(change)).encode()
            layout = RowLayout(table=source.table, columns=source.columns)
            read = replace(
                file(CsvDecoder(options), content, layout, chance, 8), commit_range=_EVERYTHING, blocks=[content]
            )
            with patch.object(scan, "AT_ONCE_BYTES", 1):
                together[f"csv, old values {options.output_old_value}"] += len(read.at_once().at_once)
        other = canal_files.random_source(chance)
        other = replace(other, options=replace(other.options, tidb_extension=True, terminator="\r\n"))
        events = [canal_files.random_change(chance, other, TS + number, [*SPECIALS]) for number in range(8)]
        content = "".join(other.line(event, chance) for event in events).encode()
        layout = RowLayout(table=other.table, columns=other.columns)
        read = replace(file(CanalJsonDecoder(), content, layout, chance, 8), commit_range=_EVERYTHING, blocks=[content])
        with patch.object(canal_json, "AT_ONCE_BYTES", 1):
            together["canal-json"] += len(read.at_once().at_once)
            together["without a key"] += len(replace(read, key=()).at_once().at_once)
    assert together["csv, old values False"] > 250
    assert together["csv, old values True"] > 250
    assert together["canal-json"] > 100
    assert together["without a key"] > 50
