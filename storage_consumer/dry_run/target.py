"""The doubles of the target in a planned round: its structure as it stands, statements of which the text is noted, and rows that are counted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from storage_consumer.clock import Clock
from storage_consumer.ddl.rules.catalogue import DIFFERENCES
from storage_consumer.ddl.runner import DdlRunner
from storage_consumer.decode import decoder_for
from storage_consumer.downstream.database import TargetDatabase
from storage_consumer.downstream.existing_names import ForeignKey, PartNames
from storage_consumer.downstream.key_drift import KeyDriftGuard
from storage_consumer.dry_run.result import Outcome, PlannedRows, PlannedStatement
from storage_consumer.dry_run.state import PlannedState
from storage_consumer.errors import DdlFailed, StorageConsumerError
from storage_consumer.inspection.column_history import virtual_after
from storage_consumer.job.spec import FileReport, JobFile, JobSpec, WriteReport
from storage_consumer.job.target_table import TargetColumn, TargetTable
from storage_consumer.model import ParsedDdl, TableName, folded_name
from storage_consumer.pipeline import file_blocks, read_files
from storage_consumer.plan.journal import SKIPPED, DdlAnswer
from storage_consumer.plan.steps import DdlStep
from storage_consumer.ports import DdlContext, TableProgress
from storage_consumer.sql.parse import parse_ddl
from storage_consumer.sql.tokens import Token, has_words, tokens
from storage_consumer.sql.view_columns import reads_all_columns
from storage_consumer.storage.base import Storage
from storage_consumer.summary import Progress, Silent

_SMALL = 64 << 20
"""Bytes of files that are read, to count their rows, without being asked to."""
_ANSWERS = {
    1007: "Can't create database '{}'; database exists",
    1008: "Can't drop database '{}'; database doesn't exist",
    1049: "Unknown database '{}'",
    1050: "Table '{0.table}' already exists",
    1051: "Unknown table '{}'",
    1146: "Table '{}' doesn't exist",
}
Record = Callable[[DdlStep, PlannedStatement], None]


class PlannedStructure:
    """The double of `downstream.structure` and `downstream.key_notes`.

    It answers from the target until a planned statement changes a table; from then on it knows that table's name and columns only.
    """

    def __init__(self, database: TargetDatabase) -> None:
        """Look at `database`, and never change it."""
        self._real = database.structure
        self._notes = database.key_notes
        self._changed: dict[TableName, TargetTable | None] = {}
        """Tables and databases (empty table name) by folded name; None if it is gone."""
        self._emptied: set[str] = set()
        """Folded databases whose tables of now are gone."""
        self._forgotten: set[TableName] = set()
        self.keys_taken: frozenset[TableName] = frozenset()
        """Tables by folded name whose keys are taken as they are, whatever is noted of them."""
        self.created: list[str] = []
        """The databases that planned statements create, in order."""

    def _is_changed(self, name: TableName) -> bool:
        return name.folded() in self._changed or bool(name.table and folded_name(name.schema) in self._emptied)

    def unchecked(self, ddl: ParsedDdl) -> str:
        """Return why a statement cannot be compared with the target; empty if it can."""
        schema, named = ddl.own.schema, [*(each.within(ddl.own.schema) for each in ddl.names), ddl.subject]
        changed = next((name for name in named if self._is_changed(name)), None)
        if changed is None and ddl.has_references:
            # Whether the name of a foreign key is free depends on all tables of the database.
            changed = next((name for name in self._changed if name.table and name.schema == folded_name(schema)), None)
        return f"an earlier statement of this plan changes {changed}" if changed else ""

    # what is there

    def describe(self, wanted: Iterable[TableName]) -> dict[TableName, TargetTable]:
        """Return the tables that are there by then, by folded name."""
        planned, rest = self._divided(wanted)
        found = self._real.describe(rest)
        return planned | {
            name: replace(table, key_drift="") if name in self.keys_taken else table for name, table in found.items()
        }

    def read(self, wanted: Iterable[TableName]) -> dict[TableName, TargetTable]:
        """Return the same, without comparing noted keys."""
        planned, rest = self._divided(wanted)
        return planned | self._real.read(rest)

    def existing(self, wanted: Iterable[TableName]) -> dict[TableName, TableName]:
        """Return folded name → spelling, for the tables and databases that are there by then."""
        planned, rest = self._divided(wanted)
        return self._real.existing(rest) | {name: table.name for name, table in planned.items()}

    def _divided(self, wanted: Iterable[TableName]) -> tuple[dict[TableName, TargetTable], list[TableName]]:
        """Return what planned statements leave of these names, and the names that are still as in the target."""
        names = list(wanted)
        planned = {name.folded(): self._changed.get(name.folded()) for name in names}
        there = {name: table for name, table in planned.items() if table is not None}
        return there, [name for name in names if not self._is_changed(name)]

    def database_collation(self, schema: str) -> str | None:
        """Return the default collation of a database: "" for the source's, None if it is not there by then."""
        name = TableName(schema=schema, table="")
        if self._is_changed(name):
            return None if self._changed[name.folded()] is None else ""
        return self._real.database_collation(schema)

    def part_names(self, name: TableName, found: Sequence[Token] = ()) -> PartNames | None:
        """Return the names of a table's parts; None if a planned statement changes them."""
        return None if self._is_changed(name) else self._real.part_names(name, found)

    def foreign_keys(self, names: Sequence[TableName]) -> tuple[list[ForeignKey], dict[str, list[str]]]:  # noqa: ARG002 - only a server refuses for one
        """Return none."""
        return [], {}

    def fingerprint(self, names: Iterable[TableName]) -> str:
        """Return a digest of the structure of these tables, or a constant where planned statements change one."""
        wanted = list(names)
        return "changed" if any(map(self._is_changed, wanted)) else self._real.fingerprint(wanted)

    def blockers(self, names: Iterable[TableName]) -> tuple[str, ...]:  # noqa: ARG002 - nothing waits
        """Return nobody."""
        return ()

    def close(self) -> None:
        """Do nothing: whoever gave the database closes it."""

    # notes of keys

    def noted(self, names: Iterable[TableName]) -> Mapping[TableName, Sequence[str]]:
        """Return the stored notes of tables for which no planned statement replaces them."""
        return self._notes.noted([name for name in names if name.folded() not in self._forgotten])

    def forget(self, names: Iterable[TableName]) -> None:
        """Pass over these tables from now on."""
        self._forgotten |= {name.folded() for name in names}

    def remember(self, tables: Iterable[TargetTable]) -> None:
        """Note nothing."""

    # what a statement changes

    def apply(self, statement: str, schema: str, step: DdlStep, ignorable: frozenset[int]) -> str:
        """Note what a statement changes; return "", or the server's answer if that is `ignorable`; raise other answers as `DdlFailed`.

        Nothing is compared where an earlier statement has changed a table.
        """
        own = replace(step.name, schema=schema or step.name.schema)
        found, ddl = tokens(statement), parse_ddl(statement, own)
        drops = ddl.head[:1] == ("DROP",) and ddl.head != ("DROP", "INDEX")
        named = {each.within(own.schema): each.new for each in ddl.names if not each.reads} or {own: False}
        if not (self.unchecked(ddl) or has_words(found[:6], "EXISTS")):
            # What a view replaces need not be there; the names of a WITH look like tables.
            needed = [name for name, is_new in named.items() if not (is_new or step.creates_view)]
            if step.creates_view and not has_words(found, "WITH"):
                needed += [each.within(own.schema) for each in ddl.names if each.reads and not each.qualifies]
            missing = (1008, 1051) if drops else (1049, 1146)
            number, name = self._refusal(needed, [name for name, is_new in named.items() if is_new], missing)
            if number:
                answer = f"error {number}: {_ANSWERS[number].format(name)}"
                if number in ignorable:
                    return answer
                raise DdlFailed(answer)
        old = ddl.rename.old if ddl.rename is not None else None
        after: dict[TableName, TargetTable | None] = {}
        for name, is_new in named.items():
            if drops and not name.table:
                self._emptied.add(name.folded().schema)
                self._changed = {each: it for each, it in self._changed.items() if each.schema != name.folded().schema}
            elif is_new and not name.table and not self.existing([name]):
                self.created.append(name.schema)
            after[name.folded()] = None if drops or name == old else self._planned(name, old if is_new else name, step)
        self._changed |= after
        return ""

    def _refusal(
        self, needed: Sequence[TableName], made: Sequence[TableName], missing: tuple[int, int]
    ) -> tuple[int, TableName]:
        """Return the number of the answer about names that have to be there, or may not be there yet, and the name; 0 if there is none.

        `missing`: the numbers for a database and a table.
        """
        homes = [TableName(schema=name.schema, table="") for name in made if name.table]
        there = self.existing([*homes, *needed, *made])
        if lacking := next((name for name in (*homes, *needed) if name.folded() not in there), None):
            return missing[bool(lacking.table)], lacking
        # A rename that changes only the case finds its new name taken by itself.
        freed = {name.folded() for name in needed}
        if taken := next((name for name in made if name.folded() in there.keys() - freed), None):
            return 1050 if taken.table else 1007, taken
        return 0, TableName(schema="", table="")

    def _planned(self, name: TableName, former: TableName | None, step: DdlStep) -> TargetTable:
        """Return what is known of a table that a statement changes: by the schema file where it is the file's own."""
        definition = step.definition
        before = self.read([former]).get(former.folded()) if former is not None and former.table else None
        table = before or TargetTable(name=name, columns=(), unique_keys=(), is_view=step.makes_view)
        columns = table.columns
        if definition.columns and (former != name or name.folded() == definition.name.folded()):
            virtual = virtual_after(table.virtual, definition)
            columns = tuple(
                TargetColumn(
                    name=column.name,
                    data_type="",
                    nullable=True,
                    generated="VIRTUAL" if folded_name(column.name) in virtual else "",
                )
                for column in definition.columns
            )
        return replace(table, name=name if former != name else table.name, columns=columns, is_planned=True)


class PlannedDdl:
    """The double of `ports.Ddl`: the engine's own runner and key guard, over an execution that only notes what it is to send."""

    _step: DdlStep
    _sent: list[tuple[str, str]]
    """What the running step would send: statements and their default databases."""

    def __init__(
        self,
        structure: PlannedStructure,
        state: PlannedState,
        database: TargetDatabase,
        server_type: str,
        clock: Clock,
        record: Record,
    ) -> None:
        """Give each statement to `record`."""
        self._structure = structure
        self._journal = state.journal
        self.zone = database.ddl.zone
        self.statement_zone = database.ddl.statement_zone
        self._record = record
        runner = DdlRunner(structure, self, state.journal, server_type, clock=clock)
        self._guard = KeyDriftGuard(runner, structure, structure)

    def run(self, step: DdlStep, context: DdlContext, moved: Sequence[TableProgress]) -> str:
        """Find out what would be run, and record it; raise what would stop the table."""
        self._step, self._sent = step, []
        unknown = self._structure.unchecked(step.ddl)
        if not unknown and step.creates_view and reads_all_columns(step.definition.query):
            unknown = "its * may stand for other columns than at the source"
        try:
            note = self._guard.run(step, context, moved)
        except StorageConsumerError as fault:
            is_left_out = isinstance(fault, DdlFailed) and fault.left_out
            outcome = Outcome.SKIP if is_left_out else Outcome.HALT
            self._record(step, planned_statement(step, outcome, (str(fault),), self._sent))
            raise
        entry = self._journal.entry(step)
        runs = self._sent and not (step.skip or (entry is not None and entry.state == SKIPPED))
        outcome, unknown = (Outcome.RUN, unknown) if runs else (Outcome.SKIP, "")
        self._record(step, planned_statement(step, outcome, reasons_of(note), self._sent, unknown))
        return note

    def refused(self, step: DdlStep, error: str) -> None:
        """Keep why a statement stops its table."""
        self._journal.refused(step, error)

    def fence(self) -> None:
        """Do nothing: a planned round starts nothing."""

    # what the runner has the target do

    def is_running(self, statement: str) -> bool:  # noqa: ARG002 - whether it still runs, the next round waits for
        """Return False."""
        return False

    def fence_ddl(self) -> bool:
        """Return True: nobody is stopped."""
        return True

    def execute_ddl(
        self,
        statement: str,
        schema: str,
        version: int,  # noqa: ARG002 - the clock of a planned statement does not matter
        ignorable: frozenset[int] = frozenset(),
    ) -> DdlAnswer:
        """Note one statement."""
        self._sent.append((statement, schema))
        return DdlAnswer(ignored=self._structure.apply(statement, schema, self._step, ignorable))

    def close(self) -> None:
        """Do nothing: no connection is opened here."""


def planned_statement(
    step: DdlStep,
    outcome: Outcome,
    reasons: tuple[str, ...],
    sent: Sequence[tuple[str, str]] = (),
    unknown: str = "",
) -> PlannedStatement:
    """Return the record of a step; `sent`: what it would send, with default databases."""
    origin = step.origin
    return PlannedStatement(
        table=str(origin.name),
        version=origin.version,
        path=origin.definition.path,
        original=origin.definition.query,
        run=tuple(text for text, _ in sent),
        schema=sent[-1][1] if sent else "",
        outcome=outcome,
        reasons=reasons,
        unknown=unknown,
    )


def reasons_of(note: str) -> tuple[str, ...]:
    """Return a note in words: what it says of a difference between the servers becomes its reason."""
    return tuple(f"{each}: {DIFFERENCES[each]}" if each in DIFFERENCES else each for each in note.split("; ") if each)


class PlannedRowJobs(Silent):
    """The double of `ports.RowPipeline`. As the round's `Progress` it hears how much there is to read."""

    cores = 1

    def __init__(
        self,
        storage: Storage,
        record: Callable[[list[PlannedRows]], None],
        name_of: Callable[[str], TableName],
        *,
        reads: bool | None,
    ) -> None:
        """Give the rows of each job to `record`; `name_of` returns the name in the bucket of a table's key.

        `reads`: whether to count rows, by reading the files; None reads them if they are few.
        """
        self._storage = storage
        self._record = record
        self._name_of = name_of
        self._asked = reads
        self.reads = bool(reads)

    def round_started(self, *, files: int, size: int, storage_checkpoint: int, statements: int = 0) -> None:  # noqa: ARG002 - of the port
        """Read a little without being asked to."""
        if self._asked is None:
            self.reads = size <= _SMALL

    def run(
        self,
        spec: JobSpec,
        files: Sequence[JobFile],
        progress: Progress,  # noqa: ARG002 - whoever waits for a plan sees no bar
    ) -> list[FileReport | WriteReport]:
        """Return a report for each file, as if all rows had been written."""
        # Where a file is not read, all of its rows lie in the commit range as far as anybody knows.
        reports = {file.file.stored.path: FileReport(table=file.table, path=file.file.stored.path) for file in files}
        if self.reads:
            tables = {table.index: table for table in spec.tables}
            items = read_files(files, tables, 1, partial(file_blocks, self._storage), decoder_for(spec.origins[0]))
            reports = {item.path: item for _, item in items if isinstance(item, FileReport)}
        files_of, reports_of = defaultdict[int, list[JobFile]](list), defaultdict[int, list[FileReport]](list)
        for file in files:
            files_of[file.table].append(file)
        for report in reports.values():
            reports_of[report.table].append(report)
        self._record(
            [
                PlannedRows(
                    table=str(self._name_of(table.table_key)),
                    target=str(table.name),
                    low=table.commit_range.low,
                    high=table.commit_range.high,
                    files=len(files_of[table.index]),
                    size=sum(each.size for each in files_of[table.index]),
                    rows=sum(each.applied for each in reports_of[table.index]) if self.reads else None,
                    duplicates=sum(each.duplicates for each in reports_of[table.index]),
                    later=sum(each.later for each in reports_of[table.index]),
                    error=next((each.error for each in reports_of[table.index] if each.error), ""),
                )
                for table in spec.tables
            ]
        )
        return [*reports.values()]
