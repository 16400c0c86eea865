"""Generated columns whose values a target computes by rules of its own. Pure.

Rows carry the values of stored ones, so these are compared when rows are written (see `apply.computed`). No file has those of virtual
ones: only an expression that was tried on all servers gives the source's value for certain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from storage_consumer.ddl.statement import Edit, Statement
from storage_consumer.decode.values import INTEGER_TYPES, TEXT_TYPES
from storage_consumer.model import folded_name
from storage_consumer.sql.column_parts import column_parts
from storage_consumer.sql.tokens import Token, closing, find_words, has_words

_SORTS: Mapping[str, str] = {
    **dict.fromkeys(INTEGER_TYPES, "integer"),
    **dict.fromkeys(TEXT_TYPES, "text"),
    "DATE": "day",
}
_ANY = frozenset(("integer", "text", "day"))
PROVEN: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("+", "-", "*", "%", "DIV", "MOD", "ABS", "GREATEST", "LEAST"), frozenset(("integer",))),
    **dict.fromkeys(("REVERSE", "TRIM"), frozenset(("text",))),
    # Of a text these count its bytes, which are UTF-8 in TiDB whatever its character set is.
    **dict.fromkeys(("CRC32", "LENGTH"), frozenset(("integer", "day"))),
    **dict.fromkeys(("YEAR", "MONTH", "DAYOFMONTH", "LAST_DAY", "TO_DAYS"), frozenset(("day",))),
    **dict.fromkeys(("CHAR_LENGTH", "COALESCE", "CONCAT", "IFNULL", "LEFT", "RIGHT", "SUBSTRING"), _ANY),
}
"""Function or operator → the sorts of columns of which TiDB, MySQL and MariaDB make the same values, as tests have tried."""


def virtual_columns(statement: Statement) -> list[str]:
    """Return the virtual columns that a statement defines by an expression that is not in `PROVEN`."""
    sorts = {folded_name(column.name): _SORTS.get(column.type, "") for column in statement.columns}
    return [
        name
        for name, expression, rest in _generated(statement)
        if not has_words(rest, "STORED") and not _is_proven(expression, sorts)
    ]


def _generated(statement: Statement) -> Iterator[tuple[str, Sequence[Token], Sequence[Token]]]:
    """Yield the name of each generated column, the tokens of its expression, and what follows."""
    for _, name, column in column_parts(statement.found, statement.parts):
        at = find_words(column, "AS", "(", depth=column[0].depth)
        if at > 0:
            end = closing(column, at + 1)
            yield name, column[at + 2 : end], column[end + 1 :]


def _is_proven(expression: Sequence[Token], sorts: Mapping[str, str]) -> bool:
    """Return whether an expression has columns of some sorts, literals, and nothing but what is proven for all of these sorts."""
    used: set[str] = set()
    allowed: set[str] = set()
    for at, token in enumerate(expression):
        is_called = token.kind == "word" and has_words(expression[at + 1 : at + 2], "(")
        # A statement that is stored as it was typed may have names without quotes.
        if token.kind == "quoted" or (not is_called and folded_name(token.name) in sorts):
            used.add(sorts.get(folded_name(token.name), ""))
            continue
        is_named = token.kind == "word" and not token.upper.startswith("_") and not token.upper.isdigit()
        if is_named or (token.kind == "symbol" and token.text not in "(),"):
            allowed.add(token.upper)
    return all(name in PROVEN and used <= PROVEN[name] for name in allowed) and "" not in used


def json_casts(statement: Statement) -> list[Edit]:
    """Have a generated column cast a JSON value without its quotes: MariaDB has a text with them, of which it makes 0."""
    edits: list[Edit] = []
    for _, expression, _ in _generated(statement):
        for at in range(len(expression) - 3):
            if has_words(expression[at : at + 4], "CAST", "(", "JSON_EXTRACT", "("):
                last = closing(expression, at + 3)
                edits.append((expression[at + 2].start, expression[at + 2].start, "JSON_UNQUOTE("))
                edits.append((expression[last].end, expression[last].end, ")"))
    return edits
