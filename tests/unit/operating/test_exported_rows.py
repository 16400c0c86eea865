"""The rows of an export as a side of a comparison, without a server."""

from __future__ import annotations

import threading
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from tempfile import gettempdir

import pytest

from storage_consumer.config.settings import DumpOptions, Upstream
from storage_consumer.downstream.reading import Pace
from storage_consumer.driver.copies import CopiedTable
from storage_consumer.errors import Abandoned, FilesMissing
from storage_consumer.model import DdlKind, TableColumn, TableDefinition, TableName, TableVersion
from storage_consumer.operating.exported_rows import ExportedRows, Files
from storage_consumer.testing.storage import MemoryStorage
from storage_consumer.verifying.forms import form_of
from storage_consumer.verifying.layout import SideColumn, SideLayout
from storage_consumer.verifying.side import ColumnShape, KeyRange, TableShape

PATH = "shop.t.000000000.sql"
NUMBERS = ("-12.50", "-0.05", "0.00", "0.50", "3.00", "12345678901234567890123456789012345.25")
WIDE = "ä" * 200


def column(name: str, kind: str, column_type: str = "") -> SideColumn:
    """A compared column."""
    shape = ColumnShape(name=name, data_type=kind, column_type=column_type or kind, charset="utf8mb4")
    return SideColumn(
        name=name, form=form_of(shape, "mysql"), literal="number" if kind in ("decimal", "int") else "text"
    )


def side(storage: MemoryStorage, stop: threading.Event | None = None) -> ExportedRows:
    """A table of one file with a DECIMAL and a text."""
    columns = (
        TableColumn(name="n", type="DECIMAL", precision=65, scale=2, is_pk=True),
        TableColumn(name="v", type="TEXT"),
    )
    definition = TableDefinition(
        name=TableName(schema="shop", table="t"),
        version=TableVersion(5),
        query="",
        ddl_type=DdlKind.CREATE_TABLE,
        columns=columns,
        path="shop.t-schema.sql",
        checksum=0,
    )
    origin = Upstream(scheme="file", root="/full", protocol="dump-sql", dump=replace(DumpOptions(), file_format="sql"))
    (part,) = storage.listing(frozenset(), {})
    found = ExportedRows(
        CopiedTable(definition=definition, parts=(part,)),
        TableShape(kind="export", columns=()),
        Files(origin, storage, Pace(), stop or threading.Event()),
    )
    found.layout = SideLayout(columns=(column("n", "decimal", "decimal(65,2)"), column("v", "text")), key=(0,))
    return found


@pytest.fixture
def storage() -> MemoryStorage:
    """An export whose rows are in no order."""
    rows = ",\n".join(f"({number},'{WIDE if number == '3.00' else number}')" for number in reversed(NUMBERS))
    return MemoryStorage({PATH: f"INSERT INTO `t` VALUES\n{rows};\n".encode()})


def test_keys_are_in_the_order_of_their_values(storage: MemoryStorage) -> None:
    """Numbers of any size and sign sort as numbers; each range has the rows between its borders, the upper one among them."""
    found = side(storage)
    keys = [found.boundary(KeyRange(), place) for place in range(1, len(NUMBERS) + 1)]
    assert [Decimal(key[0].decode()) for key in keys if key] == [Decimal(number) for number in NUMBERS]
    assert found.boundary(KeyRange(), len(NUMBERS) + 1) is None
    middle = KeyRange(above=((b"-12.50",),), upto=((b"0.50",), (b"3.00",)))
    assert sorted(row[0] or b"" for row in found.rows(middle)) == [b"-0.05", b"0.00", b"0.50"]
    assert found.chunk(middle).rows == 3
    assert [row[0] for row in found.rows_at([(b"3.00",), (b"4.00",)])] == [b"3.00"]
    assert found.count() == len(NUMBERS)
    found.close()


def test_digests_of_ranges_add_up(storage: MemoryStorage) -> None:
    """The sums of two halves make those of the whole, and another value makes others."""
    found = side(storage)
    halves = [found.chunk(each) for each in (KeyRange(upto=((b"0.00",),)), KeyRange(above=((b"0.00",),)))]
    whole = found.chunk(KeyRange())
    assert tuple(one ^ two for one, two in zip(halves[0].sums, halves[1].sums, strict=True)) == whole.sums
    assert sum(each.rows for each in found.buckets().values()) == len(NUMBERS)
    found.close()
    storage.put(PATH, storage.read(PATH, 1 << 20).replace(b"'0.50'", b"'0.51'"))
    other = side(storage)
    assert other.chunk(KeyRange()).sums != whole.sums
    other.close()


def test_long_values_are_fetched_in_short(storage: MemoryStorage) -> None:
    """By their beginning, their length and their hash, as a server shows them."""
    found = side(storage)
    ((_, value),) = found.rows_at([(b"3.00",)])
    assert value is not None
    assert value.startswith(b"#" + ("ä" * 64).encode() + b"... 400 bytes, SHA-256 ")
    found.close()


def test_what_is_broken_off_leaves_nothing_behind(storage: MemoryStorage) -> None:
    """Reading ends once the event is set; neither that nor a file that is replaced meanwhile leaves a folder."""
    stop = threading.Event()
    stop.set()
    broken, changed = side(storage, stop), side(storage)
    before = set(Path(gettempdir()).glob("storage-consumer-verify-*"))
    with pytest.raises(Abandoned):
        broken.count()
    storage.put(PATH, storage.read(PATH, 1 << 20))
    with pytest.raises(FilesMissing, match="was removed or replaced meanwhile"):
        changed.count()
    for each in (broken, changed):
        each.close()
    assert set(Path(gettempdir()).glob("storage-consumer-verify-*")) == before
