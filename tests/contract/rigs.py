"""Storages under test, and how their content is changed from outside."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from storage_consumer.config.settings import Secrets, Upstream
from storage_consumer.storage.fsspec_storage import open_storage
from storage_consumer.storage.reader import Storage
from storage_consumer.storage.s3_storage import S3Storage
from storage_consumer.testing import MemoryStorage
from tests.s3_server import S3Server, S3User


class Rig(Protocol):
    """A storage under test, and how its content is changed from outside."""

    @property
    def storage(self) -> Storage:
        """What is tested."""
        ...

    def put(self, path: str, content: bytes) -> None:
        """Write an object."""

    def delete(self, path: str) -> None:
        """Remove an object."""


class MemoryRig:
    """In memory."""

    def __init__(self) -> None:
        """Without objects."""
        self.storage = MemoryStorage()

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
        self.storage = open_storage(Upstream(scheme="file", root=str(root), protocol="csv"), Secrets())

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

    def put(self, path: str, content: bytes) -> None:
        """Write an object."""
        self.client.put_object(Bucket=self.bucket, Key=f"{self.prefix}/{path}", Body=content)

    def delete(self, path: str) -> None:
        """Remove an object."""
        self.client.delete_object(Bucket=self.bucket, Key=f"{self.prefix}/{path}")


def secrets(user: S3User) -> Secrets:
    """A user's keys."""
    return Secrets(access_key=user.access_key, secret_access_key=user.secret_access_key)


def listed(storage: Storage, *closed: str, **after: str) -> dict[str, tuple[int, str]]:
    """Path → size and tag."""
    return {found.path: (found.size, found.tag) for found in storage.listing(frozenset(closed), after)}
