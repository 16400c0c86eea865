"""What Spark's UI says about a job: the round, the wave, and the tables whose rows it writes. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from storage_consumer.amounts import data_size
from storage_consumer.job.spec import JobFile
from storage_consumer.redaction import escaped, redact

LONGEST = 200
"""Characters."""
_NAMED = 5
"""Most tables that are named; the rest are counted."""
_LONGEST_NAMES = 110
"""Characters of the names together, so that round, wave and counts are always there."""


def job_title(number: int, wave: int, tables: Sequence[str], files: Sequence[JobFile]) -> str:
    """Return the description of a job, at most `LONGEST` characters, such as ``round 12, wave 1: 3 files, 1.5 MiB: shop.orders``.

    `number` counts the rounds since the start, `wave` the jobs of the round, both from 1.
    """
    size = sum(work.size for work in files)
    title = f"round {number}, wave {wave}: {_count(len(files), 'file')}, {data_size(size)}: {_names(tables)}"
    # Spark's UI would take some tags for links.
    return redact(escaped(title)).replace("<", "(").replace(">", ")")[:LONGEST]


def _names(tables: Sequence[str]) -> str:
    named: list[str] = []
    for table in tables[:_NAMED]:
        if named and len(", ".join([*named, table])) > _LONGEST_NAMES:
            break
        named.append(table if len(table) <= _LONGEST_NAMES else f"{table[: _LONGEST_NAMES - 1]}…")
    more = len(tables) - len(named)
    return ", ".join(named) + (f" and {_count(more, 'more table')}" if more else "")


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"
