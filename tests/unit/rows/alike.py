"""The equivalences of structures, as ``docs/operations/verify.md`` names them."""

from __future__ import annotations

import re
from pathlib import Path

_PAGE = Path(__file__).resolve().parents[3] / "docs" / "operations" / "verify.md"
EQUIVALENCES = frozenset(
    re.findall(r"\*([A-Za-z][\w ]+)\*", _PAGE.read_text(encoding="utf-8").partition("## What is alike")[2])
)
