"""Clauses of a DDL that MySQL or MariaDB need in another form than TiDB. Each rule returns edits of the statement's text. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from storage_consumer.ddl.statement import Edit, Statement
from storage_consumer.downstream.existing_names import PartNames
from storage_consumer.sql.column_parts import INDEX_WORDS, column_parts, is_name, is_text, type_end
from storage_consumer.sql.tokens import Token, closing, find_words, has_words, tokens

SOURCE_COLLATIONS = {
    "utf8mb4": "utf8mb4_bin",
    "utf8": "utf8_bin",
    "utf8mb3": "utf8_bin",
    "latin1": "latin1_bin",
    "ascii": "ascii_bin",
    "binary": "binary",
    "gbk": "gbk_chinese_ci",
    "gb18030": "gb18030_chinese_ci",
}
"""TiDB's default collation of each of its charsets."""
MARIADB_COLLATIONS = {"utf8mb4_0900_ai_ci": "utf8mb4_uca1400_nopad_ai_ci", "utf8mb4_0900_bin": "utf8mb4_nopad_bin"}
_THREE_BYTES = ("utf8mb3_", "utf8_")
"""How collations of utf8mb3 begin on newer servers, and how all servers know them: MySQL has the former since 8.0.30, MariaDB since 10.6."""


def _says_charset(found: Sequence[Token], start: int, end: int, depth: int) -> bool:
    """Return whether tokens [start, end) at this depth name a charset or a collation."""
    part = [t for t in found[start:end] if t.depth == depth]
    return any(t.upper in ("COLLATE", "CHARSET") for t in part) or find_words(part, "CHARACTER", "SET") >= 0


def database_defaults(statement: Statement) -> list[Edit]:
    """Write utf8mb4_bin into a CREATE DATABASE that names no charset and no collation."""
    found = statement.found
    if find_words(found[:2], "CREATE", "DATABASE") != 0 and find_words(found[:2], "CREATE", "SCHEMA") != 0:
        return []
    if _says_charset(found, 0, len(found), 0):
        return []
    return [(found[-1].end, found[-1].end, " CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")]


def table_defaults(statement: Statement) -> list[Edit]:
    """Write the source's defaults into a CREATE TABLE that names none, if the target's database has others."""
    found, (_, end) = statement.found, statement.body
    wanted = statement.source_collation
    if end < 0 or statement.collation in (None, "", wanted) or _says_charset(found, end, len(found), 0):
        return []
    return [(found[end].end, found[end].end, f" DEFAULT CHARACTER SET {wanted.partition('_')[0]} COLLATE {wanted}")]


def source_collation(statements: Iterable[str], server_type: str) -> str:
    """Return the source's default collation of the database that these statements created and changed, by the target's name for it."""
    collation = "utf8mb4_bin"
    for found in map(tokens, statements):
        named = _named_collation(found)
        # A database that was created again starts afresh; an ALTER that names no collation leaves it.
        if named or has_words(found[:1], "CREATE"):
            collation = named or "utf8mb4_bin"
    return MARIADB_COLLATIONS.get(collation, collation) if server_type == "mariadb" else collation


def _named_collation(found: Sequence[Token]) -> str:
    """Return the collation that a database's statement names, or the default one of the charset that it names, or ""."""
    named = of_charset = ""
    for at, token in enumerate(found[:-1]):
        value = _value_after(found, at)
        if token.upper == "COLLATE" and value is not None:
            named = _unquoted(value).replace(*_THREE_BYTES)
        elif _announces_charset(found, at) and value is not None:
            of_charset = SOURCE_COLLATIONS.get(_unquoted(value), "")
    return named or of_charset


def _announces_charset(found: Sequence[Token], at: int) -> bool:
    """Return whether a charset's name follows: after CHARSET, and after CHARACTER SET."""
    return found[at].upper == "CHARSET" or has_words(found[max(at - 1, 0) : at + 1], "CHARACTER", "SET")


def _value_after(found: Sequence[Token], at: int) -> Token | None:
    """Return the token after a word, with or without an equals sign between them."""
    at += 1
    at += at < len(found) and found[at].text == "="
    return found[at] if at < len(found) else None


def _unquoted(value: Token) -> str:
    return value.name.strip("'\"").lower()


def charsets(statement: Statement) -> list[Edit]:
    """Write the source's default collation after each charset that has no collation."""
    edits: list[Edit] = []
    found = [] if has_words(statement.found, "VIEW") or _collated_elsewhere(statement) else statement.found
    for index, token in enumerate(found):
        charset = _value_after(found, index) if _announces_charset(found, index) else None
        collation = SOURCE_COLLATIONS.get(_unquoted(charset)) if charset is not None else None
        # A COLLATE may be on either side of the charset.
        if (
            charset is not None
            and collation
            and not _is_cast(found[:index], token.depth)
            and not (_collated(found[index + 1 :], token.depth) or _collated(found[index::-1], token.depth))
        ):
            # `CHARACTER SET x BINARY` means the collation x_bin, which takes the place of BINARY.
            following = find_words(found[: index + 4], "BINARY", start=index + 1)
            behind = found[following] if following > 0 else charset
            by_bytes = f"{_unquoted(charset)}_bin" if following > 0 and _unquoted(charset) != "binary" else collation
            edits.append((charset.end, behind.end, f" COLLATE {by_bytes.replace(*_THREE_BYTES)}"))
    return edits


def _collated_elsewhere(statement: Statement) -> bool:
    """Return whether ALTER TABLE has its table's charset and collation in two parts: ``CHARACTER SET = x, COLLATE = y``."""
    starts = [statement.found[first : first + 2] for first, _ in statement.parts]
    begins = [start[start[0].upper == "DEFAULT" :] for start in starts if start]
    return len(begins) > 1 and any(has_words(begin[:1], "COLLATE") for begin in begins)


def new_columns(statement: Statement) -> list[Edit]:
    """Write the former collation of the table into columns that ALTER TABLE adds while it changes that collation, as TiDB has it."""
    former = (statement.names or PartNames()).collation
    found = statement.found
    starts = [found[first : first + 3] for first, last in statement.parts if first < last]
    begins = [start[start[0].upper == "DEFAULT" :] for start in starts]
    changes = any(
        has_words(one[:1], "COLLATE") or has_words(one[:1], "CHARSET") or has_words(one[:2], "CHARACTER", "SET")
        for one in begins
    )
    # TiDB and the others differ only where the same statement also changes the table's collation.
    if not former or not changes or statement.body[1] >= 0:
        return []
    added = [part for part in statement.parts if has_words(found[part[0] : part[0] + 1], "ADD")]
    edits: list[Edit] = []
    for _, _, column in column_parts(found, added):
        if len(column) > 1 and is_text(column) and not _says_charset(column, 0, len(column), column[0].depth):
            at = column[type_end(column) - 1].end
            edits.append((at, at, f" CHARACTER SET {former.partition('_')[0]} COLLATE {former}"))
    return edits


def _is_cast(found: Sequence[Token], depth: int) -> bool:
    """Return whether the clause that follows these tokens is the type of a CAST, which may name a charset but no collation."""
    for token in reversed(found):
        if token.depth < depth or (token.depth == depth and token.text == ","):
            return False
        if token.depth == depth and token.upper == "AS":
            return True
    return False


def _collated(found: Sequence[Token], depth: int) -> bool:
    """Return whether the rest of the clause has a COLLATE, up to the next comma or parenthesis at its depth."""
    for token in found:
        if token.depth < depth or (token.depth == depth and token.kind == "symbol" and token.text in ",)"):
            return False
        if token.depth == depth and token.upper == "COLLATE":
            return True
    return False


def index_options(statement: Statement) -> list[Edit]:
    """Take ALGORITHM and LOCK off the end of CREATE INDEX and DROP INDEX."""
    found = statement.found
    if not any(has_words(found[:3], word) for word in INDEX_WORDS) or found[0].upper not in ("CREATE", "DROP"):
        return []
    edits: list[Edit] = []
    for at, token in enumerate(found[:-1]):
        if token.upper in ("ALGORITHM", "LOCK") and token.depth == 0 and not is_name(found, at):
            value = min(at + 1 + (found[at + 1].text == "="), len(found) - 1)
            edits.append((token.start, found[value].end, ""))
    return edits


def checks(statement: Statement) -> list[Edit]:
    """Take CHECK constraints off columns, with their name and a following [NOT] ENFORCED."""
    found = statement.found
    edits: list[Edit] = []
    for at, token in enumerate(found[:-1]):
        if token.upper != "CHECK" or found[at + 1].text != "(" or not has_words(found[:4], "TABLE"):
            continue
        first, last = at, closing(found, at + 1) + 1
        while (
            last < len(found)
            and found[last].upper in ("NOT", "ENFORCED")
            and has_words(found[last : last + 2], "ENFORCED")
        ):
            last += 1
        # CONSTRAINT may come before it, with or without a name.
        first -= 1 if found[first - 1].upper == "CONSTRAINT" else 2 if found[first - 2].upper == "CONSTRAINT" else 0
        edits.append((found[first].start, found[last - 1].end, ""))
    return edits


def vectors(statement: Statement) -> list[Edit]:
    """Write LONGTEXT for VECTOR as a column's type, directly after the column's name."""
    found = statement.found
    edits: list[Edit] = []
    for at in range(1, len(found)):
        # TiCDC quotes names, so a bare VECTOR behind a quoted name is its type.
        if found[at].upper == "VECTOR" and found[at - 1].kind == "quoted":
            sized = at + 1 < len(found) and found[at + 1].text == "("
            edits.append((found[at].start, found[closing(found, at + 1) if sized else at].end, "LONGTEXT"))
    return edits


def sequences(statement: Statement) -> list[Edit]:
    """Take away DEFAULT NEXTVAL(...) and DEFAULT NEXT VALUE FOR ..., with or without parentheses."""
    found = statement.found
    edits: list[Edit] = []
    for at in range(len(found) - 2):
        # SET DEFAULT is left out as a whole action; see `omissions`.
        if found[at].upper != "DEFAULT" or (at and found[at - 1].upper == "SET"):
            continue
        opened = at + 1 + (found[at + 1].text == "(")
        if found[opened].upper == "NEXTVAL":
            last = closing(found, opened + 1)
        elif has_words(found[opened : opened + 3], "NEXT", "VALUE", "FOR"):
            last = opened + 3 + (2 if len(found) > opened + 4 and found[opened + 4].text == "." else 0)
        else:
            continue
        # With parentheses around it, the clause ends with the outer one.
        last = closing(found, at + 1) if opened > at + 1 else last
        edits.append((found[at].start, found[last].end, ""))
    return edits


def generated_not_null(statement: Statement) -> list[Edit]:
    """Take NOT NULL and NULL off generated columns."""
    edits: list[Edit] = []
    for _, _, column in column_parts(statement.found, statement.parts):
        at = find_words(column, "AS", "(")
        end = closing(column, at + 1) if at > 1 else len(column)
        for number in range(end + 1, len(column)):
            if column[number].upper == "NULL" and column[number].depth == column[0].depth:
                first = number - has_words(column[number - 1 : number], "NOT")
                edits.append((column[first].start, column[number].end, ""))
    return edits


def invisible(statement: Statement) -> list[Edit]:
    """Write IGNORED for INVISIBLE, after an index's name in ALTER INDEX or after its columns."""
    found = statement.found
    words = {"INVISIBLE": "IGNORED", "VISIBLE": "NOT IGNORED"}
    return [
        (token.start, token.end, words[token.upper])
        for at, (before, token) in enumerate(pairwise(found), 1)
        if token.upper in words and before.text not in ("(", ",") and not is_name(found, at)
    ]


def collations(statement: Statement) -> list[Edit]:
    """Write MariaDB's own collations for those that it does not know."""
    return [
        (start, end, MARIADB_COLLATIONS[name]) for start, end, name in _named(statement) if name in MARIADB_COLLATIONS
    ]


def three_bytes(statement: Statement) -> list[Edit]:
    """Write the collations of utf8mb3 by the names that all servers know."""
    named = _named(statement)
    return [(start, end, name.replace(*_THREE_BYTES)) for start, end, name in named if name.startswith(_THREE_BYTES[0])]


def _named(statement: Statement) -> list[Edit]:
    """Return the places of the collations that a statement names, each with its name."""
    found = statement.found
    values = [_value_after(found, at) for at, token in enumerate(found) if token.upper == "COLLATE"]
    return [(value.start, value.end, _unquoted(value)) for value in values if value is not None]


def default_partition(statement: Statement) -> list[Edit]:
    """Write DEFAULT for VALUES IN (DEFAULT), and for a list with DEFAULT in it, whose other values it includes anyway."""
    found = statement.found
    edits: list[Edit] = []
    at = find_words(found, "VALUES", "IN", "(")
    while at >= 0:
        end = closing(found, at + 2)
        if any(token.upper == "DEFAULT" and token.depth == found[at].depth + 1 for token in found[at + 3 : end]):
            edits.append((found[at].start, found[end].end, "DEFAULT"))
        at = find_words(found, "VALUES", "IN", "(", start=at + 3)
    return edits
