"""A terminal of a given size: a real pty, and a screen that shows what was written to it."""

from __future__ import annotations

import codecs
import os
import pty
import re
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from select import select
from typing import TextIO
from unicodedata import east_asian_width

_STEP = re.compile(r"\x1b\[J|\r\n|\r|\n|\x1b.|.", re.DOTALL)


@dataclass(slots=True)
class Terminal:
    """What was written, on lines as a terminal shows them. It wraps as most do: when a character follows one in the last column."""

    stream: TextIO
    """Where a program writes."""
    master: int
    columns: int
    lines: list[str] = field(default_factory=lambda: [""])
    written: str = ""
    """All of it, escape sequences included."""
    _column: int = 0
    _decoder: codecs.IncrementalDecoder = field(default_factory=codecs.getincrementaldecoder("utf-8"))
    """It keeps the part of a character that was read so far."""

    def resize(self, columns: int) -> None:
        """Change the width; what is on the screen is cut, as xterm does it."""
        self.columns = columns
        termios.tcsetwinsize(self.master, (24, columns))
        self.lines = [line[:columns] for line in self.lines]
        self._column = min(self._column, columns)

    def show(self) -> list[str]:
        """Return the lines of the screen, without blanks at their ends and without empty lines at the end."""
        self.stream.flush()
        text = ""
        while select([self.master], [], [], 0.02)[0]:
            text += self._decoder.decode(os.read(self.master, 65536))
        self.written += text
        for step in _STEP.findall(text):
            self._take(step)
        return "\n".join(line.rstrip() for line in self.lines).rstrip("\n").split("\n")

    def _take(self, step: str) -> None:
        if step == "\r":
            self._column = 0
        elif step in ("\n", "\r\n"):
            self.lines.append("")
            self._column = 0
        elif step == "\x1b[J":
            self.lines[-1] = self.lines[-1][: self._column]
        else:
            self._put(step)

    def _put(self, character: str) -> None:
        width = 2 if east_asian_width(character[0]) in "FW" else 1
        if self._column + width > self.columns:
            self.lines.append("")
            self._column = 0
        line = self.lines[-1].ljust(self._column)
        # The second column of a wide character holds nothing.
        self.lines[-1] = line[: self._column] + character + "\0" * (width - 1) + line[self._column + width :]
        self._column += width


@contextmanager
def terminal(columns: int) -> Iterator[Terminal]:
    """A terminal with so many columns; 0: one that does not know its size."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(master, (24, columns))
    with os.fdopen(slave, "w", encoding="utf-8") as stream:
        try:
            yield Terminal(stream=stream, master=master, columns=columns or 80)
        finally:
            os.close(master)
