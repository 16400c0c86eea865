"""The blocks of a job of one machine: in files, which are gone when the job is over, however it ends."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import rmtree
from signal import SIGINT, SIGKILL, Signals
from threading import Event
from time import sleep

import pytest
from pyspark.sql import SparkSession

from storage_consumer.errors import Abandoned, StorageConsumerError
from storage_consumer.rows.row_order import CHANGES
from storage_consumer.spark.executors import FOLDER
from storage_consumer.spark.pipeline import between_halves, received, sent
from tests.harness.locks import lock, wait_for_a_blocked_write
from tests.harness.program import program
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, row, ts
from tests.harness.waiting import wait_until
from tests.integration.rounds import consumer, content, once

pytestmark = [pytest.mark.server, pytest.mark.alone, pytest.mark.spark]
KEYS = range(300)
WRITTEN = [(key, str(key)) for key in KEYS]
TABLES = ("d.a", "d.b")
BUCKETS = 4
"""Asked for, since so few rows would be read and written by one task."""
CSV = "[sink.csv]\ninclude-commit-ts = true\n"


@pytest.fixture
def begun(bucket: SmallBucket) -> SmallBucket:
    """A bucket up to the statements that make its tables."""
    bucket.create(*TABLES)
    bucket.metadata(ts(3))
    return bucket


def fill(bucket: SmallBucket) -> None:
    """Add three files for each table."""
    for table in TABLES:
        for number in range(3):
            bucket.rows(table, number + 1, *(row(table, 5, str(key), f'"{key}"') for key in KEYS[number::3]))
    bucket.metadata(ts(9))


def files(folder: Path) -> list[Path]:
    """The files with blocks somewhere below a folder, and what the removal of some has left."""
    return [*folder.rglob(f"{FOLDER}*/*"), *folder.rglob("*.gone")]


def temporary(spark: SparkSession) -> Path:
    """Where the session's jobs have their blocks."""
    return Path(spark.sparkContext._temp_dir)


def test_nothing_is_left_of_a_job(begun: SmallBucket, mariadb: DatabaseServer, spark: SparkSession) -> None:
    """All rows arrive; the files are there while the job runs, and not afterwards."""
    once(begun, mariadb)
    fill(begun)
    with consumer(begun, mariadb, partitions=BUCKETS) as running, ThreadPoolExecutor(1) as pool:
        with lock(mariadb, "d.a", KEYS[7]):
            job = pool.submit(running.run_once)
            wait_for_a_blocked_write(mariadb)
            seen = files(temporary(spark))
        assert job.result().halted == ()
    assert len(seen) > 0
    assert files(temporary(spark)) == []
    assert [content(mariadb, table) for table in TABLES] == [WRITTEN] * 2


def test_nothing_is_left_of_a_job_that_is_called_off(
    begun: SmallBucket, mariadb: DatabaseServer, spark: SparkSession
) -> None:
    """The files of a job that is called off are gone while its tasks may still run; the session and its next job go on."""
    once(begun, mariadb)
    fill(begun)
    with (
        consumer(begun, mariadb, partitions=BUCKETS) as running,
        ThreadPoolExecutor(1) as pool,
        lock(mariadb, "d.a", KEYS[7]),
    ):
        job = pool.submit(running.run_once)
        wait_for_a_blocked_write(mariadb)
        running.abandon()
        with pytest.raises(Abandoned):
            job.result()
        assert files(temporary(spark)) == []
    once(begun, mariadb, partitions=BUCKETS)
    assert files(temporary(spark)) == []
    assert [content(mariadb, table) for table in TABLES] == [WRITTEN] * 2


def test_files_that_go_away(begun: SmallBucket, mariadb: DatabaseServer, spark: SparkSession) -> None:
    """Where somebody removes the files of a running job it fails and says so; no row is left out, and the next start writes all."""
    once(begun, mariadb)
    fill(begun)
    over = Event()

    def remove() -> None:
        while not over.is_set():
            for path in temporary(spark).glob(f"{FOLDER}*"):
                rmtree(path, ignore_errors=True)

    with ThreadPoolExecutor(1) as pool:
        removing = pool.submit(remove)
        with pytest.raises(StorageConsumerError, match=r"No such file .*spark\.local\.dir"):
            once(begun, mariadb, partitions=BUCKETS)
        over.set()
        removing.result()
    assert [content(mariadb, table) for table in TABLES] == [[], []]
    once(begun, mariadb, partitions=BUCKETS)
    assert [content(mariadb, table) for table in TABLES] == [WRITTEN] * 2


def test_tasks_that_run_on(spark: SparkSession) -> None:
    """A task that has not ended when its job is over leaves nothing behind; one that begins then fails."""
    items = [((0, CHANGES, 0, number), bytes(number)) for number in range(9)]
    with between_halves(spark.sparkContext) as folder:
        running = iter(sent(items, folder))
        first = next(running)
        seen = files(temporary(spark))
    late = [first, *running]
    assert len(seen) == 1
    assert files(temporary(spark)) == []
    for began_late in (received(late, folder), sent(items, folder)):
        with pytest.raises(FileNotFoundError):
            list(began_late)


def test_spark_without_its_folder(spark: SparkSession) -> None:
    """Where Spark's temporary folder is gone, the error says why that may be."""
    folder = temporary(spark)
    elsewhere = folder.rename(folder.with_name("elsewhere"))
    try:
        with pytest.raises(StorageConsumerError, match=r"spark\.local\.dir"), between_halves(spark.sparkContext):
            pass
    finally:
        elsewhere.rename(folder)


@pytest.mark.parametrize(("signals", "code"), [([SIGKILL], -SIGKILL), ([SIGINT, SIGINT], 1)], ids=["kill", "interrupt"])
def test_nothing_is_left_of_the_program(
    signals: list[Signals], code: int, begun: SmallBucket, mariadb: DatabaseServer, tmp_path: Path
) -> None:
    """When the program ends in the middle of a job, and be it by kill -9, Spark's JVM ends with it and leaves no file behind."""
    (tmp_path / "changefeed.toml").write_text(CSV, encoding="utf-8")
    uris = ["--upstream-uri", begun.uri, "--downstream-uri", mariadb.uri, "--config", str(tmp_path / "changefeed.toml")]
    own = tmp_path / "spark"
    own.mkdir()
    options = ["--partitions", str(BUCKETS), "--flush-interval", "200ms"]
    with program([*uris, *options], tmp_path / "log", environment={"SPARK_LOCAL_DIRS": str(own)}) as running:
        running.wait_for("round_finished", checkpoint=ts(3))
        with lock(mariadb, "d.a", KEYS[7]):
            fill(begun)
            wait_for_a_blocked_write(mariadb)
            seen = files(own)
            for number in signals:
                running.signal(number)
                sleep(0.5)
            assert running.end() == code
            wait_until("an empty folder", lambda: not list(own.iterdir()))
    assert len(seen) > 0
    once(begun, mariadb)
    assert [content(mariadb, table) for table in TABLES] == [WRITTEN] * 2
