"""The copies that tables are loaded from, such as exports, and this process's loads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal

from storage_consumer.bucket.export import Export
from storage_consumer.clock import Clock
from storage_consumer.config.settings import Downstream, Upstream
from storage_consumer.decode.values import utc_of, zone_caveat
from storage_consumer.driver.remedies import cancel_command
from storage_consumer.errors import ExportRefused, StorageUnavailable
from storage_consumer.model import (
    DdlKind,
    StoredObject,
    TableColumn,
    TableDefinition,
    TableName,
    folded_name,
)
from storage_consumer.plan.loads import Load, LoadPhase
from storage_consumer.plan.steps import key_of
from storage_consumer.ports import Ddl
from storage_consumer.telemetry import Log

_log = Log("load")
FIRST_RATE = 1 << 20
"""Bytes in a second, until a job has shown it."""
LOOK_AGAIN = 30.0
"""Seconds until an unanswered copy is asked for again: attempts are long, and tables wait."""
WaitsFor = Literal["statement", "database", "store"]
"""What a load may wait for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedTable:
    """One table or view of a copy."""

    definition: TableDefinition
    """Its statement, as of the TSO of the copy; without the columns that rows lack."""
    parts: tuple[StoredObject, ...] = ()
    """Its data files, in the order of their ordinals, which count from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCopy:
    """A copy that can be read."""

    identity: str
    """What it is, by its content."""
    snapshot: int
    """It holds all changes up to this TSO (inclusive), and none after it."""
    origin: Upstream
    """Where its files are, and how they are written."""
    databases: Mapping[str, TableDefinition] = field(default_factory=dict)
    """Folded name → the statement that creates it."""
    tables: Mapping[str, CopiedTable] = field(default_factory=dict)
    """Table key → the table."""
    notes: tuple[str, ...] = ()
    """What is left out, with reasons."""


def unsettled(which: str) -> str:
    """Return why a load waits for a statement."""
    return f"a statement {which} may touch it and is not known to have ended: see `storage-consumer ddl`"


@dataclass(slots=True)
class LoadWaits:
    """Which loads wait, and for what."""

    away: dict[str, tuple[float, str]] = field(default_factory=dict)
    """URI of an unanswered copy → when to ask again, by the monotonic clock; and the error."""
    told: set[tuple[str, WaitsFor]] = field(default_factory=set)
    """Load id, and what it was logged to wait for."""

    def tell(self, load: Load, what: WaitsFor, why: str) -> None:
        """Log once why a load waits for something."""
        if (load.load_id, what) not in self.told:
            self.told.add((load.load_id, what))
            _log.info("load_waits", table=str(load.name), text=why)


@dataclass(slots=True)
class LoadingState:
    """What outlasts a round: open copies, and how far this process's loads are."""

    open_copy: Callable[[str], OpenCopy]
    """Opens the copy at a URI; raises `ExportRefused` and what storages raise."""
    ddl: Ddl
    """Runs the statements of copies, on a connection of its own."""
    has_rows: Callable[[TableName], bool]
    """Whether a table of the target has any row."""
    is_ours: Callable[[TableName], bool]
    """Whether our own statements have made a table of the target what it is, as far as is known."""
    make_copy: Callable[[Callable[[Sequence[TableName]], object]], str] | None = None
    """Exports the source for a new feed and returns its URI; None: nobody asked for it.

    First it gives the names of all tables to a function that may raise.
    """
    copies: dict[str, OpenCopy] = field(default_factory=dict)
    """By URI."""
    loads: dict[str, Load] = field(default_factory=dict)
    """By table key: those whose copies are being written."""
    created: set[str] = field(default_factory=set)
    """Ids of the loads whose tables exist."""
    waits: LoadWaits = field(default_factory=LoadWaits)
    refused: set[TableName] = field(default_factory=set)
    """Tables whose last requested load was refused, in this run with --once."""
    ended: bool = False
    """Whether a load ended since the state was read, so that it has to be read again."""
    rate: float = FIRST_RATE
    """Bytes in a second."""
    fenced_for: int = -1
    """The epoch for which former owners were fenced."""

    def follow(self, former: LoadingState | None) -> None:
        """Keep what still holds of `former`, this process's state before it was read anew."""
        if former is None:
            return
        # Nothing is asked for or logged more often.
        self.waits, self.refused = former.waits, former.refused
        # Loads of many tables end one by one: what was read for others is not read again.
        if former.ended and former.loads:
            self.copies, self.created = former.copies, former.created
            self.rate, self.fenced_for = former.rate, former.fenced_for

    def copy_at(self, uri: str) -> OpenCopy:
        """Return the copy at a URI, opened at first use."""
        if uri not in self.copies:
            self.copies[uri] = self.open_copy(uri)
        return self.copies[uri]

    def answered(self, load: Load, clock: Clock, downstream: Downstream) -> OpenCopy | None:
        """Return a load's copy, or None without an answer: ask again after `LOOK_AGAIN` seconds.

        Raises `ExportRefused`.
        """
        until, why = self.waits.away.get(load.source, (0.0, ""))
        if not why or clock.monotonic() >= until:
            try:
                copy = self.copy_at(load.source)
            except StorageUnavailable as fault:
                why = str(fault)
                # From the end of the attempt, which may have taken longer than that.
                self.waits.away[load.source] = clock.monotonic() + LOOK_AGAIN, why
            else:
                self.waits.away.pop(load.source, None)
                self.waits.told.discard((load.load_id, "store"))
                return copy
        self.waits.tell(
            load,
            "store",
            f"{load.source} does not answer, and is asked again every {LOOK_AGAIN:.0f} s: {why}. To give it up: "
            f"{cancel_command(load.name, downstream)}",
        )
        return None

    def origins(self) -> tuple[Upstream, ...]:
        """Return where the files of the open copies are, in the order of `origin_of`."""
        return tuple(copy.origin for copy in self.copies.values())

    def origin_of(self, uri: str) -> int:
        """Return the number of a copy's origin; 0 is the bucket."""
        return 1 + list(self.copies).index(uri)


def loads_to_begin(
    uri: str, copy: OpenCopy, wanted: Iterable[str], load_id: str, *, replaces: bool
) -> list[Load]:
    """Return the loads of these tables of a copy, by table key."""
    found: list[Load] = []
    for key in wanted:
        table = copy.tables[key]
        found.append(
            Load(
                table_key=key,
                name=table.definition.name,
                load_id=f"{load_id}-{len(found)}",
                source=uri,
                identity=copy.identity,
                low=copy.snapshot,
                high=copy.snapshot,
                phase=LoadPhase.LOADING,
                parts=len(table.parts),
                size=sum(part.size for part in table.parts),
                is_view=table.definition.ddl_type == DdlKind.CREATE_VIEW,
                replaces=replaces,
            )
        )
    return found


def copy_of(export: Export, origin: Upstream) -> OpenCopy:
    """Return an export as a copy; raise `ExportRefused` without its TSO.

    `origin`: its files, and how they are written.
    """
    if not export.snapshot:
        raise ExportRefused(export.snapshot_hint)
    tables = {}
    for table in export.tables:
        # The columns of its rows, which lack the generated ones.
        carried = tuple(_as_in_files(column, origin.time_zone) for column in table.carried)
        definition = replace(table.definition, columns=carried)
        tables[key_of(table.name)] = CopiedTable(definition=definition, parts=table.parts)
    return OpenCopy(
        identity=export.identity,
        snapshot=export.snapshot,
        origin=origin,
        databases={folded_name(database.name.schema): database for database in export.databases},
        # After the tables: each view after those that it selects from.
        tables={
            **tables,
            **{key_of(view.name): CopiedTable(definition=view) for view in export.views},
        },
        notes=(*export.notes, *filter(None, [zone_caveat(origin.time_zone)])),
    )


def with_form(origin: Upstream, export: Export, bucket_time_zone: str) -> Upstream:
    """Return an export's origin with the format that its files show, first their zone."""
    zone = export.time_zone or origin.time_zone
    options = replace(
        origin.dump,
        file_format=export.file_format,
        compression=export.compression,
        time_zone=zone,
        bucket_time_zone=bucket_time_zone,
    )
    return replace(
        origin,
        protocol="dump-sql" if export.file_format == "sql" else "dump-csv",
        dump=options,
        time_zone=zone,
    )


def _as_in_files(column: TableColumn, zone: str) -> TableColumn:
    """Return a column as a schema file describes it, with the default of a TIMESTAMP in UTC."""
    if column.type != "TIMESTAMP" or not column.default:
        return column
    # What is no time is CURRENT_TIMESTAMP.
    with suppress(ValueError):
        return replace(column, default=utc_of(zone, column.default))
    return column
