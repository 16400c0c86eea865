"""Tables that are older than the changefeed, in a feed that began with a copy: the copy has to hold them. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from storage_consumer.plan.in_order import Together
from storage_consumer.plan.steps import DdlStep
from storage_consumer.plan.table import TableConsumer

NOT_IN_COPY = (
    "the copy that this feed began with does not hold the table of {}, and no statement since then creates it: its earlier rows "
    "are missing. Leave the table out, or give it a copy of the source. From an export: {}"
)


class OlderTables:
    """First structures of tables that neither the first copy nor a statement brings."""

    def __init__(self, floor: int) -> None:
        """`floor`: TSO of the copy that the feed began with, 0 for none."""
        self._floor = floor
        self._steps: dict[str, DdlStep] = {}

    def note(self, step: DdlStep) -> None:
        """Note a structure that nothing in the bucket creates; only the first of each table counts."""
        self._steps.setdefault(step.table_key, step)

    def lacking(
        self,
        storage_checkpoint: int,
        tables: Mapping[str, TableConsumer],
        ends_of: Callable[[TableConsumer], Together],
        command: Callable[[TableConsumer], str],
    ) -> dict[str, str]:
        """Return the tables that the copy should hold and does not, each once; key → error. `command`: gives a table its copy.

        A statement up to the copy may have ended a table. All of these are known once the storage checkpoint is beyond the copy.
        """
        if storage_checkpoint <= self._floor:
            return {}
        steps, self._steps = self._steps, {}
        return {
            key: NOT_IN_COPY.format(step.definition.path, command(tables[key]))
            for key, step in steps.items()
            if not (tables[key].status.excluded or ends_of(tables[key]).has_within(step.version, self._floor))
        }
