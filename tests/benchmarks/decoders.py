"""``python -m tests.benchmarks.decoders``: each protocol's decoder beside the fastest plain reader of the same bytes.

All in one process and one thread, from memory, by processor time. Each round runs the decoder and then the plain reader, so
that a change in the machine's pace meets both; the best round of each counts.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import random
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from storage_consumer.config.settings import CsvOptions
from storage_consumer.decode.canal_files import CanalJsonDecoder
from storage_consumer.decode.csv_files import CsvDecoder
from storage_consumer.decode.decoder import Decoder, FileRead, RowLayout
from storage_consumer.model import CommitRange, TableColumn, TableName
from storage_consumer.rows.halves import READ_BLOCK
from tests.benchmarks.rows import RowFormats
from tests.benchmarks.shapes import DATABASE, PLAIN

TABLE = "t0001"
_FIRST_TS = 470_000_000_000_000_000
LAYOUT = RowLayout(
    table=TableName(schema=DATABASE, table=TABLE),
    columns=tuple(TableColumn(name=column["ColumnName"], type=column["ColumnType"]) for column in PLAIN.schema_columns),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One protocol."""

    decoder: Callable[[], Decoder]
    plain: Callable[[bytes], object]
    """Reads the same bytes as far as the standard library does it."""
    plain_name: str


def _read_csv(data: bytes) -> None:
    deque(csv.reader(io.StringIO(data.decode(), newline="")), maxlen=0)


def _read_json(data: bytes) -> None:
    deque(map(json.loads, data.splitlines()), maxlen=0)


SUBJECTS = {
    "csv": Subject(
        decoder=lambda: CsvDecoder(CsvOptions(include_commit_ts=True)), plain=_read_csv, plain_name="csv.reader"
    ),
    "canal-json": Subject(decoder=CanalJsonDecoder, plain=_read_json, plain_name="json.loads"),
}


def file(protocol: str, rows: int, seed: int) -> bytes:
    """One data file of the benchmark's table: six inserts to three updates to one delete."""
    formats = RowFormats(PLAIN, seed)
    chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
    events = []
    for number in range(1, rows + 1):
        before, after = chance.getrandbits(60), chance.getrandbits(60)
        change = chance.choices(((None, after), (before, after), (before, None)), (6, 3, 1))[0]
        events.append(formats.event(protocol, TABLE, _FIRST_TS + number, (number, *change)))
    return "".join(events).encode()


def _blocks(data: bytes) -> Iterator[bytes]:
    return (data[start : start + READ_BLOCK] for start in range(0, len(data), READ_BLOCK))


def _decode(decoder: Decoder, data: bytes, rows: int) -> None:
    file = FileRead(blocks=_blocks(data), source="CDC1", layout=LAYOUT, commit_range=CommitRange(low=0, high=2**64))
    deque(decoder.rows(file), maxlen=0)
    assert file.tally.rows == rows


def _seconds(action: Callable[[], object]) -> float:
    began = time.process_time()
    action()
    return time.process_time() - began


def measured(protocol: str, rows: int, rounds: int, seed: int = 7) -> str:
    """The protocol's line: both readers' pace, and how many times as long the decoder takes."""
    subject = SUBJECTS[protocol]
    data = file(protocol, rows, seed)
    decoder = subject.decoder()
    own, plain = [], []
    for _ in range(rounds + 1):
        own.append(_seconds(lambda: _decode(decoder, data, rows)))
        plain.append(_seconds(lambda: subject.plain(data)))
    best, bar = min(own[1:]), min(plain[1:])
    return (
        f"{protocol:<11} {_pace(data, rows, best)}   {subject.plain_name:<11} {_pace(data, rows, bar)}   "
        f"takes {best / bar:.2f} times as long"
    )


def _pace(data: bytes, rows: int, seconds: float) -> str:
    return f"{len(data) / seconds / 1e6:6.1f} MB/s {rows / seconds:10,.0f} rows/s"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.decoders", description=__doc__)
    parser.add_argument("protocols", nargs="*", choices=[*SUBJECTS, []], metavar="PROTOCOL", help=", ".join(SUBJECTS))
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=7, help="measured rounds, after one that warms up")
    asked = parser.parse_args(arguments)
    for protocol in asked.protocols or SUBJECTS:
        print(measured(protocol, asked.rows, asked.rounds), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
