"""A bucket of many small files, day after day: what lies in it follows from the number of days, so nothing needs to be kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property

from tests.benchmarks.bucket import START_TS, TS_STEP
from tests.benchmarks.changes import SourceTable
from tests.benchmarks.rows import RowFormats
from tests.benchmarks.shapes import DATABASE, PLAIN

TABLES = 10
_FIRST_DAY = date(2024, 1, 1)


@dataclass(frozen=True, kw_only=True)
class StoredDays:
    """CSV; each file holds one new row. Days and files count from 0."""

    per_day: int
    """Files of a table on one day."""
    seed: int

    @cached_property
    def tables(self) -> tuple[SourceTable, ...]:
        """All tables."""
        return tuple(SourceTable(name=f"t{n:04d}", version=START_TS + n * TS_STEP) for n in range(1, TABLES + 1))

    @cached_property
    def _formats(self) -> RowFormats:
        return RowFormats(PLAIN, self.seed)

    def days(self, files: int) -> int:
        """How many days give at least so many files."""
        return -(-files // (TABLES * self.per_day))

    def checkpoint(self, days: int, ticks: int) -> int:
        """A commit ts that covers so many days and nothing later, and moves on with `ticks`, fewer than `TS_STEP`."""
        return self._ts(days * self.per_day - 1) + ticks

    def paths(self, day: int) -> Iterator[str]:
        """All objects of one day."""
        for place in range(TABLES):
            folder = self._folder(place, day)
            yield f"{folder}/meta/CDC.index"
            yield from (f"{folder}/CDC{n + 1:020d}.csv" for n in range(self.per_day))

    def content(self, path: str) -> bytes:
        """What a path of `paths` holds."""
        _, table, _, day, *_, name = path.split("/")
        if name == "CDC.index":
            return f"CDC{self.per_day:020d}.csv\n".encode()
        number = int(name.removeprefix("CDC").removesuffix(".csv")) - 1
        row = (date.fromisoformat(day) - _FIRST_DAY).days * self.per_day + number
        return self._formats.event("csv", table, self._ts(row), (row + 1, None, row * 7_919)).encode()

    def _folder(self, place: int, day: int) -> str:
        table = self.tables[place]
        return f"{DATABASE}/{table.name}/{table.version}/{_FIRST_DAY + timedelta(days=day)}"

    @staticmethod
    def _ts(row: int) -> int:
        return START_TS + (row + 2 * TABLES) * TS_STEP
