"""What the program asks of a storage, and how it reads objects without trusting their size."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from storage_consumer.errors import MalformedSchemaFile, StorageUnavailable
from storage_consumer.model import StoredObject

METADATA_BYTES = 64 << 10
SCHEMA_FILE_BYTES = 16 << 20
"""More than TiCDC ever writes: 4,096 columns with all attributes have about 1.5 MB."""
_BLOCK = 1 << 20
_SMALL = 256 << 10
_AHEAD = 16
"""So many small objects are asked for before they are needed: 4 MiB at most."""


class Blocks(Protocol):
    """A storage that yields the content of objects."""

    def blocks(self, path: str, size: int, start: int = 0, tag: str = "") -> Iterator[bytes]:
        """Yield a large object's content from byte `start` on, in pieces of about `size` bytes.

        With a `tag`, an object whose tag has changed counts as absent. Without one, the current
        content is read.
        """
        ...


class Storage(Blocks, Protocol):
    """The few operations that the program needs; the modules beside this one implement them.

    Paths are relative to the root that the adapter was opened with. All methods raise
    `StorageUnavailable` when the storage does not answer, and `FileNotFoundError` when one named
    object does not exist.
    """

    def check(self) -> None:
        """Raise `ConfigError` when the root does not exist or may not be listed."""

    def listing(self, closed: frozenset[str], after: dict[str, str]) -> Iterator[StoredObject]:
        """Yield all objects below the root, in any order, but those known to the caller.

        `closed`: directories whose content need not be listed. `after`: sequence of files (see
        `paths.sequence_of`) → file name; files of that sequence whose name sorts at or below it
        (inclusive) may be left out. An adapter may yield more than required. Within one table
        directory, ``meta`` is listed after everything else: so the schema file of each data file
        shown is shown too.
        """
        ...

    def read(self, path: str, most: int = SCHEMA_FILE_BYTES) -> bytes:
        """Return a small object's content; of one over `most` bytes, a longer beginning."""
        ...


class Folder(Storage, Protocol):
    """A storage that takes objects, for an export; never a changefeed's bucket."""

    def any_object(self) -> StoredObject | None:
        """Return an object that lies there; None for a folder that is empty, or not there yet."""
        ...

    def put(self, path: str, content: bytes) -> None:
        """Write an object, whole or not at all; one that exists is replaced."""


def read_up_to(storage: Blocks, path: str, most: int) -> bytes:
    """Return the content of an object, or a beginning with more than `most` bytes."""
    content = bytearray()
    # One byte beyond the limit is enough to see that it is exceeded.
    for block in storage.blocks(path, min(_BLOCK, most + 1)):
        content += block
        if len(content) > most:
            break
    return bytes(content)


def read_schema_file(storage: Storage, path: str) -> bytes:
    """Return a schema file's content; raise `MalformedSchemaFile` if it is too large.

    Raise `FileNotFoundError` if it is absent.
    """
    content = storage.read(path, SCHEMA_FILE_BYTES)
    # Nothing of a larger one is parsed: whatever it is, its content could fill the memory.
    if len(content) > SCHEMA_FILE_BYTES:
        raise MalformedSchemaFile(
            f"schema file {path}: it has more than {SCHEMA_FILE_BYTES} bytes, and TiCDC writes none that large. "
            "Restore it "
            "from a copy of the bucket, then start again"
        )
    return content


def whole(blocks: Iterable[bytes], stored: StoredObject, start: int = 0) -> Iterator[bytes]:
    """Yield an object's blocks from `start` on; raise `StorageUnavailable` before its listed size.

    Content is cut short by a transfer that breaks without an error, and while a file is being
    replaced. The rows that it lacks would be lost silently: it may end where a row ends, and the
    file would count as read. The next try lists again. More bytes than were listed belong to a file
    that was replaced, which the next listing shows.
    """
    place = start
    for block in blocks:
        place += len(block)
        yield block
    if place < stored.size:
        raise StorageUnavailable(
            f"{stored.path} ended after {place} bytes, but the listing says {stored.size}: the transfer was cut "
            "short, or the file is just being replaced"
        )


class ReadAhead:
    """A storage of objects that are read one after another, the small ones before their turn.

    However small an object is, a store in the cloud takes tens of milliseconds to send it.
    """

    def __init__(self, storage: Blocks, order: Iterable[tuple[StoredObject, str]]) -> None:
        """Take the objects in the `order` of their use, each with the tag that it is read with."""
        self._storage = storage
        self._left = deque(enumerate(order))
        self._places = {stored.path: place for place, (stored, _) in self._left}
        self._asked: dict[int, Future[bytes]] = {}
        self._pool = ThreadPoolExecutor(_AHEAD, "read-ahead")

    def blocks(self, path: str, size: int, start: int = 0, tag: str = "") -> Iterator[bytes]:
        """Yield an object's content as `Blocks.blocks` does, an early one in one piece."""
        here = self._places.get(path, -1)
        for place in [place for place in self._asked if place < here]:
            self._asked.pop(place).cancel()
        while self._left and (self._left[0][0] <= here or len(self._asked) < _AHEAD):
            place, (stored, its) = self._left.popleft()
            if place > here and stored.size <= _SMALL:
                self._asked[place] = self._pool.submit(self._content, stored, its)
        early = self._asked.pop(here, None)
        # The tag is that of the order.
        if early is None or start:
            yield from self._storage.blocks(path, size, start, tag)
        else:
            yield early.result()

    def close(self) -> None:
        """Leave what is on its way."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _content(self, stored: StoredObject, tag: str) -> bytes:
        return b"".join(self._storage.blocks(stored.path, _SMALL, tag=tag))
