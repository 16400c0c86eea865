"""An export as a copy that tables are loaded from."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from storage_consumer.bucket.export import Export, ExportTable
from storage_consumer.config.settings import Upstream
from storage_consumer.decode.values import utc_of, zone_caveat
from storage_consumer.driver.open_copies import CopiedTable, OpenCopy
from storage_consumer.errors import ExportRefused
from storage_consumer.model import TableColumn, folded_name
from storage_consumer.plan.steps import key_of


def copy_of(export: Export, origin: Upstream) -> OpenCopy:
    """Return an export as a copy; raise `ExportRefused` if it does not say as of when it is. `origin`: its files, and how they are written."""
    if not export.snapshot:
        raise ExportRefused(export.snapshot_hint)
    tables = {key_of(table.name): _copied(table, origin.time_zone) for table in export.tables}
    return OpenCopy(
        identity=export.identity,
        snapshot=export.snapshot,
        origin=origin,
        databases={folded_name(database.name.schema): database for database in export.databases},
        # After the tables: each view after those that it selects from.
        tables={**tables, **{key_of(view.name): CopiedTable(definition=view) for view in export.views}},
        notes=(*export.notes, *filter(None, [zone_caveat(origin.time_zone)])),
    )


def with_form(origin: Upstream, export: Export, bucket_time_zone: str) -> Upstream:
    """Return the origin of an export with what its files show of how they are written; the zone that they state comes first."""
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
        protocol="dump-csv" if export.file_format == "csv" else "dump-sql",
        dump=options,
        time_zone=zone,
    )


def _copied(table: ExportTable, zone: str) -> CopiedTable:
    """Return a table with the columns of its rows, which lack the generated ones. `zone`: that of its TIMESTAMP values."""
    carried = tuple(_as_in_files(column, zone) for column in table.carried)
    return CopiedTable(definition=replace(table.definition, columns=carried), parts=table.parts)


def _as_in_files(column: TableColumn, zone: str) -> TableColumn:
    """Return a column as a schema file describes it, with the default of a TIMESTAMP in UTC."""
    if column.type != "TIMESTAMP" or not column.default:
        return column
    # What is no time is CURRENT_TIMESTAMP.
    with suppress(ValueError):
        return replace(column, default=utc_of(zone, column.default))
    return column
