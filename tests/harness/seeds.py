"""Valid inputs for tests that spoil them: files of the recorded buckets."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

from tests.harness.corpora import ARCHIVE, CorpusSource, available

LARGEST = 1 << 16
"""Bytes of a file that is taken."""


def corpus_files(pattern: str, *, variants: str = ".*", limit: int = 200) -> list[tuple[str, bytes]]:
    """Path and content of up to `limit` files whose path matches `pattern`, some of each corpus whose variant matches.

    The corpora are those of `tests.harness.corpora.root`. Always the same files in the same order.
    """
    sources = [source for source in available() if re.fullmatch(variants, source.variant)]
    each = max(1, limit // max(1, len(sources)))
    return [found for source in sources for found in _some(source, re.compile(pattern), each)][:limit]


def _some(source: CorpusSource, pattern: re.Pattern[str], count: int) -> Iterator[tuple[str, bytes]]:
    """`count` matching files of one corpus, spread over all."""
    found = sorted((path, size) for path, size in _sizes(source) if pattern.fullmatch(path) and 0 < size <= LARGEST)
    paths = [path for path, _ in found[:: max(1, len(found) // count)][:count]]
    if not source.path.name.endswith(ARCHIVE):
        yield from ((path, (source.path / "tree" / path).read_bytes()) for path in paths)
        return
    with tarfile.open(source.path) as tar:
        for path in paths:
            member = tar.extractfile(f"{source.folder_name}/tree/{path}")
            assert member is not None
            yield path, member.read()


def _sizes(source: CorpusSource) -> list[tuple[str, int]]:
    """Path below the bucket's root and size in bytes of each file."""
    if source.path.name.endswith(ARCHIVE):
        with tarfile.open(source.path) as tar:
            prefix = f"{source.folder_name}/tree/"
            return [
                (member.name.removeprefix(prefix), member.size)
                for member in tar
                if member.isfile() and member.name.startswith(prefix)
            ]
    tree: Path = source.path / "tree"
    return [(path.relative_to(tree).as_posix(), path.stat().st_size) for path in tree.rglob("*") if path.is_file()]
