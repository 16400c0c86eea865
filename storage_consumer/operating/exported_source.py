"""An export as what a target is compared with: each table that has come to exactly the export's TSO."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from dataclasses import replace

from storage_consumer.downstream.reading import Pace
from storage_consumer.driver.copies import OpenCopy
from storage_consumer.model import DdlKind, TableColumn, TableDefinition, TableName, folded_name
from storage_consumer.operating.compared_source import NotComparable
from storage_consumer.operating.exported_rows import ExportedRows, Files
from storage_consumer.storage.base import Storage
from storage_consumer.telemetry import tso_time
from storage_consumer.verifying.cut import TableLook
from storage_consumer.verifying.forms import PairedColumn
from storage_consumer.verifying.layout import TableLayout, layout_of
from storage_consumer.verifying.side import ColumnShape, TableShape
from storage_consumer.verifying.structure import StructureFound

KIND = "export"
"""In place of the kind of a server."""
_NOT_SUMMED = frozenset(("float", "double", "json", "vector"))
"""Types whose texts in an export are not those of servers; values are compared one by one."""
_ROUNDED_BELOW, _ROUNDED_FROM = (struct.unpack(">f", struct.pack(">f", number))[0] for number in (1e-15, 1e15))
"""As 32 bits hold them: of a FLOAT up to the one, or from the other on, an export has six digits."""
_STANDING_IN = {"json": "longtext", "vector": "longtext"}
"""Types of TiDB → what MySQL and MariaDB have in their place."""
CAVEAT = "an export shows a structure only as a statement: names of columns, types and NULL are compared, no defaults and no indexes"


class ExportSource:
    """The tables of an export, see `ComparedSource`."""

    def __init__(self, copy: OpenCopy, files: Files) -> None:
        """Read this copy, which has these files."""
        self.shows_early = False
        self.is_partial = True
        self.notes: tuple[str, ...] = (CAVEAT,)
        self._copy = copy
        self._files = files
        self._rows: ExportedRows | None = None

    def opened(self, look: TableLook) -> tuple[ExportedRows, TableShape] | None:
        """Return a table of the export; see `ComparedSource.opened`."""
        table, snapshot = self._copy.tables.get(look.table_key), self._copy.snapshot
        if table is None:
            return None
        if look.checkpoint != snapshot:
            raise NotComparable(_elsewhere(look.checkpoint, snapshot))
        self.close()
        shape = _shape(table.definition)
        self._rows = ExportedRows(table, shape, self._files)
        return self._rows, shape

    def structure(self, here: TableShape, there: TableShape) -> StructureFound:
        """Return what differs in the structures, as far as an export shows it."""
        found, others = StructureFound(), {folded_name(column.name): column for column in there.columns}
        for column in here.columns:
            other = others.pop(folded_name(column.name), None)
            if other is None:
                found.differences.append(f"column {column.name}: the target lacks it")
                continue
            stands_in = _STANDING_IN.get(column.data_type) == other.data_type
            types = (_type(column), _type(other))
            found.judge(f"column {column.name}: type", *types, equivalence=column.data_type if stands_in else "")
            found.judge(f"column {column.name}: NULL", column.nullable, other.nullable)
        # Rows in an export lack generated columns.
        left = [column.name for column in others.values() if not column.is_generated]
        found.differences += [f"column {name}: the source does not have it" for name in left]
        return found

    def layout(self, here: TableShape, there: TableShape) -> TableLayout:
        """Return what is compared of the rows."""
        # Which columns tell rows apart, the target's indexes say.
        layout = layout_of(replace(here, indexes=there.indexes), there)
        return replace(layout, columns=tuple(map(_as_exported, layout.columns)))

    def tables(self, ts: int) -> frozenset[TableName]:  # noqa: ARG002 - an export is as it is
        """Return the tables of the export; see `ComparedSource.tables`."""
        definitions = (table.definition for table in self._copy.tables.values())
        return frozenset(each.name for each in definitions if each.ddl_type != DdlKind.CREATE_VIEW)

    def end(self) -> None:
        """Do nothing: an export keeps nobody from going on."""

    def close(self) -> None:
        """Remove what was decoded."""
        if self._rows is not None:
            self._rows.close()
        self._rows = None


def exported_source(copy: OpenCopy, storage: Storage) -> Callable[[Pace, threading.Event], ExportSource]:
    """Return what compares with an export; see `verification.OpensSource`."""
    return lambda pace, stop: ExportSource(copy, Files(copy.origin, storage, pace, stop))


def _elsewhere(checkpoint: int, snapshot: int) -> str:
    """Return why a table that is at another commit-ts cannot be compared."""
    where = f"it is at {checkpoint} ({tso_time(checkpoint)}), and the export is as of {snapshot} ({tso_time(snapshot)})"
    if checkpoint < snapshot:
        return f"{where}: let the consumer run up to there, `storage-consumer run --until {snapshot}`"
    return f"{where}: take a newer export, and let the consumer stop there (`storage-consumer run --until TSO`), or compare with the source (--source)"


def _shape(definition: TableDefinition) -> TableShape:
    """Return the structure of a table of an export, as far as that shows it."""
    is_view = definition.ddl_type == DdlKind.CREATE_VIEW
    return TableShape(kind=KIND, columns=tuple(map(_column, definition.columns)), is_view=is_view)


def _column(column: TableColumn) -> ColumnShape:
    kind = column.type.lower()
    digits = f"({column.precision},{column.scale or 0})" if kind == "decimal" else ""
    return ColumnShape(
        name=column.name,
        data_type=kind,
        column_type=f"{kind}{digits}{' unsigned' if column.unsigned else ''}",
        nullable=column.nullable,
    )


def _type(column: ColumnShape) -> str:
    """Return what of a type an export and a server show alike."""
    # Of BIT and YEAR, only an export's columns say it.
    signed = column.data_type in ("bit", "year") or "unsigned" not in column.column_type
    return column.data_type if signed else f"{column.data_type} unsigned"


def _as_exported(column: PairedColumn) -> PairedColumn:
    """Return how a column is compared whose values come from an export."""
    if column.source.data_type not in _NOT_SUMMED:
        return column
    normal = exported_float if column.source.data_type == "float" else column.normal
    return replace(column, sums_agree=False, normal=normal)


def exported_float(value: bytes) -> bytes:
    """Return a FLOAT in the form in which an export and a server show it alike."""
    number = float(value)
    try:
        single = struct.pack(">f", number)
    except OverflowError:  # six digits may say a little more than a FLOAT can hold
        return struct.pack(">d", float(f"{number:.5e}"))
    # Both show what 32 bits hold, and an export rounds just that.
    (number,) = struct.unpack(">f", single)
    if number == 0 or _ROUNDED_BELOW < abs(number) < _ROUNDED_FROM:
        return single
    return struct.pack(">d", float(f"{number:.5e}"))
