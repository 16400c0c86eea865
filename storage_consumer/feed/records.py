"""What a feed gives: changes of rows, and statements."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from storage_consumer.decode.decoder import ABSENT, RowLayout, Values
from storage_consumer.kernels.arrays import PARTIAL_DELETE
from storage_consumer.model import TableColumn, TableDefinition, TableName


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Structure:
    """What the rows of one version directory have in common."""

    layout: RowLayout
    """What the rows are decoded by."""
    with_members: tuple[TableColumn, ...] = ()
    """Its columns, with members of ENUM and SET that statements in the bucket show and the layout does not; empty: it needs none."""
    version: int
    """Version of the directory."""
    key: tuple[int, ...]
    """Indexes in the layout of the primary key's columns; empty if there is none."""
    generated: frozenset[int] = frozenset()
    """Indexes of stored generated columns, as far as statements in the bucket show them."""

    @property
    def columns(self) -> tuple[TableColumn, ...]:
        """The layout's columns, with the members of ENUM and SET."""
        return self.with_members or self.layout.columns

    @property
    def key_names(self) -> tuple[str, ...]:
        """The names of the primary key's columns."""
        return tuple(self.columns[place].name for place in self.key)

    def only(self, places: tuple[int, ...]) -> Structure:
        """Return the structure of rows with nothing but the columns at these indexes, among which are the key's."""
        return replace(
            self,
            layout=replace(self.layout, columns=tuple(self.layout.columns[place] for place in places)),
            with_members=tuple(self.with_members[place] for place in places) if self.with_members else (),
            key=tuple(map(places.index, self.key)),
            generated=frozenset(places.index(place) for place in self.generated.intersection(places)),
        )

    @property
    def table(self) -> TableName:
        """The table, by its name in the schema file."""
        return self.layout.table


class Change(NamedTuple):
    """One change of one row."""

    commit_ts: int
    operation: int
    """INSERT, UPDATE, DELETE or PARTIAL_DELETE of `kernels.arrays`; a partial delete has values of the key alone."""
    values: Values
    """Wire texts by the layout's columns: the new image, or for a delete the old one."""
    old: Values | None
    """The old image of an update, where the files have it."""
    structure: Structure
    file: str
    """Path of the file that holds it."""
    row: int
    """Its number in the file, from 1."""

    def without_absent(self) -> Change:
        """Return the change with a structure that has no columns but those of its row."""
        places = tuple(place for place, text in enumerate(self.values) if text is not ABSENT)
        if len(places) == len(self.values):
            return self
        images = (
            image if image is None else tuple(image[place] for place in places) for image in (self.values, self.old)
        )
        values, old = images
        return self._replace(values=values or (), old=old, structure=self.structure.only(places))

    def given(self) -> tuple[int, ...]:
        """Return the indexes of the columns that `values` has: of a partial delete only those of the handle key, which are never NULL."""
        if self.operation != PARTIAL_DELETE:
            return tuple(range(len(self.values)))
        return tuple(place for place, text in enumerate(self.values) if text is not None)


class Statement(NamedTuple):
    """One DDL statement; rows with a commit-ts at or below its own come before it."""

    commit_ts: int
    definition: TableDefinition
    unclear: str = ""
    """Why nothing tells which tables it names; empty if that is known."""


Event = Change | Statement
