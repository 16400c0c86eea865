"""A history: what happens in turns, and what must be true after each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from storage_consumer.checkpoint.findings import QuarantinedEntry
from tests.campaigns.refusing.consumers import USUAL, Consumers, Wrong, key_of
from tests.campaigns.refusing.source import BAD, NARROW, WIDE, Diary, Key, Source, Table, Values
from tests.harness.small_bucket import ts


@dataclass(slots=True)
class History:
    """One history."""

    source: Source
    consumers: Consumers
    diary: Diary

    def play(self, rounds: int) -> None:
        """Play it; raise `Wrong` as soon as something is."""
        self._begin()
        for _ in range(rounds):
            self._turn()
            self.consumers.round(crashes=self.source.chance.random() < 0.2)
            self._judge()
        self._end()

    def _begin(self) -> None:
        self.source.begin()
        self.consumers.open(USUAL)
        self._judge()
        for each in self.source.tables.values():
            self._narrow(each)

    def _turn(self) -> None:
        """What happens between two rounds."""
        some = list(self.source.tables.values())
        if self.source.is_so(0.25):
            self.consumers.open(self.source.chance.choice([0, 1, 2, USUAL, USUAL]))
        if self.source.is_so(0.3):
            self._widen(self.source.chance.choice(some))
        if self.source.is_so(0.4):
            self._narrow(self.source.chance.choice(some))
        self.consumers.operate(self.source.tables)
        if self.source.is_so(0.9):
            self.source.feed()
        if self.source.is_so(0.25):
            self._load(self.source.chance.choice(some))

    def _load(self, table: Table) -> None:
        """Have a table loaded anew from a copy that holds what the target does not have yet; then more is changed."""
        if self.source.is_so(0.5):
            self.source.state(table)
            self.source.feed()
        self.consumers.load(table.name, self.source.copy(table))
        table.given_up.clear()
        self.source.feed()

    def _end(self) -> None:
        """Widen all tables, and retry all rows: then nothing is left but rows of earlier table versions."""
        for each in self.source.tables.values():
            self._widen(each)
        self.consumers.open(USUAL)
        with self.consumers.desk() as desk:
            desk.quarantine.retry(desk.quarantine.all(), "operator")
        self._judge()
        for entry in self.consumers.entries():
            if entry.version == self.source.tables[entry.table.table].version:
                raise Wrong(f"{entry.table} {entry.key} stays in the quarantine: {entry.reason}; {entry.retry_answer}")

    # the target

    def _modify(self, table: Table, length: int) -> None:
        self.consumers.server.query(f"ALTER TABLE d.{table.name} MODIFY v VARCHAR({length})")

    def _refuses(self, table: Table) -> bool:
        """Whether the column of a table is too short in the target."""
        return f"varchar({NARROW})" in self.consumers.server.query(f"SHOW CREATE TABLE d.{table.name}")[0][1]

    def _narrow(self, table: Table) -> None:
        """Have the target refuse some rows, unless it holds one of them."""
        query = f"SELECT COUNT(*) FROM d.{table.name} WHERE v LIKE '{BAD}%'"
        if not table.is_narrow and self.consumers.server.query(query)[0][0] == 0:
            self._modify(table, NARROW)
            table.is_narrow = True
            self.diary.say("narrow", table.name)

    def _widen(self, table: Table) -> None:
        if table.is_narrow:
            self._modify(table, WIDE)
            table.is_narrow = False
            self.diary.say("widen", table.name)

    # the judge

    def _judge(self) -> None:
        """Hold target and quarantine against the source, once all of the bucket is applied."""
        self.consumers.finish(ts(self.source.tick))
        for each in self.source.tables.values():
            # One that was created anew by its load has only what the source says.
            each.is_narrow = each.is_narrow and self._refuses(each)
        self.diary.count("judged")
        entries = self.consumers.entries()
        self.diary.count("in the quarantine", len(entries))
        for table in self.source.tables.values():
            self._judge_table(table, [entry for entry in entries if entry.table.table == table.name])

    def _judge_table(self, table: Table, entries: Sequence[QuarantinedEntry]) -> None:
        kept = {key_of(table, entry): (entry.image["u"], entry.image["v"]) for entry in entries}
        if len(kept) != len(entries):
            raise Wrong(f"{table.name}: two entries of one key among {[entry.key for entry in entries]}")
        there = self._there(table)
        for key in sorted({*kept, *there, *table.rows} - table.given_up):
            wanted, found = table.rows.get(key), there.get(key)
            if key in kept and kept[key] != wanted:
                raise Wrong(f"{table.name} {key}: the entry is {kept[key]}, the source has {wanted}")
            if (key in kept) == (found == wanted):
                raise Wrong(f"{table.name} {key}: the target has {found}, the source {wanted}, an entry: {key in kept}")

    def _there(self, table: Table) -> dict[Key, Values]:
        rows = self.consumers.server.query(f"SELECT {', '.join(table.keys)}, u, v FROM d.{table.name}")
        return {tuple(map(str, key)): (None if u is None else str(u), str(v)) for *key, u, v in rows}
