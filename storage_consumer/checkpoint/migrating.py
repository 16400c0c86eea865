"""What changed its meaning between two versions of the state, apart from new tables and columns."""

from __future__ import annotations

from sqlalchemy import func, select, update
from sqlalchemy.engine import Connection

from storage_consumer.checkpoint.tables import StateTables
from storage_consumer.plan.table import DROPPED, EXCLUDED


def part_checkpoints(connection: Connection, tables: StateTables) -> None:
    """Split the feed's checkpoint in two.

    Until version 4 the feed's one checkpoint left halted tables out. From now on that is the checkpoint of the running tables, and the
    other one includes all.
    """
    feed, progress = tables.feed, tables.tables
    running = connection.execute(select(feed.c.checkpoint)).scalar_one()
    own = select(func.min(progress.c.checkpoint)).where(
        progress.c.follows.is_(False), progress.c.state.not_in((DROPPED, EXCLUDED))
    )
    behind = connection.execute(own).scalar_one()
    lowest = running if behind is None else min(running, behind)
    connection.execute(update(feed).values(checkpoint=lowest, checkpoint_running=running))
