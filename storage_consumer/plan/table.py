"""TableConsumer: one table, how far it is consumed, and why it is halted or waits; and how far all tables are together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

from storage_consumer.model import CommitRange, DataFile, DdlKind, TableDefinition, TableName
from storage_consumer.plan.copies import Copies, CopyLedger
from storage_consumer.plan.file_sequence import FileSequences
from storage_consumer.plan.steps import RowStep, key_of
from storage_consumer.plan.table_files import TableFiles
from storage_consumer.plan.table_state import HaltKind, TableStanding, TableState
from storage_consumer.plan.timeline import Timeline
from storage_consumer.sql.parse import parsed
from storage_consumer.tso import lowest


class TableConsumer:
    """Order and progress of one table (or of one database's own DDL), in whatever directories it lies. No I/O.

    State and checkpoint change only here. The rest of what is known lies in its parts: `files`, `timeline` and `copies`.
    """

    def __init__(
        self,
        name: TableName,
        checkpoint: int,
        known: FileSequences,
        *,
        tells_time: bool = True,
        status: TableStanding | None = None,
        copies: Copies | None = None,
    ) -> None:
        """Begin without versions, with what an earlier run stored. `known`: the sequences of the whole bucket; `tells_time`: see `TableFiles`."""
        self.key: Final = key_of(name)
        self.files: Final = TableFiles(known, tells_time=tells_time)
        self.timeline: Final = Timeline(self.key, self.files.versions)
        self.copies: Final = CopyLedger(self.files, known, copies or Copies())
        self._name = name
        self._checkpoint = checkpoint
        self._status = status or TableStanding()
        self.loaded_from = 0
        """The TSO of the copy that its load brings, or has brought; 0 for none."""
        if self._status.excluded:
            self.files.close()
        self.unannounced: HaltKind | Literal[""] = ""
        """Why it has halted, until somebody has said so."""
        self._misses_since: float | None = None
        self._waits_for: tuple[tuple[str, ...], float] = ((), 0.0)

    @property
    def name(self) -> TableName:
        """The name by the newest schema file, else by the path."""
        return self._name

    @property
    def checkpoint(self) -> int:
        """The commit-ts up to which all rows are applied, inclusive."""
        return self._checkpoint

    @property
    def status(self) -> TableStanding:
        """The state, and what it follows from."""
        return self._status

    @property
    def is_stand_in(self) -> bool:
        """Whether only the path of its data files is known."""
        return bool(self.files.versions) and not self._status.named

    def take_name(self, definition: TableDefinition) -> None:
        """Note that a schema file of its directories names the table; from now on the filter knows it."""
        self._status = replace(self._status, named=True)
        if self._status.excluded:
            self.files.close()
        # The name follows the newest file: it may differ from the older ones in case.
        newest = definition.version >= (self.files.versions.numbers.last or 0)
        if newest and not parsed(definition).is_astray:
            self._name = definition.name

    # halts and waits

    def halt(self, error: str, kind: HaltKind) -> None:
        """Halt; statements that were not run are named, since they may be why something does not fit."""
        # A table that lacks rows goes on lacking them, and only what brings them helps, whatever else stops it.
        if self._status.state != TableState.LOST:
            error += self.timeline.last_ignored
            self._status = replace(self._status, state=TableState.HALTED, error=error, paused=False)
            self.unannounced = kind

    def lose(self, error: str, copy_from: int) -> None:
        """Halt for good, until there is a copy as of the TSO `copy_from` or later: no file brings the rows that it lacks."""
        self._status = replace(self._status, state=TableState.LOST, error=error, paused=False)
        self.unannounced = "gap"
        self.copies.need(copy_from)

    def misplace(self) -> None:
        """Note that another table has its name in the target."""
        self._status = replace(self._status, misplaced=True)

    def resume(self) -> None:
        """End a halt for a statement that has its outcome now; a table that is halted for another reason stays so."""
        status = self._status
        lacks_rows = status.state == TableState.LOST or status.lacks_past or bool(self.copies.known.absent)
        if not (status.held or lacks_rows):
            self._status = status.released

    def end_wait(self) -> None:
        """Let a table that waits try again; a halted one stays halted."""
        if self._status.state == TableState.WAITING:
            self._status = self._status.released

    def wait(self, seen: tuple[str, ...], now: float) -> float:
        """Wait for this round; return for how many seconds it has waited with the same `seen`, whose first item is the reason.

        A halted table stays halted: what else it waits for may come, and must not start it again.
        """
        if self._status.is_halted:
            return 0.0
        self._status = replace(self._status, state=TableState.WAITING, error=seen[0])
        # Whatever else is seen now shows that something has moved, so the time begins again.
        if self._waits_for[0] != seen:
            self._waits_for = (seen, now)
        return now - self._waits_for[1]

    def look_for_gaps(self, storage_checkpoint: int, now: float, timeout: float) -> str:
        """Wait while a file or schema file is missing that the storage checkpoint covers; return the reason once it takes too long.

        `now` and `timeout` in seconds. Returns an empty text while there is nothing to halt for.
        """
        # What is missing while it is loaded may be in the copy.
        if self._status.is_halted or self._status.loading:
            return ""
        reason = self.copies.first_missing(storage_checkpoint)
        if not reason:
            self._misses_since = None
            self.end_wait()
            return ""
        # Since the first of them was missed: another one that is missing meanwhile gets no time of its own.
        self._misses_since = now if self._misses_since is None else self._misses_since
        self._status = replace(self._status, state=TableState.WAITING, error=f"waits for {reason}")
        return reason if now - self._misses_since >= timeout else ""

    # progress

    def row_step(self, target: int) -> RowStep | None:
        """Return the rows up to `target` (inclusive), or None if no file can hold one."""
        if target <= self._checkpoint:
            return None
        files, definitions = self.files.readable(target)
        if not files:
            return None
        made = self.timeline.made_before(self._checkpoint + 1)
        is_new = made is not None and made.definition.ddl_type in (DdlKind.CREATE_TABLE, DdlKind.CREATE_TABLES)
        return RowStep(
            table_key=self.key,
            name=self._name,
            commit_range=CommitRange(low=self._checkpoint, high=target),
            current=self.timeline.in_force(self._checkpoint) or next(iter(definitions.values())),
            definitions=definitions,
            files=tuple(files),
            made_at=made.version if made is not None and is_new else 0,
            dropped=self._status.dropped,
            out_of_turn=self.files.out_of_turn(files),
            crossing=self.files.crossing(files),
        )

    def advance(self, checkpoint: int) -> None:
        """Note that all rows up to `checkpoint` (inclusive) are applied."""
        self._checkpoint = max(self._checkpoint, checkpoint)

    def finish(self, file: DataFile, *, max_ts: int, next_ts: int) -> None:
        """Note that a file was read up to the table's checkpoint; it is finished unless it holds later rows."""
        if max_ts <= self._checkpoint:
            self.files.finish(file)
        else:
            # It holds rows beyond the checkpoint, and is read again once the lowest of these may be applied.
            self.files.version(file.version_key).sequences[file.sequence].defer(file, next_ts)

    def pass_statement(self, version: int, *, dropped: bool, why: str = "") -> None:
        """Note that a statement of this version took effect; `dropped`: whether the table is gone after it; `why`: a view is left out."""
        self.advance(version)
        error = self._status.error if self._status.stopped else why
        self._status = replace(self._status, dropped=dropped, error=error)

    def hand_on(self, version: int, *, unseen: bool = False) -> None:
        """Note that by a statement the name went to another table, whose copy holds all that was in this one until then.

        A table that was created again under the name keeps what is known of it: what it lacks, and why it is halted. `unseen`: the statement
        is a DROP that was passed over while the table was left out, and nothing of the table is in the target.
        """
        # The copy that it is loaded from has a table of this name, whatever the bucket shows by now of how it came back.
        in_copy = self._status.apart and self.loaded_from >= version
        # A statement of the same version may have given the name to another table at once.
        self.pass_statement(version, dropped=unseen or not (in_copy or self.timeline.has_statement(version, version)))
        recreated = in_copy or self.timeline.is_known_from(version + 1 if unseen else version)
        self.copies.hand_on(version, recreated=recreated)
        if unseen or not recreated:
            # What the filter left out until this start is in the copy too.
            self._status = replace(self._status.released, lacks_past=False)

    def join(self) -> None:
        """Note that the table has caught up with the others since its load."""
        self._status = replace(self._status, joining=False)

    def retire(self, checkpoint: int) -> None:
        """End a stand-in without files: dropped and caught up, so that it holds up nothing after a restart."""
        self.pass_statement(checkpoint, dropped=True)
        self._status = replace(self._status.released, lacks_past=False, left_out=False, skipped="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """How far the target is. Both are inclusive; `lowest` is never beyond `running`."""

    lowest: int = 0
    """Over all tables that are not left out, halted ones included: what other programs may rely on.

    Tables that are being loaded, or have not caught up since, do not count: it never falls back to the TSO of a copy.
    """
    running: int = 0
    """Over the tables that are not halted: what an idle table follows."""


def is_all_apart(tables: Iterable[TableConsumer]) -> bool:
    """Return whether there are tables that are being loaded, or have not caught up since, and no others."""
    taken = [table for table in tables if table.name.table and not table.status.excluded]
    return bool(taken) and all(table.status.apart for table in taken)


def checkpoints(tables: Iterable[TableConsumer], storage_checkpoint: int) -> Checkpoints:
    """Return both checkpoints; neither is beyond the storage's, which idle tables have reached, though a copied table may be further."""
    known = [table for table in tables if not table.status.apart]
    running = lowest((table.checkpoint for table in known if not table.status.is_halted), storage_checkpoint)
    # A table that is left out and runs has nothing to read, so it moves along with the others.
    halted = [table.checkpoint for table in known if table.status.is_halted and not table.status.excluded]
    return Checkpoints(lowest=lowest(halted, running), running=running)


def begins_at(table: TableConsumer) -> int:
    """Return the lowest version that a table's directories have, 0 for none; one that is loaded, or catches up, is there right after its copy."""
    first, copied = table.files.first, table.loaded_from
    return min(first, copied + 1) if copied and table.status.apart else first
