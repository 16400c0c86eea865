"""Loops that are compiled: when that happens, and where what comes of it is kept."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import storage_consumer
from storage_consumer.spark.executors import zipped

pytestmark = pytest.mark.slow
_READS = """
import numpy as np
from storage_consumer.decode.kernels.wide_words import read_integers
numbers = np.empty(1, np.int64)
done = read_integers(np.frombuffer(b",17,", np.uint8), np.array([1]), np.array([3]), numbers)
print(done, *numbers, sum(read_integers.stats.cache_hits.values()))
"""

_SAYS = """
import logging
class Says(logging.Handler):
    def emit(self, record):
        print(record.args[0].fields["error"])
logging.getLogger("storage_consumer").addHandler(Says())
"""


def _run(code: str, cache: Path, path: Path, **variables: str) -> str:
    """What a new process prints that finds the package at `path` and the user's cache folder at `cache`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    environment = kept | {"XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(path)} | variables
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
    with (archive / "storage_consumer/decode/kernels/arrays.py").open("a") as module:
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


def _halved(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _emptied(path: Path) -> None:
    os.truncate(path, 0)


def _overwritten(path: Path) -> None:
    path.write_bytes(b"\x80\x04K garbage")


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", [_halved, _emptied, _overwritten])
def test_damaged_files(tmp_path: Path, suffix: str, damage: Callable[[Path], None]) -> None:
    """A file of the cache that can't be read is made anew, and stops nothing."""
    _run(_READS, tmp_path, _home())
    (found,) = tmp_path.rglob(f"*.{suffix}")
    damage(found)
    assert [_run(_READS, tmp_path, _home()) for _ in range(2)] == ["True 17 0", "True 17 1"]


def test_code_of_other_types(tmp_path: Path) -> None:
    """Code for other types of arguments, under the name of what was asked for, is not run.

    So it may come when two processes compile one function for different types at the same time: both give it the first free name.
    """
    spread = _READS.replace('b",17,", np.uint8)', 'b",x1x7x,x", np.uint8)[::2]')
    assert [_run(code, tmp_path, _home()) for code in (_READS, spread)] == ["True 17 0"] * 2
    first, second = sorted(tmp_path.rglob("*.nbc"))
    code = first.read_bytes(), second.read_bytes()
    second.write_bytes(code[0])
    first.write_bytes(code[1])
    assert [_run(code, tmp_path, _home()) for code in (_READS, spread) * 2] == ["True 17 0"] * 2 + ["True 17 1"] * 2


def test_other_processor(tmp_path: Path) -> None:
    """What is compiled for another kind of processor lies in a folder of its own."""
    assert [_run(_READS, tmp_path, _home(), NUMBA_CPU_NAME=name) for name in ("", "generic")] == ["True 17 0"] * 2
    assert len([*tmp_path.glob("storage-consumer/compiled/*")]) == 2


def test_full_disk(tmp_path: Path) -> None:
    """Where files can be made but not be written, each process compiles for itself."""
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))" + _READS
    assert [_run(limited, tmp_path, _home()) for _ in range(2)] == ["True 17 0"] * 2


def test_user_without_home(tmp_path: Path) -> None:
    """Where the user has no home, as in a container with a number for its user, each process compiles for itself."""
    nobody = "import os; os.environ.pop('XDG_CACHE_HOME'); os.environ.pop('HOME', None)" + _READS
    archive = tmp_path / "run.py"
    archive.write_text(nobody)
    alone = f"import subprocess, sys; subprocess.run(['unshare', '--user', '--map-user=54321', sys.executable, {str(archive)!r}], check=True)"
    assert _run(alone, tmp_path, _home()) == "True 17 0"


def test_compiled_whatever_the_environment_says(tmp_path: Path) -> None:
    """Numba's switch that lets loops run uncompiled, where numbers of one byte would overflow, is not heeded."""
    assert _run(_READS, tmp_path, _home(), NUMBA_DISABLE_JIT="1") == "True 17 0"


def test_not_imported_early(tmp_path: Path) -> None:
    """Neither the driver nor a task with few rows imports the compiler."""
    code = "import sys, storage_consumer.cli.main, storage_consumer.driver.service, storage_consumer.spark.pipeline; print('numba' in sys.modules)"
    assert _run(code, tmp_path, _home()) == "False"


@pytest.mark.root
def test_cache_of_others(tmp_path: Path) -> None:
    """Code is neither run nor kept where others may write: it is said once, with the folder and the remedy; ssh asks as much of its keys."""
    (cache := tmp_path / "cache").mkdir()
    assert [_run(_READS, cache, _home()) for _ in range(2)] == ["True 17 0", "True 17 1"]
    kept = sorted(cache.rglob("*"))
    cache.chmod(0o777)
    said = _SAYS + _READS
    why = f"others may write to {cache} (mode 0777): remove the write permission of other users (chmod go-w), "
    told = f"{why}or set NUMBA_CACHE_DIR to another folder"
    assert [_run(said, cache, _home()) for _ in range(2)] == [f"{told}\nTrue 17 0"] * 2
    assert sorted(cache.rglob("*")) == kept
    cache.chmod(0o755)
    (planted,) = cache.rglob("*.nbi")
    os.chown(planted, 65534, 65534)
    assert _run(said, cache, _home()).startswith(f"{planted} belongs to another user (number 65534): ")


def test_folders_of_the_cache(tmp_path: Path) -> None:
    """What is made for the cache is for this user alone, whatever the mask; a link on the way to it is followed once."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert _run("import os; os.umask(0)\n" + _READS, tmp_path / "link", _home()) == "True 17 0"
    assert (tmp_path / "real/storage-consumer").stat().st_mode & 0o777 == 0o700
    assert _run(_READS, tmp_path / "link", _home()) == "True 17 1"
