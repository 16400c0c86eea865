"""What SHOW CREATE TABLE shows → columns, as TiCDC's schema files describe them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from storage_consumer.model import TableColumn, folded_name
from storage_consumer.sql.column_parts import NAMES, column_parts
from storage_consumer.sql.tokens import Token, closing, elements, find_words, has_words, tokens

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
"""Type → what a schema file says of its length if the statement gives none, for signed and for unsigned columns."""
_MOMENTS = frozenset(("DATETIME", "TIMESTAMP", "TIME"))
"""Their digits of a second's fraction are the scale."""
_WITHOUT_LENGTH = frozenset(("ENUM", "SET", "JSON", "DATE", "VECTOR"))
_NAME_AND_TYPE = 2
_ALWAYS_UNSIGNED = frozenset(("BIT", "YEAR"))
_BINARY = ("_bin", "binary")
"""How the names of collations end that compare bytes."""
_ESCAPE = re.compile(r"\\(.)|''", re.DOTALL)
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


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
        return tuple(column for column in self.columns if folded_name(column.name) not in self.generated)


def is_temporary(statement: str) -> bool:
    """Return whether a statement creates a temporary table."""
    found = tokens(statement)
    return has_words(found[: max(find_words(found[:4], "TABLE"), 0)], "TEMPORARY")


def read_create_table(statement: str) -> CreatedTable:
    """Return what a statement as SHOW CREATE TABLE gives it says. Raise `ValueError` if it is none."""
    found = tokens(statement)
    # mydumper writes IF NOT EXISTS for some.
    at = 2 + 3 * has_words(found[2:5], "IF", "NOT", "EXISTS")
    if not has_words(found[:2], "CREATE", "TABLE") or at + 1 >= len(found) or found[at].kind not in NAMES:
        raise ValueError("it is not a CREATE TABLE")
    parts = elements(found, at + 1, _end_of(found, at + 1))
    defined = [part for _, _, part in column_parts(found, parts)]
    if not defined or any(len(part) < _NAME_AND_TYPE for part in defined):
        raise ValueError("it defines no columns with types")
    key = _primary_key(found, parts)
    return CreatedTable(
        name=found[at].name,
        columns=tuple(_column(statement, part, key) for part in defined),
        generated=frozenset(folded_name(part[0].name) for part in defined if _is_generated(part)),
    )


def _primary_key(found: Sequence[Token], parts: Sequence[tuple[int, int]]) -> frozenset[str]:
    """Return the folded names of the primary key's columns; those of a key that a column's own definition gives are not among them."""
    for first, last in parts:
        part = found[first:last]
        if has_words(part[:4], "PRIMARY", "KEY") and part[0].kind == "word":
            opening = find_words(part, "(")
            if opening < 0:
                raise ValueError("its primary key has no columns")
            columns = elements(part, opening, closing(part, opening))
            return frozenset(folded_name(part[begin].name) for begin, _ in columns)
    return frozenset()


def unique_keys(statement: str) -> tuple[dict[str, int | None], ...]:
    """Return the primary and unique keys of a statement as SHOW CREATE TABLE gives it; raise `ValueError` if it is none.

    Each is its columns, by folded name, with the number of leading characters that count, None for all. A part over an expression has
    no name.
    """
    found = tokens(statement)
    opening = find_words(found, "(")
    parts = elements(found, opening, _end_of(found, opening))
    own: list[dict[str, int | None]] = [
        {folded_name(part[0].name): None}
        for _, _, part in column_parts(found, parts)
        if _is_unique([token for token in part[1:] if token.depth == part[0].depth])
    ]
    return *own, *(key for first, last in parts if (key := _unique_key(found[first:last])) is not None)


def index_count(statement: str) -> int:
    """Return how many indexes any server has of a statement as SHOW CREATE TABLE gives it; raise `ValueError` if it is none."""
    found = tokens(statement)
    opening = find_words(found, "(")
    parts = elements(found, opening, _end_of(found, opening))
    plain = sum(found[first].kind == "word" and found[first].upper in ("KEY", "INDEX") for first, _ in parts)
    return len(unique_keys(statement)) + plain


def binary_columns(statement: str) -> frozenset[str]:
    """Return the folded names of the columns whose texts a statement compares by their bytes: it names a collation that does.

    TiDB shows the collation of each table, and those of the columns that have another one. Raises `ValueError` as `unique_keys` does.
    """
    found = tokens(statement)
    opening = find_words(found, "(")
    end = _end_of(found, opening)
    usual = _collation(found[end:])
    columns = {folded_name(part[0].name): part for _, _, part in column_parts(found, elements(found, opening, end))}
    return frozenset(name for name, part in columns.items() if (_collation(part) or usual).endswith(_BINARY))


def _collation(found: Sequence[Token]) -> str:
    """Return the collation that is named, outside of parentheses, in lower case; empty if none is."""
    at = find_words(found, "COLLATE", depth=found[0].depth) if found else -1
    if at < 0:
        return ""
    named = [token for token in found[at + 1 : at + 3] if token.text != "="]
    return named[0].name.lower() if named else ""


def _end_of(found: Sequence[Token], opening: int) -> int:
    """Return where the list of columns and keys ends that begins at `opening`; raise `ValueError` if it has no end, or does not begin there."""
    end = closing(found, opening) if opening > 0 and found[opening].text == "(" else -1
    if end < 0:
        raise ValueError("its list of columns has no end")
    return end


def _is_unique(options: Sequence[Token]) -> bool:
    return has_words(options, "PRIMARY", "KEY") or any(token.upper == "UNIQUE" for token in options)


def _unique_key(part: Sequence[Token]) -> dict[str, int | None] | None:
    """Return the columns of a key that stands behind the columns; None if it is none, or not unique."""
    if not part or part[0].kind != "word" or part[0].upper not in ("PRIMARY", "UNIQUE", "CONSTRAINT"):
        return None
    opening = find_words(part, "(")
    if opening < 0 or not any(token.upper in ("PRIMARY", "UNIQUE") for token in part[:opening] if token.kind == "word"):
        return None
    return dict(_key_part(part[a:b]) for a, b in elements(part, opening, closing(part, opening)))


def _key_part(part: Sequence[Token]) -> tuple[str, int | None]:
    if not part or part[0].kind not in NAMES:
        return "", None
    length = part[2].text if has_words(part[1:2], "(") else ""
    return folded_name(part[0].name), int(length) if length.isdecimal() else None


def _is_generated(part: Sequence[Token]) -> bool:
    """Return whether a column's definition has AS with an expression."""
    return any(
        token.upper == "AS" and token.depth == part[0].depth and part[at + 1].text == "("
        for at, token in enumerate(part[:-1])
    )


def _column(statement: str, part: Sequence[Token], key: frozenset[str]) -> TableColumn:
    """Return the column that a definition describes."""
    kind, depth = part[1].upper, part[0].depth
    options = [token for token in part[2:] if token.depth == depth]
    unsigned = has_words(options, "UNSIGNED") or kind in _ALWAYS_UNSIGNED
    given = _arguments(part)
    numbers = [int(token.text) for token in given if token.text.isdecimal()]
    precision, scale = _lengths(kind, numbers, unsigned=unsigned)
    is_pk = folded_name(part[0].name) in key or has_words(options, "PRIMARY", "KEY")
    return TableColumn(
        name=part[0].name,
        type=kind,
        unsigned=unsigned,
        precision=precision,
        scale=scale,
        nullable=not (is_pk or has_words(options, "NOT", "NULL")),
        is_pk=is_pk,
        default=_default(statement, part),
        elements=tuple(string_value(token.text) for token in given if token.kind == "string"),
    )


def _arguments(part: Sequence[Token]) -> Sequence[Token]:
    """Return the tokens in the parentheses after a column's type."""
    return part[3 : closing(part, 2)] if has_words(part[2:3], "(") else ()


def _lengths(kind: str, numbers: Sequence[int], *, unsigned: bool) -> tuple[int | None, int | None]:
    """Return precision and scale as a schema file has them; `numbers`: those after the type."""
    if kind in _MOMENTS:
        return None, (numbers[0] or None) if numbers else None
    if kind in _WITHOUT_LENGTH:
        return None, None
    usual = _WIDTHS.get(kind, (None, None))[unsigned]
    precision = numbers[0] if numbers else usual
    scale = numbers[1] if len(numbers) > 1 else 0 if kind == "DECIMAL" else None
    return precision, scale


def _default(statement: str, part: Sequence[Token]) -> str | None:
    """Return a column's default as TiDB keeps it, but that of a TIMESTAMP as the statement shows it; None if it has none."""
    at = next((i for i, token in enumerate(part) if token.upper == "DEFAULT" and token.depth == part[0].depth), -1)
    if not 0 <= at < len(part) - 1:
        return None
    value, behind = part[at + 1], part[at + 2 : at + 3]
    if value.kind == "string":
        return string_value(value.text)
    if value.upper in ("B", "X") and behind and behind[0].kind == "string":
        digits = behind[0].text[1:-1]
        number = int(digits or "0", 2 if value.upper == "B" else 16)
        return number.to_bytes((number.bit_length() + 7) // 8, "big").decode("utf-8", "replace")
    if value.text == "(":
        return statement[value.end : part[closing(part, at + 1)].start]
    if value.text == "-" and behind:
        return f"-{behind[0].text}"
    return None if value.upper == "NULL" else value.upper


def string_value(literal: str) -> str:
    """Return the value of a string literal in single quotes."""
    return _ESCAPE.sub(lambda match: "'" if match[1] is None else _ESCAPED.get(match[1], match[1]), literal[1:-1])
