"""Before anything is created or bound: is there a bucket that TiCDC has begun to write?"""

from __future__ import annotations

from collections.abc import Callable

from storage_consumer.bucket.inspector import missing_metadata
from storage_consumer.bucket.storage import METADATA_BYTES, Storage
from storage_consumer.clock import Clock, StopSignal
from storage_consumer.config.settings import Tuning, Upstream
from storage_consumer.errors import NoMetadata, TransientError
from storage_consumer.telemetry import Log

_log = Log("beginning")
_PAUSE = 1.0
"""Seconds between two attempts to look at a bucket that does not answer."""


def wait_for_metadata(
    upstream: Upstream,
    opened: Callable[[Upstream], Storage],
    tuning: Tuning,
    clock: Clock,
    stop: StopSignal,
    *,
    once: bool,
) -> bool:
    """Wait until the bucket has a ``metadata``, whatever is in it; return False when asked to stop before.

    Raises `NoMetadata` where `once` allows no second look, `ConfigError` as `Storage.check` does, and `TransientError` when
    the bucket does not answer within the limit.
    """
    storage, has_logged = opened(upstream), False
    answered = clock.monotonic()
    while not stop.requested.is_set():
        pause = tuning.flush_interval
        try:
            storage.check()
            if _has_metadata(storage):
                return True
            answered = clock.monotonic()
        except TransientError:
            # Only silence counts. A bucket that answers without a `metadata` is waited for without a limit.
            if clock.monotonic() - answered >= tuning.retry_limit:
                raise
            # Not `flush_interval`, which may be long: a bucket that is only away for a moment should not delay the start.
            pause = _PAUSE
        else:
            # Only the first time: to look for likely places costs listings.
            text = "" if has_logged else missing_metadata(upstream, opened)
            if once:
                raise NoMetadata(text)
            if not has_logged:
                _log.warning("checkpoint_missing", path="metadata", text=text)
                has_logged = True
        clock.wait(stop.requested, pause)
    return False


def _has_metadata(storage: Storage) -> bool:
    try:
        storage.read("metadata", METADATA_BYTES)
    except FileNotFoundError:
        return False
    return True
