"""The events that the program may log, as ``docs/reference/log-events.md`` declares them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "log-events.md"
_LINE = re.compile(r"^\* `(\w+)` \(([A-Z, ]+?)((?:, `\w+`)*)\): (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Event:
    """One kind of log line."""

    levels: frozenset[str]
    """Levels at which it is logged, as methods of `telemetry.Log`."""
    fields: frozenset[str]
    meaning: str


EVENTS = {
    name: Event(
        frozenset("warning" if level == "WARN" else level.lower() for level in levels.split(", ")),
        frozenset(re.findall(r"\w+", fields)),
        meaning,
    )
    for name, levels, fields, meaning in _LINE.findall(_PAGE.read_text(encoding="utf-8"))
}
