"""A real browser: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Browser, Page, Request, sync_playwright


@dataclass(slots=True)
class Tab:
    """A page in a context of its own, and what it did that it should not do."""

    page: Page
    home: str
    """What all addresses that it may ask for begin with."""
    complaints: list[str] = field(default_factory=list)
    """Errors of the console and of scripts, and requests to other hosts."""

    def __post_init__(self) -> None:
        """Listen from the start."""
        self.page.on("console", lambda said: self._complain(said.text) if said.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self._complain(str(error)))
        self.page.on("request", lambda request: self._asked(request))  # noqa: PLW0108 - Playwright marks what it is given

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((self.home, "data:")):
            self._complain(f"asked for {request.url}")

    def _complain(self, text: str) -> None:
        self.complaints.append(text)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser. While it is open, no other event loop can run in this thread."""
    program = os.environ.get("STORAGE_CONSUMER_CHROMIUM") or shutil.which("chromium") or "chromium"
    with sync_playwright() as playwright:
        # Root may not use Chromium's own sandbox; it only sees what the tests serve. Grey edges of letters
        # make small pictures.
        found = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-lcd-text"])
        yield found
        found.close()


@contextmanager
def tab(browser: Browser, home: str, **options: Any) -> Iterator[Tab]:
    """A page that has asked for nothing yet; `options` are those of Playwright's contexts."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
    try:
        yield Tab(page=context.new_page(), home=home)
    finally:
        context.close()
