"""Memory and CPU time of a run, told apart by what the processes are: driver, JVM, Python workers, database server."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

ROLES = ("driver", "jvm", "workers", "server")
_SERVERS = ("maria", "mysqld")
_INTERVAL = 0.2
_LOOKS_PER_SEARCH = 5
"""Processes are searched for less often than they are looked at: it takes longer."""
_TICKS = os.sysconf("SC_CLK_TCK")
_RESET_PEAK = "5"
"""What proc(5) wants written into clear_refs to start VmHWM afresh."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    """One line of /proc."""

    pid: int
    parent: int
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
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._before: dict[int, float] = {}
        """CPU time of each process at the beginning."""
        self._last: dict[tuple[str, int], float] = {}
        """The same when last seen, by role and id."""

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

    def _look(self, roles: Mapping[str, list[_Process]]) -> None:
        usage = self.usage
        usage.driver = max([usage.driver, *(_field(p.pid, "status", "VmHWM") for p in roles["driver"])])
        usage.jvm = max([usage.jvm, *(_field(p.pid, "status", "VmHWM") for p in roles["jvm"])])
        sizes = [_field(p.pid, "smaps_rollup", "Pss") for p in roles["workers"]]
        usage.worker = max([usage.worker, *sizes])
        usage.workers = max(usage.workers, sum(sizes))


def _roles(driver: int) -> dict[str, list[_Process]]:
    """The processes below this one and the driver itself, by role."""
    processes = {process.pid: process for process in _processes()}
    roles: dict[str, list[_Process]] = {role: [] for role in ROLES}
    for process in processes.values():
        line = list(_line(process, processes))
        if process.pid == driver:
            roles["driver"].append(process)
        elif os.getpid() not in (above.pid for above in line):
            continue
        elif process.name == "java":
            roles["jvm"].append(process)
        elif process.name.startswith(_SERVERS):
            roles["server"].append(process)
        elif any(above.name == "java" for above in line):
            roles["workers"].append(process)
    return roles


def _line(process: _Process, processes: Mapping[int, _Process]) -> Iterator[_Process]:
    """The processes above one."""
    while above := processes.get(process.parent):
        yield above
        process = above


def _processes() -> Iterator[_Process]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
                yield _process(int(folder.name), text)


def _process(pid: int, text: str) -> _Process:
    """Of the text of /proc/PID/stat; the name may hold brackets and spaces."""
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    return _Process(
        pid=pid,
        parent=int(fields[1]),
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
