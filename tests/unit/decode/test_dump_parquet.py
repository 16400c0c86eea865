"""Exports as Parquet: what Dumpling cannot have meant, or did not keep, is refused by the column's name."""

from __future__ import annotations

import gzip
import io
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage_consumer.config.settings import Compression, DumpOptions
from storage_consumer.decode.decoder import FileRead, RowChange, RowLayout
from storage_consumer.decode.export_files import ExportDecoder
from storage_consumer.errors import UndecodableRow
from storage_consumer.model import CommitRange, TableColumn, TableName

MOMENT = pa.timestamp("us")
PRICE = TableColumn(name="c", type="DECIMAL", precision=9, scale=2)


def parquet(*columns: pa.Array, names: tuple[str, ...] = ("id", "c"), **options: Any) -> bytes:
    """A file."""
    written = io.BytesIO()
    pq.write_table(pa.table(columns, list(names)), written, store_schema=False, **options)
    return written.getvalue()


def nameless(content: bytes) -> bytes:
    """The file without the name of its writer, the last text of its index."""
    begin = content.rindex(b"parquet-cpp-arrow")
    end = begin + content[begin - 1]
    index = int.from_bytes(content[-8:-4], "little") - (end - begin)
    return content[: begin - 1] + b"\0" + content[end:-8] + index.to_bytes(4, "little") + b"PAR1"


def read(content: bytes, column: TableColumn, *, low: int = 0, compression: Compression = "") -> list[RowChange]:
    """The changes of a file with a whole number and another column, in blocks of few bytes."""
    key = TableColumn(name="id", type="BIGINT", is_pk=True, nullable=False)
    file = FileRead(
        blocks=[content[at : at + 100] for at in range(0, len(content), 100)],
        source="shop.t.000000000.parquet",
        layout=RowLayout(table=TableName(schema="shop", table="t"), columns=(key, column)),
        commit_range=CommitRange(low=low, high=2**63),
        clock=1000,
    )
    return list(ExportDecoder(DumpOptions(file_format="parquet", compression=compression)).rows(file))


def test_rows_are_numbered_over_row_groups() -> None:
    """Each row has its number as its commit-ts: what an earlier try wrote is passed over, wherever a group ends."""
    content = parquet(pa.array(range(10)), pa.array([f"v{n}" for n in range(10)]), row_group_size=3)
    text = TableColumn(name="c", type="VARCHAR")
    found = read(content, text, low=1004)
    assert [(number, ts, values) for number, ts, _, values, _ in found] == [
        (number, 1000 + number, (str(number - 1), f"v{number - 1}")) for number in range(5, 11)
    ]
    assert read(gzip.compress(content), text, low=1004, compression="gzip") == found


def test_columns_by_name() -> None:
    """Columns are told by their names, whatever their order."""
    content = parquet(pa.array(['a,"\\\r\n\0', None]), pa.array([1, 2]), names=("C", "ID"))
    assert [values for *_, values, _ in read(content, TableColumn(name="c", type="TEXT"))] == [
        ("1", 'a,"\\\r\n\0'),
        ("2", None),
    ]


@pytest.mark.parametrize(
    ("column", "values", "reason"),
    [
        (
            TableColumn(name="c", type="DATETIME", nullable=False),
            pa.array([None], MOMENT),
            r"column c has NULL in place of dates .*; export with --filetype sql or csv",
        ),
        (TableColumn(name="c", type="DATETIME"), pa.array([1], pa.timestamp("us", "UTC")), "column c: .*neither NULL"),
        (TableColumn(name="c", type="DATETIME"), pa.array([1]), "column c: .*neither NULL nor a text"),
        (TableColumn(name="c", type="INT"), pa.array(["x"]), "column c: 'x' does not have the form"),
        (TableColumn(name="c", type="TEXT"), pa.array([b"\xff"]), "column c: it is not UTF-8"),
        (TableColumn(name="c", type="TEXT"), pa.array([["x"]]), "copy it again"),
        (PRICE, pa.array([1.5]), "column c is a DECIMAL, but double in the file"),
        (TableColumn(name="d", type="INT"), pa.array([1]), "the file names the columns id, c, but shop.t has id, d"),
    ],
)
def test_refused(column: TableColumn, values: pa.Array, reason: str) -> None:
    """A value that the column's type does not have in Dumpling's files is not guessed at."""
    with pytest.raises(UndecodableRow, match=rf"shop\.t\.000000000\.parquet: .*{reason}"):
        read(parquet(pa.array([1]), values), column)


def test_decimals_of_tidb_clouds_first_writer() -> None:
    """It cut some off by one, as 561.91 to 561.90, and named no writer; one digit behind the point is exact."""
    content = parquet(pa.array([1]), pa.array([Decimal("561.91")], pa.decimal128(9, 2)), store_decimal_as_integer=True)
    assert read(content, PRICE)[0][3] == ("1", "561.91")
    with pytest.raises(UndecodableRow, match="column c may be off by one in the last digit"):
        read(nameless(content), PRICE)
    tenths = parquet(pa.array([1]), pa.array([Decimal("561.9")], pa.decimal128(9, 1)), store_decimal_as_integer=True)
    assert read(nameless(tenths), TableColumn(name="c", type="DECIMAL", precision=9, scale=1))[0][3] == ("1", "561.9")


def test_damaged() -> None:
    """A file that was cut or changed is told by its name, wherever the damage is."""
    content = parquet(pa.array(range(1000)), pa.array([f"v{n}" for n in range(1000)]))
    text = TableColumn(name="c", type="TEXT")
    for damaged in (content[:-1], content[:100], content[:200] + bytes(100) + content[300:], b"PAR1"):
        with pytest.raises(UndecodableRow, match=r"shop\.t\.000000000\.parquet"):
            assert len(read(damaged, text)) == -1
