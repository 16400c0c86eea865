"""Where a stream of one table ends: before rows that its columns cannot hold, and before what no change of a row would show."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import zip_longest
from typing import NamedTuple

import pyarrow as pa

from storage_consumer.feed.moves import Move, moves
from storage_consumer.feed.records import Structure
from storage_consumer.frames.pieces import arrow_type, holds
from storage_consumer.model import folded_name
from storage_consumer.spark.source.inventory import Inventory
from storage_consumer.spark.source.opening import Opened
from storage_consumer.spark.source.options import SourceOptions
from storage_consumer.spark.source.types import own_fields

Window = tuple[int, int]
"""Commit-ts beyond which, and up to which (inclusive), something is wanted."""


class End(NamedTuple):
    """Up to where (inclusive) rows can be given, and why not beyond."""

    version: int
    why: str


class Ends:
    """Finds where a query has to end. One that begins again as the message says has all rows before that."""

    def __init__(self, options: SourceOptions, opened: Opened, schema: pa.Schema) -> None:
        """Judge by the columns of the query, and by its options."""
        self._options = options
        self._opened = opened
        self._fields = {folded_name(field.name): field for field in own_fields(schema)}

    def first(self, inventory: Inventory, rows: Window, statements: Window) -> End | None:
        """Return the first end in windows of rows and of statements; one up to the low border of rows is there already.

        Statements before the query's own startingVersion do not count: whoever gives it knows of them.
        """
        if self._options.table is None:
            return None
        low, high = statements
        found = [*self._misfits(inventory, *rows), *self._moves(inventory, max(low, self._options.low), high)]
        return min(found, default=None)

    def within(self, inventory: Inventory, low: int, statements: int, high: int) -> End | None:
        """Return the first end that a planned micro-batch goes beyond."""
        if self._options.table is None:
            return None
        ends = [*self._misfits(inventory, low, high)]
        ends += self._moves(inventory, statements, high - 1, low)
        # An end after a later start was planned with columns that the start is beyond.
        return min((end for end in ends if end.version < high or high < low), default=None)

    def between(self, inventory: Inventory, low: int) -> list[int]:
        """Return the versions above `low` and before the query's own startingVersion after which the table has other rows.

        They are no ends, but no micro-batch spans one: what a query does at such a statement, it does between two of them.
        """
        table = self._options.table
        if table is None or self._options.over_statements:
            return []
        return [move.version for move in moves(table, low, self._options.low, inventory.definitions)]

    def _misfits(self, inventory: Inventory, low: int, high: int) -> Iterator[End]:
        found = sorted(inventory.structures(low, high), key=lambda each: each.version)
        # The rows of a structure end where the next one begins.
        for structure, later in zip_longest(found, found[1:]):
            if why := self._misfit(structure, low, 0 if later is None else later.version):
                yield End(structure.version, f"{structure.table}: since table version {structure.version} {why}")

    def _misfit(self, structure: Structure, low: int, until: int) -> str:
        """Return why rows of a structure do not fit the columns of the query; empty if they do. `until`: of the next structure, 0 for none."""
        own = self._fields
        again = f"begin it again with startingVersion = {structure.version + 1} and its old checkpointLocation"
        if structure.version <= low and until:
            again = f"read {_batch_before(low, until)}, and then begin it again with a {_ANEW.format(until + 1)}"
        if structure.version > self._opened.high and _folded(structure.key_names) != _folded(self._key()):
            return f"the primary key is ({', '.join(structure.key_names)}): stop the query, and {again}"
        for column in structure.columns:
            name, kind = folded_name(column.name), arrow_type(column)
            if name in own and not holds(own[name].type, kind):
                return f"column {column.name} is {kind}, and the query began with {own[name].type}: stop the query, and {again}"
            if name not in self._opened.known and self._options.evolution == "fail" and not self._options.columns:
                return (
                    f"there is the new column {column.name}: begin the query again, with its old checkpointLocation, to have it; or set "
                    "schemaEvolution to ignore, or to rescue. What the statement gave to the rows that were there, such as the column's "
                    "default, no change of a row shows: do the same where the query's rows go"
                )
        return ""

    def _moves(self, inventory: Inventory, low: int, high: int, start: int | None = None) -> Iterator[End]:
        """Yield an end for each statement in a window after which the table has other rows.

        `start`: where a micro-batch begins that goes over it; None: one can still end there.
        """
        if self._options.table is None or self._options.over_statements:
            return
        for move in moves(self._options.table, low, high, inventory.definitions):
            if start is None or start < move.version:
                yield End(move.version, self._moved(move, start))
            # All rows from before it were given: the query ends, unless it was begun again behind it.
            elif move.version > self._options.low:
                yield End(move.version, self._moved(move, None))

    def _moved(self, move: Move, start: int | None) -> str:
        first = "" if start is None else f"Read {_batch_before(start, move.version)}. "
        place = (_AGAIN if start is None else f"a {_ANEW}").format(move.version + 1)
        return (
            f"{self._options.table}: {move.what}, and no change of a row shows that. {first}Do the same where the query's rows go. "
            f"Begin it again with {place}. Or set statements to ignore, and the query goes on over all such statements"
        )

    def _key(self) -> list[str]:
        """Return the primary key's columns when the query began."""
        found: list[tuple[int, list[str]]] = json.loads(self._opened.keys)
        return found[-1][1]


_AGAIN = "startingVersion = {} and its old checkpointLocation"
_ANEW = "new checkpointLocation and startingVersion = {}"


def _batch_before(low: int, high: int) -> str:
    """Return how to read the rows that a query cannot give."""
    return f"the rows before that as a batch, with startingVersion = {low + 1} and endingVersion = {high}"


def _folded(names: tuple[str, ...] | list[str]) -> list[str]:
    return [folded_name(name) for name in names]
