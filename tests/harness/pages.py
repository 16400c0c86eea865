"""The pages that users read, and what tests take from them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
}
"""Text of the README and of each page below docs/, by its path from the root."""
RUNNING = PAGES["docs/operations/running.md"]
RIGHTS = " ".join((re.search(r"for the replicated schemas `([A-Z, \n]+)`", RUNNING) or [""] * 2)[1].split())
"""What the target's user needs as the pages say it, separated by commas."""
REFERENCE = {name: f"docs/reference/{name}.md" for name in ("options", "differences", "log-events", "errors")}
"""The pages that are made from the code."""

_FENCE = re.compile(
    r"(?:^<!-- (?P<marker>[^\n]*) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
_INLINE = re.compile(r"(?<!`)`([^`]+)`(?!`)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block of a page."""

    page: str
    marker: str
    """The comment on the line before it; empty for none."""
    language: str
    text: str


def blocks(*languages: str) -> list[Block]:
    """Return the fenced blocks of all pages in any of these languages."""
    return [
        Block(page=page, marker=found["marker"] or "", language=found["language"], text=found["text"])
        for page, text in PAGES.items()
        for found in _FENCE.finditer(text)
        if found["language"] in languages
    ]


def prose(page: str) -> str:
    """Return a page without its fenced blocks."""
    return _FENCE.sub("", PAGES[page])


def inline_code() -> Iterator[tuple[str, str]]:
    """Yield each page with each piece of code in its prose, on one line."""
    for page in PAGES:
        for code in _INLINE.findall(prose(page)):
            yield page, " ".join(code.split())
