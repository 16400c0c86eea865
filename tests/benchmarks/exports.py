"""The lines that load an export: an empty target, the final rows of a backlog as Dumpling writes them, beside LOAD DATA of the same rows."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from storage_consumer import Consumer
from storage_consumer.target.row_statements import batched
from tests.benchmarks.backlogs import Backlog, against_load_data
from tests.benchmarks.bucket import Bucket, FinalTable, Order, write_metadata
from tests.benchmarks.limit import WrongResult, check
from tests.benchmarks.measuring import Applied, Bench
from tests.benchmarks.shapes import DATABASE, Shape
from tests.benchmarks.watching import watched

_CHUNKS_IN_FILE = 8
"""So many chunks of the final state make one file of some 16 MiB, as `-F 16MiB` does."""
_HEAD = b"/*!40014 SET FOREIGN_KEY_CHECKS=0*/;\n/*!40101 SET NAMES binary*/;\n"
_TSV_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
_MEANINGS = {b"0": b"\0", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"Z": b"\x1a", b"b": b"\b"}
_ESCAPED = {byte: rb"\%c" % letter for byte, letter in zip(b'\0\n\r\\"', b'0nr\\"', strict=True)}
_IN_SQL = _ESCAPED | {ord("'"): rb"\'", 0x1A: rb"\Z"}


def loaded(bench: Bench, order: Order, form: str, goal: float) -> Backlog:
    """Rows a second of a load, against LOAD DATA of the same rows over two connections. `form`: ``csv`` or ``sql``."""
    bucket, server = bench.bucket(order), bench.server
    folder = bench.folder / f"export-{form}"
    write_export(bucket, form, folder)
    empty = bench.folder / f"empty-{form}"
    empty.mkdir()
    write_metadata(empty, bucket.checkpoint)

    def run(*, profiled: bool) -> Applied:
        del profiled
        bench.session  # noqa: B018 - started before the clock
        server.drop_all()
        with (
            Consumer(
                upstream_uri=f"{empty.as_uri()}?protocol=csv",
                downstream_uri=server.uri,
                config={"sink": {"csv": {"include-commit-ts": True}}},
                dump=f"{folder.as_uri()}?csv-output-dialect=default",
                start_ts=bucket.checkpoint,
            ) as consumer,
            watched() as usage,
        ):
            began = time.monotonic()
            rows = consumer.run_once().rows
            seconds = time.monotonic() - began
        if rows != bucket.rows:
            message = f"the load took {rows} rows into account, not {bucket.rows}"
            raise WrongResult(message)
        check(bucket.final, server, bucket.order.shape.checksum)
        return Applied(seconds=seconds, usage=usage)

    plain = against_load_data(bench, order, goal)
    return replace(plain, unit="rows/s", run=lambda profiled: run(profiled=profiled))


def write_export(bucket: Bucket, form: str, folder: Path) -> None:
    """Write the final state of a bucket as an export as of its checkpoint."""
    folder.mkdir()
    shape = bucket.order.shape
    (folder / f"{DATABASE}-schema-create.sql").write_bytes(
        b"%bCREATE DATABASE `%b` /*!40100 DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin */;\n"
        % (_HEAD, DATABASE.encode())
    )
    for table in bucket.final:
        body = ",\n  ".join((*(column.definition for column in shape.columns), *shape.keys))
        create = f"CREATE TABLE `{table.name}` (\n  {body}\n) ENGINE=InnoDB;\n"
        (folder / f"{DATABASE}.{table.name}-schema.sql").write_bytes(_HEAD + create.encode())
        for number, chunks in enumerate(batched(table.chunks, _CHUNKS_IN_FILE)):
            content = _csv(shape, chunks) if form == "csv" else _sql(table, shape, chunks)
            (folder / f"{DATABASE}.{table.name}.{number:09d}.{form}").write_bytes(content)
    position = f"\tLog: tidb-binlog\n\tPos: {bucket.checkpoint}\n\tGTID:\n\n"
    text = (
        f"Started dump at: 2026-11-22 20:40:44\nSHOW MASTER STATUS:\n{position}Finished dump at: 2026-11-22 20:40:46\n"
    )
    (folder / "metadata").write_text(text, encoding="utf-8")


def _csv(shape: Shape, chunks: Sequence[Path]) -> bytes:
    rows = [",".join(f'"{column.name}"' for column in shape.columns).encode()]
    for values in _rows(chunks):
        fields = zip(shape.columns, values, strict=True)
        rows.append(b",".join(_field(dict(column.schema)["ColumnType"], value) for column, value in fields))
    return b"\r\n".join((*rows, b""))


def _sql(table: FinalTable, shape: Shape, chunks: Sequence[Path]) -> bytes:
    kinds = [dict(column.schema)["ColumnType"] for column in shape.columns]
    rows = [
        b"(%b)" % b",".join(_literal(kind, value) for kind, value in zip(kinds, values, strict=True))
        for values in _rows(chunks)
    ]
    head = f"INSERT INTO `{table.name}` VALUES\n".encode()
    return _HEAD + b"".join(head + b",\n".join(some) + b";\n" for some in batched(rows, 5_000))


def _rows(chunks: Sequence[Path]) -> Iterator[list[bytes | None]]:
    """Yield the values of each row that was written for LOAD DATA."""
    for chunk in chunks:
        for line in chunk.read_bytes().split(b"\n")[:-1]:
            yield [None if field == b"\\N" else _TSV_ESCAPE.sub(_meant, field) for field in line.split(b"\t")]


def _meant(escape: re.Match[bytes]) -> bytes:
    return _MEANINGS.get(escape[1], escape[1])


def _field(kind: str, value: bytes | None) -> bytes:
    if value is None:
        return b"\\N"
    if kind in ("BIGINT", "DECIMAL", "DOUBLE"):
        return value
    return b'"%b"' % b"".join(_ESCAPED.get(byte, bytes((byte,))) for byte in value)


def _literal(kind: str, value: bytes | None) -> bytes:
    if value is None:
        return b"NULL"
    if kind in ("BIGINT", "DECIMAL", "DOUBLE"):
        return value
    if kind == "BLOB":
        return b"x'%b'" % value.hex().encode()
    return b"'%b'" % b"".join(_IN_SQL.get(byte, bytes((byte,))) for byte in value)
