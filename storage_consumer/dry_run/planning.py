"""A planned round: the engine's own round over doubles that write nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from storage_consumer.checkpoint.store import StateStore
from storage_consumer.clock import Clock
from storage_consumer.config.settings import Config
from storage_consumer.downstream.database import TargetDatabase
from storage_consumer.driver.context import RoundContext
from storage_consumer.driver.ddl_workers import DdlWorkers
from storage_consumer.driver.ledger import RoundLedger
from storage_consumer.driver.load_starts import is_new_feed
from storage_consumer.driver.renewal import Renewal
from storage_consumer.driver.round import run_round
from storage_consumer.driver.starting import manager_of
from storage_consumer.dry_run.result import Outcome, Plan, PlannedRows, PlannedStatement, PlannedWave, Stop
from storage_consumer.dry_run.state import PlannedState, announced, decided
from storage_consumer.dry_run.target import PlannedDdl, PlannedRowJobs, PlannedStructure, planned_statement
from storage_consumer.model import DdlId
from storage_consumer.plan.directories import Restart
from storage_consumer.plan.loads import LoadPhase
from storage_consumer.plan.manager import ConsumerManager
from storage_consumer.plan.steps import DdlStep
from storage_consumer.poll.reader import StorageReader
from storage_consumer.signals import Stop as StopWish
from storage_consumer.storage.base import Storage
from storage_consumer.summary import RoundSummary
from storage_consumer.telemetry import heard_by

_NO_RENEWAL = 3600.0
_TEXTS = frozenset(("notice", "storage_warning", "schema_warning"))


@dataclass(slots=True)
class Heard:
    """Keeps what the engine warns of while it plans, each text once; see `telemetry.heard_by`."""

    texts: list[str] = field(default_factory=list)

    def __call__(self, event: str, _: int, fields: Mapping[str, object]) -> None:
        """Keep a warning about bucket or settings; what the round says of itself is part of the plan already."""
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


def planned(sources: PlanSources, *, rows: bool | None = None) -> Plan:
    """Return what the next round would do.

    `rows`: whether to read all files to count their rows; None reads them if they are few. Raises what a round raises when it cannot begin:
    `ConfigError`, `TargetUnavailable`, `StorageUnavailable`.
    """
    config, clock = sources.config, sources.clock
    server = sources.database.session.server_info()
    waves: list[tuple[list[PlannedRows], dict[DdlId, PlannedStatement]]] = [([], {})]

    def record(step: DdlStep, statement: PlannedStatement) -> None:
        # It replaces what was recorded of it before in the same wave.
        waves[-1][1][step.identity] = statement

    state = PlannedState(
        sources.stored, lambda step, error: record(step, planned_statement(step, Outcome.HALT, (error,)))
    )
    structure = PlannedStructure(sources.database)
    with heard_by(sources.heard):
        stored, floor = state.load()
        foreseen = state.foreseen(tells_time=config.upstream.tells_time)
        restart = decided(stored, foreseen)
        structure.keys_taken = frozenset(
            each.place.folded()
            for each in foreseen
            if not each.refusal and each.decision.verb in ("accept-keys", "reload-done")
        )
        # A plan is of a run without the copy that a new feed begins with.
        dump = config.loading.dump if is_new_feed(restart, floor) else ""
        config = replace(config, loading=replace(config.loading, no_copy=config.loading.no_copy or bool(dump)))
        manager = manager_of(config, restart, floor, clock.now())
        manager.quarantined.replace(state.entries())
        reader = StorageReader(
            sources.storage, config.upstream, clock, full_listing_interval=config.tuning.full_listing_interval
        )
        reader.resume(floor, restart.done, state.known_versions(), applied=restart.lowest)
        jobs = PlannedRowJobs(
            sources.storage,
            lambda counted: waves.append((counted, {})),  # two jobs in a row are two waves
            lambda key: manager.tables[key].name,
            reads=rows,
        )
        ddl = PlannedDdl(structure, state, sources.database, server.server_type, clock, record)
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
        summary = _round(context, floor)
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
        waves=tuple(
            PlannedWave(rows=tuple(counted), statements=tuple(made.values()))
            for counted, made in waves
            if counted or made
        ),
        halts=_stops(summary, "halted"),
        waits=_stops(summary, "waiting"),
        paused=_stops(summary, "paused"),
        skipped=dict(summary.skipped),
        databases=tuple(dict.fromkeys(structure.created)),
        warnings=(*_warnings(sources, manager, restart, dump), *map(announced, foreseen), *sources.heard.texts),
    )


def _round(context: RoundContext, floor: int) -> RoundSummary:
    # Its lease is nobody's, so the renewal only has to be there.
    renewal = Renewal(context.state.lease, _NO_RENEWAL, context.clock)
    try:
        ledger = RoundLedger(context=context, stop=StopWish(), renewal=renewal, storage_checkpoint=floor)
        return run_round(context, ledger, take_last_ddl=True, stable_checkpoint=-1)
    finally:
        renewal.stop()


def _warnings(sources: PlanSources, manager: ConsumerManager, restart: Restart, dump: str) -> Iterator[str]:
    """Yield what a plan does not show: copies that are going to be loaded (`dump`: that of a new feed), and tables that have rows already."""
    if dump:
        yield (
            f"--dump {dump}: the copy is not looked at. `run` loads its tables first, and what the bucket has up to the copy's TSO counts as "
            "in them; this plan is of a run without a copy"
        )
    for load in restart.loads.values():
        if load.phase in (LoadPhase.REQUESTED, LoadPhase.LOADING):
            instead = ", in place of its rows in the target" if load.replaces else ""
            yield f"{load.name} is loaded from {load.source}{instead}: this plan does not show that"
    # Tables that are new to this program.
    routes, structure = manager.selection.routes, sources.database.structure
    new = [table.name for table in manager.tables.values() if table.name.table and table.key not in restart.tables]
    targets = {routes.target(name).folded(): name for name in new}
    for folded, table in sorted(structure.read(targets).items()):
        if not table.is_view and not table.unseen and structure.has_rows(table.name):
            yield (
                f"not empty: the target's table {table.name} has rows already, and {targets[folded]} is new to this "
                "program. Rows of the source replace those with the same key; the others stay"
            )


def _stops(summary: RoundSummary, state: str) -> tuple[Stop, ...]:
    return tuple(
        Stop(table=table.table, checkpoint=table.checkpoint, error=table.error)
        for table in summary.tables
        if table.state == state
    )
