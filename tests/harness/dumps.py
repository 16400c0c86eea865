"""Exports that real Dumpling wrote, with the rows that they hold."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import shutil
import struct
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from storage_consumer.bucket.export import Export, ExportTable, read_export
from storage_consumer.bucket.storage import Storage
from storage_consumer.bucket.stores.local import LocalStorage
from storage_consumer.config.settings import Compression, DumpOptions
from storage_consumer.decode.decoder import FileRead, RowLayout, Tally
from storage_consumer.decode.export_files import ExportDecoder
from storage_consumer.decode.values import BINARY_TYPES, FLOAT_TYPES, INTEGER_TYPES
from storage_consumer.model import CommitRange, TableColumn, TableName, folded_name
from tests.harness.corpora import FIXTURES

_NAMES: dict[str, str] = {
    "--csv-separator": "separator",
    "--csv-delimiter": "delimiter",
    "--csv-null-value": "null",
    "--csv-line-terminator": "terminator",
}
_DIALECTS = {"snowflake": "hex", "redshift": "hex", "bigquery": "base64"}
ARCHIVE = FIXTURES / "exports" / "dumpling.txz"
_EXACT_FLOAT = 1e15
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Dump:
    """One export of the recorded ones."""

    folder: Path

    def __str__(self) -> str:
        """The workload and the variant."""
        return f"{self.folder.parent.name}/{self.folder.name}"

    @cached_property
    def about(self) -> dict[str, Any]:
        """What was recorded of it."""
        found: dict[str, Any] = json.loads((self.folder / "about.json").read_text())
        return found

    @property
    def storage(self) -> Storage:
        """What Dumpling wrote."""
        return LocalStorage(str(self.folder / "dump"))

    @property
    def golden(self) -> Path:
        """Folder of the rows at the snapshot."""
        return self.folder / "golden" / str(self.about["golden_at"])

    @property
    def command(self) -> list[tuple[str, str]]:
        """The options of the command, with their values."""
        words, found = self.about["command"][1:], []
        while words:
            name, has_value, value = words.pop(0).partition("=")
            if not has_value and words and not words[0].startswith("-"):
                value = words.pop(0)
            found.append((name, value))
        return found

    @property
    def options(self) -> DumpOptions:
        """What whoever exported knows of the form."""
        given = dict(self.command)
        texts = {field: given[name] for name, field in _NAMES.items() if name in given}
        compression: Compression = given.get("--compress", "")  # type: ignore[assignment] # one of them
        return DumpOptions(
            file_format=given.get("--filetype", "sql"),  # type: ignore[arg-type] # one of them
            zero_dates=given.get("--zero-dates") != "false",
            compression=compression,
            escape_backslash=given.get("--escape-backslash") != "false",
            header="--no-header" not in given,
            binary=_DIALECTS.get(given.get("--csv-output-dialect", ""), "raw"),  # type: ignore[arg-type] # one of them
            **texts,
        )

    @property
    def zone(self) -> str:
        """Zone of TIMESTAMP values; empty if it is UTC."""
        chosen = dict(self.command).get("--params", "").removeprefix("time_zone=")
        zone = str(chosen or self.about.get("session_time_zone_of_server", "UTC")).removesuffix(" (global)")
        return "" if zone in ("UTC", "+00:00", "SYSTEM") else zone

    def has_option(self, *names: str) -> bool:
        """Whether one of these options was given."""
        return not {name for name, _ in self.command}.isdisjoint(names)

    def read(self) -> Export:
        """What the program finds in it."""
        return read_export(self.storage)

    def expected(self) -> dict[TableName, tuple[list[dict[str, Any]], list[Row]]]:
        """Columns and rows of each table."""
        found = {}
        for table in json.loads((self.golden / "tables.json").read_text()):
            lines = (self.golden / table["file"]).read_bytes().splitlines() if table.get("file") else []
            name = TableName(schema=table["schema"], table=table["table"])
            found[name] = table["columns"], [tuple(json.loads(line)) for line in lines]
        return found


def available(scratch: Path) -> list[Dump]:
    """All exports below ``$STORAGE_CONSUMER_DUMPS``, else those of `fixtures/`, which are unpacked into `scratch`."""
    root = os.environ.get("STORAGE_CONSUMER_DUMPS")
    if not root:
        with tarfile.open(ARCHIVE) as tar:
            # Python 3.11.3 and older know no filter.
            tar.extraction_filter = getattr(tarfile, "data_filter", None)
            tar.extractall(scratch)  # noqa: S202 - an archive of this repository
    return [Dump(path.parent) for path in sorted(Path(root or scratch).rglob("about.json"))]


def layout_of(table: ExportTable, zone: str) -> RowLayout:
    """The columns of a table's rows."""
    return RowLayout(table=table.name, columns=table.carried, zone=zone)


def rows_of(dump: Dump, table: ExportTable, *, block: int = 1 << 20) -> Iterator[Row]:
    """Decode the rows of a table one by one, read in blocks of this size."""
    decoder, layout = ExportDecoder(dump.options), layout_of(table, dump.zone)
    for part in table.parts:
        tally = Tally()
        file = FileRead(
            blocks=dump.storage.blocks(part.path, block),
            source=part.path,
            layout=layout,
            commit_range=CommitRange(low=0, high=2**63),
            tally=tally,
        )
        for _, _, _, values, _ in decoder.rows(file):
            yield values


_YEARS_2000 = timedelta(days=5 * 146_097)
"""From the year 0, which Python lacks, to 2000: five times the calendar's 400 years."""


def _micros(text: str) -> int | None:
    """A moment as Go's `time.Parse` reads it, in microseconds as if it were UTC; None for what is none."""
    shift = _YEARS_2000 if text.startswith("0000") else timedelta()
    try:
        moment = datetime.fromisoformat(text.replace("0000", "2000", 1) if shift else text).replace(tzinfo=UTC)
    except ValueError:
        return None
    return (moment - datetime(1970, 1, 1, tzinfo=UTC) - shift) // timedelta(microseconds=1)


def _in_parquet(column: TableColumn, texts: Sequence[str | None], *, cloud: bool) -> pa.Array:
    """A column as Dumpling writes it, in its pkg/dumpformat/parquetfile, or in TiDB Cloud's own."""
    digits, scale = column.precision or 0, column.scale or 0
    make, kind = cast("tuple[Callable[[str], Any], pa.DataType]", (str, pa.string()))
    if column.type in ("DATETIME", "TIMESTAMP"):
        make, kind = _micros, pa.timestamp("us")
    elif column.type == "BIT":
        make, kind = lambda text: int(text).to_bytes((digits + 7) // 8, "big"), pa.binary()
    elif column.type in BINARY_TYPES:
        make, kind = bytes.fromhex, pa.binary()
    elif column.type == "BIGINT" and column.unsigned:
        make, kind = Decimal, pa.decimal128(20, 0)
    elif column.type in INTEGER_TYPES | {"YEAR"}:
        is_long = column.type == "BIGINT" or (column.type == "INT" and column.unsigned)
        make, kind = int, pa.int64() if is_long else pa.int32()
    elif column.type == "DECIMAL" and digits <= (18 if cloud else 38):
        make, kind = Decimal, pa.decimal128(digits, scale)
    elif column.type in FLOAT_TYPES:
        make, kind = float, pa.float32() if cloud and column.type == "FLOAT" else pa.float64()
    return pa.array([None if text is None else make(text) for text in texts], kind)


def as_parquet(dump: Dump, folder: Path, *, cloud: bool = False) -> Dump:
    """Write an export's rows again as Parquet, as an export with the same truth; `cloud`: as TiDB Cloud does."""
    shutil.copytree(dump.folder, folder)
    found = Dump(folder)
    export, decoder = found.read(), ExportDecoder(found.options)
    for table in export.tables:
        layout = layout_of(table, "")
        for part in table.parts:
            written = found.folder / "dump" / part.path
            file = FileRead(
                blocks=[written.read_bytes()],
                source=part.path,
                layout=layout,
                commit_range=CommitRange(low=0, high=2**63),
            )
            columns = zip(*(values for _, _, _, values, _ in decoder.rows(file)), strict=True)
            arrays = [
                _in_parquet(column, texts, cloud=cloud) for column, texts in zip(layout.columns, columns, strict=True)
            ]
            written.unlink()
            pq.write_table(
                pa.table(arrays, [column.name for column in layout.columns]),
                written.with_name(
                    re.sub(r"\.(sql|csv)(\.\w+)?$", ".parquet" if cloud else ".zst.parquet", written.name)
                ),
                row_group_size=7,
                compression="snappy" if cloud else "zstd",
                store_schema=False,
                store_decimal_as_integer=True,
            )
    for written in (found.folder / "dump").glob("*.sql.gz"):
        written.with_suffix("").write_bytes(gzip.decompress(written.read_bytes()))
        written.unlink()
    kept = [word for name, value in dump.command if name == "--params" for word in (name, value)]
    about = dump.about | {"command": ["dumpling", "--filetype", "parquet", "--zero-dates", "false", *kept]}
    (folder / "about.json").write_text(json.dumps(about))
    return Dump(folder)


def canonical(column: TableColumn, value: Any) -> Any:
    """A value of the golden, or a wire text, in one form."""
    if value is None:
        return None
    if isinstance(value, dict):
        content = base64.b64decode(value["b64"])
        return int.from_bytes(content, "big") if column.type == "BIT" else content
    if column.type == "BIT":
        return int(value)
    if column.type in BINARY_TYPES:
        return bytes.fromhex(value)
    if column.type in FLOAT_TYPES:
        number = float(value)
        if column.type == "FLOAT":
            number = struct.unpack("f", struct.pack("f", number))[0]
            number = float(f"{number:.5e}") if abs(number) >= _EXACT_FLOAT else number
        return number + 0.0
    if column.type == "DECIMAL":
        return Decimal(value)
    if column.type in ("DATETIME", "TIMESTAMP") and "." in value:
        return value.rstrip("0").rstrip(".")
    return value


def differences(dump: Dump, export: Export, *, block: int = 1 << 20) -> list[str]:
    """Where the rows of an export are not those of the golden."""
    found = []
    expected = dump.expected()
    for table in export.tables:
        columns, rows = expected[table.name]
        layout = layout_of(table, dump.zone)
        carried = {folded_name(column.name) for column in table.carried}
        places = [i for i, c in enumerate(columns) if folded_name(c["name"]) in carried]
        wanted = Counter(
            tuple(canonical(c, row[place]) for place, c in zip(places, layout.columns, strict=True)) for row in rows
        )
        got = Counter(
            tuple(canonical(c, value) for c, value in zip(layout.columns, row, strict=True))
            for row in rows_of(dump, table, block=block)
        )
        if got != wanted:
            found.append(f"{table.name}: lacks {list(wanted - got)[:2]!r}, has {list(got - wanted)[:2]!r}"[:600])
    return found
