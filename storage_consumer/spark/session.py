"""The SparkSession: the active one where there is one (and then it is left running), else a local one of our own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from storage_consumer.config.settings import Tuning
from storage_consumer.spark.output import start_jvm

_OURS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "10",
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
The JVM hands bytes on and computes nothing, so that it is not worth its while to compile twice or to collect in parallel.
"""


def open_session(tuning: Tuning) -> tuple[SparkSession, bool]:
    """A session, and whether it is ours to stop.

    Under spark-submit, or with a master that is not local, only the application's name is set: the cluster's settings rule.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active, False
    running = SparkContext._active_spark_context is not None  # noqa: SLF001 - the only way to ask without making one
    builder = SparkSession.builder.appName("storage-consumer")
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    master = tuning.spark_master or ("" if submitted else "local[*]")
    if master:
        builder = builder.master(master)
    if master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).resolve().parent / "conf"))
        package = str(Path(__file__).resolve().parents[2])
        settings = _OURS | {"spark.executorEnv.PYTHONPATH": package}
        for key, value in settings.items():
            builder = builder.config(key, value)
        if not submitted:
            start_jvm(settings)
    return builder.getOrCreate(), not running
