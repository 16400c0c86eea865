"""Each statement's state, operators' decisions on them, and every schema file's content.

A decision is a row of its own, which the consumer follows at its next round or start. It counts
only while the journal says that the statement is neither done nor skipped. Both are read under a
lock on the journal's row.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from sqlalchemy import ColumnElement, Select, func, or_, select
from sqlalchemy.dialects.mysql import insert
from sqlalchemy.engine import Connection

from storage_consumer.checkpoint.findings import close_entries, take_along
from storage_consumer.checkpoint.progress import put_tables
from storage_consumer.checkpoint.transactions import (
    StateTransactions,
    Stored,
    name_in,
    put_all,
    record,
    seconds_between,
)
from storage_consumer.errors import MalformedSchemaFile
from storage_consumer.model import DdlId, TableColumn, TableDefinition, TableName, TableVersion
from storage_consumer.plan.journal_entry import (
    DONE,
    FAILED,
    SKIPPED,
    STARTED,
    ExecutionOutcome,
    JournalEntry,
    Sent,
)
from storage_consumer.plan.steps import DdlStep, key_of
from storage_consumer.ports import Decision, TableProgress
from storage_consumer.target.state_tables import IDENTITY, NOW, put, same_statement
from storage_consumer.watch.report import SHOWN_CHARACTERS, StoredStatement
from storage_consumer.watch.report import ShownEntry as Shown

_DEFAULTS = {field.name: field.default for field in fields(TableColumn)}
_HASHED = (
    "table_dir",
    "version",
    "checksum",
    "schema_name",
    "table_name",
    "ddl_type",
    "path",
    "query",
    "columns",
)


def record_of(table_dir: str, definition: TableDefinition) -> dict[str, object]:
    """Return the row for one schema file's content; `table_dir` is the file's directory."""
    columns = [
        # Only what differs from the defaults. A field that a later program adds is then read with
        # its default from an older row.
        {
            name: value
            for name, default in _DEFAULTS.items()
            if (value := getattr(column, name)) != default
        }
        for column in definition.columns
    ]
    record: dict[str, object] = {
        "table_dir": table_dir,
        "version": definition.version,
        "checksum": definition.checksum,
        "table_key": key_of(definition.name),
        "schema_name": definition.name.schema,
        "table_name": definition.name.table,
        "ddl_type": definition.ddl_type,
        "path": definition.path,
        "query": definition.query,
        "columns": json.dumps(columns, ensure_ascii=False, separators=(",", ":")),
    }
    return {**record, "digest": _digest(record)}


def definition_of(record: Mapping[str, Any]) -> TableDefinition:
    """Return a row's definition, whatever the others; raise `MalformedSchemaFile` if corrupt."""
    name = TableName(schema=record["schema_name"], table=record["table_name"])
    # Its statement may run from here, so a row that something else changed must not be believed.
    if record["digest"] != _digest(record):
        message = (
            f"the stored structure of {name} with version {record['version']} is damaged: something else wrote into "
            f"the state schema. Restore {record['path']} in the bucket, and delete this row of schema_history"
        )
        raise MalformedSchemaFile(message)
    columns = tuple(
        TableColumn(**{**column, "elements": tuple(column.get("elements", ()))})
        for column in json.loads(record["columns"])
    )
    return TableDefinition(
        name=name,
        version=TableVersion(record["version"]),
        query=record["query"],
        ddl_type=record["ddl_type"],
        columns=columns,
        path=record["path"],
        checksum=record["checksum"],
    )


def _digest(record: Mapping[str, Any]) -> str:
    """Return a digest that tells two rows apart, and a damaged row from the original."""
    text = json.dumps([record[name] for name in _HASHED], ensure_ascii=False)
    # A name may hold a lone surrogate, which strict UTF-8 refuses.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


_BATCH = 20
"""Structures per statement: their sizes differ much, and a packet is limited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTable:
    """One table (or database) whose structures are kept."""

    key: str
    name: TableName
    versions: int
    first: int
    last: int
    query: str
    """The newest statement; empty for a structure without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptVersion:
    """One entry of the history. A damaged one has no `definition`, and `damage` says why."""

    table_dir: str
    version: int
    checksum: int
    definition: TableDefinition | None
    damage: str = ""

    @property
    def identity(self) -> DdlId:
        """The identity, as in the journal."""
        return DdlId(self.table_dir, self.version, self.checksum)


class StoredHistory(Stored):
    """The schema history of one feed. Each entry is complete: no other is needed to read it."""

    _kept: dict[tuple[object, ...], object] | None = None
    """What is known to be stored: identity → digest. Keys only, never structures; None until first
    needed.
    """

    def keep(self, read: Iterable[tuple[str, TableDefinition]]) -> None:
        """Store structures with their table directories; stored ones cost nothing."""
        records = [record_of(table_dir, definition) for table_dir, definition in read]
        if not records:
            return
        table = self._tables.structures
        with self._owned("storing structures") as connection:
            # Once for each process: from then on the owner alone adds to it.
            if self._kept is None:
                rows = connection.execute(
                    select(*(table.c[name] for name in IDENTITY), table.c.digest)
                ).all()
                self._kept = {tuple(row[:3]): row.digest for row in rows}
            known = self._kept
            new = [
                r for r in records if known.get(tuple(r[name] for name in IDENTITY)) != r["digest"]
            ]
            # A file that was rewritten under its name replaces what was read of it.
            put_all(connection, table, new, _BATCH)
        # Only after the commit: a transaction that failed has stored nothing.
        known.update({tuple(r[name] for name in IDENTITY): r["digest"] for r in new})

    def known_versions(self) -> frozenset[tuple[str, int]]:
        """Return table directory and version of all schema files that were ever read."""
        table = self._tables.structures.c
        with self._owned("reading the known versions") as connection:
            rows = connection.execute(select(table.table_dir, table.version)).all()
        return frozenset((row.table_dir, row.version) for row in rows)

    def unresolved(self) -> list[tuple[str, int]]:
        """Return directory and version of kept statements that the journal has not resolved.

        Those are neither done nor skipped.
        """
        kept, journal = self._tables.structures.c, self._tables.journal.c
        same = same_statement(self._tables.structures, self._tables.journal)
        query = (
            select(kept.table_dir, kept.version)
            .join_from(self._tables.structures, self._tables.journal, same, isouter=True)
            # No entry in the journal counts as unresolved: the process may have ended right after
            # the file was kept.
            .where(
                kept.query != "",
                or_(journal.state.is_(None), journal.state.not_in((DONE, SKIPPED))),
            )
        )
        with self._owned("reading the unresolved statements") as connection:
            return sorted({(row.table_dir, row.version) for row in connection.execute(query)})

    def kept(self, table_dir: str, version: int) -> list[TableDefinition]:
        """Return the schema files of a version directory, whether or not they still exist.

        Raise `MalformedSchemaFile` if an entry is damaged.
        """
        table = self._tables.structures
        query = select(table).where(table.c.table_dir == table_dir, table.c.version == version)
        with self._owned("reading a structure") as connection:
            return [
                definition_of(row._asdict())
                for row in connection.execute(query.order_by(table.c.checksum))
            ]

    # what an operator sees

    def tables(self) -> list[KeptTable]:
        """Return all tables, by name."""
        kept = self._tables.structures.c
        ends = (
            func.count().label("versions"),
            func.min(kept.version).label("first"),
            func.max(kept.version).label("last"),
        )
        all_of = select(kept.table_key, *ends).group_by(kept.table_key).subquery("all_of")
        newest = (kept.table_key == all_of.c.table_key) & (kept.version == all_of.c.last)
        query = (
            select(kept.schema_name, kept.table_name, kept.query, all_of)
            .join_from(self._tables.structures, all_of, newest)
            # Several entries may have the newest version: one with a statement comes first, and the
            # first one counts.
            .order_by(kept.table_key, kept.query == "")
        )
        found: dict[str, KeptTable] = {}
        for row in self._read(query):
            table = record(
                KeptTable, row, key=row.table_key, name=name_in(row), versions=int(row.versions)
            )
            found.setdefault(table.key, table)
        return list(found.values())

    def versions(self, keys: Collection[str]) -> list[KeptVersion]:
        """Return all versions of the tables with these keys, in order."""
        kept = self._tables.structures
        query = select(kept).where(kept.c.table_key.in_(keys))
        return self._entries(query.order_by(kept.c.version, kept.c.table_dir, kept.c.checksum))

    def structure_at(self, key: str, ts: int) -> KeptVersion | None:
        """Return a table's structure in force at a version or commit-ts (inclusive), or None."""
        kept = self._tables.structures
        query = select(kept).where(kept.c.table_key == key, kept.c.version <= ts)
        # By digest too, so that of several of one version it is the same one each time.
        found = self._entries(query.order_by(kept.c.version.desc(), kept.c.digest).limit(1))
        return found[0] if found else None

    def _entries(self, query: Select[Any]) -> list[KeptVersion]:
        found = []
        for row in self._read(query):
            definition, damage = None, ""
            try:
                # A damaged row is shown with its damage, so that the others can still be read.
                definition = definition_of(row._asdict())
            except MalformedSchemaFile as fault:
                damage = str(fault)
            found.append(record(KeptVersion, row, definition=definition, damage=damage))
        return found


_WRITING = "writing the DDL journal"
COPIED = "the copy of its table as of {} already has its effect"
_LONGEST = 60_000
"""Characters of a note or an answer that are stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalRow:
    """One statement of the journal, and the decision about it."""

    identity: DdlId
    name: TableName
    state: str
    query: str
    statement: str
    """What ran last, or was to run."""
    note: str
    answer: str
    seconds: float | None
    running: float | None
    """Seconds since it was started, if its end is not known."""
    started_at: str
    """By the target's clock, in the time zone of this session; empty if it never started."""
    finished_at: str
    decision: Decision | None

    @property
    def version(self) -> int:
        """The statement's TSO."""
        return self.identity.version

    @property
    def resolved(self) -> bool:
        """Whether nothing is left to decide."""
        return self.state in (DONE, SKIPPED)


class StoredJournal(Stored):
    """The journal of one feed."""

    def __init__(self, transactions: StateTransactions) -> None:
        """Read and write it in `transactions`."""
        super().__init__(transactions)
        self._journal = transactions.tables.journal
        self._decisions = transactions.tables.decisions

    def entry(self, step: DdlStep) -> JournalEntry | None:
        """Return the entry of a statement, or None."""
        # Under the lease, though it only reads: whoever has lost it must not act on what the next
        # owner may be changing.
        with self._owned("reading the DDL journal") as connection:
            row = connection.execute(
                select(self._journal).where(*self._is(step.identity))
            ).one_or_none()
        if row is None:
            return None
        return record(JournalEntry, row)

    def _is(self, identity: DdlId) -> list[ColumnElement[bool]]:
        return [
            column == value
            for column, value in zip(self._journal.primary_key, identity, strict=True)
        ]

    def record(
        self,
        step: DdlStep,
        state: str,
        *,
        run: Sent | ExecutionOutcome | None = None,
        note: str = "",
        tables: Iterable[TableProgress] = (),
    ) -> None:
        """Store a statement's state, with ``done`` or ``skipped`` also the tables it moved.

        Both in the same transaction.

        Without a `run`, everything else stays as it is. A run that is sent sets the start time.
        """
        with self._owned(_WRITING) as connection:
            known = select(self._journal.c.state).where(*self._is(step.identity))
            before = connection.execute(known).scalar() if state == DONE else ""
            self._put(connection, step, state, run=run, note=note)
            # In the same transaction, so that a restart never finds the one without the other.
            if state == DONE:
                close_entries(connection, self._tables, step, upto=step.version)
                # Once: a later statement may have given a name to another table since.
                if before != DONE:
                    take_along(connection, self._tables, step)
            put_tables(connection, self._tables, tables, as_they_were=True)

    def refused(self, step: DdlStep, error: str) -> None:
        """Record why a statement stops its table; a started, unresolved one stays started."""
        entry = self.entry(step)
        # A started one may have taken effect: only a look at the target can say that it did not.
        unresolved = entry is not None and entry.state == STARTED
        self.record(step, STARTED if unresolved else FAILED, note=error)

    def copied(self, step: DdlStep, at: int) -> None:
        """Record a statement as done: a copy of its table as of TSO `at` contains its effect."""
        with self._owned(_WRITING) as connection:
            self._put(connection, step, DONE, note=COPIED.format(at))
            # Refused rows of the copy itself have its TSO, and are what the target lacks of the
            # table as it is after the statement.
            close_entries(connection, self._tables, step, upto=min(step.version, at - 1))

    def _put(
        self,
        connection: Connection,
        step: DdlStep,
        state: str,
        *,
        run: Sent | ExecutionOutcome | None = None,
        note: str,
    ) -> None:
        values: dict[str, object] = {"state": state, "note": note[:_LONGEST]}
        if run is not None:
            values |= asdict(run)
        if isinstance(run, ExecutionOutcome):
            values["answer"] = run.answer[:_LONGEST]
        starts = state == STARTED and isinstance(run, Sent)
        finished = state in (DONE, SKIPPED, FAILED)
        times = (
            {"started_at": func.now(6)}
            if starts
            else {"finished_at": func.now(6)}
            if finished
            else {}
        )
        row = {
            "table_dir": step.table_dir,
            "version": step.version,
            "checksum": step.definition.checksum,
            "schema_name": step.origin.name.schema,
            "table_name": step.origin.name.table,
            "query": step.origin.definition.query,
            "statement": "",
            "structure_before": "",
        }
        # What the file says is written once; later records change only state, note, run and times.
        connection.execute(
            insert(self._journal)
            .values(row | values | times)
            .on_duplicate_key_update(**values, **times)
        )

    # what an operator sees and decides

    def unresolved(self) -> list[JournalRow]:
        """Return the statements that are neither done nor skipped, in order."""
        return self._rows(self._journal.c.state.not_in((DONE, SKIPPED)))

    def of_version(self, version: int) -> list[JournalRow]:
        """Return the statements of one version."""
        return self._rows(self._journal.c.version == version)

    def of_directories(self, directories: Collection[str]) -> list[JournalRow]:
        """Return the statements whose schema files are in these table directories."""
        return self._rows(self._journal.c.table_dir.in_(directories)) if directories else []

    def _rows(self, where: ColumnElement[bool]) -> list[JournalRow]:
        journal, decided = self._journal, self._decisions.c
        query = (
            select(
                *(
                    journal,
                    decided.verb,
                    decided.statement.label("instead"),
                    decided.decided_at,
                    decided.decided_by,
                ),
                seconds_between("started_at", "NOW(6)"),
            )
            # Outer: most statements are never decided about.
            .outerjoin_from(journal, self._decisions, same_statement(self._decisions, journal))
            .where(where)
            .order_by(journal.c.version, journal.c.table_dir, journal.c.checksum)
        )
        return [
            record(
                JournalRow,
                row,
                identity=DdlId(row.table_dir, row.version, row.checksum),
                name=name_in(row),
                answer=row.answer or "",
                running=_float(row.started_at_ago) if row.state == STARTED else None,
                started_at=str(row.started_at or ""),
                finished_at=str(row.finished_at or ""),
                # without a verb the outer join found no decision
                decision=row.verb
                and record(Decision, row, statement=row.instead, decided_at=str(row.decided_at)),
            )
            for row in self._read(query)
        ]

    def newest_of(self, table: TableName, most: int) -> tuple[Shown, ...]:
        """Return the newest statements of a table, the newest first."""
        journal = self._journal.c
        query = (
            select(
                journal.version,
                journal.state,
                *(
                    func.left(journal[name], SHOWN_CHARACTERS).label(name)
                    for name in ("query", "statement", "note")
                ),
                journal.seconds,
                seconds_between("started_at", "NOW(6)"),
                seconds_between("finished_at", "NOW(6)"),
            )
            .where(journal.schema_name == table.schema, journal.table_name == table.table)
            .order_by(journal.version.desc(), journal.table_dir, journal.checksum)
            .limit(most)
        )
        return tuple(
            record(
                Shown,
                row,
                seconds=_float(row.started_at_ago if row.state == STARTED else row.seconds),
                ended_ago=_float(row.finished_at_ago),
            )
            for row in self._read(query)
        )

    def waiting(self) -> tuple[StoredStatement, ...]:
        """Return statements neither done nor skipped, in order, and seconds of running ones."""
        return tuple(
            StoredStatement(
                identity=row.identity,
                name=row.name,
                state=row.state,
                query=row.query,
                note=row.note,
                seconds=row.running,
            )
            for row in self.unresolved()
        )

    def decide(self, row: JournalRow, decision: Decision) -> str:
        """Store a decision; return ``stored``, ``same`` as before, or ``resolved`` if too late."""
        journal, decided = self._journal, self._decisions
        of_it = dict(zip(journal.primary_key.columns.keys(), row.identity, strict=True))
        with self._shared("storing a decision") as connection:
            # This lock keeps the consumer from recording an outcome until the decision is stored.
            state = connection.execute(
                select(journal.c.state).filter_by(**of_it).with_for_update()
            ).scalar_one()
            if state in (DONE, SKIPPED):
                return "resolved"
            # Read before it is overwritten, to say whether this changes anything.
            query = select(decided.c.verb, decided.c.statement).filter_by(**of_it).with_for_update()
            before = connection.execute(query).all()
            new = {
                "verb": decision.verb,
                "statement": decision.statement,
                "decided_by": decision.decided_by,
            }
            connection.execute(put(decided, {**of_it, **new, "decided_at": NOW}))
        return "same" if before == [(decision.verb, decision.statement)] else "stored"


def _float(seconds: Any) -> float | None:
    return None if seconds is None else float(seconds)
