"""One suite over the storage in memory, a folder, and the stores on a network; and what is particular to folders."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from storage_consumer.bucket.inventory import Findings, Inventory
from storage_consumer.bucket.reader import StorageReader
from storage_consumer.bucket.storage import Storage
from storage_consumer.bucket.stores import open_storage
from storage_consumer.config.settings import Secrets, Upstream
from storage_consumer.errors import ConfigError, StorageUnavailable
from tests.contract.rigs import LocalRig, MemoryRig, Rig, listed
from tests.harness.small_bucket import CREATE_TABLE, SchemaFile, schema_document
from tests.harness.twins.storage import FakeClock

V1, V2 = 449000000000000001, 449000000000000002
ODD_NAMES = ["é ü/😀", "100%/50% off", "we\"ird'one/q?x#y&z=1", "a+b/c d", "x*[1]/{y}", "back`tick/~"]


def test_listing(rig: Rig) -> None:
    """All objects are listed with path and size, at any depth."""
    rig.put("metadata", b"12345")
    rig.put("shop/t/1/CDC000001.csv", b"abc")
    assert {path: size for path, (size, _) in listed(rig.storage).items()} == {
        "metadata": 5,
        "shop/t/1/CDC000001.csv": 3,
    }


def test_times(rig: Rig) -> None:
    """An object has the time at which it was written, by a clock near to ours; the storage in memory has none unless it is given."""
    rig.put("shop/t/1/CDC000001.csv", b"abc")
    (stored,) = rig.storage.listing(frozenset(), {})
    assert stored.modified == pytest.approx(0.0 if isinstance(rig, MemoryRig) else time.time(), abs=120)


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names(rig: Rig, name: str) -> None:
    """Names arrive as they were written, and lead to their content."""
    rig.put(f"{name}/1/CDC000001.csv", b"abc")
    assert list(listed(rig.storage)) == [f"{name}/1/CDC000001.csv"]
    assert rig.storage.read(f"{name}/1/CDC000001.csv") == b"abc"


# The drivers give their HTTP library a whole file of an export at once; nothing else waits for the event loop meanwhile.
@pytest.mark.filterwarnings("ignore:Sending a large body directly with raw bytes:ResourceWarning")
def test_exports_are_written(rig: Rig) -> None:
    """What is put is listed and read, whole, in place of what was there; an empty folder is known from one that holds something."""
    assert rig.folder.any_object() is None
    rig.put("before", b"1")
    assert rig.folder.any_object() == next(rig.storage.listing(frozenset(), {}))
    for path, content in (
        ("metadata", b"12345"),
        ("a.b-schema.sql", b""),
        ("%2E ü.sql", bytes(range(256)) * 24_000),
        ("before", b"22"),
    ):
        rig.folder.put(path, content)
        assert listed(rig.storage)[path][0] == len(content)
        assert b"".join(rig.storage.blocks(path, 1 << 20)) == content
    assert sorted(listed(rig.storage)) == ["%2E ü.sql", "a.b-schema.sql", "before", "metadata"]


HOSTILE = ["meta", "metadata", "CDC000001", "2024-01-01", str(V1), "schema_1_2.json", "a/b", "é %41 '\"`;\n.", "T", "t"]


def look(storage: Storage, inventory: Inventory, *, full: bool = False) -> tuple[Findings, int]:
    """What a listing shows that is new, and how many objects it showed."""
    known = (frozenset[str](), dict[str, str]()) if full else (inventory.closed, inventory.after)
    shown = list(storage.listing(*known))
    return inventory.observe(shown, full=full, checkpoint=V2), len(shown)


@pytest.mark.parametrize("older", [False, True])
def test_hostile_table_names(rig: Rig, *, older: bool) -> None:
    """Tables whose names look like other parts of a path are told apart, in both layouts, on every storage."""
    folders = [f"names/{name}" for name in HOSTILE]
    for folder in folders:
        rig.put(f"{folder}/{V1}/schema.json" if older else f"{folder}/meta/schema_{V1}_0000000001.json", b"{}")
        rig.put(f"{folder}/{V1}/CDC000001.csv", b"rows")
        rig.put(f"{folder}/{V1}/113/2024-01-01/CDC000001.csv", b"rows")
    inventory = Inventory(None, partition_separator=None, extension="csv")
    found, _ = look(rig.storage, inventory, full=True)
    assert sorted(file.table_dir for file in found.schema_files) == sorted(folders)
    assert sorted(file.table_dir for file in found.data_files) == sorted(folders * 2)
    assert {(file.version, file.partition, file.date) for file in found.data_files} == {
        (V1, None, ""),
        (V1, 113, "2024-01-01"),
    }
    assert (found.ignored, found.contradictions) == ({}, [])


@pytest.mark.parametrize(
    ("schema_file", "name"),
    [
        (f"s/t/meta/schema_{V1}_0000000001.json", f"s/t/{V1}/CDC%020d.csv"),
        (f"104/meta/schema_{V1}_0000000001.json", f"104/{V1}/2024-01-01/CDC%020d.csv"),
        (f"s/t/meta/schema_{V1}_0000000001.json", f"s/t/{V1}/2024/CDC%020d.csv"),
        (f"s/t/{V1}/schema.json", f"s/t/{V1}/113/2024-01/CDC%06d.csv"),
        (f"s/t/meta/schema_{V1}_0000000001.json", f"s/t/{V1}/CDC_77_%020d.csv"),
    ],
    ids=["plain", "table ids", "year or partition", "older layout", "dispatchers"],
)
def test_what_a_listing_shows_follows_what_is_new(rig: Rig, schema_file: str, name: str) -> None:
    """While the files of an open directory grow ten times, a listing shows as many objects as before, in every layout."""
    rig.put(schema_file, b"{}")
    shown = []
    written = 0
    for files in (15, 150):
        while written < files:
            rig.put(name % (written := written + 1), b"x")
        inventory = Inventory(None, partition_separator=None, extension="csv")
        look(rig.storage, inventory, full=True)
        rig.put(name % (written := written + 1), b"x")
        found, objects = look(rig.storage, inventory)
        assert [file.number for file in found.data_files] == [files + 1]
        shown.append(objects)
    assert shown[0] == shown[1] <= 12


def test_new_objects_show_at_once(rig: Rig) -> None:
    """Nothing is remembered: what others write, replace and delete shows in the next listing and reading (O2)."""
    rig.put("a/1", b"abc")
    before = listed(rig.storage)["a/1"]
    assert rig.storage.read("a/1") == b"abc"
    rig.put("a/1", b"abcdef")
    rig.put("a/2", b"")
    after = listed(rig.storage)
    assert after["a/1"] != before
    assert after["a/1"][0] == 6
    assert after["a/2"][0] == 0
    assert rig.storage.read("a/1") == b"abcdef"
    rig.delete("a/1")
    assert list(listed(rig.storage)) == ["a/2"]


def test_replaced_after_it_was_listed(rig: Rig) -> None:
    """What is read is what is there now, whatever a listing or an earlier answer said of its size or absence (O3, O4)."""
    rig.put("a/1", b"abc")
    assert [size for size, _ in listed(rig.storage).values()] == [3]
    for path in ("a/1", "a/2"):
        if path == "a/2":
            with pytest.raises(FileNotFoundError):
                rig.storage.read(path)
        rig.put(path, b"abcdefgh")
        assert rig.storage.read(path) == b"abcdefgh"
        rig.put(path, b"x")
        assert b"".join(rig.storage.blocks(path, 1000)) == b"x"


def test_tag_follows_content(rig: Rig) -> None:
    """The tag stays while the object does, and changes with its content even at the same size."""
    rig.put("a", b"abc")
    first, second = listed(rig.storage)["a"], listed(rig.storage)["a"]
    assert first == second
    rig.put("a", b"xyz")
    assert listed(rig.storage)["a"] != first


def test_what_may_be_left_out(rig: Rig) -> None:
    """Whatever may be left out, all else is listed."""
    for path in ("t/1/a", "t/1/x/b", "t/10/c", "t/2/d", "t/meta/e", "t/3/f1", "t/3/f2", "t/3/f1x/g", "u/1/h"):
        rig.put(path, b"x")
    found = set(listed(rig.storage, "t/1", "t/2", **{"t/3": "f1"}))
    assert found >= {"t/10/c", "t/meta/e", "t/3/f2", "t/3/f1x/g", "u/1/h"}
    assert found.isdisjoint({"t/1/a", "t/1/x/b", "t/2/d", "t/3/f1"})


def test_meta_comes_last(rig: Rig) -> None:
    """The schema files of a table are listed after its data files."""
    for path in ("s/t/449/2024-01-01/CDC000001.csv", "s/t/meta/schema_449_0000000001.json", "s/t/450/CDC000001.csv"):
        rig.put(path, b"x")
    assert next(reversed(listed(rig.storage))) == "s/t/meta/schema_449_0000000001.json"


@pytest.mark.parametrize("size", [0, 1, 1000, 1001, 300_000])
def test_blocks(rig: Rig, size: int) -> None:
    """The pieces of an object are its content, and none is larger than asked for."""
    content = os.urandom(size)
    rig.put("a/b", content)
    blocks = list(rig.storage.blocks("a/b", 1000))
    assert b"".join(blocks) == content
    assert max(map(len, blocks), default=0) <= 1000
    assert rig.storage.read("a/b") == content


@pytest.mark.parametrize("start", [0, 1, 999, 1000, 123_456, 299_999])
def test_blocks_from_within(rig: Rig, start: int) -> None:
    """Of an object that still is what was listed, the pieces from some byte on are the rest of its content."""
    content = os.urandom(300_000)
    rig.put("a/b", content)
    _, tag = listed(rig.storage)["a/b"]
    for size in (1000, 70_000, 1 << 20):
        blocks = list(rig.storage.blocks("a/b", size, start, tag))
        assert b"".join(blocks) == content[start:]
        assert max(map(len, blocks)) <= size


@pytest.mark.parametrize("start", [0, 50_000])
def test_parts_are_of_what_was_listed(rig: Rig, start: int) -> None:
    """An object that was replaced, by a shorter or longer one or one of the same size, or deleted, gives no part of what it was."""
    for size in (100_000, 40_000, 150_000):
        rig.put("a", os.urandom(100_000))
        _, tag = listed(rig.storage)["a"]
        rig.put("a", os.urandom(size))
        with pytest.raises(FileNotFoundError, match="a"):
            list(rig.storage.blocks("a", 10_000, start, tag))
    rig.delete("a")
    with pytest.raises(FileNotFoundError, match="a"):
        list(rig.storage.blocks("a", 10_000, start, tag))


def test_part_of_an_object(rig: Rig) -> None:
    """A reader may stop early and go on with other objects."""
    rig.put("a", b"x" * 100_000)
    for _ in range(20):
        assert next(iter(rig.storage.blocks("a", 10))) == b"x" * 10
    assert rig.storage.read("a") == b"x" * 100_000


def test_missing_object(rig: Rig) -> None:
    """Reading what does not exist is a FileNotFoundError that names it."""
    rig.put("a", b"x")
    with pytest.raises(FileNotFoundError, match="no/such"):
        rig.storage.read("no/such")
    with pytest.raises(FileNotFoundError, match="no/such"):
        next(iter(rig.storage.blocks("no/such", 10)))


def test_check_of_a_good_root(rig: Rig) -> None:
    """A root that can be listed passes."""
    rig.put("a", b"x")
    rig.storage.check()


def test_missing_folder(tmp_path: Path) -> None:
    """A folder that does not exist is a ConfigError with its name; if it goes later, the storage is unavailable."""
    storage = LocalRig(tmp_path / "none").storage
    with pytest.raises(ConfigError, match=r"none does not exist.*mounted"):
        storage.check()
    with pytest.raises(StorageUnavailable):
        listed(storage)


def test_folder_that_may_not_be_read(tmp_path: Path) -> None:
    """A folder without read access is a ConfigError that names it."""
    rig = LocalRig(tmp_path)
    rig.put("a/b", b"x")
    error = rig.storage._translated(PermissionError(13, "Permission denied"), "a")  # type: ignore[attr-defined]
    assert isinstance(error, ConfigError)
    assert "a below" in str(error)


def test_copies_of_a_changefeed_s_files(rig: Rig) -> None:
    """On every storage a snapshot below the folder is found out, and hides nothing that comes before, between or behind its files."""
    text, checksum = schema_document(SchemaFile(name=("d", "t"), query="", kind=CREATE_TABLE), V1)
    schema_file, data = f"d/t/meta/schema_{V1}_{checksum:010d}.json", f"d/t/{V1}/2024-01-01/CDC%020d.csv"
    content = {"metadata": f'{{"checkpoint-ts":{V2}}}'.encode(), schema_file: text.encode(), data % 1: b"x"}
    upstream = Upstream(scheme="file", root="/", protocol="csv", date_separator="day")
    polls = StorageReader(rig.storage, upstream, FakeClock())
    for number, snapshot in enumerate(("", ".snapshot/a/", "d/.snapshot/", "d/t/.snapshot/b/", "z/"), 1):
        for path, body in content.items():
            rig.put(f"{snapshot}{path}", body)
        rig.put(data % number, b"x")
        polls.list_everything()
        poll = polls.poll()
        assert [file.stored.path for file in poll.data_files] == [data % number]
        assert [read.file.stored.path for read in poll.schema_files] == [schema_file][: not snapshot]
        assert len([warning for warning in poll.warnings if "nothing below" in warning]) == bool(snapshot)
        assert (poll.vanished, polls.poll().data_files) == ((), ())


def test_closed_folders_are_not_entered(tmp_path: Path) -> None:
    """The number of folders read does not grow with closed ones."""
    rig = LocalRig(tmp_path)
    counts = []
    for days in (3, 30):
        for day in range(days):
            rig.put(f"t/{V1}/2024-{day:02d}/CDC000001.csv", b"x")
        closed = [f"t/{V1}/2024-{day:02d}" for day in range(days - 1)]
        storage = open_storage(Upstream(scheme="file", root=str(tmp_path), protocol="csv"), Secrets())
        assert len(listed(storage, *closed)) == 1
        counts.append(storage.requests)  # type: ignore[attr-defined]
    assert counts == [4, 4]
