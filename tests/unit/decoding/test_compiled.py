"""Loops that are compiled: when that happens, and where what comes of it is kept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import storage_consumer
from storage_consumer.spark.shipping import zipped

_READS = """
import numpy as np
from storage_consumer.decoding.digits import read_integers
numbers = np.empty(1, np.int64)
done = read_integers(np.frombuffer(b",17,", np.uint8), np.array([1]), np.array([3]), numbers)
print(done, *numbers, sum(read_integers.stats.cache_hits.values()))
"""


def _run(code: str, cache: Path, path: Path) -> str:
    """What a new process prints that finds the package at `path` and the user's cache folder at `cache`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    environment = kept | {"XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(path)}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=cache.parent, capture_output=True, text=True, check=True
    ).stdout.strip()


def _home() -> Path:
    return Path(storage_consumer.__path__[0]).parent


def test_kept_for_the_next_process(tmp_path: Path) -> None:
    """What one process compiled the next one finds."""
    assert [_run(_READS, tmp_path, _home()) for _ in range(2)] == ["True 17 0", "True 17 1"]


def test_compiled_anew_of_other_sources(tmp_path: Path) -> None:
    """Code compiled of another version of any of the modules is not used."""
    archive = tmp_path / "package"
    _unpack(archive)
    assert _run(_READS, tmp_path / "cache", archive) == "True 17 0"
    with (archive / "storage_consumer/decoding/columns.py").open("a") as module:
        module.write("# changed\n")
    assert _run(_READS, tmp_path / "cache", archive) == "True 17 0"


def _unpack(folder: Path) -> None:
    """A copy of the package that may be changed."""
    folder.parent.joinpath("cache").mkdir()
    archive = folder.with_suffix(".zip")
    archive.write_bytes(zipped(_home() / "storage_consumer"))
    subprocess.run([sys.executable, "-m", "zipfile", "-e", str(archive), str(folder)], check=True)


def test_nowhere_to_keep_it(tmp_path: Path) -> None:
    """Where no folder can be written to, and where the package is a zip, each process compiles for itself."""
    nowhere = tmp_path / "file"
    nowhere.write_text("")
    archive = tmp_path / "package.zip"
    archive.write_bytes(zipped(_home() / "storage_consumer"))
    assert _run(_READS, nowhere, _home()) == "True 17 0"
    assert [_run(_READS, tmp_path / "cache", archive) for _ in range(2)] == ["True 17 0"] * 2
    assert not (tmp_path / "cache").exists()


def test_not_imported_early(tmp_path: Path) -> None:
    """Neither the driver nor a task with few rows imports the compiler."""
    code = "import sys, storage_consumer.cli, storage_consumer.service, storage_consumer.spark.job; print('numba' in sys.modules)"
    assert _run(code, tmp_path, _home()) == "False"
