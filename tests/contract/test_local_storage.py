"""What is particular to folders: growing files, vanishing folders, links, names that are no text, errors of the disk."""

from __future__ import annotations

import os
import random
import shutil
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_consumer.bucket.inventory import Inventory
from storage_consumer.bucket.paths import left_out
from storage_consumer.bucket.reader import StorageReader
from storage_consumer.bucket.stores.local import LocalStorage, _open_at_once, keeps_time
from storage_consumer.config.settings import Upstream
from storage_consumer.errors import ConfigError, FilesMissing, MalformedSchemaFile, StorageUnavailable
from storage_consumer.model import StoredObject
from tests.contract.rigs import LocalRig, listed
from tests.harness.twins.storage import FakeClock

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
    """No link leads out of the storage; a link to a file in it is that file.

    A data or schema file that is a link is listed, so that it is missed, and not read.
    """
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    rig = LocalRig(tmp_path / "root")
    rig.put(DATA, b"x")
    later = f"s/t/meta/schema_{V + 1}_0000000002.json"
    for link, target in (
        (f"s/t/{V}/CDC000002.csv", outside / "secret"),
        (f"s/t/{V}/CDC000003.csv", tmp_path / "root" / DATA),
        (f"s/t/{V}/CDC000004.csv", outside / "nowhere"),
        (later, outside / "secret"),
        ("metadata", outside / "secret"),
        ("s/.#notes", "somebody@host.4711:1764000000"),
    ):
        (tmp_path / "root" / link).parent.mkdir(exist_ok=True)
        (tmp_path / "root" / link).symlink_to(target)
    inventory = Inventory(None, partition_separator=None, extension="csv")
    rig.put(SCHEMA, b"{}")
    found = inventory.observe(rig.storage.listing(frozenset(), {}), full=True, checkpoint=V)
    names = {file.stored.path for file in found.data_files}
    assert names == {DATA, *(f"s/t/{V}/CDC00000{number}.csv" for number in (2, 3, 4))}
    assert {file.stored.path for file in found.schema_files} == {SCHEMA, later}
    assert sum(found.ignored.values()) == 2
    for path in ("metadata", later, f"s/t/{V}/CDC000002.csv"):
        with pytest.raises(FileNotFoundError, match="leads out"):
            rig.storage.read(path)


@pytest.mark.parametrize("link", ["s", "s/u", f"s/t/{V}", f"s/t/{V}/2026-01-01", "s/t/meta"])
@pytest.mark.parametrize("outside", [False, True])
def test_links_to_folders(tmp_path: Path, link: str, *, outside: bool) -> None:
    """Whole tables may lie behind one: the listing ends, and the error says what to do."""
    rig = LocalRig(tmp_path / "root")
    rig.put("other/t/meta/schema_1_0000000001.json", b"{}")
    target = tmp_path / "elsewhere" if outside else tmp_path / "root" / "other"
    target.mkdir(exist_ok=True)
    (tmp_path / "root" / link).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "root" / link).symlink_to(target)
    with pytest.raises(ConfigError, match=f"{link} below .* is a link to a folder.*mount --bind"):
        listed(rig.storage)


@pytest.mark.parametrize("link", ["s", "s/u", f"s/t/{V}", f"s/t/{V}/2026-01-01", "s/t/meta", "s/notes.txt"])
@pytest.mark.parametrize("outside", [False, True])
def test_links_that_lead_nowhere(tmp_path: Path, link: str, *, outside: bool) -> None:
    """Tables may lie behind one, on a file system that is not mounted just now: the bucket counts as out of reach."""
    rig = LocalRig(tmp_path / "root")
    rig.put("other/t/meta/schema_1_0000000001.json", b"{}")
    target = tmp_path / "elsewhere" if outside else tmp_path / "root" / "gone"
    (tmp_path / "root" / link).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "root" / link).symlink_to(target)
    with pytest.raises(StorageUnavailable, match=f"{link} below .* is a link that leads nowhere.*mount"):
        listed(rig.storage)
    target.write_bytes(b"x")
    assert listed(rig.storage)


def test_what_is_no_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Pipes, sockets and devices are warned of; nobody waits for what is at their other end, and only files of TiCDC's are missed."""
    rig = LocalRig(tmp_path)
    rig.put(SCHEMA, b"{}")
    (tmp_path / DATA).parent.mkdir()
    other = f"s/t/meta/schema_{V}_0000000002.json"
    for path in ("metadata", DATA, other):
        os.mkfifo(tmp_path / path)
    (tmp_path / "link").symlink_to(tmp_path / "metadata")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        found = listed(rig.storage)
    assert [path for path in found if "(it is not a file" not in path] == sorted([SCHEMA, other, DATA])
    assert len(found) == 6
    assert all(f"{path} is not read" in caplog.text for path in ("metadata", DATA, "link", "socket"))
    for path in ("metadata", "link", "socket", DATA, "s"):
        with pytest.raises(FileNotFoundError):
            rig.storage.read(path)
    reader = StorageReader(rig.storage, Upstream(scheme="file", root=str(tmp_path), protocol="csv"), FakeClock())
    poll = reader.poll()
    assert (poll.checkpoint, len(poll.schema_files), [f.stored.path for f in poll.data_files]) == (0, 2, [DATA])
    assert poll.ignored == {"unknown path": 3}
    fault = next(read.content for read in poll.schema_files if read.file.stored.path == other)
    assert isinstance(fault, FilesMissing)
    assert other in str(fault)


def test_devices() -> None:
    """A device is read by nobody: some have no end."""
    assert "ptmx (it is not a file, but a pipe, a socket or a device)" in listed(LocalStorage("/dev/pts"))
    storage = LocalStorage("/dev")
    for path in ("zero", "tty"):
        with pytest.raises((FileNotFoundError, StorageUnavailable)):
            storage.read(path)


def test_a_file_that_becomes_a_pipe(tmp_path: Path) -> None:
    """Between the look at it and its opening: the reader does not wait for a writer."""
    os.mkfifo(tmp_path / "metadata")
    os.close(_open_at_once(str(tmp_path / "metadata"), os.O_RDONLY))


@pytest.mark.parametrize("path", ["metadata", SCHEMA])
def test_sparse_files(tmp_path: Path, path: str) -> None:
    """Of 2 GiB where some bytes belong no more is read than shows that it is not so small."""
    rig = LocalRig(tmp_path)
    rig.put(path, b"")
    with (tmp_path / path).open("ab") as file:
        file.truncate(2 << 30)
    assert len(rig.storage.read(path, 1000)) <= 2001
    reader = StorageReader(rig.storage, Upstream(scheme="file", root=str(tmp_path), protocol="csv"), FakeClock())
    poll = reader.poll()
    assert (poll.checkpoint, poll.unreadable_metadata) == (0, int(path == "metadata"))
    for read in poll.schema_files:
        assert isinstance(read.content, MalformedSchemaFile)
        assert "TiCDC writes none that large" in str(read.content)


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
    assert caplog.text.count("not UTF-8") == 2
    assert r"s/\\udcff is not read" in caplog.text


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


class Watched:
    """A folder and a storage whose clock stands still until it is told otherwise."""

    def __init__(self, root: Path) -> None:
        """Over `root`."""
        self.rig = LocalRig(root)
        self.now = 0.0
        self.storage = LocalStorage(str(root), lambda: self.now)
        self.ticks = 1_000

    def put(self, path: str, content: bytes = b"x") -> None:
        """Write a file; the time of its folder is another one afterwards."""
        self.rig.put(path, content)
        self.touch(path)

    def touch(self, path: str) -> None:
        """Give all folders above a path times of their own, as if a while had passed since they changed before."""
        self.ticks += 1
        for folder in (self.rig.root / path).parents:
            if folder.is_relative_to(self.rig.root):
                os.utime(folder, (self.ticks, self.ticks))

    def listed(self, after: Mapping[str, str] | None = None, seconds: float = 10.0) -> list[StoredObject]:
        """What the storage shows so many seconds later; a storage that knows nothing shows the same, marks apart."""
        self.now += seconds
        shown = list(self.storage.listing(frozenset(("closed",)), after or {}))
        fresh = list(LocalStorage(str(self.rig.root)).listing(frozenset(("closed",)), after or {}))
        assert [stored for stored in shown if not left_out(stored.path, after or {})] == fresh
        return shown


def test_folders_that_do_not_change_are_not_read(tmp_path: Path) -> None:
    """However many files a folder has, it is read again only when an entry comes or goes; a file that grows is seen all the same."""
    watched = Watched(tmp_path)
    folder = f"s/t/{V}"
    for number in range(1, 21):
        watched.put(f"{folder}/CDC{number:06d}.csv")
    marks = {folder: "CDC000012.csv"}
    for _ in range(2):
        assert len(watched.listed(marks)) == 8
    watched.storage.requests = 0
    watched.listed(marks)
    assert watched.storage.requests == 0
    (tmp_path / folder / "CDC000020.csv").write_bytes(b"more")
    assert watched.listed(marks)[-1].size == 4
    assert watched.storage.requests == 0
    watched.put(f"{folder}/CDC000021.csv")
    assert watched.listed(marks)[-1].path == f"{folder}/CDC000021.csv"
    (tmp_path / folder / "CDC000019.csv").unlink()
    watched.touch(f"{folder}/CDC000019.csv")
    assert len(watched.listed(marks)) == 8
    assert len(watched.listed({folder: "CDC000002.csv"})) == 18
    watched.now += 10
    assert len(list(watched.storage.listing(frozenset(), {}))) == 20


def test_a_mirror_that_sets_times_back(tmp_path: Path) -> None:
    """A file is found though what copied it gave the folder the time again that it had at its origin."""
    watched = Watched(tmp_path)
    folder = f"s/t/{V}"
    watched.put(f"{folder}/CDC000001.csv")
    for _ in range(3):
        watched.listed()
    before = (tmp_path / folder).stat().st_mtime_ns
    (tmp_path / folder / "CDC000002.csv").write_bytes(b"x")
    os.utime(tmp_path / folder, ns=(before, before))
    assert [stored.path for stored in watched.listed()][-1] == f"{folder}/CDC000002.csv"


def test_two_changes_in_one_tick(tmp_path: Path) -> None:
    """An entry that comes so soon after another one that the folder's time stays the same is found, though the folder was read in between."""
    watched = Watched(tmp_path)
    folder = f"s/t/{V}"
    watched.put(f"{folder}/CDC000001.csv")
    time = (tmp_path / folder).stat().st_mtime_ns
    for number, seconds in enumerate((0.0, 1.9, 2.9), 2):
        assert len(watched.listed({}, seconds)) == number - 1
        watched.rig.put(f"{folder}/CDC{number:06d}.csv", b"x")
        os.utime(tmp_path / folder, ns=(time, time))
    assert len(watched.listed({}, 0.1)) == 4


@settings(max_examples=30)
@given(st.integers(0, 1 << 32))
def test_what_known_folders_show(seed: int) -> None:
    """Whatever comes, goes, grows or is renamed, and whatever is left out: the storage shows what one shows that knows nothing."""
    chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
    with tempfile.TemporaryDirectory() as root:
        watched = Watched(Path(root))
        names = [
            f"t{t}/{V}/{d}/CDC{n:06d}.csv" for t in range(2) for d in ("2024-01-01", "2024-01-02") for n in range(1, 5)
        ]
        watched.put(names[0])
        for _ in range(25):
            name, there = chance.choice(names), [one for one in names if (Path(root) / one).exists()]
            if chance.random() < 0.4:
                watched.put(name, b"x" * chance.randint(1, 9))
            elif there and chance.random() < 0.3:
                (Path(root) / there[0]).unlink()
                watched.touch(there[0])
            elif there and chance.random() < 0.3:
                shutil.rmtree((Path(root) / there[-1]).parent)
                watched.touch(str(Path(there[-1]).parent))
            else:
                marks = {
                    one.rpartition("/")[0]: f"CDC{chance.randint(1, 4):06d}.csv"
                    for one in there
                    if chance.random() < 0.5
                }
                watched.listed(marks, chance.choice((0.5, 6.0)))


@pytest.mark.parametrize(
    ("mount", "kept"),
    [
        ("ext4 /dev/vda rw,discard", True),
        ("xfs /dev/sda1 rw,attr2", True),
        ("nfs4 host:/x rw,vers=4.2,acregmin=0,acregmax=0,acdirmin=0,acdirmax=0,hard", True),
        ("nfs host:/x rw,noac,hard", True),
        ("nfs4 host:/x rw,vers=4.2,hard", False),
        ("nfs4 host:/x rw,acdirmin=0,acdirmax=60", False),
        ("cifs //host/x rw,actimeo=0", False),
        ("fuse.s3fs s3fs rw,user_id=0", False),
    ],
)
def test_mounts(mount: str, kept: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter of the test
    """Folders of local file systems and of NFS without a cache tell by their time whether they changed; of others nothing is assumed."""
    (tmp_path / "mountinfo").write_text(
        f"27 1 254:0 / / rw - proc proc rw\n28 27 0:77 /sub /mnt/a rw,relatime shared:1 - {mount}\n", encoding="utf-8"
    )
    assert keeps_time(os.makedev(0, 77), tmp_path / "mountinfo") is kept
    assert not keeps_time(os.makedev(0, 78), tmp_path / "mountinfo")
    assert not keeps_time(os.makedev(0, 77), tmp_path / "none")
