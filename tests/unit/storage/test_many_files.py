"""Listings of very many files: what is held while they are taken in stays bounded."""

from __future__ import annotations

import json

import pytest

from storage_consumer.config.settings import CsvOptions, Upstream
from storage_consumer.storage import inventory
from storage_consumer.storage.paths import CONTRADICTS_DATE, UNKNOWN
from storage_consumer.storage.reader import StorageReader
from storage_consumer.testing import FakeClock, MemoryStorage
from tests.unit.storage.bucket import V1, V2, Bucket

NEW = 20


def objects(numbers: range, *, tables: int = 3) -> dict[str, bytes]:
    """Tables with two versions and a folder of data files in each."""
    files = {"metadata": json.dumps({"checkpoint-ts": V2 + 1}).encode()}
    for table in range(tables):
        for version in (V1, V2):
            files[f"shop/t{table}/meta/schema_{version}_0000000001.json"] = b"{}"
            files |= {f"shop/t{table}/{version}/2024-01-01/CDC{n:020d}.csv": b"rows" for n in numbers}
    return files


def reader(storage: MemoryStorage) -> StorageReader:
    """A reader of a CSV bucket."""
    options = CsvOptions(include_commit_ts=True)
    return StorageReader(storage, Upstream(scheme="file", root="/bucket", protocol="csv", csv=options), FakeClock())


@pytest.mark.parametrize("most", [0, 1, 7, 100_000])
def test_first_listing_of_many(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However few files of unknown directories a listing may hold, one poll finds each file once, and nothing is taken for late."""
    monkeypatch.setattr(inventory, "MOST_UNPLACED", most)
    files = objects(range(1, 11))
    storage = MemoryStorage(files)
    polls = reader(storage)

    first, second = polls.poll(), polls.poll()

    found = [file.stored.path for file in first.data_files]
    assert sorted(found) == sorted(path for path in files if path.endswith(".csv"))
    assert (first.warnings, first.changed, first.overwritten, first.vanished) == ((), 0, (), ())
    assert (second.data_files, second.vanished, second.warnings) == ((), (), ())
    storage.put(f"shop/t1/{V2}/2024-01-01/CDC{11:020d}.csv", b"rows")
    assert [file.number for file in polls.poll().data_files] == [11]


@pytest.mark.parametrize("most", [0, 1, 100_000])
def test_files_of_no_directory_of_ours(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is passed over is counted in full, and what contradicts the settings is told, however many files come before it."""
    monkeypatch.setattr(inventory, "MOST_UNPLACED", most)
    bucket = Bucket()
    for number in range(1, 6):
        bucket.put(f"another/program/CDC{number:06d}.csv", b"rows")
    bucket.schema(V1)
    bucket.data(f"{V1}/2024-01-01", 1, 2)
    found = bucket.look(full=True)
    assert found.ignored == {UNKNOWN: 5}
    assert all(CONTRADICTS_DATE in text for text in found.contradictions)
    assert found.contradictions


def test_finished_files_are_counted_not_shown() -> None:
    """After a restart only files that may have news are handed out, and of each stream at least one; later polls hand out all."""
    storage = MemoryStorage(objects(range(1, NEW + 1), tables=1))
    folder, other = (f"shop/t0/{version}/2024-01-01" for version in (V1, V2))
    polls = reader(storage)
    polls.resume(5, {f"{folder}||20": 15, f"{other}||20": NEW})

    first = polls.poll()

    shown = {file.stored.path.removeprefix("shop/t0/") for file in first.data_files}
    assert {file.number for file in first.data_files if file.version == V1} >= set(range(15, NEW + 1))
    assert any(path.startswith(str(V2)) for path in shown)
    assert len(shown) + first.finished == 2 * NEW
    assert len(shown) <= NEW - 15 + 1 + 1 + 2
    storage.put(f"{folder}/CDC{3:020d}.csv", b"other rows")
    polls.list_everything()
    assert [(file.number, file.version) for file in polls.poll().data_files] == [(3, V1)]
