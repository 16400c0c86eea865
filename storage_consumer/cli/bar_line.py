"""What the line of the progress bar holds, by the width of the terminal."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TextIO

from tqdm.utils import disp_len, disp_trim

_LEAST_BAR = 8
"""Columns; a shorter bar shows nothing that the percentage does not."""
_LONGEST_STATEMENT = 40
_USUAL = 80
"""Columns of a terminal that does not tell its width."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """How far a round is."""

    files: int = 0
    done: int = 0
    """Files read."""
    statements: int = 0
    statements_done: int = 0
    passed: str = ""
    """Time since its start."""
    left: str = ""
    """Time until its end."""
    rows: str = ""
    rate: str = ""
    lag: str = ""
    """Empty if no checkpoint is known."""
    statement: str = ""
    """Which statement was started last; empty if none was."""

    @property
    def steps(self) -> int:
        """Files and statements."""
        return self.files + self.statements

    @property
    def steps_done(self) -> int:
        """Those of them that are done."""
        return self.done + self.statements_done


def columns(stream: TextIO) -> int:
    """Return the columns that a line may have: one less than the terminal, since some wrap a line that fills it."""
    width = 0
    with suppress(OSError, ValueError, AttributeError):
        width = os.get_terminal_size(stream.fileno()).columns
    # A terminal without a size, as in some containers, says 0.
    told = os.environ.get("COLUMNS", "")
    return max(1, (width or (int(told) if told.isascii() and told.isdecimal() else 0) or _USUAL) - 1)


def bar_format(figures: Figures, width: int) -> str:
    """Return tqdm's format of the line that says most of all that fit into `width` columns."""
    for before, behind in _layouts(figures):
        text = disp_len(before) + disp_len(behind)
        if behind and text + _LEAST_BAR <= width:
            return f"{_literal(before)}{{bar}}{_literal(behind)}"
        if not behind and text <= width:
            return _literal(before)
    return _literal(disp_trim(before, width))


def _layouts(figures: Figures) -> Iterator[tuple[str, str]]:
    """Yield what comes before and behind the bar, the fullest line first; nothing comes behind where there is no bar."""
    percentage = f"{figures.steps_done * 100 // max(figures.steps, 1):3}%"
    statements = f"{figures.statements_done}/{figures.statements} statements" if figures.statements else ""
    files = _joined(statements, f"{figures.done}/{figures.files} files" if figures.files else "")
    left = f"{figures.left} left"
    statement = disp_trim(figures.statement, _LONGEST_STATEMENT)
    full = _joined(f"{figures.passed}<{figures.left}", statement, figures.rows, figures.rate, figures.lag)
    yield f"catching up: {percentage}|", f"| {files} [{full}]"
    yield f"{percentage}|", f"| {files} [{full}]"
    yield f"{percentage}|", f"| {files} [{_joined(left, statement, figures.rate, figures.lag)}]"
    yield f"{percentage}|", f"| {_joined(left, statement, figures.lag)}"
    yield f"{percentage}|", f"| {_joined(left, figures.lag)}"
    yield f"{percentage} {_joined(statement or left, figures.lag)}", ""
    yield f"{percentage} {_joined(left, figures.lag)}", ""
    yield f"{percentage} {figures.lag or left}", ""
    yield percentage, ""


def _joined(*texts: str) -> str:
    return ", ".join(text for text in texts if text)


def _literal(text: str) -> str:
    """Return a text that a format leaves as it is."""
    return text.replace("{", "{{").replace("}", "}}")
