"""Settings that were not given, inferred from the bucket; or an error that names what is missing."""

from __future__ import annotations

from storage_consumer.config.load import Loaded
from storage_consumer.config.options import BY_KEYWORD
from storage_consumer.errors import ConfigError
from storage_consumer.inspection.result import Bucket


def completed(loaded: Loaded, bucket: Bucket) -> Loaded:
    """Return the settings with everything that was given or inferred.

    Raises `ConfigError` that names each setting which the bucket contradicts or leaves open, and how to give it.
    """
    needed = set(loaded.untold)
    against = [each for each in bucket.contradictions if each.keyword not in _OF_PATHS]
    if against:
        raise ConfigError(
            f"{bucket.place} contradicts the settings: "
            + "; ".join(f"--{each.name} was given as {each.value!r}, but {each.origin}" for each in against)
        )
    missing = [each for each in bucket.missing if each.keyword in needed]
    if missing:
        names = ", ".join(f"--{BY_KEYWORD[each.keyword].name} ({each.origin})" for each in missing)
        raise ConfigError(
            f"{bucket.place} does not show how it was written, and no setting says it: give the changefeed's TOML "
            f"file with --config, and its sink URI as --upstream-uri; or give {names}. `storage-consumer inspect` "
            "lists what the bucket shows"
        )
    return loaded.completed(bucket.upstream, bucket.inferred)


_OF_PATHS = frozenset({"date_separator", "enable_partition_separator"})
"""Options that the bucket's reader compares with each path itself."""
