"""What the inventory makes of each layout: the older one, both side by side, unset separators, look-alike names."""

from __future__ import annotations

import pytest

from storage_consumer.config.settings import DateSeparator
from tests.unit.bucket.bucket import V1, V2, V3, Bucket, names


def test_older_layout() -> None:
    """Files of the older layout are found under their table and version; their schema files have no checksum (D12)."""
    bucket = Bucket(None)
    bucket.old(V1)
    bucket.data(f"{V1}", 1, width=6)
    bucket.data(f"{V1}/113", 1, width=6)
    bucket.put(f"shop/t/{V1}/CDC.index", b"CDC000001.csv\n")
    found = bucket.look(full=True)
    (schema,) = found.schema_files
    assert (schema.table_dir, schema.version, schema.checksum) == ("shop/t", V1, None)
    assert sorted((file.table_dir, file.version, file.partition or 0) for file in found.data_files) == [
        ("shop/t", V1, 0),
        ("shop/t", V1, 113),
    ]
    assert (found.ignored, found.contradictions) == ({}, [])
    bucket.old(V1)
    assert len(bucket.look().schema_files) == 1


def test_both_layouts_side_by_side() -> None:
    """After an upgrade each version is read by its own layout, and only those of the present one are judged by the settings (D12)."""
    bucket = Bucket("day")
    bucket.old(V1)
    bucket.data(f"{V1}", 1, width=6)
    bucket.schema(V2)
    bucket.data(f"{V2}/2024-01-01", 1)
    bucket.data(f"{V2}", 1)
    found = bucket.look(full=True)
    assert names(found) == [f"{V1}/CDC000001.csv", f"{V2}/2024-01-01/CDC00000000000000000001.csv"]
    assert found.contradictions == [f"shop/t/{V2}/CDC00000000000000000001.csv: contradicts date-separator"]


def test_old_versions_of_the_older_layout_are_closed_by_an_upgrade_only() -> None:
    """A changefeed that is started from an earlier point opens a lower version, so a higher one ends none; an upgrade ends all."""
    bucket = Bucket(None)
    for version in (V1, V2):
        bucket.old(version)
        bucket.data(f"{version}", 1, width=6)
    bucket.look(full=True)
    assert bucket.inventory.closed == frozenset()
    bucket.schema(V3)
    bucket.look(checkpoint=V3 - 1)
    assert bucket.inventory.closed == frozenset()
    bucket.look(checkpoint=V3)
    assert bucket.inventory.closed == {f"shop/t/{V1}", f"shop/t/{V2}"}


def test_marks_in_the_older_layout() -> None:
    """Once the checkpoint has passed a version, its files are left out up to shortly before the newest."""
    bucket = Bucket(None)
    bucket.old(V1)
    bucket.data(f"{V1}", *range(1, 101), width=6)
    bucket.look(full=True, checkpoint=V1)
    assert bucket.inventory.after == {}
    bucket.look(checkpoint=V1 + 1)
    assert bucket.inventory.after == {f"shop/t/{V1}": "CDC000092.csv"}
    assert len(list(bucket.listing(bucket.inventory.closed, bucket.inventory.after))) == 9
    bucket.data(f"{V1}", 101, width=6)
    assert names(bucket.look()) == [f"{V1}/CDC000101.csv"]


def test_upgrade_within_a_version() -> None:
    """Where the upgraded TiCDC goes on in a directory of the older layout, its longer names sort lower, and are found at once."""
    bucket = Bucket(None)
    bucket.old(V1)
    bucket.data(f"{V1}", *range(1, 101), width=6)
    bucket.look(full=True)
    assert bucket.inventory.after
    bucket.schema(V1)
    bucket.data(f"{V1}", 101)
    first = bucket.look()
    assert first.moved
    assert names(first) + names(bucket.look()) == [f"{V1}/CDC00000000000000000101.csv"]
    assert bucket.inventory.after == {}


def test_dates_of_several_separators() -> None:
    """Where date-separator was changed, the newest two dates of each stay open: a month may go on after its days."""
    bucket = Bucket(None)
    bucket.schema(V1)
    for date in ("2024-12-28", "2024-12-29", "2024-12-30", "2024-12", "2024-11"):
        bucket.data(f"{V1}/7/{date}", 1)
    bucket.look(full=True)
    assert bucket.inventory.closed == {f"shop/t/{V1}/7/2024-12-28"}
    bucket.data(f"{V1}/7/2024-12", 2)
    assert names(bucket.look()) == [f"{V1}/7/2024-12/CDC00000000000000000002.csv"]


@pytest.mark.parametrize(("date", "closed"), [(None, set()), ("year", {f"shop/t/{V1}/2023"})])
def test_years_that_may_be_partitions_stay_open(date: DateSeparator | None, closed: set[str]) -> None:
    """A directory of four digits is done with as an old year only where a setting says that it is one."""
    bucket = Bucket(date)
    bucket.schema(V1)
    for year in (2023, 2024, 2025):
        bucket.data(f"{V1}/{year}", *range(1, 30))
    bucket.look(full=True)
    assert bucket.inventory.closed == closed
    assert len(bucket.inventory.after) == 3 - len(closed)


def test_table_below_a_closed_version() -> None:
    """A version in whose directory another table lies is never left out as a whole."""
    bucket = Bucket(None)
    bucket.schema(V1)
    bucket.data(f"{V1}", 1)
    bucket.schema(V2)
    bucket.schema(V2, table=f"shop/t/{V1}")
    bucket.look(full=True)
    assert bucket.inventory.closed == frozenset()
    bucket.data(f"{V1}/{V2}", 1)
    (file,) = bucket.look().data_files
    assert (file.table_dir, file.version) == (f"shop/t/{V1}", V2)


def test_schema_called_metadata() -> None:
    """On object storage the checkpoint and the tables of a schema called metadata lie side by side."""
    bucket = Bucket(None)
    bucket.put("metadata", b"{}")
    bucket.put(f"metadata/meta/schema_{V1}_0000000001.json", b"{}")
    bucket.schema(V1, table="metadata/metadata")
    bucket.put(f"metadata/metadata/{V1}/CDC000001.csv", b"rows")
    found = bucket.look(full=True)
    assert [file.table_dir for file in found.schema_files] == ["metadata", "metadata/metadata"]
    assert [file.table_dir for file in found.data_files] == ["metadata/metadata"]


def test_names_that_differ_by_case() -> None:
    """Directories that differ by case only are directories of their own."""
    bucket = Bucket(None)
    for table in ("shop/T", "Shop/t", "shop/t"):
        bucket.schema(V1, table=table)
        bucket.put(f"{table}/{V1}/CDC000001.csv", b"rows")
    assert [file.table_dir for file in bucket.look(full=True).data_files] == ["Shop/t", "shop/T", "shop/t"]


def test_dispatchers_and_widths_of_one_directory() -> None:
    """Several dispatchers, and several index widths, are sequences of their own in one directory (U10)."""
    bucket = Bucket(None)
    bucket.schema(V1, table="104")
    for name in ("CDC_12_000001", "CDC_34_000001", "CDC_34_00000000000000000002", "CDC000000001"):
        bucket.put(f"104/{V1}/{name}.csv", b"rows")
    found = bucket.look(full=True)
    assert len({file.sequence for file in found.data_files}) == 4
    assert {(file.dispatcher, file.number, file.width) for file in found.data_files} == {
        ("12", 1, 6),
        ("34", 1, 6),
        ("34", 2, 20),
        ("", 1, 9),
    }


def test_marks_of_dispatchers() -> None:
    """Each dispatcher's files are left out up to shortly before its newest; a new dispatcher is found wherever it sorts."""
    bucket = Bucket(None)
    bucket.schema(V1)
    folder = f"shop/t/{V1}"
    for dispatcher in ("300", "500"):
        for number in range(1, 101):
            bucket.put(f"{folder}/CDC_{dispatcher}_{number:020d}.csv", b"rows")
    bucket.look(full=True)
    assert bucket.inventory.after == {
        f"{folder}/CDC_{dispatcher}_": f"CDC_{dispatcher}_00000000000000000092.csv" for dispatcher in ("300", "500")
    }
    assert len(list(bucket.listing(bucket.inventory.closed, bucket.inventory.after))) == 17
    new = [f"{folder}/CDC{middle}00000000000000000001.csv" for middle in ("", "_100_", "_400_", "_900_")]
    for path in (*new, f"{folder}/CDC_300_00000000000000000101.csv"):
        bucket.put(path, b"rows")
    assert len(bucket.look().data_files) == 5


@pytest.mark.parametrize("width", [6, 19])
def test_no_marks_of_dispatchers_where_a_wider_name_could_sort_below(width: int) -> None:
    """A dispatcher with fewer digits than the most, or with several widths, is listed in full."""
    bucket = Bucket(None)
    bucket.schema(V1)
    for number in range(1, 51):
        bucket.put(f"shop/t/{V1}/CDC_7_{number:0{width}d}.csv", b"rows")
    bucket.look(full=True)
    for number in range(51, 101):
        bucket.put(f"shop/t/{V1}/CDC_7_{number:020d}.csv", b"rows")
    assert len(bucket.look().data_files) == 50
    assert bucket.inventory.after == {}
