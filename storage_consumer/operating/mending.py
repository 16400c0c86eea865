"""Rewrite rows that differ from the source: `verify --repair` and `load --keys`.

A consumer goes on meanwhile.

A few keys at a time are deleted and written in one transaction, as the source holds them at one
commit-ts. That is the table's checkpoint, or the end of the newest window whose tasks may have
written its rows, whichever is later. What the stream brings of a key up to that commit-ts leads to
the row that is written here, and what it brings after it comes later. So the table is equal there
once its checkpoint has passed the commit-ts, and no statement lies between the two.

The transaction takes the lease's row at its end, and looks at the state again: no window can open
between that look and the commit. If one has been opened meanwhile, the transaction rolls back and
another one takes newer rows. So nothing is stored, and whoever dies leaves nothing half done.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from storage_consumer.bucket.export_names import data_file
from storage_consumer.bucket.table_statements import read_create_table
from storage_consumer.checkpoint.findings import lease_lock
from storage_consumer.checkpoint.store import StateStore
from storage_consumer.config.settings import Downstream, DumpOptions, Server, Upstream
from storage_consumer.config.table_filter import CarriedColumns
from storage_consumer.decode import decoder_for
from storage_consumer.errors import Abandoned, RowRefused, SnapshotLost, TableError, TransientError
from storage_consumer.model import (
    TSO_PHYSICAL_SHIFT,
    CommitRange,
    DataFile,
    StoredObject,
    TableDefinition,
    TableVersion,
)
from storage_consumer.operating.compared_source import (
    SHOWN_EARLY,
    ComparedSource,
    NotComparable,
    look_at,
)
from storage_consumer.plan.loads import end_of
from storage_consumer.plan.steps import OF_LOADS, RowStep
from storage_consumer.rows.compared_layout import Key, TableLayout, layout_of, shown_value
from storage_consumer.rows.comparison import TableLook, obstacle
from storage_consumer.rows.halves import PlaceOf, read_files, write_bucket
from storage_consumer.rows.match import table_work
from storage_consumer.rows.row_keys import Run
from storage_consumer.rows.spec import JobFile, JobSpec, Mode, TablePlan, TaskStatements, Written
from storage_consumer.target.apply_rows import RowStatements
from storage_consumer.target.connection import escape
from storage_consumer.target.database import TargetDatabase
from storage_consumer.target.row_statements import batched, write_rows
from storage_consumer.target.source_reading import ComparedTable, ExportedTable, Reading, from_hex
from storage_consumer.target.transaction import FencedConnection

_AT_A_TIME = 100
"""Keys of one transaction: it holds up the consumer's next window while it commits."""
_SILENT = 20
"""Seconds after which the server ends a transaction whose process says nothing."""
_PAUSE = 0.03
"""Seconds before another attempt."""
_NUMBER = re.compile(rb"-?[0-9]+(\.[0-9]+)?").fullmatch
_ORIGIN = Upstream(
    scheme="file", root="/", protocol="dump-sql", dump=DumpOptions(time_zone="UTC"), time_zone="UTC"
)
"""Rows of the source go the way of an export's, so that every type is written as a copy writes it.
"""
_NO_SLOT = TaskStatements(
    lock_slot="SELECT 0, 0, '', 0",
    claim_slot="DO 0",
    close_slot="DO 0",
    lock_checkpoint="",
    store_checkpoint="",
)
"""No job of the consumer writes here: the lease's row is what keeps its windows away."""


STILL_DIFFERS = (
    "they differ all the same: a trigger or somebody else changes the rows of the target, or it "
    "cannot hold these values"
)
"""What is said where mended rows are not equal."""


class _Overtaken(Exception):
    """The consumer went on meanwhile: the rows that were read are too old."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended:
    """What became of some keys."""

    as_of: int
    """The newest commit-ts as of which rows were written."""
    rows: int
    """Rows that the source has."""
    is_equal: bool | None = None
    """Whether both sides hold the same of these keys since; None if the table is not there yet."""
    statements: tuple[str, ...] = ()
    """What would be written, if it was only to be shown."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """What is to be written of some keys."""

    look: TableLook
    as_of: int
    plan: TablePlan
    lines: list[bytes]
    """The rows that the source has."""
    keys: frozenset[Key]
    """Those that were asked for, and those that either side finds equal to one of them."""
    lock: tuple[str, list[object]]
    delete: tuple[str, list[object]]


@dataclass(slots=True)
class _Kept:
    """A `rows.halves.RowWriter` that keeps the rows of a table."""

    lines: list[bytes] = field(default_factory=list)

    def write_runs(
        self,
        work: TablePlan,  # noqa: ARG002 - as the protocol has it
        ordered: Sequence[Run],
        place_of: PlaceOf | None = None,  # noqa: ARG002 - as the protocol has it
    ) -> Written:
        """Keep the rows of all runs."""
        self.lines += [line for run in ordered for line in run.lines]
        return Written(len(self.lines))

    def write_together(self, states: Sequence[tuple[TablePlan, Sequence[Run]]]) -> list[int]:
        """Keep them table by table."""
        return [self.write_runs(*state).rows for state in states]


@dataclass(slots=True, kw_only=True)
class TableMending:
    """Mends rows of one table. Its connections end with `close`."""

    target: Server
    source: Server
    state: StateStore
    table_key: str
    carried: CarriedColumns
    wait: float
    """Seconds to wait for a moment at which the table can be mended, and then for the one at which
    it can be compared.
    """
    stop: threading.Event
    is_frozen: bool = False
    """Whether nothing writes to the source, so that it need not be a TiDB."""
    _here: Reading = field(init=False)
    _there: Reading = field(init=False)
    _database: TargetDatabase = field(init=False)
    _settings: Downstream = field(init=False)

    def __post_init__(self) -> None:
        """Open no connection yet."""
        self._settings = replace(self.target.settings, time_zone="UTC")
        self._here = Reading(self.source.settings, self.source.password, "source", doing="mending")
        self._there = Reading(self._settings, self.target.password, "target", doing="mending")
        self._database = TargetDatabase(self._settings, self.target.password)

    def close(self) -> None:
        """Close all connections."""
        self._here.close()
        self._there.close()
        self._database.close()

    def mend(self, keys: Sequence[Key], *, only_show: bool = False) -> Mended:
        """Write what the source has of these keys, remove what it lacks, and compare them again.

        `keys`: as the source shows them. Raises `NotComparable` where that cannot be done,
        `RowRefused` where the target refuses a row, and what reading raises; what was written by
        then stays, and is right.
        """
        as_of = rows = 0
        shown: list[str] = []
        deadline = time.monotonic() + self.wait
        # Without any it is said why.
        left = [*batched(keys, len(keys) if only_show else _AT_A_TIME)] or [[]]
        while left:
            try:
                found = self._attempted(left.pop(0), deadline, only_show=only_show)
            except RowRefused:
                if not left:
                    raise
                # What is in a row's way may be another one of them.
                left, rows = [[*keys]], 0
                continue
            as_of, rows = max(as_of, found.as_of), rows + len(found.lines)
            shown += self._shown(found) if only_show else ()
        is_equal = None if only_show else self._are_equal(keys, as_of)
        return Mended(as_of=as_of, rows=rows, is_equal=is_equal, statements=tuple(shown))

    def _attempted(self, keys: Sequence[Key], deadline: float, *, only_show: bool) -> _Rows:
        """Read and write some keys, again where the consumer was faster or is amid a change."""
        while True:
            try:
                found = self._read(keys)
                if not only_show:
                    self._write(found)
            except (_Overtaken, SnapshotLost) as why:
                if time.monotonic() >= deadline:
                    raise NotComparable(
                        f"no moment to mend its rows came for {self.wait:g} s (--wait): {why}"
                    ) from why
                self._rest()
            else:
                return found
            finally:
                self._here.end()
                self._there.end()

    def _rest(self) -> None:
        if self.stop.wait(_PAUSE):
            raise Abandoned("the comparison was broken off")

    # what is to be written

    def _looked(self) -> TableLook:
        """Return the table's state now; raise `_Overtaken` if that passes, else `NotComparable`."""
        look = look_at(self._there, self.target.settings.state_schema, self.table_key)
        # Rows beyond the checkpoint are no obstacle here.
        if found := obstacle(replace(look, noted=0)):
            raise (_Overtaken if found.passes else NotComparable)(found.why)
        if look.quarantined:
            raise NotComparable(
                f"{look.quarantined} of its rows are in the quarantine: first retry or drop them, see `storage-consumer quarantine`"
            )
        return look

    def _sides(
        self, look: TableLook, ts: int, keys: Sequence[Key]
    ) -> tuple[ComparedTable, ComparedTable, TableLayout]:
        """Return the source's table at a commit-ts, the target's, and what both have in common."""
        opened = ComparedSource(self._here, is_frozen=self.is_frozen).opened(
            replace(look, checkpoint=ts)
        )
        there = ComparedTable(self._there, look.target)
        shape = there.structure()
        if opened is None or shape is None:
            raise _Overtaken("one side does not have the table")
        here, own = opened
        layout = layout_of(own, shape)
        if not layout.is_ranged:
            raise NotComparable(
                "it has no key by which single rows can be found: load the table instead"
            )
        if any(len(key) != len(layout.key) for key in keys):
            names = ", ".join(layout.names[place] for place in layout.key)
            raise NotComparable(f"its key has the columns {names}: give a value of each")
        numbers = [
            at
            for at, place in enumerate(layout.key)
            if layout.sides[0].columns[place].literal == "number"
        ]
        if wrong := [key[at] for key in keys for at in numbers if not _NUMBER(key[at])]:
            raise NotComparable(f"{shown_value(wrong[0])!r} is not a number, as its key has it")
        here.layout, there.layout = layout.sides
        return here, there, layout

    def _read(self, keys: Sequence[Key]) -> _Rows:
        """Return the source's rows of some keys, at a commit-ts reached without a statement."""
        look = self._looked()
        ts = max(look.checkpoint, look.noted)
        if version := self.state.verified.next_statement(
            look.table, ts, ts + (SHOWN_EARLY << TSO_PHYSICAL_SHIFT)
        ):
            raise _Overtaken(f"the statement of version {version} follows, and has to run first")
        here, there, _ = self._sides(look, ts, keys)
        if not self.is_frozen and (moving := self._here.moving(ts)):
            raise _Overtaken(
                "the source may show what a later statement does, which has to run first: " + moving
            )
        keys = _all_alike(here, there, keys)
        table = ExportedTable(
            self._here, here.name, [here.layout.columns[place] for place in here.layout.key]
        )
        statement = table.statements()[1]
        columns = read_create_table(statement).carried
        if left_out := self.carried.lacking(look.table, [column.name for column in columns]):
            raise NotComparable(
                f"the changefeed leaves columns out, which would be lost: {', '.join(left_out)}"
            )
        rows = list(table.rows_at(columns, keys))
        content = data_file(here.name, 0, columns, rows).content
        target = self._database.describe([look.target.folded()])[look.target.folded()]
        folder, version = f"{OF_LOADS}repair", TableVersion(0)
        definition = TableDefinition(
            name=look.table,
            version=version,
            query="",
            ddl_type=0,
            columns=columns,
            path="at the source",
            checksum=0,
        )
        stored = StoredObject(path="rows of the source", size=len(content), tag="")
        file = DataFile(
            stored=stored,
            table_dir=folder,
            version=version,
            partition=None,
            date="",
            dispatcher="",
            number=1,
            width=0,
        )
        step = RowStep(
            table_key=self.table_key,
            name=look.table,
            commit_range=CommitRange(low=0, high=end_of(1)),
            current=definition,
            definitions={(version, folder): definition},
            files=(file,),
            as_of=ts,
        )
        try:
            plan = replace(table_work(0, step, target, _ORIGIN), origin=1, is_settled=True)
        except TableError as fault:
            raise _Overtaken(str(fault)) from fault
        if plan.mode is Mode.KEYLESS:
            raise NotComparable(
                "it has no key by which single rows can be written: load the table instead"
            )
        work = JobFile(table=0, file=file, rank=0, newest=True, exact=True)
        query, arguments = there.keys_at(keys)
        lock = f"{query} FOR UPDATE", arguments
        lines = _lines(plan, work, content) if rows else []
        return _Rows(look, ts, plan, lines, frozenset(keys), lock, there.removal(keys))

    # writing

    def _write(self, found: _Rows) -> None:
        """Write in one transaction, rolled back where the state has moved on."""
        spec = JobSpec(
            origins=(_ORIGIN,),
            downstream=self._settings,
            secrets_file="",
            tables=(found.plan,),
            partitions=1,
            whole=True,
            epoch=0,
            window_id=0,
            statements=_NO_SLOT,
            load_data=False,
            max_packet=self._database.server_info().max_packet,
        )
        lease = lease_lock(self._settings.state_schema)

        with closing(FencedConnection(spec, self.target.password, 0)) as fenced:

            def write() -> None:
                # A process that is stopped here must not keep the consumer waiting.
                fenced.query(f"SET SESSION wait_timeout = {_SILENT}")
                with fenced.live().cursor() as cursor:
                    cursor.execute(*found.lock)
                    there = [from_hex(row) for row in cursor.fetchall()]
                    # The target's collation may find rows equal that the source tells apart.
                    if not found.keys.issuperset(there) or cursor.execute(*found.delete) != len(
                        there
                    ):
                        raise _Overtaken("its rows change too fast")
                RowStatements(fenced).put(found.plan, found.lines, (), is_settled=True)
                # Last, so that nobody waits for the lease while this waits for rows.
                fenced.rows(lease)
                now = self._looked()
                if (
                    max(now.checkpoint, now.noted) > found.as_of
                    or now.statements != found.look.statements
                ):
                    raise _Overtaken("the consumer goes on too fast")

            fenced.transaction(found.plan, write)

    def _shown(self, found: _Rows) -> Iterator[str]:
        """Yield the statements, for a session as `changes.render_sql.UNDO_HEAD` makes it."""
        yield f"-- {found.plan.name}, as of {found.as_of}"
        with self._there.live().cursor() as cursor:
            yield f"{cursor.mogrify(*found.delete)};"
        if found.lines:
            yield f"{write_rows('INSERT', found.plan, found.lines, escape)};"

    # afterwards

    def _are_equal(self, keys: Sequence[Key], ts: int) -> bool | None:
        """Return whether both sides hold the same of these keys at a commit-ts or later.

        None if the table does not reach it in time.
        """
        deadline = time.monotonic() + self.wait
        while True:
            try:
                look = self._looked()
                if look.checkpoint >= ts and obstacle(look) is None:
                    here, there, layout = self._sides(look, look.checkpoint, keys)
                    return all(
                        # The rows that are meant may have their keys in another spelling.
                        len(
                            {
                                frozenset(Counter(map(layout.normal, side.rows_at(alike))).items())
                                for side in (here, there)
                            }
                        )
                        == 1
                        for alike in (
                            _all_alike(here, there, some) for some in batched(keys, _AT_A_TIME)
                        )
                    )
            except (_Overtaken, SnapshotLost, TransientError):
                pass
            finally:
                self._here.end()
                self._there.end()
            if time.monotonic() >= deadline:
                return None
            self._rest()


def _all_alike(here: ComparedTable, there: ComparedTable, keys: Sequence[Key]) -> list[Key]:
    """Return these keys and all those of rows that either side finds equal to one of the result."""
    known, new = set[Key](), {*keys}
    while new:
        known |= new
        new = (here.alike([*new]) | there.alike([*new])) - known
    return sorted(known)


def _lines(plan: TablePlan, work: JobFile, content: bytes) -> list[bytes]:
    """Return an export file's rows for the writer; raise `RowRefused` for unreadable ones."""
    kept = _Kept()
    items = sorted(
        read_files([work], {0: plan}, 1, lambda _: iter([content]), decoder_for(_ORIGIN)),
        key=lambda item: item[0],
    )
    for report in write_bucket(items, {0: plan}, kept):  # type: ignore[arg-type] # events of keyless tables do not come here
        if report.error:
            raise RowRefused(f"{plan.name}: {report.error}")
    return kept.lines
