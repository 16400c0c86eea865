"""Catalog: which table each version directory belongs to, by the definition in its schema file, never by its path. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from storage_consumer.consumers.table import HALTED, RUNNING, TableConsumer
from storage_consumer.consumers.table_version import Finished
from storage_consumer.model import DataFile, TableDefinition, TableName, VersionKey
from storage_consumer.planning.renames import is_astray, renamed
from storage_consumer.planning.steps import key_of

_WAS_LEFT_OUT = (
    "the filter left this table out until now, so that its rows from before are missing. Give the table a fresh copy, then set its "
    "row in the state schema's table_progress to state 'running' and to the checkpoint (commit ts) of that copy, and start again; or leave it out as before"
)
_LOST = (
    "a data file of this table vanished or was written anew before it was read, or could not be told to be of this table in "
    "time: rows are missing. "
    "Give the table a fresh copy, or restore the file, then set its row in the state schema's table_progress to state 'running' "
    "and start again"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """What an earlier run left in the target. Tables go by their keys, see `key_of`."""

    checkpoint: int = 0
    """Checkpoint of the whole, inclusive; every table that has none of its own follows it."""
    tables: Mapping[str, int] = field(default_factory=dict)
    """Table → its own checkpoint, inclusive."""
    behind: frozenset[str] = frozenset()
    """Tables that do not follow the checkpoint of the whole: halted, or not caught up since they were."""
    dropped: frozenset[str] = frozenset()
    """Tables that did not exist any more."""
    lost: frozenset[str] = frozenset()
    """Tables of which a file vanished before it was read: only an operator can let them go on."""
    done: Mapping[str, Finished] = field(default_factory=dict)
    """Stream → how far it is finished."""
    excluded: frozenset[str] = frozenset()
    """Tables that the filter left out."""
    targets: Mapping[str, tuple[TableName, TableName]] = field(default_factory=dict)
    """Table → its name in the bucket and the one in the target, of those that are there."""
    journalled: frozenset[tuple[str, int, int]] = frozenset()
    """Identities of the DDL that are done, or skipped by decision."""
    started: frozenset[tuple[str, int, int]] = frozenset()
    """Identities of the DDL that were sent to the target and may have taken effect."""


class Catalog:
    """All tables of one bucket, each with its version directories.

    A version directory whose schema file is not known yet belongs to the table that the newest older one of its directory
    names, and where there is none, to a stand-in that is named after the path.
    """

    def __init__(
        self, restart: Restart, *, timed: bool = True, leaves_out: Callable[[TableName], bool] = lambda _: False
    ) -> None:
        """With what an earlier run left; `timed`: see `TableConsumer`; `leaves_out`: whether the filter leaves a table out."""
        self._leaves_out = leaves_out
        self.discarded: set[VersionKey] = set()
        """Version directories of which files were passed over, since their table is left out."""
        self._timed = timed
        self.tables: dict[str, TableConsumer] = {}
        self.stored_checkpoint = restart.checkpoint
        self.to_be_stored: list[TableConsumer] = []
        """Tables that took over files from another, and the stand-ins that went away."""
        self._restart = restart
        self._done = dict(restart.done)
        self._owners: dict[VersionKey, str] = {}
        self._names: dict[str, dict[int, TableName]] = {}

    def table(self, name: TableName) -> TableConsumer:
        """The one consumer of a table (or of a database's own DDL), made at first sight."""
        key = key_of(name)
        if key not in self.tables:
            restart = self._restart
            follows = 0 if key in restart.behind else self.stored_checkpoint
            table = TableConsumer(name, max(restart.tables.get(key, 0), follows), self._done, timed=self._timed)
            table.dropped = key in restart.dropped
            table.left_out = bool(name.table) and self._leaves_out(name)
            table.lacks_past = bool(name.table) and key in restart.excluded and not table.left_out
            if table.lacks_past or key in restart.lost:
                table.state, table.error = HALTED, _LOST if key in restart.lost else _WAS_LEFT_OUT
            self.tables[key] = table
        return self.tables[key]

    def owner(self, key: VersionKey) -> TableConsumer:
        """The table that a version directory belongs to."""
        if key not in self._owners:
            version, table_dir = key
            older = [(number, name) for number, name in self._names.get(table_dir, {}).items() if number <= version]
            table = self.table(max(older)[1] if older else stand_in_for(table_dir))
            self._owners[key] = table.key
            table.version(key)
        return self.tables[self._owners[key]]

    def __contains__(self, key: VersionKey) -> bool:
        """Whether a version directory was seen."""
        return key in self._owners

    def has_structure(self, key: VersionKey) -> bool:
        """Whether a schema file of a version directory was taken."""
        return key in self._owners and self.owner(key).version(key).definition is not None

    def define(self, table_dir: str, definition: TableDefinition) -> TableConsumer:
        """Take a schema file; the table that its version directory belongs to from now on.

        Of several files of one version directory the one counts that tells the structure of the rows in it.
        """
        key = definition.version, table_dir
        names = self._names.setdefault(table_dir, {})
        older = [(number, name) for number, name in names.items() if number < definition.version]
        before = max(older)[1] if older else None
        known = self.owner(key).version(key).definition if key in self._owners else None
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
        if not is_astray(definition) and definition.version >= max(number for number, _ in table.versions):
            table.name = definition.name
        return table

    def _note_exclusion(self, table: TableConsumer) -> None:
        """Remember a table that is left out, so that it is not taken one day without its past; or that this day has come."""
        new = table.left_out and table.key not in self._restart.excluded
        if not table.named and (new or table.lacks_past):
            self.to_be_stored.append(table)
        table.named = True

    def vanished(self, files: Iterable[DataFile]) -> list[TableConsumer]:
        """Files that are no longer stored; a table waits for those that were not finished. The tables that lost one now."""
        lost = {}
        for file in files:
            table = self.owner(file.version_key) if file.version_key in self else None
            if table is not None and not table.excluded and table.version(file.version_key).forget(file):
                lost[table.key] = table
        return list(lost.values())

    def overwritten(self, files: Iterable[DataFile]) -> dict[str, str]:
        """Files that were written anew unseen, so that rows in them may pass for repeats; table key → why it can't go on."""
        halted: dict[str, str] = {}
        for file in files:
            table = self.owner(file.version_key)
            if table.excluded:
                continue
            table.late = True
            halted.setdefault(
                table.key,
                f"{file.stored.path} was written anew after the files beyond it, and rows up to checkpoint {table.checkpoint} "
                "were applied by then: rows are missing. With enable-partition-separator = false the partitions of a table "
                "overwrite one another's files; set it to true in the changefeed, start that anew, and give the table a fresh copy",
            )
        return halted

    def _replace_stand_in(self, table_dir: str, name: TableName) -> None:
        """Give what stood under the path alone to the table that it turns out to be."""
        stand_in, restart = stand_in_for(table_dir), self._restart
        old_key, new_key = key_of(stand_in), key_of(name)
        if old_key == new_key or not (old_key in self.tables or old_key in restart.behind):
            return
        old, is_new = self.table(stand_in), new_key not in self.tables and new_key not in restart.tables
        new = self.table(name)
        if is_new:
            new.checkpoint = old.checkpoint
        if old_key in restart.lost or old.lost:
            self._halt_late(new, f"the files in {table_dir}")
        elif old.checkpoint < new.checkpoint and (old.pending or old_key in restart.behind):
            self._halt_late(new, f"the files in {table_dir}", f" (delete the row of {old_key} there)")
        for key in [key for key in old.versions if key[1] == table_dir]:
            self._move(key, new)
            self._owners[key] = new_key
        if not old.versions:
            del self.tables[old_key]
            if not new.late:
                old.state, old.error, old.dropped = RUNNING, "", True
                old.advance(self.stored_checkpoint)
                self.to_be_stored += (new, old)

    def _move(self, key: VersionKey, new: TableConsumer) -> None:
        """Hand a version directory, with its files and marks, to another table."""
        old = self.tables[self._owners[key]]
        version = old.give_away(key)
        new.take_over(key, version)
        unread = key in self.discarded and not new.left_out
        if unread or (version.pending and old.checkpoint < new.checkpoint):
            self._halt_late(new, f"the files in {key[1]}/{key[0]}")

    def _halt_late(self, table: TableConsumer, what: str, also: str = "") -> None:
        """Stop a table some of whose rows could not be told to be its own in time."""
        if table.late:
            return
        table.state, table.late = HALTED, True
        table.error = (
            f"{what} turned out to be of this table after later rows of it had been applied: their schema file was not there, or "
            "could not be read. Give the table a fresh copy, then set its row in the state schema's table_progress to state "
            f"'running'{also} and start again"
        )
        self.to_be_stored.append(table)


def stand_in_for(table_dir: str) -> TableName:
    """The likeliest name of the table in a directory."""
    schema, _, table = table_dir.partition("/")
    return TableName(schema=schema, table=table)


def _fits(definition: TableDefinition, before: TableName | None) -> tuple[int, bool]:
    """How well a schema file tells the structure of the rows in its version directory; `before`: whose they were until then.

    After a cycle of renames a directory can hold two files of one version; the rows fit the one that gave the table its name.
    Where ids are paths, EXCHANGE PARTITION leaves one file for the table that had the id and one for the table that has it now.
    """
    changes = before is not None and definition.name.folded() != before.folded()
    if not definition.is_ddl:
        return 1, changes
    if is_astray(definition):
        return 0, changes
    return (2 if renamed(definition) is None else 3), changes
