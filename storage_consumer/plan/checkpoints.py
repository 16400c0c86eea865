"""How far the target is: over all tables, and over those that are running. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from storage_consumer.plan.table import HALTED, TableConsumer
from storage_consumer.tso import lowest


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """Both are inclusive; `lowest` is never beyond `running`."""

    lowest: int = 0
    """Over all tables that are not left out, halted ones included: what other programs may rely on."""
    running: int = 0
    """Over the tables that are not halted: what an idle table follows."""


def checkpoints(tables: Iterable[TableConsumer], storage_checkpoint: int) -> Checkpoints:
    """Return both checkpoints; neither is beyond the storage's, which idle tables have reached, though a copied table may be further."""
    known = list(tables)
    running = lowest((table.checkpoint for table in known if table.state != HALTED), storage_checkpoint)
    halted = [table.checkpoint for table in known if table.state == HALTED and not table.excluded]
    return Checkpoints(lowest=lowest(halted, running), running=running)
