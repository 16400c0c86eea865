"""The folder of a process: made for it alone, and removed at its end, whatever its end is."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from storage_consumer.config.private_files import MARK

_MADE = """
import os, sys, tempfile
from pathlib import Path
from storage_consumer.config.private_files import own_folder, remove_later
spark = Path(tempfile.mkdtemp(prefix="spark-", dir=sys.argv[1]))
(spark / "blocks").mkdir()
remove_later(spark)
(own_folder() / "socket").touch()
assert own_folder() == own_folder()
print(own_folder(), spark, flush=True)
"""
_KILLED = _MADE + "os.kill(os.getpid(), 9)"
_LIVING = _MADE + "input()"


@pytest.fixture
def runtime() -> Iterator[Path]:
    """What XDG_RUNTIME_DIR names, with a path that is not too long for sockets; empty at the end."""
    folder = Path(tempfile.mkdtemp(prefix="xdg-"))
    yield folder
    folder.rmdir()


def environment(runtime: Path) -> Mapping[str, str]:
    """Of a process that makes its folder there."""
    return {**os.environ, "XDG_RUNTIME_DIR": str(runtime)}


def made(code: str, runtime: Path, spark: Path) -> list[Path]:
    """The folder of a process that has run this code, and the one that it noted for Spark."""
    command = [sys.executable, "-c", code, str(spark)]
    done = subprocess.run(command, env=environment(runtime), capture_output=True, text=True, check=False)
    return [Path(word) for word in done.stdout.split()]


def test_removed_at_the_end(runtime: Path, tmp_path: Path) -> None:
    """It lies where the user's programs keep their sockets, and nothing of it is left when the process ends."""
    own, spark = made(_MADE, runtime, tmp_path)
    assert own.parent == runtime
    assert [own.exists(), spark.exists()] == [False, False]


def test_left_by_a_killed_process(runtime: Path, tmp_path: Path) -> None:
    """What a process left that was killed is removed by the next one, with its folder of Spark; that of a living one stays."""
    command = [sys.executable, "-c", _LIVING, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=environment(runtime), text=True, **pipes) as living:  # type: ignore[call-overload]
        lasting = [Path(word) for word in living.stdout.readline().split()]
        left = made(_KILLED, runtime, tmp_path)
        assert [path.exists() for path in left] == [True, True]
        assert left[0].stat().st_mode & 0o777 == 0o700
        made(_MADE, runtime, tmp_path)
        assert [path.exists() for path in left] == [False, False]
        assert [path.exists() for path in lasting] == [True, True]
        living.communicate("\n")
    assert [*runtime.iterdir()] == [*tmp_path.glob("spark-*")] == []


@pytest.mark.root
def test_nothing_of_others_is_removed(runtime: Path, tmp_path: Path) -> None:
    """A folder of a like name that is another user's or a link, and what links lead to that no start of ours has made, stay."""
    (precious := tmp_path / "precious").mkdir()
    (others := runtime / "storage-consumer-others").mkdir()
    os.chown(others, 65534, 65534)
    (runtime / "storage-consumer-link").symlink_to(precious)
    (left := runtime / "storage-consumer-left").mkdir()
    (left / MARK).touch()
    (left / "leftover-precious").symlink_to(precious)
    (left / "leftover-spark-x").symlink_to(precious)
    made(_MADE, runtime, tmp_path)
    assert precious.is_dir()
    assert others.is_dir()
    assert not left.exists()
    (runtime / "storage-consumer-link").unlink()
    others.rmdir()


def test_folders_of_the_same_user_with_a_like_name(runtime: Path, tmp_path: Path) -> None:
    """A folder that no process has made for itself stays, whatever its name: a clone of this repository, say, or a bucket."""
    (clone := runtime / "storage-consumer-a1b2c3d4").mkdir(mode=0o700)
    (clone / "README.md").write_text("precious")
    made(_MADE, runtime, tmp_path)
    assert (clone / "README.md").read_text() == "precious"
    (clone / "README.md").unlink()
    clone.rmdir()


def test_places_that_others_may_write_to(runtime: Path, tmp_path: Path) -> None:
    """Where another user could put something of theirs in its place, it lies elsewhere; so where a socket's path would be too long."""
    runtime.chmod(0o777)
    own, _ = made(_MADE, runtime, tmp_path)
    assert own.parent != runtime
    (long := tmp_path / ("long" * 20)).mkdir(mode=0o700)
    own, _ = made(_MADE, long, tmp_path)
    assert own.parent != long
