"""``python -m tests.harness.field_notes``: what users lost data over, with the tests that show what this program does there.

The ids are those of ``field_notes.md`` beside this file: public threads, told in a line each. A test names the ones that it shows
in parentheses in its docstring, as in ``(C1, O8)``.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[1]
NOTES = Path(__file__).with_name("field_notes.md")
_ROW = re.compile(r"\| (?P<id>[A-Z]\d+) \| (?P<threads>.+?) \| (?P<happened>.+?) \| (?P<open>.*?) ?\|")
_IDS = re.compile(r"\(([CDOPSTU]\d+(?:, [CDOPSTU]\d+)*)\)")
_THREAD = re.compile(r"\[([^]]+)\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One way in which users lost data."""

    id: str
    threads: tuple[str, ...]
    """Each as ``owner/repository#number``."""
    happened: str
    open: str
    """What no test shows, or what the program does not do; empty where tests show all of it."""


def notes() -> tuple[Note, ...]:
    """The table, in its order."""
    found = map(_ROW.fullmatch, NOTES.read_text(encoding="utf-8").splitlines())
    return tuple(
        Note(id=row["id"], threads=tuple(_THREAD.findall(row["threads"])), happened=row["happened"], open=row["open"])
        for row in found
        if row
    )


def naming_tests(folder: Path = FOLDER) -> dict[str, list[str]]:
    """Id → the tests whose docstrings name it, as pytest writes them."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("test_*.py")):
        for name, docstring in _tests(path):
            for each in (one for ids in _IDS.findall(docstring) for one in ids.split(", ")):
                found.setdefault(each, []).append(f"{path.relative_to(folder.parent).as_posix()}::{name}")
    return found


def _tests(path: Path) -> Iterator[tuple[str, str]]:
    """Name and docstring of each test in a module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node.name, ast.get_docstring(node) or ""


def main() -> int:
    """Print each note with its threads and tests."""
    tests = naming_tests()
    for note in notes():
        print(f"{note.id:4} {note.happened}\n     {', '.join(note.threads)}")
        for line in tests.get(note.id, ()):
            print(f"     shown by {line}")
        if note.open:
            print(f"     open: {note.open}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
