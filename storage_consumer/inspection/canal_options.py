"""Infer how canal-json was written: messages name their fields, so there is little to find out."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from storage_consumer.inspection.samples import Sample

_MOST_MESSAGES = 200
_BETWEEN = re.compile(r"[^{]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class CanalVerdict:
    """What the messages of the samples show."""

    terminators: dict[str, str] = field(default_factory=dict)
    """What follows a message → file and row."""
    extensions: dict[bool, str] = field(default_factory=dict)
    """Whether a message carries its commit-ts → file and row."""
    set_aside: tuple[str, ...] = ()
    """Paths of samples that are not canal-json."""
    commit_ts: tuple[int, ...] = ()
    """Lowest and highest commit-ts seen (both inclusive), if any."""


def infer_canal(samples: list[Sample]) -> CanalVerdict:
    """Return what the messages at the beginning of each sample show."""
    terminators: dict[str, str] = {}
    extensions: dict[bool, str] = {}
    aside: list[str] = []
    seen: set[int] = set()
    for sample in samples:
        number = 0
        for number, (message, end) in enumerate(_messages(sample), start=1):
            place = f"{sample.path} row {number}"
            ts = _commit_ts(message)
            extensions.setdefault(ts is not None, place)
            seen |= set() if ts is None else {ts}
            if end is not None:
                terminators.setdefault(end, place)
        # A sample that is cut off may end inside its first message, which shows nothing.
        if not number and sample.complete:
            aside.append(sample.path)
    span = (min(seen), max(seen)) if seen else ()
    return CanalVerdict(terminators=terminators, extensions=extensions, set_aside=tuple(aside), commit_ts=span)


def _messages(sample: Sample) -> list[tuple[dict[str, object], str | None]]:
    """Return messages and what follows each of them; None if the sample ends before that is known."""
    text = sample.content.decode("utf-8", "replace")
    decoder = json.JSONDecoder()
    found: list[tuple[dict[str, object], str | None]] = []
    position = 0
    while position < len(text) and len(found) < _MOST_MESSAGES:
        try:
            message, position = decoder.raw_decode(text, position)
        except ValueError:
            break
        if not isinstance(message, dict) or "database" not in message:
            break
        # Up to the brace that begins the next message: a terminator with a brace is not recognized.
        between = _BETWEEN.match(text, position)
        end = between[0] if between else ""
        position += len(end)
        # At the end of what was read the terminator may be cut short.
        known = position < len(text) or sample.complete
        found.append((message, end if known else None))
    return found


def _commit_ts(message: dict[str, object]) -> int | None:
    extension = message.get("_tidb")
    ts = extension.get("commitTs") if isinstance(extension, dict) else None
    return ts if isinstance(ts, int) and ts > 0 else None
