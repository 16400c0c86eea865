"""Why a server would refuse a statement for the names inside its table. Pure.

A statement needs names that have to be there, and makes names that may not be there yet. A refusal is certain: where a name may be there
or not, or where the statement itself makes or frees it, there is none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from storage_consumer.ddl.statement import statement_of
from storage_consumer.dry_run.indexes import defined_index, name_behind
from storage_consumer.dry_run.partitions import partition_change
from storage_consumer.dry_run.tables import PlannedTable, dropped_column
from storage_consumer.model import folded_name
from storage_consumer.sql.column_parts import INDEX_WORDS, NAMES, column_parts
from storage_consumer.sql.tokens import Token, find_words, has_words, tokens

_RENAME = 5
"""Tokens of ``RENAME COLUMN a TO b``."""


class Refused(Exception):
    """What the server would answer: number and text."""


@dataclass(slots=True)
class _Names:
    """The names of one kind of part that a statement uses, each with what a server answers if it can't be used."""

    needs: list[tuple[str, Refused]] = field(default_factory=list)
    frees: set[str] = field(default_factory=set)
    """Folded."""
    makes: list[tuple[str, Refused]] = field(default_factory=list)

    def drop(self, name: str) -> None:
        """Take the name of a column or key that is dropped."""
        self.needs.append((name, Refused(1091, f"Can't DROP '{name}'; check that column/key exists")))
        self.frees.add(folded_name(name))

    def rename(self, old: str, new: str, *, missing: Refused, taken: Refused) -> None:
        """Take the names of a column or key that gets another one."""
        self.needs.append((old, missing))
        self.frees.add(folded_name(old))
        self.makes.append((new, taken))

    def compare(self, there: Iterable[str], unsure: Collection[str] = ()) -> None:
        """Raise what is answered where the names `there` exist, and perhaps some of `unsure`; both are folded."""
        exists, made = frozenset(there), {folded_name(name) for name, _ in self.makes}
        for name, answer in self.needs:
            if folded_name(name) not in exists.union(made, unsure):
                raise answer
        for name, answer in self.makes:
            if folded_name(name) in exists.difference(self.frees, unsure):
                raise answer


def refuse_names(statement: str, table: PlannedTable) -> None:
    """Raise `Refused` if the server is certain to refuse an ALTER TABLE, CREATE INDEX or DROP INDEX for names inside `table`."""
    # A table of which no column shows has some all the same.
    if not table.table.columns:
        return
    found, own = tokens(statement), table.table.name.table
    columns, indexes, foreign_keys = _Names(), _Names(), _Names()
    for first, last in statement_of(found, None, None, statement, own).parts:
        action = found[first:last]
        # IF EXISTS and IF NOT EXISTS make a warning of it.
        if not action or has_words(action, "EXISTS", depth=action[0].depth):
            continue
        _take_columns(found, (first, last), columns)
        _take_indexes(action, columns, indexes)
        if has_words(action[:3], "DROP", "FOREIGN", "KEY"):
            foreign_keys.drop(name_behind(action, 2))
    columns.compare(folded_name(column.name) for column in table.table.columns)
    if not table.has_unnamed:
        # The server makes indexes for foreign keys, with their names, and drops them where another one serves.
        indexes.compare(table.indexes, table.unsure | table.foreign_keys)
        foreign_keys.compare(table.foreign_keys)
    _refuse_partitions(found, table)


def _take_columns(found: Sequence[Token], part: tuple[int, int], columns: _Names) -> None:
    """Take the columns that an action of an ALTER TABLE names."""
    action = found[part[0] : part[1]]
    verb = action[0].upper
    for former, name, _ in column_parts(found, [part]):
        missing, taken = _unknown(former), _duplicate(name)
        if verb == "ADD":
            columns.makes.append((name, taken))
        elif folded_name(former) != folded_name(name):
            columns.rename(former, name, missing=missing, taken=taken)
        else:
            columns.needs.append((former, missing))
    if name := dropped_column(action):
        columns.drop(name)
    if has_words(action[:2], "RENAME", "COLUMN") and len(action) >= _RENAME:
        old, new = action[2].name, action[4].name
        columns.rename(old, new, missing=_unknown(old), taken=_duplicate(new))
    at = find_words(action, "AFTER", depth=action[0].depth)
    if verb in ("ADD", "MODIFY", "CHANGE") and 0 < at < len(action) - 1 and action[at + 1].kind in NAMES:
        columns.needs.append((action[at + 1].name, _unknown(action[at + 1].name)))


def _unknown(column: str) -> Refused:
    return Refused(1054, f"Unknown column '{column}'")


def _duplicate(column: str) -> Refused:
    return Refused(1060, f"Duplicate column name '{column}'")


def _take_indexes(action: Sequence[Token], columns: _Names, indexes: _Names) -> None:
    """Take the indexes that an action names, and the columns of those that it defines."""
    verb, word = action[0].upper, action[1].upper if len(action) > 1 else ""
    if verb == "DROP" and word in INDEX_WORDS:
        indexes.drop(name_behind(action, 1))
    elif has_words(action[:3], "DROP", "PRIMARY", "KEY"):
        indexes.drop("primary")
    elif verb == "RENAME" and word in INDEX_WORDS and len(action) >= _RENAME:
        old, new = action[2].name, action[4].name
        missing = Refused(1176, f"Key '{old}' doesn't exist in table")
        indexes.rename(old, new, missing=missing, taken=Refused(1061, f"Duplicate key name '{new}'"))
    elif verb in ("ADD", "CREATE") and (defined := defined_index(action)):
        columns.needs += [
            (column, Refused(1072, f"Key column '{column}' doesn't exist in table")) for column, _ in defined.columns
        ]
        if defined.is_primary:
            indexes.makes.append(("primary", Refused(1068, "Multiple primary key defined")))
        elif defined.is_named:
            indexes.makes.append((defined.name, Refused(1061, f"Duplicate key name '{defined.name}'")))


def _refuse_partitions(found: Sequence[Token], table: PlannedTable) -> None:
    """Raise `Refused` for names of partitions."""
    change = partition_change(found)
    if change is None or table.partitions is None:
        return
    if not table.partitions:
        raise Refused(1505, "Partition management on a not partitioned table is not possible")
    names = _Names(frees={folded_name(name) for name in change.frees})
    names.needs += [(name, Refused(1507, f"there is no partition '{name}'")) for name in change.needs]
    names.makes += [(name, Refused(1517, f"Duplicate partition name {name}")) for name in change.makes]
    names.compare(table.partitions)
