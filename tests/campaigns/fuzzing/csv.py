"""CSV files, under many options: rows, or an `UndecodableRow` that names the file, the row and the byte, and nothing else."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import replace

from storage_consumer.config.settings import CsvOptions
from storage_consumer.decode.csv_files import CsvDecoder
from storage_consumer.decode.decoder import FileRead, RowLayout
from storage_consumer.errors import UndecodableRow
from storage_consumer.model import CommitRange, TableColumn, TableName
from tests.campaigns.fuzzing.engine import Target, refused
from tests.campaigns.fuzzing.seeds import corpus_files

PATH = "shop/orders/449000000000000001/CDC000001.csv"
DEFAULT = CsvOptions(include_commit_ts=True)
BARE = replace(DEFAULT, quote="", null="NULL", delimiter="\t", terminator="\n")
OPTIONS = (
    DEFAULT,
    replace(DEFAULT, output_old_value=True),
    replace(DEFAULT, output_handle_key=True),
    replace(DEFAULT, delimiter="|+|", binary_encoding_method="hex"),
    replace(DEFAULT, include_commit_ts=False),
    replace(DEFAULT, terminator=""),
    BARE,
    replace(BARE, delimiter="||", null="", terminator="\r\n"),
    replace(BARE, delimiter=",", terminator=""),
    replace(BARE, delimiter="|", terminator="||", output_old_value=True, output_handle_key=True),
)
KINDS = (
    ("BIGINT",),
    ("BIGINT", "VARCHAR"),
    ("BIGINT", "VARCHAR", "BIGINT"),
    ("BIGINT", "BLOB", "BLOB"),
    ("VARCHAR", "BIGINT", "DOUBLE", "YEAR"),
    ("BIGINT", "VARCHAR", "TEXT"),
)
PIECES = (
    b'"I","orders","shop",449000000000000001,1,"a",2\r\n',
    b"U\torders\tshop\t449000000000000001\t1\ta\\t\tNULL\n",
    b"ticdc-meta$operation,ticdc-meta$table,ticdc-meta$schema,ticdc-meta$commit-ts,c0,c1\r\n",
    b"ticdc-meta$operation||ticdc-meta$table||ticdc-meta$schema||",
    b"true,",
    b'"orders","shop",',
    b'"I",',
    b"||",
    b"|+|",
    b'"' * 5000,
    b"|" * 2000,
    b"\\" * 5000,
    b"\\N",
)


def layout(kinds: tuple[str, ...]) -> RowLayout:
    """The layout of shop.orders with columns of these types."""
    columns = (TableColumn(name=f"c{index}", type=kind, nullable=index > 0) for index, kind in enumerate(kinds))
    return RowLayout(table=TableName(schema="shop", table="orders"), columns=tuple(columns))


def check(data: bytes) -> str:
    """Read `data` as a CSV file; what it is like decides on options, columns and blocks."""
    dice = zlib.crc32(data)
    options, kinds = OPTIONS[dice % len(OPTIONS)], KINDS[dice // 16 % len(KINDS)]
    size = (1 << 20, 997, 4096)[dice // 256 % 3] if len(data) > 500 else (1, 7, 1 << 20)[dice // 256 % 3]
    commit_range = CommitRange(low=(0, 470_607_600_000_000_000)[dice // 1024 % 2], high=2**64)
    blocks = (data[start : start + size] for start in range(0, len(data), size))
    file = FileRead(blocks=blocks, source=PATH, layout=layout(kinds), commit_range=commit_range)
    kept = 0
    about = f"options {dice % len(OPTIONS)}, "
    try:
        for _number, ts, _operation, values, old in CsvDecoder(options).rows(file):
            kept += 1
            assert len(values) == len(kinds)
            assert old is None or len(old) == len(kinds)
            assert not options.include_commit_ts or commit_range.low < ts <= commit_range.high
    except UndecodableRow as error:
        kind = re.match(
            "refused: …(, commit ts …)?: [a-z ,]*", refused(error, f"{PATH}: row {file.tally.rows} at byte ")
        )
        return about + (kind[0] if kind else "refused")
    return f"{about}{min(kept, 9)} changes of {min(file.tally.rows, 9)} rows"


def seeds() -> Sequence[bytes]:
    """Data files of the recorded buckets, their tables renamed, and the pieces."""
    found = [_renamed(path, content) for path, content in corpus_files(r".*\.csv", variants=".*csv.*", limit=300)]
    return [content for content in found if len(content) < 4000] + list(PIECES)


def _renamed(path: str, content: bytes) -> bytes:
    schema, table = path.encode().split(b"/")[:2]
    for quote in (b'"', b"\t"):
        content = content.replace(quote + table + quote, quote + b"orders" + quote)
        content = content.replace(quote + schema + quote, quote + b"shop" + quote)
    return content


TARGET = Target(name="csv", seeds=seeds, check=check, pieces=PIECES)
