"""Indexes and names as MySQL and MariaDB take them. Each rule returns edits of the text. Pure.

Where a server lacks a kind of index, a simpler one is created if possible, so that its name exists
for later statements. It is unique only if the source enforces the same uniqueness: a stricter key
would refuse rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from storage_consumer.model import TableName, folded_name
from storage_consumer.sql.statement import INDEX_WORDS, Edit, Statement, is_name, statement_of
from storage_consumer.sql.tokens import (
    Token,
    closing,
    elements,
    find_words,
    has_words,
    makes_global_index,
    qualified,
    quote,
    replace_spans,
)
from storage_consumer.target.ddl.edits import Targeted, everywhere, index_columns, outermost, spans
from storage_consumer.target.existing_names import ForeignKey, PartNames

STARTS = (*INDEX_WORDS, "UNIQUE", "PRIMARY", "CONSTRAINT")
"""First words of a definition of an index."""
_STAND_IN = "primary_key"
"""Name of the unique key in the place of a primary key that MariaDB does not take."""
_OPTIONS = "WITH PARSER any|USING {HASH|RTREE}|SECONDARY_ENGINE_ATTRIBUTE [=] any"

_Place = tuple[int, int, int]
"""A definition's first (inclusive) and last (exclusive) index, and its columns' parenthesis."""


def partial(statement: Targeted) -> Iterator[Edit]:
    """Take WHERE off an ordinary index: it then holds all rows."""
    for place in _indexes(statement):
        if not _is_unique(statement, place):
            yield from _condition(statement, place)


def unique_partial(statement: Targeted) -> Iterator[Edit]:
    """Make a unique index with WHERE ordinary: rows outside its condition may be equal."""
    for place in _indexes(statement):
        if _is_unique(statement, place) and (condition := list(_condition(statement, place))):
            yield from (*condition, *_ordinary(statement, *place[:2]))


def _ordinary(statement: Targeted, first: int, last: int) -> Iterator[Edit]:
    """Yield the edit that makes a unique index an ordinary one."""
    for at in statement.find("UNIQUE", first, last)[:1]:
        # UNIQUE INDEX keeps its INDEX; UNIQUE alone has to become one.
        named = statement.tokens[at[1]].upper in INDEX_WORDS
        yield statement.edit(*at, "" if named else "INDEX")


def _condition(statement: Targeted, place: _Place) -> Iterator[Edit]:
    """Yield the edit that removes an index's condition, up to the options or the end."""
    first, last, end = place
    depth = statement.tokens[first].depth
    for at, _ in statement.find("WHERE", end + 1, last, depth)[:1]:
        options = statement.find("{ALGORITHM|LOCK} =", at + 1, last, depth)
        yield statement.edit(at, options[0][0] if options else last)


def options(statement: Targeted) -> Iterator[Edit]:
    """Take WITH PARSER, USING HASH and RTREE and SECONDARY_ENGINE_ATTRIBUTE off indexes."""
    for first, last, end in _indexes(statement):
        depth = statement.tokens[first].depth
        yield from statement.without(statement.find(_OPTIONS, end + 1, last, depth))


def of_statement(statement: Targeted) -> Iterator[Edit]:
    """Take ALGORITHM and LOCK off the end of CREATE INDEX and DROP INDEX."""
    for at, last in (
        statement.find("{ALGORITHM|LOCK} [=] any", depth=0) if is_about_index(statement) else ()
    ):
        if not is_name(statement.tokens, at):
            yield statement.edit(at, last)


def is_about_index(statement: Targeted) -> bool:
    """Return whether it is a CREATE INDEX or DROP INDEX."""
    found = statement.tokens
    return found[0].upper in ("CREATE", "DROP") and any(
        has_words(found[:3], word) for word in INDEX_WORDS
    )


def invisible(statement: Targeted) -> Iterator[Edit]:
    """Write IGNORED for INVISIBLE, after an index's name in ALTER INDEX or after its columns."""
    words = {"INVISIBLE": "IGNORED", "VISIBLE": "NOT IGNORED"}
    for at, (before, token) in enumerate(pairwise(statement.tokens), 1):
        if (
            token.upper in words
            and before.text not in ("(", ",")
            and not is_name(statement.tokens, at)
        ):
            yield token.start, token.end, words[token.upper]


# indexes over expressions, on a server that has none


def columns_alone(statement: Targeted) -> Iterator[Edit]:
    """Remove the expressions of an index named after its first column, to take that name here.

    Otherwise a later index would get that name here and another one at the source, and the wrong
    index would be dropped.
    """
    for first, last in statement.parts:
        part = statement.tokens[first:last]
        if is_called_after_column(statement, part):
            opening = find_words(part, "(")
            inside = elements(part, opening, closing(part, opening))
            yield from (
                statement.edit(first + a - 1, first + b) for a, b in inside if part[a].text == "("
            )
            yield from _ordinary(statement, first, last)


def is_called_after_column(statement: Targeted, part: Sequence[Token]) -> bool:
    """Return whether ALTER TABLE adds an unnamed index of expressions, a column first."""
    at = _opening_without_name(part)
    return not statement.creates and at >= 0 and over_expression(part) and part[at + 1].text != "("


def over_expression(part: Sequence[Token]) -> bool:
    """Return whether an index definition has an expression, a parenthesis, among its columns."""
    return any(a.upper in ("(", ",") and b.upper == "(" for a, b in pairwise(part))


def _opening_without_name(part: Sequence[Token]) -> int:
    """Return the index of an unnamed index's opening parenthesis, -1 if the part is not one."""
    first = at = int(has_words(part[:1], "ADD"))
    at += has_words(part[at : at + 1], "UNIQUE")
    at += any(has_words(part[at : at + 1], word) for word in INDEX_WORDS)
    return at if at > first and has_words(part[at : at + 1], "(") else -1


def index_names(statement: Targeted) -> Iterator[Edit]:
    """Write TiDB's name for an unnamed index over an expression: MySQL would choose another one."""
    # TiDB counts on from the names that the table and the statement have already.
    taken = set(statement.there.indexes)
    for part in statement.elements:
        for at, (before, token) in enumerate(pairwise(part), 1):
            bare = (
                token.kind == "word"
                and token.upper not in INDEX_WORDS
                and has_words(part[at + 1 : at + 2], "(")
            )
            if before.upper in (*INDEX_WORDS, "UNIQUE") and (token.kind == "quoted" or bare):
                taken.add(folded_name(token.name))
    for part in statement.elements:
        if (at := _opening_without_name(part)) < 0 or not over_expression(part):
            continue
        # TiDB names it `expression_index` in CREATE TABLE; ALTER TABLE by a column that comes
        # first.
        is_first = statement.creates or part[at + 1].text == "("
        base = "expression_index" if is_first else index_columns(part[at:])[0]
        name, number = base, 1
        while folded_name(name) in taken:
            number += 1
            name = f"{base}_{number}"
        taken.add(folded_name(name))
        yield part[at].start, part[at].start, f" {quote(name)}"


# primary keys on generated columns


def generated_primary_key(statement: Targeted) -> Iterator[Edit]:
    """Turn a primary key on generated columns into a unique key with a name of its own."""
    generated = set(statement.there.generated)
    added = "" if statement.creates else "ADD "
    for column in statement.columns:
        if (at := find_words(column.tokens, "GENERATED", "ALWAYS")) < 0:
            continue
        # Columns that this very statement defines may be in its primary key; those of the table
        # come from the target.
        generated.add(folded_name(column.name))
        end = column.first + len(column.tokens)
        for key in statement.find("PRIMARY KEY", column.first + at, end, column.tokens[0].depth)[
            :1
        ]:
            yield statement.edit(*key)
            # A key in a column's definition cannot have a name, so it becomes a part of its own
            # behind the column.
            behind = column.tokens[-1].end
            yield behind, behind, f", {added}UNIQUE KEY {quote(_STAND_IN)}({quote(column.name)})"
    for first, last, _ in _indexes(statement):
        part = statement.tokens[first:last]
        at = find_words(part, "PRIMARY", "KEY")
        if at >= 0 and generated & {folded_name(name) for name in index_columns(part)}:
            opening = find_words(part, "(", start=at)
            yield part[at].start, part[opening].start, f"UNIQUE KEY {quote(_STAND_IN)}"


def dropped_primary_key(statement: Targeted) -> Iterator[Edit]:
    """Drop the unique key that stands in for a primary key."""
    # A table with a real primary key drops that one, whatever else is called so.
    if "primary" not in statement.there.indexes and _STAND_IN in statement.there.indexes:
        for first, last in statement.parts:
            if has_words(statement.tokens[first:last], "DROP", "PRIMARY", "KEY"):
                yield statement.edit(first + 1, first + 3, f"INDEX {quote(_STAND_IN)}")


# global indexes


def global_marks(statement: Targeted) -> Iterator[Edit]:
    """Remove UNIQUE of a column with a global index, and UPDATE INDEXES of PARTITION BY."""
    found = statement.tokens
    for first, last in statement.parts:
        unique = statement.find("UNIQUE [INDEX|KEY] [GLOBAL]", first, last)
        if (
            unique
            and unique[0][0] > first
            and found[first].kind == "quoted"
            and is_global(statement, first, last)
        ):
            yield statement.edit(*unique[0])
        else:
            yield from statement.without(
                statement.find("PRIMARY KEY <GLOBAL>", first + 1, last)[:1]
            )
    for first, last in statement.find("UPDATE INDEXES ( )")[:1]:
        yield statement.edit(first, last)
        # Those that PARTITION BY makes GLOBAL go: no other server can have them over these
        # partitions. The primary key stays: it is not left out when it is created either.
        there = statement.there.indexes - {"primary"}
        listed = pairwise(found[first + 3 : last - 1])
        gone = [
            name
            for name, word in listed
            if word.upper == "GLOBAL" and folded_name(name.name) in there
        ]
        at = find_words(found, "PARTITION", "BY")
        if gone and at > 0:
            start = found[at].start
            yield start, start, ", ".join(f"DROP INDEX {quote(name.name)}" for name in gone) + " "


def is_global(statement: Targeted, first: int, last: int) -> bool:
    """Return whether part [first, last) defines a global index, which TiDB marks by a comment."""
    found = statement.tokens
    end = found[last].start if last < len(found) else len(statement.text)
    return makes_global_index(statement.text[found[first].start : end])


# where indexes are


def _indexes(statement: Targeted) -> Iterator[_Place]:
    """Yield the place of each index that is defined."""
    for first, last in statement.parts:
        part = statement.tokens[first:last]
        opening = find_words(part, "(")
        if opening > 0 and defines_index(part) and (end := closing(part, opening)) > 0:
            yield first, last, first + end


def defines_index(part: Sequence[Token]) -> bool:
    """Return whether a part of a statement, or CREATE INDEX as a whole, defines an index."""
    words = [token.upper for token in part[:3]] + [""] * 3
    if words[0] == "CREATE":
        return words[1] in INDEX_WORDS or words[2] in INDEX_WORDS
    return words[words[0] == "ADD"] in STARTS and "FOREIGN" not in words


def _is_unique(statement: Targeted, place: _Place) -> bool:
    return has_words(statement.tokens[place[0] : place[0] + 4], "UNIQUE")


_NAME_LENGTH = 64

validation = everywhere("{WITH|WITHOUT} VALIDATION")

# foreign keys


def foreign_key_names(statement: Targeted) -> Iterator[Edit]:
    """Name each foreign key uniquely across tables, with TiDB's name as a part of it."""
    there, found = statement.there, statement.tokens
    numbers = [
        int(key.rpartition("_")[2])
        for key in there.foreign_keys
        if key.rpartition("_")[2].isdecimal()
    ]
    # TiDB counts all foreign keys of a table, and names an unnamed one by its number. The names
    # show how far it has come.
    number = max([len(there.foreign_keys), *numbers])
    for first, last in statement.parts:
        at = find_words(found[:last], "FOREIGN", "KEY", start=first)
        if at < 0 or at + 2 >= last or found[first].upper == "DROP":
            named = foreign_key_dropped(found[first:last])
            real = "" if named is None else name_there(named.name, statement)
            if named is not None and real not in ("", folded_name(named.name)):
                yield named.start, named.end, quote(real)
            continue
        number += 1
        own = found[at - 1]
        # A name of its own stays unless another table of the database has it.
        if at > first + 1 and found[at - 2].upper == "CONSTRAINT":
            if folded_name(own.name) in there.other_foreign_keys:
                yield own.start, own.end, quote(_with_table(statement, own.name))
            continue
        index = "" if found[at + 2].text == "(" else found[at + 2].name
        name = _with_table(statement, index or f"fk_{number}")
        start = own.start if at > first and own.upper == "CONSTRAINT" else found[at].start
        yield start, found[at].start, f"CONSTRAINT {quote(name)} "


def foreign_key_dropped(part: Sequence[Token]) -> Token | None:
    """Return the name in DROP FOREIGN KEY, None for any other part."""
    return part[-1] if has_words(part[:3], "DROP", "FOREIGN", "KEY") else None


def name_there(name: str, statement: Targeted) -> str:
    """Return a foreign key's folded name on the target, or "" if it does not exist.

    Its prefix is the table's name at the time the key was created. If several keys may be meant,
    return the name as it was given. The target does not know that one, and a refusal is better than
    dropping the wrong key.
    """
    keys, own = statement.there.foreign_keys, folded_name(name)
    exact = next(
        (key for key in (own, folded_name(_with_table(statement, name))) if key in keys), ""
    )
    alike = [key for key in keys if key.endswith(f"_{own}")]
    return exact or (own if len(alike) > 1 else "".join(alike))


def _with_table(statement: Targeted, name: str) -> str:
    return f"{statement.table[: max(1, _NAME_LENGTH - 1 - len(name))]}_{name}"[:_NAME_LENGTH]


# conditions


def conditions(statement: Targeted) -> Iterator[Edit]:
    """Remove IF [NOT] EXISTS from ALTER TABLE's parts and indexes: it held at the source."""
    if is_about_index(statement) or statement.head == ("ALTER", "TABLE"):
        yield from statement.without(statement.find("IF [NOT] EXISTS", depth=0))


def table_is_new(statement: Targeted) -> Iterator[Edit]:
    """Remove IF NOT EXISTS from CREATE TABLE: a table that exists here is not the source's."""
    found = statement.tokens
    if has_words(found[:5], "CREATE", "TABLE", "IF", "NOT", "EXISTS") and len(found) > 5:  # noqa: PLR2004 - and a name
        yield found[2].start, found[5].start, ""


def condition_fails(part: Sequence[Token], there: PartNames | None) -> bool:
    """Return whether the target shows that a part's IF [NOT] EXISTS failed at the source."""
    # not the function IF()
    at = max(find_words(part, "IF", "EXISTS"), find_words(part, "IF", "NOT", "EXISTS"))
    if (
        there is None
        or not 0 < at < len(part) - 1
        or part[0].upper not in ("ADD", "DROP", "MODIFY", "CHANGE")
    ):
        return False
    # The target stands in for the source: their structures are equal before the statement.
    wanted = part[at + 1].upper != "NOT"
    named = at + (2 if wanted else 3)
    words = {token.upper for token in part[:at]}
    # Of these the target's names are not read, so the condition counts as met.
    if named >= len(part) or words & {"PARTITION", "CONSTRAINT"}:
        return False
    names = (
        there.foreign_keys
        if "FOREIGN" in words
        else there.indexes
        if words & {*INDEX_WORDS}
        else there.columns
    )
    return (folded_name(part[named].name) in names) != wanted


LEFT_OUT, IN_THE_WAY = "foreign key left out", "foreign key in the way"
_NO_TABLE, _DUPLICATE_INDEX, _EXCHANGED = "error 1146:", "error 1061:", "error 1740:"
_LONGEST_NAME = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A statement as it is tried."""

    whole: str
    """The text with all that it defines."""
    left_out: frozenset[int] = frozenset()
    """Numbers of the parts about foreign keys that are left out."""
    without_indexes: bool = False
    """Whether the indexes of the keys that are left out are left out as well."""
    first: tuple[str, ...] = ()
    """Statements to run before it."""
    notes: tuple[str, ...] = ()
    """What was left out or goes, and why."""
    unfound: str = ""
    """The last answer about a key that is not on the target."""

    def text(self, indexes: Mapping[str, Sequence[str]]) -> str:
        """Return what to send, "" for nothing; `indexes`: the target table's, columns folded."""
        if not self.left_out:
            return self.whole
        statement = statement_of(self.whole)
        edits = {} if self.without_indexes else _own_indexes(statement, self.left_out, indexes)
        gone = self.left_out - edits.keys()
        if len(gone) == len(statement.parts):
            return ""
        taken = [*edits.values(), *spans(statement, gone)]
        return replace_spans(self.whole, outermost(taken))


def next_attempt(
    tried: Attempt,
    answer: str,
    own: TableName,
    there: Sequence[ForeignKey],
    indexes: Mapping[str, Sequence[str]],
) -> Attempt | None:
    """Return what to try after the target's `answer`, or None if no foreign key can be its reason.

    `own`: the statement's table. `there`: the keys on the target that it may meet; none if the
    answer is about something else.
    """
    statement = statement_of(tried.whole)
    # The key's name, if it has one, of each part that defines or drops a foreign key.
    elements = enumerate(statement.elements) if "TABLE" in statement.head else ()
    parts = {
        at: _key_name(part)
        for at, part in elements
        if _foreign_key_at(part) >= 0 and at not in tried.left_out
    }
    named = {number for number, name in parts.items() if name and _is_named(name, answer)}
    others = [
        key for key in there if key.name not in parts.values() or key.table.folded() != own.folded()
    ]
    in_the_way = [key for key in others if _is_named(key.name, answer)]
    if answer.startswith(_NO_TABLE):
        # The server misses the table that a key refers to.
        in_the_way = [
            key
            for key in others
            if key.table.folded() == own.folded()
            and any(
                f"'{table}'" in folded_name(answer)
                for table, _ in key.columns
                if table != own.folded()
            )
        ]
    if answer.startswith(_DUPLICATE_INDEX) and (moves := _renamings(own, in_the_way, indexes)):
        notes = tuple(
            f"{IN_THE_WAY}: its own index {name} was given another name" for name in moves
        )
        return replace(tried, first=tuple(moves.values()), notes=(*tried.notes, *notes))
    in_the_way = [] if answer.startswith(_DUPLICATE_INDEX) else in_the_way
    if not in_the_way and not parts and not answer.startswith((_NO_TABLE, _DUPLICATE_INDEX)):
        # Those of which the statement names a column, or an index with one.
        words = {
            folded_name(token.name)
            for token in statement.tokens
            if token.kind in ("quoted", "word")
        }
        words |= {column for index in words & indexes.keys() for column in indexes[index]}
        touched = {(own.folded(), word) for word in words}
        in_the_way = [key for key in others if touched & key.columns] or others
    if in_the_way:
        # A partition takes only a table whose indexes are none that a server made.
        made = in_the_way if answer.startswith(_EXCHANGED) else ()
        drops = tuple(
            f"ALTER TABLE {qualified(key.table)} ADD INDEX {quote(key.name)} ({', '.join(map(quote, key.own))})"
            for key in made
            if key.has_index
        )
        drops += tuple(
            f"ALTER TABLE {qualified(key.table)} DROP FOREIGN KEY {quote(key.name)}"
            for key in in_the_way
        )
        notes = tuple(f"{IN_THE_WAY}: {key.name} of {key.table} ({answer})" for key in in_the_way)
        return replace(tried, first=drops, notes=(*tried.notes, *notes))
    if parts:
        gone = named or set(parts)
        notes = tuple(
            f"{LEFT_OUT}: {parts[number] or 'without a name'} ({answer})" for number in sorted(gone)
        )
        return replace(
            tried, left_out=tried.left_out | gone, first=(), notes=(*tried.notes, *notes)
        )
    if tried.left_out and not tried.without_indexes:
        return replace(tried, without_indexes=True, first=())
    return None


def _foreign_key_at(part: Sequence[Token]) -> int:
    """Return where FOREIGN KEY is in a part of a statement, or -1."""
    return find_words(part, "FOREIGN", "KEY", depth=part[0].depth) if part else -1


def _key_name(part: Sequence[Token]) -> str:
    at = _foreign_key_at(part)
    named = foreign_key_dropped(part) or (
        part[at - 1] if at > 1 and part[at - 2].upper == "CONSTRAINT" else None
    )
    return "" if named is None else named.name


def _is_named(name: str, answer: str) -> bool:
    """Return whether the server's answer names a key, with or without its database in front."""
    return re.search(rf"['`\"/.]{re.escape(name)}['`\"]", answer, re.IGNORECASE) is not None


def _renamings(
    own: TableName, keys: Sequence[ForeignKey], indexes: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """Return the renames of indexes that a server made for keys to names free at the source."""
    moves: dict[str, str] = {}
    for key in keys:
        name = f"{key.name[:_LONGEST_NAME]}_fk"
        if (
            key.has_index
            and key.table.folded() == own.folded()
            and folded_name(name) not in indexes
        ):
            moves[key.name] = (
                f"ALTER TABLE {qualified(own)} RENAME INDEX {quote(key.name)} TO {quote(name)}"
            )
    return moves


def _own_indexes(
    statement: Statement, gone: frozenset[int], indexes: Mapping[str, Sequence[str]]
) -> dict[int, Edit]:
    """Return the edits that keep the source's indexes of keys that are left out."""
    there = [tuple(columns) for columns in indexes.values()]
    names = set(indexes)
    for part in statement.elements:
        if defines_index(part) and _foreign_key_at(part) < 0:
            there.append(tuple(map(folded_name, index_columns(part))))
            names |= {folded_name(token.name) for token in part[:4] if token.kind == "quoted"}
    for column in statement.columns:
        is_key = has_words(column.tokens, "KEY") or has_words(column.tokens, "UNIQUE")
        there += [(folded_name(column.name),)] if is_key else []
    edits: dict[int, Edit] = {}
    for number in sorted(gone):
        first, last = statement.parts[number]
        part = statement.tokens[first:last]
        listed = index_columns(part[: max(find_words(part, "REFERENCES", depth=part[0].depth), 0)])
        name, columns = _key_name(part), tuple(map(folded_name, listed))
        if (
            not name
            or not columns
            or folded_name(name) in names
            or any(one[: len(columns)] == columns for one in there)
        ):
            continue
        there.append(columns)
        names.add(folded_name(name))
        verb = "ADD " if part[0].upper == "ADD" else ""
        edits[number] = (
            part[0].start,
            part[-1].end,
            f"{verb}INDEX {quote(name)} ({', '.join(map(quote, listed))})",
        )
    return edits
