"""Content that ends before its listed size is none, however well it ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from storage_consumer.bucket.reader import StorageReader
from storage_consumer.bucket.storage import whole
from storage_consumer.config.settings import Upstream
from storage_consumer.errors import StorageUnavailable
from storage_consumer.model import StoredObject
from storage_consumer.rows.halves import file_blocks
from storage_consumer.rows.spec import JobFile
from tests.harness.twins.storage import FakeClock, MemoryStorage
from tests.unit.building import data_file

ROWS = b'"I","t","s",1,1\n"I","t","s",2,2\n"I","t","s",3,3\n'
LISTED = StoredObject(path="s/t/1/CDC000001.csv", size=len(ROWS), tag="1")


def in_blocks(content: bytes) -> Iterator[bytes]:
    """Content in blocks of a row or less."""
    yield from (content[place : place + 10] for place in range(0, len(content), 10))


@pytest.mark.parametrize("end", range(len(ROWS)))
def test_shorter_than_listed(end: int) -> None:
    """An object that ends anywhere before its listed size, also between two rows, is asked for again."""
    with pytest.raises(StorageUnavailable, match=f"ended after {end} bytes, but the listing says {len(ROWS)}"):
        list(whole(in_blocks(ROWS[:end]), LISTED))
    if end > 5:
        with pytest.raises(StorageUnavailable, match=f"after {end} bytes"):
            list(whole(in_blocks(ROWS[5:end]), LISTED, 5))


def test_as_listed_or_longer() -> None:
    """What has all bytes is given as it is; so is a longer one, which was replaced since."""
    assert b"".join(whole(in_blocks(ROWS), LISTED)) == ROWS
    assert b"".join(whole(in_blocks(ROWS[7:]), LISTED, 7)) == ROWS[7:]
    assert b"".join(whole(in_blocks(ROWS * 2), LISTED)) == ROWS * 2


class Short:
    """A storage that gives half of an object."""

    def blocks(self, path: str, size: int, start: int = 0, tag: str = "") -> Iterator[bytes]:  # noqa: ARG002 - the interface
        """Half of it."""
        yield ROWS[start : len(ROWS) // 2]


def test_files_of_a_job() -> None:
    """The files of a job are looked at."""
    work = JobFile(table=0, file=replace(data_file("s/t", 1, 1), stored=LISTED), rank=0, newest=True)
    with pytest.raises(StorageUnavailable, match="the transfer was cut short"):
        list(file_blocks(Short(), work))


class Replaced(MemoryStorage):
    """A storage whose objects are replaced by shorter ones right after each listing."""

    def listing(self, closed: frozenset[str], after: Mapping[str, str]) -> Iterator[StoredObject]:
        """List, before the change."""
        found = list(super().listing(closed, after))
        for stored in found:
            self.put(stored.path, b"{")
        return iter(found)


def test_schema_files() -> None:
    """A schema file that is shorter than was listed is asked for again; it is not taken for one that is broken."""
    path = "shop/t/meta/schema_449000000000000001_0000000001.json"
    storage = Replaced({path: b"{" + b" " * 100 + b"}"})
    reader = StorageReader(storage, Upstream(scheme="file", root="/", protocol="csv"), FakeClock())
    (read,) = reader.poll().schema_files
    assert isinstance(read.content, StorageUnavailable)
    assert "ended after 1 bytes" in str(read.content)
