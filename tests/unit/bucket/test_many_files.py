"""Listings of very many files: what is held while they are taken in stays bounded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from storage_consumer.bucket import inventory
from storage_consumer.bucket.paths import CONTRADICTS_DATE, UNKNOWN
from storage_consumer.bucket.reader import StorageReader
from storage_consumer.config.settings import CsvOptions, Upstream
from storage_consumer.plan.finished_files import EVERYTHING, Digests, Finished, digest_of
from tests.harness.twins.storage import FakeClock, MemoryStorage
from tests.unit.bucket.bucket import V1, V2, Bucket

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


def later_run(storage: MemoryStorage, upto: Mapping[str, int], *, checkpoint: int = 5) -> StorageReader:
    """A reader of a later run, which knows of each file as it is now up to these numbers of these folders."""
    finished = dict[str, Finished]()
    for folder, number in upto.items():
        digests = Digests({})
        for stored in storage.listing(frozenset(), {}):
            if stored.path.startswith(f"{folder}/CDC") and int(stored.path[-24:-4]) <= number:
                digests[int(stored.path[-24:-4])] = digest_of(stored)
        finished[f"{folder}||20"] = Finished(upto=number, digests=digests.moved()[0])
    polls = reader(storage)
    polls.resume(checkpoint, finished)
    return polls


def test_finished_files_are_counted_not_shown() -> None:
    """After a restart only files that may have news are handed out, and of each sequence at least one; later polls hand out all."""
    storage = MemoryStorage(objects(range(1, NEW + 1), tables=1))
    folder, other = (f"shop/t0/{version}/2024-01-01" for version in (V1, V2))
    polls = later_run(storage, {folder: 15, other: NEW})

    first = polls.poll()

    assert {f.number for f in first.data_files if f.version == V1 and not f.finished} == set(range(16, NEW + 1))
    assert [(f.version, f.number) for f in first.data_files if f.finished] == [(V1, 1), (V2, 1)]
    assert len(first.data_files) + first.finished == 2 * NEW
    assert first.changed == 0
    storage.put(f"{folder}/CDC{3:020d}.csv", b"other rows")
    polls.list_everything()
    assert [(file.number, file.version) for file in polls.poll().data_files] == [(3, V1)]


@pytest.mark.parametrize("most", [0, 100_000])
def test_files_written_anew_between_two_runs(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each finished file that is other than an earlier run read it is handed out, whatever its number; one that is gone is none."""
    monkeypatch.setattr(inventory, "MOST_UNPLACED", most)
    storage = MemoryStorage(objects(range(1, NEW + 1), tables=1))
    folder, other = (f"shop/t0/{version}/2024-01-01" for version in (V1, V2))
    polls = later_run(storage, {folder: NEW, other: NEW})
    for number in (1, 4, 5, NEW):
        storage.put(f"{other}/CDC{number:020d}.csv", b"rows")
    storage.delete(f"{other}/CDC{2:020d}.csv")
    first = polls.poll()
    assert [(f.version, f.number) for f in first.data_files if not f.finished] == [(V2, n) for n in (1, 4, 5, NEW)]
    assert (first.changed, first.overwritten, first.vanished) == (4, (), ())


def test_files_that_an_earlier_run_may_not_have_seen() -> None:
    """Of files written anew those are told apart that an earlier run left out of its listings while it went on."""
    storage = MemoryStorage(objects(range(1, NEW + 1), tables=1))
    folder = f"shop/t0/{V2}/2024-01-01"
    polls = later_run(storage, {folder: NEW})
    sequence = f"{folder}||20"
    finished = polls._inventory.earlier.finished  # type: ignore[union-attr] # it is there before the first poll
    polls.resume(5, {sequence: replace(finished[sequence], left_out=12)})
    for number in (12, 13):
        storage.put(f"{folder}/CDC{number:020d}.csv", b"rows")
    assert [file.number for file in polls.poll().overwritten] == [12]


@pytest.mark.parametrize("most", [0, 100_000])
def test_files_of_which_nothing_is_known(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state without digests: files are read again."""
    monkeypatch.setattr(inventory, "MOST_UNPLACED", most)
    storage = MemoryStorage(objects(range(1, NEW + 1), tables=2))
    polls = reader(storage)
    done = {f"shop/t{t}/{version}/2024-01-01||20": Finished(upto=NEW) for t in (0, 1) for version in (V1, V2)}
    polls.resume(V2, done)
    first = polls.poll()
    again = [file for file in first.data_files if not file.finished]
    assert sorted((f.table_dir, f.version, f.number) for f in again) == sorted(
        (f"shop/t{t}", version, n) for t in (0, 1) for version in (V1, V2) for n in range(1, NEW + 1)
    )
    assert len(again) == len(first.data_files)
    assert (first.changed, first.overwritten, first.finished) == (0, (), 0)
    assert not [f for f in polls.poll().data_files if f.finished]


def test_what_is_left_out_is_reported() -> None:
    """Sequence by sequence it is told up to which number files are left out; `EVERYTHING` where TiCDC writes no more; and no word twice."""
    storage = MemoryStorage(objects(range(1, NEW + 1), tables=1))
    old, new = (f"shop/t0/{version}/2024-01-01||20" for version in (V1, V2))
    polls = reader(storage)
    polls.poll()
    assert polls.left_out() == {old: EVERYTHING, new: NEW - 8}
    polls.poll()
    assert polls.left_out() == {}
    storage.put(f"shop/t0/{V2}/2024-01-01/CDC{NEW + 1:020d}.csv", b"rows")
    polls.poll()
    assert polls.left_out() == {new: NEW - 7}
    storage.put(f"shop/t0/{V2}/2024-01-01/CDC{NEW + 1:020d}.csv", b"other")
    polls.poll()
    assert polls.left_out() == {}  # this very listing left them out
    polls.poll()
    assert polls.left_out() == {new: 0}


def test_file_written_anew_below_a_mark_that_is_given_up() -> None:
    """A file that was written anew where listings left it out is told apart also when it shows because marks are given up."""
    storage = MemoryStorage(objects(range(1, NEW + 1), tables=1))
    polls = reader(storage)
    polls.poll()
    storage.put(f"shop/t0/{V2}/2024-01-01/CDC{3:020d}.csv", b"other")
    assert polls.poll().data_files == ()
    storage.put(f"shop/t0/{V2}/2024-01-01/CDC{NEW:020d}.csv", b"other")
    assert polls.poll().overwritten == ()
    assert [file.number for file in polls.poll().overwritten] == [3]
