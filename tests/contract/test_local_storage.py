"""What is particular to folders: growing files, vanishing folders, links, names that are no text, errors of the disk."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from storage_consumer.config.settings import Upstream
from storage_consumer.errors import ConfigError, StorageUnavailable
from storage_consumer.storage.inventory import Inventory
from storage_consumer.storage.local_storage import LocalStorage
from storage_consumer.storage.reader import StorageReader
from storage_consumer.testing import FakeClock
from tests.contract.rigs import LocalRig, listed

V = 449000000000000001
SCHEMA, DATA = f"s/t/meta/schema_{V}_0000000001.json", f"s/t/{V}/CDC000001.csv"


def test_a_file_that_grows_is_shown_again(tmp_path: Path) -> None:
    """What another client sees of a file before it is whole is read again when there is more, even within one tick."""
    rig = LocalRig(tmp_path)
    for path in (SCHEMA, DATA):
        rig.put(path, b"{}")
    rig.put("metadata", b'{"checkpoint-ts":%d}' % V)
    reader = StorageReader(rig.storage, Upstream(scheme="file", root=str(tmp_path), protocol="csv"), FakeClock())
    assert [file.stored.size for file in reader.poll().data_files] == [2]
    assert reader.poll().data_files == ()
    was = (tmp_path / DATA).stat()
    with (tmp_path / DATA).open("ab") as file:
        file.write(b"more")
    os.utime(tmp_path / DATA, ns=(was.st_atime_ns, was.st_mtime_ns))
    poll = reader.poll()
    assert [file.stored.size for file in poll.data_files] == [6]
    assert poll.changed == 1


def test_a_file_with_an_old_time_is_found(tmp_path: Path) -> None:
    """Times are no cursor: a file that turns up late with an old time, or in the same second as another, is found once (C22, C23)."""
    rig = LocalRig(tmp_path)
    paths = {number: f"s/t/{V}/CDC{number:06d}.csv" for number in range(1, 6)}
    rig.put(SCHEMA, b"{}")
    rig.put("metadata", b'{"checkpoint-ts":%d}' % V)
    reader = StorageReader(rig.storage, Upstream(scheme="file", root=str(tmp_path), protocol="csv"), FakeClock())
    found: list[list[int]] = []
    for numbers, time in (((1, 3), 2_000_000_000), ((2, 4, 5), 1_000_000_000), ((), 0)):
        for number in numbers:
            rig.put(paths[number], b"x")
            os.utime(tmp_path / paths[number], (time, time))
        found.append([file.number for file in reader.poll().data_files])
    assert found == [[1, 3], [2, 4, 5], []]


def test_a_folder_that_vanishes_meanwhile(tmp_path: Path) -> None:
    """The walk goes on with the others."""
    rig = LocalRig(tmp_path)
    for path in ("a/1", "b/c/2", "d/3"):
        rig.put(path, b"x")
    listing = rig.storage.listing(frozenset(), {})
    assert next(iter(listing)).path == "a/1"
    shutil.rmtree(tmp_path / "b")
    assert [stored.path for stored in listing] == ["d/3"]


def test_links(tmp_path: Path) -> None:
    """No link leads out of the storage or to a folder, by listing or by reading; a link to a file in it is that file."""
    outside = tmp_path / "outside"
    (outside / "s" / "t").mkdir(parents=True)
    (outside / "secret").write_bytes(b"secret")
    rig = LocalRig(tmp_path / "root")
    rig.put(DATA, b"x")
    for link, target in (
        (f"s/t/{V}/CDC000002.csv", outside / "secret"),
        (f"s/t/{V}/CDC000003.csv", tmp_path / "root" / DATA),
        ("s/u", outside / "s" / "t"),
        ("s/again", tmp_path / "root" / "s"),
        ("metadata", outside / "secret"),
    ):
        (tmp_path / "root" / link).symlink_to(target)
    inventory = Inventory(None, partition_separator=None, extension="csv")
    rig.put(SCHEMA, b"{}")
    found = inventory.observe(rig.storage.listing(frozenset(), {}), full=True, checkpoint=V)
    assert {file.stored.path for file in found.data_files} == {DATA, f"s/t/{V}/CDC000003.csv"}
    assert sum(found.ignored.values()) == 4
    for path in ("metadata", f"s/t/{V}/CDC000002.csv"):
        with pytest.raises(FileNotFoundError, match="leads out"):
            rig.storage.read(path)


def test_a_root_that_is_a_link(tmp_path: Path) -> None:
    """The folder that the URI names may itself be a link."""
    rig = LocalRig(tmp_path / "root")
    rig.put(DATA, b"x")
    (tmp_path / "link").symlink_to(tmp_path / "root")
    storage = LocalStorage(str(tmp_path / "link"))
    assert list(listed(storage)) == [DATA]
    assert storage.read(DATA) == b"x"


def test_names_that_are_no_text(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file or folder whose name is not UTF-8 is counted and warned of once; all else is found."""
    rig = LocalRig(tmp_path)
    for path in (SCHEMA, DATA):
        rig.put(path, b"{}")
    folder, file = os.fsdecode(b"\xff"), os.fsdecode(b"CDC000002\xfe.csv")
    for path in (f"s/{folder}/{V}/CDC000001.csv", f"s/t/{V}/{file}"):
        rig.put(path, b"x")
    inventory = Inventory(None, partition_separator=None, extension="csv")
    for _ in range(2):
        found = inventory.observe(rig.storage.listing(frozenset(), {}), full=True, checkpoint=V)
        assert sum(found.ignored.values()) == 2
    assert caplog.text.count("no UTF-8") == 2
    assert r"s/\\udcff is not looked at" in caplog.text


def test_an_error_of_the_disk(tmp_path: Path) -> None:
    """A file that the system fails to read is a StorageUnavailable, and so is a folder that turns out to be none."""
    with pytest.raises(StorageUnavailable, match="mem below /proc/self can't be read"):
        LocalStorage("/proc/self").read("mem")
    (tmp_path / "file").write_bytes(b"")
    storage = LocalStorage(str(tmp_path / "file"))
    with pytest.raises(StorageUnavailable, match="is gone"):
        listed(storage)
    with pytest.raises(ConfigError, match="does not exist"):
        storage.check()
