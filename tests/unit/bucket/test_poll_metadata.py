"""``metadata``: torn, absurd, going back or away; what is known of it stays good, and is looked up anew where it must be."""

from __future__ import annotations

import pytest

from storage_consumer.bucket.metadata import RESTART_MS, parse_metadata
from storage_consumer.bucket.reader import ODD_METADATA
from storage_consumer.errors import StorageUnavailable
from storage_consumer.model import CLOCK_MARGIN_MS, DAY_MS
from tests.harness.twins.storage import FakeClock, MemoryStorage
from tests.unit.bucket.test_reader import DATA, SCHEMA, V, metadata, reader


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"checkpoint-ts":44',
        b"[]",
        b"{}",
        b"\xff",
        b"null",
        b"[" * 100_000,
        metadata(-1),
        metadata(4.5e17),
        b'{"checkpoint-ts":true}',
        metadata("449"),
        metadata(None),
        metadata(1 << 64),
        b'{"checkpoint-ts":%s}' % (b"4" * 5000),
        b'{"checkpoint-ts":%s}' % (b"4" * 4000),
        b'{"checkpoint-ts":-0}{',
    ],
)
def test_torn_metadata(content: bytes) -> None:
    """Where metadata can't be read, the last good value stays; that is warned about and counted."""
    storage = MemoryStorage({"metadata": metadata(V)})
    polls = reader(storage)
    polls.poll()
    storage.put("metadata", content)
    poll = polls.poll()
    assert (poll.checkpoint, poll.checkpoint_is_new, poll.unreadable_metadata) == (V, False, 1)
    assert "holds no checkpoint-ts" in poll.warnings[0]
    storage.put("metadata", metadata(V + 1))
    poll = polls.poll()
    assert (poll.checkpoint, poll.warnings, poll.unreadable_metadata) == (V + 1, (), 1)


@pytest.mark.parametrize("ts", [0, V, (1 << 53) + 1, (1 << 64) - 1])
def test_metadata_is_exact(ts: int) -> None:
    """Every unsigned 64-bit number is read exactly."""
    assert parse_metadata(metadata(ts)) == ts


def test_metadata_goes_back() -> None:
    """A lower checkpoint is warned about once, and the highest stays."""
    storage = MemoryStorage({"metadata": metadata(V)})
    polls = reader(storage)
    polls.poll()
    storage.put("metadata", metadata(V - 5))
    poll = polls.poll()
    assert (poll.checkpoint, len(poll.warnings)) == (V, 1)
    assert "went back" in poll.warnings[0]
    assert polls.poll().warnings == ()


NOW_MS = int(FakeClock().now() * 1000)


@pytest.mark.parametrize("ahead", [CLOCK_MARGIN_MS + 1, 400 * DAY_MS, ((1 << 64) - 1 >> 18) - NOW_MS])
def test_metadata_beyond_the_clock(ahead: int) -> None:
    """A checkpoint that no source can have given out yet is refused as torn: said once, counted, and the last good value stays."""
    storage = MemoryStorage({"metadata": metadata(V)})
    polls = reader(storage)
    polls.poll()
    storage.put("metadata", metadata(min(NOW_MS + ahead << 18 | (1 << 18) - 1, (1 << 64) - 1)))
    storage.put(SCHEMA, b"{}")
    poll = polls.poll()
    assert (poll.checkpoint, poll.checkpoint_is_new, poll.unreadable_metadata) == (V, False, 1)
    assert [read.file.stored.path for read in poll.schema_files] == [SCHEMA]
    (warning,) = poll.warnings
    assert "ahead of the clock of this machine, which shows 2027-01-15 08:00:00 UTC" in warning
    assert poll.ignored == {ODD_METADATA: 1}
    poll = polls.poll()
    assert (poll.warnings, poll.ignored) == ((), {ODD_METADATA: 2})
    storage.put("metadata", metadata(V + 1))
    assert polls.poll().checkpoint == V + 1


@pytest.mark.parametrize("ahead", [0, 14 * 3_600_000, CLOCK_MARGIN_MS])
def test_metadata_within_the_margin(ahead: int) -> None:
    """Clocks differ: one that is wrong by as much as time zones are loses nothing and stops nothing."""
    ts = NOW_MS + ahead << 18
    poll = reader(MemoryStorage({"metadata": metadata(ts)})).poll()
    assert (poll.checkpoint, poll.warnings, poll.unreadable_metadata) == (ts, (), 0)


def test_a_clock_that_begins_in_1970() -> None:
    """Before the time server has answered nothing new is taken, and nothing is lost; once the clock is right everything goes on."""
    clock = FakeClock(now=5.0)
    storage = MemoryStorage({"metadata": metadata(V), SCHEMA: b"{}", DATA: b"rows"})
    polls = reader(storage, clock)
    first = polls.poll()
    assert (first.checkpoint, len(first.schema_files), len(first.data_files)) == (0, 1, 1)
    (warning,) = first.warnings
    assert "which shows 1970-01-01 00:00:05 UTC. If that clock is wrong" in warning
    clock.advance(1_800_000_000.0)
    second = polls.poll()
    assert (second.checkpoint, second.warnings) == (V, ())


def test_a_version_beyond_the_clock() -> None:
    """A schema file of a version that no source can have given out is warned of; what it says waits."""
    path = f"shop/t/meta/schema_{(1 << 64) - 1}_0000000001.json"
    storage = MemoryStorage({"metadata": metadata(V), SCHEMA: b"{}", path: b"{}"})
    polls = reader(storage)
    first = polls.poll()
    (warning,) = first.warnings
    assert warning.startswith(f"{path} waits for the checkpoint to reach its version")
    assert len(first.schema_files) == 2
    assert polls.poll().warnings == ()


def test_metadata_disappears() -> None:
    """TiCDC never deletes metadata: where it is gone nothing more is read, since what comes may be another changefeed's."""
    storage = MemoryStorage({"metadata": metadata(V)})
    polls = reader(storage)
    polls.poll()
    storage.delete("metadata")
    storage.put(SCHEMA, b"{}")
    with pytest.raises(StorageUnavailable, match="metadata is gone"):
        polls.poll()
    storage.put("metadata", metadata(V))
    assert [read.file.stored.path for read in polls.poll().schema_files] == [SCHEMA]


def test_metadata_goes_far_back() -> None:
    """Where metadata goes back by more than a restart of TiCDC explains, all that is known of the bucket is to be looked up anew."""
    storage = MemoryStorage({"metadata": metadata(V)})
    polls = reader(storage)
    polls.poll()
    storage.put("metadata", metadata(V - (RESTART_MS + 1 << 18)))
    storage.put(SCHEMA, b"{}")
    with pytest.raises(StorageUnavailable, match="the whole bucket is listed again"):
        polls.poll()
    again = reader(storage)
    again.resume(V, {})
    poll = again.poll()
    assert (poll.checkpoint, len(poll.schema_files)) == (V, 1)
    assert "went back" in poll.warnings[0]
