"""An archive of Spark's classes, with which a JVM starts in half the time. Tests start hundreds of them."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pyspark

from storage_consumer.surroundings import java_program
from tests.harness.servers import CACHE

_VARIABLE = "SPARK_SUBMIT_OPTS"
_KEPT = 2 * 24 * 3600
_CODE = """
from storage_consumer.config.settings import Tuning
from storage_consumer.spark.spark_session import open_session
spark, _ = open_session(Tuning())
rows = spark.createDataFrame([(1, "a"), (2, "b")], "number INT, text STRING")
rows.mapInArrow(lambda batches: batches, rows.schema).repartition(2, "number").count()
spark.stop()
"""


def use_class_archive() -> None:
    """Let each JVM that Spark starts from here on load its classes from the archive, which is made if it is missing.

    A JVM that finds its class path or itself to be another one leaves the archive alone, and says nothing. Where none can be
    made, the tests run without, and say themselves what is wrong with Java or Spark.
    """
    if _VARIABLE not in os.environ:
        with suppress(OSError, RuntimeError, subprocess.SubprocessError):
            os.environ[_VARIABLE] = f"-Xlog:disable -XX:SharedArchiveFile={_archive(CACHE)}"


def _archive(cache: Path) -> Path:
    java = Path(java_program(os.environ)).resolve()
    key = f"{java} {java.stat().st_mtime_ns} {pyspark.__file__} {pyspark.__version__}"
    archive = cache / f"spark-{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsa"
    if not archive.exists():
        cache.mkdir(parents=True, exist_ok=True)
        made = archive.with_suffix(f".{os.getpid()}")
        environment = {**os.environ, _VARIABLE: f"-Xlog:disable -XX:ArchiveClassesAtExit={made}"}
        subprocess.run([sys.executable, "-c", _CODE], env=environment, capture_output=True, check=True, timeout=300)
        made.replace(archive)
        # Each takes 160 MB. Those of another checkout are in use; nobody needs what is days old.
        for former in cache.glob("spark-*"):
            if former.stat().st_mtime < time.time() - _KEPT:
                former.unlink(missing_ok=True)
    return archive
