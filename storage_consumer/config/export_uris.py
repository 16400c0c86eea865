"""Where an export is, by its URI."""

from __future__ import annotations

from storage_consumer.config import parsers, stores
from storage_consumer.config.settings import Upstream
from storage_consumer.config.uris import parse_upstream


def export_origin(uri: str, time_zone: str) -> Upstream:
    """Return the store of an export, and the zone of its TIMESTAMP values; its files show how they are written. Raise `ConfigError`."""
    parsed = parse_upstream(uri)
    store = stores.SCHEMES[parsed.scheme]
    path_style = parsed.parameters.get("force-path-style") or stores.path_style(parsed.parameters)
    return Upstream(
        scheme=store,
        root=parsed.path if store == "file" else f"{parsed.host}{parsed.path}",
        endpoint=stores.endpoint(store, parsed.parameters),
        region=parsed.parameters.get("region", ""),
        force_path_style=parsers.boolean(path_style),
        account_name=parsed.parameters.get("account-name", ""),
        protocol="dump-sql",
        time_zone=time_zone,
    )
