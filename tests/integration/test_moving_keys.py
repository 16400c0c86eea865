"""Keys and unique values that move between rows, on real servers, with one writer and with many: every column of every row is right."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import CREATE_TABLE, SmallBucket, column, row, ts
from tests.integration.rounds import content, once

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.usefixtures("spark")]

MANY = 10_000
HOLDERS, VALUES = 64, 8
BEFORE, AFTER = 2, 5
"""Ticks: the first rows, and the first changes of them."""
RNG = random.Random(7)  # noqa: S311 - data, not a secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What happens to a table, and what it holds in the end."""

    body: str
    before: Sequence[tuple[int, ...] | tuple[Any, ...]]
    """Rows of tick `BEFORE`."""
    after: Sequence[tuple[int, str, tuple[Any, ...]]]
    """Tick, operation and row; an update has its new values alone, as TiCDC writes it where the key stays."""
    ends: Sequence[tuple[Any, ...]]
    split: int = field(default=MANY)
    """Rows in a data file."""

    def write(self, bucket: SmallBucket, name: str) -> None:
        """Its schema file and data files."""
        columns = [column(f"c{place}", "INT", key=place == 0) for place in range(len(self.ends[0]))]
        bucket.schema(name, ts(1), f"CREATE TABLE `{name.partition('.')[2]}` ({self.body})", CREATE_TABLE, columns)
        rows = [row(name, BEFORE, *map(field_of, values)) for values in self.before]
        rows += [row(name, tick, *map(field_of, values), operation=does) for tick, does, values in self.after]
        for number, start in enumerate(range(0, len(rows), self.split), 1):
            bucket.rows(name, number, *rows[start : start + self.split])


def field_of(value: int | None) -> str:
    r"""A number as CSV has it."""
    return r"\N" if value is None else str(value)


def shifted() -> Table:
    """``UPDATE … SET c0 = c0 + 1`` over all rows, and three keys that rotate, in random order of lines."""
    pairs = [(AFTER, does, (key + (does == "I"), key)) for key in range(MANY) for does in "DI"]
    ring = ((-1, -2), (-2, -3), (-3, -1))
    pairs += [(AFTER, does, (new if does == "I" else old, old)) for old, new in ring for does in "DI"]
    return Table(
        body="c0 INT PRIMARY KEY, c1 INT",
        before=[(key, key) for key in (*range(MANY), -1, -2, -3)],
        after=RNG.sample(pairs, len(pairs)),
        ends=sorted([*((key + 1, key) for key in range(MANY)), *((new, old) for old, new in ring)]),
        split=3_000,
    )


def handed_on() -> Table:
    """Unique values that one row gives up and another one takes in the very next commit, again and again."""
    held: dict[int, int | None] = {key: key if key < VALUES else None for key in range(HOLDERS)}
    before, after = list(held.items()), []
    for step in range(MANY):
        giver = RNG.choice([key for key, value in held.items() if value is not None])
        taker = RNG.choice([key for key, value in held.items() if value is None])
        held[giver], held[taker] = None, held[giver]
        after += [(AFTER + 2 * step, "U", (giver, None)), (AFTER + 2 * step + 1, "U", (taker, held[taker]))]
    return Table(
        body="c0 INT PRIMARY KEY, c1 INT UNIQUE", before=before, after=after, ends=sorted(held.items()), split=900
    )


TABLES = {
    "d.shifted": shifted(),
    "d.handed_on": handed_on(),
    "d.swapped": Table(
        body="c0 INT PRIMARY KEY, c1 INT UNIQUE",
        before=[(1, 10), (2, 20), (3, 30), (4, 40), (5, 50), (6, None), (7, 70), (8, None)],
        after=[
            *((AFTER, "U", (1, 20)), (AFTER, "U", (2, 10))),
            *((AFTER + 1, "U", (3, 40)), (AFTER + 1, "U", (4, 50)), (AFTER + 1, "U", (5, 30))),
            *((AFTER + 2, "U", (6, 70)), (AFTER + 2, "U", (7, None))),
        ],
        ends=[(1, 20), (2, 10), (3, 40), (4, 50), (5, 30), (6, 70), (7, None), (8, None)],
    ),
    "d.crossed": Table(
        body="c0 INT PRIMARY KEY, c1 INT UNIQUE, c2 INT UNIQUE, c3 INT",
        before=[(1, 10, 100, 7), (2, 20, 200, 8), (3, 30, 300, 9), (4, 40, 400, 9)],
        after=[
            *((AFTER, "U", (1, 20, 100, 7)), (AFTER, "U", (2, 10, 200, 8))),
            *((AFTER, "U", (3, 40, 400, 9)), (AFTER, "U", (4, 30, 300, 9))),
        ],
        ends=[(1, 20, 100, 7), (2, 10, 200, 8), (3, 40, 400, 9), (4, 30, 300, 9)],
    ),
    "d.again": Table(
        body="c0 INT PRIMARY KEY, c1 INT",
        before=[(2, 0), (3, 0), (4, 0)],
        after=[
            *((AFTER, "I", (1, 1)), (AFTER + 1, "D", (1, 1)), (AFTER + 2, "I", (1, 2))),
            *((AFTER, "D", (2, 0)), (AFTER + 1, "I", (2, 1))),
            *((AFTER, "U", (3, 1)), (AFTER + 1, "D", (3, 1)), (AFTER + 2, "I", (3, 2))),
            *((AFTER, "D", (4, 0)), (AFTER + 1, "I", (4, 1)), (AFTER + 2, "D", (4, 1))),
        ],
        ends=[(1, 2), (2, 1), (3, 2)],
        split=2,
    ),
    "d.odd": Table(
        body="c0 INT PRIMARY KEY, c1 INT",
        before=[(1, 0), (3, 0)],
        after=[
            *((AFTER, "I", (1, 1)), (AFTER, "U", (2, 1))),
            *((AFTER, "D", (3, 0)), (AFTER + 1, "D", (3, 0)), (AFTER + 1, "D", (9, 0))),
        ],
        ends=[(1, 1), (2, 1)],
    ),
}


@pytest.mark.parametrize("writers", [1, 16])
def test_every_row_is_right(server: DatabaseServer, bucket: SmallBucket, writers: int) -> None:
    """What moves, and how it is told, makes no difference.

    An insert of a row that is there, an update of one that is not, and two deletes of one (C12); an update of all keys and keys
    that rotate, in any order of lines (C14, C20); unique values that swap and rotate, NULLs among them (C15); rows that cross
    in two unique columns (C16); a key that is deleted and comes again within one batch (C18); unique values that one row gives
    up right before another one takes them, ten thousand times (C21).
    """
    bucket.schema("d", ts(0), "CREATE DATABASE `d`", 1)
    for name, table in TABLES.items():
        table.write(bucket, name)
    for checkpoint in (BEFORE, AFTER + MANY, AFTER + 2 * MANY):
        bucket.metadata(ts(checkpoint))
        summary = once(bucket, server, partitions=writers)
        assert (summary.halted, summary.waiting) == ((), ())
    for name, table in TABLES.items():
        assert content(server, name) == list(table.ends), name
