"""The statements of a planned round: the engine decides about each, and what it would send is recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from storage_consumer.ddl.rules.catalogue import DIFFERENCES
from storage_consumer.ddl.runner import DdlRunner
from storage_consumer.downstream.key_drift import KeyDriftGuard
from storage_consumer.dry_run.open_questions import open_question
from storage_consumer.dry_run.recording import Recording
from storage_consumer.dry_run.refusals import Refused
from storage_consumer.dry_run.result import Outcome, PlannedStatement
from storage_consumer.dry_run.sources import NotedKeys, PlanSources, Zones
from storage_consumer.dry_run.structure import PlannedStructure
from storage_consumer.errors import DdlFailed, StorageConsumerError
from storage_consumer.job.target_table import TargetTable
from storage_consumer.model import TableName
from storage_consumer.plan.journal import SKIPPED, DdlAnswer
from storage_consumer.plan.steps import DdlStep
from storage_consumer.ports import DdlContext, Journal, TableProgress


class PlannedDdl:
    """The double of `ports.Ddl`: the engine's own runner, with an execution that only changes `structure`."""

    def __init__(
        self, structure: PlannedStructure, journal: Journal, sources: PlanSources, recording: Recording
    ) -> None:
        """Record each statement in `recording`."""
        self._journal = journal
        self._server_type = sources.server_info.server_type
        self._recording = recording
        self._execution = _Execution(structure, sources.zones)
        runner = DdlRunner(structure, self._execution, journal, self._server_type, clock=sources.clock)
        self._guard = KeyDriftGuard(runner, structure, _Notes(sources.notes))

    def run(self, step: DdlStep, context: DdlContext, moved: Sequence[TableProgress]) -> str:
        """Find out what would be run, and record it; raise what would stop the table."""
        self._execution.begin(step)
        try:
            note = self._guard.run(step, context, moved)
        except StorageConsumerError as fault:
            self._record(
                step, Outcome.SKIP if isinstance(fault, DdlFailed) and fault.left_out else Outcome.HALT, (str(fault),)
            )
            raise
        entry = self._journal.entry(step)
        is_skipped = step.skip or not self._execution.sent or (entry is not None and entry.state == SKIPPED)
        self._record(step, Outcome.SKIP if is_skipped else Outcome.RUN, reasons_of(note))
        return note

    def _record(self, step: DdlStep, outcome: Outcome, reasons: tuple[str, ...]) -> None:
        sent = self._execution.sent
        self._recording.statement(
            planned_statement(
                step,
                outcome,
                reasons,
                run=tuple(statement for statement, _ in sent),
                schema=sent[-1][1] if sent else "",
                unknown=next(filter(None, (open_question(text, self._server_type) for text, _ in sent)), ""),
            ),
            step.identity,
        )

    def refused(self, step: DdlStep, error: str) -> None:
        """Keep why a statement stops its table."""
        self._guard.refused(step, error)

    def fence(self) -> None:
        """Do nothing: a planned round starts nothing."""

    def close(self) -> None:
        """Do nothing: no connection is open."""


def planned_statement(
    step: DdlStep,
    outcome: Outcome,
    reasons: tuple[str, ...],
    *,
    run: tuple[str, ...] = (),
    schema: str = "",
    unknown: str = "",
) -> PlannedStatement:
    """Return the record of a step."""
    origin = step.origin
    return PlannedStatement(
        table=str(origin.name),
        version=origin.version,
        path=origin.definition.path,
        original=origin.definition.query,
        run=run,
        schema=schema,
        outcome=outcome,
        reasons=reasons,
        unknown=unknown,
    )


def reasons_of(note: str) -> tuple[str, ...]:
    """Return a note in words: what it says of a difference between the servers becomes its reason."""
    return tuple(f"{each}: {DIFFERENCES[each]}" if each in DIFFERENCES else each for each in note.split("; ") if each)


class _Execution:
    """Takes statements, and lays what they change over the structure."""

    def __init__(self, structure: PlannedStructure, zones: Zones) -> None:
        self._structure = structure
        self._zones = zones
        self._step: DdlStep | None = None
        self.sent: list[tuple[str, str]] = []
        """Statements and their default databases, since the step began."""

    @property
    def zone(self) -> str:
        """The time zone of the feed."""
        return self._zones.zone

    def begin(self, step: DdlStep) -> None:
        """Take the statements of a step from now on."""
        self._step, self.sent = step, []

    def statement_zone(self, version: int) -> str:
        """Return what the target would use."""
        return self._zones.statement_zone(version)

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
        """Record one statement."""
        self.sent.append((statement, schema))
        if self._step is None:
            return DdlAnswer()
        try:
            self._structure.apply(statement, schema, self._step.definition)
        except Refused as fault:
            number, text = fault.args
            if number in ignorable:
                return DdlAnswer(ignored=f"error {number}: {text}")
            raise DdlFailed(f"error {number}: {text}") from fault
        return DdlAnswer()

    def close(self) -> None:
        """Do nothing."""


class _Notes:
    """Notes of keys that are read; of what a planned statement changed there is none."""

    def __init__(self, stored: NotedKeys) -> None:
        self._stored = stored
        self._forgotten: set[TableName] = set()

    def noted(self, names: Iterable[TableName]) -> Mapping[TableName, Sequence[str]]:
        """Return the stored notes of tables that no planned statement has changed."""
        return self._stored.noted([name for name in names if name.folded() not in self._forgotten])

    def forget(self, names: Iterable[TableName]) -> None:
        """Pass over these tables from now on."""
        self._forgotten |= {name.folded() for name in names}

    def remember(self, tables: Iterable[TargetTable]) -> None:
        """Note nothing."""
