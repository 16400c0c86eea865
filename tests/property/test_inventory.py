"""Laws of the inventory: each file is handed out once, however the bucket grows and the listings go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from storage_consumer.bucket.inventory import Findings, Inventory
from storage_consumer.errors import StorageUnavailable
from storage_consumer.model import StoredObject
from tests.harness.twins.storage import MemoryStorage

FIRST = 449000000000000000
LONG_AFTER = 470000000000000000
"""In 2026: the checkpoint is beyond all dates of directories."""


class Growing(RuleBasedStateMachine):
    """TiCDC writes two tables by its rules, while listings of all kinds are taken in."""

    def __init__(self) -> None:
        """An empty bucket."""
        super().__init__()
        self.bucket = MemoryStorage()
        self.inventory = Inventory("day", partition_separator=True, extension="csv")
        self.stored: Counter[str] = Counter()
        self.handed_out: Counter[str] = Counter()
        self.gone: set[str] = set()
        self.told_gone: set[str] = set()
        self.clock = FIRST
        self.day = 10
        self.versions: dict[str, list[tuple[int, int]]] = {"a/x": [], "a/x/1": []}

    @initialize()
    def tables(self) -> None:
        """Both tables begin."""
        for table in self.versions:
            self.alter(table, 1)

    @rule(table=st.sampled_from(["a/x", "a/x/1"]), checksum=st.integers(1, 3))
    def alter(self, table: str, checksum: int) -> None:
        """A DDL gives the table a new version."""
        self.clock += 1
        self.versions[table].append((self.clock, checksum))
        self.bucket.put(f"{table}/meta/schema_{self.clock}_{checksum:010d}.json", b"{}")

    @rule()
    def midnight(self) -> None:
        """The next day begins."""
        self.day += 1

    @rule(
        table=st.sampled_from(["a/x", "a/x/1"]),
        partition=st.sampled_from(["", "/113", "/99"]),
        checksum=st.integers(1, 3),
        slow_clock=st.booleans(),
        files=st.integers(1, 12),
    )
    def write(self, table: str, partition: str, checksum: int, *, slow_clock: bool, files: int) -> None:
        """Rows go to the newest version with a checksum, by a node whose clock may be a day behind."""
        fitting = [version for version, known in self.versions[table] if known == checksum]
        if not fitting:
            return
        folder = f"{table}/{fitting[-1]}{partition}/2024-01-{self.day - slow_clock:02d}"
        first = sum(path.rpartition("/")[0] == folder for path in self.stored) + 1
        for number in range(first, first + files):
            self.put(f"{folder}/CDC{number:020d}.csv")

    @precondition(lambda self: self.stored)
    @rule()
    def overwrite(self) -> None:
        """After a restart the newest file is written anew under its old name."""
        path = list(self.stored)[-1]
        if path not in self.gone:
            self.put(path)

    @precondition(lambda self: self.stored)
    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        """A file is deleted."""
        path = data.draw(st.sampled_from(sorted(self.handed_out) or [""]))
        if path and path not in self.gone and self.handed_out[path] == self.stored[path]:
            self.bucket.delete(path)
            self.gone.add(path)

    @rule(full=st.booleans())
    def look(self, *, full: bool) -> None:
        """A listing is taken in."""
        findings = self.observe(full=full)
        self.told_gone |= {file.stored.path for file in findings.vanished}
        if full:
            assert self.told_gone == self.gone

    @rule(full=st.booleans(), shown=st.integers(0, 5))
    def broken_look(self, *, full: bool, shown: int) -> None:
        """A listing breaks off."""
        try:
            self.observe(full=full, shown=shown)
        except StorageUnavailable:
            return
        raise AssertionError("the listing did not break off")

    @invariant()
    def nothing_twice(self) -> None:
        """No content is handed out twice."""
        assert all(self.handed_out[path] <= self.stored[path] for path in self.handed_out)

    def put(self, path: str) -> None:
        """Write a file."""
        self.stored[path] += 1
        self.bucket.put(path, b"rows")

    def observe(self, *, full: bool, shown: int | None = None) -> Findings:
        """A listing; a whole one hands out all that is there in its latest content."""
        known = (frozenset[str](), dict[str, str]()) if full else (self.inventory.closed, self.inventory.after)

        def listing() -> Iterator[StoredObject]:
            for place, stored in enumerate(self.bucket.listing(*known)):
                if place == shown:
                    break
                yield stored
            if shown is not None:
                raise StorageUnavailable

        findings = self.inventory.observe(listing(), full=full, checkpoint=self.clock)
        assert not findings.moved
        for file in findings.data_files:
            # Contents that were overwritten before they were listed count as handed out with the latest.
            self.handed_out[file.stored.path] = self.stored[file.stored.path]
        missing = {path for path in self.stored.keys() - self.gone if not self.handed_out[path]}
        assert not missing, "a listing must hand out every file, whatever it may leave out"
        return findings


TestGrowing = Growing.TestCase
TestGrowing.settings = settings(max_examples=60, stateful_step_count=30)


class Older(RuleBasedStateMachine):
    """A TiCDC of the older layout writes one table, is restarted, crashes, changes its settings and is upgraded."""

    def __init__(self) -> None:
        """An empty bucket of which no separator was told."""
        super().__init__()
        self.bucket = MemoryStorage()
        self.inventory = Inventory(None, partition_separator=None, extension="csv")
        self.unseen: set[str] = set()
        self.checkpoint = LONG_AFTER
        self.altered = LONG_AFTER
        self.version = LONG_AFTER
        self.numbers: dict[str, int] = {}
        self.upgraded = False
        self.dates = ["2024-12-27", "2024-12-28", "2024-12-29", "2024-12-30", "2024-12", "2024", ""]
        self.old(LONG_AFTER)

    def old(self, version: int) -> None:
        """The sink begins to write to `version`."""
        self.version = version
        self.bucket.put(f"s/t/{version}/schema.json", b"{}")

    @rule()
    def progress(self) -> None:
        """The checkpoint rises."""
        self.checkpoint += 1

    @precondition(lambda self: len(self.dates) > 1)
    @rule()
    def tomorrow(self) -> None:
        """The next day begins, or date-separator is changed: to months, to years, to none."""
        del self.dates[0]

    @rule()
    def alter(self) -> None:
        """A DDL leads to another version, with a structure of its own."""
        self.checkpoint += 1
        self.altered = self.checkpoint
        if self.upgraded:
            self.present(self.altered)
        else:
            self.old(self.altered)

    @rule(back=st.sampled_from([0, 0, 0, 1, 5]))
    def restart(self, back: int) -> None:
        """The changefeed starts at the checkpoint or, by an operator's hand, before it."""
        start = max(self.altered, self.checkpoint - back)
        if self.upgraded:
            return
        if start == self.version == self.checkpoint:
            # TiCDC 6.5.0 counts from 1 again in the directory that it wrote before it crashed. Where an operator goes back to an older
            # one afterwards, so that it does so there, only full listings show what is overwritten (`Findings.overwritten`).
            of_this = f"s/t/{start}/"
            self.numbers = {folder: n for folder, n in self.numbers.items() if not f"{folder}/".startswith(of_this)}
        self.old(start)

    @rule(back=st.sampled_from([0, 0, 1, 2]))
    def upgrade(self, back: int) -> None:
        """A TiCDC of the present layout goes on, from the checkpoint or before it."""
        if not self.upgraded:
            self.upgraded = True
            self.present(max(self.altered, self.checkpoint - back))

    def present(self, version: int) -> None:
        """The sink begins to write to `version` of the present layout."""
        self.version = version
        self.bucket.put(f"s/t/meta/schema_{version}_{version % 5:010d}.json", b"{}")

    @rule(partition=st.sampled_from(["", "/113", "/2023"]), files=st.integers(1, 12))
    def write(self, partition: str, files: int) -> None:
        """Rows are flushed."""
        folder = f"s/t/{self.version}{partition}{self.dates[0] and '/'}{self.dates[0]}"
        for _ in range(files):
            self.numbers[folder] = number = self.numbers.get(folder, 0) + 1
            path = f"{folder}/CDC{number:0{20 if self.upgraded else 6}d}.csv"
            self.bucket.put(path, b"rows")
            self.unseen.add(path)

    @rule(full=st.booleans())
    def look(self, *, full: bool) -> None:
        """A poll hands out all that was written, whatever its listings may leave out."""
        moved = True
        while moved:
            known = (frozenset[str](), dict[str, str]()) if full else (self.inventory.closed, self.inventory.after)
            findings = self.inventory.observe(self.bucket.listing(*known), full=full, checkpoint=self.checkpoint)
            found = {file.stored.path for file in findings.data_files}
            assert found <= self.unseen
            assert (findings.vanished, findings.contradictions, findings.ignored) == ((), [], {})
            self.unseen -= found
            moved = findings.moved
        assert self.unseen == set()


TestOlder = Older.TestCase
TestOlder.settings = settings(max_examples=60, stateful_step_count=30)
