"""The folder in which Spark's JVM keeps its files, so that a start after kill -9 knows what was left, and of whom."""

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

_TOLD = "SPARK_LOCAL_DIRS"


def own_places(environ: Mapping[str, str], known: Collection[str], settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings by which a JVM keeps its files in a folder of this process, which is made here.

    `known`: settings that the operator names; those of the environment go before them, see `told_places`. `settings`: ours.
    """
    if environ.get(_TOLD) or "spark.local.dir" in known:
        return {}
    try:
        folder = _made(tempfile.gettempdir())
    except OSError:
        return {}
    options = "spark.driver.extraJavaOptions"
    return {
        "spark.local.dir": folder,
        options: f"{settings[options]} {shlex.quote(f'-Djava.io.tmpdir={folder}')}",
    }


@contextmanager
def told_places() -> Iterator[None]:
    """Within the folders that the operator names in the environment, give the JVM that is started inside the block ones of its own."""
    told = os.environ.get(_TOLD, "")
    if not told:
        yield
        return
    os.environ[_TOLD] = ",".join(_made_in(root) for root in told.split(","))
    try:
        yield
    finally:
        os.environ[_TOLD] = told


def let_jvm_remove() -> None:
    """Let the JVM that was started remove its folders at its end, also because this process was killed."""
    jvm: Any = SparkContext._jvm  # noqa: SLF001 - PySpark passes on no such wish
    with suppress(Py4JError, TypeError):  # Spark does not document whom this asks
        for folder in noted():
            jvm.org.apache.spark.util.ShutdownHookManager.registerShutdownDeleteDir(jvm.java.io.File(str(folder)))


def _made_in(root: str) -> str:
    """A folder within `root`; that itself where none can be made, which is for Spark to tell."""
    with suppress(OSError):
        return _made(root)
    return root


def _made(root: str) -> str:
    folder = tempfile.mkdtemp(prefix="spark-", dir=root)
    remove_later(Path(folder))
    return folder
