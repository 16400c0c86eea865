"""Find the tables that a SELECT reads; its grammar tells them from columns, aliases, functions and common table expressions."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from storage_consumer.model import folded_name
from storage_consumer.sql.tokens import Token, closings, openings

_NAMES = ("quoted", "word")
_ENDS = frozenset(
    ("WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "WINDOW", "UNION", "EXCEPT", "INTERSECT", "LOCK", "INTO")
)
"""Words after which no table follows at the same depth until the next SELECT."""
_JOINS = frozenset(("JOIN", "STRAIGHT_JOIN"))
_NO_ALIAS = frozenset(
    (
        *_ENDS,
        *_JOINS,
        *("INNER", "LEFT", "RIGHT", "FULL", "OUTER", "CROSS", "NATURAL", "ON", "USING", "FOR", "WITH", "AS"),
        *("USE", "FORCE", "IGNORE", "PARTITION", "TABLESAMPLE", "PROCEDURE"),
    )
)
_NO_TABLE = frozenset(("DUAL",))


@dataclass(frozen=True, slots=True)
class Source:
    """A table in a FROM clause."""

    at: int
    """Index of the first token of its name."""
    length: int
    """Number of tokens of its name: 1, or 3 with the database."""
    end: int
    """Index of the first token after the name, where an alias may be inserted."""
    aliased: bool


@dataclass(slots=True)
class _Clause:
    """The clause that is open at one depth of parentheses."""

    place: str = ""
    """``select`` after SELECT, ``from`` in a FROM clause, otherwise empty."""
    expects: bool = False
    """Whether a table follows."""


Ends = Mapping[int, int]
"""See `closings`."""


def sources(found: Sequence[Token], start: int) -> Iterator[Source]:
    """Yield the tables of the SELECT that begins at index `start`, in order, those of nested SELECTs included."""
    ends = closings(found)
    hidden = _hidden(_common_tables(found, start, ends))
    for source in _named(found, start, ends):
        if not _is_common(found, source, hidden):
            yield source


def _named(found: Sequence[Token], start: int, ends: Ends) -> Iterator[Source]:
    """Yield what `sources` does, and common table expressions too."""
    clauses = [_Clause()]
    at = start
    while at < len(found):
        token, clause = found[at], clauses[-1]
        if token.kind == "symbol" and token.text in "()":
            _nest(clauses, token)
        elif clause.expects and _is_name(found, at):
            clause.expects = False
            if source := _source(found, at, ends):
                yield source
                at = source.end
                continue
        elif _is_behind_dot(found, at) or (token.upper in _ENDS and found[at - 1].upper == "AS"):
            pass  # a column or an alias, whatever its name
        elif clause.place == "from" and token.upper in ("USE", "FORCE", "IGNORE"):
            at = _behind_hint(found, at, ends)
            continue
        else:
            _follow(clause, token)
        at += 1


def _is_behind_dot(found: Sequence[Token], at: int) -> bool:
    """Return whether a word is the last part of a qualified name, and so not a keyword."""
    return at > 0 and found[at].kind in _NAMES and found[at - 1].text == "."


def _nest(clauses: list[_Clause], token: Token) -> None:
    """Open the clause that a parenthesis opens, or close one."""
    if token.text == ")":
        # The outermost clause stays: a hostile statement may close more than it opened.
        del clauses[max(1, len(clauses) - 1) :]
        return
    # Where a table is expected, a parenthesis holds tables or a subquery; the latter says so by its SELECT.
    clauses.append(_Clause("from", expects=True) if clauses[-1].expects else _Clause())
    clauses[-2].expects = False


def _follow(clause: _Clause, token: Token) -> None:
    """Update the clause for a keyword or comma."""
    word = token.upper
    if word == "SELECT":
        clause.place, clause.expects = "select", False
    # The second is TABLE t, short for SELECT * FROM t.
    elif (word == "FROM" and clause.place == "select") or (word == "TABLE" and not clause.place):
        clause.place, clause.expects = "from", True
    elif clause.place == "from" and (word == "," or word in _JOINS):
        clause.expects = True
    elif word in _ENDS or (word == "WITH" and clause.expects):
        clause.place, clause.expects = "", False


def _is_name(found: Sequence[Token], at: int) -> bool:
    """Return whether the name of a table, or of a function that yields one, begins here."""
    token = found[at]
    # These words begin a subquery or a list of rows; LATERAL stands before one.
    return token.kind in _NAMES and token.upper not in ("SELECT", "LATERAL", "VALUES", "TABLE", "WITH")


def _source(found: Sequence[Token], at: int, ends: Ends) -> Source | None:
    """Return the table whose name begins at an index; None for a function and for DUAL."""
    length = 1
    if at + 2 < len(found) and found[at + 1].text == "." and found[at + 2].kind in _NAMES:
        length = 3
    end = at + length
    follows = found[end] if end < len(found) else None
    # A parenthesis makes it a function, such as JSON_TABLE.
    if (length == 1 and found[at].upper in _NO_TABLE) or (follows is not None and follows.text == "("):
        return None
    # In t PARTITION (p0, p1) AS x the alias follows the list.
    if follows is not None and follows.upper == "PARTITION" and end + 1 < len(found):
        end = max(end, ends.get(end + 1, -1) + 1)
        follows = found[end] if end < len(found) else None
    aliased = follows is not None and (
        follows.upper == "AS" or (follows.kind in _NAMES and follows.upper not in _NO_ALIAS)
    )
    return Source(at, length, end, aliased)


def _behind_hint(found: Sequence[Token], at: int, ends: Ends) -> int:
    """Return the index after ``USE INDEX FOR JOIN (i, j)`` or a similar hint."""
    # In the longest form, USE INDEX FOR ORDER BY, the list is the fifth token after the first word.
    for index in range(at + 1, min(at + 6, len(found))):
        if found[index].text == "(":
            return max(at + 1, ends.get(index, -1) + 1)
    return at + 1


# common table expressions

_Scope = tuple[str, int, int]
"""Folded name of a common table expression, and the indexes (first inclusive, last exclusive) between which it hides a table."""


def _common_tables(found: Sequence[Token], start: int, ends: Ends) -> Iterator[_Scope]:
    around = openings(found)
    for index in range(start, len(found)):
        if found[index].upper == "WITH" and not _is_behind_dot(found, index):
            # A WITH holds up to the end of the parenthesis that it is in.
            yield from _named_by(found, index, ends.get(around[index], len(found)), ends)


def _named_by(found: Sequence[Token], index: int, until: int, ends: Ends) -> Iterator[_Scope]:
    """Yield the names that one WITH defines, up to `until`; ``WITH CHECK OPTION`` and ``WITH ROLLUP`` define none."""
    at, recursive = index + 1, False
    if at < len(found) and found[at].upper == "RECURSIVE":
        at, recursive = at + 1, True
    while at < len(found) and found[at].kind in _NAMES:
        name = folded_name(found[at].name)
        at += 1
        if at < len(found) and found[at].text == "(":
            at = ends.get(at, -1) + 1
        # Not the definition of a common table: WITH has other uses at the end of a SELECT.
        if at + 1 >= len(found) or found[at].upper != "AS" or found[at + 1].text != "(":
            return
        end = ends.get(at + 1, -1)
        if end < 0:
            return
        # A recursive expression is visible in its own body, any other only after it.
        yield name, at + 1 if recursive else end, until
        if end + 1 >= len(found) or found[end + 1].text != ",":
            return
        at = end + 2


_Hidden = Mapping[str, tuple[Sequence[int], Sequence[int]]]
"""Name → where common tables of that name begin to hide a table, in order, and for each the furthest end up to it."""


def _hidden(scopes: Iterator[_Scope]) -> _Hidden:
    """Return the scopes by name."""
    by_name = defaultdict[str, list[tuple[int, int]]](list)
    for name, low, high in scopes:
        by_name[name].append((low, high))
    ordered = {name: sorted(each) for name, each in by_name.items()}
    return {
        name: ([low for low, _ in each], list(accumulate((high for _, high in each), max)))
        for name, each in ordered.items()
    }


def _is_common(found: Sequence[Token], source: Source, hidden: _Hidden) -> bool:
    # The furthest end of all earlier scopes decides: nested scopes need no search of their own.
    lows, highs = hidden.get(folded_name(found[source.at].name), ((), ()))
    place = bisect_right(lows, source.at) - 1
    return source.length == 1 and place >= 0 and source.at < highs[place]
