"""Clauses inside a DDL that MySQL or MariaDB need otherwise than TiDB: each rule gives edits of the statement's text. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from storage_consumer.sql_text import Token, closing, find_words, has_words, tokens
from storage_consumer.target.column_parts import INDEX_WORDS, is_name
from storage_consumer.target.parts import Edit, Statement

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
MARIADB_COLLATIONS = {"utf8mb4_0900_ai_ci": "utf8mb4_uca1400_nopad_ai_ci", "utf8mb4_0900_bin": "utf8mb4_nopad_bin"}


def _says_charset(found: Sequence[Token], start: int, end: int, depth: int) -> bool:
    """Whether tokens [start, end) at this depth name a charset or a collation."""
    part = [t for t in found[start:end] if t.depth == depth]
    return any(t.upper in ("COLLATE", "CHARSET") for t in part) or find_words(part, "CHARACTER", "SET") >= 0


def database_defaults(statement: Statement) -> list[Edit]:
    """utf8mb4_bin for a new database that says nothing."""
    found = statement.found
    if find_words(found[:2], "CREATE", "DATABASE") != 0 and find_words(found[:2], "CREATE", "SCHEMA") != 0:
        return []
    if _says_charset(found, 0, len(found), 0):
        return []
    return [(found[-1].end, found[-1].end, " CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")]


def table_defaults(statement: Statement) -> list[Edit]:
    """The source's defaults for a new table that says nothing, where the target's database has others."""
    found, (_, end) = statement.found, statement.body
    wanted = statement.source_collation
    if end < 0 or statement.collation in (None, wanted) or _says_charset(found, end, len(found), 0):
        return []
    return [(found[end].end, found[end].end, f" DEFAULT CHARACTER SET {wanted.partition('_')[0]} COLLATE {wanted}")]


def source_collation(statements: Iterable[str], flavor: str) -> str:
    """Default collation at the source of the database that these statements made and changed, by the target's name for it."""
    collation = "utf8mb4_bin"
    for found in map(tokens, statements):
        named = _named_collation(found)
        if named or has_words(found[:1], "CREATE"):
            collation = named or "utf8mb4_bin"
    return MARIADB_COLLATIONS.get(collation, collation) if flavor == "mariadb" else collation


def _named_collation(found: Sequence[Token]) -> str:
    """The collation that a database's statement names, or that of the charset that it names; empty if it names none."""
    named = of_charset = ""
    for at, token in enumerate(found[:-1]):
        value = _value_after(found, at)
        if token.upper == "COLLATE" and value is not None:
            named = _unquoted(value)
        elif _announces_charset(found, at) and value is not None:
            of_charset = SOURCE_COLLATIONS.get(_unquoted(value), "")
    return named or of_charset


def _announces_charset(found: Sequence[Token], at: int) -> bool:
    """Whether the charset's name follows: behind CHARSET, and behind CHARACTER SET."""
    return found[at].upper == "CHARSET" or has_words(found[max(at - 1, 0) : at + 1], "CHARACTER", "SET")


def _value_after(found: Sequence[Token], at: int) -> Token | None:
    """What follows a word, an equals sign in between or not."""
    at += 1
    at += at < len(found) and found[at].text == "="
    return found[at] if at < len(found) else None


def _unquoted(value: Token) -> str:
    return value.name.strip("'\"").lower()


def charsets(statement: Statement) -> list[Edit]:
    """The source's default collation after each charset that stands without one."""
    edits: list[Edit] = []
    found = [] if has_words(statement.found, "VIEW") else statement.found
    for index, token in enumerate(found):
        charset = _value_after(found, index) if _announces_charset(found, index) else None
        collation = SOURCE_COLLATIONS.get(_unquoted(charset)) if charset is not None else None
        if (
            charset is not None
            and collation
            and not _is_cast(found[:index], token.depth)
            and not (_collated(found[index + 1 :], token.depth) or _collated(found[index::-1], token.depth))
        ):
            edits.append((charset.end, charset.end, f" COLLATE {collation}"))
    return edits


def _is_cast(found: Sequence[Token], depth: int) -> bool:
    """Whether the clause that these tokens begin is the type of a CAST, which may name a charset but no collation."""
    for token in reversed(found):
        if token.depth < depth or (token.depth == depth and token.text == ","):
            return False
        if token.depth == depth and token.upper == "AS":
            return True
    return False


def _collated(found: Sequence[Token], depth: int) -> bool:
    """Whether a COLLATE stands in the rest of the clause: up to the next comma or parenthesis at its depth."""
    for token in found:
        if token.depth < depth or (token.depth == depth and token.kind == "symbol" and token.text in ",)"):
            return False
        if token.depth == depth and token.upper == "COLLATE":
            return True
    return False


def engine(statement: Statement) -> list[Edit]:
    """InnoDB for any other engine."""
    if not has_words(statement.found[:4], "TABLE"):
        return []
    edits: list[Edit] = []
    for at, token in enumerate(statement.found[:-1]):
        if token.upper != "ENGINE" or token.depth or is_name(statement.found, at):
            continue
        value = statement.found[min(at + 1 + (statement.found[at + 1].text == "="), len(statement.found) - 1)]
        if value.name.strip("'\"").casefold() != "innodb":
            edits.append((value.start, value.end, "InnoDB"))
    return edits


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
    """Take CHECK constraints off columns: with their name, and with ENFORCED behind them."""
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
        first -= 1 if found[first - 1].upper == "CONSTRAINT" else 2 if found[first - 2].upper == "CONSTRAINT" else 0
        edits.append((found[first].start, found[last - 1].end, ""))
    return edits


def vectors(statement: Statement) -> list[Edit]:
    """LONGTEXT for VECTOR as a column's type: right behind the column's name."""
    found = statement.found
    edits: list[Edit] = []
    for at in range(1, len(found)):
        if found[at].upper == "VECTOR" and found[at - 1].kind == "quoted":
            sized = at + 1 < len(found) and found[at + 1].text == "("
            edits.append((found[at].start, found[closing(found, at + 1) if sized else at].end, "LONGTEXT"))
    return edits


def sequences(statement: Statement) -> list[Edit]:
    """Take DEFAULT NEXTVAL(...) and DEFAULT NEXT VALUE FOR ... away."""
    found = statement.found
    edits: list[Edit] = []
    for at in range(len(found) - 2):
        if found[at].upper != "DEFAULT":
            continue
        if found[at + 1].upper == "NEXTVAL":
            edits.append((found[at].start, found[closing(found, at + 2)].end, ""))
        elif find_words(found, "NEXT", "VALUE", "FOR", start=at + 1) == at + 1:
            last = at + 4 + (2 if len(found) > at + 5 and found[at + 5].text == "." else 0)
            edits.append((found[at].start, found[last].end, ""))
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


def generated_not_null(statement: Statement) -> list[Edit]:
    """Take NOT NULL off generated columns."""
    return [(start, end, "") for start, end in _after_generated(statement.found, "NOT", "NULL")]


def generated_primary_key(statement: Statement) -> list[Edit]:
    """Make a primary key on one generated column a unique key."""
    return [(start, end, "UNIQUE KEY") for start, end in _after_generated(statement.found, "PRIMARY", "KEY")]


def invisible(statement: Statement) -> list[Edit]:
    """IGNORED for INVISIBLE: behind an index's name in ALTER INDEX, or behind its columns."""
    found = statement.found
    words = {"INVISIBLE": "IGNORED", "VISIBLE": "NOT IGNORED"}
    return [
        (token.start, token.end, words[token.upper])
        for at, (before, token) in enumerate(pairwise(found), 1)
        if token.upper in words and before.text not in ("(", ",") and not is_name(found, at)
    ]


def collations(statement: Statement) -> list[Edit]:
    """MariaDB's collations for those that it does not know."""
    return [
        (token.start, token.end, MARIADB_COLLATIONS[token.name.strip("'\"").casefold()])
        for before, token in pairwise(statement.found)
        if token.name.strip("'\"").casefold() in MARIADB_COLLATIONS and before.text.upper() in ("COLLATE", "=")
    ]


def default_partition(statement: Statement) -> list[Edit]:
    """DEFAULT for VALUES IN (DEFAULT)."""
    found = statement.found
    at = find_words(found, "VALUES", "IN", "(", "DEFAULT", ")")
    return [(found[at].start, found[at + 4].end, "DEFAULT")] if at >= 0 else []
