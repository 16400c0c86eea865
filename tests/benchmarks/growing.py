"""A bucket that grows while a consumer runs: files are added to its tables, then ``metadata`` moves on."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.benchmarks.bucket import START_TS, TS_STEP, FinalTable, write_metadata, write_schema_files
from tests.benchmarks.changes import SourceTable
from tests.benchmarks.limit import check
from tests.benchmarks.rows import STATE_BITS, RowFormats
from tests.benchmarks.shapes import DATABASE, PLAIN
from tests.harness.servers import DatabaseServer

_DATE = "2026-11-21"


class GrowingBucket:
    """CSV, tables of the plain shape, new rows only."""

    uri_parameters = "protocol=csv"
    config: Mapping[str, object] = {"sink": {"csv": {"include-commit-ts": True}}}

    def __init__(self, root: Path, tables: int, seed: int) -> None:
        """With the statements that create its tables, and complete up to there."""
        self.root = root
        self._formats = RowFormats(PLAIN, seed)
        self._chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
        self._ts = START_TS + TS_STEP
        self.tables = [SourceTable(name=f"t{n + 1:04d}", version=self._next_ts()) for n in range(tables)]
        self._files = dict.fromkeys((table.name for table in self.tables), 0)
        self._sums = dict.fromkeys(self._files, 0)
        write_schema_files(root, START_TS, self.tables, PLAIN)
        self.advance()

    def _next_ts(self) -> int:
        self._ts += TS_STEP
        return self._ts

    @property
    def uri(self) -> str:
        """What ``--upstream-uri`` takes."""
        return f"{self.root.as_uri()}?{self.uri_parameters}"

    def advance(self) -> None:
        """Let the checkpoint move on, as it does every few seconds whether or not there are changes."""
        write_metadata(self.root, self._next_ts())

    def grow(self, tables: Iterable[SourceTable], rows: int) -> None:
        """Add a file with so many new rows to each of these tables, and move on."""
        for table in tables:
            events = []
            for _ in range(rows):
                row, _, state = change = table.insert(self._chance.getrandbits(STATE_BITS))
                events.append(self._formats.event("csv", table.name, self._next_ts(), change))
                self._sums[table.name] += self._formats.checksum(row, state or 0)
            self._files[table.name] += 1
            folder = self.root / DATABASE / table.name / str(table.version) / _DATE
            (folder / "meta").mkdir(parents=True, exist_ok=True)
            name = f"CDC{self._files[table.name]:020d}.csv"
            (folder / name).write_bytes("".join(events).encode())
            (folder / "meta" / "CDC.index").write_text(f"{name}\n", encoding="utf-8")
        self.advance()

    def check(self, server: DatabaseServer) -> None:
        """Raise `WrongResult` unless every table has its rows."""
        final = (
            FinalTable(name=t.name, rows=len(t.states), checksum=self._sums[t.name], chunks=()) for t in self.tables
        )
        check(final, server, PLAIN.checksum)
