"""What the program asks of a storage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from storage_consumer.model import StoredObject
from storage_consumer.storage.small_file import SCHEMA_FILE_BYTES


class Storage(Protocol):
    """The few operations that the program needs; the modules beside this one implement them, `testing.storage.MemoryStorage` is their twin.

    Paths are relative to the root that the adapter was opened with. All methods raise `StorageUnavailable` when the
    storage does not answer, and `FileNotFoundError` when one named object does not exist.
    """

    def check(self) -> None:
        """Raise `ConfigError` when the root does not exist or may not be listed."""

    def listing(self, closed: frozenset[str], after: dict[str, str]) -> Iterator[StoredObject]:
        """Yield all objects below the root, in any order, except those that the caller already knows.

        `closed`: directories whose content need not be listed. `after`: sequence of files (see `paths.sequence_of`) → file
        name; files of that sequence whose name sorts at or below it (inclusive) may be left out. An adapter may yield more
        than required. Within one table directory, ``meta`` is listed after everything else: so the schema file of each data
        file shown is shown too.
        """
        ...

    def read(self, path: str, most: int = SCHEMA_FILE_BYTES) -> bytes:
        """Return the content of a small object (metadata, schema file); for one over `most` bytes, a beginning longer than `most`."""
        ...

    def blocks(self, path: str, size: int, start: int = 0, tag: str = "") -> Iterator[bytes]:
        """Yield the content of a large object from byte `start` on, in pieces of about `size` bytes, without holding all of it.

        With a `tag`, an object whose tag has changed counts as absent. Without one, the current content is read.
        """
        ...
