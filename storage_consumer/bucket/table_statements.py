"""Columns by a table's statements: SHOW CREATE TABLE → as in schema files, and beyond them.

Schema files list virtual generated columns, and rows do not have them; those of classic TiCDC list
no members of ENUM and SET.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from storage_consumer.model import TableColumn, TableDefinition, folded_name
from storage_consumer.sql.statement import (
    INDEX_WORDS,
    Column,
    Statement,
    creates_as_listed,
    statement_of,
)
from storage_consumer.sql.tokens import (
    NAMES,
    Token,
    closing,
    elements,
    find_words,
    has_words,
    tokens,
)

_WIDTHS: Mapping[str, tuple[int, int]] = {
    "TINYINT": (4, 3),
    "SMALLINT": (6, 5),
    "MEDIUMINT": (9, 8),
    "INT": (11, 10),
    "BIGINT": (20, 20),
    "FLOAT": (12, 12),
    "DOUBLE": (22, 22),
    "YEAR": (4, 4),
    "BIT": (1, 1),
    "CHAR": (1, 1),
    "BINARY": (1, 1),
    "DECIMAL": (10, 10),
    **dict.fromkeys(("TINYTEXT", "TINYBLOB"), (255, 255)),
    **dict.fromkeys(("TEXT", "BLOB"), (65_535, 65_535)),
    **dict.fromkeys(("MEDIUMTEXT", "MEDIUMBLOB"), (16_777_215, 16_777_215)),
    **dict.fromkeys(("LONGTEXT", "LONGBLOB"), (4_294_967_295, 4_294_967_295)),
}
"""Type → a schema file's length where the statement has none, signed and unsigned."""
_MOMENTS = frozenset(("DATETIME", "TIMESTAMP", "TIME"))
"""Their digits of a second's fraction are the scale."""
_WITHOUT_LENGTH = frozenset(("ENUM", "SET", "JSON", "DATE", "VECTOR"))
_ALWAYS_UNSIGNED = frozenset(("BIT", "YEAR"))
_BINARY = ("_bin", "binary")
"""How the names of collations end that compare bytes."""
_ESCAPE = re.compile(r"\\(.)|''", re.DOTALL)
_ESCAPED = {
    "0": "\0",
    "b": "\b",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "Z": "\x1a",
    "%": "\\%",
    "_": "\\_",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTable:
    """What a CREATE TABLE says."""

    name: str
    """The table's name; such a statement does not name the database."""
    columns: tuple[TableColumn, ...]
    generated: frozenset[str]
    """Folded names of its generated columns, virtual and stored."""

    @property
    def carried(self) -> tuple[TableColumn, ...]:
        """The columns that rows in an export have, in order: all that are not generated."""
        return tuple(
            column for column in self.columns if folded_name(column.name) not in self.generated
        )


def is_temporary(statement: str) -> bool:
    """Return whether a statement creates a temporary table."""
    found = tokens(statement)
    return has_words(found[: max(find_words(found[:4], "TABLE"), 0)], "TEMPORARY")


def read_create_table(statement: str) -> CreatedTable:
    """Read a statement of SHOW CREATE TABLE; raise `ValueError` for any other."""
    found = statement_of(statement).tokens
    # mydumper writes IF NOT EXISTS for some.
    at = 2 + 3 * has_words(found[2:5], "IF", "NOT", "EXISTS")
    if (
        not has_words(found[:2], "CREATE", "TABLE")
        or at + 1 >= len(found)
        or found[at].kind not in NAMES
    ):
        raise ValueError("it is not a CREATE TABLE")
    table = _table(statement, at + 1)
    if not table.columns or not all(column.type for column in table.columns):
        raise ValueError("it defines no columns with types")
    key = frozenset(
        name
        for part in table.elements
        if (has_words(part[:4], "PRIMARY", "KEY") and part[0].kind == "word")
        for name, _ in _key_parts(part)
    )
    return CreatedTable(
        name=found[at].name,
        columns=tuple(_column(statement, column, key) for column in table.columns),
        generated=frozenset(
            folded_name(column.name) for column in table.columns if column.generated[0] > 0
        ),
    )


def _table(statement: str, opening: int = -1) -> Statement:
    """Return a CREATE TABLE's tree; raise `ValueError` unless its columns begin there and end."""
    table = statement_of(statement)
    if table.body[1] < 0 or opening not in (-1, table.body[0]):
        raise ValueError("its list of columns has no end")
    return table


def unique_keys(statement: str) -> tuple[dict[str, int | None], ...]:
    """Return the keys of a SHOW CREATE TABLE statement; raise `ValueError` for any other.

    Each is its columns, by folded name, with the number of leading characters that count, None for
    all. A part over an expression has no name.
    """
    table = _table(statement)
    own: list[dict[str, int | None]] = [
        {folded_name(column.name): None}
        for column in table.columns
        if has_words(column.options, "PRIMARY", "KEY") or has_words(column.options, "UNIQUE")
    ]
    for part in table.elements:
        # A primary or unique key after the columns.
        words = part[: max(find_words(part, "("), 0)]
        starts = any(has_words(words[:1], word) for word in ("PRIMARY", "UNIQUE", "CONSTRAINT"))
        if starts and (has_words(words, "PRIMARY") or has_words(words, "UNIQUE")):
            own.append(dict(_key_parts(part)))
    return tuple(own)


def index_count(statement: str) -> int:
    """Count indexes of SHOW CREATE TABLE on any server; raise `ValueError` for other texts."""
    plain = sum(part[0].upper in INDEX_WORDS for part in _table(statement).elements if part)
    return len(unique_keys(statement)) + plain


def binary_columns(statement: str) -> frozenset[str]:
    """Return folded names of text columns that a statement gives a bytewise collation.

    TiDB shows the collation of each table, and those of the columns that have another one. Raises
    `ValueError` as `unique_keys` does.
    """
    table = _table(statement)
    usual = _collation(table.tokens[table.body[1] :])
    columns = {folded_name(column.name): column.tokens for column in table.columns}
    return frozenset(
        name for name, part in columns.items() if (_collation(part) or usual).endswith(_BINARY)
    )


def _collation(found: Sequence[Token]) -> str:
    """Return the collation named outside parentheses, in lower case, or ""."""
    at = find_words(found, "COLLATE", depth=found[0].depth) if found else -1
    if at < 0:
        return ""
    named = [token for token in found[at + 1 : at + 3] if token.text != "="]
    return named[0].name.lower() if named else ""


def _key_parts(part: Sequence[Token]) -> Iterator[tuple[str, int | None]]:
    """Yield the parts of a key."""
    if (opening := find_words(part, "(")) < 0:
        raise ValueError("its primary key has no columns")
    for first, last in elements(part, opening, closing(part, opening)):
        inside = part[first:last]
        if not inside or inside[0].kind not in NAMES:
            yield "", None
            continue
        length = inside[2].text if has_words(inside[1:2], "(") else ""
        yield folded_name(inside[0].name), int(length) if length.isdecimal() else None


def _column(statement: str, column: Column, key: frozenset[str]) -> TableColumn:
    """Return the column that a definition describes."""
    kind, options, given = column.type, column.options, column.arguments
    unsigned = has_words(options, "UNSIGNED") or kind in _ALWAYS_UNSIGNED
    numbers = [int(token.text) for token in given if token.text.isdecimal()]
    precision = numbers[0] if numbers else _WIDTHS.get(kind, (None, None))[unsigned]
    scale = numbers[1] if len(numbers) > 1 else 0 if kind == "DECIMAL" else None
    if kind in _MOMENTS:
        precision, scale = None, (numbers[0] or None) if numbers else None
    elif kind in _WITHOUT_LENGTH:
        precision = scale = None
    is_pk = folded_name(column.name) in key or has_words(options, "PRIMARY", "KEY")
    return TableColumn(
        name=column.name,
        type=kind,
        unsigned=unsigned,
        precision=precision,
        scale=scale,
        nullable=not (is_pk or has_words(options, "NOT", "NULL")),
        is_pk=is_pk,
        default=_default(statement, column),
        elements=tuple(string_value(token.text) for token in given if token.kind == "string"),
    )


def _default(statement: str, column: Column) -> str | None:
    """Return a column's default as TiDB keeps it, a TIMESTAMP's as shown; None without one."""
    if not (given := column.defaults()):
        return None
    part, at = column.tokens, given[0]
    value, behind = part[at], part[at + 1 : at + 2]
    if value.kind == "string":
        return string_value(value.text)
    if value.upper in ("B", "X") and behind and behind[0].kind == "string":
        digits = behind[0].text[1:-1]
        number = int(digits or "0", 2 if value.upper == "B" else 16)
        return number.to_bytes((number.bit_length() + 7) // 8, "big").decode("utf-8", "replace")
    if value.text == "(":
        return statement[value.end : part[closing(part, at)].start]
    if value.text == "-" and behind:
        return f"-{behind[0].text}"
    return None if value.upper == "NULL" else value.upper


def string_value(literal: str) -> str:
    """Return the value of a string literal in single quotes."""
    return _ESCAPE.sub(
        lambda match: "'" if match[1] is None else _ESCAPED.get(match[1], match[1]), literal[1:-1]
    )


_LISTED = ("ENUM", "SET")
Members = Mapping[str, tuple[str, ...]]
"""By folded name of the column."""


def generated_columns(query: str, *, stored: bool | None = None) -> frozenset[str]:
    """Return folded names of generated columns in a CREATE TABLE or ALTER TABLE.

    `stored`: only stored ones, or only virtual ones; None: both.
    """
    return frozenset(
        folded_name(column.name)
        for column in statement_of(query).columns
        if column.generated[0] > 0 and stored in (None, column.is_stored)
    )


def known_virtual(
    definition: TableDefinition, history: Iterable[TableDefinition]
) -> frozenset[str] | None:
    """Return a version's virtual generated columns; None if its history leaves doubts.

    `history`: what was read of the table's schema files. It suffices if it has the table's CREATE
    TABLE with its columns.
    """
    # Later statements do not count: they changed rows of later directories only.
    past = sorted(
        (each for each in history if each.version <= definition.version),
        key=lambda each: each.version,
    )
    begin = max((place for place, each in enumerate(past) if creates_as_listed(each)), default=None)
    if begin is None:
        return None
    return _followed(past[begin:], stored=False)


def known_stored(history: Iterable[TableDefinition]) -> frozenset[str]:
    """Return stored generated columns after the last schema file, as far as statements show."""
    return _followed(history, stored=True)


def _followed(steps: Iterable[TableDefinition], *, stored: bool) -> frozenset[str]:
    """Return which columns are generated ones after these steps, if none was before them."""
    generated: frozenset[str] = frozenset()
    for each in steps:
        generated = generated_after(generated, each, stored=stored)
    return generated


def generated_after(
    before: frozenset[str], step: TableDefinition, *, stored: bool
) -> frozenset[str]:
    """Return folded names of generated columns after a statement, given those `before` it."""
    statement = statement_of(step.query)
    renamed = statement.renamed
    moved = {new for new, old in renamed.items() if old in before}
    kept = frozenset[str]() if creates_as_listed(step) else before - {*renamed, *renamed.values()}
    # Who is defined anew is an ordinary column, unless the statement says more.
    anew = {
        folded_name(column.name)
        for column in statement.columns
        if column.verb in ("MODIFY", "CHANGE")
    }
    found = ((kept | moved) - anew) | generated_columns(step.query, stored=stored)
    # A column that is no longer listed was dropped; its name may come back as an ordinary one.
    return found & {folded_name(column.name) for column in step.columns} if step.columns else found


def members(query: str) -> dict[str, tuple[str, ...]]:
    """Return members of a statement's ENUM and SET columns; empty if not given as texts."""
    found = tokens(query)
    result = {}
    for at in range(1, len(found) - 1):
        if found[at].upper in _LISTED and found[at + 1].text == "(" and found[at - 1].kind in NAMES:
            inside = found[at + 2 : closing(found, at + 1)]
            texts = [token.text for token in inside if token.kind == "string"]
            is_plain = all(text.startswith("'") for text in texts) and all(
                token.kind == "string" or token.text == "," for token in inside
            )
            # TiDB keeps members without blanks at their end.
            named = tuple(string_value(text).rstrip(" ") for text in texts)
            result[folded_name(found[at - 1].name)] = named if is_plain else ()
    return result


def known_members(history: Iterable[TableDefinition]) -> Members:
    """Return the members that a table's statements leave; a column not shown is missing.

    `history`: what was read of the table in order, after what was read of the table that it was
    made LIKE.
    """
    known: dict[str, tuple[str, ...]] = {}
    for each in history:
        if creates_as_listed(each):
            known.clear()
        renamed = statement_of(each.query).renamed
        there = {folded_name(column.name) for column in each.columns}
        moved = {new: known[old] for new, old in renamed.items() if old in known}
        known = {
            name: found for name, found in known.items() if name not in renamed.values()
        } | moved
        known |= members(each.query)
        # Its name may come back as a column of another kind.
        known = {name: found for name, found in known.items() if name in there or not each.columns}
    return known
