"""Who listens on a port of this machine, for a message; from /proc, so only on Linux."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_LISTENING = "0A"
"""The state of a socket in /proc/net/tcp."""
_STATE, _INODE = 3, 9
"""Columns there."""


def port_owner(port: int, proc: Path = Path("/proc")) -> str:
    """Return the process that listens on a TCP port, as ``process 4711 (node_exporter)``; empty if that cannot be seen."""
    links = {f"socket:[{inode}]" for inode in _listening(port, proc)}
    # Of other users' processes only root sees the files.
    with suppress(OSError):
        for folder in (each for each in proc.iterdir() if each.name.isdigit()):
            if links and _has_one(folder, links):
                return f"process {folder.name} ({_name(folder)})"
    return ""


def _listening(port: int, proc: Path) -> Iterator[str]:
    """Yield the inodes of the sockets that listen on a port."""
    for table in ("tcp", "tcp6"):
        lines: list[str] = []
        with suppress(OSError):
            lines = (proc / "net" / table).read_text(encoding="ascii").splitlines()[1:]
        for columns in map(str.split, lines):
            if columns[_STATE] == _LISTENING and int(columns[1].rpartition(":")[2], 16) == port:
                yield columns[_INODE]


def _has_one(folder: Path, links: set[str]) -> bool:
    with suppress(OSError):
        return any(_link(file) in links for file in (folder / "fd").iterdir())
    return False


def _link(file: Path) -> str:
    try:
        return str(file.readlink())
    # It may be closed meanwhile.
    except OSError:
        return ""


def _name(folder: Path) -> str:
    try:
        return (folder / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "unknown"
