"""Links of the README and of docs/ lead somewhere, and every page can be found."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.harness.pages import PAGES, ROOT, prose

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
INLINE = re.compile(r"`[^`]*`")
HEADING = re.compile(r"^#{1,6} +(.*?) *#*$", re.MULTILINE)
BEYOND = ("https://", "http://", "mailto:")


def slug(heading: str) -> str:
    """Return the anchor that GitHub gives a heading which is the first of its text."""
    text = LINK.sub(lambda link: link[0][1:].partition("]")[0], heading)
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def anchors(page: str) -> set[str]:
    """Return the anchors of a page; a heading whose text was there before gets a number."""
    seen = Counter[str]()
    found = set[str]()
    for heading in HEADING.findall(prose(page)):
        name = slug(heading)
        found.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return found


def links(page: str) -> Iterator[tuple[str, str]]:
    """Yield path from the root and anchor of each link of a page into the repository."""
    for target in LINK.findall(INLINE.sub("", prose(page))):
        if not target.startswith(BEYOND):
            path, _, anchor = target.partition("#")
            yield posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page, anchor


def leads_somewhere(path: str, anchor: str) -> bool:
    """Return whether a file or folder is there, with this anchor if one is named."""
    if not (ROOT / path).exists() or path.startswith(".."):
        return False
    return not anchor or (path in PAGES and anchor in anchors(path))


def test_links_lead_somewhere() -> None:
    """No relative link, with or without an anchor, leads nowhere."""
    dead = [(page, path, anchor) for page in PAGES for path, anchor in links(page) if not leads_somewhere(path, anchor)]
    assert dead == []


def test_every_page_can_be_found() -> None:
    """Links lead from the README to every page."""
    found, open_pages = {"README.md"}, ["README.md"]
    while open_pages:
        for path, _ in links(open_pages.pop()):
            if path in PAGES and path not in found:
                found.add(path)
                open_pages.append(path)
    assert set(PAGES) - found == set()


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("Exit codes", "exit-codes"),
        ("Who gets the `password`?", "who-gets-the-password"),
        ("Options, and `--json`", "options-and---json"),
        ("From [here](there.md) on", "from-here-on"),
    ],
)
def test_anchors_are_those_of_github(heading: str, anchor: str) -> None:
    """The ruler itself: small letters, hyphens for blanks, no other punctuation."""
    assert slug(heading) == anchor
