"""Memory and CPU time of a run, told apart by what the processes are: driver, JVM, Python workers, database server."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

THREAD = "watch"
"""Name of the thread that watches."""
ROLES = ("driver", "jvm", "workers", "server")
_SERVERS = ("maria", "mysqld")
_INTERVAL = 0.5
_LOOKS_PER_SEARCH = 2
"""Processes are searched for less often than they are looked at: it takes longer."""
_TICKS = os.sysconf("SC_CLK_TCK")
_RESET_PEAK = "5"
"""What proc(5) wants written into clear_refs to start VmHWM afresh."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    """One line of /proc."""

    pid: int
    name: str
    cpu: float
    """Seconds."""


@dataclass(slots=True)
class Usage:
    """What a run took. Memory in bytes, CPU in seconds."""

    jvm: int = 0
    """Peak resident size (VmHWM)."""
    driver: int = 0
    """Peak resident size (VmHWM)."""
    worker: int = 0
    """Highest proportional size (PSS) that one Python worker had."""
    workers: int = 0
    """Highest sum of the workers' proportional sizes."""
    cpu: dict[str, float] = field(default_factory=dict)
    """Per role; of a process that ends in between, what it had up to a second before."""


@contextmanager
def watched(driver: int | None = None) -> Iterator[Usage]:
    """Watch the block; the result is complete behind it. `driver`: the process that drives Spark, None for this one."""
    watch = _Watch(driver or os.getpid())
    watch.begin()
    try:
        yield watch.usage
    finally:
        watch.end()


class _Watch:
    """A thread that looks at the processes below this one."""

    def __init__(self, driver: int) -> None:
        self.usage = Usage()
        self._driver = driver
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
        self._before: dict[int, float] = {}
        """CPU time of each process at the beginning."""
        self._last: dict[tuple[str, int], float] = {}
        """The same when last seen, by role and id."""
        self._own = 0.0
        """Seconds of CPU that watching took from the driver."""

    def begin(self) -> None:
        roles = self._search()
        for process in (*roles["driver"], *roles["jvm"]):
            with suppress(OSError):
                Path(f"/proc/{process.pid}/clear_refs").write_text(_RESET_PEAK, encoding="ascii")
        self._before = {pid: cpu for (_, pid), cpu in self._last.items()}
        self._thread.start()

    def end(self) -> None:
        self._stop.set()
        self._thread.join()
        self._look(self._search())
        totals = dict.fromkeys(ROLES, 0.0)
        for (role, pid), cpu in self._last.items():
            totals[role] += cpu - self._before.get(pid, 0.0)
        totals["driver"] = max(0.0, totals["driver"] - self._own)
        self.usage.cpu = {role: round(seconds, 2) for role, seconds in totals.items()}

    def _search(self) -> dict[str, list[_Process]]:
        roles = _roles(self._driver)
        self._last.update({(role, p.pid): p.cpu for role, processes in roles.items() for p in processes})
        return roles

    def _run(self) -> None:
        looks, roles = 0, self._search()
        while not self._stop.wait(_INTERVAL):
            if looks % _LOOKS_PER_SEARCH == 0:
                roles = self._search()
            looks += 1
            self._look(roles)
        if self._driver == os.getpid():
            self._own = time.thread_time()

    def _look(self, roles: Mapping[str, list[_Process]]) -> None:
        usage = self.usage
        usage.driver = max([usage.driver, *(_field(p.pid, "status", "VmHWM") for p in roles["driver"])])
        usage.jvm = max([usage.jvm, *(_field(p.pid, "status", "VmHWM") for p in roles["jvm"])])
        sizes = [_field(p.pid, "smaps_rollup", "Pss") for p in roles["workers"]]
        usage.worker = max([usage.worker, *sizes])
        usage.workers = max(usage.workers, sum(sizes))


def _roles(driver: int) -> dict[str, list[_Process]]:
    """The processes below this one and the driver itself, by role."""
    roles: dict[str, list[_Process]] = {role: [] for role in ROLES}
    pending = [(os.getpid(), False)]
    while pending:
        pid, below_jvm = pending.pop()
        with suppress(OSError):  # it has ended meanwhile
            process = _process(pid, Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace"))
            is_jvm = process.name == "java"
            if role := "driver" if pid == driver else "jvm" if is_jvm else _role(process, below_jvm=below_jvm):
                roles[role].append(process)
            pending += ((child, below_jvm or is_jvm) for child in _children(pid))
    return roles


def _role(process: _Process, *, below_jvm: bool) -> str:
    """Empty for one that plays none."""
    return "server" if process.name.startswith(_SERVERS) else "workers" if below_jvm else ""


def _children(pid: int) -> Iterator[int]:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            yield from map(int, (thread / "children").read_text(encoding="ascii").split())


def _process(pid: int, text: str) -> _Process:
    """Of the text of /proc/PID/stat; the name may hold brackets and spaces."""
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    return _Process(
        pid=pid,
        name=head.partition("(")[2],
        cpu=(int(fields[11]) + int(fields[12])) / _TICKS,
    )


def _field(pid: int, file: str, name: str) -> int:
    """A size in /proc/PID/`file`, in bytes; 0 for a process that has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/{file}").read_text(encoding="ascii", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key == name:
                return int(value.split()[0]) * 1024
    return 0
