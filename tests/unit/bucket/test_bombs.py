"""Files made to use up memory or time end in a clear error, in bounded memory and time."""

from __future__ import annotations

import gzip
import json
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from storage_consumer.bucket.reader import StorageReader
from storage_consumer.bucket.stores import open_storage
from storage_consumer.clock import SystemClock
from storage_consumer.config.settings import Secrets, Upstream
from storage_consumer.errors import MalformedSchemaFile, UndecodableRow
from tests.harness.small_bucket import SmallBucket, ts
from tests.unit.decode.encoders import TS, Row, canal_line, canal_message, csv_row, from_canal, from_csv

SECONDS = 20
DEEP = 100_000
DIGITS = "9" * 1_000_000
KINDS = ("BIGINT", "VARCHAR", "DECIMAL")


@contextmanager
def bounded(mebibytes: int) -> Iterator[None]:
    """The block ends soon and needs no more memory than that."""
    began = time.monotonic()
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < mebibytes << 20
    assert time.monotonic() - began < SECONDS


def reader(bucket: SmallBucket) -> StorageReader:
    """What reads that bucket."""
    upstream = Upstream(scheme="file", root=str(bucket.root), protocol="csv")
    return StorageReader(open_storage(upstream, Secrets()), upstream, SystemClock())


def huge(path: Path, size: int) -> None:
    """Make a file that large; it takes no room on the disk."""
    with path.open("r+b") as file:
        file.truncate(size)


def message(**attributes: object) -> str:
    """A canal-json row of `KINDS`."""
    return canal_line(canal_message(KINDS, Row(operation="I", values=(7, "seven", "1.50")), **attributes))


SCHEMAS: dict[str, Callable[[str], str | bytes]] = {
    "brackets": lambda _: "[" * DEEP,
    "nested": lambda text: text.replace("null", "[" * DEEP + "]" * DEEP),
    "objects": lambda _: '{"a":' * DEEP,
    "number": lambda text: text.replace('"Version": 1', f'"Version": {DIGITS}'),
    "exponent": lambda text: text.replace(f'"TableVersion": {ts(1)}', '"TableVersion": 1e999999999'),
    "precision": lambda text: text.replace('"ColumnPrecision": "20"', f'"ColumnPrecision": "{DIGITS}"'),
    "gzip": lambda text: gzip.compress(text.encode()),
    "empty": lambda _: "\0" * 1_000_000,
}


@pytest.mark.parametrize("kind", [*SCHEMAS, "200 MB"])
def test_schema_file(kind: str, tmp_path: Path) -> None:
    """A schema file that no TiCDC writes is refused by its table, with the file's name."""
    bucket = SmallBucket(root=tmp_path)
    bucket.create("d.t")
    bucket.metadata(ts(9))
    (path,) = tmp_path.glob("d/t/meta/*")
    if kind == "200 MB":
        huge(path, 200_000_000)
    else:
        made = SCHEMAS[kind](
            path.read_text(encoding="utf-8").replace('"Query": "CREATE', '"Note": null, "Query": "CREATE')
        )
        path.write_bytes(made if isinstance(made, bytes) else made.encode())
    with bounded(64):
        found = reader(bucket)
        (read,) = (each for each in found.poll().schema_files if each.file.stored.path.startswith("d/t/"))
    assert isinstance(read.content, MalformedSchemaFile)
    assert path.name in str(read.content)
    assert len(str(read.content)) < 1000


@pytest.mark.parametrize(
    "content", ["[" * DEEP, '{"checkpoint-ts":' + DIGITS + "}", gzip.compress(b"{}", mtime=0), 1 << 30]
)
def test_metadata(content: str | bytes | int, tmp_path: Path) -> None:
    """A checkpoint that cannot be read leaves the last good one in force, with a short warning."""
    bucket = SmallBucket(root=tmp_path)
    bucket.create("d.t")
    bucket.metadata(ts(9))
    found = reader(bucket)
    assert found.poll().checkpoint == ts(9)
    if isinstance(content, int):
        huge(tmp_path / "metadata", content)
    else:
        bucket.write("metadata", content)
    with bounded(64):
        poll = found.poll()
    assert poll.checkpoint == ts(9)
    assert poll.unreadable_metadata == 1
    assert all(len(text) < 1000 for text in poll.warnings)


HEAD = f'"I","orders","shop",{TS},'
CSV: dict[str, tuple[str | bytes, int]] = {
    "fields": (HEAD + "1," * 10_000_000 + "1\r\n", 400),
    "field": (HEAD + '7,"' + "x" * 40_000_000, 200),
    "commit ts": (f'"I","orders","shop",{DIGITS},7,"seven","1.50"\r\n', 64),
    "operation": (f'"{DIGITS}","orders","shop",{TS},7,"seven","1.50"\r\n', 64),
    "number": (f'{HEAD}{DIGITS}x,"seven","1.50"\r\n', 64),
    "quotes": (HEAD + '7,"' + '""' * 10_000_000, 200),
    "gzip": (gzip.compress((HEAD + '7,"seven",1.5\r\n').encode()), 64),
    "NUL": (b"\0" * 1_000_000, 64),
}
TEXTS = {"quotes": '"' * 4_000_000, "backslashes": "\\" * 4_000_000, "json": '{"a": "b"}' * 400_000}
CANAL: dict[str, str | bytes] = {
    "brackets": "[" * DEEP + "\r\n",
    "objects": '{"data":' * DEEP + "\r\n",
    "data": message(data=0).replace('"data":0', '"data":' + "[" * DEEP + "]" * DEEP),
    "unknown member": message(more=0).replace('"more":0', '"more":' + "[" * DEEP + "]" * DEEP),
    "commit ts": message().replace(str(TS), DIGITS),
    "member": json.dumps({"x" * 1_000_000: 1}) + "\r\n",
    "gzip": gzip.compress(message().encode()),
}


@pytest.mark.parametrize("kind", CSV)
def test_csv(kind: str) -> None:
    """A CSV row that no TiCDC writes stops its table with a short error."""
    data, mebibytes = CSV[kind]
    with bounded(mebibytes), pytest.raises(UndecodableRow) as caught:
        from_csv(data, *KINDS)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("kind", CANAL)
def test_canal_json(kind: str) -> None:
    """A canal-json row that no TiCDC writes stops its table with an short error."""
    with bounded(64), pytest.raises(UndecodableRow) as caught:
        from_canal(CANAL[kind], *KINDS)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("protocol", ["csv", "canal-json"])
def test_large_text(protocol: str, kind: str) -> None:
    """A large text of characters that get escaped takes a few times its size, no more for each of them."""
    given = Row(operation="I", values=(7, TEXTS[kind], "1.50"))
    with bounded(64):
        if protocol == "csv":
            found = from_csv(csv_row(KINDS, given), *KINDS)
        else:
            found = from_canal(canal_line(canal_message(KINDS, given)), *KINDS)
    assert found[0][3] == ("7", TEXTS[kind], "1.50")


@pytest.mark.parametrize("pair", ['""\r\n', 'x""y\r\n', '"",', "xy\r\n", "\0" * 8])
def test_a_row_without_end(pair: str) -> None:
    """A quote that is not closed makes one row of all that follows: memory stays within some times what was read."""
    size = 24 << 20
    start = csv_row(KINDS, Row(operation="I", values=(7, "seven", "1.50")))
    content = (start[: start.index("seven")] + pair * (size // len(pair))).encode()
    with bounded(8 * 24 + 32), pytest.raises(UndecodableRow, match="row 1 at byte 0"):
        from_csv(content, *KINDS)
