"""What an operator has loaded from copies: which copies there are, when a table is to be loaded, and what becomes of that."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol

from storage_consumer.model import TableName
from storage_consumer.plan.loads import OPEN, Load, LoadPhase
from storage_consumer.plan.steps import key_of
from tests.campaigns.simulation.bucket import Bucket
from tests.campaigns.simulation.counts import Counts
from tests.campaigns.simulation.exports import Export, exported
from tests.campaigns.simulation.judge import Judge
from tests.campaigns.simulation.loaded import tick_of
from tests.campaigns.simulation.names import Name, sql
from tests.campaigns.simulation.source import Source
from tests.campaigns.simulation.twins import Records

_BEGINNING = "copy-0"


class _Operator(Protocol):
    @property
    def begins(self) -> bool:
        """Whether the feed begins with a copy."""
        ...


class _World(Protocol):
    records: Records
    source: Source
    bucket: Bucket
    judge: Judge
    counts: Counts

    @property
    def operator(self) -> _Operator:
        """What an operator does."""
        ...

    def tell(self, text: str) -> None:
        """One more line of the story."""


class Loads:
    """The copies of a history, and what is loaded from them."""

    def __init__(self, world: _World) -> None:
        """There are no copies yet."""
        self._world = world
        self._exports = world.records.exports
        self._made = 0

    @property
    def waits(self) -> bool:
        """Whether the feed cannot begin yet."""
        return self._world.operator.begins and not self._world.records.floor

    @property
    def is_any_open(self) -> bool:
        """Whether any table is being loaded, or is to be."""
        return any(load.phase in OPEN for load in self._world.records.loads.values())

    def dump(self, dice: random.Random) -> str:
        """Where the copy is that the feed begins with, which is made for the first process; empty if there is none."""
        if not self._world.operator.begins:
            return ""
        if _BEGINNING not in self._exports.at:
            self._begin(dice)
        return _BEGINNING

    def _begin(self, dice: random.Random) -> None:
        """Make the copy that the feed begins with; sometimes it lacks a table."""
        source = self._world.source
        tick = source.tick if dice.random() < 0.5 else dice.randint(1, source.tick)
        if self._world.bucket.is_early:
            self._world.bucket.begin(dice.randint(1, tick))
        there = sorted(source.at(tick, with_statement=True))
        lacks = [dice.choice(there)] if there and dice.random() < 0.15 else []
        export = self._export(_BEGINNING, tick, dice, lacks)
        export.unfinished = dice.choice((0, 0, 0, 1, 2))
        for name in lacks:
            self._world.judge.left_out.add(name, tick)

    def _export(self, uri: str, tick: int, dice: random.Random, lacks: Sequence[Name] = ()) -> Export:
        self._made += 1
        export = exported(self._world.source, tick, f"export-{self._made}", dice, lacks)
        self._exports.put(uri, export)
        parts = {str(name): len(table.parts) for name, table in export.tables.items()}
        self._world.tell(f"{uri} is a copy as of {tick}, without {list(lacks)}; parts: {parts}")
        return export

    def count(self) -> None:
        """Count what became of the copies."""
        counts, loaded = self._world.counts, self._world.judge.loaded
        counts.begun += bool(self._world.records.floor)
        counts.loaded, counts.refused_loads = loaded.ended, loaded.refusals

    # acts

    def act(self, dice: random.Random) -> None:
        """A load is requested, or a copy is exchanged under one."""
        running = [load for load in self._world.records.loads.values() if load.phase == LoadPhase.LOADING]
        if running and dice.random() < 0.2:
            self._exchange(dice.choice(running), dice)
        elif dice.random() < 0.8:
            self._request(dice)

    def _request(self, dice: random.Random) -> None:
        """As `StoredLoads.request` does it."""
        source, records = self._world.source, self._world.records
        tables = [table for table in records.tables.values() if table.table]
        names = {(table.schema, table.table) for table in tables} | source.tables.keys()
        if not names:
            return
        chosen = dice.choice(sorted(names))
        statements = [tick for tick in source.statements if tick > 0]
        tick = dice.choices((source.tick, dice.randint(1, source.tick), dice.choice(statements)), (6, 2, 2))[0]
        self.request(chosen, tick, dice, replaces=dice.random() < 0.8)

    def request(self, chosen: Name, tick: int, dice: random.Random, *, replaces: bool) -> None:
        """Have a table be loaded from a new copy, unless it is being loaded."""
        records, name = self._world.records, TableName(schema=chosen[0], table=chosen[1])
        key = key_of(name)
        if (load := records.loads.get(key)) is not None and load.phase == LoadPhase.LOADING:
            return
        self._note_mixed(chosen, tick)
        self._world.counts.requested += 1
        uri = f"copy-{self._made + 1}"
        self._export(uri, tick, dice)
        self._world.tell(f"an operator wants {name} to be loaded from {uri}{' instead' if replaces else ''}")
        low = 0 if load is None else load.low
        records.loads[key] = Load(
            table_key=key, name=name, load_id=f"load {self._made}", source=uri, replaces=replaces, low=low
        )

    def _note_mixed(self, chosen: Name, upto: int) -> None:
        """A statement that a copy holds may lead rows of the table to another one that stands before it: that one has to stop."""
        records, source = self._world.records, self._world.source
        since = min([tick_of(table.checkpoint) for table in records.tables.values()] or [0])
        for tick, statement in source.statements.items():
            if since <= tick <= upto and "RENAME" in statement.text and sql(chosen) in statement.text:
                self._world.judge.left_out.add(chosen, since - 1)
                return

    def _exchange(self, load: Load, dice: random.Random) -> None:
        """Another export takes the place of the one that a load reads."""
        source = self._world.source
        self._world.counts.exchanged += 1
        tick = dice.randint(1, source.tick)
        self._export(load.source, tick, dice)
        for other in self._world.records.loads.values():
            if other.source == load.source and other.phase == LoadPhase.LOADING:
                self._world.judge.loaded.exchanged.add(other.load_id)
                self._world.judge.left_out.add((other.name.schema, other.name.table), tick_of(other.low))
