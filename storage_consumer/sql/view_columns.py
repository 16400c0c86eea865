"""Which columns a view certainly reads of one of its tables: evidence of which table a name means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from storage_consumer.model import NameAt, folded_name
from storage_consumer.sql.tokens import Token, find_words, tokens
from storage_consumer.sql.view_sources import Source, sources

_HIDDEN = "_v$_"
"""Prefix of the columns of expression indexes."""
_BEFORE_OPERANDS = frozenset(
    (
        *("SELECT", "DISTINCT", "ALL", "BY", "AND", "OR", "XOR", "NOT", "DIV", "MOD", "LIKE", "REGEXP", "BETWEEN"),
        *("CASE", "WHEN", "THEN", "ELSE", "INTERVAL", "BINARY", *"(,+-*/%=<>!|&^~"),
    )
)
"""What may stand before a column that is no alias: words and signs."""

_BEFORE_LIST = frozenset(
    (
        *("SELECT", "DISTINCT", "DISTINCTROW", "ALL", "HIGH_PRIORITY", "STRAIGHT_JOIN", "SQL_CACHE", "SQL_NO_CACHE"),
        *("SQL_SMALL_RESULT", "SQL_BIG_RESULT", "SQL_BUFFER_RESULT", "SQL_CALC_FOUND_ROWS"),
    )
)
"""What may stand before the first column of a list."""
_AFTER_ITEM = frozenset((",", "FROM", ")", "", "UNION"))
"""What may stand after a column of a list; "" is the end."""


def cannot_read(query: str, name: NameAt, columns: Sequence[str], result: Sequence[str]) -> bool:
    """Return whether a table with these columns certainly is not what a CREATE VIEW reads under a name.

    `result`: the view's own columns. Where either are not known, or the text shows too little, it may be. Only names in backquotes are
    taken for columns, as TiDB writes every one.
    """
    found = tokens(query)
    body = find_words(found, "AS", depth=0, start=max(find_words(found, "VIEW", depth=0), 0)) + 1
    read = list(sources(found, body))
    source = next((each for each in read if found[each.at].start == name.start), None)
    if source is None or not columns or find_words(found, "WITH", start=body) >= 0:
        return False
    visible = _visible(found, source)
    if sum(_visible(found, each) == visible for each in read) > 1:
        return False
    is_alone = len(read) == 1 and sum(token.upper in ("SELECT", "TABLE") for token in found[body:]) == 1
    end = find_words(found, "FROM", depth=found[body].depth, start=body)
    wanted = set(_qualified(found, body, visible))
    wanted |= set(_selected(found[body + 1 : end])) if is_alone and end > 0 else set()
    there = {folded for each in columns if not (folded := folded_name(each)).startswith(_HIDDEN)}
    shown = {folded_name(each) for each in result}
    # With names of its own, the view's columns say nothing of the table's.
    if "*" in wanted and shown and found[body - 2].text != ")":
        is_all = is_alone and found[body + 1].text == "*" and end == body + 2
        if not there <= shown or (is_all and there != shown):
            return True
    return not wanted - {"*", "_tidb_rowid"} <= there


def reads_all_columns(query: str) -> bool:
    """Return whether a CREATE VIEW has an asterisk for the columns of a table."""
    found = tokens(query)
    body = find_words(found, "AS", depth=0, start=max(find_words(found, "VIEW", depth=0), 0)) + 1
    return found[body].upper == "TABLE" or any(
        token.text == "*" and (before.upper in _BEFORE_LIST or before.text in (",", ".")) and after in _AFTER_ITEM
        for before, token, after in zip(found, found[1:], [*(t.upper for t in found[2:]), ""], strict=False)
    )


def _visible(found: Sequence[Token], source: Source) -> str:
    """Return the folded name under which the statement's columns know a table."""
    if not source.aliased:
        return folded_name(found[source.at + source.length - 1].name)
    return folded_name(found[source.end + (found[source.end].upper == "AS")].name)


def _qualified(found: Sequence[Token], body: int, visible: str) -> Iterator[str]:
    """Yield the folded names of the columns that are qualified with a table's name, and an asterisk for all of them."""
    for at in range(body + 1, len(found) - 2):
        before, table, dot, column = (token.text for token in found[at - 1 : at + 3])
        is_last = found[at + 3].text != "." if at + 3 < len(found) else True
        if before != "." and dot == "." and is_last and folded_name(found[at].name) == visible and table != "*":
            yield "*" if column == "*" else folded_name(found[at + 2].name)


def _selected(found: Sequence[Token]) -> Iterator[str]:
    """Yield the folded names of the columns without a table's name in the list of a SELECT, and an asterisk for all of them."""
    for at, token in enumerate(found):
        before, after = found[at - 1] if at else None, found[at + 1].text if at + 1 < len(found) else ","
        if token.text == "*" and (before is None or before.text == ",") and after == ",":
            yield "*"
        is_operand = before is None or before.upper in _BEFORE_OPERANDS
        if token.kind == "quoted" and is_operand and after not in (".", "("):
            yield folded_name(token.name)
