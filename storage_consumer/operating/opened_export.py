"""An export, opened by its URI: read in whole as far as statements go, with the store in which its rows are."""

from __future__ import annotations

from collections.abc import Callable

from storage_consumer.bucket.export import read_export, refuse_unsaid
from storage_consumer.bucket.storage import Storage
from storage_consumer.bucket.stores.open import open_storage
from storage_consumer.config.export_uris import export_origin, parse_export
from storage_consumer.config.settings import Secrets, Upstream
from storage_consumer.driver.open_copies import OpenCopy, copy_of, with_form
from storage_consumer.model import TableName


def opened_export(
    uri: str, bucket: Upstream, secrets: Secrets, *, is_taken: Callable[[TableName], bool] = lambda _: True
) -> tuple[OpenCopy, Storage]:
    """Return the export at a URI as a copy, and the store of its files. `secrets`: the bucket's, with which it is read.

    `is_taken`: which tables are read. Raises `ConfigError` where the URI or the export cannot be used, and what storages raise.
    """
    origin = export_origin(uri, bucket)
    storage = open_storage(origin, secrets)
    export = read_export(storage, wanted=is_taken)
    origin = with_form(origin, export, bucket.time_zone)
    refuse_unsaid(storage, export, origin, said=parse_export(uri).parameters)
    return copy_of(export, origin), storage
