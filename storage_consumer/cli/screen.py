"""Standard output and standard error as people see them: colours, and readers that go away early."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import TextIO

from storage_consumer.errors import StorageConsumerError

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
    """Return whether colours go to a stream: by --color, then NO_COLOR, then CLICOLOR_FORCE or FORCE_COLOR, and then if it is a terminal."""
    if _color != "auto":
        return _color == "always"
    if environ.get("NO_COLOR"):
        return False
    if any(environ.get(name, "0") not in ("", "0") for name in ("CLICOLOR_FORCE", "FORCE_COLOR")):
        return True
    return environ.get("CLICOLOR") != "0" and is_smart(stream, environ)


def painted(text: str) -> str:
    """Return a text with its state words in colour. It is already escaped, so that no other sequence than ours is in it."""

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
        # Whatever the locale is: programs read documents, and a script says of itself that it is UTF-8.
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
