"""Adapters: object stores and folders as a `Storage`.

Takes: settings and secrets. Gives: listings, small files, and the blocks of large ones.
Touches the outside: the stores, each through its own driver, which is loaded when its storage is
first used.
"""

from __future__ import annotations

from storage_consumer.bucket.storage import Folder, Storage
from storage_consumer.bucket.stores.azure import AzureStorage
from storage_consumer.bucket.stores.gcs import GcsStorage
from storage_consumer.bucket.stores.local import LocalStorage
from storage_consumer.bucket.stores.object_store import Bucket
from storage_consumer.bucket.stores.s3 import S3Storage
from storage_consumer.config.settings import Secrets, Upstream

_BUCKETS: dict[str, type[Bucket]] = {"s3": S3Storage, "gcs": GcsStorage, "azure": AzureStorage}


def open_storage(upstream: Upstream, secrets: Secrets) -> Storage:
    """Return the storage that `upstream` names, without asking anything of it yet."""
    return open_folder(upstream, secrets)


def open_folder(upstream: Upstream, secrets: Secrets) -> Folder:
    """Return the same storage as one that takes objects; for exports only."""
    if upstream.scheme == "file":
        return LocalStorage(upstream.root)
    return _BUCKETS[upstream.scheme](upstream, secrets)
