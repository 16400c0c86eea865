"""Who holds a lease: what is stored of a process, whether it still runs, and how messages name it."""

from __future__ import annotations

import datetime as dt
import getpass
import os
import socket
import uuid
from pathlib import Path

_PARTS = 4
"""Parts of a holder's text; what follows may be missing, as in that of an older version."""


def identity(now: float) -> str:
    """Return a unique text: host, boot and process space, process, a random number, and the time `now` (seconds since 1970, UTC)."""
    since = dt.datetime.fromtimestamp(now, tz=dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"{socket.gethostname()}|{_place()}|{os.getpid()}|{uuid.uuid4().hex[:12]}|{since}"


def user() -> str:
    """Return the user of this process, and the host."""
    try:
        # In a container the user's number may have no name.
        name = getpass.getuser()
    except (OSError, KeyError):
        name = "unknown"
    # As long as the state's column is.
    return f"{name}@{socket.gethostname()}"[:255]


def readable(holder: str) -> str:
    """Return how people can find a holder: ``host db1, pid 4711, since 2026-01-31T10:00:00Z``, the time of its start."""
    parts = holder.split("|")
    if len(parts) < _PARTS:
        return holder
    since = f", since {parts[_PARTS]}" if len(parts) > _PARTS else ""
    return f"host {parts[0]}, pid {parts[2]}{since}"


def process_is_gone(holder: str) -> bool:
    """Return whether the holder was a process of this very machine (and process space) that no longer runs."""
    parts = holder.split("|")
    # The host's name alone would not do: containers share names and reuse small process numbers.
    if len(parts) < _PARTS or parts[0] != socket.gethostname() or parts[1] != _place() or not parts[2].isdigit():
        return False
    # A number that is in use again passes for the holder, which only costs the wait until its lease runs out.
    try:
        # Signal 0 only asks. Not by a look at /proc, which may hide the processes of other users (hidepid).
        os.kill(int(parts[2]), 0)
    except ProcessLookupError:
        return True
    # It runs, but is another user's; or the number is none that a process can have.
    except (PermissionError, OverflowError):
        return False
    return False


def _place() -> str:
    """Return a text that is equal only where a process number means the same process; random where that is not known."""
    try:
        # The boot: after a restart of the machine the same number is another process. The space: containers count on their own.
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        space = Path("/proc/self/ns/pid").readlink()
    except OSError:
        # Never equal to any other, so the holder counts as running and its lease has to run out.
        return f"unknown-{uuid.uuid4().hex}"
    return f"{boot}-{space}"
