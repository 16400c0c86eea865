"""Options of columns that TiDB accepts and forgets, or accepts where other servers do not. Each rule returns edits of the text. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from storage_consumer.ddl.statement import Edit, Statement, index_columns
from storage_consumer.model import folded_name
from storage_consumer.sql.column_parts import INDEX_WORDS, column_parts
from storage_consumer.sql.tokens import Token, closing, has_words

_FORGOTTEN = frozenset(("COLUMN_FORMAT", "STORAGE", "SECONDARY_ENGINE_ATTRIBUTE"))
_ACTIONS = (("CASCADE",), ("RESTRICT",), ("SET", "NULL"), ("SET", "DEFAULT"), ("NO", "ACTION"))


def storage(statement: Statement) -> list[Edit]:
    """Take COLUMN_FORMAT, STORAGE and SECONDARY_ENGINE_ATTRIBUTE off columns."""
    edits: list[Edit] = []
    for column in _columns(statement):
        for at in _options(column):
            value = at + 1 + (at + 1 < len(column) and column[at + 1].text == "=")
            if column[at].upper in _FORGOTTEN and value < len(column):
                edits.append((column[at].start, column[value].end, ""))
    return edits


def references(statement: Statement) -> list[Edit]:
    """Take REFERENCES off columns: TiDB creates no foreign key for it, newer servers do."""
    return [
        (column[at].start, column[_reference_end(column, at)].end, "")
        for column in _columns(statement)
        for at in _options(column)
        if column[at].upper == "REFERENCES"
    ]


def _reference_end(column: Sequence[Token], at: int) -> int:
    """Return the index of the last token of a REFERENCES clause."""
    last = at + 1
    # The other table may have its database before it.
    if has_words(column[last + 1 : last + 2], "."):
        last += 2
    if last + 1 < len(column) and column[last + 1].text == "(":
        last = closing(column, last + 1)
    if has_words(column[last + 1 : last + 2], "MATCH"):
        last += 2
    while has_words(column[last + 1 : last + 2], "ON"):
        # ON, DELETE or UPDATE, then the action of one or two words.
        words = next((words for words in _ACTIONS if has_words(column[last + 3 : last + 3 + len(words)], *words)), ())
        if not words:
            break
        last += 2 + len(words)
    return min(last, len(column) - 1)


def counters(statement: Statement) -> list[Edit]:
    """Take AUTO_INCREMENT off a new table's column that no index begins with: MySQL and MariaDB require such an index."""
    if statement.body[1] < 0:
        return []
    indexed = {
        folded_name(name)
        for first, last in statement.parts
        if _is_index(statement.found[first:last])
        for name in index_columns(statement.found[first:last])[:1]
    }
    edits: list[Edit] = []
    for column in _columns(statement):
        places = list(_options(column))
        has_key = any(column[at].upper in (*INDEX_WORDS, "PRIMARY", "UNIQUE") for at in places)
        # Only the first column of an index counts for AUTO_INCREMENT.
        if not has_key and folded_name(column[0].name) not in indexed:
            edits += [(column[at].start, column[at].end, "") for at in places if column[at].upper == "AUTO_INCREMENT"]
    return edits


def _is_index(part: Sequence[Token]) -> bool:
    words = [token.upper for token in part[:1]]
    return words[0] in (*INDEX_WORDS, "UNIQUE", "PRIMARY", "CONSTRAINT") if words else False


def _columns(statement: Statement) -> Iterator[Sequence[Token]]:
    """Yield the tokens of each column that is defined, from its name on."""
    for _, _, column in column_parts(statement.found, statement.parts):
        yield column


def _options(column: Sequence[Token]) -> Iterator[int]:
    """Yield the indexes of bare words outside parentheses after the type's name: an option may begin there."""
    for at in range(2, len(column)):
        if column[at].kind == "word" and column[at].depth == column[0].depth:
            yield at
