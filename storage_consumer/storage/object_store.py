"""What all stores on a network have in common: processes, threads, reading in parts, listing in pages.

The adapters of the stores derive from it: `s3`, `gcs`, `azure`.
"""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from storage_consumer.config.settings import Secrets, Upstream
from storage_consumer.errors import ConfigError, StorageConsumerError, StorageUnavailable
from storage_consumer.model import StoredObject
from storage_consumer.storage.base import SCHEMA_FILE_BYTES, read_up_to
from storage_consumer.storage.store_errors import CredentialsExpired, StoreErrors

CONNECT_TIMEOUT = 10
READ_TIMEOUT = 60
"""Seconds, for this and the constant above."""
_PART = 8 << 20
"""Bytes per request where an object is read in parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of a listing; all paths are relative to the root."""

    objects: tuple[StoredObject, ...]
    folders: tuple[str, ...] = ()
    """The directories, without a trailing slash; only if a delimiter was asked for."""
    token: str = ""
    """The token that continues the listing; empty at its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A piece of an object."""

    content: bytes
    tag: str
    """The current tag of the whole object."""
    size: int
    """Bytes of the whole object."""


class Bucket(ABC):
    """Everything below one prefix of a bucket.

    It never caches what the bucket holds. Each process that uses it opens its own connections, so it survives a fork. It does
    not pickle, since it knows the secrets: build it in the worker. Threads may share one.
    """

    errors_of: type[StoreErrors]
    """What the store's errors mean."""
    page_size: int
    """Objects per page of a listing."""
    pauses: tuple[float, ...] = ()
    """Seconds to wait before each retry of a call that the store did not answer; a driver may retry on its own."""

    def __init__(self, upstream: Upstream, secrets: Secrets) -> None:
        """Prepare for the bucket and prefix of `upstream`; without keys in `secrets`, the driver asks the cloud's usual places for them."""
        self._upstream = upstream
        self._secrets = secrets
        self._bucket, _, prefix = upstream.root.partition("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._errors = self.errors_of(f"{upstream.scheme}://{self._bucket}/{self._prefix}", upstream.endpoint, secrets)
        self._drivers: dict[int, Any] = {}
        self._lock = threading.Lock()
        self.requests = 0
        """Number of calls to the server so far, without retries after errors."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} knows secrets and does not pickle: call open_storage in the worker")

    def check(self) -> None:
        """Raise `ConfigError` when the bucket does not exist or may not be listed."""
        try:
            self._page("", limit=1)
        except FileNotFoundError:
            raise ConfigError(
                f"what answers for {self._errors.where('')} has no bucket of that name, or is not a store of this kind: "
                "check the endpoint "
                "and the bucket's name in the upstream URI"
            ) from None

    @abstractmethod
    def listing(self, closed: frozenset[str], after: Mapping[str, str]) -> Iterator[StoredObject]:
        """Yield all objects, except those below `closed` and those up to the names in `after`."""

    def read(self, path: str, most: int = SCHEMA_FILE_BYTES) -> bytes:
        """Return the content of an object; for one over `most` bytes, a beginning longer than `most`."""
        return read_up_to(self, path, most)

    @abstractmethod
    def blocks(self, path: str, size: int, start: int = 0, tag: str = "") -> Iterator[bytes]:
        """Yield pieces of up to `size` bytes, as `Storage.blocks` says; an object that is replaced meanwhile raises an error."""

    def any_object(self) -> StoredObject | None:
        """Return an object that lies there, None for none; see `Folder.any_object`."""
        # A console leaves an empty object for a folder, whose name ends with a slash, and is empty for the prefix itself.
        found = self.listing(frozenset(), {})
        return next((stored for stored in found if stored.size or not f"/{stored.path}".endswith("/")), None)

    def put(self, path: str, content: bytes) -> None:
        """Write an object, whole or not at all; see `Folder.put`."""
        place = f"{self._bucket}/{self._absolute(path)}"
        try:
            self._ask(path, lambda driver: driver._pipe_file(place, content))  # noqa: SLF001 - of fsspec's interface for asynchronous callers
        except ConfigError as fault:
            raise ConfigError(f"{fault} (an export is written there: that needs the right to create objects)") from None

    @abstractmethod
    def _open(self) -> Any:
        """Return the store's driver, an asynchronous file system of fsspec. Raises `ConfigError`."""

    @abstractmethod
    def _page(self, folder: str, *, delimited: bool = False, after: str = "", token: str = "", limit: int = 0) -> Page:
        """Return one page of what lies in `folder` (all: empty), in order of names, from `after` on or where `token` continues.

        `delimited`: only the folder's own objects, and its folders. `limit` replaces `page_size`.
        """

    def _driver(self) -> Any:
        """Return this process's driver; one inherited through a fork has no running event loop."""
        with self._lock:
            # A fork copies the driver but not the thread that runs its event loop: its calls would never return.
            if os.getpid() not in self._drivers:
                try:
                    self._drivers[os.getpid()] = self._open()
                except StorageConsumerError:
                    raise
                except Exception as error:  # noqa: BLE001 - each driver has exceptions of its own
                    raise self._errors.translated(error, "") from None
            return self._drivers[os.getpid()]

    def _ask(self, path: str, question: Callable[[Any], Any]) -> Any:
        """Return the answer to one call: `question` takes the driver and returns a coroutine. Errors are translated.

        If the credentials have expired, the driver is rebuilt once: a new one looks for newer credentials.
        """
        try:
            return self._asked(path, question)
        except CredentialsExpired:
            with self._lock:
                self._drivers.pop(os.getpid(), None)
        try:
            return self._asked(path, question)
        except CredentialsExpired as fault:
            raise ConfigError(str(fault)) from None

    def _asked(self, path: str, question: Callable[[Any], Any]) -> Any:
        driver = self._driver()
        with self._lock:
            self.requests += 1
        # None stands for the last try, which no other follows.
        for pause in (*self.pauses, None):
            try:
                return _sync(driver.loop, question, driver)
            # An error of ours, such as missing credentials, needs no translation.
            except StorageConsumerError:
                raise
            except Exception as error:  # noqa: BLE001 - drivers let those of their HTTP library through
                translated = self._errors.translated(error, path)
            # Only what may pass by itself is tried again; a missing object or right is an answer.
            if pause is None or not isinstance(translated, StorageUnavailable):
                raise translated from None
            time.sleep(pause)
        raise AssertionError("the last try ends the loop")

    def _wait_for(self, function: Any, *arguments: Any) -> Any:
        """Return the result of an asynchronous function, run on the driver's event loop."""
        return _sync(self._driver().loop, function, *arguments)

    def _absolute(self, path: str) -> str:
        return self._prefix + path

    def _within(self, folder: str) -> str:
        """Return the prefix of all names in a folder."""
        return f"{self._prefix}{folder}/" if folder else self._prefix

    def _relative(self, name: str) -> str:
        return name.removeprefix(self._prefix)


class ReadInParts(Bucket):
    """A bucket whose objects are read with one request for each part."""

    def blocks(self, path: str, size: int, start: int = 0, tag: str = "") -> Iterator[bytes]:
        """Yield the content of an object in pieces of up to `size` bytes; an object that is replaced meanwhile raises an error.

        A read with a tag belongs to one split, and its task may want only one piece: so it requests single pieces.
        """
        length = size if tag else _PART
        # Requested without the tag: an object replaced since the listing counts as absent, not as changed during the read.
        part = self._part(path, start, length, "")
        if tag not in {"", part.tag}:
            raise self._errors.unlisted(path)
        sent = start
        while True:
            for place in range(0, len(part.content), size):
                yield part.content[place : place + size]
            sent += len(part.content)
            if sent >= part.size:
                return
            # From the second part on with the tag: pieces of two versions must not be joined.
            before, part = part.tag, self._part(path, sent, length, part.tag)
            if part.tag != before or not part.content:
                raise self._errors.replaced(path)

    @abstractmethod
    def _part(self, path: str, offset: int, length: int, tag: str) -> Part:
        """Return up to `length` bytes of an object, if `tag` is empty or still the object's."""


def _sync(loop: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    from fsspec.asyn import sync  # noqa: PLC0415 - users of file:// need not wait for it

    return sync(loop, function, *arguments, timeout=2 * READ_TIMEOUT)
