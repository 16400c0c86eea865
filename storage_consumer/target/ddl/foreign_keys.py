"""What to try next where the target refuses a statement for a foreign key. Pure.

The target is never to check a foreign key, so none may hold a statement up. A key that a statement defines, and that the target cannot
hold, is left out; its index stays, as the source has it. One that is on the target and in the way goes first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from storage_consumer.model import TableName, folded_name
from storage_consumer.sql.statement import Edit, Statement, statement_of
from storage_consumer.sql.tokens import Token, find_words, has_words, qualified, quote, replace_spans
from storage_consumer.target.ddl.edits import index_columns, outermost, spans
from storage_consumer.target.ddl.index_rules import defines_index, foreign_key_dropped
from storage_consumer.target.existing_names import ForeignKey

LEFT_OUT, IN_THE_WAY = "foreign key left out", "foreign key in the way"
_NO_TABLE, _DUPLICATE_INDEX, _EXCHANGED = "error 1146:", "error 1061:", "error 1740:"
_LONGEST = 60


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
        """Return what to send, "" if nothing is left; `indexes`: those of the table on the target, with their columns, folded."""
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
    tried: Attempt, answer: str, own: TableName, there: Sequence[ForeignKey], indexes: Mapping[str, Sequence[str]]
) -> Attempt | None:
    """Return what to try after the target's `answer`, or None if no foreign key can be its reason.

    `own`: the statement's table. `there`: the keys on the target that it may meet; none if the answer is about something else.
    """
    statement = statement_of(tried.whole)
    # The key's name, if it has one, of each part that defines or drops a foreign key.
    elements = enumerate(statement.elements) if "TABLE" in statement.head else ()
    parts = {at: _name(part) for at, part in elements if _at(part) >= 0 and at not in tried.left_out}
    named = {number for number, name in parts.items() if name and _is_named(name, answer)}
    others = [key for key in there if key.name not in parts.values() or key.table.folded() != own.folded()]
    in_the_way = [key for key in others if _is_named(key.name, answer)]
    if answer.startswith(_NO_TABLE):
        # The server misses the table that a key refers to.
        in_the_way = [
            key
            for key in others
            if key.table.folded() == own.folded()
            and any(f"'{table}'" in folded_name(answer) for table, _ in key.columns if table != own.folded())
        ]
    if answer.startswith(_DUPLICATE_INDEX) and (moves := _renamings(own, in_the_way, indexes)):
        notes = tuple(f"{IN_THE_WAY}: its own index {name} was given another name" for name in moves)
        return replace(tried, first=tuple(moves.values()), notes=(*tried.notes, *notes))
    in_the_way = [] if answer.startswith(_DUPLICATE_INDEX) else in_the_way
    if not in_the_way and not parts and not answer.startswith((_NO_TABLE, _DUPLICATE_INDEX)):
        in_the_way = [key for key in others if _is_touched(key, own, statement.tokens, indexes)] or others
    if in_the_way:
        # A partition takes only a table whose indexes are none that a server made.
        made = in_the_way if answer.startswith(_EXCHANGED) else ()
        drops = tuple(
            f"ALTER TABLE {qualified(key.table)} ADD INDEX {quote(key.name)} ({', '.join(map(quote, key.own))})"
            for key in made
            if key.has_index
        )
        drops += tuple(f"ALTER TABLE {qualified(key.table)} DROP FOREIGN KEY {quote(key.name)}" for key in in_the_way)
        notes = tuple(f"{IN_THE_WAY}: {key.name} of {key.table} ({answer})" for key in in_the_way)
        return replace(tried, first=drops, notes=(*tried.notes, *notes))
    if parts:
        gone = named or set(parts)
        notes = tuple(f"{LEFT_OUT}: {parts[number] or 'without a name'} ({answer})" for number in sorted(gone))
        return replace(tried, left_out=tried.left_out | gone, first=(), notes=(*tried.notes, *notes))
    if tried.left_out and not tried.without_indexes:
        return replace(tried, without_indexes=True, first=())
    return None


def _at(part: Sequence[Token]) -> int:
    """Return where FOREIGN KEY is in a part of a statement, or -1."""
    return find_words(part, "FOREIGN", "KEY", depth=part[0].depth) if part else -1


def _name(part: Sequence[Token]) -> str:
    at = _at(part)
    named = foreign_key_dropped(part) or (part[at - 1] if at > 1 and part[at - 2].upper == "CONSTRAINT" else None)
    return "" if named is None else named.name


def _is_named(name: str, answer: str) -> bool:
    """Return whether the server's answer names a key, with or without its database in front."""
    return re.search(rf"['`\"/.]{re.escape(name)}['`\"]", answer, re.IGNORECASE) is not None


def _is_touched(key: ForeignKey, own: TableName, found: Sequence[Token], indexes: Mapping[str, Sequence[str]]) -> bool:
    """Return whether a statement names a column of the key, or an index with one."""
    words = {folded_name(token.name) for token in found if token.kind in ("quoted", "word")}
    words |= {column for index in words & indexes.keys() for column in indexes[index]}
    return any(table == own.folded() and column in words for table, column in key.columns)


def _renamings(own: TableName, keys: Sequence[ForeignKey], indexes: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the statements that give another name to the index that a server made for a key; the source has none of that name."""
    moves: dict[str, str] = {}
    for key in keys:
        name = f"{key.name[:_LONGEST]}_fk"
        if key.has_index and key.table.folded() == own.folded() and folded_name(name) not in indexes:
            moves[key.name] = f"ALTER TABLE {qualified(own)} RENAME INDEX {quote(key.name)} TO {quote(name)}"
    return moves


def _own_indexes(statement: Statement, gone: frozenset[int], indexes: Mapping[str, Sequence[str]]) -> dict[int, Edit]:
    """Return the edits that leave, of keys that are left out, the indexes which the source has for them."""
    there = [tuple(columns) for columns in indexes.values()]
    names = set(indexes)
    for part in statement.elements:
        if defines_index(part) and _at(part) < 0:
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
        name, columns = _name(part), tuple(map(folded_name, listed))
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
        edits[number] = (part[0].start, part[-1].end, f"{verb}INDEX {quote(name)} ({', '.join(map(quote, listed))})")
    return edits
