"""Copies of a changefeed's files below its own folder: they are no tables, whatever left them there, and what is in its place is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from storage_consumer.bucket.inspector import inspect
from storage_consumer.bucket.paths import COPY
from storage_consumer.bucket.reader import Poll, StorageReader
from storage_consumer.bucket.stores.local import LocalStorage
from storage_consumer.config.settings import Upstream
from storage_consumer.model import TableDefinition, TableName
from tests.harness.small_bucket import CREATE_TABLE, SchemaFile, row, schema_document, ts
from tests.harness.twins.storage import FakeClock, MemoryStorage

V = ts(1)
UPSTREAM = Upstream(scheme="file", root="/bucket", protocol="csv")


def files(
    database: str, table: str, below: str = "", *, directory: str = "", extension: str = "csv", version: int = V
) -> dict[str, bytes]:
    """A table's schema file and a data file, as TiCDC puts them below a folder."""
    text, checksum = schema_document(SchemaFile(name=(database, table), query="", kind=CREATE_TABLE), version)
    root = f"{below}{directory or f'{database}/{table}'}"
    return {
        f"{root}/meta/schema_{version}_{checksum:010d}.json": text.encode(),
        f"{root}/{version}/2026-11-21/CDC{1:020d}.{extension}": f"{row('d.t', 5, '1')}\r\n".encode(),
    }


def database(name: str, below: str = "") -> dict[str, bytes]:
    """The schema file of a database."""
    text, checksum = schema_document(SchemaFile(name=(name, ""), query=f"CREATE DATABASE `{name}`", kind=1), V)
    return {f"{below}{name}/meta/schema_{V}_{checksum:010d}.json": text.encode()}


METADATA = {"metadata": json.dumps({"checkpoint-ts": ts(9)}).encode()}
OWN = METADATA | database("d") | files("d", "t")
DAY = f"{V}/2026-11-21"
DATA = f"CDC{1:020d}.csv"


def tree(below: str, *, whole: bool = True) -> dict[str, bytes]:
    """A copy of it all."""
    return {f"{below}{path}": content for path, content in OWN.items() if whole or path != "metadata"}


def reader(objects: Mapping[str, bytes]) -> tuple[MemoryStorage, StorageReader]:
    """A reader of these objects."""
    storage = MemoryStorage(objects)
    return storage, StorageReader(storage, UPSTREAM, FakeClock())


def found(poll: Poll) -> tuple[set[TableName], list[str]]:
    """The tables of a poll's schema files, and the folders of its data files."""
    definitions = [read.content for read in poll.schema_files]
    assert all(isinstance(each, TableDefinition) for each in definitions)
    names = {each.name for each in definitions if isinstance(each, TableDefinition) and each.name.table}
    return names, [file.table_dir for file in poll.data_files]


T = TableName(schema="d", table="t")
COPIES = {
    "a filer's snapshot": tree(".snapshot/hourly.2026-11-28_0005/"),
    "two of them": tree(".snapshot/a/") | tree(".snapshot/b/"),
    "one whose metadata was not copied": tree("~snapshot/x/", whole=False),
    "one of each folder": files("d", "t", directory="d/t/.snapshot/h") | files("d", "t", directory="d/.snapshot/h/t"),
    "one of a database's folder": {".snapshot/h/" + p: c for p, c in database("d").items()},
    "one with a number for a name": {f"d/t/{V}/.snapshot/20261128/2026-11-21/{DATA}": b"rows"},
    "ZFS": tree(".zfs/snapshot/2026/"),
    "a backup": tree("backup of monday/"),
    "a folder copied beside its own": files("d", "t", directory="d - Copy/t"),
    "of tables that are no more": {f".snapshot/h/{p}": c for p, c in (METADATA | files("old", "gone")).items()},
    "into a database's folder": tree("d/"),
    "table ids": {f".snapshot/h/{p}": c for p, c in (METADATA | files("d", "t", directory="104")).items()},
    "another changefeed's, with other settings": {f"feed2/{p}": c for p, c in (METADATA | files("e", "u", extension="json")).items()},
    "deleted files": {f"#recycle/d/t/{DAY}/{DATA}": b"rows", f".Trash-1000/files/t/{DAY}/{DATA}": b"rows"},
    "a deleted folder": files("d", "t", directory="$RECYCLE.BIN/S-1-5/$R1/t"),
    "what was deleted of a table that is no more": {f"lost+found/12/{DAY}/{DATA}": b"rows"},
}  # fmt: skip


@pytest.mark.parametrize("copy", COPIES)
def test_a_copy_is_no_table(copy: str) -> None:
    """At a start it is counted and warned of; nothing of it is handed out, then or later, and its end is no loss."""
    storage, polls = reader(OWN | COPIES[copy])
    first = polls.poll()
    assert found(first) == ({T}, ["d/t"])
    assert first.ignored[COPY] >= 1
    told = [warning for warning in first.warnings if "is read" in warning]
    assert bool(told) == any("/meta/" in path for path in COPIES[copy])
    polls.list_everything()
    again = polls.poll()
    assert (found(again), again.warnings, again.vanished) == ((set(), []), (), ())
    for path in COPIES[copy]:
        storage.delete(path)
    polls.list_everything()
    last = polls.poll()
    assert (found(last), last.warnings, last.vanished) == ((set(), []), (), ())


@pytest.mark.parametrize("copy", COPIES)
def test_a_copy_that_comes_later(copy: str) -> None:
    """It is passed over while the program runs, and new files of the changefeed are not."""
    storage, polls = reader(OWN)
    assert found(polls.poll()) == ({T}, ["d/t"])
    for path, content in (COPIES[copy] | files("d", "new", version=ts(7))).items():
        storage.put(path, content)
    later = polls.poll()
    assert found(later) == ({TableName(schema="d", table="new")}, ["d/new"])
    assert later.vanished == ()
    assert found(polls.poll()) == (set(), [])


@pytest.mark.parametrize("copy", COPIES)
def test_what_inspect_shows(copy: str) -> None:
    """It shows the tables of the changefeed, infers settings from their files, and names the copy."""
    bucket = inspect(MemoryStorage(OWN | COPIES[copy]), UPSTREAM, {}, ts(20) >> 18)
    tables = {table.directory for table in bucket.tables if "Copy" not in table.directory}
    assert tables == {"d/t"}
    protocol = next(each for each in bucket.settings if each.keyword == "protocol")
    assert protocol.value == "csv"


@pytest.mark.parametrize(
    ("schema", "table"),
    [(".snapshot", "t"), (".snapshot", "hourly/d/t"), ("lost+found", "t"), ("a/b", "c/d"), ("d", "d/t"), ("x", "104")],
)
def test_names_like_those_of_copies(schema: str, table: str) -> None:
    """TiDB takes any name. What schema files name is a table, wherever it lies, and so are its data files."""
    _, polls = reader(OWN | files(schema, table))
    assert found(polls.poll()) == ({T, TableName(schema=schema, table=table)}, sorted(("d/t", f"{schema}/{table}")))


def test_a_folder_that_was_moved() -> None:
    """It is read as what its files say, with a warning, as long as nothing lies where they should be."""
    _, polls = reader(METADATA | files("d", "t", directory="moved/t"))
    poll = polls.poll()
    assert found(poll) == ({T}, ["moved/t"])


def test_one_schema_file_shows_it_of_a_whole_snapshot() -> None:
    """A snapshot of many tables costs one reading, and is not listed again."""
    many = OWN | {path: content for number in range(30) for path, content in files("d", f"t{number}").items()}
    storage, polls = reader(many)
    polls.poll()
    for path, content in many.items():
        storage.put(f".snapshot/h/{path}", content)
    before = storage.requests
    assert found(polls.poll()) == (set(), [])
    # The checkpoint and a listing, twice, and the schema files of a database and of one table.
    assert storage.requests - before <= 10


def test_folders_that_only_an_administrator_may_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """lost+found at the root of a file system ends no listing; a folder that may be a database's does."""
    for path, content in OWN.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    (tmp_path / "lost+found").mkdir()
    storage = LocalStorage(str(tmp_path))
    entries = LocalStorage._entries

    def refused(self: LocalStorage, folder: str) -> object:
        if folder == "lost+found":
            raise PermissionError(13, "Permission denied")
        return entries(self, folder)

    monkeypatch.setattr(LocalStorage, "_entries", refused)
    polls = StorageReader(storage, UPSTREAM, FakeClock())
    poll = polls.poll()
    assert found(poll) == ({T}, ["d/t"])
    assert poll.ignored == {"unknown path": 1}
