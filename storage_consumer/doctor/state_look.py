"""The look at the state in the target: its version, whose it is, who writes, and what is left to do. It asks for no lease."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field

from storage_consumer.checkpoint.operator import OLDER_TOO, StateInspector
from storage_consumer.checkpoint.operator_feed import FeedRow
from storage_consumer.checkpoint.reading import StateReader
from storage_consumer.config.commands import reaching
from storage_consumer.config.settings import Downstream
from storage_consumer.downstream.state_tables import STATE_VERSION
from storage_consumer.driver.lease_holder import process_is_gone
from storage_consumer.driver.remedies import table_command
from storage_consumer.model import TableName
from storage_consumer.monitoring.status import Status, judged
from storage_consumer.plan.table_decisions import is_skipped
from storage_consumer.plan.table_state import TableState


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFacts:
    """The state; without a version there is none."""

    schema: str
    reach: tuple[str, ...]
    """The flags by which a command reaches this state."""
    now: float
    """Seconds since 1970-01-01 UTC by this machine's clock."""
    version: int | None = None
    feed: FeedRow | None = None
    """None for a state that cannot be read."""
    status: Status | None = None
    """None for a state of another version."""
    finished: Mapping[str, int] = field(default_factory=dict)
    """Sequence → the number up to which it is finished (inclusive)."""
    wanted: Mapping[str, int] = field(default_factory=dict)
    """Sequence → the highest number (inclusive) of the files that were listed, or missed, and may not be finished."""
    skipped: frozenset[TableName] = frozenset()
    """Folded names of the tables that operators leave out."""
    writer_is_gone: bool = False
    """Whether the holder of the lease was a process of this machine that no longer runs."""


def state_look(downstream: Downstream, password: str, now: float) -> StateFacts:
    """Return the state; raise `ConfigError` or `TargetUnavailable`."""
    with closing(StateReader(downstream, password)) as reader:
        version = reader.version()
    none = StateFacts(schema=downstream.state_schema, reach=tuple(reaching(downstream)), now=now, version=version)
    if version not in OLDER_TOO:
        return none
    with closing(StateInspector(downstream, password, OLDER_TOO)) as desk:
        feed = desk.feed.row()
        is_current = version == STATE_VERSION
        status = (
            judged(desk.status.snapshot(), lambda v, name: table_command(v, name, downstream)) if is_current else None
        )
        return StateFacts(
            schema=none.schema,
            reach=none.reach,
            now=now,
            version=version,
            feed=feed,
            status=status,
            finished={name: each.upto for name, each in desk.feed.sequences().items()},
            wanted=_wanted(desk) if is_current else {},
            skipped=frozenset(
                each.name.folded()
                for each in (status.snapshot.tables if status else ())
                if is_skipped(each.state, each.error)
            ),
            writer_is_gone=feed.is_held and process_is_gone(feed.holder),
        )


def _wanted(desk: StateInspector) -> dict[str, int]:
    found: dict[str, int] = {}
    rows = desk.tables.all()
    for row in (row for row in rows if row.stored.state not in (TableState.DROPPED, TableState.EXCLUDED)):
        for sequence, number in (*row.stored.copies.listed.items(), *row.stored.copies.absent.items()):
            found[sequence] = max(number, found.get(sequence, 0))
    return found
