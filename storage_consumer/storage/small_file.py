"""Read small files whole; stop as soon as a file exceeds the limit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from storage_consumer.errors import MalformedSchemaFile

METADATA_BYTES = 64 << 10
SCHEMA_FILE_BYTES = 16 << 20
"""More than TiCDC ever writes: a schema file of 4,096 columns with all their attributes has about 1.5 MB."""
_BLOCK = 1 << 20


class Blocks(Protocol):
    """A storage that yields the content of objects."""

    def blocks(self, path: str, size: int, start: int = 0, tag: str = "") -> Iterator[bytes]:
        """Yield the content of an object; see `Storage.blocks`."""
        ...


class Readable(Protocol):
    """A storage that returns small objects."""

    def read(self, path: str, most: int = SCHEMA_FILE_BYTES) -> bytes:
        """Return the content of an object, or a beginning with more than `most` bytes."""
        ...


def read_up_to(storage: Blocks, path: str, most: int) -> bytes:
    """Return the content of an object, or a beginning with more than `most` bytes."""
    content = bytearray()
    for block in storage.blocks(path, min(_BLOCK, most + 1)):
        content += block
        if len(content) > most:
            break
    return bytes(content)


def read_schema_file(storage: Readable, path: str) -> bytes:
    """Return the content of a schema file; raise `MalformedSchemaFile` if it is too large, `FileNotFoundError` if it is absent."""
    content = storage.read(path, SCHEMA_FILE_BYTES)
    if len(content) > SCHEMA_FILE_BYTES:
        raise MalformedSchemaFile(
            f"schema file {path}: it has more than {SCHEMA_FILE_BYTES} bytes, and TiCDC writes none that large. "
            "Restore it "
            "from a copy of the bucket, then start again"
        )
    return content
