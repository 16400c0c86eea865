"""The processes of this program as the system sees them: memory, and connections to the target. From /proc, so only on Linux."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

KEPT = 5.0
"""Seconds for which what was found is not looked up again."""
_PROC = Path("/proc")
_ESTABLISHED = "01"
_REMOTE, _STATE, _INODE = 2, 3, 9
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PARENT, _RESIDENT = 1, 21
"""Columns of /proc/PID/stat behind the name of the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes:
    """What was found."""

    memory: dict[str, int]
    """``driver``, ``jvm``, ``worker`` and ``other`` → resident bytes. Pages that processes share count in each of them."""
    counts: dict[str, int]
    """The same → number of processes."""
    connections: int
    """TCP connections to the target's port."""


class ProcessLook:
    """Looks at this process and all that it started, at most every `KEPT` seconds."""

    def __init__(self, port: int) -> None:
        """`port` is that of the target."""
        self._port = port
        self._lock = threading.Lock()
        self._found: Processes | None = None
        self._found_at = 0.0

    def __call__(self) -> Processes:
        """Return what is there now, or was a few seconds ago."""
        with self._lock:
            if self._found is None or time.monotonic() - self._found_at >= KEPT:
                self._found, self._found_at = _look(self._port), time.monotonic()
            return self._found


def _look(port: int) -> Processes:
    memory, counts = Counter[str](), Counter[str]()
    sockets = _sockets(port)
    connections = set[str]()
    for pid, resident in _family(os.getpid()):
        kind = _kind(pid)
        memory[kind] += resident * _PAGE
        counts[kind] += 1
        connections |= sockets & _links(pid)
    return Processes(memory=dict(memory), counts=dict(counts), connections=len(connections))


def _family(root: int) -> Iterator[tuple[int, int]]:
    """Yield number and resident pages of a process and all below it."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    resident: dict[int, int] = {}
    for folder in _PROC.iterdir():
        # A process may end meanwhile.
        with suppress(OSError, ValueError, IndexError):
            pid = int(folder.name)
            # The name of a program may hold spaces and brackets; the columns begin behind its last bracket.
            columns = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            children[int(columns[_PARENT])].append(pid)
            resident[pid] = int(columns[_RESIDENT])
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        waiting += children[pid]
        yield pid, resident.get(pid, 0)


def _kind(pid: int) -> str:
    if pid == os.getpid():
        return "driver"
    name = ""
    with suppress(OSError):
        name = (_PROC / str(pid) / "comm").read_text(encoding="utf-8", errors="replace").strip()
    if name == "java":
        return "jvm"
    return "worker" if name.startswith(("python", "pyspark")) else "other"


def _sockets(port: int) -> set[str]:
    """Return the links of all established TCP connections of this machine to a port of another socket."""
    found = set[str]()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            lines = (_PROC / "self" / "net" / table).read_text(encoding="ascii").splitlines()[1:]
            found |= {f"socket:[{columns[_INODE]}]" for columns in map(str.split, lines) if _leads_to(columns, port)}
    return found


def _leads_to(columns: list[str], port: int) -> bool:
    return columns[_STATE] == _ESTABLISHED and int(columns[_REMOTE].rpartition(":")[2], 16) == port


def _links(pid: int) -> set[str]:
    found = set[str]()
    with suppress(OSError):
        for file in (_PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):
                found.add(str(file.readlink()))
    return found
