"""A target whose disk is full: its data lie in a small file system of their own, which is filled up and freed again. Needs root."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.campaigns.faults.target import A_WHILE, LIMIT, OPTIONS, at
from tests.campaigns.faults.trial import Fault, World
from tests.harness.servers import SERVERS, DatabaseServer, Jail

_BLOCK = bytes(1 << 20)
_LITTLE = 64 << 10
_SIZE = "400m"
_LONG = 40.0
"""Seconds: longer than the program waits, but not for ever, should it wait on."""
WIDE = 6_000
"""Rows of about a kilobyte, which need new room."""


@contextmanager
def small_disk(size: str, folder: Path) -> Iterator[Path]:
    """A file system in memory at `folder`. Raises `CalledProcessError` where this process may not mount one."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=777", "none", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def full(disk: Path, _: World) -> Callable[[], None]:
    """Nothing more goes on this disk."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for block in (_BLOCK, _BLOCK[:_LITTLE], _BLOCK[:4096]):
            _fill(file.fileno(), block)
    return lambda: ballast.unlink(missing_ok=True)


def _fill(file: int, block: bytes) -> None:
    """Write until there is no room for another one."""
    try:
        while os.write(file, block) == len(block):
            pass
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


@contextmanager
def server_on(disk: Path, kind: str) -> Iterator[DatabaseServer]:
    """A server whose data lie in a small file system that is mounted at `disk`."""
    options = [*OPTIONS[kind], *([f"--tmpdir={disk.parent}"] if kind == "mariadb" else [])]  # else its lists fail first
    if kind != "mysql":
        with small_disk(_SIZE, disk), SERVERS[kind](options=options, folder=disk) as server:
            yield server
        return
    jail = Jail()
    inside = f"/srv/{disk.name}-{os.getpid()}"
    with small_disk(_SIZE, jail.outside(inside)):
        jail.copy(jail.outside("/srv/empty"), f"{inside}/data")
        disk.symlink_to(jail.outside(inside))
        with SERVERS[kind](options=[*options, f"--datadir={inside}/data"]) as server:
            yield server
    jail.outside(inside).rmdir()


def faults(disk: Path) -> Iterable[Fault]:
    """The disk is full for a while, or for longer than the program waits."""
    for where, pattern in {
        "before rows are written": r"LOAD DATA.*`wide`|REPLACE INTO `d`.`wide`|^COM_250$",  # a bulk statement of MariaDB's
        "before a DDL": r"CREATE TABLE `wide`",
    }.items():
        trouble = partial(full, disk)
        yield Fault(
            name="disk full for a while",
            where=where,
            around=partial(at, pattern=pattern, trouble=trouble, seconds=A_WHILE),
        )
        yield Fault(
            name="disk full for longer than --retry-limit",
            where=where,
            around=partial(at, pattern=pattern, trouble=trouble, seconds=_LONG),
            ends="full",
            options={"retry_limit": LIMIT},
        )
