"""Files cut into parts at any bytes, as tasks on a cluster would get them."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

from storage_consumer.job.spec import ByteRange, FileSplit


def spans(chance: random.Random, size: int, most: int = 4) -> list[ByteRange]:
    """A file of `size` bytes in up to so many parts."""
    borders = chance.sample(range(1, size), min(size - 1, chance.randrange(most))) if size > 1 else []
    return [ByteRange(start, end) for start, end in pairwise([0, *sorted(borders), None]) if start is not None]


def cut_anywhere(works: Iterable[FileSplit], chance: random.Random) -> list[FileSplit]:
    """The same work, with the files that may be read in parts cut somewhere."""
    cut: list[FileSplit] = []
    for work in works:
        found = spans(chance, work.size) if work.splittable else [work.span]
        cut += [replace(work, span=span) for span in found]
    return cut
