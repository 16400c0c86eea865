"""A file that is read in parts gives what the whole gives: the same changes in the same sequence, or an error where it has one."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_consumer.config.settings import CsvOptions
from storage_consumer.decode.canal_json import decoder as canal_json
from storage_consumer.decode.canal_json.decoder import CanalJsonDecoder
from storage_consumer.decode.csv import scan
from storage_consumer.decode.csv.decoder import CsvDecoder
from storage_consumer.decode.decoder import FileRead, RowChange, RowLayout, Tally
from storage_consumer.decode.file_splits import NotSplittable, RowBoundary, split_of
from storage_consumer.errors import ConfigError, UndecodableRow
from storage_consumer.job.spec import WHOLE, ByteRange
from storage_consumer.model import CommitRange
from tests.harness.splits import spans
from tests.property import canal_files
from tests.property.csv_files import NULLS, SPECIALS, TS, random_change, random_source
from tests.property.test_batches import disordered, halves, spoilt

_DELIMITERS = (",", "\t", "|", " ", "x", ",|,", "§", "I,", "D", "\\", '"')
_QUOTES = ('"', '"', "'", "\t", "~", "x", "U")
_TRAPS = ('\r\n"I","', '"\r\n"D","orders', '\r\n"U","', "\n'I';'", '"\n"', "\r\n'D'\t", '\r\n""I"",')
"""Texts that look like the beginning of a row, or would with their quotes doubled."""

Found = tuple[list[tuple[object, ...]], tuple[int, int, int, int, int]]
"""Changes without their numbers; rows, repeats, later rows, highest and next commit ts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file and how to read it."""

    decoder: CsvDecoder | CanalJsonDecoder
    content: bytes
    layout: RowLayout
    commit_range: CommitRange
    block: int
    """Bytes that the storage gives at once; 0: it gives all, and all of a part is decoded at once."""

    def read(self, wanted: Sequence[ByteRange]) -> Found | None:
        """What these parts of the file give together, None where one has an error."""
        changes: list[tuple[object, ...]] = []
        tallies: list[Tally] = []
        last = 0
        for span in wanted:
            tally = Tally(rows=span.start)
            try:
                found = list(self.decoder.rows(self.file(span, tally)))
            except (UndecodableRow, NotSplittable):
                return None
            numbers = [change[0] for change in found]
            assert numbers == sorted(numbers)
            assert not numbers or last < numbers[0]
            last = max([last, *numbers])
            changes += [change[1:] for change in found]
            assert span.end is None or tally.rows <= span.end
            tally.rows -= span.start
            tallies.append(tally)
            assert self.at_once(span, Tally(rows=span.start)) == sorted(_halves(found), key=repr)
        return changes, (
            sum(tally.rows for tally in tallies),
            sum(tally.duplicates for tally in tallies),
            sum(tally.later for tally in tallies),
            max(tally.max_ts for tally in tallies),
            min((tally.next_ts for tally in tallies if tally.next_ts), default=0),
        )

    def at_once(self, span: ByteRange, tally: Tally) -> list[tuple[object, ...]]:
        """Number, commit ts and operation of the part's changes, read many at once where they can be."""
        rows: list[tuple[object, ...]] = []
        with patch.object(scan, "AT_ONCE_BYTES", 1), patch.object(canal_json, "AT_ONCE_BYTES", 1):
            for change in self.decoder.changes(self.file(span, tally)):
                if isinstance(change, tuple):
                    rows += _halves([change])
                else:
                    rows += zip(change.numbers.tolist(), change.ts.tolist(), change.operations.tolist(), strict=True)
        return sorted(rows, key=repr)

    def file(self, span: ByteRange, tally: Tally) -> FileRead:
        """What a decoder is given of it."""
        return FileRead(
            blocks=self.blocks(span), source="CDC1.x", layout=self.layout, commit_range=self.commit_range, tally=tally
        )

    def blocks(self, span: ByteRange) -> Iterator[bytes]:
        """What a task reads of it."""
        size = self.block or len(self.content)
        blocks = (self.content[place : place + size] for place in range(span.start, len(self.content), size))
        mark = self.decoder.mark
        assert mark is not None
        part = blocks if span == WHOLE else split_of(blocks, mark, span.start, span.end)
        return part if self.block else iter([b"".join(part)])


def _halves(changes: Sequence[RowChange]) -> list[tuple[object, ...]]:
    return [half[:3] for change in changes for half in halves(change, ())]


def commit_range(chance: random.Random, rows: int) -> CommitRange:
    """One that leaves some rows out, or none."""
    low = TS + chance.choice((-1, -1, chance.randint(-1, rows)))
    return CommitRange(low=low, high=chance.choice((TS + chance.randint(0, rows), 2**64)))


def compare(read: File, chance: random.Random) -> None:
    """Whatever the cuts, nothing else is read than of the whole, and where that has an error a part has one.

    A part may have one alone: where quotes are lost twice, the whole takes what is between for one row of before the commit range. Then the
    whole is what counts, see `pipeline`.
    """
    whole = read.read([WHOLE])
    for _ in range(4):
        wanted = spans(chance, len(read.content), 6)
        found = read.read(wanted)
        assert found == whole or (found is None and not read.block), (wanted, read)


def csv_options(chance: random.Random) -> CsvOptions:
    """Options under which files have marks."""
    while True:
        options = CsvOptions(
            quote=chance.choice(_QUOTES),
            delimiter=chance.choice(_DELIMITERS),
            null=chance.choice(NULLS),
            terminator=chance.choice(("\r\n", "\n")),
            include_commit_ts=chance.random() < 0.8,
        )
        try:
            if CsvDecoder(options).mark:
                return options
        except ConfigError:
            continue


@settings(max_examples=300)
@given(st.randoms(use_true_random=True), st.integers(1, 10), st.booleans())
def test_csv(chance: random.Random, count: int, whole: bool) -> None:  # noqa: FBT001 - as drawn
    """Whatever the dialect, the values, the commit range, the cuts and spoilt bytes, the parts are the whole (G4, G5, T8).

    Spoilt files and parts are decoded at once: of a spoilt row from before the range, where blocks end may say whether it is passed over.
    """
    source = replace(random_source(chance), options=csv_options(chance), handle_key=False)
    source = replace(source, written=tuple(range(len(source.columns))))
    changes = [random_change(chance, source, TS + number, (*SPECIALS, *_TRAPS)) for number in range(count)]
    content = "".join(disordered([row for change in changes for row in source.rows(change)], chance)).encode()
    compare(
        File(
            decoder=CsvDecoder(source.options),
            content=content if whole else spoilt(content, chance),
            layout=RowLayout(table=source.table, columns=source.columns),
            commit_range=commit_range(chance, count),
            block=chance.choice((1, 7, 100, 1 << 20)) if whole else 0,
        ),
        chance,
    )


@settings(max_examples=300)
@given(st.randoms(use_true_random=True), st.integers(1, 10), st.booleans())
def test_canal_json(chance: random.Random, count: int, whole: bool) -> None:  # noqa: FBT001 - as drawn
    """The same for canal-json, with and without commit ts (G4, G5)."""
    source = canal_files.random_source(chance)
    source = replace(source, options=replace(source.options, terminator=chance.choice(("\r\n", "\n"))))
    changes = [canal_files.random_change(chance, source, TS + number, [*SPECIALS, *_TRAPS]) for number in range(count)]
    content = "".join(source.line(change, chance) for change in changes).encode()
    compare(
        File(
            decoder=CanalJsonDecoder(source.options.terminator, allow_missing_commit_ts=True),
            content=content if whole else spoilt(content, chance),
            layout=RowLayout(table=source.table, columns=source.columns),
            commit_range=commit_range(chance, count),
            block=chance.choice((1, 7, 100, 1 << 20)) if whole else 0,
        ),
        chance,
    )


@pytest.mark.parametrize(
    "options",
    [
        CsvOptions(quote=""),
        CsvOptions(terminator="||"),
        CsvOptions(terminator=""),
        CsvOptions(delimiter="I"),
        CsvOptions(quote="D"),
        CsvOptions(output_field_header=True),
        CsvOptions(output_handle_key=True),
        CsvOptions(output_old_value=True),
    ],
)
def test_files_without_marks(options: CsvOptions) -> None:
    """Where a row's beginning may look like something else, or holds for other rows too, a file is not cut."""
    assert CsvDecoder(CsvOptions()).mark is not None
    assert CsvDecoder(options).mark is None
    assert CanalJsonDecoder(options.terminator).mark is None or options.terminator == "\r\n"


def test_file_that_may_begin_with_a_header() -> None:
    """A file that does not begin with a row is not read in parts: what stands there may be said of all rows."""
    mark = CsvDecoder(CsvOptions()).mark
    assert isinstance(mark, RowBoundary)
    with pytest.raises(NotSplittable):
        list(split_of(iter([b'ticdc-meta$operation,id\r\n"I","orders","shop",7\r\n']), mark, 0, 30))


def test_no_more_is_read_than_needed() -> None:
    """A part ends where the next one begins: what follows is not asked for."""
    mark = CanalJsonDecoder().mark
    assert mark is not None
    blocks = iter([b"ab\r\ncd\r", b"\nef\r\n", b"gh\r\n", b"never"])
    assert b"".join(split_of(blocks, mark, 100, 108)) == b"cd\r\nef\r\n"
    assert next(blocks) == b"gh\r\n"
