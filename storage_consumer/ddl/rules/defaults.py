"""Defaults and expressions that a server reads differently from TiDB, or not at all. Each rule returns edits of the text. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from storage_consumer.ddl.statement import Edit, Statement
from storage_consumer.decode.values import INTEGER_TYPES
from storage_consumer.model import folded_name
from storage_consumer.sql.column_parts import column_at, column_parts
from storage_consumer.sql.tokens import Token, closing, find_words, has_words

_MEMBERS = ("ENUM", "SET")
_INTEGERS = INTEGER_TYPES | {"YEAR"}
_BASES = {"X": 16, "B": 2}
_NUMBER = re.compile(r"\d{1,20}", re.ASCII)
_DIGITS = {"X": re.compile(r"[0-9A-Fa-f]{1,16}"), "B": re.compile(r"[01]{1,64}")}
"""At most 64 bits: a longer value is no default of these types."""
_RANDOM_BYTES = "UNHEX(REPLACE(UUID(), '-', ''))"
_ENGLISH = ", 'en_US'"


def values(statement: Statement) -> list[Edit]:
    """Write a default as a value of its column: a number of an ENUM or SET as members, hexadecimals of an integer as decimals."""
    edits: list[Edit] = []
    for _, _, column in column_parts(statement.found, statement.parts):
        kind = column[1].upper if len(column) > 1 else ""
        is_listed = kind in _MEMBERS and column[2:3] and column[2].text == "("
        members = _listed(column) if is_listed else []
        for at in _defaults(column):
            edits += _edit(kind, members, column[at:])
    for first, last in statement.parts:
        edits += _set_default(statement, statement.found[first:last])
    return edits


def _listed(column: Sequence[Token]) -> list[str]:
    """Return the members of an ENUM or SET as they are between their quotes."""
    return [token.text[1:-1] for token in column[3 : closing(column, 2)] if token.kind == "string"]


def _edit(kind: str, members: Sequence[str], found: Sequence[Token]) -> Iterator[Edit]:
    """Yield the edit of the default at the beginning of `found`, for a column of this type."""
    if (text := _value_of(kind, members, found)) is not None:
        yield found[0].start, found[found[0].upper in _BASES].end, text


def _set_default(statement: Statement, part: Sequence[Token]) -> Iterator[Edit]:
    """Yield the same edit for ALTER COLUMN … SET DEFAULT, whose column is in the schema file."""
    at = find_words(part, "SET", "DEFAULT") + 2
    if at <= 2 or part[0].upper != "ALTER" or at >= len(part) or (name := column_at(part)) < 0:  # noqa: PLR2004 - found after a column's name
        return
    stored = next((one for one in statement.columns if folded_name(one.name) == folded_name(part[name].name)), None)
    # The schema file has members as they are, `_members` wants them as they are between quotes.
    members = [member.replace("'", "''").replace("\\", "\\\\") for member in stored.elements] if stored else []
    if stored is not None:
        yield from _edit(stored.type, members, part[at:])


def _defaults(column: Sequence[Token]) -> Iterator[int]:
    """Yield the indexes of the values after DEFAULT."""
    for at in range(2, len(column) - 1):
        if column[at].upper == "DEFAULT" and column[at].depth == column[0].depth:
            yield at + 1


def _value_of(kind: str, members: Sequence[str], found: Sequence[Token]) -> str | None:
    """Return what replaces a default, or None if it can stay."""
    text = found[0].text
    # A number such as `1.5` is several tokens without space between them; its first one alone means nothing.
    is_whole = len(found) < 2 or found[1].text != "." or found[1].start > found[0].end  # noqa: PLR2004 - a token and the next
    number = int(text) if _NUMBER.fullmatch(text) and is_whole else None
    if members and number is not None:
        return _members(kind, number, members)
    if kind == "YEAR" and number == 0:
        return "2000"  # TiDB reads the digit as a text
    if kind in _INTEGERS and found[0].upper in _BASES and len(found) > 1 and found[1].kind == "string":
        digits, base = found[1].text.strip("'\""), found[0].upper
        return str(int(digits, _BASES[base])) if _DIGITS[base].fullmatch(digits) else None
    return None


def _members(kind: str, number: int, members: Sequence[str]) -> str | None:
    """Return the members that a number means, as a literal; None if it means none."""
    if kind == "ENUM":
        return f"'{members[number - 1]}'" if 0 < number <= len(members) else None
    # A SET's number has one bit for each member, the first one lowest.
    chosen = [member for bit, member in enumerate(members) if number >> bit & 1]
    return "'" + ",".join(chosen) + "'" if number < 1 << len(members) else None


def texts(statement: Statement) -> list[Edit]:
    """Put the default of a TEXT or BLOB in parentheses: MySQL takes no other, and forgets an empty one."""
    columns = (column for _, _, column in column_parts(statement.found, statement.parts))
    long = [column for column in columns if len(column) > 1 and is_long(column[1].upper)]
    return [edit for column in long for at in _defaults(column) for edit in _in_parentheses(column[at:])]


def _in_parentheses(found: Sequence[Token]) -> Iterator[Edit]:
    """Yield the edit of the text at the beginning of `found`, with or without an introducer."""
    string = int(found[0].upper.startswith("_"))
    if string < len(found) and found[string].kind == "string":
        yield found[0].start, found[string].end, f"({found[string].text})"


def is_long(kind: str) -> bool:
    """Return whether a column of this type is a TEXT or a BLOB, or becomes one."""
    return kind.endswith(("TEXT", "BLOB")) or kind in ("JSON", "VECTOR")


def vectors(statement: Statement) -> list[Edit]:
    """Write the text of a vector instead of VEC_FROM_TEXT of it."""
    found = statement.found
    return [
        (found[at].start, found[at + 1].end, "(") for at in _calls(found, "VEC_FROM_TEXT") if found[at - 1].text == "("
    ]


def random_bytes(statement: Statement) -> list[Edit]:
    """Write MariaDB's way to make random bytes instead of UUID_TO_BIN of a random UUID."""
    found = statement.found
    return [
        (found[at].start, found[closing(found, at + 1)].end, _RANDOM_BYTES)
        for at in _calls(found, "UUID_TO_BIN")
        if has_words(found[at + 2 : at + 5], "UUID", "(", ")")
    ]


def dates(statement: Statement) -> list[Edit]:
    """Write English into DATE_FORMAT of a generated column, as TiDB has it: MariaDB keeps none that depends on a session's language."""
    found = statement.found
    edits: list[Edit] = []
    if find_words(found, "GENERATED", "ALWAYS") < 0:
        return edits
    for at in _calls(found, "DATE_FORMAT"):
        end = closing(found, at + 1)
        commas = sum(token.text == "," and token.depth == found[at].depth + 1 for token in found[at + 2 : end])
        # With a third argument the language is there already.
        edits += [(found[end].start, found[end].start, _ENGLISH)] if commas == 1 else []
    return edits


def _calls(found: Sequence[Token], name: str) -> Iterator[int]:
    """Yield the indexes where a function is called."""
    for at in range(1, len(found) - 2):
        if found[at].upper == name and found[at + 1].text == "(" and closing(found, at + 1) > 0:
            yield at
