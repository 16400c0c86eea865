"""The SparkSession: the active one where there is one (and then it is left running), else one of our own.

What the operator told Spark (spark-submit's options, PYSPARK_SUBMIT_ARGS, spark-defaults.conf) goes before what is set here.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from storage_consumer.config.settings import Tuning
from storage_consumer.errors import SparkUnavailable
from storage_consumer.spark.output import start_jvm

_EVERYWHERE = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "WARN"}
"""On a cluster nothing but what it says is ours: memory, Java's options, addresses and the UI are the operator's."""
_LOCAL = _EVERYWHERE | {
    "spark.ui.enabled": "false",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.shuffle.compress": "false",
    "spark.shuffle.sort.bypassMergeThreshold": "1",
    "spark.python.worker.reuse": "true",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.memory": "256m",
    "spark.driver.memory": "768m",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.port.maxRetries": "100",
}
"""For a local session of our own: small, quiet, nothing listens but on loopback, and no history grows.

Workers are spoken to through sockets in the file system (pyspark 4.1 or newer): over TCP each task stands still for 40 ms, since
one side waits for more to send and the other for more to confirm.
The JVM hands on little and computes nothing, so that it is not worth its while to compile twice or to collect in parallel. Between a
job's two halves it has places of blocks only (see `blocks`), which are not worth compressing, nor a file for each bucket.
"""


def open_session(tuning: Tuning) -> tuple[SparkSession, bool]:
    """A session, and whether it is ours to stop. Raises `SparkUnavailable` where the master does not answer."""
    active = SparkSession.getActiveSession()
    if active is not None:
        return active, False
    running = SparkContext._active_spark_context is not None  # noqa: SLF001 - the only way to ask without making one
    builder = SparkSession.builder.appName("storage-consumer")
    for key, value in _settings(tuning.spark_master).items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate(), not running
    except (Py4JError, PySparkException) as fault:
        why = fault.java_exception.toString() if isinstance(fault, Py4JJavaError) else str(fault)
        raise SparkUnavailable(f"Spark could not be started: {' '.join(why.split())}") from fault


def _settings(wish: str) -> dict[str, str]:
    """What is set for a session at this master (empty: what Spark was told, else this machine); starts Spark's JVM."""
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    master = wish or ("" if submitted else "local[*]")
    ours = dict(_LOCAL) if master.startswith("local") else dict(_EVERYWHERE)
    known = told_in_defaults(os.environ)
    if master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        if not known:  # else the operator's folder is read
            os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).resolve().parent / "conf"))
        ours["spark.executorEnv.PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    if submitted:
        SparkContext._ensure_initialized()  # noqa: SLF001 - connects to the JVM, which knows what spark-submit was told
    else:
        start_jvm({key: value for key, value in ours.items() if key not in known})
    told = SparkConf()
    unsaid = {key: value for key, value in ours.items() if not told.contains(key)}
    return unsaid | ({"spark.master": master} if master else {})


def told_in_defaults(environ: Mapping[str, str]) -> frozenset[str]:
    """The settings that the operator's ``spark-defaults.conf`` names."""
    home = environ.get("SPARK_HOME")
    folder = environ.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else "")
    if not folder:
        return frozenset()
    with suppress(OSError):
        lines = Path(folder, "spark-defaults.conf").read_text(encoding="utf-8", errors="replace").splitlines()
        return frozenset(re.split(r"[\s=:]", line.strip(), maxsplit=1)[0] for line in lines)
    return frozenset()
