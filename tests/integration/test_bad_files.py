"""What bad ``metadata``, schema files, names and missing files get: nothing wrong is applied, and the rest goes on."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from storage_consumer.errors import NoMetadata
from storage_consumer.summary import RoundSummary, Silent
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, row, ts
from tests.integration.rounds import consumer, content, of, once

pytestmark = [
    *(pytest.mark.server, pytest.mark.spark, pytest.mark.usefixtures("spark")),
    pytest.mark.parametrize("bucket", ["csv", "canal-json"], indirect=True),
]


@pytest.fixture
def two_tables(bucket: SmallBucket) -> SmallBucket:
    """Tables d.good and d.bad with one row each at tick 5; ``metadata`` says tick 9."""
    bucket.create("d.good", "d.bad")
    bucket.rows("d.good", 1, row("d.good", 5, "1", '"good"'))
    bucket.rows("d.bad", 1, row("d.bad", 5, "1", '"bad"'))
    bucket.metadata(ts(9))
    return bucket


class RemovesFile(Silent):
    """Takes a file away after the bucket was listed and before it is read."""

    def __init__(self, path: Path) -> None:
        """`path`: which file."""
        self.path = path

    def round_started(self, **_: int) -> None:
        """The listing is over."""
        self.path.unlink(missing_ok=True)


def rounds_until_halted(running: object, table: str, limit: float = 10) -> RoundSummary:
    """Rounds until a table is halted, at most `limit` seconds."""
    deadline = time.monotonic() + limit
    while True:
        summary: RoundSummary = running.run_once()  # type: ignore[attr-defined]  # a Consumer
        if of(summary, table).state == "halted" or time.monotonic() > deadline:
            return summary
        time.sleep(0.2)


# metadata


def test_nothing_is_applied_without_metadata(
    two_tables: SmallBucket, mariadb: DatabaseServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Before the first metadata nothing is made in the target, before its first checkpoint nothing is applied; the log says why (O10)."""
    (two_tables.root / "metadata").unlink()
    with consumer(two_tables, mariadb) as running:
        with pytest.raises(NoMetadata, match="Is the upstream URI the changefeed's sink URI"):
            running.run_once()
        assert mariadb.databases() == ()
        two_tables.metadata("{")
        summary = running.run_once()
        assert (summary.checkpoint, summary.storage_checkpoint, summary.rows, summary.ddls) == (0, 0, 0, 0)
        assert summary.pending_files == 2
        assert mariadb.databases() == ("storage_consumer",)
        assert "checkpoint_missing" in caplog.text
        two_tables.metadata(ts(9))
        assert running.run_once().checkpoint == ts(9)
    assert content(mariadb, "d.bad") == [(1, "bad")]


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe"])
def test_data_file_that_is_not_read(
    kind: str, two_tables: SmallBucket, mariadb: DatabaseServer, tmp_path: Path
) -> None:
    """A data file that is none, or a link out of the storage, holds its table back: it may stand for rows. The others go on."""
    path = two_tables.file("d.bad", 2)
    outside = tmp_path / "moved.csv"
    outside.write_text(two_tables.text(row("d.bad", 3, "7", '"moved"')) + "\r\n")
    two_tables.metadata(ts(9))
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(outside if kind == "link" else tmp_path / "nothing")
    summary = once(two_tables, mariadb)
    assert (of(summary, "d.bad").state, of(summary, "d.good").state) == ("waiting", "running")
    assert of(summary, "d.bad").checkpoint < ts(9)
    assert path.name in of(summary, "d.bad").error
    path.unlink()
    outside.rename(path)
    summary = once(two_tables, mariadb)
    assert (of(summary, "d.bad").state, of(summary, "d.bad").checkpoint) == ("running", ts(9))
    assert (7, "moved") in content(mariadb, "d.bad")


# schema files


def test_unreadable_schema_file_halts_its_table_only(two_tables: SmallBucket, mariadb: DatabaseServer) -> None:
    """A torn schema file halts its table with the file's name; the others go on; repaired, the next start completes it."""
    (path,) = two_tables.root.glob("d/bad/meta/*.json")
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    summary = once(two_tables, mariadb)
    halted = of(summary, "d.bad")
    assert halted.state == "halted"
    assert path.name in halted.error
    assert "not JSON" in halted.error
    assert content(mariadb, "d.good") == [(1, "good")]
    assert mariadb.query("SHOW TABLES IN d") == (("good",),)
    path.write_bytes(whole)
    assert once(two_tables, mariadb).tables[0].state == "running"
    assert content(mariadb, "d.bad") == [(1, "bad")]


def test_missing_schema_file_is_waited_for(two_tables: SmallBucket, mariadb: DatabaseServer) -> None:
    """Rows without a schema file wait for it; when it comes the table goes on; when it does not, the table halts."""
    (path,) = two_tables.root.glob("d/bad/meta/*.json")
    whole = path.read_bytes()
    path.unlink()
    with consumer(two_tables, mariadb, gap_timeout="1s") as running:
        waiting = of(running.run_once(), "d.bad")
        assert waiting.state == "waiting"
        assert f"d/bad/meta/schema_{ts(1)}_" in waiting.error
        halted = of(rounds_until_halted(running, "d.bad"), "d.bad")
        assert halted.state == "halted"
        assert "did not arrive within 1 s" in halted.error
    assert content(mariadb, "d.good") == [(1, "good")]
    path.write_bytes(whole)
    once(two_tables, mariadb)
    assert content(mariadb, "d.bad") == [(1, "bad")]


# missing and vanished files


def test_gap_in_file_numbers_is_waited_for(two_tables: SmallBucket, mariadb: DatabaseServer) -> None:
    """Nothing beyond a missing number is applied; when the file comes in time the table goes on."""
    two_tables.rows("d.bad", 3, row("d.bad", 7, "3", '"three"'))
    with consumer(two_tables, mariadb) as running:
        waiting = of(running.run_once(), "d.bad")
        assert waiting.state == "waiting"
        assert "file number 2" in waiting.error
        assert content(mariadb, "d.good") == [(1, "good")]
        two_tables.rows("d.bad", 2, row("d.bad", 6, "2", '"two"'))
        assert not running.run_once().waiting
    assert content(mariadb, "d.bad") == [(1, "bad"), (2, "two"), (3, "three")]


def test_file_that_vanishes_before_it_is_read_is_waited_for(two_tables: SmallBucket, mariadb: DatabaseServer) -> None:
    """A file that was listed and is gone is never passed over: its table waits; when the file is back it goes on."""
    path = two_tables.file("d.bad", 1)
    kept = two_tables.root.parent / "kept"
    shutil.copy2(path, kept)
    progress = RemovesFile(path)
    with consumer(two_tables, mariadb, progress=progress) as running:
        waiting = of(running.run_once(), "d.bad")
        assert waiting.state == "waiting"
        assert path.name in waiting.error
        assert content(mariadb, "d.good") == [(1, "good")]
        assert of(running.run_once(), "d.bad").state == "waiting"
        progress.path = kept.with_name("nothing")
        shutil.copy2(kept, path)
        assert not running.run_once().waiting
    assert content(mariadb, "d.bad") == [(1, "bad")]


def test_file_that_stays_away_halts_its_table(two_tables: SmallBucket, mariadb: DatabaseServer) -> None:
    """After the gap timeout the table of a vanished file halts, though no higher number shows the gap."""
    with consumer(two_tables, mariadb, progress=RemovesFile(two_tables.file("d.bad", 1)), gap_timeout="1s") as running:
        summary = rounds_until_halted(running, "d.bad")
    assert of(summary, "d.bad").state == "halted"
    assert "data was lost at the source" in of(summary, "d.bad").error
    assert "file number 1" in of(summary, "d.bad").error


# changed files, odd names
