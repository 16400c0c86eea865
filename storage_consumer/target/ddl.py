"""A DDL of the source to the statement to run on this target, or the reason not to run one. Pure.

The original text runs whenever it can. What is put in or taken out, and why, is listed in `DIFFERENCES`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from storage_consumer.errors import NotReplicable
from storage_consumer.model import TableColumn, TableDefinition
from storage_consumer.sql_text import Token, closing, elements, find_words, quote, replace_spans, tokens

DIFFERENCES = {
    "database defaults": "CREATE DATABASE that names no charset or collation means utf8mb4_bin at the source; written in.",
    "table defaults": "CREATE TABLE in a database with other defaults: the source's charset and collation are written in.",
    "charset without collation": "CHARACTER SET x alone means the source's default collation of x, not the target's; written in.",
    "expression index": "MariaDB has no indexes over expressions; an ordinary one means nothing for rows and is left out.",
    "generated NOT NULL": "MariaDB knows no NOT NULL on generated columns; the expression decides anyway; left out.",
    "generated primary key": "MariaDB takes no primary key on a generated column; a unique key does the same for rows.",
}

SOURCE_COLLATIONS = {
    "utf8mb4": "utf8mb4_bin",
    "utf8": "utf8_bin",
    "utf8mb3": "utf8mb3_bin",
    "latin1": "latin1_bin",
    "ascii": "ascii_bin",
    "binary": "binary",
    "gbk": "gbk_chinese_ci",
    "gb18030": "gb18030_chinese_ci",
}
"""TiDB's default collation of each of its charsets."""

Edit = tuple[int, int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlAction:
    """What to do for one DDL."""

    statement: str
    """To be run; empty where nothing is to be done."""
    schema: str
    """Default database for the statement, empty for none."""
    notes: tuple[str, ...] = ()
    """What was changed in the original text, or why it is not run."""


def action_for(definition: TableDefinition, flavor: str, collation: str | None) -> DdlAction:
    """What to do for a statement on a server of this flavor (``mariadb``, ``mysql``, ``tidb``).

    `collation`: the default collation of the statement's database on the target, None if it is not known or not there.
    """
    query = definition.query.strip().rstrip(";").strip()
    found = tokens(query)
    if _is_bare(found):
        return DdlAction(statement="", schema="", notes=("an ALTER TABLE without any action",))
    edits: list[Edit] = []
    notes: list[str] = []

    def note(name: str, made: Sequence[Edit]) -> None:
        if made:
            edits.extend(made)
            notes.append(name)

    if flavor != "tidb":
        note("database defaults", _database_defaults(found))
        note("table defaults", _table_defaults(found, collation))
        note("charset without collation", _charsets(found))
    if flavor == "mariadb":
        body = _create_body(found)
        note("expression index", _expression_indexes(found, body))
        note("generated NOT NULL", _generated_not_null(found))
        note("generated primary key", _generated_primary_key(found))
    schema = definition.name.schema if definition.name.table else ""
    return DdlAction(statement=replace_spans(query, edits), schema=schema, notes=tuple(notes))


def _is_bare(found: Sequence[Token]) -> bool:
    """``ALTER TABLE `t` `` with nothing after the name."""
    if len(found) not in (3, 5) or (found[0].upper, found[1].upper) != ("ALTER", "TABLE"):
        return False
    return len(found) == 3 or found[3].text == "."  # noqa: PLR2004 - with the database's name before the table's


def _says_charset(found: Sequence[Token], start: int, end: int, depth: int) -> bool:
    """Whether tokens [start, end) at this depth name a charset or a collation."""
    part = [t for t in found[start:end] if t.depth == depth]
    return any(t.upper in ("COLLATE", "CHARSET") for t in part) or find_words(part, "CHARACTER", "SET") >= 0


def _database_defaults(found: Sequence[Token]) -> list[Edit]:
    """utf8mb4_bin for a new database that says nothing."""
    if find_words(found[:2], "CREATE", "DATABASE") != 0 and find_words(found[:2], "CREATE", "SCHEMA") != 0:
        return []
    if _says_charset(found, 0, len(found), 0):
        return []
    return [(found[-1].end, found[-1].end, " CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")]


def _create_body(found: Sequence[Token]) -> tuple[int, int]:
    """Indexes of the parentheses around the columns of a CREATE TABLE, (-1, -1) for any other statement."""
    if not found or found[0].upper != "CREATE" or find_words(found[:3], "TABLE") < 0:
        return -1, -1
    opening = next((i for i, t in enumerate(found) if t.kind == "symbol" and t.text == "("), -1)
    if opening < 0 or found[opening + 1].upper == "LIKE":
        return -1, -1
    return opening, closing(found, opening)


def _table_defaults(found: Sequence[Token], collation: str | None) -> list[Edit]:
    """The source's defaults for a new table that says nothing, where the target's database has others."""
    _, end = _create_body(found)
    if end < 0 or collation in (None, "utf8mb4_bin") or _says_charset(found, end, len(found), 0):
        return []
    return [(found[end].end, found[end].end, " DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")]


def _charsets(found: Sequence[Token]) -> list[Edit]:
    """The source's default collation after each charset that stands without one."""
    edits: list[Edit] = []
    for index, token in enumerate(found):
        after_character = token.upper == "SET" and index and found[index - 1].upper == "CHARACTER"
        if not after_character and token.upper != "CHARSET":
            continue
        at = index + 1
        at += at < len(found) and found[at].text == "="
        collation = SOURCE_COLLATIONS.get(found[at].name.strip("'\"").lower()) if at < len(found) else None
        if collation and not (_collated(found[at + 1 :], token.depth) or _collated(found[index::-1], token.depth)):
            edits.append((found[at].end, found[at].end, f" COLLATE {collation}"))
    return edits


def _collated(found: Sequence[Token], depth: int) -> bool:
    """Whether a COLLATE stands in the rest of the clause: up to the next comma or parenthesis at its depth."""
    for token in found:
        if token.depth < depth or (token.depth == depth and token.kind == "symbol" and token.text in ",)"):
            return False
        if token.depth == depth and token.upper == "COLLATE":
            return True
    return False


def _expression_indexes(found: Sequence[Token], body: tuple[int, int]) -> list[Edit]:
    """Take index definitions over expressions out of a CREATE TABLE."""
    opening, end = body
    if end < 0:
        return []
    edits: list[Edit] = []
    for first, last in elements(found, opening, end):
        starts = found[first].upper in ("INDEX", "KEY", "UNIQUE", "FULLTEXT")
        if starts and any(
            a.text in ("(", ",") and b.text == "("
            for a, b in zip(found[first:last], found[first + 1 : last], strict=False)
        ):
            edits.append((found[first - 1].start, found[last - 1].end, ""))
    return edits


def _after_generated(found: Sequence[Token], first: str, second: str) -> list[tuple[int, int]]:
    """Where the two words follow one another in the rest of a generated column's definition: (start, end) in the text."""
    places: list[tuple[int, int]] = []
    at = find_words(found, "GENERATED", "ALWAYS", "AS")
    while at >= 0:
        opening = at + 3
        for token, following in pairwise(found[closing(found, opening) + 1 :]):
            if token.depth < found[at].depth or (token.depth == found[at].depth and token.text == ","):
                break
            if token.upper == first and following.upper == second:
                places.append((token.start, following.end))
        at = find_words(found, "GENERATED", "ALWAYS", "AS", start=opening)
    return places


def _generated_not_null(found: Sequence[Token]) -> list[Edit]:
    """Take NOT NULL off generated columns."""
    return [(start, end, "") for start, end in _after_generated(found, "NOT", "NULL")]


def _generated_primary_key(found: Sequence[Token]) -> list[Edit]:
    """Make a primary key on one generated column a unique key."""
    return [(start, end, "UNIQUE KEY") for start, end in _after_generated(found, "PRIMARY", "KEY")]


# a table from a schema file without a statement

_LENGTHS = frozenset(("CHAR", "VARCHAR", "BINARY", "VARBINARY", "BIT"))
_SCALES = frozenset(("DATETIME", "TIMESTAMP", "TIME"))


def create_from_columns(definition: TableDefinition, escape: Callable[[str], str]) -> str:
    """CREATE TABLE from a structure without a statement.

    A schema file knows no indexes but the primary key, no defaults that can be trusted, no charset, no comment. Raises
    `NotReplicable` for a column whose type it does not tell well enough.
    """
    columns = [
        _column(definition, column, escape) for column in definition.columns if not column.name.startswith("_V$_")
    ]
    key = [quote(column.name) for column in definition.columns if column.is_pk]
    parts = columns + ([f"PRIMARY KEY ({', '.join(key)})"] if key else [])
    options = "DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
    return f"CREATE TABLE {quote(definition.name.table)} ({', '.join(parts)}) {options}"


def _column(definition: TableDefinition, column: TableColumn, escape: Callable[[str], str]) -> str:
    """One column's definition."""
    text = column.type
    if column.type in ("ENUM", "SET"):
        if not column.elements:
            message = (
                f"{definition.name}.{column.name}: {definition.path} does not list the members of this {column.type}"
            )
            raise NotReplicable(message)
        text += "(" + ",".join(f"'{escape(member)}'" for member in column.elements) + ")"
    elif column.type in _LENGTHS and column.precision is not None:
        text += f"({column.precision})"
    elif column.type in _SCALES and column.scale:
        text += f"({column.scale})"
    elif column.type == "DECIMAL":
        text += f"({column.precision or 10},{column.scale or 0})"
    elif column.type == "VAR_STRING":
        text = f"VARCHAR({column.precision or 255})"
    if column.unsigned and column.type not in ("BIT", "YEAR"):
        text += " UNSIGNED"
    null = " NOT NULL" if not column.nullable or column.is_pk else " NULL"
    return f"{quote(column.name)} {text}{null}"
