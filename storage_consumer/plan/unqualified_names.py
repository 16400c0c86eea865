"""Which database an unqualified name belongs to, where statement and history show it.

Classic TiCDC stores a statement as it was typed, without the session's database. A statement whose
own table has no database was typed in the database of its schema file, so that all its names
without one belong to that database. Only if its own table is named with a database can another name
belong to any: what a view reads or a LIKE copies, and the old name of a rename. The parent of a
foreign key cannot: TiDB looks for it in the database of the table itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from storage_consumer.errors import NotReplicable
from storage_consumer.model import (
    DdlId,
    NameAt,
    Rename,
    TableColumn,
    TableDefinition,
    TableName,
    folded_name,
)
from storage_consumer.plan.steps import DdlStep
from storage_consumer.plan.table import Lifetimes, TableConsumer
from storage_consumer.sql.parse import cannot_read, parsed, with_homes


def of_any_database(definition: TableDefinition) -> list[NameAt]:
    """Return names without a database that may belong to another than the definition's."""
    ddl = parsed(definition)
    found = [name for name in ddl.names if name.table]
    if ddl.rename is not None:
        # Of a rename only the old name can be elsewhere, if the new one was qualified.
        return (
            [name for name in found if not name.schema and not name.new]
            if ddl.rename.from_anywhere
            else []
        )
    # What is created or changed unqualified is in the session's database: the schema file's.
    if ddl.has_references or any(not name.schema and not name.reads for name in found):
        return []
    return [name for name in found if not name.schema]


@dataclass(frozen=True, slots=True, kw_only=True)
class Namesake:
    """A table that an unqualified name may mean: it exists right before the statement."""

    name: TableName
    columns: tuple[TableColumn, ...] = ()
    """As of the statement's version; empty if they are not known."""
    stays: bool = False
    """Whether later files show that it was there under this name all the time."""


def homes(
    definition: TableDefinition, namesakes: Mapping[NameAt, Sequence[Namesake]]
) -> dict[NameAt, TableName]:
    """Return tables that names of `of_any_database` mean, or none if nothing is known.

    All names that a statement reads are of one database, the session's: one that has a table for
    each of them that the bucket knows at all, with the columns that the statement shows. Raises
    `NotReplicable` where several databases can be meant, or none.
    """
    if (rename := parsed(definition).rename) is not None:
        return {
            name: old
            for name, found in namesakes.items()
            if (old := _renamed(rename, definition, found))
        }
    # Folded database → its table that the statement may read under a name, by columns.
    fitting = {
        name: {
            folded_name(each.name.schema): each for each in found if _fits(name, definition, each)
        }
        for name, found in namesakes.items()
    }
    known = [set(each) for each in fitting.values() if each]
    common = set[str]().union(*known).intersection(*known)
    if len(common) == 1:
        (schema,) = common
        spelled = next(each[schema].name.schema for each in fitting.values() if each)
        return {
            name: each[schema].name if each else TableName(schema=spelled, table=name.table)
            for name, each in fitting.items()
        }
    if not known:
        return {}
    tables = ", ".join(
        sorted({str(each.name) for found in fitting.values() for each in found.values()})
    )
    names = " and ".join(dict.fromkeys(name.table for name in fitting))
    which = (
        f"all of these can be meant: {tables}" if common else f"no database has them all ({tables})"
    )
    raise NotReplicable(
        f"{definition.name}: the DDL of {definition.path} was stored as it was typed, without the database of the session that {names} "
        f"belongs to, and {which}. Run it with the right database before each name: {definition.query.strip()[:200]}"
    )


def _fits(name: NameAt, definition: TableDefinition, namesake: Namesake) -> bool:
    if parsed(definition).creates_table:
        # What was made LIKE a table has its columns.
        return (
            () in (namesake.columns, definition.columns) or namesake.columns == definition.columns
        )
    there, shown = (
        [column.name for column in each] for each in (namesake.columns, definition.columns)
    )
    return not cannot_read(definition.query, name, there, shown)


def _renamed(
    rename: Rename, definition: TableDefinition, there: Sequence[Namesake]
) -> TableName | None:
    """Return the table that a rename takes: equal columns, and no later file of the old name."""
    new = rename.new.folded()
    own = next((n.name for n in there if n.name.folded() == new), None)
    # Only the case of the name changes. Where not even that does, the new name was free: what is
    # known to have it is not meant.
    if own is not None and rename.old.table != rename.new.table:
        return own
    there = [n for n in there if n.name != own]
    # What stays under its name is not what was renamed.
    moved = [n for n in there if not n.stays]
    alike = [n for n in moved if n.columns in ((), definition.columns)]
    fitting = alike or [
        n for n in moved if _column_names(n.columns) == _column_names(definition.columns)
    ]
    if len(fitting) == 1:
        return fitting[0].name
    if not there:
        return None
    names = ", ".join(str(n.name) for n in fitting or there)
    which = f"it could be any of {names}" if fitting else f"none of the known tables fits ({names})"
    raise NotReplicable(
        f"the DDL of {definition.path} renames {rename.old.table} without naming its database, and {which}. Rename "
        "the right table manually"
    )


def _column_names(columns: Sequence[TableColumn]) -> list[str]:
    return [folded_name(column.name) for column in columns]


class LocatedRenames:
    """Renames up to a copy with an open database of the old name: never run, so never seen."""

    def __init__(self, floor: int, based: Collection[str]) -> None:
        """Begin empty; `floor`: TSO of the feed's first copy or 0; `based`: keys in copies."""
        self._floor = floor
        self._based = based
        self._open: list[DdlStep] = []
        self._located: dict[DdlId, DdlStep] = {}

    def note(self, step: DdlStep, copied_at: int) -> None:
        """Keep a statement if it is such a rename; `copied_at`: TSO of its table's copy, or 0."""
        rename = step.ddl.rename
        if (
            rename is not None
            and rename.from_anywhere
            and step.version <= max(self._floor, copied_at)
        ):
            self._open.append(step)

    def locate(self, tables: Iterable[TableConsumer], lifetimes: Lifetimes) -> None:
        """Find each one's database once all statements are known; others wait for their turn."""
        known = list(tables) if self._open else []
        # In order: what one of them took away, a later one cannot mean.
        for step in self._open:
            (name,) = of_any_database(step.definition)
            named = [
                table for table in known if folded_name(table.name.table) == folded_name(name.table)
            ]
            there = [
                t
                for t in named
                if not t.timeline.is_free_before(step.version, lifetimes.ends_of(t))
            ]
            try:
                meant = homes(
                    step.definition,
                    {name: [self._namesake(table, step.version) for table in there]},
                )
            except NotReplicable:
                continue
            # Where nothing is known of such a table, nobody's is taken for it.
            own = {name: TableName(schema=step.name.schema, table=name.table)}
            located = replace(step, definition=with_homes(step.definition, {}, meant or own))
            lifetimes.ends(step.table_key, located.definition)
            self._located[step.identity] = located
        self._open.clear()

    def _namesake(self, table: TableConsumer, version: int) -> Namesake:
        before = table.timeline.structure_at(version - 1)
        in_copy = table.key in self._based and not table.timeline.has_statement(
            version, self._floor
        )
        stays = in_copy or table.timeline.stays_after(version)
        return Namesake(name=table.name, columns=before.columns if before else (), stays=stays)

    def of(self, steps: Iterable[DdlStep]) -> list[DdlStep]:
        """Return statements, those of them with the database that was found."""
        return [self._located.get(step.identity, step) for step in steps]
