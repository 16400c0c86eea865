"""Where the target has the databases of a history.

What a history notes of the target has the names of the bucket. `Places` stands between them and the program, to which the target has those
that its routes lead to: a name that the program forgot to send there, or sent twice, is another one here, or none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from storage_consumer.config.settings import Route
from storage_consumer.model import TableName
from storage_consumer.rows.fitting import TargetTable
from storage_consumer.sql.tokens import quote

AWAY = {"shop": "store"}
"""A database that is another one in the target."""
EXCHANGED = {"shop": "depot", "depot": "shop"}
"""Databases of which each is where the other one would be."""


class Places:
    """The databases of the target by those of the bucket, and the other way round; other names are the same in both."""

    def __init__(self, targets: Mapping[str, str] | None = None) -> None:
        """`targets`: database in the bucket → in the target; no two lead to one."""
        self._out = dict(targets or {})
        self._in = {target: name for name, target in self._out.items()}
        # What routes lead away from is nobody's in the target.
        self._in |= {name: f"{name} without its route" for name in self._out if name not in self._in}
        self._quoted = re.compile(f"`({'|'.join(self._in)})`")
        self.routes = tuple(Route(matcher=(f"{name}.*",), target_schema=target) for name, target in self._out.items())

    def __bool__(self) -> bool:
        """Whether there are routes."""
        return bool(self._out)

    def schema(self, target: str) -> str:
        """The bucket's database that the target has under this name."""
        return self._in.get(target, target)

    def name(self, target: TableName) -> TableName:
        """The bucket's name of what the target has under this one."""
        return replace(target, schema=self.schema(target.schema)) if self else target

    def target(self, name: TableName) -> TableName:
        """The target's name of what the bucket has under this one."""
        return replace(name, schema=self._out.get(name.schema, name.schema)) if self else name

    def table(self, table: TargetTable) -> TargetTable:
        """A table as the target shows it."""
        return replace(table, name=self.target(table.name)) if self else table

    def statement(self, text: str) -> str:
        """A statement with the names of the bucket. No table and no column is called like a database."""
        return self._quoted.sub(lambda found: quote(self.schema(found[1])), text) if self else text
