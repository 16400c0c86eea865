"""Find the columns of a DDL, and tell clauses from names that look like them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from storage_consumer.sql.tokens import Token, closing, elements, has_words

INDEX_WORDS = ("INDEX", "KEY")
_TYPE_WORDS = frozenset(("UNSIGNED", "SIGNED", "ZEROFILL", "BINARY", "PRECISION"))
NAMES = ("quoted", "word")
"""Kinds of tokens that can be names: TiCDC writes names in backquotes, but older versions store them as typed."""
_COLUMN_VERBS = {"ADD": 0, "MODIFY": 0, "CHANGE": 1, "ALTER": 0}
"""Verb of an action on a column → how many tokens after the column's former name its new one is."""
_NO_COLUMNS = frozenset(
    (*INDEX_WORDS, *("UNIQUE", "PRIMARY", "FULLTEXT", "SPATIAL", "CONSTRAINT", "CHECK", "FOREIGN", "PARTITION"))
)
"""Bare words that begin the definition of something other than a column."""
_BEFORE_NAMES = frozenset(
    (
        *("TABLE", "INDEX", "KEY", "COLUMN", "EXISTS", "."),
        *("ADD", "DROP", "ALTER", "MODIFY", "CHANGE", "RENAME", "TO", "AFTER"),
    )
)
"""The words that may precede a name; a word of an option or clause never follows one of them."""


def is_name(found: Sequence[Token], at: int) -> bool:
    """Return whether a bare word outside parentheses, which might begin an option, names a table, index or column."""
    before = [token.upper for token in found[max(at - 3, 0) : at]]
    # In CHANGE a b the second name follows another name, and so none of the words below.
    changed = before[-2:-1] == ["CHANGE"] or before[-3:-1] == ["CHANGE", "COLUMN"]
    return changed or any(word in _BEFORE_NAMES for word in before[-1:])


def column_at(part: Sequence[Token]) -> int:
    """Return the index of the name of the column that this part defines, adds or changes; -1 if there is not exactly one."""
    at = 0
    if part and part[0].upper in _COLUMN_VERBS:
        at = 1 + has_words(part[1:2], "COLUMN")
        conditions = (("IF", "EXISTS"), ("IF", "NOT", "EXISTS"))
        at += next((len(words) for words in conditions if has_words(part[at : at + len(words)], *words)), 0)
    if at >= len(part) or part[at].kind not in NAMES or part[at].upper in _NO_COLUMNS:
        return -1
    # Kinds of index that are not listed above, such as VECTOR INDEX, show by the word that follows.
    return -1 if any(token.upper in INDEX_WORDS for token in part[at + 1 : at + 2]) else at


def column_parts(
    found: Sequence[Token], parts: Iterable[tuple[int, int]]
) -> Iterator[tuple[str, str, Sequence[Token]]]:
    """Yield former name, name, and the tokens from the name on, of each column that a statement defines or changes.

    `parts`: see `Statement`.
    """
    if not has_words(found[:3], "TABLE"):
        return
    for first, last in parts:
        part = found[first:last]
        named, listed = column_at(part), 1 + has_words(part[1:2], "COLUMN")
        if found[0].upper == "CREATE" and named == 0:
            yield part[0].name, part[0].name, part
        elif part and part[0].upper in _COLUMN_VERBS:
            if has_words(part[listed : listed + 1], "("):
                end = closing(part, listed)
                yield from ((part[a].name, part[a].name, part[a:b]) for a, b in elements(part, listed, end) if a < b)
            elif named > 0 and len(part) > (new := named + _COLUMN_VERBS[part[0].upper]):
                yield part[named].name, part[new].name, part[new:]


def is_text(column: Sequence[Token]) -> bool:
    """Return whether the column has a type with a collation."""
    return column[1].upper.endswith(("CHAR", "TEXT")) or column[1].upper in ("ENUM", "SET")


def type_end(column: Sequence[Token]) -> int:
    """Return the index of the first token after the column's type, which follows its name."""
    # After the name and the first word of the type.
    at = 2
    if at < len(column) and column[at].text == "(":
        at = closing(column, at) + 1
    while at < len(column):
        if column[at].upper in _TYPE_WORDS:
            at += 1
        elif has_words(column[at : at + 2], "CHARACTER", "SET"):
            at += 3
        elif column[at].upper == "CHARSET":
            at += 2
        else:
            break
    return at
