"""The command `rebind`: continue with a bucket that was copied, moved or restored.

A place is compared with the files that were read elsewhere: a copy has other times and, as stores
cut uploads, perhaps other tags.

Schema files are compared by their content. Each names a version, which is a TSO of the source, so
another changefeed has none of them; all that were read must exist. Of each numbered sequence, the
last finished file is looked for; older ones may have expired, so a missing one proves nothing.

Data files are compared one by one, by their sizes: every finished file with a stored digest must
have the same size. Of the last finished files the content is compared too, as far as the former
place can still be read, unless the store's tags show that it is the same. A finished file with
another size was rewritten since, or copied badly. Its digest is kept, so that `run` treats it as it
would have at the former place: it reads the file again, and halts the table if no listing looked at
the file while rows after it were applied. A file that was rewritten with the same size goes
unnoticed: `run` reads it again only where TiCDC may still write, and treats its rows up to the
checkpoint as repeats.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace

from storage_consumer.bucket.inspector import missing_metadata
from storage_consumer.bucket.metadata import Metadata
from storage_consumer.bucket.paths import DataName, parse_data_name
from storage_consumer.bucket.schema_file import read_definition
from storage_consumer.bucket.storage import METADATA_BYTES, Storage, read_up_to
from storage_consumer.checkpoint.journal import record_of
from storage_consumer.checkpoint.progress import FeedRow, KeptFile, busy
from storage_consumer.cli.endings import Answer, told
from storage_consumer.cli.verbs import RebindFlags
from storage_consumer.clock import SystemClock
from storage_consumer.config.settings import Upstream
from storage_consumer.driver.lease import process_is_gone, readable
from storage_consumer.errors import ConfigError, LeaseHeld, MalformedSchemaFile, StorageUnavailable
from storage_consumer.model import StoredObject, sequence_name
from storage_consumer.plan.finished_files import Finished, digest_of, has_size, is_mark
from storage_consumer.session import Session
from storage_consumer.telemetry import tso_time

_SHOWN = 10
"""Number of paths that are kept for a message; the others are only counted."""
MOST_READ = 2_000
"""Number of schema files, the newest ones, that are read. Others only have to exist: the name has
version and checksum.

Likewise of last finished data files, of which so many bytes are read at the beginning, each with
its commit-ts.
"""
_CONTENT = 1 << 20
_AT_ONCE = 8
_MD5 = re.compile("[0-9a-f]{32}")
"""A tag that a store makes of the content."""


class Sizes:
    """What a listing shows in passing, with 8 bytes per file of another size and a few paths."""

    def __init__(self, sequences: Mapping[str, Finished]) -> None:
        """Start empty; `sequences`: sequence (`DataFile.sequence`) → what earlier runs finished."""
        self._sequences = sequences
        self.last: dict[str, StoredObject] = {}
        """Sequence → its last finished file."""
        self.other: dict[str, array[int]] = {}
        """Sequence → numbers of its finished files that have another size."""
        self.count = 0
        """Number of files with another size."""
        self.unseen = 0
        """Number that may have been rewritten unseen where no listing was, so rows may be lost."""
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
        sequence = data and next(
            (found for found in sequence_names(folder, data) if found in self._sequences), ""
        )
        if not (data and sequence):
            return
        finished = self._sequences[sequence]
        # Older ones may have expired; a copy of the same changefeed has the last one.
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
            self.shown.append(
                f"{stored.path}: it has {stored.size} bytes, and had another size when it was read{lost}"
            )

    def unsure(self) -> list[StoredObject]:
        """Return the last finished files of equal size with doubtful content, newest first."""
        found = [
            stored
            for sequence, stored in self.last.items()
            if (number := self._sequences[sequence].upto) not in self.other.get(sequence, ())
            and not (
                _MD5.fullmatch(stored.tag)
                and self._sequences[sequence].digest(number) == digest_of(stored)
            )
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
    storage: Storage,
    kept: list[KeptFile],
    sequences: Mapping[str, Finished],
    former: Storage | None = None,
) -> PlaceComparison:
    """Compare `StoredFeed`'s knowledge of a bucket with another place's content.

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
    files, same = [] if former is None else sizes.unsure()[:MOST_READ], dict[str, bool]()

    def is_same(stored: StoredObject) -> bool | None:
        # The former place may no longer have it.
        with suppress(FileNotFoundError):
            assert former is not None  # no file is compared without it
            return read_up_to(former, stored.path, _CONTENT) == read_up_to(
                storage, stored.path, _CONTENT
            )
        return None

    if former is not None:
        with suppress(ConfigError, StorageUnavailable), ThreadPoolExecutor(_AT_ONCE) as pool:
            former.check()
            answers = zip(files, pool.map(is_same, files), strict=True)
            same = {stored.path: answer for stored, answer in answers if answer is not None}
    return PlaceComparison(
        read=min(len(known), MOST_READ) - len(different),
        named=max(0, len(known) - MOST_READ),
        missing=tuple(file.path for file in kept if file.path not in there),
        different=different,
        sizes=sizes,
        contents=sum(same.values()),
        other_contents=tuple(path for path, answer in same.items() if not answer),
    )


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
    """Return the first paths as lines and a count of the rest; `count`: the total."""
    found = list(paths)
    shown, count = found[:_SHOWN], max(count, len(found))
    more = [f"and {count - len(shown)} more"] if count > len(shown) else []
    return "".join(f"\n  {path}" for path in (*shown, *more))


def sequence_names(folder: str, data: DataName) -> Iterator[str]:
    """Yield the sequences of a file, likeliest first: a full-width number hides its width."""
    digits = len(str(data.number))
    for width in range(digits, data.width, -1):
        yield sequence_name(folder, data.dispatcher, width)
    yield sequence_name(folder, data.dispatcher, data.width)


def answer_rebind(own: RebindFlags, session: Session) -> Answer:
    """Return what was bound.

    Raises `ConfigError` if the place does not hold the files that were read, `LeaseHeld` while a
    writer runs, and `TransientError`.
    """
    loaded = session.ends
    upstream = loaded.config.upstream

    def opened(near: Upstream) -> Storage:
        return session.storage(near, loaded.secrets)

    with session.state(older=True) as desk:
        feed = desk.feed.row()
        # Nothing to do, and so no listing: repeating the command is cheap.
        if feed.upstream == upstream.identity and not own.restored:
            return _report(own, feed, upstream.identity, None)
        # This only spares a long comparison; `StoredFeed.rebind` checks it again, under a lock.
        if feed.is_held and not process_is_gone(feed.holder):
            raise LeaseHeld(busy(feed.holder))
        storage = opened(upstream)
        storage.check()
        metadata = Metadata()
        try:
            odd = metadata.update(storage.read("metadata", METADATA_BYTES), SystemClock().now())
        except FileNotFoundError:
            raise ConfigError(missing_metadata(upstream, opened)) from None
        if odd:
            raise ConfigError(f"nothing was changed: {odd[0]}")
        # An older copy may lack files that were listed at the former place.
        if metadata.checkpoint < feed.storage_checkpoint:
            raise ConfigError(
                f"metadata in {upstream.identity} says {metadata.checkpoint} ({tso_time(metadata.checkpoint)}), and {feed.storage_checkpoint} "
                f"({tso_time(feed.storage_checkpoint)}) was read in {feed.upstream}: the copy is older than the state. Copy everything "
                "that came since, metadata last; nothing was changed"
            )
        # None where it is the same place, or in a store of which nothing is known here.
        former, (scheme, _, root) = None, feed.upstream.partition("://")
        if feed.upstream != upstream.identity and scheme in ("file", upstream.scheme):
            former = opened(
                replace(upstream, scheme="file" if scheme == "file" else upstream.scheme, root=root)
            )
        found = compared(storage, desk.feed.schema_files(), desk.progress.sequences(), former)
        # What differs in content is never allowed: it is another changefeed's, or damaged.
        _check(
            found,
            feed,
            upstream.identity,
            may_miss=own.allow_missing,
            may_differ=own.allow_rewritten,
        )
        desk.feed.rebind(feed, upstream.identity, found.sizes.other, process_is_gone)
    return _report(own, feed, upstream.identity, found)


def _check(
    found: PlaceComparison, feed: FeedRow, place: str, *, may_miss: bool, may_differ: bool
) -> None:
    """Raise `ConfigError` if the files are not those that were read."""
    if found.different:
        raise ConfigError(
            f"files in {place} differ from those that were read in {feed.upstream}; nothing was "
            f"changed:{shortened(found.different)}"
        )
    if found.other_contents:
        raise ConfigError(
            f"data files in {place} hold other rows than in {feed.upstream}, where they were read: those up to the checkpoint would count as "
            f"repeats. It is another changefeed's copy, or a damaged one; nothing was changed:{shortened(found.other_contents)}"
        )
    # An empty place differs in nothing: something must speak for it.
    if not found.proves:
        raise ConfigError(
            f"none of the files that were read in {feed.upstream} is in {place}, so nothing shows that it is the same changefeed; "
            f"nothing was changed:{shortened(found.missing)}"
        )
    if found.missing and not may_miss:
        raise ConfigError(
            f"schema files that were read in {feed.upstream} are not in {place}; nothing was changed. Copy them too, or, if they "
            f"were deleted there on purpose and everything else was copied, add --allow-missing:{shortened(found.missing)}"
        )
    if found.sizes.count and not may_differ:
        raise ConfigError(
            f"data files in {place} have another size than when they were read in {feed.upstream}; nothing was "
            "changed. If the copy is incomplete, complete it. If TiCDC has rewritten them since, as it may after a "
            "restart, add --allow-rewritten: then `run` "
            f"reads them again, and halts a table that may have lost rows:{shortened(found.sizes.shown, found.sizes.count)}"
        )


def _report(own: RebindFlags, feed: FeedRow, place: str, found: PlaceComparison | None) -> Answer:
    """Return what was done."""
    document: dict[str, object] = {
        "outcome": "same" if found is None else "restored" if feed.upstream == place else "bound",
        "from": feed.upstream,
        "to": place,
        "last_writer": readable(feed.holder),
        "checkpoint": feed.checkpoint,
    }
    if found is None:
        said = (
            f"the state is bound to {place} already; nothing was changed. If files there were restored or copied over, so that "
            "they have other times or tags, stop the consumer and add --restored"
        )
        return told(own, document, [said])
    document["compared"] = {
        "schema_files_read": found.read,
        "schema_files_by_name": found.named,
        "schema_files_missing": list(found.missing),
        "last_data_files_there": found.sizes.there,
        "last_data_files_gone": found.sizes.gone,
        "last_data_files_compared": found.contents,
        "data_files_with_another_size": found.sizes.count,
        "data_files_rewritten_unseen": found.sizes.unseen,
    }
    lines: list[str] = []
    sizes, goes_on = found.sizes, f"goes on from {feed.checkpoint} ({tso_time(feed.checkpoint)})"
    if feed.upstream == place:
        lines.append(f"the state is bound to {place} as before, and {goes_on}")
    else:
        writer = f"; its last writer was {readable(feed.holder)}" if feed.holder else ""
        lines.append(f"the state was bound to {feed.upstream}{writer}")
        lines.append(f"it is bound to {place} now, and {goes_on}")
    by_name = f", {found.named} more by name" if found.named else ""
    lines.append(f"compared: {found.read} schema files that say the same{by_name}")
    lines.append(
        f"compared: {sizes.there} last finished data files that are there; {sizes.gone} are gone, as old ones may be"
    )
    unsure = len(sizes.unsure())
    if found.contents:
        lines.append(f"compared: {found.contents} of them with the former place, by content")
    if unsure > found.contents:
        lines.append(
            f"not compared: the content of {unsure - found.contents} of them, which the former place no longer shows: their sizes are the same"
        )
    if found.missing:
        lines.append(
            f"not there, as allowed: {len(found.missing)} schema files:{shortened(found.missing)}"
        )
    if sizes.count:
        lines.append(
            f"of another size, as allowed: {sizes.count} data files, which `run` reads again:{shortened(sizes.shown, sizes.count)}"
        )
    if sizes.unseen:
        lines.append(
            f"{sizes.unseen} of them may have lost rows: `run` halts their tables and lists the next steps"
        )
    lines.append(
        "the next start may read files again where TiCDC may still write; rows that were applied are not applied again"
    )
    if feed.upstream != place:
        lines.append(
            "make sure that TiCDC writes there and no longer to the former place: new rows in the former place are "
            "not read"
        )
    return told(own, document, lines)
