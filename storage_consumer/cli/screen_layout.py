"""Text laid out for a terminal, measured in its columns. Where there is no terminal, nothing is broken into lines and nothing is cut.

What somebody may paste (a command, the name of a table) is never cut, and a command has its line to itself.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence

import wcwidth

from storage_consumer.cli.screen import is_terminal
from storage_consumer.telemetry import escaped, redact
from storage_consumer.watch.status import commands_in

_WIDEST = 120
"""Columns of running text; longer lines are hard to read."""
_LEAST = 20
"""Columns that the last cell of a row needs to stand beside the others."""
_NARROWEST = 20
"""Columns that are assumed of a terminal that has fewer."""
_USUAL = 80
"""Columns of a terminal that does not tell them."""
_LINE_END = re.compile(r"[\t\n\v\f\r]+ *")
_GAP = "  "
_BELOW = "    "


def columns() -> int | None:
    """Return the columns of the terminal to which standard output goes (COLUMNS beats what it tells); None if it goes elsewhere."""
    if not is_terminal(sys.stdout):
        return None
    given = os.environ.get("COLUMNS", "")
    told = int(given) if given.isascii() and given.isdecimal() else 0
    return max(_NARROWEST, told or os.get_terminal_size(sys.stdout.fileno()).columns or _USUAL)


def cut(text: str, width: int) -> str:
    """Return a text on one line, cut to `width` columns on a terminal."""
    plain = _shown(" ".join(text.split()))
    if columns() is None or wcwidth.width(plain) <= width:
        return plain
    return f"{wcwidth.clip(plain, 0, max(width - 1, 0)).rstrip()}…"


def wrapped(text: str, indent: str = "", further: str | None = None) -> list[str]:
    """Return a text as lines that fit, words unbroken: the first one indented by `indent`, the others by `further` (None: likewise)."""
    further = indent if further is None else further
    width = columns()
    if width is None:
        return [f"{indent}{_shown(text)}"]
    return wcwidth.wrap(
        _shown(text),
        min(width, _WIDEST),
        initial_indent=indent,
        subsequent_indent=further,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [indent]


def message(text: str, indent: str = "", further: str | None = None) -> list[str]:
    """Return a message as `wrapped` does, with each command that it gives to be pasted whole on a line of its own."""
    if columns() is None:
        return wrapped(text, indent)
    further = indent if further is None else further
    lines: list[str] = []
    for command in commands_in(text):
        before, _, text = text.partition(command)
        lines += wrapped(before.strip().removeprefix("-- "), further if lines else indent, further)
        lines.append(f"{further}  {command}")
    # What stands behind the last command may be its full stop alone.
    rest = text.strip().removeprefix("-- ").lstrip(". ") if lines else text
    return [*lines, *wrapped(rest, further if lines else indent, further)] if rest else lines


def facts(found: Mapping[str, str], space: int = 12) -> Iterator[str]:
    """Yield a line for each label with a text, which begins behind `space` columns for labels."""
    return table([(label.ljust(space - len(_GAP)), text) for label, text in found.items() if text], "  ")


def table(rows: Sequence[Sequence[str]], indent: str = "") -> Iterator[str]:
    """Yield rows with their cells in columns; a row that does not fit has its first cell alone, and the others below it.

    The last cell of a row, which may be empty, is broken into lines under its column.
    """
    sizes = [max(map(wcwidth.width, cells)) for cells in zip(*(row[:-1] for row in rows), strict=True)]
    left = len(indent) + sum(sizes) + len(_GAP) * len(sizes)
    width = columns()
    for *first, last in rows:
        # A long word, such as a path, has more room below.
        least = max(_LEAST, *map(wcwidth.width, last.split()), 0)
        if width is None or left + least <= min(width, _WIDEST):
            cells = (cell + " " * (size - wcwidth.width(cell)) + _GAP for cell, size in zip(first, sizes, strict=True))
            begin = indent + "".join(cells)
            lines = wrapped(last, begin, " " * left)
        else:
            middle = _GAP.join(cell.strip() for cell in first[1:] if cell.strip())
            below = [line for text in (middle, last) if text for line in wrapped(text, f"{indent}{_BELOW}")]
            lines = [f"{indent}{first[0]}", *below]
        yield from map(str.rstrip, lines)


def _shown(text: str) -> str:
    """Return a text on one line as it is shown. Secrets are blanked before it is divided: half of one would be known by nobody."""
    return escaped(redact(_LINE_END.sub(" ", text)))
