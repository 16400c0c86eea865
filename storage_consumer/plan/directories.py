"""Catalog: which table each version directory belongs to, by the definition in its schema file, never by its path. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from storage_consumer.model import DataFile, TableDefinition, TableName, VersionKey
from storage_consumer.plan.copies import Copies
from storage_consumer.plan.file_sequence import Streams
from storage_consumer.plan.finished_files import Finished
from storage_consumer.plan.renames import is_astray, renamed
from storage_consumer.plan.selection import Selection
from storage_consumer.plan.steps import key_of
from storage_consumer.plan.table import HALTED, RUNNING, TableConsumer
from storage_consumer.plan.table_decisions import Verb
from storage_consumer.plan.table_words import table_flag

_WAS_LEFT_OUT = "the filter left this table out until now, so its earlier rows are missing. Leave it out again, or {}"
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
    "missing, and the target's table itself is that copy: run {}. Next time, run `storage-consumer rebind "
    "--restored` before the start to avoid this"
)
_COPY = "reload the table from the source as of now or later, then run this with the TSO of the copy: {}"
Commands = Callable[[Verb, TableName], str]
"""Returns the command for a decision about a table."""


def plain_command(verb: Verb, name: TableName) -> str:
    """Return the command without the options that lead to the target."""
    return f"storage-consumer table {verb} {table_flag(name)}{' --at TSO' if verb == 'reload-done' else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """What an earlier run left in the target. Tables are named by their keys, see `key_of`."""

    checkpoint: int = 0
    """How far the tables are that are not halted, inclusive; every table without a checkpoint of its own follows it."""
    lowest: int = 0
    """The smallest checkpoint of all tables that are not left out, as reported to others."""
    tables: Mapping[str, int] = field(default_factory=dict)
    """Table → its own checkpoint, inclusive."""
    behind: frozenset[str] = frozenset()
    """Tables that do not follow the checkpoint of the whole: halted, or not caught up since."""
    dropped: frozenset[str] = frozenset()
    """Tables that no longer existed."""
    lost: frozenset[str] = frozenset()
    """Tables that lack rows which no file holds any more: they continue with a copy."""
    held: Mapping[str, str] = field(default_factory=dict)
    """Table that an operator holds → who, and until when."""
    copies: Mapping[str, Copies] = field(default_factory=dict)
    """Table → what a copy of it has to hold, or held."""
    done: Mapping[str, Finished] = field(default_factory=dict)
    """Stream → how far it is finished."""
    excluded: frozenset[str] = frozenset()
    """Tables that the filter left out."""
    targets: Mapping[str, tuple[TableName, TableName]] = field(default_factory=dict)
    """Table → its name in the bucket and the one in the target, for those that are there."""
    journalled: frozenset[tuple[str, int, int]] = frozenset()
    """Identities of the DDL that are done, or skipped by decision."""
    started: frozenset[tuple[str, int, int]] = frozenset()
    """Identities of the DDL that were sent to the target and may have taken effect."""


class Catalog:
    """All tables of one bucket, each with its version directories.

    A version directory without a known schema file belongs to the table named by the newest older version of the same table
    directory. Without an older one it belongs to a stand-in that is named after the path.
    """

    def __init__(
        self,
        restart: Restart,
        *,
        timed: bool = True,
        selection: Selection | None = None,
        command: Commands = plain_command,
    ) -> None:
        """Begin with what an earlier run left; `timed`: see `TableConsumer`."""
        self._selection = selection or Selection()
        self._copied: list[TableConsumer] = []
        self.now = 0
        """The wall clock's time as a TSO."""
        self.command = command
        self.discarded: set[VersionKey] = set()
        """Version directories of which files were passed over, since their table is left out."""
        self._timed = timed
        self.tables: dict[str, TableConsumer] = {}
        self.stored_checkpoint = restart.checkpoint
        self.to_be_stored: list[TableConsumer] = []
        """Tables that took over files from another, and the stand-ins that went away."""
        self._restart = restart
        self.streams = Streams(restart.done)
        self._owners: dict[VersionKey, str] = {}
        self._names: dict[str, dict[int, TableName]] = {}

    def table(self, name: TableName) -> TableConsumer:
        """Return the one consumer of a table (or of a database's own DDL), created on first use."""
        key = key_of(name)
        if key not in self.tables:
            restart = self._restart
            follows = 0 if key in restart.behind else self.stored_checkpoint
            table = TableConsumer(name, max(restart.tables.get(key, 0), follows), self.streams, timed=self._timed)
            table.dropped = key in restart.dropped
            table.left_out = bool(name.table) and self._selection.filter.leaves_out(name)
            table.nowhere = self._selection.why_nowhere(name)
            table.lacks_past = bool(name.table) and key in restart.excluded and not table.left_out
            copies = restart.copies.get(key, Copies())
            table.copy_from, table.absent = copies.copy_from, dict(copies.absent)
            table.copied_at, table.passed = copies.copied_at, copies.passed
            table.listed, table.listed_at = dict(copies.listed), copies.listed_at
            self._copied += [table] if table.passed else []
            table.held = key in restart.held and not (table.left_out or table.dropped)
            table.late = key in restart.lost and not table.left_out
            if table.late or table.lacks_past:
                table.state, table.error = HALTED, (_LOST if table.late else _WAS_LEFT_OUT).format(self._copy(name))
            elif table.held:
                table.state, table.error = HALTED, restart.held[key]
            self.tables[key] = table
        return self.tables[key]

    def _copy(self, name: TableName) -> str:
        """Return how a table continues with a copy."""
        return _COPY.format(self.command("reload-done", name))

    def look_at_copies(self, *, again: bool) -> None:
        """Stop waiting for what copies hold; unless `again`, create all tables that lack something or are held, in the bucket or not."""
        restart = self._restart
        for key in () if again else restart.lost | restart.held.keys() | restart.copies.keys():
            if key in restart.targets and key not in self.tables:
                self.table(restart.targets[key][0])
        for table in self._copied:
            table.pass_over()

    def owner(self, key: VersionKey) -> TableConsumer:
        """Return the table that a version directory belongs to."""
        if key not in self._owners:
            version, table_dir = key
            older = [(number, name) for number, name in self._names.get(table_dir, {}).items() if number <= version]
            table = self.table(max(older)[1] if older else stand_in_for(table_dir))
            self._owners[key] = table.key
            table.version(key)
        return self.tables[self._owners[key]]

    def __contains__(self, key: VersionKey) -> bool:
        """Return whether a version directory was seen."""
        return key in self._owners

    def has_structure(self, key: VersionKey) -> bool:
        """Return whether a schema file of a version directory was taken."""
        return key in self._owners and self.owner(key).version(key).definition is not None

    def define(self, table_dir: str, definition: TableDefinition) -> TableConsumer:
        """Take a schema file; return the table that its version directory belongs to from now on.

        Of several files of one version directory, the one that gives the structure of the rows in it counts.
        """
        key = definition.version, table_dir
        names = self._names.setdefault(table_dir, {})
        older = [(number, name) for number, name in names.items() if number < definition.version]
        before = max(older)[1] if older else None
        known = self.owner(key).version(key).definition if key in self._owners else None
        # A worse fit does not replace a better one, in whatever order the files arrive.
        if known is not None and _fits(definition, before) < _fits(known, before):
            return self.owner(key)
        if not names:
            self._replace_stand_in(table_dir, definition.name)
        names[definition.version] = definition.name
        table = self.table(definition.name)
        if key in self._owners and self._owners[key] != table.key:
            self._move(key, table)
        self._owners[key] = table.key
        table.version(key).definition = definition
        self._note_exclusion(table)
        # The name follows the newest file: it may differ from the older ones in case.
        if not is_astray(definition) and definition.version >= max(number for number, _ in table.versions):
            table.name = definition.name
        return table

    def _note_exclusion(self, table: TableConsumer) -> None:
        """Remember a table that is left out, so that it is never taken later without its past; or note that this has happened now."""
        new = table.left_out and table.key not in self._restart.excluded
        if not table.named and (new or table.lacks_past):
            self.to_be_stored.append(table)
        table.named = True

    def vanished(self, files: Iterable[DataFile]) -> list[TableConsumer]:
        """Note files that are no longer stored; a table waits for those that were unfinished. Return the tables that lost one now."""
        lost = {}
        for file in files:
            table = self.owner(file.version_key) if file.version_key in self else None
            if table is not None and table.is_stand_in:
                table.version(file.version_key).remove(file)
                table.halt(_STRAY.format(file.stored.path.rpartition("/")[0]))
                lost[table.key] = table
            elif table is not None and not table.excluded and table.version(file.version_key).forget(file):
                table.misses([(file.stream, file.number, file.number)], self.now)
                lost[table.key] = table
        return list(lost.values())

    def offer(self, table: TableConsumer, file: DataFile) -> bool:
        """Hand a data file to its table; return False for one that an earlier run finished in its present state.

        If the table already lacks rows, or files after this one, a file that changes before it was read may have overwritten more,
        or vanished with more: a copy has to be newer.
        """
        stream = self.streams[file.stream]
        again = file.stored.path in stream.pending
        taken = table.offer(file)
        table.changed |= again
        lost = (table.late and file.number not in stream.same_size) or file.number <= table.absent.get(file.stream, 0)
        if again and lost and table.copy_from < self.now:
            table.copy_from = self.now
            self.to_be_stored.append(table)
        return taken

    def overwritten(self, files: Iterable[DataFile]) -> dict[str, str]:
        """Note files rewritten unseen, whose rows may pass for repeats; return table key → why the table can't continue."""
        found: dict[str, list[DataFile]] = {}
        for file in files:
            found.setdefault(self.owner(file.version_key).key, []).append(file)
        return {
            key: self._overwritten(self.tables[key], f) for key, f in found.items() if not self.tables[key].excluded
        }

    def _overwritten(self, table: TableConsumer, files: Iterable[DataFile]) -> str:
        """Note that a table may lack rows of these files; return the error.

        If all have the size with which they were finished, an operator may know that the content is the same too. Then the table
        itself is the copy that it needs, and `table reload-done` accepts it.
        """
        first, *_ = files
        same = all(file.number in self.streams[file.stream].same_size for file in files)
        # With equal sizes a copy as of the table's own checkpoint is enough: the table itself may be that copy.
        table.late, table.copy_from = True, max(table.copy_from, table.checkpoint if same else self.now)
        error = _OVERWRITTEN.format(first.stored.path, table.checkpoint, self._copy(table.name))
        return error + _RESTORED.format(self._as_it_is(table)) if same else error

    def _as_it_is(self, table: TableConsumer) -> str:
        """Return the command by which a table continues as it is."""
        return self.command("reload-done", table.name).replace("--at TSO", f"--at {table.checkpoint}")

    def _replace_stand_in(self, table_dir: str, name: TableName) -> None:
        """Give the files known by their path alone to the table that they turn out to belong to."""
        stand_in, restart = stand_in_for(table_dir), self._restart
        old_key, new_key = key_of(stand_in), key_of(name)
        if old_key == new_key or not (old_key in self.tables or old_key in restart.behind):
            return
        old, is_new = self.table(stand_in), new_key not in self.tables and new_key not in restart.tables
        new = self.table(name)
        # Nothing was applied under the new name before, so it inherits how far the stand-in came.
        if is_new:
            new.checkpoint = old.checkpoint
        lacks = old.late or bool(old.absent)
        if lacks or (old.checkpoint < new.checkpoint and (old.pending or old_key in restart.behind)):
            self._halt_late(new, f"the files in {table_dir}")
        for key in [key for key in old.versions if key[1] == table_dir]:
            self._move(key, new)
            self._owners[key] = new_key
        if not old.versions:
            # Stored as dropped and caught up, so that the stand-in holds up nothing after a restart.
            del self.tables[old_key]
            old.state, old.error, old.dropped, old.late = RUNNING, "", True, False
            old.advance(self.stored_checkpoint)
            self.to_be_stored += (old,) if new.late else (new, old)

    def _move(self, key: VersionKey, new: TableConsumer) -> None:
        """Hand a version directory, with its files and marks, to another table."""
        old = self.tables[self._owners[key]]
        version = old.give_away(key)
        new.take_over(key, version)
        # Files that were discarded for a table left out were never read, so a table that is taken now lacks their rows.
        unread = key in self.discarded and not new.left_out
        if unread or (version.pending and old.checkpoint < new.checkpoint):
            self._halt_late(new, f"the files in {key[1]}/{key[0]}")

    def _halt_late(self, table: TableConsumer, what: str) -> None:
        """Halt a table that gained rows too late: nothing showed in time that they were its own."""
        if table.late:
            return
        table.state, table.late, table.copy_from = HALTED, True, max(table.copy_from, self.now)
        table.error = (
            f"{what} turned out to belong to this table after later rows of it had been applied: their schema file "
            f"was missing or unreadable; {self._copy(table.name)}"
        )
        self.to_be_stored.append(table)


def stand_in_for(table_dir: str) -> TableName:
    """Return the likeliest name of the table in a directory."""
    schema, _, table = table_dir.partition("/")
    return TableName(schema=schema, table=table)


def _fits(definition: TableDefinition, before: TableName | None) -> tuple[int, bool]:
    """Return how well a schema file fits the rows in its version directory; `before`: the table that they belonged to until then.

    After a cycle of renames a directory can hold two files of one version; the rows fit the one that gave the table its name.
    Where ids are paths, EXCHANGE PARTITION leaves one file for the table that had the id and one for the table that has it now.
    """
    changes = before is not None and definition.name.folded() != before.folded()
    if not definition.is_ddl:
        return 1, changes
    if is_astray(definition):
        return 0, changes
    return (2 if renamed(definition) is None else 3), changes
