"""A bucket that lives: its TSOs are of now, so that lags are those of a feed that is followed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.harness.small_bucket import ID_NAME, SmallBucket

_CREATE_DATABASE, _CREATE_TABLE = 1, 3
_BACK = 60
"""Seconds before now at which the TSOs of a situation begin; more than it needs, and few enough for the feed to be followed."""


@dataclass(slots=True)
class Feed:
    """What a changefeed writes into a `SmallBucket`."""

    bucket: SmallBucket
    marks: list[int] = field(default_factory=list)
    """The TSOs of the situation, the oldest first."""
    created: dict[str, int] = field(default_factory=dict)
    """Table → the version of its directory."""
    _last: int = 0
    """Second of the last TSO, since 1970-01-01 UTC."""

    def __post_init__(self) -> None:
        """Begin."""
        self.begin()

    def begin(self) -> None:
        """Begin a situation: its TSOs are counted from here, and are those of the seconds before now."""
        self.marks.clear()
        self._last = max(self._last, int(time.time()) - _BACK)

    def now(self, ago: float = 0.0) -> int:
        """A new TSO, a second after the last one; or one of so many seconds ago."""
        if not ago:
            self._last += 1
        second = int(time.time() - ago) if ago else self._last
        self.marks.append(second * 1000 << 18)
        return self.marks[-1]

    def copied(self) -> int:
        """The TSO of a copy that is made now."""
        self.marks.append(int(time.time() * 1000) << 18)
        return self.marks[-1]

    def create(self, *tables: str, ago: float = 0.0) -> None:
        """Databases and tables with the columns `id` and `name`."""
        for schema in dict.fromkeys(table.partition(".")[0] for table in tables):
            self.bucket.schema(schema, self.now(ago), f"CREATE DATABASE `{schema}`", _CREATE_DATABASE)
        for table in tables:
            name = table.partition(".")[2]
            query = f"CREATE TABLE `{name}` (`id` INT PRIMARY KEY, `name` VARCHAR(20))"
            self.created[table] = self.now(ago)
            self.bucket.schema(table, self.created[table], query, _CREATE_TABLE)

    def ddl(self, table: str, query: str, kind: int, columns: Sequence[Mapping[str, Any]] = ID_NAME) -> int:
        """Write a statement; its version."""
        version = self.now()
        self.bucket.schema(table, version, query, kind, columns)
        return version

    def rows(self, table: str, number: int, *rows: str, at: int = 0) -> Path:
        """Write data file `number` with these rows as CSV has them, such as ``1,"one"``, all committed now or `at` a TSO."""
        schema, _, name = table.partition(".")
        commit_ts = at or self.now()
        lines = (f'"I","{name}","{schema}",{commit_ts},{row}' for row in rows)
        path = self._aside.rows(table, number, *lines, version=self.created[table])
        return self._put(path)

    def advance(self) -> int:
        """Move the checkpoint to now; the checkpoint."""
        checkpoint = self.now()
        self.says(checkpoint)
        return checkpoint

    def says(self, checkpoint: int) -> None:
        """Have ``metadata`` say a checkpoint."""
        self._aside.metadata(checkpoint)
        self._put(self._aside.root / "metadata")

    @property
    def _aside(self) -> SmallBucket:
        """Where files are written that must not be seen half written."""
        return SmallBucket(root=self.bucket.root.with_name(f"{self.bucket.root.name}-aside"))

    def _put(self, path: Path) -> Path:
        """Move a whole file into the bucket; its place there."""
        place = self.bucket.root / path.relative_to(self._aside.root)
        place.parent.mkdir(parents=True, exist_ok=True)
        return path.replace(place)
