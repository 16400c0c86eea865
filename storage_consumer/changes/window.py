"""Which files and statements of a bucket are in a window of commit-ts, by the engine's rules.

In which order its statements took effect, and which of them led to a table's structure. What a feed
gives: changes of rows, and statements.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

from storage_consumer.bucket.known_files import oldest_open_date
from storage_consumer.bucket.paths import SchemaPath, parse_other
from storage_consumer.bucket.reader import StorageReader
from storage_consumer.bucket.storage import Storage
from storage_consumer.bucket.table_statements import known_members, known_stored, known_virtual
from storage_consumer.clock import Clock
from storage_consumer.config.settings import Upstream
from storage_consumer.decode.decoder import ABSENT, RowLayout, Values, row_layout
from storage_consumer.decode.kernels.arrays import PARTIAL_DELETE
from storage_consumer.decode.values import is_utc
from storage_consumer.errors import (
    ConfigError,
    FilesMissing,
    NoMetadata,
    NotReplicable,
    StorageUnavailable,
)
from storage_consumer.model import (
    MAX_TSO,
    CommitRange,
    DataFile,
    TableColumn,
    TableDefinition,
    TableName,
    TableVersion,
    VersionKey,
    folded_name,
    folder_of,
)
from storage_consumer.plan.directories import Restart
from storage_consumer.plan.manager import ConsumerManager
from storage_consumer.plan.planner import inferred, lost_rename
from storage_consumer.plan.selection import Filter, Selection
from storage_consumer.plan.steps import MAKES_TABLE
from storage_consumer.plan.table import TableConsumer
from storage_consumer.plan.table_files import TableVersionConsumer
from storage_consumer.plan.unqualified_names import Namesake, homes, of_any_database
from storage_consumer.sql.parse import parsed, with_homes
from storage_consumer.sql.statement import copied_table, creates_as_listed
from storage_consumer.tso import may_hold_rows, row_floor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Structure:
    """What the rows of one version directory have in common."""

    layout: RowLayout
    """What the rows are decoded by."""
    with_members: tuple[TableColumn, ...] = ()
    """Its columns, with members of ENUM and SET that statements in the bucket show and the layout
    does not; empty: it needs none.
    """
    version: int
    """Version of the directory."""
    key: tuple[int, ...]
    """Indexes in the layout of the primary key's columns; empty if there is none."""
    generated: frozenset[int] = frozenset()
    """Indexes of stored generated columns, as far as statements in the bucket show them."""

    @property
    def columns(self) -> tuple[TableColumn, ...]:
        """The layout's columns, with the members of ENUM and SET."""
        return self.with_members or self.layout.columns

    @property
    def key_names(self) -> tuple[str, ...]:
        """The names of the primary key's columns."""
        return tuple(self.columns[place].name for place in self.key)

    def only(self, places: tuple[int, ...]) -> Structure:
        """Return the structure of rows with only these columns, among which are the key's."""
        return replace(
            self,
            layout=replace(
                self.layout, columns=tuple(self.layout.columns[place] for place in places)
            ),
            with_members=tuple(self.with_members[place] for place in places)
            if self.with_members
            else (),
            key=tuple(map(places.index, self.key)),
            generated=frozenset(
                places.index(place) for place in self.generated.intersection(places)
            ),
        )

    @property
    def table(self) -> TableName:
        """The table, by its name in the schema file."""
        return self.layout.table


class Change(NamedTuple):
    """One change of one row."""

    commit_ts: int
    operation: int
    """INSERT, UPDATE, DELETE or PARTIAL_DELETE of `kernels.arrays`; a partial delete has values of
    the key alone.
    """
    values: Values
    """Wire texts by the layout's columns: the new image, or for a delete the old one."""
    old: Values | None
    """The old image of an update, where the files have it."""
    structure: Structure
    file: str
    """Path of the file that holds it."""
    row: int
    """Its number in the file, from 1."""

    def without_absent(self) -> Change:
        """Return the change with a structure that has no columns but those of its row."""
        places = tuple(place for place, text in enumerate(self.values) if text is not ABSENT)
        if len(places) == len(self.values):
            return self
        images = (
            image if image is None else tuple(image[place] for place in places)
            for image in (self.values, self.old)
        )
        values, old = images
        return self._replace(values=values or (), old=old, structure=self.structure.only(places))

    def given(self) -> tuple[int, ...]:
        """Return the columns in `values`: of a partial delete the handle key, never NULL."""
        if self.operation != PARTIAL_DELETE:
            return tuple(range(len(self.values)))
        return tuple(place for place, text in enumerate(self.values) if text is not None)


class FeedStatement(NamedTuple):
    """One DDL statement; rows with a commit-ts at or below its own come before it."""

    commit_ts: int
    definition: TableDefinition
    unclear: str = ""
    """Why nothing tells which tables it names; empty if that is known."""


Event = Change | FeedStatement


_There = dict[TableName, tuple[TableColumn, ...]]
"""The tables that there are, by their folded names, with their columns; without any where they are
not known.
"""


def in_running_order(known: Iterable[TableDefinition]) -> list[TableDefinition]:
    """Return definitions by version, and within one so that each rename's new name is free.

    Names may be swapped in one version.

    A rename of such a swap that no file holds is among them (see `plan.planner.lost_rename`).
    """
    there: _There = {}
    ordered: list[TableDefinition] = []
    by_path = sorted(known, key=lambda each: (each.version, each.path))
    for _, group in groupby(by_path, key=lambda each: each.version):
        ordered += _ordered(list(group), there)
    return ordered


def with_databases(
    ordered: Sequence[TableDefinition],
) -> tuple[list[TableDefinition], dict[str, str]]:
    """Return definitions in running order with databases of open names.

    Also path → why a name stays open.

    What the bucket shows of each database's tables at that time decides, by the rules of `homes`.
    """
    versions = defaultdict[TableName, list[TableDefinition]](list)
    for each in ordered:
        versions[parsed(each).subject.folded()].append(each)
    # What no statement made was there before the bucket begins.
    there: _There = {
        name: () for name, found in versions.items() if found[0].ddl_type not in MAKES_TABLE
    }
    located, unclear = list[TableDefinition](), dict[str, str]()
    for each in ordered:
        namesakes = {
            name: [
                Namesake(
                    name=parsed(versions[folded][0]).subject,
                    columns=columns,
                    # Its next statement shows whether it is still there.
                    stays=next(
                        (
                            v.ddl_type not in MAKES_TABLE
                            for v in versions[folded]
                            if v.version > each.version
                        ),
                        False,
                    ),
                )
                for folded, columns in there.items()
                if folded.table == folded_name(name.table)
            ]
            for name in of_any_database(each)
        }
        try:
            definition = with_homes(each, {}, homes(each, namesakes))
        except NotReplicable as fault:
            definition, unclear[each.path] = each, str(fault)
        located.append(definition)
        _take_effect(definition, there)
    return located, unclear


def lineage(definition: TableDefinition, known: Sequence[TableDefinition]) -> list[TableDefinition]:
    """Return a table's history up to a version, under all its names.

    `known`: all definitions, in running order.

    A table that was made LIKE another one has the past of that, as of then.
    """
    past: dict[TableName | None, list[TableDefinition]] = defaultdict(list)
    gone = set[TableName | None]()
    for each in known:
        if each.version > definition.version:
            break
        renamed, subject = parsed(each).renamed, parsed(each).subject.folded()
        if renamed is not None and renamed[0] != renamed[1]:
            former = past.pop(renamed[0], [])
            # A table that was dropped is not the one that is renamed, of which the bucket shows
            # nothing then.
            past[renamed[1]] = [] if renamed[0] in gone else former
        if parsed(each).head[:1] == ("DROP",):
            gone |= (
                {subject}
                if subject.table
                else {name for name in past if name and name.schema == subject.schema}
            )
        else:
            gone.discard(subject)
        if (copied := copied_table(each.query)) is not None:
            schema, table = copied
            created = next(iter(parsed(each).names), None)
            # Without a database of its own, beside one of the new table, it is in that of a
            # session, which nothing tells.
            is_open = not schema and created is not None and bool(created.schema)
            like = (
                None
                if is_open
                else TableName(schema=schema or each.name.schema, table=table).folded()
            )
            past[subject] = list(past.get(like, ()))
        past[subject].append(each)
    return past[definition.name.folded()]


def _ordered(group: list[TableDefinition], there: _There) -> list[TableDefinition]:
    """Order the definitions of one version; `there`: existing tables before, then after them."""
    waiting, ordered = list(group), list[TableDefinition]()
    while waiting:
        renames = ((each, parsed(each).renamed) for each in waiting)
        taken = next(
            (
                each
                for each, pair in renames
                if pair is None or pair[1] not in there or pair[0] == pair[1]
            ),
            None,
        )
        # At most one per statement, so that the loop ends whatever the names are.
        if taken is None and len(ordered) + len(waiting) < 2 * len(group):
            pairs = [pair for each in waiting if (pair := parsed(each).renamed) is not None]
            # One alone makes no cycle: the bucket does not show that the table of its new name is
            # gone.
            if lost := lost_rename(pairs, there.keys()) if len(pairs) > 1 else None:
                taken = inferred(lost, waiting)
                waiting.append(taken)
        if taken is None:
            # A rename to a name that no other one frees: the bucket does not show that its table is
            # gone.
            found = [(each, pair) for each in waiting if (pair := parsed(each).renamed) is not None]
            old = {pair[0] for _, pair in found}
            taken = next((each for each, pair in found if pair[1] not in old), waiting[0])
        waiting.remove(taken)
        ordered.append(taken)
        _take_effect(taken, there)
    return ordered


def _take_effect(definition: TableDefinition, there: _There) -> None:
    """Note which tables there are after a statement, or a structure."""
    ddl, own = parsed(definition), definition.name.folded()
    if not own.table:
        for name in [
            name for name in there if name.schema == own.schema and ddl.head[:1] == ("DROP",)
        ]:
            del there[name]
        return
    before = () if ddl.renamed is None else there.pop(ddl.renamed[0], ())
    if ddl.head[:1] == ("DROP",) and ddl.head[1:] != ("INDEX",):
        there.pop(own, None)
    else:
        subject = ddl.subject.folded()
        there[subject] = definition.columns or there.get(subject, before)


_LANDMARKS = 4
_WAY_ON = (
    "Begin anew to read what is there now: a stream with a new checkpointLocation, and startingVersion where not all of it is wanted; a follower "
    "from where the bucket begins. Rows from before that come from a copy"
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FeedFile:
    """A data file that may hold rows of the window."""

    file: DataFile
    structure: Structure
    floor: int
    """Rows with a commit-ts at or below it are repeated deliveries, or from before the window."""
    newest: bool
    """Whether no later file of its sequence is known, so that its last row may still be being
    written.
    """
    exact: bool = False
    """Whether it may only be read as it was listed, as the files of an export."""

    def between(self, low: int, high: int) -> CommitRange:
        """Return which rows count in a window or slice, with ``low < commit-ts <= high``."""
        return CommitRange(low=max(low, self.floor), high=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What a window of commit-ts is read from."""

    low: int
    """Exclusive."""
    high: int
    """Inclusive."""
    files: tuple[FeedFile, ...]
    """In the order in which TiCDC wrote those of one table."""
    statements: tuple[FeedStatement, ...]
    """In their order."""


class Contents:
    """What is known of a bucket: it grows with each look."""

    def __init__(self, storage: Storage, upstream: Upstream, clock: Clock, wanted: Filter) -> None:
        """Expect `upstream`'s files in `storage`; `wanted` leaves out all other tables."""
        self._upstream = upstream
        self.reader = StorageReader(storage, upstream, clock)
        """What lists the bucket, and knows whether it is still the same changefeed's."""
        self.reader.way_on = _WAY_ON
        self._filter = wanted
        self._manager = ConsumerManager(
            Restart(), 0.0, tells_time=upstream.tells_time, selection=Selection(filter=self._filter)
        )
        self.definitions: list[TableDefinition] = []
        """What was read of all schema files, in the order in which it took effect, with the
        databases that names belong to, and renames that no file holds.
        """
        self._stored: list[TableDefinition] = []
        self._unclear: Mapping[str, str] = {}
        self._structures: dict[VersionKey, Structure] = {}
        self.checkpoint = 0
        """Every row with a commit-ts at or below it, and every statement below it, is stored; 0
        before the first look.
        """
        self.given = -1
        """Commit-ts up to which (inclusive) all statements were given to somebody; -1: none were.
        """
        self.base: TableDefinition | None = None
        """What an export shows of the one table that is looked at, with its snapshot as version;
        None: there is none.
        """
        self.warnings: list[str] = []
        """What is odd about the bucket, as far as it was looked at."""

    def look(self) -> None:
        """Poll for what is new; raise `NoMetadata`, `StorageUnavailable` or the table's error."""
        poll = self.reader.poll()
        if not poll.checkpoint:
            raise NoMetadata(
                "the bucket has no readable `metadata` with a checkpoint-ts, so nothing in it is known to be complete: "
                "is this the folder of the changefeed, and has it begun?"
            )
        self.warnings += poll.warnings
        placed = list[tuple[str, TableDefinition]]()
        for read in poll.schema_files:
            if isinstance(read.content, StorageUnavailable):
                raise read.content
            if isinstance(read.content, TableDefinition):
                placed.append((read.file.table_dir, read.content))
            elif not self._manager.catalog.owner(
                (read.file.version, read.file.table_dir)
            ).status.excluded:
                raise read.content
        definitions = [definition for _, definition in placed]
        late = [
            each
            for each in definitions
            if each.is_ddl
            and each.version <= self.given
            and (not each.name.table or not self._filter.leaves_out(each.name))
        ]
        if late:
            raise NotReplicable(
                f"{late[0].name}: the statement in {late[0].path} came when everything up to commit-ts {self.given} had been given, which follows it: "
                f"begin again at {late[0].version}"
            )
        self._manager.new_round()
        self._manager.dispatch(
            definitions,
            {definition.path: table_dir for table_dir, definition in placed},
            poll.data_files,
        )
        self.checkpoint = poll.checkpoint
        if definitions:
            self._stored += definitions
            self.definitions, self._unclear = with_databases(in_running_order(self._stored))
            # A directory's owner, and which of its columns are virtual, may be another one now.
            self._structures.clear()

    # windows

    def window(self, low: int, high: int, *, statements: tuple[int, int] | None = None) -> Window:
        """Return the changes with ``low < commit-ts <= high``; `high`: at most the checkpoint.

        `statements`: the same borders for statements, where they differ. Raises `FilesMissing` if a
        file of the window is missing, and `NotReplicable` if the values of a table cannot be read.
        """
        files = list[FeedFile]()
        for table in self._tables():
            # What lies beyond the window is not read: rows at or below a statement's version are in
            # older directories too.
            versions = table.files.open_versions()
            inside = [
                each for each in versions if may_hold_rows(each.version, high, is_ddl=each.is_ddl)
            ]
            gaps = (
                (version, sequence, missing)
                for version in inside
                for sequence, missing, _ in version.gaps()
            )
            for version, sequence, missing in gaps:
                if any(
                    may_hold(file, low) for file in version.sequences[sequence].pending.values()
                ):
                    raise FilesMissing(
                        f"{table.name}: file number {missing} in {folder_of(sequence)} is missing, so changes of this window would be. Restore it from a "
                        "copy of the bucket, leave the table out with --filter, or begin after the gap"
                    )
            for version in inside:
                found = [
                    file
                    for s in version.open_sequences()
                    for file in s.pending.values()
                    if may_hold(file, low)
                ]
                if not found:
                    continue
                structure = self._structure(table, version)
                floor = row_floor(low, version.version, is_ddl=version.is_ddl)
                newest = {
                    file.sequence: file.number
                    for file in sorted(found, key=lambda each: each.number)
                }
                files += (
                    FeedFile(
                        file=file,
                        structure=structure,
                        floor=floor,
                        newest=newest[file.sequence] == file.number,
                    )
                    for file in sorted(found, key=lambda each: each.order)
                )
        return Window(
            low=low,
            high=high,
            files=tuple(files),
            statements=tuple(self.statements(*(statements or (low, high)))),
        )

    def in_force(self, low: int, high: int) -> Iterator[Structure]:
        """Yield structures of rows with ``low < commit-ts <= high``, at least one per known table.

        Also where there are no such rows.
        """
        for table in self._tables():
            versions = [
                each
                for each in table.files.versions.values()
                if each.structure and each.structure.columns
            ]
            versions.sort(key=lambda each: each.version)
            # A name that a table had only while others were swapped.
            if not versions:
                continue
            # The rows of a version end where the next one begins.
            ends = [*(each.version for each in versions[1:]), MAX_TSO]
            found = [
                each
                for each, end in zip(versions, ends, strict=True)
                if may_hold_rows(each.version, high, is_ddl=each.is_ddl) and end > low
            ]
            yield from (self._structure(table, each) for each in found or versions[-1:])

    @property
    def has_tables(self) -> bool:
        """Whether the bucket shows a table that is wanted, also one that was dropped."""
        return bool(self._tables())

    def pending(self) -> list[DataFile]:
        """Return the files that are not finished."""
        versions = (version for table in self._tables() for version in table.files.open_versions())
        sequences = (sequence for version in versions for sequence in version.open_sequences())
        return [file for sequence in sequences for file in sequence.pending.values()]

    def finished_upto(self, file: DataFile) -> int:
        """Return the number up to which all files of this one's sequence are finished."""
        version = self._manager.catalog.owner(file.version_key).files.version(file.version_key)
        return version.sequences[file.sequence].done_upto

    def pass_over(self, file: DataFile, upto: int) -> None:
        """Stop waiting for this sequence's missing files, up to a number (inclusive)."""
        self._manager.catalog.owner(file.version_key).files.pass_over({file.sequence: upto})

    def finish(self, files: Iterable[DataFile]) -> None:
        """Note files without rows beyond the windows read: no later window has them."""
        for file in files:
            self._manager.catalog.owner(file.version_key).files.finish(file)

    def _tables(self) -> list[TableConsumer]:
        tables = self._manager.tables.values()
        return [table for table in tables if table.name.table and not table.status.excluded]

    def _structure(self, table: TableConsumer, version: TableVersionConsumer) -> Structure:
        key = version.version, version.table_dir
        if (found := self._structures.get(key)) is None:
            if version.definition is None:
                raise FilesMissing(
                    f"{table.name}: {version.table_dir}/{version.version} has data files and no schema file, which gives "
                    "the structure of their rows. Restore it from a copy of the bucket, or leave the table out with --filter"
                )
            found = self._structures[key] = self.structure_of(version.definition)
        return found

    def structure_of(self, definition: TableDefinition) -> Structure:
        """Return a definition's rows' structure; raise `NotReplicable` for unreadable values."""
        # What led to it, from the table's beginning on: that is what the export shows if the bucket
        # does not have it.
        past = lineage(definition, self.definitions)
        if self.base is not None and not any(map(creates_as_listed, past)):
            # Of an older version only rows after the snapshot matter, which have the structure that
            # it shows.
            base = replace(
                self.base, version=TableVersion(min(self.base.version, definition.version))
            )
            past = [base, *(each for each in past if each.version > self.base.version)]
        layout = row_layout(
            definition, known_virtual(definition, past) or frozenset(), self._upstream
        )
        # TiCDC's handle key, for one, is read by what schema files say, so the layout stays as it
        # is.
        lists = any(
            column.type in ("ENUM", "SET") and not column.elements for column in layout.columns
        )
        found = structure_under(
            layout, self._upstream.time_zone, known_stored(past), definition.version
        )
        if not lists:
            return found
        members = known_members(past)
        columns = (
            replace(column, elements=column.elements or members.get(folded_name(column.name), ()))
            for column in layout.columns
        )
        return replace(found, with_members=tuple(columns))

    def statements(self, low: int, high: int) -> Iterator[FeedStatement]:
        """Yield the statements with ``low < commit-ts <= high``, in order."""
        schemas = {table.name.folded().schema for table in self._tables()}
        seen = set[tuple[int, str, str]]()
        for definition in self.definitions:
            # One statement about two tables lies in the directories of both.
            identity = definition.version, definition.name.folded().schema, definition.query
            if not (low < definition.version <= high and definition.is_ddl) or identity in seen:
                continue
            if definition.name.table:
                named = (parsed(definition).subject, *parsed(definition).touched)
                is_wanted = any(name.table and not self._filter.leaves_out(name) for name in named)
            else:
                is_wanted = not self._filter.leaves_out(definition.name) or identity[1] in schemas
            if is_wanted:
                seen.add(identity)
                yield FeedStatement(
                    definition.version, definition, self._unclear.get(definition.path, "")
                )


def landmarks(definitions: Iterable[TableDefinition]) -> tuple[tuple[str, int], ...]:
    """Return the oldest and newest schema files' directories and versions as landmarks."""
    paths = (parse_other(each.path) for each in definitions)
    found = sorted(
        {(path.version, path.table_dir) for path in paths if isinstance(path, SchemaPath)}
    )
    return tuple(
        (table_dir, version)
        for version, table_dir in (*found[:_LANDMARKS], *found[_LANDMARKS:][-_LANDMARKS:])
    )


def beyond(low: int, checkpoint: int) -> str:
    """Return why a window beyond the checkpoint gives no answer: empty would mean no changes."""
    return (
        f"the window begins at commit-ts {low + 1}, and the bucket is complete up to its checkpoint {checkpoint} only, so what changed since the "
        "beginning of the window is not known yet. Ask later, or from an earlier one on"
    )


def refuse_none(contents: Contents, asked: TableName | str | None, rules: Sequence[str]) -> None:
    """Raise `ConfigError` if no table fits the filter's `rules`, or none is the one `asked` for."""
    if (asked or rules) and not contents.has_tables:
        named = f"no table {asked or ''}".rstrip()
        within = f" that the filter ({', '.join(rules)}) takes" if rules else ""
        raise ConfigError(
            f"the bucket has {named}{within}; `storage-consumer inspect` lists its tables"
        )


def structure_under(
    layout: RowLayout, zone: str, generated: frozenset[str], version: int
) -> Structure:
    """Return rows' structure with TIMESTAMPs converted to UTC from whatever `zone`."""
    return Structure(
        layout=replace(layout, zone="" if is_utc(zone) else zone),
        version=version,
        key=tuple(place for place, column in enumerate(layout.columns) if column.is_pk),
        generated=frozenset(
            place
            for place, column in enumerate(layout.columns)
            if folded_name(column.name) in generated
        ),
    )


def may_hold(file: DataFile, low: int) -> bool:
    """Return whether a file may hold a row above commit-ts `low`: not if written before."""
    return file.date >= oldest_open_date(low)[: len(file.date)]
