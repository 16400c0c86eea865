"""Compare a place with the files that were read elsewhere: a copy has other times and, as stores cut uploads, perhaps other tags.

Schema files are compared by their content. Each names a version, which is a TSO of the source, so another changefeed has none of them; all
that were read must exist. Of each numbered sequence, the last finished file is looked for; older ones may have expired, so a missing one
proves nothing.

Data files are compared one by one, by their sizes: every finished file with a stored digest must have the same size. Of the last finished
files the content is compared too, as far as the former place can still be read, unless the store's tags show that it is the same. A finished
file with another size was rewritten since, or copied badly. Its digest is kept, so that `run` treats it as it would have at the former
place: it reads the file again, and halts the table if no listing looked at the file while rows after it were applied. A file that was
rewritten with the same size goes unnoticed: `run` reads it again only where TiCDC may still write, and treats its rows up to the
checkpoint as repeats.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from storage_consumer.bucket.paths import DataName, parse_data_name
from storage_consumer.bucket.schema_file import read_definition
from storage_consumer.bucket.storage import Storage, read_up_to
from storage_consumer.checkpoint.journal import record_of
from storage_consumer.checkpoint.progress import KeptFile
from storage_consumer.errors import ConfigError, MalformedSchemaFile, StorageUnavailable
from storage_consumer.model import StoredObject, sequence_name
from storage_consumer.plan.finished_files import Finished, digest_of, has_size, is_mark

_SHOWN = 10
"""Number of paths that are kept for a message; the others are only counted."""
MOST_READ = 2_000
"""Number of schema files, the newest ones, that are read. Others only have to exist: the name has version and checksum.

Likewise of last finished data files, of which so many bytes are read at the beginning, each with its commit-ts.
"""
_CONTENT = 1 << 20
_AT_ONCE = 8
_MD5 = re.compile("[0-9a-f]{32}")
"""A tag that a store makes of the content."""


class Sizes:
    """What a listing shows as it passes. It keeps 8 bytes for each file with another size, and only a few paths."""

    def __init__(self, sequences: Mapping[str, Finished]) -> None:
        """Start without findings. `sequences`: sequence (see `DataFile.sequence`) → what an earlier run finished of it."""
        self._sequences = sequences
        self.last: dict[str, StoredObject] = {}
        """Sequence → its last finished file."""
        self.other: dict[str, array[int]] = {}
        """Sequence → numbers of its finished files that have another size."""
        self.count = 0
        """Number of files with another size."""
        self.unseen = 0
        """Number of those that may have been rewritten where no listing looked, so that rows may be lost."""
        self.shown: list[str] = []
        """The first of them, each with its difference."""

    @property
    def there(self) -> int:
        """Number of sequences whose last finished file exists."""
        return len(self.last)

    @property
    def gone(self) -> int:
        """Number of sequences whose last finished file does not exist."""
        return sum(finished.upto > 0 for finished in self._sequences.values()) - self.there

    def see(self, stored: StoredObject) -> None:
        """Record one listed object."""
        folder, _, name = stored.path.rpartition("/")
        data = parse_data_name(name)
        # The name alone does not show of which width its sequence is, so the known ones decide.
        sequence = data and next((found for found in sequence_names(folder, data) if found in self._sequences), "")
        if not (data and sequence):
            return
        finished = self._sequences[sequence]
        # Older ones may have expired; the last one is the one that a copy of the same changefeed has.
        if data.number == finished.upto:
            self.last[sequence] = stored
        digest = finished.digest(data.number)
        if is_mark(digest) or has_size(digest, stored.size):
            return
        unseen = finished.was_unseen(data.number)
        self.other.setdefault(sequence, array("Q")).append(data.number)
        self.count += 1
        self.unseen += unseen
        if len(self.shown) < _SHOWN:
            lost = "; rows in it may be lost, so its table would halt" if unseen else ""
            self.shown.append(f"{stored.path}: it has {stored.size} bytes, and had another size when it was read{lost}")

    def unsure(self) -> list[StoredObject]:
        """Return the last finished files of the same size whose content may be another, the newest sequences first."""
        found = [
            stored
            for sequence, stored in self.last.items()
            if (number := self._sequences[sequence].upto) not in self.other.get(sequence, ())
            and not (_MD5.fullmatch(stored.tag) and self._sequences[sequence].digest(number) == digest_of(stored))
        ]
        return sorted(found, key=lambda stored: stored.path.rpartition("/")[0], reverse=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceComparison:
    """What is the same at the other place, and what is not."""

    read: int
    """Schema files that were read there and say the same."""
    named: int
    """Schema files that exist there by name but were not read."""
    missing: tuple[str, ...]
    """Paths of schema files that do not exist there."""
    different: tuple[str, ...]
    """Paths of schema files, each with its difference."""
    sizes: Sizes
    """Findings of the data files' sizes."""
    contents: int
    """Last finished data files that have the content that they have at the former place."""
    other_contents: tuple[str, ...]
    """Paths of those that have another one."""

    @property
    def proves(self) -> bool:
        """Whether anything shows that it is the same changefeed."""
        return bool(self.read or self.named or self.sizes.there)


def compared(
    storage: Storage, kept: list[KeptFile], sequences: Mapping[str, Finished], former: Storage | None = None
) -> PlaceComparison:
    """Compare what is known of a bucket with the content of another place; `StoredFeed` provides what is known.

    `former`: the place where it was read; None if that cannot be asked.
    """
    wanted, there, sizes = {file.path for file in kept}, set[str](), Sizes(sequences)
    # One listing, of which little is kept: a bucket may have millions of files.
    for stored in storage.listing(frozenset(), {}):
        if stored.path in wanted:
            there.add(stored.path)
        sizes.see(stored)
    # In the order of `kept`, so the newest ones are read.
    known = [file for file in kept if file.path in there]
    different = tuple(path for file in known[:MOST_READ] if (path := _difference(storage, file)))
    same = {} if former is None else _same_contents(storage, former, sizes.unsure()[:MOST_READ])
    return PlaceComparison(
        read=min(len(known), MOST_READ) - len(different),
        named=max(0, len(known) - MOST_READ),
        missing=tuple(file.path for file in kept if file.path not in there),
        different=different,
        sizes=sizes,
        contents=sum(same.values()),
        other_contents=tuple(path for path, is_same in same.items() if not is_same),
    )


def _same_contents(storage: Storage, former: Storage, files: Iterable[StoredObject]) -> dict[str, bool]:
    """Return path → whether a file has the same content in both places; without those that the former one no longer has."""

    def look(stored: StoredObject) -> bool | None:
        with suppress(FileNotFoundError):
            return read_up_to(former, stored.path, _CONTENT) == read_up_to(storage, stored.path, _CONTENT)
        return None

    files = list(files)
    with suppress(ConfigError, StorageUnavailable), ThreadPoolExecutor(_AT_ONCE) as pool:
        former.check()
        return {
            stored.path: is_same
            for stored, is_same in zip(files, pool.map(look, files), strict=True)
            if is_same is not None
        }
    return {}


def _difference(storage: Storage, file: KeptFile) -> str:
    """Return how a schema file differs from what was stored of it; empty if it does not."""
    try:
        definition = read_definition(storage, file.path)
    except FileNotFoundError:
        return f"{file.path}: it was listed but is gone"
    except MalformedSchemaFile as fault:
        return str(fault)
    # By the digest that the state keeps: it covers the statement and every column.
    same = record_of(file.table_dir, definition)["digest"] == file.digest
    return "" if same else f"{file.path}: its statement or structure differs from what was read"


def shortened(paths: Iterable[str], count: int = 0) -> str:
    """Return the first paths as lines, and a count of the others; `count` is the total if `paths` has not all of them."""
    found = list(paths)
    shown, count = found[:_SHOWN], max(count, len(found))
    more = [f"and {count - len(shown)} more"] if count > len(shown) else []
    return "".join(f"\n  {path}" for path in (*shown, *more))


def sequence_names(folder: str, data: DataName) -> Iterator[str]:
    """Yield the sequences that a file may belong to, likeliest first: a number that fills its width does not show the width."""
    digits = len(str(data.number))
    for width in range(digits, data.width, -1):
        yield sequence_name(folder, data.dispatcher, width)
    yield sequence_name(folder, data.dispatcher, data.width)
