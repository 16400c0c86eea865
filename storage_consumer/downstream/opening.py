"""Opening a socket to the target, and a limit to the time that all of connecting may take.

The driver waits for each single answer, so a server that sends a byte now and then, or nothing, would hold the program forever.
A watch shuts the socket down when the time is over, wherever the driver is; the driver then sees a broken connection.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from storage_consumer.config.settings import Downstream
from storage_consumer.errors import ConfigError, TargetUnavailable

_LOOK = 0.2
"""Seconds between two looks whether the program is to end."""
_UNDER_WAY = (errno.EINPROGRESS, errno.EALREADY, errno.EAGAIN)
"""What the system answers until a socket is connected; EAGAIN: the queue of a Unix socket is full, and nothing is under way yet."""
_SHORTEST_PAUSE, _PAUSE = 0.000_5, 0.05
"""Seconds between two such questions, the first and the last ones."""
_LAST = 2.0
"""Seconds that connecting may still take then: enough for a target that answers."""
_SILENCE = {"TCP_USER_TIMEOUT": 60_000, "TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""In this order: milliseconds that sent data may stay unanswered, seconds of silence before the first probe, seconds between probes, and
the number of probes.
"""
_ends: list[threading.Event] = []


def hurry(end: threading.Event) -> None:
    """Let no attempt to connect take long once `end` is set; in force until `no_hurry`."""
    if end not in _ends:
        _ends.append(end)


def no_hurry(end: threading.Event) -> None:
    """Forget an event of `hurry`."""
    with suppress(ValueError):
        _ends.remove(end)


class Deadline:
    """The time that is left for one connection."""

    def __init__(self, seconds: float) -> None:
        """Start the clock."""
        self.seconds = seconds
        self.passed = False
        """Whether something was cut off because the time was over."""
        self._until = time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds that are left; few are left once the program is to end."""
        now = time.monotonic()
        # Over a copy, since another thread may change the list meanwhile.
        if any(end.is_set() for end in tuple(_ends)):
            # Only ever lowered, so the last seconds count from the first look after the wish to end.
            self._until = min(self._until, now + _LAST)
        return self._until - now

    def wait(self, event: threading.Event) -> bool:
        """Wait for an event; return False if the time was over first."""
        # In short steps, so that the wish to end is noticed while nothing else happens.
        while not event.wait(max(0.0, min(_LOOK, self.left()))):
            if self.left() <= 0:
                self.passed = True
                return False
        return True

    @contextmanager
    def over(self, opened: socket.socket) -> Iterator[None]:
        """End this socket's connection unless the block is left in time."""
        left = threading.Event()
        same = opened.dup()  # TLS detaches the driver's own one

        def watch() -> None:
            # `passed` is set before the shutdown, so whoever meets the broken socket knows why.
            if not self.wait(left):
                with suppress(OSError):
                    # A shutdown ends the connection for every descriptor; a close would only drop this one.
                    same.shutdown(socket.SHUT_RDWR)

        watching = threading.Thread(target=watch, name="connecting", daemon=True)
        watching.start()
        try:
            yield
        finally:
            left.set()
            watching.join()
            same.close()


def opened_socket(downstream: Downstream, deadline: Deadline) -> socket.socket:
    """Return a socket connected to the target. Raise `TargetUnavailable`, or `ConfigError` for an impossible host name."""
    if downstream.unix_socket:
        return _connected(socket.AF_UNIX, downstream.unix_socket, downstream, deadline)
    fault: TargetUnavailable | None = None
    addresses = _addresses(downstream, deadline)
    # Each address gets an equal share of the time that is left when its turn comes.
    for tried, (family, address) in enumerate(addresses):
        try:  # a later address gets its turn though an earlier one stays silent
            found = _connected(family, address, downstream, Deadline(deadline.left() / (len(addresses) - tried)))
        except TargetUnavailable as error:
            # The first one: it is about the address that the system prefers.
            fault = fault or error
        else:
            # Each statement waits for its answer, so a small packet must not wait for more data.
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # The connection breaks if the other machine falls silent, instead of after a quarter of an hour. A server that is busy with a long
            # statement still answers probes, so these are no limits for statements.
            found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _SILENCE.items():
                if option := getattr(socket, name, None):  # not every system has each
                    found.setsockopt(socket.IPPROTO_TCP, option, value)
            return found
    raise fault or _unknown(downstream, "it has no address")


def _addresses(downstream: Downstream, deadline: Deadline) -> list[tuple[int, object]]:
    """Return the addresses of the target's host. The system cannot cancel the query, so it is left behind when the time is over."""
    with suppress(OSError, ValueError):  # an address needs no question, and so no thread
        return _asked(downstream, socket.AI_NUMERICHOST)
    found: list[tuple[int, object]] = []
    faults: list[Exception] = []
    answered = threading.Event()

    def ask() -> None:
        try:
            found.extend(_asked(downstream))
        except (OSError, ValueError) as error:
            faults.append(error)
        finally:
            answered.set()

    threading.Thread(target=ask, name="resolving", daemon=True).start()
    if not deadline.wait(answered):
        raise _unknown(downstream, f"no answer within {deadline.seconds:g} s (--connect-timeout)")
    for fault in faults:
        if isinstance(fault, ValueError):
            message = f"{downstream.host!r} is not a valid host name ({fault}); see --downstream-uri"
            raise ConfigError(message) from fault
        raise _unknown(downstream, str(fault.args[-1])) from fault
    return found


def _asked(downstream: Downstream, flags: int = 0) -> list[tuple[int, object]]:
    """Return the system's answer for the target's host."""
    asked = socket.getaddrinfo(downstream.host, downstream.port, type=socket.SOCK_STREAM, flags=flags)
    return [(int(family), address) for family, _, _, _, address in asked]


def _unknown(downstream: Downstream, why: str) -> TargetUnavailable:
    return TargetUnavailable(
        f"cannot connect to the target: the name {downstream.host} cannot be resolved: {why}. Check the host in "
        f"--downstream-uri and the name servers of this machine: getent hosts {downstream.host}"
    )


def _connected(family: int, address: object, downstream: Downstream, deadline: Deadline) -> socket.socket:
    """Return a socket that is connected to one address."""
    made = socket.socket(family, socket.SOCK_STREAM)
    # A blocking call could neither be limited nor interrupted.
    made.setblocking(False)  # noqa: FBT003 - the standard library's signature
    pause = _SHORTEST_PAUSE
    try:
        while (number := made.connect_ex(address)) in _UNDER_WAY and deadline.left() > 0:  # type: ignore[arg-type] # of any family
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE)
        why = f"[Errno {number}] {os.strerror(number)}"
    except OSError as fault:  # a path that no Unix socket can have
        number, why = errno.EINVAL, str(fault)
    if number in (0, errno.EISCONN):
        made.setblocking(True)  # noqa: FBT003 - likewise
        return made
    made.close()
    if number in _UNDER_WAY:
        why = f"nobody accepted the connection within {deadline.seconds:.3g} s (--connect-timeout)"
    raise TargetUnavailable(f"cannot connect to the target {downstream.address} as {downstream.user}: {why}")
