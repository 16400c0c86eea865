"""The ``metadata`` file: ``{"checkpoint-ts":449000000000000001}``, overwritten in place by TiCDC."""

from __future__ import annotations

import json

_MAX_UINT64 = (1 << 64) - 1
_SHOWN = 60


class Metadata:
    """The highest checkpoint-ts read so far, and what was odd on the way."""

    def __init__(self) -> None:
        """Before the first reading."""
        self.checkpoint = 0
        """0 until there is one."""
        self.unreadable = 0
        """How often the file was there but held no checkpoint-ts."""
        self._last: int | None = -1

    def update(self, content: bytes | None) -> tuple[str, ...]:
        """Take in the file's content, None where it is absent; what an operator should hear. A value is said once."""
        if content is None:
            return self._absent()
        ts = parse_metadata(content)
        if ts is None:
            self.unreadable += 1
            shown = content[:_SHOWN]
            return _said(
                f"metadata holds no checkpoint-ts but {shown!r}; the last good value {self.checkpoint} stays. If this goes "
                "on, look at the changefeed"
            )
        known, self._last = self._last, ts
        if ts < self.checkpoint and ts != known:
            return _said(
                f"metadata went back from {self.checkpoint} to {ts}: the changefeed was resumed from an older point or "
                f"recreated. {self.checkpoint} stays in force, and repeated rows are expected"
            )
        self.checkpoint = max(self.checkpoint, ts)
        return ()

    def _absent(self) -> tuple[str, ...]:
        known, self._last = self._last, None
        if known is None:
            return ()
        if self.checkpoint:
            return _said(f"metadata is gone; its last value {self.checkpoint} stays in force")
        return _said(
            "there is no metadata file yet: nothing is applied before TiCDC writes its first checkpoint. If the "
            "changefeed has been running for a while, the upstream URI names another folder than its sink URI"
        )


def _said(text: str) -> tuple[str, ...]:
    return (text,)


def parse_metadata(content: bytes) -> int | None:
    """The checkpoint-ts, an exact integer; None where the content is torn or is not what TiCDC writes."""
    try:
        document = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    ts = document.get("checkpoint-ts") if isinstance(document, dict) else None
    return ts if isinstance(ts, int) and not isinstance(ts, bool) and 0 <= ts <= _MAX_UINT64 else None
