"""Which loads begin, of a new feed's copy or by request. A refused one leaves nothing written.

And which end since they can't go on.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from storage_consumer.clock import some_of
from storage_consumer.driver.ddl_prepare import described, prepared
from storage_consumer.driver.ledger import RoundContext
from storage_consumer.driver.loading import (
    database_steps,
    refuse_unmade,
    statement_of,
    surroundings_of,
)
from storage_consumer.driver.open_copies import LoadingState, OpenCopy, loads_to_begin, unsettled
from storage_consumer.driver.remedies import load_command, table_command
from storage_consumer.errors import ConfigError, ExportUnfinished, StorageUnavailable, TableError
from storage_consumer.model import DdlKind, TableDefinition, TableName
from storage_consumer.plan.copies import Copies, gap_proof, refused_future
from storage_consumer.plan.covered import of_another_time
from storage_consumer.plan.directories import Restart
from storage_consumer.plan.loads import Load, LoadPhase
from storage_consumer.plan.steps import OF_LOADS, is_of_copy
from storage_consumer.plan.table_decisions import no_commit_ts
from storage_consumer.plan.touches import refuse_shared_places
from storage_consumer.telemetry import Log
from storage_consumer.tso import ddl_is_stored

_log = Log("load")
_IN_FEED = (
    "To begin with the copy all the same, empty these tables, or drop these views; if their rows are the source's as of a known TSO, run without "
    "--dump, and say so for each table by `storage-consumer load --at TSO`"
)
_UNSETTLED = (
    "a statement with version {} that touches {} was started and is not known to have ended: it may still change the table. Decide "
    "about it (`storage-consumer ddl` lists it) or run `{}`, and request the load again once it is done"
)
_LEFT_OUT = (
    "the filter has left out {} since its load began, and what the bucket had of it meanwhile has been passed over. Once the filter takes it "
    "again, begin with a copy as of then or later: {}"
)
_NO_DATA_FILE = "{} has no data file of {} of its {} tables: {}. They were empty at the source, or their files are missing: `storage-consumer verify` tells"
_NOT_PASSED = "Or a statement explains it that the bucket does not have yet: wait until its checkpoint has passed that TSO, and try again"
_NAMED = 5
"""Most tables that a message names."""


@dataclass(frozen=True, slots=True)
class LoadStarts:
    """Begins loads, between two rounds."""

    context: RoundContext
    loading: LoadingState

    def made(
        self, make_copy: Callable[[Callable[[Sequence[TableName]], object]], str], seen: int
    ) -> str:
        """Make an export and return its URI; first raise `ConfigError` if it would be unusable."""
        config = self.context.config
        if not config.upstream.tells_time:
            raise ConfigError(
                f"--source: {no_commit_ts('the bucket')}. Or begin with an export as of the changefeed's very start-ts, by --dump"
            )
        if not (seen or config.loading.start_ts):
            raise ConfigError(
                "--source: the bucket has no checkpoint yet, so nothing shows that the changefeed has begun. Wait for `metadata`, or give --start-ts"
            )

        def judge(names: Sequence[TableName]) -> None:
            try:
                self._refuse_rows(names, _IN_FEED)
            except TableError as fault:
                raise ConfigError(f"--source: {fault}") from fault

        return make_copy(judge)

    def judge_feed(self, uri: str, seen: int) -> tuple[OpenCopy, list[str]]:
        """Return a new feed's copy and the keys of its tables; `seen`: an earlier checkpoint.

        Raises `ConfigError` where the copy cannot be used, where changes may lie between it and the
        changefeed, or where the target already has rows in one of its tables.
        """
        copy = self.loading.copy_at(uri)
        future = refused_future(copy.snapshot, self.context.clock.now(), seen)
        if why := future or gap_proof(copy.snapshot, self.context.config.loading.start_ts, seen):
            raise ConfigError(f"--dump {uri}: {why}")
        # Of a changefeed that began at the copy's very TSO, all rows are from after the copy.
        if (
            not self.context.config.upstream.tells_time
            and self.context.config.loading.start_ts != copy.snapshot
        ):
            raise ConfigError(
                f"--dump {uri}: {no_commit_ts('the bucket')}. Or begin with a copy as of the changefeed's very start-ts"
            )
        selection = self.context.manager.selection
        wanted = [
            key
            for key, table in copy.tables.items()
            if not selection.filter.leaves_out(table.definition.name)
        ]
        names = [copy.tables[key].definition.name for key in wanted]
        refuse_shared_places(names, selection)
        try:
            self._refuse_rows(names, _IN_FEED)
        except TableError as fault:
            raise ConfigError(f"--dump {uri}: {fault}") from fault
        self._refuse_another_time(f"--dump {uri}", copy, wanted)
        return copy, wanted

    def _refuse_another_time(self, where: str, copy: OpenCopy, wanted: Iterable[str]) -> None:
        """Raise `ConfigError` if the bucket contradicts a copy's TSO.

        Raise `ExportUnfinished` where it may still explain it.
        """
        poll = self.context.reader.look()
        shown = [read.content for read in poll.schema_files]
        for content in shown:
            if isinstance(content, StorageUnavailable):
                raise content
        tables = [copy.tables[key].definition for key in wanted]
        tables = [table for table in tables if table.ddl_type != DdlKind.CREATE_VIEW]
        definitions = (content for content in shown if isinstance(content, TableDefinition))
        if not (why := of_another_time(tables, copy.snapshot, definitions)):
            return
        if ddl_is_stored(copy.snapshot, poll.checkpoint, is_stable=False):
            raise ConfigError(f"{where}: {why}")
        raise ExportUnfinished(f"{where}: {why}. {_NOT_PASSED}")

    def begin_feed(self, uri: str, seen: int, *, by: str) -> None:
        """Begin a new feed with all tables of a copy that the filter takes; see `judge_feed`."""
        copy, wanted = self.judge_feed(uri, seen)
        load_id, context = uuid.uuid4().hex, self.context
        # The databases that the filter takes, those without tables too: a later statement may need
        # them. Before the feed begins: until then every start does it again, and after that the
        # copy need not be opened for it.
        leaves_out = context.manager.selection.filter.leaves_out
        databases = [made for made in copy.databases.values() if not leaves_out(made.name)]
        steps = database_steps(f"{OF_LOADS}{load_id}", databases, context.manager, context.target)
        if steps:
            self.loading.ddl.fence()
        for step in steps:
            surroundings = surroundings_of(step, copy, context)
            try:
                self.loading.ddl.run(
                    prepared(step, context.manager, context.target), surroundings, ()
                )
            except TableError as fault:
                raise ConfigError(
                    f"the database {step.name.schema} of the copy cannot be created: {fault}"
                ) from fault
        loads = loads_to_begin(uri, copy, wanted, load_id, replaces=False)
        self.context.state.loads.begin(
            loads, by=by, floor=copy.snapshot, places=self._places(loads)
        )
        for note in copy.notes:
            _log.warning("notice", text=f"{uri}: {note}")
        self._log(loads)
        tables = [load for load in loads if not load.is_view]
        empty = [str(load.name) for load in tables if not load.parts]
        if len(empty) == len(tables):
            _warn_of_empty(tables)
        elif empty:
            _log.warning(
                "notice",
                text=_NO_DATA_FILE.format(uri, len(empty), len(tables), some_of(empty, _NAMED)),
            )

    def end_left_out(self, restart: Restart) -> bool:
        """End loads of tables left out since they began; return whether there are any.

        What is stored of such a table says that it was left out, so it does not go on without
        another copy.
        """
        begun = (LoadPhase.LOADING, LoadPhase.JOINING)
        ended = [
            load
            for key, load in restart.loads.items()
            if load.phase in begun and key in restart.excluded
        ]
        for load in ended:
            why = _LEFT_OUT.format(
                load.name, load_command(load.name, self.context.config.downstream)
            )
            self.context.state.loads.cancel(load, why)
            _log.error("load_refused", table=str(load.name), error=why)
        return bool(ended)

    def is_any_ready(self, busy: Collection[str]) -> bool:
        """Return whether a requested load may begin; waiting ones must not have all be reread."""
        for load in self.context.state.loads.requested():
            if self._statement_before(load, busy):
                continue
            try:
                # Only of a copy that did not answer is it asked here whether it does by now:
                # `begin_requested` opens it anyway.
                if load.source not in self.loading.waits.away or self._answers(load):
                    return True
            except ConfigError:
                # That is what it will be refused for.
                return True
        return False

    def _answers(self, load: Load) -> bool:
        return (
            self.loading.answered(load, self.context.clock, self.context.config.downstream)
            is not None
        )

    def _statement_before(self, load: Load, busy: Collection[str]) -> str:
        """Return a statement that may still touch a load's table but will end, or "".

        `busy`: the tables that running ones touch.
        """
        version, is_halted = self.context.state.loads.unsettled(load)
        if load.table_key in busy or (version and not is_halted):
            return f"with version {version}" if version else "that runs now"
        return ""

    def begin_requested(self, restart: Restart, busy: Collection[str]) -> bool:
        """Begin requested loads, or store why they cannot begin; return whether any began.

        Loads of tables that are `busy` wait, and so do those whose copies do not answer.
        """
        begun = []
        requested = self.context.state.loads.requested()
        # A copy that is open may have been exchanged since.
        for source in {load.source for load in requested}:
            self.loading.copies.pop(source, None)
        for load in requested:
            if which := self._statement_before(load, busy):
                self.loading.waits.tell(load, "statement", unsettled(which))
                continue
            try:
                found = self._judged(load, restart) if self._answers(load) else None
            except (ConfigError, TableError) as fault:
                self.context.state.loads.refuse(load, str(fault))
                self.loading.refused.add(load.name)
                _log.error("load_refused", table=str(load.name), error=str(fault))
                continue
            if found is not None:
                self.loading.refused.discard(load.name)
                begun.append(found)
            elif (why := self.loading.waits.away[load.source][1]) != load.error:
                self.context.state.loads.wait(load, why)
        if begun:
            begun = self.context.state.loads.begin(begun, by="", places=self._places(begun))
            self._log(begun)
            _warn_of_empty(load for load in begun if not (load.parts or load.is_view))
        return bool(begun)

    def _places(self, loads: Iterable[Load]) -> dict[str, TableName] | None:
        """Return where the routes send the tables of loads; None without routes."""
        routes = self.context.manager.selection.routes
        return {load.table_key: routes.target(load.name) for load in loads} if routes else None

    def _judged(self, load: Load, restart: Restart) -> Load:
        """Return a requested load as it begins; raise `ConfigError` if the copy is unusable."""
        manager, selection = self.context.manager, self.context.manager.selection
        version, _ = self.context.state.loads.unsettled(load)
        if version:
            resume = table_command("resume", load.name, self.context.config.downstream)
            raise ConfigError(_UNSETTLED.format(version, load.name, resume))
        if not self.context.config.upstream.tells_time:
            raise ConfigError(no_commit_ts(str(load.name)))
        copy = self.loading.copy_at(load.source)
        if load.table_key not in copy.tables:
            if selection.filter.leaves_out(load.name):
                raise ConfigError(
                    f"the filter leaves out {load.name}: start again with a --filter that takes it, and request the load again"
                )
            held = some_of([str(table.definition.name) for table in copy.tables.values()], _NAMED)
            raise ConfigError(
                f"{load.source} does not hold the table {load.name}: it holds {held or 'none that the filter takes'}"
            )
        # The names in bucket and target of all other tables that are there; those that an operator
        # has left out stay as they are.
        occupied = [names for key, names in restart.targets.items() if key != load.table_key]
        skipped = [
            manager.tables[k].name
            for k in restart.skipped
            if k in manager.tables and k != load.table_key
        ]
        occupied += [(name, selection.routes.target(name)) for name in skipped]
        refuse_shared_places([load.name], selection, occupied)
        checkpoint = restart.tables.get(load.table_key, 0)
        if load.table_key not in restart.behind:
            checkpoint = max(checkpoint, restart.checkpoint)
        storage_checkpoint = self.context.reader.checkpoint_now()
        if why := refused_future(copy.snapshot, self.context.clock.now(), storage_checkpoint):
            raise ConfigError(f"{load.source}: {why}")
        if why := _too_old(load, copy.snapshot, checkpoint, restart):
            raise ConfigError(
                f"the copy of {load.name} in {load.source} is as of {copy.snapshot}, but {why}"
            )
        # What has been applied came from the bucket, so the changefeed began before it.
        start_ts = 0 if checkpoint else self.context.config.loading.start_ts
        if gap := gap_proof(copy.snapshot, start_ts, checkpoint or storage_checkpoint):
            raise ConfigError(f"{load.source}: {gap}")
        if not load.replaces:
            self._refuse_rows(
                [load.name], "To put the copy in its place, request it with --replace"
            )
        # One that is skipped is so until its load begins.
        elif load.table_key not in restart.skipped:
            create = statement_of(load, copy.tables[load.table_key].definition)
            refuse_unmade(create, manager, self.context.target)
        (found,) = loads_to_begin(
            load.source, copy, [load.table_key], load.load_id, replaces=load.replaces
        )
        return replace(found, load_id=load.load_id, phase=LoadPhase.LOADING)

    def _refuse_rows(self, names: Iterable[TableName], remedy: str) -> None:
        """Raise `ConfigError` if the target has rows or a view in place of one of these tables.

        Such rows would stay among those of the copy.
        """
        there = described(names, self.context.manager, self.context.target)
        if views := [str(found.name) for found in there.values() if found.is_view]:
            raise ConfigError(
                f"the target already has {some_of(sorted(views), _NAMED)}, where the copy has to create it. {remedy}"
            )
        if full := [
            str(found.name) for found in there.values() if self.loading.has_rows(found.name)
        ]:
            raise ConfigError(
                f"the target already has rows in {some_of(sorted(full), _NAMED)}: a copy is loaded into empty tables. {remedy}"
            )

    def _log(self, loads: Sequence[Load]) -> None:
        """Say what begins in one line for each copy: it may have thousands of tables."""
        for low in sorted({load.low for load in loads}):
            same = [load for load in loads if load.low == low]
            _log.info(
                "load_started",
                table=some_of([str(load.name) for load in same], _NAMED),
                tables=len(same),
                checkpoint=low,
                files=sum(load.parts for load in same),
                bytes=sum(load.size for load in same),
            )


def _warn_of_empty(loads: Iterable[Load]) -> None:
    if names := [str(load.name) for load in loads]:
        text = (
            f"the copy holds no rows of {some_of(names, _NAMED)}, and leaves what it loads empty. Where the source had rows then, it was made "
            "without them (Dumpling's --no-data): load a whole one instead"
        )
        _log.warning("notice", text=text)


def _too_old(load: Load, snapshot: int, checkpoint: int, restart: Restart) -> str:
    """Return what a copy lacks that no file will bring, and the next step; or "".

    `checkpoint`: the table's.
    """
    if snapshot < checkpoint and load.table_key in restart.excluded:
        # One that is skipped still goes on being passed over while it is exported.
        now = (
            "pause the table, and export it after that"
            if load.table_key in restart.skipped
            else "export it now, and load that"
        )
        return f"the table was left out, and what the bucket has of it up to {checkpoint} has been passed over and will not be read again: {now}"
    if snapshot < checkpoint:
        return f"rows and statements up to {checkpoint} have been applied and will not be applied again: pause the table, and export it after that"
    needed = restart.copies.get(load.table_key, Copies()).copy_from
    return (
        f"it may lack rows that no file holds any more: export the table as of {needed}, when they were first missed, or later"
        if snapshot < needed
        else ""
    )


def is_new_feed(restart: Restart, storage_checkpoint: int) -> bool:
    """Return whether nothing has been applied, loaded or seen of a feed yet."""
    # What is only requested does not make a feed begin.
    begun = any(load.phase != LoadPhase.REQUESTED for load in restart.loads.values())
    # A copy's statements are not the feed's: its databases are created before it begins.
    ran = any(not is_of_copy(identity.table_dir) for identity in restart.journalled)
    # A table at 0 was only listed, or halted before anything of it was applied.
    moved = any(restart.tables.values())
    nothing = not (restart.checkpoint or moved or restart.floor or begun or ran)
    return nothing and not storage_checkpoint
