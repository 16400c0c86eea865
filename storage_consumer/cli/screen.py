"""Standard output and error for people: colours, lost readers, and columns of text.

Where there is no terminal, nothing is broken into lines and nothing is cut. What somebody may paste
(a command, the name of a table) is never cut, and a command has its line to itself.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TextIO

import wcwidth

from storage_consumer.errors import StorageConsumerError
from storage_consumer.telemetry import escaped, redact
from storage_consumer.watch.status import commands_in

WHEN = ("auto", "always", "never")
"""Values of --color."""
_COLOURS = {"red": "\x1b[31m", "yellow": "\x1b[33m", "green": "\x1b[32m", "bold": "\x1b[1m"}
_PLAIN = "\x1b[0m"
# At the start of a line before a colon or a gap, or as a whole cell of a row.
_STATE = re.compile(
    r"""(?P<blanks>^\ *|(?<=\ \ ))(?P<word>
    (?P<red>stopped|no-writer|unknown|clock-skew|unequal|halted|lost|failed|fail|FAIL|halt|contradicts|missing
        |would\ halt;\ the\ other\ tables\ go\ on)
    |(?P<yellow>behind|retrying|paused|waiting|warn|WARN|skip|assumed|warnings|would\ wait)
    |(?P<green>healthy|ok)
    |(?P<bold>next)
    )(?=:|\ \ |$)""",
    re.MULTILINE | re.VERBOSE,
)


_color = "auto"


def use_color(when: str) -> None:
    """Colour the screen from now on as --color says; any word but those of `WHEN` is "auto"."""
    global _color  # noqa: PLW0603 - there is one screen
    _color = when if when in WHEN else "auto"


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal; one that is missing or closed is none."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False


def is_smart(stream: TextIO | None, environ: Mapping[str, str]) -> bool:
    """Return whether a stream is a terminal that can do more than print."""
    return is_terminal(stream) and environ.get("TERM", "") not in ("", "dumb")


def is_coloured(stream: TextIO | None, environ: Mapping[str, str]) -> bool:
    """Return whether a stream gets colours: --color, NO_COLOR, CLICOLOR_FORCE, FORCE_COLOR, or tty.

    The first of these that is given decides.
    """
    if _color != "auto":
        return _color == "always"
    if environ.get("NO_COLOR"):
        return False
    if any(environ.get(name, "0") not in ("", "0") for name in ("CLICOLOR_FORCE", "FORCE_COLOR")):
        return True
    return environ.get("CLICOLOR") != "0" and is_smart(stream, environ)


def painted(text: str) -> str:
    """Colour a text's state words; it is escaped, so it has no other sequences than ours."""

    def paint(found: re.Match[str]) -> str:
        colour = next(code for name, code in _COLOURS.items() if found[name])
        return f"{found['blanks']}{colour}{found['word']}{_PLAIN}"

    return _STATE.sub(paint, text)


def write(text: str, environ: Mapping[str, str], *, is_document: bool = False) -> bool:
    """Write a text to standard output; return whether anybody still reads it.

    A document gets no colours. Raises `StorageConsumerError` if it cannot
    be written for another reason than a reader that went away.
    """
    if sys.stdout is None:
        raise StorageConsumerError("the answer could not be written: standard output is closed")
    with suppress(AttributeError):  # a test's stream lacks it
        # In any locale: programs read documents, and a script declares itself as UTF-8.
        encoding = "utf-8" if is_document else None
        sys.stdout.reconfigure(encoding=encoding, errors="backslashreplace")  # type: ignore[union-attr] # likewise
    if not is_document and is_coloured(sys.stdout, environ):
        text = painted(text)
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _let_go()
        return False
    except OSError as error:
        _let_go()
        raise StorageConsumerError(f"the answer could not be written: {error.strerror}") from error
    return True


def complain(text: str, environ: Mapping[str, str]) -> None:
    """Write ``program: error`` to standard error, if anybody reads it."""
    program, colon, rest = text.partition(":")
    if is_coloured(sys.stderr, environ):
        program = f"{_COLOURS['red']}{program}{_PLAIN}"
    with suppress(OSError, ValueError, AttributeError):  # nobody is left to be told
        sys.stderr.write(f"{program}{colon}{rest}\n")
        sys.stderr.flush()


def _let_go() -> None:
    """Let nothing more go to standard output, to which Python would write again at its end."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


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
    """Return the terminal's columns, COLUMNS first; None if standard output is none."""
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
    """Wrap a text between words, with `indent` first, then `further` (None: the same)."""
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
    """Return a message as `wrapped`, each command to be pasted on a line of its own."""
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
    return table(
        [(label.ljust(space - len(_GAP)), text) for label, text in found.items() if text], "  "
    )


def table(rows: Sequence[Sequence[str]], indent: str = "") -> Iterator[str]:
    """Yield rows in columns; one that does not fit has its cells below the first.

    The last cell of a row, which may be empty, is broken into lines under its column.
    """
    sizes = [
        max(map(wcwidth.width, cells)) for cells in zip(*(row[:-1] for row in rows), strict=True)
    ]
    left = len(indent) + sum(sizes) + len(_GAP) * len(sizes)
    width = columns()
    for *first, last in rows:
        # A long word, such as a path, has more room below.
        least = max(_LEAST, *map(wcwidth.width, last.split()), 0)
        if width is None or left + least <= min(width, _WIDEST):
            cells = (
                cell + " " * (size - wcwidth.width(cell)) + _GAP
                for cell, size in zip(first, sizes, strict=True)
            )
            begin = indent + "".join(cells)
            lines = wrapped(last, begin, " " * left)
        else:
            middle = _GAP.join(cell.strip() for cell in first[1:] if cell.strip())
            below = [
                line
                for text in (middle, last)
                if text
                for line in wrapped(text, f"{indent}{_BELOW}")
            ]
            lines = [f"{indent}{first[0]}", *below]
        yield from map(str.rstrip, lines)


def _shown(text: str) -> str:
    """Return a text shown on one line, secrets blanked first: nobody would know half of one."""
    return escaped(redact(_LINE_END.sub(" ", text)))
