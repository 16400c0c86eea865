"""PlannedStructure: the target's structure, over which what planned statements would change is laid in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from storage_consumer.ddl.ports import Structure
from storage_consumer.ddl.rules.clauses import source_collation
from storage_consumer.downstream.existing_names import ForeignKey, PartNames, takes_rows_of_partitions
from storage_consumer.dry_run.refusals import Refused, refuse_names
from storage_consumer.dry_run.tables import PlannedTable, changed, created
from storage_consumer.job.target_table import TargetTable
from storage_consumer.model import TableDefinition, TableName, folded_name
from storage_consumer.sql.parse import parse_ddl
from storage_consumer.sql.tokens import Token, find_words, has_words, tokens

_DATABASE = ("DATABASE", "SCHEMA")


class RealStructure(Structure, Protocol):
    """The target's structure; see `downstream.structure`."""

    def read(self, wanted: Iterable[TableName]) -> dict[TableName, TargetTable]:
        """Return the same as `describe`, without comparing noted keys."""
        ...

    def has_rows(self, name: TableName) -> bool:
        """Return whether a table, by the name that the target gives it, has a row."""
        ...

    def partitions(self, name: TableName) -> frozenset[str]:
        """Return the folded names of a table's partitions, by the name that the target gives it; none if it is not partitioned."""
        ...


class PlannedStructure:
    """The double of `downstream.structure`. It knows whole tables; what the rows in them decide, it leaves open."""

    def __init__(self, real: RealStructure, server_type: str) -> None:
        """Look at `real`, and never change it."""
        self._real = real
        self._server_type = server_type
        self._tables: dict[TableName, PlannedTable | None] = {}
        """By folded name; None if it is gone."""
        self._databases: dict[str, tuple[str, str] | None] = {}
        """Folded name → spelling and collation; None if it is gone."""
        self._gone: set[str] = set()
        """Folded databases whose tables of now are gone."""
        self.keys_taken: frozenset[TableName] = frozenset()
        """Tables by folded name whose keys are taken as they are, whatever is noted of them."""
        self.created: list[str] = []
        """The databases that planned statements create, in order."""

    # what is there

    def describe(self, wanted: Iterable[TableName]) -> dict[TableName, TargetTable]:
        """Return the tables that are there by then, by folded name."""
        found = self._tables_of(wanted, self._real.describe)
        return {
            folded: replace(table, key_drift="") if folded in self.keys_taken else table
            for folded, table in found.items()
        }

    def read(self, wanted: Iterable[TableName]) -> dict[TableName, TargetTable]:
        """Return the same, without comparing noted keys."""
        return self._tables_of(wanted, self._real.read)

    def _tables_of(
        self, wanted: Iterable[TableName], ask: Callable[[Iterable[TableName]], dict[TableName, TargetTable]]
    ) -> dict[TableName, TargetTable]:
        names = [name for name in wanted if name.table]
        planned = {name.folded(): self._tables[name.folded()] for name in names if name.folded() in self._tables}
        rest = [name for name in names if name.folded() not in planned and not self._is_gone(name)]
        found = ask(rest) if rest else {}
        return found | {name: table.table for name, table in planned.items() if table is not None}

    def _is_gone(self, name: TableName) -> bool:
        return folded_name(name.schema) in self._gone

    def existing(self, wanted: Iterable[TableName]) -> dict[TableName, TableName]:
        """Return folded name → spelling, for the tables and databases that are there by then."""
        found: dict[TableName, TableName] = {}
        rest = []
        for name in wanted:
            folded = name.folded()
            if name.table and folded in self._tables:
                planned = self._tables[folded]
                found |= {} if planned is None else {folded: planned.table.name}
            elif not name.table and folded.schema in self._databases:
                database = self._databases[folded.schema]
                found |= {} if database is None else {folded: TableName(schema=database[0], table="")}
            elif not (name.table and self._is_gone(name)):
                rest.append(name)
        return found | (self._real.existing(rest) if rest else {})

    def database_collation(self, schema: str) -> str | None:
        """Return the default collation of a database, or None if it is not there by then."""
        if (folded := folded_name(schema)) in self._databases:
            database = self._databases[folded]
            return None if database is None else database[1]
        return self._real.database_collation(schema)

    def part_names(self, name: TableName, found: Sequence[Token] = ()) -> PartNames:
        """Return the names of a table's parts by then."""
        if name.folded() not in self._tables:
            return PartNames() if self._is_gone(name) else self._real.part_names(name, found)
        planned = self._tables[name.folded()]
        others: frozenset[str] = frozenset()
        if has_words(found, "FOREIGN"):
            schema = folded_name(name.schema)
            others = frozenset() if self._is_gone(name) else self._real.part_names(name, found).other_foreign_keys
            others = others.union(
                *(t.foreign_keys for at, t in self._tables.items() if t and at.schema == schema and at != name.folded())
            )
        if planned is None:
            return PartNames(other_foreign_keys=others)
        columns = planned.table.columns
        return PartNames(
            columns=frozenset(folded_name(column.name) for column in columns),
            generated=frozenset(folded_name(column.name) for column in columns if column.generated),
            indexes=frozenset(planned.indexes),
            foreign_keys=planned.foreign_keys,
            other_foreign_keys=others,
            scattered=takes_rows_of_partitions(found) and planned.is_scattered,
        )

    def foreign_keys(self, names: Sequence[TableName]) -> tuple[list[ForeignKey], dict[str, list[str]]]:  # noqa: ARG002 - only a server refuses for one
        """Return none."""
        return [], {}

    def fingerprint(self, names: Iterable[TableName]) -> str:
        """Return a text that differs for two different structures of these tables."""
        wanted = sorted({name.folded() for name in names})
        planned = [name for name in wanted if name in self._tables or name.schema in self._databases]
        return repr([self._tables.get(name) for name in wanted]) if planned else self._real.fingerprint(names)

    def blockers(self, names: Iterable[TableName]) -> tuple[str, ...]:  # noqa: ARG002 - nothing waits
        """Return nobody."""
        return ()

    def close(self) -> None:
        """Do nothing: whoever gave the real structure closes it."""

    # what a statement changes

    def apply(self, statement: str, schema: str, definition: TableDefinition) -> None:
        """Lay over the structure what a statement would make of it; raise `Refused` if it would not run there.

        `definition` has the columns after it.
        """
        found = tokens(statement)
        own = TableName(schema=schema or definition.name.schema, table=definition.name.table)
        head = tuple(token.upper for token in found[:2])
        if head[1:] and head[1] in _DATABASE:
            self._apply_to_database(head[0], found, statement, own)
            return
        ddl = parse_ddl(statement, own)
        names = [each.within(own.schema) for each in ddl.names if not each.reads]
        subject = names[0] if names else own
        if _is_about_view(found):
            reads = [each.within(own.schema) for each in ddl.names if each.reads and not each.qualifies]
            self._apply_to_view(found, names or [own], reads, definition)
        elif head == ("CREATE", "TABLE"):
            likes = [each.within(own.schema) for each in ddl.names if each.reads]
            self._create(subject, definition, statement, likes if has_words(found, "LIKE") else [])
        elif head == ("DROP", "TABLE"):
            self._drop(names or [own], found)
        else:
            self._change(subject, found, definition, statement)
            if ddl.rename is not None:
                self._rename(ddl.rename.old, ddl.rename.new)

    def _apply_to_database(self, verb: str, found: Sequence[Token], statement: str, own: TableName) -> None:
        words = {"IF", "NOT", "EXISTS"}
        named = next((token.name for token in found[2:] if token.upper not in words), own.schema)
        folded, conditional = folded_name(named), has_words(found, "EXISTS")
        there = bool(self.existing([TableName(schema=named, table="")]))
        if verb == "CREATE":
            if there and not conditional:
                raise Refused(1007, f"Can't create database '{named}'; database exists")
            if not there:
                self.created.append(named)
                self._databases[folded] = (named, source_collation([statement], self._server_type))
            return
        if not there and not conditional:
            raise Refused(1008 if verb == "DROP" else 1049, f"no database '{named}'")
        if verb == "DROP":
            self._databases[folded] = None
            self._gone.add(folded)
            self._tables = {name: table for name, table in self._tables.items() if name.schema != folded}
        elif collation := source_collation([statement], self._server_type):
            self._databases[folded] = (named, collation)

    def _apply_to_view(
        self,
        found: Sequence[Token],
        names: Sequence[TableName],
        reads: Sequence[TableName],
        definition: TableDefinition,
    ) -> None:
        if found[0].upper == "DROP":
            self._drop(names, found)
            return
        name = names[0]
        if self.existing([name]) and not has_words(found[:4], "OR", "REPLACE"):
            raise Refused(1050, f"Table '{name.table}' already exists")
        # The names of a WITH look like tables.
        _refuse_missing(self, () if has_words(found, "WITH") else reads)
        columns = created(name, definition, "", None).table.columns
        # An asterisk stands for what the table has by then; elsewhere a view reads columns by their names.
        read = list(self.read(reads).values())
        if len(reads) == len(read) == 1 and has_words(found, "AS", "SELECT", "*", "FROM"):
            columns = read[0].columns
        self._tables[name.folded()] = PlannedTable(
            table=TargetTable(name=name, columns=columns, unique_keys=(), is_view=True)
        )

    def _create(self, name: TableName, definition: TableDefinition, statement: str, likes: Sequence[TableName]) -> None:
        if not self.existing([TableName(schema=name.schema, table="")]):
            raise Refused(1049, f"Unknown database '{name.schema}'")
        if self.existing([name]):
            if has_words(tokens(statement)[:6], "IF", "NOT", "EXISTS"):
                return
            raise Refused(1050, f"Table '{name.table}' already exists")
        _refuse_missing(self, likes)
        like = self._planned(likes[0]) if likes else None
        self._tables[name.folded()] = created(name, definition, statement, like)

    def _drop(self, names: Sequence[TableName], found: Sequence[Token]) -> None:
        there = self.existing(names)
        if (lacking := [n for n in names if n.folded() not in there]) and not has_words(found[:4], "IF", "EXISTS"):
            raise Refused(1051, f"Unknown table '{lacking[0]}'")
        for name in names:
            self._tables[name.folded()] = None

    def _change(self, name: TableName, found: Sequence[Token], definition: TableDefinition, statement: str) -> None:
        """Change a table by ALTER TABLE, CREATE INDEX, DROP INDEX; TRUNCATE and RENAME leave it as it is."""
        before = self._planned(name)
        if before is None:
            raise Refused(1146, f"Table '{name}' doesn't exist")
        if found[0].upper not in ("ALTER", "CREATE", "DROP"):
            return
        refuse_names(statement, before)
        if has_words(found, "EXCHANGE", "PARTITION"):
            _refuse_missing(self, [each.within(name.schema) for each in parse_ddl(statement, name).names])
        else:
            self._tables[name.folded()] = changed(before, definition, statement)

    def _rename(self, old: TableName, new: TableName) -> None:
        before = self._planned(old)
        if before is None:
            raise Refused(1146, f"Table '{old}' doesn't exist")
        if not self.existing([TableName(schema=new.schema, table="")]):
            raise Refused(1049, f"Unknown database '{new.schema}'")
        if new.folded() != old.folded() and self.existing([new]):
            raise Refused(1050, f"Table '{new.table}' already exists")
        self._tables[old.folded()] = None
        self._tables[new.folded()] = before.called(new)

    def _planned(self, name: TableName) -> PlannedTable | None:
        """Return a table with its parts, or None if it is not there by then."""
        if name.folded() in self._tables:
            return self._tables[name.folded()]
        real = self.read([name]).get(name.folded())
        if real is None:
            return None
        # The word makes the target tell of foreign keys too.
        parts = self._real.part_names(name, tokens("FOREIGN"))
        unique = {folded_name(key.name): key for key in real.unique_keys}
        return PlannedTable(
            table=real,
            indexes={index: unique.get(index) for index in sorted(parts.indexes)},
            foreign_keys=parts.foreign_keys,
            partitions=self._real.partitions(real.name),
        )


def _refuse_missing(structure: PlannedStructure, names: Iterable[TableName]) -> None:
    """Raise `Refused` if one of these tables is not there by then."""
    wanted = list(names)
    there = structure.existing(wanted)
    for name in wanted:
        if name.folded() not in there:
            raise Refused(1146, f"Table '{name}' doesn't exist")


def _is_about_view(found: Sequence[Token]) -> bool:
    """Return whether a statement creates or drops a view: options of any length stand between CREATE and VIEW."""
    if has_words(found[1:2], "TABLE"):
        return False
    select = find_words(found, "AS")
    return has_words(found[:select] if select > 0 else found[:2], "VIEW", depth=0)
