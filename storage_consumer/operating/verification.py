"""A run of `verify`: all tables of the state that are meant, several at a time, each with two connections of its own."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import TypeVar

from storage_consumer.checkpoint.store import StateStore, operated
from storage_consumer.config.commands import reaching
from storage_consumer.config.settings import Server
from storage_consumer.config.table_filter import ALL_COLUMNS, CarriedColumns, TableRules, table_rules
from storage_consumer.downstream.reading import Pace, Reading
from storage_consumer.errors import Abandoned, ConfigError, StorageConsumerError, TransientError
from storage_consumer.model import TableName
from storage_consumer.operating.compared_source import ComparedSource
from storage_consumer.operating.verified_table import JUDGED_EVERY, Desk, Ends, TableVerification, Wishes
from storage_consumer.plan.steps import key_of
from storage_consumer.verifying.cut import TableLook, is_compared
from storage_consumer.verifying.healing import heal_command
from storage_consumer.verifying.result import Outcome, TableResult

_AGAIN = 2
T = TypeVar("T")
OpensSource = Callable[[Pace], ComparedSource]
"""Makes what a worker compares with; it keeps the pace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What a run found."""

    run: str
    tables: tuple[TableResult, ...]
    seconds: float = 0.0
    unknown: tuple[TableName, ...] = ()
    """Tables of the source of which the state says nothing: no file of the bucket names them."""

    @property
    def is_equal(self) -> bool:
        """Whether all tables are equal."""
        return all(table.outcome is Outcome.EQUAL for table in self.tables)

    @property
    def differs(self) -> bool:
        """Whether a table differs."""
        return any(table.outcome is Outcome.DIFFERENT for table in self.tables)


def live(source: Server, *, is_frozen: bool) -> OpensSource:
    """Return what compares with a server. `is_frozen`: whether nothing writes to it, so that it need not be a TiDB."""
    return lambda pace: ComparedSource(Reading(source.settings, source.password, "source", pace), is_frozen=is_frozen)


class _SharedDesk(Desk):
    """The state beside the snapshots, on one connection that all workers share; it is opened again after a loss."""

    def __init__(self, target: Server) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._desk: StateStore | None = None

    def _ask(self, question: Callable[[StateStore], T]) -> T:
        with self._lock:
            for _ in range(_AGAIN):
                with suppress(TransientError):
                    return self._answer(question)
                time.sleep(0.2)
            return self._answer(question)

    def _answer(self, question: Callable[[StateStore], T]) -> T:
        self._desk = self._desk or operated(self._target.settings, self._target.password)
        try:
            return question(self._desk)
        except TransientError:
            self._forget()
            raise

    def _forget(self) -> None:
        if self._desk is not None:
            with suppress(StorageConsumerError, OSError):
                self._desk.close()
        self._desk = None

    def now(self, table_key: str) -> TableLook | None:
        """Return what the state says of a table now."""
        return self._ask(lambda desk: desk.verified.now(table_key))

    def put(self, table_key: str, result: TableResult) -> None:
        """Store the result of a table."""
        self._ask(lambda desk: desk.verified.put(table_key, result))

    def next_statement(self, table: TableName, low: int, high: int) -> int:
        """Return the version of the first known statement from `low` to `high` that may touch a table; 0 for none."""
        return self._ask(lambda desk: desk.verified.next_statement(table, low, high))

    def begun(self, wishes: Wishes) -> tuple[str, dict[str, TableResult], dict[str, TableResult]]:
        """Return the name of the run, the tables that are meant by key, and what an interrupted run left of them."""
        tables = self._ask(lambda desk: desk.decisions.tables())
        rules = _rules(wishes)
        run, before = uuid.uuid4().hex, dict[str, TableResult]()
        if wishes.resume:
            run, before = _interrupted(self._ask(lambda desk: desk.verified.all()), wishes.how)
        meant = {
            row.stored.table_key: TableResult(
                table=row.stored.name, target=row.stored.name, outcome=Outcome.UNFINISHED, how=wishes.how, run=run
            )
            for row in tables
            if row.stored.name.table
            and is_compared(row.stored.state, row.stored.error)
            and rules.matches(row.stored.name.schema, row.stored.name.table)
        }
        return run, meant, before

    def known(self) -> frozenset[str]:
        """Return the keys of all tables that the state knows, in whatever state they are."""
        return frozenset(row.stored.table_key for row in self._ask(lambda desk: desk.decisions.tables()))

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._forget()


def _rules(wishes: Wishes) -> TableRules:
    """Return the rules of the tables that are meant; raise `ConfigError` where they cannot be read."""
    try:
        return table_rules((wishes.tables or "*.*",))
    except ValueError as fault:
        raise ConfigError(f"--table: {fault}; a rule such as 'shop.orders' or 'shop.*' is expected") from None


def _interrupted(results: Iterable[TableResult], how: str) -> tuple[str, dict[str, TableResult]]:
    """Return the name of the run of a mode that was broken off, and its results by name of the table; raise `ConfigError` if none was."""
    found = list(results)
    broken_off = [result for result in found if result.outcome is Outcome.UNFINISHED]
    if not broken_off:
        raise ConfigError("--resume: no comparison was broken off; leave it out")
    run = next((result.run for result in broken_off if result.how == how), None)
    if run is None:
        first = broken_off[0]
        raise ConfigError(
            f"--resume: the comparison that was broken off in {first.table} was of another mode, {first.how}. To go on with it, "
            f"{'add' if first.how == 'quick' else 'leave out'} --quick (in Python, how={first.how!r}); to begin a new comparison, leave out --resume"
        )
    return run, {str(result.table): result for result in found if result.run == run}


def verified(
    target: Server,
    source: OpensSource,
    wishes: Wishes,
    *,
    carried: CarriedColumns = ALL_COLUMNS,
    stop: threading.Event | None = None,
    heard: Callable[[TableResult], None] = lambda _: None,
) -> VerifyReport:
    """Compare the tables of a feed with their source, and return what was found, by name. `source` is what `live` returns.

    `carried`: which columns the feed has of each table; the others are not compared.
    `heard` is called with each result as soon as it is there, from any thread. Raises `ConfigError` and `TransientError`; what is known
    by then is stored. Once `stop` is set, it raises `Abandoned`, and the run can be resumed.
    """
    began, stop = time.monotonic(), stop or threading.Event()
    with closing(_SharedDesk(target)) as desk:
        run, meant, before = desk.begun(wishes)
        if not meant:
            raise ConfigError(
                "the state knows no table that is meant" + (f" by --table {wishes.tables}" if wishes.tables else "")
            )
        known = {key: before[str(result.table)] for key, result in meant.items() if str(result.table) in before}
        done = [result for result in known.values() if result.outcome is not Outcome.UNFINISHED]
        open_tables = {
            key: known.get(key, result)
            for key, result in meant.items()
            if known.get(key, result).outcome is Outcome.UNFINISHED
        }
        # Known from the start, so that a run that is killed can be resumed wherever it was.
        for key, result in open_tables.items():
            desk.put(key, result)
        done += _all(_Run(target, source, wishes, carried, desk, stop, heard), open_tables)
        # The newest cut: what was created until then has come to the state, or comes at once. None if no table could be compared.
        newest, there = max(result.checkpoint for result in done), frozenset[TableName]()
        if newest:
            with closing(source(Pace())) as one:
                there = one.tables(newest)
        known_now, rules = desk.known(), _rules(wishes)
        unknown = (name for name in there if key_of(name) not in known_now and rules.matches(name.schema, name.table))
        return VerifyReport(
            run=run,
            tables=tuple(sorted(done, key=lambda each: str(each.table))),
            seconds=round(time.monotonic() - began, 3),
            unknown=tuple(sorted(unknown)),
        )


@dataclass(frozen=True, slots=True)
class _Run:
    """What the workers of a run share."""

    target: Server
    source: OpensSource
    wishes: Wishes
    carried: CarriedColumns
    desk: Desk
    stop: threading.Event
    heard: Callable[[TableResult], None]


def _all(run: _Run, tables: Mapping[str, TableResult]) -> list[TableResult]:
    """Compare these tables, several at a time."""
    free: SimpleQueue[Ends] = SimpleQueue()
    paces = [Pace(run.wishes.rows_per_second) for _ in range(2)]
    everyone = []
    for _ in range(min(run.wishes.workers, len(tables))):
        ends = Ends(
            run.source(paces[0]),
            Reading(run.target.settings, run.target.password, "target", paces[1]),
        )
        everyone.append(ends)
        free.put(ends)

    def compared(work: TableVerification) -> TableVerification:
        ends = free.get()
        try:
            work.run(ends)
        finally:
            free.put(ends)
        return work

    with ThreadPoolExecutor(max_workers=max(1, len(everyone)), thread_name_prefix="verify") as pool:
        try:
            return list(_results(run, tables, lambda work: pool.submit(compared, work)))
        except BaseException:
            # The others end at their next chunk.
            run.stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        finally:
            pool.shutdown()
            for ends in everyone:
                ends.close()


def _results(
    run: _Run, tables: Mapping[str, TableResult], begin: Callable[[TableVerification], Future[TableVerification]]
) -> Iterator[TableResult]:
    """Yield the results of these tables. One whose differences do not count yet keeps no worker from another table."""
    running = {
        begin(
            TableVerification(
                table_key=key,
                wishes=run.wishes,
                desk=run.desk,
                schema=run.target.settings.state_schema,
                stop=run.stop,
                carried=run.carried,
                result=result,
            )
        )
        for key, result in tables.items()
    }
    aside: list[TableVerification] = []
    while running or aside:
        ended, running = wait(running, timeout=JUDGED_EVERY if aside else None, return_when=FIRST_COMPLETED)
        aside += [each.result() for each in ended]
        verdicts = [(work, work.judge()) for work in aside]
        yield from (_told(run, work) for work, verdict in verdicts if verdict == "final")
        running |= {begin(work) for work, verdict in verdicts if verdict == "again"}
        aside = [work for work, verdict in verdicts if verdict == "later"]
        if aside and not running and run.stop.wait(JUDGED_EVERY):
            raise Abandoned("the comparison was broken off")


def _told(run: _Run, work: TableVerification) -> TableResult:
    """Return a table's result, which is known by now."""
    found = work.result
    if found.outcome is Outcome.DIFFERENT:
        found = replace(found, heal=heal_command(found, reaching(run.target.settings)))
        run.desk.put(work.table_key, found)
    run.heard(found)
    return found
