"""Spark's JVM as a child of ours: what it and its workers write is for this user's eyes, and what they say goes to our own log."""

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
"""Spark also tells to which level it set its own log: ``"ERROR".`` Where no executor comes, it only warns, and waits."""


_PRIVATE = 0o077
"""The mask that it and its workers make files with: no other user may read rows, or speak to a worker through its socket."""


def start_jvm(settings: Mapping[str, str]) -> None:
    """Start Spark's JVM with these settings and log what it says."""
    conf = SparkConf().setAll(list(settings.items()))
    gateway = launch_gateway(conf, popen_kwargs={"stderr": subprocess.PIPE, "umask": _PRIVATE})  # type: ignore[no-untyped-call] # has no types
    threading.Thread(target=say, args=(gateway.proc.stderr,), name="spark-output", daemon=True).start()
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)  # noqa: SLF001 - how SparkContext itself takes a gateway


def say(lines: Iterable[bytes]) -> None:
    """Log each line: one that tells of an error as a warning, the others for those who look for a fault."""
    for line in lines:
        text = line.decode("utf-8", "replace").rstrip()
        if text:
            (_log.warning if _SERIOUS.search(text) else _log.debug)("spark_said", text=text)
