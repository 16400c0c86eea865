"""What holds for every store that is asked over a network: how many calls a listing takes, downloads, processes, errors."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from dataclasses import replace
from typing import Any

import pytest

from storage_consumer.bucket.inventory import Inventory
from storage_consumer.bucket.stores import object_store as bucket_module
from storage_consumer.bucket.stores import open_storage
from storage_consumer.bucket.stores.object_store import Bucket, Page, ReadInParts
from storage_consumer.config.settings import Secrets, Upstream
from storage_consumer.errors import ConfigError, StorageUnavailable
from tests.contract.rigs import BucketRig, GcsRig, S3Rig

V1, V2 = 449000000000000001, 449000000000000002
UNREACHED = "http://127.0.0.1:9"


def grow(rig: BucketRig, days: int) -> None:
    """Three files on each of so many days, a schema file, and a second table behind it."""
    rig.put(f"s/t/meta/schema_{V1}_0000000001.json", b"{}")
    for day in range(days):
        for number in range(1, 4):
            rig.put(f"s/t/{V1}/{2000 + day // 28}-01-{day % 28 + 1:02d}/CDC{number:020d}.csv", b"x")
    rig.put(f"s/t_more/{V1}/2024-01-01/CDC{1:020d}.csv", b"x")
    rig.put(f"s/t_more/meta/schema_{V1}_0000000001.json", b"{}")


def test_calls_follow_what_is_open(served: BucketRig) -> None:
    """While closed files grow, the calls of a listing stay the same, and new files are found (P4)."""
    calls, full_calls = [], []
    for days in (20, 44):
        grow(served, days)
        storage = served.storage
        storage.page_size, storage.requests = 20, 0
        inventory = Inventory("day", partition_separator=True, extension="csv")
        everything = inventory.observe(storage.listing(frozenset(), {}), full=True, checkpoint=V2)
        assert len(everything.data_files) == days * 3 + 1
        full_calls.append(storage.requests)
        new = [f"s/t/{V1}/9000-01-01/CDC{1:020d}.csv", f"s/new/{V1}/2024-01-01/CDC{1:020d}.csv"]
        for path in new:
            served.put(path, b"x")
        storage.page_size, storage.requests = 45, 0
        found = inventory.observe(storage.listing(inventory.closed, inventory.after), full=False, checkpoint=V2)
        calls.append(storage.requests)
        assert {file.stored.path for file in found.data_files} == set(new)
        for path in new:
            served.delete(path)
    assert full_calls[1] > 1.5 * full_calls[0]
    assert calls[0] == calls[1] <= 14


def grow_to(rig: S3Rig | GcsRig, days: int, files: int, tables: int) -> None:
    """So many files on each of the days from 2000-01-01 on that there are not yet, and the schema files."""
    for table in (f"s/t{number}" for number in range(tables)):
        rig.put(f"{table}/meta/schema_{V1}_0000000001.json", b"{}")
        for day in range(days):
            folder = f"{table}/{V1}/2000-{day // 28 + 1:02d}-{day % 28 + 1:02d}"
            for number in range(1, files + 1):
                rig.put(f"{folder}/CDC{number:020d}.csv", b"x")


def count_names(storage: Bucket, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many objects each page shows, from now on."""
    names: list[int] = []
    ask = storage._page

    def counted(*arguments: Any, **how: Any) -> Page:
        page = ask(*arguments, **how)
        names.append(len(page.objects))
        return page

    monkeypatch.setattr(storage, "_page", counted)
    return names


def test_an_idle_listing_costs_what_is_open(ordered: S3Rig | GcsRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once listed, calls and the objects that they show stay the same while what is done grows; and all that comes is found.

    Late files in open directories, new dates, tables, versions, partitions and schema files, many in one go too.
    """
    costs = []
    tables = 3
    for days in (12, 30):
        grow_to(ordered, days, 5, tables)
        storage = type(ordered.storage)(ordered.upstream, ordered.secrets)
        storage.page_size = 50
        inventory = Inventory("day", partition_separator=None, extension="csv")
        inventory.observe(storage.listing(frozenset(), {}), full=True, checkpoint=V2)
        for _ in range(4):
            names = count_names(storage, monkeypatch)
            idle = inventory.observe(storage.listing(inventory.closed, inventory.after), full=False, checkpoint=V2)
            assert not idle.data_files
        costs.append((len(names), sum(names)))
        late = f"s/t0/{V1}/2000-{(days - 1) // 28 + 1:02d}-{(days - 1) % 28 + 1:02d}/CDC%020d.csv"
        coming = {
            *(late % number for number in range(6, 80)),
            f"s/t1/{V1}/2000-12-31/CDC{1:020d}.csv",
            f"s/t1/{V1}/113/2000-12-31/CDC{1:020d}.csv",
            f"s/t2/{V2}/2000-12-31/CDC{1:020d}.csv",
            f"s/new/{V1}/2000-12-31/CDC{1:020d}.csv",
            f"a/new/{V1}/2000-12-31/CDC{1:020d}.csv",
            f"z/new/{V1}/2000-12-31/CDC{1:020d}.csv",
        }
        schema_files = {f"{table}/meta/schema_{V2}_0000000002.json" for table in ("s/t2", "s/new", "a/new", "z/new")}
        for path in coming | schema_files:
            ordered.put(path, b"x")
        found = inventory.observe(storage.listing(inventory.closed, inventory.after), full=False, checkpoint=V2)
        assert {file.stored.path for file in found.data_files} == coming
        assert {file.stored.path for file in found.schema_files} == schema_files
        for path in coming | schema_files:
            ordered.delete(path)
    assert costs[0] == costs[1]
    assert costs[0][1] <= tables * 40


def test_many_closed_directories_are_jumped_over_at_once(served: BucketRig) -> None:
    """With so many that several parts of the bucket are listed in parallel, nothing open is missed or shown twice."""
    closed = set()
    open_files = {f"s/t{table:02d}/meta/schema_{V2}_0000000001.json" for table in range(20)} | {"metadata", "zzz/last"}
    for table in range(20):
        for version in range(V1, V1 + 5):
            closed.add(f"s/t{table:02d}/{version}")
            served.put(f"s/t{table:02d}/{version}/CDC000001.csv", b"x")
        open_files.add(f"s/t{table:02d}/{V1 + 5}/CDC000001.csv")
    for path in open_files:
        served.put(path, b"x")
    served.storage.page_size = 3
    found = [stored.path for stored in served.storage.listing(frozenset(closed), {})]
    assert sorted(found) == sorted(open_files)
    for table in range(20):
        data, schema = f"s/t{table:02d}/{V1 + 5}/CDC000001.csv", f"s/t{table:02d}/meta/schema_{V2}_0000000001.json"
        assert found.index(data) < found.index(schema)


def test_markers_of_folders(served: BucketRig) -> None:
    """Empty objects that a console leaves for a folder, at any level and at any time, are counted, and hide no file (U6)."""
    day = f"s/t/{V1}/2024-01-01"
    markers = ["s/", "s/t/", "s/t/meta/", f"s/t/{V1}/", f"{day}/", f"{day}/meta/", "other/", "a/b//"]
    # Azure with folders of its own leaves blobs of their names, and Hadoop some with a word behind it.
    blobs = ["s", "s/t", f"s/t/{V1}", day, "s_$folder$", "s/t_$folder$"]
    for path in ("", *markers):
        served.put(path, b"")
    assert served.folder.any_object() is None
    for path in blobs:
        served.put(path, b"")
    inventory = Inventory("day", partition_separator=None, extension="csv")

    def files(*, full: bool) -> list[int]:
        known = (frozenset[str](), dict[str, str]()) if full else (inventory.closed, inventory.after)
        found = inventory.observe(served.storage.listing(*known), full=full, checkpoint=V2)
        assert (found.contradictions, found.warnings) == ([], ())
        assert set(found.ignored) == {"empty object"}
        assert found.ignored["empty object"] >= len(markers) + len(blobs)
        return sorted(file.number for file in found.data_files)

    served.put(f"s/t/meta/schema_{V1}_0000000001.json", b"{}")
    for number in range(1, 6):
        served.put(f"{day}/CDC{number:020d}.csv", b"x")
    assert files(full=True) == [1, 2, 3, 4, 5]
    for number, size in ((6, 1000), (7, 2), (8, 1)):
        served.storage.page_size = size
        served.put(f"{day}/CDC{number:020d}.csv", b"x")
        assert files(full=False) == [number]
    assert files(full=True) == []
    assert served.folder.any_object() is not None


def test_large_objects_come_in_parts(served: BucketRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object that is read in several requests is whole, and one that is replaced meanwhile is an error."""
    monkeypatch.setattr(bucket_module, "_PART", 100_000)
    content = os.urandom(350_000)
    served.put("a", content)
    assert b"".join(served.storage.blocks("a", 30_000)) == content
    blocks = served.storage.blocks("a", 100_000)
    first = next(blocks)
    served.put("a", os.urandom(350_000))
    if isinstance(served.storage, ReadInParts):
        with pytest.raises(StorageUnavailable, match="replaced"):
            b"".join(blocks)
    # A server may send less at a time than it was asked for.
    assert first
    assert content.startswith(first)


def test_missing_bucket(served: BucketRig) -> None:
    """A bucket that does not exist is a ConfigError that names bucket and server, and no secret."""
    upstream = replace(served.upstream, root="no-such-bucket/x")
    secrets = served.secrets
    with pytest.raises(ConfigError, match="no-such-bucket") as raised:
        open_storage(upstream, secrets).check()
    assert not any(secret in str(raised.value) for secret in secrets.texts())


@pytest.mark.parametrize(
    ("scheme", "secrets"),
    [
        ("s3", Secrets(access_key="the-access-key", secret_access_key="the-secret")),  # noqa: S106 - made up
        ("azure", Secrets(account_key="dGhlLXNlY3JldA==")),
    ],
)
def test_server_that_does_not_answer(scheme: Any, secrets: Secrets) -> None:
    """A server that can't be reached is a StorageUnavailable, without keys in it."""
    upstream = Upstream(scheme=scheme, root="bucket", endpoint=UNREACHED, account_name="a", region="r", protocol="csv")
    storage = open_storage(upstream, secrets)
    if isinstance(storage, Bucket):
        storage.pauses = storage.pauses and (0.1,)
    with pytest.raises(StorageUnavailable) as raised:
        storage.check()
    assert not any(secret in str(raised.value) for secret in secrets.texts())


def test_no_pickle(served: BucketRig) -> None:
    """An adapter that knows secrets does not pickle, and its settings do."""
    with pytest.raises(TypeError, match="open_storage"):
        pickle.dumps(served.storage)
    assert pickle.loads(pickle.dumps(served.upstream)) == served.upstream  # noqa: S301 - made on the line


def read_in_process(upstream: Upstream, keys: Secrets, results: Any) -> None:
    """Open the storage here and read."""
    results.put(open_storage(upstream, keys).read("a"))


def read_with_inherited(storage: Bucket, results: Any) -> None:
    """Read with the storage that came through the fork."""
    results.put(storage.read("a"))


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_other_processes(served: BucketRig, method: str) -> None:
    """Processes that start after this one has connected read on their own, and none hangs (O5)."""
    served.put("a", b"abc")
    assert served.storage.read("a") == b"abc"
    context: Any = multiprocessing.get_context(method)
    results = context.Queue()
    workers = [
        context.Process(target=read_in_process, args=(served.upstream, served.secrets, results)) for _ in range(2)
    ]
    if method == "fork":
        workers.append(context.Process(target=read_with_inherited, args=(served.storage, results)))
    for worker in workers:
        worker.start()
    assert [results.get(timeout=60) for _ in workers] == [b"abc"] * len(workers)
    for worker in workers:
        worker.join(timeout=60)
        assert worker.exitcode == 0
