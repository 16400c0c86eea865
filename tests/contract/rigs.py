"""Storages under test, and how their content is changed from outside."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from storage_consumer.bucket.storage import Folder, Storage
from storage_consumer.bucket.stores import open_folder
from storage_consumer.bucket.stores.azure import AzureStorage
from storage_consumer.bucket.stores.gcs import GcsStorage
from storage_consumer.bucket.stores.object_store import Bucket
from storage_consumer.bucket.stores.s3 import S3Storage
from storage_consumer.config.settings import Secrets, Upstream
from tests.harness.azure_server import ACCOUNT, AzureServer
from tests.harness.gcs_server import GcsServer
from tests.harness.s3_server import S3Server, S3User
from tests.harness.twins.storage import MemoryStorage


class Rig(Protocol):
    """A storage under test, and how its content is changed from outside."""

    @property
    def storage(self) -> Storage:
        """What is tested."""
        ...

    @property
    def folder(self) -> Folder:
        """The same, opened by one who may write."""
        ...

    def put(self, path: str, content: bytes) -> None:
        """Write an object."""

    def delete(self, path: str) -> None:
        """Remove an object."""


class BucketRig(Rig, Protocol):
    """The same for a store that is asked over a network."""

    upstream: Upstream
    secrets: Secrets

    @property
    def storage(self) -> Bucket:
        """What is tested."""
        ...


class MemoryRig:
    """In memory."""

    def __init__(self) -> None:
        """Without objects."""
        self.storage = MemoryStorage()

    @property
    def folder(self) -> Folder:
        """The same: whoever reads here may write."""
        return self.storage

    def put(self, path: str, content: bytes) -> None:
        """Write an object."""
        self.storage.put(path, content)

    def delete(self, path: str) -> None:
        """Remove an object."""
        self.storage.delete(path)


class LocalRig:
    """In a folder."""

    def __init__(self, root: Path) -> None:
        """In `root`."""
        self.root = root
        self.storage = open_folder(Upstream(scheme="file", root=str(root), protocol="csv"), Secrets())

    @property
    def folder(self) -> Folder:
        """The same: whoever reads here may write."""
        return self.storage

    def put(self, path: str, content: bytes) -> None:
        """Write as TiCDC does: under another name, then renamed."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_name("unfinished")
        unfinished.write_bytes(content)
        unfinished.rename(target)

    def delete(self, path: str) -> None:
        """Remove a file."""
        (self.root / path).unlink()


@dataclass
class S3Rig:
    """In a bucket, below a prefix."""

    server: S3Server
    bucket: str
    prefix: str = "some/prefix"

    def __post_init__(self) -> None:
        """Make the bucket."""
        self.client = self.server.client(self.server.writer)
        with tempfile.TemporaryDirectory() as empty:
            self.server.upload(Path(empty), self.bucket)
        self.upstream = Upstream(
            scheme="s3",
            root=f"{self.bucket}/{self.prefix}",
            endpoint=self.server.endpoint,
            region="us-east-1",
            protocol="csv",
        )
        self.secrets = secrets(self.server.reader)
        self.storage = S3Storage(self.upstream, self.secrets)

    @property
    def folder(self) -> Folder:
        """The same, with other keys."""
        return S3Storage(self.upstream, secrets(self.server.writer))

    def put(self, path: str, content: bytes) -> None:
        """Write an object."""
        self.client.put_object(Bucket=self.bucket, Key=f"{self.prefix}/{path}", Body=content)

    def delete(self, path: str) -> None:
        """Remove an object."""
        self.client.delete_object(Bucket=self.bucket, Key=f"{self.prefix}/{path}")


@dataclass
class GcsRig:
    """In a bucket of Google's, below a prefix."""

    server: GcsServer
    bucket: str
    prefix: str = "some/prefix"

    def __post_init__(self) -> None:
        """Make the bucket."""
        self.server.make_bucket(self.bucket)
        self.upstream = Upstream(
            scheme="gcs", root=f"{self.bucket}/{self.prefix}", endpoint=self.server.endpoint, protocol="csv"
        )
        self.secrets = Secrets()
        self.storage: Bucket = GcsStorage(self.upstream, self.secrets)

    @property
    def folder(self) -> Folder:
        """The same: whoever reads here may write."""
        return self.storage

    def put(self, path: str, content: bytes) -> None:
        """Write an object."""
        self.server.put(self.bucket, f"{self.prefix}/{path}", content)

    def delete(self, path: str) -> None:
        """Remove an object."""
        self.server.delete(self.bucket, f"{self.prefix}/{path}")


@dataclass
class AzureRig:
    """In a container of Azure's, below a prefix."""

    server: AzureServer
    name: str
    prefix: str = "some/prefix"

    def __post_init__(self) -> None:
        """Make the container."""
        self.client = self.server.container(self.name)
        self.client.create_container()
        self.upstream = Upstream(
            scheme="azure",
            root=f"{self.name}/{self.prefix}",
            endpoint=self.server.endpoint,
            account_name=ACCOUNT,
            protocol="csv",
        )
        self.secrets = Secrets(sas_token=self.server.token(self.name, "rl"))
        self.storage: Bucket = AzureStorage(self.upstream, self.secrets)

    @property
    def folder(self) -> Folder:
        """The same, with a token that lets it write."""
        return AzureStorage(self.upstream, Secrets(sas_token=self.server.token(self.name, "rlcw")))

    def put(self, path: str, content: bytes) -> None:
        """Write an object."""
        self.client.upload_blob(f"{self.prefix}/{path}", content, overwrite=True)

    def delete(self, path: str) -> None:
        """Remove an object."""
        self.client.delete_blob(f"{self.prefix}/{path}")


def secrets(user: S3User) -> Secrets:
    """A user's keys."""
    return Secrets(access_key=user.access_key, secret_access_key=user.secret_access_key)


def listed(storage: Storage, *closed: str, **after: str) -> dict[str, tuple[int, str]]:
    """Path → size and tag."""
    return {found.path: (found.size, found.tag) for found in storage.listing(frozenset(closed), after)}
