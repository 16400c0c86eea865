"""What the facts of Spark's surroundings mean. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from storage_consumer.doctor.findings import Outcome, fail, ok, warn
from storage_consumer.spark.surroundings import JAVA, PYSPARK, Surroundings

_GIB = 1 << 30
_MEMORY = 2 * _GIB
"""Bytes that the driver, its JVM and two workers need at least."""
_AVAILABLE = 1 * _GIB
_FULL, _TIGHT = 256 << 20, 2 * _GIB
"""Free bytes of a local folder below which Spark can hardly start, and below which a catch-up may fill it."""


def pyspark(facts: Surroundings) -> Outcome:
    """Judge PySpark's version."""
    low, high = (".".join(map(str, each)) for each in PYSPARK)
    install = f"pip install 'pyspark>={low},<{high}'"
    if not facts.pyspark:
        return fail("PySpark is not installed in this Python", install)
    number = tuple(int(part) if part.isdecimal() else 0 for part in facts.pyspark.split(".")[:2])
    if facts.pyspark != "unknown" and not PYSPARK[0] <= number < PYSPARK[1]:
        return fail(f"PySpark {facts.pyspark} is none of the supported versions, {low} up to below {high}", install)
    return ok(f"PySpark {facts.pyspark}")


def java(facts: Surroundings) -> Outcome:
    """Judge whether Spark finds a Java that it runs on."""
    found = facts.java
    install = f"Install Java {JAVA} or newer: apt-get install openjdk-{JAVA}-jre-headless. JAVA_HOME names its folder."
    if not found.program:
        where = (
            f"JAVA_HOME is {found.home}, which has no bin/java"
            if found.home
            else "there is no Java on the PATH, and JAVA_HOME is not set"
        )
        return fail(where, "Unset JAVA_HOME, or set it to the folder of a Java." if found.home else install)
    if not found.version:
        return fail(f"{found.program} does not tell its version: {found.said or 'it says nothing'}", install)
    if found.version < JAVA:
        return fail(f"{found.program} is Java {found.version}; Spark needs {JAVA} or newer", install)
    return ok(f"Java {found.version} ({found.program})")


def memory(facts: Surroundings) -> Outcome:
    """Judge whether a local session has room."""
    if not facts.memory:
        return ok("this machine does not tell its memory")
    text = f"{_gib(facts.memory)} of memory, {_gib(facts.available)} available"
    if facts.memory < _MEMORY or facts.available < _AVAILABLE:
        return warn(f"{text}; a local session wants {_gib(_MEMORY)}, with {_gib(_AVAILABLE)} free", "Give the machine or container more memory, or Spark a cluster with --spark-master.")  # fmt: skip
    return ok(text)


def cores(facts: Surroundings) -> Outcome:
    """Judge how many tasks run at a time."""
    if facts.cores < 2:  # noqa: PLR2004 - one for the JVM, one for a worker
        return warn("this process may use 1 processor: reading, writing and Spark take turns", "Give it 2 or more if it falls behind.")  # fmt: skip
    return ok(f"{facts.cores} processors")


def local_dirs(facts: Surroundings) -> Outcome:
    """Judge the folders for blocks and shuffled rows."""
    remedy = "Set SPARK_LOCAL_DIRS to a folder that is writable and has room."
    for each in facts.local_dirs:
        if not each.is_writable:
            return fail(f"{each.path} is no folder that this user may write to", remedy)
        if each.free < _FULL:
            return fail(f"{each.path} has {each.free >> 20} MiB free", remedy)
        if each.free < _TIGHT:
            return warn(f"{each.path} has {each.free >> 20} MiB free; a catch-up keeps what it reads there", remedy)
    return ok(", ".join(f"{each.path} has {_gib(each.free)} free" for each in facts.local_dirs))


def _gib(size: int) -> str:
    return f"{size / _GIB:.1f} GiB"


SPARK: Mapping[str, Callable[[Surroundings], Outcome]] = {
    "spark-pyspark": pyspark,
    "spark-java": java,
    "spark-memory": memory,
    "spark-cores": cores,
    "spark-local-dirs": local_dirs,
}
