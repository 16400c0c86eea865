"""TableConsumer: one table, its versions in order, how far it is consumed, and why it is halted or waits."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from storage_consumer.model import DataFile, TableDefinition, TableName, VersionKey, Window
from storage_consumer.plan.barriers import CREATE_SCHEMA, DROP_SCHEMA, DROP_TABLE, MAKES_TABLE
from storage_consumer.plan.copies import Copies
from storage_consumer.plan.file_sequence import Streams
from storage_consumer.plan.steps import DdlStep, RowStep, key_of
from storage_consumer.plan.table_version import TableVersionConsumer
from storage_consumer.sql.tokens import makes_global_index
from storage_consumer.tso import may_hold_rows

_SEVERAL = 2
_MAKES = MAKES_TABLE | {CREATE_SCHEMA}
RUNNING, WAITING, HALTED, DROPPED, LOST = "running", "waiting", "halted", "dropped", "lost"
EXCLUDED = "excluded"
"""The filter leaves the table out, or did until now and it lacks what was written meanwhile; only stored, never shown."""


class TableConsumer:
    """Order and progress of one table (or of one database's own DDL), in whatever directories it lies. No I/O.

    `checkpoint` is inclusive: every row with commit-ts <= checkpoint is applied. It starts at the whole's checkpoint, or at
    the table's own where an earlier run stored one.
    """

    def __init__(self, name: TableName, checkpoint: int, known: Streams, *, timed: bool = True) -> None:
        """Begin without versions. `known`: the streams of the whole bucket; `timed`: rows carry a commit-ts, if only to the millisecond."""
        self._timed = timed
        self.key = key_of(name)
        self.name = name
        self.checkpoint = checkpoint
        self.versions: dict[VersionKey, TableVersionConsumer] = {}
        self.statements: dict[int, int] = {}
        """Version → action code of the statements that lead to this table, wherever their schema files lie."""
        self.state = RUNNING
        self.error = ""
        self.dropped = False
        self.late = False
        """Whether files turned out to belong to it, or were rewritten, after later rows of it had been applied: only a copy helps."""
        self.held = False
        """Whether an operator keeps it halted, whatever happens to its statements."""
        self.copy_from = 0
        """See `Copies`, as for the next five."""
        self.absent: dict[str, int] = {}
        self.copied_at = 0
        self.passed: Mapping[str, int] = {}
        self.listed: dict[str, int] = {}
        self.listed_at = 0
        self.changed = False
        """Whether a file that it had not read was rewritten since its files were noted last."""
        self.left_out = False
        """Whether the filter leaves out a table of this name."""
        self.named = False
        """Whether a schema file gave it its name; else the path did."""
        self.lacks_past = False
        """Whether the filter left it out until this start."""
        self.misplaced = False
        """Whether by the routes it has the name of another table that is there at the same time."""
        self.nowhere = ""
        """Why it has no place in the target; then nothing of it is done, whatever its state."""
        self.ignored: dict[int, str] = {}
        """Version → statement that the filter kept from being run."""
        self._open: dict[VersionKey, TableVersionConsumer] = {}
        self._first = 0
        self._known = known
        self._waiting_since: float | None = None
        self._seen: tuple[tuple[str, ...], float] = ((), 0.0)

    @property
    def blocked(self) -> bool:
        """Whether nothing of it may be done now."""
        return bool(self.nowhere) or self.state in (HALTED, WAITING)

    @property
    def first(self) -> int:
        """Lowest version known of it, with or without a schema file; 0 while there is none."""
        return self._first

    @property
    def copies(self) -> Copies | None:
        """What to store about copies of it; None if there is nothing."""
        if not (self.copy_from or self.copied_at or self.listed_at):
            return None
        return Copies(
            copy_from=self.copy_from,
            absent=dict(self.absent),
            copied_at=self.copied_at,
            passed=dict(self.passed),
            listed=dict(self.listed),
            listed_at=self.listed_at,
        )

    def note_listed(self, *, behind: bool, now: int) -> bool:
        """Note the files that are there, so that a later run misses those that are gone by then; return whether it is news.

        A table that is not `behind` the bucket has read what it needs of them, and waits for none. `now`: a TSO.
        """
        there = self._unread() if behind and not (self.excluded or self.is_stand_in) else {}
        more = {stream: number for stream, number in there.items() if self.listed.get(stream, 0) < number}
        changed, self.changed = self.changed, False
        if more or (there and changed):
            self.listed, self.listed_at = self.listed | more, now
        elif not behind and self.listed:
            self.listed = {}
        else:
            return False
        return True

    def _unread(self) -> dict[str, int]:
        """Return stream → the highest number of its pending files."""
        return {
            name: max(file.number for file in stream.pending.values())
            for _, version in self._open_versions()
            for name, stream in version.streams.items()
            if stream.pending
        }

    def misses(self, files: Iterable[tuple[str, int, int]], now: int) -> bool:
        """Note what is missing, as stream, number and highest number known there; return whether it is news. `now`: a TSO."""
        new = {stream: last for stream, number, last in files if self.absent.get(stream, 0) < number}
        if new:
            self.absent |= new
            self.copy_from = max(self.copy_from, now)
        return bool(new)

    def gaps(self) -> list[tuple[str, int, int]]:
        """Return what is missing, in the form that `TableVersionConsumer.gaps` yields."""
        found = [gap for _, version in self._open_versions() for gap in version.gaps()]
        return found + [(stream, reached + 1, upto) for stream, reached, upto in self._not_there(self.listed)]

    def _not_there(self, wanted: Mapping[str, int]) -> list[tuple[str, int, int]]:
        """Return the incomplete streams: stream, number reached, number needed; `wanted`: stream → number needed (inclusive)."""
        found = []
        for stream, upto in wanted.items():
            known = [version.reached(stream) for version in self.versions.values() if stream in version.streams]
            reached = max([self._known[stream].done_upto, *known])
            found += [(stream, reached, upto)] if reached < upto else []
        return found

    def is_over(self, version: int) -> None:
        """Note that the name went to another table, and a copy of that one holds all that was in this one until then.

        A table that was created again under the name keeps what is known of it: what it lacks, and why it is halted. `copied_at`
        is right before the statement that took the name away: others of its version may lead to this table.
        """
        lacks = {stream: last for stream, _, last in self.gaps()} | self.absent
        self.passed = {stream: last for stream, last in lacks.items() if self._is_before(stream, version)}
        self.absent = {stream: last for stream, last in self.absent.items() if stream not in self.passed}
        self.listed = {stream: last for stream, last in self.listed.items() if not self._is_before(stream, version)}
        self.copied_at = version - 1
        self.dropped = version not in self.statements
        if not self._is_made_anew(version):
            self.go_on()
            self.copy_from = self.copy_from if self.absent else 0
            self.late = False
        self.pass_over()

    def _is_before(self, stream: str, version: int) -> bool:
        """Return whether a stream belongs to an older version; nothing shows it for an unknown stream."""
        folder = f"{stream.partition('|')[0]}/"
        return any(
            number < version and folder.startswith(f"{table_dir}/{number}/") for number, table_dir in self.versions
        )

    def is_passing_at(self, version: int, ends: Collection[int]) -> bool:
        """Return whether nothing is known of it right before a version or right after it; `ends`: versions that ended the table."""
        numbers = {number for number, _ in self.versions} | self.statements.keys()
        last = max((number for number in numbers.union(ends) if number < version), default=None)
        rows = any(number == version and found.streams for (number, _), found in self.versions.items())
        return (last is None or last in ends) and not rows and not self.stays_after(version)

    def ends_with(self, version: int) -> bool:
        """Return whether no statement that its copy holds came after this version."""
        return not any(version < number <= self.copied_at for number in self.statements)

    def _is_made_anew(self, version: int) -> bool:
        """Return whether anything is known of this name from a version on (inclusive)."""
        return any(number >= version for number in (*(number for number, _ in self.versions), *self.statements))

    def pass_over(self) -> None:
        """Stop waiting for files whose rows the last copy holds."""
        for stream, upto in self.passed.items():
            for version in self.versions.values():
                if stream in version.streams:
                    version.streams[stream].pass_over(upto)

    def _is_copied(self, version: int) -> bool:
        """Return whether the last copy holds all rows of a version: another structure had followed by then."""
        return any(version < number <= self.copied_at for number, _ in self.versions)

    @property
    def is_stand_in(self) -> bool:
        """Whether only the path of its data files is known."""
        return bool(self.versions) and not self.named

    @property
    def excluded(self) -> bool:
        """Whether none of its files is read since the filter leaves it out; a path alone does not show which table a file belongs to."""
        return self.left_out and self.named

    @property
    def stored_state(self) -> str:
        """The state as the target remembers it."""
        if self.late:
            return LOST
        return EXCLUDED if self.excluded or self.lacks_past else self.shown_state

    @property
    def shown_state(self) -> str:
        """``running``, ``waiting``, ``halted`` or ``dropped``."""
        return DROPPED if self.dropped and self.state == RUNNING else self.state

    def halt(self, error: str) -> None:
        """Halt; statements that were not run are named, since they may be why something does not fit."""
        self.state, self.error = HALTED, error
        if self.ignored:
            version = max(self.ignored)
            self.error += (
                f". The filter kept this statement of version {version} from being run: {self.ignored[version]}"
            )

    def go_on(self) -> None:
        """End a halt or a wait."""
        self.state, self.error = RUNNING, ""

    def is_in_the_way_of(self, version: int) -> bool:
        """Return whether a DDL with this version has to wait because this table is halted or waits before it."""
        return self.blocked and version >= self.first

    def version(self, key: VersionKey) -> TableVersionConsumer:
        """Return the consumer of one version directory, created on first use."""
        if key not in self.versions:
            self.take_over(key, TableVersionConsumer(*key, self._known))
        self._open[key] = self.versions[key]
        return self.versions[key]

    def take_over(self, key: VersionKey, version: TableVersionConsumer) -> None:
        """Add a version directory that belongs to this table from now on."""
        self.versions[key] = self._open[key] = version
        self._first = min(number for number, _ in self.versions)

    def give_away(self, key: VersionKey) -> TableVersionConsumer:
        """Remove and return a version directory that belongs to another table from now on."""
        self._open.pop(key, None)
        version = self.versions.pop(key)
        self._first = min((number for number, _ in self.versions), default=0)
        return version

    def _open_versions(self) -> list[tuple[VersionKey, TableVersionConsumer]]:
        """Return the versions without a schema file and those with an open stream, in order: few, however many are known."""
        if self.excluded:
            return []
        # Versions leave `_open` here and return by `version`: a long history then costs nothing in each round.
        for key in [key for key, v in self._open.items() if v.definition is not None and not v.open_streams()]:
            del self._open[key]
        return sorted(self._open.items(), key=lambda item: item[0])

    def offer(self, file: DataFile) -> bool:
        """Take a data file; return False for one that an earlier run finished in its present state."""
        return self.version(file.version_key).offer(file)

    def needs_table_before(self, definition: TableDefinition, ended: Iterable[int] = ()) -> bool:
        """Return whether a structure without a statement is the first known of this table, or the first since a DROP.

        It is not if a statement of the same version leads to the table. `ended`: versions of the statements elsewhere that
        ended the table, by a DROP of its database or by another name.
        """
        known = [
            (n, v.structure.ddl_type) for (n, _), v in self.versions.items() if v.structure and n < definition.version
        ]
        known += [(n, DROP_TABLE) for n in ended if n < definition.version]
        known += [(n, kind) for n, kind in self.statements.items() if n <= definition.version]
        return max(known, default=(0, DROP_TABLE))[1] in (DROP_TABLE, DROP_SCHEMA)

    def structure_at(self, version: int) -> TableDefinition | None:
        """Return the newest structure that is not after `version` (inclusive); of several the one with a statement."""
        last: tuple[int, bool, TableDefinition] | None = None
        for (number, _), consumer in self.versions.items():
            found = consumer.structure
            if found is not None and number <= version and (last is None or (number, found.is_ddl) > last[:2]):
                last = (number, found.is_ddl, found)
        return None if last is None else last[2]

    def made_before(self, version: int) -> DdlStep | None:
        """Return the last statement before `version` that created it or gave it its name."""
        made = [
            (number, table_dir, found)
            for (number, table_dir), consumer in self.versions.items()
            if number < version and (found := consumer.structure) is not None and found.ddl_type in _MAKES
        ]
        if not made:
            return None
        _, table_dir, found = max(made, key=lambda each: each[:2])
        return DdlStep(table_dir=table_dir, table_key=self.key, definition=found)

    def stays_after(self, version: int) -> bool:
        """Return whether what follows `version` shows that the table was there all the time, not created or renamed."""
        later = [
            (n, not v.structure.is_ddl, v.structure.ddl_type)
            for (n, _), v in self.versions.items()
            if n > version and v.structure is not None
        ]
        later += [(n, False, kind) for n, kind in self.statements.items() if n > version]
        return bool(later) and min(later)[-1] not in MAKES_TABLE

    def row_step(self, target: int) -> RowStep | None:
        """Return the rows up to `target` (inclusive), or None if no file can hold one."""
        if target <= self.checkpoint:
            return None
        files: list[DataFile] = []
        definitions: dict[VersionKey, TableDefinition] = {}
        for key, version in self._open_versions():
            definition = version.definition
            if definition is None or not may_hold_rows(
                version.version, target, is_ddl=version.is_ddl or not self._timed
            ):
                continue  # a directory without a schema file yet is younger than the storage checkpoint, or is waited for
            if found := version.readable(target):
                files.extend(found)
                definitions[key] = definition
        if not files:
            return None
        return RowStep(
            table_key=self.key,
            name=self.name,
            window=Window(low=self.checkpoint, high=target),
            current=self._in_force(target, definitions),
            definitions=definitions,
            files=tuple(files),
            dropped=self.dropped,
            out_of_turn=self._out_of_turn(files),
            crossing=self._crossing(files),
        )

    def _out_of_turn(self, files: Sequence[DataFile]) -> str:
        """Return the path of a file that TiCDC writes before an applied one of the same partition; empty if there is none.

        The order covers all streams of a partition: version, date, number. A version without partitions is compared with any.
        """
        oldest = min(file.version for file in files)
        later = [(n, partition) for (n, _), v in self.versions.items() if n > oldest for partition in v.applied]
        for file in files:
            if self.versions[file.version_key].is_behind(file) or any(
                number > file.version and (partition == file.partition or None in (partition, file.partition))
                for number, partition in later
            ):
                return file.stored.path
        return ""

    def _crossing(self, files: Sequence[DataFile]) -> str:
        """Return the path of a statement by which rows of one key may be in several of the table's partitions; empty if there is none.

        TiDB wants the partition columns in each unique key that is not GLOBAL: without a GLOBAL one, a key has its place in one partition.
        """
        if all(file.partition is None for file in files):
            return ""
        if len(set[int]().union(*(version.partitions for version in self.versions.values()))) < _SEVERAL:
            return ""
        known = (version.definition for version in self.versions.values())
        return next((d.path for d in known if d is not None and makes_global_index(d.query)), "")

    def _in_force(self, target: int, definitions: Mapping[VersionKey, TableDefinition]) -> TableDefinition:
        """Return the structure for rows after the table's checkpoint: the newest that is not after it, else the first of the window."""
        if last := self.structure_at(self.checkpoint):
            return last
        known = sorted((v for v in self.versions.values() if v.structure is not None), key=lambda v: v.version)
        within = [v.structure for v in known if v.version <= target and v.structure is not None]
        return within[0] if within else (known[0].structure if known else None) or next(iter(definitions.values()))

    def advance(self, checkpoint: int) -> None:
        """Note that all rows up to `checkpoint` (inclusive) are applied."""
        self.checkpoint = max(self.checkpoint, checkpoint)

    def finish(self, file: DataFile, *, max_ts: int, next_ts: int) -> None:
        """Note that a file was read up to the table's checkpoint; it is finished unless it holds later rows."""
        version = self.version(file.version_key)
        if max_ts <= self.checkpoint:
            version.finish(file)
        else:
            version.streams[file.stream].defer(file, next_ts)

    @property
    def pending(self) -> int:
        """Number of files that are not finished."""
        return sum(version.pending for _, version in self._open_versions())

    @property
    def pending_bytes(self) -> int:
        """Bytes of the files that are not finished."""
        return sum(
            file.stored.size for _, v in self._open_versions() for s in v.open_streams() for file in s.pending.values()
        )

    def wait(self, seen: tuple[str, ...], now: float) -> float:
        """Wait for this round; return for how many seconds it has waited with the same `seen`, whose first item is the reason.

        A halted table stays halted: what else it waits for may come, and must not start it again.
        """
        if self.state == HALTED:
            return 0.0
        self.state, self.error = WAITING, seen[0]
        if self._seen[0] != seen:
            self._seen = (seen, now)
        return now - self._seen[1]

    def look_for_gaps(self, storage_checkpoint: int, now: float, timeout: float) -> str:
        """Wait while a file or schema file is missing that the storage checkpoint covers; return the reason once it takes too long.

        `now` and `timeout` in seconds. Returns an empty text while there is nothing to halt for.
        """
        reason = self._what_is_missing(storage_checkpoint)
        if not reason:
            self._waiting_since = None
            if self.state == WAITING:
                self.state, self.error = RUNNING, ""
            return ""
        self._waiting_since = now if self._waiting_since is None else self._waiting_since
        self.state, self.error = WAITING, f"waits for {reason}"
        return reason if now - self._waiting_since >= timeout else ""

    def _what_is_missing(self, storage_checkpoint: int) -> str:
        """Return which file or schema file is missing, or an empty text."""
        missed = self._not_there(self.absent)
        # What has come since is no longer missed.
        self.absent = {stream: upto for stream, _, upto in missed}
        for stream, reached, _ in missed or self._not_there(self.listed):
            return f"file number {reached + 1} in {stream.partition('|')[0]}"
        for (number, table_dir), version in self._open_versions():
            lacks = version.definition is None and version.pending and not self._is_copied(number)
            if lacks and number <= storage_checkpoint:
                return (
                    f"the schema file of {table_dir}/{number} ({table_dir}/meta/schema_{number}_*.json; if the changefeed did not "
                    "write that folder, move it out of the bucket)"
                )
            if gap := version.gap():
                return gap
        return ""
