"""The names of a table's parts on the target, where a part that a statement of the source means may have another name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from storage_consumer.decode.values import INTEGER_TYPES
from storage_consumer.model import TableName
from storage_consumer.sql.statement import column_at
from storage_consumer.sql.tokens import Token, has_words

_INTEGERS = INTEGER_TYPES | {"INTEGER", "BOOL", "BOOLEAN"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignKey:
    """A foreign key of the target, in its spelling."""

    name: str
    table: TableName
    own: tuple[str, ...]
    """Its columns, in order."""
    columns: frozenset[tuple[TableName, str]]
    """Folded table and column of each column that it has or refers to."""
    has_index: bool = False
    """Whether there is an index of its name over its columns, as the server makes one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartNames:
    """Names inside one table, all folded; empty if there is no such table."""

    columns: frozenset[str] = frozenset()
    generated: frozenset[str] = frozenset()
    """Those of its columns that are generated."""
    indexes: frozenset[str] = frozenset()
    foreign_keys: frozenset[str] = frozenset()
    other_foreign_keys: frozenset[str] = frozenset()
    """Those of the other tables in its database: MySQL and MariaDB want each name once."""
    fractions: frozenset[str] = frozenset()
    """Text columns that the statement turns into integers, and that hold numbers with a fraction or an exponent."""
    collation: str = ""
    """Default collation of the table; empty if it does not matter."""
    scattered: bool = False
    """Whether its partitions hold other rows than those of the same names at the source, and the statement is about one of them."""


def matters_for(found: Sequence[Token]) -> bool:
    """Return whether what a statement becomes depends on names inside the table. A new table has none, except foreign keys."""
    if has_words(found, "FOREIGN"):
        return True
    if has_words(found[:2], "CREATE", "TABLE"):
        return False
    return any(has_words(found, word) for word in ("INDEX", "KEY", "UNIQUE", "INDEXES")) or (
        has_words(found[:2], "ALTER", "TABLE")
        and (
            has_words(found, "EXISTS")
            or changes_defaults(found)
            or bool(to_integers(found))
            or takes_rows_of_partitions(found)
        )
    )


def changes_defaults(found: Sequence[Token]) -> bool:
    """Return whether an ALTER TABLE may both add columns and change the table's charset or collation."""
    options = [
        at for at, token in enumerate(found) if not token.depth and token.upper in ("COLLATE", "CHARACTER", "CHARSET")
    ]
    return bool(options) and has_words(found, "ADD", depth=0)


def takes_rows_of_partitions(found: Sequence[Token]) -> bool:
    """Return whether a statement empties or exchanges partitions that it names, so that it matters which rows are in them."""
    empties = has_words(found, "TRUNCATE", "PARTITION") and not has_words(found, "TRUNCATE", "PARTITION", "ALL")
    return empties or has_words(found, "EXCHANGE", "PARTITION")


def to_integers(found: Sequence[Token]) -> list[str]:
    """Return the columns that an ALTER TABLE turns into integers by MODIFY or CHANGE, by their former names."""
    columns = []
    for at, token in enumerate(found):
        if token.upper in ("MODIFY", "CHANGE") and token.depth == 0:
            part = found[at:]
            named = column_at(part)
            typed = named + (2 if token.upper == "CHANGE" else 1)
            columns += (
                [part[named].name]
                if named > 0 and any(one.upper in _INTEGERS for one in part[typed : typed + 1])
                else []
            )
    return columns
