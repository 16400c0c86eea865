"""A network of its own in which this machine has an address that is not of the loopback, and that nobody else can reach."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
ADDRESS = "192.0.2.1"
"""Of a range that is kept free for examples."""
_NEW_NETWORK = 0x40000000
"""Linux's CLONE_NEWNET."""


def elsewhere(work: Callable[[], T]) -> T:
    """Return what `work` gives in a thread that has such a network; sockets and processes that it makes are there too."""

    def run() -> T:
        if ctypes.CDLL(None, use_errno=True).unshare(_NEW_NETWORK):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        for command in ("ip link set lo up", f"ip address add {ADDRESS}/32 dev lo"):
            subprocess.run(command.split(), check=True)
        return work()

    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(run).result()
