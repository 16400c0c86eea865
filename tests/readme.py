"""The README, and what tests take from it."""

from __future__ import annotations

import re
from pathlib import Path

README = (Path(__file__).resolve().parent.parent / "README.md").read_text(encoding="utf-8")
RIGHTS = " ".join((re.search(r"for the replicated schemas `([A-Z, \n]+)`", README) or [""] * 2)[1].split())
"""What it says the target's user needs, separated by commas."""
