"""``format("ticdc")`` in a real Spark session: batches, SQL, streams whose processes are killed, and what is never shown."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from storage_consumer.errors import ConfigError
from storage_consumer.spark import changes, latest, register, table_at
from tests.harness.corpora import CorpusSource, available
from tests.harness.pages import ROOT
from tests.harness.s3_server import S3Server
from tests.harness.small_bucket import SmallBucket, column, of_two_structures, row, ts
from tests.harness.spark_cluster import Machines, spark_cluster
from tests.harness.tables_in_spark import compared_in_spark

_SCRIPT = """
import sys
from pyspark.sql import SparkSession
from storage_consumer.spark import register

bucket, folder = sys.argv[1:3]
spark = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1").getOrCreate()
)
register(spark)
print("up", flush=True)
most = "100" if sys.argv[3:] else "1"
live = spark.readStream.format("ticdc").options(table="d.a", tz="UTC", maxFilesPerTrigger=most).load(bucket)
sink = live.writeStream.format("parquet").option("checkpointLocation", folder + "/checkpoint")
sink.trigger(**({"availableNow": True} if sys.argv[3:] else {})).start(folder + "/out").awaitTermination()
"""
_FILES = 6
"""Files that come while a process runs."""
_WORKER = b"pyspark.daemon"


class KilledStream:
    """A query over d.a of a bucket, which grows by files of one row each."""

    def __init__(self, bucket: SmallBucket, folder: Path, first: int, version: int) -> None:
        """Begin with file `first` of a table version; the bucket is complete up to tick 9 before it, at most."""
        self._bucket, self._folder, self._version = bucket, folder, version
        self._file = first - 1
        self._tick = 9
        self.written = 0
        """Rows that were added."""

    def run_and_kill(self, dice: random.Random) -> None:
        """Let a process work for a while, and kill it, or a Python worker of it, which ends the query."""
        with self._started() as started:
            assert started.stdout is not None
            assert started.stdout.readline().strip() == "up"
            pause = dice.uniform(0.1, 1.2)
            for _ in range(_FILES):
                self._grow()
                time.sleep(pause)
            workers = _workers(started.pid) if dice.random() < 1 / 3 else []
            for pid in workers:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(1 if workers else 0)
            # Spark's JVM and its Python workers are in the group as well.
            with suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)

    def end(self) -> None:
        """Let a process read what is left."""
        with self._started("to the end") as ended:
            assert ended.wait(600) == 0

    def rows(self) -> list[dict[str, Any]]:
        """File and number of each row in the sink, as its log has them: other files are of micro-batches that were killed."""
        found: list[str] = []
        for log in sorted((self._folder / "out" / "_spark_metadata").glob("[0-9]*"), key=lambda path: int(path.stem)):
            lines = [json.loads(line) for line in log.read_text().splitlines()[1:]]
            paths = [line["path"].removeprefix("file://") for line in lines]
            found = paths if log.suffix == ".compact" else found + paths
        rows: list[dict[str, Any]] = ds.dataset(found).to_table(columns=["_file", "_row"]).to_pylist()
        return rows

    def _grow(self) -> None:
        self._file, self._tick, self.written = self._file + 1, self._tick + 1, self.written + 1
        text = str(self._tick)
        self._bucket.rows("d.a", self._file, row("d.a", self._tick, text, '"x"', r"\N"), version=self._version)
        self._bucket.metadata(ts(self._tick))

    def _started(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", _SCRIPT, self._bucket.uri, str(self._folder), *words],
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )


def _workers(session: int) -> list[int]:
    """The Python workers of a process, by the session that it leads."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            pid = int(entry.name)
            if os.getsid(pid) == session and _WORKER in (entry / "cmdline").read_bytes():
                found.append(pid)
    return found


pytestmark = pytest.mark.spark


@pytest.fixture(scope="module", autouse=True)
def _known(spark: SparkSession) -> None:
    register(spark)
    register(spark)


@pytest.fixture
def bucket(tmp_path: Path) -> SmallBucket:
    """A table with rows of two structures."""
    return of_two_structures(tmp_path / "bucket")


def feed(spark: SparkSession, bucket: SmallBucket, **options: str) -> DataFrame:
    """The feed of d.a."""
    return spark.read.format("ticdc").options(table="d.a", tz="UTC", **options).load(bucket.uri)


def test_batches(spark: SparkSession, bucket: SmallBucket) -> None:
    """What is stored, what happened, what is left; a window; chosen columns; the same rows again after the bucket has grown."""
    whole = feed(spark, bucket)
    assert (whole.count(), changes(whole).count(), latest(whole).where("_change_type = 'delete'").count()) == (8, 6, 1)
    assert feed(spark, bucket, startingVersion=str(ts(4)), endingVersion=str(ts(7))).count() == 4
    chosen = feed(spark, bucket, columns="more").where("more IS NOT NULL")
    assert [each.asDict()["more"] for each in chosen.select("more").collect()] == [7]
    typed = (
        spark.read.format("ticdc").schema("more BIGINT, _row BIGINT").options(table="d.a", tz="UTC").load(bucket.uri)
    )
    assert sorted(each["_row"] for each in typed.collect()) == [1, 1, 1, 1, 2, 2, 3, 3]
    bucket.rows("d.a", 3, row("d.a", 10, "9", '"x"', r"\N"), version=ts(5))
    bucket.metadata(ts(11))
    assert whole.count() == 8
    assert feed(spark, bucket).count() == 9


def test_a_key_in_another_case(spark: SparkSession, bucket: SmallBucket) -> None:
    """A rename of its column that changes capitals alone leaves the key what it was."""
    columns = (column("ID", "INT", key=True), column("name", "VARCHAR"), column("more", "INT"))
    bucket.schema("d.a", ts(9), "ALTER TABLE `a` RENAME COLUMN `id` TO `ID`", 12, columns)
    bucket.rows("d.a", 1, row("d.a", 10, "4", '"capital"', r"\N", operation="U"), version=ts(9))
    bucket.metadata(ts(11))
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        found = latest(feed(spark, bucket)).where("_change_type <> 'delete'").select("ID", "name").collect()
        assert sorted(map(tuple, found)) == [(3, "new"), (4, "capital"), (5, "old")]
        assert changes(feed(spark, bucket)).count() == 7
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_a_table_that_was_emptied(spark: SparkSession, bucket: SmallBucket) -> None:
    """The rows that a TRUNCATE took away have no last state: `latest` refuses a feed over it, and takes one behind it or one that was told to."""
    columns = (column("id", "INT", key=True), column("name", "VARCHAR"), column("more", "INT"))
    bucket.schema("d.a", ts(9), "TRUNCATE TABLE `a`", 11, columns)
    bucket.rows("d.a", 1, row("d.a", 10, "10", '"x"', r"\N"), version=ts(9))
    bucket.metadata(ts(11))
    for keys in (None, ["id"]):
        with pytest.raises(ConfigError, match=rf"TRUNCATE TABLE.* took all rows away.* startingVersion = {ts(9) + 1}"):
            latest(feed(spark, bucket), keys)
    for options, ids in (
        ({"startingVersion": str(ts(9) + 1)}, [10]),
        ({"endingVersion": str(ts(8))}, [2, 3, 4, 5]),
        ({"statements": "ignore"}, [2, 3, 4, 5, 10]),
    ):
        assert sorted(each["id"] for each in latest(feed(spark, bucket, **options)).collect()) == ids
    assert changes(feed(spark, bucket)).count() == 7
    found = table_at(spark, bucket.uri, "d.a", tz="UTC").collect()
    assert [each["id"] for each in found] == [10]


def test_transactions_that_are_left_out(spark: SparkSession, bucket: SmallBucket) -> None:
    """Their rows are in neither the feed nor a table as of a commit-ts."""
    option: dict[str, Any] = {"skipCommitTs": f"d.[ab]:{ts(8)},{ts(2)}"}
    assert changes(feed(spark, bucket, **option)).count() == 4
    found = table_at(spark, bucket.uri, "d.a", tz="UTC", **option).collect()
    assert sorted((each["id"], each["name"]) for each in found) == [(3, "new"), (4, "old"), (5, "old")]


def test_sql(spark: SparkSession, bucket: SmallBucket) -> None:
    """A view over the source takes part in queries."""
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW f USING ticdc OPTIONS (path '{bucket.uri}', table 'd.a', tz 'UTC')")
    found = spark.sql("SELECT id, count(*) AS n FROM f GROUP BY id HAVING n > 1 ORDER BY id").collect()
    assert [tuple(each) for each in found] == [(2, 2), (3, 3), (4, 2)]


def test_filters(spark: SparkSession, bucket: SmallBucket) -> None:
    """Each query of one load has the rows that its own filter leaves, also where Spark pushes filters down."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        whole = feed(spark, bucket)
        for condition, count in ((">= {}", 2), ("> {}", 1), ("= {}", 1), ("< {}", 6), ("<= {}", 7), ("IN ({}, 1)", 1)):
            where = f"_commit_version {condition.format(ts(7))}"
            assert (whole.where(where).count(), whole.count()) == (count, 8), where
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"tables": "d.a"}, "did you mean `table`"),
        ({"table": "d.x"}, "no table `?d`?.`?x`?"),
        ({"table": "d.a", "endingVersion": str(ts(99))}, "complete up to its checkpoint"),
        ({"table": "d.a", "columns": "names"}, "no column names"),
        ({"table": "d.a", "versionAsOf": "1"}, "table_at"),
        ({"table": "d.a", "pushFilters": "true"}, "startingVersion and endingVersion"),
        ({"table": "d.a", "secret_access_key": "hunter2"}, "must not hold secrets"),
        ({"table": "d.a", "startingVersion": "1", "startingTimestamp": "2026-01-01T00:00:00Z"}, "mean the same"),
    ],
)
def test_what_is_refused(spark: SparkSession, bucket: SmallBucket, options: dict[str, str], told: str) -> None:
    """Each wrong option, with its name and what is expected, and no value that may be a secret."""
    with pytest.raises(AnalysisException, match=told) as raised:
        spark.read.format("ticdc").options(tz="UTC", **options).load(bucket.uri)
    assert "hunter2" not in str(raised.value)


def test_secrets_of_a_path(spark: SparkSession) -> None:
    """They are refused, since Spark shows paths, and hidden in what says so."""
    with pytest.raises(AnalysisException, match="the path holds a secret") as raised:
        spark.read.format("ticdc").load("s3://bucket/prefix?access-key=AKIA1&secret-access-key=hunter2")
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("operation", ["U", "D"])
def test_a_row_that_nothing_inserted(spark: SparkSession, bucket: SmallBucket, operation: str) -> None:
    """Files that TiCDC deleted leave such rows: a table with one is no table of the source, so it is an error that says what to do."""
    assert sorted(each["id"] for each in table_at(spark, bucket.uri, "d.a", tz="UTC").collect()) == [3, 4, 5]
    bucket.rows("d.a", 3, row("d.a", 8, "99", '"x"', r"\N", operation=operation), version=ts(5))
    with pytest.raises(PySparkException, match=r"d.a: changes of a row that nothing inserted.*give an export as base"):
        table_at(spark, bucket.uri, "d.a", tz="UTC").collect()


CORPORA = [
    each
    for each in available()
    if str(each)
    in ("new/shop__csv-restart", "classic/keyless__csv-rawold", "new/keyless__json", "classic/late_dups__csv")
]


@pytest.mark.parametrize("source", CORPORA, ids=str)
def test_tables_of_recordings(source: CorpusSource, spark: SparkSession, tmp_path: Path) -> None:
    """`table_at`, and changes that plain SQL folds, are what the source held, or a table is refused for a known reason."""
    found = compared_in_spark(source, spark, tmp_path)
    assert found.differing == []
    assert found.equal
    # There each table has a statement that moves its rows.
    assert found.folded or str(source) == "classic/late_dups__csv"


@pytest.mark.timeout(600)
def test_a_killed_stream(spark: SparkSession, bucket: SmallBucket, tmp_path: Path) -> None:
    """Driver and workers die in the middle, again and again, while the bucket grows: each row is in the sink once."""
    del spark
    stream, dice = KilledStream(bucket, tmp_path / "stream", 3, ts(5)), random.Random(7)  # noqa: S311 - repeatable, not secret
    for _ in range(4):
        stream.run_and_kill(dice)
    stream.end()
    found = Counter((each["_file"], each["_row"]) for each in stream.rows())
    assert max(found.values()) == 1
    assert len(found) == 8 + stream.written


ON_A_CLUSTER = """
import sys
from urllib.request import urlopen
from pyspark.sql import SparkSession
from storage_consumer.errors import NotReplicable
from storage_consumer.spark import changes, register, table_at

log, uri = sys.argv[1:]
spark = (
    SparkSession.builder.config("spark.eventLog.enabled", "true").config("spark.eventLog.dir", log)
    .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.shuffle.partitions", "2").getOrCreate()
)
register(spark)
feed = spark.read.format("ticdc").options(table="d.a", tz="UTC", maxPartitionBytes="1").load(uri)
feed.explain("extended")
tasks = feed.selectExpr("spark_partition_id() AS task").distinct().count()
print("found", feed.count(), tasks, changes(feed).count(), table_at(spark, uri, "d.a", tz="UTC").count())
for page in ("jobs", "stages", "environment", "executors", "SQL", "SQL/execution/?id=0", "SQL/execution/?id=1"):
    shown = urlopen(f"{spark.sparkContext.uiWebUrl}/{page}").read().decode()
    print("page", page, len(shown))
    print(shown)
spark.stop()
"""


def test_on_a_cluster(s3: S3Server, bucket: SmallBucket, tmp_path: Path) -> None:
    """Two workers read a bucket in S3 with credentials of their environment; neither plans, logs, events nor Spark's pages have these."""
    s3.upload(bucket.root, "feed-on-a-cluster", "prefix")
    secrets = {
        "AWS_ACCESS_KEY_ID": s3.reader.access_key,
        "AWS_SECRET_ACCESS_KEY": s3.reader.secret_access_key,
    }
    environment = {**os.environ, **secrets, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    machines = Machines(environment={**os.environ, **secrets, "PYSPARK_PYTHON": sys.executable})
    (tmp_path / "events").mkdir()
    uri = f"s3://feed-on-a-cluster/prefix?endpoint={s3.endpoint}&force-path-style=true&region=us-east-1"
    with spark_cluster(tmp_path / "cluster", machines) as cluster:
        done = subprocess.run(
            [sys.executable, "-c", ON_A_CLUSTER, (tmp_path / "events").as_uri(), uri],
            env={**environment, "PYSPARK_SUBMIT_ARGS": f"--master {cluster.master} pyspark-shell"},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    assert "found 8 4 6 3" in done.stdout, done.stderr[-3000:]
    assert done.stdout.count("page ") == 7
    assert "ticdc" in done.stdout.partition("page SQL/execution/?id=0")[2], "the pages show the scans"
    logs = [path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    assert len(logs) > 3
    assert all(s3.reader.secret_access_key not in text for text in (*logs, done.stdout, done.stderr))
