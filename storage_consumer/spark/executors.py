"""What executors get from the driver and must have; and what a Spark job's failure means.

This package is shipped, with the contents of non-secret files. Not shipped are Python itself, the
packages that this one needs, and secrets.
"""

from __future__ import annotations

import hashlib
import io
import re
import socket
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from pyspark import SparkContext, SparkFiles

import storage_consumer
from storage_consumer.bucket.storage import Storage
from storage_consumer.bucket.stores import open_storage
from storage_consumer.config.private_files import VARIABLES, held_secrets, secrets_from
from storage_consumer.config.settings import Secrets, Upstream
from storage_consumer.errors import (
    ConfigError,
    LeaseLost,
    SparkUnavailable,
    StateGone,
    StorageConsumerError,
    StorageUnavailable,
    TargetUnavailable,
    TransientError,
)
from storage_consumer.rows.spec import JobSpec
from storage_consumer.target.server_trust import certificates

_PACKAGE = storage_consumer.__name__
FOLDER = "blocks-"
"""Prefix of the names of folders that hold a job's blocks."""
REMOVED = (
    "something removes Spark's files while they are in use: set SPARK_LOCAL_DIRS or spark.local.dir to a "
    "folder that nothing else cleans up"
)
"""Why a file of Spark's may be gone, and the remedy."""
_LACKS = (
    # The most telling cause first: another Python often lacks modules as well.
    (
        re.compile(
            r"\[PYTHON_VERSION_MISMATCH\][^\n]*?different version: ([\d.]+) than that in driver: ([\d.]+)"
        ),
        "run Python {}, the driver runs {}",
    ),
    (re.compile(r'Cannot run program "([^"]+)"'), "have no program {}"),
    (
        re.compile(
            r"(?:ModuleNotFoundError: No module named|ImportError: cannot import name) '([\w.]+)'"
        ),
        "lack the Python module {}",
    ),
)
"""What Spark reports if executors lack something, and what that is."""
_REMEDY = (
    "Executors need the driver's minor version of Python and the packages that storage-consumer needs: install them on each machine, or ship an "
    "environment (spark.archives), and set PYSPARK_PYTHON to its Python; docs/cluster.md says how"
)


def ship(context: SparkContext) -> None:
    """Give the executors this package, lest theirs is missing or another version."""
    home = Path(storage_consumer.__path__[0])
    if home.parent.is_file():  # a zip, which spark-submit has shipped or which is shipped now
        archive = home.parent
    else:
        content = zipped(home)
        name = f"{_PACKAGE}-{storage_consumer.__version__}-{hashlib.sha256(content).hexdigest()[:12]}.zip"
        archive = Path(tempfile.mkdtemp(dir=SparkFiles.getRootDirectory())) / name
        archive.write_bytes(content)
    # The name holds a hash, so a package that has changed is shipped under another one.
    if archive.name not in (context._python_includes or ()):  # noqa: SLF001 - a name can be shipped only once
        context.addPyFile(str(archive))


def zipped(home: Path) -> bytes:
    """Return the package's modules as a zip, with the same bytes for the same modules."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        # In a fixed order, since the archive's name holds a hash of the bytes.
        for path in sorted(home.rglob("*.py")):
            # A `ZipInfo` without a date has a fixed one, so the bytes depend on the modules only.
            entry = zipfile.ZipInfo(path.relative_to(home.parent).as_posix())
            archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return content.getvalue()


def travelling(spec: JobSpec) -> JobSpec:
    """Return the job with the CA file's content, reread for each job: executors lack the file."""
    target = spec.downstream
    if not target.ssl_ca:
        return spec
    return replace(spec, downstream=replace(target, ssl_ca_text=certificates(target.ssl_ca)))


@contextmanager
def at_executor(secrets_file: str, held_by_driver: Sequence[str]) -> Iterator[Secrets]:
    """Yield this machine's secrets; add its name and missing secrets to errors raised inside.

    `held_by_driver`: names of the secrets that the driver has. Raises `ConfigError` if the target's
    password is missing.
    """
    # On the driver's own machine the file is there.
    held = held_secrets(secrets_file)
    if held or not secrets_file:
        yield held or secrets_from("")
        return
    # On any other one only the environment can have them.
    secrets = secrets_from("")
    missing = [VARIABLES[name] for name in held_by_driver if name not in secrets.names]
    lacking = (
        f"; secrets do not travel through Spark, and the environment of executors lacks {', '.join(sorted(set(missing)))}"
        if missing
        else ""
    )
    where = f"(executor on {socket.gethostname()}{lacking})"
    # An empty password may be a valid login on the target.
    if "password" in held_by_driver and not secrets.password:
        raise ConfigError(f"there is no password for the target {where}")
    try:
        yield secrets
    except (ConfigError, TransientError) as fault:
        # The same type, since the driver finds out by its name what to do (see `meaning_of`).
        raise type(fault)(f"{fault} {where}") from fault


def see_packages() -> None:
    """Raise `ModuleNotFoundError` for a missing package that only large inputs import."""
    if find_spec("numba") is None:
        raise ModuleNotFoundError("No module named 'numba'")


def opened(upstream: Upstream, secrets: Secrets) -> Storage:
    """Return the bucket's storage; raise `StorageUnavailable` for a folder of other machines."""
    storage = open_storage(upstream, secrets)
    # A folder that is not mounted on this machine would look like one whose files are gone.
    if upstream.scheme == "file":
        try:
            storage.check()
        except ConfigError as fault:
            raise StorageUnavailable(
                f"{fault}. A folder has to be mounted at the same place on all executors"
            ) from fault
    return storage


_FAILURES: dict[str, type[StorageConsumerError]] = {
    c.__name__: c
    for c in (ConfigError, LeaseLost, StateGone, StorageUnavailable, TargetUnavailable)
}
_CAUSES: tuple[tuple[re.Pattern[str], type[StorageConsumerError], str], ...] = (
    (
        re.compile(r"No space left on device|Disk quota exceeded"),
        StorageConsumerError,
        (
            "the disk with Spark's files is full: make room there, or set SPARK_LOCAL_DIRS or spark.local.dir to a "
            "folder on a larger one"
        ),
    ),
    (
        re.compile(rf"No such file or directory: '[^']*/{FOLDER}"),
        StorageConsumerError,
        REMOVED,
    ),
    (
        re.compile(
            r"Python worker (?:exited unexpectedly|failed to connect back)|ExecutorLostFailure|FetchFailed"
        ),
        SparkUnavailable,
        (
            "a worker or executor was killed, most often for lack of memory: give it more, more --partitions, or fewer "
            "cores in --spark-master"
        ),
    ),
)
"""What Spark reports if something around it is wrong, the error that this is to us, and the remedy.
"""


def meaning_of(fault: BaseException) -> StorageConsumerError:
    """Return the error that a task raised, from the text in which Spark carries it."""
    text = str(fault)
    # The last line that names an error of ours is the one that was raised: causes come first in a
    # traceback.
    for line in reversed(text.splitlines()):
        name, _, message = line.strip().partition(": ")
        if known := _FAILURES.get(name.rpartition(".")[2]):
            return known(message)
    # None of ours: what the executors lack, then what happened around Spark, and last Spark's own
    # words.
    for said, lack in _LACKS:
        if found := said.search(text):
            return ConfigError(f"executors {lack.format(*found.groups())}. {_REMEDY}")
    message = f"the Spark job failed: {_gist(text) or type(fault).__name__}"
    for said, kind, remedy in _CAUSES:
        if said.search(text):
            return kind(f"{message} ({remedy})")
    return StorageConsumerError(message)


def _gist(text: str) -> str:
    """Return Spark's most telling line: a Python traceback's end, else its last failure."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and not lines[-1].startswith(("at ", "...", "Caused by:")):
        return lines[-1]
    accounts = [line.partition("most recent failure: ")[2] for line in lines]
    return next(filter(None, [*accounts, *lines]), "")
