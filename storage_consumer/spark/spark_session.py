"""The SparkSession: the active one, which is then left running, else one of our own.

What the operator gave Spark (spark-submit's options, PYSPARK_SUBMIT_ARGS, spark-defaults.conf)
takes precedence over the settings here. A JVM of our own is our child: its files and its workers'
are private to this user, and its output goes to our own log.
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from pyspark.sql.context import SQLContext

from storage_consumer.config.private_files import (
    CODE_VARIABLE,
    LONGEST,
    mistrust,
    noted,
    own_folder,
    place_of_code,
    remove_later,
    remove_noted,
)
from storage_consumer.config.settings import Tuning
from storage_consumer.errors import ConfigError, SparkUnavailable
from storage_consumer.surroundings import java_program
from storage_consumer.telemetry import Log

_PATIENCE = 10.0
"""Seconds to wait for cancelled tasks; Spark itself ends their processes after two."""
_LOOK_UP = 0.1


def turns(context: SparkContext, partitions: int, worker_count: int) -> list[range]:
    """Return the partitions that may be written side by side, one range per turn.

    A single process with at most `worker_count` cores cannot run more tasks than that. A cluster
    may have any number of cores, and get more in the middle of a job. If Spark copies slow tasks
    (speculation), every task of a turn may have one copy; it copies no task that is alone.
    """
    if is_one_process(context) and context.defaultParallelism <= worker_count:
        return [range(partitions)]
    # A copy writes as its original does, and needs a connection of its own.
    copies = context.getConf().get("spark.speculation", "false") == "true"
    most = max(1, worker_count // 2) if copies else worker_count
    return spread(partitions, most)


def spread(partitions: int, most: int) -> list[range]:
    """Return partitions in the fewest turns of at most `most` each, of about equal size."""
    count = -(-partitions // most)
    edges = [partitions * turn // count for turn in range(count + 1)]
    return [range(low, high) for low, high in pairwise(edges)]


def is_one_process(context: SparkContext) -> bool:
    """Return whether tasks run in the driver's own JVM."""
    return one_process(context.master or "")


def one_process(master: str) -> bool:
    """Return whether tasks run in the driver's own JVM with this Spark master."""
    return master == "local" or master.startswith("local[")


def let_end(context: SparkContext) -> None:
    """Wait until no task runs, lest tasks of a failed job write beside new ones.

    Give up after `_PATIENCE`.
    """
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        executors = context._jsc.sc().statusTracker().getExecutorInfos()  # noqa: SLF001 - PySpark has no such query
        if not sum(executor.numRunningTasks() for executor in executors):
            return
        time.sleep(_LOOK_UP)


_LOCAL_DIRS = "SPARK_LOCAL_DIRS"


def own_places(
    environ: Mapping[str, str], known: Collection[str], settings: Mapping[str, str]
) -> dict[str, str]:
    """Create a folder of this process and return the settings for a JVM's files in it.

    `known`: settings that the operator gives; those of the environment take precedence, see
    `configured_places`. `settings`: ours.
    """
    # The operator has chosen the folder: there is none to create here.
    if environ.get(_LOCAL_DIRS) or "spark.local.dir" in known:
        return {}
    try:
        folder = _made(tempfile.gettempdir())
    # Spark itself then says what is wrong with the system's folder.
    except OSError:
        return {}
    options = "spark.driver.extraJavaOptions"
    return {
        "spark.local.dir": folder,
        # Java has temporary files as well, outside of Spark's folder.
        options: f"{settings[options]} {shlex.quote(f'-Djava.io.tmpdir={folder}')}",
    }


@contextmanager
def configured_places() -> Iterator[None]:
    """Give a JVM that starts here its own folders, within those of the environment."""
    configured = os.environ.get(_LOCAL_DIRS, "")
    if not configured:
        yield
        return
    # The environment outranks every setting, so here it has to name the new folders while the JVM
    # starts.
    folders = configured.split(",")
    for place, root in enumerate(folders):
        # Where none can be created, Spark reports that of the root itself.
        with suppress(OSError):
            folders[place] = _made(root)
    os.environ[_LOCAL_DIRS] = ",".join(folders)
    try:
        yield
    finally:
        os.environ[_LOCAL_DIRS] = configured


def _made(root: str) -> str:
    folder = tempfile.mkdtemp(prefix="spark-", dir=root)
    # Noted at once, so that a start after kill -9 finds it.
    remove_later(Path(folder))
    return folder


_log = Log("spark")
_EVERYWHERE = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "WARN"}
"""On a cluster we set only what it prints: memory, Java options, addresses and the UI are the
operator's.
"""
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
"""For a local session of our own: small, quiet, listening on loopback only, and without a growing
history.

Workers are reached through sockets in the file system (pyspark 4.1 or newer). Over TCP each task
stalls for 40 ms, since one side waits for more to send and the other for more to acknowledge.
The JVM passes on little and computes nothing, so it is not worth compiling twice or collecting
garbage in parallel. Between a job's two halves it carries only places of blocks (see `pipeline`),
which are not worth compressing, nor a file for each bucket.
"""


_ONE_PROCESS = {"spark.authenticate": "true"}
"""If Spark is one process: whoever connects to its ports must know a secret, or could inject blocks
and Java objects.

Spark creates a new secret at each start, which never leaves the JVM's memory. Executors would have
to be given it.
"""
_SERIOUS = re.compile(
    r"\b(ERROR|FATAL|OutOfMemoryError|[A-Za-z.]+Exception)\b(?!\"\.)|has not accepted any resources"
)
"""Spark also prints the level of its own log: ``"ERROR".`` If no executor comes, it only warns, and
waits.
"""
_PRIVATE = 0o077
"""The umask of the JVM and its workers: no other user may read rows, or talk to a worker through
its socket.
"""


def open_session(tuning: Tuning) -> tuple[SparkSession, bool]:
    """Return a session, and whether it is ours to stop; a running one keeps its settings.

    Raises `SparkUnavailable` if Spark does not start or its master does not answer, and
    `ConfigError` if there is no Java.
    """
    running = SparkContext._active_spark_context is not None  # noqa: SLF001 - the only way to ask without creating one
    try:
        if running:  # a session is active only in the JVM thread that created it
            return SparkSession.getActiveSession() or SparkSession.builder.getOrCreate(), False
        builder = SparkSession.builder.appName("storage-consumer")
        for key, value in _settings(tuning.spark_master).items():
            builder = builder.config(key, value)
        return builder.getOrCreate(), True
    except (Py4JError, PySparkException, OSError) as fault:
        # A JVM that died while it started must not be taken for one that can be used.
        if not running and gateway_gone():
            _forget_jvm()
        if not java_program(os.environ):
            raise ConfigError(
                "Spark needs Java 17 or newer: install it, or set JAVA_HOME to its folder"
            ) from fault
        why = fault.java_exception.toString() if isinstance(fault, Py4JJavaError) else str(fault)
        raise SparkUnavailable(f"Spark could not be started: {' '.join(why.split())}") from fault


def answers(context: SparkContext) -> bool:
    """Return whether a session's JVM exists and has not stopped the session."""
    try:
        return not context._jsc.sc().isStopped()  # noqa: SLF001 - PySpark has no such query
    except (Py4JError, OSError, EOFError, AttributeError):
        # the last one if PySpark itself has stopped it
        return False


def close_session(session: SparkSession) -> None:
    """Stop a session of ours; forget a JVM that is gone, so that the next starts another."""
    gone = gateway_gone()
    if gone:
        session.sparkContext._jsc = None  # noqa: SLF001 - so that nobody asks it to stop
    with suppress(Py4JError, OSError, AssertionError):
        session.stop()
    if gone:
        _forget_jvm()


def gateway_gone() -> bool:
    """Return whether the JVM that this process started has ended."""
    process = getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001 - the only way to ask
    return process is not None and process.poll() is not None


def _forget_jvm() -> None:
    """Reset everything that PySpark keeps of a JVM, and remove the JVM's folders."""
    with suppress(Py4JError, OSError):
        SparkContext._gateway.shutdown()  # type: ignore[union-attr] # noqa: SLF001 - as PySpark's own tests do
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None  # noqa: SLF001 - likewise
    SparkSession._instantiatedSession = SparkSession._activeSession = None  # noqa: SLF001 - likewise
    SQLContext._instantiatedContext = None  # noqa: SLF001 - likewise
    remove_noted(own_folder())


def _settings(wish: str) -> dict[str, str]:
    """Start Spark's JVM; return the settings for this master (empty: Spark's, else local)."""
    # The variable is there if spark-submit has started the JVM: then PySpark only connects to it.
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    master = wish or ("" if submitted else "local[*]")
    ours = dict(_EVERYWHERE)
    known = settings_in_defaults(os.environ)
    if master.startswith("local"):
        ours = _for_this_machine(known) | (_ONE_PROCESS if one_process(master) else {})
    if submitted:
        SparkContext._ensure_initialized()  # noqa: SLF001 - connects to the JVM, which knows the options of spark-submit
    # A JVM that is there keeps the settings that it was started with; only a new one can take
    # these.
    elif SparkContext._gateway is None:  # noqa: SLF001 - the only way to ask
        if master.startswith("local"):
            ours |= own_places(os.environ, known, ours)
        with configured_places():
            _start_jvm({key: value for key, value in ours.items() if key not in known})
        # It removes its folders when it ends, also after this process was killed.
        jvm: Any = SparkContext._jvm  # noqa: SLF001 - PySpark has no such call
        with suppress(Py4JError, TypeError):  # this is not part of Spark's documented interface
            for folder in noted():
                jvm.org.apache.spark.util.ShutdownHookManager.registerShutdownDeleteDir(
                    jvm.java.io.File(str(folder))
                )
    # With a JVM there, this holds all that it was given, by us or by others: none of that is set
    # again.
    configured = SparkConf()
    unset = {key: value for key, value in ours.items() if not configured.contains(key)}
    return unset | ({"spark.master": master} if master else {})


def _start_jvm(settings: Mapping[str, str]) -> None:
    """Start Spark's JVM with these settings and log its output."""
    conf, name = SparkConf().setAll(list(settings.items())), ""
    # Containers may choose a number that no account has. Spark does not start without a name, and
    # Java finds none there.
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        name = os.environ.get("HADOOP_USER_NAME") or f"uid-{os.getuid()}"
    if name:
        # Java does not know a home either, and Spark takes no relative path.
        conf.setIfMissing("spark.jars.ivy", str(own_folder() / "ivy"))
    reading, writing = os.pipe()
    # Without a reader the JVM would stop as soon as the pipe is full. It reads from the start: what
    # ends a JVM at once is said there alone.
    threading.Thread(
        target=_log_output, args=(os.fdopen(reading, "rb"),), name="spark-output", daemon=True
    ).start()
    try:
        gateway = launch_gateway(conf, popen_kwargs={"stderr": writing, "umask": _PRIVATE})  # type: ignore[no-untyped-call] # has no types
    finally:
        os.close(writing)
    if name:
        users: Any = gateway.jvm.org.apache.hadoop.security.UserGroupInformation
        users.setLoginUser(users.createRemoteUser(name))
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)  # noqa: SLF001 - how SparkContext itself takes a gateway


def _log_output(lines: Iterable[bytes]) -> None:
    """Log each line: one that reports an error as a warning, the others at debug level."""
    for line in lines:
        text = line.decode("utf-8", "replace").rstrip()
        if text:
            (_log.warning if _SERIOUS.search(text) else _log.debug)("spark_said", text=text)


def _for_this_machine(known: frozenset[str]) -> dict[str, str]:
    """Return the settings for a local session; set the environment variables that Spark reads."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    here = Path(__file__).resolve()
    # Workers are processes of their own, and find this package where the driver found it.
    ours = _LOCAL | {"spark.executorEnv.PYTHONPATH": str(here.parents[2])}
    if not known and "SPARK_CONF_DIR" not in os.environ:  # otherwise the operator's folder is read
        log = shlex.quote(
            f"-Dlog4j2.configurationFile={here.parent / 'conf' / 'log4j2.properties'}"
        )
        ours["spark.driver.extraJavaOptions"] += f" {log}"
    folder = own_folder()
    # The path of a socket may not be longer; then Spark chooses a place of its own.
    if len(str(folder)) <= LONGEST:
        ours["spark.python.unix.domain.socket.dir"] = str(folder)
    kept = place_of_code(os.environ.get(CODE_VARIABLE, ""))
    # Compiled code is run as it is: workers must not load it from where others can write.
    if kept and (why := mistrust(kept)):
        _log.warning("cache_refused", folder=str(kept), error=why)
        ours[f"spark.executorEnv.{CODE_VARIABLE}"] = str(folder)
    return ours


def settings_in_defaults(environ: Mapping[str, str]) -> frozenset[str]:
    """Return the settings that the operator's ``spark-defaults.conf`` names."""
    home = environ.get("SPARK_HOME")
    folder = environ.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else "")
    if not folder:
        return frozenset()
    with suppress(OSError):
        lines = (
            Path(folder, "spark-defaults.conf")
            .read_text(encoding="utf-8", errors="replace")
            .splitlines()
        )
        # Spark takes white space, an equals sign or a colon between name and value.
        return frozenset(re.split(r"[\s=:]", line.strip(), maxsplit=1)[0] for line in lines)
    return frozenset()
