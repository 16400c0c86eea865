"""Statements that take a table's rows away, or give it others, without a change of any row in the files."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

from storage_consumer.model import DdlKind, ParsedDdl, TableDefinition, TableName
from storage_consumer.sql.parse import parsed
from storage_consumer.sql.statement import statement_of
from storage_consumer.telemetry import tso_time

_DROPS = frozenset((DdlKind.DROP_TABLE, DdlKind.DROP_VIEW))
_OF_PARTITIONS = frozenset((DdlKind.DROP_PARTITION, DdlKind.TRUNCATE_PARTITION, DdlKind.EXCHANGE_PARTITION))
_BACK = frozenset((("RECOVER",), ("FLASHBACK",)))


class Move(NamedTuple):
    """What such a statement did to a table."""

    version: int
    what: str
    """The statement, and what it did, in words."""


def moves(name: TableName, low: int, high: int, known: Sequence[TableDefinition]) -> Iterator[Move]:
    """Yield the moves of a table's rows with ``low < version <= high``, in order. `known`: all definitions, sorted by version."""
    first = bisect_right(known, low, key=lambda each: each.version)
    for place in takewhile(lambda place: known[place].version <= high, range(first, len(known))):
        definition = known[place]
        if definition.is_ddl and (what := effect(definition, name.folded())):
            text, moment = definition.query.strip()[:200], tso_time(definition.version)
            yield Move(definition.version, f"{text!r} (version {definition.version}, {moment}) {what}")


def effect(definition: TableDefinition, name: TableName) -> str:
    """Return what a statement did to the rows of a table, given by its folded name; empty if it moved none."""
    ddl, own = parsed(definition), definition.name.folded()
    if not own.table:
        return _effect_on_database(ddl) if own.schema == name.schema else ""
    if ddl.rename is not None:
        return _effect_of_rename(ddl, name)
    if ddl.exchanges_partition:
        return "put other rows in the place of the table's" if name in ddl.touched else ""
    return _effect_on_table(definition) if ddl.subject.folded() == name else ""


def _effect_on_database(ddl: ParsedDdl) -> str:
    if ddl.head[:1] == ("DROP",):
        return "dropped the table with its database"
    return "brought back rows" if brings_back(ddl) else ""


def _effect_of_rename(ddl: ParsedDdl, name: TableName) -> str:
    assert ddl.rename is not None
    old, new = ddl.rename.folded
    if ddl.rename.from_anywhere and old.table == name.table and new != name:
        return "may have given the table another name: it does not say which database's table it renames"
    if old == new and not ddl.rename.from_anywhere:
        return ""
    if name == old and name != new:
        return f"gave the table the name {ddl.rename.new}"
    return "gave another table's rows this name" if name == new else ""


def _effect_on_table(definition: TableDefinition) -> str:
    if definition.ddl_type == DdlKind.TRUNCATE_TABLE:
        return "took all rows away"
    if definition.ddl_type in _DROPS:
        return "dropped the table"
    if brings_back(parsed(definition)):
        return "brought back rows"
    return "took rows away" if is_of_partitions(definition) else ""


def brings_back(ddl: ParsedDdl) -> bool:
    """Return whether a statement brings back rows of the past, without a change of any row in the files."""
    return ddl.head[:1] in _BACK


def is_of_partitions(definition: TableDefinition) -> bool:
    """Return whether a statement removes the rows of partitions, or puts others in their place, without a change of any row in the files."""
    if definition.ddl_type in _OF_PARTITIONS or parsed(definition).exchanges_partition:
        return True
    return bool(statement_of(definition.query).find("{DROP|TRUNCATE} PARTITION", depth=0))
