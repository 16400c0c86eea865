"""A table: its history, how far it is consumed, why it halts or waits. No I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

from storage_consumer.model import (
    CommitRange,
    DataFile,
    DdlKind,
    TableDefinition,
    TableName,
    folded_name,
)
from storage_consumer.plan.copies import Copies, CopyLedger
from storage_consumer.plan.finished_files import FileSequences, Rest
from storage_consumer.plan.in_order import ByNumber, Numbers, Together, highest
from storage_consumer.plan.steps import MAKES_TABLE, DdlStep, RowStep, key_of
from storage_consumer.plan.table_files import TableFiles, TableVersions, makes_table
from storage_consumer.plan.table_state import HaltKind, TableStanding, TableState
from storage_consumer.plan.table_words import DROPPED_UNSEEN, WAS_LEFT_OUT
from storage_consumer.sql.parse import parsed
from storage_consumer.tso import lowest

_SHOWN = 200
_NONE = Together()


class Timeline:
    """What happened to a table, by its schema files and by statements in other directories.

    Whatever is asked for is found by version: no answer takes longer the more versions are known.
    """

    def __init__(self, table_key: str, versions: TableVersions) -> None:
        """Begin without a statement. `versions`: the table's directories, now and later."""
        self._table_key = table_key
        self._versions = versions
        # Version → action code of the statement that was added last for it.
        self._statements = ByNumber[int]()
        self._ignored = ByNumber[str]()

    def add(self, definition: TableDefinition, *, ignored: bool = False) -> None:
        """Add a statement that leads to this table; `ignored`: the filter keeps it from running."""
        self._statements[definition.version] = definition.ddl_type
        if ignored:
            self._ignored[definition.version] = f"{definition.query[:_SHOWN]} ({definition.path})"

    @property
    def last_ignored(self) -> str:
        """The last statement that the filter suppressed, for an error's end, or empty."""
        version = self._ignored.numbers.last
        if version is None:
            return ""
        return f". The filter kept this statement of version {version} from being run: {self._ignored[version]}"

    # structures

    def structure_at(self, version: int) -> TableDefinition | None:
        """Return the newest structure up to `version` (inclusive), one with a statement first."""
        return self._structure(self._versions.structured.before(version + 1), by_statement=True)

    def in_force(self, checkpoint: int) -> TableDefinition | None:
        """Return the structure after `checkpoint`: the newest up to it, else the first known."""
        return self.structure_at(checkpoint) or self._structure(self._versions.structured.first)

    def _structure(
        self, number: int | None, *, by_statement: bool = False
    ) -> TableDefinition | None:
        """Return a version's first structure, with a statement if there is one."""
        found = [] if number is None else self._structures(number)
        with_statement = (structure for structure in found if by_statement and structure.is_ddl)
        return next(with_statement, found[0] if found else None)

    def _structures(self, number: int) -> list[TableDefinition]:
        """Return a version's structures in the order in which their directories came."""
        return [v.structure for v in self._versions.at(number).values() if v.structure is not None]

    def made_before(self, version: int) -> DdlStep | None:
        """Return the last statement before `version` that created the table or gave it its name."""
        number = self._versions.making.before(version)
        if number is None:
            return None
        found = {
            table_dir: v.structure
            for (_, table_dir), v in self._versions.at(number).items()
            if makes_table(v)
        }
        table_dir = max(found)
        definition = found[table_dir]
        assert definition is not None  # it makes the table
        return DdlStep(table_dir=table_dir, table_key=self._table_key, definition=definition)

    def statements(self, first: int, last: int) -> Iterator[DdlStep]:
        """Yield the own directories' statements with these versions, both inclusive."""
        for (number, table_dir), found in self._versions.items():
            if first <= number <= last and found.is_ddl and found.definition is not None:
                yield DdlStep(
                    table_dir=table_dir, table_key=self._table_key, definition=found.definition
                )

    # is the table there?

    def needs_table_before(self, definition: TableDefinition, ended: Together = _NONE) -> bool:
        """Return whether a structure without a statement is the first, or first since a DROP.

        It is not if a statement of the same version leads to the table. `ended`: versions of the
        statements elsewhere that ended the table, by a DROP of its database or by another name.
        """
        version = definition.version
        known: list[tuple[int, int]] = []
        if (number := self._versions.structured.before(version)) is not None:
            known += [(number, structure.ddl_type) for structure in self._structures(number)]
        # Of one version the higher code decides. So a table whose name a rename took away and
        # another one gave back is there.
        if (number := ended.before(version)) is not None:
            known.append((number, DdlKind.DROP_TABLE))
        if (number := self._statements.numbers.before(version + 1)) is not None:
            known.append((number, self._statements[number]))
        # A table of which nothing was known before is as if it had been dropped.
        return max(known, default=(0, DdlKind.DROP_TABLE))[1] in (
            DdlKind.DROP_TABLE,
            DdlKind.DROP_SCHEMA,
        )

    def stays_after(self, version: int) -> bool:
        """Return whether later events show that the table existed at `version`, not made there."""
        later: list[tuple[int, bool, int]] = []
        if (number := self._versions.structured.after(version)) is not None:
            later += [
                (number, not found.is_ddl, found.ddl_type) for found in self._structures(number)
            ]
        if (number := self._statements.numbers.after(version)) is not None:
            later.append((number, False, self._statements[number]))
        # The first thing later counts; of one version, a statement comes before a structure alone.
        return bool(later) and min(later)[-1] not in MAKES_TABLE

    def is_passing_at(self, version: int, ends: Together) -> bool:
        """Return whether it is unknown right before or after a version; `ends`: of its ends."""
        # Files in the directory of this very version are rows that came after the statement.
        rows = any(found.sequences for found in self._versions.at(version).values())
        return self.is_free_before(version, ends) and not rows and not self.stays_after(version)

    def is_free_before(self, version: int, ends: Together) -> bool:
        """Return whether no table has the name right before a version; `ends`: its ends."""
        last = highest(
            n.before(version) for n in (self._versions.telling, self._statements.numbers, ends)
        )
        return last is None or last in ends

    def is_over(self, version: int, ends: Together) -> bool:
        """Return whether nothing follows the last of `ends`, which was before `version`."""
        last, known = ends.last, self._versions.telling.last
        last = -1 if last is None else last
        return last < version and (known is None or known <= last)

    def is_known_from(self, version: int) -> bool:
        """Return whether anything is known of this name from a version on (inclusive)."""
        last = highest((self._versions.telling.last, self._statements.numbers.last))
        return last is not None and last >= version

    def has_statement(self, first: int, last: int) -> bool:
        """Return whether a statement led to the table in a span of versions, both inclusive."""
        return self._statements.numbers.has_within(first, last)


class TableConsumer:
    """Order and progress of a table, or a database's own DDL, in any directories. No I/O.

    State and checkpoint change only here. The rest of what is known lies in its parts: `files`,
    `timeline` and `copies`.
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
        """Begin with what was stored; `known`: the bucket's sequences.

        `tells_time`: see `TableFiles`.
        """
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
        """Note that a schema file names the table; from now on the filter knows it."""
        self._status = replace(self._status, named=True)
        if self._status.excluded:
            self.files.close()
        # The name follows the newest file: it may differ from the older ones in case.
        newest = definition.version >= (self.files.versions.numbers.last or 0)
        if newest and not parsed(definition).is_astray:
            self._name = definition.name

    # halts and waits

    def halt(self, error: str, kind: HaltKind) -> None:
        """Halt, naming statements that were not run: they may be why something does not fit."""
        # A table that lacks rows keeps lacking them: only what brings them helps.
        if self._status.state != TableState.LOST:
            error += self.timeline.last_ignored
            self._status = replace(self._status, state=TableState.HALTED, error=error, paused=False)
            self.unannounced = kind

    def lose(self, error: str, copy_from: int) -> None:
        """Halt until a copy as of TSO `copy_from` or later: no file brings the missing rows."""
        self._status = replace(self._status, state=TableState.LOST, error=error, paused=False)
        self.unannounced = "gap"
        self.copies.need(copy_from)

    def misplace(self) -> None:
        """Note that another table has its name in the target."""
        self._status = replace(self._status, misplaced=True)

    def resume(self) -> None:
        """End a halt for a statement with an outcome; a halt for another reason stays."""
        status = self._status
        lacks_rows = (
            status.state == TableState.LOST or status.lacks_past or bool(self.copies.known.absent)
        )
        if not (status.held or lacks_rows):
            self._status = status.released

    def end_wait(self) -> None:
        """Let a table that waits try again; a halted one stays halted."""
        if self._status.state == TableState.WAITING:
            self._status = self._status.released

    def wait(self, seen: tuple[str, ...], now: float) -> float:
        """Wait for this round; return seconds waited with the same `seen`, reason first.

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
        """Wait while a file that the storage checkpoint covers is missing; return why, if too long.

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
        # Since the first was missed: another missing one gets no time of its own.
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
        is_new = made is not None and made.definition.ddl_type in (
            DdlKind.CREATE_TABLE,
            DdlKind.CREATE_TABLES,
        )
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

    def finish(self, file: DataFile, *, max_ts: int, next_ts: int, later: int = 0) -> None:
        """Note that a file was read up to the checkpoint; finished unless it has later rows."""
        if max_ts <= self._checkpoint:
            self.files.finish(file)
        else:
            # It has rows beyond the checkpoint, read again once the lowest may be applied.
            rest = Rest(next_ts, max_ts, later)
            self.files.version(file.version_key).sequences[file.sequence].defer(file, rest)

    def pass_statement(self, version: int, *, dropped: bool, why: str = "") -> None:
        """Note a statement's effect at this version.

        `dropped`: the table is gone after it; `why`: a view is left out.
        """
        self.advance(version)
        error = self._status.error if self._status.stopped else why
        self._status = replace(self._status, dropped=dropped, error=error)

    def hand_on(self, version: int, *, unseen: bool = False) -> None:
        """Note that a statement gave the name to a table whose copy holds this one's content.

        A table that was created again under the name keeps what is known of it: what it lacks, and
        why it is halted. `unseen`: the statement is a DROP that was passed over while the table was
        left out, and nothing of the table is in the target.
        """
        # The copy that it is loaded from has a table of this name, whatever the bucket shows by now
        # of how it came back.
        in_copy = self._status.apart and self.loaded_from >= version
        # A statement of the same version may have given the name to another table at once.
        self.pass_statement(
            version,
            dropped=unseen or not (in_copy or self.timeline.has_statement(version, version)),
        )
        recreated = in_copy or self.timeline.is_known_from(version + 1 if unseen else version)
        self.copies.hand_on(version, recreated=recreated)
        if unseen or not recreated:
            # What the filter left out until this start is in the copy too.
            self._status = replace(self._status.released, lacks_past=False)

    def join(self) -> None:
        """Note that the table has caught up with the others since its load."""
        self._status = replace(self._status, joining=False)

    def retire(self, checkpoint: int) -> None:
        """End a stand-in without files as dropped and caught up: it holds up no restart."""
        self.pass_statement(checkpoint, dropped=True)
        self._status = replace(self._status.released, lacks_past=False, left_out=False, skipped="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """How far the target is. Both are inclusive; `lowest` is never beyond `running`."""

    lowest: int = 0
    """Over all tables that are not left out, halted ones included: what other programs may rely on.

    Tables that are being loaded, or have not caught up since, do not count: it never falls back to
    the TSO of a copy.
    """
    running: int = 0
    """Over the tables that are not halted: what an idle table follows."""


def is_all_apart(tables: Iterable[TableConsumer]) -> bool:
    """Return whether there are tables, all of them in load or not caught up since."""
    taken = [table for table in tables if table.name.table and not table.status.excluded]
    return bool(taken) and all(table.status.apart for table in taken)


def checkpoints(tables: Iterable[TableConsumer], storage_checkpoint: int) -> Checkpoints:
    """Return both checkpoints, at most the storage's: idle tables follow it, copies may pass."""
    known = [table for table in tables if not table.status.apart]
    running = lowest(
        (table.checkpoint for table in known if not table.status.is_halted), storage_checkpoint
    )
    # A table that is left out and runs has nothing to read, so it moves along with the others.
    halted = [
        table.checkpoint for table in known if table.status.is_halted and not table.status.excluded
    ]
    return Checkpoints(lowest=lowest(halted, running), running=running)


def begins_at(table: TableConsumer) -> int:
    """Return the lowest version of a table's directories, 0 for none; in load: its copy's."""
    first, copied = table.files.first, table.loaded_from
    return min(first, copied + 1) if copied and table.status.apart else first


class Lifetimes:
    """The beginnings and ends that the statements of a bucket show."""

    def __init__(self) -> None:
        """Start without any statement."""
        self._ends = defaultdict[str, Numbers](Numbers)
        self._renames = defaultdict[str, dict[int, TableName]](dict)
        self._created: dict[str, int] = {}
        self._databases = defaultdict[str, dict[int, str]](dict)

    def ends(self, key: str, definition: TableDefinition) -> None:
        """Record a table's or database's end or defaults by a statement; `key`: where it leads."""
        if definition.ddl_type in (DdlKind.DROP_TABLE, DdlKind.DROP_SCHEMA):
            self._ends[key].add(definition.version)
        # A change of case alone ends nothing: both names fold to one. Nor is it known what ends
        # where a database is left open.
        rename = parsed(definition).rename
        pair = None if rename is None or rename.from_anywhere else rename.folded
        if pair is not None and pair[0] != pair[1]:
            self._ends[key_of(pair[0])].add(definition.version)
            self._renames[key_of(pair[0])][definition.version] = pair[1]
        if definition.ddl_type in (DdlKind.CREATE_SCHEMA, DdlKind.ALTER_SCHEMA):
            self._databases[folded_name(definition.name.schema)][definition.version] = (
                definition.query
            )

    def creates(self, schema: str, version: int) -> None:
        """Record that a statement creates a database."""
        name = folded_name(schema)
        # The earliest: whatever came later, the bucket had made the database by then.
        self._created[name] = min(version, self._created.get(name, version))

    def ends_of(self, table: TableConsumer) -> Together:
        """Return versions of statements that ended the table, or dropped its database."""
        return Together(self._ends[table.key], self._ends[key_of(replace(table.name, table=""))])

    def renamed_to(self, key: str, version: int) -> TableName | None:
        """Return the folded name that a version's rename gave a table, or None."""
        return self._renames.get(key, {}).get(version)

    def database_statements(self, schema: str, version: int) -> tuple[str, ...]:
        """Return statements up to a version (inclusive) on the database and its defaults."""
        known = self._databases.get(folded_name(schema), {})
        return tuple(text for at, text in sorted(known.items()) if at <= version)

    def is_created(self, schema: str, version: int) -> bool:
        """Return whether a statement up to this version (inclusive) creates the database."""
        return self._created.get(folded_name(schema), version + 1) <= version


def dropped_unseen(table: TableConsumer, lifetimes: Lifetimes) -> int:
    """Return the DROP's version that ends all a filtered table lacks; 0 if there is none.

    Up to the table's checkpoint files and statements were passed over. What comes after it is all
    in files, such as a table that is created again. A table that is halted for another reason, or
    has a copy to come, is left to that.
    """
    status = table.status
    halts_for_it = status.lacks_past and status.error.startswith((WAS_LEFT_OUT, DROPPED_UNSEEN))
    if (
        not halts_for_it
        or status.state != TableState.HALTED
        or status.apart
        or status.misplaced
        or status.nowhere
    ):
        return 0
    ends, upto = lifetimes.ends_of(table), table.checkpoint + 1
    version = ends.before(upto) or 0
    # By a rename the rows went to another table.
    is_drop = version and lifetimes.renamed_to(table.key, version) is None
    return version if is_drop and table.timeline.is_free_before(upto, ends) else 0


def is_dropped_after(step: DdlStep, table: TableConsumer, gone: TableName | None) -> bool:
    """Return whether a touched table is gone after the statement; `gone`: the removed name."""
    own = table.key == step.table_key
    if step.definition.ddl_type == DdlKind.DROP_SCHEMA:
        return bool(table.name.table)
    if step.definition.ddl_type == DdlKind.DROP_TABLE:
        return own or table.status.dropped
    # Other statements lead to an existing table; a view's DROP is not noted: no rows.
    if own:
        return False
    return table.status.dropped or table.name.folded() == gone
