"""A streaming query as a process of its own, killed again and again while its bucket grows; and what its sink holds in the end."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from tests.harness.pages import ROOT
from tests.harness.small_bucket import SmallBucket, row, ts

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
