"""Catalog: each version directory's table, by its schema file, never by its path. No I/O."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from storage_consumer.model import DataFile, DdlId, TableDefinition, TableName, VersionKey
from storage_consumer.plan.copies import Copies
from storage_consumer.plan.finished_files import FileSequences, Finished, LateFiles
from storage_consumer.plan.in_order import ByNumber
from storage_consumer.plan.loads import Load, LoadPhase
from storage_consumer.plan.selection import Selection
from storage_consumer.plan.steps import key_of
from storage_consumer.plan.table import TableConsumer
from storage_consumer.plan.table_decisions import Verb
from storage_consumer.plan.table_state import TableStanding, TableState
from storage_consumer.plan.table_words import OR_BY_HAND, WAS_LEFT_OUT, copy_ways, table_flag
from storage_consumer.sql.parse import parsed

_STRAY = (
    "the files in {}, which have no schema file, are gone. If somebody moved them away because the changefeed did "
    "not write them, start again; otherwise rows are missing: restore them with their schema file"
)
_LOST = (
    "a data file of this table was overwritten before it was read, or was recognized too late as one of this table: "
    "rows are missing that no file holds any more; {}"
)
_OVERWRITTEN = (
    "{} was overwritten after the files that follow it, when rows up to checkpoint {} had been applied: rows are "
    "missing. With enable-partition-separator = false the partitions of a table overwrite one another's files; set "
    "it to true in the changefeed and start the changefeed again; then {}"
)
_RESTORED = (
    ". But if the bucket was only restored or copied over, with the same content (the sizes are the same), no row is "
    "missing, and the target's table itself is that copy. To avoid this, run `storage-consumer rebind --restored` before "
    "the start the next time. Now run: {}"
)
_COPY = "give the table a copy of the source as of now or later. From an export: {}"
_LONGEST = 100
"""Characters of a stand-in's name; TiDB's names have 64 at most."""
Commands = Callable[[Verb, TableName], str]
"""Returns the command for a decision about a table."""


def plain_command(verb: Verb, name: TableName, reach: str = "") -> str:
    """Return the command, both for a copy, a self-made one last; `reach`: options to the target."""
    if verb == "reload-done":
        return copy_ways(name, reach)
    return f"storage-consumer table {verb} {table_flag(name)} {reach}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """What an earlier run left in the target. Tables are named by their keys, see `key_of`."""

    checkpoint: int = 0
    """How far tables that are not halted are, inclusive; tables without their own follow it."""
    lowest: int = 0
    """The smallest checkpoint of all tables that are not left out, as reported to others."""
    tables: Mapping[str, int] = field(default_factory=dict)
    """Table → its own checkpoint, inclusive."""
    behind: frozenset[str] = frozenset()
    """Tables that do not follow the checkpoint of the whole: halted, or not caught up since."""
    dropped: frozenset[str] = frozenset()
    """Tables that no longer existed."""
    lost: Mapping[str, str] = field(default_factory=dict)
    """Table that lacks rows which no file holds any more → why; it continues with a copy."""
    held: Mapping[str, str] = field(default_factory=dict)
    """A table kept halted → by whom, until when; or why a copy to end it was refused."""
    paused: frozenset[str] = frozenset()
    """Those of them that an operator paused."""
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Table that an operator leaves out → who, and since when; they are among `excluded`."""
    copies: Mapping[str, Copies] = field(default_factory=dict)
    """Table → what a copy of it has to hold, or held."""
    loads: Mapping[str, Load] = field(default_factory=dict)
    """Table → its load, for those that are not ended."""
    based: frozenset[str] = frozenset()
    """Tables that were loaded, or are being loaded, from a copy."""
    written: Mapping[str, int] = field(default_factory=dict)
    """Table, or an empty text for all → commit-ts up to which jobs may have written its rows."""
    floor: int = 0
    """TSO of the whole feed's first copy, 0 for none: all up to it counts as applied."""
    done: Mapping[str, Finished] = field(default_factory=dict)
    """Sequence → how far it is finished."""
    excluded: Mapping[str, TableName] = field(default_factory=dict)
    """Table that was left out → its name."""
    targets: Mapping[str, tuple[TableName, TableName]] = field(default_factory=dict)
    """Table → its name in the bucket and the one in the target, for those that are there."""
    journalled: frozenset[DdlId] = frozenset()
    """Identities of the DDL that are done, or skipped by decision."""
    started: frozenset[DdlId] = frozenset()
    """Identities of the DDL that were sent to the target and may have taken effect."""
    refused: frozenset[DdlId] = frozenset()
    """Identities of the DDL that had no effect, since the target or the program refused them."""


class Catalog:
    """All tables of one bucket, each with its version directories.

    A version directory without a known schema file belongs to the table named by the newest older
    version of the same table directory. Without an older one it belongs to a stand-in that is named
    after the path.
    """

    def __init__(
        self,
        restart: Restart,
        *,
        tells_time: bool = True,
        selection: Selection | None = None,
        command: Commands = plain_command,
    ) -> None:
        """Begin with what an earlier run left; `tells_time`: see `TableConsumer`."""
        self.late = LateFiles()
        self._selection = selection or Selection()
        self._copied: list[TableConsumer] = []
        self.now = 0
        """The wall clock's time as a TSO."""
        self.command = command
        self._discarded: set[VersionKey] = set()
        self._retired: set[str] = set()
        """Stand-ins whose files have gone to the tables that they are of."""
        self.unreadable: Final[dict[str, tuple[VersionKey, str]]] = {}
        """Unreadable schema file's path → directory and why; it may hold that table's statement."""
        self._tells_time = tells_time
        self.tables: dict[str, TableConsumer] = {}
        self.renamings = 0
        """How often names or tables came to be known otherwise: what follows from names is
        outdated.
        """
        self.stored_checkpoint = restart.checkpoint
        """The stored checkpoint that idle tables follow, inclusive: see `Checkpoints.running`."""
        self.stored_lowest = restart.lowest
        """The stored `Checkpoints.lowest`."""
        self.stored_reach = 0
        """The storage checkpoint that this process has stored."""
        self.stored_behind: Final = {key: restart.tables.get(key, 0) for key in restart.behind}
        """Key → stored checkpoint of tables that did not follow the feed's at load, until they do.
        """
        self.to_be_stored: list[TableConsumer] = []
        """Tables that took over files, and stand-ins that went away; see `taken_over`."""
        self._restart = restart
        self.sequences = FileSequences(restart.done)
        self._owners: dict[VersionKey, str] = {}
        # Table directory → version → the name in its schema file.
        self._names = defaultdict[str, ByNumber[TableName]](ByNumber)

    def table(self, name: TableName, checkpoint: int | None = None) -> TableConsumer:
        """Return a table's (or a database's) consumer, created at `checkpoint` if that is known."""
        key = key_of(name)
        if key not in self.tables:
            restart, status = self._restart, self._restored(key, name)
            if checkpoint is None:
                # Only tables that moved are stored in a round: an idle one is as far as the feed,
                # whatever its own row says.
                follows = 0 if key in restart.behind else self.stored_checkpoint
                checkpoint = max(restart.tables.get(key, 0), follows)
                # One that was loaded may be behind what others were told. It counts now that it is
                # left out, and that must not fall.
                checkpoint = (
                    max(checkpoint, restart.lowest)
                    if status.left_out or status.skipped
                    else checkpoint
                )
            table = TableConsumer(
                name,
                checkpoint,
                self.sequences,
                tells_time=self._tells_time,
                status=status,
                # What the feed began with holds all that came before it, of whatever table.
                copies=restart.copies.get(key) or Copies(copied_at=restart.floor),
            )
            table.loaded_from = restart.loads[key].low if key in restart.loads else 0
            self.late.begin(key, checkpoint)
            # Their files may be listed later: `look_at_copies` skips them after each dispatch.
            self._copied += [table] if table.copies.known.passed else []
            self.tables[key] = table
            self.renamings += 1
        return self.tables[key]

    def _restored(self, key: str, name: TableName) -> TableStanding:
        """Return how a table stands by the settings and by what an earlier run left."""
        restart = self._restart
        left_out = bool(name.table) and self._selection.filter.leaves_out(name)
        dropped = key in restart.dropped
        restored = TableStanding(
            dropped=dropped,
            left_out=left_out,
            named=(load := restart.loads.get(key)) is not None
            and load.phase != LoadPhase.REQUESTED,
            nowhere=self._selection.why_nowhere(name),
            lacks_past=bool(name.table) and key in restart.excluded and not left_out,
            held=key in restart.held and not (left_out or dropped),
            skipped=restart.skipped.get(key, "") if name.table else "",
        )
        if load is not None and not left_out:
            loading, joining = load.phase == LoadPhase.LOADING, load.phase == LoadPhase.JOINING
            restored = replace(restored, loading=loading, joining=joining).released
        # What others were told is beyond it, as it can only be after a copy: its load may have made
        # way for another one since.
        apart = key in restart.behind and restart.tables.get(key, 0) < restart.lowest
        if apart and not (left_out or restored.lacks_past or dropped or restored.skipped):
            restored = replace(restored, joining=not restored.loading)
        if key in restart.lost and not left_out:
            return replace(restored, state=TableState.LOST, error=restart.lost[key])
        if restored.lacks_past:
            return replace(
                restored,
                state=TableState.HALTED,
                error=f"{WAS_LEFT_OUT}. Leave it out again, or {self._copy(name)}",
            )
        if not restored.held:
            return restored
        return replace(
            restored, state=TableState.HALTED, error=restart.held[key], paused=key in restart.paused
        )

    def _copy(self, name: TableName) -> str:
        """Return how a table continues with a copy."""
        return _COPY.format(self.command("reload-done", name))

    def look_at_copies(self, *, again: bool) -> None:
        """Skip what copies hold.

        Unless `again`, create all tables that lack something, are held or are behind, in the bucket
        or not.
        """
        restart = self._restart
        if not again:
            # What a table lacks stays known even if no file shows the table any more; and one that
            # is behind catches up.
            lacking = {
                key for key, copies in restart.copies.items() if copies.is_of_note(self.sequences)
            }
            for key in (
                restart.lost.keys()
                | restart.held.keys()
                | lacking
                | (restart.behind - self._retired)
            ):
                # Of one that is left out from now on nothing is missed.
                if (
                    key in restart.targets
                    and key not in self.tables
                    and not self._selection.filter.leaves_out(restart.targets[key][0])
                ):
                    self.table(restart.targets[key][0])
            gone = restart.skipped.keys() | self._retired
            for key, name in restart.excluded.items():
                if name.table and key not in gone and not self._selection.filter.leaves_out(name):
                    self._note_exclusion(self.table(name))
            # A table of which the bucket has nothing yet is in the copy all the same, and the copy
            # is sure of its name.
            for load in restart.loads.values():
                if load.phase != LoadPhase.REQUESTED and self.table(load.name).status.excluded:
                    self.to_be_stored.append(self.table(load.name))
        for table in self._copied:
            table.copies.pass_over()

    def owner(self, key: VersionKey) -> TableConsumer:
        """Return the table that a version directory belongs to."""
        if key not in self._owners:
            version, table_dir = key
            table = self.table(
                self._names[table_dir].before(version + 1) or stand_in_for(table_dir)
            )
            self._owners[key] = table.key
            # With its first files a table without a schema file is a stand-in.
            self.renamings += not table.files.versions
            table.files.version(key)
        return self.tables[self._owners[key]]

    def __contains__(self, key: VersionKey) -> bool:
        """Return whether a version directory was seen."""
        return key in self._owners

    def has_structure(self, key: VersionKey) -> bool:
        """Return whether a schema file of a version directory was taken."""
        return key in self._owners and self.owner(key).files.version(key).definition is not None

    def define(self, table_dir: str, definition: TableDefinition) -> TableConsumer:
        """Take a schema file; return the table that its version directory belongs to from now on.

        Of several files of one version directory, the one that gives the structure of the rows in
        it counts.
        """
        key = definition.version, table_dir
        names = self._names[table_dir]
        # Without this very version: what the directory held before it.
        before = names.before(definition.version)
        known = self.owner(key).files.version(key).definition if key in self._owners else None
        # A worse fit does not replace a better one, in whatever order the files arrive.
        if known is not None and _fits(definition, before) < _fits(known, before):
            return self.owner(key)
        # The first schema file of this directory: until now only the path said whose it is.
        if not names:
            self._replace_stand_in(table_dir, definition.name)
        names[definition.version] = definition.name
        table = self.table(definition.name)
        if key in self._owners and self._owners[key] != table.key:
            self._move(key, table)
        self._owners[key] = table.key
        table.files.define(key, definition)
        self._note_exclusion(table)
        known_as = table.name, table.status.named
        table.take_name(definition)
        self.renamings += (table.name, table.status.named) != known_as
        return table

    def _note_exclusion(self, table: TableConsumer) -> None:
        """Remember a table's exclusion, or note its end: it is never taken without its past."""
        status = table.status
        # Asked before `take_name` marks it as named, so once for each table. One that is left out
        # again is no longer halted, as its stored error may still say.
        if not status.named and (status.left_out or status.lacks_past):
            self.to_be_stored.append(table)

    def vanished(self, files: Iterable[DataFile]) -> list[TableConsumer]:
        """Note files no longer stored, awaited if unfinished; return tables that now lost one."""
        lost = {}
        for file in files:
            table = self.owner(file.version_key) if file.version_key in self else None
            # Nothing shows that the changefeed wrote these files, so they are not missed; the
            # operator has to say whose they were.
            if table is not None and table.is_stand_in:
                table.files.version(file.version_key).remove(file)
                table.halt(_STRAY.format(file.stored.path.rpartition("/")[0]), "file")
                lost[table.key] = table
            elif (
                table is not None
                and not table.status.excluded
                and table.files.version(file.version_key).forget(file)
            ):
                table.copies.miss([(file.sequence, file.number, file.number)], self.now)
                lost[table.key] = table
        return list(lost.values())

    def offer(self, table: TableConsumer, file: DataFile) -> bool:
        """Hand a data file to its table; return False if it was finished in its present state.

        If the table already lacks rows, or files after this one, a file that changes before it was
        read may have overwritten more, or vanished with more: a copy has to be newer.
        """
        sequence = self.sequences[file.sequence]
        # Before the file is taken: a pending one has changed before it was read.
        again = file.stored.path in sequence.pending
        taken = table.files.offer(file)
        if not again:
            return taken
        table.copies.note_change()
        known = table.copies.known
        lost = table.status.state == TableState.LOST and file.number not in sequence.same_size
        if (
            lost or file.number <= known.absent.get(file.sequence, 0)
        ) and known.copy_from < self.now:
            if lost:
                table.lose(_LOST.format(self._copy(table.name)), self.now)
            else:
                table.copies.need(self.now)
            self.to_be_stored.append(table)
        return taken

    def discard(self, file: DataFile) -> None:
        """Skip a file of a left-out table, and whatever else comes in its directory."""
        self._discarded.add(file.version_key)
        self.sequences.discard(file.sequence)

    def left_out_directories(self) -> frozenset[str]:
        """Return version directories that need no listing: those of left-out tables."""
        return frozenset(f"{table_dir}/{version}" for version, table_dir in self._discarded)

    def taken_over(self) -> list[TableConsumer]:
        """Return tables that newly took over files by a schema file; save their progress."""
        stored, self.to_be_stored = self.to_be_stored, []
        return stored

    def overwritten(self, files: Iterable[DataFile]) -> dict[str, str]:
        """Note files rewritten unseen, whose rows may pass for repeats.

        Return table key → why the table cannot continue.
        """
        found: dict[str, list[DataFile]] = {}
        for file in files:
            found.setdefault(self.owner(file.version_key).key, []).append(file)
        return {
            key: self._overwritten(self.tables[key], f)
            for key, f in found.items()
            if not self.tables[key].status.excluded
        }

    def _overwritten(self, table: TableConsumer, files: Iterable[DataFile]) -> str:
        """Note that a table may lack rows of these files; return the error.

        If all have the size with which they were finished, an operator may know that the content is
        the same too. Then the table itself is the copy that it needs, and `table reload-done`
        accepts it.
        """
        first, *_ = files
        same = all(file.number in self.sequences[file.sequence].same_size for file in files)
        error = _OVERWRITTEN.format(first.stored.path, table.checkpoint, self._copy(table.name))
        if same:
            by_hand = self.command("reload-done", table.name).rpartition(OR_BY_HAND)[2]
            as_it_is = by_hand.replace("--at TSO", f"--at {table.checkpoint}")
            error += _RESTORED.format(as_it_is)
        # With equal sizes a copy as of the table's checkpoint is enough: maybe itself.
        table.lose(error, table.checkpoint if same else self.now)
        return error

    def _replace_stand_in(self, table_dir: str, name: TableName) -> None:
        """Give the files known by their path alone to the table that they turn out to belong to."""
        stand_in, restart = stand_in_for(table_dir), self._restart
        old_key, new_key = key_of(stand_in), key_of(name)
        # A stand-in is left out by an operator only, as the filter goes by names.
        passed = old_key in restart.skipped or (
            old_key in restart.excluded and old_key in restart.held
        )
        # The path had the right name all along, or nothing was known by it alone.
        if old_key == new_key or not (
            old_key in self.tables or old_key in restart.behind or passed
        ):
            return
        old, is_new = (
            self.table(stand_in),
            new_key not in self.tables and new_key not in restart.tables,
        )
        # Nothing was applied under the new name before, so it inherits how far the stand-in came.
        new = self.table(name, old.checkpoint if is_new else None)
        lacks = passed or old.status.state == TableState.LOST or bool(old.copies.known.absent)
        # Rows in its unread files may be at or below what the table has passed already, where they
        # would count as repeats.
        if lacks or (
            old.checkpoint < new.checkpoint and (old.files.pending or old_key in restart.behind)
        ):
            self._mark_late(new, f"the files in {table_dir}")
        for key in [key for key in old.files.versions if key[1] == table_dir]:
            self._move(key, new)
            self._owners[key] = new_key
        if not old.files.versions:
            del self.tables[old_key]
            self.renamings += 1
            old.retire(self.stored_checkpoint)
            self._retired.add(old_key)
            self.to_be_stored += (old,) if new.status.state == TableState.LOST else (new, old)

    def _move(self, key: VersionKey, new: TableConsumer) -> None:
        """Hand a version directory, with its files and marks, to another table."""
        old = self.tables[self._owners[key]]
        version = old.files.give_away(key)
        new.files.take_over(key, version)
        self.renamings += 1
        # Files that were discarded for a table left out were never read, so a table that is taken
        # now lacks their rows.
        unread = key in self._discarded and not new.status.left_out
        if unread or (version.pending and old.checkpoint < new.checkpoint):
            self._mark_late(new, f"the files in {key[1]}/{key[0]}")
        error = next((why for of, why in self.unreadable.values() if of == key), "")
        if error and not (new.status.left_out or new.status.is_halted):
            new.halt(error, "schema")
            self.to_be_stored.append(new)

    def _mark_late(self, table: TableConsumer, what: str) -> None:
        """Halt a table that gained rows too late: nothing showed in time that they were its own."""
        if table.status.state == TableState.LOST:
            return
        error = (
            f"{what} turned out to belong to this table after later rows of it had been applied: their schema file "
            f"was missing or unreadable; {self._copy(table.name)}"
        )
        table.lose(error, self.now)
        self.to_be_stored.append(table)


def stand_in_for(table_dir: str) -> TableName:
    """Return the likeliest name of the table in a directory."""
    schema, _, table = table_dir.partition("/")
    return TableName(schema=_shortened(schema), table=_shortened(table))


def _shortened(text: str) -> str:
    """Cut part of a path to a stored name's length; no such path's file names its table so."""
    if len(text) <= _LONGEST:
        return text
    # With a checksum of all of it, so that two long paths stay two tables.
    return f"{text[:_LONGEST]}… {zlib.crc32(text.encode('utf-8', 'surrogatepass')):08x}"


def _fits(definition: TableDefinition, before: TableName | None) -> tuple[int, bool]:
    """Rate how a schema file fits its directory's rows; `before`: the table they belonged to.

    After a cycle of renames a directory can hold two files of one version; the rows fit the one
    that gave the table its name. Where ids are paths, EXCHANGE PARTITION leaves one file for the
    table that had the id and one for the table that has it now.
    """
    changes = before is not None and definition.name.folded() != before.folded()
    if not definition.is_ddl:
        return 1, changes
    if parsed(definition).is_astray:
        return 0, changes
    # A rename gave the table its name, so it fits better than any other statement of the version.
    return (2 if parsed(definition).renamed is None else 3), changes
