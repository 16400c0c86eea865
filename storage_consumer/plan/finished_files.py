"""What is remembered of finished files, so that a file that TiCDC rewrites is noticed even if the program did not run meanwhile.

TiCDC rewrites data files under their old names. Which ones, by its source:

* Classic (tiflow, ``pkg/sink/cloudstorage/path.go``, ``generateDataFileName`` and ``getNextFileIdxFromIndexFile``): a sink counts
  in memory, per table, physical table id and version, and looks at no file before it writes. It begins with the number in the
  directory's index file, or after it if that file is there and not empty; at 1 if there is no index. A failure to write the
  index is only logged (``dml_worker.go``, ``flushMessages``), so the index may be behind by any number of files: all of them are
  rewritten, one after another, as rows come. Where the date changes it begins at 1 without a look at that directory. So it begins
  again at 1 if a clock goes back or a table comes back to a node.
* Classic, one directory for several counters: the partitions of a table with ``enable-partition-separator = false``, and two
  versions of one table whose structure is the same. Each counts for itself, and a slow one may rewrite number 1 at any time.
* The first releases of the older layout (tiflow v6.5.0, ``cdc/sinkv2/eventsink/cloudstorage/dml_worker.go``) have no index file: after
  a crash numbers begin at 1 again in the directory of the same version.
* The new architecture (ticdc, ``pkg/cloudstorage/generator.go``, ``GenerateDataFilePath``) takes the next name that does not exist. Only
  two writers of one directory that look at the same time overwrite one another.
* After ``file-index-digit`` was changed the numbers continue under other names: these are other files.

So no number in a directory is safe as long as TiCDC writes to the directory at all; `poll.known_files` says how long that is. A
rewritten file holds rows above the checkpoint from which TiCDC continued, and repeats. Hence a digest is kept of every finished file
in the directories that may still grow, and of none in the others.

The digest covers the size and the tag with which the file was listed when it was read, not those of any later listing. Tags are the
store's own: ETag on S3 and Azure, generation on GCS, time and size on a file system. They are the same for every process on every
machine. A copy of the bucket has others, and is read again once the state is bound to it (see `operating.same_files`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b

from storage_consumer.model import StoredObject

CHUNK = 64
"""Consecutive numbers that are stored together: one new file writes this many digests, and this many files take one row."""
EVERYTHING = (1 << 64) - 1
"""As `Finished.left_out`: TiCDC writes no more to the directory."""
WIDTH = 8
"""Bytes of a digest."""
_SIZE_BYTES = 3
"""Bytes of it that stand for the size."""
_ABSENT, REWRITTEN, _PASSED = 0, 1, 4
"""In place of a digest: none is known; the file was rewritten since and has to be read again;
such a file is not waited for any more, and whatever comes under its number is read."""
_MARK = REWRITTEN.to_bytes(WIDTH, "little")


def digest_of(stored: StoredObject) -> int:
    """Return size and tag as 64 bits, equal in every process, never 0 or 1; the low bits are the size's, to be compared alone."""
    # Not hash(): it differs between processes, and digests are stored.
    tag = int.from_bytes(
        blake2b(stored.tag.encode("utf-8", "surrogatepass"), digest_size=WIDTH - _SIZE_BYTES).digest(), "little"
    )
    return tag << 8 * _SIZE_BYTES | _size_part(stored.size)


def is_mark(digest: int) -> bool:
    """Return whether what stands in a digest's place is none, so that it records no size."""
    return digest in (_ABSENT, REWRITTEN, _PASSED)


def has_size(digest: int, size: int) -> bool:
    """Return whether a digest belongs to a file of this size, whatever its tag."""
    return digest & ((1 << 8 * _SIZE_BYTES) - 1) == _size_part(size)


def _size_part(size: int) -> int:
    # Bit 1 is always set, so that no digest is `_ABSENT`, `REWRITTEN` or `_PASSED`.
    return int.from_bytes(blake2b(b"%d" % size, digest_size=_SIZE_BYTES).digest(), "little") | 2


class FileVerdict(Enum):
    """What a listed file is to an earlier run."""

    NEW = "new"
    """It was not finished."""
    UNCHANGED = "unchanged"
    """It was finished, and is unchanged."""
    REWRITTEN = "rewritten"
    """It was finished, and has changed."""
    UNSURE = "unsure"
    """It was finished, and nothing shows whether it has changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """How far one sequence is finished."""

    upto: int = 0
    """Highest number (inclusive) up to which all files are finished, or were before they were rewritten."""
    left_out: int = 0
    """Number (inclusive) up to which listings may have left files out, so that a rewritten one was not noticed immediately."""
    digests: Mapping[int, bytes] = field(default_factory=dict)
    """Chunk → digests of its files. In what is to be stored: only the chunks that changed."""
    replaces: bool = False
    """In what is to be stored: whether all other digests of the sequence are to be deleted."""

    def digest(self, number: int) -> int:
        """Return the digest that is kept of a file, `REWRITTEN`, or 0."""
        return _in(self.digests, number)

    def judge(self, number: int, digest: int) -> FileVerdict:
        """Return what the file with this number is, given its present digest."""
        known = self.digest(number)
        # The marks `REWRITTEN` and `_PASSED` are no file's digest, so they end here too.
        if known not in (_ABSENT, digest):
            return FileVerdict.REWRITTEN
        if known:
            return FileVerdict.UNCHANGED
        if number > self.upto:
            return FileVerdict.NEW
        # No digest is kept where TiCDC had left the directory for good; anywhere else nothing shows whether the file has changed.
        return FileVerdict.UNCHANGED if self.left_out == EVERYTHING else FileVerdict.UNSURE

    def was_unseen(self, number: int) -> bool:
        """Return whether a finished file may have changed while rows beyond it were applied."""
        return number <= self.left_out and self.digest(number) != REWRITTEN


class Digests:
    """Digests of one sequence's files, by number, in chunks that are stored one by one."""

    __slots__ = ("_chunks", "_moved", "_replaces")

    def __init__(self, chunks: Mapping[int, bytes]) -> None:
        """Begin with the stored chunks."""
        self._chunks = dict(chunks)
        self._moved: set[int] = set()
        self._replaces = False

    def __getitem__(self, number: int) -> int:
        """Return the digest of a file, `REWRITTEN`, or 0."""
        return _in(self._chunks, number)

    def __setitem__(self, number: int, digest: int) -> None:
        """Record the digest of a file."""
        chunk, place = divmod(number, CHUNK)
        # A chunk grows as needed; a place that was never set is zero, which is `_ABSENT`.
        content = self._chunks.get(chunk, b"").ljust((place + 1) * WIDTH, b"\0")
        start = place * WIDTH
        self._chunks[chunk] = content[:start] + digest.to_bytes(WIDTH, "little") + content[start + WIDTH :]
        self._moved.add(chunk)

    def finished_beyond(self, number: int) -> Iterator[int]:
        """Yield the numbers above this one with the digest of a finished file, in order."""
        for chunk in sorted(chunk for chunk in self._chunks if chunk >= number // CHUNK):
            # A chunk is only as long as the highest number in it needs.
            for place in range(len(self._chunks[chunk]) // WIDTH):
                found = chunk * CHUNK + place
                if found > number and self[found] not in (_ABSENT, REWRITTEN):
                    yield found

    def rewritten(self) -> Iterator[int]:
        """Yield the numbers of the files to read again."""
        for chunk, content in self._chunks.items():
            # Hardly any chunk has one, and this is asked of all files of a sequence.
            if _MARK in content:
                places = range(len(content) // WIDTH)
                yield from (n for place in places if self[n := chunk * CHUNK + place] == REWRITTEN)

    def pass_over(self, number: int) -> None:
        """Wait no more for a file to read again; another digest stays as it is."""
        if self[number] == REWRITTEN:
            self[number] = _PASSED

    def forget(self, read: int = 0, but: Collection[int] = ()) -> None:
        """Drop all digests except those of the numbers `but` and the marks of files to read again; the file `read` needs no mark now."""
        kept = {
            number: self[number]
            for chunk, content in self._chunks.items()
            for number in range(chunk * CHUNK, chunk * CHUNK + len(content) // WIDTH)
            if (self[number] == REWRITTEN and number != read) or number in but
        }
        # The chunks that are stored have to go as well.
        self._replaces = self._replaces or bool(self._chunks)
        self._chunks, self._moved = {}, set()
        for number, digest in kept.items():
            self[number] = digest

    def moved(self) -> tuple[Mapping[int, bytes], bool]:
        """Return the chunks that changed since the last call, and whether they replace all others."""
        moved, replaces = {chunk: self._chunks[chunk] for chunk in self._moved}, self._replaces
        self._moved, self._replaces = set(), False
        return moved, replaces


def _in(chunks: Mapping[int, bytes], number: int) -> int:
    chunk, place = divmod(number, CHUNK)
    content = chunks.get(chunk)
    return int.from_bytes(content[place * WIDTH : (place + 1) * WIDTH], "little") if content else _ABSENT
