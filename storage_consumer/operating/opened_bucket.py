"""A bucket, opened by the options that lead to it, for those who only read it."""

from __future__ import annotations

from collections.abc import Mapping

from storage_consumer.config.load import Loaded, load, with_files_read
from storage_consumer.inspection.inspector import completed, inspect
from storage_consumer.storage.base import Storage
from storage_consumer.storage.open import open_storage
from storage_consumer.telemetry import register_secret


def opened_bucket(options: Mapping[str, object], environ: Mapping[str, str], now: float) -> tuple[Loaded, Storage]:
    """Return the settings, completed by what the bucket shows, and its storage. `now`: seconds since 1970-01-01 UTC.

    Raises `ConfigError` for settings that are wrong or that the bucket leaves open, and `StorageUnavailable`.
    """
    loaded = load(with_files_read(options, environ), environ, target=False)
    for secret in loaded.hidden:
        register_secret(secret)
    storage = open_storage(loaded.config.upstream, loaded.secrets)
    if loaded.unset:
        loaded = completed(loaded, inspect(storage, loaded.config.upstream, loaded.origins, now))
    return loaded, storage
