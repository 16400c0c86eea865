"""Twins of the target for the driver: state and structure, both handles on `TargetRecords`, which outlive them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from storage_consumer.clock import Clock
from storage_consumer.downstream.existing_names import PartNames
from storage_consumer.errors import ConfigError, DdlFailed, LeaseLost
from storage_consumer.job.target_table import TargetColumn, TargetTable, UniqueKey
from storage_consumer.model import TableDefinition, TableName
from storage_consumer.plan.copies import Copies
from storage_consumer.plan.directories import Restart
from storage_consumer.plan.finished_files import Finished
from storage_consumer.plan.journal import DONE, FAILED, SKIPPED, STARTED, DdlAnswer, JournalEntry, Outcome, Sent
from storage_consumer.plan.steps import DdlStep
from storage_consumer.plan.table_decisions import Obeyed, TableDecision
from storage_consumer.ports import Decision, ServerInfo, TableProgress
from storage_consumer.sql.tokens import Token
from storage_consumer.testing.operator import apply_decisions, put_tables, restart_of, unobeyed

Row = dict[str, str | None]
"""Column name → wire text."""
Streams = Mapping[str, Finished]
FACTS = ServerInfo(server_type="mysql", version="in memory", max_packet=1 << 24, load_data=False)


@dataclass(slots=True)
class TargetRecords:
    """Everything that a target keeps: state tables, structure and rows."""

    upstream: str = ""
    holder: str = ""
    epoch: int = 0
    expires_at: float = 0.0
    window: tuple[int, int] = (0, 0)  # epoch and window id in every slot
    checkpoint: int = 0
    """Commit ts that idle tables follow."""
    lowest: int = 0
    """Commit ts that is published to others."""
    storage_checkpoint: int = 0
    tables: dict[str, TableProgress] = field(default_factory=dict)
    streams: dict[str, Finished] = field(default_factory=dict)
    journal: dict[tuple[str, int, int], JournalEntry] = field(default_factory=dict)
    kept: dict[tuple[str, int, int], TableDefinition] = field(default_factory=dict)
    decisions: dict[tuple[str, int, int], Decision] = field(default_factory=dict)
    copies: dict[str, Copies] = field(default_factory=dict)
    table_decisions: dict[str, TableDecision] = field(default_factory=dict)
    obeyed: dict[str, Obeyed] = field(default_factory=dict)
    databases: set[str] = field(default_factory=set)
    structures: dict[TableName, TargetTable] = field(default_factory=dict)
    rows: dict[TableName, list[Row]] = field(default_factory=dict)
    effects: list[str] = field(default_factory=list)
    """Statements that took effect, in order."""


class MemoryState:
    """The twin of `checkpoint.store.StateStore`."""

    def __init__(self, records: TargetRecords, clock: Clock) -> None:
        """Open a handle on `records`; `clock` is the database's."""
        self._records = records
        self._clock = clock
        self._holder = ""
        self.epoch = 0

    def open(self, upstream: str) -> None:
        """Remember the bucket; raise `ConfigError` if the state belongs to another bucket."""
        self._records.upstream = self._records.upstream or upstream
        if self._records.upstream != upstream:
            raise ConfigError(f"the state belongs to the bucket {self._records.upstream}, not to {upstream}")

    def acquire(self, holder: str, ttl: float, *, dead: str = "") -> str:
        """Take the lease if it is free, expired, ours or a dead holder's; return ``""``, or the holder who prevents it."""
        records = self._records
        if records.holder not in ("", holder, dead) and records.expires_at >= self._clock.now():
            return records.holder
        records.holder, records.epoch, records.expires_at = holder, records.epoch + 1, self._clock.now() + ttl
        self.epoch, self._holder = records.epoch, holder
        return ""

    def renew(self, ttl: float) -> bool:
        """Extend the lease if it is ours; return whether it is."""
        if not self._is_ours():
            return False
        self._records.expires_at = self._clock.now() + ttl
        return True

    def release(self) -> None:
        """Release the lease if it is ours."""
        if self._is_ours():
            self._records.holder = ""

    def load(self) -> tuple[Restart, int]:
        """Return what was saved, and the highest storage checkpoint."""
        self._check_owner("reading the state")
        records = self._records
        return restart_of(records), records.storage_checkpoint

    def open_window(self, partitions: int, storage_checkpoint: int) -> int:  # noqa: ARG002 - no slots are needed for one writer
        """Fence off all older windows; return the id of the new one."""
        self.save(tables=(), streams={}, checkpoint=0, storage_checkpoint=storage_checkpoint)
        self._records.window = (self.epoch, self._records.window[1] + 1)
        return self._records.window[1]

    def save(
        self,
        *,
        tables: Iterable[TableProgress],
        streams: Streams,
        checkpoint: int,
        storage_checkpoint: int,
        lowest: int | None = None,
    ) -> None:
        """Store what moved; all checkpoints but `lowest` only grow."""
        self._check_owner("storing the progress")
        put_tables(self._records, tables)
        records = self._records
        for name, stream in streams.items():
            before = {} if stream.replaces else records.streams.get(name, Finished()).digests
            kept = Finished(upto=stream.upto, left_out=stream.left_out, digests={**before, **stream.digests})
            records.streams[name] = kept
        records.checkpoint = max(records.checkpoint, checkpoint)
        records.lowest = records.lowest if lowest is None else lowest
        records.storage_checkpoint = max(records.storage_checkpoint, storage_checkpoint)

    def journal_entry(self, step: DdlStep) -> JournalEntry | None:
        """Return the journal's entry of a statement, or None."""
        self._check_owner("reading the DDL journal")
        return self._records.journal.get(step.identity)

    def journal(
        self,
        step: DdlStep,
        state: str,
        *,
        run: Sent | Outcome | None = None,
        note: str = "",
        tables: Iterable[TableProgress] = (),
    ) -> None:
        """Store the state of a statement, and the tables that it moved."""
        self._check_owner("writing the DDL journal")
        before = self._records.journal.get(step.identity, JournalEntry(state="", structure_before="", note=""))
        sent = run if isinstance(run, Sent) else before
        self._records.journal[step.identity] = JournalEntry(
            state=state, structure_before=sent.structure_before, note=note, statement=sent.statement
        )
        put_tables(self._records, tables, as_they_were=True)

    def refused(self, step: DdlStep, error: str) -> None:
        """Record why a statement stops its table; a started statement without a known outcome stays started."""
        entry = self.journal_entry(step)
        unsettled = entry is not None and entry.state == STARTED
        self.journal(step, STARTED if unsettled else FAILED, note=error)

    def keep(self, read: Iterable[tuple[str, TableDefinition]]) -> None:
        """Store the content of schema files."""
        for table_dir, definition in read:
            self._check_owner("storing structures")
            self._records.kept[table_dir, definition.version, definition.checksum] = replace(definition, warnings=())

    def kept(self, table_dir: str, version: int) -> list[TableDefinition]:
        """Return the content of the schema files of one version directory."""
        self._check_owner("reading a structure")
        return [d for identity, d in sorted(self._records.kept.items()) if identity[:2] == (table_dir, version)]

    def known_versions(self) -> frozenset[tuple[str, int]]:
        """Return table directory and version of everything that was kept."""
        self._check_owner("reading which versions are known")
        return frozenset(identity[:2] for identity in self._records.kept)

    def unsettled(self) -> list[tuple[str, int]]:
        """Return directory and version of kept statements that are neither done nor skipped."""
        self._check_owner("reading which statements are not settled")
        settled = {identity for identity, entry in self._records.journal.items() if entry.state in (DONE, SKIPPED)}
        kept = self._records.kept.items()
        return sorted({i[:2] for i, definition in kept if definition.is_ddl and i not in settled})

    def decisions(self) -> Mapping[tuple[str, int, int], Decision]:
        """Return the decisions on statements that are neither done nor skipped."""
        journal, made = self._records.journal, self._records.decisions
        return {i: d for i, d in made.items() if i in journal and journal[i].state not in (DONE, SKIPPED)}

    def copied(self, step: DdlStep, at: int) -> None:
        """Record that a statement is done, because a copy contains its effect."""
        self.journal(step, DONE, note=f"a copy as of {at} holds it")

    def apply_decisions(self, busy: Collection[str] = (), *, timed: bool = True) -> list[Obeyed]:
        """Apply decisions on tables, each once, except those on `busy` tables; return their results."""
        if unobeyed(self._records):
            self._check_owner("obeying a decision about a table")
        return apply_decisions(self._records, busy, timed=timed)

    def close(self) -> None:
        """Do nothing: no connection is open."""

    def _is_ours(self) -> bool:
        return (self._records.holder, self._records.epoch) == (self._holder, self.epoch)

    def _check_owner(self, doing: str) -> None:
        if self._records.epoch != self.epoch:
            raise LeaseLost(f"another process took the lease while {doing}")


_NAME = r"`?(?:(?P<{0}_schema>\w+)`?\.`?)?(?P<{0}>\w+)`?"


class MemoryTarget:
    """The twin of `downstream.database.TargetDatabase`. It knows a few statements; each takes effect wholly or not at all."""

    def __init__(self, records: TargetRecords) -> None:
        """Open a handle on `records`."""
        self._records = records
        self._statements: tuple[tuple[str, Callable[[TableName, re.Match[str]], None]], ...] = (
            (r"CREATE DATABASE (?:IF NOT EXISTS )?`?(?P<a>\w+)`?", self._create_database),
            (rf"CREATE TABLE {_NAME.format('a')} \((?P<body>.*)\)", self._create),
            (rf"DROP TABLE {_NAME.format('a')}", self._drop),
            (rf"TRUNCATE TABLE {_NAME.format('a')}", self._truncate),
            (rf"RENAME TABLE {_NAME.format('a')} TO {_NAME.format('b')}", self._rename),
            (rf"ALTER TABLE {_NAME.format('a')} ADD COLUMN `?(?P<column>\w+)`? (?P<type>\w+)", self._add_column),
        )

    def server_info(self) -> ServerInfo:
        """Return a server without LOAD DATA."""
        return FACTS

    def describe(self, wanted: Iterable[TableName]) -> dict[TableName, TargetTable]:
        """Return the wanted tables that exist, by folded name."""
        names = {name.folded() for name in wanted}
        return {name: table for name, table in self._records.structures.items() if name in names}

    def existing(self, wanted: Iterable[TableName]) -> dict[TableName, TableName]:
        """Return the wanted tables and databases that exist: folded name → name as created."""
        databases = [TableName(schema=name, table="") for name in self._records.databases]
        there = {name.folded(): name for name in (*databases, *(t.name for t in self._records.structures.values()))}
        return {name.folded(): there[name.folded()] for name in wanted if name.folded() in there}

    def close(self) -> None:
        """Do nothing: no connection is open."""

    def database_collation(self, schema: str) -> str | None:
        """Return the source's default collation if the database exists, else None."""
        return "utf8mb4_bin" if schema in self._records.databases else None

    def part_names(self, name: TableName, found: Sequence[Token] = ()) -> PartNames:  # noqa: ARG002 - the twin's tables have none to alter
        """Return no names."""
        return PartNames()

    def statement_zone(self, version: int) -> str:  # noqa: ARG002 - a twin has no clock
        """Return the default time zone."""
        return "UTC"

    def is_running(self, statement: str) -> bool:  # noqa: ARG002 - nothing runs beside the one caller
        """Return False."""
        return False

    def fingerprint(self, names: Iterable[TableName]) -> str:
        """Return the structure of tables or databases as text."""
        structures, databases = self._records.structures, self._records.databases
        return repr([structures.get(n.folded()) if n.table else n.schema in databases for n in sorted(set(names))])

    def fence_ddl(self) -> bool:
        """Return True: with one process and one connection, nobody else can run a DDL."""
        return True

    def blockers(self, names: Iterable[TableName]) -> tuple[str, ...]:  # noqa: ARG002 - the twin has no locks
        """Return no holders."""
        return ()

    def execute_ddl(
        self,
        statement: str,
        schema: str,
        version: int,  # noqa: ARG002 - a twin has no clock
        ignorable: frozenset[int] = frozenset(),
    ) -> DdlAnswer:
        """Run one statement; raise `DdlFailed` if it is unknown or does not fit the structure."""
        matches = ((run, re.match(pattern, statement)) for pattern, run in self._statements)
        run, found = next(((run, found) for run, found in matches if found), (None, None))
        if run is None or found is None:
            raise DdlFailed(f"error 1064: {statement}")
        try:
            run(TableName(schema=found.groupdict().get("a_schema") or schema, table=found["a"]), found)
        except _Refused as fault:
            number, text = fault.args
            if number in ignorable:
                return DdlAnswer(ignored=str(text))
            raise DdlFailed(f"error {number}: {text}") from fault
        self._records.effects.append(statement)
        return DdlAnswer()

    def _create_database(self, name: TableName, found: re.Match[str]) -> None:
        if name.table in self._records.databases and "IF NOT EXISTS" not in found[0]:
            raise _Refused(1007, f"{name.table} exists")
        self._records.databases.add(name.table)

    def _create(self, name: TableName, found: re.Match[str]) -> None:
        if name.schema not in self._records.databases:
            raise _Refused(1049, f"no database {name.schema}")
        if name.folded() in self._records.structures:
            raise _Refused(1050, f"{name} exists")
        words = [part.split() for part in found["body"].split(",")]
        columns = tuple(_column(w[0], w[1], nullable="PRIMARY" not in w) for w in words)
        key = tuple(c.name for c in columns if not c.nullable)
        keys = (UniqueKey(name="PRIMARY", columns=key, prefixes=(None,) * len(key)),) if key else ()
        self._records.structures[name.folded()] = TargetTable(name=name, columns=columns, unique_keys=keys)

    def _there(self, name: TableName) -> TargetTable:
        if found := self._records.structures.get(name.folded()):
            return found
        raise _Refused(1051, f"no table {name}")

    def _drop(self, name: TableName, found: re.Match[str]) -> None:
        self._truncate(name, found)
        del self._records.structures[name.folded()]

    def _truncate(self, name: TableName, _: re.Match[str]) -> None:
        self._there(name)
        self._records.rows.pop(name.folded(), None)

    def _rename(self, name: TableName, found: re.Match[str]) -> None:
        table, rows = self._there(name), self._records.rows.get(name.folded(), [])
        new = TableName(schema=found["b_schema"] or name.schema, table=found["b"])
        if new.folded() in self._records.structures:
            raise _Refused(1050, f"{new} exists")
        self._drop(name, found)
        self._records.structures[new.folded()] = replace(table, name=new)
        self._records.rows[new.folded()] = rows

    def _add_column(self, name: TableName, found: re.Match[str]) -> None:
        table = self._there(name)
        if found["column"] in (column.name for column in table.columns):
            raise _Refused(1060, f"{found['column']} exists")
        column = _column(found["column"], found["type"], nullable=True)
        self._records.structures[name.folded()] = replace(table, columns=(*table.columns, column))
        for row in self._records.rows.get(name.folded(), []):
            row[column.name] = None


def _column(name: str, kind: str, *, nullable: bool) -> TargetColumn:
    base, _, size = kind.lower().rstrip(")").partition("(")
    digits = int(size or 0) if base == "time" else None
    return TargetColumn(name=name.strip("`"), data_type=base, nullable=nullable, digits=digits)


class _Refused(Exception):
    """A server's answer: number and text."""
