"""The processes of this program as the system sees them: memory, and connections to the target. From /proc, so only on Linux."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, defaultdict
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
    own, children, found = os.getpid(), defaultdict[int, list[int]](list), dict[int, tuple[str, int]]()
    for file in _PROC.glob("[0-9]*/stat"):
        # A process may end meanwhile.
        with suppress(OSError):
            # The name of a program may hold spaces and brackets; the columns begin behind its last bracket.
            head, _, rest = file.read_text(encoding="utf-8", errors="replace").rpartition(")")
            pid, columns = int(file.parent.name), rest.split()
            children[int(columns[_PARENT])].append(pid)
            found[pid] = head.partition("(")[2], int(columns[_RESIDENT])
    memory, counts, links, waiting = Counter[str](), Counter[str](), set[str](), [own]
    while waiting:
        pid = waiting.pop()
        waiting += children[pid]
        name, resident = found.get(pid, ("", 0))
        kind = "jvm" if name == "java" else "worker" if name.startswith(("python", "pyspark")) else "other"
        kind = "driver" if pid == own else kind
        memory[kind] += resident * _PAGE
        counts[kind] += 1
        links |= _links(pid)
    return Processes(memory=dict(memory), counts=dict(counts), connections=len(links & _sockets(port)))


def _links(pid: int) -> set[str]:
    """Return what a process has open, as far as it is still there."""
    found = set[str]()
    with suppress(OSError):
        for file in (_PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):
                found.add(str(file.readlink()))
    return found


def _sockets(port: int) -> set[str]:
    """Return the links of all established TCP connections of this machine to a port of another socket."""
    lines = list[str]()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            lines += (_PROC / "self" / "net" / table).read_text(encoding="ascii").splitlines()[1:]
    return {
        f"socket:[{columns[_INODE]}]"
        for columns in map(str.split, lines)
        if columns[_STATE] == _ESTABLISHED and int(columns[_REMOTE].rpartition(":")[2], 16) == port
    }
