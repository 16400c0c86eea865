"""The limit for rows that are overwritten again and again: decoding keys alone, on two cores.

Two processes share the data files. Each finds the ends of the rows with one regular expression that knows quotes and nothing
else of CSV, takes commit ts and key of each row, and keeps the last commit ts of each key. No other column is looked at.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from tests.benchmarks.limit import WrongResult

PROCESSES = 2
_ROW = re.compile(rb'"[IUD]","[^"]*","[^"]*",(\d++),(\d++)(?:,(?:(?:"[^"]*+")+|[^",\r\n]*+))*\r\n')
"""Groups: commit ts, first column."""


def newest(file: Path) -> dict[int, int]:
    """Key → highest commit ts."""
    found: dict[int, int] = {}
    for ts, key in _ROW.findall(file.read_bytes()):
        found[int(key)] = max(int(ts), found.get(int(key), 0))
    return found


class KeyDecoders:
    """Processes that wait for work, so that their start is not measured."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        """In a pool of `PROCESSES`."""
        self._pool = pool

    def seconds(self, files: Sequence[Path], keys: int) -> float:
        """How long it takes to find the last commit ts of all keys, of which there are `keys`."""
        began = time.monotonic()
        found: set[int] = set()
        for newest_of_file in self._pool.map(newest, files):
            found |= newest_of_file.keys()
        seconds = time.monotonic() - began
        if len(found) != keys:
            raise WrongResult(f"{len(found)} keys were found, not {keys}")
        return seconds


@contextmanager
def key_decoders() -> Iterator[KeyDecoders]:
    """The processes, started."""
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        list(pool.map(time.sleep, [0.2] * PROCESSES))
        yield KeyDecoders(pool)
