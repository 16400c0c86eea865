"""Columns: charsets, collations, options, defaults and expressions as each server reads them.

Each rule returns edits of the text. Pure.

Rows carry the values of stored generated columns, so these are compared when rows are written (see
`apply_rows.compare`). No file has those of virtual ones: only an expression that was tried on all
servers gives the source's value for certain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from storage_consumer.decode.values import INTEGER_TYPES, TEXT_TYPES, from_utc, occurs_twice
from storage_consumer.errors import NotReplicable
from storage_consumer.model import TableColumn, folded_name
from storage_consumer.sql.statement import Column, Edit, Statement, column_at, statement_of
from storage_consumer.sql.tokens import Token, find_words, has_words
from storage_consumer.target.ddl.edits import (
    Targeted,
    everywhere,
    in_column,
    in_columns,
    index_columns,
)
from storage_consumer.target.ddl.index_rules import STARTS

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
MARIADB_COLLATIONS = {
    "utf8mb4_0900_ai_ci": "utf8mb4_uca1400_nopad_ai_ci",
    "utf8mb4_0900_bin": "utf8mb4_nopad_bin",
}
_THREE_BYTES = ("utf8mb3_", "utf8_")
"""Prefixes of utf8mb3 collations: new (MySQL from 8.0.30, MariaDB from 10.6), and known to all."""
_CHARSET = "{CHARSET|CHARACTER SET}"
_EITHER = f"COLLATE|{_CHARSET}"


def database_defaults(statement: Targeted) -> Iterator[Edit]:
    """Write utf8mb4_bin into a CREATE DATABASE that names no charset and no collation."""
    end = statement.tokens[-1].end
    if statement.head in (("CREATE", "DATABASE"), ("CREATE", "SCHEMA")) and not statement.find(
        _EITHER, depth=0
    ):
        yield end, end, " CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"


def table_defaults(statement: Targeted) -> Iterator[Edit]:
    """Write the source's defaults into a CREATE TABLE without any, if the target's differ."""
    wanted, end = statement.source_collation, statement.body[1]
    if (
        statement.creates
        and statement.collation not in (None, "", wanted)
        and not statement.find(_EITHER, end, depth=0)
    ):
        at = statement.tokens[end].end
        yield at, at, f" DEFAULT CHARACTER SET {wanted.partition('_')[0]} COLLATE {wanted}"


def source_collation(statements: Iterable[str], server_type: str) -> str:
    """Return the default collation that these statements leave the database, by its name here."""
    collation = "utf8mb4_bin"
    for each in map(statement_of, statements):
        named = [name.replace(*_THREE_BYTES) for _, name in _collations(each)]
        named = named or [
            SOURCE_COLLATIONS.get(_charset(each, at), "") for at in each.find(_CHARSET + " [=] any")
        ]
        # A database created again starts afresh; an ALTER without a collation leaves it.
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
    parts = statement.parts
    # ALTER TABLE may name both in two parts: ``CHARACTER SET = x, COLLATE = y``.
    is_apart = len(parts) > 1 and any(
        statement.begins(first, "[DEFAULT] COLLATE") for first, _ in parts
    )
    if is_apart or has_words(found, "VIEW"):
        return
    for first, last in statement.find(_CHARSET + " [=] any"):
        charset = _charset(statement, (first, last))
        depth, collation = found[first].depth, SOURCE_COLLATIONS.get(charset)
        # A COLLATE may be on either side of the charset.
        collated = any(
            _comes("COLLATE", each, depth, ",)") for each in (found[first + 1 :], found[first::-1])
        )
        # The type of a CAST may name a charset, but no collation.
        if (
            not collation
            or collated
            or (first and _comes("AS", found[first - 1 :: -1], depth, ","))
        ):
            continue
        # `CHARACTER SET x BINARY` means the collation x_bin, which takes the place of BINARY.
        binary = has_words(found[last : last + 1], "BINARY")
        by_bytes = f"{charset}_bin" if binary and charset != "binary" else collation
        yield (
            found[last - 1].end,
            found[last - 1 + binary].end,
            f" COLLATE {by_bytes.replace(*_THREE_BYTES)}",
        )


def new_columns(statement: Targeted) -> Iterator[Edit]:
    """Give columns the table's former collation if the ALTER TABLE changes it, as TiDB does."""
    former = statement.there.collation
    # TiDB and the others differ only where the same statement also changes the table's collation.
    changes = any(
        statement.begins(first, f"[DEFAULT] {{{_EITHER}}}") for first, _ in statement.parts
    )
    if not former or statement.creates or not changes:
        return
    for column in statement.columns:
        found, depth = column.tokens, column.tokens[0].depth
        end = column.first + len(found)
        if (
            column.verb == "ADD"
            and column.is_text
            and not statement.find(_EITHER, column.first, end, depth)
        ):
            at = statement.tokens[statement.type_end(column) - 1].end
            yield at, at, f" CHARACTER SET {former.partition('_')[0]} COLLATE {former}"


def _comes(word: str, found: Sequence[Token], depth: int, ends: str) -> bool:
    """Find a word up to the end of the tokens' parenthesis or one of `ends` at its depth."""
    for token in found:
        if token.depth < depth or (token.depth == depth and token.text in ends):
            return False
        if token.depth == depth and token.upper == word:
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


_MEMBERS = ("ENUM", "SET")
_INTEGERS = INTEGER_TYPES | {"YEAR"}
_BASES = {"X": 16, "B": 2}
_NUMBER = re.compile(r"\d{1,20}", re.ASCII)
_DIGITS = {"X": re.compile(r"[0-9A-Fa-f]{1,16}"), "B": re.compile(r"[01]{1,64}")}
"""At most 64 bits: a longer value is no default of these types."""
_RANDOM = frozenset(("RAND", "UUID", "UUID_SHORT", "UUID_V4", "UUID_V7", "RANDOM_BYTES"))
_SORTS: Mapping[str, str] = {
    **dict.fromkeys(INTEGER_TYPES, "integer"),
    **dict.fromkeys(TEXT_TYPES, "text"),
    "DATE": "day",
}
_ANY = frozenset(("integer", "text", "day"))
PROVEN: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(
        ("+", "-", "*", "%", "DIV", "MOD", "ABS", "GREATEST", "LEAST"), frozenset(("integer",))
    ),
    **dict.fromkeys(("REVERSE", "TRIM"), frozenset(("text",))),
    # Of a text these count its bytes, which are UTF-8 in TiDB whatever its character set is.
    **dict.fromkeys(("CRC32", "LENGTH"), frozenset(("integer", "day"))),
    **dict.fromkeys(("YEAR", "MONTH", "DAYOFMONTH", "LAST_DAY", "TO_DAYS"), frozenset(("day",))),
    **dict.fromkeys(
        ("CHAR_LENGTH", "COALESCE", "CONCAT", "IFNULL", "LEFT", "RIGHT", "SUBSTRING"), _ANY
    ),
}
"""Function or operator → column sorts for which tests show equal values on all servers."""

# options

storage = in_columns("{COLUMN_FORMAT|STORAGE|SECONDARY_ENGINE_ATTRIBUTE} [=] any")
references = in_columns(
    "REFERENCES any [. any] [( )] [MATCH any] {ON any {CASCADE|RESTRICT|SET NULL|SET DEFAULT|NO ACTION}}*"
)
"""TiDB creates no foreign key for it, newer servers do."""
vectors = everywhere("quoted <VECTOR [( )]>", "LONGTEXT")
"""TiCDC quotes names, so a bare VECTOR behind a quoted name is its type."""
_checks = everywhere("[CONSTRAINT [name]] CHECK ( ) [[NOT] ENFORCED]")


def checks(statement: Targeted) -> Iterable[Edit]:
    """Take CHECK constraints off columns, with their name and a following [NOT] ENFORCED."""
    return _checks(statement) if has_words(statement.tokens[:4], "TABLE") else ()


def counters(statement: Targeted) -> Iterator[Edit]:
    """Remove AUTO_INCREMENT from a new table's column that begins no index, as others require."""
    # Only the first column of an index counts for AUTO_INCREMENT.
    indexed = {
        folded_name(name)
        for part in statement.elements
        if part and part[0].upper in STARTS
        for name in index_columns(part)[:1]
    }
    for column in statement.columns if statement.creates else ():
        if folded_name(column.name) in indexed or in_column(
            statement, column, "INDEX|KEY|PRIMARY|UNIQUE"
        ):
            continue
        yield from statement.without(in_column(statement, column, "AUTO_INCREMENT"))


def generated_not_null(statement: Targeted) -> Iterator[Edit]:
    """Take NOT NULL and NULL off generated columns."""
    for column in statement.columns:
        if (end := column.generated[1]) > 0:
            yield from statement.without(in_column(statement, column, "[NOT] NULL", end))


def json_not_null(statement: Targeted) -> Iterator[Edit]:
    """Give an added NOT NULL JSON column TiDB's and MySQL's default, which existing rows get."""
    for column in _added(statement):
        found = column.tokens
        has_value = has_words(found, "DEFAULT") or has_words(found, "AS")
        if column.type == "JSON" and has_words(found, "NOT", "NULL") and not has_value:
            yield found[1].end, found[1].end, " DEFAULT 'null'"


def random_default(statement: Targeted) -> str:
    """Return the added column whose random default fills existing rows; "" if there is none."""
    for column in _added(statement):
        if has_words(column.tokens, "DEFAULT") and _RANDOM & {
            token.upper for token in column.tokens
        }:
            return column.name
    return ""


def _added(statement: Targeted) -> list[Column]:
    return [column for column in statement.columns if column.verb == "ADD"]


# defaults


def timestamps(statement: Targeted) -> Iterator[Edit]:
    """Write UTC defaults of TIMESTAMP columns, from the schema file, in our session's time zone.

    Raise `NotReplicable` for a default in the hour that occurs twice when daylight saving time
    ends.
    """
    known = {folded_name(column.name): column for column in statement.stored}
    for each in statement.columns:
        column, literal = known.get(folded_name(each.name)), _time(each.tokens)
        if (
            column is None
            or column.type != "TIMESTAMP"
            or column.default is None
            or literal is None
        ):
            continue
        try:
            # What is no time in the schema file cannot be converted; then the text stays.
            right = from_utc(statement.zone, column.default)
        except ValueError:
            continue
        if occurs_twice(statement.zone, right):
            raise NotReplicable(
                f"{statement.table}: the default of {each.name} is {column.default} in UTC, {right} in {statement.zone}, "
                "where that hour occurs twice: the target might read it as the other one"
            )
        # An equal text stays untouched, so that most statements run as they were stored.
        if right != literal.text.strip("'"):
            yield literal.start, literal.end, f"'{right}'"


def _time(column: Sequence[Token]) -> Token | None:
    """Return the time after DEFAULT, a string or number with or without an introducer, or None."""
    at = find_words(column, "DEFAULT")
    for token in column[at + 1 : at + 3] if at >= 0 else ():
        if not token.upper.startswith("_") and token.upper != "TIMESTAMP":
            return token if token.kind == "string" or token.text.isdecimal() else None
    return None


def values(statement: Targeted) -> Iterator[Edit]:
    """Write a default as its column's value: ENUM and SET members, decimals for integers."""
    for column in statement.columns:
        listed = column.arguments if column.type in _MEMBERS else ()
        members = [token.text[1:-1] for token in listed if token.kind == "string"]
        for at in column.defaults():
            yield from _edit(column.type, members, column.tokens[at:])
    stored = {folded_name(one.name): one for one in statement.stored}
    for part in statement.elements:
        value, name = set_default(part), column_at(part)
        if value and name >= 0 and (one := stored.get(folded_name(part[name].name))):
            # The schema file has plain members; `_members` wants them as between quotes.
            members = [member.replace("'", "''").replace("\\", "\\\\") for member in one.elements]
            yield from _edit(one.type, members, value)


def set_default(part: Sequence[Token]) -> Sequence[Token] | None:
    """Return what follows ALTER COLUMN … SET DEFAULT, None for any other part."""
    at = find_words(part, "SET", "DEFAULT")
    return part[at + 2 :] if at > 0 and part[0].upper == "ALTER" else None


def sets_text(part: Sequence[Token], columns: Sequence[TableColumn]) -> bool:
    """Return whether a part sets the default of a TEXT or BLOB; rows come with their values."""
    if set_default(part) is None or (at := column_at(part)) < 0:
        return False
    name = folded_name(part[at].name)
    return any(folded_name(column.name) == name and _is_long(column.type) for column in columns)


def _edit(kind: str, members: Sequence[str], found: Sequence[Token]) -> Iterator[Edit]:
    """Yield the edit of the default that `found` begins with, for this column type, if needed."""
    text, base, new = found[0].text, found[0].upper, None
    # A number such as `1.5` is several adjacent tokens; the first alone means nothing.
    is_whole = len(found) < 2 or found[1].text != "." or found[1].start > found[0].end  # noqa: PLR2004 - a token and the next
    number = int(text) if _NUMBER.fullmatch(text) and is_whole else None
    if members and number is not None and kind == "ENUM":
        new = f"'{members[number - 1]}'" if 0 < number <= len(members) else None
    elif members and number is not None:
        # A SET's number has one bit for each member, the first one lowest.
        chosen = ",".join(member for bit, member in enumerate(members) if number >> bit & 1)
        new = f"'{chosen}'" if number < 1 << len(members) else None
    elif kind == "YEAR" and number == 0:
        new = "2000"  # TiDB reads the digit as a text
    elif kind in _INTEGERS and base in _BASES and len(found) > 1 and found[1].kind == "string":
        digits = found[1].text.strip("'\"")
        new = str(int(digits, _BASES[base])) if _DIGITS[base].fullmatch(digits) else None
    if new is not None:
        yield found[0].start, found[base in _BASES].end, new


def texts(statement: Targeted) -> Iterator[Edit]:
    """Put a TEXT or BLOB default in parentheses, which MySQL requires; it forgets an empty one."""
    for column in statement.columns:
        for at in column.defaults() if _is_long(column.type) else ():
            # With or without an introducer.
            string = at + column.tokens[at].upper.startswith("_")
            if string < len(column.tokens) and column.tokens[string].kind == "string":
                yield (
                    column.tokens[at].start,
                    column.tokens[string].end,
                    f"({column.tokens[string].text})",
                )


def _is_long(kind: str) -> bool:
    """Return whether a column of this type is a TEXT or a BLOB, or becomes one."""
    return kind.endswith(("TEXT", "BLOB")) or kind in ("JSON", "VECTOR")


def sequences(statement: Targeted) -> Iterator[Edit]:
    """Remove DEFAULT NEXTVAL(...) and DEFAULT NEXT VALUE FOR ..., parenthesized or not."""
    found = statement.tokens
    value = "NEXTVAL ( )|NEXT VALUE FOR any [. any]"
    for first, last in statement.find(f"DEFAULT {{( )|{value}}}"):
        is_sequence = found[first + 1].text != "(" or _begins_sequence(found[first + 2 : last])
        # SET DEFAULT is left out as a whole action; see `catalogue`.
        if is_sequence and not (first and found[first - 1].upper == "SET"):
            yield statement.edit(first, last)


def _begins_sequence(found: Sequence[Token]) -> bool:
    return has_words(found[:1], "NEXTVAL") or has_words(found[:3], "NEXT", "VALUE", "FOR")


def sets_sequence(part: Sequence[Token]) -> bool:
    """Return whether a part is ALTER COLUMN … SET DEFAULT with a value of a sequence."""
    value = set_default(part)
    return value is not None and has_words(value[:1], "(") and _begins_sequence(value[1:])


# expressions


def vector_texts(statement: Targeted) -> Iterator[Edit]:
    """Write the text of a vector instead of VEC_FROM_TEXT of it."""
    for first, last in statement.find("VEC_FROM_TEXT ("):
        if first and statement.tokens[first - 1].text == "(":
            yield statement.edit(first, last, "(")


def random_bytes(statement: Targeted) -> Iterator[Edit]:
    """Write MariaDB's way to make random bytes instead of UUID_TO_BIN of a random UUID."""
    for first, last in statement.find("UUID_TO_BIN ( )"):
        if has_words(statement.tokens[first + 2 : first + 5], "UUID", "(", ")"):
            yield statement.edit(first, last, "UNHEX(REPLACE(UUID(), '-', ''))")


def dates(statement: Targeted) -> Iterator[Edit]:
    """Add English to a generated column's DATE_FORMAT: MariaDB refuses a session's language."""
    is_generated = has_words(statement.tokens, "GENERATED", "ALWAYS")
    for first, last in statement.find("DATE_FORMAT ( )") if is_generated else ():
        commas = statement.find(",", first, last, statement.tokens[first].depth + 1)
        # With a third argument the language is there already.
        if len(commas) == 1:
            end = statement.tokens[last - 1].start
            yield end, end, ", 'en_US'"


def json_casts(statement: Targeted) -> Iterator[Edit]:
    """Make a generated column cast JSON unquoted: MariaDB keeps quotes, which cast to 0."""
    for column in statement.columns:
        opening, end = column.generated
        for first, last in statement.find(
            "JSON_EXTRACT ( )", column.first + opening, column.first + end
        ):
            if has_words(statement.tokens[first - 2 : first], "CAST", "("):
                start, stop, _ = statement.edit(first, last)
                yield start, start, "JSON_UNQUOTE("
                yield stop, stop, ")"


def introducers(statement: Targeted) -> Iterator[Edit]:
    """Remove ``_UTF8MB4`` in expressions: it means the target's default collation.

    The session's collation is the source's.

    A default, a partition's value or a comment that is only a string has no collation of its own;
    it stays.
    """
    found = statement.tokens
    # In a view a string may be anywhere in the SELECT.
    places = [(0, len(found))] if has_words(found, "VIEW") else _expressions(statement)
    for first, last in places:
        yield from statement.without(statement.find("<_UTF8MB4> text", first, last))


def _expressions(statement: Targeted) -> Iterator[tuple[int, int]]:
    """Yield ranges [first, last): generated columns, defaults in parentheses, index expressions."""
    found, end = statement.tokens, 0
    for first, last in statement.find("( )"):
        before = found[first - 1] if first else found[first]
        of_index = before.upper in ("(", ",") and before.depth <= found[first].depth
        if first and first >= end and (of_index or before.upper in ("AS", "DEFAULT")):
            end = last
            yield first, last


def virtual_columns(statement: Targeted) -> list[str]:
    """Return the virtual columns of a statement whose expression is not in `PROVEN`."""
    sorts = {folded_name(column.name): _SORTS.get(column.type, "") for column in statement.stored}
    return [
        column.name
        for column in statement.columns
        if (at := column.generated)[0] > 0
        and not column.is_stored
        and not _is_proven(column.tokens[at[0] + 1 : at[1]], sorts)
    ]


def _is_proven(expression: Sequence[Token], sorts: Mapping[str, str]) -> bool:
    """Return whether an expression has only literals, columns, and what is proven for these."""
    used: set[str] = set()
    allowed: set[str] = set()
    for at, token in enumerate(expression):
        is_called = token.kind == "word" and has_words(expression[at + 1 : at + 2], "(")
        # A statement that is stored as it was typed may have names without quotes.
        if token.kind == "quoted" or (not is_called and folded_name(token.name) in sorts):
            used.add(sorts.get(folded_name(token.name), ""))
            continue
        is_named = (
            token.kind == "word" and not token.upper.startswith("_") and not token.upper.isdigit()
        )
        if is_named or (token.kind == "symbol" and token.text not in "(),"):
            allowed.add(token.upper)
    return all(name in PROVEN and used <= PROVEN[name] for name in allowed) and "" not in used
