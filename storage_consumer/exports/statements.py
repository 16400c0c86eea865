"""The statements in a schema file of an export, with names in backquotes."""

from __future__ import annotations

import re

from storage_consumer.sql.tokens import pieces, quote, replace_spans

# In a name between double quotes a backslash is an ordinary character, unlike in a string.
_QUOTED = re.compile(
    r"""'(?>(?:[^'\\]|\\.|'')*)' | `(?>(?:[^`]|``)*)` | /\*.*?\*/ | (?P<name>"(?>(?:[^"]|"")*)")""",
    re.VERBOSE | re.DOTALL,
)
_VERSIONED = re.compile(r"/\*!\d{5,6} ?(.*?) ?\*/", re.DOTALL)
_HAS_ANSI_NAME = re.compile(r'^CREATE\b[^\n]*?\b(?:TABLE|VIEW|DATABASE) (?:IF NOT EXISTS )?"', re.MULTILINE)


def statements(text: str) -> list[str]:
    """Return the statements of a schema file, without their semicolons and without those that are only comments.

    Raises `ValueError` if the last one has no semicolon: then the file was cut. Names in double quotes, which a server writes under
    ANSI_QUOTES, are put into backquotes, so that a statement means the same to every server. What a comment holds that servers from a
    version on read, such as ``/*!40100 DEFAULT CHARACTER SET utf8mb4 */``, stands as it is: every target reads it.
    """
    text = with_backquotes(text)
    found: list[str] = []
    begin, is_empty = 0, True
    for kind, start, end in pieces(text):
        if kind == "symbol" and text[start:end] == ";":
            found += [] if is_empty else [opened(text[begin:start]).strip()]
            begin, is_empty = end, True
        elif kind not in ("space", "comment"):
            is_empty = False
    if not is_empty:
        raise ValueError("the last statement has no semicolon: the file was cut")
    return found


def opened(text: str) -> str:
    """Return a text without the marks of comments that MySQL and TiDB read from some version on."""
    comments = [(start, end) for kind, start, end in pieces(text) if kind == "comment"]
    spans = [(start, end, found[1]) for start, end in comments if (found := _VERSIONED.fullmatch(text[start:end]))]
    return replace_spans(text, spans)


def with_backquotes(text: str) -> str:
    """Return a text with names in backquotes, if a server wrote them in double quotes; else the text itself."""
    if not _HAS_ANSI_NAME.search(text):
        return text
    return _QUOTED.sub(lambda match: quote(match[0][1:-1].replace('""', '"')) if match["name"] else match[0], text)
