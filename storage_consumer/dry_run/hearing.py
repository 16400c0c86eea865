"""What the engine warns of while it plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_TEXTS = frozenset(("notice", "storage_warning", "schema_warning"))


@dataclass(slots=True)
class Heard:
    """Keeps warnings, each once; see `telemetry.heard_by`."""

    texts: list[str] = field(default_factory=list)

    def __call__(self, event: str, _: int, fields: Mapping[str, object]) -> None:
        """Keep a warning about bucket or settings; what the round says of itself is part of the plan already."""
        text = str(fields.get("text", "")) if event in _TEXTS else ""
        if event == "checkpoint_missing":
            text = "the bucket has no readable metadata: nothing is applied before TiCDC writes it"
        if text and text not in self.texts:
            self.texts.append(text)
