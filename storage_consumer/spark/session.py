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
from shutil import which

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.context import SQLContext

from storage_consumer.config.code_cache import VARIABLE, mistrust, place_of_code
from storage_consumer.config.own_folder import LONGEST, own_folder, remove_noted
from storage_consumer.config.settings import Tuning
from storage_consumer.errors import ConfigError, SparkUnavailable
from storage_consumer.spark.concurrency import one_process
from storage_consumer.spark.folders import let_jvm_remove, own_places, told_places
from storage_consumer.spark.output import start_jvm
from storage_consumer.telemetry import Log

_log = Log("spark")
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


_ONE_PROCESS = {"spark.authenticate": "true"}
"""Where Spark is one process: whoever connects to its ports has to know a secret, or could plant blocks and Java objects.

Spark makes a new one at each start, which never leaves the JVM's memory. Where there are executors it would have to be told to them.
"""


def open_session(tuning: Tuning) -> tuple[SparkSession, bool]:
    """A session, and whether it is ours to stop. One that runs already is used as it is: its settings stay the caller's.

    Raises `SparkUnavailable` where Spark does not start, or its master does not answer, and `ConfigError` where there is no Java.
    """
    running = SparkContext._active_spark_context is not None  # noqa: SLF001 - the only way to ask without making one
    try:
        active = SparkSession.getActiveSession()
        if active is None and running:  # no thread of the JVM's but the one that made a session calls it active
            active = SparkSession.builder.getOrCreate()
        if active is not None:
            return active, False
        builder = SparkSession.builder.appName("storage-consumer")
        for key, value in _settings(tuning.spark_master).items():
            builder = builder.config(key, value)
        return builder.getOrCreate(), True
    except (Py4JError, PySparkException, OSError) as fault:
        if not running and gateway_gone():
            _forget_jvm()
        if not _has_java(os.environ):
            raise ConfigError("Spark needs Java 17 or newer: install it, or name its folder by JAVA_HOME") from fault
        why = fault.java_exception.toString() if isinstance(fault, Py4JJavaError) else str(fault)
        raise SparkUnavailable(f"Spark could not be started: {' '.join(why.split())}") from fault


def _has_java(environ: Mapping[str, str]) -> bool:
    """Whether there is a Java where Spark looks for one."""
    home = environ.get("JAVA_HOME")
    return Path(home, "bin", "java").exists() if home else which("java", path=environ.get("PATH")) is not None


def answers(context: SparkContext) -> bool:
    """Whether a session's JVM is there and has not stopped it."""
    try:
        return not context._jsc.sc().isStopped()  # noqa: SLF001 - PySpark passes on no such question
    except (Py4JError, OSError, EOFError, AttributeError):  # the last one where PySpark itself has stopped it
        return False


def close_session(session: SparkSession) -> None:
    """Stop a session of ours. Where its JVM is gone, forget that as well: the next session starts another one."""
    gone = gateway_gone()
    if gone:
        session.sparkContext._jsc = None  # noqa: SLF001 - so that nobody asks it to stop
    with suppress(Py4JError, OSError, AssertionError):
        session.stop()
    if gone:
        _forget_jvm()


def gateway_gone() -> bool:
    """Whether the JVM that this process started has ended."""
    process = getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001 - the only way to ask
    return process is not None and process.poll() is not None


def _forget_jvm() -> None:
    """Take everything back that PySpark keeps of a JVM, and remove its folders."""
    with suppress(Py4JError, OSError):
        SparkContext._gateway.shutdown()  # type: ignore[union-attr] # noqa: SLF001 - as PySpark's own tests do
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None  # noqa: SLF001 - likewise
    SparkSession._instantiatedSession = SparkSession._activeSession = None  # noqa: SLF001 - likewise
    SQLContext._instantiatedContext = None  # noqa: SLF001 - likewise
    remove_noted(own_folder())


def _settings(wish: str) -> dict[str, str]:
    """What is set for a session at this master (empty: what Spark was told, else this machine); starts Spark's JVM."""
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    master = wish or ("" if submitted else "local[*]")
    ours = dict(_EVERYWHERE)
    known = told_in_defaults(os.environ)
    if master.startswith("local"):
        ours = _for_this_machine(known) | (_ONE_PROCESS if one_process(master) else {})
    if submitted:
        SparkContext._ensure_initialized()  # noqa: SLF001 - connects to the JVM, which knows what spark-submit was told
    elif SparkContext._gateway is None:  # noqa: SLF001 - the only way to ask
        if master.startswith("local"):
            ours |= own_places(os.environ, known, ours)
        with told_places():
            start_jvm({key: value for key, value in ours.items() if key not in known})
        let_jvm_remove()
    told = SparkConf()
    unsaid = {key: value for key, value in ours.items() if not told.contains(key)}
    return unsaid | ({"spark.master": master} if master else {})


def _for_this_machine(known: frozenset[str]) -> dict[str, str]:
    """What is set for a local session; the environment gets what Spark looks for there."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if not known:  # else the operator's folder is read
        os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).resolve().parent / "conf"))
    ours = _LOCAL | {"spark.executorEnv.PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    folder = own_folder()
    if len(str(folder)) <= LONGEST:
        ours["spark.python.unix.domain.socket.dir"] = str(folder)
    kept = place_of_code(os.environ.get(VARIABLE, ""))
    if kept and (why := mistrust(kept)):
        _log.warning("cache_refused", folder=str(kept), error=why)
        ours[f"spark.executorEnv.{VARIABLE}"] = str(folder)
    return ours


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
