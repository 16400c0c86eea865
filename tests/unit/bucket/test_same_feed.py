"""Whether a bucket is the one that an earlier run read: another changefeed in an emptied prefix is told, and nothing else is."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping

import pytest

from storage_consumer.bucket.metadata import RESTART_MS, refuse_ahead_of_clock
from storage_consumer.bucket.paths import SchemaPath, parse_data_name, parse_other
from storage_consumer.bucket.reader import Poll, StorageReader
from storage_consumer.config.settings import Upstream
from storage_consumer.errors import ConfigError
from storage_consumer.plan.finished_files import Finished
from tests.harness.twins.storage import FakeClock, MemoryStorage

HOUR = 3_600_000 << 18
START = 449_000_000_000_000_000
READ = START + 30 * 24 * HOUR
"""The checkpoint that was read before."""
Known = tuple[dict[str, Finished], frozenset[tuple[str, int]]]
"""Finished sequences, and versions of schema files, as a state has them."""


def files(table: str, version: int, dates: Iterable[str] = ("2024-03-01", "2024-03-02"), count: int = 3) -> list[str]:
    """The paths of a table's version: its schema file, then its data files."""
    data = [f"{table}/{version}/{date}/CDC{number:020d}.csv" for date in dates for number in range(1, count + 1)]
    return [f"{table}/meta/schema_{version}_0000000007.json", *data]


def state_of(paths: Iterable[str]) -> Known:
    """What a state knows once these files are finished."""
    sequences: dict[str, Finished] = {}
    versions = set()
    for path in paths:
        folder, _, name = path.rpartition("/")
        if data := parse_data_name(name):
            sequence = f"{folder}||{data.width}"
            sequences[sequence] = Finished(upto=max(sequences.get(sequence, Finished()).upto, data.number))
        elif isinstance(parsed := parse_other(path), SchemaPath):
            versions.add((parsed.table_dir, parsed.version))
    return sequences, frozenset(versions)


def first_poll(paths: Iterable[str], known: Known, checkpoint: int, *, read: int = READ, applied: int = 0) -> Poll:
    """The first poll of a run that goes on from `read`, of a bucket with these files."""
    storage = MemoryStorage({"metadata": json.dumps({"checkpoint-ts": checkpoint}).encode()})
    for path in paths:
        storage.put(path, b"content")
    reader = StorageReader(storage, Upstream(scheme="s3", root="b/feed", protocol="csv"), FakeClock())
    reader.resume(read, *known, applied=applied)
    return reader.poll()


def gone(poll: Poll) -> bool:
    """Whether it was said that all known files are gone."""
    return any("none of the files that were read before" in warning for warning in poll.warnings)


OLD = [*files("shop/orders", START), *files("shop/items", START + HOUR)]
KNOWN = state_of(OLD)


@pytest.mark.parametrize("known", [KNOWN, (KNOWN[0], frozenset()), ({}, KNOWN[1])])
@pytest.mark.parametrize("checkpoint", [READ - 5 * HOUR, READ, READ + HOUR])
def test_another_changefeed_is_reported(known: Known, checkpoint: int) -> None:
    """Files of which none is known, and which begin well before what was read: halted before anything is handed out.

    Its checkpoint may have passed ours while nobody looked.
    """
    new = files("shop/orders", READ - 6 * HOUR)
    with pytest.raises(ConfigError) as told:
        first_poll(new, known, checkpoint)
    text = str(told.value)
    assert f"shop/orders/{READ - 6 * HOUR}" in text
    assert "--state-schema" in text
    assert "storage-consumer rebind --upstream-uri" in text


def test_another_one_that_has_written_little() -> None:
    """Where its tables were altered later, its checkpoint says that it began before."""
    with pytest.raises(ConfigError, match="another changefeed"):
        first_poll(files("shop/orders", READ + HOUR), KNOWN, READ - HOUR)


def test_nothing_to_compare() -> None:
    """An empty prefix, a state that knows no file, and one that has read no checkpoint yet raise no doubt."""
    assert not gone(first_poll([], KNOWN, READ - HOUR))
    assert not gone(first_poll(files("shop/orders", READ - 5 * HOUR), ({}, frozenset()), READ - HOUR))
    assert not gone(first_poll(files("shop/orders", READ - 5 * HOUR), KNOWN, READ - HOUR, read=0))


SAME: Mapping[str, tuple[list[str], int]] = {
    "nothing happened": (OLD, READ),
    "old dates expired": ([p for p in OLD if "CDC" not in p], READ + 40 * 24 * HOUR),
    "old dates expired, new ones came": (
        [p for p in OLD if "CDC" not in p] + files("shop/orders", START, ["2024-04-09"])[1:],
        READ + 40 * 24 * HOUR,
    ),
    "schema files were deleted": ([p for p in OLD if "CDC" in p], READ),
    "schema files were deleted, and TiCDC wrote them anew": (
        [p for p in OLD if "CDC" in p] + files("shop/orders", READ - HOUR),
        READ - HOUR,
    ),
    "all was deleted but the directory that TiCDC goes on with": (
        files("shop/orders", START, ["2024-04-01"])[1:],
        READ - 3 * HOUR,
    ),
    "resumed from an older checkpoint": ([*OLD, *files("shop/new", READ - 20 * HOUR)], READ - 20 * HOUR),
    "resumed from before its first start": ([*OLD, *files("shop/orders", START - 90 * HOUR)], START - 90 * HOUR),
    "paused for months": (OLD, READ),
    "upgraded from the older layout": (
        [f"shop/orders/{START}/CDC000001.csv", f"shop/orders/{READ - HOUR}/CDC{1:020d}.csv"],
        READ + HOUR,
    ),
    "one known file is left": ([OLD[3], *files("shop/orders", READ - 6 * HOUR)], READ - 6 * HOUR),
}


@pytest.mark.parametrize(("paths", "checkpoint"), SAME.values(), ids=SAME.keys())
def test_no_false_alarm(paths: list[str], checkpoint: int) -> None:
    """Expiry, deleted schema files, a changefeed that was paused, resumed or upgraded: the same changefeed, without a word."""
    assert not gone(first_poll(paths, KNOWN, checkpoint))


@pytest.mark.parametrize("later", [1, HOUR, 40 * 24 * HOUR])
@pytest.mark.parametrize("ahead", [0, HOUR])
def test_another_one_that_began_later(later: int, ahead: int) -> None:
    """Files of which none is known, and which begin beyond what was read: rows in between are lost, so nothing is handed out."""
    with pytest.raises(ConfigError, match=r"those in between are lost.*--state-schema") as told:
        first_poll(files("shop/orders", READ + later), KNOWN, READ + later + ahead)
    assert f"begin at {READ + later}" in str(told.value)


def test_rows_that_were_read_and_not_applied() -> None:
    """What a table had still to be given when its files were deleted is lost as well, though the checkpoint that was read is beyond."""
    begin = READ - (RESTART_MS // 2 << 18)
    assert gone(first_poll(files("shop/orders", begin), KNOWN, READ, applied=begin))
    with pytest.raises(ConfigError, match=f"taken up to {begin - 1} "):
        first_poll(files("shop/orders", begin), KNOWN, READ, applied=begin - 1)


@pytest.mark.parametrize("back", [0, RESTART_MS])
def test_a_prefix_that_was_cleaned_up(back: int) -> None:
    """All known files are gone, and TiCDC goes on about where it was: that may be, so it is only said."""
    begin = READ - (back << 18)
    assert gone(first_poll(files("shop/orders", begin), KNOWN, begin))


def test_any_part_that_is_left_is_enough() -> None:
    """Whatever is deleted of a bucket: while one known file is there, and whatever comes beside it, there is no alarm."""
    dice = random.Random(5)  # noqa: S311 - not for secrets
    for _ in range(300):
        left = dice.sample(OLD, dice.randint(1, len(OLD)))
        back = dice.choice((0, 1, 50, 2000)) * HOUR
        new = files(dice.choice(("shop/orders", "shop/other")), READ - back) if dice.random() < 0.7 else []
        assert not gone(first_poll([*left, *new], KNOWN, READ - back))


AHEAD = files("shop/orders", READ + HOUR, count=1)
"""A version that is read before the checkpoint comes to it: every changefeed that begins before it writes the very same."""


@pytest.mark.parametrize("new", [AHEAD, [*files("shop/items", READ + HOUR // 2), *AHEAD]])
def test_known_files_beyond_what_was_applied(new: list[str]) -> None:
    """They prove nothing: another changefeed that began later writes them as well, and the rows before it are lost."""
    with pytest.raises(ConfigError, match="those in between are lost"):
        first_poll(new, state_of([*OLD, *AHEAD]), READ + 2 * HOUR)
    with pytest.raises(ConfigError, match="those in between are lost"):
        first_poll(new, state_of([*OLD, *AHEAD]), READ + 2 * HOUR, read=READ + 2 * HOUR, applied=READ)
    assert not gone(first_poll([OLD[0], *new], state_of([*OLD, *AHEAD]), READ + 2 * HOUR))
    # Of a changefeed that has just begun nothing else is known.
    assert not gone(first_poll(AHEAD, state_of(AHEAD), READ + 2 * HOUR))


class Running:
    """A process that has polled once, and what happens to its bucket meanwhile."""

    def __init__(self, paths: Iterable[str], interval: float = 600.0, known: Known = ({}, frozenset())) -> None:
        """The bucket has these files; everything is listed each `interval` seconds."""
        self.storage = MemoryStorage({"metadata": metadata(READ), **dict.fromkeys(paths, b"x")})
        upstream = Upstream(scheme="s3", root="b/feed", protocol="csv")
        self.reader = StorageReader(self.storage, upstream, FakeClock(), full_listing_interval=interval)
        if known[0]:
            self.reader.resume(READ, *known)
        self.reader.poll()

    def exchange(self, gone: Iterable[str], new: Iterable[str], checkpoint: int) -> Poll:
        """Delete files and write others, and poll."""
        for path in gone:
            self.storage.delete(path)
        for path in new:
            self.storage.put(path, b"content")
        self.storage.put("metadata", metadata(checkpoint))
        return self.reader.poll()


def metadata(checkpoint: int) -> bytes:
    """What TiCDC writes there."""
    return json.dumps({"checkpoint-ts": checkpoint}).encode()


@pytest.mark.parametrize("interval", [0.0, 600.0])
@pytest.mark.parametrize("begin", [READ + 1, READ + HOUR, READ - 5 * HOUR])
@pytest.mark.parametrize("known", [({}, frozenset()), KNOWN])
def test_another_changefeed_while_it_runs(known: Known, begin: int, interval: float) -> None:
    """A prefix that is emptied and given away between two polls is told by its first schema file, and each time anew."""
    running = Running(OLD, interval, known)
    new = files("shop/orders", begin)
    with pytest.raises(ConfigError, match="So nothing of it was taken"):
        running.exchange(OLD, new, READ + 2 * HOUR)
    with pytest.raises(ConfigError, match="So nothing of it was taken"):
        running.reader.poll()


@pytest.mark.parametrize("interval", [0.0, 600.0])
def test_another_changefeed_that_writes_what_was_read_ahead(interval: float) -> None:
    """The newest file that was read may be there again, though it is another changefeed's now: an older one has to be."""
    running = Running([*OLD, *AHEAD], interval)
    new = files("shop/items", READ + HOUR // 2)
    with pytest.raises(ConfigError, match="those in between are lost"):
        running.exchange(OLD, new, READ + 2 * HOUR)


@pytest.mark.parametrize("interval", [0.0, 600.0])
@pytest.mark.parametrize(
    "gone",
    [
        [],
        [p for p in OLD if "/meta/" in p],
        [p for p in OLD if "CDC" in p],
        OLD[:-1],
        [p for p in OLD if "items" in p],
    ],
)
def test_the_same_changefeed_while_it_runs(gone: list[str], interval: float) -> None:
    """Whatever is deleted, a table's new version is handed out while one known file is there."""
    running = Running(OLD, interval)
    assert len(running.exchange(gone, files("shop/orders", READ + HOUR), READ + 2 * HOUR).schema_files) == 1
    assert len(running.exchange([], files("shop/items", READ + 3 * HOUR), READ + 4 * HOUR).schema_files) == 1


def test_it_goes_on_in_a_prefix_that_was_cleaned_up() -> None:
    """TiCDC that is started again in an emptied prefix begins at its checkpoint: what it writes is handed out."""
    running = Running(OLD)
    begin = READ - (RESTART_MS // 2 << 18)
    poll = running.exchange(OLD, files("shop/orders", begin), READ + HOUR)
    assert gone(poll)
    assert len(poll.schema_files) == 1
    assert not gone(running.exchange([], files("shop/orders", READ + HOUR), READ + 2 * HOUR))


def test_what_a_new_schema_file_costs() -> None:
    """One read of a file that is known to be there, and no more listings; a poll without one costs as much as before."""
    running = Running(OLD)
    before = running.storage.requests
    running.exchange([], [], READ + HOUR)
    quiet = running.storage.requests - before
    running.exchange([], files("shop/orders", READ + HOUR)[:1], READ + 2 * HOUR)
    assert running.storage.requests - before - quiet == quiet + 2


def test_names_with_any_characters() -> None:
    """A table's name may hold what separates the parts of a sequence's name."""
    old = files("shop/a|b|c", START)
    assert not gone(first_poll(old[1:2], state_of(old), READ - HOUR))


@pytest.mark.parametrize("checkpoint", [(1 << 64) - 1, 1 << 63, 600_000_000_000_000_000])
def test_a_state_with_a_checkpoint_that_cannot_be(checkpoint: int) -> None:
    """A state that believed a damaged metadata is refused, with both explanations and the way on; the clock's margin holds."""
    with pytest.raises(ConfigError, match=r"some_schema says .*If the clock is wrong, set it.*--state-schema"):
        refuse_ahead_of_clock(checkpoint, "some_schema", FakeClock().now())
    refuse_ahead_of_clock(READ, "some_schema", FakeClock().now())
