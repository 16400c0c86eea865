"""The other side of a comparison: the changefeed's server, as of a target table's commit-ts."""

from __future__ import annotations

from storage_consumer.checkpoint.findings import SnapshotState
from storage_consumer.config.parsers import is_system
from storage_consumer.errors import SnapshotLost
from storage_consumer.model import TableName
from storage_consumer.rows.compared_layout import TableShape
from storage_consumer.rows.comparison import TableLook, is_compared
from storage_consumer.sql.tokens import qualified
from storage_consumer.target.existing_names import text_of
from storage_consumer.target.source_reading import ComparedTable, Reading

SHOWN_EARLY = 600_000
"""Milliseconds for which the source may show the effect of a statement before its version; TiDB's
own transactions hold it up.
"""


class NotComparable(Exception):
    """The table cannot be compared now; the message says why."""


def look_at(target: Reading, state_schema: str, table_key: str) -> TableLook:
    """Take a snapshot of the target, and return what its state says of a table.

    Raises `NotComparable` for a table whose rows its checkpoint does not describe.
    """
    target.begin()
    look = SnapshotState(target, state_schema).look(table_key)
    if look is None:
        raise NotComparable("the state does not know it any more")
    if not is_compared(look.state, look.error):
        raise NotComparable(f"it is {look.state}")
    return look


class ComparedSource:
    """One worker's way to the source of the tables. Only a TiDB can be read as of a commit-ts."""

    def __init__(self, reading: Reading, *, is_frozen: bool) -> None:
        """Read on this connection; `is_frozen`: nothing writes to the server; read it as it is."""
        self._reading = reading
        self.shows_early = not is_frozen
        """Whether it may show the effect of a statement before its version, so that another cut may
        find fewer differences.
        """

    def opened(self, look: TableLook) -> tuple[ComparedTable, TableShape] | None:
        """Return a table as of a snapshot's checkpoint, and its structure there, or None.

        Raises `NotComparable`, and what reading raises.
        """
        table = ComparedTable(self._reading, look.table)
        try:
            self._begin(look.checkpoint)
            here = table.structure()
        except SnapshotLost as fault:
            # Where the checkpoint stands still, another look finds the same.
            if not look.writer:
                raise NotComparable(
                    f"the source no longer has its rows of the checkpoint {look.checkpoint} ({fault}): let the consumer go on "
                    "first, or raise tidb_gc_life_time at the source"
                ) from fault
            raise
        if not (here is None or here.is_view) and self.shows_early:
            self._reading.refuse_ignored(look.checkpoint, qualified(table.name))
        return (table, here) if here is not None else None

    def _begin(self, ts: int) -> None:
        if self.shows_early:
            self._reading.begin_at(ts)
        else:
            self._reading.begin()

    def tables(self, ts: int) -> frozenset[TableName]:
        """Return tables with own rows at a commit-ts; none where that is no longer known."""
        try:
            self._begin(ts)
            found = self._reading.rows(
                "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'"
            )
        except SnapshotLost:
            return frozenset()
        finally:
            self._reading.end()
        names = (TableName(schema=text_of(schema), table=text_of(table)) for schema, table in found)
        return frozenset(name for name in names if not is_system(name.schema))

    def end(self) -> None:
        """End the snapshot, which keeps others from going on; another look may follow."""
        self._reading.end()

    def close(self) -> None:
        """Close the connection."""
        self._reading.close()
