"""What people do to the target by hand and by the program's commands, and what `status` has to say of it.

Whatever somebody changes may go unseen until a comparison, or until the program meets the change. From then on a table that is not as
the source was is shown as such, by its state or as unequal, until it is.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from storage_consumer.model import TableName
from storage_consumer.plan.journal_entry import FAILED, SKIPPED, STARTED
from storage_consumer.plan.loads import LoadPhase
from storage_consumer.plan.steps import key_of
from storage_consumer.plan.table_decisions import TableDecision, Verb, shown_state
from storage_consumer.plan.table_state import TableState
from storage_consumer.ports import Decision
from storage_consumer.rows.comparison import TableResult, VerifyOutcome, counting
from storage_consumer.rows.fitting import TargetColumn, TargetTable
from storage_consumer.tso import is_settled
from storage_consumer.watch.report import Health, Snapshot, Table
from storage_consumer.watch.status import judged
from tests.campaigns.simulation.counts import Counts
from tests.campaigns.simulation.judge import Judge
from tests.campaigns.simulation.loaded import tick_of
from tests.campaigns.simulation.loads import Loads
from tests.campaigns.simulation.names import is_colliding
from tests.campaigns.simulation.shapes import NULL
from tests.campaigns.simulation.source import Picture, Source
from tests.campaigns.simulation.twins import ByHand, Differs, Records
from tests.harness.small_bucket import ts
from tests.harness.twins.records import Row

_MOST_CALLS_AWAY = 12
_TOLD = (
    *(TableState.HALTED, TableState.LOST, TableState.PAUSED, TableState.WAITING, TableState.LOADING),
    *(TableState.SKIPPED, TableState.EXCLUDED, TableState.DROPPED),
)
"""Words for a table's state that do not say that it is equal."""


class _World(Protocol):
    records: Records
    source: Source
    judge: Judge
    loads: Loads
    counts: Counts
    decided: int

    def tell(self, text: str) -> None:
        """One more line of the story."""


@dataclass(slots=True)
class _Comparison:
    """A comparison that goes on: what it has read, and what it will say."""

    key: str
    result: TableResult
    noted: ByHand | None
    """What was changed of the table whose rows were read."""


@dataclass(slots=True)
class Hands:
    """People at the target, and the look at what they are shown."""

    world: _World
    _states: dict[TableName, str] = field(default_factory=dict)
    """State of each table with another structure, at the last look."""
    _compared: list[_Comparison] = field(default_factory=list)
    _reloads: dict[TableName, TableDecision] = field(default_factory=dict)
    """Copies that somebody made, of which no consumer has heard yet."""
    _skipped: set[Any] = field(default_factory=set)
    """Statements that somebody left out."""

    # acts

    def act(self, dice: random.Random) -> None:
        """Somebody does something."""
        self.look()
        acts, weights = zip(*_ACTS, strict=True)
        getattr(self, f"_{dice.choices(acts, weights)[0]}")(dice)
        self.look()

    def _tell(self, name: object, text: str) -> None:
        self.world.counts.by_hand += 1
        self.world.tell(f"by hand: {name}: {text}")

    def _of_target(self) -> list[TableName]:
        """The tables that somebody may change."""
        records = self.world.records
        if records.in_flight is not None:
            return []
        return sorted(n for n in records.owners if not is_colliding(str(n)) and key_of(n) in records.tables)

    def _changed(self, name: TableName, text: str) -> ByHand:
        """What is noted of a table that somebody changes now."""
        records, judge = self.world.records, self.world.judge
        table = records.tables[key_of(name)]
        reached = records.checkpoint if table.follows else min(table.checkpoint, records.checkpoint)
        judge.left_out.add((name.schema, name.table), tick_of(reached) - 1)
        self._tell(name, text)
        # What has halted it by now has not seen this.
        self._states[name] = str(shown_state(table.state, table.error))
        return records.by_hand.setdefault(name, ByHand())

    def _delete_rows(self, dice: random.Random) -> None:
        rows = self.world.records.rows
        if names := [name for name in self._of_target() if rows.get(name)]:
            name = dice.choice(names)
            there = rows[name]
            self._changed(name, "rows are deleted")
            del there[: dice.randint(1, len(there))]

    def _alter(self, dice: random.Random) -> None:
        """Drop a column that is in no key, or narrow it; what it held is lost."""
        records = self.world.records
        names = [n for n in self._of_target() if n in records.structures and _spare(records.structures[n])]
        if not names:
            return
        name = dice.choice(names)
        table = records.structures[name]
        column = dice.choice(_spare(table))
        place = table.columns.index(column)
        is_dropped = dice.random() < 0.6 or column.data_type != "varchar"
        noted = self._changed(name, f"{column.name} is {'dropped' if is_dropped else 'narrowed'}")
        noted.broken = True
        noted.columns = {**noted.columns, column.name: noted.columns.get(column.name, (place, column))}
        rest = [each for each in table.columns if each is not column]
        columns = rest if is_dropped else [*rest[:place], replace(column, length=1), *rest[place:]]
        records.structures[name] = replace(table, columns=tuple(columns))
        for row in records.rows.get(name, []):
            if is_dropped:
                row.pop(column.name, None)
            else:
                row[column.name] = None

    def _drop_table(self, dice: random.Random) -> None:
        records = self.world.records
        if names := [name for name in self._of_target() if name in records.structures and name not in records.begun]:
            name = dice.choice(names)
            noted = self._changed(name, "the table is dropped")
            noted.broken, noted.table = True, records.structures.pop(name)
            records.rows.pop(name, None)

    def _put_back(self, dice: random.Random) -> None:
        if names := [name for name, noted in self.world.records.by_hand.items() if noted.broken]:
            self._whole_again(dice.choice(sorted(names)))

    def _whole_again(self, name: TableName) -> None:
        """Give a table the structure that it had; what it held is gone."""
        records = self.world.records
        noted = records.by_hand[name]
        table = records.structures.get(name) or noted.table
        if table is not None:
            columns = list(table.columns)
            rows = records.rows.setdefault(name, [])
            for place, column in sorted(noted.columns.values(), key=lambda each: each[0]):
                if narrow := next((each for each in columns if each.name == column.name), None):
                    columns[columns.index(narrow)] = column
                else:
                    columns.insert(place, column)
            records.structures[name] = replace(table, name=name, columns=tuple(columns))
            rows[:] = [_in_order(row, columns) for row in rows]
        noted.broken, noted.table, noted.columns = False, None, {}
        self._tell(name, "it has its structure again")

    def _deny(self, _: random.Random) -> None:
        self.world.records.denies = not self.world.records.denies
        self._tell("the user", "may alter nothing" if self.world.records.denies else "may alter again")

    def _fill(self, dice: random.Random) -> None:
        self.world.records.full = dice.randint(1, _MOST_CALLS_AWAY)
        self._tell("the disk", "is full for a while")

    # commands

    def _decide(self, dice: random.Random) -> None:
        verbs: Sequence[Verb] = ("pause", "resume", "resume", "resume", "skip", "accept-keys")
        if known := sorted(key for key, each in self.world.records.tables.items() if each.table):
            stopped = [key for key in known if self.world.records.tables[key].state == TableState.HALTED]
            key = dice.choice(stopped if stopped and dice.random() < 0.7 else known)
            self._put_decision(key, dice.choices(verbs, (3, 3, 3, 3, 1, 1))[0])

    def _put_decision(self, key: str, verb: Verb, at: int = 0) -> None:
        world = self.world
        world.decided += 1
        made = TableDecision(table_key=key, verb=verb, at=at, decided_at=f"{world.decided}", decided_by="an operator")
        table = world.records.tables[key]
        world.judge.left_out.add(
            (table.schema, table.table), tick_of(min(table.checkpoint, world.records.checkpoint)) - 1
        )
        world.records.table_decisions[key] = made
        self._tell(key, f"an operator says {verb}")

    def _load(self, dice: random.Random) -> None:
        names = [(name.schema, name.table) for name in self.world.records.by_hand]
        if names:
            self.world.loads.request(
                dice.choice(sorted(names)), self.world.source.tick, dice, replaces=dice.random() < 0.8
            )

    def _reload(self, dice: random.Random) -> None:
        """Somebody makes a copy without the program, and says so."""
        records, source = self.world.records, self.world.source
        stopped = (TableState.HALTED, TableState.EXCLUDED, TableState.LOST)
        names = [n for n in self._of_target() if records.tables[key_of(n)].state in stopped and n not in records.begun]
        if not names:
            return
        name = dice.choice(names)
        picture = source.at(source.tick, with_statement=True).get((name.schema, name.table))
        if picture is None:
            return
        noted = self._changed(name, f"it gets a copy as of {source.tick}")
        if noted.broken:
            self._whole_again(name)
        there = records.structures.get(name)
        if there is None or tuple(column.name for column in there.columns) != picture.columns:
            return
        source.resolved = max(source.resolved, source.tick)
        records.rows[name] = [
            {column: None if text == NULL else text for column, text in zip(picture.columns, row, strict=True)}
            for row in picture.rows
        ]
        self._put_decision(key_of(name), "reload-done", ts(source.tick))
        self._reloads[name] = records.table_decisions[key_of(name)]

    def _decide_on_statement(self, dice: random.Random) -> None:
        records = self.world.records
        halted = {key for key, table in records.tables.items() if table.state == TableState.HALTED}
        waiting = sorted(
            identity
            for identity, entry in records.journal.items()
            if identity in records.kept
            and "VIEW" not in records.kept[identity].query
            and (entry.state == FAILED or (entry.state == STARTED and key_of(records.kept[identity].name) in halted))
        )
        if not waiting:
            return
        identity = dice.choice(waiting)
        verbs: Sequence[Literal["done", "skip", "replace"]] = ("done", "skip", "replace")
        verb = dice.choice(verbs)
        statement = records.kept[identity].query if verb == "replace" else ""
        records.decisions[identity] = Decision(
            verb=verb, statement=statement, decided_at="now", decided_by="an operator"
        )
        self._skipped.add((identity, verb))
        for name in self._named(identity.version):
            self.world.judge.left_out.add((name.schema, name.table), tick_of(identity.version) - 1)
            if verb == "done":
                # Whether it was, nobody knows.
                records.by_hand.setdefault(name, ByHand())
        self._tell(records.kept[identity].query, f"an operator says ddl {verb}")

    def _named(self, version: int) -> list[TableName]:
        """The tables that a statement leaves at the source."""
        source, tick = self.world.source, tick_of(version)
        if (statement := source.statements.get(tick)) is None:
            return []
        there = source.at(tick, with_statement=True)
        return [TableName(schema=n[0], table=n[1]) for n in {f.name for f in statement.files} if n in there]

    # comparisons

    def _verify(self, dice: random.Random) -> None:
        """Somebody compares a table, all of it or a part, at once or until later."""
        names = self._of_target()
        if changed := [name for name in names if name in self.world.records.by_hand]:
            names = changed if dice.random() < 0.8 else names
        if names:
            self.verify(dice.choice(names), dice)

    def verify(self, name: TableName, dice: random.Random | None = None) -> None:
        """Compare a table; all of it and at once without `dice`."""
        records = self.world.records
        is_equal = None if name in records.begun or records.in_flight else self._is_as_at_the_source(name)
        state = records.tables[key_of(name)].state
        if state in (TableState.EXCLUDED, TableState.DROPPED, TableState.LOADING):
            return
        outcome = (
            VerifyOutcome.NOT_COMPARED
            if is_equal is None
            else VerifyOutcome.EQUAL
            if is_equal
            else VerifyOutcome.DIFFERENT
        )
        how = "sample" if dice is not None and dice.random() < 0.3 else "full"
        if how == "sample" and dice is not None and dice.random() < 0.8:
            outcome = VerifyOutcome.EQUAL
        made = TableResult(
            table=name, target=name, outcome=outcome, checkpoint=max(1, self._reached(name)), how=how,
            run=f"run {self.world.counts.verified}",
        )  # fmt: skip
        self.world.counts.verified += 1
        self._tell(name, f"verify begins, and will say {outcome} ({how})")
        self._store(replace(made, outcome=VerifyOutcome.UNFINISHED), key_of(name))
        comparison = _Comparison(key_of(name), made, records.by_hand.get(name))
        if dice is not None and dice.random() < 0.3:
            self._compared.append(comparison)
        else:
            self._end(comparison, name)

    def _end_verify(self, dice: random.Random) -> None:
        if self._compared:
            comparison = self._compared.pop(dice.randrange(len(self._compared)))
            self._end(comparison, comparison.result.table)

    def _end(self, comparison: _Comparison, name: TableName) -> None:
        stored, records = comparison.result, self.world.records
        self._store(stored, comparison.key)
        self._tell(name, f"verify says {stored.outcome} ({stored.how})")
        if stored.outcome is VerifyOutcome.DIFFERENT and comparison.noted is not None:
            # Under this name another table may be by now.
            comparison.noted.seen |= records.by_hand.get(name) is comparison.noted

    def _store(self, result: TableResult, key: str) -> None:
        verified = self.world.records.verified
        before = verified.get(key)
        outcome = counting(result, before.outcome if before else None, before.run if before else "")
        if outcome is not None:
            verified[key] = replace(result, outcome=outcome)

    # what has to be shown

    def look(self) -> None:
        """Raise `Differs` where a table is not as the source was, somebody could know it, and nothing shows it."""
        records = self.world.records
        for identity, verb in list(self._skipped):
            if verb == "skip" and identity in records.journal and records.journal[identity].state == SKIPPED:
                self._skipped.discard((identity, verb))
                for name in self._named(identity.version):
                    records.by_hand.setdefault(name, ByHand()).seen = True
        for name, made in list(self._reloads.items()):
            heard = records.obeyed.get(key_of(name))
            if heard is not None and heard.decision == made:
                del self._reloads[name]
                if not heard.refusal and name in records.by_hand:
                    # Whoever says that it is a copy is believed, also if rows were deleted from it since.
                    records.by_hand[name].seen = False
        if not records.by_hand:
            return
        for name, noted in list(records.by_hand.items()):
            self._note_seen(name, noted)
            if name in records.begun or (is_equal := self._is_as_at_the_source(name)) is None:
                continue
            if is_equal:
                del records.by_hand[name]
            elif noted.seen:
                self._is_shown(name)

    def _note_seen(self, name: TableName, noted: ByHand) -> None:
        """Whoever halts a table that has another structure has seen it."""
        table = self.world.records.tables.get(key_of(name))
        state = str(shown_state(table.state, table.error)) if table is not None else ""
        if noted.broken and state == TableState.HALTED and self._states.get(name, state) != TableState.HALTED:
            noted.seen = True
            self.world.counts.doubted += 1
        self._states[name] = state

    def _reached(self, name: TableName) -> int:
        records = self.world.records
        stored = records.tables[key_of(name)]
        return max(stored.checkpoint, records.checkpoint if stored.follows else 0)

    def _is_as_at_the_source(self, name: TableName) -> bool | None:
        """Whether a table is as the source was at its checkpoint; None where that cannot be said now."""
        records = self.world.records
        key = key_of(name)
        if key not in records.tables or not is_settled(records.writes.get(key, 0), reached := self._reached(name)):
            return None
        if records.applied.get(name, 0) > reached:
            return None
        found, pictures = self._found(name), list(self._pictures(name, tick_of(reached)))
        return found in pictures if pictures else None

    def _pictures(self, name: TableName, tick: int) -> Iterator[tuple[Any, Any]]:
        for with_statement in (False, True):
            picture: Picture | None = self.world.source.at(tick, with_statement=with_statement).get(
                (name.schema, name.table)
            )
            if picture is not None:
                yield picture.columns, picture.rows

    def _found(self, name: TableName) -> tuple[Any, Any]:
        records = self.world.records
        if (table := records.structures.get(name)) is None:
            return (), ()
        columns = tuple(column.name for column in table.columns)
        rows = (
            tuple(NULL if row[each] is None else row[each] for each in columns) for row in records.rows.get(name, ())
        )
        return columns, tuple(sorted(rows, key=str))

    def _is_shown(self, name: TableName) -> None:
        snapshot = snapshot_of(self.world.records)
        status = judged(
            snapshot, lambda verb, table: f"storage-consumer table {verb} --table {table}", needs_writer=False
        )
        table = next(each for each in snapshot.tables if each.name == name)
        if snapshot.shown(table) in _TOLD:
            return
        listed = any(each.name == name for each in status.tables)
        if status.health is Health.HEALTHY or not listed:
            raise Differs(
                f"{name} has {self._found(name)}, at the source {list(self._pictures(name, tick_of(self._reached(name))))}, but it "
                f"is {snapshot.shown(table)}, and the feed {status.health} (listed: {listed})"
            )

    def finish(self) -> None:
        """Everything that was taken is given back, and every table that was changed is compared."""
        records = self.world.records
        records.denies, records.full = False, 0
        for name in sorted(name for name, noted in records.by_hand.items() if noted.broken):
            self._whole_again(name)
        for name in [name for name in self._of_target() if name in records.by_hand]:
            self.verify(name)
        self.look()


_ACTS = (
    ("delete_rows", 4), ("alter", 8), ("drop_table", 3), ("put_back", 10), ("deny", 3), ("fill", 2), ("decide", 14), ("load", 4),
    ("reload", 4), ("decide_on_statement", 6), ("verify", 8), ("end_verify", 3),
)  # fmt: skip


def _spare(table: TargetTable) -> list[TargetColumn]:
    """The columns that are in no key; one is left at the least."""
    keyed = {name for key in table.unique_keys for name in key.columns}
    spare = [column for column in table.columns if column.name not in keyed and not column.length]
    return spare if len(table.columns) > 1 else []


def _in_order(row: Row, columns: Sequence[TargetColumn]) -> Row:
    return {column.name: row.get(column.name) for column in columns}


def snapshot_of(records: Records) -> Snapshot:
    """The state as `status` reads it."""
    tables = []
    for key, table in records.tables.items():
        made, seen = records.table_decisions.get(key), records.obeyed.get(key)
        is_obeyed = seen is not None and made == seen.decision
        tables.append(
            Table(
                name=TableName(schema=table.schema, table=table.table),
                state=table.state,
                checkpoint=table.checkpoint,
                follows=table.follows,
                error=table.error,
                decision=made.verb if made else "",
                obeyed=is_obeyed,
                refusal=seen.refusal if seen is not None and is_obeyed else "",
            )
        )
    return Snapshot(
        now=0.0,
        state_schema="storage_consumer",
        upstream=records.upstream,
        checkpoint=records.lowest,
        checkpoint_running=records.checkpoint,
        storage_checkpoint=0,
        writer=records.holder,
        last_writer=records.holder,
        tables=tuple(tables),
        loads=tuple(load for load in records.loads.values() if load.phase in LoadPhase),
        verified=tuple(records.verified.values()),
    )
