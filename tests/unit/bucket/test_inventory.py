"""What the inventory finds new, and what it lets the next listing leave out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from storage_consumer.bucket.inventory import Earlier, shortened
from storage_consumer.bucket.paths import EMPTY
from storage_consumer.config.settings import DateSeparator
from storage_consumer.errors import StorageUnavailable
from storage_consumer.model import StoredObject, sequence_name
from storage_consumer.plan.finished_files import FileVerdict, Finished
from tests.unit.bucket.bucket import NOW, V1, V2, V3, Bucket, names


def test_three_tables_of_two_versions() -> None:
    """A first listing finds exactly the files that are there, a second one finds nothing."""
    bucket = Bucket()
    for table in ("shop/a", "shop/b", "shop/meta"):
        for version in (V1, V2):
            bucket.schema(version, table=table)
            bucket.put(f"{table}/{version}/CDC000001.csv", b"rows")
            bucket.put(f"{table}/{version}/meta/CDC.index", b"CDC000001.csv\n")
    found = bucket.look(full=True)
    assert (len(found.schema_files), len(found.data_files), found.ignored) == (6, 6, {})
    again = bucket.look(full=True)
    assert (again.schema_files, again.data_files, again.vanished) == ((), (), ())


def test_new_file() -> None:
    """A file that is added between two listings is new in the second only."""
    bucket = Bucket()
    bucket.schema(V1)
    bucket.data(f"{V1}", 1)
    assert names(bucket.look(full=True)) == [f"{V1}/CDC00000000000000000001.csv"]
    bucket.data(f"{V1}", 2)
    assert names(bucket.look()) == [f"{V1}/CDC00000000000000000002.csv"]
    assert names(bucket.look()) == []


def test_changed_content() -> None:
    """Other content under a known name is found again, and counted."""
    bucket = Bucket()
    bucket.schema(V1)
    bucket.data(f"{V1}", *range(1, 30))
    bucket.look(full=True)
    bucket.data(f"{V1}", 29)
    found = bucket.look()
    assert (names(found), found.changed) == ([f"{V1}/CDC00000000000000000029.csv"], 1)
    assert bucket.look().changed == 0


def test_vanished_files_are_reported_after_a_full_listing_only() -> None:
    """A file that is gone is told once, by the next full listing, and new again if it returns."""
    bucket = Bucket("day")
    bucket.schema(V1)
    bucket.data(f"{V1}/2024-01-01", 1, 2)
    bucket.look(full=True)
    bucket.delete(f"shop/t/{V1}/2024-01-01/CDC00000000000000000001.csv")
    assert bucket.look().vanished == ()
    (gone,) = bucket.look(full=True).vanished
    assert (gone.number, gone.date, gone.stored.size) == (1, "2024-01-01", 0)
    assert bucket.look(full=True).vanished == ()
    bucket.data(f"{V1}/2024-01-01", 1)
    assert len(names(bucket.look())) == 1


def test_broken_listing() -> None:
    """What a listing showed before it broke off is returned by the next one, once, and nothing counts as vanished."""
    bucket = Bucket()
    bucket.schema(V1)
    bucket.data(f"{V1}", 1)
    bucket.look(full=True)
    bucket.data(f"{V1}", 2, 3)

    def broken() -> Iterator[StoredObject]:
        yield from list(bucket.listing(frozenset(), {}))[:2]
        raise StorageUnavailable

    with pytest.raises(StorageUnavailable):
        bucket.inventory.observe(broken(), full=True, checkpoint=NOW)
    found = bucket.look(full=True)
    assert [file.number for file in found.data_files] == [2, 3]
    assert found.vanished == ()


def test_empty_objects_wait() -> None:
    """An empty data or schema file is counted, and found once it has content."""
    bucket = Bucket()
    bucket.schema(V1, content=b"")
    bucket.put(f"shop/t/{V1}/CDC000001.csv", b"")
    found = bucket.look(full=True)
    assert (found.schema_files, found.data_files, found.ignored) == ((), (), {EMPTY: 2})
    bucket.schema(V1)
    bucket.data(f"{V1}", 1, width=6)
    found = bucket.look()
    assert (len(found.schema_files), len(found.data_files), found.changed) == (1, 1, 0)


def test_residue_is_counted_by_reason() -> None:
    """Residue is counted by reason as of the last full listing, and never handed out."""
    bucket = Bucket()
    bucket.put(f"shop/t/{V1}/CDC000001.csv.tmp.77", b"half")
    bucket.put("notes.txt", b"hello")
    found = bucket.look(full=True)
    assert found.ignored == {"unfinished upload (.tmp)": 1, "unknown path": 1}
    bucket.put("more.txt", b"hello")
    assert bucket.look().ignored == found.ignored
    assert bucket.look(full=True).ignored["unknown path"] == 2


def test_contradictions() -> None:
    """Files of another protocol or date separator are not handed out but named, a few of many."""
    bucket = Bucket()
    bucket.schema(V1)
    bucket.put(f"shop/t/{V1}/CDC000001.json", b"{}")
    for day in range(10, 30):
        bucket.data(f"{V1}/2024-01-{day}", 1)
    found = bucket.look(full=True)
    assert found.data_files == ()
    assert shortened(found.contradictions)[10:] == ("and 11 more",)
    assert any("date-separator" in text for text in found.contradictions)


def test_file_before_its_schema_file() -> None:
    """A file whose table has no schema file yet is handed out under the likeliest table, once."""
    bucket = Bucket("day")
    bucket.data(f"{V1}/2024-01-01", 1)
    (guessed,) = bucket.look(full=True).data_files
    assert (guessed.table_dir, guessed.version) == ("shop/t", V1)
    bucket.schema(V1)
    found = bucket.look()
    assert (len(found.schema_files), found.data_files, found.moved) == (1, (), False)


def test_file_of_another_table_than_guessed() -> None:
    """A file that was handed out under the wrong table is handed out again once the schema file shows the right one."""
    bucket = Bucket()
    bucket.put("a/1/2/CDC000001.csv", b"rows")
    (guessed,) = bucket.look(full=True).data_files
    assert (guessed.table_dir, guessed.version, guessed.partition) == ("a", 1, 2)
    bucket.schema(2, table="a/1")
    assert bucket.look().moved
    (right,) = bucket.look().data_files
    assert (right.table_dir, right.version, right.partition) == ("a/1", 2, None)


def test_sequences_that_outgrow_their_width() -> None:
    """A number without leading zeros continues the sequence that has grown so far."""
    bucket = Bucket()
    bucket.schema(V1)
    for name in ("CDC999999", "CDC0999999"):
        bucket.put(f"shop/t/{V1}/{name}.csv", b"rows")
    bucket.look(full=True)
    bucket.put(f"shop/t/{V1}/CDC1000000.csv", b"rows")
    (file,) = bucket.look().data_files
    assert (file.number, file.width) == (1000000, 7)


def test_old_dates_are_closed() -> None:
    """All but the newest two dates of a version and partition are closed, unless a number is missing there."""
    bucket = Bucket("day")
    bucket.schema(V1)
    for date in ("2024-01-01", "2024-01-02", "2024-01-05", "2024-01-09"):
        bucket.data(f"{V1}/7/{date}", 1, 2)
    bucket.data(f"{V1}/8/2024-01-01", 1)
    bucket.data(f"{V1}/7/2024-01-02", 4)
    bucket.look(full=True)
    assert bucket.inventory.closed == {f"shop/t/{V1}/7/2024-01-01"}
    bucket.data(f"{V1}/7/2024-01-02", 3)
    assert names(bucket.look()) == [f"{V1}/7/2024-01-02/CDC00000000000000000003.csv"]
    assert f"shop/t/{V1}/7/2024-01-02" in bucket.inventory.closed


@pytest.mark.parametrize(
    ("date", "days"),
    [
        ("day", ("2024-04-07", "2024-04-08", "2024-04-09", "2024-04-11", "2099-01-01", "2099-01-02")),
        ("month", ("2024-01", "2024-02", "2024-03", "2024-04", "2099-01", "2099-02")),
        ("year", ("2021", "2022", "2023", "2024", "2099", "2100")),
    ],
)
def test_dates_of_a_wrong_clock_close_nothing(date: DateSeparator, days: tuple[str, ...]) -> None:
    """Directories of the checkpoint's date, 2024-04-11, and of shortly before and after stay open beside ones of a far future."""
    bucket = Bucket(date, partition_separator=True)
    bucket.schema(V1)
    for day in days:
        bucket.data(f"{V1}/{day}", 1)
    bucket.look(full=True, checkpoint=V1 + 5)
    still = 2 if date == "day" else 3
    assert bucket.inventory.closed == {f"shop/t/{V1}/{day}" for day in days[:still]}
    year_later = V1 + (365 * 86_400_000 << 18)
    bucket.look(checkpoint=year_later)
    assert bucket.inventory.closed == {f"shop/t/{V1}/{day}" for day in days[:4]}


def test_old_versions_are_closed() -> None:
    """A version is closed once one with the same columns follows it and the checkpoint has reached that one."""
    bucket = Bucket()
    for version, checksum in ((V1, 1), (V2, 2), (V3, 1)):
        bucket.schema(version, checksum)
        bucket.data(f"{version}", 1)
    bucket.look(full=True, checkpoint=V3 - 1)
    assert bucket.inventory.closed == frozenset()
    bucket.look(checkpoint=V3)
    assert bucket.inventory.closed == {f"shop/t/{V1}"}


def test_file_of_another_table_closes_nothing() -> None:
    """A schema file that was set apart, before or after others of its version, does not take the place of an older version."""
    bucket = Bucket()
    for version, checksum in ((V1, 1), (V2, 1)):
        bucket.schema(version, checksum)
        bucket.data(f"{version}", 1)
    found = bucket.look(full=True)
    assert bucket.inventory.closed == {f"shop/t/{V1}"}
    bucket.inventory.set_apart(next(file for file in found.schema_files if file.version == V2))
    assert bucket.inventory.closed == frozenset()
    bucket.schema(V2, 2)
    bucket.look()
    assert bucket.inventory.closed == frozenset()
    bucket.schema(V3, 1)
    bucket.look()
    assert bucket.inventory.closed == {f"shop/t/{V1}"}


def test_marks() -> None:
    """Files are left out up to shortly before the newest, and never from a missing number on."""
    bucket = Bucket()
    bucket.schema(V1)
    bucket.data(f"{V1}", *range(1, 101))
    bucket.look(full=True)
    assert bucket.inventory.after == {f"shop/t/{V1}": "CDC00000000000000000092.csv"}
    bucket.data(f"{V1}", *range(102, 202))
    assert len(bucket.look().data_files) == 100
    assert bucket.inventory.after == {f"shop/t/{V1}": "CDC00000000000000000092.csv"}
    bucket.data(f"{V1}", 101)
    assert [file.number for file in bucket.look().data_files] == [101]


def test_no_marks_without_partition_directories() -> None:
    """With enable-partition-separator = false everything is listed: a slow partition writes a low number anew."""
    bucket = Bucket(partition_separator=False)
    bucket.schema(V1)
    bucket.data(f"{V1}", *range(1, 31))
    bucket.look(full=True)
    assert bucket.inventory.after == {}
    bucket.data(f"{V1}", 3)
    assert names(bucket.look()) == [f"{V1}/CDC00000000000000000003.csv"]


def test_no_marks_once_a_file_was_written_anew() -> None:
    """After one overwritten file, directories of that table without a partition have no mark; others keep theirs."""
    bucket = Bucket()
    bucket.schema(V1)
    bucket.schema(V2, 2)
    bucket.schema(V1, table="shop/u")
    for folder in (f"shop/t/{V1}", f"shop/t/{V2}", f"shop/t/{V2}/7", f"shop/u/{V1}"):
        for number in range(1, 31):
            bucket.put(f"{folder}/CDC{number:020d}.csv", b"rows")
    bucket.look(full=True)
    assert len(bucket.inventory.after) == 4
    bucket.data(f"{V1}", 29)
    found = bucket.look()
    assert (found.changed, found.overwritten) == (1, ())
    assert bucket.inventory.after.keys() == {f"shop/t/{V2}/7", f"shop/u/{V1}"}


def test_file_written_anew_below_a_mark() -> None:
    """A file that was written anew where listings left it out is told apart once a full listing shows it."""
    bucket = Bucket()
    bucket.schema(V1)
    bucket.data(f"{V1}", *range(1, 31))
    bucket.look(full=True)
    bucket.data(f"{V1}", 3)
    assert names(bucket.look()) == []
    found = bucket.look(full=True)
    assert [file.number for file in found.data_files] == [file.number for file in found.overwritten] == [3]
    assert bucket.look(full=True).overwritten == ()


def test_file_written_anew_in_a_closed_directory() -> None:
    """A change in a directory that TiCDC was done with is handed out by the next full listing, with a warning."""
    bucket = Bucket("day")
    bucket.schema(V1)
    for date in ("2024-01-01", "2024-01-02", "2024-01-03"):
        bucket.data(f"{V1}/{date}", 1)
    bucket.look(full=True)
    bucket.data(f"{V1}/2024-01-01", 1)
    found = bucket.look(full=True)
    assert (found.changed, found.overwritten) == (1, ())
    assert "2024-01-01/CDC00000000000000000001.csv appeared" in found.warnings[0]


@pytest.mark.parametrize("width", [6, 19])
def test_no_marks_where_a_wider_name_could_sort_below(width: int) -> None:
    """With fewer digits than the most, everything is listed: after a change of file-index-digit new names sort lower."""
    bucket = Bucket()
    bucket.schema(V1)
    bucket.data(f"{V1}", *range(1, 50), width=width)
    bucket.look(full=True)
    assert bucket.inventory.after == {}
    bucket.data(f"{V1}", 50, 51, width=20)
    assert len(bucket.look().data_files) == 2


def test_file_that_turns_up_late() -> None:
    """A file in a closed directory is handed out by the next full listing, with a warning that names it."""
    bucket = Bucket("day")
    bucket.schema(V1)
    for date in ("2024-01-01", "2024-01-02", "2024-01-03"):
        bucket.data(f"{V1}/{date}", 1)
    bucket.look(full=True)
    bucket.data(f"{V1}/2024-01-01", 2)
    assert bucket.look().data_files == ()
    found = bucket.look(full=True)
    assert names(found) == [f"{V1}/2024-01-01/CDC00000000000000000002.csv"]
    assert "2024-01-01/CDC00000000000000000002.csv appeared" in found.warnings[0]


def test_odd_numbers_take_no_memory() -> None:
    """A number far beyond the others is handed out, seen to vanish, and costs no memory for what lies between."""
    bucket = Bucket()
    bucket.schema(V1)
    bucket.data(f"{V1}", 1, 99_999_999_999_999, 10**18)
    assert len(bucket.look(full=True).data_files) == 3
    bucket.delete(f"shop/t/{V1}/CDC{10**18:020d}.csv")
    (gone,) = bucket.look(full=True).vanished
    assert gone.number == 10**18
    assert len(bucket.inventory) == 3


def test_schema_file_that_vanished() -> None:
    """A schema file that is gone is warned about, and read again if it returns."""
    bucket = Bucket()
    bucket.schema(V1)
    bucket.schema(V2, 2)
    bucket.look(full=True)
    bucket.delete(f"shop/t/meta/schema_{V1}_0000000001.json")
    assert "is gone" in bucket.look(full=True).warnings[0]
    bucket.schema(V1)
    assert len(bucket.look().schema_files) == 1


@pytest.mark.parametrize(("rereads", "verdict"), [(True, FileVerdict.NEW), (False, FileVerdict.UNSURE)])
def test_a_file_without_a_digest(rereads: bool, verdict: FileVerdict) -> None:  # noqa: FBT001 - a parameter of the test
    """It is read again, but where rows carry no commit-ts: there it counts as it is listed."""
    sequence = sequence_name("shop/a/5", "", 20)
    earlier = Earlier({sequence: Finished(upto=1)}, rereads=rereads)
    assert earlier.judge(sequence, 1, StoredObject(path="shop/a/5/x", size=1, tag="1")) is verdict
