"""What network stores share: processes, threads, reading in parts, listing in pages, errors.

The adapters of the stores derive from it: `s3`, `gcs`, `azure`.

`OrderedBucket` lists a store that returns names in order and can begin at any name: names that may
be left out are jumped over. So the number of calls follows what is open, not what is stored. Where
a listing still takes many calls, as with a thousand tables, several parts of the order are listed
concurrently.

The number of names to request is chosen by counting. To the store and to us, each 100 names cost
about as much as the call itself, and after a jump a full page shows the few names that are open
there and then hundreds that are done. So a bucket remembers each *stretch*, from one jump to the
next: how many names it had before those that may be left out. The next listing asks for that many
and a few more. That makes more calls than full pages would only where it saves at least one
`_WORTH`-th of a page of names: shorter runs are read over. Where a stretch has grown, its end is
not reached yet: a full page follows before the next jump. What is shown never depends on what is
remembered.
"""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count, pairwise
from types import MappingProxyType
from typing import Any, NoReturn

from storage_consumer.bucket.paths import folder_above, left_out, sequence_of
from storage_consumer.bucket.storage import SCHEMA_FILE_BYTES, read_up_to
from storage_consumer.config.settings import Secrets, Upstream
from storage_consumer.config.uris import environment_secrets
from storage_consumer.errors import (
    ConfigError,
    FilesMissing,
    StorageConsumerError,
    StorageUnavailable,
)
from storage_consumer.model import StoredObject


class CredentialsExpired(ConfigError):
    """The store no longer accepts these credentials; `Bucket._ask` tries to find newer ones."""


class StoreErrors(ABC):
    """The errors of one bucket. Each store derives a class that tells its driver's errors apart."""

    cloud: str
    """The server's name where no endpoint was given."""

    def __init__(self, root: str, endpoint: str, secrets: Secrets) -> None:
        """Name objects by `root`, slash included; hide `secrets`; `endpoint` may be empty."""
        self._root = root
        self._secrets = secrets
        self.server = endpoint or self.cloud
        """The server that answers."""

    @abstractmethod
    def translated(self, error: Exception, path: str) -> Exception:
        """Return what a driver's `error` at `path` means to the caller, without any secret."""

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
        """Return the error for an archived object; `command` restores it, which takes hours."""
        return FilesMissing(
            f"{self.where(path)} lies in an archive of the store, where it is listed and can't be read ({code}). Have it brought "
            f"back: {command}. When that is done (it takes up to some hours), start again. Objects that are applied may stay there"
        )

    def contradiction(self, what: str) -> StorageUnavailable:
        """Return the error for contradicting answers: a listing without a file loses its rows."""
        return StorageUnavailable(
            f"{self.where('')}: {what}. The request is repeated; the cause may be a gateway or proxy on the way, or an endpoint that is no store of this kind"
        )

    def no_listing(self) -> StorageUnavailable:
        """Return the error for an answer to a listing that something other than a store gave."""
        return self.contradiction(
            "the answer to a listing is not a listing, or lacks the token that continues it"
        )

    def no_object(self, path: str, lacks: str) -> StorageUnavailable:
        """Return the error for content without `lacks`, a header that the store always sends."""
        return self.contradiction(
            f"the answer to a request for {path} is no object: it has no {lacks}"
        )

    def unavailable(self, error: Exception, code: str, path: str) -> StorageUnavailable:
        """Return the error for a request that may succeed later; `code` is the store's own."""
        text = str(error)
        # Drivers quote URLs and headers in their errors.
        for secret in (*self._secrets.texts(), *environment_secrets(os.environ)):
            text = text.replace(secret, "…")
        return StorageUnavailable(
            f"{self.where(path)} did not answer as it should ({code}): {text}"
        )

    def refused(self, path: str, code: str, remedy: str) -> ConfigError:
        """Return the error for a right that is missing."""
        return ConfigError(f"access to {self.where(path)} is refused ({code}): {remedy}")

    def no_bucket(self, code: str, remedy: str) -> ConfigError:
        """Return the error for a bucket that does not exist."""
        return ConfigError(
            f"there is no bucket for {self.where('')} at {self.server} ({code}): {remedy}"
        )


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

    It never caches what the bucket holds. Each process that uses it opens its own connections, so
    it survives a fork. It does not pickle, since it knows the secrets: build it in the worker.
    Threads may share one.
    """

    errors_of: type[StoreErrors]
    """What the store's errors mean."""
    page_size: int
    """Objects per page of a listing."""
    pauses: tuple[float, ...] = ()
    """Seconds before each retry of an unanswered call; a driver may retry by itself."""

    def __init__(self, upstream: Upstream, secrets: Secrets) -> None:
        """Prepare for `upstream`; without keys in `secrets`, the driver asks the usual places."""
        self._upstream = upstream
        self._secrets = secrets
        self._bucket, _, prefix = upstream.root.partition("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._errors = self.errors_of(
            f"{upstream.scheme}://{self._bucket}/{self._prefix}", upstream.endpoint, secrets
        )
        self._drivers: dict[int, Any] = {}
        self._lock = threading.Lock()
        self.requests = 0
        """Number of calls to the server so far, without retries after errors."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} knows secrets and does not pickle: call open_storage in the worker"
        )

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
        """Return an object's content; of one over `most` bytes, a beginning longer than `most`."""
        return read_up_to(self, path, most)

    @abstractmethod
    def blocks(self, path: str, size: int, start: int = 0, tag: str = "") -> Iterator[bytes]:
        """Yield pieces of up to `size` bytes, see `Storage.blocks`; raise if it was replaced."""

    def any_object(self) -> StoredObject | None:
        """Return an object that lies there, None for none; see `Folder.any_object`."""
        # A console leaves an empty object for a folder, whose name ends with a slash, and is empty
        # for the prefix itself.
        found = self.listing(frozenset(), {})
        return next(
            (stored for stored in found if stored.size or not f"/{stored.path}".endswith("/")), None
        )

    def put(self, path: str, content: bytes) -> None:
        """Write an object, whole or not at all; see `Folder.put`."""
        place = f"{self._bucket}/{self._absolute(path)}"
        try:
            self._ask(path, lambda driver: driver._pipe_file(place, content))  # noqa: SLF001 - of fsspec's interface for asynchronous callers
        except ConfigError as fault:
            raise ConfigError(
                f"{fault} (an export is written there: that needs the right to create objects)"
            ) from None

    @abstractmethod
    def _open(self) -> Any:
        """Return the store's asynchronous driver of fsspec; raise `ConfigError`."""

    @abstractmethod
    def _page(
        self,
        folder: str,
        *,
        delimited: bool = False,
        after: str = "",
        token: str = "",
        limit: int = 0,
    ) -> Page:
        """Return a page of `folder` (empty: all) by name, from `after` on or where `token` is.

        `delimited`: only the folder's own objects, and its folders. `limit` replaces `page_size`.
        """

    def _driver(self) -> Any:
        """Return this process's driver; one inherited through a fork has no running event loop."""
        with self._lock:
            # A fork copies the driver without its event loop's thread: its calls would never
            # return.
            if os.getpid() not in self._drivers:
                try:
                    self._drivers[os.getpid()] = self._open()
                except StorageConsumerError:
                    raise
                except ModuleNotFoundError as error:
                    package = str(error.name).partition(".")[0]
                    raise ConfigError(
                        f"the package {package} is missing, which this store needs: pip install {package} (on a cluster, on every worker)"
                    ) from None
                except Exception as error:  # noqa: BLE001 - each driver has exceptions of its own
                    raise self._errors.translated(error, "") from None
            return self._drivers[os.getpid()]

    def _ask(self, path: str, question: Callable[[Any], Any]) -> Any:
        """Return the answer to `question`, which makes the driver's coroutine; translate errors.

        If the credentials have expired, the driver is rebuilt once: a new one looks for newer
        credentials.
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
        """Yield an object in pieces of up to `size` bytes; raise an error if replaced meanwhile."""
        # An object replaced since the listing counts as absent, not as changed during the read.
        part = self._part(path, start, _PART)
        if tag not in {"", part.tag}:
            raise self._errors.unlisted(path)
        sent = start
        while True:
            for place in range(0, len(part.content), size):
                yield part.content[place : place + size]
            sent += len(part.content)
            if sent >= part.size:
                return
            # Pieces of two versions must not be joined.
            before, part = part.tag, self._part(path, sent, _PART)
            if part.tag != before or not part.content:
                raise self._errors.replaced(path)

    @abstractmethod
    def _part(self, path: str, offset: int, length: int) -> Part:
        """Return up to `length` bytes of an object."""


def _sync(loop: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    from fsspec.asyn import sync  # noqa: PLC0415 - users of file:// need not wait for it

    return sync(loop, function, *arguments, timeout=2 * READ_TIMEOUT)


_AT_ONCE = 8
"""Number of concurrent calls."""
_ALONE = 16
"""Number of sequential calls before the rest is cut into lanes; most listings end before."""
_VERSION_DIGITS = 17
"""A directory whose name is at least this many digits is a table version's."""
_WORTH = 5
"""Share of a full page from which on a run of names to skip is worth a call: one fifth."""
_SPARE = 10
"""Names requested beyond those that a stretch had: a few new files then need no further call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Remembered:
    """A stretch as the latest listing found it."""

    names: int
    """Number of names, without the run that ended it and may be left out."""
    end: str
    """The first name of that run."""


@dataclass(slots=True)
class _Stretch:
    """The names from one jump to the next."""

    start: str
    """The name after which it begins."""
    before: _Remembered | None = None
    """How the latest listing found it."""
    names: int = 0
    region: str = ""
    """The region of the latest name: see `_Known.region`."""
    run: int = 0
    """Number of latest names that lie in that region; 0 where nothing of it may be left out."""
    end: str = ""
    """The first of these names."""

    def add(self, path: str, region: str) -> None:
        """Take in the next name."""
        self.names += 1
        # A name that is shown ends the run of names that may be left out.
        if not region:
            self.run, self.end = 0, ""
        elif region == self.region:
            self.run += 1
        else:
            self.run, self.end = 1, path
        self.region = region

    def length(self, most: int) -> int:
        """Return the number of names to request next, at most `most`."""
        # Only the first request of a stretch is that short; if it goes on after that, it has grown.
        return min(self.before.names + _SPARE, most) if self.before and not self.names else most


@dataclass(frozen=True, slots=True, kw_only=True)
class _KnownPrefix:
    """What may be left out."""

    closed: frozenset[str]
    ordered: list[str]
    after: Mapping[str, str]
    before: Mapping[str, _Remembered]
    """Start of a stretch → what is remembered of it."""
    stretches: dict[str, _Remembered]
    """The same, for the stretches that this listing has found so far."""

    def region(self, path: str) -> str:
        """Return the jump over this skippable object: adjacent closed directories, or to a mark."""
        if directory := folder_above(path, self.closed):
            return f"{directory.rpartition('/')[0]}/"
        return up_to_mark(path, self.after)

    def stretch(self, start: str) -> _Stretch:
        """Return the stretch that begins after this name."""
        return _Stretch(start, self.before.get(start))

    def remember(self, stretch: _Stretch, end: str = "") -> None:
        """Remember for the next listing the length of a stretch ending in a run or at `end`."""
        # The run at its end is what the next listing jumps over, so it need not ask for its names.
        self.stretches[stretch.start] = _Remembered(
            names=stretch.names - stretch.run, end=stretch.end or end
        )


class OrderedBucket(Bucket):
    """A bucket whose pages show names in the order of their characters, from any name on."""

    page_size = 1000
    _sorted: tuple[frozenset[str], list[str]] = (frozenset(), [])
    """The last listing's closed directories, sorted: for thousands that takes as long as a call."""
    _stretches: Mapping[str, _Remembered] = MappingProxyType({})
    """Start of each stretch that the latest listing found."""

    def listing(self, closed: frozenset[str], after: Mapping[str, str]) -> Iterator[StoredObject]:
        """Yield objects not below `closed` nor up to `after`'s names, mostly in key order."""
        # The caller passes the same set until it changes: comparing thousands of names would cost
        # more than it saves.
        if closed is not self._sorted[0]:
            self._sorted = closed, sorted(closed)
        before = self._stretches if closed or after else {}
        known = _KnownPrefix(
            closed=closed, ordered=self._sorted[1], after=after, before=before, stretches={}
        )
        if place := (yield from self._lane("", "", known, most=_ALONE)):
            # Each border ends one lane and begins the next; the last lane has no end.
            lanes = pairwise(
                [place, *_borders(known.ordered[bisect_right(known.ordered, place) :], place), ""]
            )
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                # A list, so that the lane's own thread reads it, as it would not a generator.
                for found in pool.map(
                    lambda lane: list(self._lane(lane[0], lane[1], known)), lanes
                ):
                    yield from found
        # A listing of everything jumps over nothing, so it leaves what is remembered as it is.
        if closed or after:
            self._stretches = known.stretches

    @abstractmethod
    def _page(
        self,
        folder: str,
        *,
        delimited: bool = False,
        after: str = "",
        token: str = "",
        limit: int = 0,
    ) -> Page:
        """Return a page as in `Bucket`; a server may treat `after` as inclusive."""

    def _lane(
        self, low: str, high: str, known: _KnownPrefix, *, most: int = 0
    ) -> Generator[StoredObject, None, str]:
        """Yield unknown objects named above `low` (exclusive) up to `high` (inclusive; "": all).

        Returns the empty text at the end, or the name reached if that took more than `most` calls.
        """
        last, stretch, token, empty = low, known.stretch(low), "", frozenset[str]()
        for calls in count(1):
            page = self._page(
                "", after=stretch.start, token=token, limit=stretch.length(self.page_size)
            )
            empty = self._agrees(page, last, token, empty)
            for stored in page.objects:
                if high and stored.path > high:
                    known.remember(stretch, stored.path)
                    return ""
                # A server that treats `after` as inclusive repeats the last name.
                if stored.path <= last:
                    continue
                region = known.region(stored.path)
                # A run ended at `last` that the next listing should jump over.
                if region != stretch.region and self._worth(stretch):
                    known.remember(stretch)
                    directory = folder_above(last, known.closed)
                    stretch = known.stretch(
                        _behind(directory) if directory else up_to_mark(last, known.after)
                    )
                stretch.add(stored.path, region)
                if not stretch.region:
                    yield stored
                last = stored.path
            if not page.token:
                return ""
            # Jump where the latest listing met the same run, provided this page reached it; a
            # stretch that has grown reads on.
            ended = not token and stretch.before is not None and last >= stretch.before.end
            skipped = self._skip(last, known) if ended or self._worth(stretch) else ""
            # A token is worthless after a jump: the next request begins at a name instead.
            if skipped > last:
                known.remember(stretch)
                last, stretch, token = skipped, known.stretch(skipped), ""
            else:
                token = page.token
            if high and last >= high:
                return ""
            # Lanes are cut at closed directories: without any there is nothing to cut.
            if known.closed and calls == most:
                return last
        raise AssertionError("only an end ends a listing")

    def _agrees(self, page: Page, last: str, token: str, empty: frozenset[str]) -> frozenset[str]:
        """Return the tokens of the last `empty` pages; raise `StorageUnavailable` for a repetition.

        `last`: the last name of the pages before. A page that was not requested by token may begin
        with it.
        """
        names = [last, *(stored.path for stored in page.objects)]
        if not token and names[1:2] == [last]:
            del names[0]
        if any(name <= before for before, name in pairwise(names)):
            raise self._errors.contradiction(
                "the names of a listing are out of order, or are repeated on its next page"
            )
        if page.token and page.token in {token, *empty}:
            raise self._errors.contradiction("the pages of a listing lead back to an earlier one")
        return frozenset() if page.objects else empty | {token}

    def _worth(self, stretch: _Stretch) -> bool:
        """Return whether the run is long enough to jump over, even at first sight."""
        return stretch.run >= max(1, self.page_size // _WORTH)

    def _skip(self, last: str, known: _KnownPrefix) -> str:
        """Return where to continue if `last` is to be skipped; else the empty text."""
        if directory := folder_above(last, known.closed):
            parent = directory.rpartition("/")[0]
            place = bisect_right(known.ordered, directory)
            has_sibling = (
                place < len(known.ordered) and known.ordered[place].rpartition("/")[0] == parent
            )
            return _behind(
                self._last_closed(parent, directory, known.closed) if has_sibling else directory
            )
        return up_to_mark(last, known.after)

    def _last_closed(self, parent: str, directory: str, closed: frozenset[str]) -> str:
        """Return the last of the consecutive closed directories in `parent` from `directory` on.

        The server reports what lies between them, so nothing unknown is jumped over.
        """
        while True:
            page = self._page(parent, delimited=True, after=_behind(directory))
            before = directory
            for path in sorted((*page.folders, *(stored.path for stored in page.objects))):
                if path < before:
                    continue
                if path not in closed:
                    return directory
                directory = path
            # No progress on this page: stop here rather than ask for the same page again.
            if not page.token or directory == before:
                return directory


def _borders(ordered: list[str], above: str) -> list[str]:
    """Return names `above` this one that cut the closed directories into about equal parts.

    Each lies right after the ``meta`` of a table. So a table's data files stay in one part with its
    schema files, which must be listed after them.
    """
    # More lanes than threads, since some turn out to be short.
    lanes = min(len(ordered), 4 * _AT_ONCE)
    tables = set[str]()
    for lane in range(1, lanes):
        parts = ordered[len(ordered) * lane // lanes].split("/")
        versions = [
            place
            for place, part in enumerate(parts)
            if len(part) >= _VERSION_DIGITS and part.isdecimal()
        ]
        # The table that the closed directory belongs to, if it has a version.
        tables.add("/".join(parts[: max(versions, default=0)]))
    return sorted(
        border for border in (f"{table}/meta0" for table in tables if table) if border > above
    )


def up_to_mark(path: str, after: Mapping[str, str]) -> str:
    """Return the last path of its sequence to skip, if `path` may be; else the empty text."""
    # Objects at the root belong to no sequence.
    folder, _, _ = path.rpartition("/")
    return f"{folder}/{after[sequence_of(path)]}" if folder and left_out(path, after) else ""


def _behind(directory: str) -> str:
    """Return the smallest text after all paths in `directory`: zero follows the slash."""
    return f"{directory}0"
