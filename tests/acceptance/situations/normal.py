"""What differs from run to run in an output is replaced by what the pages show: moments, durations, processes, places."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence

from storage_consumer.clock import span
from storage_consumer.telemetry import tso_time

WIDTH = 118
"""Columns of a block."""
_BEGIN = 1_795_428_000_000
"""2026-11-23T10:00:00Z in milliseconds: when the situations of the pages happen."""
_STEP = 10_000
_TSO = re.compile(r"(?<!\d)4\d{17}(?!\d)")
_TIME = re.compile(r"\d{4}-\d\d-\d\d([T ])\d\d:\d\d:\d\d(?:\.\d+)?")
_NOW = re.compile(rf"(\bsince |\"time\": \"|\btime=)({_TIME.pattern})")
"""Times of the machine's clock, which may happen to be those of a TSO."""
_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_SPAN = re.compile(r"(?<![\w.-])(\d+)([dhms])(?:(\d\d)([hms]))?(?![\w-])")
_SECONDS = re.compile(r"^(storage_consumer_\w*_seconds(?:\{[^}]*\})?) ([\d.e+]+)$", re.MULTILINE)
_NUMBER = re.compile(r"\b(lag_seconds=)[\d.]+")
_SHORT, _SLOW, _COARSE = 3.0, 300.0, 300.0
"""Seconds that are shown for all durations below the second figure; the step of those from there on."""


def tick(number: int) -> int:
    """The TSO that stands in the pages for the situation's TSO number `number`; earlier ones are number 0."""
    return (_BEGIN + number * _STEP) << 18


def normal(text: str, marks: Sequence[int], places: Mapping[str, str]) -> str:
    """Return a text as the pages have it. `marks`: the TSOs of the situation; `places`: what is replaced as it stands, the longest first."""
    for real in sorted(places, key=len, reverse=True):
        text = text.replace(real, places[real])
    numbers = {mark: tick(number) for number, mark in enumerate(sorted(set(marks)), 1)}
    times = {tso_time(mark)[:19]: tso_time(shown)[:19] for mark, shown in numbers.items()}
    # Times before TSOs, whose digits they do not have.
    text = _NOW.sub(lambda found: found[1] + _TIME.sub(lambda time: _time(time, {}), found[2]), text)
    text = _TIME.sub(lambda found: _time(found, times), text)
    text = _TSO.sub(lambda found: str(numbers.get(int(found[0]), tick(0))), text)
    text = re.sub(r"\bhost [\w.-]+, pid \d+", "host db1, pid 4711", text)
    text = re.sub(
        r"^(  target +)\S+ \(\w+ .+\)$", r"\1db.example.com:3306 (mariadb 11.8.2-MariaDB)", text, flags=re.MULTILINE
    )
    text = re.sub(r"^(  version +)[\d.]+$", r"\g<1>0.2.0", text, flags=re.MULTILINE)
    text = re.sub(r"\bby \S+@\S+ since", "by ada@db1 since", text)
    text = _SPAN.sub(_span, text)
    text = _NUMBER.sub(r"\g<1>3.0", text)
    return _SECONDS.sub(lambda found: f"{found[1]} {_seconds(float(found[2]))}", text)


def wrapped(text: str, width: int = WIDTH) -> str:
    """Return a text whose long lines are continued below themselves; those that are to be pasted stay whole."""
    lines: list[str] = []
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        whole = line.lstrip().startswith(("next: ", "$ ", "storage-consumer "))
        lines += [line] if whole or len(line) <= width else _folded(line, indent, width)
    return "\n".join(lines) + "\n"


def _folded(line: str, indent: str, width: int) -> list[str]:
    first = line[: len(line) - len(line.lstrip())]
    return textwrap.wrap(
        line.strip(),
        width,
        initial_indent=first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _time(found: re.Match[str], times: Mapping[str, str]) -> str:
    """Return the time of the page for one in an output; all that no TSO of the situation has are the beginning."""
    shown = times.get(found[0][:19].replace(" ", "T"), tso_time(tick(0))[:19])
    fraction = ".000" if "." in found[0] else ""
    return shown.replace("T", found[1]) + fraction


def _span(found: re.Match[str]) -> str:
    """Return a duration that a slow machine may have made as a short one, and a longer one in steps of five minutes."""
    seconds = int(found[1]) * _UNITS[found[2]] + int(found[3] or 0) * _UNITS[found[4] or "s"]
    # A limit that somebody typed has no second part.
    if seconds >= _SLOW and found[4] is None:
        return found[0]
    return span(_coarse(seconds))


def _seconds(value: float) -> str:
    if value < 1e-9 or value > 1e8:
        return "0.0" if value < 1 else "1.795428e+09"
    return f"{_coarse(value):.1f}"


def _coarse(seconds: float) -> float:
    return _SHORT if seconds < _SLOW else seconds // _COARSE * _COARSE
