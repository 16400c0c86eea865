"""What is remembered of finished files, so that one that TiCDC writes anew is seen whether or not the program ran meanwhile.

TiCDC writes data files anew under their old names. Which ones, by its source:

* Classic (tiflow, ``pkg/sink/cloudstorage/path.go``, ``generateDataFileName`` and ``getNextFileIdxFromIndexFile``): a sink counts
  in memory, per table, physical table id and version, and looks at no file before it writes. It begins with the number in the
  directory's index file, or behind it where that file is there and not empty; at 1 where there is no index. A failure to write the
  index is only logged (``dml_worker.go``, ``flushMessages``), so the index may be behind by any number of files: all of them are
  written anew, one after another, as rows come. Where the date changes it begins at 1 without a look at that directory, so a clock
  that goes back, or a table that comes back to a node, begins again at 1.
* Classic, one directory for several counters: the partitions of a table with ``enable-partition-separator = false``, and two
  versions of one table whose structure is the same. Each counts for itself, and a slow one writes number 1 anew at any time.
* The first releases of the older layout (tiflow v6.5.0, ``cdc/sinkv2/eventsink/cloudstorage/dml_worker.go``) have no index file: after
  a crash numbers begin at 1 again in the directory of the same version.
* The new architecture (ticdc, ``pkg/cloudstorage/generator.go``, ``GenerateDataFilePath``) takes the next name that does not exist. Only
  two writers of one directory that look at the same time overwrite one another.
* After ``file-index-digit`` was changed the numbers go on under other names: these are other files.

So no number in a directory is safe as long as TiCDC writes to the directory at all; `poll.finished_folders` says how long that is. What is
written anew holds rows above the checkpoint from which TiCDC went on, and repeats. Hence a digest is kept of every finished file
of the directories that may still grow, and of none in the others.

The digest is of the size and the tag with which the file was listed when it was read, not of any later listing. Tags are the
store's own: ETag on S3 and Azure, generation on GCS, time and size on a file system. They are the same for every process on every
machine; a copy of the bucket has others, and is read again once the state is bound to it (see `operating.same_sizes`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b

from storage_consumer.model import StoredObject

CHUNK = 64
"""So many consecutive numbers are stored together: what is written for one new file, and one row for so many files."""
EVERYTHING = (1 << 64) - 1
"""As `Finished.left_out`: TiCDC writes no more to the directory."""
WIDTH = 8
"""Bytes of a digest."""
_SIZE_BYTES = 3
"""Bytes of it that tell the size."""
_ABSENT, ANEW = 0, 1
"""In the place of a digest: none is known; the file was written anew since, and has to be read again."""


def digest_of(stored: StoredObject) -> int:
    """Size and tag as 64 bits, the same in every process, and never 0 or 1; the size has the low ones, so that it can be compared alone."""
    tag = int.from_bytes(
        blake2b(stored.tag.encode("utf-8", "surrogatepass"), digest_size=WIDTH - _SIZE_BYTES).digest(), "little"
    )
    return tag << 8 * _SIZE_BYTES | _size_part(stored.size)


def has_size(digest: int, size: int) -> bool:
    """Whether a digest is one of a file of this size, whatever its tag."""
    return digest & ((1 << 8 * _SIZE_BYTES) - 1) == _size_part(size)


def _size_part(size: int) -> int:
    return int.from_bytes(blake2b(b"%d" % size, digest_size=_SIZE_BYTES).digest(), "little") | 2


class Verdict(Enum):
    """What a listed file is to an earlier run."""

    NEW = "new"
    """It was not finished."""
    SETTLED = "settled"
    """It was finished as it is."""
    ANEW = "anew"
    """It was finished, and is not what it was."""
    UNSURE = "unsure"
    """It was finished, and nothing tells whether it is what it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """How far one stream is finished."""

    upto: int = 0
    """Highest number (inclusive) up to which all files are finished, or were before they were written anew."""
    left_out: int = 0
    """Number (inclusive) up to which listings may have left files out, so that one written anew was not seen at once."""
    digests: Mapping[int, bytes] = field(default_factory=dict)
    """Chunk → digests of its files. Where it is to be stored: of the chunks that moved."""
    replaces: bool = False
    """Where it is to be stored: nothing else stays of the stream's digests."""

    def digest(self, number: int) -> int:
        """Return the digest that is kept of a file, `ANEW`, or 0."""
        return _in(self.digests, number)

    def judge(self, number: int, digest: int) -> Verdict:
        """What a file with this number is whose digest is this one now."""
        known = self.digest(number)
        if known not in (_ABSENT, digest):
            return Verdict.ANEW
        if known:
            return Verdict.SETTLED
        if number > self.upto:
            return Verdict.NEW
        return Verdict.SETTLED if self.left_out == EVERYTHING else Verdict.UNSURE

    def was_unseen(self, number: int) -> bool:
        """Whether a finished file that is not what it was may have been so while rows beyond it were applied."""
        return number <= self.left_out and self.digest(number) != ANEW


class Digests:
    """Digests of one stream's files, by number, in chunks that are stored one by one."""

    __slots__ = ("_chunks", "_moved", "_replaces")

    def __init__(self, chunks: Mapping[int, bytes]) -> None:
        """As they are stored."""
        self._chunks = dict(chunks)
        self._moved: set[int] = set()
        self._replaces = False

    def __getitem__(self, number: int) -> int:
        """The digest of a file, `ANEW`, or 0."""
        return _in(self._chunks, number)

    def __setitem__(self, number: int, digest: int) -> None:
        """Note the digest of a file."""
        chunk, place = divmod(number, CHUNK)
        content = self._chunks.get(chunk, b"").ljust((place + 1) * WIDTH, b"\0")
        start = place * WIDTH
        self._chunks[chunk] = content[:start] + digest.to_bytes(WIDTH, "little") + content[start + WIDTH :]
        self._moved.add(chunk)

    def finished_beyond(self, number: int) -> Iterator[int]:
        """The numbers above this one with the digest of a finished file, in order."""
        for chunk in sorted(chunk for chunk in self._chunks if chunk >= number // CHUNK):
            for place in range(len(self._chunks[chunk]) // WIDTH):
                found = chunk * CHUNK + place
                if found > number and self[found] not in (_ABSENT, ANEW):
                    yield found

    def forget(self, read: int = 0, but: Collection[int] = ()) -> None:
        """Keep nothing but which files have to be read again, and the digests of the numbers `but`; the file with the number `read` has been."""
        kept = {
            number: self[number]
            for chunk, content in self._chunks.items()
            for number in range(chunk * CHUNK, chunk * CHUNK + len(content) // WIDTH)
            if (self[number] == ANEW and number != read) or number in but
        }
        self._replaces = self._replaces or bool(self._chunks)
        self._chunks, self._moved = {}, set()
        for number, digest in kept.items():
            self[number] = digest

    def moved(self) -> tuple[Mapping[int, bytes], bool]:
        """The chunks that moved since the last call, and whether they are all that there is."""
        moved, replaces = {chunk: self._chunks[chunk] for chunk in self._moved}, self._replaces
        self._moved, self._replaces = set(), False
        return moved, replaces


def _in(chunks: Mapping[int, bytes], number: int) -> int:
    chunk, place = divmod(number, CHUNK)
    content = chunks.get(chunk)
    return int.from_bytes(content[place * WIDTH : (place + 1) * WIDTH], "little") if content else _ABSENT
