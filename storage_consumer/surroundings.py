"""What Spark would find here: PySpark, Java, folders; starts only ``java -version``.

Nothing here imports PySpark, which may be missing.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

PYSPARK = ((4, 0), (4, 4))
"""Supported versions of PySpark, first inclusive, last exclusive, as in the package."""
JAVA = 17
"""The oldest Java that Spark runs on."""
_JAVA_SECONDS = 20
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """The Java that Spark would start."""

    home: str
    """``JAVA_HOME``; empty if it is not set."""
    program: str
    """Its path; empty if there is none."""
    version: int
    """The major version; 0 if it does not tell."""
    said: str = ""
    """What it said instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalDir:
    """A folder in which Spark keeps blocks and shuffled rows."""

    path: str
    is_writable: bool
    free: int
    """Bytes; 0 if there is no such folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """All of it."""

    pyspark: str
    """Its version; empty if it is not installed."""
    java: Java
    local_dirs: tuple[LocalDir, ...]


def surroundings(environ: Mapping[str, str]) -> Surroundings:
    """Return what Spark would find in this environment."""
    # One that spark-submit brings is not installed by pip, and says its version only once it is imported.
    pyspark = "unknown" if find_spec("pyspark") else ""
    with suppress(importlib.metadata.PackageNotFoundError):
        pyspark = importlib.metadata.version("pyspark")
    return Surroundings(
        pyspark=pyspark,
        java=_java(environ),
        local_dirs=tuple(
            map(_local_dir, (environ.get("SPARK_LOCAL_DIRS") or tempfile.gettempdir()).split(","))
        ),
    )


def java_program(environ: Mapping[str, str]) -> str:
    """Return the Java that Spark would start; empty if there is none where it looks."""
    home = environ.get("JAVA_HOME")
    if not home:
        return shutil.which("java", path=environ.get("PATH")) or ""
    program = Path(home, "bin", "java")
    return str(program) if program.exists() else ""


def _java(environ: Mapping[str, str]) -> Java:
    home, program = environ.get("JAVA_HOME", ""), java_program(environ)
    if not program:
        return Java(home=home, program="", version=0)
    try:
        done = subprocess.run(  # noqa: S603 - the program that Spark would start
            [program, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_JAVA_SECONDS,
            check=False,
        )
        said = f"{done.stderr}{done.stdout}"
    except (OSError, subprocess.TimeoutExpired) as error:
        said = str(error)
    found = _VERSION.search(said)
    # Java 8 calls itself 1.8.
    number = 0 if found is None else int(found[2] or 0) if found[1] == "1" else int(found[1])
    return Java(home=home, program=program, version=number, said=" ".join(said.split())[:200])


def _local_dir(path: str) -> LocalDir:
    try:
        free = shutil.disk_usage(path).free
    except OSError:
        return LocalDir(path=path, is_writable=False, free=0)
    # Asked, not tried: nothing is written.
    return LocalDir(
        path=path, is_writable=Path(path).is_dir() and os.access(path, os.W_OK | os.X_OK), free=free
    )
