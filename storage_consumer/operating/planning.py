"""A planned round: the engine's own round over doubles that write nothing.

They are the stored state with the round's writes in memory over it, the target's structure as it
stands, statements of which the text is noted, and rows that are counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from storage_consumer.bucket.reader import StorageReader
from storage_consumer.bucket.storage import Storage
from storage_consumer.bucket.table_statements import generated_after
from storage_consumer.checkpoint.store import StateStore
from storage_consumer.clock import Clock
from storage_consumer.clock import Stop as StopWish
from storage_consumer.config.settings import Config
from storage_consumer.decode import decoder_for
from storage_consumer.driver.ddl_workers import DdlWorkers
from storage_consumer.driver.lease import Renewal
from storage_consumer.driver.ledger import RoundContext, RoundLedger
from storage_consumer.driver.load_starts import LoadStarts, is_new_feed
from storage_consumer.driver.open_copies import LoadingState, OpenCopy
from storage_consumer.driver.round import run_round
from storage_consumer.driver.service import manager_of
from storage_consumer.errors import DdlFailed, StorageConsumerError
from storage_consumer.model import DdlId, ParsedDdl, TableName, folded_name
from storage_consumer.operating.planned import (
    Outcome,
    Plan,
    PlannedRows,
    PlannedStatement,
    PlannedStop,
    PlannedWave,
)
from storage_consumer.operating.state_questions import PlannedState, decided
from storage_consumer.plan.directories import Restart
from storage_consumer.plan.journal_entry import SKIPPED, DdlAnswer
from storage_consumer.plan.loads import LoadPhase
from storage_consumer.plan.manager import ConsumerManager
from storage_consumer.plan.steps import DdlStep
from storage_consumer.plan.table_decisions import Foreseen
from storage_consumer.ports import Ddl, DdlContext, TableProgress
from storage_consumer.rows.fitting import TargetColumn, TargetTable
from storage_consumer.rows.halves import file_blocks, read_files
from storage_consumer.rows.spec import FileReport, JobFile, JobSpec, WriteReport
from storage_consumer.sql.parse import parse_ddl, reads_all_columns
from storage_consumer.sql.tokens import Token, has_words, tokens
from storage_consumer.summary import Progress, RoundSummary, Silent
from storage_consumer.target.database import TargetDatabase
from storage_consumer.target.ddl.catalogue import DIFFERENCES
from storage_consumer.target.ddl.runner import DdlRunner
from storage_consumer.target.existing_names import ForeignKey, PartNames
from storage_consumer.telemetry import heard_by

_NO_RENEWAL = 3600.0
_OF_KEYS = ("accept-keys", "reload-done")
"""Decisions after which a table goes on by the key that the target has."""
_TEXTS = frozenset(("notice", "storage_warning", "schema_warning"))
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
    """The double of `downstream.database`.

    It answers from the target until a planned statement changes a table; from then on it knows that
    table's name and columns only.
    """

    step: DdlStep
    """The running one."""

    def __init__(self, database: TargetDatabase) -> None:
        """Look at `database`, and never change it."""
        self._real = database
        self.zone = database.zone
        self.statement_zone = database.statement_zone
        self.sent: list[tuple[str, str]] = []
        """What the running step would send: statements and their default databases."""
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
        return name.folded() in self._changed or bool(
            name.table and folded_name(name.schema) in self._emptied
        )

    def unchecked(self, ddl: ParsedDdl) -> str:
        """Return why a statement cannot be compared with the target; empty if it can."""
        schema, named = (
            ddl.own.schema,
            [*(each.within(ddl.own.schema) for each in ddl.names), ddl.subject],
        )
        changed = next((name for name in named if self._is_changed(name)), None)
        if changed is None and ddl.has_references:
            # Whether the name of a foreign key is free depends on all tables of the database.
            changed = next(
                (
                    name
                    for name in self._changed
                    if name.table and name.schema == folded_name(schema)
                ),
                None,
            )
        return f"an earlier statement of this plan changes {changed}" if changed else ""

    # what is there

    def describe(self, wanted: Iterable[TableName]) -> dict[TableName, TargetTable]:
        """Return the tables that are there by then, by folded name."""
        planned, rest = self._divided(wanted)
        found = self._real.describe(rest)
        return planned | {
            name: replace(table, key_drift="") if name in self.keys_taken else table
            for name, table in found.items()
        }

    def read(self, wanted: Iterable[TableName]) -> dict[TableName, TargetTable]:
        """Return the same, without comparing noted keys."""
        planned, rest = self._divided(wanted)
        return planned | self._real.read(rest)

    def existing(self, wanted: Iterable[TableName]) -> dict[TableName, TableName]:
        """Return folded name → spelling, for the tables and databases that are there by then."""
        planned, rest = self._divided(wanted)
        return self._real.existing(rest) | {name: table.name for name, table in planned.items()}

    def _divided(
        self, wanted: Iterable[TableName]
    ) -> tuple[dict[TableName, TargetTable], list[TableName]]:
        """Split names into what planned statements leave of them and those still in the target."""
        names = list(wanted)
        planned = {name.folded(): self._changed.get(name.folded()) for name in names}
        there = {name: table for name, table in planned.items() if table is not None}
        return there, [name for name in names if not self._is_changed(name)]

    def database_collation(self, schema: str) -> str | None:
        """Return a database's default collation: "" if the source's, None if it will not exist."""
        name = TableName(schema=schema, table="")
        if self._is_changed(name):
            return None if self._changed[name.folded()] is None else ""
        return self._real.database_collation(schema)

    def part_names(self, name: TableName, found: Sequence[Token] = ()) -> PartNames | None:
        """Return the names of a table's parts; None if a planned statement changes them."""
        return None if self._is_changed(name) else self._real.part_names(name, found)

    def foreign_keys(
        self,
        names: Sequence[TableName],  # noqa: ARG002 - only a server refuses for one
    ) -> tuple[list[ForeignKey], dict[str, list[str]]]:
        """Return none."""
        return [], {}

    def fingerprint(self, names: Iterable[TableName]) -> str:
        """Return a digest of these tables' structure, or a constant if a plan changes one."""
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
        return self._real.noted([name for name in names if name.folded() not in self._forgotten])

    def forget(self, names: Iterable[TableName]) -> None:
        """Pass over these tables from now on."""
        self._forgotten |= {name.folded() for name in names}

    def remember(self, names: Iterable[TableName]) -> None:
        """Note nothing."""

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
        """Note a statement and its changes; return the server's answer, raised unless `ignorable`.

        Nothing is compared where an earlier statement has changed a table.
        """
        step = self.step
        self.sent.append((statement, schema))
        own = replace(step.name, schema=schema or step.name.schema)
        found, ddl = tokens(statement), parse_ddl(statement, own)
        drops = ddl.head[:1] == ("DROP",) and ddl.head != ("DROP", "INDEX")
        named = {each.within(own.schema): each.new for each in ddl.names if not each.reads} or {
            own: False
        }
        if not (self.unchecked(ddl) or has_words(found[:6], "EXISTS")):
            # What a view replaces need not be there; the names of a WITH look like tables.
            needed = [name for name, is_new in named.items() if not (is_new or step.creates_view)]
            if step.creates_view and not has_words(found, "WITH"):
                needed += [
                    each.within(own.schema)
                    for each in ddl.names
                    if each.reads and not each.qualifies
                ]
            missing = (1008, 1051) if drops else (1049, 1146)
            number, answer = self._refusal(
                needed, [name for name, is_new in named.items() if is_new], missing
            )
            if number in ignorable:
                return DdlAnswer(ignored=answer)
            if number:
                raise DdlFailed(answer)
        old = ddl.rename.old if ddl.rename is not None else None
        after: dict[TableName, TargetTable | None] = {}
        for name, is_new in named.items():
            if drops and not name.table:
                self._emptied.add(name.folded().schema)
                self._changed = {
                    each: it
                    for each, it in self._changed.items()
                    if each.schema != name.folded().schema
                }
            elif is_new and not name.table and not self.existing([name]):
                self.created.append(name.schema)
            after[name.folded()] = (
                None
                if drops or name == old
                else _planned(self, name, old if is_new else name, step)
            )
        self._changed |= after
        return DdlAnswer()

    def _refusal(
        self, needed: Sequence[TableName], made: Sequence[TableName], missing: tuple[int, int]
    ) -> tuple[int, str]:
        """Return number and text of the answer about names that must exist, or not; 0 for none.

        `missing`: the numbers for a database and a table.
        """
        homes = [TableName(schema=name.schema, table="") for name in made if name.table]
        there = self.existing([*homes, *needed, *made])
        number, at = (
            0,
            next((name for name in (*homes, *needed) if name.folded() not in there), None),
        )
        if at is not None:
            number = missing[bool(at.table)]
        # A rename that changes only the case finds its new name taken by itself.
        elif at := next(
            (name for name in made if name.folded() in there.keys() - {n.folded() for n in needed}),
            None,
        ):
            number = 1050 if at.table else 1007
        return number, f"error {number}: {_ANSWERS[number].format(at)}" if number else ""


def _planned(
    there: PlannedStructure, name: TableName, former: TableName | None, step: DdlStep
) -> TargetTable:
    """Return a table as a statement leaves it, by its own schema file if there is one."""
    definition = step.definition
    before = (
        there.read([former]).get(former.folded()) if former is not None and former.table else None
    )
    table = before or TargetTable(name=name, columns=(), unique_keys=(), is_view=step.makes_view)
    columns = table.columns
    if definition.columns and (former != name or name.folded() == definition.name.folded()):
        virtual = generated_after(table.virtual, definition, stored=False)
        columns = tuple(
            TargetColumn(
                name=column.name,
                data_type="",
                nullable=True,
                generated="VIRTUAL" if folded_name(column.name) in virtual else "",
            )
            for column in definition.columns
        )
    return replace(
        table, name=name if former != name else table.name, columns=columns, is_planned=True
    )


class PlannedDdl:
    """Stands in for `ports.Ddl`: the engine's runner over a target that only notes."""

    def __init__(
        self,
        structure: PlannedStructure,
        state: PlannedState,
        server_type: str,
        clock: Clock,
        record: Record,
    ) -> None:
        """Give each statement to `record`."""
        self._structure = structure
        self._journal = state.journal
        self._record = record
        self._runner = DdlRunner(structure, state.journal, server_type, clock=clock)

    def run(self, step: DdlStep, context: DdlContext, moved: Sequence[TableProgress]) -> str:
        """Find out what would be run, and record it; raise what would stop the table."""
        self._structure.step, self._structure.sent = step, []
        unknown = self._structure.unchecked(step.ddl)
        if not unknown and step.creates_view and reads_all_columns(step.definition.query):
            unknown = "its * may stand for other columns than at the source"
        try:
            note = self._runner.run(step, context, moved)
        except StorageConsumerError as fault:
            is_left_out = isinstance(fault, DdlFailed) and fault.left_out
            outcome = Outcome.SKIP if is_left_out else Outcome.HALT
            self._record(
                step, planned_statement(step, outcome, (str(fault),), self._structure.sent)
            )
            raise
        entry = self._journal.entry(step)
        runs = self._structure.sent and not (
            step.skip or (entry is not None and entry.state == SKIPPED)
        )
        outcome, unknown = (Outcome.RUN, unknown) if runs else (Outcome.SKIP, "")
        self._record(
            step, planned_statement(step, outcome, reasons_of(note), self._structure.sent, unknown)
        )
        return note

    def refused(self, step: DdlStep, error: str) -> None:
        """Keep why a statement stops its table."""
        self._journal.refused(step, error)

    def fence(self) -> None:
        """Do nothing: a planned round starts nothing."""

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
    """Return a note in words: a difference between servers becomes its reason."""
    return tuple(
        f"{each}: {DIFFERENCES[each]}" if each in DIFFERENCES else each
        for each in note.split("; ")
        if each
    )


class PlannedRowJobs(Silent):
    """Stands in for `ports.RowPipeline`; as the round's `Progress` it gets the amount to read."""

    cores = 1

    def __init__(
        self,
        storage: Storage,
        record: Callable[[list[PlannedRows]], None],
        name_of: Callable[[str], TableName],
        *,
        reads: bool | None,
    ) -> None:
        """Give each job's rows to `record`; `name_of`: a table key's name in the bucket.

        `reads`: whether to count rows, by reading the files; None reads them if they are few.
        """
        self._storage = storage
        self._record = record
        self._name_of = name_of
        self._asked = reads
        self.reads = bool(reads)

    def round_started(
        self,
        *,
        files: int,  # noqa: ARG002 - as the protocol has it
        size: int,
        storage_checkpoint: int,  # noqa: ARG002 - as the protocol has it
        statements: int = 0,  # noqa: ARG002 - of the port
    ) -> None:
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
        reports = {
            file.file.stored.path: FileReport(table=file.table, path=file.file.stored.path)
            for file in files
        }
        if self.reads:
            tables = {table.index: table for table in spec.tables}
            items = read_files(
                files, tables, 1, partial(file_blocks, self._storage), decoder_for(spec.origins[0])
            )
            reports = {item.path: item for _, item in items if isinstance(item, FileReport)}
        files_of, reports_of = (
            defaultdict[int, list[JobFile]](list),
            defaultdict[int, list[FileReport]](list),
        )
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
                    rows=sum(each.applied for each in reports_of[table.index])
                    if self.reads
                    else None,
                    duplicates=sum(each.duplicates for each in reports_of[table.index]),
                    later=sum(each.later for each in reports_of[table.index]),
                    error=next((each.error for each in reports_of[table.index] if each.error), ""),
                )
                for table in spec.tables
            ]
        )
        return [*reports.values()]


@dataclass(slots=True)
class Heard:
    """Keeps what the engine warns of while it plans, each text once; see `telemetry.heard_by`."""

    texts: list[str] = field(default_factory=list)

    def __call__(self, event: str, _: int, fields: Mapping[str, object]) -> None:
        """Keep warnings about bucket or settings; the plan has what the round says of itself."""
        text = str(fields.get("text", "")) if event in _TEXTS else ""
        if event == "checkpoint_missing":
            text = "the bucket has no readable metadata: nothing is applied before TiCDC writes it"
        if text and text not in self.texts:
            self.texts.append(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSources:
    """The bucket, the target and its state; all of them are only read."""

    config: Config
    storage: Storage
    stored: StateStore | None
    """The state; None if the target has none of this bucket."""
    database: TargetDatabase
    writer: str
    """See `Plan.writer`."""
    clock: Clock
    heard: Heard
    """What was warned of so far; the plan adds to it."""
    open_copy: Callable[[str], OpenCopy] | None = None
    """Opens the copy that a new feed begins with; None where a run makes it first."""


def planned(sources: PlanSources, *, rows: bool | None = None) -> Plan:
    """Return what the next round would do; raise what a round raises that cannot begin.

    `rows`: whether to read all files to count their rows; None reads them if they are few.
    """
    config, clock, server = sources.config, sources.clock, sources.database.server_info()
    waves: list[tuple[list[PlannedRows], dict[DdlId, PlannedStatement]]] = [([], {})]

    def record(step: DdlStep, statement: PlannedStatement) -> None:
        # It replaces what was recorded of it before in the same wave.
        waves[-1][1][step.identity] = statement

    state = PlannedState(
        sources.stored,
        lambda step, error: record(step, planned_statement(step, Outcome.HALT, (error,))),
    )
    structure = PlannedStructure(sources.database)
    with heard_by(sources.heard):
        stored, floor = state.load()
        foreseen = state.foreseen(tells_time=config.upstream.tells_time)
        restart = decided(stored, foreseen)
        obeyed = (each for each in foreseen if not each.refusal and each.decision.verb in _OF_KEYS)
        structure.keys_taken = frozenset(each.place.folded() for each in obeyed)
        # A plan is of a run without the copy that a new feed begins with.
        dump = config.loading.dump if is_new_feed(restart, floor) else ""
        config = replace(
            config, loading=replace(config.loading, no_copy=config.loading.no_copy or bool(dump))
        )
        # How many jobs a pace makes of the rows shows only where they are written.
        config = replace(config, tuning=replace(config.tuning, rows_per_second=0))
        manager = manager_of(config, restart, floor, clock.now())
        manager.quarantined.replace(state.entries())
        interval = config.tuning.full_listing_interval
        reader = StorageReader(
            sources.storage, config.upstream, clock, full_listing_interval=interval
        )
        reader.resume(floor, restart.done, state.known_versions(), applied=restart.lowest)
        jobs = PlannedRowJobs(
            sources.storage,
            lambda counted: waves.append((counted, {})),  # two jobs in a row are two waves
            lambda key: manager.tables[key].name,
            reads=rows,
        )
        ddl = PlannedDdl(structure, state, server.server_type, clock, record)
        context = RoundContext(
            config=config,
            reader=reader,
            manager=manager,
            state=state,
            target=structure,
            # In place: a planned statement ends as it begins.
            ddl_workers=DdlWorkers(lambda _: ddl, clock, lambda work: work()),
            pipeline=jobs,
            server_info=server,
            progress=jobs,
            clock=clock,
            secrets_file="",
        )
        _judge_copy(sources, context, ddl, dump)
        summary = _round(context, floor)
    made = (PlannedWave(rows=tuple(c), statements=tuple(m.values())) for c, m in waves if c or m)
    return Plan(
        upstream=config.upstream.identity,
        server=f"{server.server_type} {server.version}",
        state_schema=config.downstream.state_schema,
        first_run=sources.stored is None,
        writer=sources.writer,
        storage_checkpoint=summary.storage_checkpoint,
        checkpoint=restart.lowest,
        reached=summary.checkpoint,
        counted=jobs.reads,
        waves=tuple(made),
        halts=_stops(summary, "halted"),
        waits=_stops(summary, "waiting"),
        paused=_stops(summary, "paused"),
        skipped=dict(summary.skipped),
        databases=tuple(dict.fromkeys(structure.created)),
        warnings=(*_warnings(sources, manager, restart, dump, foreseen), *sources.heard.texts),
    )


def _judge_copy(sources: PlanSources, context: RoundContext, ddl: Ddl, dump: str) -> None:
    """Raise what a run raises for a new feed's copy; `dump`: its URI, "" for none."""
    if dump and sources.open_copy is not None:
        loading = LoadingState(
            open_copy=sources.open_copy,
            ddl=ddl,
            has_rows=sources.database.has_rows,
            is_ours=lambda _: True,
        )
        LoadStarts(context, loading).judge_feed(dump, context.reader.checkpoint_now())


def _round(context: RoundContext, floor: int) -> RoundSummary:
    # Its lease is nobody's, so the renewal only has to be there.
    renewal = Renewal(context.state.lease, _NO_RENEWAL, context.clock)
    try:
        ledger = RoundLedger(
            context=context, stop=StopWish(), renewal=renewal, storage_checkpoint=floor
        )
        return run_round(context, ledger, take_last_ddl=True, stable_checkpoint=-1)
    finally:
        renewal.stop()


def _warnings(
    sources: PlanSources,
    manager: ConsumerManager,
    restart: Restart,
    dump: str,
    foreseen: Iterable[Foreseen],
) -> Iterator[str]:
    """Yield what a plan does not show: copies to load, tables with rows, decisions.

    `dump`: the copy of a new feed.
    """
    if dump:
        yield (
            f"--dump {dump}: `run` loads its tables first, and what the bucket has up to the copy's TSO counts as "
            "in them; this plan is of a run without a copy"
        )
    for load in restart.loads.values():
        if load.phase in (LoadPhase.REQUESTED, LoadPhase.LOADING):
            instead = ", in place of its rows in the target" if load.replaces else ""
            yield f"{load.name} is loaded from {load.source}{instead}: this plan does not show that"
    # Tables that are new to this program.
    routes, structure = manager.selection.routes, sources.database
    new = [
        table.name
        for table in manager.tables.values()
        if table.name.table and table.key not in restart.tables
    ]
    targets = {routes.target(name).folded(): name for name in new}
    for folded, table in sorted(structure.read(targets).items()):
        if not table.is_view and not table.unseen and structure.has_rows(table.name):
            yield (
                f"not empty: the target's table {table.name} has rows already, and {targets[folded]} is new to this "
                "program. Rows of the source replace those with the same key; the others stay"
            )
    for each in foreseen:
        made = each.decision
        who = f"`{made.verb}` of the table {each.table.name}, decided by {made.decided_by} at {made.decided_at} UTC,"
        obeyed = "is obeyed before the next round: this plan counts on it"
        yield f"{who} {f'would be refused: {each.refusal}' if each.refusal else obeyed}"


def _stops(summary: RoundSummary, state: str) -> tuple[PlannedStop, ...]:
    return tuple(
        PlannedStop(table=table.table, checkpoint=table.checkpoint, error=table.error)
        for table in summary.tables
        if table.state == state
    )
