"""A subscription gives each commit until it is acknowledged, whatever happens on the way; judged by what the source held."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from storage_consumer import BatchRefused, LeaseHeld, LeaseLost, StorageConsumerError
from storage_consumer.changes.reading import Feed
from storage_consumer.changes.window import Event
from storage_consumer.clock import SystemClock
from storage_consumer.session import Session
from storage_consumer.subscribe.cursors import Cursor, Cursors
from storage_consumer.subscribe.entries import Entry, Selection, entries
from storage_consumer.subscribe.marks import Position
from storage_consumer.subscribe.subscription import Subscription
from tests.contract.test_feed_corpora import FEW, Held, golden_rows
from tests.harness.corpora import THOROUGH, Corpus, CorpusSource, Cut
from tests.harness.expectations import null_like, overwritten
from tests.harness.feeds import settings_of
from tests.harness.pages import PAGES
from tests.harness.servers import KINDS
from tests.harness.small_bucket import SmallBucket, row, ts


class Reader:
    """A client that folds what it has acknowledged, a whole commit at a time, and is not always in a good mood."""

    def __init__(self, corpus: Corpus, bucket: Path, meta: str, held: Held) -> None:
        """Read a corpus's bucket into what is held."""
        self.given: dict[str, Any] = {"config": str(corpus.write_config(bucket.parent)), "tz": corpus.timezone}
        self.uri, self.meta, self.held = corpus.sink_uri(bucket), meta, held
        self.random = random.Random(f"{corpus.folder.name}")  # noqa: S311 - no secret
        self.highest = 0
        self.amid: list[Entry] = []

    def drain(self, parts: int) -> None:
        """Take all that is there, from some processes' lives one after another."""
        for part in range(parts):
            self.amid.clear()  # what was not a whole commit comes again
            with Subscription(self.uri, self.meta, "d", **self.given) as subscription:
                while self.step(subscription) and (part == parts - 1 or self.random.random() > 0.2):
                    pass

    def step(self, subscription: Subscription) -> bool:
        """Get up to three batches, and acknowledge some; return whether there were any."""
        batches = []
        for _ in range(self.random.randint(1, 3)):
            batch = subscription.get_without_ack(self.random.choice([1, 2, 7, 1000]), timeout=0.3)
            if batch.id == -1:
                break
            assert batch.id > self.highest
            self.highest = batch.id
            batches.append(batch)
        assert subscription.list_batches() == tuple(batch.id for batch in batches)
        for batch in batches[: self.random.randint(0, len(batches))]:
            subscription.ack(batch.id)
            for entry in batch.entries:
                self.take(entry)
        subscription.rollback()
        return bool(batches)

    def take(self, entry: Entry) -> None:
        """Fold a commit once it has ended."""
        self.amid.append(entry)
        if entry.kind in ("end", "ddl"):
            for each in self.amid:
                for event in each.events:
                    self.held.take(event)
            self.amid.clear()


@pytest.mark.slow
@pytest.mark.parametrize("source", FEW if THOROUGH else FEW[::3], ids=str)
def test_what_is_acknowledged_is_what_the_source_held(source: CorpusSource, tmp_path: Path) -> None:
    """At each cut, with batches of one entry to a thousand, got ahead, rolled back, and given to processes one after another."""
    corpus = source.open(tmp_path)
    corpus.materialise(corpus.cuts[-1], tmp_path / "other")
    protocol = settings_of(corpus, tmp_path, tmp_path / "other").config.upstream.protocol
    held = Held(protocol, corpus.timezone)
    reader = Reader(corpus, tmp_path / "bucket", f"sqlite:///{tmp_path}/cursors.db", held)
    for cut in corpus.cuts:
        corpus.materialise(cut, tmp_path / "bucket")
        reader.drain(3)
        _judge(corpus, cut, held)


def _judge(corpus: Corpus, cut: Cut, held: Held) -> None:
    lost = {each.lower() for each in overwritten(corpus)}
    for table in corpus.golden(cut):
        if (table.schema.lower(), table.name.lower()) in held.judged and table.name.lower() not in lost:
            nulls = null_like(corpus)
            assert held.rows(table, nulls) == golden_rows(table, nulls), (cut.number, table.name)


@pytest.fixture(params=["sqlite", *KINDS])
def meta(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where cursors are."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/cursors.db"
    server = request.getfixturevalue(request.param)
    server.query("DROP DATABASE IF EXISTS storage_consumer")
    return str(server.uri)


@pytest.fixture
def bucket(tmp_path: Path) -> SmallBucket:
    """Two tables, and three commits: of one row, of five over both tables, and of one."""
    made = SmallBucket(root=tmp_path / "bucket")
    made.create("d.a", "d.b")
    made.rows(
        "d.a",
        1,
        row("d.a", 2, "1", '"x"'),
        *(row("d.a", 3, str(key), '"y"') for key in (2, 3, 4)),
        row("d.a", 5, "9", '"z"'),
    )
    made.rows("d.b", 1, row("d.b", 3, "1", '"y"'), row("d.b", 3, "2", '"y"'))
    made.metadata(ts(6))
    return made


def opened(bucket: SmallBucket, meta: str, **more: object) -> Subscription:
    """A subscription to it."""
    return Subscription(bucket.uri, meta, "orders", tz="UTC", include_commit_ts=True, **more)  # type: ignore[arg-type] # options


def numbers(entries: Iterator[Entry] | tuple[Entry, ...]) -> list[tuple[str, int]]:
    """Kind of each entry, and its rows."""
    return [(entry.kind, len(entry.changes)) for entry in entries]


COMMITS = [
    *[("ddl", 0)] * 3,
    *[("begin", 0), ("rows", 1), ("end", 0)],
    *[("begin", 0), ("rows", 3), ("rows", 2), ("end", 0)],
    *[("begin", 0), ("rows", 1), ("end", 0)],
]


@pytest.mark.server
def test_rules_of_batches(bucket: SmallBucket, meta: str) -> None:
    """Acks in order, each once; an automatic ack only without open batches; a rollback gives all again; an empty get has no mark."""
    with opened(bucket, meta) as subscription:
        first, second = subscription.get_without_ack(5, timeout=5), subscription.get_without_ack(3, timeout=5)
        assert numbers(first.entries + second.entries) == COMMITS[:8]
        with pytest.raises(BatchRefused, match=f"is not the firstly:{first.id}"):
            subscription.ack(second.id)
        with pytest.raises(BatchRefused, match="is not acknowledged"):
            subscription.get()
        subscription.ack(first.id)
        with pytest.raises(BatchRefused, match="is not open"):
            subscription.ack(first.id)
        with pytest.raises(BatchRefused, match="is not open"):
            subscription.rollback(second.id + 5)
        subscription.rollback(second.id)
        assert subscription.list_batches() == ()
        rest = subscription.get(1000, timeout=5)
        assert rest.id > second.id
        assert numbers(rest.entries) == COMMITS[5:]
        assert subscription.get_without_ack() == (-1, ())
        assert subscription.list_batches() == ()


@pytest.mark.server
def test_a_position_is_a_whole_commit(bucket: SmallBucket, meta: str) -> None:
    """What was acknowledged amid a commit comes again, whole, after a restart; its number never does."""
    with opened(bucket, meta) as subscription:
        batch = subscription.get(8, timeout=5)
        assert numbers(batch.entries)[-1] == ("rows", 3)
    with opened(bucket, meta) as subscription:
        again = subscription.get_without_ack(1000, timeout=2)
        assert again.id > batch.id
        assert numbers(again.entries) == COMMITS[6:]
        subscription.unsubscribe()
    with opened(bucket, meta) as subscription:
        assert numbers(subscription.get(1000, timeout=2).entries) == COMMITS


@pytest.mark.server
def test_one_process_at_a_time(bucket: SmallBucket, meta: str) -> None:
    """A second process waits; one whose lease went stores nothing any more, and is told."""
    with opened(bucket, meta) as subscription:
        batch = subscription.get_without_ack(6, timeout=5)
        with pytest.raises(LeaseHeld, match="has it"):
            opened(bucket, meta, wait=0.0)
        with closing(Cursors(meta, {})) as other:
            # It looks as if the first one had been stopped for longer than its lease.
            assert other.acquire("orders", "", "", 5.0) != ""
            taken = _steal(other)
            with pytest.raises(LeaseLost, match="another process took destination orders"):
                subscription.ack(batch.id)
            found = other.load("orders", 1001)
            assert found is not None
            assert found.position == Position(0, 0)
            other.save("orders", 1001, taken)


def _steal(cursors: Cursors) -> Cursor:
    deadline = time.monotonic() + 30
    engine, leases = cursors._engine, cursors._leases
    with engine.begin() as connection:
        connection.execute(leases.update().values(expires_at=0))
    while cursors.acquire("orders", "thief", "there", 30.0):
        assert time.monotonic() < deadline
    return Cursor(Position(7, 7), 5, "")


def test_what_is_wanted(bucket: SmallBucket, tmp_path: Path) -> None:
    """Filters in canal's syntax, kinds of changes, and statements that are alone; who wants nothing goes on all the same."""
    meta = f"sqlite:///{tmp_path}/cursors.db"

    def got(client: int, **more: object) -> list[tuple[str, int]]:
        with opened(bucket, meta, client_id=client, **more) as subscription:
            return numbers(subscription.get(1000, timeout=1.5).entries)

    assert got(1, filter=r"D\.a, d\.(x|y)", kinds=("insert",)) == [
        *[("begin", 0), ("rows", 1), ("end", 0)],
        *[("begin", 0), ("rows", 3), ("end", 0)],
        *[("begin", 0), ("rows", 1), ("end", 0)],
    ]
    assert got(2, black_filter=r".*\.[ab]", kinds=("insert", "ddl")) == [("ddl", 0)]
    assert got(3, filter="no.such", ddl_isolation=True) == []
    assert got(4, ddl_isolation=True) == [("ddl", 0)]
    with pytest.raises(StorageConsumerError, match="filter"):
        got(5, filter="(")
    with pytest.raises(StorageConsumerError, match="none of insert"):
        got(6, kinds=("truncate",))


def test_a_small_buffer(bucket: SmallBucket, tmp_path: Path) -> None:
    """Nothing is read beyond the limits until what was given is acknowledged; an entry above them passes alone."""
    meta = f"sqlite:///{tmp_path}/cursors.db"
    for limits in ({"buffer_size": 2}, {"buffer_memory": 1}):
        with opened(bucket, meta, client_id=limits.get("buffer_size", 1), **limits) as subscription:
            entries = list[Entry]()
            while (batch := subscription.get_without_ack(5, timeout=2)).id != -1:
                assert len(batch.entries) <= limits.get("buffer_size", 1)
                assert subscription.get_without_ack(1).id == -1
                subscription.ack(batch.id)
                entries += batch.entries
        assert numbers(tuple(entries)) == COMMITS


def test_several_buckets(tmp_path: Path) -> None:
    """Commits of two buckets come in the order of commit-ts; one that is silent holds the other up only where it could still come first."""
    buckets = [SmallBucket(root=tmp_path / name) for name in ("one", "two")]
    for number, each in enumerate(buckets):
        table = f"d.t{number}"
        each.create(table)
        each.rows(table, 1, *(row(table, 2 + number + 2 * step, str(step), '"x"') for step in range(5)))
        each.metadata(ts(20))
    given: dict[str, Any] = {"tz": "UTC", "include_commit_ts": True}
    meta = f"sqlite:///{tmp_path}/cursors.db"
    found = list[int]()
    for _ in range(3):
        with Subscription(tuple(each.uri for each in buckets), meta, "both", **given) as subscription:
            batch = subscription.get(12, timeout=3)
            found += [entry.commit_ts for entry in batch.entries if entry.kind == "end"]
    assert found == sorted(found)
    assert set(found) == {ts(number) for number in range(2, 12)}
    buckets[0].rows("d.t0", 2, row("d.t0", 30, "1", '"late"'))
    buckets[0].metadata(ts(40))
    with Subscription(tuple(each.uri for each in buckets), meta, "both", **given) as subscription:
        assert subscription.get(10, timeout=2).id == -1
        buckets[1].metadata(ts(35))
        assert len(subscription.get(3, timeout=5).entries) == 3


class Pausing(Feed):
    """A feed that gives None between any two events, as while a storage does not answer."""

    def following(self, *given: Any, **more: Any) -> Iterator[Event | None]:
        """Yield what there is, with pauses."""
        for number, event in enumerate(super().following(*given, **more)):
            if event is not None and number:
                yield None
            yield event


@pytest.mark.parametrize("low", [0, ts(2)])
def test_a_storage_that_is_silent_amid_a_commit(bucket: SmallBucket, low: int) -> None:
    """The commit goes on when it answers: its end stands behind all of its rows."""
    loaded, storage = Session({"upstream_uri": bucket.uri, "tz": "UTC", "include_commit_ts": True}, {}).open_bucket()
    feed = Pausing(storage, loaded.config.upstream, SystemClock())
    placed = entries(feed, Position(low, low), lambda: False, Selection(), loaded.config.tuning)
    found = [entry for entry, _ in placed if entry is not None]
    assert numbers(tuple(found)) == (COMMITS[6:] if low else COMMITS)


CLIENT = """
import sys
from storage_consumer.subscribe.subscription import Subscription
with Subscription(sys.argv[1], sys.argv[2], "orders", tz="UTC", include_commit_ts=True) as subscription:
    for batch in subscription:
        for entry in batch.entries:
            for change in entry.changes:
                print(change.commit_ts, change.values[0], flush=True)
"""


@pytest.mark.slow
def test_killed_again_and_again(tmp_path: Path) -> None:
    """What a killed client had not acknowledged comes again, and nothing else is missing."""
    bucket = SmallBucket(root=tmp_path / "bucket")
    bucket.create("d.a")
    for number in range(1, 41):
        bucket.rows("d.a", number, *(row("d.a", 2 + number, str(100 * number + key), '"x"') for key in range(50)))
    bucket.metadata(ts(60))
    meta, seen = f"sqlite:///{tmp_path}/cursors.db", dict[str, int]()
    chance = random.Random(7)  # noqa: S311 - no secret
    for _ in range(4):
        words = [sys.executable, "-c", CLIENT, bucket.uri, meta]
        with subprocess.Popen(words, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(chance.randint(100, 700)):
                seen[process.stdout.readline().split()[1]] = 1
            process.send_signal(signal.SIGKILL)
    with opened(bucket, meta) as subscription:
        while (batch := subscription.get(1000, timeout=2.0)).id != -1:
            seen |= {str(change.values[0]): 1 for entry in batch.entries for change in entry.changes}
    assert seen.keys() == {str(100 * number + key) for number in range(1, 41) for key in range(50)}


def test_the_page(bucket: SmallBucket, tmp_path: Path) -> None:
    """The example of the page prints each row once over two runs."""
    code = PAGES["docs/guide/subscribe.md"].split("```python\n")[2].split("```")[0].replace("shop", "d")
    words = [sys.executable, "-c", code, bucket.uri]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    runs = [subprocess.check_output(words, cwd=tmp_path, env=environment, text=True) for _ in range(2)]
    assert [len(run.splitlines()) for run in runs] == [7, 0]
