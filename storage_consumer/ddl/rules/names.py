"""What TiDB words or names in its own way. Each rule returns edits of the statement's text. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from storage_consumer.ddl.rules.index_options import opening_without_name, over_expression
from storage_consumer.ddl.statement import Edit, Statement, index_columns
from storage_consumer.downstream.existing_names import PartNames
from storage_consumer.model import folded_name
from storage_consumer.sql.column_parts import INDEX_WORDS, column_parts
from storage_consumer.sql.tokens import Token, closing, find_words, has_words, makes_global_index, quote

_NAME_LENGTH = 64
_RANDOM = frozenset(("RAND", "UUID", "UUID_SHORT", "UUID_V4", "UUID_V7", "RANDOM_BYTES"))


def validation(statement: Statement) -> list[Edit]:
    """Take WITH or WITHOUT VALIDATION off EXCHANGE PARTITION."""
    return [
        (before.start, token.end, "")
        for before, token in pairwise(statement.found)
        if token.upper == "VALIDATION" and before.upper in ("WITH", "WITHOUT")
    ]


# names


def index_names(statement: Statement) -> list[Edit]:
    """Write TiDB's name for an unnamed index over an expression: MySQL would choose another one."""
    there = statement.names or PartNames()
    # TiDB counts on from the names that the table and the statement have already.
    taken = set(there.indexes) | {folded_name(token.name) for token in _explicit_names(statement)}
    edits: list[Edit] = []
    for first, last in statement.parts:
        part = statement.found[first:last]
        if (at := opening_without_name(part)) < 0 or not over_expression(part):
            continue
        in_front = index_columns(part[at:])
        # TiDB calls it `expression_index` in CREATE TABLE. ALTER TABLE names it after a column that comes first.
        base = "expression_index" if statement.body[1] >= 0 or part[at + 1].text == "(" else in_front[0]
        name, number = base, 1
        while folded_name(name) in taken:
            number += 1
            name = f"{base}_{number}"
        taken.add(folded_name(name))
        edits.append((part[at].start, part[at].start, f" {quote(name)}"))
    return edits


def _explicit_names(statement: Statement) -> Iterator[Token]:
    """Yield the names of the indexes that a statement defines."""
    for first, last in statement.parts:
        part = statement.found[first:last]
        for at, (before, token) in enumerate(pairwise(part), 1):
            bare = token.kind == "word" and token.upper not in INDEX_WORDS and has_words(part[at + 1 : at + 2], "(")
            if before.upper in (*INDEX_WORDS, "UNIQUE") and (token.kind == "quoted" or bare):
                yield token


def foreign_key_names(statement: Statement) -> list[Edit]:
    """Give each foreign key a name that no other table's key has, and that still contains TiDB's name for it."""
    there, found = statement.names or PartNames(), statement.found
    edits: list[Edit] = []
    numbers = [int(key.rpartition("_")[2]) for key in there.foreign_keys if key.rpartition("_")[2].isdecimal()]
    # TiDB counts all foreign keys of a table, and names an unnamed one by its number. The names show how far it has come.
    number = max([len(there.foreign_keys), *numbers])
    for first, last in statement.parts:
        at = find_words(found[:last], "FOREIGN", "KEY", start=first)
        if at < 0 or at + 2 >= last or found[first].upper == "DROP":
            edits += _dropped(found[first:last], statement)
            continue
        number += 1
        own = found[at - 1]
        # A name of its own stays unless another table of the database has it.
        if at > first + 1 and found[at - 2].upper == "CONSTRAINT":
            if folded_name(own.name) in there.other_foreign_keys:
                edits.append((own.start, own.end, quote(_with_table(statement, own.name))))
            continue
        index = "" if found[at + 2].text == "(" else found[at + 2].name
        name = _with_table(statement, index or f"fk_{number}")
        start = own.start if at > first and own.upper == "CONSTRAINT" else found[at].start
        edits.append((start, found[at].start, f"CONSTRAINT {quote(name)} "))
    return edits


def _dropped(part: Sequence[Token], statement: Statement) -> list[Edit]:
    """Write the target's name into DROP FOREIGN KEY."""
    named = foreign_key_dropped(part)
    own = "" if named is None else name_there(named.name, statement)
    return [(named.start, named.end, quote(own))] if named and own and own != folded_name(named.name) else []


def foreign_key_dropped(part: Sequence[Token]) -> Token | None:
    """Return the name in DROP FOREIGN KEY, None for any other part."""
    if [token.upper for token in part[:3]] != ["DROP", "FOREIGN", "KEY"]:
        return None
    return part[-1]


def name_there(name: str, statement: Statement) -> str:
    """Return a foreign key's folded name on the target, or "" if it does not exist.

    Its prefix is the table's name at the time the key was created. If several keys may be meant, return the name as it was given. The
    target does not know that one, and a refusal is better than dropping the wrong key.
    """
    keys, own = (statement.names or PartNames()).foreign_keys, folded_name(name)
    exact = next((key for key in (own, folded_name(_with_table(statement, name))) if key in keys), "")
    alike = [key for key in keys if key.endswith(f"_{own}")]
    return exact or (own if len(alike) > 1 else "".join(alike))


def _with_table(statement: Statement, name: str) -> str:
    return f"{statement.table[: max(1, _NAME_LENGTH - 1 - len(name))]}_{name}"[:_NAME_LENGTH]


# conditions


def conditions(statement: Statement) -> list[Edit]:
    """Take IF EXISTS and IF NOT EXISTS off parts of ALTER TABLE and off indexes: the source knew that the condition holds."""
    found = statement.found
    of_index = found[0].upper in ("CREATE", "DROP") and any(has_words(found[:3], word) for word in INDEX_WORDS)
    if not of_index and find_words(found[:2], "ALTER", "TABLE") != 0:
        return []
    edits: list[Edit] = []
    for at, token in enumerate(found[:-1]):
        if token.upper == "IF" and token.depth == 0:
            last = at + 2 if found[at + 1].upper == "NOT" else at + 1
            if last < len(found) and found[last].upper == "EXISTS":
                edits.append((token.start, found[last].end, ""))
    return edits


def table_is_new(statement: Statement) -> list[Edit]:
    """Take IF NOT EXISTS off CREATE TABLE: the source created the table, so one that exists here is another."""
    found = statement.found
    if find_words(found[:5], "CREATE", "TABLE", "IF", "NOT", "EXISTS") != 0 or len(found) < 6:  # noqa: PLR2004 - and a name
        return []
    return [(found[2].start, found[5].start, "")]


def condition_fails(part: Sequence[Token], there: PartNames | None) -> bool:
    """Return whether a part of ALTER TABLE has IF [NOT] EXISTS, and the target shows that the source had nothing to do."""
    at = max(find_words(part, "IF", "EXISTS"), find_words(part, "IF", "NOT", "EXISTS"))  # not the function IF()
    if there is None or not 0 < at < len(part) - 1 or part[0].upper not in ("ADD", "DROP", "MODIFY", "CHANGE"):
        return False
    # What the target has stands for what the source had: their structures are equal right before the statement.
    wanted = part[at + 1].upper != "NOT"
    named = at + (2 if wanted else 3)
    words = {token.upper for token in part[:at]}
    # Of these the target's names are not read, so the condition counts as met.
    if named >= len(part) or words & {"PARTITION", "CONSTRAINT"}:
        return False
    names = there.foreign_keys if "FOREIGN" in words else there.indexes if words & {*INDEX_WORDS} else there.columns
    return (folded_name(part[named].name) in names) != wanted


# global indexes


def global_marks(statement: Statement) -> list[Edit]:
    """Take UNIQUE off a column whose index TiDB keeps over all partitions, and UPDATE INDEXES off PARTITION BY."""
    found = statement.found
    edits: list[Edit] = []
    for first, last in statement.parts:
        at = next((i for i in range(first, last) if found[i].upper == "UNIQUE"), -1)
        if at > first and found[first].kind == "quoted" and is_global(statement, first, last):
            end = at + (at + 1 < last and found[at + 1].upper in INDEX_WORDS)
            end += has_words(found[end + 1 : min(end + 2, last)], "GLOBAL")
            edits.append((found[at].start, found[end].end, ""))
        elif (key := find_words(found[:last], "PRIMARY", "KEY", "GLOBAL", start=first)) > first:
            edits.append((found[key + 2].start, found[key + 2].end, ""))
    at = find_words(found, "UPDATE", "INDEXES", "(")
    if at >= 0:
        end = closing(found, at + 2)
        edits.append((found[at].start, found[end].end, ""))
        edits += _drops_of_spread(statement, found[at + 3 : end])
    return edits


def _drops_of_spread(statement: Statement, listed: Sequence[Token]) -> list[Edit]:
    """Drop the indexes that PARTITION BY makes GLOBAL: no other server can have them over these partitions."""
    # The primary key stays: it is not left out when it is created either.
    there = (statement.names or PartNames()).indexes - {"primary"}
    at = find_words(statement.found, "PARTITION", "BY")
    gone = [name for name, word in pairwise(listed) if word.upper == "GLOBAL" and folded_name(name.name) in there]
    text = ", ".join(f"DROP INDEX {quote(name.name)}" for name in gone)
    return [(statement.found[at].start, statement.found[at].start, f"{text} ")] if text and at > 0 else []


def is_global(statement: Statement, first: int, last: int) -> bool:
    """Return whether the part [first, last) defines an index over all partitions; TiDB marks it by a comment of its own."""
    found = statement.found
    end = found[last].start if last < len(found) else len(statement.text)
    return makes_global_index(statement.text[found[first].start : end])


# partitions


def linear(statement: Statement) -> list[Edit]:
    """Take LINEAR off PARTITION BY LINEAR HASH and LINEAR KEY."""
    found = statement.found
    return [
        (token.start, following.start, "")
        for before, token, following in zip(found, found[1:], found[2:], strict=False)
        if (before.upper, token.upper) == ("BY", "LINEAR") and following.upper in ("HASH", "KEY")
    ]


# columns


def json_not_null(statement: Statement) -> list[Edit]:
    """Give a JSON column that ALTER TABLE adds as NOT NULL the default of TiDB and MySQL, which existing rows get."""
    return [
        (column[1].end, column[1].end, " DEFAULT 'null'")
        for _, _, column in _added(statement)
        if has_words(column[1:2], "JSON") and has_words(column, "NOT", "NULL")
        if not (has_words(column, "DEFAULT") or has_words(column, "AS"))
    ]


def _added(statement: Statement) -> Iterator[tuple[str, str, Sequence[Token]]]:
    """Yield the columns that ALTER TABLE adds, as `column_parts` gives them."""
    if statement.body[1] < 0:
        added = [part for part in statement.parts if has_words(statement.found[part[0] : part[0] + 1], "ADD")]
        yield from column_parts(statement.found, added)


# what can only be reported


def random_default(statement: Statement) -> str:
    """Return the column that ALTER TABLE adds with a random default, which fills existing rows; "" if none."""
    for _, name, column in _added(statement):
        if has_words(column, "DEFAULT") and any(token.upper in _RANDOM for token in column):
            return name
    return ""
