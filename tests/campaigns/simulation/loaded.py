"""What must hold of tables while they are loaded from copies, and when that ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from storage_consumer.model import TableName
from storage_consumer.plan.loads import OPEN, Load, LoadPhase
from storage_consumer.plan.steps import key_of
from storage_consumer.plan.table_state import TableState
from tests.campaigns.simulation.exports import ExportedTable
from tests.campaigns.simulation.names import sql
from tests.campaigns.simulation.shapes import NULL, Image
from tests.campaigns.simulation.source import Source, Statement
from tests.campaigns.simulation.twins import Differs, Records
from tests.harness.small_bucket import ts

APART = (LoadPhase.LOADING, LoadPhase.JOINING)
"""The phases in which a table does not count for the checkpoints of the whole."""
_MAY_STAND = (TableState.LOADING, TableState.HALTED, TableState.EXCLUDED, TableState.LOST)
"""States in which a table may have half of a copy."""


class Loaded:
    """Holds what is loaded against the copies; every method raises `Differs` where it is not as promised."""

    def __init__(self, source: Source, records: Records) -> None:
        """Nothing has been loaded."""
        self._source = source
        self._records = records
        self.exchanged: set[str] = set()
        """Ids of the loads whose copies were exchanged under them: they may halt."""
        self._apart: set[str] = set()
        self._begun: dict[str, Load] = {}
        """Loads by their ids, as they began."""
        self.highest = 0
        """TSO of the last copy from which anything was loaded."""
        self.ended = self.refusals = 0
        """Loads that came to their end, or never began."""

    def apart(self) -> frozenset[str]:
        """Keys of the tables that do not count for the checkpoints of the whole: from the begin of a load until they have caught up."""
        self._apart |= {key for key, load in self._records.loads.items() if load.phase in APART}
        return frozenset(self._apart)

    def note_caught_up(self) -> None:
        """Look for tables that have caught up, at the end of a round: in the middle of one the others are about to go further."""
        records = self._records
        for key in self.apart():
            table = records.tables.get(key)
            reached = max(table.checkpoint, records.checkpoint if table.follows else 0) if table else 0
            if records.loads[key].phase not in APART and reached >= records.lowest:
                self._apart.discard(key)

    @property
    def names_apart(self) -> frozenset[str]:
        """The same tables, as they are shown."""
        return frozenset(str(self._records.loads[key].name) for key in self.apart())

    @property
    def may_halt(self) -> frozenset[str]:
        """Tables whose copies are gone, as they are shown."""
        return frozenset(str(load.name) for load in self._records.loads.values() if load.load_id in self.exchanged)

    # statements

    def copies(self, load_id: str, name: TableName, *, alone: bool) -> int:
        """The number of the source's table that a load makes of a name, by a statement that is about to run.

        `alone`: the server goes on with it after its process was killed. Then an operator may have ended the load meanwhile.
        """
        load = next((load for load in self._records.loads.values() if load.load_id == load_id), None)
        is_over = load is None or load.phase not in OPEN
        # A table that is left out is nobody's; what was begun for it is known to be unsettled until somebody says otherwise.
        if is_over and (alone or self._records.tables[key_of(name)].state == TableState.EXCLUDED):
            load = self._begun[load_id]
        elif load is None or load.phase != LoadPhase.LOADING or load.done:
            raise Differs(f"a statement of a load that is over, or at its rows, is about to change {name}: {load}")
        return self._table(load, name).uid

    def begins(self, version: int, name: TableName) -> None:
        """A statement of the bucket is about to run; none may on a table that is being loaded, or that has its effect from a copy."""
        if load_id := self._records.begun.get(name):
            raise Differs(f"the statement of {version} begins on {name}, which has half of the copy of {load_id}")
        if (applied := self._records.applied.get(name, 0)) > version:
            raise Differs(f"the statement of {version} begins on {name}, which is as of {applied}")

    # calls

    def called(self, where: str) -> None:
        """A call has taken effect."""
        if where == "MemoryLoads.begin":
            self._note_begun()
        elif where == "MemoryLoads.finish":
            for name in [name for name, load in self._written() if load.phase == LoadPhase.JOINING]:
                if name not in self._records.by_hand:
                    self._is_whole(name)
                del self._records.begun[name]
                self.ended += 1
        elif where == "MemoryLoads.refuse":
            self.refusals += 1
        elif where == "MemoryJournal.copied":
            self._drop_left_behind()

    def _note_begun(self) -> None:
        """What is loaded into a table that is there is one with the copy from now on: no statement changes it."""
        records = self._records
        for load in records.loads.values():
            name = load.name.folded()
            self.highest = max(self.highest, load.low)
            self._begun[load.load_id] = load
            if load.phase == LoadPhase.LOADING and not load.replaces and name in records.owners:
                records.begun[name] = load.load_id
                records.owners[name], records.applied[name] = self._table(load, name).uid, load.low

    def _drop_left_behind(self) -> None:
        """An operator drops the tables that the source has under another name or no more, by a statement that copies hold."""
        records = self._records
        for identity, entry in records.journal.items():
            statement = self._source.statements.get(tick_of(identity.version))
            if statement is not None and entry.note.startswith("a copy as of"):
                for name in [name for name in records.owners if self._is_left_behind(name, statement)]:
                    records.structures.pop(name, None)
                    records.rows.pop(name, None)
                    records.forget(name)

    def _is_left_behind(self, name: TableName, statement: Statement) -> bool:
        """Whether a statement that has not run took a table's name away."""
        records, own = self._records, (name.schema, name.table)
        table = self._source.known[records.owners[name]]
        named = table.uid in statement.uids and sql(own) in statement.text
        if not named or records.applied[name] >= ts(statement.tick) or name in records.begun:
            return False
        after = next(m for m in table.moments if m.is_statement and m.tick == statement.tick)
        return after.picture is None or after.name != own

    # rows

    def look(self) -> None:
        """Tables that are being loaded have rows of their copies alone, and go on with nothing but a whole copy."""
        for name, load in self._written():
            if load.phase == LoadPhase.LOADING:
                if name not in self._records.by_hand:
                    self._is_part(name, load)
            elif (state := self._records.tables[load.table_key].state) not in _MAY_STAND:
                raise Differs(f"{name} is {state} with half of a copy: {load}")

    def _written(self) -> Iterator[tuple[TableName, Load]]:
        """Names that have half of a copy, each with the last load of its table."""
        for name, load_id in list(self._records.begun.items()):
            load = self._records.loads[key_of(name)]
            yield name, load if load.load_id == load_id else _over(load)

    def _is_part(self, name: TableName, load: Load) -> None:
        """What is written of a copy is there, once, and nothing else."""
        table, found = self._table(load, name), self._rows(name)
        if name not in self._records.owners:
            return
        written = Counter(row for part in table.parts[: load.parts_done] for row in part)
        there = Counter(found)
        if not table.picture.shape.keys:
            part, row = load.done >> 32, load.done & 0xFFFFFFFF
            if load.parts_done < part <= len(table.parts):
                written += Counter(table.parts[part - 1][:row])
            good = there == written
        else:
            good = written <= there <= Counter(table.picture.rows)
        if not good:
            raise Differs(f"{name} is loaded up to {load.done}, and has {found}: the copy has {table.parts}")

    def _is_whole(self, name: TableName) -> None:
        load = self._records.loads[key_of(name)]
        picture = self._table(load, name).picture
        columns = tuple(column.name for column in self._records.structures[name].columns)
        found = self._rows(name)
        if columns != picture.columns or found != picture.rows:
            raise Differs(f"{name} goes on with the columns {columns} and {found}, but the copy has {picture}")

    def _rows(self, name: TableName) -> tuple[Image, ...]:
        rows = self._records.rows.get(name, ())
        return tuple(sorted(tuple(NULL if text is None else text for text in row.values()) for row in rows))

    def _table(self, load: Load, name: TableName) -> ExportedTable:
        return self._records.exports.known[load.identity].tables[name]


def tick_of(commit_ts: int) -> int:
    """The tick of a commit ts; negative for none."""
    return (commit_ts - ts(0)) // (ts(1) - ts(0))


def _over(load: Load) -> Load:
    """A load in whose place another one is that has not written anything yet."""
    return replace(load, phase=LoadPhase.CANCELLED)
