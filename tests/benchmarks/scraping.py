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
    with answers.open("a", encoding="ascii", buffering=1) as file:
        for turn in count():
            for path in ("metrics", "") if turn % _PAGE_EVERY == 0 else ("metrics",):
                file.write(_answer(f"http://{address}/{path}"))
            time.sleep(max(0.0, began + turn + 1 - time.monotonic()))


def _answer(url: str) -> str:
    """Return a line with the size of an answer, or nothing where nobody listens yet."""
    with suppress(OSError), urlopen(url, timeout=_PATIENCE) as answer:  # noqa: S310 - of this test
        return f"{url} {len(answer.read())}\n"
    return ""


if __name__ == "__main__":
    _ask(sys.argv[1], Path(sys.argv[2]))
