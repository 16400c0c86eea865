"""The program's time, how it is asked to end, and durations and amounts for readers.

The clock is a Protocol so that tests can control it. The first SIGTERM or SIGINT asks the program
to finish its transaction and end, the second to abandon it. Both are safe, since a stored position
never runs ahead of its rows. A third signal has its usual effect: the process dies immediately,
which is safe for the same reason.
"""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType
from typing import Protocol, Self

from storage_consumer.telemetry import Log

_STEP = 1024
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def data_size(number: float) -> str:
    """Return a number of bytes with its unit: ``640 B``, ``1.5 MiB``."""
    unit = 0
    while number >= _STEP and unit < len(_UNITS) - 1:
        number, unit = number / _STEP, unit + 1
    return f"{number:.0f} {_UNITS[unit]}" if not unit else f"{number:.1f} {_UNITS[unit]}"


def counted(number: int, word: str) -> str:
    """Return a number of things: ``1 row``, ``2,000 rows``."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def some_of(names: Sequence[str], most: int) -> str:
    """Return at most so many names, and how many more there are: ``a, b and 3 more``."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def span(seconds: float) -> str:
    """Return a duration as readers like it: ``7s``, ``3m20s``, ``5h07m``, ``2d04h``."""
    whole = int(seconds)
    for unit, size, below, part in (
        ("d", 86400, "h", 3600),
        ("h", 3600, "m", 60),
        ("m", 60, "s", 1),
    ):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // part:02d}{below}"
    return f"{whole}s"


class Clock(Protocol):
    """Provides the time and a way to wait."""

    def monotonic(self) -> float:
        """Return the seconds since some fixed point in time; the value never goes back."""
        ...

    def now(self) -> float:
        """Return the seconds since 1970-01-01 UTC by the wall clock; the value may jump."""
        ...

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until `event` is set or `seconds` have passed; return whether it is set."""
        ...


class SystemClock:
    """The machine's clock, with the last wait: it tells a hanging program from a busy one."""

    def __init__(self) -> None:
        """Start with nobody having waited."""
        self._returns: float | None = None
        """Time by `monotonic` at which the longest wait ends, or ended."""

    def silent_seconds(self) -> float | None:
        """Return seconds since the last wait ended: 0 in a wait, None before the first."""
        return None if self._returns is None else max(0.0, self.monotonic() - self._returns)

    def monotonic(self) -> float:
        """Return the seconds since some fixed point in time; the value never goes back."""
        return time.monotonic()

    def now(self) -> float:
        """Return the seconds since 1970-01-01 UTC by the wall clock; the value may jump."""
        return time.time()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until `event` is set or `seconds` have passed; return whether it is set."""
        self._returns = max(self._returns or 0.0, self.monotonic() + seconds)
        return event.wait(seconds)


_MADE_UP = 5.0
"""Most seconds in which less was done than allowed that are made up for."""


class Pace:
    """A limit of rows per second, which several threads share."""

    def __init__(self, rows_per_second: float = 0.0) -> None:
        """Let through so many rows; 0 for any number."""
        self._limit = rows_per_second
        self._lock = threading.Lock()
        self._next = time.monotonic()

    def spend(self, rows: int) -> None:
        """Wait until as much time has passed as these rows may take."""
        if not self._limit:
            return
        with self._lock:
            now = time.monotonic()
            self._next = max(self._next, now - _MADE_UP) + rows / self._limit
            wait = self._next - now
        time.sleep(max(0.0, wait))


_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_log = Log("signals")


class StopSignal(Protocol):
    """Whether the program should end; `Stop` is one."""

    requested: threading.Event


class Stop:
    """Asks a running program to end.

    As a context manager it takes over the process's SIGTERM and SIGINT and restores their handlers
    at the end. Without it, `request` and `abandon` do the same from any thread. The handlers only
    put the signal into a queue, which is allowed at any instruction; a thread reads it, logs, and
    runs the callbacks.
    """

    def __init__(self) -> None:
        """Start with nothing requested."""
        self.requested = threading.Event()
        """Set when the program should end after its transaction; wait on it, do not sleep."""
        self.abandoned = threading.Event()
        """Set when the program should not even finish its transaction."""
        self._callbacks: list[Callable[[], object]] = []
        self._lock = threading.Lock()
        self._arrived: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._before: dict[int, object] = {}
        self._watcher: threading.Thread | None = None
        self._received = 0

    def on_abandon(self, callback: Callable[[], object]) -> None:
        """Call `callback` in a thread when the transaction is abandoned, or already was."""
        # Either `abandon` finds the callback, or it has set the event before: none is lost, and
        # none is called twice.
        with self._lock:
            if not self.abandoned.is_set():
                self._callbacks.append(callback)
                return
        self._call(callback)

    def request(self, reason: str = "request") -> None:
        """Finish the transaction, then end. A second request changes nothing."""
        if not self.requested.is_set():
            self.requested.set()
            _log.info("stop_requested", reason=reason)

    def abandon(self, reason: str = "request") -> None:
        """End without finishing the transaction. A second call changes nothing."""
        self.request(reason)
        with self._lock:
            if self.abandoned.is_set():
                return
            self.abandoned.set()
            callbacks = tuple(self._callbacks)
        _log.warning("stop_abandoned", reason=reason)
        for callback in callbacks:
            self._call(callback)

    def install(self) -> None:
        """Take over SIGTERM and SIGINT, in the main thread only.

        A second call takes them back from whoever took them since.
        """
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, name="signals", daemon=True)
            self._watcher.start()
        for number in _SIGNALS:
            # Keep the first handlers that were found: a second call may find our own.
            before = signal.signal(number, self._handle)
            self._before.setdefault(number, before)

    def restore(self) -> None:
        """Restore the handlers that were there before."""
        for number, before in self._before.items():
            signal.signal(number, before)  # type: ignore[arg-type]  # what signal.signal itself returned
        self._before.clear()
        if self._watcher is not None:
            # 0 is not a signal: it ends the watcher's loop.
            self._arrived.put(0)
            self._watcher.join()
            self._watcher = None

    def __enter__(self) -> Self:
        """Take over the signals."""
        self.install()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Restore the handlers."""
        self.restore()

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        """Run in the main thread at any instruction, so take no lock and write nothing."""
        self._received += 1
        self._arrived.put(number)
        if self._received > 1:
            # A third signal then kills the process, even if the watcher thread hangs.
            for each in _SIGNALS:
                signal.signal(each, signal.SIG_DFL)

    def _watch(self) -> None:
        while number := self._arrived.get():
            name = signal.Signals(number).name
            if self.requested.is_set():
                self.abandon(name)
            else:
                self.request(name)

    def _call(self, callback: Callable[[], object]) -> None:
        try:
            callback()
        except Exception as error:  # noqa: BLE001 - the other callbacks must run whatever one of them does
            _log.warning("abandon_callback_failed", error=str(error))
