"""The look at the target: the server itself, and the tables that rows will go into."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass

from storage_consumer.config.settings import Downstream
from storage_consumer.downstream.database import TargetDatabase
from storage_consumer.downstream.server_look import ServerLook, look
from storage_consumer.job.target_table import TargetTable
from storage_consumer.model import TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFacts:
    """The server, and what it is asked to do."""

    server: ServerLook
    downstream: Downstream
    workers: int
    """Most connections that write rows at a time."""
    local_infile: bool
    """Whether LOAD DATA LOCAL may be used, by the settings."""
    names: tuple[TableName, ...]
    """The replicated tables, by their names in the target."""
    size: int
    """Bytes of the bucket's files; 0 if the bucket was not looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """The replicated tables that exist already, by folded name."""

    there: Mapping[TableName, TargetTable]
    downstream: Downstream


def target_look(
    downstream: Downstream, password: str, names: Collection[TableName], *, workers: int, local_infile: bool, size: int
) -> TargetFacts:
    """Return the server; raise `ConfigError` or `TargetUnavailable`."""
    return TargetFacts(
        server=look(downstream, password, {name.schema for name in names}),
        downstream=downstream,
        workers=workers,
        local_infile=local_infile,
        names=tuple(sorted(names)),
        size=size,
    )


def table_look(downstream: Downstream, password: str, names: Collection[TableName]) -> TableFacts:
    """Return the tables; raise `ConfigError` or `TargetUnavailable`."""
    with closing(TargetDatabase(downstream, password)) as database:
        return TableFacts(there=database.structure.describe(names), downstream=downstream)
