"""Small buckets, and feeds over them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from storage_consumer.bucket.stores import open_storage
from storage_consumer.changes.reading import Feed, Wanted
from storage_consumer.changes.render_sql import undone
from storage_consumer.changes.window import Change, Event, FeedStatement
from storage_consumer.config.load import Loaded, load
from storage_consumer.decode.kernels.arrays import DELETE, INSERT, PARTIAL_DELETE, UPDATE
from tests.harness.small_bucket import SmallBucket, ts
from tests.harness.twins.storage import FakeClock, MemoryStorage

LETTERS = {INSERT: "I", UPDATE: "U", DELETE: "D", PARTIAL_DELETE: "P"}


def feed_of(
    bucket: SmallBucket, *rules: str, old: bool = False, storage: MemoryStorage | None = None, **csv: Any
) -> Feed:
    """A feed of a bucket, as of a process that was just started. `old`: its CSV has old values; `csv`: more of its options.

    `storage`: what holds the files in the place of the bucket's folder.
    """
    loaded = loaded_of(bucket, output_old_value=old)
    upstream = replace(loaded.config.upstream, csv=replace(loaded.config.upstream.csv, **csv))
    return Feed(storage or open_storage(upstream, loaded.secrets), upstream, FakeClock(), rules)


def loaded_of(bucket: SmallBucket, **options: Any) -> Loaded:
    """The settings of a bucket."""
    return load({"upstream_uri": bucket.uri, "tz": "UTC", "include_commit_ts": True, **options}, {}, target=False)


def undone_of(bucket: SmallBucket, *rules: str, low: int, high: int | None = None, old: bool = False) -> list[str]:
    """What takes back a window of a bucket: exclusive, inclusive."""
    feed = feed_of(bucket, *rules, old=old)
    window = feed.window(low, high)
    return undone(window, feed.ordered(window).events(), feed.contents.definitions, feed.protocol)


def told(events: Iterable[Event | None]) -> list[str]:
    """Each event in a few words: tick, operation, table, values; a statement by its first words."""
    return [_told(event) for event in events if event is not None]


def _told(event: Event) -> str:
    tick = (event.commit_ts - ts(0)) / (ts(1) - ts(0))
    if isinstance(event, FeedStatement):
        return f"{tick:g} {' '.join(event.definition.query.split()[:3])}"
    return f"{tick:g} {LETTERS[event.operation]} {event.structure.table} {_image(event)}"


def _image(event: Change) -> str:
    before = "" if event.old is None else f"{_texts(event.old)} > "
    return before + _texts(event.values)


def _texts(values: tuple[str | None, ...]) -> str:
    return ",".join("NULL" if text is None else text for text in values)


def everything(bucket: SmallBucket, *rules: str, wanted: Wanted = lambda _: True) -> list[str]:
    """All events of a bucket."""
    return told(feed_of(bucket, *rules).events(0, wanted=wanted))


__all__ = ["everything", "feed_of", "told", "undone_of"]
