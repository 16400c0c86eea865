"""Somebody who looks on: a process that asks a consumer for its metrics every second, and for its page every five."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from urllib.request import urlopen

from tests.benchmarks.limit import WrongResult

_PAGE_EVERY = 5
"""Looks at the page are so many seconds apart, which is how often an open page asks for itself."""
_PATIENCE = 5.0


@contextmanager
def scraped(address: str, answers: Path) -> Iterator[None]:
    """Ask whoever listens at `address` while the block runs; `WrongResult` if nobody ever answered. `answers`: a file of its own."""
    answers.write_bytes(b"")
    process = subprocess.Popen([sys.executable, "-m", __name__, address, str(answers)])
    try:
        yield
    finally:
        process.terminate()
        process.wait()
    if not answers.stat().st_size:
        raise WrongResult(f"nobody answered at {address}")


def _ask(address: str, answers: Path) -> None:
    """Ask until the process is ended; a line for each answer."""
    began = time.monotonic()
    for turn in count():
        for path in ("metrics", "") if turn % _PAGE_EVERY == 0 else ("metrics",):
            with suppress(OSError), urlopen(f"http://{address}/{path}", timeout=_PATIENCE) as answer:
                size = len(answer.read())
                with answers.open("a", encoding="ascii") as file:
                    file.write(f"/{path} {size}\n")
        time.sleep(max(0.0, began + turn + 1 - time.monotonic()))


if __name__ == "__main__":
    _ask(sys.argv[1], Path(sys.argv[2]))
