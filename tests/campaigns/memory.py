"""``python -m tests.campaigns.memory``: how much memory the program takes for what could take much, each case from an empty target.

The real command runs with ``--once``, and once more when everything is done, as after a restart. A line for each run tells the peaks of
the driver, of Spark's JVM and of the largest Python worker. Exit code 1 when the target is not as it must be, or a peak is
higher than what the program promises.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Literal

from storage_consumer.bucket.export_names import database_file, metadata_file, table_file
from storage_consumer.model import TableName
from tests.benchmarks.bucket import FinalTable, Order, write_bucket
from tests.benchmarks.limit import WrongResult, check
from tests.benchmarks.measuring import SERVER_OPTIONS
from tests.benchmarks.shapes import DATABASE, PLAIN
from tests.benchmarks.watching import Usage, watched
from tests.harness.program import program
from tests.harness.servers import DatabaseServer, mariadb
from tests.harness.small_bucket import CREATE_TABLE, SmallBucket, column, row, ts

GIB = 1 << 30
MOST = {"jvm": 1.5 * GIB, "driver": 0.5 * GIB, "worker": 0.5 * GIB}
"""Promised peaks in bytes."""
CONFIG = "[sink.csv]\ninclude-commit-ts = true\n"
_MIB = 1 << 20
_FIRST_ROWS = 3
"""Tick of the first rows; the tables are made before."""
_TRANSACTION = 1_000
"""Rows at one tick."""
_HOURS = 6
"""What a run may take."""
_CELLS = "{:14} {:>6} {:>10} {:>9} {:>8} {:>9}  {:>6} {:>6} {:>6}  {}"
Protocol = Literal["csv", "canal-json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What a bucket holds."""

    tables: int = 1
    files: int = 1
    """Of each table."""
    rows: int = 1
    """In each file."""
    width: int = 60
    """Bytes of each row's text."""
    keyed: bool = True
    protocol: Protocol = "csv"
    mixed: bool = False
    """As the benchmark's profile of this name, with all `rows` in few files."""
    export: bool = False
    """Whether the rows are those of an export as of the bucket's checkpoint, which is loaded."""
    packet: int = 0
    """max_allowed_packet of the server where it is not its own default."""


CASES = {
    "backlog": Case(mixed=True, rows=5_000_000),
    "backlog-json": Case(mixed=True, rows=5_000_000, protocol="canal-json"),
    "file": Case(rows=4_600_000),
    "file-json": Case(rows=1_300_000, protocol="canal-json"),
    "file-wide": Case(rows=65_000, width=8_192),
    "file-keyless": Case(rows=4_600_000, keyed=False),
    "row": Case(width=64 << 20, packet=GIB),
    "row-json": Case(width=64 << 20, protocol="canal-json", packet=GIB),
    "files": Case(tables=100, files=2_000, rows=3),
    "stored": Case(tables=10_000, files=100),
    "load": Case(files=80, rows=250_000, export=True),
    "load-hundredth": Case(files=80, rows=2_500, export=True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A bucket on disk."""

    uri: str
    events: int
    files: int
    size: int
    """Bytes of all data files."""
    final: tuple[FinalTable, ...]
    """Of the database `DATABASE`."""
    checksum: str
    """Of one row, as the server computes it."""
    dump: tuple[str, ...] = ()
    """What the command is told of an export."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns.memory", description="Measure the program's memory."
    )
    parser.add_argument("--cases", default=",".join(CASES), help="comma-separated (default: %(default)s)")
    parser.add_argument("--share", type=float, default=1.0, help="of the rows of each case (default: %(default)s)")
    asked = parser.parse_args(arguments)
    heads = ("case", "run", "events", "files", "MiB", "seconds", "driver", "JVM", "worker", "")
    print(f"peaks in MiB, at most {', '.join(f'{k} {v / _MIB:.0f}' for k, v in MOST.items())}")
    print(_CELLS.format(*heads), flush=True)
    failures = sum(not _measured(name, asked.share) for name in asked.cases.split(","))
    return 1 if failures else 0


def _measured(name: str, share: float) -> bool:
    """One case; whether all is as it must be."""
    case, good = CASES[name], True
    options = (*SERVER_OPTIONS, *([f"--max-allowed-packet={case.packet}"] if case.packet else []))
    with tempfile.TemporaryDirectory(prefix="memory-") as folder, mariadb(innodb=options) as server:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            written = process.submit(_write, case, share, Path(folder)).result()
        for number in ("first", "again"):
            usage, seconds, wrong = _run(written, server, Path(folder))
            wrong = wrong or _over(usage)
            good &= not wrong
            sizes = (f"{size / _MIB:.0f}" for size in (usage.driver, usage.jvm, usage.worker))
            counts = (written.events, written.files, written.size // _MIB, f"{seconds:.0f}")
            print(_CELLS.format(name, number, *counts, *sizes, wrong or "equal"), flush=True)
    return good


def _run(written: Written, server: DatabaseServer, folder: Path) -> tuple[Usage, float, str]:
    """One run of the command and what is wrong after it."""
    config, log = folder / "changefeed.toml", folder / "log"
    config.write_text(CONFIG, encoding="utf-8")
    where = ["--upstream-uri", written.uri, "--downstream-uri", server.uri, "--config", str(config), "--once"]
    where += written.dump
    began = time.monotonic()
    with program(where, log) as running, watched(running.process.pid) as usage:
        code = running.end(_HOURS * 3600)
    seconds = time.monotonic() - began
    if code:
        return usage, seconds, f"exit code {code}: {running.text()[-2000:]}"
    try:
        check(written.final, server, written.checksum)
    except WrongResult as error:
        return usage, seconds, str(error)
    return usage, seconds, ""


def _over(usage: Usage) -> str:
    """Which peaks are higher than promised."""
    peaks = {"jvm": usage.jvm, "driver": usage.driver, "worker": usage.worker}
    return ", ".join(f"{name} takes too much" for name, size in peaks.items() if size > MOST[name])


def _write(case: Case, share: float, folder: Path) -> Written:
    """The bucket of a case, or of a share of its rows, below `folder`."""
    rows = max(1, round(case.rows * share))
    if case.mixed:
        bucket = write_bucket(Order(events=rows, protocol=case.protocol, profile="mixed"), folder)
        return Written(
            uri=bucket.uri,
            events=rows,
            files=bucket.files,
            size=bucket.size,
            final=bucket.final,
            checksum=PLAIN.checksum,
        )
    small = SmallBucket(root=folder / "bucket", protocol=case.protocol)
    tables = [f"t{number:05d}" for number in range(1, case.tables + 1)]
    columns = (column("id", "BIGINT", key=case.keyed), column("body", "LONGTEXT"))
    small.schema(DATABASE, ts(0), f"CREATE DATABASE `{DATABASE}`", 1)
    for table in tables:
        key = "PRIMARY KEY" if case.keyed else "NOT NULL"
        small.schema(
            f"{DATABASE}.{table}",
            ts(1),
            f"CREATE TABLE `{table}` (id BIGINT {key}, body LONGTEXT)",
            CREATE_TABLE,
            columns,
        )
    final = tuple(_table(small, case, rows, table, folder) for table in tables)
    end = ts(_tick(case.files + 1, 0, rows))
    small.metadata(end)
    if case.export:
        _finish_export(folder / "export", tables, end)
    size = sum(path.stat().st_size for path in folder.rglob("*" if case.export else "CDC*") if path.is_file())
    return Written(
        uri=small.uri,
        events=rows * case.files * case.tables,
        files=case.files * case.tables,
        size=size,
        final=final,
        checksum="CRC32(CONCAT_WS('|', id, body))",
        dump=("--dump", (folder / "export").as_uri(), "--start-ts", str(ts(1))) if case.export else (),
    )


def _finish_export(folder: Path, tables: Sequence[str], snapshot: int) -> None:
    """Write what an export has beside its rows."""
    files = [database_file(DATABASE, f"CREATE DATABASE `{DATABASE}`")]
    for table in tables:
        name = TableName(schema=DATABASE, table=table)
        files.append(
            table_file(
                name, f"CREATE TABLE `{table}` (\n  `id` bigint NOT NULL,\n  `body` longtext,\n  PRIMARY KEY (`id`)\n)"
            )
        )
    for file in (*files, metadata_file(snapshot, "2026-11-22 20:40:44", "2026-11-22 20:40:46")):
        (folder / file.path).write_bytes(file.content)


def _table(small: SmallBucket, case: Case, rows: int, table: str, folder: Path) -> FinalTable:
    """Write the files of one table; what it must hold in the end."""
    name, checksum = f"{DATABASE}.{table}", 0
    for number in range(1, case.files + 1):
        path = folder / "export" / f"{name}.{number - 1:09d}.csv" if case.export else small.file(name, number)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8", newline="") as file:
            file.write('"id","body"\r\n' if case.export else "")
            for pk, body in _bodies(case, number, rows):
                checksum += zlib.crc32(f"{pk}|{body}".encode())
                tick = _tick(number, pk - number * rows, rows)
                one = row(name, tick, str(pk), f'"{body}"', names=("id", "body"))
                file.write(f'{pk},"{body}"\r\n' if case.export else f"{small.text(one)}\r\n")
    return FinalTable(name=table, rows=rows * case.files, checksum=checksum, chunks=())


def _tick(number: int, place: int, rows: int) -> int:
    """When a row of a table's file `number` was committed."""
    return _FIRST_ROWS + (number - 1) * -(-rows // _TRANSACTION) + place // _TRANSACTION


def _bodies(case: Case, number: int, rows: int) -> Iterator[tuple[int, str]]:
    """Ids and texts of the rows of a table's file `number`; the texts do not compress to nothing."""
    chance = random.Random(number)  # noqa: S311 - repeatable, not secret
    for place in range(rows):
        text = chance.randbytes(min(case.width, 4_096) // 2).hex()
        yield number * rows + place, (text * (case.width // len(text) + 1))[: case.width]


if __name__ == "__main__":
    sys.exit(main())
