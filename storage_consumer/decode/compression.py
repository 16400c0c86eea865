"""Decompress an export's files piece by piece, so that no file can fill the memory.

Libraries for zstd and snappy come with the extra ``[dump]`` and are imported late.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from storage_consumer.config.settings import Compression
from storage_consumer.errors import ConfigError, UndecodableRow

_MOST = 1 << 20
"""Bytes that are yielded at once."""
_ANY_GZIP = zlib.MAX_WBITS | 16
_ZSTD_PIECE = 1 << 10
"""Bytes of a zstd stream per step: four may stand for 128 KiB, so 32 MiB come out at most."""
_SNAPPY_HEAD = b"\xff\x06\x00\x00sNaPpY"
_CHUNK_HEAD, _MOST_CHUNK = 4, (1 << 16) + (1 << 14)
_DATA_CHUNKS, _SKIPPED_CHUNKS, _STREAM_HEAD = (0x00, 0x01), 0x80, 0xFF


class _Broken(Exception):
    """The stream is not what its name says, or it ends too early."""


def decompressed(blocks: Iterable[bytes], compression: Compression, source: str) -> Iterator[bytes]:
    """Yield a compressed file's content in pieces of few MiB; `source`: its path in messages.

    Raises `UndecodableRow` if it is damaged or ends too early.
    """
    if not compression:
        yield from blocks
        return
    size = 0
    try:
        for piece in _joined(_READERS[compression](iter(blocks))):
            size += len(piece)
            yield piece
    except _Broken as fault:
        raise UndecodableRow(
            f"{source}: {fault} after {size} bytes of content: the file was cut or damaged; copy it again from where "
            "it was exported to, or export again into an empty folder"
        ) from fault.__cause__


def _joined(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield small pieces together: many rows at once are read faster."""
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= _MOST:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


def _gunzipped(blocks: Iterator[bytes]) -> Iterator[bytes]:
    member, is_whole = zlib.decompressobj(_ANY_GZIP), False
    for block in blocks:
        rest, piece = block, b""
        # A full piece may not be all that the bytes so far stand for.
        while rest or len(piece) == _MOST:
            # A file may consist of several members, one after the other.
            if is_whole:
                member, is_whole = zlib.decompressobj(_ANY_GZIP), False
            try:
                piece = member.decompress(rest, _MOST)
            except zlib.error as error:
                raise _Broken(f"it is not gzip ({error})") from error
            if piece:
                yield piece
            is_whole = member.eof
            rest, piece = (member.unused_data, b"") if is_whole else (member.unconsumed_tail, piece)
    if not is_whole:
        raise _Broken("the gzip stream has no end")


def _unzstd(blocks: Iterator[bytes]) -> Iterator[bytes]:
    zstandard = _library("zstandard")
    frames = zstandard.ZstdDecompressor()
    frame, is_whole = frames.decompressobj(), False
    pieces = (
        block[start : start + _ZSTD_PIECE]
        for block in blocks
        for start in range(0, len(block), _ZSTD_PIECE)
    )
    for small in pieces:
        rest = small
        while rest:
            if is_whole:
                frame, is_whole = frames.decompressobj(), False
            try:
                piece = frame.decompress(rest)
            except zstandard.ZstdError as error:
                raise _Broken(f"it is not zstd ({error})") from error
            if piece:
                yield piece
            is_whole = frame.eof
            rest = frame.unused_data if is_whole else b""
    if not is_whole:
        raise _Broken("the zstd stream has no end")


def _unsnapped(blocks: Iterator[bytes]) -> Iterator[bytes]:
    cramjam = _library("cramjam")
    pending = bytearray()
    is_begun = False
    for block in blocks:
        pending += block
        if not is_begun and not _SNAPPY_HEAD.startswith(pending[: len(_SNAPPY_HEAD)]):
            raise _Broken("it is not snappy in frames")
        for kind, chunk in _chunks(pending):
            if len(_DATA_CHUNKS) <= kind < _SKIPPED_CHUNKS:
                raise _Broken("it is not snappy in frames")
            is_begun = True
            if kind not in _DATA_CHUNKS:
                continue
            try:
                # Alone after a head of its own, so that its size is bounded and its checksum
                # compared.
                yield bytes(cramjam.snappy.decompress(_SNAPPY_HEAD + chunk))
            except cramjam.DecompressionError as error:
                raise _Broken(f"a piece of it is not snappy ({error})") from error
    if pending or not is_begun:
        raise _Broken("the snappy stream has no end")


def _chunks(pending: bytearray) -> Iterator[tuple[int, bytes]]:
    """Yield kind and bytes of each whole chunk at the beginning, and take it out."""
    while len(pending) >= _CHUNK_HEAD:
        kind, size = pending[0], int.from_bytes(pending[1:_CHUNK_HEAD], "little")
        if kind in _DATA_CHUNKS and size > _MOST_CHUNK:
            raise _Broken("it is not snappy in frames")
        if len(pending) < _CHUNK_HEAD + size:
            return
        chunk = bytes(pending[: _CHUNK_HEAD + size])
        if kind == _STREAM_HEAD and chunk != _SNAPPY_HEAD:
            raise _Broken("it is not snappy in frames")
        del pending[: _CHUNK_HEAD + size]
        yield kind, chunk


def _library(name: str) -> Any:
    try:
        return __import__(name)
    except ImportError:
        raise ConfigError(
            f"the export is compressed in a way that needs the package {name}: pip install {name}"
        ) from None


_READERS: dict[str, Callable[[Iterator[bytes]], Iterator[bytes]]] = {
    "gzip": _gunzipped,
    "zstd": _unzstd,
    "snappy": _unsnapped,
}
