"""Whether the files of an export are all of one run of Dumpling, as far as the times at which they were written show it.

A run overwrites what has the same name and leaves everything else: of a table that shrank, the last files of an older run; of one that was
dropped, all of them. No file is older than the run that wrote it, and a copy is younger still, so a time before the beginning proves an
older run, whoever copied what. How exactly the beginning is known depends on the export:

* ``metadata`` has the local time of Dumpling's host, without a zone, and none is more than 14 hours ahead of UTC;
* rows of a snapshot were not written before it, and its TSO has a time in UTC, by the source's clock;
* ``metadata`` is written last. If its own time is the one that it says, in some zone, and the run began with the snapshot, then the files have
  their times from the run itself: the beginning is known by the store's own clock, and nothing of the run is younger than ``metadata``.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from storage_consumer.errors import ExportRefused, ExportUnfinished
from storage_consumer.exports.data_files import AGAIN
from storage_consumer.exports.metadata import Metadata
from storage_consumer.exports.names import METADATA
from storage_consumer.model import StoredObject, physical_ms

_FARTHEST_ZONE = 14 * 3600
_CLOCKS = 10 * 60
"""Seconds by which the source's clock may differ from the store's."""
_ZONES = 15 * 60
"""All zones differ from UTC by a multiple of this."""
_WRITING = 10
"""Seconds between the time in ``metadata`` and that of the file."""
_SLACK = 60


def refuse_other_runs(head: Metadata, listed: Sequence[StoredObject]) -> None:
    """Raise `ExportRefused` for files of an older run, `ExportUnfinished` for those of a newer one that has no ``metadata`` yet."""
    try:
        started, finished = map(_seconds, (head.started_at, head.finished_at))
    except ValueError:
        return
    end = next(stored.modified for stored in listed if stored.path == METADATA)
    snapshot = physical_ms(head.snapshot) / 1000
    first, last = max(started - _FARTHEST_ZONE, snapshot - _CLOCKS), float("inf")
    # Where `metadata` itself is too old, or has no time, the times mean something else, as in an archive that keeps none.
    if end < first:
        return
    began = end - (finished - started)
    off = (end - finished + _ZONES / 2) % _ZONES - _ZONES / 2
    if abs(off) <= _WRITING and abs(began - snapshot) <= _CLOCKS:
        first, last = max(first, began - _SLACK), end + _SLACK
    if older := [stored for stored in listed if 0 < stored.modified < first]:
        raise ExportRefused(
            f"{_named(older)}, before this export began, which is as of {_time(snapshot) if snapshot else head.started_at}: files of two exports "
            f"lie in one folder, and rows of the older one would be loaded too; {AGAIN}, or move all files away that are older"
        )
    if newer := [stored for stored in listed if stored.modified > last]:
        raise ExportUnfinished(
            f"{_named(newer)}, after {METADATA}, which is written last: another export into the same folder has begun since, or failed; wait "
            f"for it, or {AGAIN}. If you changed the file yourself, make {METADATA} younger again (`touch`)"
        )


def _seconds(local: str) -> float:
    return datetime.fromisoformat(local).replace(tzinfo=UTC).timestamp()


def _named(files: Sequence[StoredObject]) -> str:
    shown = min(files, key=lambda stored: stored.path)
    more = f" (and {len(files) - 1} more)" if len(files) > 1 else ""
    return f"{shown.path}{more} was written at {_time(shown.modified)}"


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
