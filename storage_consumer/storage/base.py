"""What the program asks of a storage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from storage_consumer.model import StoredObject
from storage_consumer.storage.small_file import SCHEMA_FILE_BYTES


class Storage(Protocol):
    """The few things asked of a storage; the modules beside this one are the real ones, `testing.storage.MemoryStorage` their twin.

    Paths are relative to the root that the adapter was opened with. All methods raise `StorageUnavailable` when the
    storage does not answer, and `FileNotFoundError` when one named object does not exist.
    """

    def check(self) -> None:
        """Raise `ConfigError` when the root does not exist or may not be listed."""

    def listing(self, closed: frozenset[str], after: dict[str, str]) -> Iterator[StoredObject]:
        """All objects below the root, in any order, except what the caller knows already.

        `closed`: directories whose content need not be listed. `after`: sequence of files
        (see `paths.sequence_of`) → file name; files of that sequence whose name sorts at or below that one may be left out. An adapter may return more than asked for. Of one
        table directory, ``meta`` is listed after the others: then the schema file of each data file shown is shown too.
        """
        ...

    def read(self, path: str, most: int = SCHEMA_FILE_BYTES) -> bytes:
        """The whole content of a small object (metadata, schema file); of one with more than `most` bytes a beginning that has more."""
        ...

    def blocks(self, path: str, size: int, start: int = 0, tag: str = "") -> Iterator[bytes]:
        """The content of a large object from byte `start` on, in pieces of about `size` bytes, without holding the whole.

        With a `tag`, an object that has another one by now counts as one that does not exist; without, what is there now is read.
        """
        ...
