"""Run Spark's JVM as our child: its files and its workers' are private to this user, and its output goes to our own log."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Iterable, Mapping

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from storage_consumer.telemetry import Log

_log = Log("spark")
_SERIOUS = re.compile(r"\b(ERROR|FATAL|OutOfMemoryError|[A-Za-z.]+Exception)\b(?!\"\.)|has not accepted any resources")
"""Spark also prints the level of its own log: ``"ERROR".`` If no executor comes, it only warns, and waits."""


_PRIVATE = 0o077
"""The umask of the JVM and its workers: no other user may read rows, or talk to a worker through its socket."""


def start_jvm(settings: Mapping[str, str]) -> None:
    """Start Spark's JVM with these settings and log its output."""
    conf = SparkConf().setAll(list(settings.items()))
    gateway = launch_gateway(conf, popen_kwargs={"stderr": subprocess.PIPE, "umask": _PRIVATE})  # type: ignore[no-untyped-call] # has no types
    threading.Thread(target=say, args=(gateway.proc.stderr,), name="spark-output", daemon=True).start()
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)  # noqa: SLF001 - how SparkContext itself takes a gateway


def say(lines: Iterable[bytes]) -> None:
    """Log each line: one that reports an error as a warning, the others at debug level."""
    for line in lines:
        text = line.decode("utf-8", "replace").rstrip()
        if text:
            (_log.warning if _SERIOUS.search(text) else _log.debug)("spark_said", text=text)
