"""Small files that are read together give what each of them gives by itself."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from storage_consumer.decode.canal_files import CanalJsonDecoder
from storage_consumer.decode.csv_files import CsvDecoder
from storage_consumer.rows import halves as pipeline
from storage_consumer.rows import row_order as buffer
from storage_consumer.rows.halves import read_files
from storage_consumer.rows.row_order import (
    CHANGES,
    NOTICE,
    PIECE_BYTES,
    REPORT,
    SMALL_BYTES,
    Changes,
    folded,
    listed_keys,
    runs,
    together,
    unpacked,
)
from storage_consumer.rows.spec import FileReport, Mode, TablePlan
from tests.unit.decode.encoders import OPTIONS
from tests.unit.halves import Files, events, row, table

TEXTS = (
    "a",
    "a ",
    "",
    "x\ty",
    "back\\slash",
    "\\N",
    "line\r\nend",
    'quo"te',
    "é日😀",
    '\r\n"I","orders","shop",5,"',
    "x" * 70,
)
Event = tuple[object, int, int, bytes]
Damage = Callable[[random.Random, bytes], bytes]


def _cut(chance: random.Random, content: bytes) -> bytes:
    return content[: chance.randint(0, len(content))]


def _spoilt(chance: random.Random, content: bytes) -> bytes:
    place = chance.randint(0, max(0, len(content) - 1))
    return content[:place] + chance.choice((b'"', b"\xff", b"\n", b"x", b"{", b"\\")) + content[place + 1 :]


def _lost_quote(chance: random.Random, content: bytes) -> bytes:
    places = [place for place, byte in enumerate(content) if byte == ord('"')]
    place = chance.choice(places or [0])
    return content[:place] + content[place + 1 :]


DAMAGES: tuple[Damage, ...] = (_cut, _spoilt, _lost_quote, lambda _, content: content + b"\r\n", lambda *_: b"")


def _files(chance: random.Random, encoding: str, mode: Mode) -> Files:
    """Files of a table in one task; some may be damaged, or gone."""
    low, high = chance.choice(((0, 100), (3, 6)))
    of = table(mode, low=low, high=high)
    options = replace(OPTIONS, output_old_value=encoding == "old values")
    files = Files(of, protocol="canal-json" if encoding == "canal-json" else "csv", options=options)
    is_damaged = chance.random() < 0.4
    for _ in range(chance.randint(2, 8)):
        rows = []
        for operation in chance.choices("IUD", k=chance.randint(1, 6)):
            values = chance.choice(TEXTS[:4]), chance.choice(TEXTS)
            old = (
                (chance.choice(TEXTS[:4]), "z")
                if operation == "U" and encoding != "csv" and chance.random() < 0.5
                else None
            )
            rows.append(row(operation, chance.randint(1, 9), *values, old=old))
        path = files.add(*rows, newest=chance.random() < 0.2).stored.path
        if is_damaged and chance.random() < 0.3:
            files.contents[path] = chance.choice(DAMAGES)(chance, files.contents[path])
        elif is_damaged and chance.random() < 0.05:
            del files.contents[path]
    return files


def _read(files: Files, *, least: int) -> tuple[list[FileReport], list[Event], bool]:
    """The reports, what is left of the changes of all blocks, and whether every bucket is told of an error."""
    decoder = CsvDecoder(files.options) if files.protocol == "csv" else CanalJsonDecoder()
    with patch.object(buffer, "LEAST_BYTES", least):
        items = list(read_files(files.files, {files.work.index: files.work}, 1, files.open, decoder))
    reports = [item for place, item in items if place[1] == REPORT]
    blocks = [unpacked(item) for place, item in items if place[1] == CHANGES]
    return reports, _left(files.work, together(blocks)) if blocks else [], any(p[1] == NOTICE for p, _ in items)


def _left(work: TablePlan, changes: Changes) -> list[Event]:
    """The last change of each key, or all events where there is none."""
    if not work.key:
        return [(None, *event) for event in sorted(events(changes))]
    # What came into being depends on how the changes of a random history are divided.
    last = replace(changes, order=changes.order & ~1)
    last = folded(last, work)
    return sorted(((key, *event) for key, event in zip(listed_keys(last.keys), events(last), strict=True)), key=repr)


@settings(max_examples=300)
@given(
    chance=st.randoms(use_true_random=True),
    encoding=st.sampled_from(["csv", "csv", "canal-json", "canal-json", "old values"]),
    mode=st.sampled_from([Mode.KEYED, Mode.KEYLESS, Mode.ORDERED]),
)
def test_as_one_by_one(chance: random.Random, encoding: str, mode: Mode) -> None:
    """The same reports, of the same rows, and the same changes in the same order, also where a file is damaged or gone (P2, C18)."""
    files = _files(chance, encoding, mode)
    with (
        patch.object(buffer, "FLUSH_ROWS", chance.choice((1, 1 << 20))),
        patch.object(buffer, "PIECE_BYTES", chance.choice((300, 1 << 20))),
    ):
        at_once, apart = _read(files, least=1), _read(files, least=1 << 60)
    assert at_once[0] == apart[0]
    assert at_once[2] == apart[2] == any(report.error for report in apart[0])
    if not apart[2]:
        assert at_once[1] == apart[1]


def test_read_at_once() -> None:
    """Whole files of the usual form are decoded as one: what is opened is read once, and the decoder is asked once."""
    for protocol in ("csv", "canal-json"):
        files = Files(table(), protocol=protocol)
        for number in range(5):
            files.add(row("I", 5, f"k{number}", 'x"\r\n'), row("U", 6, "k0", str(number)))
        with patch.object(pipeline, "_read_file", side_effect=AssertionError("read by itself")):
            reports, found, _ = _read(files, least=1)
        assert [(report.rows, report.applied, report.max_ts) for report in reports] == [(2, 2, 6)] * 5
        assert len(found) == 5


@given(st.lists(st.integers(0, 2 * SMALL_BYTES), max_size=20))
def test_runs(sizes: list[int]) -> None:
    """All files in their sequence; those that are large by themselves, and no more bytes together than a piece has."""
    files = Files(table())
    for _ in sizes:
        files.add(row("I", 5, "a"))
    works = [
        replace(work, file=replace(work.file, stored=replace(work.file.stored, size=size)))
        for work, size in zip(files.files, sizes, strict=True)
    ]
    found = list(runs(works))
    assert [work for run in found for work in run] == works
    for run in found:
        assert len(run) == 1 or all(work.size < SMALL_BYTES for work in run)
        assert len(run) == 1 or sum(work.size for work in run) <= PIECE_BYTES
    for first, second in pairwise(found):
        both = [*first, *second]
        assert any(work.size >= SMALL_BYTES for work in both) or sum(w.size for w in both) > PIECE_BYTES
