"""A planned round: the engine's own round over doubles that write nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from storage_consumer.config.settings import Config
from storage_consumer.driver.context import RoundContext
from storage_consumer.driver.ddl_workers import DdlWorkers
from storage_consumer.driver.ledger import RoundLedger
from storage_consumer.driver.load_starts import is_new_feed
from storage_consumer.driver.renewal import Renewal
from storage_consumer.driver.round import run_round
from storage_consumer.driver.starting import manager_of
from storage_consumer.dry_run.decisions import announced, decided, with_new_keys
from storage_consumer.dry_run.hearing import Heard
from storage_consumer.dry_run.recording import Recording
from storage_consumer.dry_run.result import Outcome, Plan, Stop
from storage_consumer.dry_run.rows import PlannedRowJobs
from storage_consumer.dry_run.sources import PlanSources
from storage_consumer.dry_run.state import PlannedLease, PlannedState
from storage_consumer.dry_run.statements import PlannedDdl, planned_statement
from storage_consumer.dry_run.structure import PlannedStructure
from storage_consumer.plan.directories import Restart
from storage_consumer.plan.loads import LoadPhase
from storage_consumer.plan.manager import ConsumerManager
from storage_consumer.plan.steps import DdlStep
from storage_consumer.poll.reader import StorageReader
from storage_consumer.signals import Stop as StopWish
from storage_consumer.summary import RoundSummary, Silent, TableSummary
from storage_consumer.telemetry import heard_by

_SMALL = 64 << 20
"""Bytes of files that are read, to count their rows, without being asked to."""
_NO_RENEWAL = 3600.0


def planned(sources: PlanSources, *, rows: bool | None = None) -> Plan:
    """Return what the next round would do.

    `rows`: whether to read all files to count their rows; None reads them if they are few. Raises what a round raises when it cannot begin:
    `ConfigError`, `TargetUnavailable`, `StorageUnavailable`.
    """
    recording, heard = Recording(), Heard()
    state = PlannedState(sources.stored, lambda step, error: _refused(recording, step, error))
    structure = PlannedStructure(sources.structure, sources.server_info.server_type)
    with heard_by(heard):
        stored, floor = state.progress.load()
        foreseen = state.decisions.foreseen(tells_time=sources.config.upstream.tells_time)
        restart = decided(stored, foreseen)
        structure.keys_taken = with_new_keys(foreseen)
        manager = manager_of(_with_copy(sources.config, restart, floor), restart, floor, sources.clock.now())
        manager.quarantined.replace(state.quarantine.entries())
        jobs = PlannedRowJobs(sources.storage, recording, lambda key: manager.tables[key].name, reads=bool(rows))

        def runner(_: int) -> PlannedDdl:
            return PlannedDdl(structure, state.journal, sources, recording)

        context = RoundContext(
            config=sources.config,
            reader=_reader(sources, state, restart, floor),
            manager=manager,
            state=state,
            target=structure,
            # In place: a planned statement ends as it begins.
            ddl_workers=DdlWorkers(runner, sources.clock, lambda work: work()),
            pipeline=jobs,
            server_info=sources.server_info,
            progress=_Sizes(jobs, rows),
            clock=sources.clock,
            secrets_file="",
        )
        summary = _round(context, floor)
        filled = tuple(_filled(sources, manager, restart))
    copies = _copies(sources, restart, floor)
    warnings = (*sources.warnings, *copies, *map(announced, foreseen), *heard.texts, *filled)
    return _plan(
        sources,
        summary,
        recording,
        jobs,
        checkpoint=restart.lowest,
        databases=structure.created,
        warnings=warnings,
    )


def _plan(  # noqa: PLR0913 - what a planned round leaves
    sources: PlanSources,
    summary: RoundSummary,
    recording: Recording,
    jobs: PlannedRowJobs,
    *,
    checkpoint: int,
    databases: Iterable[str],
    warnings: tuple[str, ...],
) -> Plan:
    """Return what a planned round came to."""
    return Plan(
        upstream=sources.config.upstream.identity,
        server=f"{sources.server_info.server_type} {sources.server_info.version}",
        state_schema=sources.config.downstream.state_schema,
        first_run=sources.stored is None,
        writer=sources.writer,
        storage_checkpoint=summary.storage_checkpoint,
        checkpoint=checkpoint,
        reached=summary.checkpoint,
        counted=jobs.reads,
        waves=recording.waves,
        halts=_stops(summary, "halted"),
        waits=_stops(summary, "waiting"),
        paused=_stops(summary, "paused"),
        skipped=dict(summary.skipped),
        databases=tuple(dict.fromkeys(databases)),
        warnings=warnings,
    )


def _with_copy(config: Config, restart: Restart, floor: int) -> Config:
    """Return the settings of a plan, which lacks the copy that a new feed begins with."""
    no_copy = config.loading.no_copy or bool(config.loading.dump and is_new_feed(restart, floor))
    return replace(config, loading=replace(config.loading, no_copy=no_copy))


def _copies(sources: PlanSources, restart: Restart, floor: int) -> Iterator[str]:
    """Yield what is going to be loaded from copies, which a plan does not show."""
    dump = sources.config.loading.dump
    if dump and is_new_feed(restart, floor):
        yield (
            f"--dump {dump}: the copy is not looked at. `run` loads its tables first, and what the bucket has up to the copy's TSO counts as "
            "in them; this plan is of a run without a copy"
        )
    for load in restart.loads.values():
        if load.phase in (LoadPhase.REQUESTED, LoadPhase.LOADING):
            instead = ", in place of its rows in the target" if load.replaces else ""
            yield f"{load.name} is loaded from {load.source}{instead}: this plan does not show that"


def _reader(sources: PlanSources, state: PlannedState, restart: Restart, floor: int) -> StorageReader:
    """Return what polls the bucket, from where an earlier run ended."""
    config = sources.config
    interval = config.tuning.full_listing_interval
    reader = StorageReader(sources.storage, config.upstream, sources.clock, full_listing_interval=interval)
    reader.resume(floor, restart.done, state.history.known_versions(), applied=restart.lowest)
    return reader


def _round(context: RoundContext, floor: int) -> RoundSummary:
    """Run the round."""
    # Its lease is nobody's, so the renewal only has to be there.
    renewal = Renewal(PlannedLease(), _NO_RENEWAL, context.clock)
    try:
        ledger = RoundLedger(context=context, stop=StopWish(), renewal=renewal, storage_checkpoint=floor)
        return run_round(context, ledger, take_last_ddl=True, stable_checkpoint=-1)
    finally:
        renewal.stop()


def _refused(recording: Recording, step: DdlStep, error: str) -> None:
    """Record a statement that cannot even begin; what the runner says of one replaces this."""
    recording.statement(planned_statement(step, Outcome.HALT, (error,)), step.identity)


def _stops(summary: RoundSummary, state: str) -> tuple[Stop, ...]:
    return tuple(_stop(table) for table in summary.tables if table.state == state)


def _stop(table: TableSummary) -> Stop:
    return Stop(table=table.table, checkpoint=table.checkpoint, error=table.error)


def _filled(sources: PlanSources, manager: ConsumerManager, restart: Restart) -> Iterable[str]:
    """Yield a warning for each table that is new to this program, and has rows in the target already."""
    routes = manager.selection.routes
    new = [table.name for table in manager.tables.values() if table.name.table and table.key not in restart.tables]
    targets = {routes.target(name).folded(): name for name in new}
    there = sources.structure.read(targets)
    for folded, table in sorted(there.items()):
        if not table.is_view and not table.unseen and sources.structure.has_rows(table.name):
            yield (
                f"not empty: the target's table {table.name} has rows already, and {targets[folded]} is new to this "
                "program. Rows of the source replace those with the same key; the others stay"
            )


class _Sizes(Silent):
    """Hears how much there is to read, and decides whether it is read."""

    def __init__(self, jobs: PlannedRowJobs, wish: bool | None) -> None:  # noqa: FBT001 - private
        self._jobs = jobs
        self._wish = wish

    def round_started(self, *, files: int, size: int, storage_checkpoint: int, statements: int = 0) -> None:  # noqa: ARG002 - of the port
        """Read a little without being asked to."""
        if self._wish is None:
            self._jobs.reads = size <= _SMALL
