"""The command `inspect`: options in, text out."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping

from storage_consumer.config.load import load, with_files_read
from storage_consumer.config.parsers import Document
from storage_consumer.config.settings import Secrets, Upstream
from storage_consumer.inspection.inspector import inspect
from storage_consumer.inspection.report import as_document, as_text
from storage_consumer.storage.reader import Storage
from storage_consumer.telemetry import register_secret


def inspected(
    options: Mapping[str, object], environ: Mapping[str, str], open_storage: Callable[[Upstream, Secrets], Storage]
) -> tuple[str, bool]:
    """What to print about a bucket, and whether nothing is missing or contradicts.

    `options`: keywords, and ``json``. Raises `ConfigError` for wrong arguments and where the bucket does not exist,
    `StorageUnavailable` where it does not answer.
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
    configs = _sources(given.get("config"))
    if as_json:
        text = json.dumps(as_document(bucket, configs), ensure_ascii=False, indent=2) + "\n"
    else:
        text = as_text(bucket, configs)
    return text, not bucket.missing and not bucket.contradictions


def _sources(config: object) -> list[str]:
    """The names of the TOML files that were read."""
    documents = config if isinstance(config, list) else []
    return [document.source for document in documents if isinstance(document, Document)]
