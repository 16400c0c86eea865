"""The flags of the commands that read the source, or an export of it: `verify` and `load`."""

from __future__ import annotations

from collections.abc import Mapping

from storage_consumer.cli.verb_options import number_of
from storage_consumer.config import parsers
from storage_consumer.config.export_uris import with_time_zone
from storage_consumer.config.settings import Downstream
from storage_consumer.errors import ConfigError
from storage_consumer.operating.verification import Server, server_at

KEYWORDS = ("source", "source_password_file", "workers", "rows_per_second")
_MOST_WORKERS = 64
_MOST_ROWS = 1 << 40


def workers_of(own: Mapping[str, str], default: int) -> int:
    """Return how many connections read at a time; raise `ConfigError`."""
    return int(number_of(own, "workers", parsers.integer(low=1, high=_MOST_WORKERS), default))


def rows_per_second_of(own: Mapping[str, str], default: float) -> float:
    """Return the most rows that are read in a second, 0 for any number; raise `ConfigError`."""
    return number_of(own, "rows_per_second", parsers.integer(low=0, high=_MOST_ROWS), default)


def server_of(
    own: Mapping[str, str], environ: Mapping[str, str], target: Downstream, *, frozen: bool = False
) -> Server:
    """Return the server that --source names; see `server_at`."""
    return server_at(own["source"], own.get("source_password_file"), environ, target, frozen=frozen)


def with_zone_of(own: Mapping[str, str], uri: str) -> str:
    """Return the URI of an export with the zone that --dump-tz gives, if it does; raise `ConfigError`."""
    try:
        zone = parsers.time_zone(own["dump_tz"]) if "dump_tz" in own else ""
    except ValueError as error:
        raise ConfigError(f"--dump-tz: {error}") from None
    return with_time_zone(uri, zone)
