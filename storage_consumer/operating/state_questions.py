"""Questions to a target's state, and requests of loads; and the state that a plan stands on.

A request is stored in the state, and a consumer obeys it before its next round, or when it starts.
A plan reads the state once, and keeps what its round would write in memory.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from typing import TypeVar

from storage_consumer.checkpoint.store import StateStore, operated
from storage_consumer.checkpoint.tables import LoadRow
from storage_consumer.clock import Clock
from storage_consumer.config.commands import command
from storage_consumer.config.settings import Downstream
from storage_consumer.driver.lease import user
from storage_consumer.driver.remedies import table_command
from storage_consumer.errors import ConfigError
from storage_consumer.model import DdlId, TableDefinition, TableName
from storage_consumer.plan.ddl_backlog import TableEntries
from storage_consumer.plan.directories import Restart
from storage_consumer.plan.finished_files import Finished
from storage_consumer.plan.journal_entry import DONE, FAILED, STARTED, JournalEntry, Sent
from storage_consumer.plan.journal_entry import ExecutionOutcome as Happened
from storage_consumer.plan.loads import Load, LoadPhase
from storage_consumer.plan.steps import DdlStep, key_of
from storage_consumer.plan.table_decisions import Foreseen, Obeyed, Verb, held, is_skipped
from storage_consumer.plan.table_state import TableState
from storage_consumer.plan.table_words import meant, named, table_flag
from storage_consumer.ports import Decision, Loads, TableProgress
from storage_consumer.rows.spec import TaskStatements
from storage_consumer.watch.page import Look, Site
from storage_consumer.watch.recorder import Recorder
from storage_consumer.watch.report import ShownEntry
from storage_consumer.watch.status import Status, judged, load_progress

_MINUTES = 24 * 60
"""Minutes of the feed's course that are read."""
_STATEMENTS = 50
"""Newest statements of one table that are shown."""


def status_now(
    desk: StateStore,
    downstream: Downstream,
    *,
    max_lag: float | None = None,
    needs_writer: bool = True,
) -> Status:
    """Return a feed's status by one snapshot of its state; for other parameters see `judged`."""
    return judged(
        desk.snapshot(),
        lambda verb, name: table_command(verb, name, downstream),
        max_lag=max_lag,
        needs_writer=needs_writer,
    )


def status_site(
    downstream: Downstream,
    password: str,
    recorder: Recorder,
    clock: Clock,
    *,
    max_lag: float | None = None,
) -> Site:
    """Return a feed's status page; `max_lag`: seconds until a checkpoint counts as behind."""

    def look() -> Look:
        with closing(operated(downstream, password)) as desk:
            return desk.snapshot(), desk.reports.minutes(_MINUTES)

    def journal(table: TableName) -> tuple[ShownEntry, ...]:
        with closing(operated(downstream, password)) as desk:
            return desk.journal.newest_of(table, _STATEMENTS)

    def command(verb: Verb, name: TableName) -> str:
        return table_command(verb, name, downstream)

    return Site(recorder, clock, look=look, journal=journal, command=command, max_lag=max_lag)


def request_load(desk: StateStore, given: str, source: str, *, replaces: bool) -> Load:
    """Store a request to load a table from an export; raise `ConfigError` during a load.

    Return what was stored.

    `given`: the table in an operator's words. `source`: the export's URI, with what has to be told
    of its files. `replaces`: whether the target's table is emptied first.
    """
    name = meant_table(desk, given)
    wish = Load(
        table_key=key_of(name),
        name=name,
        load_id=uuid.uuid4().hex,
        source=source,
        replaces=replaces,
    )
    refuse_running(desk, desk.loads.request(wish, user()))
    return wish


def refuse_running(desk: StateStore, row: LoadRow | None) -> None:
    """Raise `ConfigError` if this is a load that has begun and not ended."""
    if row is not None and row.load.phase == LoadPhase.LOADING:
        raise ConfigError(
            f"{row.load.name} is being loaded from {row.load.source} ({load_progress(row.load)}). To load it from elsewhere, first run: "
            f"{command(f'load cancel {table_flag(row.load.name)}', desk.downstream)}"
        )


def meant_table(desk: StateStore, given: str) -> TableName:
    """Return the table that is meant: known to the state or, as for a copy, the given name.

    Raises `ConfigError` where the words are no table's name, or several tables'.
    """
    known = [name for row in desk.decisions.tables() if (name := row.stored.name).table]
    return next(iter(meant(given, known, lambda name: name)), None) or named(
        "--table", given, whole=True
    )


# the state that a planned round stands on

_V = TypeVar("_V")


class PlannedState:
    """Stands in for `ports.State`, and for each of its parts: their methods have unique names."""

    def __init__(
        self, stored: StateStore | None, on_refusal: Callable[[DdlStep, str], None]
    ) -> None:
        """Read from `stored`, None without a state; `on_refusal` gets why a statement stops."""
        self._stored = stored
        self._on_refusal = on_refusal
        self._entries: dict[DdlId, JournalEntry] = {}
        self._read: defaultdict[tuple[str, int], dict[int, TableDefinition]] = defaultdict(dict)
        self.lease = PlannedLease()
        self.skip: Callable[..., None] = lambda *_, **__: None
        self.progress = self.journal = self.history = self.decisions = self.quarantine = (
            self.verified
        ) = self

    @property
    def loads(self) -> Loads:
        """Not there: tables whose copies are being written stand still in a plan."""
        raise AssertionError("a plan loads nothing")

    def open(self, upstream: str) -> None:
        """Create nothing."""

    def close(self) -> None:
        """Do nothing: whoever gave the stored state closes it."""

    # progress

    def load(self) -> tuple[Restart, int]:
        """Return what is stored, or the state of a first start."""
        return (Restart(), 0) if self._stored is None else self._stored.progress.load()

    def save(
        self,
        *,
        tables: Iterable[TableProgress],
        sequences: Mapping[str, Finished],
        checkpoint: int,
        storage_checkpoint: int,
        lowest: int | None = None,
        joined: Collection[str] = (),
    ) -> None:
        """Store nothing: the manager knows what moved."""

    # journal

    def entry(self, step: DdlStep) -> JournalEntry | None:
        """Return the planned entry of a statement, else the stored one."""
        planned = self._entries.get(step.identity)
        return (
            planned
            if planned is not None or self._stored is None
            else self._stored.journal.entry(step)
        )

    def record(
        self,
        step: DdlStep,
        state: str,
        *,
        run: Sent | Happened | None = None,
        note: str = "",
        tables: Iterable[TableProgress] = (),  # noqa: ARG002 - the manager knows what moved
    ) -> None:
        """Keep the state of a statement."""
        before = self.entry(step) or JournalEntry(state="", structure_before="", note="")
        # What was sent stays in the entry when the outcome is recorded, as in the stored journal.
        sent = run if isinstance(run, Sent) else before
        self._entries[step.identity] = JournalEntry(
            state=state, structure_before=sent.structure_before, note=note, statement=sent.statement
        )

    def refused(self, step: DdlStep, error: str) -> None:
        """Keep why a statement stops its table; a started one stays started."""
        entry = self.entry(step)
        unresolved = entry is not None and entry.state == STARTED
        self.record(step, STARTED if unresolved else FAILED, note=error)
        self._on_refusal(step, error)

    def copied(self, step: DdlStep, at: int) -> None:  # noqa: ARG002 - the note is for whoever reads the journal
        """Keep that a statement is done."""
        self.record(step, DONE)

    # history

    def keep(self, read: Iterable[tuple[str, TableDefinition]]) -> None:
        """Keep what was read now."""
        for table_dir, definition in read:
            self._read[table_dir, definition.version][definition.checksum] = definition

    def kept(self, table_dir: str, version: int) -> list[TableDefinition]:
        """Return what the schema files of one version directory said, before or now."""
        stored = [] if self._stored is None else self._stored.history.kept(table_dir, version)
        found = {each.checksum: each for each in stored} | self._read.get((table_dir, version), {})
        return [found[checksum] for checksum in sorted(found)]

    def known_versions(self) -> frozenset[tuple[str, int]]:
        """Return what was read before."""
        return frozenset() if self._stored is None else self._stored.history.known_versions()

    def unresolved(self) -> list[tuple[str, int]]:
        """Return what was read before and did not run."""
        return [] if self._stored is None else self._stored.history.unresolved()

    # decisions

    def on_statements(self) -> Mapping[DdlId, Decision]:
        """Return the decisions about statements that wait."""
        return {} if self._stored is None else self._stored.decisions.on_statements()

    def waiting(self) -> tuple[bool, bool]:
        """Return that there is nothing to apply, and nothing to load."""
        return False, False

    def apply_to_tables(
        self,
        busy: Collection[str] = (),  # noqa: ARG002 - as the protocol has it
        *,
        tells_time: bool = True,  # noqa: ARG002 - none is applied
    ) -> list[Obeyed]:
        """Apply none: the plan begins with what they make of the state."""
        return []

    def foreseen(self, *, tells_time: bool = True) -> list[Foreseen]:
        """Return what the next round is going to make of decisions about tables."""
        return (
            [] if self._stored is None else self._stored.decisions.foreseen(tells_time=tells_time)
        )

    # the rest

    def entries(self) -> Mapping[str, TableEntries]:
        """Return what the stored quarantine holds; a plan adds nothing."""
        return {} if self._stored is None else self._stored.quarantine.entries()

    def doubt(self, table_key: str, document: Mapping[str, object]) -> None:
        """Store nothing."""


class PlannedLease:
    """A lease that is always ours, and keeps nobody out."""

    epoch = 0

    def __init__(self) -> None:
        """Have no statements for tasks, of which there are none."""
        self.task_statements = TaskStatements(
            lock_slot="", claim_slot="", close_slot="", lock_checkpoint="", store_checkpoint=""
        )

    def acquire(self, holder: str, ttl: float, *, dead: str = "") -> str:  # noqa: ARG002 - nothing is acquired
        """Return that nobody prevents it."""
        return ""

    def renew(self, ttl: float) -> bool:  # noqa: ARG002 - nothing runs out
        """Return True."""
        return True

    def release(self) -> None:
        """Do nothing."""

    def open_window(
        self,
        partitions: int,  # noqa: ARG002 - as the protocol has it
        storage_checkpoint: int,  # noqa: ARG002 - as the protocol has it
        writes: Mapping[str, int] | None = None,  # noqa: ARG002 - no task writes
    ) -> int:
        """Return 0."""
        return 0


def decided(restart: Restart, foreseen: Iterable[Foreseen]) -> Restart:
    """Return the stored state as the next round finds it after obeying these decisions."""
    for each in foreseen:
        key, table, verb = each.decision.table_key, each.table, each.decision.verb
        # A decision takes the place of an earlier one, even where it is refused.
        stays = verb == "pause" or (verb == "reload-done" and bool(each.refusal))
        restart = replace(
            restart,
            held=_put(restart.held, key, held(each.decision, each.refusal) if stays else None),
            paused=_with(restart.paused, key, is_in=verb == "pause"),
        )
        if each.refusal:
            continue
        state, error = table.state, table.error
        is_there = table.name.table and state not in (TableState.DROPPED, TableState.EXCLUDED)
        restart = replace(
            restart,
            tables={**restart.tables, key: table.checkpoint},
            behind=_with(restart.behind, key, is_in=not table.follows),
            dropped=_with(restart.dropped, key, is_in=state == TableState.DROPPED),
            lost=_put(restart.lost, key, error if state == TableState.LOST else None),
            excluded=_put(
                restart.excluded, key, table.name if state == TableState.EXCLUDED else None
            ),
            skipped=_put(restart.skipped, key, error if is_skipped(state, error) else None),
            copies={**restart.copies, key: table.copies},
            targets=_put(restart.targets, key, (table.name, each.place) if is_there else None),
        )
    return restart


def _with(members: frozenset[str], key: str, *, is_in: bool) -> frozenset[str]:
    return members | {key} if is_in else members - {key}


def _put(stored: Mapping[str, _V], key: str, value: _V | None) -> Mapping[str, _V]:
    """Return the same with another value at `key`, or without one."""
    others = {at: each for at, each in stored.items() if at != key}
    return others if value is None else {**others, key: value}
