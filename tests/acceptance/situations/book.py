"""The pages of the situations: their blocks are compared with what was seen, or written anew."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.acceptance.situations.agreeing import Witness

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "operations" / "situations"
_BLOCK = re.compile(r"^<!-- shown: (?P<name>[\w ]+) -->\n```text\n(?P<text>.*?)^```\n", re.DOTALL | re.MULTILINE)


@dataclass(slots=True)
class Book:
    """The pages, and what is wrong with them."""

    writes: bool
    """Whether blocks are written anew rather than compared."""
    folder: Path = FOLDER
    stale: list[str] = field(default_factory=list)
    """Page and block with what the block should say, for each that says something else."""
    witnesses: list[Witness] = field(default_factory=list)
    """Who looked while the pages were shown."""
    _seen: dict[str, set[str]] = field(default_factory=dict)

    def shows(self, page: str, seen: Mapping[str, str]) -> None:
        """Compare blocks of a page with what was seen, by the names of the blocks; or write them."""
        path = self.folder / f"{page}.md"
        self._seen.setdefault(page, set()).update(seen)
        text = path.read_text(encoding="utf-8") if path.exists() else f"# {page}\n"
        shown = _blocks(text)
        if self.writes:
            for name in [name for name in seen if name not in shown]:
                text += "\n" + _block(name, "")
            path.write_text(
                _BLOCK.sub(lambda found: _block(found["name"], seen.get(found["name"], found["text"])), text),
                encoding="utf-8",
            )
            return
        self.stale += [
            f"{path.name}: {name}\n--- shown\n{shown.get(name, '')}--- seen\n{text}"
            for name, text in seen.items()
            if shown.get(name) != text
        ]

    def close(self) -> None:
        """Raise `AssertionError` where a block is stale, or was not seen, or where what shows a feed disagreed."""
        for witness in self.witnesses:
            witness.end()
        for page, seen in self._seen.items():
            shown = _blocks((self.folder / f"{page}.md").read_text(encoding="utf-8"))
            self.stale += [f"{page}.md: nothing like the block `{name}` was seen" for name in shown.keys() - seen]
        assert not self.stale, "\n".join(
            ["python -m pytest tests/acceptance/situations --write-situations", *self.stale]
        )


def _blocks(text: str) -> dict[str, str]:
    return {found["name"]: found["text"] for found in _BLOCK.finditer(text)}


def _block(name: str, text: str) -> str:
    return f"<!-- shown: {name} -->\n```text\n{text}```\n"
