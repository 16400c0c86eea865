"""What stops everything for a while: the bucket does not answer, the target is read-only, its disk is full."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.acceptance.situations.book import Book
from tests.acceptance.situations.feed import Feed
from tests.acceptance.situations.following import arguments
from tests.acceptance.situations.watching import Watch
from tests.harness import servers
from tests.harness.program import program
from tests.harness.s3_server import S3Server
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance, pytest.mark.timeout(900)]


def feed_of(folder: Path) -> Feed:
    """A feed of one table with a row."""
    feed = Feed(SmallBucket(root=folder / "bucket"))
    feed.create("shop.orders")
    feed.rows("shop.orders", 1, '1,"one"')
    feed.advance()
    return feed


def retried(watch: Watch, page: str, code: int) -> None:
    """Wait until the program retries and the status has this exit code, and show what is seen of that."""
    assert watch.running is not None
    # A round may have listed a new file before the checkpoint was there that it belongs to.
    watch.masks |= {r"\n  pending .*": "", r".*pending_files .*\n?": ""}
    watch.running.wait_for("retry", what="round")
    wait_until(f"status {code}", lambda: watch.status().code == code)
    status = watch.status()
    watch.page_says(status.text, status.text.partition(":")[0])
    watch.book.shows(
        page,
        {
            "status": watch.said(status),
            "metrics": watch.metrics(),
            "log": watch.log("retry", what="round"),
            "alerts": watch.alerts(),
        },
    )


def over(watch: Watch, page: str) -> None:
    """Wait until the program goes on by itself, and show the status."""
    assert watch.running is not None
    watch.running.wait_for("round_finished", checkpoint=watch.feed.marks[-1])
    watch.book.shows(page, {"cure": watch.healed(watch.settled())})


def test_read_only_target(mariadb: DatabaseServer, book: Book, tmp_path: Path) -> None:
    """Rounds are retried until the target takes writes again; then they go on by themselves."""
    mariadb.query("CREATE USER app IDENTIFIED BY 'secret'")
    mariadb.query("GRANT ALL ON *.* TO app")
    mariadb.query("REVOKE SUPER, READ_ONLY ADMIN ON *.* FROM app")
    uri = mariadb.uri.replace("root@", "app:secret@")
    watch = Watch(feed=feed_of(tmp_path), uri=uri, book=book)
    watch.masks[r"\b\w[\w' ]+: error 1290"] = "…: error 1290"
    try:
        with program(arguments(watch), tmp_path / "log") as running:
            watch.running = running
            running.wait_for("round_finished", checkpoint=watch.feed.marks[-1])
            watch.settled()
            watch.begin()
            mariadb.query("SET GLOBAL read_only = ON")
            watch.feed.rows("shop.orders", 2, '2,"two"')
            watch.feed.advance()
            retried(watch, "target-read-only", 3)
            mariadb.query("SET GLOBAL read_only = OFF")
            over(watch, "target-read-only")
    finally:
        mariadb.query("SET GLOBAL read_only = OFF")


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of so many bytes."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.root
def test_full_disk(book: Book, tmp_path: Path) -> None:
    """Rounds are retried until there is room again; nothing is half written."""
    innodb = ("--innodb-log-file-size=8M", "--innodb-buffer-pool-size=32M", "--innodb-doublewrite=0")
    with (
        small_disk(tmp_path / "disk", "200M") as disk,
        servers.mariadb(folder=disk, innodb=innodb) as server,
    ):
        watch = Watch(feed=feed_of(tmp_path), uri=server.uri, book=book)
        # Whatever needs room first is refused.
        watch.masks[r"\b\w[\w' ]+: error \d+: .*? \(the target's disk"] = "…: error …: … (the target's disk"
        with program(arguments(watch), tmp_path / "log") as running:
            watch.running = running
            running.wait_for("round_finished", checkpoint=watch.feed.marks[-1])
            watch.settled()
            watch.begin()
            ballast = disk / "ballast"
            with ballast.open("wb") as file:
                file.write(b"x" * shutil.disk_usage(disk).free)
            rows = [f'{number},"{"x" * 20}"' for number in range(100, 60_000)]
            watch.feed.rows("shop.orders", 2, *rows)
            watch.feed.advance()
            retried(watch, "target-disk-full", 5)
            ballast.unlink()
            over(watch, "target-disk-full")
        assert server.query("SELECT COUNT(*) FROM shop.orders") == ((59_901,),)


def test_silent_bucket(s3: S3Server, mariadb: DatabaseServer, book: Book, tmp_path: Path) -> None:
    """Rounds are retried while the bucket does not answer, and go on by themselves once it does."""
    feed = feed_of(tmp_path)
    s3.upload(feed.bucket.root, "silent", "prefix")
    uri = s3.uri("silent", "prefix", s3.reader, protocol="csv")
    watch = Watch(feed=feed, uri=mariadb.uri, book=book, upstream=uri)
    watch.places |= {f"{s3.endpoint}/silent": "https://s3.example.com/bucket"}
    with program(arguments(watch), tmp_path / "log") as running:
        watch.running = running
        running.wait_for("round_finished", checkpoint=feed.marks[-1])
        watch.settled()
        watch.begin()
        s3.child.kill()
        retried(watch, "bucket-silent", 5)
        s3.child.start()
        feed.rows("shop.orders", 2, '2,"two"')
        feed.advance()
        s3.upload(feed.bucket.root, "silent", "prefix")
        over(watch, "bucket-silent")
        assert mariadb.query("SELECT COUNT(*) FROM shop.orders") == ((2,),)
