"""The command `rebind`: go on with a bucket that was copied or moved to another place, or restored in its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from storage_consumer.bucket.inspector import missing_metadata
from storage_consumer.bucket.metadata import Metadata
from storage_consumer.bucket.storage import METADATA_BYTES, Storage
from storage_consumer.checkpoint.progress import FeedRow, busy
from storage_consumer.cli.answer import Answer, told
from storage_consumer.cli.verbs import RebindFlags
from storage_consumer.clock import SystemClock
from storage_consumer.config.settings import Upstream
from storage_consumer.driver.lease import process_is_gone, readable
from storage_consumer.errors import ConfigError, LeaseHeld
from storage_consumer.operating.same_files import PlaceComparison, compared, shortened
from storage_consumer.session import Session
from storage_consumer.telemetry import tso_time


def answer(own: RebindFlags, session: Session) -> Answer:
    """Return what was bound.

    Raises `ConfigError` if the place does not hold the files that were read, `LeaseHeld` while a writer runs, and `TransientError`.
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
        _check_metadata(storage, feed, upstream, opened)
        # None where it is the same place, or in a store of which nothing is known here.
        former, (scheme, _, root) = None, feed.upstream.partition("://")
        if feed.upstream != upstream.identity and scheme in ("file", upstream.scheme):
            former = opened(replace(upstream, scheme="file" if scheme == "file" else upstream.scheme, root=root))
        found = compared(storage, desk.feed.schema_files(), desk.progress.sequences(), former)
        # What differs in content is never allowed: it is another changefeed's, or damaged.
        _check(found, feed, upstream.identity, may_miss=own.allow_missing, may_differ=own.allow_rewritten)
        desk.feed.rebind(feed, upstream.identity, found.sizes.other, process_is_gone)
    return _report(own, feed, upstream.identity, found)


def _check_metadata(storage: Storage, feed: FeedRow, upstream: Upstream, opened: Callable[[Upstream], Storage]) -> None:
    """Raise `ConfigError` if there is no metadata, or it is older than what was read: files that it covered may be missing."""
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


def _check(found: PlaceComparison, feed: FeedRow, place: str, *, may_miss: bool, may_differ: bool) -> None:
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
    return told(own, document, _lines(feed, place, found))


def _lines(feed: FeedRow, place: str, found: PlaceComparison) -> Iterator[str]:
    sizes, goes_on = found.sizes, f"goes on from {feed.checkpoint} ({tso_time(feed.checkpoint)})"
    if feed.upstream == place:
        yield f"the state is bound to {place} as before, and {goes_on}"
    else:
        writer = f"; its last writer was {readable(feed.holder)}" if feed.holder else ""
        yield f"the state was bound to {feed.upstream}{writer}"
        yield f"it is bound to {place} now, and {goes_on}"
    by_name = f", {found.named} more by name" if found.named else ""
    yield f"compared: {found.read} schema files that say the same{by_name}"
    yield f"compared: {sizes.there} last finished data files that are there; {sizes.gone} are gone, as old ones may be"
    unsure = len(sizes.unsure())
    if found.contents:
        yield f"compared: {found.contents} of them with the former place, by content"
    if unsure > found.contents:
        yield f"not compared: the content of {unsure - found.contents} of them, which the former place no longer shows: their sizes are the same"
    if found.missing:
        yield f"not there, as allowed: {len(found.missing)} schema files:{shortened(found.missing)}"
    if sizes.count:
        yield f"of another size, as allowed: {sizes.count} data files, which `run` reads again:{shortened(found.sizes.shown, found.sizes.count)}"
    if sizes.unseen:
        yield f"{sizes.unseen} of them may have lost rows: `run` halts their tables and lists the next steps"
    yield (
        "the next start may read files again where TiCDC may still write; rows that were applied are not applied again"
    )
    if feed.upstream != place:
        yield (
            "make sure that TiCDC writes there and no longer to the former place: new rows in the former place are "
            "not read"
        )
