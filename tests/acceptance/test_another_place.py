"""The program where its bucket is empty, foreign, given to another changefeed, or moved: as processes of their own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.program import ROOT
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, row, ts

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance]
HOUR = 3600


def start(verb: str, bucket: Path, server: DatabaseServer, *more: str) -> subprocess.CompletedProcess[str]:
    """Run one command to its end."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("STORAGE_CONSUMER_")}
    words = [verb, "--upstream-uri", f"{bucket.as_uri()}?protocol=csv", "--downstream-uri", server.uri, *more]
    return subprocess.run(
        [sys.executable, "-m", "storage_consumer", *words],
        cwd=ROOT,
        env=clean,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def once(bucket: Path, server: DatabaseServer) -> subprocess.CompletedProcess[str]:
    """One round."""
    return start(
        "run", bucket, server, "--include-commit-ts=true", "--tz", "UTC", "--once", "--spark-master", "local[1]"
    )


def names(server: DatabaseServer) -> list[str]:
    """What is in the table."""
    return [str(name) for (name,) in server.query("SELECT name FROM shop.a ORDER BY id")]


def test_a_folder_without_metadata(mariadb: DatabaseServer, tmp_path: Path) -> None:
    """Code 5, with the likely folder, and nothing is made in the target; looked for one level too high, too low, and in an empty one."""
    feed = SmallBucket(root=tmp_path / "feed")
    feed.create("shop.a")
    feed.metadata(ts(3))
    (tmp_path / "empty").mkdir()
    for place, likely in ((tmp_path, feed.root), (feed.root / "shop", feed.root), (tmp_path / "empty", None)):
        done = once(place, mariadb)
        assert done.returncode == 5, done.stderr
        assert (f"likely {feed.root.as_uri()}" in done.stderr) == (likely is not None)
        assert "exit_code=5" in done.stderr
    assert mariadb.databases() == ()


def test_moved_and_then_given_to_another_changefeed(mariadb: DatabaseServer, tmp_path: Path) -> None:
    """A copy is refused until it is bound, then goes on; another changefeed in the emptied prefix is refused before it is applied."""
    bucket = SmallBucket(root=tmp_path / "old")
    bucket.create("shop.a")
    bucket.rows("shop.a", 1, row("shop.a", 2, "1", '"one"'))
    bucket.metadata(ts(3 * HOUR))
    assert once(bucket.root, mariadb).returncode == 0
    new = SmallBucket(root=Path(shutil.copytree(bucket.root, tmp_path / "new")))
    new.rows("shop.a", 2, row("shop.a", 4 * HOUR, "2", '"two"'))
    new.metadata(ts(5 * HOUR))
    refused = once(new.root, mariadb)
    assert refused.returncode == 2
    assert "storage-consumer rebind --upstream-uri" in refused.stderr
    bound = start("rebind", new.root, mariadb)
    assert (bound.returncode, bound.stderr) == (0, "")
    assert f"it is bound to {new.root.as_uri()} now" in bound.stdout
    assert once(new.root, mariadb).returncode == 0
    assert names(mariadb) == ["one", "two"]
    shutil.rmtree(new.root)
    new.schema("shop.a", ts(2 * HOUR), "", 0)
    new.rows("shop.a", 1, row("shop.a", 3 * HOUR, "9", '"other"'), version=ts(2 * HOUR))
    new.metadata(ts(6 * HOUR))
    stopped = once(new.root, mariadb)
    assert stopped.returncode == 2
    assert "This is another changefeed" in stopped.stderr
    assert names(mariadb) == ["one", "two"]


def retouched(bucket: SmallBucket, seconds: int) -> None:
    """Give every file another time, as a restore in place does."""
    for path in bucket.root.rglob("*"):
        os.utime(path, (seconds, seconds))


def test_restored_in_place(mariadb: DatabaseServer, tmp_path: Path) -> None:
    """With `rebind --restored` the tables go on; without it they halt, and the command in the error takes them as they are."""
    bucket = SmallBucket(root=tmp_path / "feed")
    bucket.create("shop.a")
    for number in range(1, 13):
        bucket.rows("shop.a", number, row("shop.a", 2, str(number), '"one"'))
    bucket.metadata(ts(3))
    assert once(bucket.root, mariadb).returncode == 0
    retouched(bucket, 1_000_000_000)
    assert start("rebind", bucket.root, mariadb, "--restored").returncode == 0
    bucket.metadata(ts(4))
    assert once(bucket.root, mariadb).returncode == 0
    retouched(bucket, 1_100_000_000)
    halted = once(bucket.root, mariadb)
    assert halted.returncode == 4
    assert "rebind --restored" in halted.stderr
    (words,) = set(re.findall(r"reload-done --table shop\.a --at (\d+)", halted.stderr))
    told = [sys.executable, "-m", "storage_consumer", "table", "reload-done", "--table", "shop.a", "--at", words]
    subprocess.run([*told, "--downstream-uri", mariadb.uri], cwd=ROOT, check=True, timeout=200)
    bucket.rows("shop.a", 13, row("shop.a", 8, "13", '"two"'))
    bucket.metadata(ts(9))
    assert once(bucket.root, mariadb).returncode == 0
    assert names(mariadb) == ["one"] * 12 + ["two"]
