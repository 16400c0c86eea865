"""StorageReader over storage in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from storage_consumer.bucket.reader import ReadSchemaFile, StorageReader
from storage_consumer.bucket.schema_file import schema_checksum
from storage_consumer.config.settings import CsvOptions, Upstream
from storage_consumer.errors import ConfigError, FilesMissing, MalformedSchemaFile, StorageUnavailable, TableError
from storage_consumer.model import StoredObject, TableDefinition
from tests.harness.twins.storage import FakeClock, MemoryStorage

V = 449000000000000001
SCHEMA = f"shop/t/meta/schema_{V}_0000000001.json"
DATA = f"shop/t/{V}/2024-01-01/CDC00000000000000000001.csv"


def metadata(ts: object) -> bytes:
    """The file's content."""
    return json.dumps({"checkpoint-ts": ts}, separators=(",", ":")).encode()


def reader(storage: MemoryStorage, clock: FakeClock | None = None, **settings: Any) -> StorageReader:
    """A reader of a CSV bucket."""
    upstream = Upstream(**({"scheme": "file", "root": "/bucket", "protocol": "csv"} | settings))
    return StorageReader(storage, upstream, clock or FakeClock())


def definition(read: ReadSchemaFile) -> TableDefinition:
    """What a schema file says."""
    assert isinstance(read.content, TableDefinition)
    return read.content


def fault_of(polls: StorageReader) -> TableError:
    """Why the one new schema file could not be read."""
    (read,) = polls.poll().schema_files
    assert isinstance(read.content, TableError)
    return read.content


def test_poll() -> None:
    """A poll returns the checkpoint exactly, and each file once."""
    storage = MemoryStorage({"metadata": metadata(V + 1), SCHEMA: b"{}", DATA: b"rows"})
    polls = reader(storage)
    first, second = polls.poll(), polls.poll()
    assert (first.checkpoint, first.checkpoint_is_new, first.full) == (V + 1, True, True)
    assert [read.file.stored.path for read in first.schema_files] == [SCHEMA]
    assert [file.stored.path for file in first.data_files] == [DATA]
    assert (second.checkpoint, second.checkpoint_is_new, second.full) == (V + 1, False, False)
    assert (second.schema_files, second.data_files) == ((), ())


def test_checkpoint_follows_metadata() -> None:
    """The checkpoint follows the file from poll to poll."""
    storage = MemoryStorage({"metadata": metadata(5)})
    polls = reader(storage)
    assert polls.poll().checkpoint == 5
    storage.put("metadata", metadata(9))
    poll = polls.poll()
    assert (poll.checkpoint, poll.checkpoint_is_new) == (9, True)


class Racing(MemoryStorage):
    """TiCDC writes a file and raises the checkpoint at the moment a listing begins."""

    def listing(self, closed: frozenset[str], after: Mapping[str, str]) -> Iterator[StoredObject]:
        """List, after the change."""
        self.put(DATA, b"rows")
        self.put("metadata", metadata(V + 9))
        return super().listing(closed, after)


def test_metadata_is_read_before_the_listing() -> None:
    """A checkpoint that rises while files are listed counts in the next poll only."""
    polls = reader(Racing({"metadata": metadata(V), SCHEMA: b"{}"}))
    poll = polls.poll()
    assert (poll.checkpoint, len(poll.data_files)) == (V, 1)
    assert polls.poll().checkpoint == V + 9


def test_no_metadata() -> None:
    """Without metadata files are discovered, the checkpoint is 0, and that is said once."""
    polls = reader(MemoryStorage({SCHEMA: b"{}", DATA: b"rows"}))
    poll = polls.poll()
    assert (poll.checkpoint, poll.checkpoint_is_new, len(poll.data_files)) == (0, False, 1)
    assert "no metadata file yet" in poll.warnings[0]
    assert polls.poll().warnings == ()


def test_unavailable_storage_loses_nothing() -> None:
    """After a poll that failed, the next one returns all that is new and the risen checkpoint."""
    storage = MemoryStorage({"metadata": metadata(1), SCHEMA: b"{}"})
    polls = reader(storage)
    polls.poll()
    storage.put("metadata", metadata(V))
    storage.put(DATA, b"rows")
    storage.available = False
    with pytest.raises(StorageUnavailable):
        polls.poll()
    storage.available = True
    poll = polls.poll()
    assert (poll.checkpoint_is_new, len(poll.data_files)) == (True, 1)


def test_full_listings_come_by_the_clock() -> None:
    """Everything is listed at the start and whenever the interval has passed; what is gone is told then."""
    storage = MemoryStorage({"metadata": metadata(V), SCHEMA: b"{}", DATA: b"rows"})
    clock = FakeClock()
    polls = reader(storage, clock)
    polls.poll()
    storage.delete(DATA)
    clock.advance(599)
    poll = polls.poll()
    assert (poll.full, poll.vanished) == (False, ())
    clock.advance(1)
    poll = polls.poll()
    assert (poll.full, [file.stored.path for file in poll.vanished]) == (True, [DATA])


def test_storage_that_shows_nothing_is_not_an_emptied_one() -> None:
    """A bucket that is suddenly empty, as an unmounted folder is, is unavailable: no file counts as vanished."""
    storage = MemoryStorage({"metadata": metadata(V), SCHEMA: b"{}", DATA: b"rows"})
    clock = FakeClock()
    polls = reader(storage, clock)
    polls.poll()
    for path in ("metadata", SCHEMA, DATA):
        storage.delete(path)
    clock.advance(600)
    with pytest.raises(StorageUnavailable, match="mounted"):
        polls.poll()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"date_separator": "month"}, "settings protocol=csv, date-separator=month: shop"),
        (
            {"date_separator": "none", "partition_separator": False},
            "settings protocol=csv, date-separator=none, enable-partition-separator=false: shop",
        ),
        ({"protocol": "canal-json"}, "settings protocol=canal-json: shop"),
    ],
)
def test_contradictions_name_the_settings(given: dict[str, Any], said: str) -> None:
    """Paths of other settings are reported with those that were given and what to do, and no file is handed out."""
    polls = reader(MemoryStorage({SCHEMA: b"{}", DATA: b"rows"}), **given)
    for _ in range(2):
        with pytest.raises(ConfigError) as caught:
            polls.poll()
        assert said in str(caught.value)
        assert DATA in str(caught.value)


def test_no_separator_given() -> None:
    """Where no separator was given, every layout of one bucket is read."""
    folders = ("449000000000000001/2024-01-01", "449000000000000001/7/2024", "449000000000000002")
    objects = {f"shop/t/{folder}/CDC000001.csv": b"rows" for folder in folders}
    poll = reader(MemoryStorage({SCHEMA: b"{}", "shop/t/449000000000000002/schema.json": b"{}"} | objects)).poll()
    assert (len(poll.data_files), len(poll.schema_files)) == (3, 2)


def test_file_that_grows() -> None:
    """A file that is there under its final name while it is written is offered again each time it has grown."""
    storage = MemoryStorage({"metadata": metadata(V), SCHEMA: b"{}", DATA: b"half a r"})
    polls = reader(storage)
    (half,) = polls.poll().data_files
    assert polls.poll().data_files == ()
    storage.put(DATA, b"half a row\r\n")
    poll = polls.poll()
    (whole,) = poll.data_files
    assert (half.stored.size, whole.stored.size, poll.changed) == (8, 12, 1)
    assert half.stored.tag != whole.stored.tag
    assert polls.poll().data_files == ()


@pytest.mark.parametrize("rest", [".tmp", ".tmp.5ee2b9c1-7e3a-4b60-8b9e-9d6e1c7f0a55"])
def test_unfinished_uploads(rest: str) -> None:
    """What is still written under a temporary name is counted and not read; it is found once it has its own name."""
    storage = MemoryStorage(
        {"metadata": metadata(V), SCHEMA + rest: b"{", DATA + rest: b"half", "metadata" + rest: b"{"}
    )
    polls = reader(storage)
    poll = polls.poll()
    assert (poll.schema_files, poll.data_files, poll.ignored) == ((), (), {"unfinished upload (.tmp)": 3})
    storage.put(SCHEMA, b"{}")
    storage.put(DATA, b"rows")
    poll = polls.poll()
    assert (len(poll.schema_files), len(poll.data_files)) == (1, 1)


def test_files_move_to_their_table_within_one_poll() -> None:
    """A file that was taken for another table's is handed out under its own in the poll that finds the schema file."""
    storage = MemoryStorage({"a/1/2/CDC000001.csv": b"rows"})
    polls = reader(storage, date_separator="none")
    assert polls.poll().data_files[0].table_dir == "a"
    storage.put("a/1/meta/schema_2_0000000001.json", b"{}")
    poll = polls.poll()
    assert [file.table_dir for file in poll.data_files] == ["a/1"]
    assert len(poll.schema_files) == 1


def test_table_ids_as_path_are_reported_once() -> None:
    """The first schema file of a bucket with table ids as path says what such a bucket does not tell."""
    fields = {"Table": "t", "Schema": "shop", "Version": 1, "TableVersion": V, "Query": "", "Type": 0}
    content = json.dumps(fields | {"TableColumns": None, "TableColumnsTotal": 0}, indent=4).encode()
    reading = reader(MemoryStorage({f"{number}/meta/schema_{V}_0000000001.json": content for number in (7, 8)}))
    told = [definition(read).warnings for read in reading.poll().schema_files]
    assert [any("use-table-id-as-path" in warning for warning in warnings) for warnings in told] == [True, False]


def test_definition_in_the_older_layout() -> None:
    """The content of a schema.json gives the checksum that its name lacks."""
    fields = {"Table": "t", "Schema": "shop", "Version": 1, "TableVersion": V, "Query": "", "Type": 0}
    content = json.dumps(fields | {"TableColumns": None, "TableColumnsTotal": 0}, indent=4).encode()
    polls = reader(MemoryStorage({f"shop/t/{V}/schema.json": content}))
    (read,) = polls.poll().schema_files
    found = definition(read)
    assert (read.file.checksum, found.checksum, found.warnings) == (None, schema_checksum(content.decode()), ())


def test_definition() -> None:
    """A schema file's content is read and checked against its path."""
    fields = {"Table": "t", "Schema": "shop", "Version": 1, "TableVersion": V, "Query": "", "Type": 0}
    content = json.dumps(fields | {"TableColumns": None, "TableColumnsTotal": 0}, indent=4).encode()
    storage = MemoryStorage({SCHEMA: content})
    polls = reader(storage)
    (read,) = polls.poll().schema_files
    assert str(definition(read).name) == "shop.t"
    storage.put(SCHEMA, b"x" * len(content))
    assert isinstance(fault := fault_of(polls), MalformedSchemaFile)
    assert SCHEMA in str(fault)


class AfterListing(MemoryStorage):
    """Something happens to the schema file between a listing and the reading of what it showed."""

    def __init__(self, content: bytes) -> None:
        """Hold the schema file."""
        super().__init__({SCHEMA: content})
        self.happens: Callable[[], object] = str

    def read(self, path: str, most: int = 0) -> bytes:
        """Return the content, after what happens."""
        if path == SCHEMA:
            self.happens()
        return super().read(path, most)


def test_schema_file_that_is_gone_before_it_is_read() -> None:
    """The poll names it and goes on."""
    storage = AfterListing(b"{}")
    storage.happens = lambda: storage.delete(SCHEMA)
    assert isinstance(fault := fault_of(reader(storage)), FilesMissing)
    assert SCHEMA in str(fault)


def test_schema_file_that_is_replaced_before_it_is_read() -> None:
    """A shorter one may be cut short: the poll says so, and loses nothing. The next one reads the file as it is by then."""
    fields = {"Table": "t", "Schema": "shop", "Version": 1, "TableVersion": V, "Query": "", "Type": 0}
    content = json.dumps(fields | {"TableColumns": None, "TableColumnsTotal": 0}, indent=4).encode()
    storage = AfterListing(content + b" " * 10)
    storage.put(DATA, b"rows")
    storage.happens = lambda: storage.put(SCHEMA, content)
    polls = reader(storage)
    assert isinstance(fault := polls.poll().schema_files[0].content, StorageUnavailable)
    assert "ended after" in str(fault)
    storage.happens = str
    poll = polls.poll()
    assert [str(definition(read).name) for read in poll.schema_files] == ["shop.t"]
    assert [file.stored.path for file in poll.data_files] == [DATA]


class Midnight(MemoryStorage):
    """A day ends while it is listed: its last file and the next day's first are written, only the latter is shown."""

    last = f"shop/t/{V}/2024-01-01/CDC00000000000000000002.csv"
    first = f"shop/t/{V}/2024-01-02/CDC00000000000000000001.csv"
    comes = False
    listings = 0

    def listing(self, closed: frozenset[str], after: Mapping[str, str]) -> Iterator[StoredObject]:
        """List what is there, and of what is written meanwhile the next day's file."""
        self.listings += 1
        if not self.comes:
            return super().listing(closed, after)
        self.comes = False
        self.put(self.first, b"rows")
        shown = list(super().listing(closed, after))
        self.put(self.last, b"rows")
        return iter(shown)


@pytest.mark.parametrize("timed", [True, False])
def test_midnight_during_a_listing(*, timed: bool) -> None:
    """Rows without commit ts are handed out with what was written before them, by a second listing; others at once."""
    storage = Midnight({"metadata": metadata(V), SCHEMA: b"{}", DATA: b"rows"})
    polls = reader(storage, csv=CsvOptions(include_commit_ts=timed))
    assert [file.stored.path for file in polls.poll().data_files] == [DATA]
    before, storage.comes = storage.listings, True
    found = {file.stored.path for file in polls.poll().data_files}
    assert found == ({storage.first} if timed else {storage.first, storage.last})
    assert storage.listings == before + (1 if timed else 2)
    polls.poll()
    assert storage.listings == before + (2 if timed else 3)


def test_midnight_during_the_second_listing() -> None:
    """A directory that only the second listing of a poll shows waits for the next poll."""
    storage = Midnight({"metadata": metadata(V), SCHEMA: b"{}", DATA: b"rows"})
    polls = reader(storage)
    polls.poll()
    other = f"shop/t/{V}/2023-12-31/CDC00000000000000000001.csv"
    storage.put(other, b"rows")
    shown = storage.listing

    def again(closed: frozenset[str], after: Mapping[str, str]) -> Iterator[StoredObject]:
        storage.comes = storage.listings == 3
        return shown(closed, after)

    storage.listing = again  # type: ignore[method-assign] # the day ends in the poll's second listing
    assert [file.stored.path for file in polls.poll().data_files] == [other]
    assert {file.stored.path for file in polls.poll().data_files} == {storage.first, storage.last}


def test_second_listing_that_fails_loses_nothing() -> None:
    """What the first listing of a poll showed is returned by the next poll where the second one fails."""
    storage = Midnight({"metadata": metadata(V), SCHEMA: b"{}", DATA: b"rows"})
    polls = reader(storage)
    shown = storage.listing

    def broken(closed: frozenset[str], after: Mapping[str, str]) -> Iterator[StoredObject]:
        storage.available = storage.listings == 0
        return shown(closed, after)

    storage.listing = broken  # type: ignore[method-assign] # it breaks between two listings
    with pytest.raises(StorageUnavailable):
        polls.poll()
    storage.listing, storage.available = shown, True  # type: ignore[method-assign] # it is back
    poll = polls.poll()
    assert [file.stored.path for file in poll.data_files] == [DATA]
    assert [read.file.stored.path for read in poll.schema_files] == [SCHEMA]
