"""Compressed files of exports: read in pieces, and cut ones refused."""

from __future__ import annotations

import gzip
import random
import sys
import tracemalloc
import zlib
from collections.abc import Callable

import cramjam
import pytest
import zstandard

from storage_consumer.config.settings import Compression
from storage_consumer.decode.compression import decompressed
from storage_consumer.errors import ConfigError, UndecodableRow
from tests.unit.decode.exporting import cut

Pack = Callable[[bytes], bytes]
PACKS: dict[Compression, Pack] = {
    "gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
    "snappy": lambda content: bytes(cramjam.snappy.compress(content)),
}
CONTENT = random.Random(1).randbytes(300_000) + b"plain" * 100_000  # noqa: S311 - data of a test
KINDS = pytest.mark.parametrize("kind", list(PACKS))


def unpacked(packed: bytes, kind: Compression, size: int = 1 << 20) -> bytes:
    """The whole content."""
    return b"".join(decompressed(cut(packed, size), kind, "a.b.sql"))


@KINDS
@pytest.mark.parametrize("size", [997, 1 << 20])
def test_content(kind: Compression, size: int) -> None:
    """What was compressed comes back, wherever the blocks end; also if it is several streams one behind the other."""
    packed = PACKS[kind](CONTENT)
    assert unpacked(packed, kind, size) == CONTENT
    assert unpacked(packed + packed, kind, size) == CONTENT * 2
    assert unpacked(PACKS[kind](b"x"), kind, 1) == b"x"


def test_no_compression() -> None:
    """Without compression the blocks stay as they are."""
    assert list(decompressed([b"a", b"b"], "", "a.b.sql")) == [b"a", b"b"]


@KINDS
def test_cut(kind: Compression) -> None:
    """A stream without its end is refused, wherever it was cut."""
    packed = PACKS[kind](CONTENT[:2000])
    for end in [0, 1, 5, len(packed) // 2, len(packed) - 1]:
        with pytest.raises(UndecodableRow, match=r"a\.b\.sql: .* has no end after \d+ bytes"):
            unpacked(packed[:end], kind)


@KINDS
def test_damaged(kind: Compression) -> None:
    """A stream with another byte in it is refused, or gives the same content: all three kinds have checksums, as Dumpling writes them."""
    packed = PACKS[kind](CONTENT[290_000:310_000])
    chance = random.Random(2)  # noqa: S311 - data of a test
    refused = 0
    for _ in range(60):
        spoilt = bytearray(packed)
        spoilt[chance.randrange(len(packed))] ^= 1 << chance.randrange(8)
        try:
            content = unpacked(bytes(spoilt), kind)
        except UndecodableRow:
            refused += 1
        else:
            assert content == CONTENT[290_000:310_000]
    assert refused


@KINDS
def test_other_content(kind: Compression) -> None:
    """A file that is not what its name says is refused."""
    with pytest.raises(UndecodableRow, match="it is not"):
        unpacked(b"INSERT INTO `t` VALUES\n(1);\n", kind)


def test_trailing_bytes() -> None:
    """Something behind the end of a stream is no part of it, and is refused."""
    with pytest.raises(UndecodableRow, match="it is not gzip"):
        unpacked(gzip.compress(b"x") + b"more", "gzip")


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_memory(kind: Compression) -> None:
    """Zeros, of which a thousand times as many bytes come out, are read in pieces: the memory that it takes does not grow with them."""
    packer = zlib.compressobj(wbits=31) if kind == "gzip" else zstandard.ZstdCompressor().compressobj()
    zeros = bytes(1 << 20)
    packed = b"".join(packer.compress(zeros) for _ in range(1 << 8)) + packer.flush()
    assert len(packed) < 1 << 20
    tracemalloc.start()
    size = largest = 0
    for piece in decompressed(cut(packed, 1 << 20), kind, "a.b.sql"):
        size, largest = size + len(piece), max(largest, len(piece))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size == 1 << 28
    assert largest <= 40 << 20
    assert peak <= 100 << 20


@pytest.mark.parametrize(("kind", "package"), [("zstd", "zstandard"), ("snappy", "cramjam")])
def test_package_is_missing(monkeypatch: pytest.MonkeyPatch, kind: Compression, package: str) -> None:
    """Without the package that a compression needs, the message says how to install it."""
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"needs the package {package}: pip install {package}"):
        unpacked(b"x", kind)
