"""canal-json files, under every kind of terminator: rows, or an `UndecodableRow` that names the file, the row and the byte."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

from storage_consumer.decode.canal_files import CanalJsonDecoder
from storage_consumer.decode.decoder import FileRead, RowLayout
from storage_consumer.decode.kernels.arrays import PARTIAL_DELETE, UPDATE
from storage_consumer.errors import UndecodableRow
from storage_consumer.model import CommitRange, TableColumn, TableName
from tests.campaigns.fuzzing.engine import Target, refused
from tests.campaigns.fuzzing.seeds import corpus_files

PATH = "shop/orders/449000000000000001/CDC000001.json"
TERMINATORS = ("\r\n", "\n", "", "|", "\r\n\r\n", "}")
KINDS = (
    ("BIGINT", "VARCHAR"),
    ("BIGINT", "VARCHAR", "TIMESTAMP"),
    ("VARCHAR", "BLOB", "FLOAT", "YEAR"),
    ("ENUM", "BIT", "DECIMAL", "JSON"),
    ("BIGINT",),
)
GOOD = (
    b'{"id":0,"database":"shop","table":"orders","pkNames":["c0"],"isDdl":false,"type":"UPDATE","es":1795225433867,"ts":1,'
    b'"sql":"","sqlType":{"c0":-5},"mysqlType":{"c0":"bigint"},"old":[{"c1":"x"}],"data":[{"c0":"7","c1":"a"}],'
    b'"_tidb":{"commitTs":470607576135630848}}'
)
PIECES = (
    GOOD + b"\r\n",
    GOOD + b"|" + GOOD + b"|",
    GOOD + GOOD,
    GOOD.replace(b"UPDATE", b"DELETE").replace(b',"c1":"a"', b""),
    b'"data":[{}]',
    b'"old":[{}]',
    b'"old":null',
    b'"_tidb":{"commitTs":',
    b'"c2":"2024-01-31 10:00:00"',
    b'"c1":null',
    b"\\ud83d\\ude00",
    b"\\u00ff",
    b"}" * 3000,
    b'{"' * 3000,
    b'"\\' * 3000,
)


def layout(kinds: tuple[str, ...]) -> RowLayout:
    """The layout of shop.orders with columns of these types, TIMESTAMP values in a zone that is converted."""
    columns = tuple(TableColumn(name=f"c{index}", type=kind) for index, kind in enumerate(kinds))
    return RowLayout(table=TableName(schema="shop", table="orders"), columns=columns, zone="Europe/Berlin")


def check(data: bytes) -> str:
    """Read `data` as a canal-json file; what it is like decides on terminator, columns and blocks."""
    dice = zlib.crc32(data)
    terminator, kinds = TERMINATORS[dice % len(TERMINATORS)], KINDS[dice // 16 % len(KINDS)]
    lacks_commit_ts = bool(dice // 512 % 2)
    size = (1 << 20, 997, 4096)[dice // 2048 % 3] if len(data) > 500 else (1, 7, 1 << 20)[dice // 2048 % 3]
    commit_range = CommitRange(low=(0, 470_607_600_000_000_000)[dice // 8192 % 2], high=2**64)
    decoder = CanalJsonDecoder(terminator, allow_missing_commit_ts=lacks_commit_ts)
    blocks = (data[start : start + size] for start in range(0, len(data), size))
    file = FileRead(blocks=blocks, source=PATH, layout=layout(kinds), commit_range=commit_range)
    kept = 0
    about = f"terminator {dice % len(TERMINATORS)}, "
    try:
        for _number, ts, operation, values, old in decoder.rows(file):
            kept += 1
            assert PARTIAL_DELETE <= operation <= UPDATE
            assert len(values) == len(kinds)
            assert all(value is None or isinstance(value, str) for value in (*values, *(old or ())))
            assert old is None or len(old) == len(kinds)
            assert lacks_commit_ts or commit_range.low < ts <= commit_range.high
    except UndecodableRow as error:
        kind = re.match(
            "refused: …(, commit ts …)?: [a-z ,]*", refused(error, f"{PATH}: row {file.tally.rows} at byte ")
        )
        return about + (kind[0] if kind else "refused")
    return f"{about}{min(kept, 9)} changes of {min(file.tally.rows, 9)} rows"


def seeds() -> Sequence[bytes]:
    """Data files of the recorded buckets, their tables renamed, and the pieces."""
    found = [_renamed(content) for _, content in corpus_files(r".*/CDC[^/]*\.json", variants=".*json.*", limit=300)]
    return [content for content in found if len(content) < 6000] + list(PIECES)


def _renamed(content: bytes) -> bytes:
    """The rows as those of shop.orders, with columns c0, c1 …"""
    content = re.sub(rb'"database":"[^"]*","table":"[^"]*"', b'"database":"shop","table":"orders"', content)
    if found := re.search(rb'"data":\[\{([^{}]*)\}\]', content):
        for place, name in enumerate(re.findall(rb'(?:^|,)("(?:[^"\\]|\\.)*"):', found[1])):
            content = content.replace(name + b":", b'"c%d":' % place)
    return content


TARGET = Target(name="canal-json", seeds=seeds, check=check, pieces=PIECES)
