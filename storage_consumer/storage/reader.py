"""StorageReader: what has TiCDC written since the last poll?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from storage_consumer.model import DataFile, SchemaFile, StoredObject


class Storage(Protocol):
    """The few things asked of a storage; `fsspec_storage` is the real one, `testing.MemoryStorage` its twin.

    Paths are relative to the root that the adapter was opened with. All methods raise `StorageUnavailable` when the
    storage does not answer, and `FileNotFoundError` when one named object does not exist.
    """

    def check(self) -> None:
        """Raise `ConfigError` when the root does not exist or may not be listed."""

    def listing(self, closed: frozenset[str], after: dict[str, str]) -> Iterator[StoredObject]:
        """All objects below the root, in any order, except what the caller knows already.

        `closed`: directories whose content need not be listed. `after`: directory → file name; files of that directory
        itself whose name sorts at or below that one may be left out. An adapter may return more than asked for.
        """
        ...

    def read(self, path: str) -> bytes:
        """The whole content of a small object (metadata, schema file)."""
        ...

    def blocks(self, path: str, size: int) -> Iterator[bytes]:
        """The content of a large object, in pieces of about `size` bytes, without holding the whole."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """What one poll saw."""

    checkpoint: int
    """Highest checkpoint-ts read from ``metadata`` so far; 0 while there is none."""
    checkpoint_is_new: bool
    """Whether it rose in this poll."""
    schema_files: tuple[SchemaFile, ...]
    """New or changed ones."""
    data_files: tuple[DataFile, ...]
    """New ones, or ones whose content changed under a known name; each is exposed once."""
    vanished: tuple[DataFile, ...]
    """Exposed before, no longer there (only known after a full listing)."""
    changed: int
    """How many of `data_files` were known under another tag."""
    ignored: dict[str, int]
    """Objects that are no schema, data, index or metadata file, counted by reason; as of the last full listing."""
    warnings: tuple[str, ...] = ()
    full: bool = True
    """Whether everything was listed."""
