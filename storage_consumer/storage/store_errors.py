"""What goes wrong with a store on a network, in words that name the place and the next step, and no secret."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod

from storage_consumer.config.settings import Secrets
from storage_consumer.config.stores import environment_secrets
from storage_consumer.errors import ConfigError, FilesMissing, StorageUnavailable


class CredentialsExpired(ConfigError):
    """The store accepted these credentials before and no longer does; newer ones may exist, and `Bucket._ask` looks for them."""


class StoreErrors(ABC):
    """The errors of one bucket. Each store derives a class that tells its driver's errors apart."""

    cloud: str
    """The server's name where no endpoint was given."""

    def __init__(self, root: str, endpoint: str, secrets: Secrets) -> None:
        """Name objects by `root`, which ends with a slash, and leave `secrets` out of all texts; `endpoint` may be empty."""
        self._root = root
        self._secrets = secrets
        self.server = endpoint or self.cloud
        """The server that answers."""

    @abstractmethod
    def translated(self, error: Exception, path: str) -> Exception:
        """Return what a driver's `error`, met at `path`, means to the caller, without any secret."""

    def where(self, path: str) -> str:
        """Return the full name of an object, or of the root (empty path)."""
        return self._root + path

    def absent(self, path: str) -> FileNotFoundError:
        """Return the error for an object that is not there."""
        return FileNotFoundError(f"{self.where(path)} does not exist")

    def unlisted(self, path: str) -> FileNotFoundError:
        """Return the error for an object that is another one than was listed."""
        return FileNotFoundError(f"{self.where(path)} is not what was listed")

    def replaced(self, path: str) -> StorageUnavailable:
        """Return the error for an object that changed while it was read."""
        return StorageUnavailable(f"{self.where(path)} was replaced while it was read")

    def archived(self, path: str, code: str, command: str) -> FilesMissing:
        """Return the error for an object that is listed and cannot be read; `command` brings it back, which takes the store hours."""
        return FilesMissing(
            f"{self.where(path)} lies in an archive of the store, where it is listed and can't be read ({code}). Have it brought "
            f"back: {command}. When that is done (it takes up to some hours), start again. Objects that are applied may stay there"
        )

    def contradiction(self, what: str) -> StorageUnavailable:
        """Return the error for answers that contradict each other: a listing that lacks a file would lose its rows."""
        return StorageUnavailable(
            f"{self.where('')}: {what}. The request is repeated; the cause may be a gateway or proxy on the way, or an endpoint that is no store of this kind"
        )

    def no_listing(self) -> StorageUnavailable:
        """Return the error for an answer to a listing that something other than a store gave."""
        return self.contradiction("the answer to a listing is not a listing, or lacks the token that continues it")

    def no_object(self, path: str, lacks: str) -> StorageUnavailable:
        """Return the error for an answer in place of an object's content, which `lacks` a header that the store sends with each."""
        return self.contradiction(f"the answer to a request for {path} is no object: it has no {lacks}")

    def unavailable(self, error: Exception, code: str, path: str) -> StorageUnavailable:
        """Return the error for a request that may succeed later; `code` is the store's own."""
        text = str(error)
        # Drivers quote URLs and headers in their errors.
        for secret in (*self._secrets.texts(), *environment_secrets(os.environ)):
            text = text.replace(secret, "…")
        return StorageUnavailable(f"{self.where(path)} did not answer as it should ({code}): {text}")

    def refused(self, path: str, code: str, remedy: str) -> ConfigError:
        """Return the error for a right that is missing."""
        return ConfigError(f"access to {self.where(path)} is refused ({code}): {remedy}")

    def no_bucket(self, code: str, remedy: str) -> ConfigError:
        """Return the error for a bucket that does not exist."""
        return ConfigError(f"there is no bucket for {self.where('')} at {self.server} ({code}): {remedy}")


def missing_package(name: str) -> ConfigError:
    """Return the error for a store whose optional driver is not installed."""
    return ConfigError(
        f"the package {name} is missing, which this store needs: pip install {name} (on a cluster, on every worker)"
    )
