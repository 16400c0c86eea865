"""The folder in which Spark's JVM keeps its files, so that a start after kill -9 knows what was left, and by whom."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext

from storage_consumer.config.own_folder import noted, remove_later

_LOCAL_DIRS = "SPARK_LOCAL_DIRS"


def own_places(environ: Mapping[str, str], known: Collection[str], settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that make a JVM keep its files in a folder of this process, which is created here.

    `known`: settings that the operator gives; those of the environment take precedence, see `configured_places`.
    `settings`: ours.
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
    """Give a JVM that starts in this context its own folders, within those that the operator names in the environment."""
    configured = os.environ.get(_LOCAL_DIRS, "")
    if not configured:
        yield
        return
    # The environment outranks every setting, so here it has to name the new folders while the JVM starts.
    os.environ[_LOCAL_DIRS] = ",".join(_made_in(root) for root in configured.split(","))
    try:
        yield
    finally:
        os.environ[_LOCAL_DIRS] = configured


def let_jvm_remove() -> None:
    """Make the JVM remove its folders when it ends, also after this process was killed."""
    jvm: Any = SparkContext._jvm  # noqa: SLF001 - PySpark has no such call
    with suppress(Py4JError, TypeError):  # this is not part of Spark's documented interface
        for folder in noted():
            jvm.org.apache.spark.util.ShutdownHookManager.registerShutdownDeleteDir(jvm.java.io.File(str(folder)))


def _made_in(root: str) -> str:
    """Return a new folder within `root`; `root` itself if none can be created, which Spark then reports."""
    with suppress(OSError):
        return _made(root)
    return root


def _made(root: str) -> str:
    folder = tempfile.mkdtemp(prefix="spark-", dir=root)
    # Noted at once, so that a start after kill -9 finds it.
    remove_later(Path(folder))
    return folder
