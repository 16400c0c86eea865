"""Which indexes a table has after a statement, as far as its text shows. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from storage_consumer.ddl.rules.index_options import defines_index
from storage_consumer.ddl.statement import statement_of
from storage_consumer.job.target_table import UniqueKey
from storage_consumer.model import folded_name
from storage_consumer.sql.tokens import Token, closing, elements, find_words, has_words, tokens

Indexes = Mapping[str, UniqueKey | None]
"""Folded name → the index if it is unique and over columns alone, else None; the primary key is called ``primary``."""
_WORDS = frozenset(("ADD", "CREATE", "CONSTRAINT", "UNIQUE", "INDEX", "KEY", "FULLTEXT", "SPATIAL", "PRIMARY", "USING"))
_METHODS = frozenset(("BTREE", "HASH", "RTREE"))


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinedIndex:
    """An index as a statement defines it."""

    name: str
    """That of its first column if it is given none; empty if that is an expression."""
    is_named: bool
    is_primary: bool
    is_unique: bool
    columns: tuple[tuple[str, int | None], ...]
    """Columns with the lengths of their prefixes; empty if a part is an expression."""


def indexes_after(statement: str, table: str, before: Indexes) -> dict[str, UniqueKey | None]:
    """Return the indexes of the table called `table` after a CREATE TABLE, ALTER TABLE, CREATE INDEX or DROP INDEX."""
    found = tokens(statement)
    # Columns that are renamed or dropped take their places in keys along.
    indexes = {name: _renamed(key, renamed_columns(found)) for name, key in before.items()}
    if has_words(found[:2], "DROP", "INDEX"):
        indexes.pop(folded_name(name_behind(found, 1)), None)
        return indexes
    for part in _parts(found, statement, table):
        words = [token.upper for token in part[:3]]
        if words[:2] in (["DROP", "INDEX"], ["DROP", "KEY"]):
            indexes.pop(folded_name(name_behind(part, 1)), None)
        elif words == ["DROP", "PRIMARY", "KEY"]:
            indexes.pop("primary", None)
        elif words[:2] in (["RENAME", "INDEX"], ["RENAME", "KEY"]) and len(part) > 4:  # noqa: PLR2004 - a TO b
            key = indexes.pop(folded_name(part[2].name), None)
            indexes[folded_name(part[4].name)] = key
        elif part and defines_index(part):
            _add(indexes, part)
        elif part and has_words(part, "UNIQUE", depth=part[0].depth):
            _add_column(indexes, part, has_words(part, "PRIMARY"))
    return indexes


def renamed_columns(found: Sequence[Token]) -> dict[str, str]:
    """Return folded old name → new name of the columns that an ALTER TABLE renames."""
    renamed = {}
    for at, token in enumerate(found):
        if token.depth or token.upper not in ("CHANGE", "RENAME"):
            continue
        rest = [each for each in found[at + 1 : at + 7] if each.upper not in ("COLUMN", "IF", "EXISTS", "TO")]
        is_column = token.upper == "CHANGE" or has_words(found[at : at + 2], "RENAME", "COLUMN")
        if is_column and len(rest) > 1:
            renamed[folded_name(rest[0].name)] = rest[1].name
    return renamed


def _renamed(key: UniqueKey | None, renamed: Mapping[str, str]) -> UniqueKey | None:
    if key is None or not renamed:
        return key
    columns = tuple(renamed.get(folded_name(column), column) for column in key.columns)
    return UniqueKey(name=key.name, columns=columns, prefixes=key.prefixes)


def _parts(found: Sequence[Token], statement: str, table: str) -> Iterator[Sequence[Token]]:
    """Yield the definitions in a CREATE TABLE, the actions of an ALTER TABLE, or a CREATE INDEX as a whole."""
    if has_words(found[:1], "CREATE") and not has_words(found[:2], "CREATE", "TABLE"):
        yield found
        return
    for first, last in statement_of(found, None, None, statement, table).parts:
        yield found[first:last]


def defined_index(part: Sequence[Token]) -> DefinedIndex | None:
    """Return the index that a definition, an ADD or a CREATE INDEX defines; None if it defines none."""
    # With a name of its own a foreign key or a check looks like an index.
    if not part or not defines_index(part) or any(token.upper in ("FOREIGN", "CHECK") for token in part[:4]):
        return None
    start = find_words(part, "ON") if has_words(part[:1], "CREATE") else 0
    opening = next((i for i, each in enumerate(part) if i > start and each.text == "(" and each.kind == "symbol"), -1)
    end = closing(part, opening) if opening > 0 else -1
    if end < 0:
        return None
    columns = _columns(part, opening, end)
    is_primary = has_words(part[:6], "PRIMARY", "KEY")
    named = [each for each in part[: start or opening] if each.upper not in _WORDS | _METHODS]
    name = named[-1].name if named else columns[0][0] if columns else ""
    return DefinedIndex(
        name="PRIMARY" if is_primary else name,
        is_named=bool(named) or is_primary,
        is_primary=is_primary,
        is_unique=is_primary or has_words(part[:5], "UNIQUE"),
        columns=tuple(columns),
    )


def _add(indexes: dict[str, UniqueKey | None], part: Sequence[Token]) -> None:
    """Add the index that a part defines."""
    defined = defined_index(part)
    if defined is None:
        return
    indexes[_free(indexes, folded_name(defined.name), is_named=defined.is_named)] = (
        UniqueKey(
            name=defined.name,
            columns=tuple(column for column, _ in defined.columns),
            prefixes=tuple(prefix for _, prefix in defined.columns),
        )
        if defined.is_unique and defined.columns
        else None
    )


def _add_column(indexes: dict[str, UniqueKey | None], part: Sequence[Token], is_primary: bool) -> None:  # noqa: FBT001 - private
    """Add the unique index of a column that is defined as unique."""
    names = [
        each for each in part[:6] if each.upper not in ("ADD", "COLUMN", "MODIFY", "CHANGE", "IF", "NOT", "EXISTS")
    ]
    if names and not is_primary:
        name = names[0].name
        key = UniqueKey(name=name, columns=(name,), prefixes=(None,))
        indexes[_free(indexes, folded_name(name), is_named=False)] = key


def _free(indexes: Indexes, name: str, *, is_named: bool) -> str:
    """Return the name that a server gives an index: one that was given none may need a number."""
    if is_named or name not in indexes:
        return name
    return next(each for number in range(2, 100) if (each := f"{name}_{number}") not in indexes)


def _columns(part: Sequence[Token], opening: int, end: int) -> list[tuple[str, int | None]]:
    """Return the columns of an index with the lengths of their prefixes; none if a part is an expression."""
    columns: list[tuple[str, int | None]] = []
    for first, last in elements(part, opening, end):
        if first >= last or part[first].kind not in ("quoted", "word"):
            return []
        length = part[first + 2].text if last - first > 3 and part[first + 1].text == "(" else ""  # noqa: PLR2004 - ( n )
        columns.append((part[first].name, int(length) if length.isdecimal() else None))
    return columns


def name_behind(part: Sequence[Token], at: int) -> str:
    """Return the name behind the word at an index, past IF EXISTS; empty for none."""
    names = [each for each in part[at + 1 : at + 4] if each.upper not in ("IF", "EXISTS")]
    return names[0].name if names else ""
