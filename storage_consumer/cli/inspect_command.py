"""The command `inspect`: options in, text out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from storage_consumer.cli.inspect_report import as_document, as_text
from storage_consumer.config.load import load, with_files_read
from storage_consumer.config.parsers import Document
from storage_consumer.config.settings import Secrets, Upstream
from storage_consumer.inspection.inspector import inspect
from storage_consumer.inspection.places import likely_places
from storage_consumer.storage.base import Storage
from storage_consumer.telemetry import json_text, register_secret


def inspected(
    options: Mapping[str, object], environ: Mapping[str, str], open_storage: Callable[[Upstream, Secrets], Storage]
) -> tuple[str, bool]:
    """Return what to print about a bucket, and whether no setting is missing or contradicted.

    `options`: keywords, and ``json``. Raises `ConfigError` if the arguments are wrong or the bucket does not exist, and
    `StorageUnavailable` if it does not answer.
    """
    given = dict(options)
    as_json = bool(given.pop("json", None))
    given = with_files_read(given, environ)
    loaded = load(given, environ, target=False)
    for secret in loaded.hidden:
        register_secret(secret)
    upstream = loaded.config.upstream
    storage = open_storage(upstream, loaded.secrets)
    storage.check()
    bucket = inspect(storage, upstream, loaded.told, time.time())
    if not bucket.checkpoint:
        bucket = replace(bucket, likely=likely_places(upstream, lambda near: open_storage(near, loaded.secrets)))
    configs = _sources(given.get("config"))
    text = json_text(as_document(bucket, configs)) if as_json else as_text(bucket, configs)
    return text, not (bucket.missing or bucket.contradictions or bucket.likely)


def _sources(config: object) -> list[str]:
    """Return the names of the TOML files that were read."""
    documents = config if isinstance(config, list) else []
    return [document.source for document in documents if isinstance(document, Document)]
