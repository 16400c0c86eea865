"""Charsets and collations: the source's, by the names that the target has for them. Each rule returns edits of the text. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from storage_consumer.ddl.statement import Targeted
from storage_consumer.sql.statement import Edit, Statement, statement_of
from storage_consumer.sql.tokens import Token, has_words

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
_CHARSET = "{CHARSET|CHARACTER SET}"
_EITHER = f"COLLATE|{_CHARSET}"


def database_defaults(statement: Targeted) -> Iterator[Edit]:
    """Write utf8mb4_bin into a CREATE DATABASE that names no charset and no collation."""
    end = statement.tokens[-1].end
    if statement.head in (("CREATE", "DATABASE"), ("CREATE", "SCHEMA")) and not statement.find(_EITHER, depth=0):
        yield end, end, " CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"


def table_defaults(statement: Targeted) -> Iterator[Edit]:
    """Write the source's defaults into a CREATE TABLE that names none, if the target's database has others."""
    wanted, end = statement.source_collation, statement.body[1]
    if (
        statement.creates
        and statement.collation not in (None, "", wanted)
        and not statement.find(_EITHER, end, depth=0)
    ):
        at = statement.tokens[end].end
        yield at, at, f" DEFAULT CHARACTER SET {wanted.partition('_')[0]} COLLATE {wanted}"


def source_collation(statements: Iterable[str], server_type: str) -> str:
    """Return the source's default collation of the database that these statements created and changed, by the target's name for it."""
    collation = "utf8mb4_bin"
    for each in map(statement_of, statements):
        named = [name.replace(*_THREE_BYTES) for _, name in _collations(each)]
        named = named or [SOURCE_COLLATIONS.get(_charset(each, at), "") for at in each.find(_CHARSET + " [=] any")]
        # A database that was created again starts afresh; an ALTER that names no collation leaves it.
        if "".join(named[-1:]) or each.head[:1] == ("CREATE",):
            collation = "".join(named[-1:]) or "utf8mb4_bin"
    return MARIADB_COLLATIONS.get(collation, collation) if server_type == "mariadb" else collation


def _charset(statement: Statement, at: tuple[int, int]) -> str:
    return _unquoted(statement.tokens[at[1] - 1])


def _unquoted(value: Token) -> str:
    return value.name.strip("'\"").lower()


def _collations(statement: Statement) -> Iterator[tuple[int, str]]:
    """Yield the collations that a statement names, each with its index."""
    for _, last in statement.find("COLLATE [=] any"):
        yield last - 1, _unquoted(statement.tokens[last - 1])


def charsets(statement: Targeted) -> Iterator[Edit]:
    """Write the source's default collation after each charset that has no collation."""
    found = statement.tokens
    if has_words(found, "VIEW") or _collated_elsewhere(statement):
        return
    for first, last in statement.find(_CHARSET + " [=] any"):
        charset = _charset(statement, (first, last))
        depth, collation = found[first].depth, SOURCE_COLLATIONS.get(charset)
        # A COLLATE may be on either side of the charset.
        collated = _collated(found[first + 1 :], depth) or _collated(found[first::-1], depth)
        if not collation or _is_cast(found[:first], depth) or collated:
            continue
        # `CHARACTER SET x BINARY` means the collation x_bin, which takes the place of BINARY.
        binary = has_words(found[last : last + 1], "BINARY")
        by_bytes = f"{charset}_bin" if binary and charset != "binary" else collation
        yield found[last - 1].end, found[last - 1 + binary].end, f" COLLATE {by_bytes.replace(*_THREE_BYTES)}"


def _collated_elsewhere(statement: Targeted) -> bool:
    """Return whether ALTER TABLE has its table's charset and collation in two parts: ``CHARACTER SET = x, COLLATE = y``."""
    return len(statement.parts) > 1 and any(
        statement.begins(first, "[DEFAULT] COLLATE") for first, _ in statement.parts
    )


def new_columns(statement: Targeted) -> Iterator[Edit]:
    """Write the former collation of the table into columns that ALTER TABLE adds while it changes that collation, as TiDB has it."""
    former = statement.there.collation
    # TiDB and the others differ only where the same statement also changes the table's collation.
    changes = any(statement.begins(first, f"[DEFAULT] {{{_EITHER}}}") for first, _ in statement.parts)
    if not former or statement.creates or not changes:
        return
    for column in statement.columns:
        found, depth = column.tokens, column.tokens[0].depth
        end = column.first + len(found)
        if column.verb == "ADD" and column.is_text and not statement.find(_EITHER, column.first, end, depth):
            at = statement.tokens[statement.type_end(column) - 1].end
            yield at, at, f" CHARACTER SET {former.partition('_')[0]} COLLATE {former}"


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
        if token.depth < depth or (token.depth == depth and token.upper in (",", ")")):
            return False
        if token.depth == depth and token.upper == "COLLATE":
            return True
    return False


def collations(statement: Targeted) -> Iterator[Edit]:
    """Write MariaDB's own collations for those that it does not know."""
    for at, name in _collations(statement):
        if name in MARIADB_COLLATIONS:
            yield statement.edit(at, at + 1, MARIADB_COLLATIONS[name])


def three_bytes(statement: Targeted) -> Iterator[Edit]:
    """Write the collations of utf8mb3 by the names that all servers know."""
    for at, name in _collations(statement):
        if name.startswith(_THREE_BYTES[0]):
            yield statement.edit(at, at + 1, name.replace(*_THREE_BYTES))
