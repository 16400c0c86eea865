"""Reading small files whole, and no more of one that is not small than shows that it is none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from storage_consumer.errors import MalformedSchemaFile

METADATA_BYTES = 64 << 10
SCHEMA_FILE_BYTES = 16 << 20
"""More than TiCDC ever writes: one of 4,096 columns with all their attributes has about 1.5 MB."""
_BLOCK = 1 << 20


class Blocks(Protocol):
    """A storage, as far as its objects' content goes."""

    def blocks(self, path: str, size: int, start: int = 0, tag: str = "") -> Iterator[bytes]:
        """See `reader.Storage.blocks`."""
        ...


class Readable(Protocol):
    """A storage, as far as small objects go."""

    def read(self, path: str, most: int = SCHEMA_FILE_BYTES) -> bytes:
        """The content of an object, or its beginning with more than `most` bytes."""
        ...


def read_up_to(storage: Blocks, path: str, most: int) -> bytes:
    """The content of an object, or its beginning with more than `most` bytes."""
    content = bytearray()
    for block in storage.blocks(path, min(_BLOCK, most + 1)):
        content += block
        if len(content) > most:
            break
    return bytes(content)


def read_schema_file(storage: Readable, path: str) -> bytes:
    """The content of a schema file; raises `MalformedSchemaFile` for one that is too large, `FileNotFoundError` where none is."""
    content = storage.read(path, SCHEMA_FILE_BYTES)
    if len(content) > SCHEMA_FILE_BYTES:
        raise MalformedSchemaFile(
            f"schema file {path}: it has more than {SCHEMA_FILE_BYTES} bytes, and TiCDC writes none that is so large. Restore it "
            "from a copy of the bucket, then start again"
        )
    return content
