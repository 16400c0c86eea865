"""Random calls of a client against canal's rules, told by a list of entries and two numbers."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing

from hypothesis import given, settings
from hypothesis import strategies as st

from storage_consumer import BatchRefused
from storage_consumer.subscribe.client import Client, Limits
from storage_consumer.subscribe.cursors import Cursor, Cursors
from storage_consumer.subscribe.entries import Entry, Placed
from storage_consumer.subscribe.marks import Position

WHO = ("d", 7)
Call = tuple[str, int]
CALLS = st.lists(
    st.tuples(
        st.sampled_from(["get", "get", "get", "ack", "ack", "any ack", "rollback", "any rollback", "restart", "auto"]),
        st.integers(1, 9),
    ),
    max_size=40,
)


def feed(commits: list[int]) -> list[tuple[Entry, Position | None]]:
    """Commits of so many rows each, and 0 for a statement."""
    found = list[tuple[Entry, Position | None]]()
    for place, rows in enumerate(commits):
        ts = 10 * (place + 1)
        if not rows:
            found.append((Entry("ddl", ts), Position(ts, ts)))
            continue
        found.append((Entry("begin", ts), None))
        found += [(Entry("rows", ts), None)] * rows
        found.append((Entry("end", ts), Position(ts, ts - 1)))
    return found


class Rules:
    """The model: all entries, the first one not acknowledged, the open batches, and where a restart begins."""

    def __init__(self, everything: list[tuple[Entry, Position | None]]) -> None:
        """Nothing was given."""
        self.everything = everything
        self.acked = self.whole = self.highest = 0
        self.open: list[tuple[int, int, int]] = []
        """Number, begin and end of each batch."""

    def got(self, size: int, batch: int, entries: list[Entry]) -> None:
        """A get gave this."""
        begin = self.open[-1][2] if self.open else self.acked
        assert entries == [entry for entry, _ in self.everything[begin : begin + size]]
        assert (batch == -1) == (not entries)
        if entries:
            assert batch > self.highest
            self.highest = batch
            self.open.append((batch, begin, begin + len(entries)))

    def acknowledged(self) -> None:
        """The first open batch is done."""
        _, _, self.acked = self.open.pop(0)
        borders = [at for at, (_, position) in enumerate(self.everything[: self.acked], 1) if position]
        self.whole = max([self.whole, *borders])

    def restarted(self) -> None:
        """What was not acknowledged up to a border comes again."""
        self.open.clear()
        self.acked = self.whole


class Rig:
    """A client that can be started again."""

    def __init__(self, cursors: Cursors, everything: list[tuple[Entry, Position | None]]) -> None:
        """Start it for the first time."""
        self.cursors, self.everything = cursors, everything
        self.start()

    def start(self) -> None:
        """Start it where it stopped, and wait until it has read all."""
        cursor = self.cursors.load(*WHO) or Cursor(Position(0, 0), 1, "")
        self.idle = threading.Event()
        limits = Limits(entries=10_000, memory=1 << 30, pause=0.01)
        self.client = Client(WHO, self.cursors, cursor, self.read, lambda entry: (entry, 1), limits)
        assert self.idle.wait(10)

    def read(self, position: Position, wait: Callable[[], bool]) -> Iterator[Placed]:
        """Yield what is behind a position."""
        for entry, border in self.everything:
            if entry.commit_ts > (position.statements if entry.kind == "ddl" else position.rows):
                yield entry, border
        yield None, None
        self.idle.set()
        while wait():
            pass


def called(rig: Rig, rules: Rules, call: str, number: int) -> None:
    """Do one call with both, and compare."""
    client = rig.client
    if call == "get":
        rules.got(number, *client.get(number))
    elif call == "auto" and not rules.open:
        rules.got(number, *client.get_acknowledged(number))
        if rules.open:
            rules.acknowledged()
    elif call == "rollback":
        client.rollback()
        rules.open.clear()
    elif call == "restart":
        client.close()
        rig.start()
        rules.restarted()
    elif call == "ack" and rules.open:
        client.ack(rules.open[0][0])
        rules.acknowledged()
    else:
        _refused_or_done(client, rules, call, number)
    assert rig.client.list_batches() == tuple(batch for batch, _, _ in rules.open)


def _refused_or_done(client: Client[Entry], rules: Rules, call: str, number: int) -> None:
    """An ack or a rollback of any number, or a get that acknowledges beside open batches."""
    known = [batch for batch, _, _ in rules.open]
    try:
        if call == "auto":
            client.get_acknowledged(number)
        elif call == "any rollback":
            client.rollback(number)
            assert number in known
            rules.open.clear()
        else:
            client.ack(number)
            assert known[:1] == [number]
            rules.acknowledged()
    except BatchRefused:
        assert call == "auto" or number not in (known if call == "any rollback" else known[:1])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 4), max_size=8), CALLS)
def test_calls(commits: list[int], calls: list[Call]) -> None:
    """Batches, numbers and refusals are the model's, over restarts."""
    everything = feed(commits)
    with tempfile.TemporaryDirectory() as folder, closing(Cursors(f"sqlite:///{folder}/cursors.db", {})) as cursors:
        assert cursors.acquire(WHO[0], "me", "", 3600.0) == ""
        rig, rules = Rig(cursors, everything), Rules(everything)
        try:
            for call, number in calls:
                called(rig, rules, call, number)
        finally:
            rig.client.close()
