"""Processes of Spark below this one, found by what they are and who started them, so that none of anybody else's is ended."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

PYTHON_WORKERS = "pyspark.daemon"
EXECUTORS = "CoarseGrainedExecutorBackend"


def below(pid: int, like: str) -> list[int]:
    """Descendants of a process whose command line has this in it, parents first."""
    children = defaultdict(list)
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            children[int((folder / "stat").read_text().rpartition(")")[2].split()[1])].append(int(folder.name))
    found, waiting = [], [pid]
    while waiting:
        waiting += children[waiting[0]]
        found.append(waiting.pop(0))
    return [one for one in found[1:] if like in command_of(one)]


def command_of(pid: int) -> str:
    """The command line of a process; empty where it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    return ""


def kill_workers(process: int = 0) -> int:
    """Kill -9 all Python workers of a process's Spark (0: of this one's), but not the process that forks them; how many there were."""
    forked = [
        pid for pid in below(process or os.getpid(), PYTHON_WORKERS) if PYTHON_WORKERS in command_of(_parent(pid))
    ]
    return _killed(forked)


def kill_executor(pid: int) -> int:
    """Kill -9 one executor below a process; how many there were."""
    return _killed(below(pid, EXECUTORS)[:1])


def _killed(pids: list[int]) -> int:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(pids)


def _parent(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0
