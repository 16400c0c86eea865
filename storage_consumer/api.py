"""The library entry: `Consumer` wires the parts; only this and `cli` name adapters."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from types import TracebackType
from typing import Self, Unpack
from weakref import finalize

from storage_consumer import __version__
from storage_consumer.bucket.inspector import InspectedBucket, completed, inspect
from storage_consumer.bucket.reader import StorageReader
from storage_consumer.bucket.stores import open_storage
from storage_consumer.checkpoint.store import StateStore, operated
from storage_consumer.clock import Clock, Stop, StopSignal, SystemClock
from storage_consumer.config.load import Loaded, load, load_source, with_time_zone
from storage_consumer.config.options import Options
from storage_consumer.config.private_files import remove_secrets, write_secrets
from storage_consumer.config.settings import Server
from storage_consumer.config.table_filter import CarriedColumns
from storage_consumer.decode import decoder_for
from storage_consumer.decode.csv_dialect import caveat
from storage_consumer.decode.values import zone_caveat
from storage_consumer.driver.ddl_workers import WORKERS, DdlWorkers
from storage_consumer.driver.lease import readable
from storage_consumer.driver.ledger import RoundContext
from storage_consumer.driver.open_copies import LoadingState, OpenCopy
from storage_consumer.driver.service import ConsumerService, wait_for_metadata
from storage_consumer.errors import TransientError
from storage_consumer.model import TableName
from storage_consumer.operating.checks import warn_at_start
from storage_consumer.operating.exporting import export_of_feed, opened_export
from storage_consumer.operating.planned import Plan
from storage_consumer.operating.planning import Heard, PlanSources, planned
from storage_consumer.operating.retries import QuarantineRetries
from storage_consumer.operating.state_questions import request_load, status_now, status_site
from storage_consumer.operating.verification import VerifyOptions, VerifyReport, Wishes, verified
from storage_consumer.plan.loads import Load
from storage_consumer.plan.manager import ConsumerManager
from storage_consumer.plan.selection import Selection
from storage_consumer.ports import Ddl, Journal
from storage_consumer.spark.pipeline import SparkPipeline
from storage_consumer.summary import Progress, RoundSummary, RunningStatement
from storage_consumer.target.connection import hurry, no_hurry
from storage_consumer.target.database import TargetDatabase
from storage_consumer.target.ddl.runner import DdlRunner
from storage_consumer.target.server_trust import unverified
from storage_consumer.telemetry import Log, heard_by, listen
from storage_consumer.watch.collector import MetricSources, Showing, processes
from storage_consumer.watch.recorder import Recorder, Reporting
from storage_consumer.watch.status import Status

_log = Log("api")
_PAUSE = 1.0
"""Seconds between two attempts to look at a bucket that does not answer."""


class Consumer:
    """Keeps a target database equal to the source of a TiCDC bucket.

    ::

        with Consumer(upstream_uri="file:///bucket?protocol=csv",
        downstream_uri="mysql://root@127.0.0.1:3306/",
                      config="changefeed.toml") as consumer:
            summary = consumer.run_once()

    Every option of ``storage-consumer run`` is a keyword of the same name with underscores;
    `config` is a path or a mapping. An active SparkSession is used and left running; without one,
    the consumer starts a local session and stops it at the end. Several consumers can follow one
    another in a process. The constructor checks the settings (`ConfigError`); nothing outside is
    touched before the first round.
    """

    def __init__(self, *, progress: Progress | None = None, **options: Unpack[Options]) -> None:
        """Load and check the settings, or raise `ConfigError`; `progress`: gets every round's."""
        self._loaded: Loaded = load(options, os.environ)
        self._clock = SystemClock()
        # The program brings its own recorder to show; any other `progress` is fed from ours.
        recorder = (
            progress
            if isinstance(progress, Recorder)
            else Recorder(self._clock, __version__, progress)
        )
        recorder.limit = self._loaded.config.tuning.rows_per_second
        self._recorder = recorder
        recorder.assumed = self._loaded.config.loading.assumed
        # A consumer that is dropped without being closed must not be kept, nor called, by the log.
        self._stop_listening = finalize(
            self, listen(lambda event, _level, fields: recorder.heard(event, fields))
        )
        self._reporting: Reporting | None = None
        self._stop = Stop()
        # The event that connections obey now: `close` has to forget this very one.
        self._hurried = self._stop.requested
        self._secrets_file = ""
        self._has_warned = False
        self._copies = _Copies(lambda: self._loaded)
        self._pipeline: SparkPipeline | None = None
        self._service: ConsumerService | None = None
        self._ddl_workers: DdlWorkers | None = None
        self._copy_ddl: DdlRunner | None = None
        sources = MetricSources(
            facts=self._recorder.facts,
            is_writer=lambda: self.is_writer,
            statements=self.running_statements,
            processes=partial(processes, self._loaded.config.downstream.port),
            silent_seconds=lambda: self.silent_seconds,
            expiration_days=self._loaded.config.upstream.file_expiration_days,
        )
        page = status_site(
            self._loaded.config.downstream,
            self._loaded.secrets.password,
            self._recorder,
            SystemClock(),
            max_lag=self._loaded.config.monitoring.ready_lag,
        )
        self._showing = Showing(self._loaded.config.monitoring, sources, page.routes())

    @property
    def notices(self) -> tuple[str, ...]:
        """Settings that were accepted without effect, or that were assumed."""
        return self._loaded.notices

    @property
    def is_writer(self) -> bool:
        """Whether this process has the lease, as far as it knows; False on standby.

        Also while it waits for the bucket.
        """
        # Read once: scrapes and probes ask while another thread closes the consumer.
        service = self._service
        return service is not None and service.is_writer

    @property
    def silent_seconds(self) -> float | None:
        """Seconds since a thread of the consumer last began to wait; None before the first.

        That is while the settings are checked.

        All waits count: between two rounds, on standby, before a retry, and those of the lease's
        renewals. The latter go on while a job or a statement runs, however long it takes. So only a
        consumer that hangs is silent for minutes.
        Threads that only watch have clocks of their own: their waits say nothing about the
        consumer.
        """
        silent = self._clock.silent_seconds()
        # The first look at a large bucket takes long, and holds no lease that could be renewed.
        return 0.0 if silent is not None and self._service is None else silent

    def __enter__(self) -> Self:
        """Return the consumer; nothing is opened before the first round."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the consumer."""
        if error is not None:
            self._recorder.failed(str(error))
        self.close()

    def run_once(self, stop: StopSignal | None = None) -> RoundSummary:
        """Run a round up to the bucket's checkpoint (inclusive), with a DDL at exactly that ts.

        Return its summary.

        The summary lists halted tables with their errors. Only what stops the whole run is raised:
        `ConfigError`, `NoMetadata` if TiCDC has not begun to write, `LeaseHeld`, `LeaseLost`, and
        `TransientError` after all retries. Once `stop` is requested, the round ends after the step
        that is running.
        """
        # Before bucket and target are read: a start may take long, and a standby waits.
        self._showing.start()
        asked = self._heeding(stop)
        return (
            self._started().run_once(asked) if self._has_begun(asked, once=True) else RoundSummary()
        )

    def run(self, stop: StopSignal | None = None) -> RoundSummary:
        """Run rounds until `stop` is requested; return the summary of the last one."""
        self._showing.start()
        asked = self._heeding(stop)
        return self._started().run(asked) if self._has_begun(asked, once=False) else RoundSummary()

    def plan(self, *, rows: bool | None = None) -> Plan:
        """Return what `run_once` would do now, without writing anything or taking a lease.

        `rows`: whether to read all data files to count their rows; None reads them only if they are
        few. It needs no right but to read, and may be called beside a running consumer. Raises
        `ConfigError`, `NoMetadata` if TiCDC has not begun to write, and `TransientError` if bucket
        or target do not answer.
        """
        with heard_by(heard := Heard()):
            self._complete()
            config, secrets = self._loaded.config, self._loaded.secrets
            storage = open_storage(config.upstream, secrets)
            wait_for_metadata(
                config.upstream,
                lambda _: storage,
                config.tuning,
                self._clock,
                self._stop,
                once=True,
            )
        database = TargetDatabase(config.downstream, secrets.password)
        reader = StateStore(config.downstream, secrets.password, "reader")
        with closing(database), closing(reader):
            has_state = reader.schema.look(config.upstream.identity)
            holder = reader.lease.holder() if has_state else ""
            sources = PlanSources(
                config=config,
                storage=storage,
                stored=reader if has_state else None,
                database=database,
                writer=readable(holder) if holder else "",
                clock=self._clock,
                heard=heard,
                open_copy=partial(_open_copy, self._loaded)
                if self._loaded.source is None
                else None,
            )
            return planned(sources, rows=rows)

    def status(self, *, max_lag: float | None = None, needs_writer: bool = True) -> Status:
        """Return the feed's status from its state in the target, as ``storage-consumer status``.

        `max_lag`: the most seconds that the checkpoint may lie back, None for any number. Without
        `needs_writer` it is no fault that nobody writes at the moment. It may be called beside a
        running consumer, also from another thread. Raises `ConfigError` if the target has no state,
        and `TargetUnavailable` if it does not answer.
        """
        downstream = self._loaded.config.downstream
        with closing(operated(downstream, self._loaded.secrets.password)) as state:
            return status_now(state, downstream, max_lag=max_lag, needs_writer=needs_writer)

    def load(self, table: str, dump: str, *, dump_tz: str = "", replace: bool = False) -> Load:
        """Request a table's load, as ``storage-consumer load --table … --dump …``.

        Return what was stored.

        `table` is ``database.table``, `dump` the URI of an export by Dumpling or mydumper, and
        `dump_tz` the zone of its TIMESTAMP values where its files do not say it. `replace`: whether
        to empty the target's table first; otherwise it has to be empty or not there. The consumer
        that writes to the target loads the table, before its next round or when it starts;
        ``status().snapshot.loads`` shows how far that is. Raises `ConfigError` for an unclear table
        or URI, for a target without a state, and where the table is being loaded already;
        `TargetUnavailable` if the target does not answer.
        """
        downstream = self._loaded.config.downstream
        with closing(operated(downstream, self._loaded.secrets.password)) as state:
            return request_load(state, table, with_time_zone(dump, dump_tz), replaces=replace)

    def verify(
        self,
        *,
        source: str,
        source_password_file: str | None = None,
        frozen: bool = False,
        stop: threading.Event | None = None,
        **options: Unpack[VerifyOptions],
    ) -> VerifyReport:
        """Compare the target with its source, as ``storage-consumer verify`` does.

        Both are as of one commit-ts for each table.

        `source` is the URI of the TiDB that the changefeed reads, or with `frozen` of any server
        that nobody writes to. `options` are the fields of `VerifyOptions`; with ``repair="apply"``
        rows that differ are written as the source has them. It may be called beside a running
        consumer, also from another thread; once `stop` is set it raises `Abandoned`. Raises
        `ConfigError`, and `TransientError` if a server or store does not answer.
        """
        wishes, loaded = Wishes(**options, frozen=frozen), self._loaded
        target = Server(settings=loaded.config.downstream, password=loaded.secrets.password)
        upstream = loaded.config.upstream
        carried = CarriedColumns(
            selectors=upstream.column_selectors, case_sensitive=upstream.case_sensitive
        )
        server = load_source(
            source, source_password_file, os.environ, target.settings, frozen=frozen
        )
        return verified(target, server, wishes, carried=carried, stop=stop)

    def running_statements(self) -> tuple[RunningStatement, ...]:
        """Return the statements that run on the target now; from any thread."""
        workers = self._ddl_workers
        if workers is None:
            return ()
        return tuple(
            RunningStatement(
                table=str(step.name),
                version=step.version,
                query=step.definition.query,
                seconds=seconds,
            )
            for step, seconds in workers.running
        )

    def abandon(self) -> None:
        """End without finishing the running transactions; the target rolls them back."""
        if self._pipeline is not None:
            self._pipeline.cancel()

    def close(self) -> None:
        """Release the lease, close connections, stop our own Spark session; safe to repeat."""
        # Workers before the lease: only its owner can store the outcome of a statement.
        if self._ddl_workers is not None:
            self._ddl_workers.close()
            self._ddl_workers = None
        if self._copy_ddl is not None:
            self._copy_ddl.close()
            self._copy_ddl = None
        # The last report, and then the lease: without it nothing may be reported any more.
        if self._reporting is not None:
            self._reporting.stop()
            self._reporting = None
        if self._service is not None:
            self._service.close()
            self._service = None
        if self._secrets_file:
            remove_secrets(self._secrets_file)
            self._secrets_file = ""
        if self._pipeline is not None:
            self._pipeline.close()
            self._pipeline = None
        self._stop_listening()
        no_hurry(self._hurried)
        # Last: probes get an answer for as long as there is anything to end.
        self._showing.close()

    def _heeding(self, stop: StopSignal | None) -> StopSignal:
        """Return the stop signal in force: `stop` or ours.

        Until `close`, no connection waits long once it is requested.
        """
        stop = stop or self._stop
        no_hurry(self._hurried)
        hurry(stop.requested)
        self._hurried = stop.requested
        return stop

    def _has_begun(self, stop: StopSignal, *, once: bool) -> bool:
        """Return whether there is a bucket; wait unless `once`; False if `stop` comes first."""
        if self._service is not None:
            return True
        config, secrets = self._loaded.config, self._loaded.secrets
        return wait_for_metadata(
            config.upstream,
            lambda upstream: open_storage(upstream, secrets),
            config.tuning,
            self._clock,
            stop,
            once=once,
        )

    def _started(self) -> ConsumerService:
        """Return the service, built at first use: bucket and target are checked before Spark."""
        if self._service is None:
            self._complete()
            config, secrets = self._loaded.config, self._loaded.secrets
            for check in (
                open_storage(config.upstream, secrets).check,
                TargetDatabase(config.downstream, secrets.password).check,
            ):
                # no answer yet: the first round tries again, up to the retry limit
                with suppress(TransientError):
                    check()
            # Closures and Spark properties must carry no secret: workers read them from this file.
            self._secrets_file = write_secrets(secrets)
            state = StateStore(config.downstream, secrets.password)
            # With a clock of its own: see `silent_seconds`.
            self._reporting = Reporting(self._recorder, state.reports, SystemClock())
            assemble = partial(self._context, state=state)
            self._service = ConsumerService(config, state, assemble, self._clock, self._copies.look)
        return self._service

    def _complete(self) -> None:
        """Infer settings that were not given from the bucket; check that it has a decoder."""
        if self._loaded.unset:
            bucket = _looked_at(self._loaded, self._clock, self._stop)
            self._loaded = completed(self._loaded, bucket)
            for each in bucket.settings:
                if each.state == "inferred":
                    _log.info("inferred", option=each.name, value=each.value, source=each.origin)
            for each in bucket.assumed:
                text = (
                    f"--{each.name} is assumed to be {each.value!r}, TiCDC's default: {each.origin}"
                )
                _log.warning("notice", text=f"{text}. If the changefeed has another value, give it")
        upstream = self._loaded.config.upstream
        risk = unverified(self._loaded.config.downstream)
        for text in (self._loaded.warning, caveat(upstream), zone_caveat(upstream.time_zone), risk):
            if text:
                _log.warning("notice", text=text)
        decoder_for(upstream)

    def _context(self, manager: ConsumerManager, state: StateStore) -> RoundContext:
        """Return what rounds work with; keep the Spark pipeline and DDL workers while usable."""
        config, secrets = self._loaded.config, self._loaded.secrets
        database = TargetDatabase(config.downstream, secrets.password)
        server_info = database.server_info()
        if not self._has_warned:
            self._has_warned = True
            warn_at_start(database.rows, wants_local_infile=config.tuning.local_infile)
        # A Spark context that died cannot be revived; a new one is opened below.
        if self._pipeline is not None and self._pipeline.lost:
            self._pipeline.close()
            self._pipeline = None
        if self._pipeline is None:
            self._pipeline = SparkPipeline.open(config.tuning)
        self._pipeline.prepare(config.upstream, self._secrets_file)
        if self._ddl_workers is None:
            self._ddl_workers = DdlWorkers(
                lambda worker: _ddl_runner(
                    self._loaded, worker, state.journal, server_info.server_type, self._clock
                ),
                self._clock,
            )
        if self._copy_ddl is None:
            # One more than the workers have, so that its lock is none of theirs.
            self._copy_ddl = _ddl_runner(
                self._loaded, WORKERS, state.journal, server_info.server_type, self._clock
            )
        storage = open_storage(config.upstream, secrets)
        return RoundContext(
            config=config,
            reader=StorageReader(
                storage,
                config.upstream,
                self._clock,
                full_listing_interval=config.tuning.full_listing_interval,
            ),
            manager=manager,
            state=state,
            target=database,
            ddl_workers=self._ddl_workers,
            pipeline=self._pipeline,
            server_info=server_info,
            progress=self._recorder,
            clock=self._clock,
            secrets_file=self._secrets_file,
            loading=_loading(
                self._loaded, database, self._copy_ddl, self._hurried.is_set, self._copies.open
            ),
            retry_quarantined=QuarantineRetries(state, secrets.password),
        )


def _looked_at(loaded: Loaded, clock: Clock, stop: StopSignal) -> InspectedBucket:
    """Return the bucket once it answers; raise `TransientError` after the retry limit."""
    storage = open_storage(loaded.config.upstream, loaded.secrets)
    deadline = clock.monotonic() + loaded.config.tuning.retry_limit
    while True:
        try:
            storage.check()
            return inspect(storage, loaded.config.upstream, loaded.origins, clock.now())
        except TransientError:
            if clock.monotonic() >= deadline or clock.wait(stop.requested, _PAUSE):
                raise


def _ddl_runner(
    loaded: Loaded, worker: int, journal: Journal, server_type: str, clock: Clock
) -> DdlRunner:
    """Return what runs the statements of one worker, on a connection of its own."""
    config = loaded.config
    database = TargetDatabase(config.downstream, loaded.secrets.password, worker)
    return DdlRunner(
        database, journal, server_type, clock=clock, patience=config.tuning.ddl_patience
    )


def _loading(
    loaded: Loaded,
    database: TargetDatabase,
    ddl: Ddl,
    ended: Callable[[], bool],
    open_copy: Callable[[str], OpenCopy],
) -> LoadingState:
    """Return what loads tables from copies.

    `ddl` runs the statements of copies; `ended`: whether the run has been asked to end.
    """

    def is_ours(name: TableName) -> bool:
        return bool(database.noted([name]))

    is_taken = _is_taken(loaded)

    return LoadingState(
        open_copy=open_copy,
        ddl=ddl,
        has_rows=database.has_rows,
        is_ours=is_ours,
        make_copy=(lambda judge: export_of_feed(loaded, is_taken, ended, judge))
        if loaded.source is not None
        else None,
    )


def _is_taken(loaded: Loaded) -> Callable[[TableName], bool]:
    """Return what tells whether the filter takes a table of a copy."""
    selection = Selection.of(loaded.config.selecting, loaded.config.downstream.state_schema)
    return lambda name: not selection.filter.leaves_out(name)


def _open_copy(loaded: Loaded, uri: str) -> OpenCopy:
    """Return the copy at a URI, with the tables that the filter takes."""
    return opened_export(uri, loaded.config.upstream, loaded.secrets, is_taken=_is_taken(loaded))[0]


class _Copies:
    """Opens copies; one read before Spark started is not read again for its first use."""

    def __init__(self, loaded: Callable[[], Loaded]) -> None:
        """Open nothing yet; `loaded` returns the settings that hold by then."""
        self._loaded = loaded
        self._opened: dict[str, OpenCopy] = {}

    def look(self) -> None:
        """Open a feed's first copy, unless it is still to be made; see `ConsumerService`."""
        loaded = self._loaded()
        if loaded.source is None:
            self._opened[loaded.config.loading.dump] = _open_copy(
                loaded, loaded.config.loading.dump
            )

    def open(self, uri: str) -> OpenCopy:
        """Return the copy at a URI."""
        return self._opened.pop(uri, None) or _open_copy(self._loaded(), uri)
