"""Decide which task does what in a wave's job: the shape of the job, its files in groups, and what Spark's UI says about it. Pure.

A job has one of two shapes. If each table has little to read, all files of a table go to one task, which writes what it
has read: one stage, no shuffle, and no cost per table. Otherwise tasks read groups of files, and the rows go through a
shuffle to tasks that write a bucket of keys each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from storage_consumer.amounts import data_size
from storage_consumer.config.settings import Protocol
from storage_consumer.job.spec import JobFile
from storage_consumer.redaction import escaped, redact

BUCKET_BYTES: dict[Protocol, int] = {
    "csv": 24 << 20,
    "canal-json": 96 << 20,
    "dump-sql": 24 << 20,
    "dump-csv": 24 << 20,
}
"""File bytes per bucket: about the same number of rows for both, since a canal-json message repeats all names."""
MOST_TASKS = 2_000
SMALLEST_GROUP, LARGEST_GROUP = 1 << 20, 48 << 20
"""Bytes of files that one task reads. A task that also writes them holds all of them, so it gets at most `LARGEST_WHOLE`."""
LARGEST_WHOLE = 16 << 20
FILE_COST = 16 << 10
"""Bytes that could be read while a file is opened; no file counts for less."""
LONGEST = 200
"""Characters."""
_NAMED = 5
"""Most tables that are named; the rest are counted."""
_LONGEST_NAMES = 110
"""Characters of the names together, so that round, wave and counts are always there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobShape:
    """How a job is cut."""

    partitions: int
    """Tasks that write, and so slots."""
    whole: bool
    """Whether they read as well: all files of a table are read by the task that writes it."""


def shape(files: Iterable[JobFile], protocol: Protocol, cores: int, wish: int = 0) -> JobShape:
    """Return the shape by bytes: what a task holds fits in memory, with no more tasks than there is work for.

    `wish`: the requested number of buckets, 0 for none.
    """
    if wish:
        return JobShape(partitions=wish, whole=False)
    by_table: dict[int, int] = {}
    size = 0
    for work in files:
        by_table[work.table] = by_table.get(work.table, 0) + _cost(work)
        size += work.size
    # One large table would keep its task busy alone, so each of them has to be small.
    if max(by_table.values(), default=0) <= SMALLEST_GROUP:
        total = sum(by_table.values())
        tasks = -(-total // min(LARGEST_WHOLE, max(SMALLEST_GROUP, -(-total // cores))))
        return JobShape(partitions=min(MOST_TASKS, max(1, min(tasks, len(by_table)))), whole=True)
    by_size = -(-size // BUCKET_BYTES[protocol])
    # A task for each table or MiB, as far as there are cores; two for each core once it has 4 MiB to do.
    few = min(cores, max(len(by_table), -(-size // (1 << 20))))
    partitions = max(few, by_size, 2 * cores if size > cores * (4 << 20) else 1)
    if partitions > cores:  # tasks are alike: an odd last one would keep the other cores waiting
        partitions = -(-partitions // cores) * cores
    return JobShape(partitions=min(MOST_TASKS, partitions), whole=False)


def _cost(work: JobFile) -> int:
    """Return the cost of reading a file, in bytes."""
    return max(FILE_COST, work.size)


def in_groups(files: Sequence[JobFile], cores: int) -> list[list[JobFile]]:
    """Return files in groups of about equal cost, neighbours together; small files share a group, so that a task pays off.

    The most costly group comes first: tasks begin in this order, and the last one to begin keeps the other cores waiting.
    """
    total = sum(map(_cost, files))
    goal = min(LARGEST_GROUP, max(SMALLEST_GROUP, -(-total // (3 * cores))))
    groups: list[list[JobFile]] = [[]]
    size = 0
    for work in sorted(files, key=lambda w: (w.table, w.rank)):
        if groups[-1] and size + _cost(work) > goal:
            groups.append([])
            size = 0
        groups[-1].append(work)
        size += _cost(work)
    return sorted(groups, key=lambda group: -sum(map(_cost, group)))


def by_tables(files: Sequence[JobFile], tasks: int) -> list[list[JobFile]]:
    """Return files in `tasks` groups, all files of a table in one, with costs as even as whole tables allow."""
    tables: dict[int, list[JobFile]] = {}
    for work in files:
        tables.setdefault(work.table, []).append(work)
    costs = {table: sum(map(_cost, found)) for table, found in tables.items()}
    groups: list[list[JobFile]] = [[] for _ in range(tasks)]
    sizes = [0] * tasks
    # The costliest table first, each to the group that is lightest so far.
    for table in sorted(tables, key=lambda table: (-costs[table], table)):
        lightest = sizes.index(min(sizes))
        groups[lightest] += tables[table]
        sizes[lightest] += costs[table]
    return groups


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
