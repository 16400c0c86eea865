"""Data files of exports, under many options: rows, the same one by one and in bulk, or an `UndecodableRow` that names the file, the row and the byte."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import product

from storage_consumer.config.settings import DumpOptions
from storage_consumer.decode import export_files as exported_rows
from storage_consumer.decode.decoder import FileRead, RowLayout, Tally
from storage_consumer.decode.export_files import ExportDecoder
from storage_consumer.errors import UndecodableRow
from storage_consumer.model import CommitRange, TableColumn, TableName
from tests.campaigns.fuzzing.engine import Target, refused

PATH = "shop.orders.000000000.sql"
SQL = DumpOptions()
CSV = DumpOptions(file_format="csv")
OPTIONS = (
    SQL,
    replace(SQL, escape_backslash=False),
    CSV,
    replace(CSV, header=False),
    replace(CSV, escape_backslash=False, terminator="\n"),
    replace(CSV, delimiter="", separator="\t", terminator="\n", header=False),
    replace(CSV, delimiter="<q>", separator="|+|", null="NULL", header=False),
    replace(CSV, binary="hex", header=False),
    replace(CSV, binary="base64", header=False),
)
KINDS = (("BIGINT",), ("BIGINT", "VARCHAR"), ("BIGINT", "VARCHAR", "BLOB"), ("VARCHAR", "DOUBLE", "YEAR", "BIT"))
MANY = 5000
"""Bytes that are too many to be read one by one."""
PIECES = (
    b"/*!40014 SET FOREIGN_KEY_CHECKS=0*/;\n/*!40101 SET NAMES binary*/;\nINSERT INTO `orders` VALUES\n(1,'a',x'00ff'),\n(2,NULL,NULL);\n",
    b"INSERT INTO `orders` (`c1`,`c0`) VALUES\n('it\\'s',1);\n",
    b"INSERT INTO `orders` VALUES\n" + b"(1,'a'),\n" * 200 + b"(2,'b');\n",
    b'"c0","c1","c2"\r\n1,"a\\"b","c"\r\n2,\\N,\\N\r\n',
    b'1,"a",""\r\n' * 300,
    b"1\ta\\\tb\n2\t\\N\n",
    b"1|+|<q>a<q>|+|NULL\r\n",
    b"CONVERT('x' USING UTF8MB4)",
    b"_binary '",
    b"/*!40103 SET TIME_ZONE='+00:00' */;",
    b"SET SQL_MODE='NO_BACKSLASH_ESCAPES';",
    b"x'",
    b"'" * 5000,
    b"\\" * 5000,
    b"(" * 5000,
    b"/*" * 3000,
)


def check(data: bytes) -> str:
    """Read `data` as a data file, whole and in pieces; what it is like decides on options, columns and blocks."""
    dice = zlib.crc32(data)
    options, kinds = OPTIONS[dice % len(OPTIONS)], KINDS[dice // 16 % len(KINDS)]
    with _few_are_many():
        plain, bulk = (_read(data, options, kinds, 1 << 20, at_once=at_once) for at_once in (False, True))
    assert bulk == plain, f"read otherwise in bulk: {bulk!r}, {plain!r}"
    rows, error = _read(data, options, kinds, 4096 if len(data) > MANY else (1, 7, 997)[dice // 64 % 3], at_once=False)
    # Where a statement has no end, the place that is named depends on the pieces.
    assert (rows, not error) == (plain[0], not plain[1]), f"read otherwise in pieces: {error}, {plain[1]}"
    rows, error = plain
    if not error:
        return f"options {dice % len(OPTIONS)}, {min(rows, 9)} rows"
    kind = re.match("refused: …?[a-z ,]*", refused(UndecodableRow(error), PATH))
    return f"options {dice % len(OPTIONS)}, {kind[0] if kind else 'refused'}"


@contextmanager
def _few_are_many() -> Iterator[None]:
    """Read in bulk whatever the number of bytes."""
    before = exported_rows.AT_ONCE_BYTES
    exported_rows.AT_ONCE_BYTES = 1
    try:
        yield
    finally:
        exported_rows.AT_ONCE_BYTES = before


def _read(data: bytes, options: DumpOptions, kinds: Sequence[str], size: int, *, at_once: bool) -> tuple[int, str]:
    """Return the number of rows up to the first error, and that error."""
    columns = tuple(TableColumn(name=f"c{index}", type=kind, nullable=index > 0) for index, kind in enumerate(kinds))
    layout = RowLayout(table=TableName(schema="shop", table="orders"), columns=columns)
    blocks = (data[start : start + size] for start in range(0, len(data), size))
    tally = Tally()
    file = FileRead(
        blocks=blocks, source=PATH, layout=layout, commit_range=CommitRange(low=0, high=1 << 62), tally=tally
    )
    decoder, rows = ExportDecoder(options), 0
    try:
        for found in decoder.changes(file) if at_once else decoder.rows(file):
            rows += 1 if isinstance(found, tuple) else len(found.numbers)
    except UndecodableRow as error:
        # How much of the row is shown depends on how much was there.
        return rows, str(error).partition("; the row begins")[0]
    return rows, ""


def seeds() -> Sequence[bytes]:
    """Files of each form, short and long."""
    # The loops are compiled before any input is timed.
    with _few_are_many():
        for options, kinds, piece in product(OPTIONS, KINDS, PIECES[:7]):
            _read(piece, options, kinds, 1 << 20, at_once=True)
    return list(PIECES)


TARGET = Target(name="exports", seeds=seeds, check=check, pieces=PIECES)
