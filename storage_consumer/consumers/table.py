"""TableConsumer: one table, its versions in order, how far it is consumed and why it stands where it stands."""

from __future__ import annotations

from collections.abc import Mapping

from storage_consumer.checkpoint import may_hold_rows
from storage_consumer.consumers.table_version import Finished, TableVersionConsumer
from storage_consumer.model import DataFile, TableDefinition, TableName, Window
from storage_consumer.planning.steps import RowStep
from storage_consumer.planning.touches import DROP_SCHEMA, DROP_TABLE

RUNNING, WAITING, HALTED, DROPPED, LOST = "running", "waiting", "halted", "dropped", "lost"


class TableConsumer:
    """Order and progress of one table directory (or of one database's own DDL). No I/O.

    `checkpoint` is inclusive: every row with commit ts <= checkpoint is applied. It starts at the whole's checkpoint, or at
    the table's own where an earlier run stored one.
    """

    def __init__(self, table_dir: str, checkpoint: int, done: Mapping[str, Finished]) -> None:
        """`done`: per stream how far an earlier run finished it."""
        self.table_dir = table_dir
        self.checkpoint = checkpoint
        self.name = TableName(schema=table_dir.rpartition("/")[0] or table_dir, table=table_dir.rpartition("/")[2])
        self.versions: dict[int, TableVersionConsumer] = {}
        self.state = RUNNING
        self.error = ""
        self.dropped = False
        self._done = done
        self._waiting_since: float | None = None

    @property
    def blocked(self) -> bool:
        """Whether nothing of it may be done now."""
        return self.state in (HALTED, WAITING)

    @property
    def first(self) -> int:
        """Lowest version known of it, with or without a schema file; 0 while none is."""
        return min(self.versions, default=0)

    @property
    def lost(self) -> bool:
        """Whether a file vanished that had been listed and not been finished."""
        return any(stream.lost for version in self.versions.values() for stream in version.streams.values())

    def is_in_the_way_of(self, version: int) -> bool:
        """Whether a DDL with this version has to wait since this table stands still before it."""
        return self.blocked and version >= self.first

    def version(self, version: int) -> TableVersionConsumer:
        """The consumer of one version, made at first sight."""
        if version not in self.versions:
            self.versions[version] = TableVersionConsumer(version, self._done)
        return self.versions[version]

    def define(self, definition: TableDefinition) -> None:
        """Take a schema file."""
        self.name = definition.name
        self.version(definition.version).define(definition)

    def offer(self, file: DataFile, *, again: bool) -> bool:
        """Take a data file; False if an earlier run finished it."""
        return self.version(file.version).offer(file, again=again)

    def finished(self, file: DataFile) -> Finished:
        """How far the stream of a file is finished."""
        streams = self.versions[file.version].streams if file.version in self.versions else {}
        return streams[file.stream].finished if file.stream in streams else self._done.get(file.stream, Finished())

    def needs_table_before(self, definition: TableDefinition) -> bool:
        """Whether a structure without a statement is the first that is known of this table, or of it since a DROP."""
        earlier = [v for v in self.versions if v < definition.version and self.versions[v].definition is not None]
        last = self.versions[max(earlier)].definition if earlier else None
        return last is None or last.ddl_type in (DROP_TABLE, DROP_SCHEMA)

    def row_step(self, target: int) -> RowStep | None:
        """The rows up to `target` (inclusive), or None where no file can hold one."""
        if target <= self.checkpoint:
            return None
        files, definitions = [], []
        for number in sorted(self.versions):
            version = self.versions[number]
            definition = version.definition
            if definition is None or not may_hold_rows(number, target, is_ddl=version.is_ddl):
                continue  # a directory without a schema file yet is younger than the storage checkpoint, or is waited for
            if found := version.readable(target):
                files.extend(found)
                definitions.append(definition)
        if not files:
            return None
        return RowStep(
            table_dir=self.table_dir,
            name=self.name,
            window=Window(low=self.checkpoint, high=target),
            current=self._in_force(target),
            definitions=tuple(definitions),
            files=tuple(files),
            dropped=self.dropped,
        )

    def _in_force(self, target: int) -> TableDefinition:
        """The structure for rows after the table's checkpoint: the newest that is not after it, else the first of the window."""
        known = {v.version: v.definition for v in self.versions.values() if v.definition is not None}
        before = [v for v in known if v <= self.checkpoint]
        within = [v for v in known if v <= target]
        return known[max(before) if before else min(within or known)]

    def advance(self, checkpoint: int) -> None:
        """All rows up to `checkpoint` (inclusive) are applied."""
        self.checkpoint = max(self.checkpoint, checkpoint)

    def finish(self, file: DataFile, *, max_ts: int, next_ts: int) -> None:
        """A file was read up to the table's checkpoint; it is finished unless it holds later rows."""
        stream = self.version(file.version).streams[file.stream]
        if max_ts <= self.checkpoint:
            stream.finish(file)
        else:
            stream.defer(file, next_ts)

    @property
    def pending(self) -> int:
        """How many files are not finished."""
        return sum(version.pending for version in self.versions.values())

    @property
    def pending_bytes(self) -> int:
        """Bytes of the files that are not finished."""
        return sum(
            file.stored.size for v in self.versions.values() for s in v.streams.values() for file in s.pending.values()
        )

    def look_for_gaps(self, storage_checkpoint: int, now: float, timeout: float) -> str:
        """Wait while a file or schema file is missing that the storage checkpoint covers; the reason once it is too long.

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
        """Which file or schema file is missing, or an empty text."""
        for number in sorted(self.versions):
            version = self.versions[number]
            if version.definition is None and number <= storage_checkpoint:
                return f"the schema file of {self.table_dir}/{number} ({self.table_dir}/meta/schema_{number}_*.json)"
            if gap := version.gap():
                return gap
        return ""
